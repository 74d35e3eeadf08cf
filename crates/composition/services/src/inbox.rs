//! The word of people on its way to the conversations of a run.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{EventBody, Position, RunId, Store, StoreError, store::Selection};
use formwork_session::{Inbox, Steering};

/// How many are taken at once; the rest comes at the next turn.
const AT_ONCE: usize = 32;

/// Reads from the log what was said to a run, from whatever process.
pub(crate) struct FromLog {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: RunId,
}

#[async_trait]
impl Inbox for FromLog {
    async fn take(&self, after: u64, _: u32) -> Result<Vec<Steering>, StoreError> {
        let kinds = vec!["run.steered".to_owned()];
        let selection = Selection { run: Some(self.run), task: None, kinds };
        let (mut said, mut position) = (Vec::new(), Position::default());
        loop {
            let page = self.store.read(position, &selection, 1_000).await?;
            let Some(last) = page.last() else { return Ok(said) };
            position = last.position;
            for event in page {
                if let EventBody::RunSteered(steered) = event.body
                    && event.seq > after
                {
                    said.push(Steering { seq: event.seq, by: event.principal, text: steered.text });
                    if said.len() == AT_ONCE {
                        return Ok(said);
                    }
                }
            }
        }
    }
}
