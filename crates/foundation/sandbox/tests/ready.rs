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

/// The broker that runs as `program`, and the one launcher of it.
struct Waiting {
    broker: Pid,
    launcher: Pid,
}

/// Returns the two processes that run as `program`, once there are two.
async fn waiting(program: &Path) -> Waiting {
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
        match *found.as_slice() {
            [one, other] if parent_of(other) == Some(one) => {
                return Waiting { broker: one, launcher: other };
            }
            [one, other] if parent_of(one) == Some(other) => {
                return Waiting { broker: other, launcher: one };
            }
            _ => assert!(began.elapsed() < PATIENCE, "{} run as it", found.len()),
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the process that started another one, if that runs.
fn parent_of(pid: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(parent.trim().parse().ok()?)
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
    assert_ne!(second.launcher, first, "that one has ended with its command");
    assert_eq!(parent().await, second.launcher);

    // One that was killed is missed by nobody.
    let third = waiting(&program).await;
    assert_eq!(third.broker, second.broker, "there is one for all");
    kill_process(third.launcher, Signal::KILL).unwrap();
    assert!(ends_within(third.launcher, 20));
    assert_ne!(parent().await, third.launcher);

    // None is left.
    let last = waiting(&program).await;
    drop(sandbox);
    assert!(ends_within(last.launcher, 20));
    assert!(ends_within(last.broker, 20));
}

#[tokio::test]
async fn a_broker_that_was_killed_is_missed_by_nobody_and_keeps_no_dead() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("launcher");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_formwork-launcher"), &program).unwrap();
    let sandbox = alone(dir.path()).with_launcher(Launcher::new(&program));
    run(&sandbox, shell("true", dir.path())).await.unwrap();
    let first = waiting(&program).await;

    kill_process(first.broker, Signal::KILL).unwrap();
    assert!(ends_within(first.broker, 20));
    // The one that had begun runs this, and the next comes from another broker.
    run(&sandbox, shell("true", dir.path())).await.unwrap();
    let second = waiting(&program).await;
    assert_ne!(second.broker, first.broker);

    for _ in 0..3 {
        run(&sandbox, shell("true", dir.path())).await.unwrap();
    }
    let third = waiting(&program).await;
    assert_eq!(third.broker, second.broker);
    // Those that have ended are collected, though nobody asks for more.
    let began = Instant::now();
    let children = format!("/proc/{}/task/{}/children", third.broker, third.broker);
    while std::fs::read_to_string(&children).unwrap().trim() != third.launcher.to_string() {
        assert!(began.elapsed() < PATIENCE, "the dead are kept");
        tokio::task::yield_now().await;
    }
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

    assert_ne!(finished.stdout.preview().trim(), waits.launcher.to_string());
    assert_eq!(waiting(&program).await.launcher, waits.launcher, "it waits on");
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
