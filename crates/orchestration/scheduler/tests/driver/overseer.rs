//! Tasks that would be given up, and who governs the run.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, EventBody, OutcomeCode, Principal, RunId, Span,
    overseer::{Action, Choice, Decided, Escalated, Overseer},
};
use formwork_scheduler::{AttemptJob, Natives, Scheduler, Signals};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{World, ending, fail, on_both, plan, setup, verdict};

on_both! {
    behaviour_5_whoever_governs_the_run_is_asked_before_a_task_is_given_up,
    a_task_that_is_tried_again_is_told_why_and_may_pass,
    what_is_not_answered_in_time_or_not_to_be_done_goes_on_to_the_inbox,
    behaviour_34_what_is_above_the_grant_of_whoever_governs_is_not_done_and_is_asked_in_the_inbox,
    one_that_always_says_yes_comes_to_an_end,
    nobody_is_asked_where_who_made_the_task_hears_of_it,
    a_question_that_a_process_died_over_is_put_again_and_an_answer_is_not,
}

const TWO: &str = r#"
[[tasks]]
name = "work"
native = "done"
retries = { max = 0, inject_failure = true }
  [[tasks.postchecks]]
  name = "good"
  command = ["x"]
[[tasks]]
name = "after"
native = "done"
depends_on = ["work"]
"#;

/// Says what it is made to say, and keeps what it was asked.
struct Says<F> {
    asked: Mutex<Vec<Escalated>>,
    heard: Notify,
    answer: F,
}

impl<F: Fn(usize) -> Option<Action> + Send + Sync + 'static> Says<F> {
    fn new(answer: F) -> Arc<Self> {
        Arc::new(Self { asked: Mutex::default(), heard: Notify::new(), answer })
    }
}

#[async_trait]
impl<F: Fn(usize) -> Option<Action> + Send + Sync + 'static> Overseer for Says<F> {
    async fn decide(&self, escalated: &Escalated, cancel: &Cancel) -> Decided {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(escalated.clone());
            asked.len()
        };
        self.heard.notify_one();
        match (self.answer)(number) {
            Some(action) => Decided { action, by: "agent:chief".parse::<Principal>().unwrap() },
            None => {
                cancel.cancelled().await;
                std::future::pending().await
            }
        }
    }
}

fn accept() -> Action {
    Action::Accept { reason: "good enough".to_owned() }
}

fn natives() -> Natives {
    Natives::new().with("done", crate::world::done)
}

fn governed(scheduler: Scheduler, overseer: Arc<dyn Overseer>) -> Scheduler {
    scheduler.with_overseer(overseer, Span::from_millis(50))
}

/// Tells what was asked of whoever governs a run, and what they said and by whom.
async fn told(world: &World, run: RunId) -> Vec<(String, Value)> {
    let events = world.events(run).await;
    let own = events.iter().filter(|event| event.body.kind().starts_with("overseer."));
    own.map(|event| {
        let said = match &event.body {
            EventBody::OverseerAsked(asked) => json!(asked.options),
            EventBody::OverseerAnswered(answered) => json!(answered.action),
            other => panic!("{other:?}"),
        };
        (event.principal.to_string(), said)
    })
    .collect()
}

async fn behaviour_5_whoever_governs_the_run_is_asked_before_a_task_is_given_up(world: World) {
    let overseer = Says::new(|_| Some(accept()));
    let scheduler = governed(world.scheduler(natives(), fail), Arc::clone(&overseer) as _);
    let new = scheduler.create(&plan(TWO, &natives()), setup()).await.unwrap();
    let run = new.id();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    assert_eq!([ending(&report, "work"), ending(&report, "after")], ["completed", "completed"]);
    let options = json!(["retry", "accept", "fail", "pass"]);
    let answer = json!({ "action": "accept", "reason": "good enough" });
    let chief = "agent:chief".to_owned();
    assert_eq!(
        told(&world, run).await,
        [("system:scheduler".to_owned(), options), (chief, answer)]
    );
    let asked = std::mem::take(&mut *overseer.asked.lock().unwrap());
    let [escalated] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(
        escalated.path.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["flow", "work"]
    );
    assert_eq!(escalated.why.to_string(), "check \"good\" failed in the only attempt");
    assert_eq!(escalated.claim.as_ref().unwrap().summary, "done");
    assert_eq!(escalated.verdicts.len(), 1);
    assert!(escalated.options.contains(&Choice::Accept) && escalated.attempts == 1);
    let kinds = world.kinds(run).await;
    assert!(!kinds.iter().any(|kind| kind.starts_with("inbox.")), "{kinds:?}");
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
}

async fn a_task_that_is_tried_again_is_told_why_and_may_pass(world: World) {
    let overseer = Says::new(|number| match number {
        1 => Some(Action::Retry { advice: "read the title".to_owned() }),
        _ => Some(Action::Fail { reason: "enough".to_owned() }),
    });
    let heard: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let hears = Arc::clone(&heard);
    let natives = Natives::new().with("done", move |job: AttemptJob, _| {
        let evidence = job.evidence.iter().map(|verdict| verdict.reason.clone()).collect();
        hears.lock().unwrap().push(evidence);
        async { Ok(formwork_protocols::Claim::default()) }
    });
    let tries = AtomicU32::new(0);
    let passes_then = move |job: &formwork_scheduler::CheckJob| {
        let number = tries.fetch_add(1, Ordering::SeqCst);
        verdict(job, number == 1)
    };
    let scheduler = governed(world.scheduler(natives.clone(), passes_then), overseer as _);
    let new = scheduler.create(&plan(TWO, &natives), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    let heard = std::mem::take(&mut *heard.lock().unwrap());
    let none: Vec<String> = Vec::new();
    assert_eq!(
        heard[..2],
        [none, vec!["as the test says".to_owned(), "read the title".to_owned()]]
    );

    let overseer = Says::new(|_| Some(Action::Fail { reason: "enough".to_owned() }));
    let scheduler = governed(world.scheduler(natives.clone(), fail), overseer as _);
    let new = scheduler.create(&plan(TWO, &natives), setup()).await.unwrap();
    let run = new.id();
    let report = scheduler.run(new, &Signals::default()).await.unwrap();
    assert!(ending(&report, "after").contains("work did not complete"), "{}", report.outcome);
    // It was decided, so nobody else is asked.
    let kinds = world.kinds(run).await;
    assert!(!kinds.iter().any(|kind| kind.starts_with("inbox.")), "{kinds:?}");
}

async fn what_is_not_answered_in_time_or_not_to_be_done_goes_on_to_the_inbox(world: World) {
    // Its body fails, so there is nothing that could be accepted.
    let text = "[[tasks]]\nname = \"work\"\nnative = \"fails\"\nretries = { max = 0 }\n";
    let natives = Natives::new().with("fails", |_, _| async { Err("no".to_owned()) });
    let panics = Says::new(|_| panic!("by the test"));
    let silent = Says::new(|_| None);
    let accepts = Says::new(|_| Some(accept()));
    let all: [(Arc<dyn Overseer>, &str); 3] = [
        (panics, "the overseer panicked"),
        (silent, "the overseer has not answered within 50ms"),
        (accepts, "agent:chief accepts it as it is: good enough, which is none of the options"),
    ];
    for (overseer, why) in all {
        let scheduler = governed(world.scheduler(natives.clone(), fail), overseer);
        let new = scheduler.create(&plan(text, &natives), setup()).await.unwrap();
        let run = new.id();

        let report = scheduler.run(new, &Signals::default()).await.unwrap();

        assert_eq!(report.outcome.code, OutcomeCode::Failed, "{}", report.outcome);
        assert_eq!(ending(&report, "work"), "no");
        let passed = json!({ "action": "pass", "reason": why });
        let told = told(&world, run).await;
        assert_eq!(told[0].1, json!(["retry", "fail", "pass"]));
        assert_eq!(told[1], ("system:scheduler".to_owned(), passed));
        let events = world.events(run).await;
        let asked = events.iter().find_map(|event| match &event.body {
            EventBody::InboxAsked(asked) => Some((asked.escalation, asked.assume.clone())),
            _ => None,
        });
        assert_eq!(asked, Some((true, Some("leave it".to_owned()))));
    }
}

async fn behaviour_34_what_is_above_the_grant_of_whoever_governs_is_not_done_and_is_asked_in_the_inbox(
    world: World,
) {
    let said = [accept(), Action::Fail { reason: "enough".to_owned() }];
    let reasons = ["accepts it as it is: good enough", "gives it up: enough"];
    for (action, reason) in said.into_iter().zip(reasons) {
        let overseer = Says::new(move |_| Some(action.clone()));
        let scheduler = governed(world.scheduler(natives(), fail), overseer);
        let scheduler = scheduler.with_grant([Choice::Retry]);
        let new = scheduler.create(&plan(TWO, &natives()), setup()).await.unwrap();
        let run = new.id();

        let report = scheduler.run(new, &Signals::default()).await.unwrap();

        assert_eq!(report.outcome.code, OutcomeCode::Refused, "{}", report.outcome);
        let told = told(&world, run).await;
        assert_eq!(told[0].1, json!(["retry", "pass"]));
        let why = format!("agent:chief {reason}, which is none of the options");
        let passed = json!({ "action": "pass", "reason": why });
        assert_eq!(told[1], ("system:scheduler".to_owned(), passed));
        let kinds = world.kinds(run).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "inbox.asked").count(), 1, "{kinds:?}");
    }
    // What it may, it does.
    let overseer = Says::new(|_| Some(Action::Retry { advice: String::new() }));
    let scheduler = governed(world.scheduler(natives(), fail), overseer);
    let scheduler = scheduler.with_grant([Choice::Retry]);
    let new = scheduler.create(&plan(TWO, &natives()), setup()).await.unwrap();
    let run = new.id();
    scheduler.run(new, &Signals::default()).await.unwrap();
    assert_eq!(told(&world, run).await[1].1, json!({ "action": "retry" }));
}

async fn one_that_always_says_yes_comes_to_an_end(world: World) {
    let overseer = Says::new(|_| Some(Action::Retry { advice: String::new() }));
    let scheduler = governed(world.scheduler(natives(), fail), Arc::clone(&overseer) as _);
    let new = scheduler.create(&plan(TWO, &natives()), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Refused, "{}", report.outcome);
    let work = report.tasks().find(|task| task.name.as_str() == "work").unwrap();
    assert_eq!(work.attempts, 9);
    assert_eq!(overseer.asked.lock().unwrap().len(), 9);
}

async fn nobody_is_asked_where_who_made_the_task_hears_of_it(world: World) {
    let overseer = Says::new(|_| Some(accept()));
    let made = json!({
        "name": "part", "body": { "native": { "function": "fails" } }, "retries": { "max": 0 },
    });
    let natives = Natives::new().with("fails", |_, _| async { Err("no".to_owned()) }).with(
        "makes",
        move |job: AttemptJob, _| {
            let spec = serde_json::from_value(made.clone()).unwrap();
            async move {
                job.control.make(job.task, spec).await?;
                let outcomes = job.control.results(job.task, Vec::new()).await?;
                let summary = outcomes[0].ending.to_string();
                Ok(formwork_protocols::Claim { summary, output: None })
            }
        },
    );
    let text = "[[tasks]]\nname = \"work\"\nnative = \"makes\"\n";
    let scheduler = governed(world.scheduler(natives.clone(), fail), Arc::clone(&overseer) as _);
    let new = scheduler.create(&plan(text, &natives), setup()).await.unwrap();

    let report = scheduler.run(new, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    let work = report.tasks().find(|task| task.name.as_str() == "work").unwrap();
    assert_eq!(work.claim.unwrap().summary, "no");
    assert!(overseer.asked.lock().unwrap().is_empty());
}

async fn a_question_that_a_process_died_over_is_put_again_and_an_answer_is_not(world: World) {
    let silent = Says::new(|_| None);
    let process = |overseer: &Arc<dyn Overseer>| {
        let scheduler = world.scheduler(natives(), fail).with_gone(|_| true);
        scheduler.with_overseer(Arc::clone(overseer), Span::from_secs(3_600))
    };
    let scheduler = process(&(Arc::clone(&silent) as _));
    let new = scheduler.create(&plan(TWO, &natives()), setup()).await.unwrap();
    let run = new.id();
    let signals = Signals::default();
    {
        let dying = scheduler.run(new, &signals);
        tokio::pin!(dying);
        // Dropped as by a kill, once the question is there.
        tokio::select! {
            _ = &mut dying => panic!("it ended"),
            () = silent.heard.notified() => {}
        }
    }

    let says =
        Says::new(|number| (number == 1).then(|| Action::Retry { advice: "once more".to_owned() }));
    let (later, signals) = (process(&(Arc::clone(&says) as _)), Signals::default());
    {
        let mut happening = world.store.watch();
        let dying = later.resume(run, &signals);
        tokio::pin!(dying);
        // Once the answer is in the log.
        loop {
            tokio::select! {
                _ = &mut dying => panic!("it ended"),
                _ = futures::StreamExt::next(&mut happening) => {}
            }
            if world.kinds(run).await.iter().any(|kind| kind == "overseer.answered") {
                break;
            }
        }
    }
    // Whoever comes next asks for the task only once the try that was granted has failed as well.
    let last = Says::new(|_| Some(accept()));
    let report = process(&(Arc::clone(&last) as _)).resume(run, &Signals::default()).await.unwrap();

    assert_eq!(report.outcome.code, OutcomeCode::Completed, "{}", report.outcome);
    let work = report.tasks().find(|task| task.name.as_str() == "work").unwrap();
    assert_eq!(work.attempts, 2);
    let told = told(&world, run).await;
    let (asked, answered): (Vec<_>, Vec<_>) =
        told.iter().partition(|(_, said)| said.as_array().is_some());
    // The question of the first process was put again, and recorded once.
    assert_eq!((asked.len(), answered.len()), (2, 2), "{told:?}");
    let all = [&silent.asked, &says.asked].map(|asked| asked.lock().unwrap()[0].deadline);
    assert_eq!(all[0], all[1]);
    assert_eq!(world.store.audit(run).await.unwrap().faults, []);
}
