//! Why there is no verdict.

use std::{io, path::PathBuf};

/// Why there is no verdict, or no baseline for one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The caller cancelled. Whatever ran has ended.
    #[error("check {check:?} was cancelled")]
    Cancelled { check: String },
    /// A pattern of a check is none.
    #[error("{pattern:?} is not a pattern of paths: {reason}")]
    Pattern { pattern: String, reason: String },
    /// A file or folder cannot be read, as `source` says.
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
}
