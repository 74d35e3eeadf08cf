//! What is to end meanwhile: a grace that goes on after a pause, a merge that comes whole, work that has just begun.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use formwork_protocols::{
    Ask, Body, Budget, Cancel, Claim, EventBody, HoldId, OutcomeCode, Position, Span, Store,
    StoreError, SystemClock, SystemRng, TaskName, TaskSpec, WorkflowName,
    budget::OnExhausted,
    check::{CheckKind, CheckSpec, Verdict},
    store::Selection,
};
use formwork_scheduler::{
    AttemptEnd, AttemptJob, CheckJob, Executor, Natives, Scheduler, Signals, workflow::Plan,
};
use serde_json::Map;

use crate::{
    runs::ask,
    waits::seen,
    world::{World, ending, hang, on_both, pass, plan, setup},
};

on_both! {
    a_grace_goes_on_where_a_pause_has_left_it,
    what_becomes_of_a_task_whose_time_is_over_its_budget_says,
    what_is_merged_is_done_although_its_time_was_over_meanwhile,
    work_that_begins_as_the_run_is_paused_is_broken_off,
}

/// Returns a plan of one task that has to be merged.
fn one(spec: impl FnOnce(TaskSpec) -> TaskSpec) -> Plan {
    let task = TaskSpec::new(
        TaskName::parse("only").unwrap(),
        Body::Native { function: "only".to_owned() },
    );
    Plan::of(WorkflowName::parse("only").unwrap(), spec(task), Map::new())
}

async fn a_grace_goes_on_where_a_pause_has_left_it(world: World) {
    let hour = Span::from_secs(60 * 60);
    let budget = Budget {
        usd: Some("1".parse().unwrap()),
        on_exhausted: Some(OnExhausted::Grace(hour)),
        ..Budget::default()
    };
    let natives = Natives::new().with("only", |job: AttemptJob, cancel: Cancel| async move {
        let hold = HoldId::generate(&SystemClock, &SystemRng);
        let ask = Ask { usd: "2".parse().unwrap(), tokens: 1 };
        // It is more than there is, and goes on in grace.
        job.ledger.reserve(job.task, hold, ask).map_err(|over| over.to_string())?;
        cancel.cancelled().await;
        Err("told to stop".to_owned())
    });
    let scheduler = world.scheduler(natives, pass).with_lease(Span::from_secs(8 * 60 * 60));
    let new = scheduler.create(&one(|task| TaskSpec { budget, ..task }), setup()).await.unwrap();
    let (run, signals) = (new.id(), Signals::default());
    let outside = async {
        seen(&world, run, "budget.exhausted", 1).await;
        world.clock.forward(60 * 60);
        signals.pause.cancel();
    };
    let (paused, ()) = tokio::join!(scheduler.run(new, &signals), outside);
    assert_eq!(paused.unwrap().outcome.code, OutcomeCode::Interrupted);

    let report = scheduler.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Refused, "{}", report.outcome);
    assert!(ending(&report, "only").ends_with("and its grace is over"), "{}", report.outcome);
    let told = world.kinds(run).await.into_iter().filter(|kind| kind == "budget.exhausted");
    assert_eq!(told.count(), 1);
}

async fn what_becomes_of_a_task_whose_time_is_over_its_budget_says(world: World) {
    let moment = Span::from_millis(1);
    let budget =
        |policy| Budget { wall: Some(moment), on_exhausted: Some(policy), ..Budget::default() };
    let mut seen_of = Vec::new();
    for policy in [OnExhausted::Unlimited, OnExhausted::Grace(moment), OnExhausted::CancelAll] {
        let over = Arc::new(tokio::sync::Notify::new());
        let told = Arc::clone(&over);
        let natives = Natives::new().with("only", move |_: AttemptJob, cancel: Cancel| {
            let told = Arc::clone(&told);
            async move {
                tokio::select! {
                    () = told.notified() => Ok(Claim::default()),
                    () = cancel.cancelled() => Err("told to stop".to_owned()),
                }
            }
        });
        let scheduler = world.scheduler(natives, pass);
        let spec = |task| TaskSpec { budget: budget(policy), ..task };
        let new = scheduler.create(&one(spec), setup()).await.unwrap();
        let (run, signals) = (new.id(), Signals::default());
        let outside = async {
            if policy == OnExhausted::Unlimited {
                seen(&world, run, "budget.exhausted", 1).await;
                over.notify_one();
            }
        };
        let (report, ()) = tokio::join!(scheduler.run(new, &signals), outside);
        let told = world.kinds(run).await.into_iter().filter(|kind| kind == "budget.exhausted");
        seen_of.push((ending(&report.unwrap(), "only"), told.count()));
    }

    let is_over = "budget exhausted: its time of 1ms is over";
    let expected = [
        ("completed".to_owned(), 1),
        (format!("{is_over}, and its grace is over"), 1),
        (is_over.to_owned(), 1),
    ];
    assert_eq!(seen_of, expected);
}

/// Says that it has merged long after it was told to stop.
struct Merges {
    store: Arc<dyn Store>,
    begun: AtomicBool,
}

#[async_trait]
impl Executor for Merges {
    async fn attempt(&self, _: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        Ok(AttemptEnd::Claimed { claim: Claim::default(), session: None, files_changed: 0 })
    }

    async fn check(&self, job: CheckJob, cancel: &Cancel) -> Result<Verdict, StoreError> {
        self.begun.store(true, Ordering::SeqCst);
        cancel.cancelled().await;
        // Longer than any other work is waited for that was told so.
        let told = Instant::now();
        while told.elapsed() < Duration::from_millis(900) {
            self.store.read(Position(0), &Selection::default(), 1).await.unwrap();
        }
        Ok(Verdict::bare(&*job.check.name, true, "1 path merged into the workspace of the run"))
    }
}

async fn what_is_merged_is_done_although_its_time_was_over_meanwhile(world: World) {
    // A machine may be so busy that the time is over before it has begun to merge.
    let mut times = [50, 1_000, 20_000].map(Span::from_millis).into_iter();
    let (run, report) = loop {
        let timeout = times.next();
        assert!(timeout.is_some(), "it begins within a third of a minute");
        let merged = CheckSpec::new("merged", CheckKind::Merged, Span::from_secs(60));
        let plan = one(|task| TaskSpec { postchecks: vec![merged], timeout, ..task });
        let (store, begun) = (Arc::clone(&world.store), AtomicBool::new(false));
        let merges = Arc::new(Merges { store, begun });
        let scheduler = Scheduler::new(Arc::clone(&world.store), Arc::clone(&merges) as _)
            .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng));
        let new = scheduler.create(&plan, setup()).await.unwrap();
        let run = new.id();
        let report = scheduler.run(new, &Signals::default()).await.unwrap();
        if merges.begun.load(Ordering::SeqCst) {
            break (run, report);
        }
    };

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!(ending(&report, "only"), "completed");
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
}

async fn work_that_begins_as_the_run_is_paused_is_broken_off(world: World) {
    let store = Arc::clone(&world.store);
    let first = move |job: AttemptJob, _: Cancel| {
        let store = Arc::clone(&store);
        async move {
            let until = Instant::now() + Duration::from_millis(150);
            ask(&*store, job.run, EventBody::RunPauseRequested).await;
            // Nobody else gets a turn until a sign of life is due, by which the request is found.
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            Ok(Claim::default())
        }
    };
    let natives = Natives::new().with("first", first).with("second", hang);
    let text = "[[tasks]]\nname = \"first\"\nnative = \"first\"\n\
                [[tasks]]\nname = \"second\"\nnative = \"second\"\ndepends_on = [\"first\"]\n";
    let scheduler = world.scheduler(natives.clone(), pass).with_lease(Span::from_millis(300));
    let new = scheduler.create(&plan(text, &natives), setup()).await.unwrap();
    let run = new.id();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Interrupted, "{}", report.outcome);
    assert_eq!(world.kinds(run).await.last().unwrap(), "run.paused");
}
