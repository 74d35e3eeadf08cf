//! `fs.set_executable`: the right to run a file.

use formwork_protocols::{Replay, Tool, ToolClass, ToolOutput, ToolSpec};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::OnFiles;
use crate::workspace::{file_change, tool_error};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file.
    path: String,
    /// Whether it may be run.
    executable: bool,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Set or take the right to run a file.";
    let (class, replay) = (ToolClass::Write, Replay::Idempotent);
    super::spec::<Arguments>("fs.set_executable", text, class, replay, &["write"])
}

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, |scene, Arguments { path, executable }| {
        let changed = scene.workspace.set_executable(&path, executable);
        let changed = changed.map_err(|error| tool_error(&error))?;
        let mode = changed.after_mode.unwrap_or_default() & 0o777;
        Ok(ToolOutput {
            text: format!("{path} has mode {mode:04o}"),
            changes: vec![file_change(&changed)],
            ..ToolOutput::default()
        })
    })
}
