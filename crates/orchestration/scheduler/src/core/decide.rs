//! What happened, what to do, and the one function between them.

use std::sync::Arc;

use formwork_protocols::{
    Cancellation, Ending, Escalation, TaskId, TaskName, TaskSignal, TaskSpec, TaskState,
    budget::TreeCaps, check::Phase, spec::OnFailure,
};

use super::state::{Kind, State, TaskIndex, Work};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Input {
    /// The run is taken up, from its beginning or from where it was left.
    Start,
    /// All checks of a phase passed, or the one at place `failed` did not.
    Checked { task: TaskIndex, phase: Phase, failed: Option<u32> },
    /// An attempt ended.
    Ended { task: TaskIndex, end: BodyEnd },
    /// The attempt or the checks of a task were broken off without a result.
    Interrupted { task: TaskIndex },
    /// A task's time is over.
    TimedOut { task: TaskIndex, why: Escalation },
    /// Somebody ends a task and all below it.
    Cancel { task: TaskIndex },
    /// No work begins any more, and what is under way is broken off. [`Input::Start`] goes on.
    Pause,
    /// An attempt opens a part of its conversation as a task of its own.
    Open { parent: TaskIndex, id: TaskId, spec: Arc<TaskSpec> },
    /// An attempt closes such a task.
    Close { task: TaskIndex },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum BodyEnd {
    /// The body says that it is done.
    Claimed,
    /// The body gave up. After [`Escalation::BodyFailed`] it is tried again while attempts are left;
    /// another attempt would meet every other reason again, so the task is given up.
    Failed(Escalation),
}

/// Something to do. Moves are to be recorded, in order, before what follows them is carried out.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Command {
    /// Record that a task was added.
    Create { task: TaskIndex },
    /// Record that a task moved.
    Move {
        task: TaskIndex,
        from: TaskState,
        signal: TaskSignal,
        to: TaskState,
        /// How it ended, where `to` is final.
        ending: Option<Ending>,
    },
    /// Begin to measure a task's time.
    Timer { task: TaskIndex },
    /// Run the checks of a phase, one after the other, until one fails.
    Check { task: TaskIndex, phase: Phase },
    /// Make an attempt; go on with the one that was left where `continues`.
    Attempt { task: TaskIndex, number: u32, continues: bool },
    /// Break off the attempt or the checks of a task.
    Interrupt { task: TaskIndex },
    /// Nothing is under way any more: the run is paused.
    Paused,
    /// The root task has ended, and with it everything.
    Finish,
}

/// Why an input changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Refusal {
    /// The task is past that, or was never there: the input came late.
    #[error("task {task} is {state}, and nothing of that kind is under way")]
    Stale { task: TaskName, state: TaskState },
    /// A task is opened or closed below one whose body does not act.
    #[error("task {task} is {state}, wanted an active task")]
    NotActive { task: TaskName, state: TaskState },
    /// Only a task with a conversation can have parts of it.
    #[error("task {task} has no conversation that another task could be a part of")]
    NoConversation { task: TaskName },
    /// The task is no part of a conversation.
    #[error("task {task} was not opened by start_task, and ends by its own checks")]
    NotInline { task: TaskName },
    /// The name is in use.
    #[error("task {parent} has an open task {name} already")]
    NameTaken { parent: TaskName, name: TaskName },
    /// The tree would become too large.
    #[error("task {task} allows at most {limit} {what}")]
    Cap { task: TaskName, limit: u32, what: &'static str },
    /// Its children have not ended.
    #[error("task {task} has open tasks: {children}")]
    OpenChildren { task: TaskName, children: String },
}

/// Takes what happened and appends what to do.
///
/// # Errors
/// [`Refusal`] when the input does not fit; then nothing has changed and nothing was appended.
pub fn decide(state: &mut State, input: Input, out: &mut Vec<Command>) -> Result<(), Refusal> {
    match input {
        Input::Start => state.take_up(out),
        Input::Checked { task, phase, failed } => state.checked(task, phase, failed, out)?,
        Input::Ended { task, end } => state.body_ended(task, end, out)?,
        Input::Interrupted { task } => state.interrupted(task, out)?,
        Input::TimedOut { task, why } => {
            let node = state.node(task);
            if node.state.is_terminal() || node.state == TaskState::Created {
                return Err(state.stale(task));
            }
            state.stop(task, Ending::Escalated { why }, out);
        }
        Input::Cancel { task } => {
            if state.node(task).state.is_terminal() {
                return Err(state.stale(task));
            }
            state.stop(task, Ending::Cancelled { why: Cancellation::Requested }, out);
        }
        Input::Pause => state.pause(out),
        Input::Open { parent, id, spec } => state.open(parent, id, spec, out)?,
        Input::Close { task } => state.close(task, out)?,
    }
    state.go_on(out);
    Ok(())
}

impl State {
    pub(super) fn dependents(&self, task: TaskIndex) -> &[TaskIndex] {
        let (start, count) = self.node(task).edges;
        let start = start as usize;
        self.edges.get(start..start + count as usize).unwrap_or_default()
    }

    /// Tells whether a task failed by itself, and not because another did.
    pub(super) fn is_cause(&self, task: TaskIndex) -> bool {
        !matches!(
            self.node(task).ending.as_deref(),
            Some(Ending::Cancelled {
                why: Cancellation::DependencyFailed { .. } | Cancellation::ParentEnded
            })
        )
    }

    fn stale(&self, task: TaskIndex) -> Refusal {
        let node = self.node(task);
        Refusal::Stale { task: node.spec.name.clone(), state: node.state }
    }

    /// Finds everything that can go on, whatever was under way when the run was left.
    fn take_up(&mut self, out: &mut Vec<Command>) {
        self.paused = false;
        self.pause_told = false;
        for task in self.tasks() {
            let node = self.node(task);
            if node.state.is_terminal() {
                // Draws the consequences of a failure once more; those already drawn change nothing.
                if task == Self::ROOT || !self.satisfies(task) {
                    self.ended.push_back(task);
                }
                continue;
            }
            let begun = node.state != TaskState::Created;
            let parent_active = node.parent.get().is_none_or(|parent| {
                let above = self.node(parent);
                above.state == TaskState::Active && matches!(above.kind, Kind::Parent(_))
            });
            let can_go_on = match node.kind {
                _ if node.work != Work::Idle => false,
                Kind::Inline => false,
                Kind::Parent(_) if node.state == TaskState::Active => {
                    node.open == 0 && node.failed_child.get().is_none()
                }
                Kind::Leaf | Kind::Parent(_) => begun || (parent_active && node.waiting == 0),
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
    fn was_being_stopped(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        matches!(node.kind, Kind::Parent(_))
            && !node.state.is_terminal()
            && node.stop.is_none()
            && node.open < node.children
            && node.failed_child.get().is_none()
            && self.children(task).any(|child| {
                let why = Cancellation::ParentEnded;
                self.node(child).ending.as_deref() == Some(&Ending::Cancelled { why })
            })
    }

    fn draw_consequences(&mut self, out: &mut Vec<Command>) {
        while let Some(task) = self.ended.pop_front() {
            self.after_end(task, out);
        }
    }

    /// Draws the consequences of what has ended and begins what is ready, as far as the width allows.
    fn go_on(&mut self, out: &mut Vec<Command>) {
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

    fn enqueue(&mut self, task: TaskIndex) {
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

    /// Tells whether the next step of a queued task is work that counts against the width.
    fn wants_slot(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        match (node.kind, node.state) {
            _ if node.holds_slot => false,
            (Kind::Parent(_), TaskState::Created) => !node.spec.prechecks.is_empty(),
            (Kind::Parent(_), TaskState::Active) => !node.spec.postchecks.is_empty(),
            _ => true,
        }
    }

    /// Takes the next step of a task that is ready.
    fn advance(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node(task);
        match node.state {
            TaskState::Created => {
                self.shift(task, TaskSignal::Start, None, out);
                let spec = &self.node(task).spec;
                let has_checks = !spec.prechecks.is_empty();
                if spec.timeout.is_some() || spec.budget.wall.is_some() {
                    out.push(Command::Timer { task });
                }
                if has_checks {
                    self.check(task, Phase::Entry, out);
                } else {
                    self.enter(task, out);
                }
            }
            TaskState::Prechecking => self.check(task, Phase::Entry, out),
            TaskState::Postchecking => self.check(task, Phase::Exit, out),
            TaskState::PostcheckFailed => self.retry_or_give_up(task, out),
            TaskState::Active if matches!(node.kind, Kind::Parent(_)) => self.claim(task, out),
            TaskState::Active if node.attempt_open => {
                let number = node.attempt;
                self.launch(task, Work::Body);
                out.push(Command::Attempt { task, number, continues: true });
            }
            TaskState::Active => {
                let detail = "its last attempt failed".to_owned();
                self.again_or_escalate(task, Escalation::BodyFailed { detail }, out);
            }
            TaskState::Suspended
            | TaskState::Completed
            | TaskState::PrecheckFailed
            | TaskState::Escalated
            | TaskState::Cancelled => {}
        }
    }

    /// Marks work as under way, in a place of the width.
    fn launch(&mut self, task: TaskIndex, work: Work) {
        let node = self.node_mut(task);
        node.work = work;
        if !std::mem::replace(&mut node.holds_slot, true) {
            self.slots_used += 1;
        }
        self.busy += 1;
    }

    /// Marks work as over.
    fn land(&mut self, task: TaskIndex) {
        self.node_mut(task).work = Work::Idle;
        self.busy -= 1;
    }

    fn release_slot(&mut self, task: TaskIndex) {
        if std::mem::replace(&mut self.node_mut(task).holds_slot, false) {
            self.slots_used -= 1;
        }
    }

    fn check(&mut self, task: TaskIndex, phase: Phase, out: &mut Vec<Command>) {
        if self.paused {
            self.release_slot(task);
            return;
        }
        self.launch(task, Work::Checks);
        out.push(Command::Check { task, phase });
    }

    /// Lets a task in whose entry checks passed.
    fn enter(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
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
    fn end_if_childless(&mut self, parent: TaskIndex, out: &mut Vec<Command>) {
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

    fn begin_attempt(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
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

    fn checked(
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
    fn retry_or_give_up(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node(task);
        // The ends of children are final, so a parent has no second attempt.
        let can_retry = node.kind == Kind::Leaf && node.attempt <= node.spec.retries.max;
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

    fn again_or_escalate(&mut self, task: TaskIndex, why: Escalation, out: &mut Vec<Command>) {
        let node = self.node(task);
        let is_again = matches!(why, Escalation::BodyFailed { .. });
        if is_again && node.attempt <= node.spec.retries.max {
            self.begin_attempt(task, out);
        } else {
            self.stop(task, Ending::Escalated { why }, out);
        }
    }

    fn body_ended(
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

    /// Names the open children of a task, if it has any.
    fn open_names(&self, task: TaskIndex) -> Option<String> {
        if self.node(task).open == 0 {
            return None;
        }
        let open = self.children(task).filter(|child| !self.node(*child).state.is_terminal());
        let names: Vec<&str> = open.map(|child| self.spec(child).name.as_str()).collect();
        Some(names.join(", "))
    }

    /// Takes a body at its word: the exit checks are next.
    fn claim(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        self.shift(task, TaskSignal::End, None, out);
        if self.node(task).spec.postchecks.is_empty() {
            self.finish(task, Ending::Completed, out);
        } else {
            self.check(task, Phase::Exit, out);
        }
    }

    fn interrupted(&mut self, task: TaskIndex, out: &mut Vec<Command>) -> Result<(), Refusal> {
        if self.node(task).work == Work::Idle {
            return Err(self.stale(task));
        }
        self.land(task);
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

    fn pause(&mut self, out: &mut Vec<Command>) {
        if std::mem::replace(&mut self.paused, true) {
            return;
        }
        let busy = self.tasks().filter(|task| {
            let node = self.node(*task);
            node.work != Work::Idle && node.stop.is_none()
        });
        out.extend(busy.map(|task| Command::Interrupt { task }));
    }

    fn open(
        &mut self,
        parent: TaskIndex,
        id: TaskId,
        spec: Arc<TaskSpec>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let above = self.node(parent);
        let name = || above.spec.name.clone();
        if matches!(above.kind, Kind::Parent(_)) {
            return Err(Refusal::NoConversation { task: name() });
        }
        if !self.is_acting(parent) {
            return Err(Refusal::NotActive { task: name(), state: above.state });
        }
        let taken = self.children(parent).any(|child| {
            self.spec(child).name == spec.name && !self.node(child).state.is_terminal()
        });
        if taken {
            return Err(Refusal::NameTaken { parent: name(), name: spec.name.clone() });
        }
        self.refuse_growth(parent)?;
        let task = self.push(id, parent, spec);
        out.push(Command::Create { task });
        self.shift(task, TaskSignal::Start, None, out);
        self.shift(task, TaskSignal::Pass, None, out);
        Ok(())
    }

    /// Holds one more task below `parent` against the caps of every task above it.
    fn refuse_growth(&self, parent: TaskIndex) -> Result<(), Refusal> {
        let depth = self.node(parent).depth + 1;
        let mut ancestor = Some(parent);
        while let Some(task) = ancestor {
            let node = self.node(task);
            let caps = match node.spec.budget.tree {
                None if task == Self::ROOT => Some(TreeCaps::default()),
                caps => caps,
            };
            if let Some(caps) = caps {
                let over = |limit: u32, wanted: u32, what: &'static str| {
                    if wanted <= limit {
                        return Ok(());
                    }
                    Err(Refusal::Cap { task: node.spec.name.clone(), limit, what })
                };
                over(caps.depth, depth - node.depth, "levels of tasks")?;
                over(caps.fan_out, self.node(parent).children + 1, "children of one task")?;
                over(caps.tasks, node.size + 1, "tasks altogether")?;
            }
            ancestor = node.parent.get();
        }
        Ok(())
    }

    fn close(&mut self, task: TaskIndex, out: &mut Vec<Command>) -> Result<(), Refusal> {
        let node = self.node(task);
        let name = || node.spec.name.clone();
        if node.kind != Kind::Inline {
            return Err(Refusal::NotInline { task: name() });
        }
        if !self.is_acting(task) {
            return Err(Refusal::NotActive { task: name(), state: node.state });
        }
        if let Some(children) = self.open_names(task) {
            return Err(Refusal::OpenChildren { task: name(), children });
        }
        self.shift(task, TaskSignal::End, None, out);
        self.finish(task, Ending::Completed, out);
        Ok(())
    }

    /// Has a task and all below it end: at once where nothing is under way, as soon as it is over elsewhere.
    fn stop(&mut self, task: TaskIndex, ending: Ending, out: &mut Vec<Command>) {
        if self.node(task).state.is_terminal() {
            return;
        }
        let mut subtree = std::mem::take(&mut self.scratch);
        subtree.clear();
        subtree.push(task);
        let mut seen = 0;
        while let Some(&above) = subtree.get(seen) {
            seen += 1;
            if self.node(above).open > 0 {
                subtree.extend(self.children(above).filter(|c| !self.node(*c).state.is_terminal()));
            }
        }
        let mut ending = Some(ending);
        for &each in &subtree {
            let own = ending.take();
            let node = self.node_mut(each);
            if node.stop.is_some() {
                continue; // It was asked before, and the first reason is the true one.
            }
            let why = Cancellation::ParentEnded;
            node.stop = Some(Box::new(own.unwrap_or(Ending::Cancelled { why })));
            if node.work != Work::Idle {
                out.push(Command::Interrupt { task: each });
            }
        }
        // Children come after their parents in the list, and end before them.
        for &each in subtree.iter().rev() {
            self.end_if_stopped(each, out);
        }
        self.scratch = subtree;
    }

    fn stop_children(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let mut next = self.node(task).first_child.get();
        while let Some(child) = next {
            next = self.node(child).next_sibling.get();
            let why = Cancellation::ParentEnded;
            self.stop(child, Ending::Cancelled { why }, out);
        }
    }

    fn end_if_stopped(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node_mut(task);
        if node.work == Work::Idle
            && node.open == 0
            && let Some(ending) = node.stop.take()
        {
            self.finish(task, *ending, out);
        }
    }

    fn finish(&mut self, task: TaskIndex, ending: Ending, out: &mut Vec<Command>) {
        let signal = match &ending {
            Ending::Completed => TaskSignal::Pass,
            Ending::PrecheckFailed { .. } => TaskSignal::Fail,
            Ending::Escalated { .. } => TaskSignal::Escalate,
            Ending::Cancelled { .. } => TaskSignal::Cancel,
        };
        if ending != Ending::Completed {
            self.node_mut(task).ending = Some(Box::new(ending.clone()));
        }
        self.shift(task, signal, Some(ending), out);
        self.release_slot(task);
        if let Some(parent) = self.node(task).parent.get() {
            self.node_mut(parent).open -= 1;
        }
        self.ended.push_back(task);
    }

    /// Draws the consequences of a task's end for its dependents and its parent.
    fn after_end(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let Some(parent) = self.node(task).parent.get() else {
            out.push(Command::Finish);
            return;
        };
        let well = self.satisfies(task);
        let (start, count) = self.node(task).edges;
        for edge in start..start.saturating_add(count) {
            let Some(&after) = self.edges.get(edge as usize) else { break };
            if well {
                let parent_acts = self.is_acting(parent);
                let node = self.node_mut(after);
                node.waiting -= 1;
                if node.waiting == 0 && node.state == TaskState::Created && parent_acts {
                    self.enqueue(after);
                }
            } else {
                let name = self.node(task).spec.name.clone();
                let why = Cancellation::DependencyFailed { task: name };
                self.stop(after, Ending::Cancelled { why }, out);
            }
        }

        let Kind::Parent(on_failure) = self.node(parent).kind else {
            self.end_if_stopped(parent, out);
            return;
        };
        if !well && self.is_cause(task) && self.node(parent).stop.is_none() {
            let above = self.node_mut(parent);
            if above.failed_child.get().is_none() {
                above.failed_child = task;
            }
            if above.open > 0 && above.failed_child == task {
                self.apply_policy(parent, on_failure, out);
            }
        }
        if self.node(parent).stop.is_some() {
            self.end_if_stopped(parent, out);
        } else {
            self.end_if_childless(parent, out);
        }
    }

    /// Decides what becomes of the other children of a task of which one failed.
    fn apply_policy(&mut self, parent: TaskIndex, policy: OnFailure, out: &mut Vec<Command>) {
        match policy {
            OnFailure::ContinueIndependent => {}
            OnFailure::AbortAll => self.stop_children(parent, out),
            OnFailure::Halt => {
                let mut next = self.node(parent).first_child.get();
                while let Some(child) = next {
                    next = self.node(child).next_sibling.get();
                    if self.node(child).state == TaskState::Created {
                        let why = Cancellation::ParentEnded;
                        self.stop(child, Ending::Cancelled { why }, out);
                    }
                }
            }
        }
    }

    /// Moves a task along the one definition of what is legal.
    fn shift(
        &mut self,
        task: TaskIndex,
        signal: TaskSignal,
        ending: Option<Ending>,
        out: &mut Vec<Command>,
    ) {
        let node = self.node_mut(task);
        let from = node.state;
        let to = from.after(signal).expect("the core only gives signals that its states allow");
        node.state = to;
        out.push(Command::Move { task, from, signal, to, ending });
    }
}

fn check_name(checks: &[formwork_protocols::check::CheckSpec], place: u32) -> String {
    checks.get(place as usize).map_or_else(|| format!("number {place}"), |check| check.name.clone())
}
