//! Models that do what models do when they go wrong: each ends as what it is, within stated bounds.

use std::sync::atomic::{AtomicUsize, Ordering};

use formwork_protocols::{Timestamp, Usd};
use formwork_testkit::http::Reply;
use serde_json::{Value, json};

use crate::{
    answers::{calls, ends, says},
    world::World,
};

/// One task that has to leave a file, with a budget of calls that nothing here may use up but what says so.
const TASK: &str = r#"
[[tasks]]
name = "lead"
agent = "lead"
prompt = "Write out.txt."
budget = { usd = "1", rounds = 40, tree = { depth = 2, fan_out = 3, tasks = 5 } }
protected_paths = ["tests/**"]
postchecks = [{ name = "it is written", command = ["sh", "check.sh"] }]
"#;

/// How a run of the task ended, and how often its model was asked.
struct Outcome {
    code: Option<i32>,
    /// The reason of the task's end, and what it says.
    reason: String,
    detail: String,
    asked: usize,
    world: World,
}

/// Runs the task with a model that answers its n-th request so.
async fn run(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Outcome {
    run_of(TASK, answer).await
}

async fn run_of(tasks: &str, answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Outcome {
    let world = World::new().await;
    world.repo.write("check.sh", "test -e out.txt && sh tests/own.sh\n").unwrap();
    world.repo.write("tests/own.sh", "grep -q right out.txt\n").unwrap();
    world.repo.commit("tests: what has to be").unwrap();
    world.agent("lead", "one");
    let asked = AtomicUsize::new(0);
    world.server.answer(&World::chat("one"), move |_| answer(asked.fetch_add(1, Ordering::SeqCst)));
    let workflow = world.workflow(tasks);
    let ended = world.run(["run", workflow]).await;
    let shown = world.shown().await;
    let tasks = shown["tasks"].as_array().unwrap();
    let lead = tasks.iter().find(|task| task["name"] == "lead").unwrap();
    let why = &lead["ending"]["why"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    world.assert_sound().await;
    let open = tasks.iter().find(|task| task["ending"].is_null());
    assert!(open.is_none(), "every task has ended: {shown:#}");
    Outcome {
        code: ended.code,
        reason: text(&why["reason"]),
        detail: text(&why["detail"]),
        asked: world.server.requests().len(),
        world,
    }
}

impl Outcome {
    #[track_caller]
    fn is(&self, reason: &str, at_most: usize) {
        assert_eq!((self.code, self.reason.as_str()), (Some(2), reason), "{}", self.detail);
        assert!(self.asked <= at_most, "asked {} times, of at most {at_most}", self.asked);
    }
}

fn write(path: &str, content: &str) -> Reply {
    calls(&[("fs.write", json!({ "path": path, "content": content }))])
}

#[tokio::test]
async fn pathology_1_a_model_that_lies_is_not_believed() {
    let ended = run(|_| ends("out.txt is written, and every test passes.")).await;

    ended.is("checks_exhausted", 3);
    assert!(!ended.world.path("out.txt").exists());
}

#[tokio::test]
async fn pathology_2_a_model_that_stops_early_is_asked_once_and_then_judged() {
    let ended = run(|_| says("I will now write the file.")).await;

    ended.is("checks_exhausted", 6);
}

#[tokio::test]
async fn pathology_3_a_model_that_loops_is_stopped_as_stuck() {
    let ended = run(|_| calls(&[("fs.read", json!({ "path": "README.md" }))])).await;

    ended.is("stuck", 6);
}

#[tokio::test]
async fn pathology_4_a_model_that_oscillates_is_stopped_as_stuck() {
    let ended = run(|n| write("out.txt", if n % 2 == 0 { "left" } else { "wrong" })).await;

    ended.is("stuck", 8);
}

#[tokio::test]
async fn pathology_5_a_model_that_edits_the_tests_gains_nothing_by_it() {
    let ended = run(|n| match n {
        0 => write("tests/own.sh", "true\n"),
        1 => write("out.txt", "wrong\n"),
        2 => calls(&[("exec", json!({ "command": ["cp", "check.sh", "tests/own.sh"] }))]),
        _ => ends("Every test passes."),
    })
    .await;

    ended.is("checks_exhausted", 6);
}

#[tokio::test]
async fn pathology_6_a_model_that_deletes_the_checks_does_not_pass_them() {
    let ended = run(|n| match n {
        0 => calls(&[("fs.delete", json!({ "path": "check.sh", "reason": "in the way" }))]),
        _ => ends("Nothing fails any more."),
    })
    .await;

    ended.is("checks_exhausted", 4);
}

#[tokio::test]
async fn pathology_7_a_model_that_spawns_without_end_meets_the_caps_of_its_tree() {
    let ended = run(|n| {
        calls(&[("create_task", json!({ "name": format!("t{n}"), "prompt": "Make another." }))])
    })
    .await;

    // Whichever comes first: its cap of denials, its budget, or that one error again and again is no progress.
    let reasons = ["refused", "budget_exhausted", "stuck"];
    assert!(reasons.contains(&ended.reason.as_str()), "{}: {}", ended.reason, ended.detail);
    assert_ne!(ended.code, Some(0));
    assert!(ended.asked <= 40, "{}", ended.asked);
    let made = ended.world.events("task.created").await.len();
    // The workflow, the task, and no more below it than its caps allow.
    assert!(made <= 6, "{made}");
}

#[tokio::test]
async fn pathology_8_a_model_that_waits_for_itself_is_told_so_and_stopped() {
    let ended = run(|n| match n {
        0 => calls(&[(
            "create_task",
            json!({ "name": "next", "prompt": "x", "depends_on": ["next"] }),
        )]),
        _ => calls(&[("await_tasks", json!({ "names": ["lead"] }))]),
    })
    .await;

    ended.is("stuck", 8);
    let told = ended.world.server.requests().iter().map(|it| it.text()).collect::<String>();
    assert!(told.contains("task lead has made no task next"), "{told}");
    assert!(told.contains("waits only for its own: none"), "{told}");
}

#[tokio::test]
async fn pathology_9_a_model_that_does_nothing_has_done_nothing() {
    let ended = run(|_| says("Hm.")).await;

    ended.is("checks_exhausted", 6);
}

#[tokio::test]
async fn pathology_9_a_model_that_never_answers_is_given_up_where_a_task_says_how_long() {
    let tasks = TASK.replace("protected_paths", "idle = \"2s\"\nprotected_paths");
    let ended = run_of(&tasks, |_| Reply::event_stream().stall()).await;

    ended.is("stuck", 1);
    assert_eq!(ended.detail, "nothing happened for 2s");
}

#[tokio::test]
async fn pathology_9_a_model_that_falls_silent_is_given_up_that_long_after_its_last_sign_of_life() {
    let tasks = TASK.replace("protected_paths", "idle = \"4s\"\nprotected_paths");
    let ended = run_of(&tasks, |n| match n {
        0 => calls(&[("fs.stat", json!({ "path": "README.md" }))]),
        _ => Reply::event_stream().stall(),
    })
    .await;

    ended.is("stuck", 2);
    let at = |event: &Value| serde_json::from_value::<Timestamp>(event["at"].clone()).unwrap();
    let (asked, given_up) =
        (ended.world.events("model.requested").await, ended.world.events("task.escalated").await);
    let silent = at(&given_up[0]).since(at(asked.last().unwrap())).as_duration();
    // Counted anew from the last look, and not from what was seen then, it would be almost as long again.
    assert!((4_000..7_000).contains(&silent.as_millis()), "{silent:?}");
}

#[tokio::test]
async fn pathology_10_a_model_that_burns_money_stops_before_its_cap() {
    let tasks = TASK.replace("usd = \"1\", rounds = 40", "usd = \"0.012\", rounds = 400");
    let ended = run_of(&tasks, |n| {
        let path = format!("none-{n}.txt");
        calls(&[("fs.stat", json!({ "path": path })), ("fs.read", json!({ "path": path }))])
    })
    .await;

    ended.is("budget_exhausted", 120);
    let spent: Usd = ended.world.shown().await["run"]["cost"].as_str().unwrap().parse().unwrap();
    assert!(spent <= Usd::from_nanos(12_000_000), "{spent}");
}
