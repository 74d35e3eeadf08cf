//! What the rules say of a call, and who is asked where they leave it open.

use formwork_policy::{Answer, Call, Decision, HookCall, Meaning, alike, elsewhere, exact};
use formwork_protocols::{
    Approval, ApprovalRequest, Blob, Cancel, Cover, EventBody, Journal, NewEvent, Principal, Span,
    ToolCall, ToolClass, ToolError, ToolErrorKind,
    event::{GateAnswer, ToolAsked, ToolDecided, ToolGated},
    tool::CallContext,
};
use serde_json::Value;

use super::{Offered, Pipeline, shorten};
use crate::Lookup;

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
    fn with_call<T>(&self, lookup: &Lookup, work: impl FnOnce(&Call<'_>) -> T) -> T {
        let spec = self.offered.tool.spec();
        let argv = match spec.class {
            ToolClass::Exec | ToolClass::Shell => self.offered.tool.command(self.arguments),
            _ => None,
        };
        let within = argv.as_ref().map(|_| lookup.within());
        let (folder, roots) = (elsewhere(self.arguments), Some(&lookup.roots));
        let meaning = Meaning { folder, within: within.as_ref(), roots };
        let hosts = self.offered.tool.hosts(self.arguments);
        let mut secrets = formwork_secrets::placeholders(self.arguments);
        secrets.extend(self.offered.tool.secrets());
        let named = self.offered.tool.paths(self.arguments);
        let paths: Vec<&str> = named.iter().map(String::as_str).collect();
        work(&Call {
            tool: &spec.definition.name,
            class: spec.class,
            argv: argv.as_deref(),
            meaning,
            paths: &paths,
            hosts: &hosts,
            secrets: &secrets,
        })
    }
}

/// What would come of a call that is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighed {
    /// What the rules say, and what was approved before.
    pub decision: Decision,
    /// The words that it would run, where it runs a program.
    pub argv: Option<Vec<String>>,
    /// Where it would connect to.
    pub hosts: Vec<String>,
    /// The paths that it names.
    pub paths: Vec<String>,
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
        self.put_gated(question, &answer, seams.0);
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

    /// Gathers what each gate answered: it is state, and whoever carries the run out again goes by it.
    fn put_gated(&self, question: &Question<'_>, answer: &Answer, journal: &Journal) {
        let Question { context, call, offered, .. } = question;
        let (mut bodies, mut blobs) = (Vec::new(), Vec::new());
        for said in &answer.said {
            let answer = match (&said.decision, &said.arguments) {
                (Decision::Deny { why }, _) => GateAnswer::Deny { reason: self.told(why) },
                (Decision::Ask { why }, _) => GateAnswer::Ask { reason: self.told(why) },
                (Decision::Allow, None) => GateAnswer::Allow,
                (Decision::Allow, Some(arguments)) => {
                    let mut shown = arguments.clone();
                    self.parts.scrub.scrub_value(&mut shown);
                    let blob = Blob::new(shown.to_string().into_bytes());
                    let arguments = blob.hash();
                    blobs.push(blob);
                    GateAnswer::Replace { arguments }
                }
            };
            bodies.push(EventBody::ToolGated(Box::new(ToolGated {
                call: context.call,
                session: context.session,
                pair: call.id.clone(),
                tool: offered.tool.spec().definition.name.to_string(),
                gate: self.told(&said.gate),
                answer,
                elapsed: Span::from(said.elapsed),
            })));
        }
        self.put(context, journal, bodies, blobs);
    }

    fn by_rules(&self, question: &Question<'_>) -> Decision {
        question.with_call(&self.parts.lookup, |call| self.parts.policy.decide(call))
    }

    /// Does what a decision says: goes on, asks, or refuses.
    async fn settle(
        &self,
        question: &Question<'_>,
        decision: Decision,
        seams: (&Journal, &Cancel),
    ) -> Result<(), ToolError> {
        let (decision, is_labelled) = self.granted(question, decision);
        match decision {
            Decision::Allow => Ok(()),
            Decision::Deny { why } => Err(ToolError::new(ToolErrorKind::Denied, why)),
            Decision::Ask { why } => self.ask(question, (why, is_labelled), seams).await,
        }
    }

    /// Returns what a decision becomes by what was read from outside and by what was approved before, and whether the
    /// first of these counts.
    fn granted(&self, question: &Question<'_>, decision: Decision) -> (Decision, bool) {
        let (tool, grants) = (&question.offered.tool.spec().definition.name, &self.parts.grants);
        let by_label = match self.parts.outside.told() {
            Some(from) => self.parts.policy.after_outside(tool, &from),
            None => Decision::Allow,
        };
        let is_labelled = by_label != Decision::Allow;
        let decision = by_label.and(decision);
        if let Decision::Ask { .. } = decision {
            // Whoever approved calls alike knew nothing of what was read since.
            let covered = question.with_call(&self.parts.lookup, |call| match is_labelled {
                true => grants.cover_exactly(call, question.arguments),
                false => grants.cover(call, question.arguments),
            });
            if covered {
                return (Decision::Allow, is_labelled);
            }
        }
        (decision, is_labelled)
    }

    /// Says what would come of a call by the rules and by what was approved. Nothing is done, asked or recorded.
    ///
    /// # Errors
    /// [`ToolError`] where there is no such tool for the session, or the arguments do not follow its schema.
    pub fn weigh(&self, context: &CallContext, call: &ToolCall) -> Result<Weighed, ToolError> {
        let (offered, arguments) = self.read(call)?;
        let question = Question { context, call, offered, arguments: &arguments };
        let (decision, _) = self.granted(&question, self.by_rules(&question));
        Ok(question.with_call(&self.parts.lookup, |call| Weighed {
            decision,
            argv: call.argv.map(<[String]>::to_vec),
            hosts: call.hosts.to_vec(),
            paths: call.paths.iter().map(|path| (*path).to_owned()).collect(),
        }))
    }

    /// Asks about a call, and records the question before and the answer after.
    async fn ask(
        &self,
        question: &Question<'_>,
        (why, is_labelled): (String, bool),
        (journal, cancel): (&Journal, &Cancel),
    ) -> Result<(), ToolError> {
        let Question { context, call: made, offered, arguments } = question;
        let spec = offered.tool.spec();
        let (exact, alike) = question
            .with_call(&self.parts.lookup, |call| (exact(call, arguments), alike(call, arguments)));
        // What covers more than the call is recorded, and a secret is not.
        let alike = alike.filter(|cover| !is_labelled && !self.holds_secret(cover));
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
            exact: Some(exact.clone()),
            alike: alike.clone(),
        };
        self.put(context, journal, [EventBody::ToolAsked(Box::new(asked))], []);
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

    /// Tells whether a secret stands in what an approval would cover.
    fn holds_secret(&self, cover: &Cover) -> bool {
        let Ok(written) = serde_json::to_value(cover) else { return true };
        let mut scrubbed = written.clone();
        self.parts.scrub.scrub_value(&mut scrubbed);
        scrubbed != written
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
