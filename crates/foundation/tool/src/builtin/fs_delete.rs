//! `fs.delete`: a file or folder into the trash, with the reason.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    BlobHash, Cancel, Clock, Replay, Tool, ToolClass, ToolError, ToolOutput, ToolSpec,
    event::FileChange, tool::CallContext,
};
use formwork_write_safety::{Removal, Trash, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    schema,
    workspace::{blocking, tool_error},
};

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

pub(super) struct Delete {
    spec: ToolSpec,
    workspace: Workspace,
    trash: Arc<Trash>,
    clock: Arc<dyn Clock>,
}

impl Delete {
    pub(super) fn new(workspace: Workspace, trash: Arc<Trash>, clock: Arc<dyn Clock>) -> Self {
        let spec = spec();
        Self { spec, workspace, trash, clock }
    }
}

#[async_trait]
impl Tool for Delete {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { path, reason } = schema::read(arguments)?;
        let removal = Removal {
            reason,
            run: context.run.to_string(),
            task: context.task.to_string(),
            at_ms: u64::try_from(self.clock.now().as_millis()).unwrap_or_default(),
        };
        let (workspace, trash) = (self.workspace.clone(), Arc::clone(&self.trash));
        blocking(move || {
            let gone =
                workspace.delete(&path, &trash, &removal).map_err(|error| tool_error(&error))?;
            let change = FileChange {
                path: gone.path.clone(),
                before: gone.blake3.parse::<BlobHash>().ok(),
                after: None,
                added: 0,
                removed: 0,
                call: None,
            };
            Ok(ToolOutput {
                text: format!("deleted {} {}; in the trash as {}", gone.kind, gone.path, gone.id),
                changes: vec![change],
                ..ToolOutput::default()
            })
        })
        .await
    }
}
