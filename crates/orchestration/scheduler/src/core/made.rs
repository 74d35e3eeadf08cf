//! Tasks that a body makes while it works, and the body that waits for them.
//!
//! Such a task is as any other: it is scheduled, checked, paid for and ended with its parent. Only its parent
//! is another: one that works itself. Whoever waits for what it has made gives its place of the width away for
//! as long, so that a run as narrow as one task at a time gets on all the same. No attempt begins before all that
//! the one before it has made is over.

use std::{num::NonZeroUsize, sync::Arc};

use formwork_protocols::{
    Body, Cancellation, Ending, Escalation, TaskName, TaskSpec, spec::CheckPlace,
};

use super::{
    build::{self, BuildError, Builder, Planted},
    decide::{Command, Refusal},
    state::{Kind, State, TaskIndex, Work},
};

/// How a body stands towards the tasks that it has made.
#[derive(Debug)]
pub(super) enum Join {
    /// It waits for these.
    Waits(Vec<TaskIndex>),
    /// What it waited for has ended, and it goes on once there is room.
    Ready,
    /// Its attempt has failed by what may pass by itself, and another begins after a rest.
    Rests,
    /// Its attempt has failed for this reason, and what it has made is being stopped.
    Over(Escalation),
    /// It would be given up for this reason, and whoever governs the run is asked.
    Overseen(Escalation),
}

impl State {
    /// Returns the task in whose attempt a task is worked on: itself, or the one whose conversation it is a part
    /// of.
    pub fn host(&self, task: TaskIndex) -> TaskIndex {
        let mut host = task;
        while self.node(host).kind == Kind::Inline
            && let Some(parent) = self.parent(host)
        {
            host = parent;
        }
        host
    }

    /// Lists what the present attempt at a task has made, in order.
    pub fn made(&self, parent: TaskIndex) -> impl Iterator<Item = TaskIndex> + '_ {
        let attempt = self.node(parent).attempt;
        self.children(parent).filter(move |child| {
            let node = self.node(*child);
            node.kind != Kind::Inline && node.born == attempt
        })
    }

    /// Finds what the present attempt at a task has made under a name.
    pub fn made_as(&self, parent: TaskIndex, name: &TaskName) -> Option<TaskIndex> {
        self.made(parent).find(|child| self.spec(*child).name == *name)
    }

    pub(super) fn make(
        &mut self,
        parent: TaskIndex,
        tree: Vec<Planted>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let (above, host) = (self.node(parent), self.node(self.host(parent)));
        let name = || above.spec.name.clone();
        if matches!(above.kind, Kind::Parent(_) | Kind::Wait) {
            return Err(Refusal::NoConversation { task: name() });
        }
        if !self.is_acting(parent) || host.work != Work::Body || host.stop.is_some() {
            return Err(Refusal::NotActive { task: name(), state: above.state });
        }
        let Some(root) = tree.first() else { return Ok(()) };
        let spec = Arc::clone(&root.spec);
        if let Some(Planted { spec, .. }) = tree.iter().find(|one| !is_made_of(&one.spec.body)) {
            let body = spec.body.as_str();
            return Err(Refusal::NotOnItsOwn { name: spec.name.clone(), body });
        }
        // Before any of it is there: what waits in a circle would wait for ever.
        if let Err(fault) = alone(&tree) {
            let (task, reason) = (spec.name.clone(), fault.to_string());
            return Err(Refusal::NoWorkflow { task, reason });
        }
        let is_open = |child: TaskIndex| {
            self.spec(child).name == spec.name && !self.state_of(child).is_terminal()
        };
        if self.made_as(parent, &spec.name).is_some() || self.children(parent).any(is_open) {
            return Err(Refusal::NameTaken { parent: name(), name: spec.name.clone() });
        }
        let mut before = Vec::new();
        for wanted in &spec.depends_on {
            let found = self
                .made_as(parent, wanted)
                .ok_or_else(|| Refusal::NotMade { task: name(), name: wanted.clone() })?;
            match self.ending(found) {
                None if before.contains(&found) => {}
                None => before.push(found),
                Some(ending) if ending.satisfies() => {}
                Some(ending) => {
                    let ending = ending.to_string();
                    return Err(Refusal::HasFailed { name: wanted.clone(), ending });
                }
            }
        }
        // What is planted first is the root.
        let task = TaskIndex(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.plant(parent, tree, out)?;
        for &first in &before {
            build::add_edge(self, first, task);
        }
        if before.is_empty() {
            self.enqueue(task);
        }
        Ok(())
    }

    /// Lists what was made to decide a check of a task, in the present attempt.
    pub fn deciding(
        &self,
        task: TaskIndex,
        place: CheckPlace,
    ) -> impl Iterator<Item = TaskIndex> + '_ {
        self.made(task).filter(move |child| self.spec(*child).decides() == Some(place))
    }

    /// Lets a tree of tasks decide a check of a task.
    pub(super) fn probe(
        &mut self,
        parent: TaskIndex,
        tree: Vec<Planted>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        if !self.is_checking(parent) {
            return Err(self.stale(parent));
        }
        let task = self.spec(parent).name.clone();
        // What is planted first is the root, which waits for nobody beside it.
        let root = TaskIndex(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.plant(parent, tree, out).map_err(|refusal| match refusal {
            own @ (Refusal::NoTree { .. } | Refusal::Cap { .. }) => own,
            other => Refusal::NoTree { task, reason: other.to_string() },
        })?;
        self.enqueue(root);
        Ok(())
    }

    /// Has end what was to decide a check that has ended without it.
    pub(super) fn stop_deciding(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let mut next = self.node(task).first_child.get();
        while let Some(child) = next {
            next = self.node(child).next_sibling.get();
            if self.node(child).decides {
                let why = Cancellation::ParentEnded;
                self.stop(child, Ending::Cancelled { why }, out);
            }
        }
    }

    pub(super) fn wait_for(
        &mut self,
        task: TaskIndex,
        on: Vec<TaskIndex>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let place = self.host(task);
        let (asking, host) = (self.node(task), self.node(place));
        let is_at_work = self.is_acting(task) && host.work == Work::Body && host.stop.is_none();
        if !is_at_work && !self.is_checking(task) {
            let (task, state) = (asking.spec.name.clone(), asking.state);
            return Err(Refusal::NotActive { task, state });
        }
        if let Some(other) = on.iter().find(|other| self.parent(**other) != Some(task)) {
            let name = self.spec(*other).name.clone();
            return Err(Refusal::NotMade { task: asking.spec.name.clone(), name });
        }
        let holds_slot = host.holds_slot;
        let open: Vec<TaskIndex> =
            on.into_iter().filter(|one| !self.state_of(*one).is_terminal()).collect();
        if !open.is_empty() {
            self.joins.insert(place, Join::Waits(open));
            self.release_slot(place);
        } else if holds_slot {
            self.joins.remove(&place);
            out.push(Command::Rejoin { task: place });
        } else {
            self.joins.insert(place, Join::Ready);
            self.enqueue_first(place);
        }
        Ok(())
    }

    /// Looks whether whoever has made the children of a task can go on, now that one of them has ended.
    pub(super) fn tell_whoever_waits(&mut self, parent: TaskIndex) {
        if self.joins.is_empty() {
            return;
        }
        let host = self.host(parent);
        let is_there = match self.joins.get(&host) {
            Some(Join::Waits(open)) => open.iter().all(|one| self.state_of(*one).is_terminal()),
            Some(Join::Over(_)) => self.node(host).open == 0,
            Some(Join::Ready | Join::Rests | Join::Overseen(_)) | None => false,
        };
        if !is_there || self.node(host).stop.is_some() {
            return;
        }
        if matches!(self.joins.get(&host), Some(Join::Waits(_))) {
            self.joins.insert(host, Join::Ready);
        }
        self.enqueue_first(host);
    }

    /// Lets a body go on that has waited, in a place of the width.
    pub(super) fn rejoin(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        if !matches!(self.joins.get(&task), Some(Join::Ready)) {
            return; // It went on without waiting to the end.
        }
        self.joins.remove(&task);
        if !std::mem::replace(&mut self.node_mut(task).holds_slot, true) {
            self.slots_used += 1;
        }
        out.push(Command::Rejoin { task });
    }

    /// Draws the consequences of a failed attempt, once nothing that it has made goes on.
    pub(super) fn once_alone(&mut self, task: TaskIndex, why: Escalation, out: &mut Vec<Command>) {
        if self.node(task).open > 0 {
            self.release_slot(task);
            self.joins.insert(task, Join::Over(why));
        } else {
            self.again_or_escalate(task, why, out);
        }
    }

    /// Goes on with a task whose attempt has ended without a claim.
    pub(super) fn after_attempt(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        let why = match self.joins.remove(&task) {
            Some(Join::Over(why)) => why,
            Some(Join::Rests) => return self.attempt_again(task, out),
            Some(Join::Overseen(why)) => return self.give_up(task, why, out),
            _ => Escalation::BodyFailed { detail: "its last attempt failed".to_owned() },
        };
        // A process may have died between the end of the attempt and theirs.
        self.stop_children(task, out);
        self.once_alone(task, why, out);
    }

    /// Tells whether a process died while it ended a task whose attempt had not ended: what it has made was ended
    /// with it.
    pub(super) fn lost_what_it_made(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        let why = Cancellation::ParentEnded;
        let lost = Ending::Cancelled { why };
        !node.state.is_terminal()
            && node.stop.is_none()
            && self.made(task).any(|child| self.node(child).ending.as_deref() == Some(&lost))
    }
}

/// Tells whether a task of that body can be made while its run goes on.
fn is_made_of(body: &Body) -> bool {
    matches!(
        body,
        Body::Agent { .. } | Body::Command { .. } | Body::Native { .. } | Body::Subtasks { .. }
    )
}

/// Holds a tree that is to be made against the rules that hold for one that was there from the beginning.
fn alone(tree: &[Planted]) -> Result<(), BuildError> {
    if tree.len() < 2 {
        return Ok(());
    }
    let mut builder = Builder::new(NonZeroUsize::MIN);
    for Planted { id, parent, spec } in tree {
        let spec = match parent {
            // What the root waits for is beside it, and not a part of the tree.
            None => Arc::new(TaskSpec { depends_on: Vec::new(), ..TaskSpec::clone(spec) }),
            Some(_) => Arc::clone(spec),
        };
        builder.add(*id, *parent, spec)?;
    }
    builder.build().map(drop)
}
