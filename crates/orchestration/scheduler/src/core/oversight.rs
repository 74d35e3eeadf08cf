//! What becomes of a task that would be given up: whoever governs the run decides, where somebody does.

use formwork_protocols::{Ending, Escalation, TaskState, spec::Isolation};

use super::{
    decide::{Command, Oversight, Refusal},
    made::Join,
    state::{Kind, State, TaskIndex},
};

/// How many tries are granted to one task beyond its own: who always says yes must come to an end.
pub const MOST_GRANTED: u32 = 8;

impl State {
    /// Says that somebody governs the run: tasks that would be given up are asked about before.
    pub const fn oversee(&mut self) {
        self.is_overseen = true;
    }

    /// Returns how many tries were granted to a task beyond its own.
    pub fn granted(&self, task: TaskIndex) -> u32 {
        self.granted.get(&task).copied().unwrap_or(0)
    }

    /// Tells whether whoever governs the run is asked about a task now.
    pub fn is_overseen(&self, task: TaskIndex) -> bool {
        matches!(self.joins.get(&task), Some(Join::Overseen(_))) && self.node(task).stop.is_none()
    }

    /// Tells whether a task could count as done although a check failed: it claimed to be, and what it did is where it belongs.
    pub fn can_be_accepted(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        node.state == TaskState::PostcheckFailed && node.spec.isolation == Isolation::None
    }

    /// Gives a task up, or asks before whether it is.
    pub(super) fn give_up(&mut self, task: TaskIndex, why: Escalation, out: &mut Vec<Command>) {
        if !self.is_overseen || !self.is_nobodys(task) {
            self.stop(task, Ending::Escalated { why }, out);
            return;
        }
        self.release_slot(task);
        self.joins.insert(task, Join::Overseen(why.clone()));
        out.push(Command::Oversee { task, why });
    }

    /// Tells whether nobody within the run hears of a task's end who could do something about it: neither who made it nor the
    /// check that it decides.
    fn is_nobodys(&self, task: TaskIndex) -> bool {
        let node = self.node(task);
        let mut above = std::iter::successors(node.parent.get(), |task| self.parent(*task));
        node.kind == Kind::Leaf
            && !node.decides
            && above.all(|above| {
                let above = self.node(above);
                matches!(above.kind, Kind::Parent(_)) && !above.decides
            })
    }

    /// Goes on with a task that was asked about.
    pub(super) fn overseen(
        &mut self,
        task: TaskIndex,
        what: Oversight,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        if !self.is_overseen(task) || (what == Oversight::Accept && !self.can_be_accepted(task)) {
            return Err(self.stale(task));
        }
        let why = match self.joins.remove(&task) {
            Some(Join::Overseen(why)) => why,
            _ => return Err(self.stale(task)),
        };
        match what {
            Oversight::GiveUp => self.stop(task, Ending::Escalated { why }, out),
            Oversight::Accept => self.finish(task, Ending::Completed, out),
            Oversight::Retry => {
                *self.granted.entry(task).or_insert(0) += 1;
                self.node_mut(task).is_last_round = false;
                self.enqueue_first(task);
            }
        }
        Ok(())
    }
}
