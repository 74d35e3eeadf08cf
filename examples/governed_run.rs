//! Who governs a run: a program that is asked before a task is given up, and has it tried again, or takes it as it is.
//!
//! The scheduler asks once a task has used its attempts up. What is decided is in the log, by whose word it is.
#![expect(clippy::print_stdout, reason = "an example shows how it ended")]

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Claim, EventBody, PermissionMode, Position, Principal, Span, Store,
    check::Verdict,
    overseer::{Action, Choice, Decided, Escalated, Overseer},
    store::Selection,
};
use formwork_scheduler::{
    AttemptJob, CheckJob, NativeExecutor, Natives, Scheduler, Setup, Signals,
    workflow::{Known, Plan},
};
use formwork_trace::{Options, Trace};
use serde_json::Map;

const WORKFLOW: &str = r#"
format_version = 1
name = "poem"

[[tasks]]
name = "verse"
native = "verse"
retries = { max = 0, inject_failure = true }
  [[tasks.postchecks]]
  name = "four lines that rhyme"
  command = ["decided", "below"]
"#;

/// Has a task tried once more with what its check found, and is content with what comes then.
struct Editor;

#[async_trait]
impl Overseer for Editor {
    async fn decide(&self, escalated: &Escalated, _: &Cancel) -> Decided {
        let found = escalated.verdicts.last().map_or("nothing", |verdict| verdict.reason.as_str());
        let action = if escalated.attempts == 1 {
            Action::Retry { advice: format!("{found}: write four") }
        } else if escalated.options.contains(&Choice::Accept) {
            Action::Accept { reason: "rhymes are out of fashion".to_owned() }
        } else {
            Action::Pass { reason: "an editor cannot tell".to_owned() }
        };
        Decided { action, by: Principal::system("editor") }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let natives = Natives::new().with("verse", |job, _| verse(job));
    let known = Known { natives: natives.names().map(str::to_owned).collect(), ..Known::default() };
    let plan = Plan::parse("poem.toml", WORKFLOW, &known, &Map::new())?;

    let store: Arc<dyn Store> = Arc::new(Trace::open("sqlite::memory:", Options::default()).await?);
    let executor = NativeExecutor::new(natives, rhymes);
    let scheduler = Scheduler::new(Arc::clone(&store), Arc::new(executor))
        .with_overseer(Arc::new(Editor), Span::from_secs(30));
    let setup = Setup {
        workspace: ".".to_owned(),
        mode: PermissionMode::Ask,
        principal: Principal::system("example"),
        setup: Map::new(),
    };
    let new = scheduler.create(&plan, setup).await?;
    let selection = Selection { run: Some(new.id()), ..Selection::default() };
    let report = scheduler.run(new, &Signals::default()).await?;

    for event in store.read(Position(0), &selection, 1_000).await? {
        if let EventBody::OverseerAnswered(answered) = event.body {
            println!("{} {}", event.principal, answered.action);
        }
    }
    for task in report.tasks() {
        println!("{}: {} after {} attempts", task.name, task.ending, task.attempts);
    }
    println!("{}", report.outcome);
    Ok(())
}

/// Writes as many lines as it is told to.
async fn verse(job: AttemptJob) -> Result<Claim, String> {
    let is_told = job.evidence.iter().any(|verdict| verdict.reason.contains("write four"));
    let lines = if is_told { 4 } else { 2 };
    Ok(Claim { summary: "Deep and narrow lies the fjord.\n".repeat(lines), output: None })
}

/// Counts lines, and finds no rhyme.
fn rhymes(job: &CheckJob) -> Verdict {
    let lines = job.claim.as_ref().map_or(0, |claim| claim.summary.lines().count());
    Verdict::bare(job.check.name.clone(), false, format!("{lines} lines, and none rhymes"))
}
