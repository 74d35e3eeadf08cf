//! The model that answers at once: OpenAI's chat completions, streamed, over a socket of this machine.
//!
//! It keeps nothing of a conversation: it counts the results of tools in each request and asks for one
//! more call until there are enough, then ends the task. So a recorded request can be sent again.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// A request for an answer, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) body: Vec<u8>,
    /// From the end of the answer before to the whole of this request.
    pub(crate) gap: Option<Duration>,
}

/// What the model asks for in each turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Work {
    /// A command that says which step it is.
    #[default]
    Echo,
    /// A file that says so.
    Read,
}

impl Work {
    /// Returns the tool and its arguments.
    fn call(self, step: usize) -> (&'static str, Value) {
        match self {
            Self::Echo => ("exec", json!({ "command": ["echo", format!("step-{step}")] })),
            Self::Read => ("fs_read", json!({ "path": file(step) })),
        }
    }
}

/// Returns the name of the file that says which step it is.
pub(crate) fn file(step: usize) -> String {
    format!("notes-{step}.txt")
}

#[derive(Debug, Default)]
struct Seen {
    turns: Vec<Turn>,
    answered: Option<Instant>,
    /// What was asked besides.
    others: Vec<String>,
    calls: usize,
    work: Work,
}

/// A server on a thread, and a thread for each connection.
pub(crate) struct ModelServer {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ModelServer {
    pub(crate) fn start() -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&seen), Arc::clone(&is_stopped));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Relaxed) {
                    break;
                }
                let seen = Arc::clone(&shared);
                // It ends when its client hangs up.
                drop(std::thread::spawn(move || serve(&stream, &seen)));
            }
        });
        Ok(Self { address, seen, is_stopped, thread: Some(thread) })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forgets what it saw, and asks for so many calls from now on.
    pub(crate) fn reset(&self, calls: usize, work: Work) {
        *lock(&self.seen) = Seen { calls, work, ..Seen::default() };
    }

    /// Returns the requests for answers since it was reset, and what was asked besides.
    pub(crate) fn seen(&self) -> (Vec<Turn>, Vec<String>) {
        let seen = lock(&self.seen);
        (seen.turns.clone(), seen.others.clone())
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Relaxed);
        // Wakes it from its wait for the next connection.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, seen: &Mutex<Seen>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some((line, body)) = request(&mut reader)? {
        let arrived = Instant::now();
        let is_chat = line.starts_with("POST ") && line.contains("/chat/completions");
        let answer = if is_chat { chat(seen, body, arrived) } else { other(seen, &line) };
        (&*stream).write_all(&answer)?;
        if is_chat {
            lock(seen).answered = Some(Instant::now());
        }
    }
    Ok(())
}

/// Reads a request's first line and its body; nothing when the client has hung up.
fn request(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut first = String::new();
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((first, body)))
}

fn other(seen: &Mutex<Seen>, line: &str) -> Vec<u8> {
    lock(seen).others.push(line.trim_end().to_owned());
    let (status, body) = if line.starts_with("GET ") && line.contains("/models") {
        ("200 OK", json!({ "object": "list", "data": [{ "id": "bench", "object": "model" }] }))
    } else {
        ("404 Not Found", json!({ "error": { "message": "not here" } }))
    };
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn chat(seen: &Mutex<Seen>, body: Vec<u8>, arrived: Instant) -> Vec<u8> {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let messages = request["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let results = messages.iter().filter(|message| message["role"] == "tool").count();
    let mut seen = lock(seen);
    let gap = seen.answered.map(|answered| arrived.duration_since(answered));
    seen.turns.push(Turn { body, gap });
    let (calls, work) = (seen.calls, seen.work);
    drop(seen);
    let stream = if results < calls {
        let (tool, arguments) = work.call(results + 1);
        call(results + 1, tool, &arguments)
    } else {
        call(results + 1, "end_task", &json!({ "summary": "Every command was run." }))
    };
    let length = stream.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
         {length:x}\r\n{stream}\r\n0\r\n\r\n"
    )
    .into_bytes()
}

/// Asks for a tool.
fn call(step: usize, tool: &str, arguments: &Value) -> String {
    let first = json!({ "tool_calls": [{
        "index": 0, "id": format!("call_{step}"), "type": "function",
        "function": { "name": tool, "arguments": "" },
    }] });
    let mut deltas = vec![json!({ "role": "assistant", "content": null }), first];
    let arguments = arguments.to_string();
    // Arguments come in pieces, as from a real model.
    let (head, tail) = arguments.split_at(arguments.len() / 2);
    for piece in [head, tail] {
        let function = json!({ "arguments": piece });
        deltas.push(json!({ "tool_calls": [{ "index": 0, "function": function }] }));
    }
    events(&deltas, "tool_calls")
}

fn events(deltas: &[Value], reason: &str) -> String {
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1_700_000_000,
            "model": "bench", "choices": choices, "usage": usage,
        })
    };
    let choice = |delta: &Value, reason: Value| json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
    let mut chunks: Vec<Value> =
        deltas.iter().map(|delta| chunk(choice(delta, Value::Null), Value::Null)).collect();
    chunks.push(chunk(choice(&json!({}), json!(reason)), Value::Null));
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 });
    chunks.push(chunk(json!([]), usage));
    let lines: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    lines + "data: [DONE]\n\n"
}
