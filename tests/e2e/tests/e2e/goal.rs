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
    // What a merge changes is told, and is no task's.
    assert!(ended.stderr.contains("\n· b.txt +1 -0\n"), "{}", ended.stderr);
    assert!(!world.path("bad.txt").exists() && !world.path("a.txt").exists());
    assert_eq!(world.repo.read("b.txt").unwrap(), "b\n");
    let told = sent(&world, "two");
    assert!(
        last(&told[2]).contains("with what others have merged, the suite fails"),
        "{}",
        last(&told[2])
    );
    let shown = world.shown().await;
    // What was changed in a copy and not merged is no change of the run's.
    assert_eq!(shown["run"]["files_changed"], 1);
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

/// Tells a text without what is other each time.
fn steady(text: &str, run: &str) -> String {
    text.replace(run, "RUN")
}

async fn a_plan_is_shown_and_done_later(world: World) {
    set_up(&world);
    let (chief, left, right) = (World::chat("one"), World::chat("two"), World::chat("three"));
    let mut nodes = [node("a", "left", &[]), node("b", "right", &["a"])];
    nodes[0]["usd"] = json!("0.5");
    nodes[0]["checks"] = json!([["test", "-e", "a.txt"]]);
    nodes[0]["write_paths"] = json!(["*.txt"]);
    nodes[0]["prompt"] = json!("Write a.txt.\nSay a in it.");
    world.server.reply(&chief, plans(&nodes));
    world.server.reply(&chief, plans(&nodes));
    let only = ["--plan-only", "--usd", "2", "--protect", "tests/**"];

    let planned = world.run(GOAL.into_iter().chain(only)).await;
    let told = world.shown().await;
    let run = told["run"]["run"].as_str().unwrap().to_owned();
    let asked = world.server.requests().len();
    let shown = world.json(GOAL.into_iter().chain(only)).await;
    world.server.reply(&left, calls(&[writes("a.txt", "a\n")]));
    world.server.reply(&left, ends("A."));
    world.server.reply(&right, calls(&[reads("a.txt"), writes("b.txt", "b\n")]));
    world.server.reply(&right, ends("B."));
    let done = world.run(["goal", "--plan", &run, "--mode", "auto", "--commit"]).await;

    assert_eq!(planned.code, Some(0), "{planned:#?}");
    assert_eq!(asked, 1);
    insta::assert_snapshot!("a_plan_that_is_only_made", steady(&planned.stdout, &run));
    let goal = &shown["goal"];
    assert_eq!(goal["plan"]["nodes"][0]["prompt"], "Write a.txt.\nSay a in it.");
    assert_eq!(goal["plan"]["nodes"][1]["depends_on"], json!(["a"]));
    assert_eq!(goal["tasks"][0]["worst_case"], "0.5");
    assert_eq!((&goal["plan_only"], &goal["goal"]), (&json!(true), &json!("Make files.")));
    assert_eq!(done.code, Some(0), "{done:#?}");
    assert_eq!(sent(&world, "one").len(), 2, "nobody plans once more");
    assert_eq!(world.repo.read("b.txt").unwrap(), "b\n");
    let shown = world.shown().await;
    let mut states = states(&shown);
    states.sort_unstable();
    assert_eq!(states, ["a", "b", "build", "goal"].map(|name| (name, "completed")));
    let checks = shown["checks"].as_array().unwrap();
    // The suite and what is protected are as they were for the run that planned.
    assert!(checks.iter().any(|check| check["verdict"]["check"] == "sh suite.sh"), "{checks:#?}");
    let task = world.json(["tasks", "get", shown["run"]["run"].as_str().unwrap(), "a"]).await;
    assert_eq!(task["spec"]["protected_paths"], json!(["tests/**"]));
    let subject = world.repo.git(&["log", "-1", "--format=%s"]).unwrap();
    assert_eq!(subject.trim(), "Make files.");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    assert_nothing_left(&world);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_plan_that_is_only_made_is_shown_whole_and_can_be_done_later() {
    a_plan_is_shown_and_done_later(World::new().await).await;
}

#[tokio::test]
async fn pg_a_plan_that_is_only_made_is_shown_whole_and_can_be_done_later() {
    on_postgres(a_plan_is_shown_and_done_later).await;
}

#[tokio::test]
async fn a_plan_in_a_file_is_done_as_it_was_edited_or_refused_with_all_that_is_wrong() {
    let world = World::new().await;
    set_up(&world);
    let left = World::chat("two");
    let plan = json!({ "goal": { "plan": { "nodes": [node("a", "left", &[])] } } });
    world.repo.write("plan.json", plan.to_string()).unwrap();
    let circle = json!({ "nodes": [node("a", "nobody", &["a"])] });
    world.repo.write("circle.json", circle.to_string()).unwrap();
    let mut nothing = node("a", "left", &[]);
    nothing["write_paths"] = json!([]);
    world.repo.write("nothing.json", json!({ "nodes": [nothing] }).to_string()).unwrap();
    world.server.reply(&left, calls(&[writes("a.txt", "a\n")]));
    world.server.reply(&left, ends("A."));

    let wrong = world.run(["goal", "--plan", "circle.json"]).await;
    let nothing = world.run(["goal", "--plan", "nothing.json"]).await;
    let missing = world.run(["goal", "--plan", "nowhere.json"]).await;
    let asked = world.server.requests().len();
    let done = world.run(["goal", "--plan", "plan.json", "--mode", "auto"]).await;

    assert_eq!((wrong.code, missing.code, asked), (Some(64), Some(3), 0), "{wrong:#?}");
    let told = &wrong.stderr;
    assert!(told.contains("there is no agent nobody") && told.contains("in a circle"), "{told}");
    assert_eq!(nothing.code, Some(64), "{nothing:#?}");
    assert!(nothing.stderr.contains("task a: write_paths names no path"), "{nothing:#?}");
    assert!(missing.stderr.contains("nowhere.json"), "{missing:#?}");
    assert_eq!(done.code, Some(0), "{done:#?}");
    assert_eq!(world.repo.read("a.txt").unwrap(), "a\n");
}

#[tokio::test]
async fn a_goal_whose_suite_cannot_start_or_whose_agent_is_not_there_is_refused_before_any_model() {
    let world = World::new().await;
    set_up(&world);
    world.repo.write("suite", "echo not executable\n").unwrap();

    let program = world.run(["goal", "Make files.", "--test", "no-such-program --all"]).await;
    let rights = world.run(["goal", "Make files.", "--test", "./suite"]).await;
    let agent = world.run(["goal", "Make files.", "--agent", "nobody"]).await;

    assert_eq!((program.code, rights.code, agent.code), (Some(64), Some(64), Some(3)));
    assert!(program.stderr.contains("`no-such-program --all` cannot be started"), "{program:#?}");
    assert!(rights.stderr.contains("./suite"), "{rights:#?}");
    assert!(agent.stderr.contains("nobody"), "{agent:#?}");
    assert_eq!(world.server.requests().len(), 0);
    let runs = world.json(["runs", "list"]).await;
    assert_eq!(runs["runs"], json!([]));
}

#[tokio::test]
async fn what_the_suite_writes_in_a_copy_is_not_merged_as_the_work_of_a_task() {
    let world = World::new().await;
    set_up(&world);
    let suite = "echo run >> report.txt\necho gone >> a.txt\nrm -f shared.txt\n";
    world.repo.write("suite.sh", suite).unwrap();
    world.repo.commit("suite: writes").unwrap();
    let (chief, left) = (World::chat("one"), World::chat("two"));
    world.server.reply(&chief, plans(&[node("a", "left", &[])]));
    world.server.reply(&left, calls(&[writes("a.txt", "a\n")]));
    world.server.reply(&left, ends("A."));
    let mut program = world.formwork(GOAL.into_iter().chain(["--jsonl"])).spawn().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(
        program.stdout.take().unwrap(),
    ));
    let (mut merged, mut told) = (None, Vec::new());
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        if line["kind"] == "file.changed" && merged.is_none() {
            told.push(line["data"]["path"].as_str().unwrap().to_owned());
        }
        if line["kind"] == "check.finished" && line["data"]["verdict"]["check"] == "merged" {
            merged = line["data"]["verdict"]["reason"].as_str().map(str::to_owned);
        }
    }

    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(merged.as_deref(), Some("1 path merged into the workspace of the run"));
    // By the agent in its copy, and by the merge.
    assert_eq!(told, ["a.txt", "a.txt"]);
}
