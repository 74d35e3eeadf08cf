//! The log as it is looked at: many runs listed, a long run opened, paged and checked.

use std::{fs, path::Path, time::Instant};

use anyhow::{Result, ensure};
use clap::Args;
use formwork_protocols::{
    Append, Budget, Clock as _, EventBody, EventStore as _, NewEvent, OutcomeCode, PermissionMode,
    Position, Principal, RunId, RunOutcome, Span, SystemClock, SystemRng, TaskId, Usage, Usd,
    Views as _, WorkflowName,
    event::{FileChange, RunCreated, RunFinished, RunStarted},
    store::Selection,
};
use formwork_trace::{Options as StoreOptions, Trace};
use serde_json::json;
use sqlx::{Connection as _, Row as _, SqliteConnection};

use crate::{
    child::{Measured, Used},
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    place,
};

/// What `log` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program; the one beside this one where absent.
    #[arg(long, env = "FORMWORK_BENCH_PROGRAM", value_name = "FILE")]
    formwork: Option<std::path::PathBuf>,
    /// How many runs are listed.
    #[arg(long, default_value_t = 10_000)]
    runs: usize,
    /// How many events the long run has.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
}

/// How many events the short run has, which the long one is compared with.
const SHORT: u64 = 1_000;

/// How many events a reader asks for at once.
const PAGE: usize = 1_000;

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let program = place::formwork(options.formwork.as_deref())?;
    let home = place::scratch()?;
    let file = place::kept()?.join(format!("{}-runs-{}-events.db", options.runs, options.events));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if !file.exists() {
        report.note(format!("a log of {} runs is made once: {}", options.runs, file.display()));
        let partial = file.with_extension("partial");
        runtime.block_on(fill(&partial, options))?;
        fs::rename(&partial, &file)?;
    }
    let (long, short) = runtime.block_on(newest(&file))?;
    let noise = Noise::begin();
    let repetitions = if is_quick { 3 } else { 9 };
    let within = runtime.block_on(within(&file, options, long, repetitions))?;
    tell(options, within, report);
    for (verb, arguments) in [
        ("audit verify RUN", ["audit", "verify"].as_slice()),
        ("events RUN --limit 1000", &["events", "--limit", "1000"]),
        ("runs show RUN", &["runs", "show"]),
    ] {
        let (mut brief, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..repetitions {
            for (run, samples) in [(short, &mut brief), (long, &mut whole)] {
                samples.push(asked(&program, home.path(), &file, arguments, run)?);
            }
        }
        let peak = |samples: &[Used]| samples.iter().map(|used| used.peak_bytes / 1e6).collect();
        let wall = whole.iter().map(|used| used.wall.as_secs_f64() * 1e3).collect();
        report.add(Figure::new(format!("log {verb}/wall"), "ms", wall));
        report.add(
            Figure::new(format!("log {verb}/peak memory"), "MB", peak(&whole))
                .against("a run of 1,000 events", peak(&brief))
                .aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.15))),
        );
    }
    report.noise("log", &noise);
    Ok(())
}

fn asked(program: &Path, home: &Path, file: &Path, arguments: &[&str], run: RunId) -> Result<Used> {
    let mut measured = Measured::new(program, home)?;
    measured.command.args(arguments).arg(run.to_string());
    measured.command.args(["--database-url", &format!("sqlite://{}", file.display())]);
    let used = measured.run()?;
    ensure!(used.status.success(), "{arguments:?} failed: {}", used.status);
    Ok(used)
}

/// What was measured in this process, with the floors: milliseconds each.
#[derive(Default)]
struct Within {
    list: [Vec<f64>; 2],
    page: [Vec<f64>; 2],
    verify: Vec<f64>,
}

async fn within(file: &Path, options: &Options, long: RunId, repetitions: usize) -> Result<Within> {
    let url = format!("sqlite://{}", file.display());
    let trace = Trace::open(&url, StoreOptions::default()).await?;
    let mut bare = SqliteConnection::connect(&url).await?;
    let mut within = Within::default();
    let selection = Selection { run: Some(long), ..Selection::default() };
    // Once without counting, so that all of it is in the cache.
    for repetition in 0..=repetitions {
        let began = Instant::now();
        let listed = trace.runs(None, options.runs).await?;
        let list = began.elapsed();
        ensure!(listed.len() == options.runs, "{} runs were listed", listed.len());

        let began = Instant::now();
        let rows = sqlx::query("SELECT * FROM runs ORDER BY run DESC LIMIT $1")
            .bind(i64::try_from(options.runs)?)
            .fetch_all(&mut bare)
            .await?;
        let bare_list = began.elapsed();
        ensure!(rows.len() == options.runs);
        drop((listed, rows));

        let began = Instant::now();
        let (mut after, mut count) = (Position(0), 0);
        loop {
            let page = trace.read(after, &selection, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.position;
            count += page.len() as u64;
        }
        let page = began.elapsed();
        ensure!(count == options.events);

        let began = Instant::now();
        let (mut after, mut count) = (0_i64, 0);
        loop {
            let sql = "SELECT * FROM events WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3";
            let rows = sqlx::query(sql)
                .bind(long.as_uuid())
                .bind(after)
                .bind(i64::try_from(PAGE)?)
                .fetch_all(&mut bare)
                .await?;
            let Some(last) = rows.last() else { break };
            after = last.try_get("seq")?;
            count += rows.len() as u64;
        }
        let bare_page = began.elapsed();
        ensure!(count == options.events);

        let began = Instant::now();
        let audit = trace.audit(long).await?;
        let verify = began.elapsed();
        ensure!(audit.faults.is_empty() && audit.events == options.events);

        if repetition > 0 {
            let millis = |elapsed: std::time::Duration| elapsed.as_secs_f64() * 1e3;
            within.list[0].push(millis(list));
            within.list[1].push(millis(bare_list));
            within.page[0].push(millis(page));
            within.page[1].push(millis(bare_page));
            within.verify.push(millis(verify));
        }
    }
    bare.close().await?;
    trace.close().await;
    Ok(within)
}

fn tell(options: &Options, within: Within, report: &mut Report) {
    let Options { runs, events, .. } = options;
    let [list, bare] = within.list;
    report.add(
        Figure::new(format!("log {runs} runs listed"), "ms", list)
            .against("bare sqlx, rows not read", bare)
            .aims(Target::figure(Limit::AtMost(50.0), None)),
    );
    let [page, bare] = within.page;
    report.add(
        Figure::new(format!("log {events} events of a run, by pages"), "ms", page)
            .against("bare sqlx, rows not read", bare.clone()),
    );
    report.add(
        Figure::new(format!("log {events} events of a run, checked"), "ms", within.verify)
            .against("bare sqlx, rows not read", bare),
    );
}

/// Returns the run that was added last, and the one before it.
async fn newest(file: &Path) -> Result<(RunId, RunId)> {
    let url = format!("sqlite://{}", file.display());
    let trace = Trace::open(&url, StoreOptions::default()).await?;
    let newest = trace.runs(None, 2).await?;
    trace.close().await;
    match newest.as_slice() {
        [last, before] => Ok((last.run, before.run)),
        _ => anyhow::bail!("{} has no two runs", file.display()),
    }
}

/// Makes many short runs, then one of a thousand events and a long one.
async fn fill(file: &Path, options: &Options) -> Result<()> {
    let _old = fs::remove_file(file);
    let url = format!("sqlite://{}", file.display());
    let trace = Trace::open(&url, StoreOptions::default()).await?;
    let rest = options.runs.saturating_sub(2);
    for first in (0..rest).step_by(200) {
        let batch = (first..rest.min(first + 200)).map(|_| add(&trace, 8));
        futures::future::try_join_all(batch).await?;
    }
    add(&trace, SHORT).await?;
    add(&trace, options.events).await?;
    trace.close().await;
    Ok(())
}

/// Appends a run of so many events.
async fn add(trace: &Trace, events: u64) -> Result<RunId> {
    let run = RunId::generate(&SystemClock, &SystemRng);
    let root = TaskId::generate(&SystemClock, &SystemRng);
    let created = RunCreated {
        name: WorkflowName::parse("bench")?,
        workspace: "/srv/project".to_owned(),
        mode: PermissionMode::Edit,
        budget: Budget::default(),
        root,
        setup: json!({}),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let outcome = RunOutcome {
        run,
        code: OutcomeCode::Completed,
        reason: "1 task done, nothing checked".to_owned(),
        rounds: 1,
        usage: Usage::default(),
        cost: Usd::ZERO,
        files_changed: 1,
        more_files: false,
        elapsed: Span::from_secs(1),
        scripted: false,
    };
    let changed = FileChange {
        path: "src/lib.rs".to_owned(),
        before: None,
        after: Some(formwork_protocols::BlobHash::of(run.as_bytes())),
        before_mode: None,
        after_mode: None,
        added: 1,
        removed: 0,
        call: None,
        apart: false,
    };
    let bodies = (1..=events).map(|n| match n {
        1 => EventBody::RunCreated(created.clone().into()),
        2 => EventBody::RunStarted(RunStarted { owner: "bench".to_owned() }),
        3 => EventBody::FileChanged(changed.clone()),
        n if n == events => EventBody::RunFinished(RunFinished { outcome: outcome.clone() }),
        n => {
            let data = json!({ "n": n, "text": "as long as most events are: ".repeat(11) });
            EventBody::Unknown { kind: "bench.note".to_owned(), data }
        }
    });
    let mut bodies = bodies.peekable();
    while bodies.peek().is_some() {
        let events = bodies.by_ref().take(1_000).map(|body| NewEvent {
            task: matches!(body, EventBody::Unknown { .. }).then_some(root),
            principal: Principal::system("bench"),
            at: SystemClock.now(),
            body,
            idempotency_key: None,
        });
        let events = events.collect();
        trace.append(Append { run, token: None, events, blobs: Vec::new() }).await?;
    }
    Ok(run)
}
