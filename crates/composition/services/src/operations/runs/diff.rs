//! `runs.diff`: where two runs part, and what became of each.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use formwork_protocols::{
    BlobHash, Event, EventBody, RunId, TaskState, Usage, Usd,
    store::{RunRow, TaskRow},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named;
use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    course::{Course, Divergence, events, paths},
};

/// Which runs to compare.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffParams {
    /// The first.
    pub first: RunId,
    /// The second.
    pub second: RunId,
}

/// What differs between two runs. Times and ids always do, and are not told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The first.
    pub first: Spent,
    /// The second.
    pub second: Spent,
    /// Where they part first; nothing where they do not.
    pub divergence: Option<Divergence>,
    /// The tasks that did not end alike, by the names from the root to each.
    pub tasks: Vec<TaskPair>,
    /// The files that the runs did not leave alike.
    pub files: Vec<FilePair>,
}

/// A run and what it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Spent {
    pub run: RunId,
    /// How it ended, or where it stands.
    pub outcome: String,
    pub events: u64,
    pub rounds: u32,
    pub usage: Usage,
    pub cost: Usd,
}

/// A task in both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct TaskPair {
    pub task: String,
    pub first: Option<Stands>,
    pub second: Option<Stands>,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Stands {
    pub state: TaskState,
    pub ending: Option<String>,
    pub attempts: u32,
    pub cost: Usd,
}

/// A file as each run left it; nothing where it did not touch it or removed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct FilePair {
    pub path: String,
    pub first: Option<BlobHash>,
    pub second: Option<BlobHash>,
}

/// `runs.diff`
pub struct Diff;

#[async_trait]
impl Operation for Diff {
    const NAME: &'static str = "runs.diff";
    const DOC: &'static str =
        "Compares two runs: where they part first, their tasks, their spend and their files.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = DiffParams;
    type Output = Compared;

    async fn run(formwork: &Formwork, _: &Caller, params: DiffParams) -> Result<Compared, Error> {
        let DiffParams { first, second } = params;
        let store = &*formwork.inner.store;
        let rows = (named(store, first).await?, named(store, second).await?);
        let (one, two) = (events(store, first).await?, events(store, second).await?);
        let courses = (Course::of(&one), Course::of(&two));
        let divergence = courses.0.parts_from(&courses.1, false, (store, store)).await?;
        let tasks = (store.tasks(first).await?, store.tasks(second).await?);
        let stands = (stands(&tasks.0, &one), stands(&tasks.1, &two));
        let names: BTreeSet<&String> = stands.0.keys().chain(stands.1.keys()).collect();
        let tasks = names.into_iter().filter_map(|name| {
            let pair = (stands.0.get(name).cloned(), stands.1.get(name).cloned());
            let is_alike = match &pair {
                (Some(one), Some(two)) => is_alike(one, two),
                _ => false,
            };
            let (first, second) = pair;
            (!is_alike).then(|| TaskPair { task: name.clone(), first, second })
        });
        let files = (files(&one), files(&two));
        let touched: BTreeSet<&String> = files.0.keys().chain(files.1.keys()).collect();
        let files = touched.into_iter().filter_map(|path| {
            let left = |files: &BTreeMap<String, Option<BlobHash>>| files.get(path).copied();
            let (one, two) = (left(&files.0), left(&files.1));
            let (first, second) = (one.flatten(), two.flatten());
            (one != two).then(|| FilePair { path: path.clone(), first, second })
        });
        let (tasks, files) = (tasks.collect(), files.collect());
        let (first, second) = (spent(rows.0), spent(rows.1));
        Ok(Compared { first, second, divergence, tasks, files })
    }
}

/// Tells whether a task ended alike; what it cost is told beside.
fn is_alike(one: &Stands, two: &Stands) -> bool {
    (one.state, &one.ending, one.attempts) == (two.state, &two.ending, two.attempts)
}

fn spent(row: RunRow) -> Spent {
    let outcome = row.reason.unwrap_or_else(|| row.state.to_string());
    let RunRow { run, events, rounds, usage, cost, .. } = row;
    Spent { run, outcome, events, rounds, usage, cost }
}

fn stands(rows: &[TaskRow], events: &[Event]) -> BTreeMap<String, Stands> {
    let paths = paths(events);
    let named = rows.iter().filter_map(|row| {
        let ending = row.ending.as_ref().map(ToString::to_string);
        let stands = Stands { state: row.state, ending, attempts: row.attempts, cost: row.cost };
        Some((paths.get(&row.task)?.clone(), stands))
    });
    named.collect()
}

/// Returns what each file that a run changed was in the end.
fn files(events: &[Event]) -> BTreeMap<String, Option<BlobHash>> {
    let changes = events.iter().filter_map(|event| match &event.body {
        EventBody::FileChanged(change) if !change.apart => {
            Some((change.path.clone(), change.after))
        }
        _ => None,
    });
    changes.collect()
}
