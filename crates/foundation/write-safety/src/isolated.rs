//! A workspace that a piece of work has to itself, until what it did is brought back or given up.

mod fill; // The files of a snapshot in a new folder.
mod origin; // What a copy came from, as a file beside it.

use crate::{
    error::Error,
    git::Linked,
    ledger::Hash,
    lock::Folders,
    path::RelPath,
    root::Root,
    rules::WriteRules,
    snapshot::{
        self, Clash, Conflict, Differing, Merged, Node, PathChange, Snapshot, Snapshots, Which,
    },
};
use origin::Origin;
use rustix::fd::AsFd;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The folder of a copy that work is done in.
const WORK: &str = "work";
/// What a copy came from. A copy without it was not made to its end, or is being removed.
const ORIGIN: &str = "origin";
/// Who makes or removes a copy: a process.
const OWNER: &str = "owner";
/// What a merge makes of the workspace, from before it begins until it is done.
const MERGING: &str = "merging";
/// Files that were left with both sides of a conflict in them.
const UNRESOLVED: &str = "unresolved";
/// What the work was before something ran in it that is no work of its own.
const HELD: &str = "held";

/// How a piece of work is given a workspace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// A folder with the same files, and no repository.
    Snapshot,
    /// A worktree of git's with the same files, on what is committed, with no branch of its own.
    Worktree,
}

/// A folder outside the workspace in which pieces of work have workspaces of their own.
///
/// Each begins as what the workspace holds at that moment, changes included that are not committed; what git
/// ignores is linked where the caller wants it, or is not there. What becomes of it is brought back path by path.
#[derive(Debug, Clone)]
pub struct Isolation {
    dir: PathBuf,
    snapshots: Arc<Snapshots>,
}

/// A workspace of one piece of work's own. It stays until it is removed or given up, whoever dies.
#[derive(Debug)]
pub struct Isolated {
    name: String,
    /// Holds the copy and what is known of it.
    place: PathBuf,
    snapshots: Arc<Snapshots>,
    origin: Origin,
    base: Snapshot,
}

/// What is kept of work that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The snapshot that the work began with.
    pub base: Hash,
    /// The snapshot of what it had come to.
    pub work: Hash,
    /// A reference to what it had committed, where it had.
    pub reference: Option<String>,
    /// The paths that it had changed.
    pub paths: Vec<RelPath>,
}

impl Isolation {
    /// Opens a folder of copies, making it if it is not there; only its owner may enter.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, snapshots: Arc<Snapshots>) -> Result<Self, Error> {
        let dir = dir.as_ref();
        snapshot::make_private(dir)?;
        let dir = dir.canonicalize().map_err(|e| Error::io(&dir.to_string_lossy(), "open", e))?;
        Ok(Self { dir, snapshots })
    }

    /// Gives a piece of work a workspace that holds what `root` holds now. Of what git ignores there, that is
    /// linked which `links` says; a link leads to the real workspace, and nothing that changes there is merged.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is one of this name, [`Error::Unknown`] if it is no name;
    /// [`Error::NotAWorktree`] and [`Error::Git`] where git cannot make one; [`Error::Io`].
    pub fn make(
        &self,
        root: &Root,
        name: &str,
        means: Means,
        links: &dyn Fn(&RelPath) -> bool,
    ) -> Result<Isolated, Error> {
        let place = self.place(name)?;
        if place.join(ORIGIN).exists() {
            return Err(Error::Exists { path: name.to_owned() });
        }
        // One that was not made to its end holds no work.
        self.clear(root.path(), &place)?;
        snapshot::make_private(&place)?;
        fs::write(place.join(OWNER), std::process::id().to_string())
            .map_err(|e| Error::io(name, "write the owner of", e))?;
        let made = self.filled(root, name, means, links);
        if made.is_err() {
            // What failed may stand in the way of this as well; then the next `make` clears it.
            let _ = self.clear(root.path(), &place);
        }
        made
    }

    fn filled(
        &self,
        root: &Root,
        name: &str,
        means: Means,
        links: &dyn Fn(&RelPath) -> bool,
    ) -> Result<Isolated, Error> {
        let place = self.place(name)?;
        let work = place.join(WORK);
        let base = self.snapshots.take(root, Which::NotIgnored)?;
        let commit = match means {
            Means::Snapshot => {
                snapshot::make_private(&work)?;
                None
            }
            Means::Worktree => Some(Linked::of(root.path())?.add(&work)?),
        };
        fill::fill(&work, &base, &self.snapshots)?;
        fill::link_ignored(root, &base, &work, links)?;
        let workspace = root.path().to_owned();
        let origin = Origin { workspace, base: base.id(), commit };
        origin.write(&place.join(ORIGIN))?;
        let snapshots = Arc::clone(&self.snapshots);
        Ok(Isolated { name: name.to_owned(), place, snapshots, origin, base })
    }

    /// Takes up a workspace that was made before, by this process or by one that died.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`]; none where there is none of this name.
    pub fn find(&self, name: &str) -> Result<Option<Isolated>, Error> {
        let place = self.place(name)?;
        let Some(origin) = Origin::read(&place.join(ORIGIN))? else { return Ok(None) };
        let base = self.snapshots.load(&origin.base.to_string())?;
        let (name, snapshots) = (name.to_owned(), Arc::clone(&self.snapshots));
        Ok(Some(Isolated { name, place, snapshots, origin, base }))
    }

    /// Lists the workspaces that are there, by name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let io = |e| Error::io(&self.dir.to_string_lossy(), "list", e);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            found.extend(name.to_str().filter(|name| is_name(name)).map(str::to_owned));
        }
        found.retain(|name| self.dir.join(name).join(ORIGIN).exists());
        found.sort();
        Ok(found)
    }

    /// Removes what processes left that died while they made or removed a workspace, and returns the names.
    /// None of it holds work.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sweep(&self, root: &Root) -> Result<Vec<String>, Error> {
        let io = |e| Error::io(&self.dir.to_string_lossy(), "list", e);
        let mut swept = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_name(name)) else { continue };
            let place = entry.path();
            if !place.join(ORIGIN).exists() && !lives(&place.join(OWNER)) {
                self.clear(root.path(), &place)?;
                swept.push(name.to_owned());
            }
        }
        Ok(swept)
    }

    fn place(&self, name: &str) -> Result<PathBuf, Error> {
        if is_name(name) {
            return Ok(self.dir.join(name));
        }
        Err(Error::Unknown { what: "name of a workspace of one's own", id: name.to_owned() })
    }

    /// Removes a copy that holds no work, and what git knows of it.
    fn clear(&self, workspace: &Path, place: &Path) -> Result<(), Error> {
        let work = place.join(WORK);
        let was_there = place.symlink_metadata().is_ok();
        remove_all(&work)?;
        if was_there && let Ok(linked) = Linked::of(workspace) {
            linked.forget(&work)?;
        }
        remove_all(place)
    }
}

impl Isolated {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder to work in.
    pub fn path(&self) -> PathBuf {
        self.place.join(WORK)
    }

    /// Returns the workspace that it was made from.
    pub fn workspace(&self) -> &Path {
        &self.origin.workspace
    }

    /// Returns what its changes are counted from: what it began with, or what it held when it was last merged.
    pub fn base(&self) -> &Snapshot {
        &self.base
    }

    /// Says how it was made.
    pub fn means(&self) -> Means {
        if self.origin.commit.is_some() { Means::Worktree } else { Means::Snapshot }
    }

    /// Takes a snapshot of what it holds now, by the ignore rules that it began with.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub fn now(&self) -> Result<Snapshot, Error> {
        let copy = Root::open(self.path())?;
        let now = self.snapshots.take_by(&copy, &self.base)?;
        // What was linked for it is no work of its own: it is what it was, or no part of a snapshot.
        let is_linked = |path: &RelPath, node: &Node| match node {
            Node::Link { target } => {
                !self.base.entries().get(path).is_some_and(Node::is_kept)
                    && *target == self.origin.workspace.join(path.as_path())
            }
            Node::File { .. } | Node::Folder { .. } => false,
        };
        self.snapshots.without(now, is_linked, &self.base)
    }

    /// Lists what it changed since it began, or since it was last merged, path by path.
    ///
    /// # Errors
    /// As [`now`](Self::now).
    pub fn changed(&self) -> Result<Vec<Differing>, Error> {
        self.snapshots.compare(&self.base, &self.now()?)
    }

    /// The same with diffs.
    ///
    /// # Errors
    /// As [`Snapshots::diff`].
    pub fn diff(&self) -> Result<Vec<PathChange>, Error> {
        self.snapshots.diff(&self.base, &self.now()?)
    }

    /// Brings what it changed into the workspace, path by path: what only the work changed is taken, texts that
    /// both changed are joined line by line. With one conflict nothing is written. Afterwards nothing is changed,
    /// and work may go on.
    ///
    /// After a failure or a kill it can be called again, and goes on where it was.
    ///
    /// # Errors
    /// As [`Snapshots::merge`].
    pub fn merge(&mut self, root: &Root, rules: &WriteRules) -> Result<Merged, Error> {
        let _held = self.hold()?;
        let work = self.now()?;
        let mut conflicts = self.unresolved(&work)?;
        let now = self.snapshots.take_by(root, &self.base)?;
        let base = self.merged_so_far(&now)?;
        let mut plan = self.snapshots.plan(&base, [&now, &work], ["the workspace", "this work"])?;
        conflicts.append(&mut plan.conflicts);
        if !conflicts.is_empty() {
            conflicts.sort_by(|one, other| one.path.cmp(&other.path));
            conflicts.dedup_by(|one, other| one.path == other.path);
            return Ok(Merged::Conflicts(conflicts));
        }
        snapshot::check(rules, &now, &plan.wanted)?;
        let step = self.snapshots.step(&now, plan.wanted);
        if !step.after.entries().is_empty() {
            let id = self.snapshots.keep_part(&step.after)?;
            let place = self.place.join(MERGING);
            let note = format!("{id} {}", work.id());
            snapshot::put_file(&place, note.as_bytes(), snapshot::Durability::Synced)?;
        }
        let mut paths = self.snapshots.go(root, step)?;
        // What a merge had put in place that was broken off came in with it.
        let was = |path: &&RelPath| base.entries().get(*path) != self.base.entries().get(*path);
        paths.extend(base.entries().keys().filter(was).cloned());
        paths.sort();
        paths.dedup();
        self.begin_from(work)?;
        Ok(Merged::Done(paths))
    }

    /// Brings what the workspace changed meanwhile into the work, and returns where both changed the same: such a
    /// text then holds both between marks, what the work removed is back, anything else is left as the work has it.
    /// What holds marks or was left is not merged before it was changed again.
    ///
    /// # Errors
    /// As [`Snapshots::merge`].
    pub fn catch_up(&mut self, root: &Root) -> Result<Vec<Conflict>, Error> {
        let _held = self.hold()?;
        let copy = Root::open(self.path())?;
        let work = self.now()?;
        let now = self.snapshots.take_by(root, &self.base)?;
        let plan =
            self.snapshots.plan(&self.base, [&work, &now], ["this work", "the workspace"])?;
        let (mut unresolved, mut wanted) = (self.left()?, plan.wanted);
        for Conflict { path, why } in &plan.conflicts {
            let (ours, theirs) = (work.entries().get(path), now.entries().get(path));
            match (plan.marked.get(path), ours, theirs) {
                (Some(marked), ..) => {
                    unresolved.insert(path.clone(), marked.clone());
                    wanted.insert(path.clone(), Some(marked.clone()));
                }
                (None, Some(ours), _) => drop(unresolved.insert(path.clone(), ours.clone())),
                // Who removed it did not know what it would be.
                (None, None, Some(theirs)) if *why == Clash::Removed => {
                    wanted.insert(path.clone(), Some(theirs.clone()));
                }
                (None, None, _) => {}
            }
        }
        // Written first: were it lost, a conflict could pass for the work's own.
        let id = self.snapshots.keep_part(&snapshot::part(unresolved))?;
        let place = self.place.join(UNRESOLVED);
        snapshot::put_file(&place, id.to_string().as_bytes(), snapshot::Durability::Synced)?;
        let step = self.snapshots.step(&work, wanted);
        self.snapshots.go(&copy, step)?;
        self.begin_from(now)?;
        Ok(plan.conflicts)
    }

    /// Keeps what it holds now, so that what runs in it next leaves nothing: [`set_back`](Self::set_back) makes it this
    /// again, also by another process.
    ///
    /// # Errors
    /// As [`now`](Self::now).
    pub fn hold_as_it_is(&self) -> Result<(), Error> {
        let id = self.now()?.id().to_string();
        snapshot::put_file(&self.place.join(HELD), id.as_bytes(), snapshot::Durability::Synced)
    }

    /// Makes it what it was when it was last [held](Self::hold_as_it_is), and tells which paths that changed. Once: it does
    /// nothing until it is held again.
    ///
    /// # Errors
    /// As [`Snapshots::restore`]. After a failure it can be called again.
    pub fn set_back(&self) -> Result<Vec<RelPath>, Error> {
        let Some(held) = self.noted(HELD)? else { return Ok(Vec::new()) };
        let copy = Root::open(self.path())?;
        let paths = self.snapshots.go_back(&copy, self.now()?, &held)?;
        match fs::remove_file(self.place.join(HELD)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(&self.name, "end the holding of", e))
            }
            _ => Ok(paths),
        }
    }

    /// Removes it, if it changed nothing that is not merged.
    ///
    /// # Errors
    /// [`Error::Unmerged`] names what is not, and it is left as it is; [`Error::Io`].
    pub fn remove(self) -> Result<(), Error> {
        let paths: Vec<String> =
            self.changed()?.iter().map(|differing| differing.path.to_string()).collect();
        if !paths.is_empty() {
            return Err(Error::Unmerged { name: self.name, paths });
        }
        self.gone().map(drop)
    }

    /// Removes it, whatever it changed, and says what is kept of that: snapshots of what it began with and of what
    /// it came to, which [`Snapshots::merge`] can still bring into the workspace.
    ///
    /// # Errors
    /// As [`now`](Self::now); it is left as it is then.
    pub fn give_up(self) -> Result<Kept, Error> {
        let work = self.now()?;
        let differing = self.snapshots.compare(&self.base, &work)?;
        let paths = differing.into_iter().map(|differing| differing.path).collect();
        let (base, work) = (self.base.id(), work.id());
        let reference = self.gone()?;
        Ok(Kept { base, work, reference, paths })
    }

    /// Removes all of it. What was committed in it keeps a reference, which is returned.
    fn gone(self) -> Result<Option<String>, Error> {
        let mut reference = None;
        let work = self.path();
        let linked = match &self.origin.commit {
            Some(commit) => {
                let linked = Linked::of(&self.origin.workspace)?;
                reference = linked.keep(&work, commit, &self.name)?;
                Some(linked)
            }
            None => None,
        };
        let owner = std::process::id().to_string();
        fs::write(self.place.join(OWNER), owner)
            .and_then(|()| fs::remove_file(self.place.join(ORIGIN)))
            .map_err(|e| Error::io(&self.name, "begin to remove", e))?;
        remove_all(&work)?;
        if let Some(linked) = linked {
            linked.forget(&work)?;
        }
        remove_all(&self.place)?;
        Ok(reference)
    }

    /// Counts changes from `base` on.
    fn begin_from(&mut self, base: Snapshot) -> Result<(), Error> {
        let origin = Origin { base: base.id(), ..self.origin.clone() };
        origin.write(&self.place.join(ORIGIN))?;
        (self.origin, self.base) = (origin, base);
        match fs::remove_file(self.place.join(MERGING)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(&self.name, "end the merge of", e))
            }
            _ => Ok(()),
        }
    }

    /// Returns what changes are counted from: on a path that a merge has put in place which was broken off, what the
    /// work was then.
    fn merged_so_far(&self, now: &Snapshot) -> Result<Snapshot, Error> {
        let note = self.note(MERGING)?.unwrap_or_default();
        let Some((made, work)) = note.split_once(' ') else { return Ok(self.base.clone()) };
        let (made, work) = (self.snapshots.load(made)?, self.snapshots.load(work.trim())?);
        let done =
            made.entries().iter().filter(|(path, node)| now.entries().get(*path) == Some(node));
        let was = done.map(|(path, _)| (path.clone(), work.entries().get(path).cloned()));
        Ok(self.base.with(was))
    }

    /// Returns the files that were left with both sides of a conflict in them.
    fn left(&self) -> Result<BTreeMap<RelPath, Node>, Error> {
        let left = self.noted(UNRESOLVED)?;
        Ok(left.map(|left| left.entries().clone()).unwrap_or_default())
    }

    /// Loads the snapshot that a file beside the copy names.
    fn noted(&self, file: &str) -> Result<Option<Snapshot>, Error> {
        let id = self.note(file)?;
        id.map(|id| self.snapshots.load(id.trim())).transpose()
    }

    /// Reads a file beside the copy.
    fn note(&self, file: &str) -> Result<Option<String>, Error> {
        match fs::read_to_string(self.place.join(file)) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(&self.name, "read the notes on", e)),
        }
    }

    /// Lists the conflicts that are still as they were written down.
    fn unresolved(&self, work: &Snapshot) -> Result<Vec<Conflict>, Error> {
        let left = self.left()?.into_iter();
        let left = left.filter(|(path, node)| work.entries().get(path) == Some(node));
        let why = Clash::Unresolved;
        Ok(left.map(|(path, _)| Conflict { path, why }).collect())
    }

    /// Keeps others from merging the same copy, or another one made for the same workspace.
    fn hold(&self) -> Result<Folders, Error> {
        let all = self.place.parent().unwrap_or(&self.place);
        let written = all.to_string_lossy();
        let opened = fs::File::open(all).map_err(|e| Error::io(&written, "open", e))?;
        let mut held = Folders::default();
        held.hold([(opened.as_fd(), &*written)])?;
        Ok(held)
    }
}

/// Says whether a text can be the name of a folder here, and means no other.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && text.chars().all(fits)
}

/// Says whether the process that a file names still runs.
fn lives(owner: &Path) -> bool {
    let text = fs::read_to_string(owner).unwrap_or_default();
    let process = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
    process.is_some_and(|process| {
        rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
    })
}

/// Removes a folder with all that is in it, closed folders as well; links are not followed.
fn remove_all(path: &Path) -> Result<(), Error> {
    let io = |e| Error::io(&path.to_string_lossy(), "remove", e);
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            fill::open_folders(path);
            fs::remove_dir_all(path).map_err(io)
        }
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
