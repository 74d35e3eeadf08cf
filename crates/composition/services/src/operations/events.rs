//! `events.*`: the log, read from a cursor.

use async_trait::async_trait;
use formwork_protocols::{
    Append, Body, Event, EventBody, EventName, NewEvent, Position, Principal, RunId, Store, TaskId,
    TaskSpec, Timestamp, event::ExternalFired, store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// The most events of one page: some megabytes at the worst.
const MAX_PAGE: usize = 10_000;

/// Which events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// Of this run only.
    pub run: Option<RunId>,
    /// Of this task only.
    pub task: Option<TaskId>,
    /// Of kinds that begin so, as in `tool.`; all where empty.
    pub kinds: Vec<String>,
    /// Those after this position.
    pub after: Position,
    /// How many at the most, up to 10,000; 1,000 where absent.
    pub limit: Option<usize>,
}

/// A page of the log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Event>,
    /// Where to go on: the position of the last event, or the one that was asked from.
    pub next: Position,
    /// Whether more of them follow by now.
    #[serde(default)]
    pub more: bool,
}

/// `events.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "events.list";
    const DOC: &'static str = "Reads the log from a position on.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Page;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Page, Error> {
        let ListParams { run, task, kinds, after, limit } = params;
        let selection = Selection { run, task, kinds };
        let limit = limit.unwrap_or(1_000).clamp(1, MAX_PAGE);
        // One more than is told tells that there are more.
        let mut events = formwork.store().read(after, &selection, limit + 1).await?;
        let more = events.len() > limit;
        events.truncate(limit);
        if let Some(run) = run.filter(|_| events.is_empty()) {
            super::runs::named(&*formwork.store(), run).await?;
        }
        let next = events.last().map_or(after, |event| event.position);
        Ok(Page { events, next, more })
    }
}

/// The most bytes of what is known of a fired event, as JSON: it becomes the result of a task.
pub(crate) const MAX_DATA: usize = 64 * 1024;

/// What has happened.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FireParams {
    /// Its name.
    pub name: EventName,
    /// What there is to know of it; null where absent.
    #[serde(default)]
    pub data: Value,
    /// The run that is told; all that have a task that waits for it, or will, where absent.
    #[serde(default)]
    pub run: Option<RunId>,
}

/// Who was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct Told {
    pub runs: Vec<RunId>,
}

/// `events.fire`
pub struct Fire;

#[async_trait]
impl Operation for Fire {
    const NAME: &'static str = "events.fire";
    const DOC: &'static str =
        "Tells runs that something has happened outside; tasks that wait for it go on.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = FireParams;
    type Output = Told;

    async fn run(formwork: &Formwork, caller: &Caller, params: FireParams) -> Result<Told, Error> {
        let FireParams { name, data, run } = params;
        let store = &*formwork.inner.store;
        let bytes = data.to_string().len();
        if bytes > MAX_DATA {
            let reason = format!("its data has {bytes} bytes, at most {MAX_DATA} are kept");
            return Err(Error::Fired { name, reason });
        }
        let waiting = Waiting {
            name,
            data,
            by: caller.principal().clone(),
            key: None,
            begun_by: None,
            workspace: None,
        };
        let runs = match run {
            Some(run) => {
                let row = super::runs::named(store, run).await?;
                if row.state.is_terminal() {
                    return Err(Error::Over { run, state: row.state, wanted: "told of an event" });
                }
                tell(formwork, run, &waiting).await?;
                vec![run]
            }
            None => tell_waiting(formwork, waiting).await?,
        };
        Ok(Told { runs })
    }
}

/// What those are told who wait for it.
pub(crate) struct Waiting {
    pub(crate) name: EventName,
    pub(crate) data: Value,
    /// Who says so.
    pub(crate) by: Principal,
    /// Under which a run is told once.
    pub(crate) key: Option<String>,
    /// Only runs that had begun by then.
    pub(crate) begun_by: Option<Timestamp>,
    /// Only runs of this workspace.
    pub(crate) workspace: Option<String>,
}

/// Tells all runs that have not ended and that have a task that waits for it, or will, and returns them.
pub(crate) async fn tell_waiting(
    formwork: &Formwork,
    waiting: Waiting,
) -> Result<Vec<RunId>, Error> {
    let store = &*formwork.inner.store;
    let mut told = Vec::new();
    for row in super::inbox::open_runs(store).await? {
        let is_meant = waiting.begun_by.is_none_or(|at| row.created <= at)
            && waiting.workspace.as_ref().is_none_or(|workspace| *workspace == row.workspace);
        if is_meant && waits(store, row.run, &waiting.name).await? {
            tell(formwork, row.run, &waiting).await?;
            told.push(row.run);
        }
    }
    Ok(told)
}

async fn tell(formwork: &Formwork, run: RunId, waiting: &Waiting) -> Result<(), Error> {
    let (name, data) = (waiting.name.clone(), waiting.data.clone());
    let event = NewEvent {
        task: None,
        principal: waiting.by.clone(),
        at: formwork.now(),
        body: EventBody::ExternalFired(ExternalFired { name, data }),
        idempotency_key: waiting.key.clone(),
    };
    let append = Append { run, token: None, events: vec![event], blobs: Vec::new() };
    formwork.inner.store.append(append).await?;
    Ok(())
}

/// Tells whether a run has a task that waits for an event of that name, or will.
async fn waits(store: &dyn Store, run: RunId, name: &EventName) -> Result<bool, Error> {
    let rows = store.tasks(run).await?;
    for task in &rows {
        // Items that are there stand for themselves; before, the task that will make them stands for them.
        let is_made = || rows.iter().any(|row| row.parent == Some(task.task));
        let may_wait = task.body == "wait_for" || (task.body == "for_each" && !is_made());
        if !may_wait || task.state.is_terminal() {
            continue;
        }
        let kinds = vec!["task.created".to_owned()];
        let selection = Selection { run: Some(run), task: Some(task.task), kinds };
        let created = store.read(Position::default(), &selection, 1).await?;
        let waits = created.into_iter().any(|event| match event.body {
            EventBody::TaskCreated(created) => waits_within(&created.spec, name),
            _ => false,
        });
        if waits {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Tells whether a task, or one that is written down within it, waits for an event of that name.
fn waits_within(spec: &TaskSpec, name: &EventName) -> bool {
    match &spec.body {
        Body::WaitFor(wait) => wait.event == *name,
        body => body.below().iter().any(|task| waits_within(task, name)),
    }
}
