//! Everything that shapes a run, resolved before it begins and recorded with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use formwork_agent::Agent;
use formwork_policy::{CommandPatterns, Hashes, HostPatterns, Policy, Rules, Sinks, ToolPatterns};
use formwork_protocols::{
    AgentName, Cover, ModelRef, PermissionMode, Principal, RunId, SessionId, SubscriptionName,
    ToolName, ToolSpec, check::CommandCheck,
};
use formwork_sandbox::{Limits, Network, Protection, Protections, Status, probe};
use formwork_tool::{HttpRules, LOAD_TOOLS, Ways, custom::ToolDocument};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    config::{Config, Permissions, ProgramsConfig, SandboxMode},
    repository::Briefing,
};

/// What a run was set up with. It is recorded when the run is created, so that whoever resumes it
/// works by the same agents, models and rules, whatever the files say by then. It holds no secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunSetup {
    /// The config, merged.
    pub(crate) config: Config,
    /// The agents that the plan asks for, each with the model that it thinks with.
    pub(crate) agents: BTreeMap<AgentName, AgentSetup>,
    /// Those of them that the plan does not ask for, and that may be asked for while the run goes on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) helpers: BTreeSet<AgentName>,
    /// How many tasks run at once.
    pub(crate) width: usize,
    /// The subject of the commit of what the run has changed, where one is made once it has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
    /// What the repository tells agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) briefing: Option<Briefing>,
    /// How the project is tested, as its manifest said when the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tests: Option<CommandCheck>,
    /// The tools of the workspace that were trusted when the run began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<ToolDocument>,
    /// The conversation that goes on in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<After>,
    /// Where that conversation has read from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) outside: Vec<String>,
    /// Whether nobody is there to be asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) headless: bool,
    /// What was approved for good in the workspace when the run began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvals: Vec<Cover>,
    /// The suite that has to pass before anything that was done apart is merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) integrates: Option<CommandCheck>,
    /// What the run was begun as.
    #[serde(default, skip_serializing_if = "Kind::is_other")]
    pub(crate) kind: Kind,
    /// The files of the workspace that it stands on, by their paths, each with the hash of what was trusted.
    #[serde(default, skip_serializing_if = "Hashes::is_empty")]
    pub(crate) stands_on: Hashes,
    /// The hashes of the files that hooks and tools run, by their paths from the root of the workspace; none in runs of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) programs: Option<Hashes>,
    /// Whether its mode was said for it, and is not what is configured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own_mode: bool,
    /// Whose hand calls a tool, where a person does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hand: Option<Hand>,
    /// The subscriptions that had the run begin, one by what another had done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) caused_by: Vec<SubscriptionName>,
}

/// A person who calls a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hand {
    /// The agent whose rules hold for the call.
    pub(crate) agent: Agent,
    /// Who calls.
    pub(crate) principal: Principal,
}

/// What a run was begun as, as far as that has more to tell at its end than any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A change is judged.
    Review,
    /// A task is worked on in rounds.
    Loop,
    /// A goal is planned, and its tasks are done apart.
    Goal,
    /// A task, a workflow or a turn of a conversation.
    #[default]
    Other,
}

impl Kind {
    const fn is_other(&self) -> bool {
        matches!(self, Self::Other)
    }
}

/// The conversation that a run goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct After {
    /// The run that it belongs to, and itself. Named so that a fork does not take them for its own.
    pub(crate) of_run: RunId,
    pub(crate) of_session: SessionId,
    /// Whether it is made as short as it can be first.
    #[serde(default)]
    pub(crate) compact: bool,
}

/// An agent of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentSetup {
    /// The agent, whole.
    pub(crate) agent: Agent,
    /// The model that it thinks with.
    pub(crate) model: ModelRef,
    /// The model that sums up what no longer fits its window; its own where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<ModelRef>,
}

impl RunSetup {
    /// Narrows what the run may do to what is configured now, unless it was said for this run.
    pub(crate) fn narrow(&mut self, present: &Config) {
        let narrower = mode(present).min(self.mode());
        if !self.own_mode {
            self.config.permissions.get_or_insert_default().mode = Some(narrower);
        }
    }

    /// Returns what the run may do.
    pub(crate) fn mode(&self) -> PermissionMode {
        mode(&self.config)
    }
}

/// Returns what agents may do where nobody says otherwise: read.
pub(crate) fn mode(config: &Config) -> PermissionMode {
    config.permissions.as_ref().and_then(|permissions| permissions.mode).unwrap_or_default()
}

/// Returns where requests may go.
///
/// # Errors
/// [`Error::Rules`] when a pattern does not parse.
pub(crate) fn http(config: &Config) -> Result<HttpRules, Error> {
    let rules = |error: formwork_policy::Error| Error::Rules { reason: error.to_string() };
    let http = config.permissions.as_ref().and_then(|permissions| permissions.http.as_ref());
    let Some(http) = http else { return HttpRules::nothing().map_err(rules) };
    HttpRules::parse(http.hosts.as_deref(), &http.allow_private).map_err(rules)
}

/// Returns the lists of where programs may connect to that run in the name of `agents`, all of which have to name a place;
/// nothing where they open no connection.
pub(crate) fn network_lists<'a>(
    config: &Config,
    agents: impl IntoIterator<Item = &'a Agent>,
) -> Option<Vec<Vec<String>>> {
    let network = config.permissions.as_ref()?.network.as_ref()?;
    let own =
        agents.into_iter().filter_map(|agent| agent.document().tools.exec.as_ref()?.hosts.as_ref());
    let lists: Vec<Vec<String>> = std::iter::once(&network.hosts).chain(own).cloned().collect();
    (!lists.iter().any(Vec::is_empty)).then_some(lists)
}

/// Returns where programs may connect to that run in the name of `agents`; nothing where they open no connection.
///
/// # Errors
/// [`Error::Rules`] when a pattern does not parse.
pub(crate) fn ways<'a>(
    config: &Config,
    agents: impl IntoIterator<Item = &'a Agent>,
) -> Result<Option<Ways>, Error> {
    let rules = |error: formwork_policy::Error| Error::Rules { reason: error.to_string() };
    let network = config.permissions.as_ref().and_then(|permissions| permissions.network.as_ref());
    let Some(network) = network else { return Ok(None) };
    let own =
        agents.into_iter().filter_map(|agent| agent.document().tools.exec.as_ref()?.hosts.as_ref());
    let lists: Vec<&Vec<String>> = std::iter::once(&network.hosts).chain(own).collect();
    if lists.iter().any(|list| list.is_empty()) {
        return Ok(None);
    }
    Ok(Some(Ways {
        hosts: lists
            .into_iter()
            .map(HostPatterns::parse)
            .collect::<Result<_, _>>()
            .map_err(rules)?,
        private: HostPatterns::parse(&network.allow_private).map_err(rules)?,
    }))
}

/// What an agent may call.
pub(crate) struct Allowed {
    /// The tools that it may call.
    pub(crate) tools: BTreeSet<ToolName>,
    /// Those of them that it is told by name alone until it loads them.
    pub(crate) deferred: BTreeSet<ToolName>,
}

/// Returns what is allowed to one agent: what the config allows, narrowed by the agent's own rules. Shell text is not,
/// whatever the config says, where processes are not confined.
///
/// # Errors
/// [`Error::Rules`] when a pattern does not parse, or names a tool that does not exist.
pub(crate) fn policy<'a>(
    config: &Config,
    agent: &Agent,
    tools: impl IntoIterator<Item = &'a ToolSpec>,
    protection: &Protection,
) -> Result<(Policy, Allowed), Error> {
    let rules = |error: formwork_policy::Error| Error::Rules { reason: error.to_string() };
    let mut around = Rules::new(mode(config));
    let permissions: Option<&Permissions> = config.permissions.as_ref();
    if let Some(exec) = permissions.and_then(|permissions| permissions.exec.as_ref()) {
        around.commands = Some(CommandPatterns::parse(exec).map_err(rules)?);
    }
    let is_opted_in = permissions.and_then(|permissions| permissions.shell).unwrap_or_default();
    around.shell = is_opted_in && *protection != Protection::None;
    let tools: Vec<&ToolSpec> = tools.into_iter().collect();
    if let Some(http) = permissions.and_then(|permissions| permissions.http.as_ref()) {
        around.hosts = http.hosts.as_ref().map(HostPatterns::parse).transpose().map_err(rules)?;
        for (name, hosts) in &http.secrets {
            let hosts = HostPatterns::parse(hosts).map_err(rules)?;
            around.secrets.insert(name.as_str().to_owned(), hosts);
        }
    }
    for (name, commands) in permissions.iter().flat_map(|permissions| &permissions.exec_secrets) {
        let commands = CommandPatterns::parse(commands).map_err(rules)?;
        around.exec_secrets.insert(name.as_str().to_owned(), commands);
    }
    if let Some(after) = permissions.and_then(|permissions| permissions.after_outside.as_ref()) {
        let sinks = |patterns: &[String]| {
            ToolPatterns::parse(patterns)
                .and_then(|patterns| patterns.resolve(tools.iter().copied()))
                .map_err(|error| Error::Rules {
                    reason: format!("permissions.after_outside: {error}"),
                })
        };
        around.sinks = Sinks { ask: sinks(&after.ask)?, deny: sinks(&after.deny)? };
    }
    let (narrower, allowed) = own_rules(agent, tools)?;
    Ok((Policy::new(around).narrow(narrower), allowed))
}

/// Returns the rules that an agent itself has, which take away from those around it and never add to them.
///
/// # Errors
/// As [`policy`].
pub(crate) fn own_rules<'a>(
    agent: &Agent,
    tools: impl IntoIterator<Item = &'a ToolSpec>,
) -> Result<(Rules, Allowed), Error> {
    let rules = |error: formwork_policy::Error| Error::Rules { reason: error.to_string() };
    let own = &agent.document().tools;
    let tools: Vec<&ToolSpec> = tools.into_iter().collect();
    let resolve = |patterns: &[String]| {
        ToolPatterns::parse(patterns)
            .and_then(|patterns| patterns.resolve(tools.iter().copied()))
            .map_err(|error| Error::Rules { reason: format!("agent {}: {error}", agent.name()) })
    };
    let (mut allowed, deferred) = (resolve(&own.allow)?, resolve(&own.deferred)?);
    allowed.extend(deferred.iter().cloned());
    let mut narrower = Rules::new(PermissionMode::Auto);
    let load = ToolName::parse(LOAD_TOOLS).expect("the names of built-in tools follow the rule");
    narrower.tools = Some(allowed.iter().cloned().chain([load]).collect());
    if let Some(exec) = own.exec.as_ref().and_then(|exec| exec.allow.as_ref()) {
        narrower.commands = Some(CommandPatterns::parse(exec).map_err(rules)?);
    }
    if let Some(hosts) = own.exec.as_ref().and_then(|exec| exec.hosts.as_ref()) {
        HostPatterns::parse(hosts).map_err(rules)?;
    }
    Ok((narrower, Allowed { tools: allowed, deferred }))
}

/// Returns what a process of the run may reach: it reads the system and the tools of its languages,
/// and writes the workspace, besides a folder of its own that the sandbox gives it. It has no network: where it is to have
/// some, that comes with whose program it is.
///
/// # Errors
/// [`Error::Protection`] when confinement is asked for and this machine does not have it.
pub(crate) fn protection(
    config: &Config,
    has_launcher: bool,
    workspace: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Protection, Error> {
    let mode = config.sandbox.unwrap_or_default();
    if mode == SandboxMode::Off {
        return Ok(Protection::None);
    }
    let found = probe();
    let missing = [&found.files, &found.system_calls].into_iter().find_map(|status| match status {
        Status::Missing(reason) => Some(reason.clone()),
        Status::Active(_) | Status::Weak(_) => None,
    });
    let missing = missing.or_else(|| {
        (!has_launcher).then(|| "there is no launcher, the program that confines others".to_owned())
    });
    match (missing, mode) {
        (None, _) => {
            let mut limits = limits(workspace, variable);
            hold(&mut limits, config.programs.unwrap_or_default(), probe_counts(&found));
            Ok(Protection::Restricted(limits))
        }
        (Some(_), SandboxMode::Auto) => Ok(Protection::None),
        (Some(reason), _) => Err(Error::Protection { reason }),
    }
}

/// How many processes a program may have at once where nobody says otherwise: more than a build for any machine starts,
/// and less than makes one of today's slow.
const MAX_PROCESSES: u32 = 1024;

/// Says whether this machine counts what a program uses.
fn probe_counts(found: &Protections) -> bool {
    let counts = |status: &Status| !matches!(status, Status::Missing(_));
    counts(&found.processes) && counts(&found.memory)
}

/// Bounds how much a program may use, where the machine counts it: elsewhere the profile of the system holds it to its
/// files and to no network, and nothing bounds its use.
fn hold(limits: &mut Limits, config: ProgramsConfig, counts: bool) {
    if !counts {
        return;
    }
    limits.processes = Some(config.max_processes.map_or(MAX_PROCESSES, NonZeroU32::get));
    let given = config.max_memory_mib.map(|mib| u64::from(mib.get()) << 20);
    limits.memory = given.or_else(|| Some(memory_of_machine()? / 4 * 3));
}

/// Returns the bytes of memory that this machine has, where it says so.
fn memory_of_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What a build reads in the home of cargo.
const CARGO_READ: [&str; 6] = ["bin", "config", "config.toml", "env", "git", "registry"];

/// What programs of a hidden folder of the home need beside their own folder, and what holds no keys.
const BESIDE_PROGRAMS: [&str; 14] = [
    "candidates",
    "include",
    "installs",
    "lib",
    "lib64",
    "libexec",
    "node_modules",
    "pipx",
    "plugins",
    "share/mise",
    "share/pipx",
    "share/uv",
    "shims",
    "versions",
];

/// Says whether a folder may hold keys beside programs: one that is hidden in the home, and one that the home or a folder of
/// Formwork itself lies in.
fn may_hold_keys(own: &[PathBuf], home: Option<&Path>, folder: &Path) -> bool {
    is_hidden_in(home, folder) || own.iter().any(|own| own.starts_with(folder))
}

fn is_hidden_in(home: Option<&Path>, folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    home.is_some() && folder.parent() == home && name.as_encoded_bytes().starts_with(b".")
}

/// Leaves out what lies in another of the folders, also by a link, as `/bin` does in `/usr`: each is opened and granted for
/// every program that is run.
fn outermost(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let real: Vec<PathBuf> =
        folders.iter().map(|it| it.canonicalize().unwrap_or_else(|_| it.clone())).collect();
    let lies_in = |inner: usize, outer: usize| match (real.get(inner), real.get(outer)) {
        (Some(inside), Some(folder)) if inside == folder => outer < inner,
        (Some(inside), Some(folder)) => inside.starts_with(folder),
        _ => false,
    };
    let is_outermost = |it: usize| (0..real.len()).all(|other| other == it || !lies_in(it, other));
    let kept: Vec<bool> = (0..real.len()).map(is_outermost).collect();
    folders
        .into_iter()
        .zip(kept)
        .filter_map(|(folder, is_kept)| is_kept.then_some(folder))
        .collect()
}

/// The folders that a build needs. Those that do not exist are left out.
fn limits(workspace: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Limits {
    let home = variable("HOME").map(PathBuf::from);
    let below_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let named = |name: &str| variable(name).map(PathBuf::from);
    let places = ["FORMWORK_STATE_DIR", "FORMWORK_CONFIG_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"];
    let own: Vec<PathBuf> =
        home.iter().cloned().chain(places.into_iter().filter_map(named)).collect();
    let mut read = Limits::system_roots();
    let cargo = named("CARGO_HOME").or_else(|| below_home(".cargo"));
    if let Some(cargo) = &cargo {
        // Not the folder itself: the tokens of registries are in it.
        read.extend(CARGO_READ.map(|name| cargo.join(name)));
    }
    read.extend(named("RUSTUP_HOME").or_else(|| below_home(".rustup")));
    for folder in variable("PATH").unwrap_or_default().split(':').map(PathBuf::from) {
        // A program's libraries stand beside its folder, as in /opt/python/{bin,lib}.
        match folder.parent() {
            // ~/.docker/bin, ~/.local/bin; /app/bin where the home is /app/home.
            Some(prefix)
                if Some(prefix) != home.as_deref()
                    && may_hold_keys(&own, home.as_deref(), prefix) =>
            {
                read.extend(BESIDE_PROGRAMS.map(|name| prefix.join(name)));
                read.push(folder);
            }
            Some(prefix)
                if prefix.parent().is_some()
                    && Some(prefix) != home.as_deref()
                    && cargo.as_deref() != Some(prefix) =>
            {
                read.push(prefix.to_owned());
            }
            _ => read.push(folder),
        }
    }
    read.retain(|folder| folder.is_absolute() && folder.exists());
    read.sort();
    read.dedup();
    let read = outermost(read);
    let devices = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/shm",
    ];
    let mut write = vec![workspace.to_owned()];
    write.extend(named("CARGO_TARGET_DIR"));
    write.extend(devices.into_iter().map(PathBuf::from));
    write.retain(|folder| folder.exists());
    let mut limits = Limits::new(read, write);
    limits.network = Network::Off;
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_may_use_is_bounded_where_nobody_says_so_and_where_somebody_does() {
        let bounded = |config| {
            let mut limits = Limits::new([""; 0], [""; 0]);
            hold(&mut limits, config, true);
            (limits.processes, limits.memory)
        };
        let few = ProgramsConfig {
            max_processes: NonZeroU32::new(7),
            max_memory_mib: NonZeroU32::new(2),
        };

        assert_eq!(bounded(ProgramsConfig::default()).0, Some(1024));
        assert_eq!(bounded(few), (Some(7), Some(2 << 20)));
    }

    #[test]
    fn beside_programs_in_a_hidden_folder_of_the_home_no_keys_are_read() {
        let home = tempfile::tempdir().unwrap();
        for folder in [".local/bin", ".local/lib", ".local/share/keyrings", ".docker/bin", "go/bin"]
        {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        std::fs::write(home.path().join(".docker/config.json"), "").unwrap();
        let own = home.path().display().to_string();
        let path = format!("{own}/.local/bin:{own}/.docker/bin:{own}/go/bin:/usr/bin");
        let variable = |name: &str| match name {
            "HOME" => Some(own.clone()),
            "PATH" => Some(path.clone()),
            _ => None,
        };

        let limits = limits(Path::new("/nowhere"), &variable);

        let below_home: Vec<_> =
            limits.read_roots.iter().filter_map(|it| it.strip_prefix(&own).ok()).collect();
        assert_eq!(below_home, [".docker/bin", ".local/bin", ".local/lib", "go"].map(Path::new));
    }

    #[test]
    fn a_folder_that_the_home_lies_in_is_not_read_for_the_programs_in_it() {
        let app = tempfile::tempdir().unwrap();
        for folder in ["bin", "lib", "home/.ssh", "state/formwork", "tools/bin"] {
            std::fs::create_dir_all(app.path().join(folder)).unwrap();
        }
        let own = app.path().display().to_string();
        let variable = |name: &str| match name {
            "HOME" => Some(format!("{own}/home")),
            "FORMWORK_STATE_DIR" => Some(format!("{own}/state/formwork")),
            "PATH" => Some(format!("{own}/bin:{own}/tools/bin:/usr/bin")),
            _ => None,
        };

        let limits = limits(Path::new("/nowhere"), &variable);

        let read: Vec<_> =
            limits.read_roots.iter().filter_map(|it| it.strip_prefix(&own).ok()).collect();
        assert_eq!(read, ["bin", "lib", "tools"].map(Path::new));
    }

    #[test]
    fn what_lies_in_a_folder_that_is_read_is_not_granted_once_more() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in ["usr/bin", "usr/local", "usrlib", "opt"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::os::unix::fs::symlink("usr/bin", at("bin")).unwrap();
        std::os::unix::fs::symlink("../opt", at("usr/away")).unwrap();
        std::os::unix::fs::symlink("usr", at("usr-again")).unwrap();

        let all = ["bin", "usr", "usr-again", "usr/away", "usr/local", "usrlib"].map(at);

        assert_eq!(outermost(all.to_vec()), ["usr", "usr/away", "usrlib"].map(at));
    }

    #[test]
    fn a_process_reads_what_cargo_builds_with_and_not_its_tokens() {
        let home = tempfile::tempdir().unwrap();
        let cargo = home.path().join(".cargo");
        std::fs::create_dir_all(cargo.join("bin")).unwrap();
        std::fs::write(cargo.join("credentials.toml"), "").unwrap();
        let (own, bin) = (home.path().display().to_string(), cargo.join("bin"));
        let path = format!("{}:/usr/bin", bin.display());
        let variable = |name: &str| match name {
            "HOME" => Some(own.clone()),
            "PATH" => Some(path.clone()),
            _ => None,
        };

        let limits = limits(Path::new("/nowhere"), &variable);

        let below_home: Vec<_> =
            limits.read_roots.iter().filter(|folder| folder.starts_with(home.path())).collect();
        assert_eq!(below_home, [&bin]);
    }
}
