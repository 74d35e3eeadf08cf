//! What whoever governs a run has decided, to be decided again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Event, EventBody, Principal, TaskName,
    overseer::{Action, Decided, Escalated, Overseer},
};

use super::{Tape, lock};
use crate::course;

/// Decides as it was decided, task by task.
pub(crate) struct PlayedOverseer {
    decided: Mutex<HashMap<String, VecDeque<(u64, Decided)>>>,
    tape: Arc<Tape>,
}

impl PlayedOverseer {
    /// Reads what was decided in a run; none where nobody governed it.
    pub(crate) fn of(events: &[Event], tape: &Arc<Tape>) -> Option<Self> {
        let paths = course::paths(events);
        let mut decided: HashMap<String, VecDeque<(u64, Decided)>> = HashMap::new();
        let mut is_governed = false;
        for event in events {
            is_governed |= matches!(event.body, EventBody::OverseerAsked(_));
            if let EventBody::OverseerAnswered(answered) = &event.body
                && let Some(path) = event.task.and_then(|task| paths.get(&task))
            {
                let (action, by) = (answered.action.clone(), event.principal.clone());
                let decided = decided.entry(path.clone()).or_default();
                decided.push_back((event.seq, Decided { action, by }));
            }
        }
        let (decided, tape) = (Mutex::new(decided), Arc::clone(tape));
        is_governed.then_some(Self { decided, tape })
    }
}

#[async_trait]
impl Overseer for PlayedOverseer {
    async fn decide(&self, escalated: &Escalated, cancel: &Cancel) -> Decided {
        let path = escalated.path.iter().map(TaskName::as_str).collect::<Vec<_>>().join("/");
        let found = lock(&self.decided).get_mut(&path).and_then(VecDeque::pop_front);
        let playing = &self.tape.playing;
        match found {
            Some((at, decided)) => {
                playing.follow(&path, cancel, playing.turn(&path, Some(at), cancel)).await;
                decided
            }
            // The record ends before the answer.
            None => {
                playing.follow(&path, cancel, playing.wait(&path, cancel)).await;
                let reason = "the record has no answer".to_owned();
                Decided { action: Action::Pass { reason }, by: Principal::system("replay") }
            }
        }
    }
}
