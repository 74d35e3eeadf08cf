//! What happened, what to do, and the one function between them.

use std::sync::Arc;

use formwork_protocols::{
    Cancellation, Ending, Escalation, Span, TaskId, TaskName, TaskSignal, TaskSpec, TaskState,
    budget::Cap, check::Phase,
};

use super::{
    build::Planted,
    state::{State, TaskIndex},
};

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Input {
    /// The run is taken up, from its beginning or from where it was left.
    Start,
    /// What a task waits for is there, or will not come.
    Woken { task: TaskIndex, end: BodyEnd },
    /// Whether the condition of a task holds, or why nobody can tell.
    Judged { task: TaskIndex, holds: Result<bool, String> },
    /// The items of a task, each with all below it, or why there are none. Those without a parent are its
    /// children.
    Expanded { task: TaskIndex, items: Result<Vec<Planted>, Escalation> },
    /// All checks of a phase passed, or the one at place `failed` did not.
    Checked { task: TaskIndex, phase: Phase, failed: Option<u32> },
    /// The exit check of a task that fails now, or failed last, may not send it back once more.
    LastRound { task: TaskIndex },
    /// An attempt ended.
    Ended { task: TaskIndex, end: BodyEnd },
    /// The attempt or the checks of a task were broken off without a result.
    Interrupted { task: TaskIndex },
    /// The rest of a task is over.
    Rested { task: TaskIndex },
    /// Whoever governs the run has decided about a task that would be given up.
    Overseen { task: TaskIndex, what: Oversight },
    /// What all tasks need is not to be had, and none of them has begun.
    Unready { why: Escalation },
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
    /// An attempt makes a task of its own below its task, one that others work on beside it: the task, then all
    /// that is below it, parents before their children.
    Make { parent: TaskIndex, tree: Vec<Planted> },
    /// A check of a task is decided by a tree below it: the root of the tree, then the others, parents before their
    /// children. Whoever asks waits for it as an attempt does.
    Probe { parent: TaskIndex, tree: Vec<Planted> },
    /// An attempt waits for tasks that it has made, in no place of the width. [`Command::Rejoin`] tells when it
    /// goes on. Whoever waits again waits for these alone.
    Await { task: TaskIndex, on: Vec<TaskIndex> },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum BodyEnd {
    /// The body says that it is done.
    Claimed,
    /// The body gave up. What follows is for the [class](Escalation::class) of the reason to say.
    Failed(Escalation),
}

/// What becomes of a task that would be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversight {
    /// It is tried once more, whatever its retries say.
    Retry,
    /// It counts as done, although an exit check failed.
    Accept,
    /// It is given up.
    GiveUp,
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
    /// Tell by [`Input::Judged`] whether the condition of a task holds. What it depends on has ended.
    Judge { task: TaskIndex },
    /// Tell that a task could begin, and waits until `by` gives back what both may write: what begins with `path`.
    Blocked { task: TaskIndex, by: TaskIndex, path: String },
    /// Tell by [`Input::Woken`] when what a task waits for is there. It is told again when the run is taken up.
    Wait { task: TaskIndex },
    /// Tell by [`Input::Expanded`] for which items a task is done.
    Expand { task: TaskIndex },
    /// Tell by [`Input::Rested`] when so much time is over. It tries again without when the run is taken up.
    Rest { task: TaskIndex, after: Span },
    /// Tell by [`Input::Overseen`] what becomes of a task that would be given up. Nothing of it is under way meanwhile.
    Oversee { task: TaskIndex, why: Escalation },
    /// Begin to measure a task's time.
    Timer { task: TaskIndex },
    /// Run the checks of a phase, one after the other, until one fails. Commands that follow, or that come before another
    /// attempt, go on behind what they had come to when the run was left.
    Check { task: TaskIndex, phase: Phase },
    /// Make an attempt; go on with the one that was left where `continues`.
    Attempt { task: TaskIndex, number: u32, continues: bool },
    /// What the attempt of a task waits for has ended, and there is room for it to go on.
    Rejoin { task: TaskIndex },
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
    #[error("task {task} allows at most {limit} {what}", what = cap.unit())]
    Cap { task: TaskName, at: TaskIndex, cap: Cap, limit: u32 },
    /// It is to wait for a task that was not made, or not by this attempt.
    #[error("task {task} has made no task {name}")]
    NotMade { task: TaskName, name: TaskName },
    /// It is to wait for a task that has failed.
    #[error("task {name} cannot be waited for: {ending}")]
    HasFailed { name: TaskName, ending: String },
    /// What is made must be worked on by itself.
    #[error(
        "task {name} has the body {body}, and what is made has one of agent, command, native and subtasks"
    )]
    NotOnItsOwn { name: TaskName, body: &'static str },
    /// A tree that is to be made leads nowhere.
    #[error("the tasks of {task} cannot be done: {reason}")]
    NoWorkflow { task: TaskName, reason: String },
    /// A tree that is to decide something leads nowhere.
    #[error("the tasks that are to decide on {task} make no tree: {reason}")]
    NoTree { task: TaskName, reason: String },
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
        Input::Woken { task, end } => state.woken(task, end, out)?,
        Input::Judged { task, holds } => state.judged(task, holds, out)?,
        Input::Expanded { task, items } => state.expanded(task, items, out)?,
        Input::Checked { task, phase, failed } => state.checked(task, phase, failed, out)?,
        Input::LastRound { task } => {
            if state.node(task).state.is_terminal() {
                return Err(state.stale(task));
            }
            state.node_mut(task).is_last_round = true;
        }
        Input::Ended { task, end } => state.body_ended(task, end, out)?,
        Input::Interrupted { task } => state.interrupted(task, out)?,
        Input::Rested { task } => state.rested(task)?,
        Input::Overseen { task, what } => state.overseen(task, what, out)?,
        Input::TimedOut { task, why } => {
            let node = state.node(task);
            if node.state.is_terminal() || node.state == TaskState::Created {
                return Err(state.stale(task));
            }
            state.stop(task, Ending::Escalated { why }, out);
        }
        Input::Unready { why } => {
            let root = State::ROOT;
            if state.node(root).state != TaskState::Created {
                return Err(state.stale(root));
            }
            // Nothing of it is looked at, and it ends where it would have been.
            state.shift(root, TaskSignal::Start, None, out);
            state.stop(root, Ending::Escalated { why }, out);
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
        Input::Make { parent, tree } => state.make(parent, tree, out)?,
        Input::Probe { parent, tree } => state.probe(parent, tree, out)?,
        Input::Await { task, on } => state.wait_for(task, on, out)?,
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

    pub(super) fn stale(&self, task: TaskIndex) -> Refusal {
        let node = self.node(task);
        Refusal::Stale { task: node.spec.name.clone(), state: node.state }
    }
}
