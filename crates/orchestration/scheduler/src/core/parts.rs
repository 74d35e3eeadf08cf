//! Tasks that are added while their parent works, and the caps of the tree.

use std::sync::Arc;

use formwork_protocols::{
    Ending, TaskId, TaskSignal, TaskSpec,
    budget::{Cap, TreeCaps},
};

use super::{
    decide::{Command, Refusal},
    state::{Kind, State, TaskIndex},
};

/// Tasks that are to be added below one, all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// Children of its own.
    pub children: u32,
    /// The most children that one of the others has.
    pub widest: u32,
    /// Tasks altogether.
    pub tasks: u32,
    /// Levels.
    pub levels: u32,
}

impl State {
    /// Names the open children of a task, if it has any.
    pub fn open_names(&self, task: TaskIndex) -> Option<String> {
        if self.node(task).open == 0 {
            return None;
        }
        let open = self.children(task).filter(|child| !self.node(*child).state.is_terminal());
        let names: Vec<&str> = open.map(|child| self.spec(child).name.as_str()).collect();
        Some(names.join(", "))
    }

    pub(super) fn open(
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
        self.room_for(parent, Growth { children: 1, widest: 0, tasks: 1, levels: 1 })?;
        let task = self.push(id, parent, spec);
        out.push(Command::Create { task });
        self.shift(task, TaskSignal::Start, None, out);
        self.shift(task, TaskSignal::Pass, None, out);
        Ok(())
    }

    /// Holds more tasks below `parent` against the caps of every task above it.
    ///
    /// # Errors
    /// [`Refusal::Cap`] names the task that does not allow it.
    pub fn room_for(&self, parent: TaskIndex, growth: Growth) -> Result<(), Refusal> {
        let Growth { children, widest, tasks, levels } = growth;
        let depth = self.node(parent).depth.saturating_add(levels);
        let mut ancestor = Some(parent);
        while let Some(task) = ancestor {
            let node = self.node(task);
            if let Some(caps) = self.caps(task) {
                let over = |limit: u32, wanted: u32, cap: Cap| {
                    if wanted <= limit {
                        return Ok(());
                    }
                    Err(Refusal::Cap { task: node.spec.name.clone(), at: task, cap, limit })
                };
                over(caps.depth, depth - node.depth, Cap::Depth)?;
                over(
                    caps.fan_out,
                    self.node(parent).children.saturating_add(children).max(widest),
                    Cap::FanOut,
                )?;
                over(caps.tasks, node.size.saturating_add(tasks), Cap::Tasks)?;
            }
            ancestor = node.parent.get();
        }
        Ok(())
    }

    /// Returns what a task that was added uses of the caps of one above it, and their limits, if that one has any.
    pub fn uses_of_caps(&self, added: TaskIndex, above: TaskIndex) -> Option<[(Cap, u32, u32); 3]> {
        let caps = self.caps(above)?;
        let (node, around) = (self.node(added), self.node(above));
        let beside = node.parent.get().map_or(0, |parent| self.node(parent).children);
        Some([
            (Cap::Depth, node.depth.saturating_sub(around.depth), caps.depth),
            (Cap::FanOut, beside, caps.fan_out),
            (Cap::Tasks, around.size, caps.tasks),
        ])
    }

    /// Returns how large the tree below a task may grow, where it says so; the root always does.
    fn caps(&self, task: TaskIndex) -> Option<TreeCaps> {
        match self.node(task).spec.budget.tree {
            None if task == Self::ROOT => Some(TreeCaps::default()),
            caps => caps,
        }
    }

    pub(super) fn close(&mut self, task: TaskIndex, out: &mut Vec<Command>) -> Result<(), Refusal> {
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
}
