//! What can be left out of a conversation, and what has to stay.

mod fitting; // The steps, in their order.
mod note; // What stands in the place of what was left out.

use std::collections::{HashMap, HashSet};

use formwork_protocols::{Blob, ContextEdit, ToolCall, text};

use crate::{
    count,
    history::{Group, History},
};

pub use {
    fitting::{Fitting, Step},
    note::{brief, digest, summary},
};

/// How many bytes a result has at the most that is shown whole however old it is.
const SPILLED_BYTES: usize = 1_500;

/// How many bytes are shown of a longer one, half of them from its beginning.
const SHOWN_BYTES: usize = 700;

/// The line behind a result that says where the whole of it is, as the call pipeline writes it too.
const WHOLE: &str = "bytes in all; read the rest with output.read and hash ";

/// The most groups at the end of a conversation that are never touched.
const LAST_GROUPS: usize = 4;

/// The measure from which on a single turn is worth a summary.
const WORTH: u64 = 2_000;

/// What of a conversation is never touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protected {
    task: u32,
    /// The first of the last groups, by its index.
    last: usize,
}

impl Protected {
    /// Returns what is protected: the first group, the one at the place of the task, and the last ones, of
    /// which there are as many as their measure of at most `last` allows, and at least one.
    pub fn of(history: &History, task: u32, last: u64) -> Self {
        let (mut kept, mut measure) = (0, 0_u64);
        for group in history.groups().iter().rev().take(LAST_GROUPS) {
            measure = measure.saturating_add(measure_of(group));
            if kept > 0 && measure > last {
                break;
            }
            kept += 1;
        }
        Self { task, last: history.groups().len() - kept }
    }

    /// Tells whether a group is never touched.
    pub fn holds(&self, history: &History, index: usize) -> bool {
        let place = history.places().get(index).copied();
        index == 0 || index >= self.last || place == Some(self.task)
    }
}

/// Returns the measure of a group: the tokens that it has at the most.
pub(crate) fn measure_of(group: &Group) -> u64 {
    group.messages().map(|message| count::message_tokens(&message)).sum()
}

/// What a call looked at that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// What was looked at, such as a path.
    pub at: String,
    /// Whether all of it was shown.
    pub whole: bool,
    /// The call itself: two of the same key ask for the same.
    pub key: String,
}

/// Finds the results that a later one makes needless: of the same call, or of one that looks at the whole of the
/// same thing with the same tool. `look` says what a call looks at, if it only looks.
pub fn superseded(
    history: &History,
    protected: &Protected,
    look: &dyn Fn(&ToolCall) -> Option<Look>,
) -> Vec<ContextEdit> {
    let mut asked: HashSet<String> = HashSet::new();
    // How many bytes the whole of a thing has that is shown later.
    let mut shown: HashMap<(String, String), usize> = HashMap::new();
    let mut edits = Vec::new();
    let groups = history.groups().iter().zip(history.places()).enumerate();
    for (index, (group, place)) in groups.collect::<Vec<_>>().into_iter().rev() {
        let Group::Turn(turn) = group else { continue };
        for (at, (call, result)) in turn.pairs().enumerate().collect::<Vec<_>>().into_iter().rev() {
            let Some(Look { at: what, whole, key }) = look(call).filter(|_| !result.is_error)
            else {
                continue;
            };
            let of = (call.name.clone(), what);
            let again = asked.contains(&key)
                || shown.get(&of).is_some_and(|bytes| *bytes >= result.content.len());
            let stub =
                format!("[left out: {} of {} was made again later]", of.0, text::head(&of.1, 200));
            if again && !protected.holds(history, index) && stub.len() < result.content.len() {
                let result = u32::try_from(at).unwrap_or(u32::MAX);
                edits.push(ContextEdit::Result { group: *place, result, content: stub });
                continue;
            }
            asked.insert(key);
            if whole && !result.content.contains(WHOLE) {
                shown.entry(of).or_insert(result.content.len());
            }
        }
    }
    edits.reverse();
    edits
}

/// Shows only the beginning and the end of long results, and says how the whole can be read. Returns with each
/// edit the bytes that it refers to, where these are not kept already.
pub fn spilled(history: &History, protected: &Protected) -> Vec<(ContextEdit, Option<Blob>)> {
    let mut edits = Vec::new();
    for (index, (group, place)) in history.groups().iter().zip(history.places()).enumerate() {
        let Group::Turn(turn) = group else { continue };
        if protected.holds(history, index) {
            continue;
        }
        for (at, result) in turn.results().iter().enumerate() {
            let content = result.content.as_str();
            if content.len() <= SPILLED_BYTES {
                continue;
            }
            let last = content.lines().next_back().unwrap_or_default();
            let (body, line, blob) =
                if last.starts_with('[') && last.contains(WHOLE) && last.len() < 200 {
                    // The whole is kept already, and this one shows a part of it.
                    (content.strip_suffix(last).unwrap_or(content), last.to_owned(), None)
                } else {
                    let blob = Blob::new(content.as_bytes());
                    (content, format!("[{} {WHOLE}{}]", content.len(), blob.hash()), Some(blob))
                };
            let content = format!("{}\n{line}", text::preview(body.trim_end(), SHOWN_BYTES));
            let result = u32::try_from(at).unwrap_or(u32::MAX);
            edits.push((ContextEdit::Result { group: *place, result, content }, blob));
        }
    }
    edits
}

/// Groups that stand one after the other and may all be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them, by its index.
    pub first: usize,
    /// How many there are.
    pub count: usize,
    /// The place of the first in the log.
    pub from: u32,
    /// The place of the last.
    pub through: u32,
}

impl Stretch {
    /// Returns the groups.
    pub fn groups<'a>(&self, history: &'a History) -> &'a [Group] {
        history.groups().get(self.first..self.first + self.count).unwrap_or_default()
    }
}

/// Finds the oldest groups that one summary can stand for and that are worth it.
pub fn oldest(history: &History, protected: &Protected) -> Option<Stretch> {
    let free: Vec<_> =
        (0..history.groups().len()).filter(|index| !protected.holds(history, *index)).collect();
    free.chunk_by(|a, b| a + 1 == *b).find_map(|run| {
        let (first, last) = (*run.first()?, *run.last()?);
        let groups = history.groups().get(first..=last)?;
        let turns = groups.iter().filter(|group| matches!(group, Group::Turn(_))).count();
        let measure: u64 = groups.iter().map(measure_of).sum();
        // A summary alone is not summed up again.
        let is_worth = turns > 0 && measure >= WORTH;
        let places = history.places();
        is_worth.then_some(Stretch {
            first,
            count: run.len(),
            from: *places.get(first)?,
            through: *places.get(last)?,
        })
    })
}

#[cfg(test)]
mod tests;
