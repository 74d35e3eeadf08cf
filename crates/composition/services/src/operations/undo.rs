//! `runs.undo`: takes back what a run has changed, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, Clock, EventBody, NewEvent, Position, Rng as _, RunId, Span, Store, StoreError,
    SystemRng,
    event::{FileChange, RunUndone},
    store::Lease,
};
use formwork_write_safety::{
    Kind, Reads, RelPath, Removal, Snapshots, State, Trash, Workspace, WriteRules, diff,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    baseline::{Baselines, blocking},
    capability::{Caller, Effect, Operation, Scope},
    changes::{self, Change, Changes, Ground, Known, Net, is_alike},
    operations::runs::Point,
    presence::{self, Presence},
};

/// How long a run is held while it is taken back. It is given back when that is done.
const HELD: Span = Span::from_secs(60);

/// Who puts into the trash what is taken back, in the place of a task.
pub(crate) const TAKEN_BACK: &str = "undo";

/// Why a path stays what it is.
const TOO_LARGE: &str = "what is or was larger than 256 MiB, or could not be read, is not kept, and so cannot be undone";

/// What is taken back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoParams {
    /// The run.
    pub run: RunId,
    /// Only what came after this event; all of the run where absent.
    #[serde(default)]
    pub to: Option<Point>,
    /// Take back also what somebody changed since, whose changes are lost by it.
    #[serde(default)]
    pub force: bool,
    /// Only show what it would do.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undone {
    /// The run.
    pub run: RunId,
    /// The paths that are what they were, or would be.
    pub paths: Vec<String>,
    /// The change that this makes, as a unified diff.
    pub diff: String,
    /// Paths that could not be brought back, each with the reason.
    pub left: Vec<Left>,
    /// The commits that the run made of it, in order. They stay: git's history is nobody's to take back but a person's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// What was there of paths that are known from around a program alone, and so may be somebody else's: it is in the trash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trashed: Vec<InTrash>,
}

/// What was at a path, and is in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct InTrash {
    pub path: String,
    /// The entry's id; empty where it only would be there.
    pub id: String,
}

/// A path that could not be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Left {
    pub path: String,
    pub reason: String,
}

/// `runs.undo`
pub struct Undo;

#[async_trait]
impl Operation for Undo {
    const NAME: &'static str = "runs.undo";
    const DOC: &'static str =
        "Takes back what a run has changed in its workspace, and nothing else.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = UndoParams;
    type Output = Undone;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: UndoParams,
    ) -> Result<Undone, Error> {
        let UndoParams { run, to, force, dry_run } = params;
        let row = super::runs::named(&*formwork.inner.store, run).await?;
        super::runs::own(formwork, run, "taken back").await?;
        if Path::new(&row.workspace) != formwork.workspace() {
            return Err(Error::elsewhere(run, row.workspace));
        }
        let to = match to {
            Some(point) => point.in_log(&*formwork.inner.store, (run, "taken back")).await?,
            None => Position::default(),
        };
        if dry_run {
            // Nothing is written for it, not even that somebody looks.
            super::runs::at_rest(formwork, run).await?;
            let (by, how) = ((run, None), (force, dry_run));
            return undo(formwork, caller, by, to, how).await;
        }
        // Whoever works on it would go on changing what is being taken back.
        let held = Held::acquire(&*formwork.inner.store, &formwork.inner.state, run).await?;
        let by = (run, Some(held.token()));
        let undone = undo(formwork, caller, by, to, (force, dry_run)).await;
        held.give_back(&*formwork.inner.store).await?;
        undone
    }
}

/// A run that is owned for a moment. Whoever dies over it, or gives it up, is known to be gone.
pub(crate) struct Held {
    lease: Lease,
    present: Option<Presence>,
}

impl Held {
    /// Owns a run for a moment, if nobody works on it.
    ///
    /// # Errors
    /// [`Error::Store`] where somebody does; [`Error::State`].
    pub(crate) async fn acquire(
        store: &dyn Store,
        state: &Path,
        run: RunId,
    ) -> Result<Self, Error> {
        let owner = format!("moment-{}-{:016x}", std::process::id(), SystemRng.next_u64());
        let present = Presence::of(&owner, state)?;
        let acquired = match store.acquire(run, &owner, HELD).await {
            Err(StoreError::NotOwner { owner: before, .. })
                if presence::is_gone(&before, state) =>
            {
                store.take_over(run, &before, &owner, HELD).await
            }
            acquired => acquired,
        };
        Ok(Self { lease: acquired?, present: Some(present) })
    }

    /// Returns what its writes are checked by.
    pub(crate) const fn token(&self) -> u64 {
        self.lease.token
    }

    /// Gives it back.
    ///
    /// # Errors
    /// [`Error::Store`]; whoever wants it then is told that its owner is gone.
    pub(crate) async fn give_back(mut self, store: &dyn Store) -> Result<(), Error> {
        store.release(&self.lease).await?;
        drop(self.present.take());
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(present) = self.present.take() {
            present.end_without_giving_back();
        }
    }
}

/// What is to be done to the workspace.
#[derive(Default)]
struct Plan {
    /// Paths that are to be something, or nothing.
    wanted: BTreeMap<RelPath, Option<State>>,
    /// Folders and large files that were deleted, and come back whole from the trash.
    folders: Vec<(RelPath, String)>,
    /// What is made of what, path by path, to be shown and recorded.
    steps: Vec<Change>,
    diff: String,
    /// What somebody changed since, as a diff from what the run left to what is there.
    conflicts: String,
    conflicting: usize,
    left: Vec<Left>,
    /// Paths of which nobody told that the run changed them: what is there may be somebody else's.
    unsure: Vec<RelPath>,
}

/// Takes back what came after `to`, of a run that is held by `token`; where that is not given, it only says what it would do.
///
/// # Errors
/// [`Error::NotAsLeft`] without `force`; [`Error::Store`] and [`Error::Workspace`].
pub(crate) async fn undo(
    formwork: &Formwork,
    caller: &Caller,
    (run, token): (RunId, Option<u64>),
    to: Position,
    (force, dry_run): (bool, bool),
) -> Result<Undone, Error> {
    let inner = &formwork.inner;
    let ground = Ground::of(formwork);
    if token.is_some() {
        // Until when it lived is known now, and from the log afterwards.
        Baselines::new(formwork, false).settle(run, token).await?;
    }
    let changes = Changes::of(&*inner.store, &ground, run).await?;
    let commits = changes.commits(to);
    let (place, bin) = (ground.clone(), Arc::clone(&inner.trash));
    let plan = blocking(move || plan(&place, (&bin, run), &changes, to)).await?;
    // Names and contents of files hold what they hold; what is told and recorded of them holds no secret.
    let scrub = formwork.scrub();
    let told = |text: &str| scrub.scrub_text(text).into_owned();
    let shown = |left: &[Left]| -> Vec<Left> {
        let left = left.iter();
        left.map(|it| Left { path: told(&it.path), reason: told(&it.reason) }).collect()
    };
    if plan.conflicting > 0 && !force {
        let diff = told(&plan.conflicts);
        return Err(Error::NotAsLeft { run, paths: plan.conflicting, diff });
    }
    let paths: Vec<String> = plan.steps.iter().map(|step| step.path.to_string()).collect();
    let diff = told(&plan.diff);
    if dry_run || token.is_none() {
        let paths = paths.iter().map(|path| told(path)).collect();
        let unsure = plan.unsure.iter().map(ToString::to_string);
        let trashed = unsure.map(|path| InTrash { path: told(&path), id: String::new() }).collect();
        return Ok(Undone { run, paths, diff, left: shown(&plan.left), trashed, commits });
    }
    let changed: Vec<FileChange> =
        plan.steps.iter().map(|step| changes::told(step, None)).collect();
    let count = u64::try_from(paths.len()).unwrap_or(u64::MAX);
    let (trash, clock) = (Arc::clone(&inner.trash), Arc::clone(&inner.clock));
    let carried = move || {
        // Nothing goes before it is there.
        let trashed = put_away(&ground, (&trash, run), &plan.unsure, &*clock)?;
        Ok((trashed, carry_out(&ground, &trash, plan)?))
    };
    let (trashed, left) = blocking(carried).await?;
    let changed = changed.into_iter().filter(|it| left.iter().all(|left| left.path != it.path));
    let changed =
        changed.map(|it| EventBody::FileChanged(FileChange { path: told(&it.path), ..it }));
    let at = inner.clock.now();
    let whole = left.is_empty() && to == Position::default();
    let undone = EventBody::RunUndone(RunUndone { paths: count });
    let events = changed
        .chain(whole.then_some(undone))
        .map(|body| NewEvent {
            task: None,
            principal: caller.principal().clone(),
            at,
            body,
            idempotency_key: None,
        })
        .collect();
    let batch = Append { run, token, events, blobs: Vec::new() };
    inner.store.append(batch).await?;
    let paths = paths.iter().filter(|path| left.iter().all(|left| left.path != **path));
    let paths = paths.map(|path| told(path)).collect();
    let trashed = trashed.into_iter().map(|it| InTrash { path: told(&it.path), ..it }).collect();
    Ok(Undone { run, paths, diff, left: shown(&left), trashed, commits })
}

/// Puts copies of what is at some paths into the trash.
fn put_away(
    ground: &Ground,
    (trash, run): (&Trash, RunId),
    paths: &[RelPath],
    clock: &dyn Clock,
) -> Result<Vec<InTrash>, formwork_write_safety::Error> {
    let root = Arc::clone(&ground.root);
    let workspace = Workspace::new(root, WriteRules::everything(), Reads::new().session());
    let mut put = Vec::new();
    for path in paths {
        let removal = Removal {
            reason: "it was taken back with the run, though only known from around a program"
                .to_owned(),
            run: run.to_string(),
            task: TAKEN_BACK.to_owned(),
            at_ms: u64::try_from(clock.now().as_millis()).unwrap_or_default(),
        };
        match workspace.copy_to_trash(path, trash, &removal) {
            Ok(entry) => put.push(InTrash { path: path.to_string(), id: entry.id }),
            // It is gone by now.
            Err(formwork_write_safety::Error::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(put)
}

/// Says whether a path was a folder that the trash took whole.
fn is_trashed_folder(state: Option<State>) -> bool {
    state.is_some_and(|state| state.hash.is_some() && state.mode & 0o170_000 == 0o040_000)
}

/// Finds the trash entry of a folder as a run first deleted it: what it deleted there later had come after
/// it began. Of a file it is the one that has the content.
fn trashed(
    trash: &Trash,
    run: RunId,
    root: &Path,
    (path, state): (&RelPath, State),
) -> Result<Option<String>, formwork_write_safety::Error> {
    let (run, path, root) = (run.to_string(), path.to_string(), root.to_string_lossy());
    let content = state.hash.filter(|_| !is_trashed_folder(Some(state)));
    let content = content.map(|hash| hash.to_hex().to_string());
    let mut entries = trash.list()?.into_iter();
    let found = entries.find(|it| {
        let has_content = content.as_ref().is_none_or(|hash| it.blake3 == *hash);
        // What an undo put there the run did not delete.
        it.run == run && it.task != TAKEN_BACK && it.path == path && it.root == root && has_content
    });
    Ok(found.map(|entry| entry.id))
}

fn is_folder(state: State) -> bool {
    state.mode & 0o170_000 == 0o040_000
}

/// Returns what was in a folder when the run began.
fn began(
    snapshots: &Snapshots,
    changes: &Changes,
    folder: &RelPath,
) -> Result<Vec<(RelPath, Option<State>)>, formwork_write_safety::Error> {
    let Some(began) = &changes.began else { return Ok(Vec::new()) };
    let paths = began.entries().keys();
    let below = paths.filter(|path| path.as_path().starts_with(folder.as_path()));
    below.map(|path| Ok((path.clone(), snapshots.of_snapshot(began, path)?))).collect()
}

/// Finds the link above a path that stands where a folder was and that the run did not make: what it made is taken
/// back before what is below it.
fn behind(
    ground: &Ground,
    nets: &BTreeMap<RelPath, Net>,
    path: &RelPath,
) -> Result<Option<RelPath>, formwork_write_safety::Error> {
    let above = std::iter::successors(path.parent(), RelPath::parent);
    for parent in above.filter(|parent| !parent.is_root() && !nets.contains_key(parent)) {
        let state = ground.snapshots.state(&ground.root, &parent)?;
        if state.is_some_and(|state| state.mode & 0o170_000 == 0o120_000) {
            return Ok(Some(parent));
        }
    }
    Ok(None)
}

/// Says whether a path holds content that would be gone if it became what it was.
fn holds_other(now: Option<State>, before: Option<State>) -> bool {
    let content = now.and_then(|state| state.hash);
    content.is_some() && content != before.and_then(|state| state.hash)
}

/// Compares what a run left with what is there, and decides what is to be done.
fn plan(
    ground: &Ground,
    (trash, run): (&Trash, RunId),
    changes: &Changes,
    to: Position,
) -> Result<Plan, formwork_write_safety::Error> {
    let Ground { snapshots, root, .. } = ground;
    let mut plan = Plan::default();
    let nets = changes.net(to);
    let is_whole = to == Position::default();
    let step = |path, before, after| {
        let (known, by_work) = (Known::Told, false);
        Change { at: to, path, before, after, known, by_work }
    };
    for (path, net) in &nets {
        let (path, Net { mut before, after, mixed, late, known }) = (path.clone(), net.clone());
        // A folder that the run had made itself, and took away again, was not there.
        if is_whole && before.is_some_and(is_folder) && !changes.had_folder(&path) {
            before = None;
        }
        let now = snapshots.state(root, &path)?;
        if now != before
            && let Some(link) = behind(ground, &nets, &path)?
        {
            let reason =
                format!("{link} is a link by now, which is not the run's: remove it first");
            plan.left.push(Left { path: path.to_string(), reason });
            continue;
        }
        if let Some(was) = before.filter(|was| is_trashed_folder(Some(*was))) {
            match trashed(trash, run, root.path(), (&path, was))? {
                Some(id) => {
                    let (after, folder) = (before, path.clone());
                    plan.steps.push(step(folder, now, after));
                    plan.folders.push((path.clone(), id));
                    // What came in its place goes first; where something else is in it, it stays.
                    plan.wanted.insert(path, None);
                }
                // It was removed from the trash: what the run began with has all but ignored files.
                None => plan.wanted.extend(began(snapshots, changes, &path)?),
            }
            continue;
        }
        if now == before {
            continue;
        }
        if now.is_none()
            && let Some(was) = before.filter(|was| !snapshots.keeps(was))
            && let Some(id) = trashed(trash, run, root.path(), (&path, was))?
        {
            // Larger than what is kept of contents, and whole in the trash.
            plan.diff.push_str(&format!("{path}: comes back from the trash\n"));
            plan.steps.push(step(path.clone(), now, before));
            plan.folders.push((path, id));
            continue;
        }
        if [before, now].into_iter().flatten().any(|state| !snapshots.keeps(&state)) {
            plan.left.push(Left { path: path.to_string(), reason: TOO_LARGE.to_owned() });
            continue;
        }
        let content = |state: Option<State>| {
            state.and_then(|state| state.hash).and_then(|hash| snapshots.kept(hash).ok())
        };
        let name = path.to_string();
        if mixed || !is_alike(now, after) {
            plan.conflicting += 1;
            let left = if late { before } else { after };
            let (left, found) = (content(left), content(now));
            let shown = diff(&name, left.as_deref(), found.as_deref());
            if late {
                plan.conflicts.push_str(&format!(
                    "{name}: changed after the process had ended that worked on the run\n"
                ));
            }
            match shown.is_empty() {
                true => plan.conflicts.push_str(&format!("{name}: changed between and since\n")),
                false => plan.conflicts.push_str(&shown),
            }
        }
        if known != Known::Told && holds_other(now, before) {
            plan.unsure.push(path.clone());
        }
        let (found, back) = (content(now), content(before));
        plan.diff.push_str(&diff(&name, found.as_deref(), back.as_deref()));
        plan.steps.push(step(path.clone(), now, before));
        plan.wanted.insert(path, before);
    }
    // Folders that came with a file go with it, if nothing else is in them, also where the run took the file away again.
    let none = plan.wanted.iter().filter(|(_, state)| state.is_none()).map(|(path, _)| path);
    let passed = changes.all.iter().filter(|_| is_whole).map(|change| &change.path);
    let gone: BTreeSet<RelPath> = none
        .chain(passed)
        .flat_map(|path| std::iter::successors(path.parent(), RelPath::parent))
        .filter(|folder| !folder.is_root() && !changes.had_folder(folder))
        .filter(|folder| root.stat_link(folder).is_ok_and(|it| it.kind == Kind::Folder))
        .collect();
    for folder in gone {
        plan.wanted.entry(folder).or_insert(None);
    }
    Ok(plan)
}

/// Does what was decided: first what is to go, then what comes from the trash, then what is to be something. Returns what
/// is not what it was nonetheless.
fn carry_out(
    ground: &Ground,
    trash: &Trash,
    plan: Plan,
) -> Result<Vec<Left>, formwork_write_safety::Error> {
    let Ground { snapshots, root, .. } = ground;
    let (come, go): (BTreeMap<_, _>, BTreeMap<_, _>) =
        plan.wanted.into_iter().partition(|(_, state)| state.is_some());
    // What a process left that died over the same.
    let folders: BTreeSet<RelPath> =
        come.keys().chain(go.keys()).filter_map(RelPath::parent).collect();
    for folder in folders {
        // It may not be there.
        let _ = root.sweep(&folder);
    }
    snapshots.revert(root, &go)?;
    let mut left = plan.left;
    let workspace =
        Workspace::new(Arc::clone(root), WriteRules::everything(), Reads::new().session());
    for (folder, id) in plan.folders {
        if let Err(error) = workspace.restore(trash, &id) {
            let reason = format!("entry {id} of the trash cannot be restored: {error}");
            left.push(Left { path: folder.to_string(), reason });
        }
    }
    let back: BTreeSet<RelPath> = snapshots.revert(root, &come)?.into_iter().collect();
    let was_to = |path: &RelPath| {
        come.get(path).is_some_and(|state| state.is_some_and(|it| it.hash.is_some()))
    };
    for step in plan.steps.iter().filter(|step| was_to(&step.path) && !back.contains(&step.path)) {
        left.push(Left { path: step.path.to_string(), reason: TOO_LARGE.to_owned() });
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{AgentName, Budget, PermissionMode, WorkflowName, check::Verdict};
    use formwork_scheduler::{
        CheckJob, NativeExecutor, Natives, Scheduler, Setup,
        workflow::{Plan, SingleTask},
    };
    use formwork_trace::{Options, Trace};

    use super::*;

    #[tokio::test]
    async fn a_run_that_was_held_by_whoever_died_over_it_is_free_at_once() {
        let state = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Trace::open("sqlite::memory:", Options::default()).await.unwrap());
        let task = SingleTask {
            agent: AgentName::parse("coder").unwrap(),
            prompt: "Do it.".to_owned(),
            postchecks: Vec::new(),
            retries: <_>::default(),
            timeout: None,
        };
        let plan = Plan::single(WorkflowName::parse("one").unwrap(), task, Budget::default());
        let passes = |job: &CheckJob| Verdict::bare(&*job.check.name, true, "");
        let executor = Arc::new(NativeExecutor::new(Natives::new(), passes));
        let setup = Setup {
            workspace: "/w".to_owned(),
            mode: PermissionMode::Edit,
            principal: "user:ada".parse().unwrap(),
            setup: <_>::default(),
        };
        let new = Scheduler::new(Arc::clone(&store), executor).create(&plan, setup).await.unwrap();
        let hold = || Held::acquire(&*store, state.path(), new.id());

        let dead = hold().await.unwrap();
        let refused = hold().await;
        drop(dead); // As when its process dies: nothing is given back, and the kernel unlocks.
        let again = hold().await.unwrap();
        again.give_back(&*store).await.unwrap();

        assert!(matches!(refused, Err(Error::Store(StoreError::NotOwner { .. }))));
        assert!(hold().await.is_ok());
    }
}
