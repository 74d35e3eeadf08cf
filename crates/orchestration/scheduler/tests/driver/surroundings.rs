//! Commands before another attempt and after success, and what belongs to the end of a run, where a process dies over them.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Claim, OutcomeCode, RunId, RunOutcome, RunState, StoreError, SystemRng,
    check::{Phase, Verdict},
};
use formwork_scheduler::{AttemptEnd, AttemptJob, CheckJob, Executor, Natives, Scheduler, Signals};
use tokio::sync::Notify;

use crate::world::{World, ending, on_both, plan, setup};

on_both! {
    a_command_around_attempts_that_a_process_died_over_is_not_run_again,
    a_command_around_attempts_that_a_pause_stopped_is_run_again_and_none_before_it,
    what_belongs_to_the_end_is_done_again_by_whoever_takes_the_run_up,
}

const SURROUNDED: &str = r#"
[[tasks]]
name = "only"
native = "only"
retries = { max = 1 }
before_retry = [{ name = "clean", command = ["x"] }, { name = "fetch", command = ["x"] }]
on_success = [{ name = "tag", command = ["x"] }, { name = "push", command = ["x"] }]
  [[tasks.postchecks]]
  name = "tests"
  command = ["true"]
"#;

/// Whose tests fail once, and that does not come back from what it is told.
#[derive(Default)]
struct Stuck {
    /// The check that it does not come back from, or `end`.
    at: Mutex<&'static str>,
    reached: Notify,
    begun: Mutex<Vec<String>>,
    tested: AtomicU32,
}

impl Stuck {
    async fn begin(&self, name: &str, cancel: &Cancel) {
        self.begun.lock().unwrap().push(name.to_owned());
        if *self.at.lock().unwrap() == name {
            self.reached.notify_one();
            cancel.cancelled().await;
        }
    }

    fn begun(&self) -> Vec<String> {
        std::mem::take(&mut self.begun.lock().unwrap())
    }
}

#[async_trait]
impl Executor for Stuck {
    async fn attempt(&self, _: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        Ok(AttemptEnd::Claimed { claim: Claim::default(), session: None, files_changed: 0 })
    }

    async fn check(&self, job: CheckJob, cancel: &Cancel) -> Result<Verdict, StoreError> {
        self.begin(&job.check.name, cancel).await;
        let passed = job.phase != Phase::Exit || self.tested.fetch_add(1, Ordering::SeqCst) > 0;
        Ok(Verdict::bare(&*job.check.name, passed, "as the test says"))
    }

    async fn ending(&self, outcome: RunOutcome, _: u64) -> Result<RunOutcome, StoreError> {
        self.begin("end", &Cancel::new()).await;
        Ok(RunOutcome { reason: format!("{}; told", outcome.reason), ..outcome })
    }
}

/// Runs until it is stuck, and dies.
async fn killed(world: &World, stuck: &Arc<Stuck>, at: &'static str) -> (Scheduler, RunId) {
    *stuck.at.lock().unwrap() = at;
    let scheduler = scheduler(world, stuck);
    let natives = Natives::new().with("only", crate::world::done);
    let new = scheduler.create(&plan(SURROUNDED, &natives), setup()).await.unwrap();
    let (run, signals) = (new.id(), Signals::default());
    tokio::select! {
        ended = scheduler.run(new, &signals) => panic!("{ended:?}"),
        () = stuck.reached.notified() => {} // The future is dropped here, as by a crash.
    }
    *stuck.at.lock().unwrap() = "";
    (scheduler.with_owner("another").with_gone(|_| true), run)
}

fn scheduler(world: &World, stuck: &Arc<Stuck>) -> Scheduler {
    Scheduler::new(Arc::clone(&world.store), Arc::clone(stuck) as _)
        .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng))
}

async fn a_command_around_attempts_that_a_process_died_over_is_not_run_again(world: World) {
    let before = ["tests", "clean", "fetch", "tests", "tag", "push"];
    for at in ["clean", "fetch", "tag", "push"] {
        let stuck = Arc::new(Stuck::default());
        let (scheduler, run) = killed(&world, &stuck, at).await;
        let begun = stuck.begun();

        let report = scheduler.resume(run, &Signals::default()).await.unwrap();

        let place = before.iter().position(|name| *name == at).unwrap();
        assert_eq!(
            (begun.as_slice(), stuck.begun()),
            (&before.map(String::from)[..=place], vec!["end".to_owned()])
        );
        let unknown = format!(
            "outcome unknown: the run stopped while {at} ran; whether it took effect is unknown"
        );
        assert_eq!(ending(&report, "only"), unknown);
        let checks = world.store.checks(run).await.unwrap();
        let last = &checks.last().unwrap().verdict;
        assert_eq!((last.check.as_str(), last.passed), (at, false));
    }
}

async fn a_command_around_attempts_that_a_pause_stopped_is_run_again_and_none_before_it(
    world: World,
) {
    for (at, rest) in [
        ("clean", vec!["clean", "fetch", "tests", "tag", "push", "end"]),
        ("fetch", vec!["fetch", "tests", "tag", "push", "end"]),
        ("tag", vec!["tag", "push", "end"]),
        ("push", vec!["push", "end"]),
    ] {
        let stuck = Arc::new(Stuck { at: Mutex::new(at), ..Stuck::default() });
        let scheduler = scheduler(&world, &stuck);
        let natives = Natives::new().with("only", crate::world::done);
        let new = scheduler.create(&plan(SURROUNDED, &natives), setup()).await.unwrap();
        let (run, signals) = (new.id(), Signals::default());
        let pause = async {
            stuck.reached.notified().await;
            signals.pause.cancel();
        };
        let (paused, ()) = tokio::join!(scheduler.run(new, &signals), pause);
        assert_eq!(paused.unwrap().outcome.code, OutcomeCode::Interrupted);
        stuck.begun();
        *stuck.at.lock().unwrap() = "";

        let report = scheduler.resume(run, &Signals::default()).await.unwrap();

        assert_eq!(report.outcome.code, OutcomeCode::Completed, "{at}: {}", report.outcome);
        assert_eq!(stuck.begun(), rest, "{at}");
    }
}

async fn what_belongs_to_the_end_is_done_again_by_whoever_takes_the_run_up(world: World) {
    let stuck = Arc::new(Stuck::default());
    let (scheduler, run) = killed(&world, &stuck, "end").await;
    let state = world.store.run(run).await.unwrap().unwrap().state;
    stuck.begun();

    let report = scheduler.resume(run, &Signals::default()).await.unwrap();
    let again = scheduler.resume(run, &Signals::default()).await;

    assert_eq!(state, RunState::Running);
    assert_eq!(stuck.begun(), ["end"]);
    assert!(report.outcome.reason.ends_with("; told"), "{}", report.outcome);
    let last = world.events(run).await.pop().unwrap().body;
    let formwork_protocols::EventBody::RunFinished(finished) = last else { panic!("{last:?}") };
    assert_eq!(finished.outcome, report.outcome);
    assert!(again.is_err(), "{again:?}");
}
