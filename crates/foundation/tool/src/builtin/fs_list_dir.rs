//! `fs.list_dir`: what a folder holds.

use async_trait::async_trait;
use formwork_protocols::{Cancel, Tool, ToolError, ToolOutput, ToolSpec, tool::CallContext};
use formwork_write_safety::{Kind, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    schema,
    workspace::{blocking, tool_error},
};

/// How many entries one call lists; a folder with more is better searched.
const MAX_ENTRIES: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder. The root itself where absent.
    path: Option<String>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "List the names in a folder. Folders end with /.";
    super::read_only::<Arguments>("fs.list_dir", text)
}

pub(super) struct ListDir {
    spec: ToolSpec,
    workspace: Workspace,
}

impl ListDir {
    pub(super) fn new(workspace: Workspace) -> Self {
        Self { spec: spec(), workspace }
    }
}

#[async_trait]
impl Tool for ListDir {
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
            let path = path.unwrap_or_else(|| ".".to_owned());
            let entries = workspace.root().list(&path).map_err(|error| tool_error(&error))?;
            if entries.is_empty() {
                return Ok(ToolOutput::text(format!("{path} is an empty folder")));
            }
            let mut text = String::new();
            for entry in entries.iter().take(MAX_ENTRIES) {
                text.push_str(&entry.name.to_string_lossy());
                match entry.kind {
                    Kind::Folder => text.push('/'),
                    Kind::Link => text.push('@'),
                    _ => {}
                }
                text.push('\n');
            }
            if let Some(more) = entries.len().checked_sub(MAX_ENTRIES).filter(|more| *more > 0) {
                text.push_str(&format!("[{more} more; use fs.glob to narrow]\n"));
            }
            Ok(ToolOutput::text(text))
        })
        .await
    }
}
