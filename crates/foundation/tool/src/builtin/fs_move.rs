//! `fs.move` and `fs.copy`: a file, link or folder at another path.

use formwork_protocols::{Replay, Tool, ToolClass, ToolOutput, ToolSpec};
use formwork_write_safety::{Changed, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::OnFiles;
use crate::workspace::{file_change, tool_error};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file or folder.
    from: String,
    /// Its new path, where nothing may be yet.
    to: String,
}

/// Describes `fs.move`.
pub(super) fn move_spec() -> ToolSpec {
    let text = "Move or rename a file or folder. Nothing is overwritten.";
    super::spec::<Arguments>("fs.move", text, ToolClass::Write, Replay::Once, &["write"])
}

/// Describes `fs.copy`.
pub(super) fn copy_spec() -> ToolSpec {
    let text = "Copy a file or folder. Nothing is overwritten.";
    super::spec::<Arguments>("fs.copy", text, ToolClass::Write, Replay::Once, &["write"])
}

pub(super) fn move_tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(move_spec(), workspace, |scene, Arguments { from, to }| {
        let changed = scene.workspace.rename(&from, &to).map_err(|error| tool_error(&error))?;
        Ok(told("moved", &from, &to, &changed))
    })
}

pub(super) fn copy_tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(copy_spec(), workspace, |scene, Arguments { from, to }| {
        let changed = scene.workspace.copy(&from, &to).map_err(|error| tool_error(&error))?;
        Ok(told("copied", &from, &to, &changed))
    })
}

fn told(verb: &str, from: &str, to: &str, changed: &[Changed]) -> ToolOutput {
    let new = changed.iter().filter(|changed| changed.after.is_some()).count();
    let many = if new > 1 { format!(", {new} files") } else { String::new() };
    ToolOutput {
        text: format!("{verb} {from} to {to}{many}"),
        changes: changed.iter().map(file_change).collect(),
        ..ToolOutput::default()
    }
}
