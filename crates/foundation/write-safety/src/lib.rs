//! File access that stays inside its root: containment, stale-write detection, atomic replace, byte-splice edits, audited trash.

mod edit; // Changes to a text as splices of its bytes.
mod error;
mod ledger; // Who has read what.
mod path; // Paths that stay below by their text.
mod replace; // Whole files, put in place at once.
mod root; // A folder below which paths are resolved.
mod rules; // What may be written.
mod snapshot; // What a workspace held at one moment.
mod text; // Bytes as text and back.
mod trash; // Deleted files and why.
mod tree; // Folders with all that is in them.
mod workspace; // Every way to change a file.

pub use {
    edit::{Edit, Miss, Nearest, Occurrences, Patch, PatchedFile, Reason, diff, splice},
    error::{Error, Refusal, Writer},
    ledger::{Hash, Reads, Session},
    path::RelPath,
    root::{Entry, Kind, Root, Stat},
    rules::WriteRules,
    snapshot::{Node, PathChange, Restored, Snapshot, Snapshots, Which},
    text::Encoding,
    trash::{Removal, Trash, Trashed},
    workspace::{Apply, Changed, Content, Workspace},
};
