//! Control flow from a workflow's text to what the program says, without any model.

use serde_json::Value;

use crate::world::{World, end_of, on_postgres};

/// A list that a program makes, something done for each of it, and something only on a condition.
const FLOW: &str = r#"
variables = { suffix = { default = "txt" } }

[[tasks]]
name = "list"
command = ["printf", '{"names": ["one", "two; touch owned", "three"]}']
output_schema = { type = "object", required = ["names"] }

[[tasks]]
name = "make"
depends_on = ["list"]
for_each = "tasks.list.output.names.filter(it, it != 'three')"
max_concurrency = 1
command = ["touch", "{{item}}.{{suffix}}"]
on_success = [{ name = "mark", command = ["touch", "made-{{tasks.list.output.names.[2]}}"] }]
  [[tasks.postchecks]]
  command = ["test", "-e", "one.txt"]

[[tasks]]
name = "never"
depends_on = ["make"]
when = "size(tasks.make.output) > 2"
command = ["touch", "never"]
"#;

async fn a_workflow_without_a_model_branches_and_repeats(world: World) {
    let workflow = world.workflow(FLOW);

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.last_line().starts_with("completed: 3 tasks done, 1 skipped, 2 checks passed"),
        "{ended:#?}"
    );
    for (file, is_there) in [
        ("one.txt", true),
        ("two; touch owned.txt", true),
        ("owned", false),
        ("made-three", true),
        ("never", false),
    ] {
        assert_eq!(world.path(file).exists(), is_there, "{file}");
    }
    let shown = world.shown().await;
    let names: Vec<&str> = shown["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|task| task["name"].as_str())
        .collect();
    assert_eq!(names, ["work", "list", "make", "never", "one", "item-2"]);
    let text = world.run(["runs", "show"]).await.stdout;
    assert!(text.contains("skipped: size(tasks.make.output) > 2 is false"), "{text}");
    let phases: Vec<&Value> =
        shown["checks"].as_array().unwrap().iter().map(|check| &check["phase"]).collect();
    assert_eq!(phases, ["exit", "exit", "success"]);
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_9_a_workflow_without_a_model_branches_and_repeats() {
    a_workflow_without_a_model_branches_and_repeats(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_9_a_workflow_without_a_model_branches_and_repeats() {
    on_postgres(a_workflow_without_a_model_branches_and_repeats).await;
}

/// A question, an event, and something that follows both.
pub(crate) const OUTSIDE: &str = r#"
[[tasks]]
name = "ask"
decision = { question = "Which one?", options = ["red", "green"] }

[[tasks]]
name = "review"
depends_on = ["ask"]
wait_for = { event = "review", where = "data.ok" }

[[tasks]]
name = "paint"
depends_on = ["review"]
command = ["touch", "{{tasks.ask.text}}-{{tasks.review.output.by}}"]
"#;

/// Returns what runs ask.
async fn pending(world: &World) -> Vec<Value> {
    let listed = world.json(["inbox", "list"]).await;
    listed["items"].as_array().unwrap().clone()
}

/// Waits until a run asks something, and returns what.
pub(crate) async fn asked(world: &World) -> String {
    loop {
        if let [item, ..] = &pending(world).await[..] {
            return item["item"].as_str().unwrap().to_owned();
        }
    }
}

/// Waits until a task waits.
pub(crate) async fn suspended(world: &World, name: &str) {
    in_state(world, name, "suspended").await;
}

/// Waits until a task is in a state.
pub(crate) async fn in_state(world: &World, name: &str, state: &str) {
    let is_waiting = |task: &Value| task["name"] == name && task["state"] == state;
    loop {
        let shown = world.run(["runs", "show", "--json"]).await;
        // There may be no run yet.
        if shown.code == Some(0) && shown.json()["tasks"].as_array().unwrap().iter().any(is_waiting)
        {
            return;
        }
    }
}

async fn other_processes_answer_and_fire(world: World) {
    let workflow = world.workflow(OUTSIDE);
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    let item = &asked(&world).await;

    let wrong = world.run(["inbox", "answer", item, "gren"]).await;
    let answered = world.run(["inbox", "answer", item, "2"]).await;
    let late = world.run(["inbox", "answer", item, "red"]).await;
    let nobody = world.run(["events", "fire", "revew"]).await;
    suspended(&world, "review").await;
    let fired =
        world.run(["events", "fire", "review", "--data", r#"{"ok": true, "by": "ada"}"#]).await;
    let ended = end_of(program).await;

    assert_eq!(wrong.code, Some(1), "{wrong:#?}");
    assert!(wrong.stderr.contains(r#"has no option "gren"; nearest is "green""#), "{wrong:#?}");
    assert_eq!((answered.code, answered.stdout.as_str()), (Some(0), "answered: green\n"));
    assert!(late.stderr.contains("is answered by user:ada already"), "{late:#?}");
    assert_eq!(nobody.code, Some(1), "{nobody:#?}");
    assert!(fired.stdout.starts_with("told run "), "{fired:#?}");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(world.path("green-ada").exists());
    assert!(ended.stderr.contains("asks: Which one? (red | green)"), "{ended:#?}");
    assert_eq!(pending(&world).await, Vec::<Value>::new());
    let shown = world.run(["inbox", "get", item]).await.stdout;
    assert!(shown.contains("state    answered by user:ada: green"), "{shown}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviours_11_and_35_other_processes_answer_and_fire() {
    other_processes_answer_and_fire(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviours_11_and_35_other_processes_answer_and_fire() {
    on_postgres(other_processes_answer_and_fire).await;
}
