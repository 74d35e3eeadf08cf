//! Driver and core over a tree of tasks that do nothing.

use std::{num::NonZeroUsize, path::Path, sync::Arc, time::Instant};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use formwork_protocols::{
    Claim, Clock as _, EventStore as _, OutcomeCode, PermissionMode, Position, Principal, RunId,
    Store, SystemClock, SystemRng, TaskId, check::Verdict, store::Selection,
};
use formwork_scheduler::{NativeExecutor, Natives, Scheduler, Setup, Signals, workflow::Plan};
use formwork_trace::{Options as StoreOptions, Trace};
use tokio::{runtime::Handle, sync::mpsc};

use crate::{
    allocations::{self, Uncounted},
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    null_store::NullStore,
    place,
    raw::{self, Row},
    shape,
};

/// What `tree` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many leaves the tree has; powers of ten.
    #[arg(long, value_delimiter = ',', default_value = "10000,100000")]
    tasks: Vec<usize>,
    /// Over which stores.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,memory,file")]
    store: Vec<Kept>,
}

/// Where the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    /// Nowhere: it is counted and forgotten.
    None,
    /// By SQLite in memory.
    Memory,
    /// By SQLite that waits for the disk.
    File,
}

/// How many leaves are at work at once, on both sides.
const WIDTH: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for leaves in &options.tasks {
        if is_quick && *leaves > 10_000 {
            report.note(format!("tree of {leaves} is left out by --quick"));
            continue;
        }
        let repetitions = if is_quick || *leaves > 10_000 { 3 } else { 5 };
        // The loop's future is large, and lives as long as the bench.
        runtime.block_on(Box::pin(measure(*leaves, repetitions, &options.store, report)))?;
    }
    Ok(())
}

async fn measure(
    leaves: usize,
    repetitions: usize,
    kept: &[Kept],
    report: &mut Report,
) -> Result<()> {
    let noise = Noise::begin();
    let folder = place::scratch()?;
    let plan = shape::plan(leaves)?;
    let (mut bare, mut alone, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let (mut durable, mut floor) = (Vec::new(), Vec::new());
    let (mut bytes, mut created) = (Vec::new(), Vec::new());
    let (mut allocated, mut batches) = (Vec::new(), Vec::new());
    for repetition in 0..repetitions {
        let file = |name: &str| folder.path().join(format!("{name}-{repetition}"));
        let rate = |seconds: f64| leaves as f64 / seconds;

        bare.push(rate(spawn_and_queue(leaves, None).await?));

        let sample = drive(&plan, Arc::new(NullStore::default()), Counts::Left).await?;
        alone.push(rate(sample.seconds));

        // What is recorded for each leaf is counted here, and so this one is always run.
        let store = Arc::new(NullStore::default());
        let sample = drive(&plan, Arc::clone(&store) as _, Counts::Taken).await?;
        bytes.push(sample.live_bytes / nodes(leaves) as f64);
        allocated.push(sample.allocations / leaves as f64);
        let events = store.events() as f64 - sample.created as f64;
        batches.push(events / (store.batches() as f64 - 1.0));

        if kept.contains(&Kept::Memory) {
            let trace = Trace::open("sqlite::memory:", StoreOptions::default()).await?;
            let sample = drive(&plan, Arc::new(trace.clone()), Counts::Left).await?;
            memory.push(rate(sample.seconds));
            trace.close().await;
        }

        if kept.contains(&Kept::File) {
            let url = format!("sqlite://{}", file("ours").display());
            let trace = Trace::open(&url, StoreOptions::default()).await?;
            let sample = drive(&plan, Arc::new(trace.clone()), Counts::Left).await?;
            durable.push(rate(sample.seconds));
            created.push(sample.create_seconds * 1e3);
            let typical = typical_bytes(&trace).await?;
            trace.close().await;

            let per_leaf = (events / leaves as f64).round() as usize;
            let record = Record { per_leaf, bytes: typical };
            floor.push(rate(durable_loop(leaves, &file("bare"), record).await?));
            if repetition == 0 {
                report.note(format!(
                    "tree/{leaves}: {events} events in the run, {per_leaf} for each leaf of {typical} bytes each"
                ));
            }
        }
    }
    let at = |what: &str| format!("tree/{leaves}/{what}");
    let queue = "bare spawn, channel, counters";
    let target = Target::ratio(Limit::AtLeast(0.25), Limit::AtLeast(0.5));
    report.add(
        Figure::new(at("no store"), "tasks/s", alone).against(queue, bare.clone()).aims(target),
    );
    if !memory.is_empty() {
        report.add(Figure::new(at("sqlite in memory"), "tasks/s", memory).against(queue, bare));
    }
    if !durable.is_empty() {
        let target = Target::ratio(Limit::AtLeast(0.5), Limit::AtLeast(0.8));
        report.add(
            Figure::new(at("sqlite file"), "tasks/s", durable)
                .against("the same loop over bare sqlx, as many rows and bytes", floor)
                .aims(target),
        );
        report.add(Figure::new(at("recording the plan"), "ms", created));
    }
    let target = Target::figure(Limit::AtMost(2048.0), Some(Limit::AtMost(717.0)));
    report.add(Figure::new(at("heap of a waiting task"), "bytes", bytes).aims(target));
    report.add(Figure::new(at("allocations, no store"), "per task", allocated));
    report.add(Figure::new(at("events recorded together, no store"), "events", batches));
    report.noise(&format!("tree/{leaves}"), &noise);
    Ok(())
}

struct Sample {
    seconds: f64,
    create_seconds: f64,
    /// Events that recorded the plan.
    created: u64,
    /// Of the run that is recorded and waits.
    live_bytes: f64,
    allocations: f64,
}

/// Whether allocations are counted: counting weighs on whoever makes more of them, and is left where time is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    Taken,
    Left,
}

async fn drive(plan: &Plan, store: Arc<dyn Store>, counts: Counts) -> Result<Sample> {
    let natives = Natives::new().with(shape::NOTHING, async |_, _| Ok(Claim::default()));
    let executor = NativeExecutor::new(natives, |job| {
        Verdict::bare(job.check.name.clone(), true, String::new())
    });
    let scheduler = Scheduler::new(Arc::clone(&store), Arc::new(executor)).with_width(WIDTH);
    let setup = Setup {
        workspace: "/".to_owned(),
        mode: PermissionMode::Edit,
        principal: Principal::system("bench"),
        setup: serde_json::Map::new(),
    };
    let before = allocations::live_bytes();
    let began = Instant::now();
    let run = scheduler.create(plan, setup).await?;
    let create_seconds = began.elapsed().as_secs_f64();
    let live_bytes = allocations::live_bytes() - before;
    let created = store.head().await?.0;
    let before = allocations::count();
    let _uncounted = (counts == Counts::Left).then(Uncounted::begin);
    let began = Instant::now();
    let report = Box::pin(scheduler.run(run, &Signals::default())).await?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(report.outcome.code == OutcomeCode::Completed, "the run ended as {}", report.outcome);
    let allocations = allocations::count() - before;
    Ok(Sample { seconds, create_seconds, created, live_bytes, allocations })
}

/// Returns the middle length of the data of a run's later events.
async fn typical_bytes(trace: &Trace) -> Result<usize> {
    let head = trace.head().await?.0;
    let events = trace.read(Position(head / 2), &Selection::default(), 1_000).await?;
    let mut sum = 0;
    for event in &events {
        sum += event.body.data()?.to_string().len();
    }
    Ok(sum / events.len().max(1))
}

/// Returns how many tasks a tree of so many leaves has, its root and groups included.
fn nodes(leaves: usize) -> usize {
    std::iter::successors(Some(leaves), |level| (*level > 1).then_some(level / 10)).sum()
}

/// The same tree in bare arrays.
struct Bare {
    /// The first of ten children; none for a leaf.
    children: Vec<Option<usize>>,
    parent: Vec<usize>,
    waiting: Vec<u8>,
    open: Vec<u8>,
    ready: Vec<usize>,
    is_finished: bool,
}

impl Bare {
    fn new(leaves: usize) -> Self {
        let all = nodes(leaves);
        let groups = all - leaves;
        // Level after level: the children of the nth node are the ten after all earlier children.
        let children = (0..all).map(|n| (n < groups).then_some(n * 10 + 1)).collect();
        let parent = (0..all).map(|n| n.saturating_sub(1) / 10).collect();
        let waits = |n: usize| shape::waits_for((n + 9) % 10).is_some() && n > 0;
        let waiting = (0..all).map(|n| u8::from(waits(n))).collect();
        let open = vec![10; all];
        Self { children, parent, waiting, open, ready: Vec::new(), is_finished: false }
    }

    fn start(&mut self, node: usize) {
        match self.children[node] {
            None => self.ready.push(node),
            Some(first) => {
                for child in first..first + 10 {
                    if self.waiting[child] == 0 {
                        self.start(child);
                    }
                }
            }
        }
    }

    fn finish(&mut self, node: usize) {
        if node == 0 {
            self.is_finished = true;
            return;
        }
        let place = (node - 1) % 10;
        if place < 5 {
            self.waiting[node + 5] -= 1;
            self.start(node + 5);
        }
        let parent = self.parent[node];
        self.open[parent] -= 1;
        if self.open[parent] == 0 {
            self.finish(parent);
        }
    }
}

/// What is recorded for each leaf before what follows from its end begins.
#[derive(Debug, Clone, Copy)]
struct Record {
    per_leaf: usize,
    bytes: usize,
}

async fn durable_loop(leaves: usize, file: &Path, record: Record) -> Result<f64> {
    let store = raw::Sqlite::open(file).await?;
    let seconds = spawn_and_queue(leaves, Some((&store, record))).await?;
    store.close().await?;
    Ok(seconds)
}

async fn spawn_and_queue(leaves: usize, record: Option<(&raw::Sqlite, Record)>) -> Result<f64> {
    let runtime = Handle::current();
    let run = RunId::generate(&SystemClock, &SystemRng);
    let ids: Vec<TaskId> = match record {
        None => Vec::new(),
        Some(_) => (0..leaves).map(|_| TaskId::generate(&SystemClock, &SystemRng)).collect(),
    };
    let _uncounted = Uncounted::begin();
    let mut tree = Bare::new(leaves);
    let first_leaf = tree.children.len() - leaves;
    let (sender, mut completions) = mpsc::channel(2 * WIDTH.get());
    let (mut done, mut under_way) = (Vec::new(), 0);
    let began = Instant::now();
    tree.start(0);
    loop {
        while under_way < WIDTH.get()
            && let Some(node) = tree.ready.pop()
        {
            let sender = sender.clone();
            // Nobody joins it, because its completion tells of its end.
            drop(runtime.spawn(async move { sender.send(node).await }));
            under_way += 1;
        }
        completions.recv_many(&mut done, WIDTH.get()).await;
        under_way -= done.len();
        if let Some((store, record)) = record {
            let at = SystemClock.now();
            let rows = done.iter().flat_map(|node| {
                let task = ids.get(node - first_leaf).copied();
                (0..record.per_leaf).map(move |_| Row {
                    run,
                    task,
                    principal: "system:bench",
                    at,
                    kind: "task.active",
                    data: format!("\"{}\"", "x".repeat(record.bytes.saturating_sub(2))),
                })
            });
            store.append(rows.collect()).await?;
        }
        for node in done.drain(..) {
            tree.finish(node);
        }
        if tree.is_finished {
            return Ok(began.elapsed().as_secs_f64());
        }
    }
}
