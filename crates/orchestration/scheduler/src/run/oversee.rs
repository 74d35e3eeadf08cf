//! Tasks that would be given up, put to whoever governs the run.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use formwork_protocols::{
    Cancel, Escalation, EventBody, Ledger as _, NewEvent, Principal,
    event::{OverseerAnswered, OverseerAsked},
    overseer::{Action, Choice, Decided, Escalated},
};
use futures::FutureExt as _;
use tokio::time::timeout;

use super::{
    drive::Drive,
    work::{Done, Effect},
};
use crate::core::{Input, MOST_GRANTED, Oversight, TaskIndex};

impl Drive {
    /// Records the question, if it was not recorded before, and has it put once that is durable.
    pub(super) fn oversee(&mut self, task: TaskIndex, why: Escalation) {
        // The core asks only where there is somebody.
        let Some(governed) = &self.scheduler.overseer else { return };
        let options = self.options(task);
        let known = self.tree.of(task).cloned().unwrap_or_default();
        let deadline = match known.overseeing {
            // Of a process before this one: no answer to it is in the log.
            Some(deadline) => deadline,
            None => {
                let deadline = self.scheduler.clock.now().after(governed.within);
                let asked = OverseerAsked { why: why.clone(), options: options.clone(), deadline };
                self.tree.of_mut(task).overseeing = Some(deadline);
                self.record(Some(self.tree.state.id(task)), EventBody::OverseerAsked(asked));
                deadline
            }
        };
        if self.is_pausing {
            return; // Whoever takes the run up puts it.
        }
        let id = self.tree.state.id(task);
        let escalated = Escalated {
            run: self.run,
            task: id,
            path: self.tree.path(task).iter().cloned().collect(),
            spec: (**self.tree.state.spec(task)).clone(),
            attempts: self.tree.state.attempts(task),
            why,
            claim: known.claim.map(Arc::unwrap_or_clone),
            verdicts: known.verdicts,
            options,
            left: self.tree.accounts.remaining(id),
            deadline,
        };
        self.effects.push(Effect::Oversee(task, Box::new(escalated)));
    }

    /// Lists what can be done about a task by whoever governs the run. To leave it to somebody else needs no grant.
    fn options(&self, task: TaskIndex) -> Vec<Choice> {
        let state = &self.tree.state;
        let retry = (state.granted(task) < MOST_GRANTED).then_some(Choice::Retry);
        let accept = state.can_be_accepted(task).then_some(Choice::Accept);
        let grant = self.scheduler.grant.as_deref();
        let may = |choice: &Choice| grant.is_none_or(|grant| grant.contains(choice));
        let decided = retry.into_iter().chain(accept).chain([Choice::Fail]).filter(may);
        decided.chain([Choice::Pass]).collect()
    }

    /// Puts a question, for as long as its deadline leaves.
    pub(super) fn put(&mut self, task: TaskIndex, escalated: Escalated) {
        let Some(governed) = self.scheduler.overseer.clone() else { return };
        // It may have ended in the same breath.
        if !self.tree.state.is_overseen(task) {
            return;
        }
        let left = escalated.deadline.since(self.scheduler.clock.now()).as_duration();
        let cancel = Cancel::new();
        self.overseen.insert(task, cancel.clone());
        let is_untimed = self.scheduler.is_untimed;
        self.jobs.spawn(async move {
            let overseer = Arc::clone(&governed.overseer);
            let asking = AssertUnwindSafe(overseer.decide(&escalated, &cancel)).catch_unwind();
            let answered = match is_untimed {
                true => Ok(asking.await),
                false => timeout(left.max(AT_LEAST), asking).await,
            };
            let decided = match answered {
                Ok(Ok(decided)) => Ok(decided),
                Ok(Err(_)) => Err("the overseer panicked".to_owned()),
                Err(_) => Err(format!("the overseer has not answered within {}", governed.within)),
            };
            Done::Overseen { task, decided }
        });
    }

    /// Records what was decided, with what follows from it in the same piece.
    pub(super) fn overseen(&mut self, task: TaskIndex, decided: Result<Decided, String>) {
        self.overseen.remove(&task);
        // One that has ended meanwhile, or is put again once the run goes on.
        if !self.tree.state.is_overseen(task) || self.is_pausing {
            return;
        }
        let passed = |reason: String| Decided {
            action: Action::Pass { reason },
            by: self.principal.clone(),
        };
        let Decided { action, by } = match decided {
            Ok(decided) if self.options(task).contains(&decided.action.choice()) => decided,
            Ok(Decided { action, by }) => {
                passed(format!("{by} {action}, which is none of the options"))
            }
            Err(reason) => passed(reason),
        };
        let what = match &action {
            Action::Retry { .. } => Oversight::Retry,
            Action::Accept { .. } => Oversight::Accept,
            _ => Oversight::GiveUp,
        };
        let progress = self.tree.of_mut(task);
        progress.overseeing = None;
        progress.heed(&action);
        self.record_by(by, task, EventBody::OverseerAnswered(OverseerAnswered { action }));
        self.decide_late(Input::Overseen { task, what });
    }

    fn record_by(&mut self, principal: Principal, task: TaskIndex, body: EventBody) {
        let (task, at) = (Some(self.tree.state.id(task)), self.scheduler.clock.now());
        self.events.push(NewEvent { task, principal, at, body, idempotency_key: None });
    }
}

/// How long a question is put at the least: one that a process before this one has put may have no time left, and an answer
/// that needs none is heard all the same.
const AT_LEAST: Duration = Duration::from_millis(100);
