//! Facts on their way into the log, so that what belongs together waits for the disk together.

use std::{
    fmt, future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};

use crate::{Append, Blob, EventStore, NewEvent, RunId, StoreError};

/// Gathers the facts of one conversation until one of them has to be durable; then all go in one append.
///
/// A conversation and the tools that it calls share it: a model's answer is made durable together with
/// the intents of its calls, and their outcomes together with the next request. A turn so waits for the
/// disk twice, however much it has to say; and once where its calls change nothing, since what is posted
/// before them shares the commit of the next request.
pub struct Journal {
    store: Arc<dyn EventStore>,
    run: RunId,
    token: Option<u64>,
    state: Mutex<State>,
}

/// What is handed to the store, and what several may wait for.
#[derive(Clone)]
struct UnderWay {
    class: Class,
    ended: Shared<BoxFuture<'static, Result<(), StoreError>>>,
}

/// Whether what is handed to the store is durable when the store has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Sync,
    Batched,
}

#[derive(Default)]
struct State {
    events: Vec<NewEvent>,
    blobs: Vec<Blob>,
    /// How often something was gathered; and up to which time what was gathered was handed to the store, and is
    /// durable.
    gathered: u64,
    sent: u64,
    durable: u64,
    /// What is being handed to the store. It is kept here and not by whoever began it, so that it ends although that
    /// one is dropped.
    under_way: Option<UnderWay>,
    /// What an append failed of. Nothing is written after it: the facts before would be missing.
    failed: Option<StoreError>,
}

impl Journal {
    /// Begins with nothing gathered. `token` is that of the run's lease, if it is leased.
    pub fn new(store: Arc<dyn EventStore>, run: RunId, token: Option<u64>) -> Self {
        Self { store, run, token, state: Mutex::default() }
    }

    /// Gathers facts, in order, with the bytes that they refer to. They must have been scrubbed.
    pub fn put(
        &self,
        events: impl IntoIterator<Item = NewEvent>,
        blobs: impl IntoIterator<Item = Blob>,
    ) {
        let mut state = self.lock();
        state.events.extend(events);
        state.blobs.extend(blobs);
        state.gathered += 1;
    }

    /// Returns everything gathered and not yet on its way, for somebody else to append.
    pub fn take(&self) -> (Vec<NewEvent>, Vec<Blob>) {
        let mut state = self.lock();
        (state.sent, state.durable) = (state.gathered, state.gathered);
        (std::mem::take(&mut state.events), std::mem::take(&mut state.blobs))
    }

    /// Hands everything gathered so far to the store without waiting for the disk, together with what others gather
    /// who are about to do the same. It is durable soon, and before whatever is flushed later.
    ///
    /// Cancel safe: what a dropped call has begun is finished by the next one.
    ///
    /// # Errors
    /// As [`Journal::flush`].
    pub async fn post(&self) -> Result<(), StoreError> {
        yield_once().await;
        let wanted = self.lock().gathered;
        self.until(wanted, Class::Batched).await
    }

    /// Makes everything gathered so far durable, in one append.
    ///
    /// Cancel safe: what a dropped call has begun to write is finished by the next one.
    ///
    /// # Errors
    /// What the store says, from then on always: later facts do not stand without the lost ones.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let wanted = self.lock().gathered;
        self.until(wanted, Class::Sync).await
    }

    /// Hands over what was gathered up to a time, and waits until it is as durable as is wanted.
    async fn until(&self, wanted: u64, class: Class) -> Result<(), StoreError> {
        loop {
            let Some(under_way) = self.next(wanted, class)? else { return Ok(()) };
            let _done = under_way.ended.await;
            let mut state = self.lock();
            // Whoever else waited for it may have cleared it away and begun the next one: what counts is how the one
            // ended that stands there now.
            let there = state.under_way.as_ref();
            let ended = there.and_then(|there| Some((there.class, there.ended.peek().cloned()?)));
            match ended {
                None => {}
                Some((Class::Sync, Ok(()))) => {
                    (state.under_way, state.durable) = (None, state.sent);
                }
                Some((Class::Batched, Ok(()))) => state.under_way = None,
                Some((_, Err(error))) => (state.under_way, state.failed) = (None, Some(error)),
            }
        }
    }

    /// Returns what is being handed over, or begins with all that is gathered; none once what is wanted is done.
    fn next(&self, wanted: u64, class: Class) -> Result<Option<UnderWay>, StoreError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if let Some(under_way) = &state.under_way {
            return Ok(Some(under_way.clone()));
        }
        let done = match class {
            Class::Sync => state.durable,
            Class::Batched => state.sent,
        };
        if done >= wanted {
            return Ok(None);
        }
        state.sent = state.gathered;
        // It has no events where all were posted: then it waits for those.
        let batch = Append {
            run: self.run,
            token: self.token,
            events: std::mem::take(&mut state.events),
            blobs: std::mem::take(&mut state.blobs),
        };
        let store = Arc::clone(&self.store);
        let ended = async move {
            match class {
                Class::Sync => store.append(batch).await.map(drop),
                Class::Batched => store.post(batch).await,
            }
        };
        let under_way = UnderWay { class, ended: ended.boxed().shared() };
        state.under_way = Some(under_way.clone());
        Ok(Some(under_way))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Journal")
            .field("run", &self.run)
            .field("events", &state.events.len())
            .finish_non_exhaustive()
    }
}

/// Lets whoever else is ready go on first.
async fn yield_once() {
    let mut has_yielded = false;
    future::poll_fn(|context| match std::mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}
