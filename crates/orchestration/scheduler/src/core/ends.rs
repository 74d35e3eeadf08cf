//! How tasks end, and what becomes of those around them.

use formwork_protocols::{Cancellation, Ending, TaskSignal, TaskState, spec::OnFailure};

use super::{
    decide::Command,
    state::{Kind, State, TaskIndex, Work},
};

impl State {
    /// Has a task and all below it end: at once where nothing is under way, as soon as it is over elsewhere.
    pub(super) fn stop(&mut self, task: TaskIndex, ending: Ending, out: &mut Vec<Command>) {
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

    pub(super) fn stop_children(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let mut next = self.node(task).first_child.get();
        while let Some(child) = next {
            next = self.node(child).next_sibling.get();
            let why = Cancellation::ParentEnded;
            self.stop(child, Ending::Cancelled { why }, out);
        }
    }

    pub(super) fn end_if_stopped(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let node = self.node_mut(task);
        if node.work == Work::Idle
            && node.open == 0
            && let Some(ending) = node.stop.take()
        {
            self.finish(task, *ending, out);
        }
    }

    pub(super) fn finish(&mut self, task: TaskIndex, ending: Ending, out: &mut Vec<Command>) {
        let signal = match &ending {
            Ending::Completed if self.node(task).state == TaskState::PostcheckFailed => {
                TaskSignal::Accept
            }
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
        self.joins.remove(&task);
        self.give_back(task);
        if let Some(parent) = self.node(task).parent.get() {
            self.node_mut(parent).open -= 1;
        }
        self.ended.push_back(task);
    }

    /// Draws the consequences of a task's end for its dependents and its parent.
    pub(super) fn after_end(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let Some(parent) = self.node(task).parent.get() else {
            out.push(Command::Finish);
            return;
        };
        self.make_room(parent, task);
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

        let on_failure = match self.node(parent).kind {
            Kind::Parent(on_failure) if !self.node(task).decides => on_failure,
            _ => {
                self.end_if_stopped(parent, out);
                self.tell_whoever_waits(parent);
                return;
            }
        };
        if !well && self.is_cause(task) && self.minds(parent) && self.node(parent).stop.is_none() {
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
    pub(super) fn apply_policy(
        &mut self,
        parent: TaskIndex,
        policy: OnFailure,
        out: &mut Vec<Command>,
    ) {
        match policy {
            OnFailure::ContinueIndependent | OnFailure::Ignore => {}
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
    pub(super) fn shift(
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

    /// Tells whether a parent fails because a child did.
    pub(super) fn minds(&self, parent: TaskIndex) -> bool {
        self.node(parent).kind != Kind::Parent(OnFailure::Ignore)
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
}
