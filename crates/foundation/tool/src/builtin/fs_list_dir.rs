//! `fs.list_dir`: what a folder holds.

use formwork_protocols::{Tool, ToolError, ToolOutput, ToolSpec};
use formwork_write_safety::{Kind, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::{OnFiles, Scene};
use crate::workspace::tool_error;

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

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, list)
}

fn list(scene: &Scene, arguments: Arguments) -> Result<ToolOutput, ToolError> {
    let path = arguments.path.unwrap_or_else(|| ".".to_owned());
    let entries = scene.workspace.root().list(&path).map_err(|error| tool_error(&error))?;
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
}
