//! The log of a run, in memory.

use std::num::NonZeroUsize;

use formwork_protocols::{EventBody, RunId, TaskId, Timestamp};

use crate::{
    error::Error,
    run::fold::{Folded, Folding},
};

#[derive(Debug)]
struct Entry {
    task: Option<TaskId>,
    at: Timestamp,
    body: EventBody,
}

/// All that is left of a process that died.
#[derive(Debug)]
pub(super) struct Record {
    run: RunId,
    width: NonZeroUsize,
    entries: Vec<Entry>,
}

impl Record {
    pub(super) const fn new(run: RunId, width: NonZeroUsize) -> Self {
        Self { run, width, entries: Vec::new() }
    }

    pub(super) fn write(&mut self, at: Timestamp, task: Option<TaskId>, body: EventBody) {
        self.entries.push(Entry { task, at, body });
    }

    /// Reads the run as whoever resumes it does.
    pub(super) fn read(&self) -> Result<Folded, Error> {
        let mut folding = Folding::new(self.run, self.width);
        for Entry { task, at, body } in &self.entries {
            folding.take(*task, *at, body.clone())?;
        }
        folding.finish()
    }
}
