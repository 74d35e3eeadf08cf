//! What a run left behind: its tasks with the evidence of their checks, and where its money went.

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    world::{World, on_postgres},
};

const TASKS: &str = r#"
[[tasks]]
name = "build"

  [[tasks.subtasks]]
  name = "write"
  agent = "left"
  prompt = "Write left.txt."
  postchecks = [{ name = "it is written", command = ["sh", "-c", "echo looked; echo for left; test -e left.txt"] }]

  [[tasks.subtasks]]
  name = "show"
  depends_on = ["write"]
  command = ["cat", "left.txt"]
"#;

/// What differs from run to run, and the word for it.
const FILTERS: [(&str, &str); 3] = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"[0-9a-f]{64}", "HASH"),
    (r"\b\d+(\.\d+)?(ms|us|s)\b", "SPAN"),
];

macro_rules! assert_shown {
    ($name:literal, $text:expr) => {
        insta::with_settings!({ filters => FILTERS.to_vec() }, {
            insta::assert_snapshot!($name, $text);
        });
    };
}

async fn a_task_shows_its_evidence_and_the_run_its_spend(world: World) {
    world.agent("left", "one");
    let workflow = world.workflow(TASKS);
    let chat = World::chat("one");
    world.server.reply(&chat, ends("It is written, believe me."));
    let wrong = ("fs.write", json!({ "path": "left.txt", "content": "left\n" }));
    world.server.reply(&chat, calls(&[wrong, ("fs.read", json!({ "path": "nothing.txt" }))]));
    world.server.reply(&chat, ends("Now it is."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let shown = world.run(["tasks", "get", &run, "build/write"]).await;
    assert_shown!("task", shown.stdout);
    let listed = world.run(["tasks", "list"]).await;
    assert_shown!("tasks", listed.stdout);

    let detail = world.json(["tasks", "get", &run, "write"]).await;
    let checks = detail["checks"].as_array().unwrap();
    let passed: Vec<_> = checks.iter().map(|check| &check["verdict"]["passed"]).collect();
    assert_eq!(passed, [&json!(false), &json!(true)]);
    let reason = checks[0]["verdict"]["reason"].as_str().unwrap();
    assert_eq!(reason, "exit code 1; it ended with: looked / for left");
    // The whole output of the check is there under its hash.
    let hash = checks[0]["verdict"]["evidence"]["output"].as_str().unwrap();
    let blob = world.run(["blob", hash]).await;
    assert!(blob.stdout.starts_with("looked\nfor left\n"), "{blob:#?}");

    let report = world.json(["spend", &run]).await;
    assert_eq!(report["total"]["calls"], 3);
    assert_eq!(report["total"]["cost"], "0.00036");
    let line = |list: &str, at: usize| {
        let line = &report[list][at];
        json!([line["name"], line["calls"], line["cost"]])
    };
    assert_eq!(line("by_task", 0), json!(["work/build/write", 3, "0.00036"]));
    assert_eq!(line("by_agent", 0), json!(["left", 3, "0.00036"]));
    assert_eq!(line("by_model", 0), json!(["one/m", 3, "0.00036"]));
    let tools: Vec<Value> = (0..3).map(|at| line("by_tool", at)).collect();
    assert_eq!(
        tools,
        [
            json!(["end_task", 2, "0.00024"]),
            json!(["fs.read", 1, "0.00006"]),
            json!(["fs.write", 1, "0.00006"]),
        ]
    );
    let class = |at: usize| report["by_class"][at].clone();
    assert_eq!(class(0), json!({ "class": "input", "tokens": 300, "cost": "0.0003" }));
    assert_eq!(class(3), json!({ "class": "output", "tokens": 30, "cost": "0.00006" }));
    assert_eq!(report["unclassed"], "0");
    let all = world.run(["spend"]).await;
    assert_shown!("spend", all.stdout);

    let missing = world.run(["tasks", "get", &run, "wriet"]).await;
    assert_eq!(missing.code, Some(1), "{missing:#?}");
    assert!(missing.stderr.contains("the nearest name is write"), "{missing:#?}");
}

#[tokio::test]
async fn a_task_shows_its_checks_with_evidence_and_a_run_what_it_spent() {
    a_task_shows_its_evidence_and_the_run_its_spend(World::new().await).await;
}

#[tokio::test]
async fn pg_a_task_shows_its_checks_with_evidence_and_a_run_what_it_spent() {
    on_postgres(a_task_shows_its_evidence_and_the_run_its_spend).await;
}
