//! Control flow: what runs, in which order, and what becomes of it, on both stores.

use formwork_protocols::{Cancel, Claim, OutcomeCode};
use formwork_scheduler::{AttemptJob, Natives, Signals};
use serde_json::json;

use crate::world::{World, done, ending, on_both, pass, plan, setup};

on_both! {
    behaviour_9_a_false_condition_skips_the_task_and_says_so_and_a_true_one_lets_it_in,
    behaviour_9_a_condition_without_a_value_fails_its_task_as_such,
    a_condition_sees_amounts_as_numbers_and_results_beside_the_task_and_above_it,
    a_condition_is_judged_again_after_a_crash,
}

const CONDITIONS: &str = r#"
[[tasks]]
name = "build"
native = "build"
[[tasks]]
name = "document"
native = "done"
depends_on = ["build"]
when = "tasks.build.output.changed > 3"
  [[tasks.prechecks]]
  command = ["true"]
[[tasks]]
name = "ship"
native = "done"
depends_on = ["build", "document"]
when = "tasks.build.passed && !tasks.document.passed"
"#;

async fn build(_: AttemptJob, _: Cancel) -> Result<Claim, String> {
    Ok(Claim { summary: "built".to_owned(), output: Some(json!({ "changed": 3 })) })
}

async fn behaviour_9_a_false_condition_skips_the_task_and_says_so_and_a_true_one_lets_it_in(
    world: World,
) {
    let natives = Natives::new().with("build", build).with("done", done);

    let report = world.run(CONDITIONS, natives, pass).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    assert_eq!(ending(&report, "document"), "skipped: tasks.build.output.changed > 3 is false");
    assert_eq!(ending(&report, "ship"), "completed");
    assert_eq!(report.outcome.reason, "2 tasks done, 1 skipped, nothing checked");
    let run = report.outcome.run;
    let kinds = world.kinds(run).await;
    // Nothing of the skipped task ran, its entry check neither.
    assert_eq!(kinds.iter().filter(|kind| *kind == "attempt.started").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| kind.starts_with("check.")).count(), 0);
    let rows = world.store.tasks(run).await.unwrap();
    let shown = rows.iter().find(|row| row.name.as_str() == "document").unwrap();
    assert!(shown.ending.as_ref().unwrap().to_string().starts_with("skipped"), "{shown:?}");
}

async fn behaviour_9_a_condition_without_a_value_fails_its_task_as_such(world: World) {
    let text = CONDITIONS.replace("output.changed > 3", "output.changes > 3");
    let natives = Natives::new().with("build", build).with("done", done);

    let report = world.run(&text, natives, pass).await;

    assert_eq!(report.outcome.code, OutcomeCode::Failed);
    assert_eq!(
        report.outcome.reason,
        "task document: its condition \"tasks.build.output.changes > 3\" cannot be judged: No such key: changes"
    );
    assert_eq!(ending(&report, "ship"), "task document did not complete");
}

async fn a_condition_sees_amounts_as_numbers_and_results_beside_the_task_and_above_it(
    world: World,
) {
    let text = r#"
variables = { languages = { default = ["rust", "zig"] }, most = { default = 2 } }
[[tasks]]
name = "build"
native = "build"
[[tasks]]
name = "group"
depends_on = ["build"]
  [[tasks.subtasks]]
  name = "one"
  native = "done"
  [[tasks.subtasks]]
  name = "two"
  native = "done"
  depends_on = ["one"]
  when = """
tasks.one.attempts == 1 && tasks.one.cost_usd < 0.5 && tasks.one.duration >= 0.0 &&
tasks.build.files_changed == 0 && tasks.build.text == 'built' && tasks.one.output == null &&
size(vars.languages) <= vars.most && vars.languages.exists(it, it == 'zig')"""
"#;
    let natives = Natives::new().with("build", build).with("done", done);

    let report = world.run(text, natives, pass).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!(ending(&report, "two"), "completed");
}

async fn a_condition_is_judged_again_after_a_crash(world: World) {
    let natives = Natives::new().with("build", build).with("done", done);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(CONDITIONS, &natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    let pause = signals.pause.clone();
    let pausing = natives.clone().with("build", move |_, _| {
        pause.cancel();
        build_later()
    });

    let paused = world.scheduler(pausing, pass).run(new, &signals).await.unwrap();
    assert_eq!(paused.outcome.code, OutcomeCode::Interrupted);
    let report = scheduler.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    assert!(ending(&report, "document").starts_with("skipped"));
}

async fn build_later() -> Result<Claim, String> {
    std::future::pending().await
}
