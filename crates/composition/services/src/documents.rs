//! The documents of a workspace: read, checked and described, without running anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use formwork_agent::{AgentDocument, Agents, Checks, ModelChoice};
use formwork_dispatch::SubscriptionDocument;
use formwork_policy::{CommandPatterns, HostPatterns, ToolPatterns};
use formwork_protocols::{
    AgentName, Clock, Event, ModelRef, NoSecrets, Rng, Scrub, SystemClock, SystemRng, ToolName,
    WorkflowName,
    budget::TreeCaps,
    document::{self, Diagnostic, Diagnostics, DocumentType},
};
use formwork_scheduler::workflow::{
    Known, Plan, TaskDocument, WorkflowDocument, WrittenWorkflow, beyond_caps, contract,
};
use formwork_tool::custom::ToolDocument;
use formwork_transport::Script;
use serde_json::{Map, Value};

use crate::{
    Error,
    config::{Config, Layer, Origin},
    error::chain,
    models::{Keys, Models},
    sources::SourceDocument,
};

/// The folder of a workspace's agents.
const AGENTS: &str = ".formwork/agents";

/// The folder of its workflows.
pub(crate) const WORKFLOWS: &str = ".formwork/workflows";

/// A kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A config.
    Config,
    /// An agent.
    Agent,
    /// A workflow.
    Workflow,
    /// A tool that is written down as data.
    Tool,
    /// A subscription: what is done by events.
    Subscription,
    /// A source: who outside may tell of what happens, and as what.
    Source,
    /// The script of a scripted model.
    Script,
    /// A contract: requirements in Markdown, each with what proves it.
    Contract,
    /// An event of the log; nobody writes one, and programs read them.
    Event,
}

impl Kind {
    /// Tells a document's kind by where it is, and where that says nothing by what it holds.
    pub fn of(path: &Path, text: &str) -> Self {
        let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match (folder, name) {
            (Some("agents"), _) => return Self::Agent,
            (Some("workflows"), _) => return Self::Workflow,
            (Some("tools"), _) => return Self::Tool,
            (Some("subscriptions"), _) => return Self::Subscription,
            (Some("sources"), _) => return Self::Source,
            (_, "formwork.toml" | "config.toml") => return Self::Config,
            (_, name) if name.ends_with(".md") => return Self::Contract,
            _ => {}
        }
        let begins = |key: &str| {
            text.lines().any(|line| {
                let line = line.trim_start();
                line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
                    || line.starts_with(&format!("[[{key}"))
                    || line.starts_with(&format!("[{key}"))
            })
        };
        if begins("tasks") {
            Self::Workflow
        } else if begins("tool.") || begins("tool]") || begins("execution") {
            Self::Tool
        } else if begins("filter") || begins("actions") {
            Self::Subscription
        } else if begins("scheme") {
            Self::Source
        } else if begins("turns") {
            Self::Script
        } else if begins("category") || begins("prompt") {
            Self::Agent
        } else if begins("providers") || begins("permissions") || begins("categories") {
            Self::Config
        } else {
            Self::Workflow
        }
    }
}

/// Checks a document and returns every fault of it. `workspace` is where its names are looked up.
///
/// # Errors
/// [`Diagnostics`] lists every fault with its place.
pub fn validate(kind: Kind, source: &str, text: &str, workspace: &Path) -> Result<(), Diagnostics> {
    match kind {
        Kind::Config => config(source, text, workspace),
        Kind::Agent => agent(source, text),
        Kind::Workflow => workflow(source, text, workspace),
        Kind::Tool => ToolDocument::parse(source, text).map(drop),
        Kind::Subscription => {
            let workflows = crate::subscriptions::workflows(workspace);
            crate::subscriptions::parse(source, text, &workflows).map(drop)
        }
        Kind::Source => crate::sources::validate(source, text, workspace),
        Kind::Script => document::parse::<Script>(source, text).map(drop),
        Kind::Contract => contract(source, text).map(drop),
        Kind::Event => Ok(()),
    }
}

/// Checks a config with the tools that its rules name.
fn config(source: &str, text: &str, workspace: &Path) -> Result<(), Diagnostics> {
    Layer::parse(Origin::Project { file: source.to_owned() }, text)?;
    let parsed = document::parse::<Config>(source, text)?;
    let permissions = parsed.value.permissions.as_ref();
    let Some(after) = permissions.and_then(|permissions| permissions.after_outside.as_ref()) else {
        return Ok(());
    };
    let mut specs = crate::toolset::built_in();
    let own = crate::custom::read(workspace).unwrap_or_default();
    specs.extend(crate::custom::specs(own.into_iter().map(|tool| tool.document)));
    let mut faults = Diagnostics::default();
    for (list, patterns) in [("ask", &after.ask), ("deny", &after.deny)] {
        for (at, pattern) in patterns.iter().enumerate() {
            let found = ToolPatterns::parse([pattern]).and_then(|found| found.resolve(&specs));
            if let Err(error) = found {
                let key = format!("/permissions/after_outside/{list}/{at}");
                faults.merge([parsed.diagnostic(&key, error.to_string())]);
            }
        }
    }
    faults.or(())
}

/// Checks an agent with the files beside it.
fn agent(source: &str, text: &str) -> Result<(), Diagnostics> {
    document::parse::<AgentDocument>(source, text)?;
    // Its prompt and its includes stand beside it, and faults of its neighbours are theirs.
    let path = Path::new(source);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Err(faults) = load(folder.unwrap_or(Path::new("."))) else { return Ok(()) };
    let markdown = |fault: &Diagnostic| fault.source.ends_with(".md");
    let own: Diagnostics =
        faults.into_iter().filter(|fault| &*fault.source == source || markdown(fault)).collect();
    own.or(())
}

/// Checks a workflow with the agents of its workspace. Required variables are set when it is run.
fn workflow(source: &str, text: &str, workspace: &Path) -> Result<(), Diagnostics> {
    let parsed = document::parse::<WorkflowDocument>(source, text)?;
    // Faults of agents are told where agents are checked; their names are what counts here.
    let agents = agents(workspace).unwrap_or_else(|_| Agents::built_in());
    let mut known = Known {
        agents: agents.names().cloned().collect(),
        project: crate::project::commands(workspace),
        contracts: contracts_of(source, text, workspace),
        tools: tools([]),
        workflows: workflows_for(text, workspace),
        ..Known::default()
    };
    natives(&parsed.value.tasks, &mut known);
    for WrittenWorkflow { file, text } in known.workflows.clone().into_values() {
        if let Some(read) = document::salvage::<WorkflowDocument>(&file, &text) {
            natives(&read.value.tasks, &mut known);
        }
        known.contracts.extend(contracts_of(&file, &text, workspace));
    }
    let unset = parsed.value.variables.iter().filter(|(_, variable)| variable.required);
    let values: Map<String, Value> =
        unset.map(|(name, _)| (name.to_string(), Value::String(String::new()))).collect();
    Plan::parse(source, text, &known, &values).map(drop)
}

/// Takes native functions for granted: only the program that embeds them knows their names.
fn natives(tasks: &[TaskDocument], known: &mut Known) {
    for task in tasks {
        known.natives.extend(task.native.clone());
        let checks = task.prechecks.iter().chain(&task.postchecks);
        known.native_checks.extend(checks.filter_map(|check| check.native.clone()));
        natives(task.subtasks.as_deref().unwrap_or_default(), known);
    }
}

/// Reads the agents of a workspace, and the built-in ones.
///
/// # Errors
/// [`Diagnostics`] lists every fault of every file.
pub(crate) fn agents(workspace: &Path) -> Result<Agents, Diagnostics> {
    load(&workspace.join(AGENTS))
}

/// Returns the file of an agent that takes the place of a built-in one of its name.
pub(crate) fn in_place_of_built_in(agent: &formwork_agent::Agent) -> Option<&str> {
    match agent.source() {
        formwork_agent::Source::File(file) => {
            Agents::built_in().get(agent.name()).map(|_| file.as_str())
        }
        formwork_agent::Source::BuiltIn => None,
    }
}

fn load(folder: &Path) -> Result<Agents, Diagnostics> {
    let mut specs = crate::toolset::built_in();
    // Whether they may have an effect is asked where they would.
    let workspace = folder.parent().and_then(Path::parent);
    let found = workspace.map(crate::custom::read).and_then(Result::ok).unwrap_or_default();
    specs.extend(crate::custom::specs(found.into_iter().map(|tool| tool.document)));
    let tools = |pattern: &str| {
        ToolPatterns::parse([pattern])
            .and_then(|parsed| parsed.resolve(&specs))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let commands = |pattern: &str| {
        CommandPatterns::parse([pattern]).map(drop).map_err(|error| error.to_string())
    };
    let hosts =
        |pattern: &str| HostPatterns::parse([pattern]).map(drop).map_err(|error| error.to_string());
    let checks = Checks { tools: &tools, commands: &commands, hosts: &hosts, variables: &[] };
    Agents::load(folder, &checks)
}

/// Returns the names of the agents that a workspace means to have: those of its files, whatever else is
/// wrong with these, and the built-in ones.
pub(crate) fn agent_names(workspace: &Path) -> BTreeSet<AgentName> {
    let files = agent_files(workspace);
    let written = files.iter().filter_map(|(file, text)| {
        document::salvage::<AgentDocument>(file, text).map(|parsed| parsed.value.name)
    });
    // A file that cannot be read at all is thought to hold the agent that it is named after.
    let named =
        files.iter().filter_map(|(file, _)| Path::new(file).file_stem()?.to_str()?.parse().ok());
    Agents::built_in().names().cloned().chain(written).chain(named).collect()
}

/// The models of a config and its caps of the tree, to hold documents to as a run does. No key is read for it and nothing is
/// sent.
pub struct KnownModels {
    models: Models,
    tree: Option<TreeCaps>,
    /// Whether the config names any model; where it does not, there is nothing yet to be held to.
    is_set_up: bool,
}

impl KnownModels {
    /// Takes the models of a config whose relative paths begin at `base`.
    ///
    /// # Errors
    /// [`Error::Documents`] and [`Error::Transport`] when a provider cannot be used as it is configured.
    pub fn new(config: &Config, base: &Path) -> Result<Self, Error> {
        let seams: (Arc<dyn Scrub>, Arc<dyn Rng>, Arc<dyn Clock>) =
            (Arc::new(NoSecrets), Arc::new(SystemRng), Arc::new(SystemClock));
        let models = Models::connect(config, &Keys::none(), (base, None), &[], seams)?;
        let is_set_up = !config.categories.is_empty();
        let tree = config.budget.as_ref().and_then(|budget| budget.tree);
        Ok(Self { models, tree, is_set_up })
    }

    /// Checks the models that a document names, or that the agents of a workflow name: each has a configured provider
    /// and a price, and so has each that may answer in its place; and whether the config's caps of the tree hold what a
    /// workflow writes down. What is wrong otherwise is for [`validate`] to say.
    pub fn faults(&self, kind: Kind, source: &str, text: &str, workspace: &Path) -> Diagnostics {
        match kind {
            Kind::Config => self.of_config(source, text),
            Kind::Agent => model_fault(source, text, |agent, choice| self.check(agent, choice))
                .into_iter()
                .collect(),
            Kind::Workflow => {
                let names = agents_of(source, text);
                let mut faults =
                    model_faults(workspace, &names, |agent, choice| self.check(agent, choice));
                faults
                    .merge(self.tree.into_iter().flat_map(|caps| beyond_caps(source, text, caps)));
                faults
            }
            Kind::Tool
            | Kind::Subscription
            | Kind::Source
            | Kind::Script
            | Kind::Contract
            | Kind::Event => Diagnostics::default(),
        }
    }

    fn check(&self, agent: &AgentName, choice: &ModelChoice) -> Result<(), Error> {
        match self.models.chosen(agent, choice) {
            Err(Error::NoSuchCategory { .. }) if !self.is_set_up => Ok(()),
            chosen => self.models.model(&chosen?).map(drop),
        }
    }

    fn of_config(&self, source: &str, text: &str) -> Diagnostics {
        let Some(parsed) = document::salvage::<Config>(source, text) else {
            return Diagnostics::default();
        };
        let mut faults = Diagnostics::default();
        let mut check = |key: String, model: &ModelRef| {
            if let Err(error) = self.models.model(model) {
                let fault = parsed.diagnostic(&key, model_message(&error));
                faults.merge([Diagnostic { hint: error.hint(), ..fault }]);
            }
        };
        for (category, model) in &parsed.value.categories {
            check(format!("/categories/{category}"), model);
        }
        for (model, known) in &parsed.value.models {
            let name = model.to_string().replace('~', "~0").replace('/', "~1");
            // A model without a chain may be there for another day, and is told of when it is asked for.
            if !known.fallback.is_empty() {
                check(format!("/models/{name}/fallback"), model);
            }
        }
        faults
    }
}

/// Says why a model cannot be used, at a place that names it.
fn model_message(error: &Error) -> String {
    match error {
        Error::Model { source, .. } => chain(&**source),
        other => chain(other),
    }
}

/// Asks `check` of the model of the agent of one document.
fn model_fault(
    source: &str,
    text: &str,
    check: impl Fn(&AgentName, &ModelChoice) -> Result<(), Error>,
) -> Option<Diagnostic> {
    let parsed = document::salvage::<AgentDocument>(source, text)?;
    let AgentDocument { name, model, .. } = &parsed.value;
    let error = check(name, model).err()?;
    let key = match model {
        ModelChoice::Model(_) => "/model",
        ModelChoice::Category(_) => "/category",
    };
    let fault = parsed.diagnostic(key, model_message(&error));
    Some(Diagnostic { hint: error.hint(), ..fault })
}

/// Asks `check` of the model of each agent of `names` that a file defines, and puts what it says at its
/// place in the file. What is wrong with the files otherwise is told by whoever reads the agents.
pub(crate) fn model_faults(
    workspace: &Path,
    names: &BTreeSet<AgentName>,
    check: impl Fn(&AgentName, &ModelChoice) -> Result<(), Error>,
) -> Diagnostics {
    let mut faults = Diagnostics::default();
    for (file, text) in agent_files(workspace) {
        let of_these = |agent: &AgentName, choice: &ModelChoice| match names.contains(agent) {
            true => check(agent, choice),
            false => Ok(()),
        };
        faults.merge(model_fault(&file, &text, of_these));
    }
    faults
}

/// Returns the agents that a workflow asks for, as far as it can be read.
pub(crate) fn agents_of(source: &str, text: &str) -> BTreeSet<AgentName> {
    fn collect(tasks: &[TaskDocument], found: &mut BTreeSet<AgentName>) {
        for task in tasks {
            found.extend(task.agent.clone());
            for check in task.prechecks.iter().chain(&task.postchecks) {
                found.extend(check.agent.clone());
                found.extend(check.fix.as_ref().and_then(|fix| fix.agent.clone()));
            }
            collect(task.subtasks.as_deref().unwrap_or_default(), found);
        }
    }
    let mut found = BTreeSet::new();
    if let Some(parsed) = document::salvage::<WorkflowDocument>(source, text) {
        collect(&parsed.value.tasks, &mut found);
    }
    found
}

/// Reads the workflows that the checks of one may name: all of the workspace, where its text speaks of any.
pub(crate) fn workflows_for(
    text: &str,
    workspace: &Path,
) -> BTreeMap<WorkflowName, WrittenWorkflow> {
    match text.contains("workflow") {
        true => workflows(workspace),
        false => BTreeMap::new(),
    }
}

/// Reads the workflows of a workspace.
pub(crate) fn workflows(workspace: &Path) -> BTreeMap<WorkflowName, WrittenWorkflow> {
    let entries = std::fs::read_dir(workspace.join(WORKFLOWS)).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned();
            let text = crate::reading::document_of(workspace, &entry.path()).ok()?;
            let file = format!("{WORKFLOWS}/{name}.toml");
            Some((WorkflowName::parse(name).ok()?, WrittenWorkflow { file, text }))
        })
        .collect()
}

/// The most bytes of a contract.
const CONTRACT_BYTES: u64 = 256 * 1024;

/// Reads the contracts that the tasks of a workflow name, by their paths.
pub(crate) fn contracts_of(
    source: &str,
    text: &str,
    workspace: &Path,
) -> BTreeMap<String, Result<String, String>> {
    fn collect(tasks: &[TaskDocument], found: &mut BTreeSet<String>) {
        for task in tasks {
            found.extend(task.spec.clone());
            collect(task.subtasks.as_deref().unwrap_or_default(), found);
        }
    }
    let mut found = BTreeSet::new();
    if let Some(parsed) = document::salvage::<WorkflowDocument>(source, text) {
        collect(&parsed.value.tasks, &mut found);
    }
    found.into_iter().map(|path| (path.clone(), contract_text(workspace, &path))).collect()
}

/// Reads a contract of the workspace.
///
/// # Errors
/// Why it cannot be read, in one line.
pub(crate) fn contract_text(workspace: &Path, path: &str) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    let root = workspace.canonicalize().map_err(said)?;
    let file = root.join(path).canonicalize().map_err(said)?;
    if !file.starts_with(&root) {
        return Err("it lies outside of the workspace".to_owned());
    }
    let about = file.metadata().map_err(said)?;
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    if about.len() > CONTRACT_BYTES {
        return Err(format!("it has {} bytes, at most {CONTRACT_BYTES} are read", about.len()));
    }
    let bytes = std::fs::read(&file).map_err(said)?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Returns the names of the tools that there are, `more` among them.
pub(crate) fn tools<'a>(more: impl IntoIterator<Item = &'a ToolName>) -> BTreeSet<String> {
    let built_in =
        crate::toolset::built_in().into_iter().map(|spec| spec.definition.name.to_string());
    let skill = crate::repository::LOAD_SKILL.to_owned();
    built_in.chain([skill]).chain(more.into_iter().map(ToString::to_string)).collect()
}

/// Reads the documents of a workspace's agents that can be read, with their paths as they are shown.
fn agent_files(workspace: &Path) -> Vec<(String, String)> {
    let folder = workspace.join(AGENTS);
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| {
            let text = crate::reading::document_of(workspace, &path).ok()?;
            Some((path.display().to_string(), text))
        })
        .collect()
}

/// Returns the JSON Schema of a document.
pub fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Config => document::schema::<Config>(),
        Kind::Agent => document::schema::<AgentDocument>(),
        Kind::Workflow => document::schema::<WorkflowDocument>(),
        Kind::Tool => document::schema::<ToolDocument>(),
        Kind::Subscription => document::schema::<SubscriptionDocument>(),
        Kind::Source => document::schema::<SourceDocument>(),
        Kind::Script => document::schema::<Script>(),
        Kind::Contract => {
            serde_json::json!({ "type": "string", "contentMediaType": "text/markdown" })
        }
        Kind::Event => schemars::schema_for!(Event).to_value(),
    }
}

/// Returns the name of a kind of document, as people write it.
pub const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Config => Config::NAME,
        Kind::Agent => AgentDocument::NAME,
        Kind::Workflow => WorkflowDocument::NAME,
        Kind::Tool => ToolDocument::NAME,
        Kind::Subscription => SubscriptionDocument::NAME,
        Kind::Source => SourceDocument::NAME,
        Kind::Script => Script::NAME,
        Kind::Contract => "contract",
        Kind::Event => "event",
    }
}
