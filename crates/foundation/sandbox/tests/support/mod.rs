//! What the tests of this crate share.
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "each test program uses some of it, and fails by panicking"
)]

use std::{path::Path, time::Duration};

use formwork_sandbox::{Command, Environment, Error, Finished, Launcher, Protection, Sandbox};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio_util::sync::CancellationToken;

/// Runs commands below a launcher.
pub fn launched(spool: &Path) -> Sandbox {
    alone(spool).with_launcher(Launcher::new(env!("CARGO_BIN_EXE_formwork-launcher")))
}

/// Runs commands without one.
pub fn alone(spool: &Path) -> Sandbox {
    Sandbox::new(Environment::new([("PATH", "/usr/local/bin:/usr/bin:/bin")]), spool)
}

/// Runs a test once each way.
pub fn both_ways(spool: &Path) -> [Sandbox; 2] {
    [launched(spool), alone(spool)]
}

pub fn shell(script: &str, cwd: &Path) -> Command {
    Command::new(["sh", "-c", script], cwd, Protection::None)
}

pub async fn run(sandbox: &Sandbox, command: Command) -> Result<Finished, Error> {
    sandbox.run(command, CancellationToken::new(), None).await
}

/// Runs a command to its timeout, and returns the process id that it has written by then to `pid` in its folder. A machine may
/// be too busy for that to be there in time; then there is more time.
pub async fn timed_out(sandbox: &Sandbox, command: &Command) -> (Finished, Pid) {
    let file = command.cwd.join("pid");
    for timeout in [300, 3_000, 30_000].map(Duration::from_millis) {
        let finished = run(sandbox, Command { timeout, ..command.clone() }).await.unwrap();
        if std::fs::metadata(&file).is_ok_and(|file| file.len() > 0) {
            let pid = pid_in(&file);
            std::fs::remove_file(file).unwrap();
            return (finished, pid);
        }
    }
    panic!("it has not begun within half a minute");
}

/// Reads a process id that a script wrote.
pub fn pid_in(file: &Path) -> Pid {
    let text = std::fs::read_to_string(file).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// Says whether `pid` runs: one that has ended and was not collected yet does not.
pub fn runs(pid: Pid) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !matches!(stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()), Some('Z' | 'X'))
}

/// Waits for the end of `pid`, and says whether it came in time.
pub fn ends_within(pid: Pid, seconds: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {} // The end of some other child.
            ended => return ended.unwrap() == 1,
        }
    }
}
