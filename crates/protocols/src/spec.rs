//! A task as it was asked for, with every name resolved.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    budget::Budget,
    check::{CheckSpec, Phase},
    id::{AgentName, EventName, ServiceName, TaskName, ToolName, VariableName, WorkerLabel},
    message::Attachment,
    time::Span,
    tool::PermissionMode,
};

/// What was asked: one body, its checks, its limits. Written into the log when the task is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSpec {
    /// Its name among its siblings.
    pub name: TaskName,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What it does.
    pub body: Body,
    /// The siblings that have to be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskName>,
    /// A condition in CEL over `vars` and `tasks`; where it is false the task is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The name by which tasks that come after it put in its result, as they do a variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<VariableName>,
    /// What its prompts and commands may put in besides the variables of the workflow, for it and all below
    /// it: the item that it is for.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub vars: Map<String, Value>,
    /// The images and documents that its agent is shown with its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
    /// The programs that run while the tasks of the run work, where it is the root of them all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceSpec>,
    /// What must hold before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prechecks: Vec<CheckSpec>,
    /// What must hold when it says that it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub postchecks: Vec<CheckSpec>,
    /// What is done once its exit checks have passed, in order. It has not completed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_success: Vec<CheckSpec>,
    /// What is put in order before each further attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_retry: Vec<CheckSpec>,
    /// What happens when an exit check fails.
    #[serde(default)]
    pub retries: Retries,
    /// How long it may take, all attempts and checks together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How long it may be without any sign of life: an event of its own, or of a task below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Span>,
    /// Its own caps.
    #[serde(default)]
    pub budget: Budget,
    /// What it may write, as globs from the root of the workspace: nothing for an empty list, and no rule of its own where
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_paths: Option<Vec<String>>,
    /// What it must not touch, as globs from the root of the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_paths: Vec<String>,
    /// Whether it works in the workspace of the run or in one of its own.
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// The label of the workers of which one carries out its calls, its command and its checks by command, in a workspace
    /// of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<WorkerLabel>,
    /// What binds it besides, where another task has made it while the run went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<Made>>,
}

/// Where a task works. In a workspace of its own it begins with what the run's holds at that moment, nobody sees what it
/// does before its checks have passed, and then that is brought into the run's workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// In the workspace of the run.
    #[default]
    None,
    /// In a folder with the same files, which is no repository.
    Snapshot,
    /// In a worktree of git's with the same files, on what is committed.
    Worktree,
}

impl Isolation {
    /// Says whether it works in the workspace of the run.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// What binds a task that was made while its run went on: it may do no more than whoever made it, and no more
/// than whoever made that one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Made {
    /// The agents by which it came to be, the nearest last. A tool or a program is its own only where it is also
    /// that of each of them.
    pub by: Vec<AgentName>,
    /// What each of the tasks around it may write, as globs. It writes only what all of them may.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Vec<String>>,
    /// The most that it may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
    /// The tools that it was given, as patterns of an allow-list. It has only what each of the lists names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Vec<String>>,
    /// The check of the task above that it decides, for the uppermost task of a check by a workflow. It is no part
    /// of what the task above does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decides: Option<CheckPlace>,
}

/// A check of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct CheckPlace {
    pub phase: Phase,
    pub index: u32,
}

impl TaskSpec {
    /// Asks for a body and nothing around it: no checks, one attempt, no limits of its own.
    pub fn new(name: TaskName, body: Body) -> Self {
        Self {
            name,
            description: String::new(),
            body,
            depends_on: Vec::new(),
            when: None,
            output: None,
            vars: Map::new(),
            attached: Vec::new(),
            services: Vec::new(),
            prechecks: Vec::new(),
            postchecks: Vec::new(),
            on_success: Vec::new(),
            before_retry: Vec::new(),
            retries: Retries { max: 0, ..Retries::default() },
            timeout: None,
            idle: None,
            budget: Budget::default(),
            write_paths: None,
            protected_paths: Vec::new(),
            isolation: Isolation::None,
            target: None,
            made: None,
        }
    }

    /// Returns the check of the task above that it decides, where it was made for that alone.
    pub fn decides(&self) -> Option<CheckPlace> {
        self.made.as_deref().and_then(|made| made.decides)
    }

    /// Returns what is run in a phase, in order.
    pub fn checks(&self, phase: Phase) -> &[CheckSpec] {
        match phase {
            Phase::Entry => &self.prechecks,
            Phase::Exit => &self.postchecks,
            Phase::Success => &self.on_success,
            Phase::Retry => &self.before_retry,
        }
    }
}

/// A program that the tasks of a run need while they work: it is started before the first of them, and ended after the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceSpec {
    /// Its name among the services of the run.
    pub name: ServiceName,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// How to tell that it is ready; once it is started where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadySpec>,
    /// How often it is started again where it ends by itself while the tasks work.
    pub restarts: u32,
}

/// How to tell that a service is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadySpec {
    /// The program that ends well once it is, and its arguments.
    pub argv: Vec<String>,
    /// How long that may take.
    pub timeout: Span,
}

/// What a task does: exactly one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// A session of an agent.
    #[expect(missing_docs, reason = "the sentence above names them")]
    Agent { agent: AgentName, prompt: String },
    /// A command in the workspace.
    #[expect(missing_docs, reason = "the sentence above names them")]
    Command { argv: Vec<String> },
    /// A function that the embedder registered under this name.
    #[expect(missing_docs, reason = "the sentence above names them")]
    Native { function: String },
    /// Children, ordered by what they depend on.
    #[expect(missing_docs, reason = "the sentence above names them")]
    Subtasks { tasks: Vec<TaskSpec>, on_failure: OnFailure },
    /// The same task once for each item of a list, each a child of its own.
    ForEach(Box<ForEach>),
    /// Nothing until a matching event was fired from outside.
    WaitFor(WaitFor),
    /// Nothing until somebody has chosen among options.
    Decision(Decision),
    /// Tasks that the result of another task asks for: a plan, done as a graph.
    Graph(Box<Graph>),
    /// One call of a tool, made for a person.
    Call(Box<HandCall>),
    /// A part of its parent's conversation, opened by `start_task` and closed by `end_task`.
    #[expect(missing_docs, reason = "the sentence above names them")]
    Inline { goal: String },
}

impl Body {
    /// Returns the body's name, as it is stored and shown.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent",
            Self::Command { .. } => "command",
            Self::Native { .. } => "native",
            Self::Subtasks { .. } => "subtasks",
            Self::ForEach(_) => "for_each",
            Self::WaitFor(_) => "wait_for",
            Self::Decision(_) => "decision",
            Self::Graph(_) => "graph",
            Self::Call(_) => "call",
            Self::Inline { .. } => "inline",
        }
    }

    /// Returns the tasks that are written down within it.
    pub fn below(&self) -> &[TaskSpec] {
        match self {
            Self::Subtasks { tasks, .. } => tasks,
            Self::ForEach(each) => std::slice::from_ref(&each.task),
            _ => &[],
        }
    }

    /// Returns the same, to be changed.
    pub fn below_mut(&mut self) -> &mut [TaskSpec] {
        match self {
            Self::Subtasks { tasks, .. } => tasks,
            Self::ForEach(each) => std::slice::from_mut(&mut each.task),
            _ => &mut [],
        }
    }
}

/// One call of a tool that a person makes by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandCall {
    /// The tool.
    pub tool: ToolName,
    /// What it is called with.
    pub arguments: Map<String, Value>,
    /// Whether it is only held against the rules, and nothing is done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The same task once for each item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForEach {
    /// The list, as an expression in CEL over `vars` and `tasks`.
    pub items: String,
    /// What is done for an item. Its `vars` are `item` and `index`.
    pub task: TaskSpec,
    /// How many items are worked on at once; as many as the run is wide where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<NonZeroU32>,
    /// What becomes of the other items when one fails.
    pub on_failure: OnFailure,
}

/// Makes the tasks that a plan asks for, and waits for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Graph {
    /// The plan, or where it comes from.
    #[serde(flatten)]
    pub plan: GraphPlan,
    /// How each task of the plan is held.
    pub held: GraphHold,
}

/// A plan that is done as a graph, or where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GraphPlan {
    /// It is the result of this task, which comes before.
    Of(TaskName),
    /// It was there before the run began.
    Given(Value),
}

/// How the tasks of a plan are held, whatever it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphHold {
    /// The most tasks.
    pub most: u32,
    /// Who does a task that names nobody.
    pub agent: AgentName,
    /// Where they are worked on.
    pub isolation: Isolation,
    /// What none of them may touch, as globs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_paths: Vec<String>,
}

/// Waits for an event that somebody fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitFor {
    /// The name of the event.
    pub event: EventName,
    /// A condition in CEL over `data`, `vars` and `tasks`; an event for which it has no value does not match.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// How long it waits, whether a process works on the run or not; without end where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// Asks a question that a person answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// What is asked; variables and results are put in as into a prompt.
    pub question: String,
    /// What can be answered.
    pub options: Vec<String>,
    /// How long it waits, whether a process works on the run or not; without end where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What is taken for the answer when nobody gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assume: Option<String>,
}

/// What becomes of the other children when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// Those that do not depend on it go on; the parent fails at the end.
    #[default]
    ContinueIndependent,
    /// Those that run end their work; no other begins.
    Halt,
    /// Those that run are cancelled; no other begins.
    AbortAll,
    /// Those that do not depend on it go on, and the parent does without it: its own checks decide.
    Ignore,
}

/// What happens when an exit check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retries {
    /// Further attempts after the first.
    pub max: u32,
    /// Whether an attempt goes on in the conversation of the one before.
    pub resume: bool,
    /// Whether the evidence of the failure is shown to the next attempt.
    pub inject_failure: bool,
    /// How long a model that cannot be reached is tried again, without using an attempt up; not at all where
    /// absent. The time between two tries doubles from a quarter of a second to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<Span>,
}

impl Default for Retries {
    /// Two further attempts, in the same conversation, with the evidence.
    fn default() -> Self {
        Self { max: 2, resume: true, inject_failure: true, outage: None }
    }
}
