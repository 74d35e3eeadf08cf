//! Folders and files for nobody but their owner: what a run has read, said and written is in them.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::Path,
};

/// Makes a folder that only its owner may enter, and those above it; one that is there stays as it is.
///
/// # Errors
/// [`io::Error`].
pub(crate) fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns the permission bits of what is at a path, where others than its owner have any.
pub(crate) fn open_to_others(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}
