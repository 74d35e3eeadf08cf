//! `fs.apply_patch`: a V4A patch or a unified diff, all of its files or none.

use std::sync::Arc;

use formwork_protocols::{Clock, Replay, Tool, ToolClass, ToolSpec};
use formwork_write_safety::{Apply, Patch, Trash, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{fs_delete::removal, on_files::OnFiles, written_all};
use crate::workspace::tool_error;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// From `*** Begin Patch` to `*** End Patch` with `*** Add|Update|Delete File:`, or a unified diff.
    patch: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Apply a V4A patch or a unified diff: all of its files, or none. What it deletes goes to the trash.";
    super::spec::<Arguments>("fs.apply_patch", text, ToolClass::Write, Replay::Once, &["write"])
}

pub(super) fn tool(
    workspace: &Workspace,
    trash: Arc<Trash>,
    clock: Arc<dyn Clock>,
) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, move |scene, Arguments { patch }| {
        let patch = Patch::parse(&patch).map_err(|error| tool_error(&error))?;
        let removal = removal(scene, "a patch deletes it".to_owned(), &*clock);
        let changed = scene.workspace.patch(&patch, Some((&trash, &removal)), Apply::Write);
        Ok(written_all(&changed.map_err(|error| tool_error(&error))?))
    })
    .naming(named)
}

/// Names every file of the patch, and where it is moved to. A patch that does not parse changes none.
fn named(arguments: &Value) -> Vec<String> {
    let text = arguments.get("patch").and_then(Value::as_str).unwrap_or_default();
    let Ok(patch) = Patch::parse(text) else { return Vec::new() };
    let paths = patch.files().iter().flat_map(|file| [Some(file.path()), file.moved_to()]);
    paths.flatten().map(str::to_owned).collect()
}
