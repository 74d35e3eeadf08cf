//! Processes that share a store and are killed and held up: each run ends once, and nobody writes who has
//! lost it.

use std::process::Command;

use formwork_testkit::postgres::Postgres;

fn shared_on(store: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_formwork-crash"));
    let output = command
        .args(["--store", store, "--processes", "3", "--runs", "12", "--kills", "6"])
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("0 faults"), "{said}");
}

#[test]
fn twelve_runs_end_once_though_the_processes_that_share_them_are_killed() {
    shared_on("sqlite");
}

#[test]
fn pg_twelve_runs_end_once_though_the_processes_that_share_them_are_killed() {
    if Postgres::shared().is_some() {
        shared_on("postgres");
    }
}
