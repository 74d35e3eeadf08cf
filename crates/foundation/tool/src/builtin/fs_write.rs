//! `fs.write`: a whole file.

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Tool, ToolClass, ToolError, ToolOutput, ToolSpec, tool::CallContext,
};
use formwork_write_safety::{Apply, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::written;
use crate::{
    schema,
    workspace::{blocking, tool_error},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file.
    path: String,
    /// Its whole new text.
    content: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Write a whole file. One that exists must have been read first.";
    super::spec::<Arguments>("fs.write", text, ToolClass::Write, Replay::Idempotent, &["write"])
}

pub(super) struct Write {
    spec: ToolSpec,
    workspace: Workspace,
}

impl Write {
    pub(super) fn new(workspace: Workspace) -> Self {
        let spec = spec();
        Self { spec, workspace }
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { path, content } = schema::read(arguments)?;
        let workspace = self.workspace.clone();
        blocking(move || {
            let changed = workspace
                .write_text(&path, &content, Apply::Write)
                .map_err(|error| tool_error(&error))?;
            Ok(written(&changed))
        })
        .await
    }
}
