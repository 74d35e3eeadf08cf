//! `fs.edit`: one text in a file replaced by another, every other byte untouched.

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Tool, ToolClass, ToolError, ToolOutput, ToolSpec, tool::CallContext,
};
use formwork_write_safety::{Apply, Edit as Splice, Workspace};
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
    /// The text that stands there now, exactly, and once unless all is true.
    old: String,
    /// The text that shall stand there.
    new: String,
    /// Replace every place where it stands.
    #[serde(default)]
    all: bool,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Replace a text in a file. Give enough of it to be unique.";
    // Applied twice it would miss, or hit another place: so it is never repeated unasked.
    super::spec::<Arguments>("fs.edit", text, ToolClass::Write, Replay::Once, &["write"])
}

pub(super) struct Edit {
    spec: ToolSpec,
    workspace: Workspace,
}

impl Edit {
    pub(super) fn new(workspace: Workspace) -> Self {
        let spec = spec();
        Self { spec, workspace }
    }
}

#[async_trait]
impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { path, old, new, all } = schema::read(arguments)?;
        let edit = if all { Splice::all(old, new) } else { Splice::one(old, new) };
        let workspace = self.workspace.clone();
        blocking(move || {
            let changed =
                workspace.edit(&path, &[edit], Apply::Write).map_err(|error| tool_error(&error))?;
            Ok(written(&changed))
        })
        .await
    }
}
