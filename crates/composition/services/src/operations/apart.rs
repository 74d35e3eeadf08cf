//! `apart.*`: what tasks did in workspaces of their own and that is not merged.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{
    Append, CallId, EventBody, NewEvent, RunId, RunState, StoreError, TaskId, store::TaskRow,
};
use formwork_write_safety::{Isolated, Isolation, Merged, Root, Snapshots, WriteRules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{tasks::paths, undo::Held};
use crate::{
    Error, Formwork,
    apart::FOLDER,
    baseline::{Baselines, blocking},
    capability::{Caller, Effect, Operation, Scope},
    reach::Reach,
};

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// A workspace of a task's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Own {
    /// Its name.
    pub name: String,
    /// The folder that the work is in.
    pub folder: String,
    /// The run of the task, and where that stands; none where the log knows of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    #[expect(missing_docs, reason = "said above")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RunState>,
    /// The names from the root of the run to the task, joined by `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// What it changed and is not merged.
    pub paths: Vec<String>,
}

/// The workspaces that tasks have of their own beside this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct Listed {
    pub apart: Vec<Own>,
}

/// `apart.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "apart.list";
    const DOC: &'static str = "Lists the workspaces that tasks have of their own beside this one, with what is not merged.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        Ok(Listed { apart: all(formwork).await? })
    }
}

/// Which one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeParams {
    /// Its name, or that of its task where no other has it.
    pub name: String,
}

/// What was brought into the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Brought {
    /// Whose work it was.
    pub name: String,
    /// What was changed by it.
    pub paths: Vec<String>,
}

/// `apart.merge`
pub struct Merge;

#[async_trait]
impl Operation for Merge {
    const NAME: &'static str = "apart.merge";
    const DOC: &'static str = "Brings what a task did in a workspace of its own into this one, all of it or nothing; no check is run.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = MergeParams;
    type Output = Brought;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: MergeParams,
    ) -> Result<Brought, Error> {
        let inner = &formwork.inner;
        let own = found(formwork, &params.name).await?;
        let name = own.name.clone();
        let Some(run) = own.run.filter(|_| own.state.is_some()) else {
            let told = "its run is not in this log: take what you want from its folder".to_owned();
            return Err(Error::Apart { name, reason: told });
        };
        super::runs::own(formwork, run, "merged from").await?;
        // Nobody takes the run up meanwhile, and what is merged stands in its log, to be taken back with it.
        let held = Held::acquire(&*inner.store, &inner.state, run).await?;
        let merged = merge(formwork, caller, &name, (run, held.token())).await;
        held.give_back(&*inner.store).await?;
        Ok(Brought { name, paths: merged? })
    }
}

/// Which one, and whether what is not merged is given up.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscardParams {
    /// Its name, or that of its task where no other has it.
    pub name: String,
    /// Give up what is not merged. Where absent, one that holds such work is left.
    #[serde(default)]
    pub discard: bool,
}

/// What was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Discarded {
    /// Whose work it was.
    pub name: String,
    /// What it had changed that was not merged.
    pub paths: Vec<String>,
    /// The snapshot of what it had come to.
    pub snapshot: String,
    /// What it had committed, as a reference of git's, where it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// `apart.discard`
pub struct Discard;

#[async_trait]
impl Operation for Discard {
    const NAME: &'static str = "apart.discard";
    const DOC: &'static str = "Removes a workspace that a task had of its own; what was not merged only if that is said, and a snapshot of it is kept.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = DiscardParams;
    type Output = Discarded;

    async fn run(
        formwork: &Formwork,
        _: &Caller,
        params: DiscardParams,
    ) -> Result<Discarded, Error> {
        let inner = &formwork.inner;
        let own = found(formwork, &params.name).await?;
        if !own.paths.is_empty() && !params.discard {
            let source =
                formwork_write_safety::Error::Unmerged { name: own.name, paths: own.paths };
            return Err(source.into());
        }
        let (folder, snapshots) = (inner.state.join(FOLDER), Arc::clone(&inner.snapshots));
        let (root, name) = (Arc::clone(&inner.root), own.name.clone());
        let kept = blocking(move || {
            let isolation = Isolation::open(folder, snapshots)?;
            let Some(own) = taken_up(&isolation, &name)? else { return Ok(None) };
            let kept = own.give_up()?;
            isolation.sweep(&root)?;
            Ok(Some(kept))
        });
        let kept = kept.await?.ok_or_else(|| gone(&own.name))?;
        Ok(Discarded {
            name: own.name,
            paths: kept.paths.iter().map(ToString::to_string).collect(),
            snapshot: kept.work.to_string(),
            reference: kept.reference,
        })
    }
}

/// Brings the work in, and records what that changed as a piece of work of its run.
async fn merge(
    formwork: &Formwork,
    caller: &Caller,
    name: &str,
    (run, token): (RunId, u64),
) -> Result<Vec<String>, Error> {
    let inner = &formwork.inner;
    let baselines = Baselines::new(formwork, true);
    let work = CallId::generate(&*inner.clock, &*inner.rng);
    let tell = async |bodies: Vec<EventBody>, blobs| {
        let event = |body| NewEvent {
            task: None,
            principal: caller.principal().clone(),
            at: inner.clock.now(),
            body,
            idempotency_key: None,
        };
        let events = bodies.into_iter().map(event).collect();
        let batch = Append { run, token: Some(token), events, blobs };
        inner.store.append(batch).await.map(drop)
    };
    let within = (run, Some(token));
    let (watch, begun, blobs) = baselines.before(within, work, Reach::Anywhere).await?;
    tell(vec![begun], blobs).await?;
    let (folder, snapshots) = (inner.state.join(FOLDER), Arc::clone(&inner.snapshots));
    let (root, wanted) = (Arc::clone(&inner.root), name.to_owned());
    let merging = blocking(move || brought(&Isolation::open(folder, snapshots)?, &root, &wanted));
    let merged = merging.await;
    tell(baselines.after(&watch).await?, Vec::new()).await?;
    watch.end();
    baselines.rest(run);
    match merged? {
        None => Err(gone(name)),
        Some(Ok(paths)) => Ok(paths),
        Some(Err(told)) => Err(Error::Clash { name: name.to_owned(), reason: told }),
    }
}

/// Brings the work in and removes its workspace. With a conflict nothing is brought: what changed meanwhile comes into the
/// work, for whoever resolves it there.
fn brought(
    isolation: &Isolation,
    root: &Root,
    name: &str,
) -> Result<Option<Result<Vec<String>, String>>, formwork_write_safety::Error> {
    let Some(mut own) = taken_up(isolation, name)? else { return Ok(None) };
    // A person asks for it: what binds agents does not bind them.
    let mut met = match own.merge(root, &WriteRules::everything())? {
        Merged::Done(paths) => {
            own.remove()?;
            return Ok(Some(Ok(paths.iter().map(ToString::to_string).collect())));
        }
        Merged::Conflicts(met) => met,
    };
    met.extend(own.catch_up(root)?);
    met.sort_by(|one, other| one.path.cmp(&other.path));
    met.dedup_by(|one, other| one.path == other.path);
    let list: Vec<String> = met.iter().map(ToString::to_string).collect();
    Ok(Some(Err(format!(
        "the workspace was changed as well, and nothing was merged: {}. What was changed there is in {} by now, with <<<<<<< and \
         >>>>>>> around what clashes",
        list.join("; "),
        own.path().display()
    ))))
}

/// Takes one up, without what a suite left in it that a process was killed over.
fn taken_up(
    isolation: &Isolation,
    name: &str,
) -> Result<Option<Isolated>, formwork_write_safety::Error> {
    let Some(own) = isolation.find(name)? else { return Ok(None) };
    own.set_back()?;
    Ok(Some(own))
}

fn gone(name: &str) -> Error {
    let reason = "it was merged or given up a moment ago".to_owned();
    Error::Apart { name: name.to_owned(), reason }
}

/// Finds one by what a person writes, if nobody works in it.
async fn found(formwork: &Formwork, wanted: &str) -> Result<Own, Error> {
    let all = all(formwork).await?;
    let is_named = |own: &&Own| {
        let task = own.task.as_deref().unwrap_or_default();
        own.name == wanted || task == wanted || task.rsplit('/').next() == Some(wanted)
    };
    let mut named = all.iter().filter(is_named);
    let fault = |reason: String| Error::Apart { name: wanted.to_owned(), reason };
    let own = match (named.next(), named.next()) {
        (Some(own), None) => own,
        (None, _) => return Err(fault("no task has one of that name".to_owned())),
        (Some(_), Some(_)) => {
            let names = all.iter().filter(is_named).map(|own| own.name.as_str());
            let names: Vec<&str> = names.collect();
            return Err(fault(format!("several tasks have that name: {}", names.join(", "))));
        }
    };
    match own.state.zip(own.run) {
        Some((state, run)) if !state.is_terminal() => Err(fault(format!(
            "run {run} is {state}, and goes on in it: resume or abort that first"
        ))),
        _ => Ok(own.clone()),
    }
}

/// Lists those beside this workspace.
pub(crate) async fn all(formwork: &Formwork) -> Result<Vec<Own>, Error> {
    let inner = &formwork.inner;
    let (folder, snapshots) = (inner.state.join(FOLDER), Arc::clone(&inner.snapshots));
    let here = formwork.workspace().to_owned();
    let names = blocking(move || in_folder(&folder, snapshots, &here)).await?;
    let mut apart = Vec::new();
    for mut own in names {
        if let Some((run, task)) = of(&own.name) {
            own.run = Some(run);
            let row = match inner.store.run(run).await {
                Err(StoreError::NoSuchRun { .. }) => None,
                found => found?,
            };
            own.state = row.map(|row| row.state);
            let rows: Vec<TaskRow> = inner.store.tasks(run).await?;
            own.task = paths(&rows).remove(&task);
        }
        apart.push(own);
    }
    Ok(apart)
}

/// Lists the workspaces of a folder that were made from `here`, and what is not merged of each.
fn in_folder(
    folder: &Path,
    snapshots: Arc<Snapshots>,
    here: &Path,
) -> Result<Vec<Own>, formwork_write_safety::Error> {
    // Looking makes nothing.
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let isolation = Isolation::open(folder, snapshots)?;
    let mut all = Vec::new();
    for name in isolation.list()? {
        // It may have been merged meanwhile.
        let Some(own) = isolation.find(&name)? else { continue };
        if own.workspace() != here {
            continue;
        }
        let paths = own.changed()?.iter().map(|it| it.path.to_string()).collect();
        let folder = own.path().display().to_string();
        all.push(Own { name, folder, run: None, state: None, task: None, paths });
    }
    Ok(all)
}

/// Returns the run and the task that one is named after.
fn of(name: &str) -> Option<(RunId, TaskId)> {
    // Both ids are of one length.
    let (run, task) = name.split_at_checked(name.len() / 2)?;
    Some((run.parse().ok()?, task.strip_prefix('-')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{SystemClock, SystemRng};

    use super::*;

    #[test]
    fn the_name_of_a_workspace_tells_its_run_and_task() {
        let run = RunId::generate(&SystemClock, &SystemRng);
        let task = TaskId::generate(&SystemClock, &SystemRng);

        assert_eq!(of(&format!("{run}-{task}")), Some((run, task)));
        assert_eq!(of("something-else"), None);
    }
}
