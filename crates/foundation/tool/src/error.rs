//! Why a set of tools cannot be put together.

use formwork_protocols::ToolName;

/// Why a set of tools cannot be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The schema of a tool's arguments is not a schema.
    #[error("the schema of tool {tool} does not compile: {reason}")]
    Schema { tool: ToolName, reason: String },
    /// Two tools have one name.
    #[error("there are two tools named {tool}")]
    Duplicate { tool: ToolName },
}
