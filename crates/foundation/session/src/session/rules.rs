//! What the conversation is held to before its word is taken, and how the model is told so.

use std::ops::ControlFlow;

use formwork_context::{Answered, OpenTurn};
use formwork_protocols::{EventBody, event::SessionReprompted, rules::SessionRule};

use super::Session;
use crate::{Error, spec::SessionEnd};

impl Session {
    /// Holds the model's word that it is done against the rules. Returns what follows where it is not taken.
    pub(super) fn hold_to_rules(&mut self) -> Result<Option<ControlFlow<SessionEnd>>, Error> {
        let rules = self.spec.rules;
        let made = calls(self.made);
        if self.made < rules.min_tool_calls {
            let least = rules.min_tool_calls;
            let told = format!(
                "Your word is not taken yet: this work needs at least {} that end well, and you have made {made}. \
                 Do the work with your tools, then end the task.",
                calls(least)
            );
            let detail = format!("{made} of at least {least}");
            return self.reprompt(SessionRule::MinToolCalls, &detail, &told).map(Some);
        }
        if let Some(least) = rules.early_bail.filter(|least| self.made < *least && !self.bailed) {
            self.bailed = true;
            let told = format!(
                "You stop after {made}. Look once more at what was asked: is all of it done, and did you see that it \
                 is? If so, say so again; if not, go on."
            );
            let detail = format!("{made}, fewer than {least}");
            return self.reprompt(SessionRule::EarlyBail, &detail, &told).map(Some);
        }
        Ok(None)
    }

    /// Refuses the calls of an answer where none is expected. Returns what follows, and the answer where its calls
    /// may be made.
    pub(super) fn hold_to_words(
        &mut self,
        open: OpenTurn,
        is_lifecycle: impl Fn(&str) -> bool,
    ) -> Result<Result<ControlFlow<SessionEnd>, OpenTurn>, Error> {
        let calls = open.unanswered().any(|(_, call)| !is_lifecycle(&call.name));
        if !self.spec.rules.expects_zero_calls || !calls {
            return Ok(Err(open));
        }
        let first = open.unanswered().next().map(|(_, call)| call.name.clone()).unwrap_or_default();
        self.open = Some(open);
        let told = "not called: this is to be answered from what you were told, without any tool. Answer in words.";
        let detail = format!("it called {first:?}");
        self.reprompt(SessionRule::ExpectsZeroCalls, &detail, told).map(Ok)
    }

    /// Asks a model that only looks to begin with the change, every so many turns.
    pub(super) fn press(&mut self) -> Result<(), Error> {
        let idle = self.guard.idle();
        let Some(every) = self.spec.rules.write_pressure else { return Ok(()) };
        if idle == 0 || !idle.is_multiple_of(every) {
            return Ok(());
        }
        let told = format!(
            "{idle} turns of calls have changed nothing. Begin with the change by what you know now, in small steps; \
             look again where a step fails. If nothing is to be changed, end the task and say why."
        );
        let detail = format!("{idle} turns without a change");
        self.reprompt(SessionRule::WritePressure, &detail, &told).map(drop)
    }

    /// Tells the model that it does not keep to a rule, in answer to what is open or as a sentence of its own, and ends
    /// the conversation where it was told often enough.
    fn reprompt(
        &mut self,
        rule: SessionRule,
        detail: &str,
        told: &str,
    ) -> Result<ControlFlow<SessionEnd>, Error> {
        let most = rule.is_binding().then_some(self.spec.rules.reprompts);
        let is_over = most.is_some_and(|most| self.reprompted >= most);
        if !is_over {
            if rule.is_binding() {
                self.reprompted = self.reprompted.saturating_add(1);
            }
            let reprompted = SessionReprompted {
                session: self.id,
                rule,
                detail: detail.to_owned(),
                number: if rule.is_binding() { self.reprompted } else { 1 },
                most,
                index: self.record.next(),
            };
            self.record.put(self.task(), EventBody::SessionReprompted(reprompted));
        }
        match self.open.take() {
            Some(mut open) => {
                self.claim = None;
                open.answer_rest(&Answered::error(told));
                self.settle_turn(open)?;
            }
            None if !is_over => self.put_user(told)?,
            None => {}
        }
        Ok(match is_over {
            true => ControlFlow::Break(SessionEnd::Unkept { rule, detail: detail.to_owned() }),
            false => ControlFlow::Continue(()),
        })
    }
}

fn calls(count: u32) -> String {
    match count {
        0 => "no tool calls".to_owned(),
        1 => "1 tool call".to_owned(),
        count => format!("{count} tool calls"),
    }
}
