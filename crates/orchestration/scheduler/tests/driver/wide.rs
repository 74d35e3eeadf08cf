//! Runs of which much happens at once.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc};

use formwork_protocols::{
    Cancel, Claim, OutcomeCode, Position, Span, StoreError, TaskId, store::Selection,
};
use formwork_scheduler::{AttemptJob, Error, Natives, Signals};

use crate::world::{World, done, on_both, pass, plan, setup};

on_both! {
    what_is_begun_is_in_the_log_however_much_is_decided_at_once,
    nothing_is_recorded_behind_what_the_log_has_refused,
}

/// How many tasks have nothing before them; behind each is another one.
const PAIRS: usize = 150;

/// All of them are at work at once.
const WIDTH: NonZeroUsize = NonZeroUsize::new(PAIRS).unwrap();

/// What is told of a task that does its work, in order.
const LIFE: [&str; 7] = [
    "task.created",
    "task.prechecking",
    "task.active",
    "attempt.started",
    "attempt.ended",
    "task.postchecking",
    "task.completed",
];

fn pairs(first: impl Fn(usize) -> &'static str, second: &str) -> String {
    (0..PAIRS)
        .map(|n| {
            let first = first(n);
            format!(
                "[[tasks]]\nname = \"a{n}\"\nnative = \"{first}\"\n\
                 [[tasks]]\nname = \"b{n}\"\nnative = \"{second}\"\ndepends_on = [\"a{n}\"]\n"
            )
        })
        .collect()
}

async fn what_is_begun_is_in_the_log_however_much_is_decided_at_once(world: World) {
    let store = Arc::clone(&world.store);
    let natives = Natives::new().with("look", move |job: AttemptJob, _: Cancel| {
        let store = Arc::clone(&store);
        async move {
            let kinds = vec!["attempt.started".to_owned()];
            let selection = Selection { run: Some(job.run), task: Some(job.task), kinds };
            let begun =
                store.read(Position(0), &selection, 2).await.map_err(|it| it.to_string())?;
            match begun.as_slice() {
                [_] => Ok(Claim::default()),
                _ => Err(format!("the log has {} attempts at {}", begun.len(), job.path)),
            }
        }
    });
    let scheduler = world.scheduler(natives.clone(), pass).with_width(WIDTH);
    let new = scheduler.create(&plan(&pairs(|_| "look", "look"), &natives), setup()).await.unwrap();
    let run = new.id();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome.reason);
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
    let kinds = world.kinds(run).await;
    let count = |wanted: &str| kinds.iter().filter(|kind| *kind == wanted).count();
    assert_eq!((count("attempt.ended"), count("task.completed")), (2 * PAIRS, 2 * PAIRS + 1));
    assert_eq!(kinds.last().unwrap(), "run.finished");
}

async fn nothing_is_recorded_behind_what_the_log_has_refused(world: World) {
    let store = Arc::clone(&world.store);
    let natives = Natives::new().with("done", done).with("take", move |job: AttemptJob, _| {
        let store = Arc::clone(&store);
        async move {
            let lease = store.take_over(job.run, "first", "second", Span::from_secs(60)).await;
            lease.map(|_| Claim::default()).map_err(|error| error.to_string())
        }
    });
    let scheduler = world.scheduler(natives.clone(), pass).with_width(WIDTH).with_owner("first");
    let first = |n| if n == PAIRS / 2 { "take" } else { "done" };
    let new = scheduler.create(&plan(&pairs(first, "done"), &natives), setup()).await.unwrap();
    let run = new.id();

    let refused = scheduler.run(new, &Signals::default()).await;

    let Err(Error::Store { source: StoreError::NotOwner { owner, .. }, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(owner, "second");
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
    let mut told: HashMap<TaskId, Vec<String>> = HashMap::new();
    for event in world.events(run).await {
        if let Some(task) = event.task {
            told.entry(task).or_default().push(event.body.kind().to_owned());
        }
    }
    for kinds in told.values() {
        assert!(LIFE.iter().zip(kinds).all(|(wanted, kind)| wanted == kind), "{kinds:?}");
    }
}
