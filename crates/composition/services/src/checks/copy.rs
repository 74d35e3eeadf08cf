//! The workspace in another place: as it is, or as it was when a task began.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use formwork_verify::Paths;
use formwork_write_safety::{Node, RelPath, Root, Snapshot, Snapshots};

use crate::{Error, baseline::Began, executor::Workshop};

/// A copy of the workspace, gone when dropped. What git ignores, such as what was built or fetched, is linked
/// into it and not copied, and it is no repository.
pub(super) struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    /// Returns where it is.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Copies the workspace without what the task changed in the files that match `globs`, in all files where there
/// is none. Returns nothing where it changed no such file.
///
/// # Errors
/// [`Error::Workspace`] and [`Error::State`] when a file cannot be read or written.
pub(super) async fn reverted(
    workshop: &Workshop,
    began: &Began,
    globs: &[String],
) -> Result<Option<Copy>, Error> {
    let Some(before) = began.snapshot().cloned() else { return Ok(None) };
    let paths = match globs {
        [] => None,
        globs => {
            let reason =
                |error: formwork_verify::Error| Error::Checks { reason: error.to_string() };
            Some(Paths::parse(globs).map_err(reason)?)
        }
    };
    let rules = before.clone();
    made(workshop, rules, move |snapshots, root, now, copy| {
        let is_meant =
            |path: &RelPath| paths.as_ref().is_none_or(|paths| paths.contains(&path.to_string()));
        let mut back = BTreeMap::new();
        for differing in snapshots.compare(&before, now)? {
            // What is too large to be kept cannot be brought back: the copy has it as it is.
            let is_kept = before.entries().get(&differing.path).is_none_or(Node::is_kept);
            if is_kept && is_meant(&differing.path) {
                back.insert(differing.path, differing.before);
            }
        }
        if back.is_empty() {
            return Ok(false);
        }
        snapshots.restore(copy, now)?;
        snapshots.revert(copy, &back)?;
        link_ignored(root, now, copy.path())?;
        Ok(true)
    })
    .await
}

/// Copies the workspace as it is.
///
/// # Errors
/// As [`reverted`].
pub(super) async fn whole(workshop: &Workshop, began: &Began) -> Result<Copy, Error> {
    let none = || Error::Checks { reason: "no copy of the workspace was made".to_owned() };
    let rules = began.snapshot().cloned().ok_or_else(none)?;
    let copied = made(workshop, rules, |snapshots, root, now, copy| {
        snapshots.restore(copy, now)?;
        link_ignored(root, now, copy.path())?;
        Ok(true)
    });
    copied.await?.ok_or_else(none)
}

/// Makes a folder and has it filled on a thread where blocking is fine. What the ignore rules of `rules` hide
/// is no part of the workspace as it is.
async fn made<F>(workshop: &Workshop, rules: Snapshot, fill: F) -> Result<Option<Copy>, Error>
where
    F: FnOnce(&Snapshots, &Root, &Snapshot, &Root) -> Result<bool, formwork_write_safety::Error>
        + Send
        + 'static,
{
    let (snapshots, root) = (Arc::clone(&workshop.snapshots), Arc::clone(&workshop.root));
    let beside = workshop.temporary.clone();
    crate::baseline::blocking(move || {
        let within = |source| formwork_write_safety::Error::Io {
            action: "make a folder in",
            path: beside.display().to_string(),
            source,
        };
        let folder =
            tempfile::Builder::new().prefix("copy-").tempdir_in(&beside).map_err(within)?;
        let copy = Root::open(folder.path())?;
        let now = snapshots.take_by(&root, &rules)?;
        Ok(fill(&snapshots, &root, &now, &copy)?.then_some(Copy { folder }))
    })
    .await
}

/// Links what is beside the files of a snapshot and in none, a build needs what was fetched for it, and what is too
/// large to be kept.
fn link_ignored(
    root: &Root,
    now: &Snapshot,
    copy: &Path,
) -> Result<(), formwork_write_safety::Error> {
    let folders = now.entries().iter().filter(|(_, node)| matches!(node, Node::Folder { .. }));
    let folders = folders.map(|(path, _)| PathBuf::from(path.to_string()));
    for folder in std::iter::once(PathBuf::new()).chain(folders) {
        // One that was taken back is not there, and what it held is not needed.
        if !copy.join(&folder).is_dir() {
            continue;
        }
        let Ok(entries) = fs::read_dir(root.path().join(&folder)) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let (Some(text), false) = (name.to_str(), name == ".git") else { continue };
            let path = folder.join(text);
            let known = RelPath::parse(&path).ok().and_then(|path| now.entries().get(&path));
            let is_known = known.is_some_and(Node::is_kept);
            // Formwork's own state is no business of a check's.
            if is_known || path == Path::new(".formwork/state") {
                continue;
            }
            // What cannot be linked is missing in the copy, and the check says so.
            let _ = std::os::unix::fs::symlink(entry.path(), copy.join(&path));
        }
    }
    Ok(())
}
