//! What a run has changed in its workspace, path by path, as the log tells it.
//!
//! Tools tell what they change. What programs change is found by comparing the workspace before and
//! after them, and both are in the log before anything is done with it. So a run's own changes are known
//! apart from those of anybody else, also where the process was killed in the midst of one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use formwork_protocols::{
    BlobHash, CallId, EventBody, Position, RunId, Store, TaskId, ToolErrorKind,
    event::{Decided, FileChange},
    store::Selection,
};
use formwork_write_safety::{Differing, Hash, RelPath, Root, Snapshot, Snapshots, State};

use crate::{Error, baseline::blocking};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// One change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The event that tells it.
    pub(crate) at: Position,
    pub(crate) path: RelPath,
    pub(crate) before: Option<State>,
    pub(crate) after: Option<State>,
}

/// What became of one path by all changes of a run together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Net {
    pub(crate) before: Option<State>,
    pub(crate) after: Option<State>,
    /// Whether somebody else changed it between two changes of the run.
    pub(crate) mixed: bool,
}

/// What the log tells of a run's changes.
#[derive(Debug, Default)]
struct Told {
    changes: Vec<Seen>,
    commits: Vec<Committed>,
    /// What the run began with.
    began: Option<BlobHash>,
    /// Pieces of work that were begun and whose end is not told.
    open: Open,
}

#[derive(Debug)]
enum Seen {
    File(Position, Box<FileChange>),
    /// A piece of work, between the snapshots before and after it.
    Work(Position, BlobHash, BlobHash),
}

/// Work that a process was killed in, or given up, before it told what it changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Open {
    /// Programs, with the snapshot before each.
    pub(crate) work: Vec<(Whose, BlobHash)>,
    /// Calls of tools, with the paths that they named.
    pub(crate) calls: Vec<(Whose, Vec<String>)>,
}

/// A piece of work, and the task that it was done for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) call: CallId,
    /// Nothing where it was done for the run as a whole.
    pub(crate) task: Option<TaskId>,
}

impl Open {
    pub(crate) fn is_empty(&self) -> bool {
        self.work.is_empty() && self.calls.is_empty()
    }
}

/// The changes of a run, in order.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) all: Vec<Change>,
    /// What was left open, and is among the changes as far as it left traces.
    pub(crate) open: Open,
    /// What the workspace held when the run began, where that was kept.
    pub(crate) began: Option<Snapshot>,
    /// What was committed, in order.
    commits: Vec<Committed>,
}

/// A commit of a run.
#[derive(Debug)]
struct Committed {
    at: Position,
    commit: String,
    paths: Vec<String>,
}

/// The folder of contents and the workspace, as a comparison needs them.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) root: Arc<Root>,
}

impl Changes {
    /// Gathers what a run has changed. What was left open is found by looking at the workspace now.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Workspace`] when a snapshot or a file cannot be read.
    pub(crate) async fn of(store: &dyn Store, ground: &Ground, run: RunId) -> Result<Self, Error> {
        let told = Told::read(store, run).await?;
        let ground = ground.clone();
        blocking(move || told.resolve(&ground)).await
    }

    /// Joins the changes after a position into one for each path; those that cancel out are left out.
    pub(crate) fn net(&self, after: Position) -> BTreeMap<RelPath, Net> {
        self.joined(|change| change.at > after)
    }

    /// The same of what no commit of the run has yet.
    pub(crate) fn uncommitted(&self) -> BTreeMap<RelPath, Net> {
        let commits = self.commits.iter();
        let committed: HashMap<&str, Position> = commits
            .flat_map(|made| made.paths.iter().map(|path| (path.as_str(), made.at)))
            .collect();
        self.joined(|change| {
            let path = change.path.to_string();
            committed.get(path.as_str()).is_none_or(|at| change.at > *at)
        })
    }

    /// Lists the commits that were made after a position, in order.
    pub(crate) fn commits(&self, after: Position) -> Vec<String> {
        let later = self.commits.iter().filter(|made| made.at > after);
        later.map(|made| made.commit.clone()).collect()
    }

    fn joined(&self, counts: impl Fn(&Change) -> bool) -> BTreeMap<RelPath, Net> {
        let mut nets: BTreeMap<RelPath, Net> = BTreeMap::new();
        for change in self.all.iter().filter(|change| counts(change)) {
            let Change { path, before, after, .. } = change;
            nets.entry(path.clone())
                .and_modify(|net| {
                    net.mixed |= !is_alike(net.after, *before);
                    net.after = *after;
                })
                .or_insert(Net { before: *before, after: *after, mixed: false });
        }
        nets.retain(|_, net| net.before != net.after);
        nets
    }

    /// Tells whether a folder was there when the run began.
    pub(crate) fn had_folder(&self, path: &RelPath) -> bool {
        self.began.as_ref().is_none_or(|began| began.entries().contains_key(path))
    }
}

/// Says whether a path is the same in both, but for bits that git does not know.
pub(crate) fn is_alike(one: Option<State>, other: Option<State>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.is_alike(&other),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl Told {
    async fn read(store: &dyn Store, run: RunId) -> Result<Self, Error> {
        let kinds = [
            "task.created",
            "file.changed",
            "workspace.snapshot",
            "tool.requested",
            "tool.completed",
            "tool.failed",
            "commit.made",
        ];
        let kinds = kinds.map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: None, kinds };
        let mut reader = Reader::default();
        let mut after = Position::default();
        loop {
            let events = store.read(after, &selection, PAGE).await?;
            let Some(last) = events.last() else { return Ok(reader.finish()) };
            after = last.position;
            for event in events {
                reader.take(event.position, event.task, event.body);
            }
        }
    }

    /// Finds out what each piece of work has changed.
    fn resolve(self, ground: &Ground) -> Result<Changes, formwork_write_safety::Error> {
        let Ground { snapshots, root } = ground;
        let load = |id: &BlobHash| snapshots.load(&id.to_string());
        // Where the folder of snapshots was emptied, what follows does without what the run began with.
        let began = self.began.as_ref().map(load).transpose().unwrap_or_default();
        let commits = self.commits;
        let mut changes = Changes { all: Vec::new(), open: self.open, began, commits };
        for seen in &self.changes {
            match seen {
                Seen::File(at, change) => changes.all.extend(of_file(*at, change)),
                Seen::Work(at, before, after) if before != after => {
                    let found = snapshots.compare(&load(before)?, &load(after)?)?;
                    changes.all.extend(of_work(*at, found));
                }
                Seen::Work(..) => {}
            }
        }
        let at = Position(u64::MAX);
        for (_, before) in &changes.open.work {
            let before = load(before)?;
            let now = snapshots.take_since(root, &before)?;
            changes.all.extend(of_work(at, snapshots.compare(&before, &now)?));
        }
        let named: BTreeSet<&String> =
            changes.open.calls.iter().flat_map(|(_, paths)| paths).collect();
        let nets = changes.net(Position::default());
        let mut found = Vec::new();
        for path in named {
            let Ok(path) = root.rel(path) else { continue };
            let before = match (nets.get(&path), &changes.began) {
                (Some(net), _) => net.after,
                (None, Some(began)) => snapshots.of_snapshot(began, &path)?,
                (None, None) => continue,
            };
            let after = snapshots.state(root, &path)?;
            if !is_alike(before, after) {
                found.push(Change { at, path, before, after });
            }
        }
        changes.all.extend(found);
        Ok(changes)
    }
}

/// Reads events in their order.
#[derive(Default)]
struct Reader {
    told: Told,
    /// Work that was begun, with the snapshot before it.
    begun: HashMap<CallId, (Option<TaskId>, BlobHash)>,
    /// Work that is told by its snapshots, whatever files are told of besides.
    by_snapshots: BTreeSet<CallId>,
    calls: BTreeMap<CallId, (Option<TaskId>, Vec<String>)>,
    /// The tasks that work in a workspace of their own, and those below them. What they change there is no change of
    /// this one before it is merged, which is told of the run.
    apart: BTreeSet<TaskId>,
}

impl Reader {
    fn take(&mut self, at: Position, task: Option<TaskId>, body: EventBody) {
        if task.is_some_and(|task| self.apart.contains(&task)) {
            return;
        }
        let of_run = task.is_none();
        match body {
            EventBody::TaskCreated(created) => {
                let is_below = created.parent.is_some_and(|parent| self.apart.contains(&parent));
                if is_below || !created.spec.isolation.is_none() {
                    self.apart.extend(task);
                }
            }
            EventBody::WorkspaceSnapshot(taken) => match (taken.around, taken.snapshot) {
                (None, Some(id)) if of_run => drop(self.told.began.get_or_insert(id)),
                (None, _) => {}
                (Some(work), Some(id)) => match self.begun.remove(&work) {
                    Some((_, before)) => self.told.changes.push(Seen::Work(at, before, id)),
                    None => {
                        self.by_snapshots.insert(work);
                        self.begun.insert(work, (task, id));
                    }
                },
                // Somebody has looked what an open call had changed.
                (Some(call), None) => drop(self.calls.remove(&call)),
            },
            EventBody::FileChanged(change)
                if !change.call.is_some_and(|call| self.by_snapshots.contains(&call)) =>
            {
                self.told.changes.push(Seen::File(at, Box::new(change)));
            }
            EventBody::ToolRequested(made)
                if made.decision == Decided::Allowed && !made.paths.is_empty() =>
            {
                self.calls.insert(made.call, (task, made.paths));
            }
            EventBody::CommitMade(made) => {
                let (commit, paths) = (made.commit, made.paths);
                self.told.commits.push(Committed { at, commit, paths });
            }
            EventBody::ToolCompleted(ended) => drop(self.calls.remove(&ended.call)),
            EventBody::ToolFailed(failed) if failed.error != ToolErrorKind::OutcomeUnknown => {
                self.calls.remove(&failed.call);
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Told {
        let begun = self.begun.into_iter();
        self.told.open.work =
            begun.map(|(call, (task, before))| (Whose { call, task }, before)).collect();
        let calls = self.calls.into_iter();
        self.told.open.calls =
            calls.map(|(call, (task, paths))| (Whose { call, task }, paths)).collect();
        self.told
    }
}

fn of_file(at: Position, change: &FileChange) -> Option<Change> {
    let path = RelPath::parse(Path::new(&change.path)).ok()?;
    // A log of before told no modes; a file was the only thing it told of.
    let state = |hash: Option<BlobHash>, mode: Option<u32>| match (hash, mode) {
        (None, None) => None,
        (hash, mode) => {
            let hash = hash.map(|hash| Hash::from_bytes(*hash.as_bytes()));
            Some(State { hash, mode: mode.unwrap_or(0o100_644) })
        }
    };
    Some(Change {
        at,
        path,
        before: state(change.before, change.before_mode),
        after: state(change.after, change.after_mode),
    })
}

pub(crate) fn of_work(at: Position, found: Vec<Differing>) -> impl Iterator<Item = Change> {
    let change = move |Differing { path, before, after }| Change { at, path, before, after };
    found.into_iter().map(change)
}

/// Tells of a change as the log does.
pub(crate) fn told(change: &Change, call: Option<CallId>) -> FileChange {
    let hash = |state: Option<State>| {
        state.and_then(|state| state.hash).map(|hash| BlobHash::from_bytes(*hash.as_bytes()))
    };
    FileChange {
        path: change.path.to_string(),
        before: hash(change.before),
        after: hash(change.after),
        added: 0,
        removed: 0,
        before_mode: change.before.map(|state| state.mode),
        after_mode: change.after.map(|state| state.mode),
        call,
        apart: false,
    }
}

#[cfg(test)]
mod tests;
