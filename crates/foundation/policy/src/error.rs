//! Why rules or the trust store could not be read.

use std::{io, path::PathBuf};

/// Why rules or the trust store could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// A pattern for tools has none of the forms that there are.
    #[error("tool pattern {pattern:?} is not a name, a namespace.*, a #tag or *")]
    ToolPattern { pattern: String },
    /// Patterns for tools that no tool answers to: all of them at once.
    #[error("{}", .unknown.join("; "))]
    UnknownTools { unknown: Vec<String> },
    /// A pattern for commands cannot be read.
    #[error("command pattern {pattern:?}: {reason}")]
    CommandPattern { pattern: String, reason: &'static str },
    /// A pattern for paths cannot be read.
    #[error("path pattern {pattern:?} cannot be read")]
    PathPattern { pattern: String, source: globset::Error },
    /// The trust store lies where what it judges could change it.
    #[error("trust store {store} lies within {tree}, which it is to judge")]
    TrustInside { store: PathBuf, tree: PathBuf },
    /// The trust store cannot be read or written.
    #[error("trust store {store} cannot be {action}")]
    TrustIo { store: PathBuf, action: &'static str, source: io::Error },
    /// The trust store holds something else.
    #[error("trust store {store} is not one")]
    TrustFormat { store: PathBuf, source: serde_json::Error },
    /// The trust store was written by a later version.
    #[error("trust store {store} has format {found}, and this version reads {wanted}")]
    TrustVersion { store: PathBuf, found: u32, wanted: u32 },
}
