//! Goals: planned by a model, done apart, merged one by one, and never over what somebody else has done.

use formwork_protocols::model::without_left;
use formwork_testkit::http::Gate;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    answers::{calling, calls, ends, held},
    workflow::states,
    world::{World, end_of, on_postgres, signal},
};

/// Makes a world in which one plans and two work, with a suite that refuses a file named bad.txt.
fn set_up(world: &World) {
    world.agent("chief", "one");
    world.agent("left", "two");
    world.agent("right", "three");
    world.repo.write("suite.sh", "test ! -e bad.txt\n").unwrap();
    world.repo.write("shared.txt", "one\n").unwrap();
    world.repo.commit("suite: refuse what is bad").unwrap();
}

const GOAL: [&str; 8] =
    ["goal", "Make files.", "--test", "sh suite.sh", "--mode", "auto", "--planner", "chief"];

fn node(name: &str, agent: &str, after: &[&str]) -> Value {
    json!({ "name": name, "agent": agent, "prompt": format!("Do {name}."), "depends_on": after })
}

fn plans(nodes: &[Value]) -> formwork_testkit::http::Reply {
    let output = json!({ "nodes": nodes });
    calls(&[("end_task", json!({ "summary": "Planned.", "output": output }))])
}

fn writes(path: &str, content: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": path, "content": content }))
}

fn reads(path: &str) -> (&'static str, Value) {
    ("fs.read", json!({ "path": path }))
}

/// Returns what the model of a provider was sent, in order.
fn sent(world: &World, provider: &str) -> Vec<Value> {
    let requests = world.server.requests();
    let own = requests.iter().filter(|request| request.path() == World::chat(provider));
    own.map(|request| serde_json::from_str(&request.text()).unwrap()).collect()
}

fn last(request: &Value) -> &str {
    let messages = request["messages"].as_array().unwrap();
    without_left(messages.last().unwrap()["content"].as_str().unwrap())
}

fn assert_nothing_left(world: &World) {
    let left = std::fs::read_dir(world.state().join("apart")).into_iter().flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

async fn a_goal_is_planned_done_apart_and_merged(world: World) {
    set_up(&world);
    let (chief, left, right) = (World::chat("one"), World::chat("two"), World::chat("three"));
    let mut circle = [node("a", "left", &["b"]), node("b", "nobody", &["a"])];
    circle[1]["usd"] = json!("-1");
    circle[1]["checks"] = json!([["echo", "{{x}}"]]);
    let nodes = [node("c", "left", &["a", "b"]), node("a", "left", &[]), node("b", "right", &[])];
    world.server.reply(&chief, plans(&circle));
    world.server.reply(&chief, plans(&nodes));
    let (one, two) = (Gate::new(), Gate::new());
    world.server.reply(&left, calls(&[writes("a.txt", "a\n")]));
    world.server.reply(&left, held(&one, &calling(&[("end_task", json!({ "summary": "A." }))])));
    world.server.reply(&right, calls(&[writes("b.txt", "b\n")]));
    world.server.reply(&right, held(&two, &calling(&[("end_task", json!({ "summary": "B." }))])));
    world.server.reply(&left, calls(&[reads("a.txt"), reads("b.txt"), writes("c.txt", "c\n")]));
    world.server.reply(&left, ends("C."));

    let program = world.formwork(GOAL).spawn().unwrap();
    // Two of the plan, two of each of those that depend on nothing.
    world.server.wait_for_requests(6).await;
    // What both have written is nobody else's yet.
    let unseen = [world.path("a.txt").exists(), world.path("b.txt").exists()];
    one.open();
    two.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(unseen, [false, false]);
    let planned = sent(&world, "one");
    insta::assert_snapshot!("what_is_wrong_with_a_plan", last(&planned[1]));
    for name in ["a", "b", "c"] {
        assert_eq!(world.repo.read(format!("{name}.txt")).unwrap(), format!("{name}\n"));
    }
    let told = sent(&world, "two").pop().unwrap()["messages"].to_string();
    assert!(told.contains("1\\ta") || told.contains("a\\n"), "{told}");
    let shown = world.shown().await;
    let mut states = states(&shown);
    states.sort_unstable();
    let wanted = ["a", "b", "build", "c", "goal", "plan"].map(|name| (name, "completed"));
    assert_eq!(states, wanted);
    assert_nothing_left(&world);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    let undone = world.run(["undo", shown["run"]["run"].as_str().unwrap()]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(["a", "b", "c"].iter().all(|name| !world.path(format!("{name}.txt")).exists()));
    world.assert_sound().await;
}

#[tokio::test]
async fn a_goal_is_planned_and_its_tasks_see_what_they_depend_on() {
    a_goal_is_planned_done_apart_and_merged(World::new().await).await;
}

#[tokio::test]
async fn pg_a_goal_is_planned_and_its_tasks_see_what_they_depend_on() {
    on_postgres(a_goal_is_planned_done_apart_and_merged).await;
}

async fn a_conflict_goes_back_to_whoever_came_second(world: World) {
    set_up(&world);
    let (chief, left, right) = (World::chat("one"), World::chat("two"), World::chat("three"));
    world.server.reply(&chief, plans(&[node("a", "left", &[]), node("b", "right", &[])]));
    let late = Gate::new();
    world.server.reply(&right, calls(&[reads("shared.txt")]));
    world.server.reply(&right, calls(&[writes("shared.txt", "one b\n")]));
    world.server.reply(&right, held(&late, &calling(&[("end_task", json!({ "summary": "B." }))])));
    world.server.reply(&right, calls(&[reads("shared.txt")]));
    world.server.reply(&right, calls(&[writes("shared.txt", "one a b\n")]));
    world.server.reply(&right, ends("B, with a."));
    let begun = Gate::new();
    world.server.reply(&left, held(&begun, &calling(&[reads("shared.txt")])));
    world.server.reply(&left, calls(&[writes("shared.txt", "one a\n")]));
    world.server.reply(&left, ends("A."));
    let mut program = world.formwork(GOAL.into_iter().chain(["--jsonl"])).spawn().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(
        program.stdout.take().unwrap(),
    ));
    late.reached().await;
    begun.open();
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        // The first of the two is merged, and the second does not know.
        if line["kind"] == "check.finished" && line["data"]["verdict"]["check"] == "merged" {
            late.open();
        }
    }

    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = sent(&world, "three");
    assert!(
        last(&told[3]).contains("the workspace was changed meanwhile, and nothing was merged"),
        "{}",
        last(&told[3])
    );
    let marked = last(&told[4]);
    assert!(marked.contains("one a") && marked.contains("one b"), "{marked}");
    assert_eq!(world.repo.read("shared.txt").unwrap(), "one a b\n");
    assert_nothing_left(&world);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_conflict_of_two_tasks_of_a_goal_clobbers_nothing() {
    a_conflict_goes_back_to_whoever_came_second(World::new().await).await;
}

#[tokio::test]
async fn pg_a_conflict_of_two_tasks_of_a_goal_clobbers_nothing() {
    on_postgres(a_conflict_goes_back_to_whoever_came_second).await;
}

async fn what_does_not_pass_is_not_merged(world: World) {
    set_up(&world);
    let (chief, left, right) = (World::chat("one"), World::chat("two"), World::chat("three"));
    let nodes = [node("a", "left", &[]), node("b", "right", &[]), node("c", "right", &["a"])];
    world.server.reply(&chief, plans(&nodes));
    world.server.reply(&left, calls(&[writes("bad.txt", "bad\n"), writes("a.txt", "a\n")]));
    for _ in 0..3 {
        world.server.reply(&left, ends("It is fine."));
    }
    world.server.reply(&right, calls(&[writes("b.txt", "b\n")]));
    world.server.reply(&right, ends("B."));

    let ended = world.run(GOAL).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(!world.path("bad.txt").exists() && !world.path("a.txt").exists());
    assert_eq!(world.repo.read("b.txt").unwrap(), "b\n");
    let told = sent(&world, "two");
    assert!(
        last(&told[2]).contains("with what others have merged, the suite fails"),
        "{}",
        last(&told[2])
    );
    let shown = world.shown().await;
    let states = states(&shown);
    assert!(
        states.contains(&("a", "escalated")) && states.contains(&("c", "cancelled")),
        "{states:?}"
    );
    assert_nothing_left(&world);
    world.assert_sound().await;
}

#[tokio::test]
async fn what_does_not_pass_with_the_others_is_not_merged() {
    what_does_not_pass_is_not_merged(World::new().await).await;
}

#[tokio::test]
async fn pg_what_does_not_pass_with_the_others_is_not_merged() {
    on_postgres(what_does_not_pass_is_not_merged).await;
}

async fn a_goal_survives_a_kill(world: World) {
    set_up(&world);
    let (chief, left, right) = (World::chat("one"), World::chat("two"), World::chat("three"));
    world.server.reply(&chief, plans(&[node("a", "left", &[]), node("b", "right", &["a"])]));
    world.server.reply(&left, calls(&[writes("a.txt", "a\n")]));
    world.server.reply(&left, ends("A."));
    let never = Gate::new();
    world.server.reply(&right, calls(&[writes("b.txt", "b\n")]));
    world.server.reply(&right, held(&never, &calling(&[("end_task", json!({ "summary": "B." }))])));
    world.server.reply(&right, ends("B."));
    let program = world.formwork(GOAL).spawn().unwrap();
    never.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let half = [world.path("a.txt").exists(), world.path("b.txt").exists()];

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(half, [true, false]);
    assert_eq!(world.repo.read("b.txt").unwrap(), "b\n");
    assert_nothing_left(&world);
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_goal_that_was_killed_goes_on_in_the_copies_that_it_left() {
    a_goal_survives_a_kill(World::new().await).await;
}

#[tokio::test]
async fn pg_a_goal_that_was_killed_goes_on_in_the_copies_that_it_left() {
    on_postgres(a_goal_survives_a_kill).await;
}
