//! Events that differ from the one before in their text alone, which need not be read as JSON again.
//!
//! Most events of a stream repeat one another: the same keys in the same order with the same values, and another word. Where
//! the bytes before and behind the word are those of the last event, and the word has nothing in it that would have to
//! be escaped, the JSON is the same JSON, and the word is all that is new. An event that differs anywhere else is read
//! as ever, so it costs a comparison to be wrong. Servers that number or date each event never gain by this; after a few of
//! them nothing is compared any more.

use crate::{
    draft::Draft,
    fault::Fault,
    wire::{Heard, Reader},
};

/// After how many events in a row that were not like the last none is looked for in this answer.
const TRIES: u8 = 16;

/// Reads the events of one answer: by their shape where that is known, and else by the rules of their wire.
pub(crate) struct Shaped {
    wire: Box<dyn Reader>,
    shape: Shape,
}

impl Shaped {
    pub(crate) fn new(wire: Box<dyn Reader>) -> Self {
        Self { wire, shape: Shape::default() }
    }

    /// Takes an event of a stream.
    ///
    /// # Errors
    /// When the server reports that it failed.
    #[inline]
    pub(crate) fn event(
        &mut self,
        name: &str,
        data: &str,
        draft: &mut Draft,
    ) -> Result<Heard, Fault> {
        if let Some(words) = self.shape.words(name, data) {
            match self.shape.kind {
                Words::Text => draft.add_text(words),
                Words::Reasoning => draft.add_reasoning(words),
            }
            self.shape.tries = 0;
            return Ok(Heard::Progress);
        }
        let before = draft.changes();
        let heard = self.wire.event(name, data, draft)?;
        if heard != Heard::Words {
            self.shape.is_known = false;
            return Ok(heard);
        }
        if draft.changes() == before + 1 {
            self.shape.learn(name, data, draft);
        }
        Ok(Heard::Progress)
    }

    /// Takes an answer that came in one piece although a stream was asked for.
    ///
    /// # Errors
    /// When it is no answer, or the server reports that it failed.
    pub(crate) fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        self.wire.whole(body, draft)
    }
}

/// What the words of an event are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Words {
    #[default]
    Text,
    Reasoning,
}

/// All of an event but its words.
#[derive(Debug, Default)]
struct Shape {
    is_known: bool,
    kind: Words,
    name: String,
    /// Up to the quotation mark before the words.
    before: String,
    /// From the quotation mark behind them.
    after: String,
    tries: u8,
}

impl Shape {
    /// Returns the words of an event that has this shape.
    #[inline]
    fn words<'a>(&self, name: &str, data: &'a str) -> Option<&'a str> {
        if !self.is_known {
            return None;
        }
        let words = data.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())?;
        (is_plain(words) && name == self.name).then_some(words)
    }

    /// Takes note of an event whose words were just added to the draft and that did nothing else.
    fn learn(&mut self, name: &str, data: &str, draft: &Draft) {
        if self.tries == TRIES {
            return;
        }
        // Words that had escapes stand nowhere in the event; what was known before is still true.
        let Some((kind, at)) = draft.last_words_in(data) else { return };
        let (Some(before), Some(after)) = (data.get(..at.start), data.get(at.end..)) else {
            return;
        };
        if !before.ends_with('"') || !after.starts_with('"') {
            return;
        }
        self.tries += 1;
        self.is_known = self.tries < TRIES;
        self.kind = kind;
        for (kept, new) in
            [(&mut self.name, name), (&mut self.before, before), (&mut self.after, after)]
        {
            kept.clear();
            kept.push_str(new);
        }
    }
}

/// Tells whether text stands in JSON as it is, and is not empty.
#[inline]
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

#[cfg(test)]
mod tests;
