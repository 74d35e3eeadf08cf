//! What was said to a run beside its model: the answers of gates, who did not take what it was told of, and what the
//! sandbox refused.

use formwork_protocols::{
    EventBody, Position, RunId, Store, TaskId,
    event::{HookFailed, NetworkRefused, ToolGated},
    store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// What a gate answered about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRow {
    /// The task that the call was made in.
    pub task: Option<TaskId>,
    /// The answer.
    #[serde(flatten)]
    pub gated: ToolGated,
}

/// All of these, in the order of the log.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) gates: Vec<GateRow>,
    pub(super) hook_failures: Vec<HookFailed>,
    pub(super) refused_connections: Vec<NetworkRefused>,
}

/// Reads what was said in a run.
pub(super) async fn of(store: &dyn Store, run: RunId) -> Result<Answers, Error> {
    let kinds = ["tool.gated", "hook.failed", "network.refused"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut found, mut after) = (Answers::default(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(found) };
        after = last.position;
        for event in events {
            match event.body {
                EventBody::ToolGated(gated) => {
                    found.gates.push(GateRow { task: event.task, gated: *gated });
                }
                EventBody::HookFailed(failed) => found.hook_failures.push(failed),
                EventBody::NetworkRefused(refused) => found.refused_connections.push(refused),
                _ => {}
            }
        }
    }
}
