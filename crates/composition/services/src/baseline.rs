//! What a workspace held when a run and its tasks began, to compare with later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use formwork_protocols::{
    Append, Blob, BlobHash, Body, CallId, Clock, EventBody, NewEvent, Position, Principal, RunId,
    Scrub, Store, TaskId, TaskSpec, canonical,
    check::{CheckKind, CheckSpec},
    event::{FileChange, TOLD_ONE_BY_ONE, WorkspaceSnapshot},
    store::{Selection, TaskRow},
};
use formwork_verify::Baseline;
use formwork_write_safety::{Differing, Node, PathChange, Root, Snapshot, Snapshots, State, Which};

use crate::{
    Error, Formwork,
    alive::{Alive, Working},
    bounds::Own,
    changes::{self, Changes, Found, Ground, Known},
    reach::Reach,
};

/// How many changed paths of one piece of work are read for how many lines are new; to compare more texts
/// would hold up the run.
const COUNTED: usize = 200;
/// How many changed files of one piece of work are told one by one. The snapshots around it tell of all.
const TOLD: usize = TOLD_ONE_BY_ONE as usize;
/// How many events are read at once.
const PAGE: usize = 1_000;

/// How many paths are told of whose last change came after the process had died that worked there: they are left alone, told
/// or not.
const TOLD_LATE: usize = 200;

/// A piece of work that is looked at before and after.
pub(crate) struct Watch {
    work: CallId,
    before: Snapshot,
    reach: Reach,
    working: Working,
}

impl Watch {
    /// Ends it: what was found after it is told.
    pub(crate) fn end(self) {
        self.working.end();
    }
}

/// What a task began with.
pub(crate) struct Began {
    /// The files that its checks hold to what they were.
    pub(crate) checked: Baseline,
    /// All files, where one of its checks compares them.
    snapshot: Option<Snapshot>,
}

impl Began {
    /// Returns all files that it began with, where one of its checks compares them.
    pub(crate) const fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }
}

/// What the tasks of a run began with. It is found out once, before anything of a task has run, and is
/// found again in the log by whoever resumes the run.
pub(crate) struct Baselines {
    root: Arc<Root>,
    snapshots: Arc<Snapshots>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Takes secrets out of the names of files as well.
    scrub: Arc<dyn Scrub>,
    /// Whether the run's agents may change files at all. What programs change is looked for whatever they may.
    writes: bool,
    /// Says until when this process works.
    alive: Alive,
    /// Whether what the run began with is kept.
    kept: tokio::sync::OnceCell<()>,
    /// Whether it is a workspace of a task's own.
    is_apart: bool,
    known: Mutex<HashMap<TaskId, Arc<Began>>>,
    /// The tasks of the run so far. Held while those above one begin, so that nothing beside it works meanwhile.
    tree: tokio::sync::Mutex<Above>,
}

/// What is above each task.
#[derive(Default)]
struct Above {
    /// Up to where the log was read.
    read: Position,
    /// The task above each, and itself where it has no work of its own and compares what is below it.
    tasks: HashMap<TaskId, (Option<TaskId>, Option<Arc<TaskSpec>>)>,
}

impl Baselines {
    /// Takes the workspace of `formwork`, in which the agents of the run write or do not.
    pub(crate) fn new(formwork: &Formwork, writes: bool) -> Self {
        let inner = &formwork.inner;
        Self {
            root: Arc::clone(&inner.root),
            snapshots: Arc::clone(&inner.snapshots),
            store: Arc::clone(&inner.store),
            clock: Arc::clone(&inner.clock),
            scrub: Arc::clone(&inner.scrub) as _,
            writes,
            alive: Alive::new(&inner.state),
            kept: <_>::default(),
            is_apart: false,
            known: Mutex::default(),
            tree: <_>::default(),
        }
    }

    /// Returns the same for a task that works in a workspace of its own.
    pub(crate) fn apart(&self, root: Arc<Root>) -> Self {
        Self {
            root,
            snapshots: Arc::clone(&self.snapshots),
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            scrub: Arc::clone(&self.scrub),
            writes: self.writes,
            alive: self.alive.clone(),
            kept: <_>::default(),
            is_apart: true,
            known: Mutex::default(),
            tree: <_>::default(),
        }
    }

    /// Keeps what the workspace holds before the run does anything, so that it can be gone back to. One whose agents
    /// change nothing keeps it before its first program.
    ///
    /// # Errors
    /// [`Error::Workspace`] when a file cannot be read or kept; [`Error::Store`].
    pub(crate) async fn begin(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        if self.writes { self.keep(run, token).await } else { Ok(()) }
    }

    /// The same, whatever the run's agents may.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn keep(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        self.kept.get_or_try_init(|| self.keep_once(run, token)).await.copied()
    }

    async fn keep_once(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        if recorded(&*self.store, run, None).await?.is_some() {
            return Ok(());
        }
        let snapshot = Some(id(&self.take().await?));
        self.record(
            run,
            None,
            token,
            WorkspaceSnapshot { snapshot, ..WorkspaceSnapshot::default() },
            Vec::new(),
        )
        .await
    }

    /// Finds out what a task begins with, before anything of it has run; and what those around it begin with
    /// that have no work of their own, if it is the first below them.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn enter(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<Arc<Began>, Error> {
        let mut tree = self.tree.lock().await;
        if !tree.tasks.contains_key(&task) {
            self.read_on(run, &mut tree).await?;
        }
        let up = |task: &TaskId| tree.tasks.get(task).and_then(|(above, _)| *above);
        for above in std::iter::successors(up(&task), up).take(tree.tasks.len()) {
            if let Some((_, Some(spec))) = tree.tasks.get(&above) {
                self.of(run, above, spec, token).await?;
            }
        }
        drop(tree);
        self.of(run, task, spec, token).await
    }

    /// Reads which tasks were added to the run since it was last looked at.
    async fn read_on(&self, run: RunId, tree: &mut Above) -> Result<(), Error> {
        let kinds = vec!["task.created".to_owned()];
        let selection = Selection { run: Some(run), task: None, kinds };
        loop {
            let events = self.store.read_on(&mut tree.read, &selection, PAGE).await?;
            let is_last = events.len() < PAGE;
            for event in events {
                if let (Some(task), EventBody::TaskCreated(created)) = (event.task, event.body) {
                    let is_meant = !works(&created.spec) && compares(&created.spec);
                    let spec = is_meant.then_some(created.spec);
                    tree.tasks.insert(task, (created.parent, spec));
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Returns what a task began with that has begun.
    ///
    /// # Errors
    /// As [`Baselines::begin`]; [`Error::Checks`] where nobody looked when it began: what is there now is the
    /// work itself, and nothing to compare it with.
    pub(crate) async fn begun(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<Arc<Began>, Error> {
        if let Some(known) = self.lock().get(&task) {
            return Ok(Arc::clone(known));
        }
        let began = match recorded(&*self.store, run, Some(task)).await? {
            Some(recorded) => self.load(recorded).await?,
            // All that is below it was skipped.
            None if compares(spec) && !self.has_worked(run, task, spec).await? => {
                return self.of(run, task, spec, token).await;
            }
            None if compares(spec) => {
                let reason = format!("no baseline was taken when {} began", spec.name);
                return Err(Error::Checks { reason });
            }
            None => Began { checked: Baseline::default(), snapshot: None },
        };
        let began = Arc::new(began);
        self.lock().insert(task, Arc::clone(&began));
        Ok(began)
    }

    /// Tells whether anything of a task may have run: it did something itself, or something below it did.
    async fn has_worked(&self, run: RunId, task: TaskId, spec: &TaskSpec) -> Result<bool, Error> {
        if works(spec) {
            return Ok(true);
        }
        let rows = self.store.tasks(run).await?;
        let above: HashMap<TaskId, Option<TaskId>> =
            rows.iter().map(|row| (row.task, row.parent)).collect();
        let up = |task: &TaskId| above.get(task).copied().flatten();
        let mut begun = rows.iter().filter(|row| row.attempts > 0);
        // A log that was made by hand may name parents in a circle.
        let above = |row: &TaskRow| {
            std::iter::successors(up(&row.task), up).take(rows.len()).any(|above| above == task)
        };
        Ok(begun.any(above))
    }

    async fn of(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<Arc<Began>, Error> {
        if let Some(known) = self.lock().get(&task) {
            return Ok(Arc::clone(known));
        }
        let began = match recorded(&*self.store, run, Some(task)).await? {
            Some(recorded) => self.load(recorded).await?,
            None => self.find_out(run, task, spec, token).await?,
        };
        let began = Arc::new(began);
        self.lock().insert(task, Arc::clone(&began));
        Ok(began)
    }

    async fn find_out(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<Began, Error> {
        self.begin(run, token).await?;
        let (root, checks) = (Arc::clone(&self.root), spec.postchecks.clone());
        let checked =
            match tokio::task::spawn_blocking(move || Baseline::take(root.path(), &checks)).await {
                Ok(taken) => {
                    taken.map_err(|error| Error::Checks { reason: crate::error::chain(&error) })?
                }
                Err(error) => return Err(panicked(&error)),
            };
        let compares = spec.postchecks.iter().any(compares_all);
        let snapshot = if compares { Some(self.take().await?) } else { None };
        let (mut baseline, mut blobs) = (None, Vec::new());
        if checked != Baseline::default() {
            let text = canonical::to_string(&checked)
                .map_err(|error| Error::Checks { reason: error.to_string() })?;
            let blob = Blob::new(text.as_bytes());
            baseline = Some(blob.hash());
            blobs.push(blob);
        }
        if snapshot.is_some() || baseline.is_some() {
            let snapshot = snapshot.as_ref().map(id);
            let body = WorkspaceSnapshot { snapshot, baseline, ..WorkspaceSnapshot::default() };
            self.record(run, Some(task), token, body, blobs).await?;
        }
        Ok(Began { checked, snapshot })
    }

    async fn load(&self, recorded: WorkspaceSnapshot) -> Result<Began, Error> {
        let snapshot =
            recorded.snapshot.map(|id| self.snapshots.load(&id.to_string())).transpose()?;
        let checked = match recorded.baseline {
            None => Baseline::default(),
            Some(hash) => {
                let bytes = self.store.blob(&hash).await?.unwrap_or_default();
                serde_json::from_slice(&bytes)
                    .map_err(|error| Error::Checks { reason: format!("blob {hash}: {error}") })?
            }
        };
        Ok(Began { checked, snapshot })
    }

    /// Compares the workspace now with what it held when `task` began, as far as that can be its doing. What git ignored
    /// then is left out, and no rule that came later hides anything.
    ///
    /// # Errors
    /// As [`Baselines::begun`].
    pub(crate) async fn changes(
        &self,
        (run, task, token): (RunId, TaskId, Option<u64>),
        spec: &TaskSpec,
        own: Own,
    ) -> Result<Vec<FileChange>, Error> {
        let began = self.begun(run, task, spec, token).await?;
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        let changes = blocking(move || match &began.snapshot {
            None => Ok(Vec::new()),
            Some(before) => {
                let now = snapshots.take_by(&root, before)?;
                snapshots.diff_of(before, &now, &|path| own.holds(path))
            }
        })
        .await?;
        Ok(changes.iter().filter_map(file_change).collect())
    }

    /// Returns a content that [`Baselines::changes`] names.
    ///
    /// # Errors
    /// [`Error::Workspace`] when it is not kept: a file may be too large for that, or may not be read.
    pub(crate) async fn content(&self, hash: &BlobHash) -> Result<Vec<u8>, Error> {
        let (snapshots, hash) = (Arc::clone(&self.snapshots), (*hash.as_bytes()).into());
        blocking(move || snapshots.kept(hash)).await
    }

    /// Tells how the workspace differs from what it held when `task` began, path by path, as far as that can be its doing,
    /// and a hash that is another one once anything in it is.
    ///
    /// # Errors
    /// As [`Baselines::begun`].
    pub(crate) async fn compared(
        &self,
        (run, task, token): (RunId, TaskId, Option<u64>),
        spec: &TaskSpec,
        own: Own,
    ) -> Result<(Vec<PathChange>, BlobHash), Error> {
        let began = self.begun(run, task, spec, token).await?;
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        blocking(move || match &began.snapshot {
            None => Ok((Vec::new(), BlobHash::of(b""))),
            Some(before) => {
                let now = snapshots.take_by(&root, before)?;
                Ok((snapshots.diff_of(before, &now, &|path| own.holds(path))?, id(&now)))
            }
        })
        .await
    }

    /// Looks at the workspace before a piece of work that does not tell itself what it changes, and can write where `reach`
    /// says. Returns what the log is to be told before it begins.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn before(
        &self,
        (run, token): (RunId, Option<u64>),
        work: CallId,
        reach: Reach,
    ) -> Result<(Watch, EventBody, Vec<Blob>), Error> {
        self.keep(run, token).await?;
        let working = self.alive.begin(run);
        let before = self.take().await?;
        let within = reach.blob(&*self.scrub)?;
        let begun = WorkspaceSnapshot {
            within: within.as_ref().map(Blob::hash),
            ..taken_around(&before, work)
        };
        let watch = Watch { work, before, reach, working };
        Ok((watch, EventBody::WorkspaceSnapshot(begun), within.into_iter().collect()))
    }

    /// Looks at it again and tells what is different where the work could write: the files, and the snapshot itself, which
    /// ends it.
    ///
    /// # Errors
    /// As [`Baselines::before`].
    pub(crate) async fn after(&self, watch: &Watch) -> Result<Vec<EventBody>, Error> {
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        let (before, reach, work) = (watch.before.clone(), watch.reach.clone(), watch.work);
        let (files, untold, after) = blocking(move || {
            let after = snapshots.take_since(&root, &before)?;
            let mut differing = match before.id() == after.id() {
                true => Vec::new(),
                false => snapshots.compare(&before, &after)?,
            };
            differing.retain(|it| reach.covers(&it.path));
            let untold = untold(&differing);
            let files: Vec<FileChange> = if differing.len() <= COUNTED {
                let own = snapshots.diff_of(&before, &after, &|path| reach.covers(path))?;
                own.iter().filter_map(file_change).collect()
            } else {
                differing
                    .iter()
                    .filter(|it| is_file([it.before, it.after]))
                    .take(TOLD)
                    .map(|it| changes::told_of(&it.path, (it.before, it.after), None))
                    .collect()
            };
            Ok((files, untold, after))
        })
        .await?;
        let files = files.into_iter().map(|change| {
            self.changed(FileChange { call: Some(work), apart: self.is_apart, ..change })
        });
        let ended = WorkspaceSnapshot { untold, ..taken_around(&after, work) };
        Ok(files.chain([EventBody::WorkspaceSnapshot(ended)]).collect())
    }

    /// Finds out what was left open by a process that died, before anything else of the run is done, and tells of it as of the
    /// work of the tasks that it was done for.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn settle(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        let found = Changes::of(&*self.store, &self.ground(), run).await?;
        let Changes { open, all, found, .. } = found;
        if open.is_empty() {
            return Ok(());
        }
        let mut told = Vec::new();
        for (work, Found { after, own, late, task }) in found {
            let untold = untold(&own);
            let own = own.iter().filter(|it| is_file([it.before, it.after])).take(TOLD);
            told.extend(own.map(|it| {
                let change = changes::told_of(&it.path, (it.before, it.after), Some(work));
                (task, self.changed(FileChange { apart: self.is_apart, ..change }))
            }));
            let late = late.iter().take(TOLD_LATE);
            let late = late
                .map(|it| self.told(changes::told_of(&it.path, (it.before, it.after), Some(work))));
            let late = late.collect();
            let taken = WorkspaceSnapshot { late, untold, ..taken_around(&after, work) };
            told.push((task, EventBody::WorkspaceSnapshot(taken)));
        }
        for asked in open.calls {
            let (call, task) = (asked.call, asked.task);
            // What work left that was open is told by its snapshots.
            let left = all.iter().filter(|change| {
                let is_left = change.at == Position(u64::MAX) && !change.by_work;
                is_left && asked.paths.contains(&change.path.to_string())
            });
            let (late, own): (Vec<_>, Vec<_>) = left.partition(|it| it.known == Known::Late);
            let file = |change| self.told(changes::told(change, Some(call)));
            told.extend(own.into_iter().map(|it| (task, EventBody::FileChanged(file(it)))));
            let late = late.into_iter().map(file).collect();
            let looked =
                WorkspaceSnapshot { around: Some(call), late, ..WorkspaceSnapshot::default() };
            told.push((task, EventBody::WorkspaceSnapshot(looked)));
        }
        self.append_each(run, token, told, Vec::new()).await?;
        self.rest(run);
        Ok(())
    }

    /// Forgets until when a run was worked on, where all that it began has come to an end.
    pub(crate) fn rest(&self, run: RunId) {
        self.alive.forget(run);
    }

    /// Returns what a look at the changes of a run needs.
    pub(crate) fn ground(&self) -> Ground {
        Ground {
            snapshots: Arc::clone(&self.snapshots),
            root: Arc::clone(&self.root),
            alive: self.alive.clone(),
        }
    }

    /// Records what is told of a piece of work.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(crate) async fn append(
        &self,
        run: RunId,
        task: Option<TaskId>,
        token: Option<u64>,
        bodies: Vec<EventBody>,
        blobs: Vec<Blob>,
    ) -> Result<(), Error> {
        let told = bodies.into_iter().map(|body| (task, body)).collect();
        self.append_each(run, token, told, blobs).await
    }

    /// Records what is told of several tasks, in one piece.
    async fn append_each(
        &self,
        run: RunId,
        token: Option<u64>,
        told: Vec<(Option<TaskId>, EventBody)>,
        blobs: Vec<Blob>,
    ) -> Result<(), Error> {
        let principal = Principal::system("services");
        let at = self.clock.now();
        let events = told
            .into_iter()
            .map(|(task, body)| NewEvent {
                task,
                principal: principal.clone(),
                at,
                body,
                idempotency_key: None,
            })
            .collect();
        self.store.append(Append { run, token, events, blobs }).await?;
        Ok(())
    }

    /// Tells of a file, whose name may hold a secret that a program put there.
    fn changed(&self, change: FileChange) -> EventBody {
        EventBody::FileChanged(self.told(change))
    }

    fn told(&self, change: FileChange) -> FileChange {
        let path = self.scrub.scrub_text(&change.path).into_owned();
        FileChange { path, ..change }
    }

    async fn take(&self) -> Result<Snapshot, Error> {
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        blocking(move || snapshots.take(&root, Which::NotIgnored)).await
    }

    async fn record(
        &self,
        run: RunId,
        task: Option<TaskId>,
        token: Option<u64>,
        body: WorkspaceSnapshot,
        blobs: Vec<Blob>,
    ) -> Result<(), Error> {
        self.append(run, task, token, vec![EventBody::WorkspaceSnapshot(body)], blobs).await
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Began>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says whether a path was or is a file or a link.
fn is_file(states: [Option<State>; 2]) -> bool {
    states.into_iter().flatten().any(|state| state.hash.is_some())
}

/// Compares the workspace now with what it held when a run began.
///
/// # Errors
/// [`Error::Workspace`] when a file cannot be read; nothing where the run kept no snapshot.
pub(crate) async fn since(
    store: &dyn Store,
    snapshots: Arc<Snapshots>,
    root: Arc<Root>,
    run: RunId,
) -> Result<Vec<PathChange>, Error> {
    let kept = recorded(store, run, None).await?.and_then(|kept| kept.snapshot);
    let Some(kept) = kept else { return Ok(Vec::new()) };
    blocking(move || {
        let before = snapshots.load(&kept.to_string())?;
        snapshots.diff(&before, &snapshots.take_since(&root, &before)?)
    })
    .await
}

/// Finds in the log what a task, or the run itself, began with.
async fn recorded(
    store: &dyn Store,
    run: RunId,
    task: Option<TaskId>,
) -> Result<Option<WorkspaceSnapshot>, Error> {
    let selection =
        Selection { run: Some(run), task, kinds: vec!["workspace.snapshot".to_owned()] };
    let mut after = Position::default();
    loop {
        let events = store.read(after, &selection, 100).await?;
        let Some(last) = events.last() else { return Ok(None) };
        after = last.position;
        for event in events {
            if event.task == task
                && let EventBody::WorkspaceSnapshot(taken) = event.body
                && taken.around.is_none()
            {
                return Ok(Some(taken));
            }
        }
    }
}

/// Counts the files that are not told one by one.
fn untold(differing: &[Differing]) -> u64 {
    let files = differing.iter().filter(|it| is_file([it.before, it.after])).count();
    u64::try_from(files.saturating_sub(TOLD)).unwrap_or(u64::MAX)
}

fn taken_around(snapshot: &Snapshot, work: CallId) -> WorkspaceSnapshot {
    let (snapshot, around) = (Some(id(snapshot)), Some(work));
    WorkspaceSnapshot { snapshot, around, ..WorkspaceSnapshot::default() }
}

fn id(snapshot: &Snapshot) -> BlobHash {
    BlobHash::from_bytes(*snapshot.id().as_bytes())
}

/// Tells whether a task does something itself, and not by what is below it alone.
const fn works(spec: &TaskSpec) -> bool {
    matches!(
        spec.body,
        Body::Agent { .. } | Body::Command { .. } | Body::Native { .. } | Body::Call(_)
    )
}

/// Tells whether an exit check of a task compares the workspace with what it was.
fn compares(spec: &TaskSpec) -> bool {
    spec.postchecks.iter().any(|check| {
        let some = matches!(check.kind, CheckKind::Unchanged(_) | CheckKind::NoNewDependencies);
        some || formwork_verify::script_of(&check.kind).is_some() || compares_all(check)
    })
}

fn compares_all(check: &CheckSpec) -> bool {
    let by_kind = match &check.kind {
        CheckKind::Diff(_)
        | CheckKind::NewFiles(_)
        | CheckKind::NoRemovedExports
        | CheckKind::NoChangedSignatures
        | CheckKind::Progress
        | CheckKind::Contract(_) => true,
        // One that looks at what git knows asks git.
        CheckKind::Agent(asked) => asked.looks_at.is_none(),
        _ => false,
    };
    by_kind || check.control.is_some()
}

/// Tells of a changed file as the log does; folders are not files.
fn file_change(change: &PathChange) -> Option<FileChange> {
    let hash = |node: &Option<Node>| match node {
        Some(Node::File { hash, .. }) => Some(BlobHash::from_bytes(*hash.as_bytes())),
        Some(Node::Link { target, .. }) => {
            Some(BlobHash::of(std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str())))
        }
        _ => None,
    };
    let (before, after) = (hash(&change.before), hash(&change.after));
    (before.is_some() || after.is_some()).then(|| FileChange {
        path: change.path.to_string(),
        before,
        after,
        added: change.added as u64,
        removed: change.removed as u64,
        before_mode: change.before.as_ref().map(Node::git_mode),
        after_mode: change.after.as_ref().map(Node::git_mode),
        call: None,
        apart: false,
    })
}

/// Carries out work on files on a thread where blocking is fine.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, formwork_write_safety::Error> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(panicked(&error)),
    }
}

fn panicked(error: &tokio::task::JoinError) -> Error {
    Error::Panicked { what: "a comparison of files", reason: error.to_string() }
}
