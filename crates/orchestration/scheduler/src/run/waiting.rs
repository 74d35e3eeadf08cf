//! Tasks that wait for somebody outside.

use std::sync::Arc;

use formwork_protocols::{
    Append, Body, Claim, Escalation, EventBody, Position, Span, Timestamp,
    event::{InboxAsked, InboxExpired, ON_ESCALATION, WaitMet, inbox_key},
    spec::{Decision, WaitFor},
};
use serde_json::{Value, json};

use super::{drive::Drive, fill, judge::Question, mail::Reply, tree::one_line};
use crate::{
    core::{BodyEnd, Input, TaskIndex},
    error::Error,
};

/// A task that waits for somebody outside.
#[derive(Debug, Default)]
pub(super) struct Wait {
    /// When it has waited long enough.
    until: Option<Timestamp>,
    /// How much of what was fired it has looked at in vain.
    looked: usize,
}

/// What a task that waits has come to.
enum Found {
    Claim(Claim),
    Failed(Escalation),
}

impl Drive {
    /// Begins to wait, or goes on waiting.
    pub(super) fn begin_wait(&mut self, task: TaskIndex) {
        let since = self.tree.of(task).and_then(|known| known.waits_since);
        let since = since.unwrap_or_else(|| self.scheduler.clock.now());
        let limit = self.limit(task).filter(|_| !self.scheduler.is_untimed);
        let until = limit.map(|limit| since.after(limit));
        self.waits.insert(task, Wait { until, looked: 0 });
        self.round += 1;
        self.questions.push_back(Question::Wait { task, round: self.round });
    }

    /// Puts a question, once.
    fn ask(&mut self, task: TaskIndex, decision: &Decision) -> Result<(), Found> {
        if self.tree.of(task).is_some_and(|known| known.was_asked) {
            return Ok(());
        }
        let mut words = [decision.question.clone()];
        fill::all(self, task, &mut words).map_err(|error| {
            let detail = format!("its question cannot be put together: {error}");
            Found::Failed(Escalation::CannotBegin { detail })
        })?;
        let [question] = words;
        self.tree.of_mut(task).was_asked = true;
        let asked = InboxAsked {
            question,
            options: decision.options.clone(),
            deadline: self.waits.get(&task).and_then(|wait| wait.until),
            assume: decision.assume.clone(),
            escalation: false,
        };
        self.record(Some(self.tree.state.id(task)), EventBody::InboxAsked(asked));
        Ok(())
    }

    /// Puts a question about a task that was given up, and goes on by what is assumed: where nobody watches, a person
    /// finds it later. A task that only ends with another asks nothing of its own.
    pub(super) fn ask_about_escalation(&mut self, task: TaskIndex, why: &Escalation) {
        let is_cause = !matches!(why, Escalation::ChildFailed { .. });
        let asked = self.tree.of(task).is_some_and(|known| known.was_asked);
        // What decides a check reports to it, and is tried again with it.
        let decides = self.tree.decides_above(task);
        let nobody_watches = self.scheduler.is_headless || self.scheduler.overseer.is_some();
        let is_settled = self.tree.of(task).is_some_and(|known| known.is_settled);
        if !nobody_watches || !is_cause || asked || decides || is_settled {
            return;
        }
        let name = &self.tree.state.spec(task).name;
        let [assumed, ..] = ON_ESCALATION;
        let asked = InboxAsked {
            question: one_line(&format!("task {name} was given up: {why}")),
            options: ON_ESCALATION.map(str::to_owned).to_vec(),
            deadline: None,
            assume: Some(assumed.to_owned()),
            escalation: true,
        };
        self.tree.of_mut(task).was_asked = true;
        self.record(Some(self.tree.state.id(task)), EventBody::InboxAsked(asked));
    }

    fn limit(&self, task: TaskIndex) -> Option<Span> {
        match &self.tree.state.spec(task).body {
            Body::WaitFor(wait) => wait.timeout,
            Body::Decision(decision) => decision.timeout,
            _ => None,
        }
    }

    /// Looks whether what a task waits for is there.
    pub(super) fn look_for(&mut self, task: TaskIndex, round: u64) {
        if self.is_pausing || !self.waits.contains_key(&task) {
            return;
        }
        let spec = Arc::clone(self.tree.state.spec(task));
        let found = match &spec.body {
            Body::WaitFor(wait) => self.fired(task, wait, round),
            Body::Decision(decision) => match self.ask(task, decision) {
                Ok(()) => self.replied(task, decision),
                Err(found) => Some(found),
            },
            _ => None,
        };
        if let Some(found) = found {
            self.end_wait(task, found);
        }
    }

    /// Finds the first event that a task waits for.
    fn fired(&mut self, task: TaskIndex, wait: &WaitFor, round: u64) -> Option<Found> {
        let met = self.tree.of(task).and_then(|known| known.met);
        let at = match met {
            // What the record says it has met is what it has met.
            Some(met) => met,
            None => self.first_for(task, wait, round)?,
        };
        let fired = self.mail.at(at)?;
        let summary = format!("{} by {}", fired.name, fired.by);
        let output = Some(Value::clone(&fired.data));
        if met.is_none() {
            self.mail.used(at, round);
            self.tree.of_mut(task).met = Some(at);
            let met = WaitMet { event: at };
            self.record(Some(self.tree.state.id(task)), EventBody::WaitMet(met));
        }
        Some(Found::Claim(Claim { summary, output }))
    }

    /// Finds the first event that is what a task waits for, among those that it has not looked at.
    fn first_for(&mut self, task: TaskIndex, wait: &WaitFor, round: u64) -> Option<Position> {
        let id = self.tree.state.id(task);
        let mut place = self.waits.get(&task)?.looked;
        let found = loop {
            let Some(fired) = self.mail.fired.get(place) else { break None };
            let (at, data) = (fired.at, Arc::clone(&fired.data));
            if fired.is_for(id, &wait.event, round) && self.matches(task, wait, &data) {
                break Some(at);
            }
            place += 1;
        };
        if let Some(wait) = self.waits.get_mut(&task) {
            wait.looked = place;
        }
        found
    }

    fn matches(&mut self, task: TaskIndex, wait: &WaitFor, data: &Value) -> bool {
        let Some(filter) = &wait.filter else { return true };
        // What does not have what is asked about is not what is waited for.
        self.holds_of(task, filter, data).unwrap_or(false)
    }

    /// Returns what became of a question.
    fn replied(&self, task: TaskIndex, decision: &Decision) -> Option<Found> {
        let chosen = |answer: &str, by: &str, is_assumed: bool| {
            let output = json!({ "answer": answer, "by": by, "assumed": is_assumed });
            Found::Claim(Claim { summary: answer.to_owned(), output: Some(output) })
        };
        let assumed = |by: &str, otherwise: Escalation| match &decision.assume {
            Some(answer) => chosen(answer, by, true),
            None => Found::Failed(otherwise),
        };
        Some(match self.mail.replies.get(&self.tree.state.id(task)) {
            None if self.scheduler.is_headless => {
                let detail = "nobody is there to decide".to_owned();
                assumed("nobody", Escalation::Refused { detail })
            }
            None => return None,
            Some(Reply::Answered { answer, by }) if decision.options.contains(answer) => {
                chosen(answer, by.as_str(), false)
            }
            Some(Reply::Answered { answer, by }) => {
                let detail = format!("{by} answered {answer:?}, which is none of the options");
                Found::Failed(Escalation::Refused { detail })
            }
            Some(Reply::Skipped { by }) => {
                let detail = format!("{by} left the answer open, and none is assumed");
                assumed(by.as_str(), Escalation::Refused { detail })
            }
            Some(Reply::Rejected { by, reason }) => {
                let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                let detail = format!("rejected by {by}{reason}");
                Found::Failed(Escalation::Refused { detail })
            }
            Some(Reply::Expired) => {
                let after = decision.timeout.unwrap_or_default();
                assumed("nobody", Escalation::TimedOut { after })
            }
        })
    }

    fn end_wait(&mut self, task: TaskIndex, found: Found) {
        self.waits.remove(&task);
        let end = match found {
            Found::Claim(claim) => {
                self.tree.of_mut(task).claim = Some(Arc::new(claim));
                BodyEnd::Claimed
            }
            Found::Failed(why) => BodyEnd::Failed(why),
        };
        self.decide_late(Input::Woken { task, end });
    }

    /// Looks at all that wait, after something was said.
    pub(super) fn look_for_all(&mut self) {
        // One event wakes all who wait for it now, and nobody who comes later.
        self.round += 1;
        let round = self.round;
        let waiting: Vec<TaskIndex> = self.waits.keys().copied().collect();
        self.questions.extend(waiting.into_iter().map(|task| Question::Wait { task, round }));
        self.answer_questions();
    }

    /// Returns when the next of them has waited long enough. During a pause nobody looks.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.waits.values().filter_map(|wait| wait.until).min().filter(|_| !self.is_pausing)
    }

    /// Ends the waits whose time is over.
    pub(super) async fn expire(&mut self) -> Result<(), Error> {
        let now = self.scheduler.clock.now();
        let is_over = |wait: &Wait| wait.until.is_some_and(|at| at <= now);
        if self.is_pausing || !self.waits.values().any(is_over) {
            return Ok(());
        }
        // What was said in time counts.
        self.heed().await?;
        let over: Vec<TaskIndex> =
            self.waits.iter().filter(|(_, wait)| is_over(wait)).map(|(task, _)| *task).collect();
        for task in over {
            self.end_waiting(task).await?;
        }
        Ok(())
    }

    /// Ends the wait of a task whose time is over.
    pub(super) async fn end_waiting(&mut self, task: TaskIndex) -> Result<(), Error> {
        let body = self.tree.state.spec(task).body.clone();
        match body {
            Body::Decision(decision) => {
                self.flush().await?;
                self.expire_question(task, decision.assume).await
            }
            _ => {
                let after = self.limit(task).unwrap_or_default();
                self.end_wait(task, Found::Failed(Escalation::TimedOut { after }));
                Ok(())
            }
        }
    }

    /// Closes a question that nobody has answered, unless somebody does at this very moment.
    async fn expire_question(
        &mut self,
        task: TaskIndex,
        assumed: Option<String>,
    ) -> Result<(), Error> {
        let id = self.tree.state.id(task);
        self.record(Some(id), EventBody::InboxExpired(InboxExpired { assumed }));
        let mut events = std::mem::take(&mut self.events);
        for event in &mut events {
            event.idempotency_key = Some(inbox_key(id));
        }
        let token = Some(self.lease.token);
        let batch = Append { run: self.run, token, events, blobs: Vec::new() };
        let recorded = self.scheduler.store.append(batch).await;
        let recorded = recorded.map_err(|source| Error::Store { run: self.run, source })?;
        if recorded.iter().any(|recorded| recorded.duplicate) {
            return self.heed().await;
        }
        self.mail.replies.entry(id).or_insert(Reply::Expired);
        self.round += 1;
        self.look_for(task, self.round);
        Ok(())
    }
}
