//! What of a run came from outside, and where from: whoever goes on with it carries that along.

use std::collections::BTreeSet;

use formwork_protocols::{EventBody, Position, RunId, Store, store::Selection};

use crate::{Error, operations::runs};

/// Returns where the answers of tools came from that a run has read from outside.
pub(crate) async fn read(store: &dyn Store, run: RunId) -> Result<BTreeSet<String>, Error> {
    let kinds = ["tool.completed", "tool.failed"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut found, mut after) = (BTreeSet::new(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(found) };
        after = last.position;
        for event in events {
            match event.body {
                EventBody::ToolCompleted(done) => found.extend(done.outside),
                EventBody::ToolFailed(failed) => found.extend(failed.outside),
                _ => {}
            }
        }
    }
}

/// Returns what a conversation carries along that goes on in another run, from all runs that it went through.
pub(crate) async fn carried(store: &dyn Store, run: RunId) -> Result<Vec<String>, Error> {
    let mut found = read(store, run).await?;
    found.extend(runs::recorded(store, run).await?.outside);
    Ok(found.into_iter().collect())
}
