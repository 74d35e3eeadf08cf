//! `start_task` and `end_task`: where a piece of work begins, and where the model says that it is done.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Claim, Replay, TaskName, Tool, ToolClass, ToolError, ToolErrorKind, ToolOutput,
    ToolSpec,
    tool::{CallContext, Control, TaskControl},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartArguments {
    /// A short name: a-z 0-9 _ -
    name: String,
    /// What will be true when it is done.
    goal: String,
}

/// Describes `start_task`.
pub(super) fn start_spec() -> ToolSpec {
    let text = "Open a subtask for a separate piece of the work. Close it with end_task.";
    let (class, replay) = (ToolClass::Lifecycle, Replay::Once);
    super::spec::<StartArguments>("start_task", text, class, replay, &["lifecycle"])
}

/// Describes `end_task`.
pub(super) fn end_spec() -> ToolSpec {
    let text = "Say that the task is done. Its checks run then; if one fails you get the evidence.";
    let (class, replay) = (ToolClass::Lifecycle, Replay::Idempotent);
    super::spec::<EndArguments>("end_task", text, class, replay, &["lifecycle"])
}

pub(super) struct StartTask {
    spec: ToolSpec,
    control: Arc<dyn TaskControl>,
}

impl StartTask {
    pub(super) fn new(control: Arc<dyn TaskControl>) -> Self {
        Self { spec: start_spec(), control }
    }
}

#[async_trait]
impl Tool for StartTask {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let StartArguments { name, goal } = schema::read(arguments)?;
        let name = TaskName::parse(name)
            .map_err(|error| ToolError::new(ToolErrorKind::InvalidArguments, error.to_string()))?;
        let task = self
            .control
            .start(context.task, name.clone(), goal)
            .await
            .map_err(|reason| ToolError::new(ToolErrorKind::Denied, reason))?;
        Ok(ToolOutput {
            text: format!("task {name} is open; close it with end_task"),
            control: Control::Enter(task),
            ..ToolOutput::default()
        })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndArguments {
    /// What was done, in a few sentences.
    summary: String,
    /// The result as an object, where one was asked for.
    output: Option<serde_json::Map<String, Value>>,
}

pub(super) struct EndTask {
    spec: ToolSpec,
    control: Arc<dyn TaskControl>,
}

impl EndTask {
    pub(super) fn new(control: Arc<dyn TaskControl>) -> Self {
        Self { spec: end_spec(), control }
    }
}

#[async_trait]
impl Tool for EndTask {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let EndArguments { summary, output } = schema::read(arguments)?;
        self.control
            .may_end(context.task)
            .await
            .map_err(|reason| ToolError::new(ToolErrorKind::Denied, reason))?;
        let claim = Claim { summary, output: output.map(Value::Object) };
        Ok(ToolOutput {
            text: "the checks of the task run now".to_owned(),
            control: Control::End(claim),
            ..ToolOutput::default()
        })
    }
}
