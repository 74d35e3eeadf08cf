//! A log that tells what reaches it together, and fails or waits when a test wants it to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, Event, EventStore, Position, RunId, Span, StoreError,
    event::{BlobHash, Delta},
    store::{Audit, Lease, Live, Recorded, Selection},
};
use formwork_trace::Trace;
use futures::stream::BoxStream;
use tokio::sync::Semaphore;

/// A real log behind a door.
pub(crate) struct Watched {
    trace: Trace,
    /// The kinds of the events of each append, in order.
    appends: Mutex<Vec<Vec<String>>>,
    /// One permit for each append that may pass.
    door: Semaphore,
    /// Whether the disk is full.
    pub(crate) is_full: AtomicBool,
}

impl Watched {
    /// Lets everything pass.
    pub(crate) fn open(trace: Trace) -> Arc<Self> {
        Self::with_door(trace, Semaphore::MAX_PERMITS)
    }

    /// Lets nothing pass before [`Watched::let_pass`].
    pub(crate) fn closed(trace: Trace) -> Arc<Self> {
        Self::with_door(trace, 0)
    }

    fn with_door(trace: Trace, permits: usize) -> Arc<Self> {
        let (appends, is_full) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { trace, appends, door: Semaphore::new(permits), is_full })
    }

    pub(crate) fn let_pass(&self, appends: usize) {
        self.door.add_permits(appends);
    }

    pub(crate) fn appends(&self) -> Vec<Vec<String>> {
        self.appends.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventStore for Watched {
    async fn append(&self, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        let kinds = batch.events.iter().map(|event| event.body.kind().to_owned()).collect();
        self.door.acquire().await.unwrap().forget();
        if self.is_full.load(Ordering::SeqCst) {
            let (at, reason) = ("the test".to_owned(), "the disk is full".to_owned());
            return Err(StoreError::Unavailable { at, reason });
        }
        let done = self.trace.append(batch).await;
        self.appends.lock().unwrap().push(kinds);
        done
    }

    async fn read(
        &self,
        after: Position,
        selection: &Selection,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.trace.read(after, selection, limit).await
    }

    fn watch(&self) -> BoxStream<'static, Live> {
        self.trace.watch()
    }

    fn publish(&self, delta: Delta) {
        self.trace.publish(delta);
    }

    async fn head(&self) -> Result<Position, StoreError> {
        self.trace.head().await
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        self.trace.blob(hash).await
    }

    async fn acquire(&self, run: RunId, owner: &str, for_: Span) -> Result<Lease, StoreError> {
        self.trace.acquire(run, owner, for_).await
    }

    async fn renew(&self, lease: &Lease, for_: Span) -> Result<Lease, StoreError> {
        self.trace.renew(lease, for_).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.trace.release(lease).await
    }

    async fn audit(&self, run: RunId) -> Result<Audit, StoreError> {
        self.trace.audit(run).await
    }
}
