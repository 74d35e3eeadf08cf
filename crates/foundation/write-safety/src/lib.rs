//! File access that stays inside its root: containment, stale-write detection, atomic replace, byte-splice edits, audited trash.
//!
//! Start at [`Workspace`]: a [`Root`] that paths are resolved below, [`WriteRules`] that say what
//! may be written, and a [`Session`] of the run's [`Reads`] that knows what was read. Edits keep
//! every byte they do not name. [`Trash`] takes what is deleted, [`Snapshots`] undo everything
//! else, [`Isolation`] gives a piece of work a workspace of its own, and [`ReadOnlyGit`] looks at
//! history without running a repository's programs.
//!
//! All calls block, and the crate knows nothing of tools, tasks or models. Unix only.
//!
//! ```
//! use formwork_write_safety::{Apply, Edit, Error, Reads, Root, Workspace, WriteRules};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("notes.txt"), "one\r\ntwo\r\n")?;
//! let root = Arc::new(Root::open(folder.path())?);
//! let rules = WriteRules::parse(&["*.txt"], &["secret.txt"])?;
//! let workspace = Workspace::new(root, rules, Reads::new().session());
//!
//! let changed = workspace.edit("notes.txt", &[Edit::one("one\ntwo", "one\nthree")], Apply::Write)?;
//! assert_eq!(changed.diff, "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
//! assert_eq!(workspace.read("notes.txt")?.bytes, b"one\r\nthree\r\n");
//!
//! let refused = workspace.write("../outside.txt", b"", Apply::Write);
//! assert!(matches!(refused, Err(Error::Refused { .. })));
//! # Ok(())
//! # }
//! ```

mod edit; // Changes to a text as splices of its bytes.
mod error;
mod folder; // A folder held open.
mod git; // Git for looking only.
mod isolated; // A workspace of one's own.
mod join; // Two changes of one text.
mod ledger; // Who has read what.
mod lock; // Folders that one process at a time changes.
mod path; // Paths that stay below by their text.
mod replace; // Whole files, put in place at once.
mod root; // A folder below which paths are resolved.
mod rules; // What may be written.
mod snapshot; // What a workspace held at one moment.
mod sweep; // What a killed process leaves behind.
mod text; // Bytes as text and back.
mod trash; // Deleted files and why.
mod tree; // Folders with all that is in them.
mod wanted; // Whether work is still wanted.
mod workspace; // Every way to change a file.

pub use {
    edit::{Edit, Miss, Nearest, Occurrences, Patch, PatchedFile, Reason, diff, splice},
    error::{Error, Refusal, Writer},
    folder::{Folder, Names, Readable},
    git::{
        Committed, Delta, GitCommand, GitOutput, Message, Place, ReadOnlyGit, Remembered, Scan,
        Side, Staged, Touched, identity_of,
    },
    isolated::{Isolated, Isolation, Kept, Means},
    ledger::{Hash, Reads, Session},
    path::RelPath,
    root::{Entry, Kind, Root, Stat},
    rules::{Sealing, Writable, WriteRules},
    snapshot::{
        Clash, Conflict, Differing, MAX_KEPT, Merged, Node, PathChange, Restored, Snapshot,
        Snapshots, State, Which,
    },
    text::Encoding,
    trash::{Removal, Trash, Trashed},
    wanted::Wanted,
    workspace::{Apply, Changed, Content, Workspace},
};
