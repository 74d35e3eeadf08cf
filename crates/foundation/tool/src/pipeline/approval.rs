//! What the rules say of a call, and who is asked where they leave it open.

use formwork_policy::{Call, Decision, HookCall, alike, exact};
use formwork_protocols::{
    Approval, ApprovalRequest, Cancel, EventBody, Journal, NewEvent, Principal, ToolCall,
    ToolClass, ToolError, ToolErrorKind,
    event::{ToolAsked, ToolDecided},
    tool::CallContext,
};
use serde_json::Value;

use super::{Offered, Pipeline, shorten};
use crate::builtin::shell;

/// A call that is to be judged.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) context: &'a CallContext,
    pub(super) call: &'a ToolCall,
    pub(super) offered: &'a Offered,
    pub(super) arguments: &'a Value,
}

impl Question<'_> {
    /// Describes the call to the policy.
    fn with_call<T>(&self, work: impl FnOnce(&Call<'_>) -> T) -> T {
        let spec = self.offered.tool.spec();
        let argv: Option<Vec<String>> = match spec.class {
            ToolClass::Exec => Some(words(self.arguments.get("command"))),
            ToolClass::Shell => {
                let text = self.arguments.get("command").and_then(Value::as_str);
                Some(shell::argv(text.unwrap_or_default()))
            }
            _ => None,
        };
        let named = self.offered.tool.paths(self.arguments);
        let paths: Vec<&str> = named.iter().map(String::as_str).collect();
        work(&Call {
            tool: &spec.definition.name,
            class: spec.class,
            argv: argv.as_deref(),
            paths: &paths,
        })
    }
}

impl Pipeline {
    /// Holds a call against the rules and the gate, and asks where these leave it open. Returns the arguments to
    /// use instead, if the gate replaced them.
    pub(super) async fn judge(
        &self,
        question: &Question<'_>,
        seams: (&Journal, &Cancel),
    ) -> Result<Option<Value>, ToolError> {
        let decision = self.by_rules(question);
        let denied = matches!(decision, Decision::Deny { .. });
        let Some(gate) = self.parts.gate.as_ref().filter(|_| !denied) else {
            return self.settle(question, decision, seams).await.map(|()| None);
        };
        let spec = question.offered.tool.spec();
        let mut shown = question.arguments.clone();
        self.parts.scrub.scrub_value(&mut shown);
        let call = HookCall {
            event: "tool.before",
            context: question.context,
            tool: &spec.definition.name,
            tags: &spec.tags,
            class: spec.class,
            arguments: &shown,
        };
        let answer = gate.decide(&call, seams.1).await;
        let Some(replaced) = answer.arguments else {
            let decision = decision.and(answer.decision);
            return self.settle(question, decision, seams).await.map(|()| None);
        };
        // They are judged anew, by the schema and by every rule: the model's were.
        question.offered.validator.check(&spec.definition.name, &replaced)?;
        let anew = Question { arguments: &replaced, ..*question };
        let decision = self.by_rules(&anew).and(answer.decision);
        self.settle(&anew, decision, seams).await?;
        Ok(Some(replaced))
    }

    fn by_rules(&self, question: &Question<'_>) -> Decision {
        question.with_call(|call| self.parts.policy.decide(call))
    }

    /// Does what a decision says: goes on, asks, or refuses.
    async fn settle(
        &self,
        question: &Question<'_>,
        decision: Decision,
        seams: (&Journal, &Cancel),
    ) -> Result<(), ToolError> {
        match decision {
            Decision::Allow => Ok(()),
            Decision::Deny { why } => Err(ToolError::new(ToolErrorKind::Denied, why)),
            Decision::Ask { why } => {
                let grants = &self.parts.grants;
                if question.with_call(|call| grants.cover(call, question.arguments)) {
                    return Ok(());
                }
                self.ask(question, why, seams).await
            }
        }
    }

    /// Asks about a call, and records the question before and the answer after.
    async fn ask(
        &self,
        question: &Question<'_>,
        why: String,
        (journal, cancel): (&Journal, &Cancel),
    ) -> Result<(), ToolError> {
        let Question { context, call: made, offered, arguments } = question;
        let spec = offered.tool.spec();
        let (exact, alike) =
            question.with_call(|call| (exact(call, arguments), alike(call, arguments)));
        let mut shown = (*arguments).clone();
        self.parts.scrub.scrub_value(&mut shown);
        let why = self.told(&why);
        let mut recorded = shown.clone();
        shorten(&mut recorded);
        let asked = ToolAsked {
            call: context.call,
            session: context.session,
            pair: made.id.clone(),
            tool: spec.definition.name.to_string(),
            class: spec.class,
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
            tool: spec.definition.name.clone(),
            class: spec.class,
            arguments: shown,
            why,
            exact,
            alike,
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
