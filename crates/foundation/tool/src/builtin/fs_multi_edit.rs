//! `fs.multi_edit`: several texts replaced in one or more files, all of them or none.

use std::{collections::BTreeMap, path::Path};

use formwork_protocols::{Replay, Tool, ToolClass, ToolError, ToolOutput, ToolSpec};
use formwork_write_safety::{Apply, Edit, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    on_files::{OnFiles, Scene},
    written_all,
};
use crate::workspace::tool_error;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Each is applied to what the ones before it left.
    #[schemars(length(min = 1))]
    edits: Vec<One>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct One {
    /// The file.
    path: String,
    /// The text that stands there, exactly, and once unless all is true.
    old: String,
    /// The text that shall stand there.
    new: String,
    /// Replace every place where it stands.
    #[serde(default)]
    all: bool,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Replace several texts in one or more files: all of them, or none if one misses.";
    super::spec::<Arguments>("fs.multi_edit", text, ToolClass::Write, Replay::Once, &["write"])
}

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, edit).naming(named)
}

fn named(arguments: &Value) -> Vec<String> {
    let edits = arguments.get("edits").and_then(Value::as_array).into_iter().flatten();
    edits.filter_map(|edit| edit.get("path")?.as_str().map(str::to_owned)).collect()
}

fn edit(scene: &Scene, arguments: Arguments) -> Result<ToolOutput, ToolError> {
    // Edits of one file keep their order; a miss tells the number of the edit within its file.
    let mut files: BTreeMap<String, Vec<Edit>> = BTreeMap::new();
    for One { path, old, new, all } in arguments.edits {
        let edit = if all { Edit::all(old, new) } else { Edit::one(old, new) };
        files.entry(path).or_default().push(edit);
    }
    let jobs: Vec<(&Path, &[Edit])> =
        files.iter().map(|(path, edits)| (Path::new(path), edits.as_slice())).collect();
    let changed = scene.workspace.edit_many(&jobs, Apply::Write);
    Ok(written_all(&changed.map_err(|error| tool_error(&error))?))
}
