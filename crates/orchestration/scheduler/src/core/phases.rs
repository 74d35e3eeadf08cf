//! The phases of a task: its checks, its attempts, and what follows from each.

use formwork_protocols::{
    Body, Ending, Escalation, FailureClass, Span, TaskSignal, TaskState,
    check::{CheckKind, CheckSpec, Phase},
};

use super::{
    decide::{BodyEnd, Command, Refusal},
    made::Join,
    state::{Kind, State, TaskIndex, Work},
};

impl State {
    pub(super) fn check(&mut self, task: TaskIndex, phase: Phase, out: &mut Vec<Command>) {
        if self.paused {
            self.release_slot(task);
            return;
        }
        self.launch(task, Work::Checks);
        self.node_mut(task).follows |= phase == Phase::Success;
        out.push(Command::Check { task, phase });
    }

    /// Lets a task in whose entry checks passed.
    pub(super) fn enter(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        self.shift(task, TaskSignal::Pass, None, out);
        if self.node(task).kind == Kind::Wait {
            self.suspend(task, out);
            return;
        }
        if !matches!(self.node(task).kind, Kind::Parent(_)) {
            self.begin_attempt(task, out);
            return;
        }
        self.release_slot(task);
        if self.expands(task, out) {
            return;
        }
        self.release_children(task);
        self.end_if_childless(task, out);
    }

    /// Ends a parent that works no more because all its children have ended.
    pub(super) fn end_if_childless(&mut self, parent: TaskIndex, out: &mut Vec<Command>) {
        let above = self.node(parent);
        if above.open > 0 || above.state != TaskState::Active {
            return;
        }
        match above.failed_child.get() {
            Some(failed) => {
                let child = self.node(failed).spec.name.clone();
                let why = Escalation::ChildFailed { child };
                self.finish(parent, Ending::Escalated { why }, out);
            }
            None => self.enqueue(parent),
        }
    }

    pub(super) fn begin_attempt(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        if self.paused {
            self.release_slot(task);
            return;
        }
        self.launch(task, Work::Body);
        let node = self.node_mut(task);
        node.attempt += 1;
        node.attempt_open = true;
        out.push(Command::Attempt { task, number: node.attempt, continues: false });
    }

    pub(super) fn checked(
        &mut self,
        task: TaskIndex,
        phase: Phase,
        failed: Option<u32>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let node = self.node(task);
        let fits = match phase {
            Phase::Entry => node.state == TaskState::Prechecking,
            Phase::Exit | Phase::Success => node.state == TaskState::Postchecking,
            Phase::Retry => matches!(node.state, TaskState::PostcheckFailed | TaskState::Active),
        };
        if node.work != Work::Checks || !fits {
            return Err(self.stale(task));
        }
        self.land(task);
        // Whoever has decided waits for nothing any more.
        self.joins.remove(&task);
        if self.node(task).open > 0 {
            self.stop_deciding(task, out);
        }
        if phase == Phase::Exit && failed.is_none() && self.is_merged(task) {
            // It was to stop while that came about, and cannot be undone by that.
            self.node_mut(task).stop = None;
        }
        if self.node(task).stop.is_some() {
            self.end_if_stopped(task, out);
            return Ok(());
        }
        match (phase, failed) {
            (Phase::Entry, None) => self.enter(task, out),
            (Phase::Entry, Some(place)) => {
                let check = check_name(&self.node(task).spec.prechecks, place);
                self.stop(task, Ending::PrecheckFailed { check }, out);
            }
            (Phase::Exit, None) if !self.node(task).spec.on_success.is_empty() => {
                self.check(task, Phase::Success, out);
            }
            (Phase::Exit | Phase::Success, None) => self.finish(task, Ending::Completed, out),
            (Phase::Retry, None) => self.attempt_again(task, out),
            (Phase::Success | Phase::Retry, Some(place)) => {
                let done = check_name(self.node(task).spec.checks(phase), place);
                let detail = match phase {
                    Phase::Retry => format!("{done:?} failed, which comes before another attempt"),
                    _ => format!("{done:?} failed, which follows once the task has succeeded"),
                };
                let why = Escalation::BodyFailed { detail };
                self.stop(task, Ending::Escalated { why }, out);
            }
            (Phase::Exit, Some(place)) => {
                self.node_mut(task).failed_check = place;
                self.shift(task, TaskSignal::Fail, None, out);
                self.retry_or_give_up(task, out);
            }
        }
        Ok(())
    }

    /// Tells whether a task whose exit checks have passed is done with that: what it did in a workspace of its own is in
    /// the run's, and nothing follows.
    fn is_merged(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        let last = node.spec.postchecks.last();
        node.open == 0
            && node.spec.on_success.is_empty()
            && last.is_some_and(|check| matches!(check.kind, CheckKind::Merged))
    }

    /// Tries a task again whose exit checks failed, or gives it up.
    pub(super) fn retry_or_give_up(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node(task);
        // The ends of children are final, so a parent has no second attempt.
        let can_repair =
            !node.repaired && heeds_evidence(&node.spec.body) && self.is_misshapen(task);
        let can_retry = node.kind == Kind::Leaf
            && (can_repair || (self.has_attempts_left(task) && !node.is_last_round));
        if can_retry {
            self.node_mut(task).repaired |= can_repair;
            self.retry(task, out);
            return;
        }
        let check = check_name(&node.spec.postchecks, node.failed_check);
        let why = Escalation::ChecksExhausted { attempts: node.attempt.max(1), check };
        self.give_up(task, why, out);
    }

    pub(super) fn again_or_escalate(
        &mut self,
        task: TaskIndex,
        why: Escalation,
        out: &mut Vec<Command>,
    ) {
        let is_leaf = self.node(task).kind == Kind::Leaf;
        match why.class() {
            FailureClass::Work if is_leaf && self.has_attempts_left(task) => self.retry(task, out),
            FailureClass::Passing if is_leaf && let Some(after) = self.next_rest(task) => {
                self.node_mut(task).passing += 1;
                self.release_slot(task);
                self.joins.insert(task, Join::Rests);
                out.push(Command::Rest { task, after });
            }
            _ => self.give_up(task, why, out),
        }
    }

    /// Tells whether a task may be tried once more. A repair of the form of its result takes no attempt away.
    fn has_attempts_left(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        let others = u32::from(node.repaired).saturating_add(node.passing);
        let others = others.saturating_add(self.granted(task));
        node.attempt <= node.spec.retries.max.saturating_add(others)
    }

    /// Returns how long a task rests before it is tried again after what may pass by itself, if it waits for that
    /// any longer.
    fn next_rest(&self, task: TaskIndex) -> Option<Span> {
        let node = self.node(task);
        let most = node.spec.retries.outage?.as_micros();
        let rested = (0..node.passing).map(rest).map(Span::as_micros);
        let next = rest(node.passing);
        // Rests stop growing, so many of them are counted and not added up.
        (rested.fold(next.as_micros(), u64::saturating_add) <= most).then_some(next)
    }

    /// Lets a task that has rested try again.
    pub(super) fn rested(&mut self, task: TaskIndex) -> Result<(), Refusal> {
        if !matches!(self.joins.get(&task), Some(Join::Rests)) || self.node(task).stop.is_some() {
            return Err(self.stale(task));
        }
        self.enqueue(task);
        Ok(())
    }

    /// Tells whether the exit check that failed was about the form of the result.
    fn is_misshapen(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        let check = node.spec.postchecks.get(node.failed_check as usize);
        check.is_some_and(|check| matches!(check.kind, CheckKind::Output(_)))
    }

    /// Tells whether another attempt only has to put right the form of a result.
    pub fn is_repairing(&self, task: TaskIndex) -> bool {
        self.node(task).repaired && self.is_misshapen(task)
    }

    /// Puts in order what another attempt needs, and makes it.
    fn retry(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        if self.node(task).spec.before_retry.is_empty() {
            self.attempt_again(task, out);
        } else {
            self.check(task, Phase::Retry, out);
        }
    }

    pub(super) fn attempt_again(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        if self.paused {
            self.release_slot(task);
            return;
        }
        if self.node(task).state == TaskState::PostcheckFailed {
            self.shift(task, TaskSignal::Retry, None, out);
        }
        self.begin_attempt(task, out);
    }

    pub(super) fn body_ended(
        &mut self,
        task: TaskIndex,
        end: BodyEnd,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        if self.node(task).work != Work::Body {
            return Err(self.stale(task));
        }
        self.land(task);
        self.joins.remove(&task);
        self.node_mut(task).attempt_open = false;
        let open = self.open_names(task);
        if self.node(task).open > 0 {
            self.stop_children(task, out);
        }
        if self.node(task).stop.is_some() {
            self.end_if_stopped(task, out);
            return Ok(());
        }
        let why = match (end, open) {
            (BodyEnd::Claimed, None) => {
                self.claim(task, out);
                return Ok(());
            }
            (BodyEnd::Claimed, Some(open)) => {
                let detail = format!("it ended while its tasks were open: {open}");
                Escalation::BodyFailed { detail }
            }
            (BodyEnd::Failed(why), _) => why,
        };
        self.once_alone(task, why, out);
        Ok(())
    }

    /// Takes a body at its word: the exit checks are next.
    pub(super) fn claim(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        self.shift(task, TaskSignal::End, None, out);
        let spec = &self.node(task).spec;
        match (spec.postchecks.is_empty(), spec.on_success.is_empty()) {
            (true, true) => self.finish(task, Ending::Completed, out),
            (true, false) => self.check(task, Phase::Success, out),
            (false, _) => self.check(task, Phase::Exit, out),
        }
    }
}

/// Tells whether what carries out a body is shown why its result was refused, and can put it right. What is not does once more
/// what it has done.
pub(crate) const fn heeds_evidence(body: &Body) -> bool {
    !matches!(body, Body::Command { .. } | Body::Call(_))
}

/// Returns the rest before the further try of that number: a quarter of a second, doubled each time, a minute at
/// the most.
fn rest(number: u32) -> Span {
    Span::from_millis(250_u64 << number.min(8)).min(Span::from_secs(60))
}

fn check_name(checks: &[CheckSpec], place: u32) -> String {
    checks.get(place as usize).map_or_else(|| format!("number {place}"), |check| check.name.clone())
}
