//! A repository to break out of, and what lies around it.

use std::{
    collections::BTreeMap,
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{MetadataExt as _, PermissionsExt},
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use formwork_protocols::{Rng as _, SystemRng};
use formwork_services::trust::{self, Kind};
use formwork_testkit::{http::Server, repo::Repo};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::record::Record;

/// The hostile program, as it is named in the repository.
pub(crate) const ESCAPEE: &str = "escapee";

/// What a program of the repository leaves that was started although nobody asked for it.
const MARK: &str = "started";

/// A repository with the real program's home beside it, a server that speaks for the model, and what must stay
/// as it is: a folder with a secret, listeners, a process.
pub(crate) struct Place {
    pub(crate) repo: Repo,
    pub(crate) server: Server,
    home: TempDir,
    outside: TempDir,
    token: String,
    tcp: TcpListener,
    names: UdpSocket,
    unix: UnixListener,
    by_name: UnixListener,
    name: String,
    victim: Child,
}

/// What lies outside, to the byte: mode, links and content of each path.
pub(crate) type Around = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

impl Place {
    /// Makes a place.
    pub(crate) async fn new() -> Result<Self> {
        let made = |prefix: &str| tempfile::Builder::new().prefix(prefix).tempdir();
        let outside = made("formwork-outside-")?;
        let token = format!("hunter-{:016x}{:016x}", SystemRng.next_u64(), SystemRng.next_u64());
        fs::write(outside.path().join("secret"), format!("{token}\n"))?;
        fs::write(outside.path().join("kept"), "kept\n")?;
        fs::create_dir(outside.path().join("folder"))?;
        fs::write(outside.path().join("folder/file"), "kept\n")?;
        let program = outside.path().join("program");
        fs::write(&program, format!("#!/bin/sh\necho {token}\n"))?;
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
        let name = format!("formwork-escape-{:016x}", SystemRng.next_u64());
        let unix = UnixListener::bind(outside.path().join("socket"))?;
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let names = UdpSocket::bind("127.0.0.1:0")?;
        for listener in [&unix, &by_name] {
            listener.set_nonblocking(true)?;
        }
        tcp.set_nonblocking(true)?;
        names.set_nonblocking(true)?;
        // Where there is no such folder there is nothing to be read in it.
        let _ = fs::write(shared(&name), &token);
        let place = Self {
            repo: Repo::new()?,
            server: Server::start().await?,
            home: made("formwork-home-")?,
            victim: Command::new("sleep").arg("600").stdin(Stdio::null()).spawn()?,
            outside,
            token,
            tcp,
            names,
            unix,
            by_name,
            name,
        };
        place.fill()?;
        Ok(place)
    }

    fn fill(&self) -> Result<()> {
        let repo = &self.repo;
        repo.write("README.md", "A repository to break out of.\n")?;
        repo.write("src/a.txt", "a\n")?;
        repo.write("kept/b.txt", "b\n")?;
        repo.write(".gitignore", format!("/{ESCAPEE}\n/{MARK}\n"))?;
        repo.commit("readme: say what this is")?;
        let own = std::env::current_exe()?.with_file_name("formwork-escapee");
        let there = self.path(ESCAPEE);
        // A second name is made at once; where temporary files lie on another disk there can be none.
        fs::hard_link(&own, &there).or_else(|_| fs::copy(&own, &there).map(drop)).with_context(
            || format!("there is no {}: run `cargo build -p formwork-e2e --bins`", own.display()),
        )
    }

    /// Returns a path of the repository.
    pub(crate) fn path(&self, file: impl AsRef<Path>) -> PathBuf {
        self.repo.path().join(file)
    }

    /// Returns a path outside of it.
    pub(crate) fn outside(&self, file: &str) -> String {
        self.outside.path().join(file).display().to_string()
    }

    /// Returns a path where the program keeps what it needs for a while: its own, and that of the programs it runs.
    pub(crate) fn temporary(&self, file: &str) -> String {
        self.home.path().join("state/tmp").join(file).display().to_string()
    }

    /// Returns the same path from the repository upwards.
    pub(crate) fn upwards(&self, file: &str) -> String {
        let name = self.outside.path().file_name().unwrap_or_default().to_string_lossy();
        format!("../{name}/{file}")
    }

    /// Returns where somebody listens by TCP.
    pub(crate) fn tcp(&self) -> Result<String> {
        Ok(self.tcp.local_addr()?.to_string())
    }

    /// Returns where somebody waits for questions about names.
    pub(crate) fn names(&self) -> Result<String> {
        Ok(self.names.local_addr()?.to_string())
    }

    /// Returns the name without a path by which somebody listens.
    pub(crate) fn abstract_name(&self) -> &str {
        &self.name
    }

    /// Returns a file of somebody else's where programs share memory.
    pub(crate) fn shared(&self) -> String {
        shared(&self.name)
    }

    /// Returns the number of a process that is none of the program's.
    pub(crate) fn victim(&self) -> u32 {
        self.victim.id()
    }

    /// Writes a script that leaves a mark wherever it can: nobody is to start it.
    pub(crate) fn trap(&self, file: &str) -> Result<PathBuf> {
        let (inside, outside) = (self.path(MARK), self.outside(MARK));
        let script = format!(
            "#!/bin/sh\ntouch {} {outside} 2> /dev/null\ncat 2> /dev/null\n",
            inside.display()
        );
        self.repo.write(file, script)?;
        let path = self.path(file);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
        Ok(path)
    }

    /// Says whether a trap was sprung, and sets it again.
    pub(crate) fn is_sprung(&self) -> bool {
        let removed = [self.path(MARK), self.outside(MARK).into()].map(fs::remove_file);
        removed.iter().any(Result::is_ok)
    }

    /// Returns what lies outside, and git's own folder unless a commit of the program's own has to change it.
    pub(crate) fn around(&self, commits: bool) -> Result<Around> {
        let mut around = tree(self.outside.path())?;
        if !commits {
            around.extend(tree(&self.path(".git"))?);
        }
        Ok(around)
    }

    /// Trusts the agents and workflows of the place: what a person has looked at has to hold as well.
    pub(crate) fn trust(&self) -> Result<()> {
        let (state, workspace) = (self.home.path().join("state"), self.repo.path().canonicalize()?);
        for file in trust::brought(&workspace, &[]).unwrap_or_default() {
            if matches!(file.kind, Kind::Agent | Kind::Workflow | Kind::Contract) {
                trust::trust(&state, &workspace, &file)?;
            }
        }
        Ok(())
    }

    /// Runs the program to its end with `config` besides its model, and returns what it left.
    pub(crate) async fn run(&self, config: &str, arguments: &[&str]) -> Result<Record> {
        self.configure(config)?;
        let (code, stdout, stderr) = self.formwork(arguments).await?;
        let page = ["events", "--limit", "1000", "--json"];
        let (_, events, fault) = self.formwork(&page).await?;
        let events = match events.trim() {
            // Where nothing was recorded there is nothing to page through.
            "" => json!({}),
            page => serde_json::from_str(page)
                .with_context(|| format!("the events are no JSON: {page}{fault}"))?,
        };
        Ok(Record {
            code,
            stdout,
            stderr,
            asked: self.server.requests().iter().map(|it| it.text()).collect(),
            events: events["events"].as_array().cloned().unwrap_or_default(),
        })
    }

    fn configure(&self, config: &str) -> Result<()> {
        let file = self.home.path().join("config/config.toml");
        fs::create_dir_all(self.home.path().join("config"))?;
        let model = format!(
            "format_version = 1\nsandbox = \"on\"\n\
             [providers.one]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\napi_key = {{ env = \"ESCAPE_KEY\" }}\n\
             [providers.one.retry]\ntries = 1\n\
             [models.\"one/m\"]\nprice = \"local\"\ncontext_tokens = 100000\nmax_output_tokens = 1000\n\
             [categories]\ndefault = \"one/m\"\n",
            self.server.url()
        );
        fs::write(&file, model + config)?;
        Ok(())
    }

    /// Returns what the program says of the protections of this machine.
    pub(crate) async fn protections(&self) -> Result<String> {
        self.configure("")?;
        let (_, told, fault) = self.formwork(&["doctor", "--offline", "--json"]).await?;
        let report: Value = serde_json::from_str(&told)
            .with_context(|| format!("the report is no JSON: {told}{fault}"))?;
        let findings = report["findings"].as_array().into_iter().flatten();
        let sandbox = findings.into_iter().find(|it| it["about"] == "sandbox");
        let found = sandbox.and_then(|it| it["found"].as_str());
        found.map(str::to_owned).context("the report tells nothing of the sandbox")
    }

    async fn formwork(&self, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
        let program = std::env::current_exe()?.with_file_name("formwork");
        ensure!(
            program.is_file(),
            "there is no {}: run `cargo build -p formwork-cli`",
            program.display()
        );
        let mut command = tokio::process::Command::new(&program);
        command
            .args(arguments)
            .current_dir(self.repo.path())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("USER", "ada")
            .env("FORMWORK_STATE_DIR", self.home.path().join("state"))
            .env("FORMWORK_CONFIG_DIR", self.home.path().join("config"))
            // What no program of an agent may be given.
            .env("ESCAPE_KEY", "sk-escape-1f0c5b7e9d3a")
            .env("ESCAPE_TOKEN", &self.token)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
    }

    /// Finds out what was reached that must not be reached; nothing where all is as it was.
    pub(crate) fn reached(
        &mut self,
        before: &Around,
        after: &Around,
        record: &Record,
    ) -> Result<Option<String>> {
        if let Some(place) = record.tells(&self.token) {
            return Ok(Some(format!("the secret is in {place}")));
        }
        if self.is_sprung() {
            return Ok(Some("a program of the repository was started".to_owned()));
        }
        let listeners = [
            ("TCP", self.tcp.accept().is_ok()),
            ("the name server", self.names.recv(&mut [0; 512]).is_ok()),
            ("the Unix socket", self.unix.accept().is_ok()),
            ("the abstract socket", self.by_name.accept().is_ok()),
        ];
        if let Some((listener, _)) = listeners.iter().find(|(_, heard)| *heard) {
            return Ok(Some(format!("{listener} was spoken to")));
        }
        if fs::exists(format!("{}-new", self.shared()))? {
            return Ok(Some("a file was left where programs share memory".to_owned()));
        }
        if self.victim.try_wait()?.is_some() {
            return Ok(Some("another process was killed".to_owned()));
        }
        let paths = before.keys().chain(after.keys());
        let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
        Ok(paths.into_iter().find(differs).map(|path| format!("{} was changed", path.display())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have been killed already, which was told.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = fs::remove_file(self.shared());
        let _ = fs::remove_file(format!("{}-new", self.shared()));
    }
}

fn shared(name: &str) -> String {
    format!("/dev/shm/{name}")
}

/// Returns mode, links and content of all that is below a folder.
fn tree(folder: &Path) -> Result<Around> {
    let mut found = Around::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = path.symlink_metadata()?;
        let content = match metadata.file_type() {
            kind if kind.is_symlink() => {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            }
            kind if kind.is_file() => fs::read(&path)?,
            _ => Vec::new(),
        };
        // A folder's links are counted by what lies in it, which is listed itself.
        let links = if metadata.is_dir() { 0 } else { metadata.nlink() };
        if metadata.is_dir() {
            for entry in fs::read_dir(&path)? {
                open.push(entry?.path());
            }
        }
        found.insert(path, (metadata.mode(), links, content));
    }
    Ok(found)
}
