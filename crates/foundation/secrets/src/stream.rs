//! Scrubs what comes piece by piece.

use crate::Scrubber;

/// Scrubs pieces of one stream, also where a secret is cut between two of them.
///
/// It holds back only what may be the beginning of a secret; ordinary text passes at once.
#[derive(Debug)]
pub struct Stream {
    scrubber: Scrubber,
    held: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(scrubber: Scrubber) -> Self {
        Self { scrubber, held: Vec::new() }
    }

    /// Takes the next piece and returns what can be shown by now.
    #[must_use = "what is returned is not returned again"]
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let mut shown = Vec::with_capacity(self.held.len());
        let mut done = 0;
        let mut hold = self.scrubber.unfinished(&self.held, 0);
        for (start, end, marker) in self.scrubber.matches(&self.held) {
            if start >= hold {
                break; // A longer form may have begun before this one.
            }
            shown.extend_from_slice(self.held.get(done..start).unwrap_or_default());
            shown.extend_from_slice(marker.as_bytes());
            done = end;
            if hold < done {
                hold = self.scrubber.unfinished(&self.held, done);
            }
        }
        shown.extend_from_slice(self.held.get(done..hold).unwrap_or_default());
        self.held.drain(..hold);
        shown
    }

    /// Takes the next piece of text and returns the text that can be shown by now.
    #[must_use = "what is returned is not returned again"]
    pub fn push_text(&mut self, piece: &str) -> String {
        // A secret begins with a whole character, and so does what is held back.
        String::from_utf8_lossy(&self.push(piece.as_bytes())).into_owned()
    }

    /// Returns what was held back, at the end of the stream.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.scrubber.scrub_bytes(&self.held).into_owned()
    }
}
