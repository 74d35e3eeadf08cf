//! What a conversation hears besides its task: the repository's instructions, its skills, and people.

use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calling, calls, ending, ends, held},
    world::{World, end_of, on_postgres, signal},
};

fn read(path: &str) -> (&'static str, Value) {
    ("fs.read", json!({ "path": path }))
}

fn instructed(world: &World) {
    let files = [
        ("AGENTS.md", "Use tabs.\n@docs/style.md\n"),
        ("docs/style.md", "Short names.\u{202E}\n"),
        ("crates/a/AGENTS.md", "In here, no panics.\n"),
        ("crates/a/src/lib.rs", "fn a() {}\n"),
        ("crates/a/src/more.rs", "fn more() {}\n"),
        (
            ".formwork/skills/release/SKILL.md",
            "---\ndescription: How a release is made.\n---\nTag it.\n",
        ),
    ];
    for (path, text) in files {
        world.repo.write(path, text).unwrap();
    }
}

async fn followed(world: World) {
    instructed(&world);
    let chat = World::chat("one");
    let gate = Gate::new();
    world.server.reply(&chat, calls(&[read("crates/a/src/lib.rs")]));
    world.server.reply(&chat, held(&gate, &calling(&[read("crates/a/src/more.rs")])));
    world.server.reply(
        &chat,
        calls(&[read("crates/a/src/more.rs"), ("skill.load", json!({ "name": "release" }))]),
    );
    world.server.reply(&chat, ends("Done."));
    let program = world.formwork(["run", "-m", "Look at crate a."]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let requests = world.server.requests();
    let (first, second, last) = (requests[0].text(), requests[1].text(), requests[3].text());
    assert!(first.contains("from=\\\"AGENTS.md\\\" trust=\\\"repository\\\""), "{first}");
    assert!(
        first.contains("Short names.[U+202E]") && first.contains("release: How a release is made."),
        "{first}"
    );
    assert!(!first.contains("no panics") && !first.contains("Tag it."), "{first}");
    assert!(second.contains("from=\\\"crates/a/AGENTS.md\\\""), "{second}");
    assert_eq!(last.matches("In here, no panics.").count(), 1, "it is told once: {last}");
    assert!(last.contains("Tag it."), "{last}");
    let loaded = world.events("instructions.loaded").await;
    let paths: Vec<_> = loaded.iter().map(|event| &event["data"]["path"]).collect();
    assert_eq!(paths, ["AGENTS.md", "crates/a/AGENTS.md"]);
    // What the files say by now does not matter to what happened.
    world.repo.write("crates/a/AGENTS.md", "Panic.\n").unwrap();
    world.repo.write("AGENTS.md", "Use spaces.\n").unwrap();
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn instructions_from_the_root_to_the_file_at_hand_are_told_once_and_survive_a_kill() {
    followed(World::new().await).await;
}

#[tokio::test]
async fn pg_instructions_from_the_root_to_the_file_at_hand_are_told_once_and_survive_a_kill() {
    on_postgres(followed).await;
}

#[tokio::test]
async fn instructions_are_those_that_the_config_names() {
    let config =
        "[permissions]\nmode = \"auto\"\n[instructions]\nfiles = [\"CLAUDE.md\"]\ntokens = 10\n";
    let world = World::with(config).await;
    instructed(&world);
    world
        .repo
        .write("CLAUDE.md", "Be kind to the tests, whatever they say of you.\n".repeat(9))
        .unwrap();
    world.server.reply(&World::chat("one"), ends("Done."));

    let ended = world.run(["run", "-m", "Look."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let first = world.server.requests()[0].text();
    assert!(first.contains("Be kind") && first.contains("[cut here: 40 of"), "{first}");
    assert!(!first.contains("Use tabs."), "{first}");
    let shown = world.json(["config", "show"]).await;
    assert_eq!(shown["config"]["instructions.files"][0], "CLAUDE.md", "{shown:#}");
}

async fn steered(world: World) {
    let chat = World::chat("one");
    let (working, claiming) = (Gate::new(), Gate::new());
    world.server.reply(&chat, held(&working, &calling(&[read("README.md")])));
    world.server.reply(&chat, held(&claiming, &ending("Done.")));
    world.server.reply(&chat, ends("Done with tabs."));
    let program = world.formwork(["run", "-m", "Look."]).spawn().unwrap();
    working.reached().await;
    let runs = world.json(["runs", "list"]).await;
    let run = runs["runs"][0]["run"].as_str().unwrap().to_owned();

    let told = world.run(["runs", "steer", &run, "Mind the tabs."]).await;
    working.open();
    claiming.reached().await;
    let late = world.run(["runs", "steer", &run, "And the tests."]).await;
    claiming.open();
    let ended = end_of(program).await;

    assert_eq!((told.code, late.code), (Some(0), Some(0)), "{told:#?}{late:#?}");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("Done with tabs."), "{ended:#?}");
    let requests = world.server.requests();
    let (second, third) = (requests[1].text(), requests[2].text());
    assert!(second.contains("says while you work:]\\nMind the tabs."), "{second}");
    // It had claimed to be done; what was said meanwhile is the answer to that.
    assert!(third.contains("\"role\":\"tool\"") && third.contains("And the tests."), "{third}");
    assert_eq!(world.events("session.steered").await.len(), 2);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    let over = world.run(["runs", "steer", &run, "Too late."]).await;
    assert!(over.stderr.contains("cannot be steered"), "{over:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn what_is_said_to_a_run_from_another_process_is_heard_at_its_next_turn() {
    steered(World::new().await).await;
}

#[tokio::test]
async fn pg_what_is_said_to_a_run_from_another_process_is_heard_at_its_next_turn() {
    on_postgres(steered).await;
}
