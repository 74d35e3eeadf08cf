//! Tools: what they are, what may be done with them, and the seams around a call.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    cancel::Cancel,
    event::FileChange,
    id::{AgentName, CallId, RunId, SessionId, TaskId, TaskName, WorkerName},
    journal::Journal,
    message::{Attachment, ToolCall, ToolDefinition, ToolResult},
    outcome::{Claim, TaskOutcome},
    spec::TaskSpec,
};

/// What a tool does to the world; the policy decides by it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ToolClass {
    /// Reads files of the workspace.
    Read,
    /// Writes files of the workspace.
    Write,
    /// Removes files of the workspace.
    Delete,
    /// Runs a program by its argument vector.
    Exec,
    /// Runs a text of shell.
    Shell,
    /// Reaches the network.
    Network,
    /// Reads or writes what outlives the run.
    Memory,
    /// Begins and ends tasks.
    Lifecycle,
}

impl ToolClass {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Delete,
        Self::Exec,
        Self::Shell,
        Self::Network,
        Self::Memory,
        Self::Lifecycle,
    ];

    /// Returns the class's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Exec => "exec",
            Self::Shell => "shell",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Lifecycle => "lifecycle",
        }
    }
}

/// What may be done with a call whose outcome a crash has swallowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// It changes nothing: run it again.
    Pure,
    /// A second time does no more than the first: run it again.
    Idempotent,
    /// It may have taken place: never again without being asked.
    Once,
}

/// How much a session may do. The default of every interface is to read.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PermissionMode {
    /// Reads and answers.
    #[default]
    Ask,
    /// Reads and plans.
    Plan,
    /// Writes within its scope, and runs what the rules allow.
    Edit,
    /// Does whatever the rules do not refuse.
    Auto,
}

impl PermissionMode {
    /// Returns the mode's name, as it is written and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Plan => "plan",
            Self::Edit => "edit",
            Self::Auto => "auto",
        }
    }
}

/// A tool, described.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// What the model is told.
    #[serde(flatten)]
    pub definition: ToolDefinition,
    /// What it does to the world.
    pub class: ToolClass,
    /// What a crash in the middle of it means.
    pub replay: Replay,
    /// Words by which an allow-list can name it, without the `#`.
    pub tags: Vec<String>,
}

/// Where a call belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct CallContext {
    pub run: RunId,
    pub task: TaskId,
    pub session: SessionId,
    /// Formwork's own id of the call.
    pub call: CallId,
    pub agent: AgentName,
}

/// What a tool did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolOutput {
    /// The whole output, for the model and the record. What is long is previewed by the pipeline.
    pub text: String,
    /// The files that it changed.
    pub changes: Vec<FileChange>,
    /// What the session does next.
    pub control: Control,
    /// What it adds to the notepad of the run, with its outcome or not at all.
    pub notes: Vec<String>,
    /// Where the text came from, if not from this workspace: then nobody vouches for what it says.
    pub outside: Option<String>,
    /// What it has to show besides text, kept by its hash: what is a picture by its bytes is shown to a model that takes any.
    pub kept: Vec<Kept>,
    /// Pictures that it shows and that are kept already.
    pub attached: Vec<Attachment>,
    /// The worker that carried the call out, where it was not done here.
    pub worker: Option<WorkerName>,
}

/// Bytes that are no text, such as a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Kept {
    pub media_type: String,
    /// What they are called, for the model.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Finds out what bytes are by themselves: the media type of a whole picture, and its width and height in pixels.
///
/// # Errors
/// Why they are none, in words.
pub type LookAt = fn(&[u8]) -> Result<(&'static str, (u32, u32)), String>;

impl ToolOutput {
    /// Returns an output of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// What the session does after a call.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum Control {
    /// It goes on.
    #[default]
    Continue,
    /// The model claims that its task is done: the exit checks are next. The call stays open and is
    /// answered by their verdict.
    End(Claim),
    /// From here on, calls belong to another task of the same conversation.
    Enter(TaskId),
    /// The task asked too often for what is refused: it ends as such.
    Refuse(String),
}

/// Why a tool could not do what it was asked. The model reads it and can act on it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// What kind of failure it is.
    pub kind: ToolErrorKind,
    /// What was wanted, what was found, and what to do instead.
    pub message: String,
    /// Where what the message quotes came from, if not from this workspace: then nobody vouches for what it says.
    pub outside: Option<String>,
    /// The worker that was to carry the call out, where it was not done here.
    pub worker: Option<WorkerName>,
}

impl ToolError {
    /// Returns an error of that kind.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), outside: None, worker: None }
    }
}

/// The kinds of failure of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// No task is active.
    NoActiveTask,
    /// There is no such tool, or the agent may not use it.
    UnknownTool,
    /// The arguments do not follow the schema, or did not parse.
    InvalidArguments,
    /// The policy refuses it.
    Denied,
    /// It was tried and failed.
    Failed,
    /// Its time was over.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// A crash has swallowed its outcome, and it is not to be repeated.
    OutcomeUnknown,
    /// A cap on tool calls is used up.
    OverBudget,
}

impl ToolErrorKind {
    /// Returns the kind's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoActiveTask => "no_active_task",
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::Denied => "denied",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::OverBudget => "over_budget",
        }
    }
}

/// Does one kind of thing for a model. Calls may overlap.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Describes the tool.
    fn spec(&self) -> &ToolSpec;

    /// Returns the paths of the workspace that a call names: the policy judges them, and the record keeps
    /// them. Unless it says otherwise, those of [`named_paths`].
    fn paths(&self, arguments: &Value) -> Vec<String> {
        named_paths(arguments)
    }

    /// Returns the program and the arguments that a call would run, for the policy to judge: for a text of
    /// shell, the shell with that text. Unless it says otherwise, the texts of the list under `command`.
    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        let words = arguments.get("command")?.as_array()?.iter();
        Some(words.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Returns where a call would connect to, as `host:port`, for the policy to judge. Nothing for a tool
    /// that is not told so by its arguments.
    fn hosts(&self, _arguments: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of the secrets that every call sends, beside those that its arguments ask for.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Carries out a call whose arguments follow the schema and whose policy allows it.
    ///
    /// When `cancel` is raised it returns soon, with everything that it started ended.
    ///
    /// # Errors
    /// [`ToolError`], for the model to act on.
    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError>;
}

/// Returns the texts under the keys that hold a path in most tools: `path`, `from` and `to`.
pub fn named_paths(arguments: &Value) -> Vec<String> {
    let texts = ["path", "from", "to"].into_iter().filter_map(|key| arguments.get(key)?.as_str());
    texts.map(str::to_owned).collect()
}

/// What a session gets back for a call: the result for the model, and what to do next.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolReply {
    /// The result, previewed and scrubbed. For [`Control::End`] it is not yet final.
    pub result: ToolResult,
    /// What the session does next.
    pub control: Control,
}

/// The tools of one session behind the one pipeline. Calls may overlap.
#[async_trait]
pub trait Toolbox: Send + Sync {
    /// Returns the tools to offer now: those allowed that the mode can use.
    fn offered(&self) -> Vec<ToolSpec>;

    /// Puts a call through the pipeline: active task, allow-list, schema, policy, secrets, intent,
    /// execution, scrubbing, preview, outcome. Every way it can end is a result that the model can read.
    ///
    /// The intent is durable before the tool does anything that a second call would do again; the outcome
    /// is left in `journal` for whoever flushes it next.
    async fn call(
        &self,
        context: &CallContext,
        call: &ToolCall,
        journal: &Journal,
        cancel: &Cancel,
    ) -> ToolReply;
}

/// Begins and ends tasks within a conversation; the scheduler answers.
#[async_trait]
pub trait TaskControl: Send + Sync {
    /// Tells whether `task` may call tools now.
    fn is_active(&self, task: TaskId) -> bool;

    /// Opens a task below `parent`, active at once, whose calls are made in the same conversation.
    ///
    /// # Errors
    /// The reason why not, for the model: a cap of the tree, a name taken.
    async fn start(&self, parent: TaskId, name: TaskName, goal: String) -> Result<TaskId, String>;

    /// Ends a task that [`TaskControl::start`] opened and returns its parent.
    ///
    /// # Errors
    /// The reason why not, for the model: it has open children, it is not such a task.
    async fn end(&self, task: TaskId, claim: Claim) -> Result<TaskId, String>;

    /// Makes a task below `parent` that somebody else works on beside it, paid from its budget: with the tasks that
    /// its body holds, all of them or none. To make the same one twice in one attempt makes it once.
    ///
    /// # Errors
    /// The reason why not, for the model: a cap of the tree, a name taken, a dependency that failed.
    async fn make(&self, _parent: TaskId, _spec: TaskSpec) -> Result<TaskId, String> {
        Err("no task can be made here".to_owned())
    }

    /// Waits until what `task` has made has ended: the tasks of these names, or all where there are none. Returns
    /// how each ended, in order, and behind a task of tasks how those have. While it waits, `task` takes no place from
    /// those that work.
    ///
    /// Cancel safe: a dropped future waits no more, and nothing else changes.
    ///
    /// # Errors
    /// The reason why not, for the model: it has made no such task.
    async fn results(
        &self,
        _task: TaskId,
        _names: Vec<TaskName>,
    ) -> Result<Vec<TaskOutcome>, String> {
        Err("no task was made here".to_owned())
    }

    /// Has a tree of tasks decide a check of `task`, and returns how it ended. What was begun for that by a process
    /// that is gone is taken up. While it waits, `task` takes no place from those that work.
    ///
    /// Cancel safe: a dropped future waits no more; the tree ends with its task.
    ///
    /// # Errors
    /// The reason why not: a cap of the tree, a task that is not checked now.
    async fn probe(&self, _task: TaskId, _spec: TaskSpec) -> Result<TaskOutcome, String> {
        Err("no tasks can decide here".to_owned())
    }

    /// Tells whether the body of `task` may say that it is done: all that it has made has ended, and it was told
    /// of what failed.
    ///
    /// # Errors
    /// What it does not know yet, for the model.
    async fn may_end(&self, _task: TaskId) -> Result<(), String> {
        Ok(())
    }
}

/// The tool by which a body makes a task of its own.
pub const CREATE_TASK: &str = "create_task";

/// The tool by which a body makes a task of several tasks.
pub const CREATE_WORKFLOW: &str = "create_workflow";

/// The tool by which a body waits for what it has made.
pub const AWAIT_TASKS: &str = "await_tasks";

/// The tools that exist, by name.
pub type Tools = Vec<Arc<dyn Tool>>;
