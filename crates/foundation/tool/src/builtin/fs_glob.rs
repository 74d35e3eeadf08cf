//! `fs.glob`: which files have such names.

use std::path::Path;

use formwork_protocols::{Tool, ToolError, ToolErrorKind, ToolOutput, ToolSpec};
use formwork_write_safety::Workspace;
use globset::{GlobBuilder, GlobMatcher};
use ignore::{Walk, WalkBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::on_files::{OnFiles, Scene};
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
    let mut paths: Vec<String> = Vec::new();
    let mut more = 0_usize;
    for entry in walk(&folder) {
        if scene.cancel.is_cancelled() {
            return Err(cancelled());
        }
        let Ok(entry) = entry else { continue };
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let Ok(below) = entry.path().strip_prefix(&folder) else { continue };
        if is_folder || !matcher.is_match(below) {
            continue;
        }
        // By the time that it is told, a folder on its way may be a link that leads out.
        if scene.workspace.root().stat_link(entry.path()).is_err() {
            continue;
        }
        if paths.len() < MAX_PATHS {
            paths.push(shown(&scene.workspace, entry.path()));
        } else {
            more += 1;
        }
    }
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

/// Walks a folder as git sees it: ignored files and git's own folder left out, links not followed.
///
/// What the user ignores everywhere is not asked, so that a search finds the same on every machine.
pub(super) fn walk(folder: &Path) -> Walk {
    walker(folder).build()
}

/// The same, in the order of the paths.
pub(super) fn walk_in_order(folder: &Path) -> Walk {
    walker(folder).sort_by_file_name(std::cmp::Ord::cmp).build()
}

fn walker(folder: &Path) -> WalkBuilder {
    let mut walker = WalkBuilder::new(folder);
    walker.hidden(false).follow_links(false).require_git(false).git_global(false).filter_entry(
        |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.file_name() != ".git" && !(is_folder && holds_up(entry.path()))
        },
    );
    if folder.ancestors().any(holds_up) {
        walker.ignore(false).git_ignore(false).parents(false);
    }
    walker
}

/// Says whether in a folder, a pipe or the like stands in the place of what a walk would read to know what is ignored:
/// it would wait there for whoever writes to it.
fn holds_up(folder: &Path) -> bool {
    [".gitignore", ".ignore"].iter().any(|name| {
        let found = folder.join(name).metadata();
        found.is_ok_and(|found| !found.is_file() && !found.is_dir())
    })
}

/// Returns a path as the model names it: from the root of the workspace, with `/`.
pub(super) fn shown(workspace: &Workspace, path: &Path) -> String {
    path.strip_prefix(workspace.root().path()).unwrap_or(path).to_string_lossy().into_owned()
}

/// Says that a search was given up.
pub(super) fn cancelled() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "cancelled before it was done")
}
