//! What is to end meanwhile: a grace that goes on after a pause.

use formwork_protocols::{
    Ask, Body, Budget, Cancel, Claim, EventBody, HoldId, OutcomeCode, Span, Store,
    SystemClock, SystemRng, TaskName, TaskSpec, WorkflowName,
    budget::OnExhausted,
};
use formwork_scheduler::{
    AttemptJob, Natives, Signals, workflow::Plan,
};
use serde_json::Map;

use crate::{
    waits::seen,
    world::{World, ending, on_both, pass, setup},
};

on_both! {
    a_grace_goes_on_where_a_pause_has_left_it,
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

