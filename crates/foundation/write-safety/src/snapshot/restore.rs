//! Going back: from what is there to what a snapshot says.

use super::{Node, Restored, Snapshot, blobs::Blobs};
use crate::{
    error::{Error, Refusal},
    path::RelPath,
    replace::{self, Old, Staged, TEMP_PREFIX, mode_bits, sync_folder},
    root::{Access, Kind, Last, Root, Spot},
};
use rustix::{
    fd::AsFd,
    fs::{self, AtFlags, Mode, OFlags},
    io::Errno,
};
use std::os::unix::ffi::OsStrExt;

/// Files written before they are synced together; bounds open files.
const BATCH: usize = 64;

pub(super) fn restore(
    root: &Root,
    blobs: &Blobs,
    before: Snapshot,
    target: &Snapshot,
) -> Result<Restored, Error> {
    let differs = |path: &RelPath| before.entries.get(path) != target.entries.get(path);
    let is_kept = |path: &RelPath| {
        [&before, target].iter().all(|it| it.entries.get(path).is_none_or(Node::is_kept))
    };
    let write: Vec<(&RelPath, &Node)> =
        target.entries.iter().filter(|(path, _)| differs(path) && is_kept(path)).collect();
    // All contents are there before the first file changes.
    for (_, node) in &write {
        if let Node::File { hash, .. } = node {
            blobs.get(*hash)?;
        }
    }
    let (mut paths, mut left) = (Vec::new(), Vec::new());
    let gone = |path: &&RelPath| !before.entries.contains_key(*path) && !is_kept(path);
    left.extend(target.entries.keys().filter(gone).cloned());

    // Backwards, so that a folder comes after what is in it.
    for (path, found) in before.entries.iter().rev() {
        let stays = match (found, target.entries.get(path)) {
            (Node::Folder { .. }, Some(Node::Folder { .. })) => true,
            // A file or link is replaced in place.
            (
                Node::File { .. } | Node::Link { .. },
                Some(Node::File { .. } | Node::Link { .. }),
            ) => true,
            _ => false,
        };
        if !is_kept(path) {
            if differs(path) {
                left.push(path.clone());
            }
            continue;
        }
        if stays {
            continue;
        }
        if remove(root, path, found)? {
            paths.push(path.clone());
        } else {
            left.push(path.clone());
        }
    }
    // Forwards, so that a folder comes before what is in it.
    for (path, node) in &write {
        match node {
            Node::Folder { .. } => make_folder(root, path)?,
            Node::Link { target } => put_link(root, path, target, before.entries.get(*path))?,
            Node::File { .. } => continue,
        }
        paths.push((*path).clone());
    }
    let files: Vec<_> = write
        .iter()
        .filter_map(|(path, node)| match node {
            Node::File { hash, mode, .. } => Some((*path, *hash, *mode)),
            Node::Link { .. } | Node::Folder { .. } => None,
        })
        .collect();
    for batch in files.chunks(BATCH) {
        let mut staged = Vec::with_capacity(batch.len());
        for (path, hash, mode) in batch {
            let spot = locate(root, path)?;
            let old = check(&spot, before.entries.get(*path))?;
            if old.is_none() && spot.stat.is_some() {
                unlink(&spot)?;
            }
            staged.push(Staged::write(spot, &blobs.get(*hash)?, old.as_ref(), Some(*mode))?);
            paths.push((*path).clone());
        }
        replace::sync_all(&staged)?;
        staged.iter_mut().try_for_each(Staged::rename)?;
        replace::sync_folders(&staged)?;
    }
    // Last and backwards: a closed folder could not be written to.
    for (path, node) in write.iter().rev() {
        if let Node::Folder { mode } = node {
            set_folder_mode(root, path, *mode)?;
        }
    }
    paths.sort();
    left.sort();
    Ok(Restored { before, paths, left })
}

/// Finds a path that must not pass a link: what is a link by now was put there meanwhile.
fn locate(root: &Root, path: &RelPath) -> Result<Spot, Error> {
    let spot = root.locate(path.as_ref(), Access::Write, Last::Keep)?;
    if spot.real == *path {
        Ok(spot)
    } else {
        Err(Error::refused(&path.to_string(), Refusal::Unsteady))
    }
}

/// Removes a new path; false if it is a folder that still holds something.
fn remove(root: &Root, path: &RelPath, node: &Node) -> Result<bool, Error> {
    let spot = locate(root, path)?;
    let Node::Folder { .. } = node else {
        if spot.stat.is_some() {
            check(&spot, Some(node))?;
        }
        return unlink(&spot).map(|()| true);
    };
    match fs::unlinkat(&spot.folder, &spot.name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(e) => Err(Error::io(&spot.written, "remove", e)),
    }
}

/// Checks that what is at a path is what was found there, and returns the file if it is one.
///
/// A folder that was found is gone by now, since what takes its place is no folder.
fn check(spot: &Spot, found: Option<&Node>) -> Result<Option<Old>, Error> {
    let raced = || Error::Raced { path: spot.written.clone() };
    match (spot.stat.map(|stat| stat.kind), found) {
        (Some(Kind::File), Some(Node::File { hash, .. })) => {
            let old = Old::read_whole(spot)?;
            if blake3::hash(&old.bytes) == *hash { Ok(Some(old)) } else { Err(raced()) }
        }
        (Some(Kind::Link), Some(Node::Link { target })) => {
            let now = fs::readlinkat(&spot.folder, &spot.name, Vec::new());
            let now = now.map_err(|e| Error::io(&spot.written, "read the link", e))?;
            if now.as_bytes() == target.as_os_str().as_bytes() { Ok(None) } else { Err(raced()) }
        }
        // A pipe or device holds nothing that could be lost.
        (None, None | Some(Node::Folder { .. })) | (Some(Kind::Special), None) => Ok(None),
        _ => Err(raced()),
    }
}

fn unlink(spot: &Spot) -> Result<(), Error> {
    match fs::unlinkat(&spot.folder, &spot.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {
            sync_folder(spot.folder.as_fd()).map_err(|e| Error::io(&spot.written, "sync", e))
        }
        Err(e) => Err(Error::io(&spot.written, "remove", e)),
    }
}

fn make_folder(root: &Root, path: &RelPath) -> Result<(), Error> {
    let spot = locate(root, path)?;
    match fs::mkdirat(&spot.folder, &spot.name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(Error::io(&spot.written, "make", e)),
    }
}

fn put_link(
    root: &Root,
    path: &RelPath,
    target: &std::path::Path,
    found: Option<&Node>,
) -> Result<(), Error> {
    let spot = locate(root, path)?;
    check(&spot, found)?;
    let io = |e: Errno| Error::io(&spot.written, "link", e);
    let temp = format!("{TEMP_PREFIX}{}-link", std::process::id());
    match fs::unlinkat(&spot.folder, &temp, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(io(e)),
    }
    fs::symlinkat(target, &spot.folder, &temp).map_err(io)?;
    fs::renameat(&spot.folder, &temp, &spot.folder, &spot.name).map_err(io)?;
    sync_folder(spot.folder.as_fd()).map_err(io)
}

fn set_folder_mode(root: &Root, path: &RelPath, mode: u32) -> Result<(), Error> {
    let spot = locate(root, path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(&spot.folder, &spot.name, flags, Mode::empty())
        .and_then(|folder| fs::fchmod(folder, Mode::from_raw_mode(mode_bits(mode))))
        .map_err(|e| Error::io(&spot.written, "set the mode of", e))
}
