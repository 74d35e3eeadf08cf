//! Asking whoever governs a run about a task that would be given up.
//!
//! The scheduler asks, an [`Overseer`] answers with one of a closed set of [actions](Action). Both question and answer are
//! events, so that one that is open is put again by whoever takes the run up, and one that was answered is not.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    budget::Remaining,
    cancel::Cancel,
    check::Verdict,
    id::{Principal, RunId, TaskId, TaskName},
    outcome::Claim,
    spec::TaskSpec,
    state::Escalation,
    time::Timestamp,
};

/// A task that is given up unless somebody decides otherwise. Its parent is a list of tasks, which decides nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Escalated {
    /// Its run.
    pub run: RunId,
    /// The task.
    pub task: TaskId,
    /// The names from the root to it.
    pub path: Vec<TaskName>,
    /// What was asked of it.
    pub spec: TaskSpec,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it is given up.
    pub why: Escalation,
    /// What it says of its work, where it claimed to be done.
    pub claim: Option<Claim>,
    /// What its last checks found, with their evidence.
    pub verdicts: Vec<Verdict>,
    /// What can be done about it.
    pub options: Vec<Choice>,
    /// What is left to it of the budgets that bound it.
    pub left: Remaining,
    /// Until when an answer counts.
    pub deadline: Timestamp,
}

/// What can be done about a task that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is the action of its name")]
pub enum Choice {
    Retry,
    Accept,
    Fail,
    Pass,
}

/// What is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// It is tried once more.
    Retry {
        /// What it is told; nothing where empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        advice: String,
    },
    /// It counts as done, although its exit checks do not pass; those that had not run yet are not run.
    Accept {
        /// Why.
        reason: String,
    },
    /// It is given up, and nobody else is asked.
    Fail {
        /// Why.
        reason: String,
    },
    /// Somebody else is to decide: it is given up, and a person is asked in the inbox.
    Pass {
        /// Why.
        reason: String,
    },
}

impl Action {
    /// Returns which of the options it is.
    pub const fn choice(&self) -> Choice {
        match self {
            Self::Retry { .. } => Choice::Retry,
            Self::Accept { .. } => Choice::Accept,
            Self::Fail { .. } => Choice::Fail,
            Self::Pass { .. } => Choice::Pass,
        }
    }
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Retry { advice } if advice.is_empty() => f.write_str("has it tried once more"),
            Self::Retry { advice } => write!(f, "has it tried once more: {advice}"),
            Self::Accept { reason } => write!(f, "accepts it as it is: {reason}"),
            Self::Fail { reason } => write!(f, "gives it up: {reason}"),
            Self::Pass { reason } => write!(f, "does not decide: {reason}"),
        }
    }
}

/// An action, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// What is done.
    pub action: Action,
    /// Who decides.
    pub by: Principal,
}

/// Governs runs: decides about tasks that would be given up. Questions may overlap.
#[async_trait]
pub trait Overseer: Send + Sync {
    /// Decides about one. An answer that comes after the deadline, that is none of the options or that panics counts as
    /// [`Action::Pass`].
    ///
    /// Cancel safe: what it does itself is its own to undo; a question whose future is dropped has no answer, and is put
    /// again by whoever takes the run up. `cancel` is raised where the answer is not wanted any more.
    async fn decide(&self, escalated: &Escalated, cancel: &Cancel) -> Decided;
}
