//! What a workspace held when a run and its tasks began, to compare with later.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use formwork_protocols::{
    Append, Blob, BlobHash, Clock, EventBody, NewEvent, Position, Principal, RunId, Store, TaskId,
    TaskSpec, canonical,
    check::{CheckKind, CheckSpec},
    event::{FileChange, WorkspaceSnapshot},
    store::Selection,
};
use formwork_verify::Baseline;
use formwork_write_safety::{Node, PathChange, Root, Snapshot, Snapshots, Which};

use crate::Error;

/// What a task began with.
pub(crate) struct Began {
    /// The files that its checks hold to what they were.
    pub(crate) checked: Baseline,
    /// All files, where one of its checks compares them.
    snapshot: Option<Snapshot>,
}

/// What the tasks of a run began with. It is found out once, before anything of a task has run, and is
/// found again in the log by whoever resumes the run.
pub(crate) struct Baselines {
    root: Arc<Root>,
    snapshots: Arc<Snapshots>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Whether the run may change files at all.
    writes: bool,
    known: Mutex<HashMap<TaskId, Arc<Began>>>,
}

impl Baselines {
    pub(crate) fn new(
        root: Arc<Root>,
        snapshots: Arc<Snapshots>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        writes: bool,
    ) -> Self {
        Self { root, snapshots, store, clock, writes, known: Mutex::default() }
    }

    /// Keeps what the workspace holds before the run does anything, so that it can be gone back to.
    ///
    /// # Errors
    /// [`Error::Workspace`] when a file cannot be read or kept; [`Error::Store`].
    pub(crate) async fn begin(&self, run: RunId, token: Option<u64>) -> Result<(), Error> {
        if !self.writes || recorded(&*self.store, run, None).await?.is_some() {
            return Ok(());
        }
        let snapshot = Some(id(&self.take().await?));
        self.record(run, None, token, WorkspaceSnapshot { snapshot, baseline: None }, Vec::new())
            .await
    }

    /// Returns what a task began with, which is what is there now if nothing of it has run yet.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn of(
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
            let body = WorkspaceSnapshot { snapshot: snapshot.as_ref().map(id), baseline };
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

    /// Compares the workspace now with what it held when `task` began.
    ///
    /// # Errors
    /// As [`Baselines::begin`].
    pub(crate) async fn changes(
        &self,
        run: RunId,
        task: TaskId,
        spec: &TaskSpec,
        token: Option<u64>,
    ) -> Result<Vec<FileChange>, Error> {
        let began = self.of(run, task, spec, token).await?;
        let (snapshots, root) = (Arc::clone(&self.snapshots), Arc::clone(&self.root));
        let changes = blocking(move || match &began.snapshot {
            None => Ok(Vec::new()),
            Some(before) => snapshots.diff(before, &snapshots.take(&root, Which::NotIgnored)?),
        })
        .await?;
        Ok(changes.iter().filter_map(file_change).collect())
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
        let event = NewEvent {
            task,
            principal: Principal::system("services"),
            at: self.clock.now(),
            body: EventBody::WorkspaceSnapshot(body),
            idempotency_key: None,
        };
        self.store.append(Append { run, token, events: vec![event], blobs }).await?;
        Ok(())
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
        snapshots.diff(&before, &snapshots.take(&root, Which::NotIgnored)?)
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
            {
                return Ok(Some(taken));
            }
        }
    }
}

fn id(snapshot: &Snapshot) -> BlobHash {
    BlobHash::from_bytes(*snapshot.id().as_bytes())
}

fn compares_all(check: &CheckSpec) -> bool {
    matches!(check.kind, CheckKind::Diff(_))
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
        call: None,
    })
}

/// Carries out work on files on a thread where blocking is fine.
async fn blocking<T, F>(work: F) -> Result<T, Error>
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
