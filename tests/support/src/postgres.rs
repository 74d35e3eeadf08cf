//! One throw-away PostgreSQL cluster for all test processes of a user, a database per test.
//!
//! A test runner may start a process per test, and a cluster takes over a second to make, so
//! processes share one. Who uses it holds a shared lock on one file; a watchdog waits for the
//! exclusive lock, which the kernel grants once the last user is gone, however it ended, and then
//! stops the server and removes its folder. Nothing counts references, so nothing miscounts them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use uuid::Uuid;

use crate::require;

/// The number in the socket's name. Nobody listens on TCP, and each cluster has its own folder.
const PORT: &str = "5432";

/// The role that owns everything in the cluster.
const ROLE: &str = "formwork";

/// How long the cluster stays after its last user, in seconds: the next test process of the same
/// run starts within it.
const LINGER_SECONDS: &str = "3";

/// How often to try again when the watchdog stops a cluster that was just found alive.
const TRIES: usize = 5;

/// Who runs the server when the tests run as root, which PostgreSQL refuses to be: the first of
/// these accounts that exists.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// Waits until no test process holds the lock, then ends the server and removes its folder.
///
/// Between two tests there is a moment without a user, so it lingers and asks again; it holds the
/// lock while it stops the server, so that nobody joins a cluster that is about to go.
const WATCHDOG: &str = r#"
trap '' HUP INT TERM
lock=$1 folder=$2 linger=$3
shift 3
exec 9<"$lock" || exit 1
while :; do
    flock 9
    flock --unlock 9
    sleep "$linger"
    flock --nonblock 9 && break
done
"$@" >/dev/null 2>&1
rm -rf "$folder"
"#;

/// Why there is no PostgreSQL to test with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The programs of the server are not on this machine.
    #[error(
        "no initdb in PATH or in /usr/lib/postgresql/*/bin (Debian: apt-get install postgresql)"
    )]
    NotInstalled,
    /// A file or a process could not be used.
    #[error("cannot use {path} for PostgreSQL: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// A program of PostgreSQL ran and failed.
    #[error("{program} ended with {status}: {stderr}")]
    Program { program: String, status: std::process::ExitStatus, stderr: String },
    /// The cluster was stopped each time before it could be used.
    #[error("the cluster ended {tries} times before it could be used")]
    Vanishing { tries: usize },
}

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// No: a crash of the machine may lose the cluster, which is thrown away in any case.
    Trusted,
    /// Yes.
    Synced,
}

/// The shared cluster, kept alive while this process lives.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    programs: Programs,
    disk: Disk,
    _in_use: File, // Holds the shared lock; the kernel gives it back however the process ends.
}

impl Postgres {
    /// Returns the cluster that the test processes of this user share, started if need be.
    ///
    /// Returns `None`, and says `SKIP postgres` with the reason on standard error, where
    /// PostgreSQL cannot be had.
    ///
    /// # Panics
    /// When PostgreSQL cannot be had and `FORMWORK_REQUIRE` names `postgres`.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED
            .get_or_init(|| require::present_or_skipped("postgres", Self::join_or_start()))
            .as_ref()
    }

    /// Starts a cluster that no other test shares, so that it can be stopped and started again. It goes
    /// when the value is dropped, and takes a second to make.
    ///
    /// Returns `None`, and says `SKIP postgres` with the reason on standard error, where
    /// PostgreSQL cannot be had.
    ///
    /// # Panics
    /// When PostgreSQL cannot be had and `FORMWORK_REQUIRE` names `postgres`.
    pub fn of_ones_own() -> Option<Self> {
        require::present_or_skipped("postgres", Self::start_own(Disk::Trusted))
    }

    /// Starts a cluster of one's own that waits for the disk at each commit, as one in use does, so that
    /// what this costs can be measured.
    ///
    /// Returns `None`, and says `SKIP postgres` with the reason on standard error, where
    /// PostgreSQL cannot be had.
    ///
    /// # Panics
    /// When PostgreSQL cannot be had and `FORMWORK_REQUIRE` names `postgres`.
    pub fn that_syncs() -> Option<Self> {
        require::present_or_skipped("postgres", Self::start_own(Disk::Synced))
    }

    /// Stops the server of a cluster of one's own, as if its machine had lost power.
    ///
    /// # Errors
    /// [`Error::Program`] with what `pg_ctl` said.
    pub fn stop(&self) -> Result<(), Error> {
        let mut command = self.programs.command("pg_ctl", &self.folder);
        command.args(["stop", "--wait", "--mode=immediate", "--pgdata"]);
        command.arg(self.folder.join("data"));
        run("pg_ctl stop", command)
    }

    /// Starts the server of a cluster of one's own again.
    ///
    /// # Errors
    /// [`Error::Program`] with what `pg_ctl` said.
    pub fn start(&self) -> Result<(), Error> {
        self.programs.serve(&self.folder, self.disk)
    }

    /// Makes an empty database of the test's own. It goes when the value is dropped, and at the
    /// latest with the cluster.
    ///
    /// # Errors
    /// [`Error::Program`] with what `createdb` said.
    pub fn database(&self) -> Result<Database<'_>, Error> {
        let name = format!("t{}", Uuid::new_v4().simple());
        self.client("createdb", &[&name])?;
        let url = format!(
            "postgres://{ROLE}@localhost/{name}?host={}&port={PORT}",
            self.folder.display()
        );
        Ok(Database { url, name, cluster: self })
    }

    fn client(&self, program: &str, arguments: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(self.programs.path(program));
        command.arg("-h").arg(&self.folder).args(["-p", PORT, "-U", ROLE]).args(arguments);
        run(program, command)
    }

    fn start_own(disk: Disk) -> Result<Self, Error> {
        let programs = Programs::find()?;
        let name = format!("formwork-postgres-{}.lock", Uuid::new_v4().simple());
        let lock = std::env::temp_dir().join(name);
        let io = |source| Error::Io { path: lock.clone(), source };
        let file = File::create_new(&lock).map_err(io)?;
        file.lock().map_err(io)?;
        let folder = programs.start(&lock, disk)?;
        // The watchdog has the file open by now, and nobody else has to find it.
        std::fs::remove_file(&lock).map_err(io)?;
        file.lock_shared().map_err(io)?;
        Ok(Self { folder, programs, disk, _in_use: file })
    }

    fn join_or_start() -> Result<Self, Error> {
        let programs = Programs::find()?;
        // Users of one machine don't share: the server runs with the rights of one of them.
        let lock = std::env::temp_dir().join(format!("formwork-postgres-{}.lock", user_id()?));
        let io = |source| Error::Io { path: lock.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock)
            .map_err(io)?;
        for _ in 0..TRIES {
            file.lock_shared().map_err(io)?;
            if let Some(folder) = living_cluster(&mut file).map_err(io)? {
                return Ok(Self { folder, programs, disk: Disk::Trusted, _in_use: file });
            }
            file.unlock().map_err(io)?;

            file.lock().map_err(io)?;
            // Another process may have started one while this one waited.
            if living_cluster(&mut file).map_err(io)?.is_none() {
                let folder = programs.start(&lock, Disk::Trusted)?;
                record(&mut file, &folder).map_err(io)?;
            }
            file.unlock().map_err(io)?;
        }
        Err(Error::Vanishing { tries: TRIES })
    }
}

/// An empty database that one test has to itself.
#[derive(Debug)]
pub struct Database<'a> {
    url: String,
    name: String,
    cluster: &'a Postgres,
}

impl Database<'_> {
    /// Returns the address to connect to, through a Unix socket.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // A failure is left to the watchdog, which removes the whole cluster.
        let _ = self.cluster.client("dropdb", &["--force", "--if-exists", &self.name]);
    }
}

/// Where the server's programs are, and who runs them.
#[derive(Debug)]
struct Programs {
    folder: PathBuf,
    run_as: Option<&'static str>,
}

impl Programs {
    fn find() -> Result<Self, Error> {
        let folder = program_folders()
            .into_iter()
            .find(|folder| folder.join("initdb").is_file() && folder.join("pg_ctl").is_file())
            .ok_or(Error::NotInstalled)?;
        let run_as = if user_id()? == 0 {
            UNPRIVILEGED.into_iter().find(|user| id(&["-u", user]).is_some())
        } else {
            None
        };
        Ok(Self { folder, run_as })
    }

    fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// Returns the start of an argument vector that runs `program` without root's rights.
    fn unprivileged(&self, program: &str) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(user) = self.run_as {
            arguments.push("setpriv".to_owned());
            arguments.push(format!("--reuid={user}"));
            arguments
                .push(format!("--regid={}", id(&["-g", user]).unwrap_or_else(|| user.to_owned())));
            arguments.push("--clear-groups".to_owned());
        }
        arguments.push(self.path(program).display().to_string());
        arguments
    }

    /// Makes a cluster in a new folder and returns the folder once the server answers.
    ///
    /// The caller holds the exclusive lock, so the watchdog waits: it is started first, and thus
    /// there is no moment in which a killed process leaves a server without one.
    fn start(&self, lock: &Path, disk: Disk) -> Result<PathBuf, Error> {
        let folder = tempfile::Builder::new()
            .prefix("formwork-pg-")
            .tempdir()
            .map_err(|source| Error::Io { path: std::env::temp_dir(), source })?
            .keep();
        let io = |source| Error::Io { path: folder.clone(), source };
        if let Some(user) = self.run_as {
            let owner = id(&["-u", user]).and_then(|id| id.parse().ok());
            std::os::unix::fs::chown(&folder, owner, None).map_err(io)?;
        }
        let data = folder.join("data").display().to_string();

        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "formwork-postgres-watchdog"]);
        watchdog.arg(lock).arg(&folder).arg(LINGER_SECONDS);
        watchdog.args(self.unprivileged("pg_ctl"));
        watchdog.args(["stop", "--wait", "--mode=immediate", "--pgdata", &data]);
        quiet(&mut watchdog, &folder);
        // Its own group, so that an interrupt of the test run does not reach it.
        watchdog.process_group(0).spawn().map_err(io)?;

        let mut initdb = self.command("initdb", &folder);
        initdb.args(["--pgdata", &data, "--username", ROLE, "--auth", "trust"]);
        initdb.args(["--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"]);
        run("initdb", initdb)?;
        self.serve(&folder, disk)?;
        Ok(folder)
    }

    /// Starts the server of the cluster in `folder` and returns once it answers.
    fn serve(&self, folder: &Path, disk: Disk) -> Result<(), Error> {
        let syncs = match disk {
            Disk::Trusted => "-c fsync=off -c synchronous_commit=off -c full_page_writes=off",
            Disk::Synced => "-c fsync=on -c synchronous_commit=on",
        };
        let settings = format!(
            "-p {PORT} -c listen_addresses='' -c unix_socket_directories='{}' \
             -c unix_socket_permissions=0700 {syncs} -c max_connections=200 \
             -c shared_buffers=32MB",
            folder.display()
        );
        let mut server = self.command("pg_ctl", folder);
        server.args(["start", "--wait", "--timeout=60", "--options", &settings]);
        server.arg("--pgdata").arg(folder.join("data"));
        server.arg("--log").arg(folder.join("log"));
        run("pg_ctl start", server)
    }

    fn command(&self, program: &str, folder: &Path) -> Command {
        let arguments = self.unprivileged(program);
        let (first, rest) = arguments.split_first().expect("the program itself is always there");
        let mut command = Command::new(first);
        command.args(rest).current_dir(folder);
        command
    }
}

/// Lists the folders that may hold the server's programs: Debian's, newest first, then `PATH`.
fn program_folders() -> Vec<PathBuf> {
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    debian.sort();
    debian.reverse();
    debian.extend(path_folders());
    debian
}

#[expect(clippy::disallowed_methods, reason = "a test run is configured by its environment")]
fn path_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Returns the folder of the cluster that `lock` names, if its server accepts connections.
fn living_cluster(lock: &mut File) -> io::Result<Option<PathBuf>> {
    let mut recorded = String::new();
    lock.rewind()?;
    lock.read_to_string(&mut recorded)?;
    let folder = PathBuf::from(recorded);
    let socket = folder.join(format!(".s.PGSQL.{PORT}"));
    Ok(UnixStream::connect(socket).is_ok().then_some(folder))
}

fn record(lock: &mut File, folder: &Path) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(folder.as_os_str().as_encoded_bytes())
}

/// Returns the id of the user whose tests run, as the owner of this process's own entry in `/proc`
/// or, where there is none, as `id` says it.
fn user_id() -> Result<u32, Error> {
    if let Ok(own) = std::fs::metadata("/proc/self") {
        return Ok(own.uid());
    }
    id(&["-u"]).and_then(|id| id.parse().ok()).ok_or_else(|| Error::Io {
        path: PathBuf::from("id"),
        source: io::Error::from(io::ErrorKind::NotFound),
    })
}

/// Asks the program `id`, and returns `None` for a user that does not exist.
fn id(arguments: &[&str]) -> Option<String> {
    let output = Command::new("id").args(arguments).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| answer.trim().to_owned())
}

/// Runs `command` to its end with its standard error kept in a file.
///
/// Not a pipe: a server that `pg_ctl` leaves behind would hold it open for ever.
fn run(program: &str, mut command: Command) -> Result<(), Error> {
    let io = |source| Error::Io { path: PathBuf::from(program), source };
    let mut stderr = tempfile::tempfile().map_err(io)?;
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(io)?)
        .status()
        .map_err(io)?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    stderr.rewind().and_then(|()| stderr.read_to_string(&mut said)).map_err(io)?;
    Err(Error::Program { program: program.to_owned(), status, stderr: said.trim().to_owned() })
}

/// Cuts every pipe and folder that a process which outlives us would keep.
fn quiet(command: &mut Command, folder: &Path) {
    let root = folder.ancestors().last().unwrap_or(folder);
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}
