//! A process that is killed while it writes leaves the old content or the new.

use formwork_write_safety::{Apply, Reads, Root, Workspace, WriteRules};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

const LEN: usize = 200_000;

/// Rewrites `f` in the current folder for ever, saying so each time; only the other test runs it.
#[test]
#[ignore = "the process that is killed"]
fn write_until_killed() {
    let root = Arc::new(Root::open(".").unwrap());
    let workspace = Workspace::new(root, WriteRules::everything(), Reads::new().session());
    workspace.read("f").unwrap();
    for letter in (b'a'..=b'z').cycle() {
        workspace.write("f", &[letter; LEN], Apply::Write).unwrap();
        println!("wrote");
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_file_that_can_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    std::fs::write(&file, vec![b'-'; LEN]).unwrap();

    for round in 0..20 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "write_until_killed", "--ignored", "--nocapture"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wrote = lines.by_ref().map_while(Result::ok).filter(|line| line.contains("wrote"));
        assert_eq!(wrote.take(1 + round % 3).count(), 1 + round % 3);
        // Later each time, by work instead of a clock.
        let spent: usize = (0..round * 3).map(|_| std::fs::read(&file).unwrap().len()).sum();
        child.kill().unwrap();
        child.wait().unwrap();

        let bytes = std::fs::read(&file).unwrap();
        let whole = bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]);
        assert!(whole, "round {round}, after reading {spent} bytes");
    }
}
