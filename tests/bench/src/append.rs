//! Durable appends: events a second, how long an acknowledgement takes, how many share a sync.

use std::{sync::Arc, time::Instant};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use formwork_protocols::{
    Append, Clock as _, EventBody, EventStore as _, NewEvent, Principal, RunId, SystemClock,
    SystemRng, TaskId,
};
use formwork_testkit::postgres::Postgres;
use formwork_trace::{Options as StoreOptions, Trace};
use serde_json::json;
use sqlx::{Executor as _, postgres::PgPoolOptions};
use tokio::task::JoinSet;

use crate::{
    allocations,
    device::Device,
    figure::{Figure, Limit, Report, Target, percentile},
    noise::Noise,
    place,
    raw::{self, Row},
};

/// What `append` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// On which store; PostgreSQL needs its server's programs to be installed.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sqlite")]
    store: Vec<Engine>,
    /// How many append at once, each waiting for its own acknowledgement.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100")]
    producers: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Sqlite,
    Pg,
}

const PRINCIPAL: &str = "system:bench";
const KIND: &str = "bench.note";

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let repetitions = if is_quick { 3 } else { 7 };
    for engine in &options.store {
        for producers in &options.producers {
            let each = Load::new(*producers, is_quick);
            match engine {
                Engine::Sqlite => runtime.block_on(sqlite(each, repetitions, report))?,
                // Four sides are measured, most of which wait for the disk alone.
                Engine::Pg => {
                    let each = Load { events: each.events / 4, ..each };
                    runtime.block_on(Box::pin(postgres(each, repetitions, report)))?;
                }
            }
        }
    }
    Ok(())
}

/// So many producers of so many events each.
#[derive(Debug, Clone, Copy)]
struct Load {
    producers: usize,
    events: usize,
}

impl Load {
    const fn new(producers: usize, is_quick: bool) -> Self {
        // About a second each on a disk that syncs in a tenth of a millisecond.
        let events = match producers {
            0..=3 => 1_000,
            4..=30 => 500,
            _ => 250,
        };
        Self { producers, events: if is_quick { events / 4 } else { events } }
    }

    const fn total(self) -> usize {
        self.producers * self.events
    }
}

/// What one side did in one repetition.
#[derive(Debug, Default)]
struct Sample {
    rate: f64,
    p50: f64,
    p99: f64,
    /// What the device flushed meanwhile, for whomever.
    flushes: Option<f64>,
}

/// Lets all producers append, one event at a time each.
async fn load<S, F>(load: Load, device: Option<&Device>, sink: &Arc<S>, append: F) -> Result<Sample>
where
    S: Send + Sync + 'static,
    F: AppendWith<S>,
{
    let flushed = device.and_then(Device::flushes);
    let began = Instant::now();
    let mut producers = JoinSet::new();
    for _ in 0..load.producers {
        let (sink, append) = (Arc::clone(sink), append.clone());
        producers.spawn(async move {
            let run = RunId::generate(&SystemClock, &SystemRng);
            let task = TaskId::generate(&SystemClock, &SystemRng);
            let mut waits = Vec::with_capacity(load.events);
            for n in 0..load.events {
                let began = Instant::now();
                append.append(&sink, run, task, n).await?;
                waits.push(began.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(waits)
        });
    }
    let mut waits = Vec::with_capacity(load.total());
    while let Some(part) = producers.join_next().await {
        waits.extend(part??);
    }
    let elapsed = began.elapsed();
    let flushes =
        device.and_then(Device::flushes).zip(flushed).map(|(after, before)| after - before);
    Ok(Sample {
        rate: load.total() as f64 / elapsed.as_secs_f64(),
        p50: percentile(waits.clone(), 50).unwrap_or(f64::NAN),
        p99: percentile(waits, 99).unwrap_or(f64::NAN),
        flushes,
    })
}

/// Appends one event to a sink and waits until it is durable.
trait AppendWith<S>: Clone + Send + Sync + 'static {
    fn append(
        &self,
        sink: &S,
        run: RunId,
        task: TaskId,
        n: usize,
    ) -> impl Future<Output = Result<()>> + Send;
}

#[derive(Clone)]
struct Product;

impl AppendWith<Trace> for Product {
    async fn append(&self, trace: &Trace, run: RunId, task: TaskId, n: usize) -> Result<()> {
        trace.append(one(run, task, n)).await?;
        Ok(())
    }
}

/// The same, handed over without waiting for the disk; the last of a producer waits for all.
#[derive(Clone)]
struct Batched {
    last: usize,
}

impl AppendWith<Trace> for Batched {
    async fn append(&self, trace: &Trace, run: RunId, task: TaskId, n: usize) -> Result<()> {
        let append = one(run, task, n);
        if n == self.last {
            trace.append(append).await?;
        } else {
            trace.post(append).await?;
        }
        Ok(())
    }
}

fn one(run: RunId, task: TaskId, n: usize) -> Append {
    let event = NewEvent {
        task: Some(task),
        principal: Principal::system("bench"),
        at: SystemClock.now(),
        body: EventBody::Unknown { kind: KIND.to_owned(), data: data(n) },
        idempotency_key: None,
    };
    Append { run, token: None, events: vec![event], blobs: vec![] }
}

#[derive(Clone)]
struct Bare;

impl AppendWith<raw::Sqlite> for Bare {
    async fn append(&self, store: &raw::Sqlite, run: RunId, task: TaskId, n: usize) -> Result<()> {
        let at = SystemClock.now();
        let data = data(n).to_string();
        let row = Row { run, task: Some(task), principal: PRINCIPAL, at, kind: KIND, data };
        store.append(vec![row]).await
    }
}

impl AppendWith<raw::Log> for Bare {
    async fn append(&self, log: &raw::Log, run: RunId, task: TaskId, n: usize) -> Result<()> {
        let mut bytes = data(n).to_string().into_bytes();
        bytes.extend_from_slice(run.as_bytes());
        bytes.extend_from_slice(task.as_bytes());
        bytes.extend_from_slice(PRINCIPAL.as_bytes());
        bytes.extend_from_slice(KIND.as_bytes());
        bytes.extend_from_slice(&[0; 8 + 8 + 32]); // As much as its time, its number and its hash.
        log.append(bytes).await
    }
}

/// An insert and a commit for each event, over as many connections as there are producers.
impl AppendWith<sqlx::PgPool> for Bare {
    async fn append(&self, pool: &sqlx::PgPool, run: RunId, task: TaskId, n: usize) -> Result<()> {
        insert_alone(&mut *pool.acquire().await?, run, task, n).await
    }
}

/// The same, and each commit tells those who listen.
#[derive(Clone)]
struct BareAndTold;

impl AppendWith<sqlx::PgPool> for BareAndTold {
    async fn append(&self, pool: &sqlx::PgPool, run: RunId, task: TaskId, n: usize) -> Result<()> {
        let mut connection = pool.acquire().await?;
        sqlx::raw_sql("BEGIN; NOTIFY bench").execute(&mut *connection).await?;
        insert_alone(&mut connection, run, task, n).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        Ok(())
    }
}

async fn insert_alone(
    connection: &mut sqlx::PgConnection,
    run: RunId,
    task: TaskId,
    n: usize,
) -> Result<()> {
    let data = data(n).to_string();
    sqlx::query(
        "INSERT INTO bare (run, task, principal, kind, data, hash) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(run.as_uuid())
    .bind(task.as_uuid())
    .bind(PRINCIPAL)
    .bind(KIND)
    .bind(data)
    .bind([0_u8; 32].as_slice())
    .execute(connection)
    .await?;
    Ok(())
}

/// As long as most events are: 450 bytes with the rest of the row.
fn data(n: usize) -> serde_json::Value {
    json!({ "n": n, "text": "as long as most events are: ".repeat(11) })
}

async fn sqlite(each: Load, repetitions: usize, report: &mut Report) -> Result<()> {
    let folder = place::scratch()?;
    let device = Device::of(folder.path());
    let noise = Noise::begin();
    let (mut ours, mut bare, mut log) = (Vec::new(), Vec::new(), Vec::new());
    let (mut syncs, mut allocated, mut batched) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in 0..repetitions {
        let file = |name: &str| folder.path().join(format!("{name}-{repetition}"));

        let raw = Arc::new(raw::Log::open(&file("log"))?);
        log.push(load(each, device.as_ref(), &raw, Bare).await?);
        let raw = Arc::into_inner(raw).context("a producer still holds the raw log")?;
        syncs.push(raw.close()? as f64);

        let url = format!("sqlite://{}", file("ours").display());
        let trace = Arc::new(Trace::open(&url, StoreOptions::default()).await?);
        let before = allocations::count();
        ours.push(load(each, device.as_ref(), &trace, Product).await?);
        allocated.push((allocations::count() - before) / each.total() as f64);
        trace.close().await;

        let url = format!("sqlite://{}", file("batched").display());
        let trace = Arc::new(Trace::open(&url, StoreOptions::default()).await?);
        let append = Batched { last: each.events - 1 };
        batched.push(load(each, device.as_ref(), &trace, append).await?.rate);
        trace.close().await;

        let raw = Arc::new(raw::Sqlite::open(&file("bare")).await?);
        bare.push(load(each, device.as_ref(), &raw, Bare).await?);
        Arc::into_inner(raw).context("a producer still holds the raw store")?.close().await?;
    }
    tell_sqlite(each, &ours, &bare, &log, report);
    report.add(
        Figure::new(format!("append/{}/batched events", each.producers), "events/s", batched)
            .against("each waited for", ours.iter().map(|sample| sample.rate).collect()),
    );
    let grouped = |flushes: f64| each.total() as f64 / flushes / each.producers as f64;
    let of_log: Vec<f64> = syncs.iter().copied().map(grouped).collect();
    let flushed: Option<Vec<f64>> =
        ours.iter().map(|sample| sample.flushes.filter(|n| *n > 0.0).map(grouped)).collect();
    match flushed {
        Some(flushed) => report.add(
            Figure::new(
                format!("append/{}/events per flush/producers", each.producers),
                "",
                flushed,
            )
            .against("raw log, its own count", of_log)
            .aims(Target::figure(Limit::AtLeast(0.5), Some(Limit::AtLeast(0.65)))),
        ),
        None => report.note("the kernel does not count the flushes of this disk"),
    }
    report.add(Figure::new(
        format!("append/{}/allocations", each.producers),
        "per event",
        allocated,
    ));
    report.noise(&format!("append/{}", each.producers), &noise);
    Ok(())
}

fn tell_sqlite(each: Load, ours: &[Sample], bare: &[Sample], log: &[Sample], report: &mut Report) {
    let of =
        |samples: &[Sample], part: fn(&Sample) -> f64| samples.iter().map(part).collect::<Vec<_>>();
    let at = |what: &str| format!("append/{}/{what}", each.producers);
    let rate = |sample: &Sample| sample.rate;
    let mut events = Figure::new(at("events"), "events/s", of(ours, rate))
        .against("raw log: write and fdatasync, grouped", of(log, rate));
    let mut schema = Figure::new(at("events"), "events/s", of(ours, rate))
        .against("bare sqlx on the same schema, grouped", of(bare, rate));
    if each.producers >= 100 {
        events = events.aims(Target::ratio(Limit::AtLeast(0.4), Limit::AtLeast(0.6)));
        schema = schema.aims(Target::ratio(Limit::AtLeast(0.7), Limit::AtLeast(0.9)));
    }
    report.add(events);
    report.add(schema);
    let mut p50 = Figure::new(at("ack p50"), "ms", of(ours, |sample| sample.p50))
        .against("raw log", of(log, |sample| sample.p50));
    let mut p99 = Figure::new(at("ack p99"), "ms", of(ours, |sample| sample.p99))
        .against("raw log", of(log, |sample| sample.p99));
    if each.producers == 1 {
        p50 = p50.aims(Target::ratio(Limit::AtMost(2.0), Limit::AtMost(1.3)));
    }
    if each.producers >= 100 {
        p99 = p99.aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.2)));
    }
    report.add(p50);
    report.add(p99);
}

impl AppendWith<raw::Postgres> for Bare {
    async fn append(
        &self,
        store: &raw::Postgres,
        run: RunId,
        task: TaskId,
        n: usize,
    ) -> Result<()> {
        let at = SystemClock.now();
        let data = data(n).to_string();
        let row = Row { run, task: Some(task), principal: PRINCIPAL, at, kind: KIND, data };
        store.append(vec![row]).await
    }
}

async fn postgres(each: Load, repetitions: usize, report: &mut Report) -> Result<()> {
    let Some(server) = Postgres::that_syncs() else {
        report.note("append on PostgreSQL is left out: its server is not installed");
        return Ok(());
    };
    let noise = Noise::begin();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let (mut grouped, mut told) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let database = server.database()?;
        let connections = u32::try_from(each.producers)?.min(60);
        let pool =
            PgPoolOptions::new().max_connections(connections).connect(database.url()).await?;
        pool.execute(
            "CREATE TABLE bare (position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run UUID, \
             task UUID, principal TEXT, kind TEXT, data TEXT, hash BYTEA)",
        )
        .await?;
        let pool = Arc::new(pool);
        bare.push(load(each, None, &pool, Bare).await?);
        told.push(load(each, None, &pool, BareAndTold).await?);
        pool.close().await;

        let trace = Arc::new(Trace::open(database.url(), StoreOptions::default()).await?);
        ours.push(load(each, None, &trace, Product).await?);
        trace.close().await;

        let database = server.database()?;
        let raw = Arc::new(raw::Postgres::open(database.url()).await?);
        grouped.push(load(each, None, &raw, Bare).await?);
        Arc::into_inner(raw).context("a producer still holds the raw store")?.close().await?;
    }
    let of =
        |samples: &[Sample], part: fn(&Sample) -> f64| samples.iter().map(part).collect::<Vec<_>>();
    let at = |what: &str| format!("append-pg/{}/{what}", each.producers);
    let rate = |sample: &Sample| sample.rate;
    let figure = || Figure::new(at("events"), "events/s", of(&ours, rate));
    let mut own = figure().against("a connection and a commit each", of(&bare, rate));
    let mut raw = figure().against("bare sqlx on the same schema, grouped", of(&grouped, rate));
    let mut loud = figure().against("a commit each, with a NOTIFY in it", of(&told, rate));
    if each.producers == 10 {
        own = own.aims(Target::ratio(Limit::AtLeast(0.8), Limit::AtLeast(1.5)));
    }
    if each.producers >= 50 {
        raw = raw.aims(Target::ratio(Limit::AtLeast(0.8), Limit::AtLeast(0.95)));
        loud = loud.aims(Target::ratio(Limit::AtLeast(5.0), Limit::AtLeast(15.0)));
    }
    report.add(own);
    report.add(raw);
    report.add(loud);
    report.add(
        Figure::new(at("ack p50"), "ms", of(&ours, |sample| sample.p50))
            .against("bare sqlx on the same schema, grouped", of(&grouped, |sample| sample.p50)),
    );
    report.noise(&format!("append-pg/{}", each.producers), &noise);
    Ok(())
}
