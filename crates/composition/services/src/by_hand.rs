//! A call that a person makes: the same pipeline as for agents, without a conversation around it.

use std::sync::Arc;

use formwork_policy::Decision;
use formwork_protocols::{
    CallId, Cancel, Claim, Escalation, EventBody, Journal, NewEvent, Position, SessionId, Span,
    ToolCall, ToolErrorKind, Toolbox as _,
    event::{ToolCompleted, ToolFailed, ToolRequested},
    message::Arguments,
    spec::HandCall,
    store::Selection,
    tool::{CallContext, Replay},
};
use formwork_scheduler::{AttemptEnd, AttemptJob};
use formwork_tool::Weighed;
use serde_json::Value;

use crate::{
    Error,
    executor::{Workshop, failed},
    setup::Hand,
};

/// The id that pairs the one call with its result: there is no model that would give one.
const PAIR: &str = "hand";

/// What the record is told of a call that is made again after a crash.
const REPEATED: &str = "the run stopped before the outcome was recorded; the call is made again";

/// The same of one that is not.
const UNKNOWN: &str = "the run stopped while this call ran: whether it took effect is unknown, and it was not repeated";

/// How the call stands in the log.
enum Stands {
    /// It was not made, or was broken off on request.
    Open,
    /// It was begun and has no outcome.
    Begun(Box<ToolRequested>),
    Well(ToolCompleted),
    Badly(ToolFailed),
}

impl Workshop {
    /// Makes the one call of a task, or takes up what became of it.
    pub(crate) async fn by_hand(
        &self,
        job: &AttemptJob,
        made: &HandCall,
        cancel: &Cancel,
    ) -> Result<AttemptEnd, Error> {
        let Some(hand) = &self.setup.hand else { return Err(Error::Body { body: "call" }) };
        let journal = Journal::new(Arc::clone(&self.store) as _, job.run, job.token);
        let context = CallContext {
            run: job.run,
            task: job.task,
            session: SessionId::generate(&*self.clock, &*self.rng),
            call: CallId::generate(&*self.clock, &*self.rng),
            agent: hand.agent.name().clone(),
        };
        let call = ToolCall {
            id: PAIR.to_owned(),
            name: made.tool.to_string(),
            arguments: Arguments::Json(Value::Object(made.arguments.clone())),
        };
        if made.dry_run {
            return self.weighed(job, hand, (&context, &call)).await;
        }
        let before = if job.continues { self.stands(job).await? } else { Stands::Open };
        match before {
            Stands::Well(_) | Stands::Badly(_) => return self.called(job, before).await,
            Stands::Begun(begun) => {
                let told = if begun.replay == Replay::Once { UNKNOWN } else { REPEATED };
                journal.put([self.swallowed(job, hand, &begun, told)], []);
                journal.flush().await?;
                if begun.replay == Replay::Once {
                    let detail = format!("{}: {UNKNOWN}", made.tool);
                    return Ok(failed(Escalation::OutcomeUnknown { detail }));
                }
            }
            Stands::Open => {}
        }
        let who = (&hand.agent, hand.principal.clone());
        let tools = self.pipeline(job, who, None, None).await?;
        tools.call(&context, &call, &journal, cancel).await;
        journal.flush().await?;
        let after = self.stands(job).await?;
        if cancel.is_cancelled() && !matches!(after, Stands::Well(_)) {
            return Ok(AttemptEnd::Interrupted { session: None });
        }
        self.called(job, after).await
    }

    /// Says how the task ends by what came of its call.
    async fn called(&self, job: &AttemptJob, stands: Stands) -> Result<AttemptEnd, Error> {
        let files_changed = self.files_changed(job).await?;
        let failed = match stands {
            Stands::Well(done) => {
                let claim = Claim { summary: done.preview, output: None };
                return Ok(AttemptEnd::Claimed { claim, session: None, files_changed });
            }
            Stands::Badly(failed) => failed,
            Stands::Open | Stands::Begun(_) => {
                return Ok(AttemptEnd::Interrupted { session: None });
            }
        };
        let detail = failed.message;
        let why = match failed.error {
            ToolErrorKind::Denied => Escalation::Refused { detail },
            ToolErrorKind::OverBudget => Escalation::BudgetExhausted { detail },
            ToolErrorKind::OutcomeUnknown => Escalation::OutcomeUnknown { detail },
            ToolErrorKind::InvalidArguments | ToolErrorKind::UnknownTool => {
                Escalation::CannotBegin { detail }
            }
            _ => Escalation::BodyFailed { detail },
        };
        Ok(AttemptEnd::Failed { why, session: None, files_changed })
    }

    /// Says what would come of the call, and does nothing.
    async fn weighed(
        &self,
        job: &AttemptJob,
        hand: &Hand,
        (context, call): (&CallContext, &ToolCall),
    ) -> Result<AttemptEnd, Error> {
        let tools = self.pipeline(job, (&hand.agent, hand.principal.clone()), None, None).await?;
        let Weighed { decision, argv, hosts, paths } = match tools.weigh(context, call) {
            Ok(weighed) => weighed,
            Err(error) => return Ok(failed(Escalation::CannotBegin { detail: error.message })),
        };
        let mut told = match decision {
            Decision::Deny { why } => {
                let detail = format!("{} would be refused: {why}", call.name);
                return Ok(failed(Escalation::Refused { detail }));
            }
            Decision::Ask { why } => format!("{} would be asked about: {why}\n", call.name),
            Decision::Allow => format!("{} would be called\n", call.name),
        };
        for (what, named) in [
            ("runs", argv.map(|words| vec![words.join(" ")]).unwrap_or_default()),
            ("asks", hosts),
            ("names", paths),
        ] {
            named.iter().for_each(|one| told.push_str(&format!("  {what:<6} {one}\n")));
        }
        if self.setup.config.hooks.iter().any(|hook| hook.event.is_gate()) {
            told.push_str("  gates are not asked\n");
        }
        let summary = self.scrub.scrub_text(told.trim_end()).into_owned();
        let claim = Claim { summary, output: None };
        Ok(AttemptEnd::Claimed { claim, session: None, files_changed: 0 })
    }

    /// Reads what became of the last call of the task.
    async fn stands(&self, job: &AttemptJob) -> Result<Stands, Error> {
        let kinds = ["tool.requested", "tool.completed", "tool.failed"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(job.run), task: Some(job.task), kinds };
        let (mut stands, mut after) = (Stands::Open, Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(stands) };
            after = last.position;
            for event in events {
                stands = match event.body {
                    EventBody::ToolRequested(begun) => Stands::Begun(begun),
                    EventBody::ToolCompleted(done) => Stands::Well(done),
                    EventBody::ToolFailed(failed) => match (&stands, failed.error) {
                        (_, ToolErrorKind::Cancelled) => Stands::Open,
                        // Whoever was to make it again died before that.
                        (Stands::Begun(begun), ToolErrorKind::OutcomeUnknown)
                            if begun.replay != Replay::Once =>
                        {
                            Stands::Open
                        }
                        _ => Stands::Badly(failed),
                    },
                    _ => stands,
                };
            }
        }
    }

    /// Says of a call that its outcome is lost.
    fn swallowed(
        &self,
        job: &AttemptJob,
        hand: &Hand,
        begun: &ToolRequested,
        told: &str,
    ) -> NewEvent {
        NewEvent {
            task: Some(job.task),
            principal: hand.principal.clone(),
            at: self.clock.now(),
            body: EventBody::ToolFailed(ToolFailed {
                call: begun.call,
                error: ToolErrorKind::OutcomeUnknown,
                message: told.to_owned(),
                elapsed: Span::ZERO,
                outside: None,
                worker: None,
            }),
            idempotency_key: None,
        }
    }
}
