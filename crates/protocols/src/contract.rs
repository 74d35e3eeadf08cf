//! A contract for a task: requirements, each with what proves that it is kept.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::BlobHash;

/// What a task has to keep to, read from a file before it begins. What becomes of the file meanwhile changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContractCheck {
    /// The file, from the root of the workspace.
    pub path: String,
    /// The hash of its bytes.
    pub hash: BlobHash,
    /// The requirements, in the file's order; at least one.
    pub requirements: Vec<Requirement>,
}

/// One requirement of a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requirement {
    /// What it is known by, as in `R1`.
    pub id: String,
    /// What it asks for, in a line.
    pub title: String,
    /// What proves that it is kept: all of it has to hold. At least one.
    pub proofs: Vec<Proof>,
}

/// Something that can be tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The line of the file that asks for it, from 1.
    pub line: u64,
    /// What is tested.
    pub kind: ProofKind,
}

/// What is tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant's sentence names its fields")]
pub enum ProofKind {
    /// A command succeeds; where its output counts tests, at least one ran and none failed.
    Run { argv: Vec<String> },
    /// The task changed a file that matches one of these globs.
    Touched { globs: Vec<String> },
    /// The task changed no file that matches one of these globs.
    Untouched { globs: Vec<String> },
    /// A file holds a text.
    Contains { path: String, text: String },
    /// A file does not hold a text, or does not exist.
    Lacks { path: String, text: String },
    /// A file exists.
    Exists { path: String },
    /// A file does not exist.
    Missing { path: String },
    /// A tool was called, and at least one call ended well.
    Called { tool: String },
    /// A tool was not called, or no call ended well.
    NotCalled { tool: String },
}

impl fmt::Display for ProofKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { argv } => write!(f, "run {}", argv.join(" ")),
            Self::Touched { globs } => write!(f, "touched {}", globs.join(", ")),
            Self::Untouched { globs } => write!(f, "untouched {}", globs.join(", ")),
            Self::Contains { path, text } => write!(f, "contains {path} {text:?}"),
            Self::Lacks { path, text } => write!(f, "lacks {path} {text:?}"),
            Self::Exists { path } => write!(f, "exists {path}"),
            Self::Missing { path } => write!(f, "missing {path}"),
            Self::Called { tool } => write!(f, "called {tool}"),
            Self::NotCalled { tool } => write!(f, "not called {tool}"),
        }
    }
}
