//! The notepad of a run.

use serde_json::json;

use crate::world::{Setup, World};

#[tokio::test]
async fn a_note_is_in_the_log_itself_without_its_secrets_and_every_task_reads_it() {
    let world = World::with(Setup { secret: Some("hunter2-hunter2"), ..Setup::default() });

    let none = world.done("notepad.read", json!({})).await;
    world.done("notepad.add", json!({ "text": "the parser is in src/p.rs\nand slow" })).await;
    world.done("notepad.add", json!({ "text": "key: hunter2-hunter2" })).await;
    let read = world.done("notepad.read", json!({})).await;

    assert_eq!(none, "[no notes yet]");
    let expected = "- agent:coder: the parser is in src/p.rs\n  and slow\n\
                    - agent:coder: key: [secret:KEY]\n";
    assert_eq!(read, expected);
    let kinds = world.log.kinds().concat();
    let at = kinds.iter().position(|kind| kind == "note.added").unwrap();
    // With its outcome or not at all.
    assert_eq!(kinds[at + 1], "tool.completed");
    assert!(!world.log.text().contains("hunter2"));
}

#[tokio::test]
async fn an_empty_and_an_endless_note_are_refused() {
    let world = World::new();

    let empty = world.fails("notepad.add", json!({ "text": " \n" })).await;
    let long = world.fails("notepad.add", json!({ "text": "é".repeat(2_049) })).await;

    assert_eq!(empty, "error (invalid_arguments): the note is empty");
    let expected = "error (invalid_arguments): a note has at most 4096 bytes, and this one 4098";
    assert_eq!(long, expected);
}
