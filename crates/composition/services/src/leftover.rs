//! What a process that was killed left in the workspace beside the file that it was writing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use formwork_protocols::{EventBody, Position, RunId, Store, store::Selection};
use formwork_write_safety::Root;

use crate::{Error, baseline::blocking};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// Removes what calls left behind that were begun and whose end is not told, from beside the paths that they
/// named.
///
/// # Errors
/// [`Error::Store`]; what cannot be removed stays, and is in nobody's way.
pub(crate) async fn sweep(store: &dyn Store, root: &Arc<Root>, run: RunId) -> Result<(), Error> {
    let kinds = ["tool.requested", "tool.completed", "tool.failed"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut open, mut after) = (HashMap::new(), Position::default());
    loop {
        let events = store.read(after, &selection, PAGE).await?;
        let Some(last) = events.last() else { break };
        after = last.position;
        for event in events {
            match event.body {
                EventBody::ToolRequested(made) => drop(open.insert(made.call, made.paths)),
                EventBody::ToolCompleted(ended) => drop(open.remove(&ended.call)),
                EventBody::ToolFailed(ended) => drop(open.remove(&ended.call)),
                _ => {}
            }
        }
    }
    let paths = open.into_values().flatten().filter_map(|path| root.rel(path).ok());
    let folders: BTreeSet<_> = paths.filter_map(|path| path.parent()).collect();
    if folders.is_empty() {
        return Ok(());
    }
    let root = Arc::clone(root);
    blocking(move || {
        for folder in folders {
            // The folder may not have been made yet.
            let _ = root.sweep(&folder);
        }
        Ok(())
    })
    .await
}
