//! What hooks said in a run: the answers of gates, and who did not take what it was told of.

use formwork_protocols::{
    EventBody, Position, RunId, Store, TaskId,
    event::{HookFailed, ToolGated},
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

/// Reads what hooks did in a run.
pub(super) async fn hooks(
    store: &dyn Store,
    run: RunId,
) -> Result<(Vec<GateRow>, Vec<HookFailed>), Error> {
    let kinds = ["tool.gated", "hook.failed"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut gates, mut failures, mut after) = (Vec::new(), Vec::new(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok((gates, failures)) };
        after = last.position;
        for event in events {
            match event.body {
                EventBody::ToolGated(gated) => gates.push(GateRow { task: event.task, gated }),
                EventBody::HookFailed(failed) => failures.push(failed),
                _ => {}
            }
        }
    }
}
