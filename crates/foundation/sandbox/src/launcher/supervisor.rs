//! Starts one command, watches its tree, and ends it.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::MemfdFlags,
    process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus},
};

use super::{cgroup::Cgroup, restrict::Setup, spawn};
use crate::{
    Exit, Resource, proc,
    wire::{CANCEL, NotRun, Protecting, Report, Spec},
};

/// What the command left running may finish a last write for this long.
const LINGER: Duration = Duration::from_millis(200);
/// Killed processes that are there at the beginning and at the end of this are held by the kernel.
const UNKILLABLE: Duration = Duration::from_millis(2500);
/// How often a tree is held against its limits, at the least time between two looks.
const MEASURE: Duration = Duration::from_millis(10);
/// A look at a large tree takes long; of the time of one processor no more than this part goes into looks, as long as
/// the tree is well within its limits.
const SHARE: u32 = 20;
/// A tree that is this old or has this many processes is put into a control group.
const OLD: Duration = Duration::from_millis(100);
const GROWN: usize = 16;
/// How often ended orphans are collected while nothing else happens.
const COLLECT: Duration = Duration::from_millis(250);
/// The priority that is served before all others.
const FIRST: i32 = -20;
/// How often a tree that is ending is looked at.
const ENDING: Duration = Duration::from_millis(2);

/// Runs what the process at the other end of the standard input asks for, and reports to it.
///
/// # Errors
/// When that process is gone, or asks for what cannot be read.
pub(super) fn run() -> io::Result<()> {
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Fails only where it leads a session already, which serves as well.
    let _ = rustix::process::setsid();
    let (spec, stdin) = Spec::read(&mut control)?;
    let way_out = spec.proxied.then(|| control.try_clone()).transpose()?;
    let report = match start(&spec, stdin, way_out.map(OwnedFd::from)) {
        Ok(target) => Supervisor::new(target, &spec).watch(&mut control)?,
        Err(reason) => Report::NotRun(reason),
    };
    control.write_all(&serde_json::to_vec(&report)?)
}

/// Starts the command in a session of its own, confined if it is to be.
fn start(spec: &Spec, stdin: Option<Vec<u8>>, way_out: Option<OwnedFd>) -> Result<Pid, NotRun> {
    let me = rustix::process::getpid();
    let subreaper = rustix::process::set_child_subreaper(Some(me));
    subreaper.map_err(|errno| missing(Protecting::Subreaper, errno))?;
    let file = spec.find()?;
    let io_failed =
        |error: io::Error| NotRun::NotStarted { errno: error.raw_os_error().unwrap_or_default() };
    let null = File::options().read(true).write(true).open("/dev/null").map_err(io_failed)?;
    let input = match stdin {
        Some(bytes) => in_memory(&bytes).map_err(io_failed)?,
        None if spec.terminal => {
            File::from(io::stdout().as_fd().try_clone_to_owned().map_err(io_failed)?)
        }
        None => null.try_clone().map_err(io_failed)?,
    };

    let mut command = std::process::Command::new(&file);
    command
        .arg0(spec.program())
        .args(spec.argv.iter().skip(1))
        .current_dir(&spec.cwd)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(input));
    // A tree that forks without bound must not keep its own end from being scheduled, and many of them at once not even
    // where each is served less. Only root may ask for this; others rely on the command's session, which is scheduled
    // apart from this one.
    let priority = rustix::process::getpriority_process(None).unwrap_or_default();
    if spawn::serve_in_real_time().is_err() {
        let _ = rustix::process::setpriority_process(None, FIRST);
    }
    let setup = Setup::new(priority, spec.limits.as_ref(), spec.cwd.as_ref(), way_out)?;
    let setup = if spec.terminal { setup.at_terminal() } else { setup };
    let spawned = spawn::spawn(command, &file, setup);
    // From here on only the tree holds the output open, so that its end closes it.
    let closed = [
        rustix::stdio::dup2_stdin(&null),
        rustix::stdio::dup2_stdout(&null),
        rustix::stdio::dup2_stderr(&null),
    ];
    let pid = spawned?;
    for result in closed {
        result.map_err(|errno| io_failed(errno.into()))?;
    }
    Ok(pid)
}

struct Supervisor<'a> {
    target: Pid,
    spec: &'a Spec,
    started: Instant,
    phase: Phase,
    /// Why the command is being ended, if by this process.
    cause: Option<Exit>,
    /// How and when the command itself ended.
    ended: Option<(Exit, Duration)>,
    stragglers: u32,
    /// What there was when it was last asked for what cannot be killed.
    lasting: HashSet<Pid>,
    measured: Measured,
    group: Group,
}

/// What the last look at the tree's use has shown.
struct Measured {
    at: Instant,
    took: Duration,
    /// Whether the tree has used half of what it may.
    is_near: bool,
}

/// The control group of the tree.
enum Group {
    /// It is young and small.
    NotYet,
    Held(Cgroup),
    /// There can be none here.
    Missing,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    /// The command runs.
    Running,
    /// It has ended; what it left may run on until then.
    Lingering { until: Instant },
    /// All were told to end, and may until then.
    Terminating { until: Instant },
    /// All are being killed, since then.
    Killing { since: Instant },
}

impl<'a> Supervisor<'a> {
    fn new(target: Pid, spec: &'a Spec) -> Self {
        let started = Instant::now();
        Self {
            target,
            spec,
            started,
            phase: Phase::Running,
            cause: None,
            ended: None,
            stragglers: 0,
            lasting: HashSet::new(),
            measured: Measured { at: started, took: Duration::ZERO, is_near: false },
            group: Group::NotYet,
        }
    }

    /// Returns once the whole tree has ended.
    ///
    /// # Errors
    /// When the process at the other end is gone: then too the whole tree has ended.
    fn watch(mut self, control: &mut UnixStream) -> io::Result<Report> {
        let pidfd = rustix::process::pidfd_open(self.target, PidfdFlags::empty()).ok();
        let mut heard_by = Listener::There;
        loop {
            if self.collect() {
                return self.report(0, heard_by);
            }
            if let Phase::Killing { since } = self.phase {
                if since.elapsed() > UNKILLABLE {
                    let left: HashSet<Pid> =
                        proc::descendants(rustix::process::getpid()).into_iter().collect();
                    if left.is_subset(&self.lasting) {
                        let left = u32::try_from(left.len()).unwrap_or(u32::MAX);
                        return self.report(left, heard_by);
                    }
                    // Some are new: whoever left them now would let them go.
                    self.lasting = left;
                    self.phase = Phase::Killing { since: Instant::now() };
                }
                self.kill();
            }
            self.advance();
            let target = pidfd.as_ref().filter(|_| self.ended.is_none());
            let heard = wait(control, heard_by, target, self.pause())?;
            match heard {
                Heard::Nothing => {}
                Heard::Cancel => self.terminate(Exit::Cancelled),
                Heard::Gone => {
                    heard_by = Listener::Gone;
                    self.cause.get_or_insert(Exit::Cancelled);
                    self.phase = Phase::Killing { since: Instant::now() };
                }
            }
        }
    }

    /// Collects every child that has ended, adopted ones too, and says whether none is left.
    fn collect(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.target => {
                    self.ended = Some((exit_of(status), self.started.elapsed()));
                    if self.phase == Phase::Running {
                        self.phase = Phase::Lingering { until: Instant::now() + LINGER };
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(rustix::io::Errno::INTR) => {}
                // There is no child: an orphan would be one, so there is no descendant either.
                Err(_) => return true,
            }
        }
    }

    fn advance(&mut self) {
        let now = Instant::now();
        let is_ending = matches!(self.phase, Phase::Killing { .. });
        // What a command left, or who was told to end, may fork as well.
        if let Some(resource) = (!is_ending).then(|| self.over_limit()).flatten() {
            self.cause.get_or_insert(Exit::OverLimit(resource));
            self.phase = Phase::Killing { since: now };
            self.kill();
            return;
        }
        match self.phase {
            Phase::Running if now.duration_since(self.started) >= self.spec.timeout => {
                self.terminate(Exit::TimedOut);
            }
            Phase::Lingering { until } | Phase::Terminating { until } if now >= until => {
                self.phase = Phase::Killing { since: now };
                self.kill();
            }
            Phase::Running
            | Phase::Lingering { .. }
            | Phase::Terminating { .. }
            | Phase::Killing { .. } => {}
        }
    }

    /// Tells the whole tree to end. A tree that is ending already is left to it.
    fn terminate(&mut self, cause: Exit) {
        if self.phase != Phase::Running {
            return;
        }
        self.cause = Some(cause);
        self.phase = Phase::Terminating { until: Instant::now() + self.spec.grace };
        for process in proc::descendants(rustix::process::getpid()) {
            // Whoever has ended meanwhile need not be told; the stopped must run on to hear it.
            let _ = rustix::process::kill_process(process, Signal::TERM);
            let _ = rustix::process::kill_process(process, Signal::CONT);
        }
    }

    fn kill(&mut self) {
        if self.ended.is_none() {
            // One call for the whole group, which nothing in it can outrun by forking. The group
            // is the command's as long as the command was not collected.
            let _ = rustix::process::kill_process_group(self.target, Signal::KILL);
        }
        let killed = proc::kill_below(proc::children(rustix::process::getpid()));
        if self.cause.is_none() {
            // A later pass meets those again that are still on their way out.
            self.stragglers = self.stragglers.max(killed);
        }
    }

    fn over_limit(&mut self) -> Option<Resource> {
        let limits = self.spec.limits.as_ref()?;
        if limits.processes.is_none() && limits.memory.is_none() {
            return None;
        }
        let begun = Instant::now();
        if begun.duration_since(self.measured.at) < MEASURE {
            return None; // Most commands have ended before the first look.
        }
        let me = rustix::process::getpid();
        let most = limits.processes.and_then(|most| usize::try_from(most).ok());
        let most = most.unwrap_or(usize::MAX);
        let tree = proc::at_most(most.saturating_add(1), me);
        let count = tree.len();
        if count > most {
            return Some(Resource::Processes);
        }
        let used = match limits.memory {
            Some(_) => proc::memory(&tree),
            None => 0,
        };
        if limits.memory.is_some_and(|limit| used > limit) {
            return Some(Resource::Memory);
        }
        let is_near = count > most / 2 || limits.memory.is_some_and(|limit| used > limit / 2);
        self.measured = Measured { at: begun, took: begun.elapsed(), is_near };
        if let (Group::NotYet, Some(processes)) = (&self.group, limits.processes)
            && (count > GROWN || self.started.elapsed() > OLD)
        {
            self.group = Cgroup::make(processes).map_or(Group::Missing, Group::Held);
        }
        if let Group::Held(group) = &mut self.group
            && group.is_filling()
        {
            // It may have grown while it was moved.
            self.measured.is_near = true;
            if group.take(&tree).is_err() {
                self.group = Group::Missing;
            }
        }
        None
    }

    /// Returns how long nothing needs to be done unless something is heard.
    fn pause(&self) -> Duration {
        if self.phase != Phase::Running {
            return ENDING;
        }
        let limits = self.spec.limits.as_ref();
        let measured = limits.is_some_and(|it| it.memory.is_some() || it.processes.is_some());
        let left = self.spec.timeout.saturating_sub(self.started.elapsed());
        left.min(match &self.measured {
            _ if !measured => COLLECT,
            Measured { is_near: true, .. } => MEASURE,
            Measured { took, .. } => took.saturating_mul(SHARE).clamp(MEASURE, COLLECT),
        })
    }

    fn report(self, unkillable: u32, listener: Listener) -> io::Result<Report> {
        if listener == Listener::Gone {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (exit, duration) = self
            .ended
            .unwrap_or_else(|| (Exit::Signal(Signal::KILL.as_raw()), self.started.elapsed()));
        let exit = match self.cause.unwrap_or(exit) {
            // Forks came faster than counts.
            Exit::Code(_) | Exit::Signal(_) if self.group.was_full() => {
                Exit::OverLimit(Resource::Processes)
            }
            exit => exit,
        };
        Ok(Report::Ended { exit, duration, stragglers: self.stragglers, unkillable })
    }
}

impl Group {
    fn was_full(&self) -> bool {
        matches!(self, Self::Held(group) if group.was_full())
    }
}

/// Whether the process at the other end of the control socket is there.
#[derive(Clone, Copy, PartialEq)]
enum Listener {
    There,
    Gone,
}

enum Heard {
    Nothing,
    Cancel,
    Gone,
}

/// Waits for a word from `control` or the end of `target`, for `pause` at most.
fn wait(
    control: &mut UnixStream,
    listener: Listener,
    target: Option<&OwnedFd>,
    pause: Duration,
) -> io::Result<Heard> {
    let timeout = Timespec::try_from(pause).map_err(io::Error::other)?;
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(2);
    let borrowed: BorrowedFd<'_> = control.as_fd();
    if listener == Listener::There {
        fds.push(PollFd::from_borrowed_fd(borrowed, PollFlags::IN));
    }
    if let Some(target) = target {
        fds.push(PollFd::new(target, PollFlags::IN));
    }
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(Heard::Nothing),
        Err(errno) => return Err(errno.into()),
    }
    let spoke =
        listener == Listener::There && fds.first().is_some_and(|fd| !fd.revents().is_empty());
    if !spoke {
        return Ok(Heard::Nothing);
    }
    let mut word = [0];
    match control.read(&mut word) {
        Ok(1) if word == [CANCEL] => Ok(Heard::Cancel),
        Ok(1) => Ok(Heard::Nothing),
        _ => Ok(Heard::Gone),
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or_default()),
    }
}

pub(super) fn missing(protection: Protecting, errno: rustix::io::Errno) -> NotRun {
    NotRun::ProtectionMissing { protection, reason: errno.to_string() }
}

/// Returns a file without a name, in memory, that holds `bytes`.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
