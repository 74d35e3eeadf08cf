//! Tools that run programs, and what these change in the workspace.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use formwork_protocols::{
    CallId, Clock, EventBody, Journal, NewEvent, Principal, ToolClass, ToolError, ToolErrorKind,
    ToolName, ToolSpec, tool::CallContext,
};
use formwork_tool::Around;

use crate::{
    baseline::{Baselines, Watch},
    error::chain,
    reach::Reach,
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
    /// Where the programs of calls can write.
    pub(crate) reach: Reach,
    /// The tools that nothing holds, since they are the embedder's own.
    pub(crate) free: BTreeSet<ToolName>,
    /// What there was before each call that is under way.
    pub(crate) before: Mutex<HashMap<CallId, Watch>>,
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

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, Watch>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Around for Watched {
    async fn before(
        &self,
        context: &CallContext,
        tool: &ToolSpec,
        journal: &Journal,
    ) -> Result<(), ToolError> {
        if !matches!(tool.class, ToolClass::Exec | ToolClass::Shell) {
            return Ok(());
        }
        let reach = match self.free.contains(&tool.definition.name) {
            true => Reach::Anywhere,
            false => self.reach.clone(),
        };
        let looked = self.baselines.before((context.run, self.token), context.call, reach).await;
        let (watch, begun, blobs) = looked.map_err(|error| {
            let told = format!("the workspace could not be looked at before: {}", chain(&error));
            ToolError::new(ToolErrorKind::Failed, told)
        })?;
        // With the intent, which is durable before the tool begins.
        journal.put(self.facts(context, vec![begun]), blobs);
        self.lock().insert(context.call, watch);
        Ok(())
    }

    async fn after(&self, context: &CallContext) -> Result<Vec<NewEvent>, ToolError> {
        let Some(watch) = self.lock().remove(&context.call) else { return Ok(Vec::new()) };
        // Without an end in the log it is looked at again by whoever takes the run up or takes it back.
        let found = self.baselines.after(&watch).await.map_err(|error| {
            let told = format!(
                "the workspace could not be looked at after it, so that what it changed is not known: {}",
                chain(&error)
            );
            ToolError::new(ToolErrorKind::Failed, told)
        })?;
        watch.end();
        Ok(self.facts(context, found))
    }
}
