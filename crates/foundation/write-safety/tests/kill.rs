//! What processes do to each other's files: one that is killed leaves the old content or the new, and those that write
//! at once lose nothing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use formwork_write_safety::{
    Apply, Edit, Isolation, Means, Merged, Reads, Root, Snapshots, Workspace, WriteRules,
};
use proptest::prelude::Rng as _;
use proptest::test_runner::TestRng;
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

const LEN: usize = 200_000;

/// How many processes write at once.
const PROCESSES: usize = 4;
/// How many threads each of them has, each with a session of its own.
const THREADS: usize = 2;
/// How many edits there are in all.
const EDITS: usize = 200;

fn workspace() -> Workspace {
    let root = Arc::new(Root::open(".").unwrap());
    Workspace::new(root, WriteRules::everything(), Reads::new().session())
}

/// Starts another process of this program that does one of the tests below in `folder`.
fn process(test: &str, folder: &Path, number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .current_dir(folder)
        .env("NUMBER", number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Rewrites `f`, and `a` and `b` together, for ever, saying so each time; only another test runs it.
#[test]
#[ignore = "the process that is killed"]
fn write_until_killed() {
    let workspace = workspace();
    workspace.read("f").unwrap();
    for letter in (b'a'..=b'y').cycle() {
        let one = |letter: u8| char::from(letter).to_string().repeat(100);
        workspace.write("f", &[letter; LEN], Apply::Write).unwrap();
        let now = std::fs::read_to_string("a").unwrap();
        let edit = [Edit::one(now.clone(), one(letter))];
        if now != one(letter) {
            let both = [(Path::new("a"), edit.as_slice()), (Path::new("b"), edit.as_slice())];
            workspace.edit_many(&both, Apply::Write).unwrap();
        }
        println!("wrote");
    }
}

/// Makes every edit of its number, by sessions of several threads; only another test runs it.
#[test]
#[ignore = "one of the processes that write at once"]
#[expect(clippy::disallowed_methods, reason = "the process is told its number by its environment")]
fn edit_with_others() {
    let number: usize = std::env::var("NUMBER").unwrap().parse().unwrap();
    let run = Reads::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = Arc::new(Root::open(".").unwrap());
            let workspace = Workspace::new(root, WriteRules::everything(), run.session());
            scope.spawn(move || {
                for line in (number * THREADS + thread..EDITS).step_by(PROCESSES * THREADS) {
                    let edit = [Edit::one(format!("line {line};"), format!("done {line};"))];
                    let both =
                        [(Path::new("f"), edit.as_slice()), (Path::new("d/g"), edit.as_slice())];
                    workspace.edit_many(&both, Apply::Write).unwrap();
                }
            });
        }
    });
}

#[test]
fn behaviour_22_a_kill_at_any_moment_leaves_whole_files_that_can_be_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    std::fs::write(&file, vec![b'-'; LEN]).unwrap();
    for name in ["a", "b"] {
        std::fs::write(folder.path().join(name), "z".repeat(100)).unwrap();
    }
    let mut rng = TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);

    for round in 0..40 {
        let mut child = process("write_until_killed", folder.path(), round);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wrote = lines.by_ref().map_while(Result::ok).filter(|line| line.contains("wrote"));
        assert_eq!(wrote.take(1 + round % 3).count(), 1 + round % 3);
        // At another point each time, by so much work instead of a clock.
        let reads = rng.next_u32() % 60;
        let spent: usize = (0..reads).map(|_| std::fs::read(&file).unwrap().len()).sum();
        child.kill().unwrap();
        child.wait().unwrap();

        let bytes = std::fs::read(&file).unwrap();
        let is_whole = bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]);
        assert!(is_whole, "round {round}, after reading {spent} bytes");
        for name in ["a", "b"] {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            let first = text.chars().next().unwrap();
            assert_eq!(text, first.to_string().repeat(100), "round {round}, after {spent} bytes");
        }
        // Each file is whole; a kill between two of them leaves one old, which is put right here.
        std::fs::copy(folder.path().join("a"), folder.path().join("b")).unwrap();
    }
}

#[test]
fn two_hundred_edits_of_several_processes_and_sessions_lose_none() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..EDITS).map(|line| format!("line {line};\n")).collect();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    for file in ["f", "d/g"] {
        std::fs::write(folder.path().join(file), &lines).unwrap();
    }

    let start = |number| process("edit_with_others", folder.path(), number);
    let children: Vec<Child> = (0..PROCESSES).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    for file in ["f", "d/g"] {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert_eq!(text, lines.replace("line", "done"), "{file}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// How many files are merged, more than are put in place at once.
const MERGED: usize = 130;

fn isolation(folder: &Path) -> Isolation {
    let snapshots = Arc::new(Snapshots::open(folder.join("kept")).unwrap());
    Isolation::open(folder.join("own"), snapshots).unwrap()
}

/// Merges the copy that is there; only another test runs it.
#[test]
#[ignore = "the process that is killed"]
fn merge_until_killed() {
    let mut own = isolation(Path::new(".")).find("one").unwrap().unwrap();
    let root = Root::open("ws").unwrap();
    println!("begins");
    own.merge(&root, &WriteRules::everything()).unwrap();
    own.remove().unwrap();
}

#[test]
fn a_merge_that_is_killed_is_ended_by_the_next_and_loses_nothing() {
    for stop in [0, 40, 63, 64, 120] {
        let folder = tempfile::tempdir().unwrap();
        let ws = folder.path().join("ws");
        std::fs::create_dir(&ws).unwrap();
        let file = |at: usize| format!("f{at:03}");
        for at in 0..MERGED {
            std::fs::write(ws.join(file(at)), "1\n2\n3\n").unwrap();
        }
        let root = Root::open(&ws).unwrap();
        let made = isolation(folder.path()).make(&root, "one", Means::Snapshot, &|_| true);
        let work = made.unwrap().path();
        for at in 0..MERGED {
            std::fs::write(work.join(file(at)), "1\n2\nours\n").unwrap();
        }
        std::fs::write(ws.join(file(7)), "theirs\n2\n3\n").unwrap();

        let mut child = process("merge_until_killed", folder.path(), 0);
        let is_merged = || {
            let text = std::fs::read_to_string(ws.join(file(stop)));
            text.unwrap().ends_with("ours\n")
        };
        while !is_merged() && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = child.kill();
        child.wait().unwrap();
        if let Some(mut own) = isolation(folder.path()).find("one").unwrap() {
            let merged = own.merge(&root, &WriteRules::everything()).unwrap();
            assert!(matches!(merged, Merged::Done(_)), "{merged:?}");
            own.remove().unwrap();
        }
        // It may have been killed while it removed what was merged.
        isolation(folder.path()).sweep(&root).unwrap();

        for at in 0..MERGED {
            let wanted = if at == 7 { "theirs\n2\nours\n" } else { "1\n2\nours\n" };
            assert_eq!(std::fs::read_to_string(ws.join(file(at))).unwrap(), wanted, "{at}");
        }
        assert_eq!(std::fs::read_dir(folder.path().join("own")).unwrap().count(), 0);
    }
}
