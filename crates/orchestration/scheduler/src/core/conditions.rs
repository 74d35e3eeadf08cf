//! Conditions: asked once a task could begin, and what follows from the answer.

use formwork_protocols::{Cancellation, Ending, Escalation, TaskSignal, TaskState};

use super::{
    decide::{Command, Refusal},
    state::{Condition, State, TaskIndex},
};

impl State {
    /// Asks whether the condition of a task holds that could begin. Tells whether there is something to ask.
    pub(super) fn asks(&mut self, task: TaskIndex, out: &mut Vec<Command>) -> bool {
        let node = self.node_mut(task);
        if node.condition == Condition::Holds {
            return false;
        }
        node.condition = Condition::Asked;
        out.push(Command::Judge { task });
        true
    }

    pub(super) fn judged(
        &mut self,
        task: TaskIndex,
        holds: Result<bool, String>,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let node = self.node_mut(task);
        if node.state != TaskState::Created || node.condition != Condition::Asked {
            return Err(self.stale(task));
        }
        match holds {
            Ok(true) => {
                node.condition = Condition::Holds;
                self.enqueue_first(task);
            }
            Ok(false) => {
                let condition = node.spec.when.clone().unwrap_or_default();
                let why = Cancellation::Skipped { condition };
                self.stop(task, Ending::Cancelled { why }, out);
            }
            Err(detail) => {
                self.shift(task, TaskSignal::Start, None, out);
                let why = Escalation::CannotBegin { detail };
                self.stop(task, Ending::Escalated { why }, out);
            }
        }
        Ok(())
    }
}
