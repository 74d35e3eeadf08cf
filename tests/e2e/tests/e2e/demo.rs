//! The demonstrations, and what machines read of a run.

use serde_json::Value;

use crate::{
    answers::{calls, ends},
    world::{World, end_of, on_postgres},
};

/// Compares with a snapshot in which words stand for what differs from run to run.
macro_rules! assert_shown {
    ($name:literal, $text:expr) => {
        insta::with_settings!({ filters => FILTERS.to_vec() }, {
            insta::assert_snapshot!($name, $text);
        });
    };
}

const FILTERS: [(&str, &str); 8] = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "RUN"),
    (r"[0-9a-f]{64}", "HASH"),
    (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
    (r"/[^ ]*/formwork-demo-[^/ ]+", "FOLDER"),
    (r"\b\d+(\.\d+)?(ms|s|µs)\b", "SPAN"),
    (r"\d[\d,]* tokens", "N tokens"),
    (r"events +\d+", "events    N"),
    (r" *\$\d+(\.\d+)?", " USD"),
];

#[tokio::test]
async fn the_demo_mends_a_repository_and_shows_the_evidence() {
    let world = World::new().await;

    let ended = world.run(["demo", "--scripted"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_shown!("demo_stdout", ended.stdout);
    assert_shown!("demo_stderr", ended.stderr);
    world.assert_sound().await;
}

#[tokio::test]
async fn the_liar_is_refused_by_the_evidence() {
    let world = World::new().await;

    let ended = world.run(["demo", "--liar"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_shown!("liar_stdout", ended.stdout);
    assert_shown!("liar_stderr", ended.stderr);
    world.assert_sound().await;
}

/// Makes a world in which a run of one task takes three rounds.
fn chatty(world: &World) {
    world.repo.write("loud.sh", "for n in 1 2 3 4 5 6 7 8 9; do echo $n; done\n").unwrap();
    for _ in 0..2 {
        let call = ("exec", serde_json::json!({ "command": ["sh", "loud.sh"] }));
        world.server.reply(&World::chat("one"), calls(&[call]));
    }
    world.server.reply(&World::chat("one"), ends("Done."));
}

async fn json_is_one_document_and_jsonl_a_line_for_each_event(world: World) {
    chatty(&world);
    let json = world.run(["run", "-m", "Be loud.", "--json"]).await;
    chatty(&world);
    let jsonl = world.run(["run", "-m", "Be loud.", "--jsonl"]).await;

    assert_eq!((json.code, jsonl.code), (Some(0), Some(0)), "{json:#?} {jsonl:#?}");
    assert_eq!((json.stderr.as_str(), jsonl.stderr.as_str()), ("", ""));
    assert_eq!(json.json()["outcome"]["code"], "completed");
    assert_eq!(json.json()["answer"], "Done.");
    let mut lines: Vec<Value> =
        jsonl.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcome = lines.pop().unwrap();
    assert_eq!(outcome["outcome"]["code"], "completed");
    let run = outcome["outcome"]["run"].as_str().unwrap();
    // What was streamed is the log of the run, whole and in its order.
    let logged = world.json(["events", run]).await;
    assert_eq!(&Value::Array(lines), &logged["events"]);
}

#[tokio::test]
async fn json_is_one_document_and_jsonl_is_the_log() {
    json_is_one_document_and_jsonl_a_line_for_each_event(World::new().await).await;
}

#[tokio::test]
async fn pg_json_is_one_document_and_jsonl_is_the_log() {
    on_postgres(json_is_one_document_and_jsonl_a_line_for_each_event).await;
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_panic() {
    let world = World::new().await;
    chatty(&world);
    assert_eq!(world.run(["run", "-m", "Be loud."]).await.code, Some(0));

    for verb in
        ["events", "events --jsonl", "runs show", "schema workflow", "completions bash", "--help"]
    {
        let mut command = world.bare(verb.split(' '));
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer);
        drop(reader); // Before anything is written, so that every write fails.
        let program = command.spawn().unwrap();
        drop(command); // It holds an end of the pipe.
        let ended = end_of(program).await;

        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{verb}: {ended:#?}");
    }
}
