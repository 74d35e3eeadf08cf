//! `events.*`: the log, read from a cursor.

use async_trait::async_trait;
use formwork_protocols::{Event, Position, RunId, TaskId, store::Selection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        let events = formwork.store().read(after, &selection, limit).await?;
        let next = events.last().map_or(after, |event| event.position);
        Ok(Page { events, next })
    }
}
