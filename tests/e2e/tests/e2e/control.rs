//! Runs paused, ended, forked and rewound, each by another process than the one that works on them.

use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Child;

use crate::{
    answers::{calls, ending, ends, halted, held, saying},
    flow::suspended,
    world::{Ended, World, end_of, on_postgres, signal},
};

/// Begins a run whose model has said half of its answer. Returns the program and the run.
async fn half_way(world: &World) -> (Child, String) {
    let gate = Gate::new();
    let words = "I think about it for a while and say this, slowly, word by word.";
    world.server.reply(&World::chat("one"), halted(&gate, &saying(words)));
    let program = world.formwork(["run", "-m", "Think about it."]).spawn().unwrap();
    gate.reached().await;
    (program, newest(world).await)
}

async fn newest(world: &World) -> String {
    let listed = world.json(["runs", "list"]).await;
    listed["runs"][0]["run"].as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_left(ended: &Ended) {
    assert_eq!(ended.code, Some(130), "{ended:#?}");
    assert!(ended.last_line().starts_with("interrupted"), "{ended:#?}");
}

async fn paused_from_elsewhere(world: World) {
    let (program, run) = half_way(&world).await;
    world.server.reply(&World::chat("one"), ends("I have thought."));

    let paused = world.json(["runs", "pause", &run, "--reason", "lunch"]).await;
    let left = end_of(program).await;
    let again = world.json(["runs", "pause", &run]).await;
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(paused, json!({ "version": 1, "run": run, "state": "paused", "done": true }));
    assert_eq!(again, paused);
    assert_left(&left);
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    let told = world.events("run.pause").await;
    assert_eq!(told.len(), 2, "{told:#?}");
    assert_eq!(told[0]["kind"], "run.pause_requested");
    assert_eq!(told[0]["principal"], "user:ada");
    assert_eq!(told[1]["data"]["reason"], "lunch");
    let late = world.run(["runs", "pause", &run]).await;
    assert_eq!(late.code, Some(1), "{late:#?}");
    assert!(late.stderr.contains("is completed and cannot be paused"), "{late:#?}");
    world.assert_sound().await;
}

async fn aborted_from_elsewhere(world: World) {
    let (program, run) = half_way(&world).await;

    let aborted = world.json(["runs", "abort", &run]).await;
    let left = end_of(program).await;
    let resumed = world.run(["runs", "resume", &run]).await;

    assert_eq!(aborted, json!({ "version": 1, "run": run, "state": "aborted", "done": true }));
    assert_left(&left);
    assert_eq!(resumed.code, Some(1), "{resumed:#?}");
    assert!(resumed.stderr.contains("is aborted and cannot be resumed"), "{resumed:#?}");
    assert_eq!(world.events("run.finished").await.len(), 1);
    world.assert_sound().await;
}

async fn aborted_after_a_kill(world: World) {
    let (program, run) = half_way(&world).await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let aborted = world.json(["runs", "abort", &run]).await;

    assert_eq!(aborted["state"], "aborted");
    assert_eq!(world.server.requests().len(), 1, "nothing was begun to end it");
    let (reserved, settled) =
        (world.events("budget.reserved").await, world.events("budget.settled").await);
    assert_eq!((reserved.len(), settled.len()), (1, 1));
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_40_a_run_is_paused_by_another_process_and_goes_on_later() {
    paused_from_elsewhere(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_40_a_run_is_paused_by_another_process_and_goes_on_later() {
    on_postgres(paused_from_elsewhere).await;
}

#[tokio::test]
async fn behaviour_40_a_run_is_ended_by_another_process_for_good() {
    aborted_from_elsewhere(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_40_a_run_is_ended_by_another_process_for_good() {
    on_postgres(aborted_from_elsewhere).await;
}

#[tokio::test]
async fn a_run_whose_process_was_killed_is_ended_by_whoever_asks_for_it() {
    aborted_after_a_kill(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_whose_process_was_killed_is_ended_by_whoever_asks_for_it() {
    on_postgres(aborted_after_a_kill).await;
}

#[tokio::test]
async fn a_terminal_that_is_closed_pauses_the_run() {
    let world = World::new().await;
    let (program, _) = half_way(&world).await;

    signal(&program, Signal::HUP);
    let left = end_of(program).await;

    assert_left(&left);
    assert_eq!(world.shown().await["run"]["state"], "paused");
}

#[tokio::test]
async fn a_run_that_is_taken_up_again_is_recorded_where_asked() {
    let world = World::new().await;
    let (program, run) = half_way(&world).await;
    world.json(["runs", "pause", &run]).await;
    end_of(program).await;
    world.server.reply(&World::chat("one"), ends("I have thought."));
    let folder = world.state().with_file_name("tape");

    let folder_name = folder.to_str().unwrap();
    let resumed = world.run(["runs", "resume", "--record", folder_name]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}

/// Lets a run write two files, one by a tool and one by a program. Returns the run, and the place of its
/// last event before each.
async fn written(world: &World) -> (String, [u64; 2]) {
    world.agent("worker", "one");
    world.repo.write("second.sh", "echo 2 > second.txt\n").unwrap();
    let chat = World::chat("one");
    let write = ("fs.write", json!({ "path": "first.txt", "content": "1\n" }));
    world.server.reply(&chat, calls(&[write]));
    world.server.reply(&chat, calls(&[("exec", json!({ "command": ["sh", "second.sh"] }))]));
    world.server.reply(&chat, ends("Both are written."));
    let workflow = world.workflow(
        "[[tasks]]\nname = \"write\"\nagent = \"worker\"\nprompt = \"Write both.\"\n\
         postchecks = [{ command = [\"test\", \"-f\", \"second.txt\"] }]\n",
    );
    let ended = world.run(["run", workflow]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let before = |event: &Value| event["seq"].as_u64().unwrap() - 1;
    let asked = world.events("tool.requested").await;
    (newest(world).await, [before(&asked[0]), before(&asked[1])])
}

async fn rewound(world: World) {
    let (run, [_, second]) = written(&world).await;

    let forked = world.json(["runs", "rewind", &run, "--to", &second.to_string()]).await;
    let left = (world.path("first.txt").exists(), world.path("second.txt").exists());
    let new = forked["run"].as_str().unwrap().to_owned();
    world.server.reply(&World::chat("one"), ends("Both are written again."));
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(forked["restored"], json!(["second.txt"]), "{forked:#}");
    assert_eq!(left, (true, false));
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(world.repo.read("second.txt").unwrap(), "2\n", "the call was made again");
    let shown = world.json(["runs", "show", &new]).await;
    assert_eq!(shown["run"]["state"], "completed", "{shown:#}");
    assert_eq!(shown["tasks"].as_array().unwrap().len(), 2);
    let compared = world.json(["runs", "diff", &run, &new]).await;
    let what = compared["divergence"]["what"].as_str().unwrap();
    assert!(what.contains("Both are written"), "{compared:#}");
    assert_eq!(compared["tasks"], json!([]), "{compared:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_run_is_rewound_with_what_its_tools_and_programs_wrote() {
    rewound(World::new().await).await;
}

#[tokio::test]
async fn pg_a_run_is_rewound_with_what_its_tools_and_programs_wrote() {
    on_postgres(rewound).await;
}

#[tokio::test]
async fn a_fork_leaves_the_files_and_a_point_that_is_not_there_is_named() {
    let world = World::new().await;
    let (run, [first, _]) = written(&world).await;

    let forked = world.json(["runs", "fork", &run, "--at", &first.to_string()]).await;
    let past = world.run(["runs", "fork", &run, "--at", "9999"]).await;
    let ended = world.shown().await["run"]["events"].as_u64().unwrap();
    let early = world.run(["runs", "fork", &run, "--at", "1"]).await;

    assert!(forked["seq"].as_u64().unwrap() <= first, "{forked:#}");
    assert!(world.path("first.txt").exists() && ended > 3);
    for (refused, why) in [(past, "no event 9999"), (early, "before the end of its plan")] {
        assert_eq!(refused.code, Some(1), "{refused:#?}");
        assert!(refused.stderr.contains(why), "{refused:#?}");
        assert!(refused.stderr.contains("formwork events"), "{refused:#?}");
    }
    world.assert_sound().await;
}

async fn forked_where_a_wait_was_met(world: World) {
    let workflow = world.workflow(
        "[[tasks]]\nname = \"one\"\ncommand = [\"true\"]\n\
         [[tasks]]\nname = \"review\"\ndepends_on = [\"one\"]\nwait_for = { event = \"go\" }\n",
    );
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    suspended(&world, "review").await;
    world.json(["events", "fire", "go"]).await;
    let ended = end_of(program).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let (run, met) = (newest(&world).await, world.events("wait.met").await);

    // What was fired was meant for the other run, and this one waits for what comes to itself.
    world.json(["runs", "fork", &run, "--at", &met[0]["seq"].to_string()]).await;
    let program = world.formwork(["runs", "resume"]).spawn().unwrap();
    suspended(&world, "review").await;
    world.json(["events", "fire", "go"]).await;
    let resumed = end_of(program).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_fork_from_where_a_task_was_told_waits_to_be_told() {
    forked_where_a_wait_was_met(World::new().await).await;
}

#[tokio::test]
async fn pg_a_fork_from_where_a_task_was_told_waits_to_be_told() {
    on_postgres(forked_where_a_wait_was_met).await;
}

/// Each event of a run is a point that a fork goes on from to the same end.
#[tokio::test]
async fn a_run_can_be_forked_at_each_of_its_events() {
    let world = World::new().await;
    let (run, _) = written(&world).await;
    let last = world.events("run.finished").await[0]["seq"].as_u64().unwrap();
    let ask = Gate::new();
    ask.open();

    for at in 3..last {
        let forked = world.json(["runs", "fork", &run, "--at", &at.to_string()]).await;
        let new = forked["run"].as_str().unwrap().to_owned();
        for _ in 0..2 {
            world.server.reply(&World::chat("one"), held(&ask, &ending("Both are written.")));
        }
        let resumed = world.run(["runs", "resume", &new]).await;
        assert_eq!(resumed.code, Some(0), "forked at {at}, {forked:#}: {resumed:#?}");
    }
    world.assert_sound().await;
}
