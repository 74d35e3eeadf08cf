//! Tasks that bodies make while they work, on both stores.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use formwork_protocols::{
    Ask, Body, Budget, Cancel, Claim, Ending, EventBody, HoldId, Rng as _, SeededRng, SystemClock,
    TaskName, TaskOutcome, TaskSpec, TaskState, Usd, spec::OnFailure,
};
use formwork_scheduler::{AttemptJob, Natives, Signals};
use serde_json::json;

use crate::world::{World, done, ending, fail, hang, on_both, pass, plan, setup, verdict};

on_both! {
    behaviour_12_tasks_made_while_running_are_scheduled_checked_and_awaited,
    behaviour_12_what_is_made_is_paid_from_its_parents_budget_and_bound_by_its_caps,
    behaviour_12_what_was_made_before_a_crash_is_not_made_again,
    behaviour_12_a_workflow_made_while_running_is_ordered_checked_and_awaited_as_a_whole,
    behaviour_12_a_workflow_that_cannot_be_done_is_not_made_in_part,
    behaviour_12_a_workflow_made_before_a_crash_goes_on_and_is_not_made_again,
    behaviour_8_a_body_that_ends_before_what_it_has_made_fails_and_stops_it,
    behaviour_8_a_body_may_end_once_it_knows_how_what_it_has_made_has_ended,
    a_pause_keeps_what_was_made_and_what_waits_for_it,
}

const LEAD: &str = "[[tasks]]\nname = \"lead\"\nnative = \"lead\"\nretries = { max = 1 }\n";

fn name(text: &str) -> TaskName {
    TaskName::parse(text).unwrap()
}

fn native(text: &str, after: &[&str]) -> TaskSpec {
    TaskSpec {
        depends_on: after.iter().copied().map(name).collect(),
        ..TaskSpec::new(name(text), Body::Native { function: "work".to_owned() })
    }
}

fn told(outcomes: &[TaskOutcome]) -> Vec<String> {
    outcomes.iter().map(|outcome| format!("{}: {}", outcome.name, outcome.ending)).collect()
}

async fn behaviour_12_tasks_made_while_running_are_scheduled_checked_and_awaited(world: World) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let lead = |job: AttemptJob, _| async move {
        let control = &job.control;
        control.make(job.task, native("first", &[])).await?;
        control.make(job.task, native("second", &["first"])).await?;
        let twice = control.make(job.task, native("second", &[])).await.unwrap_err();
        let unknown = control.make(job.task, native("third", &["fist"])).await.unwrap_err();
        let outcomes = control.results(job.task, vec![]).await?;
        let output = json!({ "told": told(&outcomes), "twice": twice, "unknown": unknown });
        Ok(Claim { summary: "led".to_owned(), output: Some(output) })
    };
    let work = move |job: AttemptJob, _| {
        seen.lock().unwrap().push(job.path.iter().map(|it| it.to_string()).collect::<Vec<_>>());
        async move { Ok(Claim { summary: format!("{} is done", job.spec.name), output: None }) }
    };
    let natives = Natives::new().with("lead", lead).with("work", work);
    // As narrow as can be: who waits takes no place from what is waited for.
    let scheduler = world.scheduler(natives.clone(), pass).with_width(NonZeroUsize::MIN);
    let new = scheduler.create(&plan(LEAD, &natives), setup()).await.unwrap();
    let run = new.id();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(ending(&report, "flow"), "completed");
    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(
        lead.claim.unwrap().output.unwrap(),
        json!({
            "told": ["first: completed", "second: completed"],
            "twice": "task lead has an open task second already",
            "unknown": "task lead has made no task fist",
        })
    );
    let order = order.lock().unwrap().clone();
    assert_eq!(order, [["flow", "lead", "first"], ["flow", "lead", "second"]]);
    let rows = world.store.tasks(run).await.unwrap();
    let lead = rows.iter().find(|row| row.name.as_str() == "lead").unwrap().task;
    let below: Vec<_> = rows.iter().filter(|row| row.parent == Some(lead)).collect();
    assert_eq!(below.len(), 2);
    assert!(below.iter().all(|row| row.state == TaskState::Completed));
}

async fn behaviour_12_what_is_made_is_paid_from_its_parents_budget_and_bound_by_its_caps(
    world: World,
) {
    let text = format!(
        "{LEAD}budget = {{ usd = \"0.001\", tree = {{ depth = 1, fan_out = 2, tasks = 9 }} }}\n"
    );
    let lead = |job: AttemptJob, _| async move {
        let control = &job.control;
        let big = Budget { usd: Some(Usd::from_nanos(9_000_000)), ..Budget::default() };
        control.make(job.task, TaskSpec { budget: big, ..native("one", &[]) }).await?;
        control.make(job.task, native("two", &[])).await?;
        let wide = control.make(job.task, native("three", &[])).await.unwrap_err();
        let outcomes = control.results(job.task, vec![name("one")]).await?;
        let output = json!({ "told": told(&outcomes), "wide": wide });
        let _ = control.results(job.task, vec![]).await?;
        Ok(Claim { summary: String::new(), output: Some(output) })
    };
    let rng = Arc::new(SeededRng::new(3));
    let work = move |job: AttemptJob, _| {
        let hold = HoldId::generate(&SystemClock, &*rng);
        let _ = rng.next_u64();
        async move {
            let deep = job.control.make(job.task, native("deep", &[])).await.unwrap_err();
            assert_eq!(deep, "task lead allows at most 1 levels of tasks");
            let ask = Ask { usd: Usd::from_nanos(600_000), tokens: 1 };
            match job.ledger.reserve(job.task, hold, ask) {
                Ok(()) => Ok(Claim::default()),
                Err(over) => Err(over.to_string()),
            }
        }
    };
    let natives = Natives::new().with("lead", lead).with("work", work);

    let report = world.run(&text, natives, pass).await;

    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    let output = lead.claim.unwrap().output.unwrap();
    assert_eq!(output["wide"], "task lead allows at most 2 children of one task");
    let endings = [ending(&report, "one"), ending(&report, "two")];
    let failed = endings.iter().filter(|ending| ending.contains("0.0006")).count();
    // Each asks for more than half of what their parent has, whatever its own budget says.
    assert_eq!(failed, 1, "{endings:?}");
}

async fn behaviour_12_what_was_made_before_a_crash_is_not_made_again(world: World) {
    let works = Arc::new(AtomicU32::new(0));
    let lead = |job: AttemptJob, _| async move {
        job.control.make(job.task, native("first", &[])).await?;
        job.control.make(job.task, native("second", &["first"])).await?;
        let outcomes = job.control.results(job.task, vec![]).await?;
        Ok(Claim { summary: told(&outcomes).join(", "), output: None })
    };
    let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let dies = move |job: AttemptJob, cancel: Cancel| {
        let began = began.clone();
        async move {
            if job.spec.name.as_str() == "second" {
                began.send(()).unwrap();
                return hang(job, cancel).await;
            }
            Ok(Claim::default())
        }
    };
    let natives = Natives::new().with("lead", lead).with("work", dies);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(LEAD, &natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    tokio::select! {
        report = scheduler.run(new, &signals) => panic!("{report:?}"),
        _ = begun.recv() => {} // The future is dropped here, as by a crash: nothing is released.
    }
    world.clock.forward(3_600);

    let counted = Arc::clone(&works);
    let natives = Natives::new().with("lead", lead).with("work", move |job, cancel| {
        counted.fetch_add(1, Ordering::SeqCst);
        done(job, cancel)
    });
    let report = world.scheduler(natives, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(ending(&report, "flow"), "completed");
    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(lead.claim.unwrap().summary, "first: completed, second: completed");
    assert_eq!(works.load(Ordering::SeqCst), 1);
    let created = world.kinds(run).await.into_iter().filter(|kind| kind == "task.created");
    assert_eq!(created.count(), 4);
}

/// A task of several tasks.
fn tree(text: &str, tasks: Vec<TaskSpec>) -> TaskSpec {
    let body = Body::Subtasks { tasks, on_failure: OnFailure::ContinueIndependent };
    TaskSpec::new(name(text), body)
}

async fn behaviour_12_a_workflow_made_while_running_is_ordered_checked_and_awaited_as_a_whole(
    world: World,
) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let lead = |job: AttemptJob, _| async move {
        let control = &job.control;
        control.make(job.task, native("before", &[])).await?;
        let parts = vec![native("two", &["one"]), native("one", &[])];
        let parts = TaskSpec { depends_on: vec![name("before")], ..strict(tree("flow", parts)) };
        control.make(job.task, parts).await?;
        control.make(job.task, tree("fine", vec![native("only", &[])])).await?;
        let outcomes = control.results(job.task, vec![name("flow"), name("fine")]).await?;
        control.may_end(job.task).await?;
        Ok(Claim { summary: String::new(), output: Some(json!(told(&outcomes))) })
    };
    let work = move |job: AttemptJob, _| {
        seen.lock().unwrap().push(job.spec.name.to_string());
        async move { Ok(Claim { summary: format!("{} is done", job.spec.name), output: None }) }
    };
    let natives = Natives::new().with("lead", lead).with("work", work);
    let scheduler = world.scheduler(natives.clone(), fail).with_width(NonZeroUsize::MIN);
    let new = scheduler.create(&plan(LEAD, &natives), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(ending(&report, "lead"), "completed");
    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(
        lead.claim.unwrap().output.unwrap(),
        json!([
            "flow: check \"never\" failed in the only attempt",
            "two: completed",
            "one: completed",
            "fine: completed",
            "only: completed",
        ])
    );
    assert_eq!(order.lock().unwrap().clone(), ["before", "only", "one", "two"]);
}

async fn behaviour_12_a_workflow_that_cannot_be_done_is_not_made_in_part(world: World) {
    let text = format!("{LEAD}budget = {{ tree = {{ depth = 2, fan_out = 3, tasks = 5 }} }}\n");
    let lead = |job: AttemptJob, _| async move {
        let refused = [
            tree("circle", vec![native("one", &["two"]), native("two", &["one"])]),
            tree("stray", vec![native("one", &["nobody"])]),
            tree("twice", vec![native("one", &[]), native("one", &[])]),
            tree("wide", (0..4).map(|place| native(&format!("t{place}"), &[])).collect()),
            tree("deep", vec![tree("below", vec![native("one", &[])])]),
            tree("inline", vec![TaskSpec::new(name("part"), Body::Inline { goal: String::new() })]),
        ];
        let mut told = Vec::new();
        for spec in refused {
            told.push(job.control.make(job.task, spec).await.unwrap_err());
        }
        assert_eq!(job.control.results(job.task, vec![]).await.unwrap_err().split(' ').count(), 11);
        Ok(Claim { summary: String::new(), output: Some(json!(told)) })
    };
    let natives = Natives::new().with("lead", lead).with("work", done);

    let report = world.run(&text, natives, pass).await;

    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(
        lead.claim.unwrap().output.unwrap(),
        json!([
            "the tasks of circle cannot be done: task one waits for itself by way of what it depends on",
            "the tasks of stray cannot be done: task one depends on nobody, which is not beside it",
            "the tasks of twice cannot be done: two tasks beside each other are named one",
            "task lead allows at most 3 children of one task",
            "task lead allows at most 2 levels of tasks",
            "task part has the body inline, and what is made has one of agent, command, native and subtasks",
        ])
    );
    assert_eq!(report.tasks().count(), 2);
}

async fn behaviour_12_a_workflow_made_before_a_crash_goes_on_and_is_not_made_again(world: World) {
    let lead = |job: AttemptJob, _| async move {
        let parts = vec![native("first", &[]), native("second", &["first"])];
        let one = job.control.make(job.task, tree("flow", parts.clone())).await?;
        assert_eq!(job.control.make(job.task, tree("flow", parts)).await, Ok(one));
        let other = job.control.make(job.task, tree("flow", vec![native("first", &[])])).await;
        assert_eq!(other, Err("task lead has an open task flow already".to_owned()));
        let outcomes = job.control.results(job.task, vec![]).await?;
        Ok(Claim { summary: told(&outcomes).join(", "), output: None })
    };
    let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let dies = move |job: AttemptJob, cancel: Cancel| {
        let began = began.clone();
        async move {
            if job.spec.name.as_str() == "second" {
                began.send(()).unwrap();
                return hang(job, cancel).await;
            }
            Ok(Claim::default())
        }
    };
    let natives = Natives::new().with("lead", lead).with("work", dies);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(LEAD, &natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    tokio::select! {
        report = scheduler.run(new, &signals) => panic!("{report:?}"),
        _ = begun.recv() => {} // The future is dropped here, as by a crash: nothing is released.
    }
    world.clock.forward(3_600);

    let works = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&works);
    let natives = Natives::new().with("lead", lead).with("work", move |job, cancel| {
        counted.fetch_add(1, Ordering::SeqCst);
        done(job, cancel)
    });
    let report = world.scheduler(natives, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(ending(&report, "lead"), "completed");
    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    let summary = lead.claim.unwrap().summary;
    assert_eq!(summary, "flow: completed, first: completed, second: completed");
    assert_eq!(works.load(Ordering::SeqCst), 1);
    let created = world.kinds(run).await.into_iter().filter(|kind| kind == "task.created");
    assert_eq!(created.count(), 5);
}

async fn behaviour_8_a_body_that_ends_before_what_it_has_made_fails_and_stops_it(world: World) {
    let lead = |job: AttemptJob, _| async move {
        let made = job.control.make(job.task, native("slow", &[])).await;
        assert!(made.is_ok(), "a name is free again once the attempt is over: {made:?}");
        if job.number > 1 {
            let why = job.evidence[0].reason.clone();
            let outcomes = job.control.results(job.task, vec![]).await?;
            return Ok(Claim { summary: format!("{why}; {}", told(&outcomes)[0]), output: None });
        }
        Ok(Claim::default())
    };
    let tries = Arc::new(AtomicU32::new(0));
    let work = move |job, cancel| {
        let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { hang(job, cancel).await } else { done(job, cancel).await } }
    };
    let natives = Natives::new().with("lead", lead).with("work", work);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(LEAD, &natives), setup()).await.unwrap();
    let run = new.id();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(
        lead.claim.unwrap().summary,
        "it ended while its tasks were open: slow; slow: completed"
    );
    let ends: Vec<Ending> =
        report.tasks().filter(|it| it.name.as_str() == "slow").map(|it| it.ending).collect();
    assert_eq!(ends[0].to_string(), "its parent ended");
    assert_eq!(ends[1], Ending::Completed);
    let mut events = world.events(run).await.into_iter().map(|event| event.body);
    // Nothing of the first attempt is left when the second begins.
    let is_stopped = |body: &EventBody| matches!(body, EventBody::TaskMoved(moved) if moved.to == TaskState::Cancelled);
    assert!(events.by_ref().any(|body| is_stopped(&body)));
    assert!(events.any(|body| matches!(body, EventBody::AttemptStarted(it) if it.number == 2)));
}

async fn behaviour_8_a_body_may_end_once_it_knows_how_what_it_has_made_has_ended(world: World) {
    let gate = Arc::new(tokio::sync::Notify::new());
    let opens = Arc::clone(&gate);
    let lead = move |job: AttemptJob, _| {
        let opens = Arc::clone(&opens);
        async move {
            let control = &job.control;
            control.make(job.task, strict(native("strict", &[]))).await?;
            control.make(job.task, native("other", &[])).await?;
            let early = control.may_end(job.task).await.unwrap_err();
            opens.notify_one();
            // One that is named twice is told of once.
            let names = ["strict", "other", "strict"].map(name).to_vec();
            let outcomes = control.results(job.task, names).await?;
            control.may_end(job.task).await?;
            let after = control.make(job.task, native("after", &["strict"])).await.unwrap_err();
            let alien = control.results(job.task, vec![name("lead")]).await.unwrap_err();
            let output = json!([early, told(&outcomes), after, alien]);
            Ok(Claim { summary: String::new(), output: Some(output) })
        }
    };
    let natives = Natives::new().with("lead", lead).with("work", move |job, cancel| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            gate.notify_one(); // Whoever waits besides.
            done(job, cancel).await
        }
    });
    let check = |job: &formwork_scheduler::CheckJob| {
        if job.spec.name.as_str() == "strict" { fail(job) } else { verdict(job, true) }
    };

    let report = world.run(LEAD, natives, check).await;

    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(lead.ending, Ending::Completed);
    let told = lead.claim.unwrap().output.unwrap();
    assert_eq!(
        told,
        json!([
            "task lead has made tasks that it does not know the end of: strict is active; \
             other is active. Wait for them with await_tasks first.",
            ["strict: check \"never\" failed in the only attempt", "other: completed"],
            "task strict cannot be waited for: check \"never\" failed in the only attempt",
            "task lead has made no task lead, and waits only for its own: strict, other",
        ])
    );
}

/// Gives a task a check, which fails.
fn strict(spec: TaskSpec) -> TaskSpec {
    use formwork_protocols::check::{CheckKind, CheckSpec, DiffCheck};
    let timeout = formwork_protocols::Span::from_secs(1);
    let check = CheckSpec::new("never".to_owned(), CheckKind::Diff(DiffCheck::default()), timeout);
    TaskSpec { postchecks: vec![check], ..spec }
}

async fn a_pause_keeps_what_was_made_and_what_waits_for_it(world: World) {
    let signals = Signals::default();
    let pause = signals.pause.clone();
    let lead = |job: AttemptJob, cancel: Cancel| async move {
        job.control.make(job.task, native("slow", &[])).await?;
        tokio::select! {
            () = cancel.cancelled() => Err("told to stop".to_owned()),
            outcomes = job.control.results(job.task, vec![]) => {
                Ok(Claim { summary: told(&outcomes?).join(", "), output: None })
            }
        }
    };
    let natives = Natives::new().with("lead", lead).with("work", move |job, cancel| {
        pause.cancel();
        hang(job, cancel)
    });
    let scheduler = world.scheduler(natives.clone(), pass).with_width(NonZeroUsize::MIN);
    let new = scheduler.create(&plan(LEAD, &natives), setup()).await.unwrap();
    let run = new.id();
    let paused = scheduler.run(new, &signals).await.unwrap();
    assert_eq!((ending(&paused, "lead"), ending(&paused, "slow")), ("open".into(), "open".into()));

    let natives = Natives::new().with("lead", lead).with("work", done);
    let report = world.scheduler(natives, pass).resume(run, &Signals::default()).await.unwrap();

    let lead = report.tasks().find(|task| task.name.as_str() == "lead").unwrap();
    assert_eq!(lead.claim.unwrap().summary, "slow: completed");
    assert_eq!(lead.attempts, 1);
}
