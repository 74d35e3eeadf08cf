//! A server of many streams at once: each waits until all have begun, then brings a chunk at every beat.

use std::{io::Write as _, net::Ipv4Addr, rc::Rc, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::LocalSet,
    time::{Instant, MissedTickBehavior, interval_at},
};

use crate::{cpu::monotonic, wires::WIRES};

/// What is streamed, and how.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Options {
    /// How many streams are waited for.
    pub(crate) streams: usize,
    /// How many chunks each brings.
    pub(crate) chunks: usize,
    /// The time from chunk to chunk, in microseconds.
    pub(crate) beat: u64,
}

/// How many digits the time has that stands in every chunk.
const DIGITS: usize = 20;

/// Serves until this process is ended. Its address is the first line that it prints.
pub(crate) fn run(options: Options) -> Result<()> {
    super::streams::raise_limit(options.streams)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        let script = Rc::new(Script::new(options)?);
        let (begun, all) = watch::channel(0_usize);
        let begun = Rc::new(begun);
        for number in 0.. {
            let (stream, _) = listener.accept().await?;
            let (script, begun, all) = (Rc::clone(&script), Rc::clone(&begun), all.clone());
            tokio::task::spawn_local(async move {
                // A client that hung up is the client's to tell of.
                let _ = script.serve(stream, number, &begun, all).await;
            });
        }
        Ok(())
    })
}

/// The bytes of an answer.
struct Script {
    options: Options,
    head: String,
    /// A chunk, as HTTP frames it, and where in it the time goes.
    chunk: String,
    time_at: usize,
    tail: String,
}

impl Script {
    fn new(options: Options) -> Result<Self> {
        const WORD: &str = " capital";
        let (before, event, after) = WIRES[0].around()?;
        let at = event.find(WORD).context("the event does not say what it said")?;
        let event = event.replacen(WORD, &"0".repeat(DIGITS), 1);
        let size = format!("{:x}\r\n", event.len());
        let framed = |events: &[&str]| -> String {
            events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect()
        };
        Ok(Self {
            options,
            head: "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                   transfer-encoding: chunked\r\n\r\n"
                .to_owned()
                + &framed(&before),
            time_at: size.len() + at,
            chunk: format!("{size}{event}\r\n"),
            tail: framed(&after) + "0\r\n\r\n",
        })
    }

    async fn serve(
        &self,
        stream: TcpStream,
        number: u32,
        begun: &watch::Sender<usize>,
        mut all: watch::Receiver<usize>,
    ) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::with_capacity(1024, stream);
        let mut chunk = self.chunk.clone().into_bytes();
        while let Some(is_counted) = request(&mut stream).await? {
            stream.write_all(self.head.as_bytes()).await?;
            if is_counted {
                begun.send_modify(|count| *count += 1);
                all.wait_for(|count| *count >= self.options.streams).await?;
            }
            let beat = Duration::from_micros(self.options.beat);
            // Spread over a beat, as streams that nobody starts together are.
            let first = beat / 1_000 * (number % 1_000);
            let mut beats = interval_at(Instant::now() + first, beat);
            beats.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for _ in 0..if is_counted { self.options.chunks } else { 1 } {
                beats.tick().await;
                let time = format!("{:0DIGITS$}", monotonic());
                let place = chunk.get_mut(self.time_at..self.time_at + DIGITS);
                place.context("no place for the time")?.copy_from_slice(time.as_bytes());
                stream.write_all(&chunk).await?;
            }
            stream.write_all(self.tail.as_bytes()).await?;
        }
        Ok(())
    }
}

/// Reads a request, and tells whether it is one of those that are waited for; nothing once the client has hung up.
async fn request(stream: &mut BufReader<TcpStream>) -> Result<Option<bool>> {
    let (mut line, mut length, mut is_counted) = (String::new(), 0, None);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        is_counted.get_or_insert(!line.contains("/warm/"));
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    Ok(is_counted)
}
