//! A subscription in process: what happens in a log is told to a function, in order, and only once.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use formwork_dispatch::{Did, Dispatcher, Failure, Host, Job, Origin, Subscription, Until};
use formwork_protocols::{
    Append, Cancel, Clock as _, EventBody, EventStore as _, NewEvent, Principal, RunId, StoreError,
    SystemClock, SystemRng, WorkflowName,
};
use formwork_trace::{Options, Trace};
use serde_json::json;

const SUBSCRIPTION: &str = r#"
format_version = 1
name = "greet"
begin = "beginning"

[filter]
kinds = ["external.fired"]
principals = ["user:*"]
when = "data.name == 'arrived'"

[accumulate]
count = 2

[[actions]]
command = ["greet"]
"#;

/// Tells of what it is to do, in place of a program.
struct Greeter;

#[async_trait]
impl Host for Greeter {
    async fn origin(&self, _: RunId) -> Result<Option<Origin>, StoreError> {
        let workflow = WorkflowName::parse("party").expect("the name follows the rule");
        Ok(Some(Origin { workflow, caused_by: Vec::new() }))
    }

    async fn act(&self, job: &Job, _: &Cancel) -> Result<Did, Failure> {
        let who = |event: &formwork_protocols::Event| event.principal.to_string();
        let who: Vec<String> = job.events.iter().map(|(event, _)| who(event)).collect();
        tell(&format!("hello {}", who.join(" and ")));
        Ok(Did::default())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(Trace::open("sqlite::memory:", Options::default()).await?);
    let run = RunId::generate(&SystemClock, &SystemRng);
    for who in ["user:ada", "user:bob", "agent:coder", "user:eve"] {
        let event = NewEvent {
            task: None,
            principal: Principal::parse(who)?,
            at: SystemClock.now(),
            body: EventBody::from_parts("external.fired", json!({ "name": "arrived" }))?,
            idempotency_key: None,
        };
        store.append(Append { run, token: None, events: vec![event], blobs: vec![] }).await?;
    }
    let subscription = Subscription::parse("greet.toml", SUBSCRIPTION, &BTreeSet::new())?;
    let by = ("/party", Principal::system("example"));

    for _ in 0..2 {
        let subscriptions = [Arc::new(subscription.clone())];
        let dispatcher =
            Dispatcher::new(Arc::clone(&store) as _, Arc::new(Greeter), by.clone(), subscriptions);
        let lanes = dispatcher.run(Until::Idle, &Cancel::new()).await?;
        tell(&format!("{} done, {} waits for another", lanes[0].delivered, lanes[0].gathered));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn tell(line: &str) {
    println!("{line}");
}
