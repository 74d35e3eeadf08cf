//! The word of people on its way to the conversations of a run.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use formwork_protocols::{EventBody, Position, RunId, Store, StoreError, store::Selection};
use formwork_session::{Inbox, Steering};

/// Returns what an event says to the conversations of its run: what somebody tells them, and what was assumed wrongly, which
/// they may build on.
pub(crate) fn said(body: &EventBody) -> Option<String> {
    match body {
        EventBody::RunSteered(steered) => Some(steered.text.clone()),
        EventBody::InboxContradicted(said) => Some(format!(
            "What was assumed is wrong: {said}. What rests on it may have to be other."
        )),
        _ => None,
    }
}

/// How many are taken at once; the rest comes at the next turn.
const AT_ONCE: usize = 32;

/// Reads from the log what was said to a run, from whatever process.
pub(crate) struct FromLog {
    store: Arc<dyn Store>,
    run: RunId,
    /// Up to where nothing more is to be found.
    looked: Mutex<Position>,
}

impl FromLog {
    pub(crate) fn new(store: Arc<dyn Store>, run: RunId) -> Self {
        Self { store, run, looked: Mutex::default() }
    }
}

#[async_trait]
impl Inbox for FromLog {
    async fn take(&self, after: u64, _: u32) -> Result<Vec<Steering>, StoreError> {
        let kinds = ["run.steered", "inbox.contradicted"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(self.run), task: None, kinds };
        let mut position = *self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let page = self.store.read_on(&mut position, &selection, AT_ONCE).await?;
            let is_last = page.len() < AT_ONCE;
            let said: Vec<Steering> = page
                .into_iter()
                .filter(|event| event.seq > after)
                .filter_map(|event| {
                    let text = said(&event.body)?;
                    Some(Steering { seq: event.seq, by: event.principal, text })
                })
                .collect();
            if !said.is_empty() {
                // They are found again until whoever takes them says so.
                return Ok(said);
            }
            *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = position;
            if is_last {
                return Ok(said);
            }
        }
    }
}
