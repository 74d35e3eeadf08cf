//! Folders with all that is in them: copied, hashed, removed; links are never followed.

use crate::{
    error::{Error, Refusal},
    path::DEEPEST,
    replace::mode_bits,
    root::{Entry, Kind, Stat, list_at, open_at, stat_at},
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt,
};

/// A name in an open folder, and the path that errors call it by.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(crate) folder: BorrowedFd<'a>,
    pub(crate) name: &'a OsStr,
    pub(crate) written: &'a str,
}

impl Node<'_> {
    fn io(&self, action: &'static str, e: impl Into<io::Error>) -> Error {
        Error::io(self.written, action, e)
    }

    /// Refuses what is too deep: each folder on the way costs stack and an open folder.
    fn within(&self, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(Error::refused(self.written, Refusal::TooDeep { limit: DEEPEST }));
        }
        Ok(())
    }

    fn stat(&self) -> Result<Stat, Error> {
        let stat = stat_at(self.folder, self.name).map_err(|e| self.io("stat", e))?;
        stat.ok_or_else(|| Error::Missing { path: self.written.to_owned() })
    }

    fn open_folder(&self) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(self.folder, self.name, flags, Mode::empty()).map_err(|e| self.io("open", e))
    }

    fn list(&self) -> Result<Vec<Entry>, Error> {
        list_at(self.folder, self.name, self.written)
    }
}

/// Hashes a file's bytes, a link's target, or a folder's names, kinds and hashes.
///
/// # Errors
/// [`Error::Refused`] for what is more than [`DEEPEST`] folders deep, as for a device; this holds for all three.
pub(crate) fn hash(node: Node<'_>) -> Result<(blake3::Hash, u64), Error> {
    hash_at(node, 0)
}

fn hash_at(node: Node<'_>, depth: usize) -> Result<(blake3::Hash, u64), Error> {
    node.within(depth)?;
    let stat = node.stat()?;
    match stat.kind {
        Kind::File => hash_file(node),
        Kind::Link => {
            let target = fs::readlinkat(node.folder, node.name, Vec::new());
            let target = target.map_err(|e| node.io("read the link", e))?;
            Ok((blake3::hash(target.as_bytes()), 0))
        }
        Kind::Folder => {
            // A hasher has two kilobytes, of which the stack would hold one for each level.
            let (mut listing, mut total) = (Vec::new(), 0);
            let open = node.open_folder()?;
            for entry in node.list()? {
                let child = Node { folder: open.as_fd(), name: &entry.name, ..node };
                let (hash, len) = hash_at(child, depth + 1)?;
                for part in [entry.kind.label().as_bytes(), b"\0", entry.name.as_bytes(), b"\0"] {
                    listing.extend_from_slice(part);
                }
                listing.extend_from_slice(hash.as_bytes());
                total += len;
            }
            Ok((blake3::hash(&listing), total))
        }
        Kind::Special => {
            let kind = stat.kind.label();
            Err(Error::refused(node.written, Refusal::Special { kind }))
        }
    }
}

fn hash_file(node: Node<'_>) -> Result<(blake3::Hash, u64), Error> {
    let mut hasher = blake3::Hasher::new();
    let (file, _) = open_at(node.folder, node.name, node.written)?;
    hasher.update_reader(file).map_err(|e| node.io("read", e))?;
    Ok((hasher.finalize(), hasher.count()))
}

/// Checks that all files of a tree together have no more bytes than `limit`, by what they say of their length.
///
/// # Errors
/// [`Error::TooLarge`] with what it would come to, as far as it was counted.
pub(crate) fn within(node: Node<'_>, limit: u64) -> Result<(), Error> {
    let mut found = 0;
    measure(node, (&mut found, limit), 0)
}

fn measure(node: Node<'_>, (found, limit): (&mut u64, u64), depth: usize) -> Result<(), Error> {
    node.within(depth)?;
    let stat = node.stat()?;
    match stat.kind {
        Kind::File => *found = found.saturating_add(stat.len),
        Kind::Folder => {
            let open = node.open_folder()?;
            for entry in node.list()? {
                let child = Node { folder: open.as_fd(), name: &entry.name, ..node };
                measure(child, (&mut *found, limit), depth + 1)?;
            }
        }
        Kind::Link | Kind::Special => {}
    }
    match *found > limit {
        true => Err(Error::TooLarge { path: node.written.to_owned(), found: *found, limit }),
        false => Ok(()),
    }
}

/// Copies a file, link or folder to a name that must not exist, and brings it to the disk.
pub(crate) fn copy(from: Node<'_>, to: Node<'_>) -> Result<(), Error> {
    copy_within(from, to, u64::MAX)
}

/// As [`copy`], and no more than `limit` bytes of files: what was measured may grow.
pub(crate) fn copy_within(from: Node<'_>, to: Node<'_>, limit: u64) -> Result<(), Error> {
    let mut left = limit;
    copy_at(from, to, (&mut left, limit), 0)
}

fn copy_at(
    from: Node<'_>,
    to: Node<'_>,
    (left, limit): (&mut u64, u64),
    depth: usize,
) -> Result<(), Error> {
    from.within(depth)?;
    let stat = from.stat()?;
    let mode = Mode::from_raw_mode(mode_bits(stat.mode & 0o1777));
    match stat.kind {
        Kind::File => {
            let (mut source, _) = open_at(from.folder, from.name, from.written)?;
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let target = fs::openat(to.folder, to.name, flags, Mode::RUSR | Mode::WUSR);
            let mut target = File::from(target.map_err(|e| to.io("create", e))?);
            let most = left.saturating_add(1);
            let copied = io::copy(&mut (&mut source).take(most), &mut target);
            let copied = copied.map_err(|e| to.io("copy to", e))?;
            *left = left.checked_sub(copied).ok_or_else(|| Error::TooLarge {
                path: from.written.to_owned(),
                found: limit.saturating_add(1),
                limit,
            })?;
            fs::fchmod(&target, mode).map_err(|e| to.io("set the mode of", e))?;
            target.sync_data().map_err(|e| to.io("sync", e))
        }
        Kind::Link => {
            let target = fs::readlinkat(from.folder, from.name, Vec::new());
            let target = target.map_err(|e| from.io("read the link", e))?;
            fs::symlinkat(target, to.folder, to.name).map_err(|e| to.io("create", e))
        }
        Kind::Folder => {
            fs::mkdirat(to.folder, to.name, Mode::RWXU).map_err(|e| to.io("create", e))?;
            let (source, target) = (from.open_folder()?, to.open_folder()?);
            for entry in from.list()? {
                let name = &entry.name;
                copy_at(
                    Node { folder: source.as_fd(), name, ..from },
                    Node { folder: target.as_fd(), name, ..to },
                    (&mut *left, limit),
                    depth + 1,
                )?;
            }
            fs::fchmod(&target, mode).map_err(|e| to.io("set the mode of", e))?;
            fs::fsync(&target).map_err(|e| to.io("sync", e))
        }
        Kind::Special => {
            let kind = stat.kind.label();
            Err(Error::refused(from.written, Refusal::Special { kind }))
        }
    }
}

/// Removes a file, link or folder; what is gone already is fine.
pub(crate) fn remove(node: Node<'_>) -> Result<(), Error> {
    remove_at(node, 0)
}

fn remove_at(node: Node<'_>, depth: usize) -> Result<(), Error> {
    node.within(depth)?;
    let Some(stat) = stat_at(node.folder, node.name).map_err(|e| node.io("stat", e))? else {
        return Ok(());
    };
    let mut flags = AtFlags::empty();
    if stat.kind == Kind::Folder {
        flags = AtFlags::REMOVEDIR;
        let open = node.open_folder()?;
        for entry in node.list()? {
            remove_at(Node { folder: open.as_fd(), name: &entry.name, ..node }, depth + 1)?;
        }
    }
    match fs::unlinkat(node.folder, node.name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(node.io("remove", e)),
    }
}
