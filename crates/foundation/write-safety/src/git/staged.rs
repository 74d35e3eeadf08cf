//! What is staged and what is tracked, and the very bytes of it.

use std::{
    ffi::{OsStr, OsString},
    io::{BufRead as _, BufReader, Read, Write as _},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{Command, Stdio},
};

use super::{ReadOnlyGit, failed};
use crate::{RelPath, error::Error};

/// The longest line that git writes ahead of a blob: an id, a type and a number.
const LONGEST_HEADER: u64 = 512;

/// A content that the next commit would bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Its path from the top of the worktree.
    pub path: RelPath,
    /// The id of its blob.
    pub oid: String,
}

impl ReadOnlyGit {
    /// Lists the contents that the next commit would bring and the last one does not have: files and links, and
    /// no submodules. `index` is another index than the worktree's own, as git names one to its hooks.
    ///
    /// # Errors
    /// [`Error::GitRefused`] when `index` lies outside of the repository; [`Error::Git`] when git cannot tell.
    pub fn staged(&self, index: Option<&Path>) -> Result<Vec<Staged>, Error> {
        let env: Vec<_> = index.map(|index| self.index(index)).transpose()?.into_iter().collect();
        let args =
            ["diff", "--cached", "--raw", "-z", "--no-renames", "--no-abbrev", "--no-ext-diff"];
        let output = self.git(&args, b"", &env)?;
        let mut fields = output.stdout.split(|byte| *byte == 0);
        let unknown = || failed("diff", "its answer cannot be read".to_owned(), b"");
        let mut staged = Vec::new();
        while let Some(record) = fields.next().filter(|record| !record.is_empty()) {
            let record = std::str::from_utf8(record).map_err(|_| unknown())?;
            let path = fields.next().ok_or_else(unknown)?;
            let mut parts = record.trim_start_matches(':').split(' ').skip(1);
            let (Some(mode), Some(oid)) = (parts.next(), parts.nth(1)) else {
                return Err(unknown());
            };
            // What goes, what is a submodule, and what is only meant to be added has no content.
            let is_content = mode != "000000" && mode != "160000";
            if is_content && !oid.bytes().all(|digit| digit == b'0') {
                let path = RelPath::parse(OsStr::from_bytes(path))?;
                staged.push(Staged { path, oid: oid.to_owned() });
            }
        }
        Ok(staged)
    }

    /// Returns what has git look at another index than the worktree's own.
    pub(super) fn index(&self, index: &Path) -> Result<(&'static str, OsString), Error> {
        let written = index.to_string_lossy().into_owned();
        let place = self.worktree.join(index);
        let place = place.canonicalize().map_err(|e| Error::io(&written, "open", e))?;
        let own = self.git_dir.canonicalize().map_err(|e| Error::io(&written, "open", e))?;
        if !place.starts_with(own) {
            return Err(Error::GitRefused {
                command: "diff".to_owned(),
                argument: written,
                why: "it is an index outside of the repository",
            });
        }
        Ok(("GIT_INDEX_FILE", place.into_os_string()))
    }

    /// Lists the files that git tracks, from the top of the worktree.
    ///
    /// # Errors
    /// [`Error::Git`] when git cannot tell.
    pub fn tracked(&self) -> Result<Vec<RelPath>, Error> {
        let output = self.git(&["ls-files", "-z"], b"", &[])?;
        let paths = output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        paths.map(|path| RelPath::parse(OsStr::from_bytes(path))).collect()
    }

    /// Hands each blob of `oids` to `visit`, by its place in the list, without holding one in memory.
    ///
    /// # Errors
    /// [`Error::Git`] when one is missing or no blob; what `visit` says.
    pub fn blobs(
        &self,
        oids: &[&str],
        visit: &mut dyn FnMut(usize, &mut dyn Read) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let command = self.plumbing(&["cat-file", "--batch"])?;
        let Some((program, args)) = command.argv.split_first() else { return Ok(()) };
        let broken = |e| Error::io("git cat-file", "run", e);
        let mut child = Command::new(program)
            .args(args)
            .env_clear()
            .envs(command.env.iter().map(|(key, value): &(OsString, OsString)| (key, value)))
            .current_dir(&command.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(broken)?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Ok(());
        };
        let read = std::thread::scope(|scope| {
            // It writes while we read, or both would wait for each other.
            scope.spawn(move || {
                for oid in oids {
                    if writeln!(input, "{oid}").is_err() {
                        return;
                    }
                }
            });
            let read = each(BufReader::new(output), oids.len(), visit);
            if read.is_err() {
                let _ = child.kill();
            }
            read
        });
        let status = child.wait().map_err(broken)?;
        read?;
        match status.success() {
            true => Ok(()),
            false => Err(failed("cat-file", status.to_string(), b"")),
        }
    }
}

fn each(
    mut output: impl std::io::BufRead,
    count: usize,
    visit: &mut dyn FnMut(usize, &mut dyn Read) -> Result<(), Error>,
) -> Result<(), Error> {
    let broken = |e| Error::io("git cat-file", "read", e);
    for at in 0..count {
        let mut header = Vec::new();
        output.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut header).map_err(broken)?;
        let header = String::from_utf8_lossy(&header);
        let size = match header.trim_end().split(' ').collect::<Vec<_>>()[..] {
            [_, "blob", size] => size.parse::<u64>().ok(),
            _ => None,
        };
        let Some(size) = size else {
            return Err(failed("cat-file", format!("no blob: {}", header.trim_end()), b""));
        };
        let mut blob = output.by_ref().take(size);
        visit(at, &mut blob)?;
        std::io::copy(&mut blob, &mut std::io::sink()).map_err(broken)?;
        if blob.limit() > 0 {
            return Err(failed("cat-file", "it ended before the blob did".to_owned(), b""));
        }
        let mut end = [0];
        output.read_exact(&mut end).map_err(broken)?;
    }
    Ok(())
}
