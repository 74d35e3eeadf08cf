//! Data of the events of tasks, attempts and checks.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    check::{Phase, Verdict},
    id::{AttemptId, SessionId, TaskId},
    outcome::{Claim, Ending},
    spec::TaskSpec,
    state::{FailureClass, TaskSignal, TaskState},
};

/// Data of `task.created`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCreated {
    /// The parent; none for the root.
    pub parent: Option<TaskId>,
    /// What was asked. Of a tree, each task has its own event, and lists no children here.
    pub spec: Arc<TaskSpec>,
}

/// Data of `task.*`: how a task came to another state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskMoved {
    /// The state it was in.
    pub from: TaskState,
    /// What moved it.
    pub signal: TaskSignal,
    /// The state it came to.
    pub to: TaskState,
    /// How it ended, where the state is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// What its body claims, where it says that it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Arc<Claim>>,
}

/// Data of `attempt.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptStarted {
    /// The attempt.
    pub attempt: AttemptId,
    /// The first is 1.
    pub number: u32,
    /// The conversation that goes on in it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<SessionId>,
}

/// Data of `attempt.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptEnded {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whether the body says that it is done.
    pub claimed: bool,
    /// In one line, why it ended.
    pub reason: String,
    /// What kind of failure it was, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
}

/// Data of `check.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckStarted {
    /// When it runs.
    pub phase: Phase,
    /// Its place among the checks of its phase, from 0.
    pub index: u32,
    /// Its name.
    pub check: String,
}

/// Data of `check.mending`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckMending {
    /// When it runs.
    pub phase: Phase,
    /// Its place among the checks of its phase, from 0.
    pub index: u32,
    /// Its name.
    pub check: String,
}

/// Data of `check.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinished {
    /// When it ran.
    pub phase: Phase,
    /// Its place among the checks of its phase, from 0.
    pub index: u32,
    /// What it decided, and on what grounds.
    pub verdict: Verdict,
}
