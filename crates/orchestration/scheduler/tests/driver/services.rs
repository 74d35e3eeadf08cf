//! Programs that run while the tasks work, where they stay, never come, die and are left.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, Blob, Cancel, Claim, EventBody, OutcomeCode, RunId, RunState, Store, StoreError,
    SystemRng, check::Verdict, store::Recorded,
};
use formwork_scheduler::{
    AttemptEnd, AttemptJob, CheckJob, Error, Executor, Natives, Scheduler, ServiceEnd, ServiceJob,
    Signals,
};
use formwork_testkit::between::{Between, Through};
use tokio::sync::Notify;

use crate::world::{World, ending, on_both, plan, setup, verdict};

on_both! {
    a_service_is_ready_before_the_first_task_and_ends_after_the_last,
    a_service_that_never_is_ready_ends_the_run_as_setup_before_any_task,
    a_service_that_dies_is_started_again_and_no_work_begins_meanwhile,
    a_service_that_dies_for_good_fails_what_is_under_way_with_its_last_words,
    a_service_goes_with_a_process_that_dies_and_is_started_anew_by_the_next,
    a_service_ends_with_a_pause_and_to_wait_for_it_is_no_work,
    a_pause_before_a_service_is_ready_leaves_nothing_behind_and_begins_nothing,
    a_run_that_was_left_is_not_lost_with_a_service_that_is_not_to_be_had,
    a_service_that_cannot_be_recorded_is_not_begun,
    a_service_whose_work_panics_has_ended,
    a_task_that_is_held_back_for_a_service_is_ended_by_its_time_all_the_same,
}

const NEEDED: &str = r#"
variables = { folder = { default = "data" } }
[[services]]
name = "db"
command = ["db", "{{folder}}"]
ready = { command = ["look"], timeout = "40ms" }
[[tasks]]
name = "first"
native = "first"
[[tasks]]
name = "second"
native = "second"
depends_on = ["first"]
"#;

/// What a start of the service comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Stays,
    IsNeverReady,
    /// As soon as the first task asks for it.
    Dies,
    Panics,
}

#[derive(Default)]
struct Serving {
    does: Mutex<VecDeque<Does>>,
    natives: Natives,
    runs: AtomicU32,
    seen: Mutex<Vec<String>>,
    dies: Notify,
    slow: Mutex<Option<Arc<crate::world::HandClock>>>,
    begun: Notify,
}

/// Counts as one that runs until it is dropped, however it ends.
struct Running<'a>(&'a AtomicU32);

impl<'a> Running<'a> {
    fn begin(runs: &'a AtomicU32) -> Self {
        runs.fetch_add(1, Ordering::SeqCst);
        Self(runs)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Serving {
    fn saw(&self, what: impl Into<String>) {
        self.seen.lock().unwrap().push(what.into());
    }

    fn running(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

fn ended(how: &str) -> ServiceEnd {
    let said = "listening\nout of shared memory\n";
    ServiceEnd {
        how: how.to_owned(),
        excerpt: said.to_owned(),
        output: Some(Blob::new(said.as_bytes())),
    }
}

#[async_trait]
impl Executor for Serving {
    async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> Result<AttemptEnd, StoreError> {
        self.saw(format!("{} with {}", job.spec.name, self.running()));
        self.begun.notify_one();
        Ok(self.natives.attempt(job, cancel).await)
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok(verdict(&job, true))
    }

    async fn serve(&self, job: ServiceJob, cancel: &Cancel) -> ServiceEnd {
        let _running = Running::begin(&self.runs);
        let does = self.does.lock().unwrap().pop_front().unwrap_or(Does::Stays);
        assert_ne!(does, Does::Panics, "as the test says");
        self.saw(format!("{} {does:?}", job.service.argv.join(" ")));
        if does == Does::IsNeverReady {
            self.does.lock().unwrap().push_front(does);
        }
        tokio::select! {
            () = cancel.cancelled() => ended("cancelled"),
            () = self.dies.notified(), if does == Does::Dies => ended("exit code 1"),
        }
    }

    async fn is_ready(&self, _: &ServiceJob) -> Result<(), String> {
        if let Some(clock) = &*self.slow.lock().unwrap() {
            clock.forward(1_000);
        }
        match self.does.lock().unwrap().front() {
            Some(Does::IsNeverReady) => {
                self.begun.notify_one();
                Err("look said: no response".to_owned())
            }

            _ => Ok(()),
        }
    }
}

fn serving(does: impl IntoIterator<Item = Does>, natives: Natives) -> Arc<Serving> {
    let does = Mutex::new(does.into_iter().collect());
    Arc::new(Serving { does, natives, ..Serving::default() })
}

fn scheduler(world: &World, serving: &Arc<Serving>) -> Scheduler {
    Scheduler::new(Arc::clone(&world.store), Arc::clone(serving) as _)
        .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng))
}

fn natives() -> Natives {
    Natives::new().with("first", crate::world::done).with("second", crate::world::done)
}

async fn begin(world: &World, serving: &Arc<Serving>, text: &str) -> formwork_scheduler::Report {
    let scheduler = scheduler(world, serving);
    let run = scheduler.create(&plan(text, &serving.natives), setup()).await.unwrap();
    scheduler.run(run, &Signals::default()).await.unwrap()
}

/// The kinds of what happened to services, with what was first and last of the tasks.
async fn course(world: &World, run: RunId) -> Vec<String> {
    let kinds = world.kinds(run).await;
    let of = |kind: &String| kind.starts_with("service.") || kind.starts_with("attempt.started");
    kinds.into_iter().filter(of).collect()
}

async fn a_service_is_ready_before_the_first_task_and_ends_after_the_last(world: World) {
    let serving = serving([], natives());

    let report = begin(&world, &serving, NEEDED).await;

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
    let seen = serving.seen.lock().unwrap().clone();
    assert_eq!(seen, ["db data Stays", "first with 1", "second with 1"]);
    assert_eq!(serving.running(), 0);
    let course = course(&world, report.outcome.run).await;
    let wanted = [
        "service.started",
        "service.ready",
        "attempt.started",
        "attempt.started",
        "service.stopped",
    ];
    assert_eq!(course, wanted);
    let kinds = world.kinds(report.outcome.run).await;
    assert_eq!(kinds[kinds.len() - 2..], ["service.stopped", "run.finished"]);
}

async fn a_service_that_never_is_ready_ends_the_run_as_setup_before_any_task(world: World) {
    let serving = serving([Does::IsNeverReady], natives());

    let report = begin(&world, &serving, NEEDED).await;

    assert_eq!(report.outcome.code, OutcomeCode::Setup);
    assert_eq!(
        report.outcome.reason,
        "service db was not ready after 40ms: look said: no response; it said: listening out of shared memory"
    );
    assert_eq!((serving.seen.lock().unwrap().len(), serving.running()), (1, 0));
    assert_eq!(course(&world, report.outcome.run).await, ["service.started", "service.failed"]);
    let row = world.store.run(report.outcome.run).await.unwrap().unwrap();
    assert_eq!(row.state, RunState::Failed);
}

async fn a_service_that_dies_is_started_again_and_no_work_begins_meanwhile(world: World) {
    let again = Arc::new(Mutex::new(None::<Arc<Serving>>));
    let own = Arc::clone(&again);
    let natives = Natives::new()
        .with("first", move |_: AttemptJob, _: Cancel| {
            let serving = own.lock().unwrap().clone().unwrap();
            async move {
                serving.dies.notify_one();
                Ok(Claim::default())
            }
        })
        .with("second", crate::world::done);
    let serving = serving([Does::Dies, Does::Stays], natives);
    *again.lock().unwrap() = Some(Arc::clone(&serving));

    let report = begin(&world, &serving, NEEDED).await;

    *again.lock().unwrap() = None;
    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
    let seen = serving.seen.lock().unwrap().clone();
    // Whichever comes first of the end of the task and that of the service.
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("db data Dies", "first with 1"));
    assert!(!seen.contains(&"second with 0".to_owned()), "{seen:?}");
    let events = world.events(report.outcome.run).await;
    let failed = events.iter().find_map(|event| match &event.body {
        EventBody::ServiceFailed(failed) => Some((**failed).clone()),
        _ => None,
    });
    let failed = failed.unwrap();
    assert!(failed.again && failed.was_ready);
    assert_eq!(failed.reason, "has ended (exit code 1) while tasks needed it");
    let kept = world.store.blob(&failed.output.unwrap()).await.unwrap().unwrap();
    assert_eq!(kept, b"listening\nout of shared memory\n");
}

async fn a_service_that_dies_for_good_fails_what_is_under_way_with_its_last_words(world: World) {
    let natives =
        Natives::new().with("first", crate::world::hang).with("second", crate::world::done);
    let serving = serving([Does::Dies, Does::Dies], natives);
    let scheduler = scheduler(&world, &serving);
    let new = scheduler.create(&plan(NEEDED, &serving.natives), setup()).await.unwrap();
    let signals = Signals::default();

    let killing = async {
        serving.begun.notified().await;
        serving.dies.notify_one();
        // And again, once the second one is there.
        while serving.seen.lock().unwrap().iter().filter(|it| it.starts_with("db")).count() < 2 {
            tokio::task::yield_now().await;
        }
        serving.dies.notify_one();
    };
    let (report, ()) = tokio::join!(scheduler.run(new, &signals), killing);

    let report = report.unwrap();
    assert_eq!(report.outcome.code, OutcomeCode::Setup);
    let why = "service db has ended (exit code 1) while tasks needed it; it said: listening out of shared memory";
    assert_eq!(ending(&report, "first"), why);
    assert_eq!(report.outcome.reason, why);
    assert!(
        ending(&report, "second").contains("its parent ended"),
        "{}",
        ending(&report, "second")
    );
    assert_eq!(serving.running(), 0);
}

async fn a_service_goes_with_a_process_that_dies_and_is_started_anew_by_the_next(world: World) {
    let natives =
        Natives::new().with("first", crate::world::hang).with("second", crate::world::done);
    let first = serving([], natives);
    let killed = scheduler(&world, &first);
    let new = killed.create(&plan(NEEDED, &first.natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    tokio::select! {
        ended = killed.run(new, &signals) => panic!("{ended:?}"),
        () = first.begun.notified() => {} // The future is dropped here, as by a crash.
    }
    let second = serving([], self::natives());

    let next = scheduler(&world, &second).with_owner("another").with_gone(|_| true);
    let report = next.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
    let seen = second.seen.lock().unwrap().clone();
    assert_eq!(seen, ["db data Stays", "first with 1", "second with 1"]);
    assert_eq!(second.running(), 0);
}

async fn a_service_ends_with_a_pause_and_to_wait_for_it_is_no_work(world: World) {
    let natives =
        Natives::new().with("first", crate::world::hang).with("second", crate::world::done);
    let first = serving([], natives);
    let text = format!("budget = {{ wall = \"10m\" }}\n{NEEDED}");
    let paused = scheduler(&world, &first);
    let new = paused.create(&plan(&text, &first.natives), setup()).await.unwrap();
    let (run, signals) = (new.id(), Signals::default());
    let pause = async {
        first.begun.notified().await;
        signals.pause.cancel();
    };
    let (report, ()) = tokio::join!(paused.run(new, &signals), pause);
    let left = (report.unwrap().outcome.code, first.running());
    let second = serving([], self::natives());
    // Each look takes longer than the tasks may.
    *second.slow.lock().unwrap() = Some(Arc::clone(&world.clock));

    let report = scheduler(&world, &second).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(left, (OutcomeCode::Interrupted, 0));
    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
    let wanted = [
        "service.started",
        "service.ready",
        "attempt.started",
        "service.stopped",
        "service.started",
        "service.ready",
        "attempt.started",
        "service.stopped",
    ];
    assert_eq!(course(&world, run).await, wanted);
}

async fn a_pause_before_a_service_is_ready_leaves_nothing_behind_and_begins_nothing(world: World) {
    let text = NEEDED.replace("40ms", "1h");
    let first = serving([Does::IsNeverReady], natives());
    let paused = scheduler(&world, &first);
    let new = paused.create(&plan(&text, &first.natives), setup()).await.unwrap();
    let (run, signals) = (new.id(), Signals::default());
    let pause = async {
        first.begun.notified().await;
        signals.pause.cancel();
    };
    let (report, ()) = tokio::join!(paused.run(new, &signals), pause);
    let left = (report.unwrap().outcome.code, first.running(), course(&world, run).await);
    let second = serving([], natives());

    let report = scheduler(&world, &second).resume(run, &Signals::default()).await.unwrap();

    let told = ["service.started", "service.stopped"].map(str::to_owned).to_vec();
    assert_eq!(left, (OutcomeCode::Interrupted, 0, told));
    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
}

async fn a_run_that_was_left_is_not_lost_with_a_service_that_is_not_to_be_had(world: World) {
    let natives =
        Natives::new().with("first", crate::world::hang).with("second", crate::world::done);
    let first = serving([], natives);
    let paused = scheduler(&world, &first);
    let new = paused.create(&plan(NEEDED, &first.natives), setup()).await.unwrap();
    let (run, signals) = (new.id(), Signals::default());
    let pause = async {
        first.begun.notified().await;
        signals.pause.cancel();
    };
    let (report, ()) = tokio::join!(paused.run(new, &signals), pause);
    report.unwrap();
    let away = serving([Does::IsNeverReady], self::natives());

    let without = scheduler(&world, &away).resume(run, &Signals::default()).await.unwrap();
    let back = serving([], self::natives());
    let report = scheduler(&world, &back).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(without.outcome.code, OutcomeCode::Setup);
    assert!(
        without.outcome.reason.ends_with("and the run can be resumed"),
        "{:?}",
        without.outcome
    );
    assert_eq!(away.seen.lock().unwrap().len(), 1);
    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{:?}", report.outcome);
}

/// A log that cannot take that a service was started.
struct Unrecorded;

#[async_trait]
impl Between for Unrecorded {
    async fn append(&self, store: &dyn Store, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        if batch.events.iter().any(|event| matches!(event.body, EventBody::ServiceStarted(_))) {
            let (at, reason) = ("the test".to_owned(), "the disk is full".to_owned());
            return Err(StoreError::Unavailable { at, reason });
        }
        store.append(batch).await
    }
}

async fn a_service_that_cannot_be_recorded_is_not_begun(world: World) {
    let serving = serving([], natives());
    let full: Arc<dyn Store> = Arc::new(Through::new(Arc::clone(&world.store), Unrecorded));
    let scheduler = Scheduler::new(full, Arc::clone(&serving) as _)
        .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng));
    let new = scheduler.create(&plan(NEEDED, &serving.natives), setup()).await.unwrap();

    let stopped = scheduler.run(new, &Signals::default()).await.unwrap_err();

    assert!(matches!(stopped, Error::Store { .. }), "{stopped:?}");
    assert_eq!((serving.seen.lock().unwrap().len(), serving.running()), (0, 0));
}

async fn a_service_whose_work_panics_has_ended(world: World) {
    let serving = serving([Does::Panics], natives());

    let report = begin(&world, &serving, NEEDED).await;

    assert_eq!(report.outcome.code, OutcomeCode::Setup, "{:?}", report.outcome);
    let why = "service db has ended (it panicked) before it was ready";
    assert_eq!(report.outcome.reason, why);
    assert_eq!(course(&world, report.outcome.run).await, ["service.started", "service.failed"]);
}

async fn a_task_that_is_held_back_for_a_service_is_ended_by_its_time_all_the_same(world: World) {
    let text = NEEDED.replace("40ms", "1h") + "timeout = \"50ms\"\n";
    let own = Arc::new(Mutex::new(None::<Arc<Serving>>));
    let again = Arc::clone(&own);
    let natives = Natives::new()
        .with("first", move |_: AttemptJob, _: Cancel| {
            let serving = again.lock().unwrap().clone().unwrap();
            async move {
                serving.does.lock().unwrap().push_back(Does::IsNeverReady);
                serving.dies.notify_one();
                // It goes on until the service is started again, which then never comes to be ready.
                while serving.seen.lock().unwrap().iter().filter(|it| it.starts_with("db")).count()
                    < 2
                {
                    tokio::task::yield_now().await;
                }
                Ok(Claim::default())
            }
        })
        .with("second", crate::world::done);
    let serving = serving([Does::Dies], natives);
    *own.lock().unwrap() = Some(Arc::clone(&serving));

    let report = begin(&world, &serving, &text).await;

    *own.lock().unwrap() = None;
    assert_eq!(ending(&report, "second"), "timed out after 50ms");
    assert_eq!(serving.running(), 0);
}
