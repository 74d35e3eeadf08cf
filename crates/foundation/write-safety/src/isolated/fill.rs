//! The files of a snapshot in a new folder, which nobody else looks at yet.

use crate::{
    error::Error,
    path::RelPath,
    root::{Kind, Root},
    rules::is_git,
    snapshot::{Node, Snapshot, Snapshots},
};
use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How many files are written before another thread helps.
const FILES_A_THREAD: usize = 64;

/// Writes all that `base` holds into the folder `work`. Nothing is synced: the workspace still has it all.
pub(super) fn fill(work: &Path, base: &Snapshot, snapshots: &Snapshots) -> Result<(), Error> {
    let mut files = Vec::new();
    for (path, node) in base.entries().iter() {
        let place = work.join(path.as_path());
        let io = |e| Error::io(&path.to_string(), "copy", e);
        match node {
            Node::Folder { .. } => DirBuilder::new().mode(0o700).create(&place).map_err(io)?,
            Node::Link { target } => symlink(target, &place).map_err(io)?,
            // It is linked, as what is ignored.
            Node::File { .. } if !node.is_kept() => {}
            Node::File { hash, mode, .. } => files.push((path, place, *hash, *mode)),
        }
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let one = |path: &RelPath, place: &Path, hash, mode| -> Result<(), Error> {
        let bytes = snapshots.kept(hash)?;
        let write = || -> std::io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(place)?;
            file.write_all(&bytes)?;
            file.set_permissions(Permissions::from_mode(mode & 0o1777))
        };
        write().map_err(|e| Error::io(&path.to_string(), "copy", e))
    };
    let work_on = || {
        while let Some((path, place, hash, mode)) = files.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(e) = one(path, place, *hash, *mode) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            }
        }
    };
    let threads = match files.len() / FILES_A_THREAD + 1 {
        1 => 1,
        wanted => wanted.min(std::thread::available_parallelism().map_or(1, usize::from)),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work_on);
        }
        work_on();
    });
    if let Some(e) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(e);
    }
    // Last and backwards: a closed folder could not be written to.
    for (path, node) in base.entries().iter().rev() {
        if let Node::Folder { mode } = node {
            fs::set_permissions(work.join(path.as_path()), Permissions::from_mode(mode & 0o1777))
                .map_err(|e| Error::io(&path.to_string(), "set the mode of", e))?;
        }
    }
    Ok(())
}

/// Links what the workspace has beside the files of the snapshot: what git ignores, such as what was fetched, and what
/// is too large to be kept.
pub(super) fn link_ignored(
    root: &Root,
    base: &Snapshot,
    work: &Path,
    links: &dyn Fn(&RelPath) -> bool,
) -> Result<(), Error> {
    let folders = base.entries().iter().filter(|(_, node)| matches!(node, Node::Folder { .. }));
    let folders = folders.map(|(path, _)| path.clone());
    for folder in std::iter::once(RelPath::root()).chain(folders) {
        let entries = match root.list(&folder) {
            Ok(entries) => entries,
            // Gone or closed by now.
            Err(Error::Missing { .. } | Error::Kind { .. } | Error::Io { .. }) => continue,
            Err(e) => return Err(e),
        };
        for entry in entries {
            let path = folder.join(&entry.name);
            let is_known = base.entries().get(&path).is_some_and(Node::is_kept);
            if is_known || is_git(&entry.name) || entry.kind == Kind::Special || !links(&path) {
                continue;
            }
            let made = symlink(root.path().join(path.as_path()), work.join(path.as_path()));
            made.map_err(|e| Error::io(&path.to_string(), "link", e))?;
        }
    }
    Ok(())
}

/// Opens the folders below a path to their owner, so that what is in them can be removed.
pub(super) fn open_folders(path: &Path) {
    let Ok(found) = path.symlink_metadata() else { return };
    if !found.is_dir() {
        return;
    }
    let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_folders(&entry.path());
    }
}
