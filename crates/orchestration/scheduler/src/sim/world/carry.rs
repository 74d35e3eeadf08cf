//! Carries out what the core decides, and records it as the driver does.

use std::{cmp::Reverse, sync::Arc};

use formwork_protocols::{
    Ask, Body, Escalation, EventBody, HoldId, Ledger as _, Span, TaskId, TaskSpec, TaskState,
    Usage, Usd,
    check::Phase,
    event::{
        AttemptStarted, BudgetSettled, CheckStarted, OverseerAsked, RunPaused, RunResumed,
        RunStarted, TaskCreated, TaskMoved,
    },
};

use super::{Asked, Event, Kept, Kind, Pause, Work, World};
use crate::{
    core::{Command, Input, Planted, Refusal, TaskIndex, decide, flatten},
    sim::{chance::StandsAt, forest},
};

impl World<'_> {
    /// Begins the run, or takes it up where it was left.
    pub(super) fn resume(&mut self) -> Kept {
        let owner = "simulated".to_owned();
        let body = if std::mem::replace(&mut self.was_started, true) {
            EventBody::RunResumed(RunResumed { owner })
        } else {
            EventBody::RunStarted(RunStarted { owner })
        };
        self.write(None, body);
        self.pause = Pause::No;
        self.watch.paused(false);
        for lapsed in self.accounts.unsettled() {
            let usage = Usage { input: lapsed.ask.tokens, ..Usage::default() };
            let task = self.state.find(lapsed.task).ok_or("a hold is of no task")?;
            self.settle((task, lapsed.hold, lapsed.ask), usage, lapsed.ask.usd)?;
        }
        while let Some(task) = self.due() {
            self.time_is_over(task)?;
        }
        if self.is_finished {
            return Ok(());
        }
        self.decide(Input::Start)?.map_err(|refusal| refusal.to_string())
    }

    /// Takes a timer that is due.
    fn due(&mut self) -> Option<TaskIndex> {
        let Reverse((at, _, Event::Timer(task))) = *self.events.peek()? else { return None };
        (at <= self.now).then(|| self.events.pop()).map(|_| task)
    }

    /// Throws everything away but the record, and makes all of it anew.
    pub(super) fn refold(&mut self) -> Kept {
        let folded = self.record.read().map_err(|error| format!("the record: {error}"))?;
        self.state = folded.tree.state;
        self.accounts = folded.tree.accounts;
        if self.is_overseen {
            self.state.oversee();
        }
        self.work.clear();
        self.events.clear();
        self.is_finished = false;
        self.watch.crashed();
        self.watch.all(&self.state, &self.accounts)?;
        // Nobody works on it for a while.
        self.advance(60_000);
        for task in self.state.tasks() {
            let state = self.state.state_of(task);
            let Some((after, _)) = self.state.deadline(task) else { continue };
            if !state.is_terminal() && state != TaskState::Created {
                let began = folded.tree.progress.get(task.position()).and_then(|its| its.began);
                let used =
                    folded.worked.as_micros().saturating_sub(began.unwrap_or_default().as_micros());
                let left = Span::from_micros(after.as_micros().saturating_sub(used));
                self.schedule(left, Event::Timer(task));
            }
        }
        self.resume()
    }

    /// Lets the core decide, and carries out what it says. The inner result is the core's.
    pub(super) fn decide(&mut self, input: Input) -> Kept<Result<(), Refusal>> {
        let result = self.decide_once(input)?;
        while let Some((task, asked)) = self.questions.pop_front() {
            if asked == Asked::Items {
                let items = self.items(task);
                let _late = self.decide_once(Input::Expanded { task, items })?;
                continue;
            }
            let holds = match self.chance.below(10) {
                0 => Err("by chance".to_owned()),
                1..4 => Ok(false),
                _ => Ok(true),
            };
            self.watch.judged(task, &holds);
            // It may have ended since it was asked.
            let _late = self.decide_once(Input::Judged { task, holds })?;
        }
        Ok(result)
    }

    /// Makes some items of a task by chance, or none.
    fn items(&mut self, task: TaskIndex) -> Result<Vec<Planted>, Escalation> {
        let none = |detail: &str| Err(Escalation::CannotBegin { detail: detail.to_owned() });
        let spec = Arc::clone(self.state.spec(task));
        let Body::ForEach(each) = &spec.body else { return none("it has none") };
        if self.chance.happens(50) {
            return none("by chance");
        }
        let mut planted = Vec::new();
        for number in 0..self.chance.below(6) {
            let one = TaskSpec { name: forest::name(number), ..each.task.clone() };
            let (now, rng) = (StandsAt(self.now), self.chance.rng());
            planted.extend(flatten(one, || TaskId::generate(&now, rng)));
        }
        Ok(planted)
    }

    fn decide_once(&mut self, input: Input) -> Kept<Result<(), Refusal>> {
        match &input {
            Input::Expanded { task, items } => {
                let items = items.as_ref().map(|items| items.iter().map(|item| item.id));
                let items: Result<Vec<_>, _> = items.map(Iterator::collect);
                self.series.note(format_args!("{} {task:?} has {items:?}", self.now.as_micros()));
            }
            input => self.series.note(format_args!("{} {input:?}", self.now.as_micros())),
        }
        let mut commands = std::mem::take(&mut self.commands);
        let result = decide(&mut self.state, input, &mut commands);
        if result.is_err() && !commands.is_empty() {
            return Err(format!("{result:?}, and yet {commands:?}"));
        }
        for command in commands.drain(..) {
            self.series.note(format_args!("  {command:?}"));
            self.watch.command(&self.state, &command)?;
            self.carry_out(command);
        }
        self.commands = commands;
        Ok(result)
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Create { task } => {
                let spec = Arc::clone(self.state.spec(task));
                let parent = self.state.parent(task).map(|above| self.state.id(above));
                self.accounts.open(self.state.id(task), parent, &spec.budget);
                self.write(Some(task), EventBody::TaskCreated(TaskCreated { parent, spec }));
            }
            Command::Move { task, from, signal, to, ending } => {
                let moved = TaskMoved { from, signal, to, ending, claim: None };
                self.write(Some(task), EventBody::TaskMoved(moved));
            }
            Command::Rest { task, after } => self.schedule(after, Event::Rested(task)),
            Command::Oversee { task, why } => {
                let (options, deadline) = (Vec::new(), self.now);
                let asked = OverseerAsked { why, options, deadline };
                self.write(Some(task), EventBody::OverseerAsked(asked));
                self.schedule_soon(60_000, Event::Overseen(task));
            }
            Command::Blocked { .. } => self.report.blocked += 1,
            Command::Judge { task } => self.questions.push_back((task, Asked::Condition)),
            Command::Expand { task } => self.questions.push_back((task, Asked::Items)),
            Command::Wait { task } => self.schedule_soon(90_000, Event::Wake(task)),
            Command::Timer { task } => {
                if let Some((after, _)) = self.state.deadline(task) {
                    self.schedule(after, Event::Timer(task));
                }
            }
            Command::Check { task, phase } => self.begin_check(task, phase, 0),
            Command::Attempt { task, number, continues } => {
                self.report.attempts += 1;
                if !continues {
                    let attempt = self.attempt;
                    let started = AttemptStarted { attempt, number, resumes: None };
                    self.write(Some(task), EventBody::AttemptStarted(started));
                }
                self.launch(task, Kind::Body(None));
            }
            Command::Rejoin { task } => {
                if let Some(work) = place(&mut self.work, task) {
                    work.kind = Kind::Body(None);
                    let event = Event::Work(task, work.number);
                    self.schedule_soon(3_000, event);
                }
            }
            Command::Interrupt { task } => {
                if let Some(work) = place(&mut self.work, task) {
                    work.is_told_to_stop = true;
                    let event = Event::Work(task, work.number);
                    self.schedule_soon(700, event);
                }
            }
            Command::Paused => {
                self.report.pauses += 1;
                let reason = "by chance".to_owned();
                self.write(None, EventBody::RunPaused(RunPaused { reason }));
                self.pause = Pause::Reached;
            }
            Command::Finish => self.is_finished = true,
        }
    }

    pub(super) fn begin_check(&mut self, task: TaskIndex, phase: Phase, index: u32) {
        let check = "simulated".to_owned();
        self.write(Some(task), EventBody::CheckStarted(CheckStarted { phase, index, check }));
        self.launch(task, Kind::Check(phase, index));
    }

    fn launch(&mut self, task: TaskIndex, kind: Kind) {
        self.launched += 1;
        let number = self.launched;
        *place(&mut self.work, task) = Some(Work { number, is_told_to_stop: false, kind });
        self.schedule_soon(3_000, Event::Work(task, number));
    }

    /// Has an event come up within so many milliseconds.
    pub(super) fn schedule_soon(&mut self, milliseconds: u32, event: Event) {
        let span = Span::from_micros(u64::from(self.chance.below(milliseconds * 1_000)));
        self.schedule(span, event);
    }

    fn schedule(&mut self, after: Span, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((self.now.after(after), self.scheduled, event)));
    }

    pub(super) fn advance(&mut self, milliseconds: u32) {
        let span = Span::from_millis(u64::from(self.chance.below(milliseconds)));
        self.now = self.now.after(span);
    }

    /// Replaces a reservation by what was really used.
    pub(super) fn settle(
        &mut self,
        (task, hold, ask): (TaskIndex, HoldId, Ask),
        usage: Usage,
        usd: Usd,
    ) -> Kept {
        self.report.model_calls += 1;
        self.accounts.settle(hold, &usage, usd);
        self.watch.purses.settled(task, ask, &usage, usd)?;
        let settled = BudgetSettled { hold, call: self.call, usd, usage };
        self.write(Some(task), EventBody::BudgetSettled(settled));
        Ok(())
    }

    pub(super) fn write(&mut self, task: Option<TaskIndex>, body: EventBody) {
        let task = task.map(|task| self.state.id(task));
        self.record.write(self.now, task, body);
    }
}

/// Returns a task's place in a list that grows with the tree.
pub(super) fn place<T>(list: &mut Vec<Option<T>>, task: TaskIndex) -> &mut Option<T> {
    if list.len() <= task.position() {
        list.resize_with(task.position() + 1, || None);
    }
    &mut list[task.position()]
}
