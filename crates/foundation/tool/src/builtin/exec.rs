//! `exec`: runs a program by its argument vector.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, Span, Tool, ToolClass, ToolError, ToolErrorKind, ToolOutput, ToolSpec, text,
    tool::CallContext,
};
use formwork_sandbox::{Command, Exit, Protection, Sandbox, Terminal, Whole};
use formwork_write_safety::Workspace;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    schema,
    workspace::{blocking, chain, tool_error},
};

/// The most of an output that is kept whole: more is a mistake of the command, not a result.
const MAX_WHOLE_BYTES: u64 = 16 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The program and its arguments. There is no shell: no pipes, globs or redirections.
    #[schemars(length(min = 1))]
    command: Vec<String>,
    /// The folder to run in.
    cwd: Option<String>,
    /// Such as 30s or 5m.
    timeout: Option<String>,
    // Its name says what it is: what agents are told of their tools in each request has to stay small.
    pty: Option<bool>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Run a program and return its exit code and output.";
    super::spec::<Arguments>("exec", text, ToolClass::Exec, Replay::Once, &["process"])
}

/// How programs are run.
#[derive(Clone)]
pub(super) struct Programs {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) protection: Protection,
    /// What they may write, in words.
    pub(super) bounds: String,
    /// How long one may take.
    pub(super) longest: Duration,
}

pub(super) struct Exec {
    spec: ToolSpec,
    workspace: Workspace,
    programs: Programs,
}

impl Exec {
    pub(super) fn new(workspace: Workspace, programs: Programs) -> Self {
        Self { spec: spec(), workspace, programs }
    }
}

#[async_trait]
impl Tool for Exec {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let arguments: Arguments = schema::read(arguments)?;
        let Arguments { command, cwd, timeout, pty } = arguments;
        let terminal = pty.unwrap_or_default().then(Terminal::default);
        let cwd = folder(&self.workspace, cwd).await?;
        self.programs.run(command, cwd, (timeout, terminal), cancel).await
    }
}

impl Programs {
    /// Runs a program to its end, and says what it may write where it seems to have been refused some.
    ///
    /// # Errors
    /// As [`run`].
    pub(super) async fn run(
        &self,
        argv: Vec<String>,
        cwd: PathBuf,
        (timeout, terminal): (Option<String>, Option<Terminal>),
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let mut command = Command::new(argv, cwd, self.protection.clone());
        command.terminal = terminal;
        command.timeout = match timeout {
            None => self.longest,
            Some(text) => text
                .parse::<Span>()
                .map(Span::as_duration)
                .map_err(|error| {
                    ToolError::new(ToolErrorKind::InvalidArguments, error.to_string())
                })?
                .min(self.longest),
        };
        let mut output = run(&self.sandbox, command, cancel).await?;
        if self.protection != Protection::None
            && !output.text.starts_with("exit code 0\n")
            && REFUSED.iter().any(|sign| output.text.contains(sign))
        {
            output.text.push_str(&format!("\n[{}, besides its own temporary folder]", self.bounds));
        }
        Ok(output)
    }
}

/// How the kernel says that something may not be done, in the words of most programs.
const REFUSED: [&str; 6] = [
    "Permission denied",
    "Read-only file system",
    "Operation not permitted",
    "EACCES",
    "EROFS",
    "EPERM",
];

/// Resolves the folder that a program starts in.
pub(super) async fn folder(
    workspace: &Workspace,
    path: Option<String>,
) -> Result<PathBuf, ToolError> {
    let Some(path) = path else { return Ok(workspace.root().path().to_owned()) };
    let workspace = workspace.clone();
    blocking(move || {
        workspace.root().list(&path).map_err(|error| tool_error(&error))?;
        workspace.root().real(&path).map_err(|error| tool_error(&error))
    })
    .await
}

/// Runs a command to its end, whatever that is, and tells how it ended before what it wrote.
///
/// # Errors
/// [`ToolErrorKind::TimedOut`] and [`ToolErrorKind::Cancelled`] with what was written until then;
/// [`ToolErrorKind::Failed`] when it could not run.
pub(crate) async fn run(
    sandbox: &Sandbox,
    mut command: Command,
    cancel: &Cancel,
) -> Result<ToolOutput, ToolError> {
    command.caps.whole = MAX_WHOLE_BYTES;
    let token = CancellationToken::new();
    let limit = Span::from(command.timeout);
    let has_terminal = command.terminal.is_some();
    let running = sandbox.run(command, token.clone(), None);
    tokio::pin!(running);
    let finished = tokio::select! {
        finished = &mut running => finished,
        () = cancel.cancelled() => {
            token.cancel();
            running.await
        }
    };
    let mut finished =
        finished.map_err(|error| ToolError::new(ToolErrorKind::Failed, chain(&error)))?;
    let all = match &mut finished.combined.whole {
        Whole::Missing(_) => None,
        whole => whole.read().ok(),
    };
    let text = match &all {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => finished.combined.preview(),
    };
    let text = if has_terminal { text::screen(&text) } else { text };
    let mut told = if text.is_empty() { "[no output]".to_owned() } else { text };
    if all.is_none() {
        // What is shown of it is cut again, and whoever goes on reading comes to the end of what is kept.
        let (total, kept) = (finished.combined.total_bytes, finished.combined.left_out());
        let kept = total.saturating_sub(kept);
        told.push_str(&format!(
            "\n[it wrote {total} bytes, of which the first and the last are kept, {kept} in all]"
        ));
    }
    match finished.stragglers {
        0 => {}
        1 => told.push_str("\n[a process that it left running was ended]"),
        left => told.push_str(&format!("\n[{left} processes that it left running were ended]")),
    }
    for refusal in &finished.refused {
        told.push_str(&format!("\n[{refusal}]"));
    }
    let outside = outside(&finished.reached);
    let failed = |kind, message: String| ToolError {
        outside: outside.clone(),
        ..ToolError::new(kind, message)
    };
    match finished.exit {
        Exit::TimedOut => Err(failed(
            ToolErrorKind::TimedOut,
            format!("timed out after {limit}; everything it started was ended\n{told}"),
        )),
        Exit::Cancelled => Err(failed(ToolErrorKind::Cancelled, format!("cancelled\n{told}"))),
        exit => Ok(ToolOutput { outside, ..ToolOutput::text(format!("{exit}\n{told}")) }),
    }
}

/// How many of the places that a program was connected to are named to a model.
const NAMED: usize = 5;

/// Names where the output of a program may come from that was connected to somewhere.
pub fn outside(reached: &[String]) -> Option<String> {
    let named = reached.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match reached.len() {
        0 => None,
        1..=NAMED => Some(named),
        all => Some(format!("{named} and {} more", all - NAMED)),
    }
}
