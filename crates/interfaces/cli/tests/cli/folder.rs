//! The example folder of a command-line user, from trust to the record.

use std::{fs, path::Path};

use crate::world::World;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

fn example() -> World {
    let world = World::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/workflow_folder");
    copy(&folder, &world.path(""));
    world
}

#[test]
fn the_example_runs_once_it_is_trusted() {
    let world = example();

    let refused = world.run(&["run", "release-notes"]);
    let trusted = world.run(&["trust"]);
    let ran = world.run(&["run", "release-notes"]);

    assert_eq!((refused.code, trusted.code, ran.code), (3, 0, 0), "{refused}\n{trusted}\n{ran}");
    assert!(ran.stdout.contains("completed: 1 task done, 4 checks passed"), "{ran}");
    let notes = fs::read_to_string(world.path("RELEASE.md")).unwrap();
    let wanted = "# Version 1.2.0\n\n- Exports can be written as CSV.\n- A search finds words with accents.\n";
    assert_eq!(notes.trim_start(), wanted);
}

#[test]
fn what_a_run_did_can_be_read_and_checked_afterwards() {
    let world = example();
    world.run(&["trust"]);
    world.run(&["run", "release-notes"]);

    let list = world.run(&["runs", "list"]);
    let show = world.run(&["runs", "show"]);
    let events = world.run(&["events", "--kind", "check.finished", "--jsonl"]);
    let audit = world.run(&["audit", "verify"]);

    assert!(list.stdout.contains("release-notes"), "{list}");
    assert!(show.stdout.contains("✗ exit check \"the notes have their title\""), "{show}");
    assert_eq!(events.stdout.lines().count(), 5, "{events}");
    assert_eq!(audit.code, 0, "{audit}");
}

#[test]
fn a_run_in_json_is_one_document() {
    let world = example();
    world.run(&["trust"]);

    let ran = world.run(&["run", "release-notes", "--json"]);

    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &told["outcome"]["code"]), (0, &"completed".into()), "{ran}");
}

#[test]
fn a_run_as_events_ends_with_its_outcome() {
    let world = example();
    world.run(&["trust"]);

    let ran = world.run(&["run", "release-notes", "--jsonl"]);

    let lines: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.first().unwrap()["kind"], "run.created");
    assert_eq!(lines.last().unwrap()["outcome"]["code"], "completed", "{ran}");
    let numbers: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    let wanted: Vec<u64> = (1..).take(lines.len() - 1).collect();
    assert_eq!(numbers, wanted);
}
