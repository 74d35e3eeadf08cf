//! The phases of a task: its checks, its attempts, and what follows from each.

use formwork_protocols::{
    Ending, Escalation, TaskSignal, TaskState,
    check::{CheckSpec, Phase},
};

use super::{
    decide::{BodyEnd, Command, Refusal},
    state::{Kind, State, TaskIndex, Work},
};

impl State {
    pub(super) fn check(&mut self, task: TaskIndex, phase: Phase, out: &mut Vec<Command>) {
        if self.paused {
            self.release_slot(task);
            return;
        }
        self.launch(task, Work::Checks);
        out.push(Command::Check { task, phase });
    }

    /// Lets a task in whose entry checks passed.
    pub(super) fn enter(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        self.shift(task, TaskSignal::Pass, None, out);
        if !matches!(self.node(task).kind, Kind::Parent(_)) {
            self.begin_attempt(task, out);
            return;
        }
        self.release_slot(task);
        let mut next = self.node(task).first_child.get();
        while let Some(child) = next {
            let node = self.node(child);
            next = node.next_sibling.get();
            if node.state == TaskState::Created && node.waiting == 0 {
                self.enqueue(child);
            }
        }
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
        let expected = match phase {
            Phase::Entry => TaskState::Prechecking,
            Phase::Exit => TaskState::Postchecking,
        };
        if node.work != Work::Checks || node.state != expected {
            return Err(self.stale(task));
        }
        self.land(task);
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
            (Phase::Exit, None) => self.finish(task, Ending::Completed, out),
            (Phase::Exit, Some(place)) => {
                self.node_mut(task).failed_check = place;
                self.shift(task, TaskSignal::Fail, None, out);
                self.retry_or_give_up(task, out);
            }
        }
        Ok(())
    }

    /// Tries a task again whose exit checks failed, or gives it up.
    pub(super) fn retry_or_give_up(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node(task);
        // The ends of children are final, so a parent has no second attempt.
        let can_retry =
            node.kind == Kind::Leaf && node.attempt <= node.spec.retries.max && !node.is_last_round;
        if can_retry {
            if self.paused {
                self.release_slot(task);
                return;
            }
            self.shift(task, TaskSignal::Retry, None, out);
            self.begin_attempt(task, out);
            return;
        }
        let check = check_name(&node.spec.postchecks, node.failed_check);
        let why = Escalation::ChecksExhausted { attempts: node.attempt.max(1), check };
        self.stop(task, Ending::Escalated { why }, out);
    }

    pub(super) fn again_or_escalate(
        &mut self,
        task: TaskIndex,
        why: Escalation,
        out: &mut Vec<Command>,
    ) {
        let node = self.node(task);
        let is_again = matches!(why, Escalation::BodyFailed { .. });
        if is_again && node.attempt <= node.spec.retries.max {
            self.begin_attempt(task, out);
        } else {
            self.stop(task, Ending::Escalated { why }, out);
        }
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
        self.node_mut(task).attempt_open = false;
        let open = self.open_names(task);
        if self.node(task).open > 0 {
            self.stop_children(task, out);
        }
        if self.node(task).stop.is_some() {
            self.end_if_stopped(task, out);
            return Ok(());
        }
        match (end, open) {
            (BodyEnd::Claimed, None) => self.claim(task, out),
            (BodyEnd::Claimed, Some(open)) => {
                let detail = format!("it ended while its tasks were open: {open}");
                self.again_or_escalate(task, Escalation::BodyFailed { detail }, out);
            }
            (BodyEnd::Failed(why), _) => self.again_or_escalate(task, why, out),
        }
        Ok(())
    }

    /// Takes a body at its word: the exit checks are next.
    pub(super) fn claim(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        self.shift(task, TaskSignal::End, None, out);
        if self.node(task).spec.postchecks.is_empty() {
            self.finish(task, Ending::Completed, out);
        } else {
            self.check(task, Phase::Exit, out);
        }
    }
}

fn check_name(checks: &[CheckSpec], place: u32) -> String {
    checks.get(place as usize).map_or_else(|| format!("number {place}"), |check| check.name.clone())
}
