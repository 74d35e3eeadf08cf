//! What the server sends, step by step.

use std::fmt::Write as _;

use tokio::sync::watch;

/// An answer: a status, headers, and a body in pieces with pauses between them.
///
/// A body in one piece goes with `content-length`; [`Reply::chunk`] makes it a chunked one.
#[derive(Debug, Clone)]
pub struct Reply {
    head: Head,
    pieces: Vec<Piece>,
    ending: Ending,
}

#[derive(Debug, Clone)]
enum Head {
    /// The status and headers, to be framed by what the pieces are.
    Framed { status: u16, headers: Vec<(String, String)> },
    /// The bytes of the first piece hold the head too.
    Raw,
}

#[derive(Debug, Clone)]
enum Piece {
    Body(Vec<u8>),
    Chunk(Vec<u8>),
    Pause(Gate),
}

/// One thing the server does for a reply.
#[derive(Debug)]
pub(super) enum Step {
    Bytes(Vec<u8>),
    Pause(Gate),
}

/// How the server leaves the connection after a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    KeepAlive,
    Close,
    Reset,
    Stall,
}

impl Reply {
    /// Answers with `status` and no body yet.
    pub fn new(status: u16) -> Self {
        Self {
            head: Head::Framed { status, headers: Vec::new() },
            pieces: Vec::new(),
            ending: Ending::KeepAlive,
        }
    }

    /// Answers with `body` as JSON.
    pub fn json(status: u16, body: &str) -> Self {
        Self::new(status).header("content-type", "application/json").body(body)
    }

    /// Answers with `body` as plain text.
    pub fn text(status: u16, body: &str) -> Self {
        Self::new(status).header("content-type", "text/plain; charset=utf-8").body(body)
    }

    /// Answers 200 with `stream` as server-sent events, a chunk for each event.
    ///
    /// `stream` is what a captured `.sse` file holds; its bytes are not changed.
    pub fn sse(stream: impl AsRef<[u8]>) -> Self {
        events(stream.as_ref()).fold(Self::event_stream(), Self::chunk)
    }

    /// Answers 200 with `stream` as server-sent events in chunks of `size` bytes, which cut events
    /// and characters wherever they fall.
    ///
    /// # Panics
    /// When `size` is zero.
    pub fn sse_in(stream: impl AsRef<[u8]>, size: usize) -> Self {
        stream.as_ref().chunks(size).fold(Self::event_stream(), Self::chunk)
    }

    /// Answers 200 with the head of an event stream; the chunks are the caller's.
    pub fn event_stream() -> Self {
        Self::new(200).header("content-type", "text/event-stream; charset=utf-8")
    }

    /// Sends `bytes`, head and all, as they are and closes the connection.
    ///
    /// `bytes` is what a captured `.res.http` file holds.
    pub fn captured(bytes: impl AsRef<[u8]>) -> Self {
        Self {
            head: Head::Raw,
            pieces: vec![Piece::Body(bytes.as_ref().to_vec())],
            ending: Ending::Close,
        }
    }

    /// Adds a header. The length, or the chunked encoding, is the server's to add.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Head::Framed { headers, .. } = &mut self.head {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Adds bytes to a body whose length is told beforehand.
    #[must_use]
    pub fn body(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.pieces.push(Piece::Body(bytes.as_ref().to_vec()));
        self
    }

    /// Adds one chunk to a body of unknown length.
    #[must_use]
    pub fn chunk(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.pieces.push(Piece::Chunk(bytes.as_ref().to_vec()));
        self
    }

    /// Holds the rest back until the test opens `gate`.
    #[must_use]
    pub fn pause(mut self, gate: &Gate) -> Self {
        self.pieces.push(Piece::Pause(gate.clone()));
        self
    }

    /// Ends the connection after the pieces, before the body is whole: the closing chunk is not
    /// sent. The client sees the end of the stream.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.ending = Ending::Close;
        self
    }

    /// Resets the connection after the pieces: the client's read fails.
    #[must_use]
    pub fn reset(mut self) -> Self {
        self.ending = Ending::Reset;
        self
    }

    /// Sends nothing more after the pieces and keeps the connection open until the client leaves.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.ending = Ending::Stall;
        self
    }

    pub(super) fn ending(&self) -> Ending {
        self.ending
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if let Head::Framed { status, headers } = &self.head {
            steps.push(Step::Bytes(self.framed_head(*status, headers)));
        }
        steps.extend(self.pieces.iter().map(|piece| match piece {
            Piece::Body(bytes) => Step::Bytes(bytes.clone()),
            Piece::Chunk(bytes) => Step::Bytes(framed_chunk(bytes)),
            Piece::Pause(gate) => Step::Pause(gate.clone()),
        }));
        if self.is_chunked() && self.ending == Ending::KeepAlive {
            steps.push(Step::Bytes(b"0\r\n\r\n".to_vec()));
        }
        steps
    }

    fn framed_head(&self, status: u16, headers: &[(String, String)]) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in headers {
            // Writing to a string cannot fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if self.is_chunked() {
            head.push_str("transfer-encoding: chunked\r\n\r\n");
        } else {
            // A body that is to be cut, or never to be whole, promises more than it sends.
            let missing = usize::from(self.ending != Ending::KeepAlive);
            let _ = write!(head, "content-length: {}\r\n\r\n", self.body_length() + missing);
        }
        head.into_bytes()
    }

    fn is_chunked(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Chunk(_)))
    }

    fn body_length(&self) -> usize {
        self.pieces
            .iter()
            .map(|piece| if let Piece::Body(bytes) = piece { bytes.len() } else { 0 })
            .sum()
    }
}

/// Holds replies back until the test opens it. Once open, it stays open.
#[derive(Debug, Clone)]
pub struct Gate {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Makes a closed gate.
    pub fn new() -> Self {
        Self { open: watch::Sender::new(false), reached: watch::Sender::new(false) }
    }

    /// Lets everything through from here on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until the server stands at the gate, with all before it sent.
    pub async fn reached(&self) {
        let _ = self.reached.subscribe().wait_for(|reached| *reached).await;
    }

    pub(super) async fn pass(&self) {
        self.reached.send_replace(true);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

fn framed_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// Cuts `stream` after each empty line, in whatever line ending it is written.
fn events(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"]
            .iter()
            .filter_map(|blank| {
                rest.windows(blank.len()).position(|at| at == *blank).map(|at| at + blank.len())
            })
            .min()
            .unwrap_or(rest.len());
        let (event, after) = rest.split_at(end);
        rest = after;
        Some(event)
    })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
