//! Items: the children of a task that has one for each item of a list, made once the list is known.

use std::collections::HashMap;

use formwork_protocols::{Ending, Escalation, TaskId, TaskState};

use super::{
    build,
    decide::{Command, Refusal},
    parts::Growth,
    state::{Expansion, Kind, State, TaskIndex},
};
use crate::core::Planted;

/// Says why a task is given up whose items cannot be taken in.
fn no_items(refusal: Refusal) -> Escalation {
    match refusal {
        refusal @ Refusal::Cap { .. } => {
            Escalation::BudgetExhausted { detail: refusal.to_string() }
        }
        Refusal::NoTree { reason, .. } => Escalation::CannotBegin { detail: reason },
        refusal => Escalation::CannotBegin { detail: refusal.to_string() },
    }
}

impl State {
    /// Asks for the items of a task, where they are not known yet. Tells whether there is something to ask.
    pub(super) fn expands(&mut self, task: TaskIndex, out: &mut Vec<Command>) -> bool {
        let node = self.node_mut(task);
        if node.expansion == Expansion::Done {
            return false;
        }
        node.expansion = Expansion::Asked;
        out.push(Command::Expand { task });
        true
    }

    /// Takes the items of a task in: each with all below it, parents before their children.
    pub(super) fn expanded(
        &mut self,
        task: TaskIndex,
        items: Result<Vec<Planted>, Escalation>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        if !self.is_acting(task) || self.node(task).expansion != Expansion::Asked {
            return Err(self.stale(task));
        }
        match items.and_then(|items| self.plant(task, items, out).map_err(no_items)) {
            Ok(()) => {
                self.node_mut(task).expansion = Expansion::Done;
                self.release_children(task);
                self.end_if_childless(task, out);
            }
            Err(why) => self.stop(task, Ending::Escalated { why }, out),
        }
        Ok(())
    }

    pub(super) fn plant(
        &mut self,
        task: TaskIndex,
        items: Vec<Planted>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        self.refuse_items(task, &items)?;
        let own = self.id(task);
        let first = self.nodes.len();
        for Planted { id, parent, spec } in items {
            let above = self.find(parent.unwrap_or(own)).unwrap_or(task);
            let task = self.push(id, above, spec);
            out.push(Command::Create { task });
        }
        let name = self.spec(task).name.clone();
        build::link_from(self, first)
            .map_err(|fault| Refusal::NoTree { task: name, reason: fault.to_string() })
    }

    /// Holds all that is to be added below a task against every cap above it, before any of it is.
    fn refuse_items(&self, task: TaskIndex, items: &[Planted]) -> Result<(), Refusal> {
        let mut levels: HashMap<TaskId, u32> = HashMap::new();
        let mut widths: HashMap<TaskId, u32> = HashMap::new();
        let many = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut growth = Growth { children: 0, widest: 0, tasks: many(items.len()), levels: 0 };
        for item in items {
            let Some(parent) = item.parent else {
                growth.children += 1;
                growth.levels = growth.levels.max(1);
                levels.insert(item.id, 1);
                continue;
            };
            let level = levels.get(&parent).copied().unwrap_or(0) + 1;
            levels.insert(item.id, level);
            growth.levels = growth.levels.max(level);
            let width = widths.entry(parent).or_insert(0);
            *width += 1;
            growth.widest = growth.widest.max(*width);
        }
        self.room_for(task, growth)
    }

    /// Lets the children of a task go on that depend on nothing, as many as may be worked on at once.
    pub(super) fn release_children(&mut self, parent: TaskIndex) {
        let mut next = self.node(parent).next_child;
        if next == TaskIndex::NONE {
            next = self.node(parent).first_child;
        }
        while let Some(child) = next.get() {
            let above = self.node(parent);
            if above.running >= above.limit {
                break;
            }
            let node = self.node(child);
            next = node.next_sibling;
            if node.state == TaskState::Created
                && node.waiting == 0
                && node.stop.is_none()
                && !node.released
            {
                self.release(child);
            }
        }
        self.node_mut(parent).next_child = next;
    }

    /// Lets a child go on whose turn it is.
    pub(super) fn release(&mut self, child: TaskIndex) {
        if !std::mem::replace(&mut self.node_mut(child).released, true)
            && let Some(parent) = self.parent(child)
        {
            self.node_mut(parent).running += 1;
        }
        self.enqueue(child);
    }

    /// Takes note that a child has ended, and lets the next one go on where only so many may.
    pub(super) fn make_room(&mut self, parent: TaskIndex, child: TaskIndex) {
        if std::mem::replace(&mut self.node_mut(child).released, false) {
            self.node_mut(parent).running -= 1;
        }
        let above = self.node(parent);
        let waits = above.open > above.running;
        if above.limit != u32::MAX
            && waits
            && above.expansion == Expansion::Done
            && self.is_acting(parent)
        {
            self.release_children(parent);
        }
    }

    /// Counts anew which children of a task are worked on, when a run is taken up, and lets others go on.
    pub(super) fn recount(&mut self, parent: TaskIndex) {
        self.count_released(parent);
        let node = self.node(parent);
        if node.expansion == Expansion::Done
            && node.limit != u32::MAX
            && self.is_acting(parent)
            && matches!(self.node(parent).kind, Kind::Parent(_))
        {
            self.release_children(parent);
        }
    }

    /// Counts which children of a task are worked on.
    pub(super) fn count_released(&mut self, parent: TaskIndex) {
        let mut running = 0;
        let mut next = self.node(parent).first_child;
        while let Some(child) = next.get() {
            let node = self.node_mut(child);
            next = node.next_sibling;
            let is_open = !node.state.is_terminal();
            node.released =
                is_open && !node.decides && (node.released || node.state != TaskState::Created);
            running += u32::from(node.released);
        }
        let node = self.node_mut(parent);
        node.running = running;
        node.next_child = TaskIndex::NONE;
    }
}
