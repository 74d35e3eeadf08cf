//! `fs.stat`: what a path is.

use formwork_protocols::{Timestamp, Tool, ToolError, ToolOutput, ToolSpec};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::{OnFiles, Scene};
use crate::workspace::tool_error;

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

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, stat)
}

fn stat(scene: &Scene, arguments: Arguments) -> Result<ToolOutput, ToolError> {
    let Arguments { path } = arguments;
    let stat = scene.workspace.root().stat_link(&path).map_err(|error| tool_error(&error))?;
    let changed = i64::try_from(stat.modified / 1_000).unwrap_or_default();
    Ok(ToolOutput::text(format!(
        "{path}: {}, {} bytes, mode {:04o}, changed {}",
        stat.kind.label(),
        stat.len,
        stat.mode,
        Timestamp::from_micros(changed),
    )))
}
