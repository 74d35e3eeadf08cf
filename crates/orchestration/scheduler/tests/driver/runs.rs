//! Whole runs: driven, broken off, and taken up again, on both stores.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use formwork_protocols::{
    Ask, CallId, Cancel, Claim, Clock as _, Ending, EventBody, HoldId, NewEvent, OutcomeCode,
    Principal, RunId, RunState, Span, Store, StoreError, SystemClock, SystemRng, Timestamp, Usage,
    Usd,
    event::{BudgetReserved, RunRequested},
    store::Append,
};
use formwork_scheduler::{AttemptJob, Error, Natives, Signals};
use futures::future::BoxFuture;
use serde_json::json;

use crate::world::{World, done, ending, fail, hang, on_both, pass, plan, setup, verdict};

on_both! {
    a_pair_side_by_side_and_one_after_both_that_sees_their_results,
    what_one_decision_leads_to_happens_at_one_time,
    behaviour_3_a_failed_exit_check_reaches_the_next_attempt_as_evidence,
    a_paused_run_goes_on_in_the_same_attempt,
    behaviour_19_a_live_run_is_not_taken_over_and_a_dead_one_goes_on_once_its_lease_has_lapsed,
    a_run_whose_lease_has_lapsed_goes_on_unless_another_took_it,
    a_reservation_of_a_dead_process_counts_as_spent_in_full,
    two_children_under_a_budget_for_one_spend_no_more_than_it,
    a_task_whose_time_is_over_is_told_to_stop_and_escalates,
    a_body_that_panics_fails_its_attempt_and_nothing_else,
    an_aborted_run_ends_for_good,
    what_is_asked_in_the_log_pauses_the_run_and_ends_it,
    a_request_is_found_with_the_next_sign_of_life_where_nobody_tells_of_it,
    a_run_that_is_to_end_begins_nothing_more,
    why_a_body_failed_is_known_after_a_crash_as_well,
    behaviour_1_a_part_of_a_conversation_is_recorded_and_may_act_only_while_it_is_open,
    behaviour_2_a_check_that_fails_first_stops_its_phase,
    no_more_bodies_are_at_work_than_the_width_allows,
}

const PAIR_AND_ONE: &str = r#"
[[tasks]]
name = "left"
native = "left"
[[tasks]]
name = "right"
native = "right"
[[tasks]]
name = "both"
native = "both"
depends_on = ["left", "right"]
"#;

async fn a_pair_side_by_side_and_one_after_both_that_sees_their_results(world: World) {
    let meeting = Arc::new(tokio::sync::Barrier::new(2));
    let meet = move |_: AttemptJob, _: Cancel| {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait().await;
            Ok(Claim { summary: "met".to_owned(), output: Some(json!(7)) })
        }
    };
    let natives = Natives::new().with("left", meet.clone()).with("right", meet).with(
        "both",
        |job: AttemptJob, _| async move {
            assert_eq!(job.results["left"]["text"], "met");
            assert_eq!(job.results["right"]["output"], 7);
            assert_eq!(job.results["right"]["passed"], true);
            Ok(Claim::default())
        },
    );

    let report = world.run(PAIR_AND_ONE, natives, pass).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    assert_eq!(report.outcome.reason, "3 tasks done, nothing checked");
    let run = report.outcome.run;
    let kinds = world.kinds(run).await;
    assert_eq!(kinds[0], "run.created");
    assert_eq!(kinds.iter().filter(|kind| *kind == "attempt.started").count(), 3);
    assert_eq!(kinds.last().unwrap(), "run.finished");
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
    assert_eq!(world.store.run(run).await.unwrap().unwrap().state, RunState::Completed);
}

async fn what_one_decision_leads_to_happens_at_one_time(world: World) {
    let natives = Natives::new().with("left", done).with("right", done).with("both", done);

    let report = world.run(PAIR_AND_ONE, natives, pass).await;

    let events = world.events(report.outcome.run).await;
    let place = |kind: &str| events.iter().position(|event| event.body.kind() == kind).unwrap();
    let first = &events[place("run.started") + 1..place("attempt.ended")];
    let times: BTreeSet<Timestamp> = first.iter().map(|event| event.at).collect();
    assert!(first.len() > 5, "{first:?}");
    assert_eq!(times.len(), 1, "{first:?}");
    assert!(events.is_sorted_by_key(|event| event.at));
}

const CHECKED: &str = r#"
[[tasks]]
name = "fix"
native = "fix"
retries = { max = 1 }
  [[tasks.postchecks]]
  name = "tests"
  command = ["true"]
"#;

async fn behaviour_3_a_failed_exit_check_reaches_the_next_attempt_as_evidence(world: World) {
    let natives = Natives::new().with("fix", |job: AttemptJob, _| async move {
        let shown: Vec<_> = job.evidence.iter().map(|verdict| verdict.check.as_str()).collect();
        assert_eq!(shown, if job.number == 1 { vec![] } else { vec!["tests"] });
        Ok(Claim::default())
    });

    let report = world.run(CHECKED, natives, fail).await;

    assert_eq!(report.outcome.code, OutcomeCode::Refused);
    assert_eq!(report.outcome.reason, "task fix: check \"tests\" failed in the last of 2 attempts");
    let fix = report.tasks().find(|task| task.name.as_str() == "fix").unwrap();
    assert_eq!(fix.attempts, 2);
    assert_eq!(fix.verdicts.len(), 1);
}

const ONE: &str = "[[tasks]]\nname = \"only\"\nnative = \"only\"\nretries = { max = 0 }\n";

async fn a_paused_run_goes_on_in_the_same_attempt(world: World) {
    let signals = Signals::default();
    let first = Natives::new().with("only", pausing(&signals));
    let scheduler = world.scheduler(first.clone(), pass);
    let new = scheduler.create(&plan(ONE, &first), setup()).await.unwrap();
    let run = new.id();

    let paused = scheduler.run(new, &signals).await.unwrap();
    assert_eq!(paused.outcome.code, OutcomeCode::Interrupted);
    assert_eq!(world.store.run(run).await.unwrap().unwrap().state, RunState::Paused);

    let before = world.kinds(run).await;
    let again = world.scheduler(Natives::new(), pass).resume(run, &signals).await.unwrap();
    assert_eq!(again.outcome.code, OutcomeCode::Interrupted);
    assert_eq!(world.kinds(run).await, before, "one that is paused is not paused again");

    let second = Natives::new().with("only", |job: AttemptJob, _| async move {
        assert_eq!((job.number, job.continues), (1, true));
        Ok(Claim::default())
    });
    let report = world.scheduler(second, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    let kinds = world.kinds(run).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "attempt.started").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| *kind == "attempt.ended").count(), 1);
    let again = world.scheduler(Natives::new(), pass).resume(run, &Signals::default()).await;
    assert!(matches!(again, Err(Error::Ended { .. })), "{again:?}");
}

async fn behaviour_19_a_live_run_is_not_taken_over_and_a_dead_one_goes_on_once_its_lease_has_lapsed(
    world: World,
) {
    let (begun, wait) = tokio::sync::oneshot::channel();
    let begun = std::sync::Mutex::new(Some(begun));
    let natives = Natives::new().with("left", done).with("right", move |_, cancel: Cancel| {
        let begun = begun.lock().unwrap().take();
        async move {
            if let Some(begun) = begun {
                begun.send(()).unwrap();
            }
            cancel.cancelled().await;
            Err("told to stop".to_owned())
        }
    });
    let natives = natives.with("both", done);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(PAIR_AND_ONE, &natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();

    let other = world
        .scheduler(Natives::new().with("left", done).with("right", done).with("both", done), pass);
    {
        let life = scheduler.run(new, &signals);
        tokio::select! {
            _ = life => panic!("it waits for the test"),
            started = wait => started.unwrap(),
        }
        // The future is dropped here, as by a crash: nothing is released.
    }
    let early = other.resume(run, &Signals::default()).await;
    assert!(matches!(early, Err(Error::Store { .. })), "{early:?}");
    world.clock.forward(31);
    let report = other.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    assert!(report.outcome.elapsed.as_millis() < 10_000, "a dead time is not counted");
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
}

async fn a_run_whose_lease_has_lapsed_goes_on_unless_another_took_it(world: World) {
    for is_taken in [false, true] {
        let (store, clock) = (Arc::clone(&world.store), Arc::clone(&world.clock));
        let natives = Natives::new().with("only", move |job: AttemptJob, _: Cancel| {
            let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
            async move {
                // The machine sleeps, or its clock is set.
                clock.forward(60);
                if is_taken {
                    store.acquire(job.run, "another", Span::from_secs(30)).await.unwrap();
                }
                Ok(Claim::default())
            }
        });
        let scheduler = world.scheduler(natives.clone(), pass);
        let new = scheduler.create(&plan(ONE, &natives), setup()).await.unwrap();
        let run = new.id();

        let report = scheduler.run(new, &Signals::default()).await;

        match report {
            Ok(report) => assert!(!is_taken && report.outcome.code == OutcomeCode::Completed),
            Err(Error::Store { source: StoreError::NotOwner { owner, .. }, .. }) => {
                assert!(is_taken && owner == "another", "{owner}");
            }
            Err(error) => panic!("{error:?}"),
        }
        let ended = world.kinds(run).await.iter().any(|kind| kind == "attempt.ended");
        assert_eq!(ended, !is_taken);
    }
}

async fn a_reservation_of_a_dead_process_counts_as_spent_in_full(world: World) {
    let (store, signals) = (Arc::clone(&world.store), Signals::default());
    let (text, pause) = (format!("[budget]\nusd = \"0.8\"\n{ONE}"), signals.pause.clone());
    let natives = Natives::new().with("only", move |job: AttemptJob, cancel: Cancel| {
        let (store, pause) = (Arc::clone(&store), pause.clone());
        async move {
            let hold = HoldId::generate(&SystemClock, &SystemRng);
            let call = CallId::generate(&SystemClock, &SystemRng);
            let usd: Usd = "0.7".parse().unwrap();
            job.ledger.reserve(job.task, hold, Ask { usd, tokens: 10 }).unwrap();
            let reserved = BudgetReserved { hold, call, usd, tokens: 10 };
            let event = NewEvent {
                task: Some(job.task),
                principal: Principal::system("test"),
                at: Timestamp::from_micros(5),
                body: EventBody::BudgetReserved(reserved),
                idempotency_key: None,
            };
            let batch =
                Append { run: job.run, token: job.token, events: vec![event], blobs: vec![] };
            store.append(batch).await.unwrap();
            pause.cancel();
            cancel.cancelled().await;
            Err("told to stop".to_owned())
        }
    });
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(&text, &natives), setup()).await.unwrap();
    let run = new.id();
    scheduler.run(new, &signals).await.unwrap();

    let natives = Natives::new().with("only", |job: AttemptJob, _| async move {
        assert_eq!(job.ledger.remaining(job.task).usd, Some("0.1".parse().unwrap()));
        Ok(Claim::default())
    });
    let report = world.scheduler(natives, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    assert_eq!(report.outcome.cost.to_string(), "0.7");
    let kinds = world.kinds(run).await;
    assert!(kinds.contains(&"budget.settled".to_owned()));
    assert!(kinds.contains(&"budget.warned".to_owned()), "more than four fifths are used");
}

/// Works until it is told to stop, and has the run paused.
fn pausing(
    signals: &Signals,
) -> impl Fn(AttemptJob, Cancel) -> BoxFuture<'static, Result<Claim, String>> + Send + Sync + use<>
{
    let pause = signals.pause.clone();
    move |job, cancel| {
        pause.cancel();
        Box::pin(hang(job, cancel))
    }
}

/// Asks something of a run as another process would: without its lease.
pub(crate) async fn ask(store: &dyn Store, run: RunId, body: fn(RunRequested) -> EventBody) {
    let event = NewEvent {
        task: None,
        principal: "user:bob".parse().unwrap(),
        at: SystemClock.now(),
        body: body(RunRequested { reason: "because".to_owned() }),
        idempotency_key: None,
    };
    let batch = Append { run, token: None, events: vec![event], blobs: vec![] };
    store.append(batch).await.unwrap();
}

async fn what_is_asked_in_the_log_pauses_the_run_and_ends_it(world: World) {
    for (body, state) in [
        (EventBody::RunPauseRequested as fn(_) -> _, RunState::Paused),
        (EventBody::RunAbortRequested, RunState::Aborted),
    ] {
        let (store, signals) = (Arc::clone(&world.store), Signals::default());
        let told = signals.clone();
        let natives = Natives::new().with("only", move |job: AttemptJob, cancel: Cancel| {
            let (store, told) = (Arc::clone(&store), told.clone());
            async move {
                ask(&*store, job.run, body).await;
                told.look();
                hang(job, cancel).await
            }
        });
        let scheduler = world.scheduler(natives.clone(), pass);
        let new = scheduler.create(&plan(ONE, &natives), setup()).await.unwrap();
        let run = new.id();

        let report = scheduler.run(new, &signals).await.unwrap();

        assert_eq!(report.outcome.code, OutcomeCode::Interrupted);
        assert_eq!(world.store.run(run).await.unwrap().unwrap().state, state);
    }
}

async fn a_request_is_found_with_the_next_sign_of_life_where_nobody_tells_of_it(world: World) {
    let store = Arc::clone(&world.store);
    let natives = Natives::new().with("only", move |job: AttemptJob, cancel: Cancel| {
        let store = Arc::clone(&store);
        async move {
            ask(&*store, job.run, EventBody::RunPauseRequested).await;
            hang(job, cancel).await
        }
    });
    let lease = Span::from_millis(30);
    let scheduler = world.scheduler(natives.clone(), pass).with_lease(lease);
    let new = scheduler.create(&plan(ONE, &natives), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Interrupted);
}

async fn a_run_that_is_to_end_begins_nothing_more(world: World) {
    let signals = Signals::default();
    let first = Natives::new().with("left", pausing(&signals)).with("right", hang);
    let first = first.with("both", |_, _| async { panic!("it must not begin") });
    let scheduler = world.scheduler(first.clone(), pass);
    let new = scheduler.create(&plan(PAIR_AND_ONE, &first), setup()).await.unwrap();
    let run = new.id();
    scheduler.run(new, &signals).await.unwrap();
    ask(&*world.store, run, EventBody::RunAbortRequested).await;

    let begin = |_, _| async { panic!("it must not begin") };
    let natives = Natives::new().with("left", begin).with("right", begin).with("both", begin);
    let report = world.scheduler(natives, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Interrupted);
    assert_eq!(ending(&report, "flow"), "cancelled on request");
    assert_eq!(world.store.run(run).await.unwrap().unwrap().state, RunState::Aborted);
}

async fn why_a_body_failed_is_known_after_a_crash_as_well(world: World) {
    let text = "[[tasks]]\nname = \"only\"\nnative = \"only\"\nretries = { max = 1 }\n";
    let signals = Signals::default();
    let pause = signals.pause.clone();
    let natives = Natives::new().with("only", move |job: AttemptJob, cancel: Cancel| {
        let pause = pause.clone();
        async move {
            if job.number == 1 {
                return Err("the wheel came off".to_owned());
            }
            pause.cancel();
            hang(job, cancel).await
        }
    });
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(text, &natives), setup()).await.unwrap();
    let run = new.id();
    scheduler.run(new, &signals).await.unwrap();

    let natives = Natives::new().with("only", |job: AttemptJob, _| async move {
        let shown: Vec<_> = job.evidence.iter().map(|verdict| verdict.reason.as_str()).collect();
        assert_eq!((job.number, shown), (2, vec!["the wheel came off"]));
        Ok(Claim::default())
    });
    let report = world.scheduler(natives, pass).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
}

async fn two_children_under_a_budget_for_one_spend_no_more_than_it(world: World) {
    let spend = |job: AttemptJob, _: Cancel| async move {
        let usd: Usd = "0.6".parse().unwrap();
        let hold = HoldId::generate(&SystemClock, &SystemRng);
        match job.ledger.reserve(job.task, hold, Ask { usd, tokens: 1 }) {
            Ok(()) => {
                job.ledger.settle(hold, &Usage::default(), usd);
                Ok(Claim::default())
            }
            Err(refusal) => Err(refusal.to_string()),
        }
    };
    let natives = Natives::new().with("spend", spend);
    let text = r#"
[budget]
usd = "1"
[[tasks]]
name = "a"
native = "spend"
[[tasks]]
name = "b"
native = "spend"
"#;

    let report = world.run(text, natives, pass).await;

    assert_eq!(report.outcome.cost.to_string(), "0.6");
    let completed = report.tasks().filter(|task| task.ending == Ending::Completed).count();
    assert_eq!(completed, 1);
    assert!(report.outcome.reason.contains("0.4 USD are left of 1"), "{}", report.outcome.reason);
}

async fn a_task_whose_time_is_over_is_told_to_stop_and_escalates(world: World) {
    let text = "[[tasks]]\nname = \"slow\"\nnative = \"slow\"\ntimeout = \"20ms\"\n";

    let report = world.run(text, Natives::new().with("slow", hang), pass).await;

    assert_eq!(ending(&report, "slow"), "timed out after 20ms");
    assert_eq!(report.outcome.code, OutcomeCode::Failed);
}

async fn a_body_that_panics_fails_its_attempt_and_nothing_else(world: World) {
    let natives = Natives::new().with("left", |_, _| async { panic!("by design") });

    let report =
        world.run(PAIR_AND_ONE, natives.with("right", done).with("both", done), pass).await;

    assert_eq!(ending(&report, "left"), "it panicked");
    assert_eq!(ending(&report, "right"), "completed");
    assert_eq!(ending(&report, "both"), "task left did not complete");
}

async fn an_aborted_run_ends_for_good(world: World) {
    let natives = Natives::new().with("only", hang);
    let scheduler = world.scheduler(natives.clone(), pass);
    let new = scheduler.create(&plan(ONE, &natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    signals.abort.cancel();

    let report = scheduler.run(new, &signals).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Interrupted);
    assert_eq!(ending(&report, "flow"), "cancelled on request");
    assert_eq!(world.kinds(run).await.last().unwrap(), "run.finished");
}

async fn behaviour_1_a_part_of_a_conversation_is_recorded_and_may_act_only_while_it_is_open(
    world: World,
) {
    let natives = Natives::new().with("only", |job: AttemptJob, _| async move {
        assert!(job.control.is_active(job.task));
        let part =
            job.control.start(job.task, "look".parse().unwrap(), "look around".to_owned()).await?;
        assert!(job.control.is_active(part));
        let taken = job.control.start(job.task, "look".parse().unwrap(), String::new()).await;
        assert_eq!(taken.unwrap_err(), "task only has an open task look already");
        let claim = Claim { summary: "seen".to_owned(), output: None };
        assert_eq!(job.control.end(part, claim.clone()).await?, job.task);
        assert!(!job.control.is_active(part));
        assert!(job.control.end(part, claim).await.is_err());
        Ok(Claim::default())
    });

    let report = world.run(ONE, natives, pass).await;

    let look = report.tasks().find(|task| task.name.as_str() == "look").unwrap();
    assert_eq!(look.ending, Ending::Completed);
    assert_eq!(look.claim.unwrap().summary, "seen");
}

async fn behaviour_2_a_check_that_fails_first_stops_its_phase(world: World) {
    let ran = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&ran);
    let text = r#"
[[tasks]]
name = "guarded"
native = "guarded"
  [[tasks.prechecks]]
  command = ["one"]
  [[tasks.prechecks]]
  command = ["two"]
  [[tasks.prechecks]]
  command = ["three"]
"#;
    let natives = Natives::new().with("guarded", |_, _| async { panic!("it must not begin") });

    let report = world
        .run(text, natives, move |job| {
            count.fetch_add(1, Ordering::SeqCst);
            verdict(job, job.index == 0)
        })
        .await;

    assert_eq!(ran.load(Ordering::SeqCst), 2);
    assert!(ending(&report, "guarded").starts_with("entry check"), "{}", report.outcome.reason);
    let kinds = world.kinds(report.outcome.run).await;
    assert!(!kinds.contains(&"attempt.started".to_owned()));
}

async fn no_more_bodies_are_at_work_than_the_width_allows(world: World) {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let seen = Arc::clone(&most);
    let natives = Natives::new().with("work", move |_, _| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Claim::default())
        }
    });
    let text: String =
        (0..30).map(|n| format!("[[tasks]]\nname = \"t{n}\"\nnative = \"work\"\n")).collect();
    let scheduler =
        world.scheduler(natives.clone(), pass).with_width(NonZeroUsize::new(3).unwrap());

    let run = scheduler.create(&plan(&text, &natives), setup()).await.unwrap();
    let report = scheduler.run(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed);
    assert_eq!(seen.load(Ordering::SeqCst), 3);
}
