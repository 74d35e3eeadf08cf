//! The tools that Formwork brings along.

mod exec;
mod fs_apply_patch;
mod fs_delete;
mod fs_diff;
mod fs_edit;
mod fs_glob;
mod fs_grep;
mod fs_list_dir;
mod fs_mkdir;
mod fs_move;
mod fs_multi_edit;
mod fs_read;
mod fs_set_executable;
mod fs_stat;
mod fs_write;
mod git;
mod git_commit;
mod http;
mod lifecycle;
mod made;
mod notepad;
mod on_files;
mod output;
mod shell;
mod walk;

use std::{sync::Arc, time::Duration};

use formwork_protocols::{
    Clock, EventStore, Replay, ToolClass, ToolName, ToolOutput, ToolSpec,
    tool::{LookAt, TaskControl},
};
use formwork_sandbox::{Protection, Sandbox};
use formwork_write_safety::{Changed, Trash, Workspace};
use schemars::JsonSchema;

pub use exec::outside;
pub use git_commit::Commits;
pub use made::{Makes, Role, Wanted, WantedTree};
pub(crate) use {
    exec::run,
    http::{destination, told},
};

use crate::{Error, HttpRules, Registry, schema, workspace::file_change};

/// What the built-in tools of one session work with.
pub struct Builtins {
    /// The files: what may be written, and what this session has read.
    pub workspace: Workspace,
    /// Where deleted files go.
    pub trash: Arc<Trash>,
    /// Runs processes.
    pub sandbox: Arc<Sandbox>,
    /// What a process may reach.
    pub protection: Protection,
    /// The same in words: what a program may write.
    pub bounds: String,
    /// How long a process may run.
    pub exec_timeout: Duration,
    /// Keeps the outputs that were shown in part.
    pub store: Arc<dyn EventStore>,
    /// Opens subtasks.
    pub control: Arc<dyn TaskControl>,
    /// Dates what goes to the trash.
    pub clock: Arc<dyn Clock>,
    /// Makes commits; where there is none, neither is the tool.
    pub commits: Option<Arc<dyn Commits>>,
    /// Says what a task is that the model makes; where nobody does, none can be made.
    pub makes: Option<Arc<dyn Makes>>,
    /// Where requests may go.
    pub http: HttpRules,
    /// Finds out which files are pictures.
    pub look_at: LookAt,
}

/// Adds every built-in tool.
///
/// # Errors
/// [`Error::Duplicate`] when a name is taken.
pub fn register(registry: &mut Registry, parts: Builtins) -> Result<(), Error> {
    let Builtins {
        workspace,
        trash,
        sandbox,
        protection,
        bounds,
        exec_timeout,
        store,
        control,
        clock,
        commits,
        makes,
        http,
        look_at,
    } = parts;
    register_files(registry, &workspace, look_at)?;
    registry.add(Arc::new(fs_write::tool(&workspace)))?;
    registry.add(Arc::new(fs_edit::tool(&workspace)))?;
    registry.add(Arc::new(fs_multi_edit::tool(&workspace)))?;
    let (bin, time) = (Arc::clone(&trash), Arc::clone(&clock));
    registry.add(Arc::new(fs_apply_patch::tool(&workspace, bin, time)))?;
    registry.add(Arc::new(fs_mkdir::tool(&workspace)))?;
    registry.add(Arc::new(fs_move::move_tool(&workspace)))?;
    registry.add(Arc::new(fs_move::copy_tool(&workspace)))?;
    registry.add(Arc::new(fs_set_executable::tool(&workspace)))?;
    registry.add(Arc::new(fs_delete::tool(&workspace, trash, clock)))?;
    let git = git::Git::new(&workspace, Arc::clone(&sandbox), protection.clone());
    registry.add(Arc::new(git))?;
    if let Some(commits) = commits {
        registry.add(Arc::new(git_commit::Commit::new(commits)))?;
    }
    let programs = exec::Programs { sandbox, protection, bounds, longest: exec_timeout };
    registry.add(Arc::new(shell::Shell::new(workspace.clone(), programs.clone())))?;
    registry.add(Arc::new(exec::Exec::new(workspace, programs)))?;
    registry.add(Arc::new(http::Http::new(http)))?;
    registry.add(Arc::new(notepad::Add::new(Arc::clone(&store))))?;
    registry.add(Arc::new(notepad::Read::new(Arc::clone(&store))))?;
    registry.add(Arc::new(output::ReadOutput::new(store)))?;
    if let Some(makes) = makes {
        registry.add(Arc::new(made::CreateTask::new(Arc::clone(&makes), Arc::clone(&control))))?;
        registry.add(Arc::new(made::CreateWorkflow::new(makes, Arc::clone(&control))))?;
        registry.add(Arc::new(made::AwaitTasks::new(Arc::clone(&control))))?;
    }
    registry.add(Arc::new(lifecycle::StartTask::new(Arc::clone(&control))))?;
    registry.add(Arc::new(lifecycle::EndTask::new(control)))
}

/// Adds the tools that read files.
///
/// # Errors
/// [`Error::Duplicate`] when a name is taken.
pub fn register_files(
    registry: &mut Registry,
    workspace: &Workspace,
    look_at: LookAt,
) -> Result<(), Error> {
    registry.add(Arc::new(fs_read::tool(workspace, look_at)))?;
    registry.add(Arc::new(fs_list_dir::tool(workspace)))?;
    registry.add(Arc::new(fs_glob::tool(workspace)))?;
    registry.add(Arc::new(fs_grep::tool(workspace)))?;
    registry.add(Arc::new(fs_diff::tool(workspace)))?;
    registry.add(Arc::new(fs_stat::tool(workspace)))
}

/// Describes every built-in tool, in the order of their names.
pub fn specs() -> Vec<ToolSpec> {
    let mut specs = vec![
        crate::deferred::spec(&[]),
        exec::spec(),
        fs_apply_patch::spec(),
        fs_delete::spec(),
        fs_diff::spec(),
        fs_edit::spec(),
        fs_glob::spec(),
        fs_grep::spec(),
        fs_list_dir::spec(),
        fs_mkdir::spec(),
        fs_move::copy_spec(),
        fs_move::move_spec(),
        fs_multi_edit::spec(),
        fs_read::spec(),
        fs_set_executable::spec(),
        fs_stat::spec(),
        fs_write::spec(),
        git::spec(),
        git_commit::spec(),
        http::spec(),
        lifecycle::end_spec(),
        lifecycle::start_spec(),
        made::await_spec(),
        made::create_spec(),
        made::workflow_spec(),
        notepad::add_spec(),
        notepad::read_spec(),
        output::spec(),
        shell::spec(),
    ];
    specs.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
    specs
}

/// Describes a built-in tool whose arguments are `T`.
pub(crate) fn spec<T: JsonSchema>(
    name: &str,
    description: &str,
    class: ToolClass,
    replay: Replay,
    tags: &[&str],
) -> ToolSpec {
    let name = ToolName::parse(name).expect("the names of built-in tools follow the rule");
    ToolSpec {
        definition: schema::definition::<T>(name, description),
        class,
        replay,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

/// Describes a built-in tool that only reads.
fn read_only<T: JsonSchema>(name: &str, description: &str) -> ToolSpec {
    spec::<T>(name, description, ToolClass::Read, Replay::Pure, &["readonly"])
}

/// Tells of files that were written together.
fn written_all(changed: &[Changed]) -> ToolOutput {
    let mut all = ToolOutput::default();
    for output in changed.iter().map(written) {
        all.text.push_str(&output.text);
        all.text.push('\n');
        all.changes.extend(output.changes);
    }
    all
}

/// Tells of a file that was written.
fn written(changed: &Changed) -> ToolOutput {
    let change = file_change(changed);
    let verb = match (changed.before, changed.after) {
        (None, _) => "created",
        (Some(_), None) => "deleted",
        (Some(_), Some(_)) => "changed",
    };
    // The right to run it, where that is new; else nothing is to be said of a mode.
    let runs = |mode: Option<u32>| mode.is_some_and(|mode| mode & 0o111 != 0);
    let mode = match (runs(changed.before_mode), runs(changed.after_mode)) {
        _ if changed.after.is_none() => "",
        (false, true) => ", may be run",
        (true, false) => ", may no longer be run",
        (false, false) | (true, true) => "",
    };
    ToolOutput {
        text: format!("{verb} {} (+{} -{}){mode}", change.path, change.added, change.removed),
        changes: vec![change],
        ..ToolOutput::default()
    }
}
