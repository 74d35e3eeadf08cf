//! Folders, config files and the environment: what the world around the program says.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use etcetera::BaseStrategy as _;
use formwork_protocols::{Principal, document};
use formwork_services::{
    config::{HookConfig, Layer, Layered, Layers, Origin},
    trust::{self, Brought},
};
use serde_json::Value;

use crate::{args::Global, fault::Fault};

/// Environment variables that set a value of the config, and which.
const VARIABLES: [(&str, &str); 3] = [
    ("FORMWORK_DATABASE_URL", "database_url"),
    ("FORMWORK_MODE", "permissions.mode"),
    ("FORMWORK_SANDBOX", "sandbox"),
];

/// Environment variables that set nothing of the config: they say where things are, or belong to one verb; `FORMWORK_REQUIRE`
/// belongs to the tests.
const PLACES: [&str; 4] =
    ["FORMWORK_CONFIG_DIR", "FORMWORK_STATE_DIR", "FORMWORK_REQUIRE", WORKER_TOKEN];

/// The environment variable that holds the token of a worker.
pub(crate) const WORKER_TOKEN: &str = "FORMWORK_WORKER_TOKEN";

/// The name of a config file, in a project and in the user's folder.
const CONFIG_FILE: [&str; 2] = ["formwork.toml", "config.toml"];

/// What the world around the program says.
pub(crate) struct Settings {
    /// The root of the workspace.
    pub workspace: PathBuf,
    /// Where the log, the trash and the trust are: outside of every workspace.
    pub state: PathBuf,
    /// Where the user's own config is.
    pub configured: PathBuf,
    /// The merged config, and where each value came from.
    pub layered: Layered,
    /// The variables of the environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// Who acts.
    pub principal: Principal,
    /// The project's config, if it has one.
    pub project: Option<Project>,
}

/// A project's config file.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    /// Where it is.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// The keys that it may not set before it is trusted, as far as it sets them.
    pub reaching: Vec<String>,
    /// The programs that it names.
    pub hooks: Vec<HookConfig>,
    /// The first file that is not trusted as it stands now, of it and of those that its hooks name.
    pub untrusted: Option<PathBuf>,
}

impl Project {
    /// Returns it as what is trusted.
    pub(crate) fn brought(&self) -> Brought {
        Brought::config(&self.path, &self.text, self.reaching.clone())
    }
}

/// What of a project's config has to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The config takes effect: an untrusted one that reaches beyond its project is a fault.
    Effect,
    /// The config is only looked at.
    Look,
    /// The config is held to its rules, trusted or not: nothing is sent and nothing runs by it.
    Check,
}

impl Settings {
    /// Reads everything. `flags` are the layers that the command line adds.
    ///
    /// # Errors
    /// A setup fault that names the file, the variable or the folder.
    pub(crate) fn load(global: &Global, flags: Vec<Layer>, need: Need) -> Result<Self, Fault> {
        let environment: BTreeMap<_, _> = env::vars_os().collect();
        let workspace = workspace(global.dir.as_deref())?;
        let (config_dir, state) = folders(&environment)?;
        let mut layers = Layers::new();

        let user = config_dir.join(CONFIG_FILE[1]);
        if let Some(text) = read(&user)? {
            layers.push(Layer::parse(Origin::User { file: user.display().to_string() }, &text)?);
        }
        let project = match &global.config {
            Some(path) => {
                let text = formwork_services::reading::document(path)
                    .with_context(|| format!("cannot read {}", path.display()))
                    .map_err(Fault::setup)?;
                let origin = Origin::Flag { flag: path.display().to_string() };
                layers.push(Layer::parse(origin, &text)?);
                None
            }
            None => project(&workspace, &state, need, &mut layers)?,
        };
        for layer in variables(&environment)?.into_iter().chain(flags) {
            layers.push(layer);
        }
        if let Some(url) = &global.database_url {
            let origin = Origin::Flag { flag: "--database-url".to_owned() };
            layers.push(Layer::set(origin, "database_url", Value::String(url.clone())));
        }
        let layered = layers
            .merge()
            .context(
                "the environment or the command line sets a value that the config does not allow",
            )
            .map_err(Fault::setup)?;
        let principal = principal(&environment);
        Ok(Self {
            workspace,
            state,
            configured: config_dir,
            layered,
            environment,
            principal,
            project,
        })
    }

    /// Returns a variable of the environment as text.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(OsString::from(name).as_os_str()).and_then(|value| value.to_str())
    }
}

/// Finds the root of the workspace: the folder that was named, or the nearest one above the present
/// folder that holds a repository or a project's config, or the present folder.
pub(crate) fn workspace(named: Option<&Path>) -> Result<PathBuf, Fault> {
    if let Some(named) = named {
        let found = named
            .canonicalize()
            .with_context(|| format!("there is no folder {}", named.display()))
            .map_err(Fault::setup)?;
        return match found.is_dir() {
            true => Ok(found),
            false => Err(Fault::setup(anyhow!("{} is no folder", named.display()))),
        };
    }
    let here = env::current_dir()
        .context("the present folder is gone or cannot be entered")
        .map_err(Fault::setup)?;
    let marked = |folder: &&Path| {
        [CONFIG_FILE[0], ".formwork", ".git"].iter().any(|name| folder.join(name).exists())
    };
    Ok(here.ancestors().find(marked).unwrap_or(&here).to_owned())
}

/// Returns the user's folders for config and for state.
fn folders(environment: &BTreeMap<OsString, OsString>) -> Result<(PathBuf, PathBuf), Fault> {
    let named = |name: &str| {
        let dir =
            environment.get(OsString::from(name).as_os_str()).filter(|dir| !dir.is_empty())?;
        // What is started in another folder has to find it too.
        std::path::absolute(dir).ok()
    };
    let (config, state) = (named("FORMWORK_CONFIG_DIR"), named("FORMWORK_STATE_DIR"));
    if let (Some(config), Some(state)) = (&config, &state) {
        return Ok((config.clone(), state.clone()));
    }
    let base = etcetera::choose_base_strategy().map_err(|error| {
        Fault::setup(anyhow!("there is no home folder: {error}"))
            .hint("set HOME, or FORMWORK_CONFIG_DIR and FORMWORK_STATE_DIR")
    })?;
    let config = config.unwrap_or_else(|| base.config_dir().join("formwork"));
    let state = state
        .unwrap_or_else(|| base.state_dir().unwrap_or_else(|| base.data_dir()).join("formwork"));
    // The folder of the present would hold what is kept apart from every workspace.
    if let Some(relative) = [&config, &state].into_iter().find(|folder| !folder.is_absolute()) {
        return Err(Fault::setup(anyhow!(
            "the home folder is no whole path: it makes {}",
            relative.display()
        ))
        .hint(
            "set HOME to a path that begins with /, or FORMWORK_CONFIG_DIR and FORMWORK_STATE_DIR",
        ));
    }
    Ok((config, state))
}

/// Reads a file that need not be there.
fn read(path: &Path) -> Result<Option<String>, Fault> {
    match formwork_services::reading::document(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::setup(
            anyhow::Error::from(error).context(format!("cannot read {}", path.display())),
        )),
    }
}

/// Reads the project's config. It takes effect whole or not at all.
fn project(
    workspace: &Path,
    state: &Path,
    need: Need,
    layers: &mut Layers,
) -> Result<Option<Project>, Fault> {
    let path = workspace.join(CONFIG_FILE[0]);
    let Some(text) = read(&path)? else { return Ok(None) };
    let layer = Layer::parse(Origin::Project { file: CONFIG_FILE[0].to_owned() }, &text)?;
    let reaching = layer.reaching(layers);
    let mut project = Project { path, text, reaching, hooks: layer.hooks(), untrusted: None };
    if !project.reaching.is_empty() {
        let programs = trust::of_hooks(workspace, &project.hooks);
        let mut needed = std::iter::once(project.brought()).chain(programs);
        let untrusted = needed.find(|file| !file.is_trusted(state, workspace));
        project.untrusted = untrusted.map(|file| file.path);
    }
    match &project.untrusted {
        Some(file) if need == Need::Effect => {
            let why = match *file == project.path {
                true => {
                    let keys = project.reaching.join(", ");
                    format!("sets what reaches beyond this project: {keys}")
                }
                false => format!("is run by a hook of {}", project.path.display()),
            };
            return Err(Fault::setup(anyhow!("{} is not trusted and {why}", file.display())).hint(
                "read the file, then run `formwork trust`; any later change needs it again",
            ));
        }
        Some(_) if need == Need::Look => {}
        _ => layers.push(layer),
    }
    Ok(Some(project))
}

/// Reads the layers that the environment adds.
fn variables(environment: &BTreeMap<OsString, OsString>) -> Result<Vec<Layer>, Fault> {
    let mut layers = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with("FORMWORK_")) else {
            continue;
        };
        if PLACES.contains(&name) {
            continue;
        }
        let known = VARIABLES.iter().find(|(variable, _)| *variable == name);
        let Some((_, key)) = known else {
            let names = VARIABLES.iter().map(|(name, _)| *name).chain(PLACES);
            let fault = Fault::setup(anyhow!("the environment sets {name}, which means nothing"));
            return Err(match document::nearest(name, names) {
                Some(nearest) => fault.hint(format!("did you mean {nearest}?")),
                None => fault,
            });
        };
        let value = value
            .to_str()
            .ok_or_else(|| Fault::setup(anyhow!("the environment variable {name} is not UTF-8")))?;
        if value.is_empty() {
            continue; // As a variable of CI that nobody has set.
        }
        let origin = Origin::Environment { variable: name.to_owned() };
        layers.push(Layer::set(origin, key, Value::String(value.to_owned())));
    }
    Ok(layers)
}

/// Names the person at the terminal.
fn principal(environment: &BTreeMap<OsString, OsString>) -> Principal {
    ["USER", "LOGNAME"]
        .iter()
        .filter_map(|name| environment.get(OsString::from(name).as_os_str())?.to_str())
        .find_map(|name| Principal::parse(format!("user:{name}")).ok())
        .unwrap_or_else(|| Principal::system("cli"))
}
