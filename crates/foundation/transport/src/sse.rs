//! Server-sent events from bytes, by the rules of the WHATWG HTML Standard, section 9.2.6.
//!
//! The decoder takes bytes as they come, cut anywhere, and gives the same events for the same bytes. It knows
//! nothing of models and may be used alone:
//!
//! ```
//! use formwork_transport::sse::Decoder;
//!
//! let mut decoder = Decoder::new(1024);
//! let mut texts = Vec::new();
//! for bytes in [&b": hello\r\ndata: on"[..], b"e\r", b"\ndata: two\n\nda", b"ta: cut off"] {
//!     decoder.push(bytes);
//!     while let Some(event) = decoder.next()? {
//!         texts.push(event.data.into_owned());
//!     }
//! }
//! assert_eq!(texts, ["one\ntwo"]);
//! # Ok::<(), formwork_transport::sse::Error>(())
//! ```

use std::{borrow::Cow, ops::Range};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its type; `message` where the stream names none.
    pub name: Cow<'a, str>,
    /// Its data, the lines joined by line feeds. Bytes that are not UTF-8 became U+FFFD.
    pub data: Cow<'a, str>,
    /// The last id that the stream gave, with this event or before it.
    pub id: &'a str,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// An event grew past the limit before it ended.
    #[error("an event has more than {limit} bytes")]
    TooLong { limit: usize },
}

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Decodes one stream.
///
/// An event that consists of one `data` line, which is all that providers send, is borrowed from the bytes that
/// were pushed and not copied again.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the event that is being read began; all before it is done with.
    event_start: usize,
    /// Where the line that is being read begins.
    line_start: usize,
    /// Up to where that line was searched for its end.
    searched: usize,
    at_start: bool,
    after_cr: bool,
    data: Data,
    name: Range<usize>,
    id: String,
    retry_ms: Option<u64>,
}

/// The data lines of the event so far.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// One line, where it stands in the buffer.
    Line(Range<usize>),
    /// Several lines, joined.
    Joined(Vec<u8>),
}

impl Decoder {
    /// Makes a decoder that refuses events of more than `limit` bytes.
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            buffer: Vec::new(),
            event_start: 0,
            line_start: 0,
            searched: 0,
            at_start: true,
            after_cr: false,
            data: Data::None,
            name: 0..0,
            id: String::new(),
            retry_ms: None,
        }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.event_start > 0 {
            self.forget();
        }
        // Looked for here, a line that comes in many small pieces costs one look at each.
        if self.searched == self.buffer.len() {
            self.searched += line_end(bytes).unwrap_or(bytes.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Tells whether nothing can be said before more bytes are pushed, neither an event nor that one is too long.
    #[inline]
    pub(crate) const fn is_waiting(&self) -> bool {
        self.searched == self.buffer.len()
            && !self.at_start
            && self.searched - self.line_start <= self.limit
    }

    /// Drops what is done with.
    fn forget(&mut self) {
        let done = self.event_start;
        if done == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.drain(..done);
        }
        self.event_start = 0;
        self.line_start -= done;
        self.searched -= done;
        if !self.name.is_empty() {
            self.name = self.name.start - done..self.name.end - done;
        }
        if let Data::Line(line) = &mut self.data {
            *line = line.start - done..line.end - done;
        }
    }

    /// Returns the next event that is whole, or nothing until more bytes are pushed.
    ///
    /// What stands after the last empty line of a stream is no event: the standard has it discarded.
    ///
    /// # Errors
    /// [`Error::TooLong`] when an event passes the limit; the stream cannot be read on.
    #[expect(clippy::should_implement_trait, reason = "an event borrows from the decoder")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        if self.is_waiting() { Ok(None) } else { self.next_event() }
    }

    fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        loop {
            if !self.in_event() {
                self.event_start = self.line_start;
            }
            let Some(line) = self.next_line() else { break };
            self.check(line.len())?;
            if !line.is_empty() {
                self.field(line);
            } else if matches!(self.data, Data::None) {
                self.name = 0..0;
            } else {
                self.check(self.line_start - self.event_start)?;
                return Ok(Some(self.event()));
            }
            if self.in_event() {
                self.check(self.line_start - self.event_start)?;
            }
        }
        // All are measured from places that do not depend on how the stream was cut.
        self.check(self.buffer.len() - self.line_start)?;
        Ok(None)
    }

    /// Returns the reconnection time that the stream last asked for, in milliseconds.
    pub const fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    fn check(&self, length: usize) -> Result<(), Error> {
        if length > self.limit { Err(Error::TooLong { limit: self.limit }) } else { Ok(()) }
    }

    fn in_event(&self) -> bool {
        !matches!(self.data, Data::None) || !self.name.is_empty()
    }

    /// Returns where the next whole line stands, without its end, and moves behind it.
    fn next_line(&mut self) -> Option<Range<usize>> {
        if self.after_cr && self.buffer.get(self.line_start) == Some(&b'\n') {
            if self.event_start == self.line_start {
                self.event_start += 1;
            }
            self.line_start += 1;
            self.searched = self.line_start;
            self.after_cr = false;
        }
        if self.at_start {
            let head = self.buffer.get(..BOM.len().min(self.buffer.len()))?;
            if head.len() < BOM.len() && BOM.starts_with(head) {
                return None; // It may still become a byte order mark.
            }
            if head == BOM {
                self.line_start = BOM.len();
                self.searched = self.searched.max(BOM.len());
                self.event_start = BOM.len();
            }
            self.at_start = false;
        }
        let Some(found) = line_end(self.buffer.get(self.searched..)?) else {
            // Any byte but a line feed, once it is there, ends the wait for the second half of a CRLF.
            self.after_cr &= self.line_start == self.buffer.len();
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        let line = self.line_start..end;
        // A carriage return ends the line now; a line feed that follows, perhaps much later, belongs to it.
        self.after_cr = self.buffer.get(end) == Some(&b'\r');
        self.line_start = end + 1;
        self.searched = self.line_start;
        Some(line)
    }

    fn field(&mut self, line: Range<usize>) {
        let bytes = self.bytes(&line);
        // What providers send, before what the standard allows.
        if let Some(value) = bytes.strip_prefix(b"data:") {
            let value = line.end - value.strip_prefix(b" ").unwrap_or(value).len()..line.end;
            return self.add_data(value);
        }
        if let Some(value) = bytes.strip_prefix(b"event:") {
            self.name = line.end - value.strip_prefix(b" ").unwrap_or(value).len()..line.end;
            return;
        }
        let (name, value) = match memchr::memchr(b':', bytes) {
            None => (bytes, line.end..line.end),
            Some(0) => return, // A comment.
            Some(colon) => {
                let space = usize::from(bytes.get(colon + 1) == Some(&b' '));
                (bytes.get(..colon).unwrap_or_default(), line.start + colon + 1 + space..line.end)
            }
        };
        match name {
            // Without a colon.
            b"data" => self.add_data(value),
            b"event" => self.name = value,
            b"id" => {
                let id = self.bytes(&value);
                if !id.contains(&0) {
                    self.id = String::from_utf8_lossy(id).into_owned();
                }
            }
            b"retry" => {
                let digits = self.bytes(&value);
                if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
                    self.retry_ms = std::str::from_utf8(digits).ok().and_then(|d| d.parse().ok());
                }
            }
            _ => {}
        }
    }

    fn add_data(&mut self, value: Range<usize>) {
        let mut joined = match std::mem::take(&mut self.data) {
            Data::None => {
                self.data = Data::Line(value);
                return;
            }
            Data::Line(first) => self.bytes(&first).to_vec(),
            Data::Joined(joined) => joined,
        };
        joined.push(b'\n');
        joined.extend_from_slice(self.bytes(&value));
        self.data = Data::Joined(joined);
    }

    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.buffer.get(range.clone()).unwrap_or_default()
    }

    /// Gives out the event whose empty line was just read.
    fn event(&mut self) -> Event<'_> {
        self.event_start = self.line_start;
        let name = std::mem::take(&mut self.name);
        let name = match self.buffer.get(name).unwrap_or_default() {
            [] => Cow::Borrowed("message"),
            name => text(name),
        };
        let data = match std::mem::take(&mut self.data) {
            Data::None => Cow::Borrowed(""),
            Data::Line(line) => text(self.buffer.get(line).unwrap_or_default()),
            Data::Joined(joined) => match String::from_utf8(joined) {
                Ok(text) => text.into(),
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned().into(),
            },
        };
        Event { name, data, id: &self.id }
    }
}

/// Returns where the first line ends, by a line feed or a carriage return.
fn line_end(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [] => None,
        // The empty line behind an event, and whatever `push` has found already.
        [b'\n' | b'\r', ..] => Some(0),
        [_] => None,
        _ => memchr::memchr2(b'\n', b'\r', bytes),
    }
}

/// Returns bytes as text. To look whether they are one costs a fraction of going through them for what is not.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests;
