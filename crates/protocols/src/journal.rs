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
/// disk twice, however much it has to say.
pub struct Journal {
    store: Arc<dyn EventStore>,
    run: RunId,
    token: Option<u64>,
    state: Mutex<State>,
}

/// An append that several may wait for.
type UnderWay = Shared<BoxFuture<'static, Result<(), StoreError>>>;

#[derive(Default)]
struct State {
    events: Vec<NewEvent>,
    blobs: Vec<Blob>,
    /// How often something was gathered; and up to which time what was gathered is on its way, and durable.
    gathered: u64,
    sent: u64,
    durable: u64,
    /// Whether something gathered has to be durable before even a read is made.
    due: bool,
    /// The append under way. It is kept here and not by whoever began it, so that it ends although that
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

    /// Says that what is gathered must be durable before anything is done by it.
    pub fn set_due(&self) {
        self.lock().due = true;
    }

    /// Returns everything gathered and not yet on its way, for somebody else to append.
    pub fn take(&self) -> (Vec<NewEvent>, Vec<Blob>) {
        let mut state = self.lock();
        state.due = false;
        (state.sent, state.durable) = (state.gathered, state.gathered);
        (std::mem::take(&mut state.events), std::mem::take(&mut state.blobs))
    }

    /// Makes everything gathered durable if some of it is due, together with what others gather who are about to do
    /// the same.
    ///
    /// # Errors
    /// As [`Journal::flush`].
    pub async fn flush_due(&self) -> Result<(), StoreError> {
        let is_due = {
            let state = self.lock();
            state.due || state.under_way.is_some() || state.failed.is_some()
        };
        if !is_due {
            return Ok(());
        }
        yield_once().await;
        self.flush().await
    }

    /// Makes everything gathered so far durable, in one append.
    ///
    /// Cancel safe: what a dropped call has begun to write is finished by the next one.
    ///
    /// # Errors
    /// What the store says, from then on always: later facts do not stand without the lost ones.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let wanted = self.lock().gathered;
        loop {
            let Some(append) = self.next(wanted)? else { return Ok(()) };
            let _done = append.await;
            let mut state = self.lock();
            // Whoever else waited for it may have cleared it away and begun the next one: what counts is how the one
            // ended that stands there now.
            let ended = state.under_way.as_ref().and_then(|under_way| under_way.peek().cloned());
            match ended {
                None => {}
                Some(Ok(())) => (state.under_way, state.durable) = (None, state.sent),
                Some(Err(error)) => (state.under_way, state.failed) = (None, Some(error)),
            }
        }
    }

    /// Returns the append under way, or begins one with all that is gathered; none once what is wanted is durable.
    fn next(&self, wanted: u64) -> Result<Option<UnderWay>, StoreError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        if let Some(under_way) = &state.under_way {
            return Ok(Some(under_way.clone()));
        }
        if state.durable >= wanted {
            return Ok(None);
        }
        (state.due, state.sent) = (false, state.gathered);
        let batch = Append {
            run: self.run,
            token: self.token,
            events: std::mem::take(&mut state.events),
            blobs: std::mem::take(&mut state.blobs),
        };
        let store = Arc::clone(&self.store);
        let append = async move { store.append(batch).await.map(drop) }.boxed().shared();
        state.under_way = Some(append.clone());
        Ok(Some(append))
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
            .field("due", &state.due)
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
