//! Data of the events of files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{event::BlobHash, id::CallId};

/// Data of `file.changed`: a file, before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// The path from the root of the workspace, with `/` between its parts.
    pub path: String,
    /// The hash of its content before; none where it did not exist.
    pub before: Option<BlobHash>,
    /// The hash of its content after; none where it no longer exists.
    pub after: Option<BlobHash>,
    /// Lines added.
    pub added: u64,
    /// Lines removed.
    pub removed: u64,
    /// What it was and its permission bits, as git writes them: `0o100644` for a file, `0o120000` for a
    /// link, `0o040755` for a folder, which has no content. None where it did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_mode: Option<u32>,
    /// The same of what it is after; none where it no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_mode: Option<u32>,
    /// The call that changed it, where it was a tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Whether it lies in a workspace of the task's own: the run's has it once it is merged, which is told of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

/// Data of `commit.made`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommitMade {
    /// The id of the commit.
    pub commit: String,
    /// The paths that it changes, from the root of the workspace.
    pub paths: Vec<String>,
    /// Paths of the run that were left out, each with the reason behind a colon.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Why git's index was not brought along, where it was not: git then shows these paths as staged back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_left: Option<String>,
    /// The call that made it, where it was a tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// Data of `workspace.snapshot`: what a run or a task began with, or what was there around a piece of work
/// whose changes nobody else tells, such as a program's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceSnapshot {
    /// The id of the snapshot of all files: the hash of all it says. None where only some were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<BlobHash>,
    /// The hashes of the files that the task's checks hold to what they were, as a blob of JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BlobHash>,
    /// The piece of work that it was taken around: a call, or an id made for a command. The first of that
    /// id is what was there before, the second what was there after, as far as it is the doing of that work. None for
    /// what a run or a task began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<CallId>,
    /// What the work that begins here can write of the workspace, as a blob of JSON: what differs beyond that is not its
    /// doing. None where nothing holds it, and where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<BlobHash>,
    /// What differs besides where the work was left open by a process that died, and was changed after that: nobody knows
    /// whose it is. `snapshot` has these paths as they were before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<FileChange>,
    /// How many files the work that ends here has changed besides those that are told one by one, where it changed more than
    /// [`TOLD_ONE_BY_ONE`]. The snapshots around it have all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untold: u64,
}

/// How many changed files of one piece of work are told one by one at the most.
pub const TOLD_ONE_BY_ONE: u64 = 1_000;

const fn is_zero(number: &u64) -> bool {
    *number == 0
}
