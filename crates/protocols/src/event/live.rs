//! What those who watch are told, and the log is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, RunId, SessionId, TaskId, TaskName};

/// What is streamed to those who watch and not stored: the words as they come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Delta {
    pub run: RunId,
    pub task: TaskId,
    pub session: SessionId,
    pub agent: AgentName,
    pub kind: DeltaKind,
    pub text: String,
}

/// What a delta is more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeltaKind {
    /// The answer.
    Text,
    /// The reasoning.
    Reasoning,
    /// The output of a tool that runs.
    ToolOutput,
}

/// The name of a task and where it hangs, for those who draw the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Placed {
    pub task: TaskId,
    pub parent: Option<TaskId>,
    pub name: TaskName,
}
