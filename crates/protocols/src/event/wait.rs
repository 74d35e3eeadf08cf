//! Data of the events of what a task waits for, and of whom it asks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    event::Position,
    id::{EventName, SourceName, TaskId, TaskName},
    overseer::{Action, Choice},
    state::Escalation,
    time::Timestamp,
};

/// Data of `external.fired`; the event's principal is who says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalFired {
    /// What has happened.
    pub name: EventName,
    /// What there is to know of it; null where nothing.
    #[serde(default)]
    pub data: Value,
}

/// Data of `external.received`, in the log of the source; the event's principal is the source, as `source:NAME`. Each run with a
/// task that waits for an event of that name is told by `external.fired`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalReceived {
    /// Who has sent it.
    pub source: SourceName,
    /// What has happened, by the source's document.
    pub name: EventName,
    /// The name that the source gave the delivery; the hash of its body where it gave none.
    pub delivery: String,
    /// What was kept of the body.
    #[serde(default)]
    pub data: Value,
}

/// Data of `external.refused`, in the log of the source. Nothing of what was sent is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalRefused {
    /// Where it was sent to.
    pub source: SourceName,
    /// How many there were, by why: `unsigned`, `signature`, `stale`, `too_large`, `media_type`, `not_json`, `unmapped`, `unfit`,
    /// and `duplicate` for what had been let in before.
    pub counts: BTreeMap<String, u64>,
    /// From when on they are counted; until the event.
    pub since: Timestamp,
}

/// Data of `wait.met`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitMet {
    /// The event that was waited for, by its place in the store.
    pub event: Position,
}

/// Data of `task.blocked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBlocked {
    /// Whom it waits for.
    pub by: TaskId,
    /// The name of that task.
    pub name: TaskName,
    /// What the paths that both may write begin with; nothing where that is all.
    pub path: String,
}

impl std::fmt::Display for TaskBlocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = if self.path.is_empty() { "the workspace" } else { &self.path };
        write!(f, "waits for {} to release {path}", self.name)
    }
}

/// Data of `inbox.asked`; the item is named after the task that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxAsked {
    /// What is asked.
    pub question: String,
    /// What can be answered.
    pub options: Vec<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What is taken for the answer when nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assume: Option<String>,
    /// Whether it is about a task that was given up: the run has gone on by what is assumed, and an answer is kept for
    /// whoever takes the work up again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub escalation: bool,
}

/// What a person can say of a task that was given up in a run that nobody watches.
pub const ON_ESCALATION: [&str; 2] = ["leave it", "try again"];

/// Data of `inbox.answered`; the event's principal is who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxAnswered {
    /// One of the options.
    pub answer: String,
}

/// Data of `inbox.skipped` and `inbox.rejected`; the event's principal is who does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxClosed {
    /// Why, in their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Data of `inbox.expired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxExpired {
    /// What is taken for the answer, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed: Option<String>,
}

/// Data of `inbox.contradicted`: what was assumed was acted on, and the answer is another one. It changes nothing of what was
/// done. The event's principal is who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxContradicted {
    /// What was asked.
    pub question: String,
    /// What was taken for the answer.
    pub assumed: String,
    /// One of the other options.
    pub answer: String,
}

impl std::fmt::Display for InboxContradicted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { question, assumed, answer } = self;
        write!(f, "to {question:?} the answer is {answer:?}, and {assumed:?} was assumed")
    }
}

/// Data of `overseer.asked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverseerAsked {
    /// Why the task would be given up.
    pub why: Escalation,
    /// What can be done about it.
    pub options: Vec<Choice>,
    /// Until when.
    pub deadline: Timestamp,
}

/// Data of `overseer.answered`; the event's principal is who decides, the scheduler where nobody has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverseerAnswered {
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
}

/// The key under which an item of the inbox is resolved: whatever comes second returns the first.
pub fn inbox_key(task: TaskId) -> String {
    format!("inbox/{task}")
}

/// The key under which what was assumed of an item is contradicted, once.
pub fn contradiction_key(task: TaskId) -> String {
    format!("inbox/{task}/contradicted")
}
