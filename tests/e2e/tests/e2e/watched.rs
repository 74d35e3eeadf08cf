//! A log that tells what reaches it together, and fails or waits when a test wants it to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use formwork_protocols::{Append, Store, StoreError, store::Recorded};
use formwork_testkit::between::{Between, Through};
use formwork_trace::Trace;
use tokio::sync::Semaphore;

/// A real log behind a door.
pub(crate) type Watched = Through<Door>;

/// What is before it.
pub(crate) struct Door {
    /// The kinds of the events of each append, in order.
    appends: Mutex<Vec<Vec<String>>>,
    /// One permit for each append that may pass.
    permits: Semaphore,
    /// Whether the disk is full.
    pub(crate) is_full: AtomicBool,
}

/// Lets everything pass.
pub(crate) fn open(trace: Trace) -> Arc<Watched> {
    with_door(trace, Semaphore::MAX_PERMITS)
}

/// Lets nothing pass before [`Door::let_pass`].
pub(crate) fn closed(trace: Trace) -> Arc<Watched> {
    with_door(trace, 0)
}

fn with_door(trace: Trace, permits: usize) -> Arc<Watched> {
    let (appends, is_full) = (Mutex::default(), AtomicBool::new(false));
    let door = Door { appends, permits: Semaphore::new(permits), is_full };
    Arc::new(Through::new(Arc::new(trace), door))
}

impl Door {
    pub(crate) fn let_pass(&self, appends: usize) {
        self.permits.add_permits(appends);
    }

    pub(crate) fn appends(&self) -> Vec<Vec<String>> {
        self.appends.lock().unwrap().clone()
    }
}

#[async_trait]
impl Between for Door {
    async fn append(&self, store: &dyn Store, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        let kinds = batch.events.iter().map(|event| event.body.kind().to_owned()).collect();
        self.permits.acquire().await.unwrap().forget();
        if self.is_full.load(Ordering::SeqCst) {
            let (at, reason) = ("the test".to_owned(), "the disk is full".to_owned());
            return Err(StoreError::Unavailable { at, reason });
        }
        let done = store.append(batch).await;
        self.appends.lock().unwrap().push(kinds);
        done
    }

    async fn post(&self, store: &dyn Store, batch: Append) -> Result<(), StoreError> {
        self.append(store, batch).await.map(drop)
    }
}
