//! `create_task`, `create_workflow` and `await_tasks`: work that a model has others do, and what came of it.

use std::{fmt::Write as _, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{
    AgentName, Cancel, Ending, PermissionMode, Replay, Span, TaskName, TaskOutcome, TaskSpec, Tool,
    ToolClass, ToolError, ToolErrorKind, ToolOutput, ToolSpec, Usd,
    check::Verdict,
    event::TOLD_ONE_BY_ONE,
    spec::OnFailure,
    tool::{AWAIT_TASKS, CREATE_TASK, CREATE_WORKFLOW, CallContext, TaskControl},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema;

/// How many commands one task may be checked by. Each may take minutes, and ten are more than any model needs.
const MAX_CHECKS: usize = 10;

/// How many tasks one workflow may have that a model has thought of. The caps of the tree may allow fewer.
const MAX_TASKS: usize = 64;

/// How many verdicts of failed checks are told of one task.
const MAX_VERDICTS: usize = 5;

/// What a model wants a task to be. Every name and amount has its form; whether it may be is for whoever
/// [makes](Makes) it to say.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "the fields' names and those of the tool's arguments say it")]
pub struct Wanted {
    pub title: String,
    pub prompt: String,
    pub agent: Option<AgentName>,
    pub role: Option<Role>,
    pub depends_on: Vec<TaskName>,
    /// Commands that have to succeed before it counts as done.
    pub checks: Vec<Vec<String>>,
    /// Patterns as in an allow-list, for fewer tools than its agent has.
    pub tools: Option<Vec<String>>,
    /// Globs of what it may write, never none: all that its maker may where absent.
    pub write_paths: Option<Vec<String>>,
    pub mode: Option<PermissionMode>,
    pub usd: Option<Usd>,
    pub rounds: Option<u32>,
    pub tool_calls: Option<u32>,
    pub timeout: Option<Span>,
    /// The JSON Schema of what it hands over.
    pub output_schema: Option<Map<String, Value>>,
}

/// What a model wants a task of several tasks to be.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "the fields' names and those of the tool's arguments say it")]
pub struct WantedTree {
    pub title: String,
    /// At least one, each with a name of its own.
    pub tasks: Vec<(TaskName, Wanted)>,
    pub depends_on: Vec<TaskName>,
    pub on_failure: OnFailure,
    /// Commands that have to succeed once all of its tasks have ended.
    pub checks: Vec<Vec<String>>,
    pub usd: Option<Usd>,
    pub rounds: Option<u32>,
    pub tool_calls: Option<u32>,
    pub timeout: Option<Span>,
}

/// What kind of work a task is: it says who does it, where nobody is named, and the most that it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks and answers.
    Research,
    /// Changes what is asked.
    Code,
    /// Proves with tests.
    Test,
    /// Judges.
    Review,
}

impl Role {
    /// Returns its name, which is that of the agent that does such work where the project has one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Research => "research",
            Self::Code => "code",
            Self::Test => "test",
            Self::Review => "review",
        }
    }

    /// Returns the built-in agent that does such work elsewhere.
    pub const fn built_in(self) -> &'static str {
        match self {
            Self::Research => "researcher",
            Self::Code => "coder",
            Self::Test => "tester",
            Self::Review => "reviewer",
        }
    }

    /// Returns the most that such work may do, whoever does it: to look and to note changes no file.
    pub const fn most(self) -> Option<PermissionMode> {
        match self {
            Self::Research | Self::Review => Some(PermissionMode::Plan),
            Self::Code | Self::Test => None,
        }
    }
}

/// Says what a task is that a model wants, within what the model itself may do.
#[async_trait]
pub trait Makes: Send + Sync {
    /// Returns the task of that name, or why it may not be.
    ///
    /// # Errors
    /// What is not allowed or not known, for the model to act on.
    async fn spec(
        &self,
        context: &CallContext,
        name: TaskName,
        wanted: Wanted,
    ) -> Result<TaskSpec, ToolError>;

    /// Returns the task of several tasks of that name, or why it may not be.
    ///
    /// # Errors
    /// What is not allowed or not known, for the model to act on.
    async fn tree(
        &self,
        context: &CallContext,
        name: TaskName,
        wanted: WantedTree,
    ) -> Result<TaskSpec, ToolError>;
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateArguments {
    /// a-z 0-9 _ -
    name: String,
    /// What to do. It sees nothing of this conversation.
    prompt: String,
    /// A line for people.
    title: Option<String>,
    /// research, code, test, review
    role: Option<String>,
    /// Who does it; else by role, else one like you.
    agent: Option<String>,
    /// Created tasks before it; it is shown their results.
    depends_on: Option<Vec<String>>,
    /// Commands that must succeed, as lists of words.
    checks: Option<Vec<Vec<String>>>,
    /// Fewer than yours: names, namespace.*, #tag
    tools: Option<Vec<String>>,
    /// Globs.
    write_paths: Option<Vec<String>>,
    /// At most: ask, plan, edit, auto
    mode: Option<String>,
    /// Dollars of yours, as in 0.25
    usd: Option<String>,
    /// Model calls.
    rounds: Option<u32>,
    tool_calls: Option<u32>,
    /// As in 10m
    timeout: Option<String>,
    /// JSON Schema of its output.
    output_schema: Option<Map<String, Value>>,
}

/// Describes `create_task`.
pub(super) fn create_spec() -> ToolSpec {
    let text = "Have work done as a task of its own, beside you, from your budget. await_tasks waits for it.";
    let (class, replay) = (ToolClass::Lifecycle, Replay::Idempotent);
    super::spec::<CreateArguments>(CREATE_TASK, text, class, replay, &["tasks"])
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowArguments {
    /// a-z 0-9 _ -
    name: String,
    /// depends_on names others of these.
    tasks: Vec<CreateArguments>,
    title: Option<String>,
    /// What you have created before, to come first.
    depends_on: Option<Vec<String>>,
    /// continue-independent, halt, abort-all
    on_failure: Option<String>,
    /// Commands that must succeed at its end.
    checks: Option<Vec<Vec<String>>>,
    usd: Option<String>,
    rounds: Option<u32>,
    tool_calls: Option<u32>,
    timeout: Option<String>,
}

/// Describes `create_workflow`.
pub(super) fn workflow_spec() -> ToolSpec {
    let text = "Have several tasks done as one, in their order, checked as a whole, from your budget: all are made or none. await_tasks waits for it.";
    let (class, replay) = (ToolClass::Lifecycle, Replay::Idempotent);
    super::spec::<WorkflowArguments>(CREATE_WORKFLOW, text, class, replay, &["tasks"])
}

/// Describes `await_tasks`.
pub(super) fn await_spec() -> ToolSpec {
    let text = "Wait until tasks that you have created have ended, and get what came of them.";
    let (class, replay) = (ToolClass::Lifecycle, Replay::Pure);
    super::spec::<AwaitArguments>(AWAIT_TASKS, text, class, replay, &["tasks"])
}

/// Says that an argument has not its form.
fn invalid(key: &str, error: impl std::fmt::Display) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, format!("{key}: {error}"))
}

fn mode_of(text: &str) -> Result<PermissionMode, ToolError> {
    use PermissionMode::{Ask, Auto, Edit, Plan};
    let found = [Ask, Plan, Edit, Auto].into_iter().find(|mode| mode.as_str() == text);
    found.ok_or_else(|| invalid("mode", "it is one of ask, plan, edit and auto"))
}

fn role_of(text: &str) -> Result<Role, ToolError> {
    use Role::{Code, Research, Review, Test};
    let found = [Research, Code, Test, Review].into_iter().find(|role| role.as_str() == text);
    found.ok_or_else(|| invalid("role", "it is one of research, code, test and review"))
}

fn names(key: &str, texts: Vec<String>) -> Result<Vec<TaskName>, ToolError> {
    texts.into_iter().map(|text| TaskName::parse(text).map_err(|e| invalid(key, e))).collect()
}

fn on_failure_of(text: &str) -> Result<OnFailure, ToolError> {
    match text {
        "continue-independent" => Ok(OnFailure::ContinueIndependent),
        "halt" => Ok(OnFailure::Halt),
        "abort-all" => Ok(OnFailure::AbortAll),
        _ => Err(invalid("on_failure", "it is one of continue-independent, halt and abort-all")),
    }
}

fn checks(checks: Option<Vec<Vec<String>>>) -> Result<Vec<Vec<String>>, ToolError> {
    let checks = checks.unwrap_or_default();
    if checks.len() > MAX_CHECKS {
        let told = format!("{} are more than the {MAX_CHECKS} of one task", checks.len());
        return Err(invalid("checks", told));
    }
    Ok(checks)
}

fn dollars(text: Option<String>) -> Result<Option<Usd>, ToolError> {
    let usd = text.map(|usd| usd.trim().trim_start_matches('$').parse::<Usd>()).transpose();
    let usd = usd.map_err(|error| invalid("usd", error))?;
    match usd.filter(|usd| *usd < Usd::ZERO) {
        Some(usd) => Err(invalid("usd", format!("wanted at least 0, found {usd}"))),
        None => Ok(usd),
    }
}

/// Reads a limit of time: one of no time lets nothing be done.
fn span(text: Option<String>) -> Result<Option<Span>, ToolError> {
    let span = text.map(|text| text.trim().parse()).transpose();
    match span.map_err(|error| invalid("timeout", error))? {
        Some(Span::ZERO) => Err(invalid("timeout", "wanted more than no time, found 0s")),
        span => Ok(span),
    }
}

/// Reads how many calls there may be: none lets nothing be done.
fn calls(key: &str, most: Option<u32>) -> Result<Option<u32>, ToolError> {
    match most {
        Some(0) => Err(invalid(key, "wanted at least 1, found 0")),
        most => Ok(most),
    }
}

impl WorkflowArguments {
    /// Reads the amounts and names, and says of which of its tasks one has not its form.
    fn read(self) -> Result<(TaskName, WantedTree), ToolError> {
        let name = TaskName::parse(self.name).map_err(|error| invalid("name", error))?;
        if self.tasks.is_empty() || self.tasks.len() > MAX_TASKS {
            let told = format!("wanted 1 to {MAX_TASKS}, found {}", self.tasks.len());
            return Err(invalid("tasks", told));
        }
        let mut tasks: Vec<(TaskName, Wanted)> = Vec::new();
        for (place, task) in self.tasks.into_iter().enumerate() {
            let at = format!("tasks[{place}]");
            let (name, wanted) = task.read().map_err(|error| ToolError {
                message: format!("{at}.{}", error.message),
                ..error
            })?;
            if tasks.iter().any(|(other, _)| *other == name) {
                return Err(invalid(&at, format!("another of them is named {name}")));
            }
            tasks.push((name, wanted));
        }
        let on_failure = self.on_failure.map(|text| on_failure_of(text.trim())).transpose()?;
        let wanted = WantedTree {
            title: self.title.unwrap_or_default(),
            tasks,
            depends_on: names("depends_on", self.depends_on.unwrap_or_default())?,
            on_failure: on_failure.unwrap_or_default(),
            checks: checks(self.checks)?,
            usd: dollars(self.usd)?,
            rounds: calls("rounds", self.rounds)?,
            tool_calls: calls("tool_calls", self.tool_calls)?,
            timeout: span(self.timeout)?,
        };
        Ok((name, wanted))
    }
}

impl CreateArguments {
    /// Reads the amounts and names.
    fn read(self) -> Result<(TaskName, Wanted), ToolError> {
        let name = TaskName::parse(self.name).map_err(|error| invalid("name", error))?;
        if self.prompt.trim().is_empty() {
            return Err(invalid("prompt", "a task needs to be told what to do"));
        }
        if self.write_paths.as_ref().is_some_and(Vec::is_empty) {
            let told = "name some globs, or leave it out for all that you may write; mode plan for a task that writes nothing";
            return Err(invalid("write_paths", told));
        }
        let agent = self.agent.map(AgentName::parse).transpose();
        let wanted = Wanted {
            title: self.title.unwrap_or_default(),
            prompt: self.prompt,
            agent: agent.map_err(|error| invalid("agent", error))?,
            role: self.role.map(|role| role_of(role.trim())).transpose()?,
            depends_on: names("depends_on", self.depends_on.unwrap_or_default())?,
            checks: checks(self.checks)?,
            tools: self.tools,
            write_paths: self.write_paths,
            mode: self.mode.map(|mode| mode_of(mode.trim())).transpose()?,
            usd: dollars(self.usd)?,
            rounds: calls("rounds", self.rounds)?,
            tool_calls: calls("tool_calls", self.tool_calls)?,
            timeout: span(self.timeout)?,
            output_schema: self.output_schema,
        };
        Ok((name, wanted))
    }
}

pub(super) struct CreateTask {
    spec: ToolSpec,
    makes: Arc<dyn Makes>,
    control: Arc<dyn TaskControl>,
}

impl CreateTask {
    pub(super) fn new(makes: Arc<dyn Makes>, control: Arc<dyn TaskControl>) -> Self {
        Self { spec: create_spec(), makes, control }
    }
}

#[async_trait]
impl Tool for CreateTask {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let arguments: CreateArguments = schema::read(arguments)?;
        let (name, wanted) = arguments.read()?;
        let spec = self.makes.spec(context, name.clone(), wanted).await?;
        let made = self.control.make(context.task, spec).await;
        made.map_err(|reason| ToolError::new(ToolErrorKind::Denied, reason))?;
        Ok(ToolOutput::text(format!(
            "task {name} is on its way; get what comes of it with await_tasks"
        )))
    }
}

pub(super) struct CreateWorkflow {
    spec: ToolSpec,
    makes: Arc<dyn Makes>,
    control: Arc<dyn TaskControl>,
}

impl CreateWorkflow {
    pub(super) fn new(makes: Arc<dyn Makes>, control: Arc<dyn TaskControl>) -> Self {
        Self { spec: workflow_spec(), makes, control }
    }
}

#[async_trait]
impl Tool for CreateWorkflow {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let arguments: WorkflowArguments = schema::read(arguments)?;
        let (name, wanted) = arguments.read()?;
        let count = wanted.tasks.len();
        let spec = self.makes.tree(context, name.clone(), wanted).await?;
        let made = self.control.make(context.task, spec).await;
        made.map_err(|reason| ToolError::new(ToolErrorKind::Denied, reason))?;
        let tasks = if count == 1 { "1 task is".to_owned() } else { format!("{count} tasks are") };
        Ok(ToolOutput::text(format!(
            "workflow {name}: {tasks} on the way; get what comes of it with await_tasks"
        )))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AwaitArguments {
    /// Their names; all that you have created where absent.
    #[serde(default)]
    names: Vec<String>,
}

pub(super) struct AwaitTasks {
    spec: ToolSpec,
    control: Arc<dyn TaskControl>,
}

impl AwaitTasks {
    pub(super) fn new(control: Arc<dyn TaskControl>) -> Self {
        Self { spec: await_spec(), control }
    }
}

#[async_trait]
impl Tool for AwaitTasks {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let arguments: AwaitArguments = schema::read(arguments)?;
        let names = names("names", arguments.names)?;
        let outcomes = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                let told = "the wait was broken off; the tasks are as they were";
                return Err(ToolError::new(ToolErrorKind::Cancelled, told));
            }
            outcomes = self.control.results(context.task, names) => outcomes,
        };
        let outcomes = outcomes.map_err(|reason| ToolError::new(ToolErrorKind::Denied, reason))?;
        Ok(ToolOutput::text(outcomes.iter().map(told).collect::<Vec<_>>().join("\n")))
    }
}

/// Says what came of a task: how it ended, what it says of itself, and which checks failed.
fn told(outcome: &TaskOutcome) -> String {
    let mut told = format!("task {}: {}\n", outcome.name, outcome.ending);
    // Writing to a string never fails.
    if let Some(claim) = &outcome.claim {
        let is_done = outcome.ending == Ending::Completed;
        let what = if is_done { "it says" } else { "it said last, which was not accepted" };
        let _ = writeln!(told, "{what}: {}", claim.summary.trim());
        if let Some(output) = &claim.output {
            let _ = writeln!(told, "output: {output}");
        }
    }
    if outcome.files_changed > 0 {
        // Beyond that, what one program changes is not told one by one.
        let more = if outcome.files_changed < TOLD_ONE_BY_ONE { "" } else { " or more" };
        let _ = writeln!(told, "files changed: {}{more}", outcome.files_changed);
    }
    let failed = outcome.verdicts.iter().filter(|verdict| !verdict.passed);
    if outcome.ending != Ending::Completed {
        failed.take(MAX_VERDICTS).map(Verdict::for_model).for_each(|text| told.push_str(&text));
    }
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_no_paths_is_refused_and_none_at_all_is_the_makers_own() {
        let read = |more: Value| {
            let mut arguments = json!({ "name": "part", "prompt": "Go." });
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema::read::<CreateArguments>(arguments).and_then(CreateArguments::read)
        };

        let empty = read(json!({ "write_paths": [] })).unwrap_err();
        let (_, absent) = read(json!({})).unwrap();
        let (_, named) = read(json!({ "write_paths": ["src/**"] })).unwrap();

        assert_eq!(empty.kind, ToolErrorKind::InvalidArguments);
        assert!(empty.message.starts_with("write_paths: name some globs"), "{empty:?}");
        assert_eq!(absent.write_paths, None);
        assert_eq!(named.write_paths, Some(vec!["src/**".to_owned()]));
    }

    #[test]
    fn a_limit_that_lets_nothing_be_done_is_refused_by_its_name() {
        let task = |more: Value| {
            let mut arguments = json!({ "name": "part", "prompt": "Go." });
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            arguments
        };
        let tree = |more: Value, parts: Value| {
            let mut arguments = json!({ "name": "all", "tasks": [parts] });
            arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let read = schema::read::<WorkflowArguments>(arguments).unwrap().read();
            read.map(drop).map_err(|error| error.message)
        };
        let limits = [
            (json!({ "timeout": "0s" }), "timeout: wanted more than no time, found 0s"),
            (json!({ "rounds": 0 }), "rounds: wanted at least 1, found 0"),
            (json!({ "tool_calls": 0 }), "tool_calls: wanted at least 1, found 0"),
        ];

        for (limit, told) in limits {
            let one = schema::read::<CreateArguments>(task(limit.clone())).unwrap().read();
            assert_eq!(one.unwrap_err().message, told);
            assert_eq!(tree(limit.clone(), task(json!({}))), Err(told.to_owned()));
            assert_eq!(tree(json!({}), task(limit)), Err(format!("tasks[0].{told}")));
        }
        // What costs nothing needs no dollars.
        assert_eq!(tree(json!({ "usd": "0", "rounds": 1 }), task(json!({ "usd": "0" }))), Ok(()));
    }
}
