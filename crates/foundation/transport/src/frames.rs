//! How a body is cut into what its wire's reader takes: events, or lines of JSON.

use std::borrow::Cow;

use crate::sse::{self, Decoder, Error, Event};

/// Cuts one body.
#[derive(Debug)]
pub(crate) enum Frames {
    Events(Decoder),
    Lines(Lines),
}

impl Frames {
    /// Cuts server-sent events of at most `limit` bytes.
    pub(crate) const fn events(limit: usize) -> Self {
        Self::Events(Decoder::new(limit))
    }

    /// Cuts lines of at most `limit` bytes.
    pub(crate) const fn lines(limit: usize) -> Self {
        Self::Lines(Lines { limit, buffer: Vec::new(), start: 0, searched: 0 })
    }

    /// Adds the next bytes of the body.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Events(decoder) => decoder.push(bytes),
            Self::Lines(lines) => lines.push(bytes),
        }
    }

    /// Tells whether nothing can be said before more bytes are pushed.
    #[inline]
    pub(crate) const fn is_waiting(&self) -> bool {
        match self {
            Self::Events(decoder) => decoder.is_waiting(),
            Self::Lines(lines) => {
                lines.searched == lines.buffer.len() && lines.searched - lines.start <= lines.limit
            }
        }
    }

    /// Takes the end of the body. A last line needs no line feed; an event without its empty line is none.
    pub(crate) fn finish(&mut self) {
        if let Self::Lines(lines) = self {
            lines.push(b"\n");
        }
    }

    /// Returns the next frame that is whole.
    ///
    /// # Errors
    /// When it is too long; the body cannot be read on.
    pub(crate) fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        match self {
            Self::Events(decoder) => decoder.next(),
            Self::Lines(lines) => lines.next(),
        }
    }
}

/// Lines that are not empty.
#[derive(Debug)]
pub(crate) struct Lines {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the line that is being read begins.
    start: usize,
    /// Up to where it was searched for its end.
    searched: usize,
}

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        // Looked for here, a line that comes in many small pieces costs one look at each.
        if self.searched == self.buffer.len() {
            self.searched += line_feed(bytes).unwrap_or(bytes.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        let line = loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let found = line_feed(rest).map(|at| self.searched + at);
            let end = found.unwrap_or(self.buffer.len());
            if end - self.start > self.limit {
                return Err(Error::TooLong { limit: self.limit });
            }
            let Some(end) = found else {
                self.searched = self.buffer.len();
                return Ok(None);
            };
            let line = self.start..end;
            self.start = end + 1;
            self.searched = self.start;
            let bytes = self.buffer.get(line.clone()).unwrap_or_default();
            if !bytes.trim_ascii().is_empty() {
                break line;
            }
        };
        let data = sse::text(self.buffer.get(line).unwrap_or_default());
        Ok(Some(Event { name: Cow::Borrowed("message"), data, id: "" }))
    }
}

fn line_feed(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [] => None,
        [b'\n', ..] => Some(0),
        [_] => None,
        _ => memchr::memchr(b'\n', bytes),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Result<Vec<String>, Error> {
        let mut frames = Frames::lines(8);
        let mut lines = Vec::new();
        for chunk in chunks {
            frames.push(chunk);
            while let Some(line) = frames.next()? {
                lines.push(line.data.into_owned());
            }
        }
        frames.finish();
        while let Some(line) = frames.next()? {
            lines.push(line.data.into_owned());
        }
        Ok(lines)
    }

    #[test]
    fn a_last_line_needs_no_line_feed_and_an_empty_one_is_none() {
        assert_eq!(
            read(&[b"{}\r\n\n \n{\"a\":", b"1}"]),
            Ok(vec!["{}\r".into(), "{\"a\":1}".into()])
        );
        assert_eq!(read(&[b"123456789"]), Err(Error::TooLong { limit: 8 }));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_body_was_cut(
            body in "[a\u{e9}\n]{0,40}", at in prop::collection::vec(0_usize..80, 0..6),
        ) {
            let mut cuts: Vec<_> = at.into_iter().map(|at| at % (body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|cut| &body.as_bytes()[cut[0]..cut[1]]).collect();

            prop_assert_eq!(read(&chunks).ok(), read(&[body.as_bytes()]).ok());
        }
    }
}
