//! What the tools that work on files share: paths named from the root, arguments read, and work on a
//! thread where blocking is fine.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Tool, ToolError, ToolOutput, ToolSpec,
    tool::{CallContext, named_paths},
};
use formwork_write_safety::{Wanted, Workspace};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{schema, workspace::blocking};

/// What a tool does with its arguments.
type Work<A> = dyn Fn(&Scene, A) -> Result<ToolOutput, ToolError> + Send + Sync;

/// Where a call works, and for whom.
pub(super) struct Scene {
    pub(super) workspace: Workspace,
    pub(super) context: CallContext,
    pub(super) cancel: Cancel,
}

/// A tool on the files of a workspace whose arguments are `A`.
pub(super) struct OnFiles<A> {
    spec: ToolSpec,
    workspace: Workspace,
    named: fn(&Value) -> Vec<String>,
    work: Arc<Work<A>>,
}

impl<A> OnFiles<A> {
    /// Joins a description and what is done. It names the paths that stand in `path`, `from` and `to`.
    pub(super) fn new<F>(spec: ToolSpec, workspace: &Workspace, work: F) -> Self
    where
        F: Fn(&Scene, A) -> Result<ToolOutput, ToolError> + Send + Sync + 'static,
    {
        let workspace = workspace.clone();
        Self { spec, workspace, named: named_paths, work: Arc::new(work) }
    }

    /// Says where in the arguments other paths stand.
    pub(super) fn naming(self, named: fn(&Value) -> Vec<String>) -> Self {
        Self { named, ..self }
    }
}

/// Gives work up when it is dropped.
struct Until<'a>(&'a Wanted);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[async_trait]
impl<A: DeserializeOwned + Send + 'static> Tool for OnFiles<A> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// An absolute path below the root is named from there; one that leads elsewhere as it is written.
    fn paths(&self, arguments: &Value) -> Vec<String> {
        let from_root = |path: String| match self.workspace.root().rel(&path) {
            Ok(below) => below.to_string(),
            Err(_) => path,
        };
        (self.named)(arguments).into_iter().map(from_root).collect()
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let arguments: A = schema::read(arguments)?;
        let wanted = Wanted::default();
        let scene = Scene {
            workspace: self.workspace.clone().while_wanted(wanted.clone()),
            context: context.clone(),
            cancel: cancel.clone(),
        };
        let work = Arc::clone(&self.work);
        // The thread goes on after a call that is dropped, and then changes nothing any more.
        let _until = Until(&wanted);
        let working = blocking(move || work(&scene, arguments));
        tokio::pin!(working);
        tokio::select! {
            biased;
            done = &mut working => done,
            () = cancel.cancelled() => {
                wanted.end();
                working.await
            }
        }
    }
}
