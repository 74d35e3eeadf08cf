//! What people and programs outside have said to a run.

use std::{collections::HashMap, sync::Arc};

use formwork_protocols::{Event, EventBody, EventName, Position, Principal, TaskId};
use serde_json::Value;

/// The kinds of events that are mail, by how they begin.
pub(super) const KINDS: [&str; 2] = ["external.", "inbox."];

/// Something that was fired from outside.
#[derive(Debug, Clone)]
pub(super) struct Fired {
    pub(super) at: Position,
    pub(super) name: EventName,
    /// What came with it, which everybody who waits looks at.
    pub(super) data: Arc<Value>,
    pub(super) by: Principal,
    /// The task that alone is told of it; all who wait where there is none.
    only: Option<TaskId>,
    /// In which round a task met it; one that looks in a later round waits for another.
    used: Option<u64>,
}

impl Fired {
    /// Tells whether it can be what a task waits for that looks in a round. What it is not now it never is.
    pub(super) fn is_for(&self, task: TaskId, event: &EventName, round: u64) -> bool {
        self.name == *event
            && self.used.is_none_or(|used| used == round)
            && self.only.is_none_or(|only| only == task)
    }
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
                let (name, data) = (fired.name.clone(), Arc::new(fired.data.clone()));
                let (at, only) = (event.position, event.task);
                self.fired.push(Fired { at, name, data, by, only, used: None });
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

    /// Returns what was fired at a place in the log.
    pub(super) fn at(&self, at: Position) -> Option<&Fired> {
        self.fired.get(self.place(at)?)
    }

    pub(super) fn used(&mut self, at: Position, round: u64) {
        if let Some(fired) = self.place(at).and_then(|place| self.fired.get_mut(place)) {
            fired.used.get_or_insert(round);
        }
    }

    fn place(&self, at: Position) -> Option<usize> {
        // They are taken in the order of the log.
        self.fired.binary_search_by_key(&at, |fired| fired.at).ok()
    }
}
