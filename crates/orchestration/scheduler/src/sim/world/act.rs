//! What comes up, and what comes of it.

use std::{cmp::Reverse, sync::Arc};

use formwork_protocols::{
    Ask, Body, Cancellation, Ending, Escalation, EventBody, FailureClass, HoldId, Ledger as _,
    TaskId, TaskState, Usage, Usd,
    check::{Phase, Verdict},
    event::{
        AttemptEnded, BudgetReserved, CheckFinished, Decided, OverseerAnswered, ToolRequested,
    },
    overseer::Action,
    tool::Replay,
};

use super::{Event, Kept, Kind, Pause, World, carry::place};
use crate::{
    core::{BodyEnd, Input, MOST_GRANTED, Oversight, TaskIndex, flatten},
    sim::{chance::StandsAt, forest},
};

impl World<'_> {
    /// Lets the next thing happen: a whim of chance, or what comes up first.
    pub(super) fn step(&mut self) -> Kept {
        if self.whims > 0 && self.whim()? {
            self.whims -= 1;
            return Ok(());
        }
        if self.pause == Pause::Reached {
            // It is resumed by the process that paused it, or by another.
            return if self.chance.happens(500) { self.resume() } else { self.refold() };
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = self.now.max(at);
            match event {
                Event::Timer(task) => return self.time_is_over(task),
                Event::Wake(task) => return self.wakes(task),
                Event::Rested(task) => {
                    // It may have ended since, or begun again after a pause.
                    let _late = self.decide(Input::Rested { task })?;
                    return Ok(());
                }
                Event::Overseen(task) => return self.overseen(task),
                Event::Work(task, number) => {
                    let Some(work) = place(&mut self.work, task) else { continue };
                    if work.number != number {
                        continue;
                    }
                    let (kind, is_told_to_stop) = (work.kind, work.is_told_to_stop);
                    return match kind {
                        Kind::Check(phase, index) => {
                            self.check(task, phase, index, is_told_to_stop)
                        }
                        Kind::Body(Some((payer, hold, ask))) => {
                            self.answered(task, (payer, hold, ask), is_told_to_stop)
                        }
                        Kind::Body(None) | Kind::Waits if is_told_to_stop => self.stops(task),
                        Kind::Waits => continue,
                        Kind::Body(None) => self.body(task),
                    };
                }
            }
        }
        Err("nothing is under way, and the run has not ended".to_owned())
    }

    /// Lets somebody interfere, or the process die. Tells whether anything happened.
    fn whim(&mut self) -> Kept<bool> {
        if self.chance.happens(self.mood.crash) {
            self.report.crashes += 1;
            self.series.note(format_args!("{} crash", self.now.as_micros()));
            self.refold()?;
        } else if self.pause == Pause::No && self.chance.happens(self.mood.pause) {
            self.pause = Pause::Asked;
            self.watch.paused(true);
            self.must(Input::Pause)?;
        } else if self.chance.happens(self.mood.cancel) {
            let place = self.chance.place(self.state.len());
            let Some(task) = self.state.tasks().nth(place) else { return Ok(false) };
            if self.state.state_of(task).is_terminal() {
                return Ok(false);
            }
            self.report.cancels += 1;
            let ending = Ending::Cancelled { why: Cancellation::Requested };
            self.watch.asked(task, ending, self.state.is_stopping(task));
            self.must(Input::Cancel { task })?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Ends a task whose time is over, if it has not ended.
    pub(super) fn time_is_over(&mut self, task: TaskIndex) -> Kept {
        let state = self.state.state_of(task);
        let Some((_, why)) = self.state.deadline(task) else { return Ok(()) };
        if state.is_terminal() {
            return Ok(());
        }
        self.report.timeouts += 1;
        let ending = Ending::Escalated { why: why.clone() };
        self.watch.asked(task, ending, self.state.is_stopping(task));
        self.must(Input::TimedOut { task, why })?;
        if self.state.is_stopping(task) || self.state.state_of(task).is_terminal() {
            Ok(())
        } else {
            Err(format!("the time of {task:?} is over, and it goes on"))
        }
    }

    /// Lets somebody outside say what a task waits for, or that it will not come. It may come too late, or
    /// during a pause.
    fn wakes(&mut self, task: TaskIndex) -> Kept {
        let detail = "by chance".to_owned();
        let end = match self.chance.below(5) {
            0 => BodyEnd::Failed(Escalation::Refused { detail }),
            _ => BodyEnd::Claimed,
        };
        let _late = self.decide(Input::Woken { task, end })?;
        Ok(())
    }

    /// Lets whoever governs the run decide about a task. It may come too late, or during a pause.
    fn overseen(&mut self, task: TaskIndex) -> Kept {
        if !self.state.is_overseen(task) || self.pause != Pause::No {
            return Ok(());
        }
        let reason = "by chance".to_owned();
        let (action, what) = match self.chance.below(4) {
            0 if self.state.can_be_accepted(task) => (Action::Accept { reason }, Oversight::Accept),
            1 | 2 if self.state.granted(task) < MOST_GRANTED => {
                (Action::Retry { advice: reason }, Oversight::Retry)
            }
            _ => (Action::Fail { reason }, Oversight::GiveUp),
        };
        self.report.overseen += 1;
        self.write(Some(task), EventBody::OverseerAnswered(OverseerAnswered { action }));
        self.must(Input::Overseen { task, what })
    }

    fn check(&mut self, task: TaskIndex, phase: Phase, index: u32, is_told_to_stop: bool) -> Kept {
        let checks = self.state.spec(task).checks(phase);
        let is_last = index as usize + 1 >= checks.len();
        if is_told_to_stop && !(is_last && self.chance.happens(250)) {
            self.lands(task);
            return self.must(Input::Interrupted { task });
        }
        self.report.checks += 1;
        let passed = !self.chance.happens(self.mood.check_fails);
        let verdict = Verdict::bare("simulated".to_owned(), passed, "by chance".to_owned());
        let finished = CheckFinished { phase, index, verdict };
        self.write(Some(task), EventBody::CheckFinished(Box::new(finished)));
        if passed && !is_last {
            self.series.note(format_args!("{} {task:?} passed {index}", self.now.as_micros()));
            self.begin_check(task, phase, index + 1);
            return Ok(());
        }
        self.lands(task);
        self.must(Input::Checked { task, phase, failed: (!passed).then_some(index) })
    }

    /// Lets a model answer, at no more than the reserved cost.
    fn answered(
        &mut self,
        task: TaskIndex,
        (payer, hold, ask): (TaskIndex, HoldId, Ask),
        is_told_to_stop: bool,
    ) -> Kept {
        // The provider bills a request that was broken off, and nobody learns how much.
        let share = if is_told_to_stop { 100 } else { self.chance.below(101) };
        let usage = Usage { input: ask.tokens * u64::from(share) / 100, ..Usage::default() };
        self.settle((payer, hold, ask), usage, ask.usd.percent(share).min(ask.usd))?;
        self.series.note(format_args!("{} {payer:?} spent {share} %", self.now.as_micros()));
        if is_told_to_stop {
            return self.stops(task);
        }
        self.goes_on(task, None);
        Ok(())
    }

    /// Lets a body stop as it was told, or say at the last moment that it is done.
    fn stops(&mut self, task: TaskIndex) -> Kept {
        if self.chance.happens(250) {
            return self.ends(task, BodyEnd::Claimed);
        }
        // An attempt that a pause broke off goes on later.
        if self.pause == Pause::No || !self.state.is_acting(task) {
            self.attempt_ended(task, false);
        }
        self.lands(task);
        self.must(Input::Interrupted { task })
    }

    /// Lets a body do the next thing.
    fn body(&mut self, task: TaskIndex) -> Kept {
        if self.chance.happens(self.mood.opens_parts) {
            return self.part(task);
        }
        if self.chance.happens(self.mood.makes) {
            return if self.chance.happens(700) { self.makes(task) } else { self.waits(task) };
        }
        match self.chance.below(1_000) {
            0..500 => self.asks_a_model(task),
            500..650 => self.calls_a_tool(task),
            // Its host breaks it off, though nobody asked for it.
            650..653 => {
                self.attempt_ended(task, false);
                self.lands(task);
                self.must(Input::Interrupted { task })
            }
            _ if self.chance.happens(self.mood.body_fails) => {
                let detail = "by chance".to_owned();
                let why = match self.chance.below(6) {
                    0 => Escalation::Stuck { pattern: None, detail },
                    1 => Escalation::ProviderFailed { detail },
                    2 | 3 => Escalation::Unreachable { detail },
                    _ => Escalation::BodyFailed { detail },
                };
                self.ends(task, BodyEnd::Failed(why))
            }
            _ => self.ends(task, BodyEnd::Claimed),
        }
    }

    fn asks_a_model(&mut self, task: TaskIndex) -> Kept {
        let payer = self.any_of_conversation(task);
        let hold = HoldId::generate(&StandsAt(self.now), self.chance.rng());
        let usd = Usd::from_nanos(i64::from(self.chance.below(100)));
        let ask = Ask { usd, tokens: u64::from(self.chance.below(400)) };
        let answer = self.accounts.reserve(self.state.id(payer), hold, ask);
        self.series.note(format_args!("{} {payer:?} {ask:?} {answer:?}", self.now.as_micros()));
        self.watch.purses.reserved(payer, ask, answer.is_ok())?;
        if let Err(refusal) = answer {
            return self.is_refused(task, refusal.to_string());
        }
        let reserved = BudgetReserved { hold, call: self.call, usd, tokens: ask.tokens };
        self.write(Some(payer), EventBody::BudgetReserved(reserved));
        self.goes_on(task, Some((payer, hold, ask)));
        Ok(())
    }

    fn calls_a_tool(&mut self, task: TaskIndex) -> Kept {
        let payer = self.any_of_conversation(task);
        let answer = self.accounts.count_tool_call(self.state.id(payer));
        self.series.note(format_args!("{} {payer:?} tool {answer:?}", self.now.as_micros()));
        self.watch.purses.called(payer, answer.is_ok())?;
        if let Err(refusal) = answer {
            return self.is_refused(task, refusal.to_string());
        }
        let requested = ToolRequested {
            call: self.call,
            session: self.session,
            pair: String::new(),
            tool: "simulated".to_owned(),
            arguments: serde_json::Value::Null,
            class: None,
            replay: Replay::Pure,
            paths: Vec::new(),
            decision: Decided::Allowed,
        };
        self.write(Some(payer), EventBody::ToolRequested(Box::new(requested)));
        self.goes_on(task, None);
        Ok(())
    }

    fn is_refused(&mut self, task: TaskIndex, detail: String) -> Kept {
        self.report.refused += 1;
        self.ends(task, BodyEnd::Failed(Escalation::BudgetExhausted { detail }))
    }

    /// Lets a body open a part of its conversation, or close one. It may be refused.
    fn part(&mut self, task: TaskIndex) -> Kept {
        let one = self.any_of_conversation(task);
        let is_closing = one != task && self.chance.happens(500);
        let input = if is_closing {
            Input::Close { task: one }
        } else {
            let id = TaskId::generate(&StandsAt(self.now), self.chance.rng());
            let spec = Arc::new(forest::part(self.chance.below(4)));
            Input::Open { parent: one, id, spec }
        };
        if self.decide(input)?.is_ok() && !is_closing {
            self.report.parts += 1;
        }
        self.goes_on(task, None);
        Ok(())
    }

    /// Lets a body make a task, or a part of its conversation. It may be refused.
    fn makes(&mut self, task: TaskIndex) -> Kept {
        let parent = self.any_of_conversation(task);
        let spec = forest::made(&self.chance);
        let tree = flatten(spec, || TaskId::generate(&StandsAt(self.now), self.chance.rng()));
        let many = u64::try_from(tree.len()).unwrap_or(u64::MAX);
        if self.decide(Input::Make { parent, tree })?.is_ok() {
            self.report.made += many;
        }
        self.goes_on(task, None);
        Ok(())
    }

    /// Lets a body wait for what it has made, or a part of its conversation for what that has made.
    fn waits(&mut self, task: TaskIndex) -> Kept {
        let asking = self.any_of_conversation(task);
        let made: Vec<TaskIndex> = self.state.made(asking).collect();
        let is_all = self.chance.happens(500);
        let on: Vec<TaskIndex> =
            made.into_iter().filter(|_| is_all || self.chance.happens(500)).collect();
        if let Some(work) = place(&mut self.work, task) {
            work.kind = Kind::Waits;
        }
        self.watch.waits(task, on.clone());
        self.report.waits += 1;
        if self.decide(Input::Await { task: asking, on })?.is_err() {
            self.watch.waits_no_more(task);
            self.goes_on(task, None);
        }
        Ok(())
    }

    /// Picks a task or one of the open parts of its conversation.
    fn any_of_conversation(&self, task: TaskIndex) -> TaskIndex {
        let mut open = vec![task];
        let mut seen = 0;
        while let Some(&above) = open.get(seen) {
            seen += 1;
            open.extend(self.state.children(above).filter(|part| {
                matches!(self.state.spec(*part).body, Body::Inline { .. })
                    && self.state.state_of(*part) == TaskState::Active
                    && self.state.is_acting(*part)
            }));
        }
        open.get(self.chance.place(open.len())).copied().unwrap_or(task)
    }

    fn ends(&mut self, task: TaskIndex, end: BodyEnd) -> Kept {
        let class = match &end {
            BodyEnd::Claimed => None,
            BodyEnd::Failed(why) => Some(why.class()),
        };
        self.attempt_ended_as(task, class.is_none(), class);
        self.lands(task);
        self.must(Input::Ended { task, end })
    }

    fn attempt_ended(&mut self, task: TaskIndex, claimed: bool) {
        self.attempt_ended_as(task, claimed, None);
    }

    fn attempt_ended_as(&mut self, task: TaskIndex, claimed: bool, class: Option<FailureClass>) {
        let reason = "by chance".to_owned();
        let ended = AttemptEnded { attempt: self.attempt, claimed, reason, class };
        self.write(Some(task), EventBody::AttemptEnded(ended));
    }

    fn goes_on(&mut self, task: TaskIndex, held: Option<(TaskIndex, HoldId, Ask)>) {
        if let Some(work) = place(&mut self.work, task) {
            work.kind = Kind::Body(held);
            let event = Event::Work(task, work.number);
            self.schedule_soon(3_000, event);
        }
    }

    fn lands(&mut self, task: TaskIndex) {
        *place(&mut self.work, task) = None;
        self.watch.landed(task);
    }

    /// Lets the core decide on what it has no reason to refuse.
    fn must(&mut self, input: Input) -> Kept {
        self.decide(input)?.map_err(|refusal| format!("it was refused: {refusal}"))
    }
}
