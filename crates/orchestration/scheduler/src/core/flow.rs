//! What can go on: taken up, queued, paused, as far as the width allows.

use formwork_protocols::{Cancellation, Ending, Escalation, TaskSignal, TaskState, check::Phase};

use super::{
    decide::{Command, Refusal},
    state::{Condition, Expansion, Kind, State, TaskIndex, Work},
};

impl State {
    /// Finds everything that can go on, whatever was under way when the run was left.
    pub(super) fn take_up(&mut self, out: &mut Vec<Command>) {
        self.paused = false;
        self.pause_told = false;
        self.reclaim();
        for task in self.tasks() {
            if self.node(task).limit != u32::MAX {
                self.recount(task);
            }
        }
        for task in self.tasks() {
            let node = self.node(task);
            if node.state.is_terminal() {
                // Draws the consequences of a failure once more; those already drawn change nothing.
                if task == Self::ROOT || !self.satisfies(task) {
                    self.ended.push_back(task);
                }
                continue;
            }
            if node.state == TaskState::Suspended {
                self.node_mut(task).woken = false;
                out.push(Command::Wait { task });
                continue;
            }
            let begun = node.state != TaskState::Created;
            let parent_active = node.parent.get().is_none_or(|parent| {
                let above = self.node(parent);
                above.state == TaskState::Active
                    && above.kind != Kind::Wait
                    && (above.limit == u32::MAX || node.released)
            });
            let can_go_on = match node.kind {
                _ if node.work != Work::Idle => false,
                Kind::Inline => false,
                Kind::Parent(_) if node.state == TaskState::Active => {
                    node.open == 0 && node.failed_child.get().is_none()
                }
                // Whoever asked it to decide is gone, and asks once more.
                _ if node.decides => true,
                Kind::Leaf | Kind::Wait | Kind::Parent(_) => {
                    begun || (parent_active && node.waiting == 0)
                }
            };
            if can_go_on {
                self.enqueue(task);
            }
        }
        self.draw_consequences(out);
        for task in self.tasks() {
            if self.was_being_stopped(task) {
                let why = Cancellation::Requested;
                self.stop(task, Ending::Cancelled { why }, out);
            }
        }
    }

    /// Tells whether a process died while it ended a parent: the request is lost, and some of its
    /// children have ended for it. It could not complete without them.
    pub(super) fn was_being_stopped(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        if node.attempt_open {
            return self.lost_what_it_made(task);
        }
        matches!(node.kind, Kind::Parent(_))
            && !node.state.is_terminal()
            && node.stop.is_none()
            && node.open < node.children
            && node.failed_child.get().is_none()
            && self.children(task).filter(|child| !self.node(*child).decides).any(|child| {
                let why = Cancellation::ParentEnded;
                self.node(child).ending.as_deref() == Some(&Ending::Cancelled { why })
            })
    }

    pub(super) fn draw_consequences(&mut self, out: &mut Vec<Command>) {
        while let Some(task) = self.ended.pop_front() {
            self.after_end(task, out);
        }
    }

    /// Draws the consequences of what has ended and begins what is ready, as far as the width allows.
    pub(super) fn go_on(&mut self, out: &mut Vec<Command>) {
        loop {
            self.draw_consequences(out);
            if self.paused {
                break;
            }
            let Some(&task) = self.ready.front() else { break };
            let node = self.node(task);
            let is_over = node.state.is_terminal() || node.stop.is_some();
            if !is_over && self.wants_slot(task) && self.slots_used >= self.width {
                break;
            }
            self.ready.pop_front();
            self.node_mut(task).queued = false;
            if !is_over {
                self.advance(task, out);
            }
        }
        let is_over = self.node(Self::ROOT).state.is_terminal();
        if self.paused && self.busy == 0 && !is_over && !self.pause_told {
            self.pause_told = true;
            out.push(Command::Paused);
        }
    }

    pub(super) fn enqueue(&mut self, task: TaskIndex) {
        let node = self.node_mut(task);
        if !std::mem::replace(&mut node.queued, true) {
            // A parent that only has to be checked is close to its end, and frees what waits for it.
            if node.state == TaskState::Created {
                self.ready.push_back(task);
            } else {
                self.ready.push_front(task);
            }
        }
    }

    /// Puts a task before all others that wait: it was their first before.
    pub(super) fn enqueue_first(&mut self, task: TaskIndex) {
        if !std::mem::replace(&mut self.node_mut(task).queued, true) {
            self.ready.push_front(task);
        }
    }

    /// Tells whether the next step of a queued task is work that counts against the width.
    pub(super) fn wants_slot(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        match (node.kind, node.state) {
            _ if node.holds_slot => false,
            (_, TaskState::Created) if node.condition != Condition::Holds => false,
            (Kind::Parent(_) | Kind::Wait, TaskState::Created) => !node.spec.prechecks.is_empty(),
            (Kind::Wait, TaskState::Suspended) => {
                !node.spec.postchecks.is_empty() || !node.spec.on_success.is_empty()
            }
            (Kind::Parent(_), TaskState::Active) => {
                let spec = &node.spec;
                let is_checked = !spec.postchecks.is_empty() || !spec.on_success.is_empty();
                node.expansion == Expansion::Done && is_checked
            }
            _ => true,
        }
    }

    /// Takes the next step of a task that is ready.
    pub(super) fn advance(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node(task);
        if node.work != Work::Idle {
            return self.rejoin(task, out);
        }
        match node.state {
            TaskState::Created => {
                if self.asks(task, out) || self.must_wait(task, out) {
                    return;
                }
                self.shift(task, TaskSignal::Start, None, out);
                let spec = &self.node(task).spec;
                let has_checks = !spec.prechecks.is_empty();
                if spec.timeout.is_some() || spec.budget.wall.is_some() || spec.idle.is_some() {
                    out.push(Command::Timer { task });
                }
                if has_checks {
                    self.check(task, Phase::Entry, out);
                } else {
                    self.enter(task, out);
                }
            }
            TaskState::Prechecking => self.check(task, Phase::Entry, out),
            // What follows may have changed what the checks looked at.
            TaskState::Postchecking if node.follows || node.spec.postchecks.is_empty() => {
                self.check(task, Phase::Success, out);
            }
            TaskState::Postchecking => self.check(task, Phase::Exit, out),
            TaskState::PostcheckFailed => self.retry_or_give_up(task, out),
            TaskState::Active if matches!(node.kind, Kind::Parent(_)) => {
                if !self.expands(task, out) {
                    self.claim(task, out);
                }
            }
            TaskState::Active if node.kind == Kind::Wait => self.suspend(task, out),
            TaskState::Suspended => self.wake(task, out),
            TaskState::Active if node.attempt_open => {
                let number = node.attempt;
                self.launch(task, Work::Body);
                out.push(Command::Attempt { task, number, continues: true });
            }
            TaskState::Active => self.after_attempt(task, out),
            TaskState::Completed
            | TaskState::PrecheckFailed
            | TaskState::Escalated
            | TaskState::Cancelled => {}
        }
    }

    /// Marks work as under way, in a place of the width.
    pub(super) fn launch(&mut self, task: TaskIndex, work: Work) {
        let node = self.node_mut(task);
        node.work = work;
        if !std::mem::replace(&mut node.holds_slot, true) {
            self.slots_used += 1;
        }
        self.busy += 1;
    }

    /// Marks work as over.
    pub(super) fn land(&mut self, task: TaskIndex) {
        self.node_mut(task).work = Work::Idle;
        self.busy -= 1;
    }

    pub(super) fn release_slot(&mut self, task: TaskIndex) {
        if std::mem::replace(&mut self.node_mut(task).holds_slot, false) {
            self.slots_used -= 1;
        }
    }

    pub(super) fn interrupted(
        &mut self,
        task: TaskIndex,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        if self.node(task).work == Work::Idle {
            return Err(self.stale(task));
        }
        self.land(task);
        self.joins.remove(&task);
        if self.node(task).stop.is_some() {
            self.stop_children(task, out);
            self.end_if_stopped(task, out);
        } else if self.paused {
            self.release_slot(task);
        } else {
            // Nobody asked for it, so nobody would begin it again.
            let detail = "it was broken off".to_owned();
            let why = Escalation::BodyFailed { detail };
            self.stop(task, Ending::Escalated { why }, out);
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, out: &mut Vec<Command>) {
        if std::mem::replace(&mut self.paused, true) {
            return;
        }
        let busy = self.tasks().filter(|task| {
            let node = self.node(*task);
            node.work != Work::Idle && node.stop.is_none()
        });
        out.extend(busy.map(|task| Command::Interrupt { task }));
    }
}
