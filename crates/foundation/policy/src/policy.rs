//! The decision and its order: mode, allow-list, class, commands, paths.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use formwork_protocols::{PermissionMode, ToolClass, ToolName};

use crate::{CommandPatterns, HostPatterns, Meaning, PathPatterns};

/// What is allowed to one agent. What is `None` is left to the rules around these.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// How much may be done at all.
    pub mode: PermissionMode,
    /// Which tools may be called, resolved by [`ToolPatterns`](crate::ToolPatterns).
    pub tools: Option<BTreeSet<ToolName>>,
    /// Which programs may be run. With a list, what it does not name is denied.
    pub commands: Option<CommandPatterns>,
    /// Whether texts of shell may be run at all, each part of them by the rules for commands. Without, they are denied to
    /// every tool, but for a command that a pattern spells out whole. Whoever sets this confines processes: what is
    /// judged is a reading of the text.
    pub shell: bool,
    /// Where tools may connect to. With a list, what it does not name is denied; without, each call is asked about,
    /// in every mode: what leaves the machine does not come back.
    pub hosts: Option<HostPatterns>,
    /// Where each secret may be sent, by its name. One that is not named here is sent nowhere.
    pub secrets: BTreeMap<String, HostPatterns>,
    /// The commands of `exec` that each secret may stand in, by its name. One that is not named here stands in none.
    pub exec_secrets: BTreeMap<String, CommandPatterns>,
    /// Why no secret may stand in a command of `exec` here, whatever is declared, where that is so.
    pub exec_secrets_stay: Option<String>,
    /// The tools that text from outside must not reach unseen.
    pub sinks: Sinks,
    /// What may not be changed, whoever asks.
    pub protected: PathPatterns,
}

/// The tools whose calls are not like others once something from outside was read, which nobody vouches for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sinks {
    /// Each call of these is asked about then.
    pub ask: BTreeSet<ToolName>,
    /// These are not called any more.
    pub deny: BTreeSet<ToolName>,
}

impl Rules {
    /// Returns rules that bring nothing but a mode and git's own folder, which is always protected.
    pub fn new(mode: PermissionMode) -> Self {
        Self {
            mode,
            tools: None,
            commands: None,
            shell: true,
            hosts: None,
            secrets: BTreeMap::new(),
            exec_secrets: BTreeMap::new(),
            exec_secrets_stay: None,
            sinks: Sinks::default(),
            protected: PathPatterns::default(),
        }
    }
}

/// A call to be decided on.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The tool's name.
    pub tool: &'a ToolName,
    /// What it does to the world.
    pub class: ToolClass,
    /// The program and its arguments, for a tool that runs one.
    pub argv: Option<&'a [String]>,
    /// What those words mean where it runs.
    pub meaning: Meaning<'a>,
    /// The paths that it names, from the root of the workspace.
    pub paths: &'a [&'a str],
    /// Where it would connect to, each as `host:port`.
    pub hosts: &'a [String],
    /// The names of the secrets that its arguments ask for.
    pub secrets: &'a [String],
}

impl<'a> Call<'a> {
    /// Returns a call of a tool that names nothing.
    pub const fn new(tool: &'a ToolName, class: ToolClass) -> Self {
        let meaning = Meaning { folder: None, within: None, roots: None };
        Self { tool, class, argv: None, meaning, paths: &[], hosts: &[], secrets: &[] }
    }
}

/// What is decided on a call. Reasons are written for the model, which can act on them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant's sentence names its field")]
pub enum Decision {
    /// It may be made.
    Allow,
    /// A person must approve it first, for this reason.
    Ask { why: String },
    /// It may not be made, for this reason.
    Deny { why: String },
}

impl Decision {
    /// Returns the stricter of both: a denial, then a question. Of two alike, this one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Ask { .. } => 1,
            Self::Deny { .. } => 2,
        }
    }
}

/// Rules, and those of every ancestor. Clones share them.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The root's first. A call is allowed only by all of them.
    layers: Vec<Arc<Rules>>,
}

impl Policy {
    /// Decides by `rules` alone.
    pub fn new(rules: Rules) -> Self {
        Self { layers: vec![Arc::new(rules)] }
    }

    /// Returns the policy of a child with `rules`. It allows nothing that this one does not.
    #[must_use]
    pub fn narrow(&self, rules: Rules) -> Self {
        let mut layers = self.layers.clone();
        layers.push(Arc::new(rules));
        Self { layers }
    }

    /// Returns the mode that binds: the least of all layers.
    pub fn mode(&self) -> PermissionMode {
        self.layers.iter().map(|rules| rules.mode).min().unwrap_or_default()
    }

    /// Says whether the mode can use tools of `class`. Others are not shown to the model.
    pub fn offers(&self, class: ToolClass) -> bool {
        let has_shell = || self.layers.iter().all(|rules| rules.shell);
        mode_allows(self.mode(), class) && (class != ToolClass::Shell || has_shell())
    }

    /// Returns the least mode in which tools of `class` can be used, where that is more than the one that holds.
    pub fn needs(&self, class: ToolClass) -> Option<PermissionMode> {
        let least = least_mode(class);
        (self.mode() < least).then_some(least)
    }

    /// Decides on `call`.
    pub fn decide(&self, call: &Call<'_>) -> Decision {
        // Each layer decides with what it inherits in mind, and the strictest one stands, so that
        // adding a layer never turns a question or a denial into anything less.
        let mut listed = Listed::default();
        let mut decided = Decision::Allow;
        for rules in &self.layers {
            listed.commands |= rules.commands.is_some();
            listed.hosts |= rules.hosts.is_some();
            decided = decided.and(by_rules(rules, listed, call));
        }
        if decided.rank() < 2
            && let Err(why) = self.secrets_may_go(call)
        {
            return deny(why);
        }
        decided
    }

    /// Decides on a call of `tool` after something was read that came `from` outside.
    pub fn after_outside(&self, tool: &ToolName, from: &str) -> Decision {
        let has = |sink: fn(&Sinks) -> &BTreeSet<ToolName>| {
            self.layers.iter().any(|rules| sink(&rules.sinks).contains(tool))
        };
        if has(|sinks| &sinks.deny) {
            return deny(format!(
                "{tool} may not be called any more: this run has read what came from {from}"
            ));
        }
        if has(|sinks| &sinks.ask) {
            let why = format!("this run has read what came from {from}, which nobody vouches for");
            return Decision::Ask { why };
        }
        Decision::Allow
    }

    /// Checks that each secret of a call is declared for where it goes: a host, or a program that `exec` runs.
    fn secrets_may_go(&self, call: &Call<'_>) -> Result<(), String> {
        // What is said of tasks is recorded as it is written: no secret is put in.
        if call.class == ToolClass::Lifecycle {
            return Ok(());
        }
        call.secrets.iter().try_for_each(|name| match (call.class, call.argv) {
            (ToolClass::Network, _) => self.secret_may_be_sent(name, call),
            (ToolClass::Exec, Some(argv)) if call.tool.as_str() == GIVEN_SECRETS => {
                self.secret_may_be_given(name, argv, call.meaning)
            }
            _ => Err(format!(
                "secret {name} may not stand in a call of {}: a secret goes to hosts by [permissions.http.secrets] of the \
                 config, to programs that {GIVEN_SECRETS} runs by [permissions.exec_secrets], and nowhere else",
                call.tool
            )),
        })
    }

    fn secret_may_be_sent(&self, name: &str, call: &Call<'_>) -> Result<(), String> {
        if call.hosts.is_empty() {
            return Err(format!("secret {name} may not be sent where no host is known beforehand"));
        }
        // The first layer declares, and the others can only take away.
        let first = self.layers.first().and_then(|rules| rules.secrets.get(name));
        let others = self.layers.iter().filter_map(|rules| rules.secrets.get(name));
        let may = |host: &String| first.is_some() && others.clone().all(|it| it.matches(host));
        match call.hosts.iter().find(|host| !may(host)) {
            None => Ok(()),
            Some(host) => Err(format!(
                "secret {name} may not be sent to {host}: whoever starts the run declares where it may go, below \
                 [permissions.http.secrets] of the config"
            )),
        }
    }

    fn secret_may_be_given(
        &self,
        name: &str,
        argv: &[String],
        meaning: Meaning<'_>,
    ) -> Result<(), String> {
        if let Some(why) = self.layers.iter().find_map(|rules| rules.exec_secrets_stay.as_ref()) {
            return Err(format!("secret {name} may not stand among the words of a program: {why}"));
        }
        let first = self.layers.first().and_then(|rules| rules.exec_secrets.get(name));
        let mut others = self.layers.iter().filter_map(|rules| rules.exec_secrets.get(name));
        // A shell would read it as text.
        let may = first.is_some() && others.all(|it| it.check_without_shell(argv, meaning).is_ok());
        match may {
            true => Ok(()),
            false => Err(format!(
                "secret {name} may not stand among the words of this program: whoever starts the run declares to which \
                 commands it is given, below [permissions.exec_secrets] of the config"
            )),
        }
    }
}

/// The tool that gives secrets to programs, among their words. No other that runs programs does.
const GIVEN_SECRETS: &str = "exec";

/// What this layer of rules or one around it has a list of.
#[derive(Clone, Copy, Default)]
struct Listed {
    commands: bool,
    hosts: bool,
}

fn by_rules(rules: &Rules, listed: Listed, call: &Call<'_>) -> Decision {
    let (tool, class, mode) = (call.tool, call.class.as_str(), rules.mode.as_str());
    if !mode_allows(rules.mode, call.class) {
        return deny(format!("mode {mode} has no tools of class {class}, such as {tool}"));
    }
    if rules.tools.as_ref().is_some_and(|tools| !tools.contains(tool)) {
        return deny(format!("tool {tool} is not on the allow-list"));
    }
    let by_paths = by_paths(rules, call);
    let by_class = match call.class {
        ToolClass::Read
        | ToolClass::Write
        | ToolClass::Delete
        | ToolClass::Memory
        | ToolClass::Lifecycle => Decision::Allow,
        ToolClass::Exec => by_commands(rules, listed.commands, call),
        ToolClass::Shell if !rules.shell => deny(
            "no shell is opted in here where processes are confined: whoever starts the run opts in by shell = true below \
             [permissions] of the config"
                .to_owned(),
        ),
        // A text is a command of a shell, whose parts are judged.
        ToolClass::Shell => by_commands(rules, listed.commands, call),
        ToolClass::Network if !call.hosts.is_empty() => by_hosts(rules, listed.hosts, call),
        ToolClass::Network => {
            ask_unless_auto(rules.mode, &format!("{tool} is of class {class}"))
        }
    };
    by_paths.and(by_class)
}

fn by_commands(rules: &Rules, listed: bool, call: &Call<'_>) -> Decision {
    let Some(argv) = call.argv else {
        return deny(format!("tool {} names no program to run", call.tool));
    };
    let patterns = rules.commands.clone().unwrap_or_else(CommandPatterns::everything);
    let checked = match rules.shell {
        true => patterns.check(argv, call.meaning),
        false => patterns.check_without_shell(argv, call.meaning),
    };
    match checked {
        Err(why) => deny(why),
        Ok(()) if listed => Decision::Allow,
        Ok(()) => ask_unless_auto(rules.mode, "no list of commands was given"),
    }
}

fn by_hosts(rules: &Rules, listed: bool, call: &Call<'_>) -> Decision {
    let hosts = call.hosts.join(", ");
    match &rules.hosts {
        Some(list) => match call.hosts.iter().try_for_each(|host| list.check(host)) {
            Err(why) => deny(why),
            Ok(()) => Decision::Allow,
        },
        None if listed => Decision::Allow,
        None => {
            Decision::Ask { why: format!("it connects to {hosts}, and no list of hosts was given") }
        }
    }
}

fn by_paths(rules: &Rules, call: &Call<'_>) -> Decision {
    match call.class {
        ToolClass::Write | ToolClass::Delete => {
            let refused = call.paths.iter().find_map(|path| rules.protected.refuses(path));
            refused.map_or(Decision::Allow, deny)
        }
        ToolClass::Exec | ToolClass::Shell => {
            let writes = call.argv.map(CommandPatterns::written_by).unwrap_or_default();
            // What lies elsewhere is the business of whoever confines the process.
            let below = writes.iter().filter(|path| !path.starts_with('/'));
            below
                .filter_map(|path| rules.protected.refuses(path))
                .find(|why| !why.contains("does not stay below"))
                .map_or(Decision::Allow, deny)
        }
        // What these may reach is not said by paths in their arguments.
        ToolClass::Read | ToolClass::Network | ToolClass::Memory | ToolClass::Lifecycle => {
            Decision::Allow
        }
    }
}

fn ask_unless_auto(mode: PermissionMode, why: &str) -> Decision {
    match mode {
        PermissionMode::Auto => Decision::Allow,
        PermissionMode::Ask | PermissionMode::Plan | PermissionMode::Edit => Decision::Ask {
            why: format!("{why}, which mode {} does not allow by itself", mode.as_str()),
        },
    }
}

fn deny(why: String) -> Decision {
    Decision::Deny { why }
}

/// A mode can use all that a lesser one can.
fn mode_allows(mode: PermissionMode, class: ToolClass) -> bool {
    mode >= least_mode(class)
}

/// Returns the least mode that can use tools of a class.
const fn least_mode(class: ToolClass) -> PermissionMode {
    match class {
        ToolClass::Read | ToolClass::Lifecycle => PermissionMode::Ask,
        ToolClass::Memory => PermissionMode::Plan,
        ToolClass::Write
        | ToolClass::Delete
        | ToolClass::Exec
        | ToolClass::Shell
        | ToolClass::Network => PermissionMode::Edit,
    }
}

#[cfg(test)]
mod tests;
