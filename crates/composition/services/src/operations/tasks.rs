//! `tasks.*`: the tasks of a run, and all that one of them left behind.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use formwork_protocols::{
    Claim, EventBody, Position, RunId, Store, TaskId, TaskSpec, TaskState, Usage, Usd,
    event::{Decided, FileChange},
    store::{AttemptRow, CallRow, CheckRow, Selection, TaskRow},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    operations::runs::named,
};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// Of which run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {
    /// The run.
    pub run: RunId,
}

/// A task in short.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The names from the root to it, joined by `/`.
    pub path: String,
    /// What it and all below it have cost.
    pub total: Usd,
    /// How many of its checks have decided, and how many of these failed.
    pub checks: u64,
    #[expect(missing_docs, reason = "said above")]
    pub failed_checks: u64,
    /// Why it has not begun, where it could but for what another task writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The task itself.
    #[serde(flatten)]
    pub task: TaskRow,
}

/// The tasks of a run, in the order of their creation.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct Listed {
    pub tasks: Vec<Summary>,
}

/// `tasks.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "tasks.list";
    const DOC: &'static str = "Lists the tasks of a run with their states and costs.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Listed, Error> {
        let store = &formwork.inner.store;
        named(&**store, params.run).await?;
        let rows = store.tasks(params.run).await?;
        let checks = store.checks(params.run).await?;
        let (paths, totals) = (paths(&rows), totals(&rows));
        let mut waits = waits(&**store, params.run, &rows).await?;
        let tasks = rows
            .into_iter()
            .map(|task| {
                let own = || checks.iter().filter(|check| check.task == task.task);
                Summary {
                    path: paths.get(&task.task).cloned().unwrap_or_default(),
                    total: totals.get(&task.task).map_or(task.cost, |(cost, _)| *cost),
                    checks: own().count() as u64,
                    failed_checks: own().filter(|check| !check.verdict.passed).count() as u64,
                    waits: waits.remove(&task.task),
                    task,
                }
            })
            .collect();
        Ok(Listed { tasks })
    }
}

/// Which task to show.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The run.
    pub run: RunId,
    /// The task: its id, its path as in `build/test`, or its name where no other has it.
    pub task: String,
}

/// What calls of one tool came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct ToolUse {
    pub tool: String,
    pub calls: u64,
    pub refused: u64,
    pub failed: u64,
}

/// A task with all that it left behind.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskDetail {
    /// The names from the root to it, joined by `/`.
    pub path: String,
    /// What was asked.
    pub spec: Option<TaskSpec>,
    /// Where it stands, with its own spend.
    pub task: TaskRow,
    /// What its body claimed last.
    pub claim: Option<Claim>,
    /// What it and all below it have cost.
    pub total: Usd,
    /// What it and all below it have used.
    pub total_usage: Usage,
    /// The attempts at it, in order.
    pub attempts: Vec<AttemptRow>,
    /// Every check of it that has decided, with its evidence, in order.
    pub checks: Vec<CheckRow>,
    /// Its own model calls that ended well, in order.
    pub calls: Vec<CallRow>,
    /// The tools that it called, by name.
    pub tools: Vec<ToolUse>,
    /// The files that it changed, each as it was changed last.
    pub files: Vec<FileChange>,
    /// The paths of the tasks one level below it.
    pub children: Vec<String>,
    /// Why it has not begun, where it could but for what another task writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

/// `tasks.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "tasks.get";
    const DOC: &'static str =
        "Shows a task: what was asked, its attempts, its checks with their evidence, its spend.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = TaskDetail;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<TaskDetail, Error> {
        let (store, run) = (&formwork.inner.store, params.run);
        named(&**store, run).await?;
        let rows = store.tasks(run).await?;
        let paths = paths(&rows);
        let task = find(run, &rows, &paths, &params.task)?;
        let mut checks = store.checks(run).await?;
        checks.retain(|check| check.task == task.task);
        let mut calls = store.calls(run).await?;
        calls.retain(|call| call.task == task.task);
        let left = Left::of(&**store, run, task.task).await?;
        let (total, total_usage) = totals(&rows).remove(&task.task).unwrap_or_default();
        let path = |row: &TaskRow| paths.get(&row.task).cloned().unwrap_or_default();
        Ok(TaskDetail {
            path: path(task),
            spec: left.spec.map(Arc::unwrap_or_clone),
            claim: left.claim.map(Arc::unwrap_or_clone),
            total,
            total_usage,
            attempts: store.attempts(task.task).await?,
            checks,
            calls,
            tools: left.tools.into_values().collect(),
            files: left.files.into_values().collect(),
            children: rows.iter().filter(|row| row.parent == Some(task.task)).map(path).collect(),
            waits: waits(&**store, run, &rows).await?.remove(&task.task),
            task: task.clone(),
        })
    }
}

/// What the log says of a task that no view holds.
#[derive(Default)]
struct Left {
    spec: Option<Arc<TaskSpec>>,
    claim: Option<Arc<Claim>>,
    tools: BTreeMap<String, ToolUse>,
    files: BTreeMap<String, FileChange>,
}

impl Left {
    async fn of(store: &dyn Store, run: RunId, task: TaskId) -> Result<Self, Error> {
        let kinds = ["task.", "tool.requested", "tool.failed", "file.changed"];
        let kinds = kinds.map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: Some(task), kinds };
        let (mut left, mut after) = (Self::default(), Position::default());
        let mut names = HashMap::new();
        loop {
            let events = store.read(after, &selection, PAGE).await?;
            let Some(last) = events.last() else { return Ok(left) };
            after = last.position;
            for event in events {
                match event.body {
                    EventBody::TaskCreated(created) => left.spec = Some(created.spec),
                    EventBody::TaskMoved(moved) => left.claim = moved.claim.or(left.claim),
                    EventBody::ToolRequested(asked) => {
                        let used = left.tools.entry(asked.tool.clone()).or_default();
                        used.calls += 1;
                        used.refused += u64::from(asked.decision != Decided::Allowed);
                        if asked.decision == Decided::Allowed {
                            names.insert(asked.call, asked.tool.clone());
                        }
                        used.tool = asked.tool;
                    }
                    EventBody::ToolFailed(failed) => {
                        // One that was refused is not one that failed as well.
                        let name = names.get(&failed.call);
                        if let Some(used) = name.and_then(|name| left.tools.get_mut(name)) {
                            used.failed += 1;
                        }
                    }
                    EventBody::FileChanged(change) => {
                        left.files.insert(change.path.clone(), change);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Finds a task by what a person writes.
fn find<'a>(
    run: RunId,
    rows: &'a [TaskRow],
    paths: &HashMap<TaskId, String>,
    wanted: &str,
) -> Result<&'a TaskRow, Error> {
    let id = wanted.parse::<TaskId>().ok();
    let is_path = |row: &&TaskRow| {
        paths.get(&row.task).is_some_and(|path| {
            path == wanted || path.split_once('/').is_some_and(|(_, below)| below == wanted)
        })
    };
    if let Some(row) = rows.iter().find(|row| Some(row.task) == id) {
        return Ok(row);
    }
    if let Some(row) = rows.iter().find(is_path) {
        return Ok(row);
    }
    let mut of_name = rows.iter().filter(|row| row.name.as_str() == wanted);
    match (of_name.next(), of_name.next()) {
        (Some(row), None) => Ok(row),
        (Some(_), Some(_)) => {
            let all = rows.iter().filter(|row| row.name.as_str() == wanted);
            let all: Vec<&str> =
                all.filter_map(|row| paths.get(&row.task).map(String::as_str)).collect();
            let reason = format!("{} tasks have that name: {}", all.len(), all.join(", "));
            Err(Error::NoSuchTask { run, task: wanted.to_owned(), reason })
        }
        (None, _) => {
            let names = rows.iter().map(|row| row.name.as_str());
            let reason = match formwork_protocols::document::nearest(wanted, names) {
                Some(nearest) => format!("the nearest name is {nearest}"),
                None => format!("it has {} tasks", rows.len()),
            };
            Err(Error::NoSuchTask { run, task: wanted.to_owned(), reason })
        }
    }
}

/// Says why tasks have not begun that could but for what others write.
pub(super) async fn waits(
    store: &dyn Store,
    run: RunId,
    rows: &[TaskRow],
) -> Result<HashMap<TaskId, String>, Error> {
    let is_new = |row: &&TaskRow| row.state == TaskState::Created;
    let new: Vec<TaskId> = rows.iter().filter(is_new).map(|row| row.task).collect();
    let mut waits = HashMap::new();
    if new.is_empty() {
        return Ok(waits);
    }
    let kinds = vec!["task.blocked".to_owned()];
    let (selection, mut after) =
        (Selection { run: Some(run), task: None, kinds }, Position::default());
    loop {
        let events = store.read(after, &selection, PAGE).await?;
        let Some(last) = events.last() else { return Ok(waits) };
        after = last.position;
        for event in events {
            if let (EventBody::TaskBlocked(blocked), Some(task)) = (event.body, event.task)
                && new.contains(&task)
            {
                waits.insert(task, blocked.to_string());
            }
        }
    }
}

/// Returns the names from the root to each task. Tasks stand behind their parents.
pub(super) fn paths(rows: &[TaskRow]) -> HashMap<TaskId, String> {
    let mut paths: HashMap<TaskId, String> = HashMap::with_capacity(rows.len());
    for row in rows {
        let above = row.parent.and_then(|parent| paths.get(&parent));
        let path =
            above.map_or_else(|| row.name.to_string(), |path| format!("{path}/{}", row.name));
        paths.insert(row.task, path);
    }
    paths
}

/// Returns what each task and all below it have cost and used.
pub(super) fn totals(rows: &[TaskRow]) -> HashMap<TaskId, (Usd, Usage)> {
    let mut totals: HashMap<TaskId, (Usd, Usage)> =
        rows.iter().map(|row| (row.task, (row.cost, row.usage))).collect();
    for row in rows.iter().rev() {
        let (cost, usage) = totals.get(&row.task).copied().unwrap_or_default();
        if let Some(above) = row.parent.and_then(|parent| totals.get_mut(&parent)) {
            above.0 = above.0.saturating_add(cost);
            above.1 += usage;
        }
    }
    totals
}
