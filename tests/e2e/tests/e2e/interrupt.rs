//! Ctrl-C in the middle of a run, and the run taken up again.

use std::time::{Duration, Instant};

use formwork_testkit::{http::Gate, postgres::Postgres};
use rustix::process::Signal;
use serde_json::json;
use sqlx::Connection as _;

use crate::{
    answers::{calling, ends, halted, held, saying},
    crash::{is_running, marked, stuck},
    world::{Ended, World, end_of, on_postgres, signal},
};

/// Within which a person who interrupts is given the prompt back; a busy machine has its share.
const SOON: Duration = Duration::from_secs(10);

async fn interrupted_while_a_model_streams(world: World) {
    let gate = Gate::new();
    let words = "I think about it for a while and say this, slowly, word by word.";
    world.server.reply(&World::chat("one"), halted(&gate, &saying(words)));
    world.server.reply(&World::chat("one"), ends("I have thought."));

    let program = world.formwork(["run", "-m", "Think about it."]).spawn().unwrap();
    gate.reached().await;
    let (ended, took) = interrupt(program).await;
    let paused = world.shown().await;
    let resumed = world.run(["runs", "resume"]).await;

    assert_interrupted(&ended, took);
    assert_eq!(paused["run"]["state"], "paused");
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert!(resumed.stdout.contains("I have thought."), "{resumed:#?}");
    assert_eq!(world.events("run.paused").await.len(), 1);
    let failed = world.events("model.failed").await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0]["data"]["error"]["fault"], "cancelled", "{failed:#?}");
    world.assert_sound().await;
}

async fn interrupted_while_a_program_runs(world: World) {
    let workflow = stuck(&world);
    world.server.reply(&World::chat("one"), ends("It had run."));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    marked(&world).await;
    let (ended, took) = interrupt(program).await;
    let running = is_running(&world);
    let resumed = world.run(["runs", "resume"]).await;

    assert_interrupted(&ended, took);
    assert!(!running, "the program goes on without Formwork");
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(world.repo.read("stuck.marks").unwrap(), "done\n");
    let failed = world.events("tool.failed").await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert_eq!(failed[0]["data"]["error"], "cancelled", "{failed:#?}");
    world.assert_sound().await;
}

/// Waits until a program hears of a signal itself, which then no longer ends it at once.
async fn hears(program: &tokio::process::Child, signal: Signal) {
    let status = format!("/proc/{}/status", program.id().unwrap());
    let bit = 1_u64 << (signal.as_raw() - 1);
    loop {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        if u64::from_str_radix(caught, 16).unwrap() & bit != 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_interrupt_while_documents_are_read_begins_nothing() {
    let world = World::new().await;
    // What takes seconds to be read.
    let tasks: String = (0..20_000)
        .map(|n| format!("[[tasks]]\nname = \"t{n}\"\ncommand = [\"true\"]\n"))
        .collect();
    let workflow = world.workflow(&tasks);

    for by in [Signal::INT, Signal::TERM] {
        let program = world.formwork(["run", workflow]).spawn().unwrap();
        hears(&program, by).await;
        signal(&program, by);
        let ended = end_of(program).await;

        assert_eq!(ended.code, Some(130), "{ended:#?}");
        assert!(ended.stderr.contains("interrupted before anything was begun"), "{ended:#?}");
    }
    assert_eq!(world.json(["runs", "list"]).await["runs"], json!([]));
}

async fn interrupt(program: tokio::process::Child) -> (Ended, Duration) {
    let began = Instant::now();
    signal(&program, Signal::INT);
    let ended = end_of(program).await;
    (ended, began.elapsed())
}

#[track_caller]
fn assert_interrupted(ended: &Ended, took: Duration) {
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.last_line().starts_with("interrupted"), "{ended:#?}");
    assert!(took < SOON, "it took {took:?}: {ended:#?}");
}

#[tokio::test]
async fn an_interrupt_while_a_model_streams_pauses_the_run() {
    interrupted_while_a_model_streams(World::new().await).await;
}

#[tokio::test]
async fn pg_an_interrupt_while_a_model_streams_pauses_the_run() {
    on_postgres(interrupted_while_a_model_streams).await;
}

#[tokio::test]
async fn an_interrupt_while_a_program_runs_ends_it_and_pauses_the_run() {
    interrupted_while_a_program_runs(World::new().await).await;
}

#[tokio::test]
async fn pg_an_interrupt_while_a_program_runs_ends_it_and_pauses_the_run() {
    on_postgres(interrupted_while_a_program_runs).await;
}

#[tokio::test]
async fn an_end_by_terminate_is_an_interrupt_and_says_so_to_machines() {
    let world = World::new().await;
    let gate = Gate::new();
    world.server.reply(&World::chat("one"), halted(&gate, &saying("I think about it.")));

    let program = world.formwork(["run", "-m", "Think.", "--json"]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::TERM);
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert_eq!(ended.json()["outcome"]["code"], json!("interrupted"));
}

#[tokio::test]
async fn pg_a_log_that_does_not_answer_keeps_nobody_from_leaving() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    let world = World::new().await.on(database.url());
    let gate = Gate::new();
    world.server.reply(
        &World::chat("one"),
        held(&gate, &calling(&[("exec", json!({ "command": ["true"] }))])),
    );
    // Whether or not the first was recorded.
    for _ in 0..2 {
        world.server.reply(&World::chat("one"), ends("Done."));
    }

    let program = world.formwork(["run", "-m", "Say so."]).spawn().unwrap();
    gate.reached().await;
    let mut holder = sqlx::PgConnection::connect(database.url()).await.unwrap();
    let hold = "BEGIN; LOCK TABLE formwork.events IN ACCESS EXCLUSIVE MODE";
    sqlx::raw_sql(hold).execute(&mut holder).await.unwrap();
    gate.open();
    let waits = "SELECT COUNT(*) FROM pg_catalog.pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut holder).await.unwrap() == 0 {}
    signal(&program, Signal::INT);
    signal(&program, Signal::TERM);
    let ended = end_of(program).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.stderr.contains("interrupted twice"), "{ended:#?}");
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
}
