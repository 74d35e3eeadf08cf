//! Why rules, or a file of the user's, could not be read.

use std::{io, path::PathBuf};

/// Why rules, or a file of the user's, could not be read.
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
    /// A pattern for hosts cannot be read.
    #[error("host pattern {pattern:?}: {reason}")]
    HostPattern { pattern: String, reason: &'static str },
    /// A pattern for paths cannot be read.
    #[error("path pattern {pattern:?} cannot be read")]
    PathPattern { pattern: String, source: globset::Error },
    /// A file of the user's lies where what it judges could change it.
    #[error("the {what} {store} lies within {tree}, which it is to judge")]
    StoreInside { what: &'static str, store: PathBuf, tree: PathBuf },
    /// A file of the user's cannot be read or written.
    #[error("the {what} {store} cannot be {action}")]
    StoreIo { what: &'static str, store: PathBuf, action: &'static str, source: io::Error },
    /// A file of the user's holds something else.
    #[error("the {what} {store} is not one")]
    StoreFormat { what: &'static str, store: PathBuf, source: serde_json::Error },
    /// A file of the user's was written by a later version.
    #[error("the {what} {store} has format {found}, and this version reads {wanted}")]
    StoreVersion { what: &'static str, store: PathBuf, found: u32, wanted: u32 },
}
