//! A store that keeps nothing, so that what is above it can be measured alone.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use formwork_protocols::{
    Append, BlobHash, Event, EventStore, Live, Position, RunId, Span, StoreError, TaskId,
    Timestamp, Views,
    event::Delta,
    store::{AttemptRow, Audit, CallRow, CheckRow, Lease, Recorded, RunRow, Selection, TaskRow},
};
use futures::stream::{self, BoxStream};

/// Counts what it is given and forgets it.
#[derive(Debug, Default)]
pub(crate) struct NullStore {
    events: AtomicU64,
    batches: AtomicU64,
}

impl NullStore {
    /// Returns how many events it was given.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    /// Returns in how many pieces.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }
}

#[async_trait]
impl EventStore for NullStore {
    async fn append(&self, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        self.events.fetch_add(batch.events.len() as u64, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        Ok(Vec::new())
    }

    async fn read(&self, _: Position, _: &Selection, _: usize) -> Result<Vec<Event>, StoreError> {
        Ok(Vec::new())
    }

    fn watch(&self) -> BoxStream<'static, Live> {
        Box::pin(stream::empty())
    }

    fn publish(&self, _: Delta) {}

    async fn head(&self) -> Result<Position, StoreError> {
        Ok(Position(self.events()))
    }

    async fn blob(&self, _: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(None)
    }

    async fn acquire(&self, run: RunId, owner: &str, _: Span) -> Result<Lease, StoreError> {
        let until = Timestamp::from_micros(i64::MAX);
        Ok(Lease { run, owner: owner.to_owned(), token: 1, until })
    }

    async fn renew(&self, lease: &Lease, _: Span) -> Result<Lease, StoreError> {
        Ok(lease.clone())
    }

    async fn release(&self, _: &Lease) -> Result<(), StoreError> {
        Ok(())
    }

    async fn audit(&self, run: RunId) -> Result<Audit, StoreError> {
        Err(StoreError::NoSuchRun { run })
    }
}

#[async_trait]
impl Views for NullStore {
    async fn runs(&self, _: Option<RunId>, _: usize) -> Result<Vec<RunRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: RunId) -> Result<Option<RunRow>, StoreError> {
        Ok(None)
    }

    async fn tasks(&self, _: RunId) -> Result<Vec<TaskRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn attempts(&self, _: TaskId) -> Result<Vec<AttemptRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn checks(&self, _: RunId) -> Result<Vec<CheckRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn calls(&self, _: RunId) -> Result<Vec<CallRow>, StoreError> {
        Ok(Vec::new())
    }
}
