//! What can be left out of a conversation, and what has to stay.

mod fitting; // The steps, in their order.
mod note; // What stands in the place of what was left out.

use std::collections::{HashMap, HashSet};

use formwork_protocols::{Attachment, Blob, ContextEdit, ToolCall, ToolResult, text};

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
        index >= self.last || self.is_task(history, index)
    }

    /// Tells whether a group says what the conversation is about.
    fn is_task(&self, history: &History, index: usize) -> bool {
        index == 0 || history.places().get(index) == Some(&self.task)
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
            let is_shorter = stub.len() < result.content.len() || !result.attached.is_empty();
            if again && !protected.holds(history, index) && is_shorter {
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
                edits.extend(left(*place, at, result).map(|edit| (edit, None)));
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
            let content = with_left(content, &result.attached);
            let result = u32::try_from(at).unwrap_or(u32::MAX);
            edits.push((ContextEdit::Result { group: *place, result, content }, blob));
        }
    }
    edits
}

/// What is said of a picture that is shown no more.
const SHOWN_NO_MORE: &str =
    "it is older than what there is room for; look again if it still matters";

/// Adds a line for each picture that is shown no more.
fn with_left(mut content: String, attached: &[Attachment]) -> String {
    for attachment in attached {
        content.push_str(&format!("\n{}", attachment.unseen(SHOWN_NO_MORE)));
    }
    content
}

/// Leaves the pictures of a result out and keeps its words; nothing where it has none.
fn left(group: u32, at: usize, result: &ToolResult) -> Option<ContextEdit> {
    if result.attached.is_empty() {
        return None;
    }
    let content = with_left(result.content.clone(), &result.attached);
    Some(ContextEdit::Result { group, result: u32::try_from(at).unwrap_or(u32::MAX), content })
}

/// The most pictures that a conversation shows, and the most bytes that they have together: requests have limits of their
/// own whatever the window holds, and of more than twenty the strictest provider takes only small ones.
const MOST_PICTURES: (usize, u64) = (20, 14 * 1024 * 1024);

/// Leaves out the oldest pictures where there are too many, half of what may be there at once: what is behind the first
/// that goes is sent anew. The words around them stay; those of the task and of the last group are left.
pub fn pictures(history: &History, protected: &Protected) -> Vec<ContextEdit> {
    let size = |of: &Attachment| (1, of.bytes);
    let (mut count, mut bytes) = (0_usize, 0_u64);
    for (one, more) in history.attachments().map(size) {
        (count, bytes) = (count.saturating_add(one), bytes.saturating_add(more));
    }
    let (most, most_bytes) = MOST_PICTURES;
    let mut edits = Vec::new();
    if count <= most && bytes <= most_bytes {
        return edits;
    }
    let last = history.groups().len().saturating_sub(1);
    for (index, (group, place)) in history.groups().iter().zip(history.places()).enumerate() {
        if count <= most / 2 && bytes <= most_bytes / 2 {
            break;
        }
        let shown: Vec<_> = group.attachments().collect();
        if shown.is_empty() || index == last || protected.is_task(history, index) {
            continue;
        }
        count = count.saturating_sub(shown.len());
        bytes = bytes.saturating_sub(shown.iter().map(|of| of.bytes).sum());
        match group {
            Group::User(said) => {
                let attached: Vec<_> = said.attachments().cloned().collect();
                let content = with_left(said.to_text(), &attached);
                edits.push(ContextEdit::Summary { from: *place, through: *place, content });
            }
            Group::Turn(turn) => {
                let results = turn.results().iter().enumerate();
                edits.extend(results.filter_map(|(at, result)| left(*place, at, result)));
            }
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
