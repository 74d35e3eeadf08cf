//! Work whose log cannot be reached: it has no end, and whoever takes the run up finds it open.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Claim, OutcomeCode, RunId, RunOutcome, RunState, StoreError, SystemRng, check::Verdict,
};
use formwork_scheduler::{
    AttemptEnd, AttemptJob, CheckJob, Error, Executor, Natives, Scheduler, Signals,
};

use crate::world::{World, done, ending, on_both, plan, setup};

on_both! {
    what_loses_its_log_stops_the_run_and_has_no_end,
    what_lost_its_log_is_begun_again_as_after_a_crash,
    a_command_that_lost_its_log_is_not_run_again,
}

const CHECKED: &str = r#"
[[tasks]]
name = "only"
native = "only"
retries = { max = 2 }
on_success = [{ name = "push", command = ["x"] }]
  [[tasks.postchecks]]
  name = "tests"
  command = ["true"]
"#;

/// Which is done, and cannot say so: the log is away.
#[derive(Default)]
struct Away {
    /// The attempt, check or end that loses its log; none where nothing does.
    at: Mutex<&'static str>,
    /// What was done, with whether it went on with something.
    done: Mutex<Vec<(String, bool)>>,
}

impl Away {
    fn does(&self, name: &str, continues: bool) -> Result<(), StoreError> {
        self.done.lock().unwrap().push((name.to_owned(), continues));
        match *self.at.lock().unwrap() == name {
            true => Err(away()),
            false => Ok(()),
        }
    }

    fn done(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut self.done.lock().unwrap())
    }
}

fn away() -> StoreError {
    StoreError::Unavailable { at: "here".to_owned(), reason: "it is locked".to_owned() }
}

#[async_trait]
impl Executor for Away {
    async fn attempt(&self, job: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        self.does("work", job.continues)?;
        Ok(AttemptEnd::Claimed { claim: Claim::default(), session: None, files_changed: 0 })
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        self.does(&job.check.name, false)?;
        Ok(Verdict::bare(&*job.check.name, true, "as the test says"))
    }

    async fn ending(&self, outcome: RunOutcome, _: u64) -> Result<RunOutcome, StoreError> {
        self.does("end", false)?;
        Ok(outcome)
    }
}

/// Runs until something loses its log, and returns what the run stopped with.
async fn stopped(world: &World, at: &'static str) -> (Arc<Away>, Scheduler, RunId, Error) {
    let away = Arc::new(Away { at: Mutex::new(at), ..Away::default() });
    let scheduler = Scheduler::new(Arc::clone(&world.store), Arc::clone(&away) as _)
        .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng));
    let natives = Natives::new().with("only", done);
    let new = scheduler.create(&plan(CHECKED, &natives), setup()).await.unwrap();
    let run = new.id();
    let stopped = scheduler.run(new, &Signals::default()).await.unwrap_err();
    *away.at.lock().unwrap() = "";
    (away, scheduler, run, stopped)
}

async fn what_loses_its_log_stops_the_run_and_has_no_end(world: World) {
    for (at, last) in [
        ("work", "attempt.started"),
        ("tests", "check.started"),
        ("push", "check.started"),
        ("end", "task.completed"),
    ] {
        let (_, _, run, stopped) = stopped(&world, at).await;

        let Error::Store { run: of, source } = stopped else { panic!("{at}: {stopped:?}") };
        assert_eq!((of, source), (run, away()), "{at}");
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.last().unwrap(), last, "{at}: {kinds:?}");
        assert_eq!(world.store.run(run).await.unwrap().unwrap().state, RunState::Running, "{at}");
    }
}

async fn what_lost_its_log_is_begun_again_as_after_a_crash(world: World) {
    for (at, before, after) in [
        ("work", vec!["work"], vec![("work", true), ("tests", false), ("push", false)]),
        ("tests", vec!["work", "tests"], vec![("tests", false), ("push", false)]),
        ("end", vec!["work", "tests", "push", "end"], vec![]),
    ] {
        let (away, scheduler, run, _) = stopped(&world, at).await;
        let begun: Vec<String> = away.done().into_iter().map(|(name, _)| name).collect();

        let report = scheduler.resume(run, &Signals::default()).await.unwrap();

        let after = after.into_iter().chain([("end", false)]);
        let after: Vec<_> = after.map(|(name, goes_on)| (name.to_owned(), goes_on)).collect();
        assert_eq!(
            (begun, away.done()),
            (before.iter().map(|it| (*it).to_owned()).collect(), after)
        );
        assert_eq!(report.outcome.code, OutcomeCode::Completed, "{at}: {}", report.outcome);
        // None of its attempts was used up by that.
        assert_eq!(report.tasks().map(|task| task.attempts).max(), Some(1), "{at}");
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "attempt.ended").count(), 1, "{at}");
    }
}

async fn a_command_that_lost_its_log_is_not_run_again(world: World) {
    let (away, scheduler, run, _) = stopped(&world, "push").await;
    away.done();

    let report = scheduler.resume(run, &Signals::default()).await.unwrap();

    assert_eq!(away.done(), [("end".to_owned(), false)]);
    let unknown =
        "outcome unknown: the run stopped while push ran; whether it took effect is unknown";
    assert_eq!(ending(&report, "only"), unknown);
}
