//! Control flow from a workflow's text to what the program says, without any model.

use formwork_testkit::http::Gate;
use serde_json::{Value, json};

use crate::{
    answers::{calling, ends, held},
    world::{World, end_of, on_postgres},
};

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
    assert!(late.stderr.contains("was answered by user:ada at 2"), "{late:#?}");
    assert!(late.stderr.contains("with \"green\""), "{late:#?}");
    assert!(late.stderr.contains("a question is resolved once"), "{late:#?}");
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

async fn everybody_is_named(world: World) {
    let workflow = world.workflow(OUTSIDE);
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    let item = &asked(&world).await;
    world.run(["inbox", "answer", item, "green"]).await;
    suspended(&world, "review").await;
    world.run(["events", "fire", "review", "--data", r#"{"ok": true, "by": "ada"}"#]).await;
    end_of(program).await;

    let page = world.json(["events", "--limit", "1000"]).await;

    let events = page["events"].as_array().unwrap();
    let by = |kind: &str| {
        let event = events.iter().find(|event| event["kind"] == kind).unwrap();
        event["principal"].as_str().unwrap().to_owned()
    };
    assert!(events.len() > 10, "{page:#}");
    for event in events {
        let principal = event["principal"].as_str().unwrap();
        assert!(principal.split_once(':').is_some_and(|(_, name)| !name.is_empty()), "{event:#}");
    }
    for kind in ["run.created", "inbox.answered", "external.fired"] {
        assert_eq!(by(kind), "user:ada", "{kind}");
    }
    assert_eq!(by("task.completed"), "system:scheduler");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_17_every_event_names_a_principal() {
    everybody_is_named(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_17_every_event_names_a_principal() {
    on_postgres(everybody_is_named).await;
}

/// A question whose answer is assumed, and an agent that goes by it.
const ASSUMED: &str = r#"
[[tasks]]
name = "ask"
decision = { question = "Deploy?", options = ["yes", "no"], timeout = "1s", assume = "no" }

[[tasks]]
name = "work"
depends_on = ["ask"]
agent = "left"
prompt = "Do it for {{tasks.ask.text}}."
"#;

/// Returns the item of the last run's question.
async fn item_of(world: &World) -> String {
    let shown = world.shown().await;
    let tasks = shown["tasks"].as_array().unwrap();
    let task = tasks.iter().find(|task| task["name"] == "ask").unwrap();
    task["task"].as_str().unwrap().to_owned()
}

async fn what_was_assumed_is_contradicted(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(ASSUMED);
    let (chat, working) = (World::chat("one"), Gate::new());
    let read = [("fs.read", json!({ "path": "README.md" }))];
    world.server.reply(&chat, held(&working, &calling(&read)));
    world.server.reply(&chat, ends("Done."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    working.reached().await;
    let item = &item_of(&world).await;

    let wrong = world.run(["inbox", "answer", item, "perhaps"]).await;
    let same = world.run(["inbox", "answer", item, "no"]).await;
    let other = world.run(["inbox", "answer", item, "yes"]).await;
    let again = world.run(["inbox", "answer", item, "yes"]).await;
    working.open();
    let ended = end_of(program).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(wrong.stderr.contains("has no option \"perhaps\""), "{wrong:#?}");
    assert_eq!(same.stdout, "expired: no\n", "{same:#?}");
    assert_eq!(
        other.stdout,
        "contradicted: yes, and no was assumed; the conversations of its run that still go on are told\n",
        "{other:#?}"
    );
    let once = "was answered by nobody, and \"no\" was assumed at 2";
    assert!(again.stderr.contains(once), "{again:#?}");
    assert!(again.stderr.contains("and user:ada said \"yes\" instead at 2"), "{again:#?}");
    // The agent that went by it has heard it.
    let heard = world.server.requests()[1].text();
    assert!(heard.contains("What was assumed is wrong: to "), "{heard}");
    let told = world.events("inbox.contradicted").await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["data"], json!({ "question": "Deploy?", "assumed": "no", "answer": "yes" }));
    let said = "\"yes\", and \"no\" was assumed";
    let shown = world.run(["runs", "show"]).await.stdout;
    assert!(
        shown.contains(&format!("contradicted by user:ada: to \"Deploy?\" the answer is {said}")),
        "{shown}"
    );
    let kept = world.run(["inbox", "get", item]).await.stdout;
    assert!(kept.contains("later    contradicted by user:ada: yes"), "{kept}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_35_an_assumption_that_is_contradicted_later_is_reported_and_told() {
    what_was_assumed_is_contradicted(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_35_an_assumption_that_is_contradicted_later_is_reported_and_told() {
    on_postgres(what_was_assumed_is_contradicted).await;
}

async fn what_was_assumed_at_once_is_contradicted(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(ASSUMED);
    world.server.reply(&World::chat("one"), ends("Done."));
    let ended = world.run(["run", workflow, "--headless"]).await;
    let item = &item_of(&world).await;

    let told = world.json(["inbox", "get", item]).await;
    let run = told["run"].as_str().unwrap();
    let listed = world.json(["inbox", "list", run]).await["items"][0].clone();
    let shown = world.run(["inbox", "get", item]).await.stdout;
    let left = world.run(["inbox", "skip", item]).await;
    let other = world.run(["inbox", "answer", item, "yes"]).await;
    let skipped = world.run(["inbox", "skip", item]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(
        other.stdout, "contradicted: yes, and no was assumed; its run has ended\n",
        "{other:#?}"
    );
    assert_ne!(skipped.code, Some(0), "{skipped:#?}");
    // As at its deadline.
    for item in [told, listed] {
        let by = (&item["state"], &item["answer"], &item["by"]);
        let wanted = (&json!("expired"), &json!("no"), &json!("system:scheduler"));
        assert_eq!(by, wanted, "{item:#}");
    }
    assert!(shown.contains("state    expired by system:scheduler: no"), "{shown}");
    assert!(!shown.contains("until"), "{shown}");
    assert!(left.stderr.contains("\"no\" was assumed at 2"), "{left:#?}");
    let advice = format!("formwork inbox answer {item} OPTION");
    assert!(left.stderr.contains(&advice), "{left:#?}");
    let shown = world.shown().await;
    assert_eq!(shown["contradictions"][0]["answer"], "yes", "{shown:#}");
    assert_eq!(shown["contradictions"][0]["by"], "user:ada", "{shown:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_35_what_nobody_was_asked_may_be_contradicted_once_the_run_has_ended() {
    what_was_assumed_at_once_is_contradicted(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_35_what_nobody_was_asked_may_be_contradicted_once_the_run_has_ended() {
    on_postgres(what_was_assumed_at_once_is_contradicted).await;
}

#[tokio::test]
async fn behaviours_11_and_35_other_processes_answer_and_fire() {
    other_processes_answer_and_fire(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviours_11_and_35_other_processes_answer_and_fire() {
    on_postgres(other_processes_answer_and_fire).await;
}
