//! What is written into the log, in as few appends as its promises allow.

use std::sync::Arc;

use formwork_protocols::{
    Append, Blob, Clock, EventBody, EventStore, Message, NewEvent, Principal, RunId, Scrub,
    SessionId, StoreError, TaskId, canonical, event::SessionMessage,
};

use crate::{
    Error,
    spec::{Seams, SessionSpec},
};

/// Gathers facts until somebody needs them to be durable.
///
/// A result of a tool is durable before it gets here, and a sentence of the runtime follows from what is
/// in the log: both can wait for the next append. An answer of the model and its cost cannot.
pub(crate) struct Record {
    run: RunId,
    session: SessionId,
    token: Option<u64>,
    principal: Principal,
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    scrub: Arc<dyn Scrub>,
    events: Vec<NewEvent>,
    blobs: Vec<Blob>,
    /// The place of the next message.
    next: u32,
}

impl Record {
    /// Begins with nothing gathered; `next` is the place of the next message of the conversation.
    pub(crate) fn new(spec: &SessionSpec, seams: &Seams, session: SessionId, next: u32) -> Self {
        Self {
            run: spec.run,
            session,
            token: spec.token,
            principal: spec.principal.clone(),
            store: Arc::clone(&seams.store),
            clock: Arc::clone(&seams.clock),
            scrub: Arc::clone(&seams.scrub),
            events: Vec::new(),
            blobs: Vec::new(),
            next,
        }
    }

    /// Gathers a fact.
    pub(crate) fn put(&mut self, task: TaskId, body: EventBody) {
        self.events.push(NewEvent {
            task: Some(task),
            principal: self.principal.clone(),
            at: self.clock.now(),
            body,
            idempotency_key: None,
        });
    }

    /// Takes the secrets out of a message and gathers it. Returns it as it is recorded.
    pub(crate) fn put_message(
        &mut self,
        task: TaskId,
        message: &Message,
    ) -> Result<Message, Error> {
        let session = self.session;
        let unwritable = |source| Error::UnwritableMessage { session, source };
        let mut value = serde_json::to_value(message).map_err(unwritable)?;
        self.scrub.scrub_value(&mut value);
        let text = canonical::to_string(&value).map_err(unwritable)?;
        let message: Message = serde_json::from_value(value).map_err(unwritable)?;

        let blob = Blob::new(text.into_bytes());
        let index = self.next;
        self.next = self.next.saturating_add(1);
        let said = SessionMessage { session, index, role: message.role, message: blob.hash() };
        self.blobs.push(blob);
        self.put(task, EventBody::SessionMessage(said));
        Ok(message)
    }

    /// Makes everything gathered durable, in one append.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        if self.events.is_empty() {
            return Ok(());
        }
        let batch = Append {
            run: self.run,
            token: self.token,
            events: std::mem::take(&mut self.events),
            blobs: std::mem::take(&mut self.blobs),
        };
        let appended = self.store.append(batch).await;
        appended.map(drop).map_err(|source| self.failed(source))
    }

    /// Says which conversation could not reach the store.
    pub(crate) const fn failed(&self, source: StoreError) -> Error {
        Error::Store { session: self.session, source }
    }
}
