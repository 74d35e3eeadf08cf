//! Events from outside and questions to people, on both stores.

use formwork_protocols::{
    Append, Clock as _, EventBody, NewEvent, OutcomeCode, RunId, Span, SystemClock, TaskId,
    event::{ExternalFired, InboxAnswered, InboxClosed, inbox_key},
};
use formwork_scheduler::{Natives, NewRun, Signals};
use serde_json::{Value, json};

use crate::world::{World, done, ending, on_both, pass, plan, setup};

on_both! {
    behaviour_11_a_wait_wakes_on_a_matching_event_with_its_payload_an_empty_one_included,
    behaviour_11_an_event_that_came_while_nobody_worked_on_the_run_is_found_when_it_is_resumed,
    behaviour_11_a_wait_times_out_as_such_by_the_clock_on_the_wall,
    an_event_wakes_all_who_wait_and_nobody_who_comes_later,
    behaviour_35_a_question_is_asked_once_and_its_answer_wakes_the_asker,
    behaviour_35_the_first_resolution_counts_and_a_second_returns_it,
    behaviour_35_a_deadline_takes_what_is_assumed_and_fails_where_nothing_is,
    a_rejected_question_fails_its_task_and_a_skipped_one_takes_what_is_assumed,
    where_nobody_is_there_what_is_assumed_is_taken_at_once,
}

const REVIEW: &str = r#"
variables = { pr = { default = 7 } }
[[tasks]]
name = "review"
wait_for = { event = "external.review", where = "data.pr == vars.pr", timeout = "2h" }
[[tasks]]
name = "merge"
depends_on = ["review"]
native = "done"
when = "tasks.review.output.verdict == 'approved'"
"#;

async fn append(world: &World, run: RunId, task: Option<TaskId>, body: EventBody) -> bool {
    let idempotency_key = task.filter(|_| body.kind().starts_with("inbox.")).map(inbox_key);
    let event = NewEvent {
        task,
        principal: "user:eve".parse().unwrap(),
        at: SystemClock.now(),
        body,
        idempotency_key,
    };
    let batch = Append { run, token: None, events: vec![event], blobs: Vec::new() };
    world.store.append(batch).await.unwrap()[0].duplicate
}

async fn fire(world: &World, run: RunId, name: &str, data: Value) {
    let body = EventBody::ExternalFired(ExternalFired { name: name.parse().unwrap(), data });
    append(world, run, None, body).await;
}

async fn begin(world: &World, text: &str) -> (formwork_scheduler::Scheduler, NewRun) {
    let natives = Natives::new().with("done", done);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(text, &natives), setup()).await.unwrap();
    (scheduler, new)
}

/// Waits until so many events of a kind are in the log of a run.
pub(crate) async fn seen(world: &World, run: RunId, kind: &str, count: usize) {
    let mut happening = world.store.watch();
    while world.kinds(run).await.iter().filter(|own| *own == kind).count() < count {
        futures::StreamExt::next(&mut happening).await.unwrap();
    }
}

async fn behaviour_11_a_wait_wakes_on_a_matching_event_with_its_payload_an_empty_one_included(
    world: World,
) {
    let (scheduler, new) = begin(&world, REVIEW).await;
    let (run, signals) = (new.id(), Signals::default());
    let outside = async {
        seen(&world, run, "task.suspended", 1).await;
        fire(&world, run, "external.other", json!({ "pr": 7 })).await;
        fire(&world, run, "external.review", json!({ "pr": 8 })).await;
        fire(&world, run, "external.review", Value::Null).await;
        fire(&world, run, "external.review", json!({ "pr": 7, "verdict": "approved" })).await;
        signals.look();
    };

    let (report, ()) = tokio::join!(scheduler.run(new, &signals), outside);
    let report = report.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!(ending(&report, "merge"), "completed");
    let review = report.tasks().find(|task| task.name.as_str() == "review").unwrap();
    assert_eq!(review.claim.unwrap().summary, "external.review by user:eve");

    let bare = "[[tasks]]\nname = \"w\"\nwait_for = { event = \"go\" }\n";
    let (scheduler, new) = begin(&world, bare).await;
    fire(&world, new.id(), "go", Value::Null).await;
    let signals = Signals::default();
    signals.look();
    let report = scheduler.run(new, &signals).await.unwrap();
    let w = report.tasks().find(|task| task.name.as_str() == "w").unwrap();
    assert_eq!(w.claim.unwrap().output, Some(Value::Null));
}

async fn behaviour_11_an_event_that_came_while_nobody_worked_on_the_run_is_found_when_it_is_resumed(
    world: World,
) {
    let (scheduler, new) = begin(&world, REVIEW).await;
    let (run, signals) = (new.id(), Signals::default());
    let outside = async {
        seen(&world, run, "task.suspended", 1).await;
        signals.pause.cancel();
    };
    let (paused, ()) = tokio::join!(scheduler.run(new, &signals), outside);
    assert_eq!(paused.unwrap().outcome.code, OutcomeCode::Interrupted);

    fire(&world, run, "external.review", json!({ "pr": 7, "verdict": "no" })).await;
    let report = scheduler.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert!(ending(&report, "merge").starts_with("skipped"));
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
}

async fn behaviour_11_a_wait_times_out_as_such_by_the_clock_on_the_wall(world: World) {
    let (scheduler, new) = begin(&world, REVIEW).await;
    let (run, signals) = (new.id(), Signals::default());
    let outside = async {
        seen(&world, run, "task.suspended", 1).await;
        signals.pause.cancel();
    };
    let (paused, ()) = tokio::join!(scheduler.run(new, &signals), outside);
    assert_eq!(paused.unwrap().outcome.code, OutcomeCode::Interrupted);

    // Nobody works on it, and the time goes on.
    world.clock.forward(2 * 60 * 60);
    let report = scheduler.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Failed);
    assert_eq!(report.outcome.reason, "task review: timed out after 2h");
}

async fn an_event_wakes_all_who_wait_and_nobody_who_comes_later(world: World) {
    let text = r#"
[[tasks]]
name = "one"
wait_for = { event = "go" }
[[tasks]]
name = "two"
wait_for = { event = "go" }
[[tasks]]
name = "three"
depends_on = ["one", "two"]
wait_for = { event = "go" }
"#;
    let (scheduler, new) = begin(&world, text).await;
    let (run, signals) = (new.id(), Signals::default());
    let outside = async {
        seen(&world, run, "task.suspended", 2).await;
        fire(&world, run, "go", json!(1)).await;
        signals.look();
        seen(&world, run, "task.suspended", 3).await;
        fire(&world, run, "go", json!(2)).await;
        signals.look();
    };

    let (report, ()) = tokio::join!(scheduler.run(new, &signals), outside);

    let outputs: Vec<_> = report
        .unwrap()
        .tasks()
        .filter(|task| task.name.as_str() != "flow")
        .map(|task| task.claim.unwrap().output.unwrap())
        .collect();
    assert_eq!(outputs, [json!(1), json!(1), json!(2)]);
}

const DEPLOY: &str = r#"
variables = { where = { default = "production" } }
[[tasks]]
name = "deploy"
decision = { question = "Deploy to {{where}}?", options = ["yes", "no"], timeout = "1h", assume = "no" }
[[tasks]]
name = "act"
depends_on = ["deploy"]
native = "done"
when = "tasks.deploy.text == 'yes' && !tasks.deploy.output.assumed"
"#;

async fn task(world: &World, run: RunId, name: &str) -> TaskId {
    let rows = world.store.tasks(run).await.unwrap();
    rows.into_iter().find(|row| row.name.as_str() == name).unwrap().task
}

fn answer(text: &str) -> EventBody {
    EventBody::InboxAnswered(InboxAnswered { answer: text.to_owned() })
}

async fn behaviour_35_a_question_is_asked_once_and_its_answer_wakes_the_asker(world: World) {
    let (scheduler, new) = begin(&world, DEPLOY).await;
    let (run, signals) = (new.id(), Signals::default());
    let outside = async {
        seen(&world, run, "inbox.asked", 1).await;
        signals.pause.cancel();
    };
    let (paused, ()) = tokio::join!(scheduler.run(new, &signals), outside);
    assert_eq!(paused.unwrap().outcome.code, OutcomeCode::Interrupted);

    let signals = Signals::default();
    let outside = async {
        seen(&world, run, "run.resumed", 1).await;
        let item = task(&world, run, "deploy").await;
        append(&world, run, Some(item), answer("yes")).await;
        signals.look();
    };
    let (report, ()) = tokio::join!(scheduler.resume(run, &signals), outside);
    let report = report.unwrap();

    assert_eq!(ending(&report, "act"), "completed");
    let events = world.events(run).await;
    let asked: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::InboxAsked(asked) => Some(asked.question.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(asked, ["Deploy to production?"]);
}

async fn behaviour_35_the_first_resolution_counts_and_a_second_returns_it(world: World) {
    let (scheduler, new) = begin(&world, DEPLOY).await;
    let run = new.id();
    let item = task(&world, run, "deploy").await;

    let first = append(&world, run, Some(item), answer("no")).await;
    let second = append(&world, run, Some(item), answer("yes")).await;
    let signals = Signals::default();
    signals.look();
    let report = scheduler.run(new, &signals).await.unwrap();

    assert_eq!((first, second), (false, true));
    assert!(ending(&report, "act").starts_with("skipped"));
}

async fn behaviour_35_a_deadline_takes_what_is_assumed_and_fails_where_nothing_is(world: World) {
    let late = async |text: &str| {
        let (scheduler, new) = begin(&world, text).await;
        let (run, signals) = (new.id(), Signals::default());
        let outside = async {
            seen(&world, run, "inbox.asked", 1).await;
            world.clock.forward(60 * 60);
            signals.look();
        };
        // The clock of the store is moved as well, and the lease with it.
        let scheduler = scheduler.with_lease(Span::from_secs(8 * 60 * 60));
        let (report, ()) = tokio::join!(scheduler.run(new, &signals), outside);
        report.unwrap()
    };

    let assumed = late(DEPLOY).await;
    let failed = late(&DEPLOY.replace(", assume = \"no\"", "")).await;

    assert_eq!(assumed.outcome.code, OutcomeCode::Completed, "{}", assumed.outcome);
    let deploy = assumed.tasks().find(|task| task.name.as_str() == "deploy").unwrap();
    let output = deploy.claim.unwrap().output.unwrap();
    assert_eq!(output, json!({ "answer": "no", "by": "nobody", "assumed": true }));
    let kinds = world.kinds(assumed.outcome.run).await;
    assert!(kinds.iter().any(|kind| kind == "inbox.expired"), "{kinds:?}");
    assert_eq!(failed.outcome.reason, "task deploy: timed out after 1h");
}

async fn a_rejected_question_fails_its_task_and_a_skipped_one_takes_what_is_assumed(world: World) {
    let closed = async |body: fn(InboxClosed) -> EventBody| {
        let (scheduler, new) = begin(&world, DEPLOY).await;
        let item = task(&world, new.id(), "deploy").await;
        let reason = "not today".to_owned();
        append(&world, new.id(), Some(item), body(InboxClosed { reason })).await;
        let signals = Signals::default();
        signals.look();
        scheduler.run(new, &signals).await.unwrap()
    };

    let rejected = closed(EventBody::InboxRejected).await;
    let skipped = closed(EventBody::InboxSkipped).await;

    assert_eq!(rejected.outcome.code, OutcomeCode::Refused);
    assert_eq!(rejected.outcome.reason, "task deploy: rejected by user:eve: not today");
    assert_eq!(skipped.outcome.code, OutcomeCode::Completed);
}

async fn where_nobody_is_there_what_is_assumed_is_taken_at_once(world: World) {
    let headless = async |text: &str| {
        let (scheduler, new) = begin(&world, text).await;
        scheduler.headless(true).run(new, &Signals::default()).await.unwrap()
    };

    let assumed = headless(DEPLOY).await;
    let failed = headless(&DEPLOY.replace(", assume = \"no\"", "")).await;

    assert_eq!(assumed.outcome.code, OutcomeCode::Completed);
    assert_eq!(failed.outcome.reason, "task deploy: nobody is there to decide");
}
