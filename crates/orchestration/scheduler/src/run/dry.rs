//! Budgets that run dry while a run is carried out, and what happens for it.

use std::cmp::Reverse;

use formwork_protocols::{
    Escalation, Event, EventBody, Position, Span, Timestamp,
    budget::{Cap, Crossing, OnExhausted},
    event::{BudgetExhausted, crossed},
    store::Selection,
};
use tokio::time::Instant;

use super::drive::Drive;
use crate::{
    core::{Input, Refusal, TaskIndex, clock},
    error::Error,
};

/// How many events are looked at together for signs of life.
const LOOKED_AT: usize = 1_000;

/// Something that is due at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// Four fifths of a task's wall time are over.
    WallWarning,
    /// All of it is over, and the task goes on.
    WallOver,
    /// It has rested after what may pass by itself.
    RestOver,
    /// It may have been without a sign of life for too long, from that place in the log on.
    Idle(Position),
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
                    if !found.is_recorded {
                        // Whoever takes the run up has to know since when.
                        let (task, detail) = (found.task, found.detail.clone());
                        let exhausted = BudgetExhausted { task, cap: found.cap, detail };
                        self.record(Some(task), EventBody::BudgetExhausted(exhausted));
                    }
                    let now = self.worked_so_far();
                    let since = &mut self.tree.of_mut(task).exhausted;
                    let (began, detail) = since.get_or_insert((now, found.detail)).clone();
                    self.end_grace(task, span, began, detail);
                }
                OnExhausted::BlockNew | OnExhausted::Unlimited => {}
            }
        }
    }

    /// Has what is left of the grace go by of a budget that a process before this one has found used up.
    pub(super) fn go_on_with_grace(&mut self, task: TaskIndex) {
        let Some((began, detail)) = self.tree.of(task).and_then(|known| known.exhausted.clone())
        else {
            return;
        };
        if let Some(OnExhausted::Grace(span)) = self.tree.state.spec(task).budget.on_exhausted {
            self.tree.accounts.restore_told(self.tree.state.id(task));
            self.end_grace(task, span, began, detail);
        }
    }

    /// Has the grace of a budget end that was used up when the run had been worked on for so long.
    fn end_grace(&mut self, task: TaskIndex, grace: Span, began: Span, detail: String) {
        if self.scheduler.is_untimed {
            return;
        }
        let used = self.worked_so_far().as_micros().saturating_sub(began.as_micros());
        let left = Span::from_micros(grace.as_micros().saturating_sub(used));
        // A span that no clock can hold is none.
        if let Some(at) = Instant::now().checked_add(left.as_duration()) {
            self.alarms.push(Reverse((at, task, Alarm::GraceOver(detail))));
        }
    }

    /// Tells of the lines of the caps of the tree that a task has crossed by being added.
    pub(super) fn tell_growth(&mut self, added: TaskIndex) {
        let mut next = self.tree.state.parent(added);
        while let Some(above) = next {
            next = self.tree.state.parent(above);
            self.tell_of_caps(added, above);
        }
    }

    /// Tells of the lines of the caps that a tree says itself and that are crossed by what was written down in it, before any
    /// of it begins.
    pub(super) fn tell_written(&mut self) {
        let state = &self.tree.state;
        let says = |task: TaskIndex| state.spec(task).budget.tree.is_some();
        if !state.tasks().any(says) {
            return;
        }
        for added in self.tree.state.tasks() {
            let mut next = self.tree.state.parent(added);
            while let Some(above) = next {
                next = self.tree.state.parent(above);
                // What nobody says binds only what is added later.
                if self.tree.state.spec(above).budget.tree.is_some() {
                    self.tell_of_caps(added, above);
                }
            }
        }
    }

    /// Tells of the lines of the caps of a tree that are crossed by one of the tasks below.
    fn tell_of_caps(&mut self, added: TaskIndex, above: TaskIndex) {
        for (cap, used, limit) in self.tree.state.uses_of_caps(added, above).into_iter().flatten() {
            self.tell_used(above, cap, used.into(), limit.into());
        }
    }

    /// Tells of the lines of a cap that are crossed by what is used of it, each once.
    pub(super) fn tell_used(&mut self, task: TaskIndex, cap: Cap, used: u64, limit: u64) {
        let id = self.tree.state.id(task);
        for crossing in Crossing::of(id, cap, (0, used), limit) {
            if self.tree.of_mut(task).tell(cap, crossing.exhausted) {
                self.record(Some(id), crossed(crossing));
            }
        }
    }

    /// Tells that more tasks were refused than a cap of the tree allows, once.
    pub(super) fn tell_refused(&mut self, refusal: &Refusal) {
        let Refusal::Cap { at, cap, .. } = refusal else { return };
        let (id, detail) = (self.tree.state.id(*at), refusal.to_string());
        if self.tree.of_mut(*at).tell(*cap, true) {
            let told = BudgetExhausted { task: id, cap: *cap, detail };
            self.record(Some(id), EventBody::BudgetExhausted(told));
        }
    }

    fn end_for_budget(&mut self, task: TaskIndex, detail: String) {
        self.decide_late(Input::TimedOut { task, why: Escalation::BudgetExhausted { detail } });
    }

    /// Has a warning come when four fifths of a task's wall time are over, where it has one, and a notice when all of it is,
    /// where it may go on then.
    pub(super) fn warn_of_wall(&mut self, task: TaskIndex) {
        let budget = &self.tree.state.spec(task).budget;
        let Some(wall) = budget.wall else { return };
        let goes_on =
            matches!(budget.on_exhausted, Some(OnExhausted::Grace(_) | OnExhausted::Unlimited));
        let began = self.tree.of(task).and_then(|progress| progress.began).unwrap_or_default();
        let used = self.worked_so_far().as_micros().saturating_sub(began.as_micros());
        let warned = (wall.as_micros() / 5 * 4, Alarm::WallWarning);
        let over = goes_on.then_some((wall.as_micros(), Alarm::WallOver));
        for (after, alarm) in [warned].into_iter().chain(over) {
            // One that is past was told of by the process before.
            if let Some(left) = after.checked_sub(used)
                && let Some(at) = Instant::now().checked_add(std::time::Duration::from_micros(left))
            {
                self.alarms.push(Reverse((at, task, alarm)));
            }
        }
    }

    /// Tells that the time of a budget is over, and does what its policy says.
    fn wall_over(&mut self, task: TaskIndex) {
        let budget = &self.tree.state.spec(task).budget;
        let (Some(wall), policy) = (budget.wall, budget.on_exhausted) else { return };
        let (id, detail) = (self.tree.state.id(task), clock::wall_told(wall));
        let told = BudgetExhausted { task: id, cap: Cap::Wall, detail: detail.clone() };
        self.record(Some(id), EventBody::BudgetExhausted(told));
        if let Some(OnExhausted::Grace(span)) = policy {
            // What else is used up in this grace begins none of its own.
            let now = self.worked_so_far();
            let since = &mut self.tree.of_mut(task).exhausted;
            let (began, detail) = since.get_or_insert((now, detail)).clone();
            self.end_grace(task, span, began, detail);
        }
    }

    /// Tells that the time of a budget is over, where a task ends because of it. Whoever takes the run up does not tell it again.
    pub(super) fn tell_wall_ends(&mut self, task: TaskIndex, why: &Escalation) {
        let state = &self.tree.state;
        let Some(wall) = state.spec(task).budget.wall else { return };
        let is_open = !state.state_of(task).is_terminal() && !state.is_stopping(task);
        if !is_open
            || *why != clock::wall_over(wall)
            || !self.tree.of_mut(task).tell(Cap::Wall, true)
        {
            return;
        }
        let (id, detail) = (self.tree.state.id(task), clock::wall_told(wall));
        let told = BudgetExhausted { task: id, cap: Cap::Wall, detail };
        self.record(Some(id), EventBody::BudgetExhausted(told));
    }

    /// Has it looked at whether a task shows signs of life, once it may be without any for too long.
    pub(super) fn watch_idle(&mut self, task: TaskIndex) {
        if let Some(idle) = self.tree.state.spec(task).idle {
            self.look_for_life(task, self.head, idle);
        }
    }

    /// Has it looked at whether a task has shown a sign of life since a place in the log, after so long.
    fn look_for_life(&mut self, task: TaskIndex, since: Position, after: Span) {
        if let Some(at) = Instant::now().checked_add(after.as_duration()) {
            self.alarms.push(Reverse((at, task, Alarm::Idle(since))));
        }
    }

    /// Ends the tasks that show no sign of life. Whoever waits for a person, or for who governs the run, is not one of them, and neither is a
    /// task with a sign of life below it.
    pub(super) async fn end_idle(&mut self) -> Result<(), Error> {
        for (task, since) in std::mem::take(&mut self.idle) {
            let Some(idle) = self.tree.state.spec(task).idle else { continue };
            if self.is_pausing {
                continue;
            }
            let (sign, head) = self.signs_of(task, since).await?;
            // From the last sign on, and not from when somebody looked.
            let gone = sign.map_or(idle, |at| self.scheduler.clock.now().since(at));
            let left = match self.waits_below(task) {
                true => idle,
                false => Span::from_micros(idle.as_micros().saturating_sub(gone.as_micros())),
            };
            if left > Span::ZERO {
                self.look_for_life(task, head, left);
                continue;
            }
            self.decide_late(Input::TimedOut { task, why: clock::nothing_happened(idle) });
        }
        Ok(())
    }

    /// Returns when anything was last recorded of a task or of one below it since a place in the log, if anything was,
    /// and where the log of the run ends.
    async fn signs_of(
        &self,
        task: TaskIndex,
        since: Position,
    ) -> Result<(Option<Timestamp>, Position), Error> {
        let selection = Selection { run: Some(self.run), ..Selection::default() };
        let (mut sign, mut after) = (None, since);
        loop {
            let store = &self.scheduler.store;
            let events = store.read(after, &selection, LOOKED_AT).await;
            let events = events.map_err(|source| Error::Store { run: self.run, source })?;
            let Some(last) = events.last() else { return Ok((sign, after)) };
            after = last.position;
            let is_own = |event: &&Event| {
                let place = event.task.and_then(|task| self.tree.state.find(task));
                place.is_some_and(|place| self.is_below(place, task))
            };
            sign = events.iter().rfind(is_own).map(|event| event.at).or(sign);
        }
    }

    fn is_below(&self, task: TaskIndex, above: TaskIndex) -> bool {
        let mut up = std::iter::successors(Some(task), |task| self.tree.state.parent(*task));
        up.any(|ancestor| ancestor == above)
    }

    fn waits_below(&self, task: TaskIndex) -> bool {
        let suspended = |place: &TaskIndex| {
            self.waits.contains_key(place) || self.tree.state.is_overseen(*place)
        };
        self.tree.state.tasks().filter(suspended).any(|place| self.is_below(place, task))
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
                Alarm::RestOver => self.decide_late(Input::Rested { task }),
                Alarm::Idle(since) => self.idle.push((task, since)),
                Alarm::GraceOver(detail) => {
                    self.tree.accounts.close(id);
                    self.decide_late(Input::TimedOut { task, why: clock::grace_over(&detail) });
                }
                Alarm::WallOver => self.wall_over(task),
                Alarm::WallWarning => {
                    let Some(wall) = self.tree.state.spec(task).budget.wall else { continue };
                    let began = self.tree.of(task).and_then(|progress| progress.began);
                    let used = self.worked_so_far().as_micros();
                    let used = used.saturating_sub(began.unwrap_or_default().as_micros());
                    let used = Span::from_micros(used);
                    let (used, limit) = (used.to_string(), wall.to_string());
                    let crossing =
                        Crossing { task: id, cap: Cap::Wall, used, limit, exhausted: false };
                    self.record(Some(id), EventBody::BudgetWarned(crossing));
                }
            }
        }
    }
}
