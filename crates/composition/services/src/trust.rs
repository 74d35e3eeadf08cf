//! What of a workspace may take effect: what a person has looked at.
//!
//! A repository brings its config, its agents, its workflows with the contracts that these name, its tools, and the
//! programs that config and tools run. Each is trusted by its content, and what is kept of that stands outside of the
//! workspace.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use formwork_agent::{Agent, Agents, Source};
use formwork_policy::{Hashes, Trust, TrustStore, hash_of_file, named_files, run_files};
use formwork_protocols::{
    AgentName, PermissionMode, TaskName, WorkflowName,
    document::{self, Diagnostics},
    text,
};
use formwork_scheduler::workflow::{Plan, TaskDocument, WorkflowDocument, WrittenWorkflow};

use crate::{
    Error,
    config::HookConfig,
    custom,
    documents::{self, WORKFLOWS},
    effects, sources, subscriptions,
};

/// Something that came with a workspace.
#[derive(Debug, Clone)]
pub struct Brought {
    /// Its file.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// What it does once it is trusted, a line each.
    pub does: Vec<String>,
    content: Vec<u8>,
}

/// What came with a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Its config.
    Config,
    /// An agent, with its prompt and what that includes.
    Agent,
    /// A workflow.
    Workflow,
    /// A contract that a workflow names.
    Contract,
    /// A tool.
    Tool,
    /// A subscription.
    Subscription,
    /// A source: who outside may tell of what happens.
    Source,
    /// What a hook, a tool or a subscription runs.
    Program,
}

impl Brought {
    /// Takes a config as it was read.
    pub fn config(path: impl Into<PathBuf>, text: &str, does: Vec<String>) -> Self {
        Self { path: path.into(), kind: Kind::Config, does, content: text.into() }
    }

    fn agent(agent: &Agent) -> Option<Self> {
        let Source::File(file) = agent.source() else { return None };
        let place = match documents::in_place_of_built_in(agent) {
            Some(_) => ", in place of the built-in one",
            None => "",
        };
        let tools = agent.document().tools.allow.join(" ");
        let does = format!("agent {}{place}, which may use {tools}", agent.name());
        let content = agent.content().into_bytes();
        Some(Self { path: file.into(), kind: Kind::Agent, does: vec![does], content })
    }

    fn program(path: PathBuf, of: &str) -> Option<Self> {
        let content = formwork_sandbox::own(&path).ok()?;
        Some(Self { path, kind: Kind::Program, does: vec![format!("is run by {of}")], content })
    }

    /// Tells whether what a command runs is trusted as it stands.
    pub(crate) fn is_trusted_program(path: &Path, state: &Path, workspace: &Path) -> bool {
        let program = Self::program(path.to_owned(), "");
        program.is_some_and(|program| program.is_trusted(state, workspace))
    }

    /// Tells whether it is trusted as it stands. What cannot be told is not trusted.
    pub fn is_trusted(&self, state: &Path, workspace: &Path) -> bool {
        let judged = store(state, workspace)
            .and_then(|store| store.judge(&self.path, &self.content).map_err(|it| rules(&it)));
        judged.is_ok_and(|trust| trust == Trust::Trusted)
    }

    /// Returns its file and the hash of what it held, as they are recorded with a run.
    pub(crate) fn record(&self) -> (String, String) {
        (self.path.display().to_string(), TrustStore::hash(&self.content))
    }
}

/// Returns everything that came with a workspace, trusted or not, but for the config, of which `hooks` are given. Nothing
/// of it has an effect by that.
///
/// # Errors
/// [`Diagnostics`] lists every fault of agents, tools, subscriptions and sources.
pub fn brought(workspace: &Path, hooks: &[HookConfig]) -> Result<Vec<Brought>, Diagnostics> {
    let mut found = of_hooks(workspace, hooks);
    found.extend(documents::agents(workspace)?.iter().filter_map(Brought::agent));
    let mut contracts = BTreeMap::new();
    for (name, WrittenWorkflow { file, text }) in documents::workflows(workspace) {
        contracts.extend(documents::contracts_of(&file, &text, workspace));
        let does = document::salvage::<WorkflowDocument>(&file, &text)
            .map(|read| said(&read.value.tasks))
            .unwrap_or_default();
        let path = workflow_file(workspace, &name);
        found.push(Brought { path, kind: Kind::Workflow, does, content: text.into_bytes() });
    }
    for (path, text) in contracts {
        let Ok(text) = text else { continue };
        let does = vec!["contract that a workflow names".to_owned()];
        let (path, content) = (workspace.join(path), text.into_bytes());
        found.push(Brought { path, kind: Kind::Contract, does, content });
    }
    for tool in custom::read(workspace)? {
        found.extend(of_tool(workspace, &tool));
    }
    let mut faults = Diagnostics::default();
    for subscription in subscriptions::read(workspace)? {
        faults.merge(subscription.read.clone().err().into_iter().flatten());
        found.extend(of_subscription(workspace, &subscription));
    }
    for source in sources::read(workspace)? {
        faults.merge(source.read.clone().err().into_iter().flatten());
        found.push(of_source(&source));
    }
    faults.or(found)
}

/// Returns a source.
pub(crate) fn of_source(found: &sources::Found) -> Brought {
    Brought {
        path: found.path.clone(),
        kind: Kind::Source,
        does: found.does(),
        content: found.text.clone().into_bytes(),
    }
}

/// Returns a subscription with what its commands run of the workspace.
pub(crate) fn of_subscription(workspace: &Path, found: &subscriptions::Found) -> Vec<Brought> {
    let own = Brought {
        path: found.path.clone(),
        kind: Kind::Subscription,
        does: found.does(),
        content: found.text.clone().into_bytes(),
    };
    let files = found.commands().flat_map(|argv| run_files(workspace, argv));
    let of = format!("subscription {}", found.name());
    std::iter::once(own).chain(files.filter_map(|path| Brought::program(path, &of))).collect()
}

/// Returns a tool with what it runs of the workspace.
pub(crate) fn of_tool(workspace: &Path, tool: &custom::Found) -> Vec<Brought> {
    let own = Brought {
        path: tool.path.clone(),
        kind: Kind::Tool,
        does: vec![tool.does()],
        content: tool.text.clone().into_bytes(),
    };
    let command = tool.document.execution.command.as_ref();
    let files = command.map(|command| run_files(workspace, &command.argv)).unwrap_or_default();
    let of = tool.document.tool.name.as_str();
    std::iter::once(own)
        .chain(files.into_iter().filter_map(|path| Brought::program(path, of)))
        .collect()
}

/// Returns the files of a workspace that hooks name.
pub fn of_hooks(workspace: &Path, hooks: &[HookConfig]) -> Vec<Brought> {
    let files = hooks.iter().flat_map(|hook| named_files(workspace, &hook.command));
    files.filter_map(|path| Brought::program(path, "a hook")).collect()
}

/// Says what a workflow runs, and whom it asks to do what.
fn said(tasks: &[TaskDocument]) -> Vec<String> {
    let mut said = Vec::new();
    for task in tasks {
        let runs = |argv: &Vec<String>| format!("task {} runs {}", task.name, argv.join(" "));
        said.extend(task.command.iter().map(runs));
        if let (Some(agent), Some(prompt)) = (&task.agent, &task.prompt) {
            said.push(asks(&task.name, agent, prompt));
        }
        for check in task.prechecks.iter().chain(&task.postchecks) {
            said.extend(check.command.iter().chain(&check.suite).map(runs));
            said.extend(check.fix.iter().filter_map(|fix| fix.command.as_ref()).map(runs));
            let fix = check.fix.as_ref();
            if let Some((agent, prompt)) =
                fix.and_then(|it| it.agent.as_ref().zip(it.prompt.as_ref()))
            {
                said.push(asks(&task.name, agent, prompt));
            }
        }
        for step in task.before_retry.iter().chain(&task.on_success) {
            said.push(runs(&step.command));
        }
        said.extend(self::said(task.subtasks.as_deref().unwrap_or_default()));
    }
    said
}

/// How much of a prompt is told.
const PROMPT_BYTES: usize = 80;

fn asks(task: &TaskName, agent: &AgentName, prompt: &str) -> String {
    let whole = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    let head = text::head(&whole, PROMPT_BYTES);
    let more = if head.len() < whole.len() { "…" } else { "" };
    format!("task {task} asks {agent}: {head}{more}")
}

/// The file that remembers what is trusted, in the state folder and never within the workspace.
fn store(state: &Path, workspace: &Path) -> Result<TrustStore, Error> {
    crate::private::folder(state).map_err(|source| Error::State {
        action: "make the folder",
        path: state.to_owned(),
        source,
    })?;
    TrustStore::new(state.join("trust.json"), workspace).map_err(|error| rules(&error))
}

fn rules(error: &formwork_policy::Error) -> Error {
    Error::Trust { reason: crate::error::chain(error) }
}

/// Trusts something as it stands.
///
/// # Errors
/// [`Error::Trust`] when that cannot be remembered.
pub fn trust(state: &Path, workspace: &Path, brought: &Brought) -> Result<(), Error> {
    let kept = store(state, workspace)?;
    kept.trust(&brought.path, &brought.content).map_err(|error| rules(&error))
}

/// Takes back the trust in everything that came with a workspace, and returns the files.
///
/// # Errors
/// [`Error::Trust`] when that cannot be remembered.
pub fn revoke(state: &Path, workspace: &Path) -> Result<Vec<String>, Error> {
    store(state, workspace)?.revoke_below(workspace).map_err(|error| rules(&error))
}

/// The agents of a workspace, as far as they may take effect.
pub(crate) struct Parted {
    /// Those that may, and the built-in ones.
    pub(crate) agents: Agents,
    /// Those that nobody has trusted as they stand.
    pub(crate) untrusted: Agents,
}

impl Parted {
    /// Parts agents by what is trusted.
    pub(crate) fn of(all: &Agents, state: &Path, workspace: &Path) -> Self {
        let (mut agents, mut untrusted) = (Agents::built_in(), Agents::default());
        for agent in all.iter() {
            let of = match Brought::agent(agent) {
                Some(file) if !file.is_trusted(state, workspace) => &mut untrusted,
                _ => &mut agents,
            };
            of.insert(agent.clone());
        }
        Self { agents, untrusted }
    }

    /// Returns an agent that may take effect.
    ///
    /// # Errors
    /// [`Error::Untrusted`] for one of the workspace that nobody has trusted; [`Error::NoSuchAgent`].
    pub(crate) fn get(&self, name: &formwork_protocols::AgentName) -> Result<&Agent, Error> {
        let untrusted = || self.untrusted.get(name).map(Agent::source);
        match (self.agents.get(name), untrusted()) {
            (Some(agent), _) => Ok(agent),
            (None, Some(Source::File(file))) => Err(Error::Untrusted {
                path: file.into(),
                why: format!("agent {name} has no effect before"),
            }),
            (None, _) => Err(Error::NoSuchAgent {
                agent: name.clone(),
                known: self.agents.names().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
            }),
        }
    }
}

/// A workflow as it was read for a run.
pub(crate) struct Read<'a> {
    /// Where it was found.
    pub(crate) source: &'a str,
    pub(crate) text: &'a str,
    /// The workflows that its checks may name.
    pub(crate) workflows: &'a BTreeMap<WorkflowName, WrittenWorkflow>,
    /// The contracts that they name.
    pub(crate) contracts: &'a BTreeMap<String, Result<String, String>>,
}

/// Holds a workflow to what is trusted: one of the project's folder that runs anything has to be, with the workflows and
/// contracts that say so, and one whose agents may change something, in the mode that they have. One that a person named
/// elsewhere is their own word. Returns what it stands on.
///
/// # Errors
/// [`Error::Untrusted`] names the first file that is not trusted as it stands.
pub(crate) fn workflow(
    read: &Read<'_>,
    plan: &Plan,
    mode: PermissionMode,
    (state, workspace): (&Path, &Path),
) -> Result<Hashes, Error> {
    let places = own_places(workspace, read.source);
    let of = |path: PathBuf, kind, text: &str| Brought {
        path,
        kind,
        does: Vec::new(),
        content: text.as_bytes().to_vec(),
    };
    // A file may be named in several ways; any that is trusted with this text will do.
    let itself = || -> Vec<_> {
        places.iter().map(|it| of(it.clone(), Kind::Workflow, read.text)).collect()
    };
    let mut stands_on = Hashes::new();
    let mut hold = |ways: &[Brought], why: String| {
        match ways.iter().find(|it| it.is_trusted(state, workspace)) {
            Some(trusted) => stands_on.extend([trusted.record()]),
            None => return Err(Error::Untrusted { path: ways[0].path.clone(), why }),
        }
        Ok(())
    };
    for program in effects::programs(plan.root()) {
        let mut needed = vec![itself()];
        if let Some(name) = program.workflow {
            let text = read.workflows.get(name).map_or("", |written| written.text.as_str());
            needed.push(vec![of(workflow_file(workspace, name), Kind::Workflow, text)]);
        }
        if let Some(path) =
            program.contract.filter(|_| !places.is_empty() || program.workflow.is_some())
        {
            let text =
                read.contracts.get(path).and_then(|text| text.as_deref().ok()).unwrap_or_default();
            needed.push(vec![of(workspace.join(path), Kind::Contract, text)]);
        }
        for ways in needed.iter().filter(|ways| !ways.is_empty()) {
            let who = match program.place {
                effects::Place::Service(name) => format!("service {name}"),
                _ => format!("task {}", program.task),
            };
            hold(ways, format!("{who} runs {}", program.argv.join(" ")))?;
        }
    }
    // What an agent is told to do is done by it, as far as the mode lets it.
    if mode >= PermissionMode::Edit
        && let Some((task, agent)) = effects::acting(plan.root()).first()
        && let ways = itself()
        && !ways.is_empty()
    {
        let mode = mode.as_str();
        hold(&ways, format!("task {task} has {agent} act in mode {mode}"))?;
    }
    Ok(stands_on)
}

/// Returns where in the project's folder a workflow stands, by its name and by where that leads; nowhere for one that
/// stands elsewhere.
fn own_places(workspace: &Path, source: &str) -> Vec<PathBuf> {
    let own = workspace.join(".formwork");
    let real = own.canonicalize().unwrap_or_else(|_| own.clone());
    let named = [std::path::absolute(source).ok(), Some(workspace.join(source))];
    let mut places = Vec::new();
    for path in named.into_iter().flatten() {
        let leads = path.canonicalize().ok();
        // By its folder too: a name may be a link within the folder to a file that is elsewhere.
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        let at = folder.zip(path.file_name()).map(|(folder, name)| folder.join(name));
        places.extend(leads.into_iter().chain(at).filter(|it| it.starts_with(&real)));
    }
    places.sort();
    places.dedup();
    places
}

/// Returns the file of a workflow by its name.
fn workflow_file(workspace: &Path, name: &WorkflowName) -> PathBuf {
    workspace.join(WORKFLOWS).join(format!("{name}.toml"))
}

/// Returns what a run stands on of tools and agents that it was given.
pub(crate) fn record<'a>(
    tools: impl IntoIterator<Item = &'a custom::Found>,
    agents: impl IntoIterator<Item = &'a Agent>,
    workspace: &Path,
) -> Hashes {
    let tools = tools.into_iter().flat_map(|tool| of_tool(workspace, tool));
    let agents = agents.into_iter().filter_map(Brought::agent);
    tools.chain(agents).map(|it| it.record()).collect()
}

/// Returns the hashes of the files that hooks and tools run, by their paths from the root of the workspace.
pub(crate) fn programs(
    workspace: &Path,
    hooks: &[HookConfig],
    tools: &[formwork_tool::custom::ToolDocument],
) -> Hashes {
    let hooks = hooks.iter().flat_map(|hook| named_files(workspace, &hook.command));
    let tools = tools.iter().filter_map(|tool| tool.execution.command.as_ref());
    let tools = tools.flat_map(|command| run_files(workspace, &command.argv));
    let hashed = |path: PathBuf| {
        let below = path.strip_prefix(workspace).ok()?.to_string_lossy().into_owned();
        Some((below, hash_of_file(&path)?))
    };
    hooks.chain(tools).filter_map(hashed).collect()
}

/// Holds a run to what is trusted now of what it was begun on.
///
/// # Errors
/// [`Error::Untrusted`] names the first file that is not trusted any more as it was.
pub(crate) fn still(stands_on: &Hashes, state: &Path, workspace: &Path) -> Result<(), Error> {
    if stands_on.is_empty() {
        return Ok(());
    }
    let store = store(state, workspace)?;
    for (path, hash) in stands_on {
        let judged = store.judge_hash(Path::new(path), hash).map_err(|error| rules(&error))?;
        if judged != Trust::Trusted {
            let why = "the run was begun on what it said then".to_owned();
            return Err(Error::Untrusted { path: path.into(), why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_is_the_projects_by_its_name_and_by_where_that_leads() {
        let workspace = tempfile::tempdir().unwrap();
        let root = workspace.path().canonicalize().unwrap();
        let folder = root.join(WORKFLOWS);
        std::fs::create_dir_all(&folder).unwrap();
        for file in [folder.join("own.toml"), root.join("other.toml")] {
            std::fs::write(file, "").unwrap();
        }
        std::os::unix::fs::symlink("own.toml", folder.join("link.toml")).unwrap();
        std::os::unix::fs::symlink("../../other.toml", folder.join("out.toml")).unwrap();
        std::os::unix::fs::symlink(folder.join("own.toml"), root.join("in.toml")).unwrap();
        let is_own = |source: &Path| !own_places(&root, source.to_str().unwrap()).is_empty();

        for own in [".formwork/workflows/own.toml", "./.formwork/../.formwork/workflows/own.toml"] {
            assert!(is_own(Path::new(own)), "{own}");
        }
        for own in ["link.toml", "out.toml"] {
            assert!(is_own(&folder.join(own)), "{own}");
        }
        assert!(is_own(&root.join("in.toml")));
        assert!(!is_own(&root.join("other.toml")) && !is_own(Path::new("demo.toml")));
    }
}
