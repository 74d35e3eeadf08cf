//! Data of the events of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    budget::Budget,
    event::BlobHash,
    id::{RunId, TaskId, WorkflowName},
    outcome::RunOutcome,
    tool::PermissionMode,
};

/// Data of `run.created`: all that a process needs in order to carry the run out, or to resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCreated {
    /// The workflow's name, or that of a single task.
    pub name: WorkflowName,
    /// The root of the workspace on the machine that began the run.
    pub workspace: String,
    /// What the run may do.
    pub mode: PermissionMode,
    /// The caps of the whole run.
    pub budget: Budget,
    /// The root task.
    pub root: TaskId,
    /// Everything else that shapes the run, resolved: agents, models, prices, rules. Its meaning is
    /// that of whoever composed the run.
    pub setup: Value,
    /// The version of Formwork that began the run.
    pub version: String,
}

/// Data of `run.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunStarted {
    /// The process that works on it.
    pub owner: String,
}

/// Data of `run.paused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// Why.
    pub reason: String,
}

/// Data of `run.resumed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunResumed {
    /// The process that works on it now.
    pub owner: String,
}

/// Data of `run.pause_requested` and `run.abort_requested`; the event's principal is who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunRequested {
    /// Why, in the asker's words.
    pub reason: String,
}

/// Data of `run.forked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunForked {
    /// The run that it comes from.
    pub from: RunId,
    /// The last event that was taken over, by its place in that run.
    pub seq: u64,
    /// The hash of that event, which binds the two logs together.
    pub hash: BlobHash,
    /// Whether the files that the run had changed were made what they were then.
    pub rewound: bool,
}

/// Data of `run.undone`; the event's principal is who took it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunUndone {
    /// How many paths were made what they had been.
    pub paths: u64,
}

/// Data of `run.finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunFinished {
    /// How it ended.
    pub outcome: RunOutcome,
}
