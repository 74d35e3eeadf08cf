//! Tools that run programs, and what these change in the workspace.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Clock, EventBody, Journal, NewEvent, Principal, ToolCall, ToolClass, ToolErrorKind,
    ToolResult, ToolSpec, Toolbox,
    tool::{CallContext, ToolReply},
};

use crate::{
    Error,
    baseline::{Baselines, around},
    error::chain,
};

/// The tools of a session. Around each that runs a program the workspace is compared, since a program
/// does not tell what it changes.
///
/// What was there before is durable before the program begins. A comparison that a killed or cancelled
/// call leaves out is made by whoever takes the run up, or takes it back.
pub(crate) struct Watched {
    pub(crate) tools: Arc<dyn Toolbox>,
    pub(crate) baselines: Arc<Baselines>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) principal: Principal,
}

impl Watched {
    /// Tells whether a call may change files without telling which.
    fn runs_a_program(&self, call: &ToolCall) -> bool {
        let offered = self.tools.offered();
        let spec = offered.iter().find(|spec| spec.definition.name.as_str() == call.name);
        spec.is_some_and(|spec| matches!(spec.class, ToolClass::Exec | ToolClass::Shell))
    }

    fn put(&self, context: &CallContext, journal: &Journal, bodies: Vec<EventBody>) {
        let at = self.clock.now();
        let facts = bodies.into_iter().map(|body| NewEvent {
            task: Some(context.task),
            principal: self.principal.clone(),
            at,
            body,
            idempotency_key: None,
        });
        journal.put(facts, []);
    }
}

#[async_trait]
impl Toolbox for Watched {
    fn offered(&self) -> Vec<ToolSpec> {
        self.tools.offered()
    }

    async fn call(
        &self,
        context: &CallContext,
        call: &ToolCall,
        journal: &Journal,
        cancel: &Cancel,
    ) -> ToolReply {
        if !self.runs_a_program(call) {
            return self.tools.call(context, call, journal, cancel).await;
        }
        let before = match self.baselines.before().await {
            Ok(Some(before)) => before,
            Ok(None) => return self.tools.call(context, call, journal, cancel).await,
            Err(error) => return refused(call, &error),
        };
        // With the intent, which the tool makes durable before it begins.
        self.put(context, journal, vec![around(&before, context.call)]);
        let reply = self.tools.call(context, call, journal, cancel).await;
        if let Ok(bodies) = self.baselines.after(before, context.call).await {
            self.put(context, journal, bodies);
        }
        reply
    }
}

/// Says that a program was not run because what it changes could not be told.
fn refused(call: &ToolCall, error: &Error) -> ToolReply {
    let kind = ToolErrorKind::Failed.as_str();
    let content = format!(
        "error ({kind}): {} was not called: the workspace could not be looked at before: {}",
        call.name,
        chain(error)
    );
    let result =
        ToolResult { call_id: call.id.clone(), name: call.name.clone(), content, is_error: true };
    ToolReply { result, control: formwork_protocols::tool::Control::Continue }
}
