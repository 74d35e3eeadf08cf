//! `fs.write`: a whole file.

use formwork_protocols::{Replay, Tool, ToolClass, ToolSpec};
use formwork_write_safety::{Apply, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{on_files::OnFiles, written};
use crate::workspace::tool_error;

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

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, |scene, Arguments { path, content }| {
        let changed = scene.workspace.write_text(&path, &content, Apply::Write);
        Ok(written(&changed.map_err(|error| tool_error(&error))?))
    })
}
