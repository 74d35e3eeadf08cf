//! The scheduler alone: functions as bodies, a check that refuses a claim, a budget that refuses work.
//!
//! No model takes part. The log is SQLite in memory; the same code runs on a file or on PostgreSQL.
#![expect(clippy::print_stdout, reason = "an example shows how it ended")]

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use formwork_protocols::{
    Ask, Claim, HoldId, PermissionMode, Principal, SystemClock, SystemRng, check::Verdict,
};
use formwork_scheduler::{
    AttemptJob, CheckJob, NativeExecutor, Natives, Scheduler, Setup, Signals,
    workflow::{Known, Plan},
};
use formwork_trace::{Options, Trace};
use serde_json::Map;

const WORKFLOW: &str = r#"
format_version = 1
name = "page"

[budget]
usd = "0.03"

[[tasks]]
name = "draft"
native = "draft"
retries = { max = 2, inject_failure = true }
  [[tasks.postchecks]]
  name = "the page has a title"
  command = ["decided", "below"]

[[tasks]]
name = "translate"
native = "translate"
depends_on = ["draft"]
retries = { max = 0 }
"#;

/// What the functions work on.
type Page = Arc<Mutex<String>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let page = Page::default();
    let (writer, reader) = (Arc::clone(&page), Arc::clone(&page));
    let natives = Natives::new()
        .with("draft", move |job, _| draft(job, Arc::clone(&writer)))
        .with("translate", |job, _| translate(job));
    let known = Known { natives: natives.names().map(str::to_owned).collect(), ..Known::default() };
    let plan = Plan::parse("page.toml", WORKFLOW, &known, &Map::new())?;

    let store = Arc::new(Trace::open("sqlite::memory:", Options::default()).await?);
    let executor = NativeExecutor::new(natives, move |job| title(job, &reader));
    let scheduler = Scheduler::new(store, Arc::new(executor));
    let setup = Setup {
        workspace: ".".to_owned(),
        mode: PermissionMode::Ask,
        principal: Principal::system("example"),
        setup: Map::new(),
    };
    let run = scheduler.create(&plan, setup).await?;
    let report = scheduler.run(run, &Signals::default()).await?;

    for task in report.tasks() {
        println!("{}: {} after {} attempts", task.name, task.ending, task.attempts);
    }
    println!("{}", report.outcome);
    Ok(())
}

/// Forgets the title until a check has asked for it.
async fn draft(job: AttemptJob, page: Page) -> Result<Claim, String> {
    let title = if job.evidence.is_empty() { "" } else { "# Fjords\n\n" };
    *page.lock().unwrap_or_else(PoisonError::into_inner) = format!("{title}Deep and narrow.\n");
    Ok(Claim { summary: format!("attempt {} is written", job.number), output: None })
}

/// Asks for more than the run may still spend, and is told so before anything is spent.
async fn translate(job: AttemptJob) -> Result<Claim, String> {
    let hold = HoldId::generate(&SystemClock, &SystemRng);
    let ask = Ask { usd: "0.05".parse().map_err(|error| format!("{error}"))?, tokens: 10_000 };
    job.ledger.reserve(job.task, hold, ask).map_err(|over| over.to_string())?;
    Ok(Claim::default())
}

/// Decides by what is there, not by what was claimed.
fn title(job: &CheckJob, page: &Page) -> Verdict {
    let page = page.lock().unwrap_or_else(PoisonError::into_inner);
    let passed = page.starts_with("# ");
    let found = page.lines().next().unwrap_or_default();
    Verdict::bare(job.check.name.clone(), passed, format!("the first line is {found:?}"))
}
