//! `workers.*`: who carries out calls elsewhere.

use async_trait::async_trait;
use formwork_worker::WorkerRow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// Nothing is asked for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The workers of this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Whether this process takes workers at all.
    pub takes_workers: bool,
    /// Those that are connected, and those that are awaited for a moment, by name.
    pub workers: Vec<WorkerRow>,
}

/// `workers.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "workers.list";
    const DOC: &'static str = "Lists the workers that are connected to this process.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let hub = formwork.inner.hub.as_ref();
        let workers = hub.map_or_else(Vec::new, |hub| hub.workers());
        Ok(Listed { takes_workers: hub.is_some(), workers })
    }
}
