//! Whole processes, with what they and all below them used.

use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

/// What a process used, with those that it waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) status: ExitStatus,
    pub(crate) wall: Duration,
    /// Of it and of all its descendants.
    pub(crate) cpu: Duration,
    /// The most memory that the largest of them held.
    pub(crate) peak_bytes: f64,
}

/// The name under which this program is its own launcher.
pub(crate) const LAUNCH: &str = "launch";

/// A command that is begun by a small process, because the peak of a process begins with the peak of the
/// one that spawned it.
pub(crate) struct Measured {
    /// Takes further arguments, and where its output goes.
    pub(crate) command: Command,
    report: PathBuf,
}

impl Measured {
    /// Takes a program that sees no config, says nothing and begins in `home`.
    pub(crate) fn new(program: &Path, home: &Path) -> Result<Self> {
        let own = std::env::current_exe().context("cannot tell where this program is")?;
        let report = home.join("used.json");
        let mut command = Command::new(own);
        command.arg(LAUNCH).arg(&report).arg(program).env_clear();
        command.env("HOME", home).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("FORMWORK_CONFIG_DIR", home.join("config"));
        command.env("FORMWORK_STATE_DIR", home.join("state"));
        command.current_dir(home).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { command, report })
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Result<Used> {
        let status = self.command.status().context("cannot run this program again")?;
        ensure!(status.success(), "the launcher ended with {status}");
        let text = std::fs::read_to_string(&self.report).context("the launcher told nothing")?;
        let [status, wall, cpu, peak]: [i64; 4] = serde_json::from_str(&text)?;
        let micros = |count: i64| Duration::from_micros(count.unsigned_abs());
        Ok(Used {
            status: ExitStatus::from_raw(i32::try_from(status)?),
            wall: micros(wall),
            cpu: micros(cpu),
            peak_bytes: peak as f64 * 1024.0,
        })
    }
}

/// Runs a command to its end and writes down what it used: this program, begun by [`Measured`].
pub(crate) fn launch(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let report = arguments.next().context("the launcher needs a file for its report")?;
    let program = arguments.next().context("the launcher needs a program")?;
    adopt()?;
    let began = Instant::now();
    let child = Command::new(&program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let pid = libc::pid_t::try_from(child.id()).context("a process id that is none")?;
    let (status, usage) = wait(pid)?.context("the program was not there to be waited for")?;
    let wall = i64::try_from(began.elapsed().as_micros())?;
    let mut cpu = cpu_of(&usage);
    // What it has left ends by itself, such as whoever begins its confined programs.
    while let Some((_, left)) = wait(ANY)? {
        cpu += cpu_of(&left);
    }
    let numbers = [i64::from(status.into_raw()), wall, cpu, usage.ru_maxrss];
    std::fs::write(report, serde_json::to_string(&numbers)?).context("cannot write the report")
}

fn cpu_of(usage: &libc::rusage) -> i64 {
    let micros = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    micros(usage.ru_utime) + micros(usage.ru_stime)
}

/// Has this process wait for what its descendants leave behind.
#[expect(unsafe_code, reason = "no library that is used here has this call")]
fn adopt() -> Result<()> {
    // SAFETY: it changes who waits for orphans, and no memory.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("cannot adopt orphans"),
    }
}

/// Whichever child ends next, for wait4(2).
const ANY: libc::pid_t = -1;

/// Waits for a child, and returns how it ended and what it used with those that it waited for; nothing where there is none.
#[expect(unsafe_code, reason = "no safe crate of ours gives the usage of one child and not of all")]
fn wait(pid: libc::pid_t) -> Result<Option<(ExitStatus, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: a struct of plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers lead to locals that outlive the call; nobody else waits for these children.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) => return Ok(None),
            Some(libc::EINTR) => {}
            _ => return Err(error).context("cannot wait for a process"),
        }
    }
    Ok(Some((ExitStatus::from_raw(status), usage)))
}
