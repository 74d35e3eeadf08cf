//! The launcher that waits for the next command.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use formwork_sandbox::Launcher;
use rustix::process::{Pid, Signal, kill_process};
use support::{alone, ends_within, run, runs, shell};

/// Longer than anything here takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the one process that runs as `program`, once there is one.
async fn waiting(program: &Path) -> Pid {
    let began = Instant::now();
    loop {
        let found: Vec<Pid> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .filter_map(Pid::from_raw)
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.starts_with(program.as_os_str().as_encoded_bytes()) && runs(*pid)
            })
            .collect();
        match found.as_slice() {
            [one] => return *one,
            _ => assert!(began.elapsed() < PATIENCE, "{} run as it", found.len()),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_next_command_gets_the_launcher_that_waited_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("launcher");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_formwork-launcher"), &program).unwrap();
    let sandbox = alone(dir.path()).with_launcher(Launcher::new(&program));
    let parent = async || {
        let finished = run(&sandbox, shell("echo $PPID", dir.path())).await.unwrap();
        Pid::from_raw(finished.stdout.preview().trim().parse().unwrap()).unwrap()
    };
    let first = parent().await;

    let second = waiting(&program).await;
    assert_ne!(second, first, "that one has ended with its command");
    assert_eq!(parent().await, second);

    // One that was killed is missed by nobody.
    let third = waiting(&program).await;
    kill_process(third, Signal::KILL).unwrap();
    assert!(ends_within(third, 20));
    assert_ne!(parent().await, third);

    // None is left.
    let last = waiting(&program).await;
    drop(sandbox);
    assert!(ends_within(last, 20));
}

#[tokio::test]
async fn a_command_with_a_terminal_gets_a_launcher_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("launcher");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_formwork-launcher"), &program).unwrap();
    let sandbox = alone(dir.path()).with_launcher(Launcher::new(&program));
    run(&sandbox, shell("true", dir.path())).await.unwrap();
    let waits = waiting(&program).await;

    let mut command = shell("test -t 1 && echo $PPID", dir.path());
    command.terminal = Some(formwork_sandbox::Terminal::default());
    let finished = run(&sandbox, command).await.unwrap();

    assert_ne!(finished.stdout.preview().trim(), waits.to_string());
    assert_eq!(waiting(&program).await, waits, "it waits on");
}

/// CAP_SYS_NICE of capabilities(7): who has it may ask for real time.
const MAY_HURRY: u64 = 1 << 23;

#[tokio::test]
async fn a_launcher_is_served_first_and_its_command_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let script = "cat /proc/$PPID/stat /proc/$$/stat";

    let finished = run(&support::launched(dir.path()), shell(script, dir.path())).await.unwrap();

    // The number of the policy is field 41 of a line, and the third begins after the name.
    let policies: Vec<String> = (finished.stdout.preview().lines())
        .map(|line| line.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap().to_owned())
        .collect();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let may = u64::from_str_radix(rights.trim(), 16).unwrap() & MAY_HURRY != 0;
    let (round_robin, ordinary) = ("2", "0");
    assert_eq!(policies, [if may { round_robin } else { ordinary }, ordinary]);
}
