//! Whether the folder of state holds what a run goes on from: the log names snapshots, and they are kept beside it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use formwork_protocols::{
    BlobHash, CallId, EventBody, Position, RunId, Store, TaskId, event::TaskCreated,
    event::WorkspaceSnapshot, store::Selection,
};

use crate::{Error, Formwork, baseline::blocking};

/// Refuses to go on with a run whose snapshots are not here: without them nobody can tell what its tasks have changed, and
/// each would fail of that for good.
///
/// # Errors
/// [`Error::Elsewhere`] names what is missing.
pub(super) async fn look(formwork: &Formwork, run: RunId) -> Result<(), Error> {
    let needed = needed(&*formwork.inner.store, run).await?;
    let snapshots = Arc::clone(&formwork.inner.snapshots);
    let missing = move || {
        let missing = needed.into_iter().filter(|id| !snapshots.has(&id.to_string()));
        Ok(missing.collect::<Vec<BlobHash>>())
    };
    let missing = blocking(missing).await?;
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(Error::Elsewhere {
            run,
            missing: missing.len(),
            first: *first,
            folder: formwork.inner.state.join("snapshots"),
        }),
    }
}

/// Lists the snapshots that whoever takes a run up loads: those around its programs, and those that tasks began with that
/// have not ended.
async fn needed(store: &dyn Store, run: RunId) -> Result<BTreeSet<BlobHash>, Error> {
    let rows = store.tasks(run).await?;
    let over = rows.iter().filter(|row| row.state.is_terminal()).map(|row| row.task);
    let mut reader = Reader { over: over.collect(), ..Reader::default() };
    let kinds = ["task.created", "workspace.snapshot"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let mut after = Position::default();
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { break };
        after = last.position;
        for event in events {
            match event.body {
                EventBody::TaskCreated(created) => reader.created(event.task, &created),
                EventBody::WorkspaceSnapshot(taken) => reader.taken(event.task, &taken),
                _ => {}
            }
        }
    }
    let Reader { mut needed, begun, .. } = reader;
    needed.extend(begun.into_values());
    Ok(needed)
}

/// Reads events in their order.
#[derive(Default)]
struct Reader {
    over: BTreeSet<TaskId>,
    /// The tasks that work in a workspace of their own, and those below them: what they have changed there is not looked at
    /// again.
    apart: BTreeSet<TaskId>,
    /// Programs that have begun, with the snapshot before each.
    begun: HashMap<CallId, BlobHash>,
    needed: BTreeSet<BlobHash>,
}

impl Reader {
    fn created(&mut self, task: Option<TaskId>, created: &TaskCreated) {
        let is_below = created.parent.is_some_and(|parent| self.apart.contains(&parent));
        if is_below || !created.spec.isolation.is_none() {
            self.apart.extend(task);
        }
    }

    fn taken(&mut self, task: Option<TaskId>, taken: &WorkspaceSnapshot) {
        let Some(id) = taken.snapshot else { return };
        match (taken.around, task) {
            (None, Some(task)) if !self.over.contains(&task) => drop(self.needed.insert(id)),
            (Some(work), task) if !task.is_some_and(|task| self.apart.contains(&task)) => {
                match self.begun.remove(&work) {
                    // Where nothing was changed, neither is looked at.
                    Some(before) if before != id => self.needed.extend([before, id]),
                    Some(_) => {}
                    None => drop(self.begun.insert(work, id)),
                }
            }
            _ => {}
        }
    }
}
