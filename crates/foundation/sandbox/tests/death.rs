//! The whole tree ends when the process that asked for it is killed.
#![cfg(target_os = "linux")]

mod support;

use std::io::{BufRead, BufReader};

/// Not a test of its own: the test below runs it as a process and kills it.
#[tokio::test]
#[ignore = "runs until it is killed"]
async fn host() {
    let dir = std::env::current_dir().unwrap();
    // In its own session, so that no signal of the host's group reaches it.
    let script = "setsid sh -c 'echo $$ > pid; exec sleep 1000' & while ! [ -s pid ]; do :; done; \
                  echo $$ > leader; echo up; sleep 1000";
    let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
    let sandbox = support::launched(&dir);
    let command = support::shell(script, &dir);
    let run = sandbox.run(command, Default::default(), Some(sender));
    tokio::select! {
        _ = run => {}
        _ = async {
            receiver.recv().await;
            println!("up");
            std::future::pending::<()>().await;
        } => {}
    }
}

#[test]
fn a_killed_host_leaves_nothing_running() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["host", "--exact", "--ignored", "--nocapture"])
        .current_dir(dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("up")));
    let pids = ["pid", "leader"].map(|file| support::pid_in(&dir.path().join(file)));
    assert!(pids.iter().all(|pid| support::runs(*pid)));

    host.kill().unwrap();
    host.wait().unwrap();

    for pid in pids {
        assert!(support::ends_within(pid, 3), "{pid} lives on");
    }
}
