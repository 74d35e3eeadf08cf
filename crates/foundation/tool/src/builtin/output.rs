//! `output.read`: the rest of an output that was shown in part.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    BlobHash, Cancel, EventStore, Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
    tool::CallContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{PREVIEW_BYTES, schema};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The hash that the preview named.
    hash: String,
    /// The byte to begin at.
    #[serde(default)]
    offset: usize,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Read more of a tool output that was shown in part.";
    super::read_only::<Arguments>("output.read", text)
}

pub(super) struct ReadOutput {
    spec: ToolSpec,
    store: Arc<dyn EventStore>,
}

impl ReadOutput {
    pub(super) fn new(store: Arc<dyn EventStore>) -> Self {
        Self { spec: spec(), store }
    }
}

#[async_trait]
impl Tool for ReadOutput {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { hash, offset } = schema::read(arguments)?;
        let hash: BlobHash = hash.parse().map_err(|error: formwork_protocols::NameError| {
            ToolError::new(ToolErrorKind::InvalidArguments, error.to_string())
        })?;
        let bytes = self
            .store
            .blob(&hash)
            .await
            .map_err(|error| ToolError::new(ToolErrorKind::Failed, error.to_string()))?
            .ok_or_else(|| {
                ToolError::new(ToolErrorKind::Failed, format!("there is no output {hash}"))
            })?;
        let text = String::from_utf8_lossy(&bytes);
        let from = text.ceil_char_boundary(offset.min(text.len()));
        // Room is left for the line that says how to go on.
        let to = text.floor_char_boundary((from + PREVIEW_BYTES - 200).min(text.len()));
        let part = text.get(from..to).unwrap_or_default();
        let rest = text.len() - to;
        let more = if rest == 0 {
            "\n[end]".to_owned()
        } else {
            format!("\n[{rest} bytes follow; go on at offset {to}]")
        };
        Ok(ToolOutput::text(format!("{part}{more}")))
    }
}
