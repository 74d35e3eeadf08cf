//! Events that differ from the one before in their text alone, which need not be read as JSON again.
//!
//! Most events of a stream repeat one another: the same keys in the same order with the same values, and another word. Where
//! all bytes around the word are those of the last event, and the word has nothing in it that would have to be escaped, the
//! JSON is the same JSON, and the word is all that is new. What a server counts, dates or pads its events with, and the wire
//! never reads, may differ too ([`Reader::unread`](crate::wire::Reader::unread)), and so may what it counts anew in each event
//! ([`Reader::counted`](crate::wire::Reader::counted)). An event that differs anywhere else is read as ever, so it costs a
//! comparison to be wrong; after a few of those in a row nothing is compared any more.

use std::ops::Range;

use crate::{
    draft::Draft,
    fault::Fault,
    mend,
    usage::Counts,
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
        if let Some((words, number)) = self.shape.words(name, data, draft.next_number()) {
            if let Some(number) = number {
                draft.numbered(number);
            }
            match self.shape.kind {
                Words::Text => draft.add_text(words),
                Words::Reasoning => draft.add_reasoning(words),
            }
            if let Some(count) = self.shape.count {
                draft.count_later(data, count);
            } else if self.shape.is_counted {
                draft.count_again();
            }
            self.shape.tries = 0;
            return Ok(Heard::Progress);
        }
        // Servers keep a connection alive by events of nothing as well.
        if data.trim().is_empty() {
            return Ok(Heard::Nothing);
        }
        draft.count_now();
        let before = draft.changes();
        let mut heard = self.wire.event(name, data, draft)?;
        if heard == Heard::Undecodable
            && let Some(mended) = mend::mended(data)
        {
            heard = match self.wire.event(name, &mended, draft)? {
                // Its words stand otherwise in the event that came.
                Heard::Words => Heard::Progress,
                heard => heard,
            };
        }
        if heard != Heard::Words {
            if heard == Heard::Undecodable {
                draft.lose("an event could not be read");
            }
            self.shape.is_known = false;
            return Ok(heard);
        }
        if draft.changes() == before + 1 {
            self.shape.learn(name, data, draft, &*self.wire);
        }
        Ok(Heard::Progress)
    }

    /// Takes an answer that came in one piece although a stream was asked for.
    ///
    /// # Errors
    /// When it is no answer, or the server reports that it failed.
    pub(crate) fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let mended = mend::mended(body);
        self.wire.whole(mended.as_deref().unwrap_or(body), draft)
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
    /// What stands around the places at which events differ, one piece behind the other.
    fixed: String,
    /// Where those places are, in their order: the words, and what is not read.
    gaps: Vec<Gap>,
    /// How the counts are read, where they may differ.
    count: Option<fn(&str) -> Option<Counts>>,
    /// Whether each event counts all that came, in the same words.
    is_counted: bool,
    tries: u8,
}

/// A place at which events differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gap {
    /// How much of the fixed text stands before it.
    at: usize,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Between the quotation marks of what the event is for.
    Words,
    /// Between those of a text that is not read.
    Text,
    /// A whole number that is not read, or only if it is the last.
    Number,
    /// The number of the event, which is one more than that of the last.
    Next,
}

impl Shape {
    /// Returns the words of an event that has this shape, and its number where it has one.
    #[inline]
    fn words<'a>(
        &self,
        name: &str,
        data: &'a str,
        next: Option<u64>,
    ) -> Option<(&'a str, Option<u64>)> {
        if !self.is_known || name != self.name {
            return None;
        }
        let (mut words, mut rest, mut from, mut counted) = ("", data, 0, None);
        for gap in &self.gaps {
            rest = rest.strip_prefix(self.fixed.get(from..gap.at)?)?;
            from = gap.at;
            let length = match gap.what {
                What::Words | What::Text => plain(rest),
                What::Number | What::Next => number(rest)?,
            };
            let (found, after) = rest.split_at_checked(length)?;
            rest = after;
            match gap.what {
                What::Words => words = found,
                // One that is out of its order is for the rules to judge.
                What::Next => counted = Some(found.parse::<u64>().ok()?),
                What::Text | What::Number => {}
            }
        }
        let is_in_order = counted.is_none() || counted == next;
        (!words.is_empty() && is_in_order && rest == self.fixed.get(from..)?)
            .then_some((words, counted))
    }

    /// Takes note of an event whose words were just added to the draft and that did nothing else.
    fn learn(&mut self, name: &str, data: &str, draft: &Draft, wire: &dyn Reader) {
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
        let mut gaps = vec![(at, What::Words)];
        gaps.extend(wire.unread().iter().filter_map(|key| value_of(key, data)));
        let number = wire.numbered().and_then(|key| value_of(key, data));
        let number = number.filter(|(_, what)| *what == What::Number);
        gaps.extend(number.map(|(at, _)| (at, What::Next)));
        let unread = gaps.len();
        self.count = wire.counted().and_then(|counted| {
            let values = counted.keys.iter().filter_map(|key| value_of(key, data));
            gaps.extend(values.filter(|(_, what)| *what == What::Number));
            (gaps.len() > unread).then_some(counted.read)
        });
        self.is_counted = draft.is_counted();
        gaps.sort_by_key(|(at, _)| at.start);
        self.tries += 1;
        self.is_known = self.tries < TRIES;
        self.kind = kind;
        self.name.clear();
        self.name.push_str(name);
        self.fixed.clear();
        self.gaps.clear();
        let mut from = 0;
        for (gap, what) in gaps {
            self.fixed.push_str(data.get(from..gap.start).unwrap_or_default());
            self.gaps.push(Gap { at: self.fixed.len(), what });
            from = gap.end;
        }
        self.fixed.push_str(data.get(from..).unwrap_or_default());
    }
}

/// Returns where the value of a key stands in JSON, if it is a whole number or a text without escapes.
///
/// The key is looked for by its bytes. A quotation mark within a text has a backslash before it, so behind a comma or a brace
/// these bytes are a key and nothing else.
fn value_of(key: &str, data: &str) -> Option<(Range<usize>, What)> {
    data.match_indices(key).find_map(|(at, _)| {
        let before = data.get(..at)?.strip_suffix('"')?.trim_end();
        let value = data.get(at + key.len()..)?.strip_prefix("\":")?.trim_start();
        if !before.ends_with([',', '{']) {
            return None;
        }
        let (value, length, what) = match value.strip_prefix('"') {
            Some(text) => (text, plain(text), What::Text),
            None => (value, number(value)?, What::Number),
        };
        let ends_well = match (what, value.as_bytes().get(length)) {
            (What::Text, end) => end == Some(&b'"'),
            (_, end) => matches!(end, Some(b',' | b'}' | b' ')),
        };
        let start = data.len() - value.len();
        ends_well.then_some((start..start + length, what))
    })
}

/// Returns how many bytes a text begins with that stand in JSON as they are.
#[inline]
fn plain(text: &str) -> usize {
    let special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    text.bytes().position(special).unwrap_or(text.len())
}

/// Returns how many bytes the whole number has that a text begins with, where it is written as JSON has it.
#[inline]
fn number(text: &str) -> Option<usize> {
    let length = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    // A longer one may be more than whoever reads it can hold.
    (length == 1 || (length > 1 && length < 19 && !text.starts_with('0'))).then_some(length)
}

#[cfg(test)]
mod tests;
