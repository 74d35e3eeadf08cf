//! The workflow as a person writes it.

use std::collections::BTreeMap;

use formwork_protocols::{
    AgentName, Budget, Span, TaskName, VariableName, WorkflowName,
    check::{DiffCheck, Expect, Parser, Severity},
    document::{DocumentType, Reserved},
    spec::{OnFailure, Retries},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// A task: exactly one of `agent`, `command`, `native` and `subtasks`, and what surrounds it.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A program and its arguments; no shell is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A function that the embedding program registered under this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<String>,
    /// Tasks of the same shape, one level down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtasks: Option<Vec<TaskDocument>>,
    /// What becomes of the other subtasks when one fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// What must hold before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prechecks: Vec<CheckDocument>,
    /// What must hold when it says that it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub postchecks: Vec<CheckDocument>,
    /// What happens when an exit check fails.
    #[serde(default)]
    pub retries: Retries,
    /// How long it may take, all attempts and checks together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Its own caps, within those of its parent.
    #[serde(default)]
    pub budget: Budget,
    /// What it and all below it may write, as globs from the root of the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_paths: Vec<String>,
    /// What it and all below it must not touch, as globs from the root of the workspace; checked by content
    /// when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_paths: Vec<String>,
}

/// A check: exactly one of `command`, `agent`, `native`, `unchanged`, `diff`, `constraint` and
/// `no_new_files_outside`.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// The keys of the format whose ability does not exist yet.
const RESERVED: &[Reserved] = &[
    Reserved::key("services"),
    Reserved::key("tasks.**.for_each"),
    Reserved::key("tasks.**.max_concurrency"),
    Reserved::key("tasks.**.on_item_failure"),
    Reserved::key("tasks.**.wait_for"),
    Reserved::key("tasks.**.decision"),
    Reserved::key("tasks.**.isolation"),
    Reserved::key("tasks.**.target"),
    Reserved::key("tasks.**.output"),
    Reserved::key("tasks.**.output_schema"),
    Reserved::key("tasks.**.on_success"),
    Reserved::key("tasks.**.before_retry"),
    Reserved::key("tasks.**.prechecks.*.workflow"),
    Reserved::key("tasks.**.postchecks.*.workflow"),
];

impl DocumentType for WorkflowDocument {
    const NAME: &'static str = "workflow";

    fn reserved() -> &'static [Reserved] {
        RESERVED
    }
}
