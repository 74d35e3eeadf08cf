//! A real store with something between it and whoever uses it: it may refuse, wait, count, or end the process.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Append, BlobHash, Event, EventStore, Live, Position, RunId, Span, Store, StoreError, TaskId,
    Views,
    event::Delta,
    store::{AttemptRow, Audit, CallRow, CheckRow, Lease, Recorded, RunRow, Selection, TaskRow},
};
use futures::stream::BoxStream;

/// What stands between a store and whoever uses it. What it does not say passes.
#[async_trait]
pub trait Between: Send + Sync + 'static {
    /// Passes an append on, or not.
    ///
    /// # Errors
    /// What whoever appends is to be told.
    async fn append(&self, store: &dyn Store, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        store.append(batch).await
    }

    /// Passes on what nobody waits for, or not.
    ///
    /// # Errors
    /// As [`Between::append`].
    async fn post(&self, store: &dyn Store, batch: Append) -> Result<(), StoreError> {
        store.post(batch).await
    }

    /// Tells whether somebody may own a run.
    ///
    /// # Errors
    /// Why not.
    fn may_own(&self, _run: RunId) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store with something before it.
pub struct Through<B> {
    store: Arc<dyn Store>,
    /// What is before it.
    pub between: B,
}

impl<B: Between> Through<B> {
    /// Puts `between` before a store.
    pub fn new(store: Arc<dyn Store>, between: B) -> Self {
        Self { store, between }
    }
}

#[async_trait]
impl<B: Between> EventStore for Through<B> {
    async fn append(&self, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        self.between.append(&*self.store, batch).await
    }

    async fn post(&self, batch: Append) -> Result<(), StoreError> {
        self.between.post(&*self.store, batch).await
    }

    async fn read(
        &self,
        after: Position,
        selection: &Selection,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.store.read(after, selection, limit).await
    }

    fn watch(&self) -> BoxStream<'static, Live> {
        self.store.watch()
    }

    fn publish(&self, delta: Delta) {
        self.store.publish(delta);
    }

    async fn head(&self) -> Result<Position, StoreError> {
        self.store.head().await
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.blob(hash).await
    }

    async fn acquire(&self, run: RunId, owner: &str, for_: Span) -> Result<Lease, StoreError> {
        self.between.may_own(run)?;
        self.store.acquire(run, owner, for_).await
    }

    async fn take_over(
        &self,
        run: RunId,
        gone: &str,
        owner: &str,
        for_: Span,
    ) -> Result<Lease, StoreError> {
        self.between.may_own(run)?;
        self.store.take_over(run, gone, owner, for_).await
    }

    async fn renew(&self, lease: &Lease, for_: Span) -> Result<Lease, StoreError> {
        self.store.renew(lease, for_).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.store.release(lease).await
    }

    async fn audit(&self, run: RunId) -> Result<Audit, StoreError> {
        self.store.audit(run).await
    }
}

#[async_trait]
impl<B: Between> Views for Through<B> {
    async fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunRow>, StoreError> {
        self.store.runs(before, limit).await
    }

    async fn run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.store.run(run).await
    }

    async fn tasks(&self, run: RunId) -> Result<Vec<TaskRow>, StoreError> {
        self.store.tasks(run).await
    }

    async fn attempts(&self, task: TaskId) -> Result<Vec<AttemptRow>, StoreError> {
        self.store.attempts(task).await
    }

    async fn checks(&self, run: RunId) -> Result<Vec<CheckRow>, StoreError> {
        self.store.checks(run).await
    }

    async fn calls(&self, run: RunId) -> Result<Vec<CallRow>, StoreError> {
        self.store.calls(run).await
    }
}
