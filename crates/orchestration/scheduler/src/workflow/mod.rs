//! From the text of a workflow to a plan that can be run.

mod check; // Checks, and what is wrong with them.
mod code; // Which words of a command are code.
mod contract; // What a task is held to, as a person writes it.
mod document; // What a person writes.
mod extent; // How large the tree is that is written down.
mod graph; // What depends on what, and whether in a circle.
mod items; // The same task for each item of a list.
mod plan; // What can be run.
mod prompt; // The names that a prompt puts in.
mod refer; // What prompts and expressions refer to.
mod scope; // What a task may write, and all below it.
mod service; // What runs while the tasks work.
mod wait; // What waits for somebody outside.

#[cfg(test)]
mod tests;

pub use scope::{cap_lines, handed_down};

pub(crate) use plan::tighten;
pub(crate) use scope::lines_check;
pub use {
    contract::contract,
    document::{
        CheckDocument, Constraint, ControlDocument, ControlWord, DecisionDocument,
        ExecutionDocument, FixDocument, OnItemFailure, ReadyDocument, RetriesDocument,
        ServiceDocument, TaskDocument, VariableDocument, WaitForDocument, WorkflowDocument,
    },
    extent::{Beyond, beyond_caps},
    items::output_check,
    plan::{Known, Plan, ProjectCommands, SingleTask, WrittenWorkflow},
};
