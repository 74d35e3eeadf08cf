//! What it costs to begin: short verbs, with an empty log and with a large one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use formwork_protocols::{
    Append, Budget, Clock as _, EventBody, EventStore as _, NewEvent, OutcomeCode, PermissionMode,
    Principal, RunId, RunOutcome, Span, SystemClock, SystemRng, TaskId, Usage, Usd, WorkflowName,
    event::{RunCreated, RunFinished, RunStarted},
};
use formwork_trace::{Options as StoreOptions, Trace};
use serde_json::json;

use crate::{
    child::{Measured, Used},
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    place,
};

/// What `start` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program; the one beside this one where absent.
    #[arg(long, env = "FORMWORK_BENCH_PROGRAM", value_name = "FILE")]
    formwork: Option<PathBuf>,
    /// How many events the large log has.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// Another agent's program, whose --version is measured beside ours.
    #[arg(long, env = "FORMWORK_BENCH_PEER", value_name = "FILE")]
    peer: Option<PathBuf>,
}

/// How many events each run of the large log has.
const OF_A_RUN: u64 = 500;

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let program = place::formwork(options.formwork.as_deref())?;
    let large = large_store(options.events, report)?;
    let home = place::scratch()?;
    let empty = home.path().join("empty.db");
    let noise = Noise::begin();
    let repetitions = if is_quick { 7 } else { 41 };
    let formwork = |arguments: &[&str]| {
        let mut measured = Measured::new(&program, home.path())?;
        measured.command.args(arguments);
        measured.run()
    };
    let list = |store: &Path| {
        let url = format!("sqlite://{}", store.display());
        formwork(&["runs", "list", "--database-url", &url])
    };
    let measures: [(&str, &dyn Fn() -> Result<Used>); 4] = [
        ("/bin/true", &|| Measured::new(Path::new("/bin/true"), home.path())?.run()),
        ("--version", &|| formwork(&["--version"])),
        ("runs list, empty log", &|| list(&empty)),
        ("runs list, large log", &|| list(&large)),
    ];
    let mut samples: [Vec<Used>; 4] = Default::default();
    // Once without counting: files come into the cache, and the empty log is made.
    for repetition in 0..=repetitions {
        for (samples, (name, measure)) in samples.iter_mut().zip(&measures) {
            let used = measure()?;
            ensure!(used.status.success(), "{name} failed: {}", used.status);
            if repetition > 0 {
                samples.push(used);
            }
        }
    }
    tell(&samples, &measures.map(|(name, _)| name), report);
    if let Some(peer) = &options.peer {
        against(peer, home.path(), repetitions, &|| formwork(&["--version"]), report)?;
    }
    let size = fs::metadata(&program)?.len() as f64 / 1e6;
    let target = Target::figure(Limit::AtMost(40.0), None);
    report.add(Figure::new("start size of the program", "MB", vec![size]).aims(target));
    report.noise("start", &noise);
    Ok(())
}

/// Measures how another program tells its version, and ours beside it.
fn against(
    peer: &Path,
    home: &Path,
    repetitions: usize,
    ours: &dyn Fn() -> Result<Used>,
    report: &mut Report,
) -> Result<()> {
    let theirs = || {
        let mut measured = Measured::new(peer, home)?;
        measured.command.arg("--version");
        measured.run()
    };
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for repetition in 0..=repetitions {
        for (samples, used) in [(&mut own, ours()?), (&mut other, theirs()?)] {
            ensure!(used.status.success(), "--version failed: {}", used.status);
            if repetition > 0 {
                samples.push(used.wall.as_secs_f64() * 1e3);
            }
        }
    }
    report.add(
        Figure::new("start --version against a peer/wall", "ms", own)
            .against("its own --version", other)
            .aims(Target::ratio(Limit::AtMost(0.5), Limit::AtMost(0.2))),
    );
    Ok(())
}

fn tell(samples: &[Vec<Used>; 4], names: &[&str; 4], report: &mut Report) {
    let of =
        |samples: &[Used], part: fn(&Used) -> f64| samples.iter().map(part).collect::<Vec<_>>();
    let wall = |used: &Used| used.wall.as_secs_f64() * 1e3;
    let cpu = |used: &Used| used.cpu.as_secs_f64() * 1e3;
    let peak = |used: &Used| used.peak_bytes / 1e6;
    let [floor, version, _, large] = samples;
    let targets = [
        None,
        Some(Target::ratio(Limit::AtMost(3.0), Limit::AtMost(1.5))),
        Some(Target::ratio(Limit::AtMost(6.0), Limit::AtMost(3.0))),
        Some(Target::ratio(Limit::AtMost(6.0), Limit::AtMost(3.0))),
    ];
    for ((samples, name), target) in samples.iter().zip(names).zip(targets) {
        let mut figure = Figure::new(format!("start {name}/wall"), "ms", of(samples, wall));
        if let Some(target) = target {
            figure = figure.against("/bin/true", of(floor, wall)).aims(target);
        }
        report.add(figure);
        report.add(Figure::new(format!("start {name}/cpu"), "ms", of(samples, cpu)));
        let mut memory = Figure::new(format!("start {name}/peak memory"), "MB", of(samples, peak));
        if std::ptr::eq(samples, version) {
            memory = memory.aims(Target::figure(Limit::AtMost(8.0), Some(Limit::AtMost(5.0))));
        }
        report.add(memory);
    }
    let [_, _, empty, _] = samples;
    report.add(
        Figure::new("start runs list, large against empty", "ms", of(large, wall))
            .against("an empty log", of(empty, wall))
            .aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.1))),
    );
}

/// Returns a store of so many events, made the first time.
pub(crate) fn large_store(events: u64, report: &mut Report) -> Result<PathBuf> {
    let file = place::kept()?.join(format!("{events}-events.db"));
    if !file.exists() {
        report.note(format!("a log of {events} events is made once: {}", file.display()));
        let own = std::env::current_exe().context("cannot tell where this program is")?;
        let mut fill = Command::new(own);
        let status = fill.arg("fill").arg(events.to_string()).arg(&file).status()?;
        ensure!(status.success(), "the large log could not be made: {status}");
    }
    Ok(file)
}

/// Makes a store of so many events in runs of 500.
pub(crate) fn fill(events: u64, file: &Path) -> Result<()> {
    let partial = file.with_extension("partial");
    let _old = fs::remove_file(&partial);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let url = format!("sqlite://{}", partial.display());
        let trace = Trace::open(&url, StoreOptions::default()).await?;
        for _ in 0..events / OF_A_RUN {
            trace.append(one_run()?).await?;
        }
        trace.close().await;
        anyhow::Ok(())
    })?;
    // A log that was filled half is not taken for a whole one.
    fs::rename(&partial, file).context("cannot keep the large log")
}

fn one_run() -> Result<Append> {
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
        files_changed: 0,
        more_files: false,
        elapsed: Span::from_secs(1),
        scripted: false,
    };
    let note = |n: u64| {
        let data = json!({ "n": n, "text": "as long as most events are: ".repeat(11) });
        EventBody::Unknown { kind: "bench.note".to_owned(), data }
    };
    let bodies = [
        EventBody::RunCreated(created.into()),
        EventBody::RunStarted(RunStarted { owner: "bench".to_owned() }),
    ];
    let bodies = bodies
        .into_iter()
        .chain((3..OF_A_RUN).map(note))
        .chain([EventBody::RunFinished(RunFinished { outcome })]);
    let events = bodies.map(|body| NewEvent {
        task: matches!(body, EventBody::Unknown { .. }).then_some(root),
        principal: Principal::system("bench"),
        at: SystemClock.now(),
        body,
        idempotency_key: None,
    });
    Ok(Append { run, token: None, events: events.collect(), blobs: Vec::new() })
}
