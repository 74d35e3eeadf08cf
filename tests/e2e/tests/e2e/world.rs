//! A workspace, a provider and the real program, as a person would have them.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use formwork_services::trust::{self, Kind};
use formwork_testkit::{http::Server, postgres::Postgres, repo::Repo};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// When a program that should have ended is taken to hang. Nothing waits for it that goes well.
pub(crate) const DEADLINE: Duration = Duration::from_secs(150);

/// Where the models of a world are asked: one provider each, so that each has answers of its own.
pub(crate) const PROVIDERS: [&str; 3] = ["one", "two", "three"];

/// A repository, a server that speaks for the models, and a home with config and state.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) repo: Repo,
    home: TempDir,
    database: Option<String>,
}

/// How a program ended, and all it said.
#[derive(Debug)]
pub(crate) struct Ended {
    /// None where a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    /// Makes a world in which agents may do whatever is not refused.
    pub(crate) async fn new() -> Self {
        Self::with("[permissions]\nmode = \"auto\"\n").await
    }

    /// Makes a world whose config says `more` besides its providers and models.
    pub(crate) async fn with(more: &str) -> Self {
        let server = Server::start().await.unwrap();
        let world = Self {
            repo: Repo::new().unwrap(),
            home: tempfile::Builder::new().prefix("formwork-home-").tempdir().unwrap(),
            database: None,
            server,
        };
        let config = world.providers(&world.server.url()) + more;
        std::fs::write(world.config_file(), config).unwrap();
        world.repo.write("README.md", "A repository to work on.\n").unwrap();
        world.repo.commit("readme: say what this is").unwrap();
        world
    }

    /// Returns what a config says of the models, all of which are asked at `url`.
    pub(crate) fn providers(&self, url: &str) -> String {
        let mut config = String::from("format_version = 1\nsandbox = \"auto\"\n");
        for name in PROVIDERS {
            config += &format!(
                "[providers.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{url}/{name}/v1\"\n\
                 [providers.{name}.retry]\ntries = 3\nbase = \"0s\"\ncap = \"5s\"\n\
                 [models.\"{name}/m\"]\nprice = {{ input = \"1\", output = \"2\" }}\n\
                 context_tokens = 100000\nmax_output_tokens = 1000\n"
            );
        }
        config + "[categories]\ndefault = \"one/m\"\n"
    }

    /// Keeps the log in this database instead of a file.
    pub(crate) fn on(mut self, database: &str) -> Self {
        self.database = Some(database.to_owned());
        self
    }

    /// Returns where the log is kept, where it is in no file.
    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Writes an agent that thinks with the model of `provider` and may use every tool.
    pub(crate) fn agent(&self, name: &str, provider: &str) {
        let folder = ".formwork/agents";
        let document = format!(
            "format_version = 1\nname = \"{name}\"\nmodel = \"{provider}/m\"\nprompt = \"{name}.md\"\n\
             [tools]\nallow = [\"*\"]\n"
        );
        self.repo.write(format!("{folder}/{name}.toml"), document).unwrap();
        self.repo.write(format!("{folder}/{name}.md"), "You do what is asked.\n").unwrap();
    }

    /// Writes a workflow and returns the name to run it by.
    pub(crate) fn workflow(&self, tasks: &str) -> &'static str {
        let document = format!("format_version = 1\nname = \"work\"\n{tasks}");
        self.repo.write(".formwork/workflows/work.toml", document).unwrap();
        "work"
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.home.path().join("given.toml")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    pub(crate) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.repo.path().join(file)
    }

    /// Returns where a model of `provider` is asked.
    pub(crate) fn chat(provider: &str) -> String {
        format!("/{provider}/v1/chat/completions")
    }

    /// Returns the program with the world's config and database, in its repository.
    pub(crate) fn formwork<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        self.trust();
        let mut command = self.bare(arguments);
        command.arg("--config").arg(self.config_file());
        if let Some(url) = &self.database {
            command.args(["--database-url", url]);
        }
        command
    }

    /// Trusts the agents and workflows that the repository brings, as whoever wrote them for a test does; its config and
    /// its tools are another matter.
    pub(crate) fn trust(&self) {
        let workspace = self.repo.path().canonicalize().unwrap();
        // What has faults is told by the program.
        for file in trust::brought(&workspace, &[]).unwrap_or_default() {
            if matches!(file.kind, Kind::Agent | Kind::Workflow | Kind::Contract) {
                trust::trust(&self.state(), &workspace, &file).unwrap();
            }
        }
    }

    /// Returns the program in the world's repository, with no config but what is there. It trusts nothing.
    pub(crate) fn bare<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .current_dir(self.repo.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("USER", "ada")
            .env("FORMWORK_STATE_DIR", self.state())
            .env("FORMWORK_CONFIG_DIR", self.home.path().join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        for name in ["PATH", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            if let Some(value) = variable(name) {
                command.env(name, value);
            }
        }
        if let Some(home) = variable("HOME").map(PathBuf::from) {
            // The toolchain of who runs the tests, for checks that build something.
            for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
                if variable(name).is_none() && home.join(folder).is_dir() {
                    command.env(name, home.join(folder));
                }
            }
        }
        command
    }

    /// Runs the program to its end.
    pub(crate) async fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Ended {
        end_of(self.formwork(arguments).spawn().unwrap()).await
    }

    /// Runs a verb that prints one JSON document and completes.
    pub(crate) async fn json<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Value {
        let ended = self
            .run(arguments.into_iter().map(|it| it.as_ref().to_owned()).chain(["--json".into()]))
            .await;
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        ended.json()
    }

    /// Returns the last run with its tasks.
    pub(crate) async fn shown(&self) -> Value {
        self.json(["runs", "show"]).await
    }

    /// Returns the events whose kinds begin with `kind`, oldest first; all for an empty one.
    pub(crate) async fn events(&self, kind: &str) -> Vec<Value> {
        let page = self.json(["events", "--limit", "1000", "--kind", kind]).await;
        page["events"].as_array().unwrap().clone()
    }

    /// Checks that the log is what was written.
    pub(crate) async fn assert_sound(&self) {
        let audit = self.json(["audit", "verify"]).await;
        assert_eq!(audit["sound"], true, "{audit:#}");
    }
}

impl Ended {
    /// Reads standard output as the one JSON document that it is.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self:#?}"))
    }

    /// Returns the last line of standard output.
    pub(crate) fn last_line(&self) -> &str {
        self.stdout.lines().last().unwrap_or_default()
    }
}

/// Waits for the end of a program.
///
/// # Panics
/// When it does not end before the deadline.
pub(crate) async fn end_of(child: Child) -> Ended {
    let output = tokio::time::timeout(DEADLINE, child.wait_with_output())
        .await
        .expect("the program ends before the deadline")
        .unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Sends a signal to a program that runs.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().unwrap()));
    rustix::process::kill_process(pid.expect("the program runs"), signal).unwrap();
}

/// Runs a scenario on PostgreSQL, or says that it is skipped.
pub(crate) async fn on_postgres(scenario: impl AsyncFnOnce(World)) {
    let Some(cluster) = Postgres::shared() else { return };
    let database = cluster.database().unwrap();
    scenario(World::new().await.on(database.url())).await;
}

/// Makes a pipe that a program of the scene waits at.
pub(crate) fn pipe(world: &World, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(world.path(name)).status().unwrap();
    assert!(made.success());
}

/// Waits until a program waits at a pipe, and returns what lets it go on once it is dropped.
pub(crate) async fn waits_at(world: &World, name: &str) -> std::fs::File {
    let pipe = world.path(name);
    // Nobody can open it to write before somebody has opened it to read.
    let opened = move || std::fs::File::options().write(true).open(pipe).unwrap();
    tokio::task::spawn_blocking(opened).await.unwrap()
}

/// Finds the program next to the test's own executable.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().nth(2).expect("tests are built below the target folder");
    let program = folder.join(format!("formwork{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.is_file(),
        "there is no {}: run `cargo build -p formwork-cli` first",
        program.display()
    );
    program
}

#[expect(
    clippy::disallowed_methods,
    reason = "the program is given part of the test's environment"
)]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
