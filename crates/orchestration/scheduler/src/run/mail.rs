//! What people and programs outside have said to a run.

use std::collections::HashMap;

use formwork_protocols::{Event, EventBody, EventName, Position, Principal, TaskId};
use serde_json::Value;

/// The kinds of events that are mail, by how they begin.
pub(super) const KINDS: [&str; 2] = ["external.", "inbox."];

/// Something that was fired from outside.
#[derive(Debug, Clone)]
pub(super) struct Fired {
    pub(super) at: Position,
    pub(super) name: EventName,
    pub(super) data: Value,
    pub(super) by: Principal,
    /// In which round a task met it; one that looks in a later round waits for another.
    pub(super) used: Option<u64>,
}

/// What became of a question.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Answered { answer: String, by: Principal },
    Skipped { by: Principal },
    Rejected { by: Principal, reason: String },
    Expired,
}

/// All of it, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    pub(super) fired: Vec<Fired>,
    pub(super) replies: HashMap<TaskId, Reply>,
}

impl Mail {
    /// Takes an event of the log up, if it is mail. The first reply to a question is the one that counts.
    pub(super) fn take(&mut self, event: &Event) {
        let by = event.principal.clone();
        let reply = match &event.body {
            EventBody::ExternalFired(fired) => {
                let (name, data) = (fired.name.clone(), fired.data.clone());
                self.fired.push(Fired { at: event.position, name, data, by, used: None });
                return;
            }
            EventBody::WaitMet(met) => {
                // Of this process it is known already, and of one before it every round is over.
                self.used(met.event, 0);
                return;
            }
            EventBody::InboxAnswered(said) => Reply::Answered { answer: said.answer.clone(), by },
            EventBody::InboxSkipped(_) => Reply::Skipped { by },
            EventBody::InboxRejected(said) => Reply::Rejected { by, reason: said.reason.clone() },
            EventBody::InboxExpired(_) => Reply::Expired,
            _ => return,
        };
        if let Some(task) = event.task {
            self.replies.entry(task).or_insert(reply);
        }
    }

    pub(super) fn used(&mut self, at: Position, round: u64) {
        if let Some(fired) = self.fired.iter_mut().find(|fired| fired.at == at) {
            fired.used.get_or_insert(round);
        }
    }
}
