//! `shell`: runs a text of shell, where whoever started the run has opted in.

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Tool, ToolClass, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
    tool::CallContext,
};
use formwork_sandbox::{Protection, Terminal};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::exec::{Programs, folder};
use crate::schema;

/// The program that a text is given to, and by what the policy takes it apart.
fn argv(text: &str) -> Vec<String> {
    ["bash", "-c", text].map(str::to_owned).into()
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The text, such as "cargo test 2>&1 | tail -5". Each command in it must be allowed.
    #[schemars(length(min = 1))]
    command: String,
    /// The folder to run in.
    cwd: Option<String>,
    /// Such as 30s or 5m.
    timeout: Option<String>,
    // Its name says what it is.
    pty: Option<bool>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Run a text of bash and return its exit code and output.";
    super::spec::<Arguments>("shell", text, ToolClass::Shell, Replay::Once, &["process"])
}

pub(super) struct Shell {
    spec: ToolSpec,
    workspace: Workspace,
    programs: Programs,
}

impl Shell {
    pub(super) fn new(workspace: Workspace, programs: Programs) -> Self {
        Self { spec: spec(), workspace, programs }
    }
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        Some(argv(arguments.get("command").and_then(Value::as_str).unwrap_or_default()))
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let arguments: Arguments = schema::read(arguments)?;
        if self.programs.protection == Protection::None {
            return Err(ToolError::new(
                ToolErrorKind::Denied,
                "no shell is run where processes are not confined; exec runs a single program",
            ));
        }
        let Arguments { command, cwd, timeout, pty } = arguments;
        let terminal = pty.unwrap_or_default().then(Terminal::default);
        let cwd = folder(&self.workspace, cwd).await?;
        self.programs.run(argv(&command), cwd, (timeout, terminal), cancel).await
    }
}
