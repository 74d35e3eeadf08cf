//! What would break a run, found before it does, with what to do about it.

use std::{
    path::Path,
    process::{self, Stdio},
};

use formwork_agent::{Agent, ModelChoice};
use formwork_protocols::{AgentName, Cancel, Model, ModelRef, ProviderFault, Usd};
use formwork_sandbox::{Command, Protection, Protections, Status, probe};
use formwork_transport::ProviderKind;
use serde::Serialize;

use crate::{
    Error, Formwork,
    config::{HookEvent, SandboxMode},
    custom, gates,
    operations::{
        self,
        apart::Own,
        models::{EndpointModels, How, ModelRow, Servers, lists_what_it_holds},
        runs,
    },
    presence, private, setup, tool_probe,
    trust::Parted,
};

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// It is as it should be.
    Sound,
    /// A run works without it, less well.
    Weak,
    /// A run breaks on it.
    Broken,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, in a word.
    pub about: String,
    /// How grave it is.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Returns a finding.
    pub fn new(
        about: impl Into<String>,
        grade: Grade,
        found: impl Into<String>,
        advice: Option<&str>,
    ) -> Self {
        let advice = advice.map(str::to_owned);
        Self { about: about.into(), grade, found: found.into(), advice }
    }

    fn of(about: &str, error: &Error) -> Self {
        let found = crate::error::chain(error);
        Self { about: about.to_owned(), grade: Grade::Broken, found, advice: error.hint() }
    }
}

/// Looks at everything that a run needs. With `ask`, each endpoint is asked what it holds, and each model that agents
/// ask for is asked for one call of a harmless tool, which is paid for.
pub async fn examine(formwork: &Formwork, ask: bool) -> Vec<Finding> {
    let mut findings = vec![store(formwork).await, state(formwork)];
    findings.extend(writes(formwork));
    findings.extend([git(), sandbox(formwork).await]);
    findings.push(browser(formwork));
    findings.extend(apart(formwork).await);
    match formwork.agents() {
        Ok(Parted { agents, untrusted }) => {
            let found = format!("{} agents", agents.names().count());
            findings.push(Finding::new("agents", Grade::Sound, found, None));
            let names: Vec<_> = untrusted.names().map(AgentName::as_str).collect();
            if !names.is_empty() {
                let found = format!("not trusted, and so without effect: {}", names.join(", "));
                let advice = "read their files below .formwork/agents, then run `formwork trust`";
                findings.push(Finding::new("agents", Grade::Weak, found, Some(advice)));
            }
        }
        Err(error) => findings.push(Finding::of("agents", &error)),
    }
    match Servers::of(formwork) {
        Err(error) => findings.push(Finding::of("models", &error)),
        Ok(servers) => {
            findings.extend(models(formwork, &servers, ask).await);
            own_agents(formwork, &servers, &mut findings);
        }
    }
    findings.extend(hooks(formwork));
    findings.extend(tools(formwork));
    if let Err(error) = runs::could_begin(formwork).await {
        add(&mut findings, Finding::of("run", &error));
    }
    findings
}

/// Adds a finding, unless one tells the same.
fn add(findings: &mut Vec<Finding>, finding: Finding) {
    if !findings
        .iter()
        .any(|told| told.grade == Grade::Broken && told.found.contains(&finding.found))
    {
        findings.push(finding);
    }
}

/// Looks at each agent of the workspace as a run of it would.
fn own_agents(formwork: &Formwork, servers: &Servers<'_>, findings: &mut Vec<Finding>) {
    let Ok(agents) = formwork.agents() else { return };
    let mut specs = runs::all_tools(formwork);
    if let Ok((trusted, _)) = custom::trusted(formwork.workspace(), formwork.state()) {
        specs.extend(custom::specs(trusted.into_iter().map(|tool| tool.document)));
    }
    let is_own = |agent: &&Agent| !matches!(agent.source(), formwork_agent::Source::BuiltIn);
    for agent in agents.agents.iter().filter(is_own) {
        let thinks = runs::thinks_with(servers.models(), agent, None).map(drop);
        let rules = setup::own_rules(agent, &specs).map(drop);
        for error in [thinks, rules].into_iter().filter_map(Result::err) {
            add(findings, Finding::of("agent", &error));
        }
    }
}

/// Names the observers that are not there. A gate that is not there keeps every run from beginning, and is told with that.
fn hooks(formwork: &Formwork) -> Option<Finding> {
    let inner = &formwork.inner;
    let watches = |event: HookEvent| !event.is_gate();
    let missing =
        gates::look_for(&inner.config.hooks, watches, &inner.sandbox, inner.root.path()).err()?;
    let advice = "install it, or take the hook out of the config: nothing is told of what happens";
    Some(Finding::new("hook", Grade::Weak, crate::error::chain(&missing), Some(advice)))
}

/// Looks for the programs of the workspace's own tools, as far as these have an effect.
fn tools(formwork: &Formwork) -> Vec<Finding> {
    let (trusted, untrusted) = match custom::trusted(formwork.workspace(), formwork.state()) {
        Ok(parted) => parted,
        Err(faults) => return vec![Finding::of("tools", &Error::Documents(faults))],
    };
    let mut findings = Vec::new();
    for tool in &trusted {
        let name = &tool.document.tool.name;
        let Some(command) = &tool.document.execution.command else { continue };
        let command = Command::new(&command.argv, formwork.workspace(), Protection::None);
        if let Err(error) = formwork.inner.sandbox.look_for(&command) {
            let found = format!("{name}: {}", crate::error::chain(&error));
            let advice = format!("install it, or remove {}", tool.path.display());
            findings.push(Finding::new("tool", Grade::Broken, found, Some(&advice)));
        }
    }
    for tool in &untrusted {
        let found = format!("{} is not trusted, and has no effect", tool.document.tool.name);
        let advice = format!("read {}, then run `formwork trust`", tool.path.display());
        findings.push(Finding::new("tool", Grade::Weak, found, Some(&advice)));
    }
    findings
}

async fn store(formwork: &Formwork) -> Finding {
    let asked = async {
        let head = formwork.store().head().await?;
        formwork.trace().may_append().await.map(|()| head)
    };
    match asked.await {
        Ok(head) => {
            let found = format!("the log is open and holds {head} events");
            Finding::new("store", Grade::Sound, found, None)
        }
        Err(error) => Finding::of("store", &Error::from(error)),
    }
}

/// Looks whether others than its owner can read what runs have read, said and written.
fn state(formwork: &Formwork) -> Finding {
    let state = formwork.inner.state.as_path();
    let log = Path::new(formwork.trace().at());
    let open = |path| private::open_to_others(path).map(|mode| (path, mode));
    // Nobody gets past a folder that is closed.
    let found = open(state).or_else(|| (!log.starts_with(state)).then(|| open(log)).flatten());
    match found {
        None => Finding::new("state", Grade::Sound, "only its owner can read it", None),
        Some((path, mode)) => {
            let found = format!("others can get at {}: its mode is {mode:o}", path.display());
            let advice = format!("chmod -R go= {}", path.display());
            Finding::new("state", Grade::Weak, found, Some(&advice))
        }
    }
}

/// Tries what a run does in the folder of state and beside the log, where that is a file.
fn writes(formwork: &Formwork) -> Option<Finding> {
    if let Err(error) = presence::could_work(&formwork.inner.state) {
        return Some(Finding::of("state", &error));
    }
    let log = Path::new(formwork.trace().at());
    let folder = log.parent().filter(|_| log.is_file())?;
    let closed = [log, folder].into_iter().find_map(|path| {
        let access = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
        access.err().map(|error| (path.to_owned(), error.into()))
    });
    let (path, source) = closed?;
    Some(Finding::of("store", &Error::State { action: "write", path, source }))
}

/// Names what tasks left in workspaces of their own that did not come to be merged, or are at work.
async fn apart(formwork: &Formwork) -> Option<Finding> {
    let apart = match operations::apart::all(formwork).await {
        Ok(apart) => apart,
        Err(error) => return Some(Finding::of("apart", &error)),
    };
    let is_over = |own: &&Own| own.state.is_none_or(|state| state.is_terminal());
    let (all, over) = (apart.len(), apart.iter().filter(is_over).count());
    if all == 0 {
        return None;
    }
    let has =
        if all == 1 { "task has a workspace of its" } else { "tasks have workspaces of their" };
    let found = format!("{all} {has} own; the runs of {over} are over");
    let advice = "`formwork apart list` shows them; `formwork apart merge NAME` brings one in, `formwork apart discard NAME` gives it up";
    let (grade, advice) = match over {
        0 => (Grade::Sound, None),
        _ => (Grade::Weak, Some(advice)),
    };
    Some(Finding::new("apart", grade, found, advice))
}

fn git() -> Finding {
    let mut command = process::Command::new("git");
    command.arg("--version").stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Finding::new("git", Grade::Sound, version, None)
        }
        _ => {
            let advice = "install git, so that agents can read the history";
            Finding::new("git", Grade::Weak, "git is not to be run", Some(advice))
        }
    }
}

/// Looks for what the tools of `browser.*` need, which most runs do without.
fn browser(formwork: &Formwork) -> Finding {
    let found = runs::chromium(&formwork.inner.environment, formwork.workspace());
    match (found, formwork_browser::own_sandbox()) {
        (Ok(program), formwork_browser::Sandbox::Own) => {
            let found = format!("{} confines its own pages", program.display());
            Finding::new("browser", Grade::Sound, found, None)
        }
        (Ok(program), formwork_browser::Sandbox::NoneAsRoot) => {
            let found = format!("{} does not confine its pages as root", program.display());
            let advice =
                "run formwork as another user, if agents are to open pages that nobody vouches for";
            Finding::new("browser", Grade::Weak, found, Some(advice))
        }
        (Err(why), _) => {
            Finding::new("browser", Grade::Sound, format!("{why}; only browser.* needs it"), None)
        }
    }
}

async fn sandbox(formwork: &Formwork) -> Finding {
    let mode = formwork.inner.config.sandbox.unwrap_or_default();
    let Protections { files, scopes, system_calls, whole_tree, processes, memory, .. } = probe();
    let missing = [&files, &system_calls].iter().any(|it| matches!(it, Status::Missing(_)));
    let gateways = formwork.inner.sandbox.gateways().await;
    let hosts = setup::ways(&formwork.inner.config, []);
    let hosts = hosts.ok().flatten().map(|ways| ways.hosts[0].to_string());
    let network = match (&system_calls, &hosts) {
        (Status::Missing(_), _) => "open to programs".to_owned(),
        (_, None) => format!("off for programs, by name {gateways}"),
        (_, Some(hosts)) => format!("by name to {hosts}, {gateways}"),
    };
    let lacks_network = hosts.is_some() && matches!(gateways, Status::Missing(_));
    let found = format!(
        "files {files}, signals {scopes}, system calls {system_calls}, network {network}, whole tree {whole_tree}, \
         processes {processes}, memory {memory}"
    );
    match mode {
        SandboxMode::Off => {
            let advice = "set sandbox = \"on\" to confine them";
            Finding::new("sandbox", Grade::Weak, "off: processes are not confined", Some(advice))
        }
        SandboxMode::On if missing => {
            let advice =
                "set sandbox = \"off\", or pass --sandbox off, to run processes unconfined";
            Finding::new("sandbox", Grade::Broken, found, Some(advice))
        }
        SandboxMode::On | SandboxMode::Auto if lacks_network && !missing => {
            let advice =
                "take [permissions.network] out of the config: then programs open no connection";
            Finding::new("sandbox", Grade::Broken, found, Some(advice))
        }
        _ => Finding::new("sandbox", Grade::Sound, found, None),
    }
}

/// Looks at every endpoint and at every model that agents ask for: named, priced, there, and able to call a tool.
async fn models(formwork: &Formwork, servers: &Servers<'_>, ask: bool) -> Vec<Finding> {
    let config = &formwork.inner.config;
    let mode = setup::mode(config);
    let found = format!("agents are in mode {}", mode.as_str());
    let mut findings = vec![Finding::new("permissions", Grade::Sound, found, None)];
    let wanted = wanted(formwork);
    let endpoints = if ask { servers.all(How::Fresh).await } else { Vec::new() };
    for endpoint in &endpoints {
        let is_wanted = wanted.iter().any(|model| model.provider == endpoint.provider);
        findings.extend(endpoint_finding(endpoint, is_wanted));
    }
    for model in &wanted {
        let ready = match servers.models().model(model) {
            Ok(ready) => ready,
            Err(error) => {
                findings.push(Finding::of("model", &error));
                continue;
            }
        };
        let endpoint = endpoints.iter().find(|endpoint| endpoint.provider == model.provider);
        findings.push(match endpoint {
            Some(endpoint) if !ready.info.scripted => model_finding(model, &ready, endpoint).await,
            _ => Finding::new("model", Grade::Sound, format!("{model} is configured"), None),
        });
    }
    findings
}

/// Returns the models that categories lead to and that agents name, each once.
fn wanted(formwork: &Formwork) -> Vec<ModelRef> {
    let mut wanted: Vec<_> = formwork.inner.config.categories.values().cloned().collect();
    let agents = formwork.agents();
    for agent in agents.iter().flat_map(|parted| parted.agents.iter()) {
        if let ModelChoice::Model(model) = &agent.document().model {
            wanted.push(model.clone());
        }
    }
    wanted.sort();
    wanted.dedup();
    wanted
}

/// Says whether an endpoint answers, and whether it is what it is configured as.
fn endpoint_finding(endpoint: &EndpointModels, is_wanted: bool) -> Option<Finding> {
    if matches!(endpoint.kind, ProviderKind::Scripted | ProviderKind::Recorded) {
        return None;
    }
    let EndpointModels { provider, kind, base_url, models, .. } = endpoint;
    if let Some(error) = &endpoint.error {
        let grade = if is_wanted { Grade::Broken } else { Grade::Weak };
        let advice =
            "start it, wait until it has loaded its model, or check its base_url and its api_key";
        return Some(Finding::new("endpoint", grade, format!("{provider}: {error}"), Some(advice)));
    }
    let version =
        endpoint.version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
    let count = models.len();
    let found = format!("{provider}: {kind}{version} at {base_url} holds {count} models");
    let own = [
        ProviderKind::Ollama,
        ProviderKind::Vllm,
        ProviderKind::LlamaCpp,
        ProviderKind::LmStudio,
        ProviderKind::OpenAiCompatible,
    ];
    Some(match endpoint.answers_as {
        Some(other) if own.contains(kind) => {
            let advice = format!("set kind = \"{other}\" below [providers.{provider}]");
            // What speaks OpenAI's wire is spoken to as well; Ollama's own is spoken by Ollama alone.
            let breaks = *kind == ProviderKind::Ollama && is_wanted;
            let grade = if breaks { Grade::Broken } else { Grade::Weak };
            let found = format!("{found}, and answers as {other}");
            Finding::new("endpoint", grade, found, Some(&advice))
        }
        _ => Finding::new("endpoint", Grade::Sound, found, None),
    })
}

/// Says whether a model is there, and asks it for a tool call.
async fn model_finding(model: &ModelRef, ready: &Model, endpoint: &EndpointModels) -> Finding {
    let kind = endpoint.answers_as.unwrap_or(endpoint.kind);
    if endpoint.error.is_some() {
        let found = format!("{model} was not asked: its endpoint does not answer");
        return Finding::new("model", Grade::Weak, found, None);
    }
    let held =
        |row: &ModelRow| row.model == *model || row.model.to_string() == format!("{model}:latest");
    if lists_what_it_holds(kind) && !endpoint.models.iter().any(held) {
        let found = format!("{model} is not among the models that {} holds", endpoint.provider);
        let advice = tool_probe::refused(ProviderFault::ModelNotFound, model, kind);
        return Finding::new("model", Grade::Broken, found, Some(&advice));
    }
    let probe = tool_probe::probe(ready, kind, Cancel::new()).await;
    let grade = if probe.outcome.is_sound() { Grade::Sound } else { Grade::Broken };
    let cost =
        if probe.cost == Usd::ZERO { String::new() } else { format!(", for ${}", probe.cost) };
    let found = format!("{model}: {}{cost}", probe.found);
    Finding::new("model", grade, found, probe.advice.as_deref())
}
