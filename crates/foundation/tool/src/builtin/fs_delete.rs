//! `fs.delete`: a file or folder into the trash, with the reason.

use std::sync::Arc;

use formwork_protocols::{
    BlobHash, Clock, Replay, Tool, ToolClass, ToolOutput, ToolSpec, event::FileChange,
};
use formwork_write_safety::{Removal, Trash, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::{OnFiles, Scene};
use crate::workspace::tool_error;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file or folder.
    path: String,
    /// Why it has to go.
    #[schemars(length(min = 1))]
    reason: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Delete a file or folder. It goes to a trash from which a person can restore it.";
    super::spec::<Arguments>("fs.delete", text, ToolClass::Delete, Replay::Once, &["write"])
}

pub(super) fn tool(
    workspace: &Workspace,
    trash: Arc<Trash>,
    clock: Arc<dyn Clock>,
) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, move |scene, Arguments { path, reason }| {
        let removal = removal(scene, reason, &*clock);
        let mode = scene.workspace.root().stat_link(&path).ok();
        let gone =
            scene.workspace.delete(&path, &trash, &removal).map_err(|error| tool_error(&error))?;
        let kind = match gone.kind.as_str() {
            "folder" => 0o040_000,
            "link" => 0o120_000,
            _ => 0o100_000,
        };
        let bits = mode.map_or(0, |stat| if kind == 0o120_000 { 0 } else { stat.mode });
        let change = FileChange {
            path: gone.path.clone(),
            before: gone.blake3.parse::<BlobHash>().ok(),
            after: None,
            added: 0,
            removed: 0,
            before_mode: Some(kind | bits),
            after_mode: None,
            call: None,
            apart: false,
        };
        Ok(ToolOutput {
            text: format!("deleted {} {}; in the trash as {}", gone.kind, gone.path, gone.id),
            changes: vec![change],
            ..ToolOutput::default()
        })
    })
}

/// Says for the trash why something goes, for whom and when.
pub(super) fn removal(scene: &Scene, reason: String, clock: &dyn Clock) -> Removal {
    Removal {
        reason,
        run: scene.context.run.to_string(),
        task: scene.context.task.to_string(),
        at_ms: u64::try_from(clock.now().as_millis()).unwrap_or_default(),
    }
}
