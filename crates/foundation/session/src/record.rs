//! What is written into the log, in as few appends as its promises allow.

use std::sync::Arc;

use formwork_protocols::{
    Blob, Clock, EventBody, Journal, Message, NewEvent, Principal, Scrub, SessionId, StoreError,
    TaskId, canonical, event::SessionMessage,
};

use crate::{
    Error,
    spec::{Seams, SessionSpec},
};

/// Gathers facts until somebody needs them to be durable, together with those of the tools.
///
/// A result of a tool and a sentence of the runtime wait for the next request, which follows at once. An
/// answer of the model and its cost wait for the intents of its calls, and for nothing longer.
pub(crate) struct Record {
    session: SessionId,
    principal: Principal,
    journal: Journal,
    clock: Arc<dyn Clock>,
    scrub: Arc<dyn Scrub>,
    /// The place of the next message.
    next: u32,
}

impl Record {
    /// Begins with nothing gathered; `next` is the place of the next message of the conversation.
    pub(crate) fn new(spec: &SessionSpec, seams: &Seams, session: SessionId, next: u32) -> Self {
        Self {
            session,
            principal: spec.principal.clone(),
            journal: Journal::new(Arc::clone(&seams.store), spec.run, spec.token),
            clock: Arc::clone(&seams.clock),
            scrub: Arc::clone(&seams.scrub),
            next,
        }
    }

    /// Goes on with another conversation, of which nothing is gathered yet.
    pub(crate) const fn begin(&mut self, session: SessionId) {
        (self.session, self.next) = (session, 0);
    }

    /// Returns the place of the next message.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// Gathers a fact.
    pub(crate) fn put(&self, task: TaskId, body: EventBody) {
        let event = self.event(task, body);
        self.journal.put([event], []);
    }

    /// Gathers a fact and the bytes that it refers to.
    pub(crate) fn put_with(&self, task: TaskId, body: EventBody, blob: Blob) {
        self.journal.put([self.event(task, body)], [blob]);
    }

    fn event(&self, task: TaskId, body: EventBody) -> NewEvent {
        NewEvent {
            task: Some(task),
            principal: self.principal.clone(),
            at: self.clock.now(),
            body,
            idempotency_key: None,
        }
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
        let attached = message.attachments().map(|attachment| attachment.blob).collect();
        let (role, hash) = (message.role, blob.hash());
        let said = SessionMessage { session, index, role, message: hash, attached };
        self.journal.put([self.event(task, EventBody::SessionMessage(said))], [blob]);
        Ok(message)
    }

    /// Makes everything gathered durable, in one append.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        self.journal.flush().await.map_err(|source| self.failed(source))
    }

    /// Returns where the tools put what they have to say.
    pub(crate) const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Says which conversation could not reach the store.
    pub(crate) const fn failed(&self, source: StoreError) -> Error {
        Error::Store { session: self.session, source }
    }
}
