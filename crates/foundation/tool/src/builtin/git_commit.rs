//! `git.commit`: what the run has changed, as a commit.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Tool, ToolClass, ToolError, ToolErrorKind, ToolOutput, ToolSpec,
    tool::CallContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::schema;

/// Commits what a run has changed, and nothing else.
#[async_trait]
pub trait Commits: Send + Sync {
    /// Commits what the run of a call has changed and not committed yet, with this message.
    ///
    /// A dropped future does not stop a commit that has begun: it is made whole or not at all.
    ///
    /// # Errors
    /// Why nothing was committed, for the model to act on.
    async fn commit(&self, context: &CallContext, message: String)
    -> Result<ToolOutput, ToolError>;
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A subject, an empty line, and why.
    #[schemars(length(min = 1))]
    message: String,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Commit what this run has changed and not committed yet, and nothing else. Hooks do not run.";
    super::spec::<Arguments>("git.commit", text, ToolClass::Write, Replay::Once, &["write"])
}

pub(super) struct Commit {
    spec: ToolSpec,
    commits: Arc<dyn Commits>,
}

impl Commit {
    pub(super) fn new(commits: Arc<dyn Commits>) -> Self {
        Self { spec: spec(), commits }
    }
}

#[async_trait]
impl Tool for Commit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        _: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { message } = schema::read(arguments)?;
        if message.trim().is_empty() {
            let told = "a commit needs a message".to_owned();
            return Err(ToolError::new(ToolErrorKind::InvalidArguments, told));
        }
        self.commits.commit(context, message).await
    }
}
