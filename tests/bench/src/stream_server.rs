//! A server that answers every request with the same stream, a chunk for each event.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, Result};

/// A server on a thread, and a thread for each connection.
pub(crate) struct StreamServer {
    address: SocketAddr,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StreamServer {
    pub(crate) fn start(events: &[String]) -> Result<Self> {
        let mut answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                          transfer-encoding: chunked\r\n\r\n"
            .to_owned();
        for event in events {
            answer += &format!("{:x}\r\n{event}\r\n", event.len());
        }
        let answer: Arc<str> = (answer + "0\r\n\r\n").into();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Relaxed) {
                    break;
                }
                let answer = Arc::clone(&answer);
                // It ends when its client hangs up.
                drop(std::thread::spawn(move || serve(&stream, &answer)));
            }
        });
        Ok(Self { address, is_stopped, thread: Some(thread) })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for StreamServer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Relaxed);
        // Wakes it from its wait for the next connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(stream: &TcpStream, answer: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        (&*stream).write_all(answer.as_bytes())?;
    }
}
