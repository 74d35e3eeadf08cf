//! Runs commands.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    net::SocketAddr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio::{
    process::{Child, ChildStderr, ChildStdout},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Chunk, Command, Environment, Error, Exit, Finished, Gateway, Launcher, Limits, Network,
    NoRoute, Protection, Refusal, Routes, Status,
    capture::Recorder,
    control::{self, Handle},
    group::{Group, MARK, Tree},
    proxy::{Proxy, Seen},
    ready::{Ready, Started},
    temporary::OwnFolder,
    terminal,
    wire::{Report, Spec},
};

/// Once the tree has ended, output can only come from a process outside it that was handed a pipe.
const DRAIN: Duration = Duration::from_secs(1);
/// A launcher that has not reported this long after it should have is stuck.
const STUCK: Duration = Duration::from_secs(15);

/// Runs commands. Runs may overlap.
#[derive(Debug, Clone)]
pub struct Sandbox {
    environment: Environment,
    spool: PathBuf,
    temporary: Option<PathBuf>,
    launcher: Option<Launcher>,
    ready: Arc<Ready>,
}

impl Sandbox {
    /// Runs commands whose parent has `environment`; long output goes to temporary files in `spool`.
    pub fn new(environment: Environment, spool: impl Into<PathBuf>) -> Self {
        Self {
            environment,
            spool: spool.into(),
            temporary: None,
            launcher: None,
            ready: Arc::default(),
        }
    }

    /// Runs commands below `launcher`, which [`Protection::Restricted`] needs on Linux. From the first command on, two
    /// processes of it wait for the next one and do nothing, as long as this or a clone of it is there.
    #[must_use]
    pub fn with_launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self.ready = Arc::default();
        self
    }

    /// Gives each command a folder of its own below `folder` for what it needs for a while, named by `TMPDIR`. It may be
    /// written whatever the limits say, no other command can reach it, and it is gone once the command has ended.
    #[must_use]
    pub fn with_temporary(mut self, folder: impl Into<PathBuf>) -> Self {
        self.temporary = Some(folder.into());
        self
    }

    /// Says whether commands can be held to a [`Gateway`] here, by doing so once: who may have a network of their own differs
    /// from machine to machine, and no file tells.
    pub async fn gateways(&self) -> Status {
        let network = Network::Through(Gateway::new(Nowhere));
        let limits = Limits { network, ..Limits::new(Limits::system_roots(), [""; 0]) };
        let command = Command::new(["true"], "/", Protection::Restricted(limits));
        match Box::pin(self.run(command, CancellationToken::new(), None)).await {
            Ok(finished) if finished.succeeded() => {
                Status::Active("a network of its own, Landlock, seccomp".into())
            }
            Ok(finished) => Status::Missing(finished.exit.to_string()),
            Err(Error::ProtectionMissing { reason, .. }) => Status::Missing(reason),
            Err(error) => Status::Missing(error.to_string()),
        }
    }

    /// Runs `command` and returns once its whole tree has ended.
    ///
    /// It ends by itself, by its timeout, or by `cancel`: then it is sent TERM and, after its grace,
    /// killed. What it leaves running when it ends by itself is killed 200 ms later. A `watcher` is
    /// sent output as it comes, and misses some when its channel is full.
    ///
    /// Dropping the future kills the tree at once.
    ///
    /// # Errors
    /// Nothing was run, but for [`Error::LauncherLost`] and [`Error::Watch`], after which nothing
    /// runs any more.
    pub async fn run(
        &self,
        mut command: Command,
        cancel: CancellationToken,
        watcher: Option<mpsc::Sender<Chunk>>,
    ) -> Result<Finished, Error> {
        check(&command)?;
        let mut environment = self.environment.of(&command)?;
        let own = self.temporary.as_deref().map(|within| {
            let source = |source| Error::Temporary { program: command.program(), source };
            OwnFolder::make(within).map_err(source)
        });
        let own = own.transpose()?;
        if let Some(own) = &own {
            own.give(&mut command, &mut environment);
        }
        let proxy = way_out(&command).map(Arc::new);
        if let Some(proxy) = &proxy {
            proxy.give(&mut environment);
        }
        if command.terminal.is_some() {
            terminal::name(&mut environment);
        }
        let mut recorder = Recorder::new(command.caps, &self.spool, watcher);
        let report = if cancel.is_cancelled() {
            let (exit, duration) = (Exit::Cancelled, Duration::ZERO);
            Report::Ended { exit, duration, stragglers: 0, unkillable: 0 }
        } else {
            let proxy = proxy.as_ref();
            let run = Run { command: &command, environment, cancel: &cancel, proxy };
            Box::pin(self.report(run, &mut recorder)).await?
        };

        if let Some(own) = own {
            // Nothing of the command runs any more, and a large folder takes a while.
            let _ = tokio::task::spawn_blocking(move || drop(own)).await;
        }
        let Report::Ended { exit, duration, stragglers, unkillable } = report else {
            return Err(Error::LauncherLost { program: command.program() });
        };
        let [stdout, stderr, combined] = Box::pin(recorder.finish()).await;
        let Seen { refused, reached, .. } = proxy.map(|proxy| proxy.seen()).unwrap_or_default();
        Ok(Finished {
            exit,
            duration,
            stdout,
            stderr,
            combined,
            stragglers,
            unkillable,
            refused,
            reached: reached.into_iter().collect(),
        })
    }

    /// Looks whether the program of `command` is there and may be run, and runs nothing.
    ///
    /// # Errors
    /// [`Error::ProgramNotFound`], [`Error::NotStarted`], and what the command would be refused for at once.
    pub fn look_for(&self, command: &Command) -> Result<(), Error> {
        check(command)?;
        let spec = Spec::new(command, self.environment.of(command)?, None);
        spec.look().map_err(|not_run| not_run.into_error(command, &spec))
    }

    async fn report(&self, run: Run<'_>, recorder: &mut Recorder<'_>) -> Result<Report, Error> {
        let command = run.command;
        let limits = match (&command.protection, &self.launcher) {
            (Protection::None, _) => None,
            (Protection::Restricted(limits), Some(_)) if cfg!(target_os = "linux") => {
                Some(limits.clone())
            }
            (Protection::Restricted(limits), _) if cfg!(target_os = "macos") => {
                let wrapped = under_seatbelt(command, limits)?;
                return self.in_group(Run { command: &wrapped, ..run }, recorder).await;
            }
            (Protection::Restricted(_), _) => return Err(missing(command)),
        };
        match &self.launcher {
            Some(launcher) if cfg!(target_os = "linux") => {
                self.launched(launcher, limits, run, recorder).await
            }
            _ => self.in_group(run, recorder).await,
        }
    }

    async fn in_group(&self, run: Run<'_>, recorder: &mut Recorder<'_>) -> Result<Report, Error> {
        let Run { command, mut environment, cancel, .. } = run;
        let mark = Uuid::new_v4().to_string();
        environment.insert(MARK.into(), mark.clone().into());
        let (mut group, outputs) = Group::start(command, environment, &mark, &self.spool)?;
        let drained = CancellationToken::new();
        let watch = group.watch(command, cancel, &drained);
        pumped(recorder, outputs, &drained, watch).await
    }

    /// Runs below a launcher.
    async fn launched(
        &self,
        launcher: &Launcher,
        limits: Option<Limits>,
        run: Run<'_>,
        recorder: &mut Recorder<'_>,
    ) -> Result<Report, Error> {
        let Run { command, mut environment, cancel, proxy } = run;
        let watch = |source| Error::Watch { program: command.program(), source };
        // The one that waits has no terminal, and is where this process was.
        let is_plain = command.terminal.is_none() && command.cwd.is_absolute();
        let started = match is_plain.then(|| self.ready.take()).flatten() {
            Some(started) => Ok(started),
            None if command.cwd.is_absolute() => self.ready.start(launcher, command.terminal),
            None => Ready::start_here(launcher, command.terminal),
        };
        let (outputs, control, mark) = started
            .and_then(Started::into_parts)
            .map_err(|source| Error::LauncherNotStarted { path: launcher.path.clone(), source })?;
        environment.insert(MARK.into(), mark.clone().into());
        let spec = &Spec::new(command, environment, limits);
        let mut frame = spec.frame().map_err(watch)?;
        frame.extend_from_slice(command.stdin.as_deref().unwrap_or_default());

        let (listens, listener) = oneshot::channel();
        let serving = async {
            if let (Some(proxy), Ok(listener)) = (proxy, listener.await)
                && let Ok(listener) = control::listening(listener)
            {
                Arc::clone(proxy).serve(listener).await;
            }
            std::future::pending().await
        };
        let process = Handle::default();
        let talk = async {
            let bound = command.timeout.saturating_add(command.grace).saturating_add(STUCK);
            let talking = control::converse(control, &frame, cancel, listens, &process);
            let answer = tokio::time::timeout(bound, talking).await;
            let report = answer.ok().and_then(|answer| serde_json::from_slice(&answer).ok());
            if report.is_none() {
                // It is gone or stuck, and cannot end the tree.
                process.kill();
                self.ready.forget();
                Tree::marked(&mark).end().await;
            }
            report
        };
        // The proxy ends with the command.
        let talk = async {
            tokio::select! {
                report = talk => report,
                never = serving => never,
            }
        };
        self.ready.prepare(launcher);
        let drained = CancellationToken::new();
        match pumped(recorder, outputs, &drained, talk).await {
            Some(Report::NotRun(reason)) => Err(reason.into_error(command, spec)),
            Some(report @ Report::Ended { .. }) => Ok(report),
            None => Err(Error::LauncherLost { program: command.program() }),
        }
    }
}

/// Routes that lead nowhere.
struct Nowhere;

#[async_trait]
impl Routes for Nowhere {
    async fn addresses(&self, _: &str) -> Result<Vec<SocketAddr>, NoRoute> {
        Err(NoRoute::Refused("nothing is to be reached".to_owned()))
    }

    async fn refused(&self, _: &Refusal) {}
}

/// One command on its way.
struct Run<'a> {
    command: &'a Command,
    environment: BTreeMap<OsString, OsString>,
    cancel: &'a CancellationToken,
    /// Its way out, if it has one.
    proxy: Option<&'a Arc<Proxy>>,
}

/// What a command writes, from this end.
#[derive(Debug)]
pub(crate) struct Outputs {
    stdout: ChildStdout,
    /// None where both are one terminal.
    stderr: Option<ChildStderr>,
}

impl Outputs {
    /// Has whoever gets the other ends write to pipes.
    pub(crate) fn by_pipes() -> std::io::Result<(Self, [OwnedFd; 2])> {
        let ((stdout, own), (stderr, other)) = (std::io::pipe()?, std::io::pipe()?);
        let stdout = ChildStdout::from_std(OwnedFd::from(stdout).into())?;
        let stderr = Some(ChildStderr::from_std(OwnedFd::from(stderr).into())?);
        Ok((Self { stdout, stderr }, [own.into(), other.into()]))
    }

    /// Has whoever gets the other ends write to a terminal.
    pub(crate) fn at_terminal(pair: terminal::Pair) -> std::io::Result<(Self, [OwnedFd; 2])> {
        let theirs = [pair.theirs()?, pair.theirs()?];
        Ok((Self { stdout: pair.into_output()?, stderr: None }, theirs))
    }

    /// Has a process write to a terminal, or to pipes.
    pub(crate) fn give(
        process: &mut tokio::process::Command,
        terminal: Option<&terminal::Pair>,
    ) -> std::io::Result<()> {
        match terminal {
            Some(pair) => process.stdout(pair.theirs()?).stderr(pair.theirs()?),
            None => process.stdout(Stdio::piped()).stderr(Stdio::piped()),
        };
        Ok(())
    }

    /// Takes what it writes, once it was started.
    pub(crate) fn take(
        child: &mut Child,
        terminal: Option<terminal::Pair>,
    ) -> std::io::Result<Self> {
        if let Some(pair) = terminal {
            return Ok(Self { stdout: pair.into_output()?, stderr: None });
        }
        match (child.stdout.take(), child.stderr.take()) {
            (Some(stdout), stderr @ Some(_)) => Ok(Self { stdout, stderr }),
            _ => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Records both outputs while `end` goes on, and for a bounded time after it.
async fn pumped<T>(
    recorder: &mut Recorder<'_>,
    Outputs { stdout, stderr }: Outputs,
    drained: &CancellationToken,
    end: impl Future<Output = T>,
) -> T {
    let pump = async {
        match stderr {
            Some(stderr) => recorder.pump(stdout, stderr).await,
            None => recorder.pump(stdout, tokio::io::empty()).await,
        }
        drained.cancel();
        std::future::pending::<()>().await;
    };
    tokio::pin!(pump, end);
    let ended = tokio::select! {
        () = &mut pump => end.await,
        ended = &mut end => ended,
    };
    let _ = tokio::time::timeout(DRAIN, async {
        tokio::select! {
            () = &mut pump => {}
            () = drained.cancelled() => {}
        }
    })
    .await;
    ended
}

/// Returns the proxy of a command that has one.
fn way_out(command: &Command) -> Option<Proxy> {
    match &command.protection {
        Protection::Restricted(limits) => match &limits.network {
            Network::Through(gateway) => Some(Proxy::new(gateway.clone(), command.program())),
            _ => None,
        },
        Protection::None => None,
    }
}

fn check(command: &Command) -> Result<(), Error> {
    if command.argv.is_empty() {
        return Err(Error::EmptyCommand);
    }
    let nul = |text: &OsStr| text.as_bytes().contains(&0);
    let places = [
        ("an argument", command.argv.iter().any(|text| nul(text))),
        ("the folder", nul(command.cwd.as_os_str())),
        ("a variable", command.set.iter().any(|(name, value)| nul(name) || nul(value))),
    ];
    match places.iter().find(|(_, has)| *has) {
        Some((what, _)) => Err(Error::NulByte { program: command.program(), what }),
        None => Ok(()),
    }
}

fn missing(command: &Command) -> Error {
    let reason = match std::env::consts::OS {
        "linux" => "no launcher was given".into(),
        other => format!("not supported on {other}"),
    };
    Error::ProtectionMissing { program: command.program(), protection: "confinement", reason }
}

fn under_seatbelt(command: &Command, limits: &Limits) -> Result<Command, Error> {
    let profile = crate::seatbelt::profile(limits).map_err(|reason| Error::ProtectionMissing {
        program: command.program(),
        protection: "Seatbelt",
        reason,
    })?;
    let mut wrapped = command.clone();
    let prefix = [crate::seatbelt::PROGRAM.into(), "-p".into(), profile.into(), "--".into()];
    wrapped.argv.splice(0..0, prefix);
    Ok(wrapped)
}
