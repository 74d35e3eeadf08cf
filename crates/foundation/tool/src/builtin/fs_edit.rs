//! `fs.edit`: one text in a file replaced by another, every other byte untouched.

use formwork_protocols::{Replay, Tool, ToolClass, ToolSpec};
use formwork_write_safety::{Apply, Edit, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{on_files::OnFiles, written};
use crate::workspace::tool_error;

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

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, |scene, Arguments { path, old, new, all }| {
        let edit = if all { Edit::all(old, new) } else { Edit::one(old, new) };
        let changed = scene.workspace.edit(&path, &[edit], Apply::Write);
        Ok(written(&changed.map_err(|error| tool_error(&error))?))
    })
}
