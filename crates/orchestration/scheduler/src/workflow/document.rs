//! The workflow as a person writes it.

use std::{collections::BTreeMap, num::NonZeroU32};

use formwork_protocols::{
    AgentName, Body, Budget, EventName, ServiceName, Span, TaskName, VariableName, WorkerLabel,
    WorkflowName,
    check::{Compare, DiffCheck, Expect, GitChange, Parser, Severity},
    document::DocumentType,
    spec::{Isolation, OnFailure, Retries},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A workflow: tasks with their checks, in the order of what they depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowDocument {
    /// Its name.
    pub name: WorkflowName,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// What can be set from outside, and is put in for `{{name}}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<VariableName, VariableDocument>,
    /// What becomes of the other tasks when one fails.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The caps of the whole workflow.
    #[serde(default)]
    pub budget: Budget,
    /// Programs that run while the tasks work: started before the first task, ended after the last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceDocument>,
    /// The tasks.
    #[schemars(length(min = 1))]
    pub tasks: Vec<TaskDocument>,
}

/// A variable of a workflow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VariableDocument {
    /// What it is for, for people.
    pub description: String,
    /// Whether it has to be set.
    pub required: bool,
    /// What it is where nobody sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

/// A program that the tasks need while they work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceDocument {
    /// Its name among the services.
    pub name: ServiceName,
    /// A program and its arguments; no shell is involved. `{{name}}` puts a variable in.
    pub command: Vec<String>,
    /// How to tell that it is ready; once it is started where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyDocument>,
    /// How often it is started again where it ends by itself while the tasks work; once where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub restarts: Option<u32>,
}

/// How to tell that a service is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadyDocument {
    /// A program and its arguments, which ends well once the service is ready. It is run again and again until then.
    pub command: Vec<String>,
    /// How long that may take; a minute where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
}

/// A task: exactly one of `agent`, `command`, `native`, `subtasks`, `wait_for` and `decision`, and what surrounds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskDocument {
    /// Its name among its siblings.
    pub name: TaskName,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The siblings that have to be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskName>,
    /// A condition in CEL over `vars` and `tasks.NAME`; where it is false the task is skipped, and what
    /// depends on it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// The agent that works on it, by the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// What the agent is asked; `{{name}}` puts a variable in, `{{tasks.NAME.text}}` what a task said.
    /// The words of a command take the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A program and its arguments; no shell is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A function that the embedding program registered under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// An event that has to be fired from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<WaitForDocument>,
    /// A question that a person answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionDocument>,
    /// Tasks of the same shape, one level down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtasks: Option<Vec<TaskDocument>>,
    /// A list, as an expression in CEL: the task is done once for each item of it. `{{item}}` and `{{index}}` put
    /// it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    /// How many items are worked on at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<NonZeroU32>,
    /// What becomes of the other items when one fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_item_failure: Option<OnItemFailure>,
    /// The JSON Schema of what it hands over as `output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
    /// A name for its result, by which tasks that come after it put it in as they do a variable: `{{name}}`, and `vars.name` in
    /// expressions. It is its `output`, or its words where it hands over none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<VariableName>,
    /// What is run once its exit checks have passed; it has not completed before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_success: Vec<ExecutionDocument>,
    /// What is run before each further attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_retry: Vec<ExecutionDocument>,
    /// What becomes of the other subtasks when one fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// What must hold before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prechecks: Vec<CheckDocument>,
    /// What must hold when it says that it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub postchecks: Vec<CheckDocument>,
    /// A Markdown file of requirements, from the root of the workspace: its checks hold when it says that it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// What happens when its body or an exit check fails.
    #[serde(default)]
    pub retries: RetriesDocument,
    /// How long it may take, all attempts and checks together.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
    /// How long it may be without any sign of life: an event of its own, or of a task below it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub idle: Option<Span>,
    /// Its own caps, within those of its parent.
    #[serde(default)]
    pub budget: Budget,
    /// What it and all below it may write, as globs from the root of the workspace; all that the config allows where
    /// absent. An empty list is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_paths: Option<Vec<String>>,
    /// What it and all below it must not touch, as globs from the root of the workspace; checked by content
    /// when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_paths: Vec<String>,
    /// Whether it works in the workspace of the run or in one of its own, from which what it did is brought back once its
    /// checks have passed.
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// The label of the workers of which one carries out its calls, its command and its checks by command, in a workspace
    /// of its own. Belongs to a task by an agent or a command, in a process that has workers: `formwork serve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<WorkerLabel>,
}

/// What happens when the body of a task or an exit check fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetriesDocument {
    /// Further attempts after the first. Where absent, two for an agent, which reads what was wrong, and none for a command
    /// and a function, which would do once more what they have done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Whether an attempt goes on in the conversation of the one before.
    pub resume: bool,
    /// Whether the evidence of the failure is shown to the next attempt.
    pub inject_failure: bool,
    /// How long a model that cannot be reached is tried again, without using an attempt up; not at all where
    /// absent. The time between two tries doubles from a quarter of a second to a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<Span>,
}

impl Default for RetriesDocument {
    fn default() -> Self {
        let Retries { max: _, resume, inject_failure, outage } = Retries::default();
        Self { max: None, resume, inject_failure, outage }
    }
}

impl RetriesDocument {
    /// Returns what this says of a task with such a body.
    pub(super) fn of(self, body: &Body) -> Retries {
        let Self { max, resume, inject_failure, outage } = self;
        // A deployment or a migration is not made again unasked.
        let unsaid = match body {
            Body::Command { .. } | Body::Native { .. } | Body::Call(_) => 0,
            _ => Retries::default().max,
        };
        Retries { max: max.unwrap_or(unsaid), resume, inject_failure, outage }
    }
}

/// An event that a task waits for; `formwork events fire NAME` fires one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitForDocument {
    /// Its name.
    pub event: EventName,
    /// A condition in CEL over `data`, `vars` and `tasks.NAME`; an event for which it has no value does not match.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// How long it waits, whether a process works on the run or not; without end where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
}

/// A question that a person answers; `formwork inbox answer` answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionDocument {
    /// What is asked; variables and results are put in as into a prompt.
    pub question: String,
    /// What can be answered.
    #[schemars(length(min = 2))]
    pub options: Vec<String>,
    /// How long it waits, whether a process works on the run or not; without end where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
    /// What is taken for the answer when nobody gives one in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assume: Option<String>,
}

/// What becomes of the other items when one fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnItemFailure {
    /// They go on, and the task fails at the end.
    Continue,
    /// They are cancelled, and the task fails.
    Abort,
    /// They go on, and so does the task: its result says which items failed, and its own checks decide.
    Ignore,
}

/// Something that is run: it has to succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutionDocument {
    /// What it is called in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// How long it may take; ten minutes where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
}

/// A check: exactly one of `command`, `agent`, `workflow`, `suite`, `progress`, `native`, `unchanged`, `diff`,
/// `constraint` and `no_new_files_outside`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckDocument {
    /// What it is called in messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A program and its arguments; no shell is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// How to read its output for counts of tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parse: Option<Parser>,
    /// Whether it has to succeed or to fail.
    #[serde(default)]
    pub expect: Expect,
    /// The agent that looks at the work, changes nothing and returns a verdict, as the prompt asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// What the agent is asked, with names put in as in a task's prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The least severity of an agent's issue that keeps the check from passing; `major` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Severity>,
    /// Whether an agent's issue counts only where it points at what was changed; others are dropped, and told of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub anchored: bool,
    /// The change that an agent looks at, in place of what the task has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looks_at: Option<GitChange>,
    /// A workflow of the workspace, by its name: its tasks are done below the task, and all of them have to complete.
    /// Its agents only look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowName>,
    /// The variables of that workflow; names are put into texts as into a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars: Option<Map<String, Value>>,
    /// A suite of tests. As an entry check it finds out what fails before the task begins, and lets it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<Vec<String>>,
    /// Which of its tests have to pass: `all`, or `new` for those that did not fail before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<Compare>,
    /// Whether the workspace has to be in no state that it was in after an earlier attempt, or before the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
    /// A function that the embedding program registered under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// Globs of files that keep the content they had when the task began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<Vec<String>>,
    /// How much the task may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<DiffCheck>,
    /// A ready-made check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// Globs of where alone the task may make new files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_new_files_outside: Option<Vec<String>>,
    /// How long it may take; ten minutes where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
    /// What is done once where it fails, before it is run once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<FixDocument>,
    /// Where a command has to fail before its passing counts: `"revert"`, or `{ revert = ["src/**"] }` for some
    /// of the files that the task changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlDocument>,
    /// How often it may fail before the task is given up, whatever attempts are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_rounds: Option<u32>,
    /// What all its runs at the task may use together, out of the task's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

/// A ready-made check, whose command is found by the manifest at the root of the workspace where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// The tests of the project pass, and there are some.
    TestsPass,
    /// Its linter finds nothing.
    LintClean,
    /// No manifest names a dependency that it did not name when the task began.
    NoNewDependencies,
    /// Nothing is gone that the files which the task changed exported when it began.
    NoRemovedExports,
    /// What they exported then has the signature that it had.
    NoChangedSignatures,
}

impl Constraint {
    /// Tells whether it is about what became of the workspace since the task began.
    pub(super) const fn compares(self) -> bool {
        match self {
            Self::NoNewDependencies | Self::NoRemovedExports | Self::NoChangedSignatures => true,
            Self::TestsPass | Self::LintClean => false,
        }
    }
}

/// What is done once where a check fails: exactly one of `command` and `agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixDocument {
    /// A program and its arguments; no shell is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// An agent, which may write what the task may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// What it is asked; it is shown what the check found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// Where a check has to fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ControlDocument {
    /// A word.
    Word(ControlWord),
    /// A word with globs.
    #[expect(missing_docs, reason = "the sentence of the key says it")]
    Some { revert: Vec<String> },
}

/// The kinds of planted failure that need nothing more said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlWord {
    /// A copy of the workspace as it was when the task began.
    Revert,
}

impl DocumentType for WorkflowDocument {
    const NAME: &'static str = "workflow";
}
