//! `fs.mkdir`: a folder, with those above it.

use formwork_protocols::{Replay, Tool, ToolClass, ToolOutput, ToolSpec};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::OnFiles;
use crate::workspace::{file_change, tool_error};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder.
    path: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text =
        "Make a folder and the missing ones above it. fs.write makes those of its file itself.";
    super::spec::<Arguments>("fs.mkdir", text, ToolClass::Write, Replay::Idempotent, &["write"])
}

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, |scene, Arguments { path }| {
        let made = scene.workspace.create_folder(&path).map_err(|error| tool_error(&error))?;
        let verb = if made.is_empty() { "is there already:" } else { "made" };
        Ok(ToolOutput {
            text: format!("{verb} {path}"),
            changes: made.iter().map(file_change).collect(),
            ..ToolOutput::default()
        })
    })
}
