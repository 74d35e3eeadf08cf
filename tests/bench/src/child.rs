//! Whole processes, with what they and all below them used.

use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// What a process used, with those that it waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) status: ExitStatus,
    pub(crate) wall: Duration,
    /// Of it and of all its descendants.
    pub(crate) cpu: Duration,
    /// The most memory that the largest of them held.
    ///
    /// A process begins with the peak of the one that spawned it, so a bench keeps itself small.
    pub(crate) peak_bytes: f64,
}

/// Runs a command to its end.
pub(crate) fn measure(command: &mut Command) -> Result<Used> {
    let began = Instant::now();
    let child = command
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let (status, usage) = wait(&child)?;
    let wall = began.elapsed();
    let time = |time: libc::timeval| {
        let micros = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    Ok(Used {
        status,
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak_bytes: usage.ru_maxrss as f64 * 1024.0,
    })
}

#[expect(unsafe_code, reason = "no safe crate of ours gives the usage of one child and not of all")]
fn wait(child: &Child) -> Result<(ExitStatus, libc::rusage)> {
    let pid = libc::pid_t::try_from(child.id()).context("a process id that is none")?;
    let mut status = 0;
    // SAFETY: a struct of plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers lead to locals that outlive the call; nobody else waits for this child.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).context("cannot wait for a process");
        }
    }
    Ok((ExitStatus::from_raw(status), usage))
}

/// Returns the most memory that this process has held: what every child's peak begins with.
pub(crate) fn own_peak_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(0.0, |kilobytes| kilobytes * 1024.0)
}
