//! `fs.glob`: which files have such names.

use std::path::Path;

use formwork_protocols::{Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use formwork_write_safety::Workspace;
use globset::{GlobBuilder, GlobMatcher};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    on_files::{OnFiles, Scene},
    walk::{Beyond, Find, Met, Walk},
};
use crate::workspace::tool_error;

/// How many paths one call returns; a pattern that matches more is better narrowed.
const MAX_PATHS: usize = 500;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Such as **/*.rs; * does not cross a /, ** does.
    pattern: String,
    /// The folder to search.
    path: Option<String>,
}

/// Describes the tool.
pub(super) fn spec() -> ToolSpec {
    let text = "Find files by name. What .gitignore names is left out.";
    super::read_only::<Arguments>("fs.glob", text)
}

pub(super) fn tool(workspace: &Workspace) -> impl Tool + use<> {
    OnFiles::new(spec(), workspace, find)
}

fn find(scene: &Scene, arguments: Arguments) -> Result<ToolOutput, ToolError> {
    let Arguments { pattern, path } = arguments;
    let matcher = compile(&pattern)?;
    let folder = folder(&scene.workspace, path.as_deref())?;
    let walk = Walk {
        root: scene.workspace.root(),
        from: &folder,
        chosen: &|path, _| path.strip_prefix(&folder).is_ok_and(|below| matcher.is_match(below)),
        wanted: MAX_PATHS,
        beyond: Beyond::Counted,
        is_over: &|| scene.cancel.is_cancelled(),
    };
    let found = walk.look(|| {
        |met: &Met<'_>| Some(Find { what: shown(&scene.workspace, &met.path()), counts: 1 })
    });
    if scene.cancel.is_cancelled() {
        return Err(cancelled());
    }
    let (mut paths, more) = (found.all, found.met.saturating_sub(MAX_PATHS));
    if paths.is_empty() {
        return Ok(ToolOutput::text(format!("no file matches {pattern}")));
    }
    paths.sort_unstable();
    let mut text = paths.join("\n");
    text.push('\n');
    if more > 0 {
        text.push_str(&format!("[{more} more; narrow the pattern]\n"));
    }
    Ok(ToolOutput::text(text))
}

/// Compiles a glob in which `*` stays within a folder.
///
/// # Errors
/// [`ToolErrorKind::InvalidArguments`] says what is wrong with it.
pub(super) fn compile(pattern: &str) -> Result<GlobMatcher, ToolError> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| {
            ToolError::new(ToolErrorKind::InvalidArguments, format!("pattern {pattern:?}: {error}"))
        })
}

/// Resolves the folder or file that a search begins at.
///
/// # Errors
/// What the file layer says of it.
pub(super) fn folder(
    workspace: &Workspace,
    path: Option<&str>,
) -> Result<std::path::PathBuf, ToolError> {
    let path = path.unwrap_or(".");
    workspace.root().stat(path).map_err(|error| tool_error(&error))?;
    workspace.root().real(path).map_err(|error| tool_error(&error))
}

/// Returns a path as the model names it: from the root of the workspace, with `/`.
pub(super) fn shown(workspace: &Workspace, path: &Path) -> String {
    path.strip_prefix(workspace.root().path()).unwrap_or(path).to_string_lossy().into_owned()
}

/// Says that a search was given up.
pub(super) fn cancelled() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "cancelled before it was done")
}
