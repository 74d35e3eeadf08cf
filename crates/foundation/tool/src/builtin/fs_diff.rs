//! `fs.diff`: how two files differ.

use formwork_protocols::{Tool, ToolError, ToolOutput, ToolSpec};
use formwork_write_safety::{Workspace, diff};
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::{OnFiles, Scene};
use crate::workspace::tool_error;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The one file.
    from: String,
    /// The other.
    to: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text =
        "Show how two files differ, as a unified diff. For what changed since a commit use git.";
    super::read_only::<Arguments>("fs.diff", text)
}

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, compare)
}

fn compare(scene: &Scene, arguments: Arguments) -> Result<ToolOutput, ToolError> {
    let Arguments { from, to } = arguments;
    // Not as a read that allows to overwrite: what is alike is not shown.
    let read =
        |path: &str| scene.workspace.root().read_small(path).map_err(|error| tool_error(&error));
    let shown = diff(&to, Some(&read(&from)?), Some(&read(&to)?));
    Ok(ToolOutput::text(if shown.is_empty() {
        format!("{from} and {to} are the same")
    } else {
        shown.replacen(&format!("--- a/{to}"), &format!("--- a/{from}"), 1)
    }))
}
