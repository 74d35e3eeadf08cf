//! Many children beside each other that spend, fail, are tried again, cancelled and killed.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use formwork_protocols::{
    Ask, CallId, Cancel, Claim, Clock as _, Escalation, EventBody, FailureClass, HoldId, NewEvent,
    Principal, Rng as _, SeededRng, Store, StoreError, SystemClock, TaskState, Usage, Usd,
    check::Verdict,
    event::{BudgetReserved, BudgetSettled},
    store::Append,
};
use formwork_scheduler::{AttemptEnd, AttemptJob, CheckJob, Executor, Natives, Scheduler, Signals};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::world::{World, on_both, plan, setup, verdict};

on_both! {
    behaviour_13_children_that_fail_retry_and_crash_pass_no_budget_and_all_end,
    behaviour_4_an_outage_is_waited_out_without_using_an_attempt,
}

/// How many children there are, and how often the process dies among them.
const CHILDREN: u32 = 16;
const CRASHES: usize = 3;

/// The budget of all, and the most that one call may cost: a fraction of what all would like to spend.
const CAP: i64 = 2_000;
const MOST: u64 = 100;

/// A world in which everything goes by chance.
struct ByChance {
    store: Arc<dyn Store>,
    rng: SeededRng,
    dies: UnboundedSender<()>,
}

impl ByChance {
    fn below(&self, end: u64) -> u64 {
        self.rng.next_u64() % end
    }

    async fn record(&self, job: &AttemptJob, body: EventBody) {
        let event = NewEvent {
            task: Some(job.task),
            principal: Principal::system("test"),
            at: SystemClock.now(),
            body,
            idempotency_key: None,
        };
        let batch =
            Append { run: job.run, token: job.token, events: vec![event], blobs: Vec::new() };
        // Whoever has lost the run to another process may not write any more.
        let _ = self.store.append(batch).await;
    }

    /// Makes a model call: reserved, recorded, settled, recorded.
    async fn pays(&self, job: &AttemptJob) -> Result<(), Escalation> {
        let hold = HoldId::generate(&SystemClock, &self.rng);
        let call = CallId::generate(&SystemClock, &self.rng);
        let usd = Usd::from_nanos(i64::try_from(1 + self.below(MOST)).unwrap());
        let exhausted = |error: String| Escalation::BudgetExhausted { detail: error };
        job.ledger
            .reserve(job.task, hold, Ask { usd, tokens: 1 })
            .map_err(|over| exhausted(over.to_string()))?;
        self.record(job, EventBody::BudgetReserved(BudgetReserved { hold, call, usd, tokens: 1 }))
            .await;
        if self.below(12) == 0 {
            // The process dies with the call on its way, if it dies at all.
            let _ = self.dies.send(());
        }
        tokio::task::yield_now().await;
        let (usd, usage) = (usd.percent(u32::try_from(self.below(101)).unwrap()), Usage::default());
        job.ledger.settle(hold, &usage, usd);
        self.record(job, EventBody::BudgetSettled(BudgetSettled { hold, call, usd, usage })).await;
        Ok(())
    }
}

#[async_trait]
impl Executor for ByChance {
    async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> Result<AttemptEnd, StoreError> {
        let failed = |why| Ok(AttemptEnd::Failed { why, session: None, files_changed: 0 });
        for _ in 0..1 + self.below(8) {
            if cancel.is_cancelled() {
                return Ok(AttemptEnd::Interrupted { session: None });
            }
            if let Err(why) = self.pays(&job).await {
                return failed(why);
            }
        }
        let detail = "by chance".to_owned();
        match self.below(6) {
            0 => failed(Escalation::BodyFailed { detail }),
            1 => failed(Escalation::Stuck { pattern: None, detail }),
            _ => {
                Ok(AttemptEnd::Claimed { claim: Claim::default(), session: None, files_changed: 0 })
            }
        }
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok(verdict(&job, self.below(3) > 0))
    }
}

async fn behaviour_13_children_that_fail_retry_and_crash_pass_no_budget_and_all_end(world: World) {
    let mut text = format!("budget = {{ usd = \"{}\" }}\n", Usd::from_nanos(CAP));
    for number in 0..CHILDREN {
        text += &format!(
            "[[tasks]]\nname = \"t{number}\"\nnative = \"work\"\nretries = {{ max = 2 }}\n\
             budget = {{ usd = \"{}\" }}\npostchecks = [{{ command = [\"true\"] }}]\n",
            Usd::from_nanos(i64::from(number % 5) * 100)
        );
    }
    let natives = Natives::new().with("work", |_, _| async { Ok(Claim::default()) });
    let (dies, mut died) = unbounded_channel();
    let scheduler = |seed: u64| {
        let (store, dies) = (Arc::clone(&world.store), dies.clone());
        let executor = ByChance { store, rng: SeededRng::new(seed), dies };
        Scheduler::new(Arc::clone(&world.store), Arc::new(executor))
            .with_width(NonZeroUsize::new(CHILDREN as usize).unwrap())
            .with_gone(|_| true)
    };
    let first = scheduler(1);
    let new = first.create(&plan(&text, &natives), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    let mut report = tokio::select! {
        report = first.run(new, &signals) => Some(report.unwrap()),
        _ = died.recv() => None,
    };
    for crash in 0_u64.. {
        if report.is_some() {
            break;
        }
        let next = scheduler(10 + crash);
        let resumed = next.resume(run, &signals);
        if crash as usize >= CRASHES {
            report = Some(resumed.await.unwrap());
            break;
        }
        while died.try_recv().is_ok() {}
        report = tokio::select! {
            ended = resumed => Some(ended.unwrap()),
            _ = died.recv() => None,
        };
    }

    let report = report.unwrap();
    assert!(report.outcome.cost <= Usd::from_nanos(CAP), "{}", report.outcome);
    for row in world.store.tasks(run).await.unwrap() {
        assert!(row.state.is_terminal() && row.ending.is_some(), "{row:?}");
        assert_ne!(row.state, TaskState::PostcheckFailed);
    }
    for task in report.tasks() {
        let number = task.name.as_str().strip_prefix('t').and_then(|it| it.parse::<i64>().ok());
        let cap = number.map_or(CAP, |number| number % 5 * 100);
        assert!(task.cost <= Usd::from_nanos(cap), "{} of {cap}: {task:?}", task.cost);
    }
    let settled = world.events(run).await.into_iter().filter_map(|event| match event.body {
        EventBody::BudgetSettled(settled) => Some(settled.usd),
        _ => None,
    });
    assert_eq!(settled.sum::<Usd>(), report.outcome.cost, "the log tells the same");
}

/// A body that cannot reach its model so often.
struct Down(AtomicU32);

#[async_trait]
impl Executor for Down {
    async fn attempt(&self, job: AttemptJob, _: &Cancel) -> Result<AttemptEnd, StoreError> {
        assert!(job.evidence.is_empty(), "an outage is no evidence against the work");
        let is_down = |left: u32| left.checked_sub(1);
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_down) {
            Ok(_) => {
                let why = Escalation::Unreachable { detail: "nobody there".to_owned() };
                Ok(AttemptEnd::Failed { why, session: None, files_changed: 0 })
            }
            Err(_) => {
                Ok(AttemptEnd::Claimed { claim: Claim::default(), session: None, files_changed: 0 })
            }
        }
    }

    async fn check(&self, job: CheckJob, _: &Cancel) -> Result<Verdict, StoreError> {
        Ok(verdict(&job, true))
    }
}

async fn behaviour_4_an_outage_is_waited_out_without_using_an_attempt(world: World) {
    let natives = Natives::new().with("work", |_, _| async { Ok(Claim::default()) });
    let task = "[[tasks]]\nname = \"only\"\nnative = \"work\"\n";
    let patient = format!("{task}retries = {{ max = 0, outage = \"2s\" }}\n");
    let mut told = Vec::new();
    for text in [patient, format!("{task}retries = {{ max = 2 }}\n")] {
        let executor = Arc::new(Down(AtomicU32::new(2)));
        let scheduler = Scheduler::new(Arc::clone(&world.store), executor);
        let new = scheduler.create(&plan(&text, &natives), setup()).await.unwrap();
        let run = new.id();
        let report = scheduler.run(new, &Signals::default()).await.unwrap();
        let outage = world.events(run).await.into_iter().filter(|event| {
            let EventBody::AttemptEnded(ended) = &event.body else { return false };
            ended.class == Some(FailureClass::Passing)
        });
        let task = report.tasks().find(|task| task.name.as_str() == "only").unwrap();
        told.push((task.attempts, outage.count(), task.ending.to_string()));
    }

    let given_up = "model call failed: nobody there".to_owned();
    assert_eq!(told, [(3, 2, "completed".to_owned()), (1, 1, given_up)]);
}
