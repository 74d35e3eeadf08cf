//! `git`: the part of git that only reads.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec, tool::CallContext,
};
use formwork_sandbox::{Command, Network, Protection, Sandbox};
use formwork_write_safety::{ReadOnlyGit, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::exec::run;
use crate::{
    schema,
    workspace::{blocking, tool_error},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Such as ["diff", "--stat"]: status, diff, log, show, blame, ls-files, rev-parse, branch, grep, cat-file.
    #[schemars(length(min = 1))]
    arguments: Vec<String>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Read the repository with git. Nothing that writes is allowed.";
    super::read_only::<Arguments>("git", text)
}

pub(super) struct Git {
    spec: ToolSpec,
    git: Result<ReadOnlyGit, ToolError>,
    sandbox: Arc<Sandbox>,
    protection: Protection,
}

impl Git {
    pub(super) fn new(
        workspace: &Workspace,
        sandbox: Arc<Sandbox>,
        mut protection: Protection,
    ) -> Self {
        // What reads a repository fetches nothing into it.
        if let Protection::Restricted(limits) = &mut protection {
            limits.network = Network::Off;
        }
        let git = ReadOnlyGit::open(workspace.root().path()).map_err(|error| tool_error(&error));
        let spec = spec();
        Self { spec, git, sandbox, protection }
    }
}

#[async_trait]
impl Tool for Git {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let Arguments { arguments } = schema::read(arguments)?;
        let git = self.git.clone()?;
        // It asks git for the names of the filters first, which takes a process.
        let checked =
            blocking(move || git.command(&arguments).map_err(|error| tool_error(&error))).await?;
        let mut command = Command::new(checked.argv, checked.dir, self.protection.clone());
        command.set.extend(checked.env);
        let output = run(&self.sandbox, command, cancel).await?;
        let (exit, text) = output.text.split_once('\n').unwrap_or((&output.text, ""));
        match exit {
            "exit code 0" => Ok(ToolOutput::text(text)),
            // Git's way to say that nothing was found, or that two things differ.
            "exit code 1" => Ok(ToolOutput::text(format!("{text}\n[{exit}]"))),
            _ => Err(ToolError::new(ToolErrorKind::Failed, output.text)),
        }
    }
}
