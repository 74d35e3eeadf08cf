//! Config in layers: built-in < user < project < environment < flags, each value with its origin.

use std::{collections::BTreeMap, fmt, sync::Arc};

use formwork_policy::{CommandPatterns, HostPatterns};
use formwork_protocols::{
    Budget,
    document::{self, Diagnostic, Diagnostics},
};
use formwork_trace::Trace;
use formwork_write_safety::WriteRules;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Config, HookConfig};

/// Where a value came from. The later ones win.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant names its field")]
pub enum Origin {
    /// Formwork itself.
    BuiltIn,
    /// The user's own file.
    User { file: String },
    /// The project's file.
    Project { file: String },
    /// An environment variable.
    Environment { variable: String },
    /// The command line, or the embedder.
    Flag { flag: String },
}

impl Origin {
    /// Returns its place among the kinds, the lowest first.
    const fn rank(&self) -> u8 {
        match self {
            Self::BuiltIn => 0,
            Self::User { .. } => 1,
            Self::Project { .. } => 2,
            Self::Environment { .. } => 3,
            Self::Flag { .. } => 4,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::User { file } | Self::Project { file } => f.write_str(file),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}

/// One layer: where it comes from and what it says.
#[derive(Debug, Clone)]
pub struct Layer {
    origin: Origin,
    values: Map<String, Value>,
}

impl Layer {
    /// Reads a layer from the text of a file.
    ///
    /// # Errors
    /// [`Diagnostics`] lists every fault of the file with its place.
    pub fn parse(origin: Origin, text: &str) -> Result<Self, Diagnostics> {
        let source = origin.to_string();
        let parsed = document::parse::<Config>(&source, text)?;
        let Ok(Ok(Value::Object(mut values))) =
            toml::from_str::<toml::Table>(text).map(serde_json::to_value)
        else {
            // The document engine has read the same text.
            return Err(parsed.diagnostic("", "the file is not a table").into());
        };
        values.remove("format_version");
        let faults: Vec<Diagnostic> = dangling(&parsed.value, &parsed);
        if faults.is_empty() {
            Ok(Self { origin, values })
        } else {
            Err(faults.into_iter().collect())
        }
    }

    /// Returns a layer of one value at a dotted key.
    pub fn set(origin: Origin, key: &str, value: Value) -> Self {
        let mut value = value;
        let mut keys: Vec<&str> = key.split('.').collect();
        while let Some(key) = keys.pop() {
            value = Value::Object(Map::from_iter([(key.to_owned(), value)]));
        }
        let values = match value {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        Self { origin, values }
    }

    /// Takes values as a layer. They are held to the config when the layers are merged.
    pub const fn from_values(origin: Origin, values: Map<String, Value>) -> Self {
        Self { origin, values }
    }

    /// Takes a config as a layer.
    ///
    /// # Errors
    /// [`serde_json::Error`] never, for a config is made of texts, numbers and lists.
    pub fn of(origin: Origin, config: &Config) -> Result<Self, serde_json::Error> {
        match serde_json::to_value(config)? {
            Value::Object(values) => Ok(Self { origin, values }),
            _ => Ok(Self { origin, values: Map::new() }),
        }
    }

    /// Returns the hooks that this layer adds.
    pub fn hooks(&self) -> Vec<HookConfig> {
        let written = self.values.get("hooks");
        written.and_then(|hooks| serde_json::from_value(hooks.clone()).ok()).unwrap_or_default()
    }

    /// Returns the keys, dotted, by which this layer reaches beyond its project: where requests and keys
    /// go and what they are thought to cost, where the log is, what runs and what is allowed, and a budget above one of
    /// `below`. A project's file may not set them before a person trusts it.
    pub fn reaching(&self, below: &Layers) -> Vec<String> {
        const REACHING: [&str; 6] =
            ["database_url", "models", "permissions", "providers", "sandbox", "secrets"];
        let mut keys = Vec::new();
        leaves("", &Value::Object(self.values.clone()), &mut |key, value| {
            if key == "hooks" {
                // Whoever trusts them sees what runs.
                let hooks = value.as_array().into_iter().flatten();
                keys.extend(
                    hooks.map(|hook| format!("hooks: {} runs {}", hook["event"], hook["command"])),
                );
            } else if REACHING.iter().any(|reaching| key.split('.').next() == Some(*reaching)) {
                keys.push(key.to_owned());
            }
        });
        let caps = Caps::of(&below.values());
        keys.extend(Caps::of(&self.values).above(&caps).map(str::to_owned));
        // Caps come from the command line too, of which nothing is known here: what is laxer than what holds without a
        // word would undo them.
        let policy = |values| budget(values).on_exhausted;
        if let Some(own) = policy(&self.values)
            && own.laxer_than(policy(&below.values()).unwrap_or_default())
        {
            keys.push("budget.on_exhausted".to_owned());
        }
        keys
    }
}

/// Returns the budget that values hold, as far as it can be read.
fn budget(values: &Map<String, Value>) -> Budget {
    let written = values.get("budget");
    written.and_then(|budget| serde_json::from_value(budget.clone()).ok()).unwrap_or_default()
}

/// The caps of a budget by their dotted keys, each as a number.
struct Caps([(&'static str, Option<i128>); 9]);

impl Caps {
    fn of(values: &Map<String, Value>) -> Self {
        let written = values.get("budget");
        let budget = budget(values);
        // A cap of the tree that is not written is not set by this layer.
        let tree = |key: &str| written?.get("tree")?.get(key)?.as_u64().map(i128::from);
        Self([
            ("budget.usd", budget.usd.map(|usd| usd.as_nanos().into())),
            ("budget.tokens", budget.tokens.map(i128::from)),
            ("budget.rounds", budget.rounds.map(i128::from)),
            ("budget.tool_calls", budget.tool_calls.map(i128::from)),
            ("budget.wall", budget.wall.map(|wall| wall.as_micros().into())),
            ("budget.diff_lines", budget.diff_lines.map(i128::from)),
            ("budget.tree.depth", tree("depth")),
            ("budget.tree.fan_out", tree("fan_out")),
            ("budget.tree.tasks", tree("tasks")),
        ])
    }

    /// Returns the keys of those that are set in both and higher here.
    fn above(self, below: &Self) -> impl Iterator<Item = &'static str> {
        let pairs = self.0.into_iter().zip(below.0);
        pairs.filter_map(|((key, own), (_, below))| (own? > below?).then_some(key))
    }
}

/// Finds the names within one layer that lead nowhere by its own word.
fn dangling(config: &Config, parsed: &document::Parsed<Config>) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    for (name, provider) in &config.providers {
        if provider.base_url.is_none() && provider.kind.default_base_url().is_none() {
            let what = format!("a provider of kind {} needs a base_url", provider.kind);
            faults.push(parsed.diagnostic(&format!("/providers/{name}"), what));
        }
    }
    if let Some(url) = &config.database_url
        && let Err(error) = Trace::address(url)
    {
        let hint = "sqlite:///path/to/file, or postgres://user@host/database".to_owned();
        let fault = parsed.diagnostic("/database_url", crate::error::chain(&error));
        faults.push(Diagnostic { hint: Some(hint), text: hidden(&fault.text, url), ..fault });
    }
    if let Err(error) = crate::repository::settings(config) {
        faults.push(parsed.diagnostic("/instructions/files", crate::error::chain(&error)));
    }
    if let Some((key, message)) = config.budget.as_ref().and_then(|own| own.check().err()) {
        faults.push(parsed.diagnostic(&format!("/budget/{key}"), message));
    }
    let scope = config.permissions.as_ref().and_then(|permissions| permissions.scope.as_ref());
    for (at, glob) in scope.into_iter().flatten().enumerate() {
        if let Err(error) = WriteRules::parse(&[glob], &[]) {
            let key = format!("/permissions/scope/{at}");
            faults.push(parsed.diagnostic(&key, crate::error::chain(&error)));
        }
    }
    for (at, hook) in config.hooks.iter().enumerate() {
        if let Err((key, why, hint)) = hook.check() {
            let fault = parsed.diagnostic(&format!("/hooks/{at}/{key}"), why);
            faults.push(Diagnostic { hint: hint.map(str::to_owned), ..fault });
        }
    }
    let permissions = config.permissions.as_ref();
    let exec = permissions.and_then(|permissions| permissions.exec.as_ref());
    for (at, pattern) in exec.into_iter().flatten().enumerate() {
        if let Err(error) = CommandPatterns::parse([pattern]) {
            let key = format!("/permissions/exec/{at}");
            faults.push(parsed.diagnostic(&key, error.to_string()));
        }
    }
    for (name, patterns) in permissions.iter().flat_map(|permissions| &permissions.exec_secrets) {
        for (at, pattern) in patterns.iter().enumerate() {
            if let Err(error) = CommandPatterns::parse([pattern]) {
                let key = format!("/permissions/exec_secrets/{name}/{at}");
                faults.push(parsed.diagnostic(&key, error.to_string()));
            }
        }
    }
    let mut check = |key: &str, hosts: &[String]| {
        for (at, host) in hosts.iter().enumerate() {
            if let Err(error) = HostPatterns::parse([host]) {
                let key = format!("/permissions/{key}/{at}");
                faults.push(parsed.diagnostic(&key, error.to_string()));
            }
        }
    };
    if let Some(http) = permissions.and_then(|permissions| permissions.http.as_ref()) {
        check("http/hosts", http.hosts.as_deref().unwrap_or_default());
        check("http/allow_private", &http.allow_private);
        for (name, hosts) in &http.secrets {
            check(&format!("http/secrets/{name}"), hosts);
        }
    }
    if let Some(network) = permissions.and_then(|permissions| permissions.network.as_ref()) {
        check("network/hosts", &network.hosts);
        check("network/allow_private", &network.allow_private);
    }
    faults
}

/// Takes what may be a password out of the text that is shown with a fault.
fn hidden(text: &Arc<str>, url: &str) -> Arc<str> {
    let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    match user {
        Some((user, _)) if !user.is_empty() => text.replace(user, &"*".repeat(user.len())).into(),
        _ => Arc::clone(text),
    }
}

/// Layers, lowest first.
#[derive(Debug, Clone, Default)]
pub struct Layers(Vec<Layer>);

impl Layers {
    /// Returns no layers: everything is absent.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a layer; which one wins is settled by the kind of its origin, and among those of one kind by the order
    /// of adding: a flag beats the file that `--config` names.
    pub fn push(&mut self, layer: Layer) {
        self.0.push(layer);
        self.0.sort_by_key(|layer| layer.origin.rank());
    }

    /// Returns the merged values.
    fn values(&self) -> Map<String, Value> {
        let mut merged = Map::new();
        for layer in &self.0 {
            overlay(&mut merged, &layer.values);
        }
        merged
    }

    /// Merges the layers: tables key by key, everything else as a whole.
    ///
    /// # Errors
    /// [`serde_json::Error`] when the merged values are not a config, as when the environment gives a
    /// word where a number is wanted.
    pub fn merge(&self) -> Result<Layered, serde_json::Error> {
        let mut merged = Map::new();
        let mut origins = BTreeMap::new();
        for layer in &self.0 {
            overlay(&mut merged, &layer.values);
            leaves("", &Value::Object(layer.values.clone()), &mut |key, _| {
                origins.insert(key.to_owned(), layer.origin.clone());
            });
        }
        let config: Config = serde_json::from_value(Value::Object(merged.clone()))?;
        if let Some((key, message)) = config.budget.as_ref().and_then(|own| own.check().err()) {
            let key = format!("budget.{key}");
            let origin = origins.get(&key).cloned().unwrap_or(Origin::BuiltIn);
            return Err(serde::de::Error::custom(format!("{key} by {origin}: {message}")));
        }
        let mut entries = Vec::new();
        leaves("", &Value::Object(merged), &mut |key, value| {
            let origin = origins.get(key).cloned().unwrap_or(Origin::BuiltIn);
            entries.push((key.to_owned(), value.clone(), origin));
        });
        Ok(Layered { config, entries })
    }
}

/// A merged config, and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Layered {
    /// The config.
    pub config: Config,
    /// Each value by its dotted key, in the order of the keys.
    pub entries: Vec<(String, Value, Origin)>,
}

/// Lays a table over another: tables are merged, everything else replaces.
fn overlay(below: &mut Map<String, Value>, above: &Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(above)) if !is_whole(key) => {
                overlay(below, above);
            }
            // A layer adds gates and takes away none.
            (Some(Value::Array(below)), Value::Array(above)) if key == "hooks" => {
                below.extend(above.iter().cloned());
            }
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Tells whether a table is one value: two sources of a key, or two prices, do not add up to one.
fn is_whole(key: &str) -> bool {
    matches!(key, "api_key" | "price")
}

/// Visits what is not a table, and empty tables, by dotted keys in order.
fn leaves(prefix: &str, value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(map)
            if !map.is_empty() && !prefix.rsplit('.').next().is_some_and(is_whole) =>
        {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            for key in keys {
                let quoted =
                    if key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
                        key.clone()
                    } else {
                        format!("{key:?}")
                    };
                let path = if prefix.is_empty() { quoted } else { format!("{prefix}.{quoted}") };
                if let Some(value) = map.get(key) {
                    leaves(&path, value, visit);
                }
            }
        }
        _ if prefix.is_empty() => {}
        _ => visit(prefix, value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(origin: Origin, text: &str) -> Layer {
        Layer::parse(origin, &format!("format_version = 1\n{text}")).unwrap()
    }

    #[test]
    fn flags_beat_environment_beat_project_beat_user() {
        let mut layers = Layers::new();
        let flag = Origin::Flag { flag: "--mode".into() };
        let variable = Origin::Environment { variable: "FORMWORK_SANDBOX".into() };
        layers.push(Layer::set(flag.clone(), "permissions.mode", json!("auto")));
        layers.push(Layer::set(variable.clone(), "sandbox", json!("off")));
        let project = Origin::Project { file: "formwork.toml".into() };
        layers.push(file(
            project.clone(),
            "sandbox = 'on'\n[permissions]\nmode = 'edit'\nscope = ['src']\n",
        ));
        let user = Origin::User { file: "config.toml".into() };
        layers.push(file(user.clone(), "[permissions]\nmode = 'ask'\n[budget]\nusd = '5'\n"));

        let merged = layers.merge().unwrap();

        let entries: Vec<_> = merged
            .entries
            .iter()
            .map(|(key, value, origin)| (key.as_str(), value.clone(), origin.clone()))
            .collect();
        assert_eq!(
            entries,
            [
                ("budget.usd", json!("5"), user),
                ("permissions.mode", json!("auto"), flag),
                ("permissions.scope", json!(["src"]), project),
                ("sandbox", json!("off"), variable),
            ]
        );
    }

    #[test]
    fn limits_that_let_nothing_be_done_and_globs_that_lead_out_are_refused_with_their_places() {
        let user = Origin::User { file: "config.toml".into() };
        let text =
            "format_version = 1\n[budget]\nwall = '0s'\n[permissions]\nscope = ['src', '../x']\n";
        let rounds = "format_version = 1\n[budget]\nrounds = 0\n[permissions]\nask_within = '0s'\n";
        let mut layers = Layers::new();
        let variable = Origin::Environment { variable: "FORMWORK_BUDGET_ROUNDS".into() };
        layers.push(Layer::set(variable, "budget.rounds", json!(0)));

        let told = [text, rounds].map(|text| {
            let faults = Layer::parse(user.clone(), text).unwrap_err();
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        });
        let merged = layers.merge().unwrap_err().to_string();

        let out =
            "glob \"../x\" of write_paths leads out of the workspace: globs begin at its root";
        assert_eq!(
            told,
            [
                [
                    "config.toml:3:8: budget.wall: wanted more than no time, found 0s".to_owned(),
                    format!("config.toml:5:17: permissions.scope[1]: {out}"),
                ],
                [
                    "config.toml:3:10: budget.rounds: wanted at least 1, found 0".to_owned(),
                    "config.toml:5:14: permissions.ask_within: wanted more than no time, found 0s"
                        .to_owned(),
                ],
            ]
        );
        let wanted = "budget.rounds by FORMWORK_BUDGET_ROUNDS: wanted at least 1, found 0";
        assert_eq!(merged, wanted);
    }

    #[test]
    fn a_hook_that_would_never_be_asked_is_refused_with_its_place() {
        let user = Origin::User { file: "config.toml".into() };
        let text = "format_version = 1\n[[hooks]]\nevent = 'tool.before'\ntools = []\ncommand = ['gate']\n\
                    [[hooks]]\nevent = 'tool.before'\ncommand = []\n";

        let faults = Layer::parse(user, text).unwrap_err();

        let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "config.toml:4:9: hooks[0].tools: a hook about no tools is never asked; name tools, as in [\"exec\"], or \
                 leave the key out for all of them",
                "config.toml:8:11: hooks[1].command: its command names no program",
            ]
        );
    }

    #[test]
    fn what_no_run_could_use_is_refused_with_its_place_and_without_a_password() {
        let user = Origin::User { file: "config.toml".into() };
        let text = "format_version = 1\ndatabase_url = 'mysql://ada:hunter2@host/log'\n\
                    [instructions]\nfiles = ['../x']\n[permissions]\nexec = ['make', \"cargo 'test\"]\n";

        let faults = Layer::parse(user, text).unwrap_err();

        let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "config.toml:2:16: database_url: cannot open the store at mysql: the address of a store begins with \
                 sqlite: or postgres:; sqlite:///path/to/file, or postgres://user@host/database",
                "config.toml:4:9: instructions.files: the permissions cannot be used: instructions.files has \"../x\", \
                 which is no name of a file",
                "config.toml:6:17: permissions.exec[1]: command pattern \"cargo 'test\": a quote is not closed",
            ]
        );
        let shown = faults.iter().next().unwrap();
        assert!(!shown.text.contains("hunter2") && shown.text.contains("@host/log"), "{shown:?}");
    }

    #[test]
    fn a_flag_beats_the_file_that_another_flag_names() {
        let mut layers = Layers::new();
        // Its path sorts behind the name of any flag.
        layers.push(file(Origin::Flag { flag: "/tmp/a.toml".into() }, "sandbox = 'off'\n"));
        layers.push(Layer::set(Origin::Flag { flag: "--sandbox".into() }, "sandbox", json!("on")));

        let merged = layers.merge().unwrap();

        assert_eq!(merged.entries[0].1, json!("on"));
    }

    #[test]
    fn two_sources_of_one_key_do_not_add_up() {
        let mut layers = Layers::new();
        let user = Origin::User { file: "config.toml".into() };
        let claude = "[providers.claude]\nkind = 'openai-compatible'\nbase_url = 'http://a'\n";
        layers.push(file(user, &format!("{claude}api_key = {{ env = 'A' }}\n")));
        let flag = Origin::Flag { flag: "--key-file".into() };
        layers.push(Layer::set(flag, "providers.claude.api_key", json!({ "file": "k" })));

        let merged = layers.merge().unwrap();

        let provider = merged.config.providers.values().next().unwrap();
        assert_eq!(provider.api_key, Some(formwork_secrets::Source::File("k".into())));
    }

    #[test]
    fn what_is_wrong_with_a_price_is_told_of_the_one_that_was_meant() {
        let told = |price: &str| {
            let text = format!("format_version = 1\n[models.\"a/b\"]\nprice = {price}\n");
            let user = Origin::User { file: "config.toml".to_owned() };
            Layer::parse(user, &text).unwrap_err().to_string()
        };

        for (price, wanted) in [
            ("{ input = \"-1\", output = \"2\" }", "wanted at least 0, found -1"),
            ("{ input = \"NaN\", output = \"2\" }", "NaN"),
            ("{ input = \"1e3\", output = \"2\" }", "1e3"),
            ("{ input = \"1\" }", "missing key \"output\""),
            ("\"free\"", "unknown value \"free\""),
            ("3", "found an integer"),
        ] {
            let told = told(price);
            assert!(told.contains(wanted) && !told.contains("untagged"), "{price}: {told}");
        }
        let price = "{ input = \"1\", output = \"2\" }";
        for sound in [price, "\"local\""] {
            let text = format!("format_version = 1\n[models.\"a/b\"]\nprice = {sound}\n");
            assert!(Layer::parse(Origin::User { file: "c".to_owned() }, &text).is_ok());
        }
    }

    #[test]
    fn a_price_reaches_beyond_its_project_and_a_budget_does_not() {
        let origin = Origin::Project { file: "formwork.toml".into() };
        let text =
            "[budget]\nusd = '5'\n[categories]\ndefault = 'a/m'\n[models.'a/m']\nprice = 'local'\n";

        let reaching = file(origin, text).reaching(&Layers::new());

        // By a price of nothing, a budget of any size is none.
        assert_eq!(reaching, [r#"models."a/m".price"#]);
    }

    #[test]
    fn a_key_whose_ability_does_not_exist_yet_is_refused_by_name() {
        let origin = Origin::Project { file: "formwork.toml".into() };

        let faults = Layer::parse(origin, "format_version = 1\nautonomy = 'high'\nbugdet = {}\n")
            .unwrap_err();

        let text = faults.to_string();
        assert!(text.contains("autonomy") && text.contains("not yet supported"), "{text}");
        assert!(text.contains("nearest is \"budget\""), "{text}");
    }

    #[test]
    fn a_project_may_not_loosen_what_happens_once_a_budget_is_used_up() {
        let mut strict = Layers::new();
        let user = || Origin::User { file: "config.toml".into() };
        strict.push(file(user(), "[budget]\nusd = \"2\"\non_exhausted = \"cancel_all\""));
        let mut lax = Layers::new();
        lax.push(file(user(), "[budget]\ndiff_lines = 5\non_exhausted = { grace = \"5m\" }"));
        let project = |says: &str, below: &Layers| {
            let origin = Origin::Project { file: "formwork.toml".into() };
            file(origin, &format!("[budget]\n{says}")).reaching(below)
        };
        let (none, policy) = (Layers::new(), ["budget.on_exhausted"]);

        for laxer in ["on_exhausted = \"unlimited\"", "on_exhausted = { grace = \"10h\" }"] {
            for below in [&none, &strict, &lax] {
                assert_eq!(project(laxer, below), policy, "{laxer}");
            }
        }
        assert_eq!(project("on_exhausted = \"block_new\"", &strict), policy);
        for (stricter, below) in [
            ("on_exhausted = \"cancel_all\"", &strict),
            ("on_exhausted = \"block_new\"", &none),
            ("on_exhausted = { grace = \"1m\" }", &lax),
            ("diff_lines = 4", &lax),
        ] {
            assert!(project(stricter, below).is_empty(), "{stricter}");
        }
        assert_eq!(project("diff_lines = 6", &lax), ["budget.diff_lines"]);
    }

    #[test]
    fn a_project_may_lower_a_budget_of_the_user_and_not_raise_it() {
        let mut users = Layers::new();
        let user = Origin::User { file: "config.toml".into() };
        users.push(file(
            user,
            "[budget]\nusd = \"2\"\nrounds = 20\nwall = \"10m\"\ntree = { depth = 4 }",
        ));
        let project = |text: &str| {
            file(Origin::Project { file: "formwork.toml".into() }, text).reaching(&users)
        };

        let lower = project(
            "[budget]\nusd = \"1.5\"\nrounds = 20\ntokens = 1000000\ntree = { depth = 3, tasks = 9 }",
        );
        let higher = project("[budget]\nusd = \"10\"\nwall = \"1h\"\ntree = { depth = 5 }");

        assert!(lower.is_empty(), "{lower:?}");
        assert_eq!(higher, ["budget.usd", "budget.wall", "budget.tree.depth"]);
    }
}
