//! Control flow: what runs, in which order, and what becomes of it, on both stores.

use formwork_protocols::{
    Cancel, Claim, OutcomeCode, StoreError,
    check::{CheckKind, Phase, Verdict},
};
use formwork_scheduler::{AttemptEnd, AttemptJob, CheckJob, Executor, Natives, Scheduler, Signals};
use serde_json::json;
use std::sync::Arc;

use crate::world::{World, done, ending, on_both, pass, plan, setup, verdict};

on_both! {
    behaviour_9_a_false_condition_skips_the_task_and_says_so_and_a_true_one_lets_it_in,
    behaviour_9_a_condition_without_a_value_fails_its_task_as_such,
    a_condition_sees_amounts_as_numbers_and_results_beside_the_task_and_above_it,
    a_condition_is_judged_again_after_a_crash,
    behaviour_10_for_each_runs_a_child_per_item_and_keeps_the_record_of_each,
    behaviour_10_a_failed_item_aborts_the_others_when_told,
    behaviour_10_items_that_were_done_before_a_crash_are_not_done_again,
    behaviour_10_a_hostile_number_of_items_is_refused_before_any_is_made,
    results_reach_tasks_at_every_level,
    a_result_that_a_task_gives_a_name_to_is_put_in_as_a_variable_is,
    a_result_of_the_wrong_form_gets_one_round_to_be_put_right,
    a_check_that_cannot_be_run_ends_its_task_by_how_things_are_set_up_in_every_phase,
    what_nobody_can_tell_is_not_done_again_to_put_its_result_right,
    behaviour_4_what_surrounds_attempts_is_run_and_recorded_with_its_evidence,
    behaviour_8_a_parent_does_without_a_failed_child_only_where_it_says_so,
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

const ITEMS: &str = r#"
variables = { languages = { default = ["rust", "zig", "Not a name", { x = 1 }] } }
[[tasks]]
name = "port"
for_each = "vars.languages"
max_concurrency = 2
native = "port"
[[tasks]]
name = "sum"
native = "sum"
depends_on = ["port"]
when = "tasks.port.output.all(it, it.passed) && size(tasks.port.output) == 4"
"#;

async fn port(job: AttemptJob, _: Cancel) -> Result<Claim, String> {
    let summary = format!("{} is number {}", job.variables["item"], job.variables["index"]);
    Ok(Claim { summary, output: Some(json!({ "item": job.variables["item"] })) })
}

async fn behaviour_10_for_each_runs_a_child_per_item_and_keeps_the_record_of_each(world: World) {
    let sum = |job: AttemptJob, _: Cancel| async move {
        let items = job.results["port"]["output"].as_array().unwrap().clone();
        assert_eq!(items[1]["text"], "\"zig\" is number 1");
        assert_eq!(
            items[3],
            json!({
                "item": { "x": 1 }, "passed": true, "ending": "completed", "text": "{\"x\":1} is number 3",
                "output": { "item": { "x": 1 } },
            })
        );
        Ok(Claim {
            summary: job.results["port"]["text"].as_str().unwrap().to_owned(),
            output: None,
        })
    };
    let natives = Natives::new().with("port", port).with("sum", sum);

    let report = world.run(ITEMS, natives, pass).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!(report.outcome.reason, "5 tasks done, nothing checked");
    let sum = report.tasks().find(|task| task.name.as_str() == "sum").unwrap();
    assert_eq!(sum.claim.unwrap().summary, "4 of 4 items done");
    let rows = world.store.tasks(report.outcome.run).await.unwrap();
    let port = rows.iter().find(|row| row.name.as_str() == "port").unwrap();
    assert_eq!(port.body, "for_each");
    let names: Vec<_> = rows
        .iter()
        .filter(|row| row.parent == Some(port.task))
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(names, ["rust", "zig", "item-3", "item-4"]);
    assert_eq!(world.store.audit(report.outcome.run).await.unwrap().faults, []);
}

async fn behaviour_10_a_failed_item_aborts_the_others_when_told(world: World) {
    let text = ITEMS.replace(
        "max_concurrency = 2",
        "max_concurrency = 1\non_item_failure = \"abort\"\nretries = { max = 0 }",
    );
    let natives = Natives::new()
        .with("port", |job: AttemptJob, cancel| async move {
            if job.variables["item"] == "zig" {
                return Err("zig is not there".to_owned());
            }
            port(job, cancel).await
        })
        .with("sum", done);

    let report = world.run(&text, natives, pass).await;

    assert_eq!(report.outcome.reason, "task zig: zig is not there");
    assert_eq!(ending(&report, "rust"), "completed");
    assert_eq!(ending(&report, "item-3"), "its parent ended");
    assert_eq!(ending(&report, "port"), "task zig failed");
    assert_eq!(ending(&report, "sum"), "task port did not complete");
}

async fn behaviour_10_items_that_were_done_before_a_crash_are_not_done_again(world: World) {
    let signals = Signals::default();
    let pause = signals.pause.clone();
    let first = Natives::new().with("sum", done).with("port", move |job: AttemptJob, cancel| {
        let pause = pause.clone();
        async move {
            if job.variables["index"] == 2 {
                pause.cancel();
                return std::future::pending().await;
            }
            port(job, cancel).await
        }
    });
    let text = ITEMS.replace("max_concurrency = 2", "max_concurrency = 1");
    let scheduler = world.scheduler(first.clone(), pass);
    let new = scheduler.create(&plan(&text, &first), setup()).await.unwrap();
    let run = new.id();
    let paused = scheduler.run(new, &signals).await.unwrap();
    assert_eq!(paused.outcome.code, OutcomeCode::Interrupted);

    let second =
        Natives::new().with("sum", done).with("port", |job: AttemptJob, cancel| async move {
            assert!(job.variables["index"].as_u64().unwrap() >= 2, "{:?}", job.variables);
            port(job, cancel).await
        });
    let report = world.scheduler(second, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!(report.tasks().count(), 7);
}

async fn behaviour_10_a_hostile_number_of_items_is_refused_before_any_is_made(world: World) {
    let text = r#"
variables = { ten = { default = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] } }
[[tasks]]
name = "many"
for_each = "vars.ten.map(a, vars.ten.map(b, a)).map(it, it[0])"
native = "done"
[budget.tree]
fan_out = 9
"#;
    let natives = Natives::new().with("done", done);

    let report = world.run(text, natives, pass).await;

    assert_eq!(report.outcome.code, OutcomeCode::Refused);
    assert_eq!(
        report.outcome.reason,
        "task many: budget exhausted: it has 10 items: task flow allows at most 9 children of one task"
    );
    assert_eq!(world.store.tasks(report.outcome.run).await.unwrap().len(), 2);
}

async fn results_reach_tasks_at_every_level(world: World) {
    let text = r#"
[[tasks]]
name = "build"
native = "build"
[[tasks]]
name = "outer"
depends_on = ["build"]
  [[tasks.subtasks]]
  name = "first"
  native = "build"
  [[tasks.subtasks]]
  name = "inner"
  depends_on = ["first"]
    [[tasks.subtasks.subtasks]]
    name = "deep"
    native = "deep"
    depends_on = []
    when = "tasks.build.passed && tasks.first.output.changed == 3"
[[tasks]]
name = "last"
native = "last"
depends_on = ["outer"]
  [[tasks.postchecks]]
  command = ["test", "{{tasks.outer.text}}", "=", "2 of 2 tasks done"]
"#;
    let deep = |_: AttemptJob, _: Cancel| async move {
        Ok(Claim { summary: "deep".to_owned(), output: Some(json!({ "depth": 3 })) })
    };
    let last = |job: AttemptJob, _: Cancel| async move {
        assert_eq!(
            job.results["outer"]["output"],
            json!({ "first": { "changed": 3 }, "inner": { "deep": { "depth": 3 } } })
        );
        Ok(Claim::default())
    };
    let natives = Natives::new().with("build", build).with("deep", deep).with("last", last);

    let report = world
        .run(text, natives, |job: &CheckJob| {
            let CheckKind::Command(command) = &job.check.kind else { panic!("{job:?}") };
            verdict(job, command.argv[1] == command.argv[3])
        })
        .await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!(ending(&report, "deep"), "completed");
}

const FORMED: &str = r#"
[[tasks]]
name = "only"
native = "only"
retries = { max = 0, resume = false, inject_failure = false }
output_schema = { type = "object", required = ["count"], properties = { count = { type = "integer" } } }
"#;

async fn a_result_of_the_wrong_form_gets_one_round_to_be_put_right(world: World) {
    let formed = |right: bool| {
        Natives::new().with("only", move |job: AttemptJob, _: Cancel| async move {
            let seen = job.evidence.first().map(|verdict| verdict.for_model()).unwrap_or_default();
            assert_eq!(
                seen.contains("\"many\" is not of type \"integer\""),
                job.number == 2,
                "{seen}"
            );
            let count = if right && job.number == 2 { json!(3) } else { json!("many") };
            Ok(Claim { summary: String::new(), output: Some(json!({ "count": count })) })
        })
    };

    let right = world.run(FORMED, formed(true), pass).await;
    let wrong = world.run(FORMED, formed(false), pass).await;

    assert_eq!(right.outcome.code, OutcomeCode::Completed, "{}", right.outcome);
    assert_eq!(wrong.outcome.code, OutcomeCode::Refused);
    assert_eq!(
        wrong.outcome.reason,
        "task only: check \"output\" failed in the last of 2 attempts"
    );
    let checks = world.store.checks(wrong.outcome.run).await.unwrap();
    assert_eq!(
        checks[0].verdict.reason,
        "the output does not follow its schema: /count: \"many\" is not of type \"integer\""
    );
}

async fn what_nobody_can_tell_is_not_done_again_to_put_its_result_right(world: World) {
    let executor = Arc::new(Prints::default());
    let scheduler = Scheduler::new(Arc::clone(&world.store), Arc::clone(&executor) as _);
    let text = FORMED.replace("native = \"only\"", "command = [\"deploy\"]");
    let new = scheduler.create(&plan(&text, &Natives::new()), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.reason, "task only: check \"output\" failed in the only attempt");
    assert_eq!(executor.0.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// A command whose output is of the wrong form, and how often it was run.
#[derive(Default)]
struct Prints(std::sync::atomic::AtomicU32);

#[async_trait::async_trait]
impl Executor for Prints {
    async fn attempt(&self, _: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let claim = Claim { summary: String::new(), output: Some(json!("many")) };
        Ok(AttemptEnd::Claimed { claim, session: None, files_changed: 0 })
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok(verdict(&job, true))
    }
}

const NAMED: &str = r#"
variables = { greeting = { default = "hello" } }
[[tasks]]
name = "ask"
native = "ask"
output = "answer"
[[tasks]]
name = "say"
native = "say"
output = "words"
[[tasks]]
name = "never"
native = "say"
when = "false"
output = "nothing"
[[tasks]]
name = "all"
depends_on = ["ask", "say", "never"]
when = "vars.answer.number == 7 && vars.words == 'said' && vars.nothing == ''"
  [[tasks.subtasks]]
  name = "inner"
  native = "inner"
  output = "within"
    [[tasks.subtasks.postchecks]]
    command = ["echo", "{{greeting}} {{answer.number}} {{words}} <{{nothing}}>"]
  [[tasks.subtasks]]
  name = "each"
  native = "each"
  depends_on = ["inner"]
  for_each = "vars.answer.list"
  when = "vars.within == 'inner'"
    [[tasks.subtasks.prechecks]]
    command = ["echo", "{{within}}"]
"#;

async fn a_result_that_a_task_gives_a_name_to_is_put_in_as_a_variable_is(world: World) {
    let said = |text: &'static str| {
        move |_: AttemptJob, _: Cancel| async move {
            Ok(Claim { summary: text.to_owned(), output: None })
        }
    };
    let natives = Natives::new()
        .with("ask", |_: AttemptJob, _: Cancel| async {
            let output = Some(json!({ "number": 7, "list": ["a", "b"] }));
            Ok(Claim { summary: String::new(), output })
        })
        .with("say", said("said"))
        .with("inner", said("inner"))
        .with("each", |job: AttemptJob, _: Cancel| async move {
            let known = |name: &str| job.variables.get(name).cloned().unwrap_or_default();
            assert_eq!(
                (known("answer")["number"].clone(), known("within")),
                (json!(7), json!("inner"))
            );
            Ok(Claim { summary: known("item").to_string(), output: None })
        });
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let words = Arc::clone(&seen);
    let judge = move |job: &CheckJob| {
        if let CheckKind::Command(command) = &job.check.kind {
            words.lock().unwrap().push(command.argv[1].clone());
        }
        verdict(job, true)
    };

    let report = world.run(NAMED, natives, judge).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
    assert_eq!(*seen.lock().unwrap(), ["hello 7 said <>", "inner"]);
    let items = report.tasks().filter(|task| task.attempts > 0).count();
    assert_eq!(items, 5);
}

const SURROUNDED: &str = r#"
variables = { branch = { default = "main" } }
[[tasks]]
name = "only"
native = "only"
retries = { max = 1 }
before_retry = [{ name = "clean", command = ["git", "checkout", "{{branch}}"] }]
on_success = [{ command = ["git", "tag", "done"] }]
  [[tasks.postchecks]]
  name = "tests"
  command = ["true"]
"#;

async fn behaviour_4_what_surrounds_attempts_is_run_and_recorded_with_its_evidence(world: World) {
    let natives = Natives::new().with("only", |job: AttemptJob, _: Cancel| async move {
        let shown: Vec<_> = job.evidence.iter().map(|verdict| verdict.check.as_str()).collect();
        assert_eq!(shown, if job.number == 1 { vec![] } else { vec!["tests"] });
        Ok(Claim::default())
    });
    let tries = std::sync::atomic::AtomicU32::new(0);

    let report = world
        .run(SURROUNDED, natives, move |job: &CheckJob| {
            let CheckKind::Command(command) = &job.check.kind else { panic!("{job:?}") };
            if job.phase == Phase::Retry {
                assert_eq!(command.argv, ["git", "checkout", "main"]);
            }
            let first = job.phase == Phase::Exit
                && tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            verdict(job, !first)
        })
        .await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    let checks = world.store.checks(report.outcome.run).await.unwrap();
    let seen: Vec<_> =
        checks.iter().map(|row| (row.phase.as_str(), row.verdict.check.as_str())).collect();
    assert_eq!(
        seen,
        [("exit", "tests"), ("retry", "clean"), ("exit", "tests"), ("success", "git tag done")]
    );
}

async fn a_check_that_cannot_be_run_ends_its_task_by_how_things_are_set_up_in_every_phase(
    world: World,
) {
    let entered = format!("{SURROUNDED}  [[tasks.prechecks]]\n  command = [\"true\"]\n");
    for phase in Phase::ALL {
        let natives = Natives::new().with("only", done);

        let report = world
            .run(&entered, natives, move |job: &CheckJob| match job.phase {
                here if here == phase => {
                    Verdict::not_run(&*job.check.name, "program x was not found")
                }
                // Only what has failed is tried again.
                Phase::Exit => verdict(job, phase != Phase::Retry),
                _ => pass(job),
            })
            .await;

        let told = &report.outcome.reason;
        assert_eq!(report.outcome.code, OutcomeCode::Setup, "{phase:?}: {told}");
        assert!(
            told.contains("could not be run: program x was not found; no work mends"),
            "{told}"
        );
        let kinds = world.kinds(report.outcome.run).await;
        let attempts = kinds.iter().filter(|kind| *kind == "attempt.started").count();
        assert_eq!(attempts, usize::from(phase != Phase::Entry), "{phase:?}");
    }
}

async fn behaviour_8_a_parent_does_without_a_failed_child_only_where_it_says_so(world: World) {
    let text = |policy: &str| {
        format!(
            "[[tasks]]\nname = \"group\"\n{policy}\n[[tasks.subtasks]]\nname = \"bad\"\nnative = \"bad\"\n\
             retries = {{ max = 0 }}\n[[tasks.subtasks]]\nname = \"good\"\nnative = \"done\"\n"
        )
    };
    let natives = Natives::new()
        .with("done", done)
        .with("bad", |_: AttemptJob, _: Cancel| async { Err("no".to_owned()) });

    let strict = world.run(&text(""), natives.clone(), pass).await;
    let lax = world.run(&text("on_failure = \"ignore\""), natives, pass).await;

    assert_eq!(strict.outcome.reason, "task bad: no");
    assert_eq!(lax.outcome.code, OutcomeCode::Completed);
    assert_eq!(ending(&lax, "bad"), "no");
}
