//! A long content, part by part: what begins in one part and ends in the next is seen whole.

use std::io::{self, Read};

/// How much is looked at at once.
pub(super) const WINDOW: usize = 4 << 20;

/// How much lies behind what belongs to a window: more than the longest match, and the rest of its line.
pub(super) const OVERLAP: usize = 32 << 10;

/// How much lies before it: as much as tells where a word or a line begins, and what a line allows.
pub(super) const CONTEXT: usize = 4 << 10;

/// Reads a content in windows that overlap.
pub(super) struct Windows<R> {
    from: R,
    size: usize,
    buffer: Vec<u8>,
    /// How many lines and bytes of the last of them lie before the buffer.
    lines: u64,
    column: u64,
    ended: bool,
}

/// A part of a content.
pub(super) struct Window<'a> {
    pub(super) bytes: &'a [u8],
    /// What ends before here belongs to the window before.
    pub(super) from: usize,
    /// What begins before here belongs to this window.
    pub(super) own: usize,
    /// How many of its bytes no window before it had.
    pub(super) fresh: u64,
    lines: u64,
    column: u64,
}

impl<R: Read> Windows<R> {
    /// Reads `from` in windows of `size` bytes, which is more than they overlap by.
    pub(super) const fn new(from: R, size: usize) -> Self {
        Self { from, size, buffer: Vec::new(), lines: 0, column: 0, ended: false }
    }

    /// Returns the next window; none after the last.
    pub(super) fn next(&mut self) -> io::Result<Option<Window<'_>>> {
        if self.ended {
            return Ok(None);
        }
        // What the last window left for this one.
        let keep = self.buffer.len().min(CONTEXT + OVERLAP);
        let passed = self.buffer.len() - keep;
        let gone: Vec<u8> = self.buffer.drain(..passed).collect();
        (self.lines, self.column) = after(&gone, self.lines, self.column);
        let room = self.size.saturating_sub(keep).max(1) as u64;
        let fresh = self.from.by_ref().take(room).read_to_end(&mut self.buffer)? as u64;
        self.ended = fresh < room;
        let own = match self.ended {
            true => self.buffer.len(),
            false => self.buffer.len().saturating_sub(OVERLAP),
        };
        let (from, bytes) = (keep.saturating_sub(OVERLAP), &self.buffer[..]);
        Ok(Some(Window { bytes, from, own, fresh, lines: self.lines, column: self.column }))
    }
}

impl Window<'_> {
    /// Returns the same part of a content without its zeros, which are in `plain`.
    pub(super) fn with<'b>(&self, plain: &'b [u8]) -> Window<'b> {
        let at = |at: usize| {
            let before = self.bytes.get(..at).unwrap_or(self.bytes);
            before.iter().filter(|byte| **byte != 0).count()
        };
        let (from, own) = (at(self.from), at(self.own));
        Window { bytes: plain, from, own, fresh: 0, lines: self.lines, column: self.column }
    }

    /// Returns the place where it begins.
    pub(super) const fn begin(&self) -> Place {
        Place { at: 0, line: self.lines, column: self.column }
    }
}

/// A place in a content, both from 0. It only moves on, so that many of them are counted in one go.
pub(super) struct Place {
    at: usize,
    pub(super) line: u64,
    pub(super) column: u64,
}

impl Place {
    /// Moves on to a byte of `bytes`, which are those of one window.
    pub(super) fn move_to(&mut self, bytes: &[u8], at: usize) {
        let between = bytes.get(self.at..at).unwrap_or_default();
        (self.line, self.column) = after(between, self.line, self.column);
        self.at = self.at.max(at);
    }
}

/// Returns how many lines there are behind some more bytes, and how many bytes of the last.
fn after(bytes: &[u8], lines: u64, column: u64) -> (u64, u64) {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(last) => (lines + ends, (bytes.len() - last - 1) as u64),
        None => (lines, column + bytes.len() as u64),
    }
}
