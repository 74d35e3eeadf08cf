//! Runs a command without a launcher: in a process group, and found again by a mark.
//!
//! A process that leaves the group, even one whose parents have ended, still carries the mark among
//! its variables. Only where there is no `/proc` to look for it, the group is all that can be ended.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Seek, Write},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::{
    Command, Error, Exit, program,
    sandbox::Outputs,
    terminal::Pair,
    wire::{NotRun, Report, Spec},
};

/// The variable whose value is the mark.
pub(crate) const MARK: &str = "FORMWORK_PROCESS";
/// What the command left running may hold the output open for this long.
const LINGER: Duration = Duration::from_millis(200);
/// A killed process that is still there after this is held by the kernel.
const UNKILLABLE: Duration = Duration::from_secs(5);
/// How often a tree that is ending is looked at.
const ENDING: Duration = Duration::from_millis(5);

/// A started command, which is killed with all that carries its mark when this is dropped.
pub(crate) struct Group {
    child: Child,
    started: Instant,
    tree: Tree,
}

/// The processes of one run.
#[derive(Clone)]
pub(crate) struct Tree {
    mark: String,
    leader: Option<Pid>,
}

impl Group {
    /// Starts `command` and returns it with its outputs.
    pub(crate) fn start(
        command: &Command,
        environment: BTreeMap<OsString, OsString>,
        mark: &str,
        spool: &Path,
    ) -> Result<(Self, Outputs), Error> {
        let spec = Spec::new(command, environment, None);
        let not_run = |reason: NotRun| reason.into_error(command, &spec);
        let watch = |source| Error::Watch { program: command.program(), source };
        let file = spec.find().map_err(not_run)?;
        let terminal = command.terminal.map(Pair::open).transpose().map_err(watch)?;
        let stdin = match (&command.stdin, &terminal) {
            (None, Some(pair)) => pair.theirs().map(Stdio::from),
            _ => input(command, spool),
        };
        let mut process = tokio::process::Command::new(&file);
        process
            .arg0(spec.program())
            .args(spec.argv.iter().skip(1))
            .current_dir(&command.cwd)
            .env_clear()
            .envs(spec.environment.iter().map(|(name, value)| (name, value)))
            .stdin(stdin.map_err(watch)?)
            .process_group(0);
        Outputs::give(&mut process, terminal.as_ref()).map_err(watch)?;
        let mut child =
            process.spawn().map_err(|error| not_run(program::not_started(&file, &error)))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let tree = Tree { mark: mark.to_owned(), leader };
        // It holds the terminal open, whose end shows that nobody else does.
        drop(process);
        let outputs = Outputs::take(&mut child, terminal);
        let group = Self { child, started: Instant::now(), tree };
        Ok((group, outputs.map_err(watch)?))
    }

    /// Returns once the whole tree has ended. `drained` says that nobody holds the output open.
    pub(crate) async fn watch(
        &mut self,
        command: &Command,
        cancel: &CancellationToken,
        drained: &CancellationToken,
    ) -> Result<Report, Error> {
        let watch = |source| Error::Watch { program: command.program(), source };
        let (cause, status) = tokio::select! {
            biased;
            () = cancel.cancelled() => (Some(Exit::Cancelled), None),
            status = self.child.wait() => (None, Some(status.map_err(watch)?)),
            () = tokio::time::sleep(command.timeout) => (Some(Exit::TimedOut), None),
        };
        let mut duration = self.started.elapsed();
        let exit = match status {
            Some(status) => {
                let _ = tokio::time::timeout(LINGER, drained.cancelled()).await;
                exit_of(status)
            }
            None => {
                self.tree.tell();
                // Ends before the grace is over if the whole tree does.
                let _ = tokio::time::timeout(command.grace, async {
                    let _ = self.child.wait().await;
                    duration = self.started.elapsed();
                    drained.cancelled().await;
                })
                .await;
                if let Ok(None) = self.child.try_wait() {
                    self.tree.kill_group();
                    let _ = tokio::time::timeout(UNKILLABLE, self.child.wait()).await;
                    duration = self.started.elapsed();
                }
                Exit::Cancelled
            }
        };
        let (killed, unkillable) = self.tree.end().await;
        let stragglers = if cause.is_none() { killed } else { 0 };
        Ok(Report::Ended { exit: cause.unwrap_or(exit), duration, stragglers, unkillable })
    }
}

impl Drop for Group {
    /// The caller dropped the run: nobody waits, so there is no grace.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.tree.kill_group();
            self.tree.kill_marked();
        }
    }
}

impl Tree {
    /// Finds the processes of a run whose launcher is gone.
    pub(crate) fn marked(mark: &str) -> Self {
        Self { mark: mark.to_owned(), leader: None }
    }

    /// Kills until nobody is left. Returns how many were killed, and how many stayed all the same.
    pub(crate) async fn end(&self) -> (u32, u32) {
        let began = Instant::now();
        let mut killed: u32 = 0;
        loop {
            let tree = self.clone();
            // Looking through `/proc` takes milliseconds on a busy machine.
            let found = tokio::task::spawn_blocking(move || tree.kill_marked()).await.unwrap_or(0);
            if found == 0 || began.elapsed() > UNKILLABLE {
                return (killed, found);
            }
            killed = killed.max(found);
            tokio::time::sleep(ENDING).await;
        }
    }

    fn tell(&self) {
        if let Some(leader) = self.leader {
            let _ = rustix::process::kill_process_group(leader, Signal::TERM);
            let _ = rustix::process::kill_process_group(leader, Signal::CONT);
        }
        #[cfg(target_os = "linux")]
        for process in crate::proc::marked(self.variable().as_bytes()) {
            let _ = rustix::process::kill_process(process, Signal::TERM);
            let _ = rustix::process::kill_process(process, Signal::CONT);
        }
    }

    /// Only while the leader is not collected, since after that its number may be another's.
    fn kill_group(&self) {
        if let Some(leader) = self.leader {
            let _ = rustix::process::kill_process_group(leader, Signal::KILL);
        }
    }

    #[cfg(target_os = "linux")]
    fn kill_marked(&self) -> u32 {
        crate::proc::kill_below(crate::proc::marked(self.variable().as_bytes()))
    }

    #[cfg(not(target_os = "linux"))]
    fn kill_marked(&self) -> u32 {
        self.kill_group();
        0
    }

    #[cfg(target_os = "linux")]
    fn variable(&self) -> String {
        format!("{MARK}={}", self.mark)
    }
}

fn input(command: &Command, spool: &Path) -> io::Result<Stdio> {
    let Some(bytes) = &command.stdin else { return Ok(Stdio::null()) };
    let mut file = tempfile::tempfile_in(spool)?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

fn exit_of(status: std::process::ExitStatus) -> Exit {
    use std::os::unix::process::ExitStatusExt;
    match status.code() {
        Some(code) => Exit::Code(code),
        None => Exit::Signal(status.signal().unwrap_or_default()),
    }
}
