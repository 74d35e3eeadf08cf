//! An HTTP/1.1 server with every byte and every pause in the test's hands.
//!
//! It is written on raw sockets because the faults worth testing lie below what a server library
//! lets through: a body cut in the middle of a character, a chunk that never comes, a header that
//! ends with the connection. It waits for the test, never for a clock.
//!
//! ```
//! use formwork_testkit::http::{Reply, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = Server::start().await?;
//! server.reply("/v1/models", Reply::json(429, r#"{"error":"busy"}"#).header("retry-after", "1"));
//! server.reply("/v1/models", Reply::json(200, r#"{"data":[]}"#));
//!
//! assert!(server.url().starts_with("http://127.0.0.1:"));
//! # Ok(())
//! # }
//! ```

mod reply;
mod request;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

pub use reply::{Gate, Reply};
pub use request::Request;

use reply::{Ending, Step};

/// A server on a loopback port that answers each path with the replies scripted for it, in order.
///
/// It stops, and cuts what is open, when the value is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
    accepting: AbortHandle,
    _tasks: JoinSet<()>, // Owns the accepting task, which owns a task per connection.
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let mut tasks = JoinSet::new();
        let accepting = tasks.spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state, accepting, _tasks: tasks })
    }

    /// Returns the address to send to, as `http://127.0.0.1:PORT` without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Queues `reply` for the next request to `path`, whose query does not count.
    ///
    /// A request that finds no reply left is answered with status 599 and a line that says so.
    pub fn reply(&self, path: &str, reply: Reply) {
        self.state.script().replies.entry(path.to_owned()).or_default().push_back(reply);
    }

    /// Answers every request to `path` with `reply` once the queued ones are used up.
    pub fn reply_always(&self, path: &str, reply: Reply) {
        self.state.script().standing.insert(path.to_owned(), reply);
    }

    /// Answers every request to `path` with what `answer` makes of it, once the queued replies are used up: for a
    /// server whose answer depends on what it is asked.
    pub fn answer(&self, path: &str, answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) {
        self.state.script().answering.insert(path.to_owned(), Answering(Arc::new(answer)));
    }

    /// Returns the requests so far, in the order they were read whole.
    pub fn requests(&self) -> Vec<Request> {
        self.state.script().requests.clone()
    }

    /// Waits until `count` requests have been read, and returns them all.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<Request> {
        let mut seen = self.state.seen.subscribe();
        // The sender lives in the state that this value holds, so it is never gone.
        let _ = seen.wait_for(|seen| *seen >= count).await;
        self.requests()
    }

    /// Waits until `count` connections have ended, by either side.
    pub async fn wait_for_closed(&self, count: usize) {
        let mut closed = self.state.closed.subscribe();
        let _ = closed.wait_for(|closed| *closed >= count).await;
    }

    /// Refuses new connections from here on; what is open is cut.
    pub fn stop(&self) {
        self.accepting.abort();
    }
}

#[derive(Debug, Default)]
struct State {
    script: Mutex<Script>,
    seen: watch::Sender<usize>,
    closed: watch::Sender<usize>,
}

/// Makes a reply of a request.
#[derive(Clone)]
struct Answering(Arc<dyn Fn(&Request) -> Reply + Send + Sync>);

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answering")
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: HashMap<String, VecDeque<Reply>>,
    standing: HashMap<String, Reply>,
    answering: HashMap<String, Answering>,
    requests: Vec<Request>,
}

impl State {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records `request` and returns what is scripted for it.
    fn answer(&self, request: Request) -> Reply {
        let mut script = self.script();
        let path = request.path().to_owned();
        let queued = script.replies.get_mut(&path).and_then(VecDeque::pop_front);
        let made = || script.answering.get(&path).map(|Answering(answer)| answer(&request));
        let reply = queued.or_else(made);
        let reply = reply.or_else(|| script.standing.get(&path).cloned()).unwrap_or_else(|| {
            Reply::text(599, &format!("no reply is scripted for {} {path}\n", request.method))
        });
        script.requests.push(request);
        drop(script);
        self.seen.send_modify(|seen| *seen += 1);
        reply
    }
}

/// Says that a connection has ended when it is dropped, also when its task is aborted.
struct Closing(Arc<State>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closed.send_modify(|closed| *closed += 1);
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let state = Arc::clone(&state);
                connections.spawn(async move {
                    let _closing = Closing(Arc::clone(&state));
                    // A client that leaves is part of many a test, and no fault of the server's.
                    let _ = serve(stream, &state).await;
                });
            },
            Some(_) = connections.join_next() => {} // Lets go of connections that have ended.
        }
    }
}

/// Answers the requests of one connection until a side ends it.
async fn serve(stream: TcpStream, state: &State) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = request::read(&mut stream).await? {
        let reply = state.answer(request);
        for step in reply.steps() {
            match step {
                Step::Bytes(bytes) => {
                    stream.get_mut().write_all(&bytes).await?;
                    stream.get_mut().flush().await?;
                }
                // A client that leaves while the test holds the gate has ended the connection.
                Step::Pause(gate) => tokio::select! {
                    () = gate.pass() => {}
                    () = gone(stream.get_ref()) => return Ok(()),
                },
            }
        }
        match reply.ending() {
            Ending::KeepAlive => {}
            Ending::Close => return stream.get_mut().shutdown().await,
            Ending::Reset => {
                // Unsent data is thrown away and the client's read fails, as when a peer crashes.
                stream.get_ref().set_zero_linger()?;
                return Ok(());
            }
            Ending::Stall => {
                gone(stream.get_ref()).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Waits until the client has ended the connection.
///
/// Clients don't send ahead of an answer; one that does is not seen to leave.
async fn gone(stream: &TcpStream) {
    if matches!(stream.peek(&mut [0]).await, Ok(sent) if sent > 0) {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
