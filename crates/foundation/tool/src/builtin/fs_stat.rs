//! `fs.stat`: what a path is.

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Timestamp, Tool, ToolError, ToolOutput, ToolSpec, tool::CallContext,
};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    schema,
    workspace::{blocking, tool_error},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The path.
    path: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Say what a path is: file, folder or link, its size, mode and time of change.";
    super::read_only::<Arguments>("fs.stat", text)
}

pub(super) struct Stat {
    spec: ToolSpec,
    workspace: Workspace,
}

impl Stat {
    pub(super) fn new(workspace: Workspace) -> Self {
        Self { spec: spec(), workspace }
    }
}

#[async_trait]
impl Tool for Stat {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { path } = schema::read(arguments)?;
        let workspace = self.workspace.clone();
        blocking(move || {
            let stat = workspace.root().stat_link(&path).map_err(|error| tool_error(&error))?;
            let changed = i64::try_from(stat.modified / 1_000).unwrap_or_default();
            Ok(ToolOutput::text(format!(
                "{path}: {}, {} bytes, mode {:04o}, changed {}",
                stat.kind.label(),
                stat.len,
                stat.mode,
                Timestamp::from_micros(changed),
            )))
        })
        .await
    }
}
