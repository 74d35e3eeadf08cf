//! Budgets that run dry while a run is carried out, and what happens for it.

use std::cmp::Reverse;

use formwork_protocols::{
    Escalation, EventBody,
    budget::{Cap, Crossing, OnExhausted},
};
use tokio::time::Instant;

use super::drive::Drive;
use crate::core::{Input, TaskIndex};

/// Something that is due at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// Four fifths of a task's wall time are over.
    WallWarning,
    /// The grace of its budget is over; why it was needed.
    GraceOver(String),
}

impl Drive {
    /// Does what the policies of budgets say that are used up.
    pub(super) fn heed_budgets(&mut self) {
        for found in self.tree.accounts.take_exhausted() {
            let Some(task) = self.tree.state.find(found.task) else { continue };
            match found.policy {
                OnExhausted::CancelAll => self.end_for_budget(task, found.detail),
                OnExhausted::Grace(span) => {
                    // A span that no clock can hold is none.
                    if let Some(at) = Instant::now().checked_add(span.as_duration()) {
                        self.alarms.push(Reverse((at, task, Alarm::GraceOver(found.detail))));
                    }
                }
                OnExhausted::BlockNew | OnExhausted::Unlimited => {}
            }
        }
    }

    fn end_for_budget(&mut self, task: TaskIndex, detail: String) {
        self.decide_late(Input::TimedOut { task, why: Escalation::BudgetExhausted { detail } });
    }

    /// Has a warning come when four fifths of a task's wall time are over, where it has one.
    pub(super) fn warn_of_wall(&mut self, task: TaskIndex) {
        let Some(wall) = self.tree.state.spec(task).budget.wall else { return };
        let began = self.tree.of(task).and_then(|progress| progress.began).unwrap_or_default();
        let used = self.worked_so_far().as_micros().saturating_sub(began.as_micros());
        let warned = wall.as_micros() / 5 * 4;
        // One that is past was told of by the process before.
        if let Some(left) = warned.checked_sub(used)
            && let Some(at) = Instant::now().checked_add(std::time::Duration::from_micros(left))
        {
            self.alarms.push(Reverse((at, task, Alarm::WallWarning)));
        }
    }

    /// Does what is due.
    pub(super) fn ring(&mut self) {
        let now = Instant::now();
        while self.alarms.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, task, alarm))) = self.alarms.pop() else { return };
            if self.tree.state.state_of(task).is_terminal() {
                continue;
            }
            let id = self.tree.state.id(task);
            match alarm {
                Alarm::GraceOver(detail) => {
                    self.tree.accounts.close(id);
                    self.end_for_budget(task, format!("{detail}, and its grace is over"));
                }
                Alarm::WallWarning => {
                    let Some(wall) = self.tree.state.spec(task).budget.wall else { continue };
                    let began = self.tree.of(task).and_then(|progress| progress.began);
                    let used = self.worked_so_far().as_micros();
                    let used = used.saturating_sub(began.unwrap_or_default().as_micros());
                    let used = formwork_protocols::Span::from_micros(used);
                    let (used, limit) = (used.to_string(), wall.to_string());
                    let crossing =
                        Crossing { task: id, cap: Cap::Wall, used, limit, exhausted: false };
                    self.record(Some(id), EventBody::BudgetWarned(crossing));
                }
            }
        }
    }
}
