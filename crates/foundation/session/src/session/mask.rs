//! What a provider refuses for what is in it: the block is found and a marker stands for it, so that the conversation
//! is not lost with it.

use formwork_context::{Group, History, message_tokens};
use formwork_protocols::{
    Blob, CompactionCause, ContextCompacted, ContextEdit, EventBody, Part, ProviderError, Usd,
    canonical,
};

use super::Session;
use crate::Error;

/// How many parts what is new is divided into: each costs one more request that may be refused, and what is masked
/// together with the block at fault was sent in vain.
const PARTS: usize = 4;

/// What stands for a result.
const RESULT: &str = "[masked: the provider refused the request that had this result. Its whole is in the log; get at it in \
    another way, or go on without it.]";

/// What stands for an answer with its results, or for something said.
const GROUP: &str =
    "[masked: the provider refused the request that had what stood here. Its whole is in the log.]";

/// What stands for the image of a message whose words are kept.
const IMAGE: &str = "[an image is masked: the provider refused the request that had it]";

/// What a model is told whose answer a filter withheld.
const FILTERED: &str = "A filter of your provider withheld your answer. What the calls before it brought was masked, since it \
    may be why. Go on without it, or end the task and say what stands in the way.";

/// A search for what the provider refuses.
pub(super) struct Search {
    /// The conversation as it was refused.
    whole: History,
    /// What is masked at each try, in order.
    tries: std::vec::IntoIter<Vec<ContextEdit>>,
    /// What is masked now.
    masked: Vec<ContextEdit>,
}

impl Session {
    /// Masks the next part of what may be at fault for a refusal. Tells whether there was one.
    pub(super) fn mask_next(&mut self) -> bool {
        let mut search = match self.search.take() {
            Some(search) => search,
            None => Search {
                whole: self.history.clone(),
                tries: tries(&self.history, self.accepted, self.task_at).into_iter(),
                masked: Vec::new(),
            },
        };
        self.history = search.whole.clone();
        let next = search.tries.next();
        if let Some(edits) = &next {
            self.history.apply(edits);
            search.masked.clone_from(edits);
            self.search = Some(search);
        }
        self.tokens = self.history.messages().map(|message| message_tokens(&message)).sum();
        next.is_some()
    }

    /// Takes it that what was sent was not refused, and gathers what was masked for it.
    pub(super) fn accept(&mut self) -> Result<(), Error> {
        let Some(search) = self.search.take() else { return Ok(()) };
        self.put_masked(&search.whole, search.masked)
    }

    /// Leaves the search for what is at fault: the request failed for another reason.
    pub(super) fn leave_search(&mut self) {
        if let Some(search) = self.search.take() {
            self.history = search.whole;
            self.tokens = self.history.messages().map(|message| message_tokens(&message)).sum();
        }
    }

    /// Masks the results that are new since an answer was last given, where a filter withheld the next. Tells whether
    /// there were any.
    pub(super) fn mask_filtered(&mut self) -> Result<bool, Error> {
        let edits = results(&self.history, self.accepted);
        if edits.is_empty() {
            return Ok(false);
        }
        let whole = self.history.clone();
        self.history.apply(&edits);
        self.tokens = self.history.messages().map(|message| message_tokens(&message)).sum();
        self.put_masked(&whole, edits)?;
        self.put_user(FILTERED)?;
        Ok(true)
    }

    fn put_masked(&mut self, whole: &History, edits: Vec<ContextEdit>) -> Result<(), Error> {
        let session = self.id;
        let text = canonical::to_string(&edits)
            .map_err(|source| Error::UnwritableMessage { session, source })?;
        let blob = Blob::new(text.into_bytes());
        let tokens = |history: &History| -> u64 {
            history.messages().map(|message| message_tokens(&message)).sum()
        };
        let compacted = ContextCompacted {
            session,
            cause: CompactionCause::Refused,
            before: self.meter.likely(tokens(whole)),
            after: self.meter.likely(tokens(&self.history)),
            room: None,
            superseded: 0,
            spilled: 0,
            summarised: 0,
            masked: u32::try_from(edits.len()).unwrap_or(u32::MAX),
            // What is masked was never accepted, so that no cache held it.
            rebilled_tokens: 0,
            rebilled: Usd::ZERO,
            edits: Some(blob.hash()),
            handed_over: None,
        };
        self.record.put_with(self.task(), EventBody::ContextCompacted(compacted), blob);
        Ok(())
    }
}

/// Tells whether a refusal may be for what is in the request. What is scripted or recorded has no status, and refuses
/// what does not match it.
pub(super) fn may_be_content(error: &ProviderError) -> bool {
    matches!(error.status, Some(200 | 400 | 413 | 415 | 422))
}

/// Returns what is masked at each try: parts of the new results, all of them, all that is new, and the images of the
/// task last.
fn tries(history: &History, accepted: u32, task: u32) -> Vec<Vec<ContextEdit>> {
    let results = results(history, accepted);
    let size = results.len().div_ceil(PARTS).max(1);
    let mut tries: Vec<_> = results.chunks(size).map(<[ContextEdit]>::to_vec).collect();
    if tries.len() > 1 {
        tries.push(results);
    }
    let images = said(history, task, |place, group| {
        let has_more = |part: &Part| !matches!(part, Part::Text { .. });
        let is_new = place >= accepted || place == task;
        matches!(group, Group::User(said) if is_new && said.parts.iter().any(has_more))
    });
    let whole = said(history, task, |place, _| place >= accepted && place != task);
    for edits in [images, whole] {
        if !edits.is_empty() && !tries.contains(&edits) {
            tries.push(edits);
        }
    }
    tries
}

/// Masks each result behind a place that is not masked yet.
fn results(history: &History, accepted: u32) -> Vec<ContextEdit> {
    let mut edits = Vec::new();
    for (group, &place) in history.groups().iter().zip(history.places()) {
        let Group::Turn(turn) = group else { continue };
        for (at, result) in turn.results().iter().enumerate() {
            // A word of Formwork that is shorter than the marker is not at fault.
            let is_worth = result.content.len() > RESULT.len() || !result.attached.is_empty();
            if place >= accepted && is_worth {
                let result = u32::try_from(at).unwrap_or(u32::MAX);
                edits.push(ContextEdit::Result {
                    group: place,
                    result,
                    content: RESULT.to_owned(),
                });
            }
        }
    }
    edits
}

/// Masks whole groups; the words of a message that had an image stay.
fn said(history: &History, task: u32, is_meant: impl Fn(u32, &Group) -> bool) -> Vec<ContextEdit> {
    let groups = history.groups().iter().zip(history.places());
    let meant = groups.filter(|(group, place)| is_meant(**place, group));
    meant
        .map(|(group, &place)| {
            let words = match group {
                Group::User(said) => said.to_text(),
                Group::Turn(_) => String::new(),
            };
            let has_image = matches!(group, Group::User(said) if said.parts.len() > 1);
            let content = match has_image || place == task {
                true => format!("{words}\n\n{IMAGE}"),
                false => GROUP.to_owned(),
            };
            ContextEdit::Summary { from: place, through: place, content }
        })
        .collect()
}
