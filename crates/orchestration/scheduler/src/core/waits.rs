//! Waits: tasks that do nothing until somebody outside has said something. They take no place of the width.

use formwork_protocols::{Ending, TaskSignal, TaskState};

use super::{
    decide::{BodyEnd, Command, Refusal},
    state::{Kind, State, TaskIndex},
};

impl State {
    /// Lets a task wait whose entry checks have passed.
    pub(super) fn suspend(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        self.shift(task, TaskSignal::Suspend, None, out);
        self.release_slot(task);
        out.push(Command::Wait { task });
    }

    /// Takes note of what a task has waited for.
    pub(super) fn woken(
        &mut self,
        task: TaskIndex,
        end: BodyEnd,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let node = self.node_mut(task);
        let waits = node.state == TaskState::Suspended && node.kind == Kind::Wait;
        // During a pause nothing goes on; it is told again when the run is taken up.
        if !waits || node.stop.is_some() || node.woken || self.paused {
            return Err(self.stale(task));
        }
        match end {
            BodyEnd::Claimed => {
                self.node_mut(task).woken = true;
                self.enqueue(task);
            }
            BodyEnd::Failed(why) => self.stop(task, Ending::Escalated { why }, out),
        }
        Ok(())
    }

    /// Lets a task go on to its exit checks that was woken, once there is a place for them.
    pub(super) fn wake(&mut self, task: TaskIndex, out: &mut Vec<Command>) {
        if self.node(task).woken {
            self.shift(task, TaskSignal::Resume, None, out);
            self.claim(task, out);
        }
    }
}
