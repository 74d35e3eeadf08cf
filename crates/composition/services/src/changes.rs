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
    BlobHash, CallId, Event, EventBody, Position, RunId, Store, TaskId, Timestamp, ToolErrorKind,
    event::{Decided, FileChange, WorkspaceSnapshot},
    store::Selection,
};
use formwork_write_safety::{
    Differing, Error as FileError, Hash, RelPath, Root, Snapshot, Snapshots, State,
};

use crate::{
    Error, Formwork,
    alive::{self, Alive},
    baseline::blocking,
    reach::Reach,
};

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
    pub(crate) known: Known,
    /// Whether it is what differs around a piece of work, and is told by the snapshots of that.
    pub(crate) by_work: bool,
}

/// How a change is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Who made it told of it.
    Told,
    /// It is what differs around a program, as far as that could write there. Whoever worked beside it may have made it.
    Around,
    /// It was found where a process had died in the midst of its work, and was made after that: nobody knows whose it is.
    Late,
}

/// What became of one path by all changes of a run together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Net {
    pub(crate) before: Option<State>,
    pub(crate) after: Option<State>,
    /// Whether somebody else changed it between two changes of the run.
    pub(crate) mixed: bool,
    /// Whether some of it may be somebody else's, since it came after who worked on it had died.
    pub(crate) late: bool,
    /// How the last of the changes is known, which made it what the run left.
    pub(crate) known: Known,
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
    File(Position, Box<FileChange>, Known),
    /// A piece of work, and the snapshot after it.
    Work(Position, Begun, BlobHash),
}

/// A piece of work that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Begun {
    at: Position,
    time: Timestamp,
    /// The snapshot before it.
    before: BlobHash,
    /// Where it could write, as a blob of the log.
    within: Option<BlobHash>,
    /// The task that it was done for; none where it was done for the run as a whole.
    task: Option<TaskId>,
}

/// Work that a process was killed in, or given up, before it told what it changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Open {
    /// Programs, as they began.
    pub(crate) work: Vec<Unended>,
    /// Calls of tools, with the paths that they named.
    pub(crate) calls: Vec<Asked>,
}

/// A program whose end is not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unended {
    pub(crate) work: CallId,
    begun: Begun,
}

/// A call whose end is not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) call: CallId,
    pub(crate) paths: Vec<String>,
    /// The task that it was made for.
    pub(crate) task: Option<TaskId>,
    time: Timestamp,
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
    /// What the workspace holds by the work that was left open, with the work.
    pub(crate) found: Vec<(CallId, Found)>,
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
    pub(crate) alive: Alive,
}

impl Ground {
    /// Returns that of the workspace of `formwork`.
    pub(crate) fn of(formwork: &Formwork) -> Self {
        let inner = &formwork.inner;
        Self {
            snapshots: Arc::clone(&inner.snapshots),
            root: Arc::clone(&inner.root),
            alive: Alive::new(&inner.state),
        }
    }
}

/// What is there of a piece of work that was left open.
#[derive(Debug)]
pub(crate) struct Found {
    /// What was there before, but for what is its doing.
    pub(crate) after: Snapshot,
    /// What of it is its doing.
    pub(crate) own: Vec<Differing>,
    /// What differs besides, and came too late to be its doing for sure.
    pub(crate) late: Vec<Differing>,
    /// The task that it was done for.
    pub(crate) task: Option<TaskId>,
}

impl Changes {
    /// Gathers what a run has changed. What was left open is found by looking at the workspace now.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Workspace`] when a snapshot or a file cannot be read.
    pub(crate) async fn of(store: &dyn Store, ground: &Ground, run: RunId) -> Result<Self, Error> {
        let told = Told::read(store, run).await?;
        let mut reaches = Reaches::new();
        for kept in told.within().into_iter().collect::<BTreeSet<_>>() {
            reaches.insert(kept, Reach::load(store, &kept).await?);
        }
        let (ground, until) = (ground.clone(), ground.alive.until(run));
        blocking(move || told.resolve(&ground, (&reaches, until))).await
    }

    /// Joins the changes after a position into one for each path; those that cancel out are left out.
    pub(crate) fn net(&self, after: Position) -> BTreeMap<RelPath, Net> {
        self.joined(|change| change.at > after)
    }

    /// The same of what no commit of the run has yet. What may be somebody else's is marked as late.
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
            let Change { path, before, after, known, .. } = change;
            let (before, after, known) = (*before, *after, *known);
            let late = known == Known::Late;
            nets.entry(path.clone())
                .and_modify(|net| {
                    net.mixed |= late || !is_alike(net.after, before);
                    net.late |= late;
                    (net.after, net.known) = (after, known);
                })
                .or_insert(Net { before, after, mixed: late, late, known });
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
    /// Names the blobs that say where work could write.
    fn within(&self) -> Vec<BlobHash> {
        let ended = self.changes.iter().filter_map(|seen| match seen {
            Seen::Work(_, begun, _) => Some(begun),
            Seen::File(..) => None,
        });
        ended.chain(self.open.work.iter().map(|it| &it.begun)).filter_map(|it| it.within).collect()
    }

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
                reader.take(event);
            }
        }
    }

    /// Finds out what each piece of work has changed: of what it left open, what is not known to be later than `until`, or
    /// than its beginning where nobody has marked that it went on.
    fn resolve(
        self,
        ground: &Ground,
        (reaches, until): (&Reaches, Option<i128>),
    ) -> Result<Changes, FileError> {
        let Ground { snapshots, root, .. } = ground;
        let load = |id: &BlobHash| snapshots.load(&id.to_string());
        // Where the folder of snapshots was emptied, what follows does without what the run began with.
        let began = self.began.as_ref().map(load).transpose().unwrap_or_default();
        let (commits, found) = (self.commits, Vec::new());
        let mut changes = Changes { all: Vec::new(), open: self.open, found, began, commits };
        let reach = |begun: &Begun| begun.within.and_then(|it| reaches.get(&it));
        let covers = |begun: &Begun, path: &RelPath| reach(begun).is_none_or(|it| it.covers(path));
        for seen in &self.changes {
            match seen {
                Seen::File(at, change, known) => changes.all.extend(of_file(*at, change, *known)),
                Seen::Work(at, begun, after) if begun.before != *after => {
                    let mut found = snapshots.compare(&load(&begun.before)?, &load(after)?)?;
                    found.retain(|it| covers(begun, &it.path));
                    changes.all.extend(of_work(*at, found, Known::Around));
                }
                Seen::Work(..) => {}
            }
        }
        let at = Position(u64::MAX);
        // What two pieces of work that went on beside each other may both have made is one change.
        let mut seen = BTreeSet::new();
        for Unended { work, begun } in &changes.open.work {
            let before = load(&begun.before)?;
            let now = snapshots.take_since(root, &before)?;
            let mut differing = snapshots.compare(&before, &now)?;
            differing.retain(|it| covers(begun, &it.path) && seen.insert(it.path.clone()));
            let bound = until.unwrap_or(alive::shortly_after(begun.time));
            let (late, own): (Vec<_>, Vec<_>) =
                differing.into_iter().partition(|it| changed_at(root, &it.path) > bound);
            let after = snapshots.keep_changes(&before, &now, own.iter().map(|it| &it.path))?;
            changes.all.extend(of_work(at, own.clone(), Known::Around));
            changes.all.extend(of_work(at, late.clone(), Known::Late));
            changes.found.push((*work, Found { after, own, late, task: begun.task }));
        }
        let mut found = Vec::new();
        let nets = changes.net(Position::default());
        let mut named = BTreeSet::new();
        for (asked, path) in
            changes.open.calls.iter().flat_map(|it| it.paths.iter().map(move |path| (it, path)))
        {
            let Ok(path) = root.rel(path) else { continue };
            if !named.insert(path.clone()) {
                continue;
            }
            let before = match (nets.get(&path), &changes.began) {
                (Some(net), _) => net.after,
                (None, Some(began)) => snapshots.of_snapshot(began, &path)?,
                (None, None) => continue,
            };
            let after = snapshots.state(root, &path)?;
            if !is_alike(before, after) {
                // Work alone is marked as going on.
                let bound = alive::shortly_after(asked.time).max(until.unwrap_or(i128::MIN));
                let is_late = changed_at(root, &path) > bound;
                let known = if is_late { Known::Late } else { Known::Told };
                let by_work = false;
                found.push(Change { at, path, before, after, known, by_work });
            }
        }
        changes.all.extend(found);
        Ok(changes)
    }
}

/// Where work could write, by the blobs that say so.
type Reaches = HashMap<BlobHash, Reach>;

/// Returns when what is at a path was last changed, in nanoseconds since 1970; where nothing is there any more, when its
/// folder was.
fn changed_at(root: &Root, path: &RelPath) -> i128 {
    let mut places = std::iter::successors(Some(path.clone()), RelPath::parent);
    let found = places.find_map(|path| root.stat_link(&path).ok());
    found.map_or(i128::MIN, |found| found.changed)
}

/// Reads events in their order.
#[derive(Default)]
struct Reader {
    told: Told,
    /// Work that was begun.
    begun: HashMap<CallId, Begun>,
    /// Work that is told by its snapshots, whatever files are told of besides.
    by_snapshots: BTreeSet<CallId>,
    calls: BTreeMap<CallId, Asked>,
    /// The tasks that work in a workspace of their own, and those below them. What they change there is no change of
    /// this one before it is merged, which is told of the run.
    apart: BTreeSet<TaskId>,
}

impl Reader {
    fn take(&mut self, event: Event) {
        let Event { position: at, task, at: time, body, .. } = event;
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
            EventBody::WorkspaceSnapshot(taken) => {
                let WorkspaceSnapshot { snapshot, around, within, late, .. } = taken;
                match (around, snapshot) {
                    (None, Some(id)) if of_run => drop(self.told.began.get_or_insert(id)),
                    (None, _) => {}
                    (Some(work), Some(id)) => match self.begun.remove(&work) {
                        Some(begun) => self.told.changes.push(Seen::Work(at, begun, id)),
                        None => {
                            self.by_snapshots.insert(work);
                            let begun = Begun { at, time, before: id, within, task };
                            self.begun.insert(work, begun);
                        }
                    },
                    // Somebody has looked what an open call had changed.
                    (Some(call), None) => drop(self.calls.remove(&call)),
                }
                let late = late.into_iter().map(|it| Seen::File(at, Box::new(it), Known::Late));
                self.told.changes.extend(late);
            }
            EventBody::FileChanged(change)
                if !change.call.is_some_and(|call| self.by_snapshots.contains(&call)) =>
            {
                self.told.changes.push(Seen::File(at, Box::new(change), Known::Told));
            }
            EventBody::ToolRequested(made)
                if made.decision == Decided::Allowed && !made.paths.is_empty() =>
            {
                let (call, paths) = (made.call, made.paths);
                self.calls.insert(call, Asked { call, paths, task, time });
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
        let open = self.begun.into_iter().map(|(work, begun)| Unended { work, begun });
        self.told.open.work = open.collect();
        self.told.open.work.sort_by_key(|it| it.begun.at);
        self.told.open.calls = self.calls.into_values().collect();
        self.told
    }
}

fn of_file(at: Position, change: &FileChange, known: Known) -> Option<Change> {
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
        known,
        by_work: false,
    })
}

fn of_work(at: Position, found: Vec<Differing>, known: Known) -> impl Iterator<Item = Change> {
    let change = move |Differing { path, before, after }| {
        let by_work = true;
        Change { at, path, before, after, known, by_work }
    };
    found.into_iter().map(change)
}

/// Tells of a change as the log does.
pub(crate) fn told(change: &Change, call: Option<CallId>) -> FileChange {
    told_of(&change.path, (change.before, change.after), call)
}

/// The same of what became of one path.
pub(crate) fn told_of(
    path: &RelPath,
    (before, after): (Option<State>, Option<State>),
    call: Option<CallId>,
) -> FileChange {
    let hash = |state: Option<State>| {
        state.and_then(|state| state.hash).map(|hash| BlobHash::from_bytes(*hash.as_bytes()))
    };
    FileChange {
        path: path.to_string(),
        before: hash(before),
        after: hash(after),
        added: 0,
        removed: 0,
        before_mode: before.map(|state| state.mode),
        after_mode: after.map(|state| state.mode),
        call,
        apart: false,
    }
}

#[cfg(test)]
mod tests;
