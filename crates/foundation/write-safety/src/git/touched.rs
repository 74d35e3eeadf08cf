//! What differs from a commit: in the worktree, or in what the next commit would bring.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use super::{ReadOnlyGit, failed, unwatched::Unwatched};
use crate::{RelPath, error::Error};

/// A file, link or submodule that differs from what a commit has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// Its path from the top of the worktree.
    pub path: RelPath,
    /// What the commit has; none where it is new.
    pub before: Option<Side>,
    /// What there is; none where it is gone.
    pub after: Option<Side>,
}

/// Where a difference from a commit is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// In the files that git knows.
    Worktree,
    /// In the index: the worktree's own, or another one as git names it to its hooks.
    Index(Option<&'a Path>),
}

/// One side of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Its kind and permission bits, as git writes them; `0o160000` is a submodule.
    pub mode: u32,
    /// The id of its blob; none where its content is in the worktree alone.
    pub oid: Option<String>,
}

/// The kind of a submodule.
pub(crate) const SUBMODULE: u32 = 0o160_000;

impl ReadOnlyGit {
    /// Returns the id of the commit that a revision names; none where there is no such commit.
    ///
    /// # Errors
    /// [`Error::GitRefused`] when it is no revision by its text; [`Error::Git`] when git itself fails.
    pub fn commit_of(&self, revision: &str) -> Result<Option<String>, Error> {
        is_revision("rev-parse", revision)?;
        let wanted = format!("{revision}^{{commit}}");
        let output = self.raw(&["rev-parse", "--verify", "--quiet", &wanted], b"", &[])?;
        if output.code == 0 {
            return Ok(id(&output.stdout));
        }
        if output.code >= 128 {
            return Err(failed("rev-parse", format!("exit code {}", output.code), &output.stderr));
        }
        // A name that leads to an object which is not there is no name of nothing: the repository is damaged. An id stands for
        // itself, whether or not anything has it.
        let named = self.raw(&["rev-parse", "--verify", "--quiet", revision], b"", &[])?;
        let object = id(&named.stdout).filter(|object| !object.eq_ignore_ascii_case(revision));
        if let Some(object) = object.filter(|_| named.code == 0) {
            let there = self.raw(&["cat-file", "-e", &object], b"", &[])?;
            if there.code != 0 {
                let told =
                    format!("{revision} names {object}, which is not there or cannot be read");
                return Err(failed(
                    "cat-file",
                    format!("exit code {}", there.code),
                    told.as_bytes(),
                ));
            }
        }
        Ok(None)
    }

    /// Returns the commit in which two parted; none where they have nothing in common.
    ///
    /// # Errors
    /// [`Error::Git`] when git itself fails.
    pub fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>, Error> {
        let output = self.raw(&["merge-base", "--", one, other], b"", &[])?;
        Ok(id(&output.stdout).filter(|_| output.code == 0))
    }

    /// Lists what differs from a commit, by path, files included that git was told not to look at
    /// (`--assume-unchanged`, `--skip-worktree`). Those that git does not know are listed by
    /// [`untracked`](Self::untracked) alone. `paths` narrow it down; none means all.
    ///
    /// # Errors
    /// [`Error::GitRefused`] when an index lies outside of the repository, or the commit is none by its text; [`Error::Git`]
    /// when git cannot tell.
    pub fn touched(
        &self,
        commit: &str,
        place: Place<'_>,
        paths: &[RelPath],
    ) -> Result<Vec<Touched>, Error> {
        is_revision("diff", commit)?;
        let mut args = vec!["diff"];
        let mut env = Vec::new();
        if let Place::Index(index) = place {
            args.push("--cached");
            env.extend(index.map(|index| self.index(index)).transpose()?);
        }
        args.extend(["--raw", "-z", "--no-renames", "--no-abbrev", "--no-ext-diff"]);
        args.extend(["--ignore-submodules=dirty", "--no-relative", commit, "--"]);
        let specs = literal(paths);
        args.extend(specs.iter().map(String::as_str));
        let output = self.git(&args, b"", &env)?;
        let mut fields = output.stdout.split(|byte| *byte == 0);
        let unknown = || failed("diff", "its answer cannot be read".to_owned(), b"");
        let mut touched = Vec::new();
        while let Some(record) = fields.next().filter(|record| !record.is_empty()) {
            let record = std::str::from_utf8(record).map_err(|_| unknown())?;
            let path = RelPath::parse(OsStr::from_bytes(fields.next().ok_or_else(unknown)?))?;
            let parts: Vec<&str> = record.trim_start_matches(':').split(' ').collect();
            let [old_mode, new_mode, old, new, _] = parts[..] else { return Err(unknown()) };
            let side = |mode: &str, oid: &str| -> Option<Side> {
                let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode != 0)?;
                let oid = oid.bytes().any(|digit| digit != b'0').then(|| oid.to_owned());
                Some(Side { mode, oid })
            };
            touched.push(Touched { path, before: side(old_mode, old), after: side(new_mode, new) });
        }
        if let Place::Worktree = place {
            let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
            for Unwatched { path, staged, now } in self.unwatched(&specs)? {
                match touched.iter_mut().find(|it| it.path == path) {
                    Some(known) => known.after = now,
                    None => touched.push(Touched { path, before: Some(staged), after: now }),
                }
            }
        }
        Ok(touched)
    }

    /// Lists the files that git neither knows nor ignores; a repository within the worktree as its folder.
    ///
    /// # Errors
    /// [`Error::Git`] when git cannot tell.
    pub fn untracked(&self, paths: &[RelPath]) -> Result<Vec<RelPath>, Error> {
        let mut args = vec!["ls-files", "--others", "--exclude-standard", "-z", "--"];
        let specs = literal(paths);
        args.extend(specs.iter().map(String::as_str));
        let output = self.git(&args, b"", &[])?;
        let found = output.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        found.map(|path| RelPath::parse(OsStr::from_bytes(path))).collect()
    }
}

impl Side {
    /// Tells whether it is a submodule, which has no content here.
    pub const fn is_submodule(&self) -> bool {
        self.mode == SUBMODULE
    }
}

/// Takes paths at their word, whatever stars they hold.
/// Refuses what is no revision by its text, and would be an option.
fn is_revision(command: &str, revision: &str) -> Result<(), Error> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace();
    if revision.is_empty() || revision.starts_with('-') || revision.contains(is_odd) {
        return Err(Error::GitRefused {
            command: command.to_owned(),
            argument: revision.to_owned(),
            why: "it is no revision",
        });
    }
    Ok(())
}

fn literal(paths: &[RelPath]) -> Vec<String> {
    paths.iter().map(|path| format!(":(literal){path}")).collect()
}

fn id(stdout: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(stdout).ok()?.trim();
    let is_id = text.len() >= 40 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| text.to_owned())
}
