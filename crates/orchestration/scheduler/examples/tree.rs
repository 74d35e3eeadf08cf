//! A small tree of tasks, in process: two functions side by side, and one after both.

use std::{collections::BTreeSet, sync::Arc};

use formwork_protocols::{Claim, PermissionMode, Principal, check::Verdict};
use formwork_scheduler::{
    AttemptJob, CheckJob, NativeExecutor, Natives, Scheduler, Setup, Signals,
    workflow::{Known, Plan},
};
use formwork_trace::{Options, Trace};
use serde_json::{Map, json};

const WORKFLOW: &str = r#"
format_version = 1
name = "sum"

[[tasks]]
name = "left"
native = "twenty"

[[tasks]]
name = "right"
native = "twenty"

[[tasks]]
name = "sum"
native = "sum"
depends_on = ["left", "right"]
  [[tasks.postchecks]]
  name = "is-forty"
  command = ["decided", "below"]
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let natives = Natives::new()
        .with("twenty", |_, _| async {
            Ok(Claim { summary: "twenty".to_owned(), output: Some(json!(20)) })
        })
        .with("sum", |job: AttemptJob, _| async move {
            let sum: i64 =
                job.results.values().filter_map(|result| result["output"].as_i64()).sum();
            Ok(Claim { summary: format!("the sum is {sum}"), output: Some(json!(sum)) })
        });
    let functions: BTreeSet<String> = natives.names().map(str::to_owned).collect();
    let known = Known { natives: functions, ..Known::default() };
    let plan = Plan::parse("sum.toml", WORKFLOW, &known, &Map::new())?;

    let store = Arc::new(Trace::open("sqlite::memory:", Options::default()).await?);
    let executor = NativeExecutor::new(natives, |job: &CheckJob| {
        Verdict::bare(job.check.name.clone(), true, "forty it is".to_owned())
    });
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
        let said = task.claim.map(|claim| claim.summary).unwrap_or_default();
        tell(&format!("{}: {} {said}", task.name, task.ending));
    }
    tell(&report.outcome.to_string());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it did")]
fn tell(line: &str) {
    println!("{line}");
}
