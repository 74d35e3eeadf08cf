//! Files that git was told not to look at, by `--assume-unchanged` or `--skip-worktree`: no change of theirs is one to git.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
};

use super::{ReadOnlyGit, failed, touched::Side};
use crate::{RelPath, error::Error};

/// A file that git does not look at, and that is not what the index says.
pub(super) struct Unwatched {
    pub(super) path: RelPath,
    /// What the index has.
    pub(super) staged: Side,
    /// What there is; none where it is gone.
    pub(super) now: Option<Side>,
}

/// What is at the place of such a file.
enum There {
    Nothing,
    /// A file of this mode, which git has to make a blob of.
    File(u32),
    /// A link, and the path that it holds.
    Link(Vec<u8>),
    /// Neither.
    Other,
}

impl ReadOnlyGit {
    /// Lists the files that git does not look at and that differ from the index. Where only a part of the repository is checked
    /// out, one that is not there is none of them.
    pub(super) fn unwatched(&self, specs: &[&str]) -> Result<Vec<Unwatched>, Error> {
        let args = [&["ls-files", "-v", "-s", "-z", "--"], specs].concat();
        let output = self.git(&args, b"", &[])?;
        let unknown = || failed("ls-files", "its answer cannot be read".to_owned(), b"");
        let (mut found, mut files) = (Vec::new(), Vec::new());
        let mut is_sparse = None;
        for record in output.stdout.split(|byte| *byte == 0) {
            // A small letter says that it is assumed unchanged, an `S` that it is skipped.
            let Some(tag) = record.first().filter(|tag| tag.is_ascii_lowercase() || **tag == b'S')
            else {
                continue;
            };
            let tab = record.iter().position(|byte| *byte == b'\t').ok_or_else(unknown)?;
            let (head, path) = record.split_at_checked(tab).ok_or_else(unknown)?;
            let path = RelPath::parse(OsStr::from_bytes(path.get(1..).unwrap_or_default()))?;
            let head = std::str::from_utf8(head).map_err(|_| unknown())?;
            let parts: Vec<&str> = head.split(' ').collect();
            let [_, mode, oid, _] = parts[..] else { return Err(unknown()) };
            let mode = u32::from_str_radix(mode, 8).map_err(|_| unknown())?;
            let staged = Side { mode, oid: Some(oid.to_owned()) };
            if staged.is_submodule() {
                continue;
            }
            let now = match self.there(&path)? {
                There::Nothing if tag.eq_ignore_ascii_case(&b's') => {
                    let is_sparse = match is_sparse {
                        Some(known) => known,
                        None => *is_sparse.insert(self.is_sparse()?),
                    };
                    if is_sparse {
                        continue;
                    }
                    None
                }
                There::Nothing => None,
                There::File(now) => {
                    files.push((path.clone(), now, staged.clone()));
                    continue;
                }
                There::Link(target) => {
                    let hashed = self.git(&["hash-object", "--stdin"], &target, &[])?;
                    if mode == LINK && hashed.stdout.trim_ascii() == oid.as_bytes() {
                        continue;
                    }
                    Some(Side { mode: LINK, oid: None })
                }
                There::Other => Some(Side { mode: 0o100_644, oid: None }),
            };
            found.push(Unwatched { path, staged, now });
        }
        let names: Vec<u8> = files.iter().flat_map(|(path, ..)| quoted(path)).collect();
        if names.is_empty() {
            return Ok(found);
        }
        // As `git add` would: with the line endings that the repository asks for, and without its filters.
        let hashed = self.git(&["hash-object", "--stdin-paths"], &names, &[])?;
        let ids: Vec<&[u8]> = hashed.stdout.split(|byte| *byte == b'\n').collect();
        if ids.len() <= files.len() {
            return Err(failed("hash-object", "it told of too few files".to_owned(), b""));
        }
        for ((path, mode, staged), id) in files.into_iter().zip(ids) {
            let is_same = staged.oid.as_deref().is_some_and(|oid| oid.as_bytes() == id);
            if !is_same || mode != staged.mode {
                found.push(Unwatched { path, staged, now: Some(Side { mode, oid: None }) });
            }
        }
        Ok(found)
    }

    fn there(&self, path: &RelPath) -> Result<There, Error> {
        let place = self.worktree.join(path.as_path());
        let failed = |source: io::Error| Error::io(&path.to_string(), "look at", source);
        let about = match fs::symlink_metadata(&place) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(There::Nothing);
            }
            about => about.map_err(failed)?,
        };
        Ok(if about.is_symlink() {
            let target = fs::read_link(&place).map_err(failed)?;
            There::Link(target.as_os_str().as_bytes().to_vec())
        } else if about.is_file() {
            let runs = about.permissions().mode() & 0o100 != 0;
            There::File(if runs { 0o100_755 } else { 0o100_644 })
        } else if about.is_dir() {
            There::Nothing
        } else {
            There::Other
        })
    }

    /// Tells whether only a part of the repository is checked out.
    fn is_sparse(&self) -> Result<bool, Error> {
        let args = ["config", "--type=bool", "--get", "core.sparseCheckout"];
        Ok(self.raw(&args, b"", &[])?.stdout.trim_ascii() == b"true")
    }
}

/// The mode of a link.
const LINK: u32 = 0o120_000;

/// Writes a path as git reads it from a line of its own.
fn quoted(path: &RelPath) -> Vec<u8> {
    let bytes = path.as_path().as_os_str().as_bytes();
    let mut line = Vec::with_capacity(bytes.len() + 3);
    if bytes.starts_with(b"\"") || bytes.contains(&b'\n') {
        line.push(b'"');
        for byte in bytes {
            match byte {
                b'\n' => line.extend(b"\\n"),
                b'"' | b'\\' => line.extend([b'\\', *byte]),
                byte => line.push(*byte),
            }
        }
        line.push(b'"');
    } else {
        line.extend(bytes);
    }
    line.push(b'\n');
    line
}
