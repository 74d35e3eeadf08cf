//! Commits without a checkout: a private index, a tree, and a reference that moves only if nobody moved it.

mod scratch; // A folder of one commit's own, and what is to follow once the branch has moved.

use super::{GitCommand, GitOutput, ReadOnlyGit, failed};
use crate::{
    error::Error,
    path::RelPath,
    snapshot::{Snapshots, State},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use scratch::{Intent, Scratch};

/// How often the index is asked for again that another git holds, and how long in between.
const LOCKED_TRIES: u32 = 50;
const LOCKED_PAUSE: Duration = Duration::from_millis(100);
/// How often a commit begins anew because somebody else committed meanwhile.
const MOVED_TRIES: u32 = 5;

/// What one path was when the work began, and what the work made of it; the contents are kept in
/// [`Snapshots`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The path from the top of the worktree.
    pub path: RelPath,
    /// What it was; none if it is new.
    pub before: Option<State>,
    /// What it is; none if it is gone.
    pub after: Option<State>,
}

/// What a commit says besides its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The words, without trailers.
    pub text: String,
    /// Lines such as `Formwork-Run: …`, put below the words.
    pub trailers: Vec<(String, String)>,
    /// Who wrote and commits it: a name and an address.
    pub identity: (String, String),
    /// Seconds since 1970, in UTC.
    pub at: i64,
}

/// A commit that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its id.
    pub id: String,
    /// The paths that it changes.
    pub paths: Vec<RelPath>,
    /// Paths that were left out, each with the reason.
    pub left: Vec<(RelPath, String)>,
    /// Why the user's index was not brought along, which then shows paths as staged back; none if it was.
    pub index_left: Option<String>,
}

/// What is known of a commit for whoever comes after a process that dies now, beside the repository. It is to be kept until
/// whoever asked for the commit has written it down.
#[derive(Debug)]
pub struct Remembered {
    _scratch: Scratch,
}

/// Judges a content that is about to be committed, beside the one that is committed at its path now.
pub type Scan<'a> = &'a dyn Fn(&RelPath, Option<&[u8]>, &[u8]) -> Result<(), String>;

/// An entry of a tree: its mode and the id of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: String,
    oid: String,
}

/// What git was told of an entry of the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Flags {
    is_skipped: bool,
    is_assumed: bool,
}

/// A path with its entry before the commit and in it.
type Line = (RelPath, Option<Entry>, Option<Entry>);

impl ReadOnlyGit {
    /// Commits what a piece of work has changed, and nothing else, on top of what is committed now.
    ///
    /// Where a file held uncommitted changes before the work began, the work's own change is merged into
    /// what is committed; where that cannot be told apart, the file is left out. Neither hooks, filters
    /// nor settings of the repository are run, the worktree is not touched, and of the user's index only
    /// the committed paths are brought along.
    ///
    /// # Errors
    /// [`Error::NothingToCommit`]; [`Error::UnderWay`] during a merge or the like;
    /// [`Error::Unclean`] where `scan` objects; [`Error::Raced`] if others keep committing;
    /// [`Error::Git`], [`Error::Damaged`], [`Error::Io`]. Nothing was committed then.
    pub fn commit(
        &self,
        kept: &Snapshots,
        deltas: &[Delta],
        message: &Message,
        scan: Scan<'_>,
    ) -> Result<(Committed, Remembered), Error> {
        for name in
            ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"]
        {
            if self.git_dir.join(name).exists() {
                return Err(Error::UnderWay { what: name.to_owned() });
            }
        }
        let scratch = Scratch::new(&self.git_dir)?;
        for _ in 0..MOVED_TRIES {
            if let Some(done) = self.try_commit(&scratch, kept, deltas, message, scan)? {
                return Ok((done, Remembered { _scratch: scratch }));
            }
        }
        Err(Error::Raced { path: "HEAD".to_owned() })
    }

    /// Makes one commit; none if somebody else moved the branch meanwhile.
    fn try_commit(
        &self,
        scratch: &Scratch,
        kept: &Snapshots,
        deltas: &[Delta],
        message: &Message,
        scan: Scan<'_>,
    ) -> Result<Option<Committed>, Error> {
        let head = self.head()?;
        let private = [("GIT_INDEX_FILE", scratch.dir.join("index").into_os_string())];
        let committed = self.committed(head.as_deref(), &private)?;
        let unwanted = self.unwanted(deltas, &committed)?;
        let (mut changed, mut left) = (Vec::new(), Vec::new());
        for delta in deltas {
            if let Some(reason) = unwanted.get(&delta.path) {
                left.push((delta.path.clone(), reason.clone()));
                continue;
            }
            let now = committed.get(&delta.path);
            match self.merged(scratch, kept, delta, now)? {
                Ok(content) => changed.push((delta, content)),
                Err(reason) => left.push((delta.path.clone(), reason)),
            }
        }
        let mut lines = Vec::new();
        let mut paths = Vec::new();
        for (delta, content) in changed {
            let path = &delta.path;
            let entry = match (&content, delta.after) {
                (Some(bytes), Some(after)) => {
                    let old = match committed.get(path) {
                        Some(entry) if entry.mode != "160000" => {
                            Some(self.git(&["cat-file", "blob", &entry.oid], b"", &[])?.stdout)
                        }
                        _ => None,
                    };
                    scan(path, old.as_deref(), bytes)
                        .map_err(|reason| Error::Unclean { path: path.to_string(), reason })?;
                    let oid = self.git(&["hash-object", "-w", "--stdin"], bytes, &[])?;
                    let mode = mode_of(delta.before, after, committed.get(path));
                    Some(Entry { mode, oid: line(&oid) })
                }
                _ => None,
            };
            if entry.as_ref() == committed.get(path) {
                continue;
            }
            lines.push((path.clone(), committed.get(path).cloned(), entry));
            paths.push(path.clone());
        }
        if paths.is_empty() {
            return Err(Error::NothingToCommit { left: told(&left) });
        }
        self.update_index(&lines, &private)?;
        let tree = line(&self.git(&["write-tree"], b"", &private)?);
        let id = self.commit_tree(&tree, head.as_deref(), message)?;
        // Whoever comes after a process that dies from here on brings the index along in its place.
        scratch.intend(&Intent { id: &id, trailers: &message.trailers, lines: &lines })?;
        let none = "0".repeat(id.len());
        let old = head.as_deref().unwrap_or(&none);
        let subject = message.text.lines().next().unwrap_or_default();
        let reason = format!("commit: {subject}");
        let args = ["update-ref", "-m", &reason, "HEAD", &id, old];
        let moved = self.raw(&args, b"", &identity(message))?;
        if moved.code != 0 {
            // Another commit, or another git that holds the reference for a moment.
            return match self.head()? == head {
                true => Err(failed("update-ref", moved.code.to_string(), &moved.stderr)),
                false => Ok(None),
            };
        }
        // The branch has moved: the commit is made, whatever becomes of the index.
        let index_left =
            self.bring_index_along(scratch, &lines).unwrap_or_else(|error| Some(error.to_string()));
        Ok(Some(Committed { id, paths, left, index_left }))
    }

    /// Finishes the commits of processes that died between the move of the branch and the index: brings the user's index
    /// along, which showed what was committed as staged back. Returns those that have the trailer `own`; of the
    /// others it is remembered for whoever asks with theirs.
    ///
    /// # Errors
    /// [`Error::Git`] and [`Error::Io`] when it cannot be told what is left or committed.
    pub fn finish_commits(&self, own: (&str, &str)) -> Result<Vec<(Committed, Remembered)>, Error> {
        let mut finished = Vec::new();
        for mut left in Scratch::left(&self.git_dir) {
            let Some((id, trailers, lines)) = left.intended() else { continue };
            let is_made = self.raw(&["merge-base", "--is-ancestor", &id, "HEAD"], b"", &[])?;
            if is_made.code != 0 {
                continue; // The branch never moved, or was moved back since.
            }
            let paths = lines.iter().map(|(path, ..)| path.clone()).collect();
            let index_left = match left.is_finished() {
                true => None,
                false => self.follow_late(lines).unwrap_or_else(|error| Some(error.to_string())),
            };
            if trailers.iter().any(|(name, value)| (name.as_str(), value.as_str()) == own) {
                let done = Committed { id, paths, left: Vec::new(), index_left };
                finished.push((done, Remembered { _scratch: left }));
            } else {
                left.finished()?;
            }
        }
        Ok(finished)
    }

    /// Brings the index along as far as what was committed is still what is.
    fn follow_late(&self, mut lines: Vec<Line>) -> Result<Option<String>, Error> {
        let scratch = Scratch::new(&self.git_dir)?;
        let private = [("GIT_INDEX_FILE", scratch.dir.join("index").into_os_string())];
        let committed = self.committed(self.head()?.as_deref(), &private)?;
        lines.retain(|(path, _, new)| committed.get(path) == new.as_ref());
        self.bring_index_along(&scratch, &lines)
    }

    /// Reads a commit into the index that `private` names, and lists what it has.
    fn committed(
        &self,
        head: Option<&str>,
        private: &[(&str, OsString)],
    ) -> Result<BTreeMap<RelPath, Entry>, Error> {
        match head {
            Some(head) => self.git(&["read-tree", head], b"", private)?,
            None => self.git(&["read-tree", "--empty"], b"", private)?,
        };
        Ok(entries(&self.git(&["ls-files", "-s", "-z"], b"", private)?.stdout))
    }

    /// Returns the commit that is checked out; none before the first.
    pub(super) fn head(&self) -> Result<Option<String>, Error> {
        self.commit_of("HEAD")
    }

    /// Finds the paths that are not to be committed: ignored ones that are new, those below a submodule,
    /// and those whose content git would pass through a program.
    fn unwanted(
        &self,
        deltas: &[Delta],
        committed: &BTreeMap<RelPath, Entry>,
    ) -> Result<BTreeMap<RelPath, String>, Error> {
        let mut unwanted = BTreeMap::new();
        let links: BTreeSet<&RelPath> = committed
            .iter()
            .filter(|(_, entry)| entry.mode == "160000")
            .map(|(path, _)| path)
            .collect();
        let (mut list, mut new) = (Vec::new(), Vec::new());
        for delta in deltas {
            let mut above = std::iter::successors(delta.path.parent(), RelPath::parent);
            if above.any(|parent| links.contains(&parent)) || links.contains(&delta.path) {
                unwanted.insert(delta.path.clone(), "it belongs to a submodule".to_owned());
            }
            // A name may begin with what would be magic in a path to git.
            let name = [b"./", delta.path.as_path().as_os_str().as_bytes(), b"\0"].concat();
            list.extend_from_slice(&name);
            if delta.after.is_none() || committed.contains_key(&delta.path) {
                continue;
            }
            // Git does not say whether a path is ignored that a link stands above.
            let mut above = std::iter::successors(delta.path.parent(), RelPath::parent);
            if above.any(|parent| self.worktree.join(parent.as_path()).is_symlink()) {
                let why = "a link stands by now where a folder above it was";
                unwanted.entry(delta.path.clone()).or_insert_with(|| why.to_owned());
                continue;
            }
            new.extend_from_slice(&name);
        }
        let ignored = self.raw(&["check-ignore", "--no-index", "-z", "--stdin"], &new, &[])?;
        if ignored.code > 1 {
            let code = format!("exit code {}", ignored.code);
            return Err(failed("check-ignore", code, &ignored.stderr));
        }
        for path in ignored.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let path = RelPath::parse(std::ffi::OsStr::from_bytes(path))?;
            unwanted.entry(path).or_insert_with(|| "it is ignored".to_owned());
        }
        let attributes = self.git(&["check-attr", "-z", "--stdin", "filter"], &list, &[])?;
        let fields: Vec<&[u8]> = attributes.stdout.split(|&byte| byte == 0).collect();
        for field in fields.chunks_exact(3) {
            let [path, _, value] = field else { continue };
            if ![b"unspecified".as_slice(), b"unset"].contains(value) {
                let path = RelPath::parse(std::ffi::OsStr::from_bytes(path))?;
                let value = String::from_utf8_lossy(value);
                unwanted.insert(
                    path,
                    format!("its content passes the filter {value}, which is not run"),
                );
            }
        }
        Ok(unwanted)
    }

    /// Returns what a path is to be in the commit, none meaning gone; or why it cannot be told.
    fn merged(
        &self,
        scratch: &Scratch,
        kept: &Snapshots,
        delta: &Delta,
        now: Option<&Entry>,
    ) -> Result<Result<Option<Vec<u8>>, String>, Error> {
        let content = |state: Option<State>| match state.and_then(|state| state.hash) {
            Some(hash) => kept.kept(hash).map(Some),
            None => Ok(None),
        };
        let (before, after) = (content(delta.before)?, content(delta.after)?);
        let head = match now {
            Some(entry) => Some(self.git(&["cat-file", "blob", &entry.oid], b"", &[])?.stdout),
            None => None,
        };
        let mixed = "it held changes before that are not committed, and these cannot be told apart";
        // Where it is committed as it is, nothing is left to do.
        if head == before || head == after {
            return Ok(Ok(after));
        }
        Ok(match (head, before, after) {
            // Git keeps such files with other line endings than the worktree has.
            (Some(head), Some(before), Some(after)) if head == with_lf(&before) => {
                Ok(Some(with_lf(&after)))
            }
            (Some(head), Some(before), Some(after)) => {
                match self.merge(scratch, [&head, &before, &after])? {
                    Some(merged) => Ok(Some(merged)),
                    None => Err(mixed.to_owned()),
                }
            }
            // It was new to git as well, with what somebody else had written into it.
            (None, Some(_), _) => Err("it was not committed before the work began".to_owned()),
            (Some(_), None, _) | (Some(_), Some(_), None) | (None, None, _) => {
                Err(mixed.to_owned())
            }
        })
    }

    /// Merges the change from `base` to `other` into `ours`; none if both changed the same lines.
    fn merge(
        &self,
        scratch: &Scratch,
        [ours, base, other]: [&[u8]; 3],
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut args = vec!["merge-file".to_owned(), "-p".to_owned(), "-q".to_owned()];
        for (name, bytes) in [("ours", ours), ("base", base), ("other", other)] {
            let path = scratch.dir.join(name);
            std::fs::write(&path, bytes)
                .map_err(|e| Error::io(&path.to_string_lossy(), "write", e))?;
            args.push(path.to_string_lossy().into_owned());
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // It ends with the number of conflicts, and with 255 for what is no text.
        match self.raw(&args, b"", &[]) {
            Ok(merged) if merged.code == 0 => Ok(Some(merged.stdout)),
            Ok(_) | Err(Error::Git { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn commit_tree(
        &self,
        tree: &str,
        parent: Option<&str>,
        message: &Message,
    ) -> Result<String, Error> {
        let mut text = message.text.trim_end().to_owned();
        text.push_str("\n\n");
        for (name, value) in &message.trailers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        let mut args = vec!["commit-tree", tree, "-F", "-"];
        if let Some(parent) = parent {
            args.extend(["-p", parent]);
        }
        Ok(line(&self.git(&args, text.as_bytes(), &identity(message))?))
    }

    /// Writes entries into the index that `env` names, or the user's.
    fn update_index(&self, lines: &[Line], env: &[(&str, OsString)]) -> Result<(), Error> {
        self.git(&["update-index", "-z", "--index-info"], &index_info(lines), env).map(drop)
    }

    /// Makes the committed paths in the user's index what was committed, where they were what was
    /// committed before, and returns why not all could be. Another git that holds the index is waited for, for
    /// some seconds.
    fn bring_index_along(
        &self,
        scratch: &Scratch,
        lines: &[Line],
    ) -> Result<Option<String>, Error> {
        for _ in 0..LOCKED_TRIES {
            let listed = self.git(&["ls-files", "-v", "-s", "-z"], b"", &[])?.stdout;
            let (staged, flags) = flagged(&listed);
            let (mut follow, staged_by_user): (Vec<_>, Vec<_>) =
                lines.iter().cloned().partition(|(path, old, _)| staged.get(path) == old.as_ref());
            let mut kept = Vec::new();
            for (path, old, new) in staged_by_user {
                let mine = staged.get(&path);
                match self.staged_again(scratch, [mine, old.as_ref(), new.as_ref()])? {
                    Some(entry) => follow.push((path, old, Some(entry))),
                    None if mine == new.as_ref() => {}
                    None => kept.push(path.to_string()),
                }
            }
            let done = self.raw(&["update-index", "-z", "--index-info"], &index_info(&follow), &[]);
            match done {
                Ok(done) if done.code == 0 => {
                    let why = || format!("what is staged of {} stays as it was", kept.join(", "));
                    self.flag_again(&follow, &flags)?;
                    return Ok((!kept.is_empty()).then(why));
                }
                Ok(_) | Err(Error::Git { .. }) if self.git_dir.join("index.lock").exists() => {
                    pause();
                }
                Ok(done) => {
                    let code = format!("exit code {}", done.code);
                    return Err(failed("update-index", code, &done.stderr));
                }
                Err(Error::Git { .. }) => {} // The lock went between the call and the look.
                Err(e) => return Err(e),
            }
        }
        let lock = self.git_dir.join("index.lock");
        Ok(Some(format!("another git holds {}", lock.display())))
    }

    /// Tells git again not to look at the paths of which it was told so: an entry is written anew without that.
    fn flag_again(&self, lines: &[Line], flags: &BTreeMap<RelPath, Flags>) -> Result<(), Error> {
        let of = |has: fn(&Flags) -> bool| -> Vec<u8> {
            let lines = lines
                .iter()
                .filter(|(path, _, new)| new.is_some() && flags.get(path).is_some_and(has));
            let names = lines.map(|(path, ..)| path.as_path().as_os_str().as_bytes());
            names.flat_map(|name| [name, b"\0"].concat()).collect()
        };
        for (option, names) in [
            ("--skip-worktree", of(|flags| flags.is_skipped)),
            ("--assume-unchanged", of(|flags| flags.is_assumed)),
        ] {
            if names.is_empty() {
                continue;
            }
            let args = ["update-index", option, "-z", "--stdin"];
            for tries in 1.. {
                match self.git(&args, &names, &[]) {
                    Ok(_) => break,
                    // Another git came between.
                    Err(Error::Git { .. })
                        if tries < LOCKED_TRIES && self.git_dir.join("index.lock").exists() =>
                    {
                        pause();
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Merges what was committed into what the user has staged of the same path; none if both changed the
    /// same lines, or one of them removed it.
    fn staged_again(
        &self,
        scratch: &Scratch,
        entries: [Option<&Entry>; 3],
    ) -> Result<Option<Entry>, Error> {
        let [Some(mine), Some(old), Some(new)] = entries else { return Ok(None) };
        let blob = |entry: &Entry| self.git(&["cat-file", "blob", &entry.oid], b"", &[]);
        let (ours, base, other) = (blob(mine)?, blob(old)?, blob(new)?);
        let merged = self.merge(scratch, [&ours.stdout, &base.stdout, &other.stdout])?;
        let Some(merged) = merged else { return Ok(None) };
        let oid = line(&self.git(&["hash-object", "-w", "--stdin"], &merged, &[])?);
        Ok(Some(Entry { mode: mine.mode.clone(), oid }))
    }

    /// Builds a call of a subcommand that only this module makes.
    pub(super) fn plumbing(&self, args: &[&str]) -> Result<GitCommand, Error> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Ok(self.build(&args, &self.filters()?))
    }

    pub(super) fn raw(
        &self,
        args: &[&str],
        input: &[u8],
        env: &[(&str, OsString)],
    ) -> Result<GitOutput, Error> {
        let mut command = self.plumbing(args)?;
        for (key, value) in env {
            command.env.push(((*key).into(), value.clone()));
        }
        run_with(args.first().copied().unwrap_or_default(), &command, input)
    }

    pub(super) fn git(
        &self,
        args: &[&str],
        input: &[u8],
        env: &[(&str, OsString)],
    ) -> Result<GitOutput, Error> {
        let output = self.raw(args, input, env)?;
        if output.code == 0 {
            return Ok(output);
        }
        let name = args.first().copied().unwrap_or_default();
        Err(failed(name, format!("exit code {}", output.code), &output.stderr))
    }
}

/// Runs a call with something on its standard input.
fn run_with(name: &str, command: &GitCommand, input: &[u8]) -> Result<GitOutput, Error> {
    let Some((program, args)) = command.argv.split_first() else {
        return Err(failed(name, "no program".to_owned(), b""));
    };
    let io = |e: std::io::Error| Error::io(&program.to_string_lossy(), "run", e);
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(command.env.iter().map(|(key, value)| (key, value)))
        .current_dir(&command.dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A git that does not read to the end has said why on its standard error.
            let _ = stdin.map(|mut stdin| stdin.write_all(input));
        });
        child.wait_with_output()
    })
    .map_err(io)?;
    match output.status.code() {
        Some(code) => Ok(GitOutput { code, stdout: output.stdout, stderr: output.stderr }),
        None => Err(failed(name, output.status.to_string(), &output.stderr)),
    }
}

/// Waits a moment for another git.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever holds git's lock file tells nobody when it goes"
)]
fn pause() {
    std::thread::sleep(LOCKED_PAUSE);
}

/// Finds who commits as the user's settings and the repository's say; none where they do not.
///
/// `env` is the user's environment. Settings are read, and nothing that they name is run.
pub fn identity_of(worktree: &Path, env: &[(OsString, OsString)]) -> Option<(String, String)> {
    let ask = |key: &str| {
        let output = Command::new("git")
            .args(["config", "--get", key])
            .current_dir(worktree)
            .env_clear()
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let value = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        // What would end the field that it stands in is not taken over.
        let fits = !value.is_empty() && !value.contains(['<', '>', '\n']);
        fits.then_some(value)
    };
    Some((ask("user.name")?, ask("user.email")?))
}

/// Returns the variables by which git knows who commits, and when.
fn identity(message: &Message) -> Vec<(&'static str, OsString)> {
    let (name, address) = &message.identity;
    let at = format!("{} +0000", message.at);
    vec![
        ("GIT_AUTHOR_NAME", name.into()),
        ("GIT_AUTHOR_EMAIL", address.into()),
        ("GIT_AUTHOR_DATE", (&at).into()),
        ("GIT_COMMITTER_NAME", name.into()),
        ("GIT_COMMITTER_EMAIL", address.into()),
        ("GIT_COMMITTER_DATE", at.into()),
    ]
}

fn line(output: &GitOutput) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Reads `git ls-files -s -z`.
fn entries(bytes: &[u8]) -> BTreeMap<RelPath, Entry> {
    let records = bytes.split(|&byte| byte == 0).filter(|record| !record.is_empty());
    let entry = |record: &[u8]| {
        let tab = record.iter().position(|&byte| byte == b'\t')?;
        let (fields, path) = record.split_at_checked(tab)?;
        let fields = std::str::from_utf8(fields).ok()?;
        let mut fields = fields.split(' ');
        let (mode, oid) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let path = RelPath::parse(std::ffi::OsStr::from_bytes(path.get(1..)?)).ok()?;
        Some((path, Entry { mode, oid }))
    };
    records.filter_map(entry).collect()
}

/// Reads `git ls-files -v -s -z`: the entries, and those of them that git was told not to look at.
fn flagged(bytes: &[u8]) -> (BTreeMap<RelPath, Entry>, BTreeMap<RelPath, Flags>) {
    let (mut plain, mut flags) = (Vec::with_capacity(bytes.len()), BTreeMap::new());
    for record in bytes.split(|&byte| byte == 0) {
        // A small letter says that it is assumed unchanged, an `S` that it is skipped.
        let Some((tag, record)) = record.split_first() else { continue };
        let record = record.strip_prefix(b" ").unwrap_or(record);
        let told = Flags {
            is_skipped: tag.eq_ignore_ascii_case(&b's'),
            is_assumed: tag.is_ascii_lowercase(),
        };
        if told != Flags::default() {
            flags.extend(entries(record).into_keys().map(|path| (path, told)));
        }
        plain.extend_from_slice(record);
        plain.push(0);
    }
    (entries(&plain), flags)
}

/// Writes what `git update-index -z --index-info` reads.
fn index_info(lines: &[Line]) -> Vec<u8> {
    let mut info = Vec::new();
    // What goes comes first: a file may take the place of a folder.
    for gone in [true, false] {
        for (path, old, entry) in lines.iter().filter(|(.., entry)| entry.is_none() == gone) {
            let fields = match entry {
                Some(Entry { mode, oid }) => format!("{mode} {oid}\t"),
                None => {
                    let digits = old.as_ref().map_or(40, |old| old.oid.len());
                    format!("0 {}\t", "0".repeat(digits))
                }
            };
            info.extend_from_slice(fields.as_bytes());
            info.extend_from_slice(path.as_path().as_os_str().as_bytes());
            info.push(0);
        }
    }
    info
}

/// Returns the mode of a path in the commit: where the work did not change it, that which is committed.
fn mode_of(before: Option<State>, after: State, now: Option<&Entry>) -> String {
    let kept = before.is_some_and(|before| git_mode(before.mode) == git_mode(after.mode));
    match now {
        Some(now) if kept => now.mode.clone(),
        _ => git_mode(after.mode).to_owned(),
    }
}

/// Returns the mode that git keeps: it knows files, files that run, and links.
fn git_mode(mode: u32) -> &'static str {
    match (mode & 0o170_000, mode & 0o100) {
        (0o120_000, _) => "120000",
        (_, 0) => "100644",
        _ => "100755",
    }
}

fn with_lf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        if *byte != b'\r' || bytes.get(at + 1) != Some(&b'\n') {
            out.push(*byte);
        }
    }
    out
}

fn told(left: &[(RelPath, String)]) -> String {
    let each = left.iter().map(|(path, reason)| format!("; {path}: {reason}"));
    each.collect()
}

#[cfg(test)]
mod tests;
