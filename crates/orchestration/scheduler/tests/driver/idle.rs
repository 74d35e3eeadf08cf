//! Runs that are carried out again: what an executor hears of a scheduler that has nothing to do, and no time that counts.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use formwork_protocols::{
    Body, Cancel, Claim, Escalation, OutcomeCode, Span, StoreError, SystemRng, TaskName, TaskSpec,
    check::Verdict, spec::Retries,
};
use formwork_scheduler::{
    AttemptEnd, AttemptJob, CheckJob, Executor, Natives, Scheduler, Signals, workflow::Plan,
};
use serde_json::Map;
use tokio::sync::Notify;

use crate::world::{World, done, on_both, pass, plan, setup};

on_both! {
    whoever_waits_for_others_is_not_counted_of_what_is_under_way,
    without_time_nothing_ends_or_rests_because_of_it,
}

/// Whose helper works until the scheduler says that it waits for one piece of work alone.
#[derive(Default)]
struct Helped {
    is_helping: Notify,
    began: AtomicU32,
    told: Mutex<Vec<usize>>,
}

#[async_trait]
impl Executor for Helped {
    async fn attempt(&self, job: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        if job.spec.name.as_str() == "lead" {
            let helper = Body::Native { function: "help".to_owned() };
            let helper = TaskSpec::new(TaskName::parse("helper").unwrap(), helper);
            job.control.make(job.task, helper).await.unwrap();
            job.control.results(job.task, Vec::new()).await.unwrap();
        } else {
            self.began.fetch_add(1, Ordering::SeqCst);
            self.is_helping.notified().await;
        }
        Ok(AttemptEnd::Claimed { claim: Claim::default(), session: None, files_changed: 0 })
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok(pass(&job))
    }

    fn idle(&self, under_way: usize) {
        if self.began.load(Ordering::SeqCst) > 0 {
            self.told.lock().unwrap().push(under_way);
            if under_way == 1 {
                self.is_helping.notify_one();
            }
        }
    }
}

async fn whoever_waits_for_others_is_not_counted_of_what_is_under_way(world: World) {
    let helped = Arc::new(Helped::default());
    let scheduler = Scheduler::new(Arc::clone(&world.store), Arc::clone(&helped) as _)
        .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng));
    let natives = Natives::new().with("lead", done);
    let text = "[[tasks]]\nname = \"lead\"\nnative = \"lead\"\n";
    let new = scheduler.create(&plan(text, &natives), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    let told = helped.told.lock().unwrap().clone();
    assert!(told.contains(&1) && told.iter().all(|count| [1, 2].contains(count)), "{told:?}");
}

/// Who cannot reach what it needs as often as that.
struct Unreachable(AtomicU32);

#[async_trait]
impl Executor for Unreachable {
    async fn attempt(&self, _: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        let left = self.0.load(Ordering::SeqCst);
        if left == 0 {
            return Ok(AttemptEnd::Claimed {
                claim: Claim::default(),
                session: None,
                files_changed: 0,
            });
        }
        self.0.store(left - 1, Ordering::SeqCst);
        let why = Escalation::Unreachable { detail: "for now".to_owned() };
        Ok(AttemptEnd::Failed { why, session: None, files_changed: 0 })
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok(pass(&job))
    }
}

async fn without_time_nothing_ends_or_rests_because_of_it(world: World) {
    let moment = Span::from_micros(1);
    // The rests between so many tries would take minutes.
    let scheduler = Scheduler::new(Arc::clone(&world.store), Arc::new(Unreachable(9.into())))
        .with_time(Arc::clone(&world.clock) as _, Arc::new(SystemRng))
        .untimed();
    let body = Body::Native { function: "only".to_owned() };
    let retries = Retries { outage: Some(Span::from_secs(60 * 60)), ..Retries::default() };
    let mut task = TaskSpec {
        timeout: Some(moment),
        idle: Some(moment),
        retries,
        ..TaskSpec::new(TaskName::parse("only").unwrap(), body)
    };
    task.budget.wall = Some(moment);
    let name = formwork_protocols::WorkflowName::parse("only").unwrap();
    let new = scheduler.create(&Plan::of(name, task, Map::new()), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
}
