//! What the rules say of a call, and who is asked where they leave it open.

use formwork_policy::{Call, Decision, alike, exact};
use formwork_protocols::{
    Approval, ApprovalRequest, Cancel, EventBody, Journal, NewEvent, Principal, Tool, ToolCall,
    ToolClass, ToolError, ToolErrorKind,
    event::{ToolAsked, ToolDecided},
    tool::CallContext,
};
use serde_json::Value;

use super::{Pipeline, shorten};
use crate::builtin::shell;

/// A call that is to be judged.
pub(super) struct Question<'a> {
    pub(super) context: &'a CallContext,
    pub(super) call: &'a ToolCall,
    pub(super) tool: &'a dyn Tool,
    pub(super) arguments: &'a Value,
}

impl Pipeline {
    /// Holds a call against the rules, and asks where these leave it open.
    pub(super) async fn judge(
        &self,
        question: &Question<'_>,
        seams: (&Journal, &Cancel),
    ) -> Result<(), ToolError> {
        let spec = question.tool.spec();
        let argv: Option<Vec<String>> = match spec.class {
            ToolClass::Exec => Some(words(question.arguments.get("command"))),
            ToolClass::Shell => {
                let text = question.arguments.get("command").and_then(Value::as_str);
                Some(shell::argv(text.unwrap_or_default()))
            }
            _ => None,
        };
        let named = question.tool.paths(question.arguments);
        let paths: Vec<&str> = named.iter().map(String::as_str).collect();
        let call = Call {
            tool: &spec.definition.name,
            class: spec.class,
            argv: argv.as_deref(),
            paths: &paths,
        };
        match self.parts.policy.decide(&call) {
            Decision::Allow => Ok(()),
            Decision::Ask { .. } if self.parts.grants.cover(&call, question.arguments) => Ok(()),
            Decision::Ask { why } => self.ask(question, &call, why, seams).await,
            Decision::Deny { why } => Err(ToolError::new(ToolErrorKind::Denied, why)),
        }
    }

    /// Asks about a call, and records the question before and the answer after.
    async fn ask(
        &self,
        question: &Question<'_>,
        call: &Call<'_>,
        why: String,
        (journal, cancel): (&Journal, &Cancel),
    ) -> Result<(), ToolError> {
        let Question { context, call: made, tool, arguments } = question;
        let mut shown = (*arguments).clone();
        self.parts.scrub.scrub_value(&mut shown);
        let why = self.told(&why);
        let mut recorded = shown.clone();
        shorten(&mut recorded);
        let asked = ToolAsked {
            call: context.call,
            session: context.session,
            pair: made.id.clone(),
            tool: call.tool.to_string(),
            class: call.class,
            arguments: recorded,
            why: why.clone(),
        };
        self.put(context, journal, [EventBody::ToolAsked(asked)], []);
        // An open question is state: whoever looks sees it, and whoever takes the run up asks it again.
        journal.flush().await.map_err(|error| {
            ToolError::new(
                ToolErrorKind::Failed,
                format!("the question could not be recorded: {error}"),
            )
        })?;
        let request = ApprovalRequest {
            context: (*context).clone(),
            tool: tool.spec().definition.name.clone(),
            class: call.class,
            arguments: shown,
            why,
            exact: exact(call, arguments),
            alike: alike(call),
        };
        let Some(answer) = self.parts.approver.ask(&request, cancel).await else {
            let told = "nothing was done: the run was stopped while it was asked whether this call may be made. \
                        Make it again if it is still wanted.";
            return Err(ToolError::new(ToolErrorKind::Cancelled, told));
        };
        let approval = self.kept(answer.approval);
        let decided = ToolDecided {
            call: context.call,
            session: context.session,
            pair: made.id.clone(),
            approval: approval.clone(),
        };
        self.put_by(answer.by, context, journal, EventBody::ToolDecided(decided));
        match approval {
            Approval::Denied { reason } => Err(ToolError::new(ToolErrorKind::Denied, reason)),
            Approval::Session { covers } | Approval::Rule { covers } => {
                self.parts.grants.add(covers);
                Ok(())
            }
            Approval::Once => Ok(()),
            // A kind of answer that this version does not know approves nothing.
            _ => Err(ToolError::new(ToolErrorKind::Denied, "the answer could not be understood")),
        }
    }

    /// Returns an answer as it is recorded: a person may have typed anything.
    fn kept(&self, approval: Approval) -> Approval {
        match approval {
            Approval::Denied { reason } => Approval::Denied { reason: self.told(&reason) },
            other => other,
        }
    }

    fn put_by(&self, by: Principal, context: &CallContext, journal: &Journal, body: EventBody) {
        let event = NewEvent {
            task: Some(context.task),
            principal: by,
            at: self.parts.clock.now(),
            body,
            idempotency_key: None,
        };
        journal.put([event], []);
    }
}

/// Returns the texts of a list, and nothing for anything else.
fn words(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}
