//! File access that stays inside its root: containment, stale-write detection, atomic replace, byte-splice edits, audited trash.

mod edit; // Changes to a text as splices of its bytes.
mod error;
mod path; // Paths that stay below by their text.
mod root; // A folder below which paths are resolved.
mod rules; // What may be written.

pub use {
    edit::{Miss, Nearest, Reason},
    error::{Error, Refusal, Writer},
    path::RelPath,
    root::{Entry, Kind, Root, Stat},
    rules::WriteRules,
};
