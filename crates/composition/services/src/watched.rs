//! Tools that run programs, and what these change in the workspace.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use formwork_protocols::{
    CallId, Clock, EventBody, Journal, NewEvent, Principal, ToolClass, ToolError, ToolErrorKind,
    tool::CallContext,
};
use formwork_tool::Around;
use formwork_write_safety::Snapshot;

use crate::{
    baseline::{Baselines, around},
    error::chain,
};

/// Compares the workspace around each call that runs a program, since a program does not tell what it
/// changes. What a person changes while they are asked about a call is no part of it.
///
/// What was there before is durable before the program begins. A comparison that a killed or cancelled
/// call leaves out is made by whoever takes the run up, or takes it back.
pub(crate) struct Watched {
    pub(crate) baselines: Arc<Baselines>,
    /// The token of the run's lease, if it is leased.
    pub(crate) token: Option<u64>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) principal: Principal,
    /// What there was before each call that is under way.
    pub(crate) before: Mutex<HashMap<CallId, Snapshot>>,
}

impl Watched {
    fn facts(&self, context: &CallContext, bodies: Vec<EventBody>) -> Vec<NewEvent> {
        let at = self.clock.now();
        let fact = |body| NewEvent {
            task: Some(context.task),
            principal: self.principal.clone(),
            at,
            body,
            idempotency_key: None,
        };
        bodies.into_iter().map(fact).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, Snapshot>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Around for Watched {
    async fn before(
        &self,
        context: &CallContext,
        class: ToolClass,
        journal: &Journal,
    ) -> Result<(), ToolError> {
        if !matches!(class, ToolClass::Exec | ToolClass::Shell) {
            return Ok(());
        }
        let looked = self.baselines.before(context.run, self.token).await;
        let before = looked.map_err(|error| {
            let told = format!("the workspace could not be looked at before: {}", chain(&error));
            ToolError::new(ToolErrorKind::Failed, told)
        })?;
        // With the intent, which is durable before the tool begins.
        journal.put(self.facts(context, vec![around(&before, context.call)]), []);
        self.lock().insert(context.call, before);
        Ok(())
    }

    async fn after(&self, context: &CallContext) -> Result<Vec<NewEvent>, ToolError> {
        let Some(before) = self.lock().remove(&context.call) else { return Ok(Vec::new()) };
        // Without an end in the log it is looked at again by whoever takes the run up or takes it back.
        let found = self.baselines.after(before, context.call).await.map_err(|error| {
            let told = format!(
                "the workspace could not be looked at after it, so that what it changed is not known: {}",
                chain(&error)
            );
            ToolError::new(ToolErrorKind::Failed, told)
        })?;
        Ok(self.facts(context, found))
    }
}
