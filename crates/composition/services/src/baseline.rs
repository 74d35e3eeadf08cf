//! What a workspace held when a run and its tasks began, to compare with later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use formwork_protocols::{
    Append, Blob, BlobHash, Body, CallId, Clock, EventBody, NewEvent, Position, Principal, RunId,
    Scrub, Store, TaskId, TaskSpec, canonical,
    check::{CheckKind, CheckSpec},
    event::{FileChange, WorkspaceSnapshot},
    store::{Selection, TaskRow},
};
use formwork_verify::Baseline;
use formwork_write_safety::{Node, PathChange, Root, Snapshot, Snapshots, Which};

use crate::{
    Error,
    changes::{self, Change, Changes, Ground, Whose},
};

/// How many changed paths of one piece of work are read for how many lines are new; to compare more texts
/// would hold up the run.
const COUNTED: usize = 200;
/// How many changed files of one piece of work are told one by one. The snapshots around it tell of all.
const TOLD: usize = 1_000;
/// How many events are read at once.
const PAGE: usize = 1_000;

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
    pub(crate) fn new(
        root: Arc<Root>,
        snapshots: Arc<Snapshots>,
        store: Arc<dyn Store>,
        (clock, scrub): (Arc<dyn Clock>, Arc<dyn Scrub>),
        writes: bool,
    ) -> Self {
        Self {
            root,
            snapshots,
            store,
            clock,
            scrub,
            writes,
            kept: <_>::default(),
            is_apart: false,
            known: Mutex::default(),
            tree: <_>::default(),
        }
    }

    /// Returns the same for a task that works in a workspace of its own.
    pub(crate) fn apart(&self, root: Arc<Root>) -> Self {
        let (snapshots, store) = (Arc::clone(&self.snapshots), Arc::clone(&self.store));
        let seams = (Arc::clone(&self.clock), Arc::clone(&self.scrub));
        let own = Self::new(root, snapshots, store, seams, self.writes);
        Self { is_apart: true, ..own }
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
            WorkspaceSnapshot { snapshot, baseline: None, around: None },
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
            let body =
                WorkspaceSnapshot { snapshot: snapshot.as_ref().map(id), baseline, around: None };
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

    /// Compares the workspace now with what it held when `task` began. What git ignored then is left out, and
    /// no rule that came later hides anything.
    ///
    /// # Errors
    /// As [`Baselines::begun`].
    pub(crate) async fn changes(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<Vec<FileChange>, Error> {
        let began = self.begun(run, task, spec, token).await?;
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        let changes = blocking(move || match &began.snapshot {
            None => Ok(Vec::new()),
            Some(before) => snapshots.diff(before, &snapshots.take_by(&root, before)?),
        })
        .await?;
        Ok(changes.iter().filter_map(file_change).collect())
    }

    /// Tells how the workspace differs from what it held when `task` began, path by path, and a hash that is another
    /// one once anything in it is.
    ///
    /// # Errors
    /// As [`Baselines::begun`].
    pub(crate) async fn compared(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<(Vec<PathChange>, BlobHash), Error> {
        let began = self.begun(run, task, spec, token).await?;
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        blocking(move || match &began.snapshot {
            None => Ok((Vec::new(), BlobHash::of(b""))),
            Some(before) => {
                let now = snapshots.take_by(&root, before)?;
                Ok((snapshots.diff(before, &now)?, id(&now)))
            }
        })
        .await
    }

    /// Looks at the workspace before a piece of work that does not tell itself what it changes.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn before(&self, run: RunId, token: Option<u64>) -> Result<Snapshot, Error> {
        self.keep(run, token).await?;
        self.take().await
    }

    /// Looks at it again and tells what is different: the files, and the snapshot itself, which ends the
    /// piece of work.
    ///
    /// # Errors
    /// As [`Baselines::before`].
    pub(crate) async fn after(
        &self,
        before: Snapshot,
        work: CallId,
    ) -> Result<Vec<EventBody>, Error> {
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        let (files, after) = blocking(move || {
            let after = snapshots.take_since(&root, &before)?;
            let differing = match before.id() == after.id() {
                true => Vec::new(),
                false => snapshots.compare(&before, &after)?,
            };
            let files: Vec<FileChange> = if differing.len() <= COUNTED {
                snapshots.diff(&before, &after)?.iter().filter_map(file_change).collect()
            } else {
                let is_file = |change: &Change| {
                    let mut states = [change.before, change.after].into_iter().flatten();
                    states.any(|state| state.hash.is_some())
                };
                changes::of_work(Position::default(), differing)
                    .filter(is_file)
                    .take(TOLD)
                    .map(|change| changes::told(&change, None))
                    .collect()
            };
            Ok((files, after))
        })
        .await?;
        let files = files.into_iter().map(|change| {
            self.changed(FileChange { call: Some(work), apart: self.is_apart, ..change })
        });
        Ok(files.chain([around(&after, work)]).collect())
    }

    /// Finds out what was left open by a process that died, before anything else of the run is done, and tells of it as of the
    /// work of the tasks that it was done for.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn settle(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        let ground =
            Ground { snapshots: Arc::clone(&self.snapshots), root: Arc::clone(&self.root) };
        let found = Changes::of(&*self.store, &ground, run).await?;
        let open = found.open;
        if open.is_empty() {
            return Ok(());
        }
        let mut told = Vec::new();
        for (Whose { call, task }, before) in open.work {
            let snapshots = Arc::clone(&self.snapshots);
            let before = blocking(move || snapshots.load(&before.to_string())).await?;
            told.extend(self.after(before, call).await?.into_iter().map(|body| (task, body)));
        }
        for (Whose { call, task }, paths) in open.calls {
            // Those of work that was open are told by its snapshots.
            let left = found.all.iter().filter(|change| change.at == Position(u64::MAX));
            let left = left.filter(|change| paths.contains(&change.path.to_string()));
            told.extend(left.map(|change| (task, self.changed(changes::told(change, Some(call))))));
            let looked = WorkspaceSnapshot { snapshot: None, baseline: None, around: Some(call) };
            told.push((task, EventBody::WorkspaceSnapshot(looked)));
        }
        self.append_each(run, token, told, Vec::new()).await
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
        let path = self.scrub.scrub_text(&change.path).into_owned();
        EventBody::FileChanged(FileChange { path, ..change })
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

/// Says what was there before or after a piece of work.
pub(crate) fn around(snapshot: &Snapshot, work: CallId) -> EventBody {
    let (snapshot, around) = (Some(id(snapshot)), Some(work));
    EventBody::WorkspaceSnapshot(WorkspaceSnapshot { snapshot, baseline: None, around })
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
