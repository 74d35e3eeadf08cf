//! A workspace with a log, and a process that works there until it is done or dies.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, anyhow, bail};
use formwork_protocols::{Principal, RunId, Span};
use formwork_services::{
    Builder, Formwork,
    capability::Caller,
    config::{Layer, Layers, Origin},
    operations::runs::{List, ListParams, Resume, ResumeParams, Start, StartParams, Work},
    trust,
};
use formwork_testkit::between::Through;
use serde_json::{Map, json};
use tempfile::TempDir;

use crate::{
    fatal::{Fatal, Fate},
    model::Diligent,
    tools,
};

const CONFIG: &str = r#"
format_version = 1
sandbox = "off"

[permissions]
mode = "auto"

[categories]
default = "made/any"

[models."made/any"]
price = { input = "1", output = "2" }
context_tokens = 1000000
max_output_tokens = 1000
"#;

const AGENT: &str = r#"
format_version = 1
name = "worker"
model = "made/any"
prompt = "worker.md"

[tools]
allow = ["*"]
"#;

/// A folder with a workspace and a state in it, which goes with the value.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    /// Makes a place whose log is at `url`, or in a file of its own.
    pub(crate) fn new(url: Option<&str>, workflow: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("formwork-crash-").tempdir()?;
        let place = Self { folder };
        let workspace = workspace(place.path());
        fs::create_dir_all(workspace.join(".formwork/agents"))?;
        fs::write(workspace.join(".formwork/agents/worker.toml"), AGENT)?;
        fs::write(workspace.join(".formwork/agents/worker.md"), "You do what is asked.\n")?;
        let script = format!("echo \"exec:$1\" >> {}\n", tools::EFFECTS);
        fs::write(workspace.join("mark.sh"), script)?;
        fs::write(workspace.join("suite.sh"), "echo one test; test -f out/r2.txt\n")?;
        fs::create_dir_all(place.path().join("state"))?;
        let (state, workspace) = (place.path().join("state"), workspace.canonicalize()?);
        for file in trust::brought(&workspace, &[]).map_err(|faults| anyhow!("{faults}"))? {
            trust::trust(&state, &workspace, &file)?;
        }
        fs::write(place.path().join("workflow.toml"), workflow)?;
        if let Some(url) = url {
            fs::write(place.path().join("url"), url)?;
        }
        Ok(place)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the place when the value goes, for whoever wants to look at it, and returns its path.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    /// Starts a process that works there.
    pub(crate) fn process(&self, fate: Option<Fate>) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--work").arg(self.path()).stdin(Stdio::null());
        if let Some(fate) = fate {
            command.args(["--fate", &fate.to_string()]);
        }
        Ok(command)
    }

    /// Has a process work there to its end, whatever that is.
    pub(crate) fn visit(&self, fate: Option<Fate>) -> Result<ExitStatus> {
        Ok(self.process(fate)?.status()?)
    }
}

/// Returns the workspace of a place.
pub(crate) fn workspace(folder: &Path) -> PathBuf {
    folder.join("workspace")
}

/// Returns where the log of a place is.
pub(crate) fn url(folder: &Path) -> String {
    let given = fs::read_to_string(folder.join("url"));
    given.unwrap_or_else(|_| format!("sqlite://{}", folder.join("state/formwork.db").display()))
}

/// Opens Formwork in a place, with a store around the real one.
pub(crate) async fn open(folder: &Path, lease: Option<Span>, before: Fatal) -> Result<Formwork> {
    let mut layers = Layers::new();
    let text = format!("database_url = {:?}\n{CONFIG}", url(folder));
    layers.push(Layer::parse(Origin::Flag { flag: "formwork-crash".to_owned() }, &text)?);
    let workspace = workspace(folder);
    let mut builder = Builder::new(&workspace)
        .state(folder.join("state"))
        .config(layers.merge()?.config)
        .environment([("PATH", "/usr/local/bin:/usr/bin:/bin")])
        .provider(Arc::new(Diligent::new()))
        .around_log(move |store| Arc::new(Through::new(store, before)));
    if let Some(lease) = lease {
        builder = builder.lease(lease);
    }
    for tool in tools::all(&workspace) {
        builder = builder.tool(tool);
    }
    builder.build().await.context("cannot open Formwork")
}

pub(crate) fn caller() -> Result<Caller> {
    Ok(Caller::owner(Principal::parse("user:ada")?))
}

/// Starts the workflow of a place.
pub(crate) async fn start(
    formwork: &Formwork,
    folder: &Path,
    vars: Map<String, serde_json::Value>,
) -> Result<RunId> {
    let text = fs::read_to_string(folder.join("workflow.toml"))?;
    let work = Work::Workflow { source: "workflow.toml".to_owned(), text };
    // What is not said is as it is where nobody says anything.
    let params: StartParams = serde_json::from_value(json!({ "work": work, "vars": vars }))?;
    Ok(formwork.call::<Start>(&caller()?, params).await?.run)
}

/// Begins the one run of a place, or takes it up, and works on it to its end.
pub(crate) fn work(folder: &Path, fate: Option<Fate>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let formwork = open(folder, None, Fatal::new(fate)).await?;
        let params = ListParams { before: None, limit: Some(2) };
        let runs = formwork.call::<List>(&caller()?, params).await?.runs;
        let run = match runs.as_slice() {
            [] => start(&formwork, folder, Map::new()).await?,
            [row] if row.state.is_terminal() => return Ok(()),
            [row] => formwork.call::<Resume>(&caller()?, ResumeParams { run: row.run }).await?.run,
            _ => bail!("there is more than one run"),
        };
        formwork.wait(run).await?;
        formwork.close().await;
        Ok(())
    })
}
