//! Reading the log: events from a cursor, a chain verified, a large store opened.

use std::{hint::black_box, path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use formwork_protocols::{
    EventBody, EventStore as _, Position, RunId, TaskId, Timestamp,
    event::{GENESIS, Link},
    store::Selection,
};
use formwork_trace::{Options as StoreOptions, Trace};
use sqlx::{Connection as _, Row as _, SqliteConnection, types::Uuid};

use crate::{
    figure::{Figure, Limit, Report, Target},
    noise::Noise,
    place, start,
};

/// What `replay` measures.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many events the store holds.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    /// How many of them are read in each repetition.
    #[arg(long, default_value_t = 100_000)]
    read: usize,
}

/// How many events are asked for at once, on both sides.
const PAGE: usize = 500;

/// Runs the bench.
pub(crate) fn run(options: &Options, is_quick: bool, report: &mut Report) -> Result<()> {
    let file = start::large_store(options.events, report)?;
    let (repetitions, read) =
        if is_quick { (3, options.read.min(20_000)) } else { (7, options.read) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Box::pin(async {
        replay(&file, read, repetitions, report).await?;
        verify(&file, read, repetitions, report).await?;
        open(&file, 3 * repetitions, report).await
    }))
}

fn url(file: &Path) -> String {
    format!("sqlite://{}", file.display())
}

/// An event as its row holds it.
struct Stored {
    position: i64,
    run: Uuid,
    seq: i64,
    task: Option<Uuid>,
    principal: String,
    at: i64,
    kind: String,
    data: String,
    key: Option<String>,
    hash: Vec<u8>,
}

async fn page(connection: &mut SqliteConnection, after: i64) -> Result<Vec<Stored>> {
    let sql = "SELECT position, run, seq, task, principal, at, kind, data, idempotency_key, hash \
        FROM events WHERE position > ? ORDER BY position LIMIT ?";
    let limit = i64::try_from(PAGE)?;
    let rows = sqlx::query(sql).bind(after).bind(limit).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            Ok(Stored {
                position: row.try_get(0)?,
                run: row.try_get(1)?,
                seq: row.try_get(2)?,
                task: row.try_get(3)?,
                principal: row.try_get(4)?,
                at: row.try_get(5)?,
                kind: row.try_get(6)?,
                data: row.try_get(7)?,
                key: row.try_get(8)?,
                hash: row.try_get(9)?,
            })
        })
        .collect()
}

/// Reads so many rows and gives each to `each`.
async fn bare(
    file: &Path,
    events: usize,
    mut each: impl FnMut(&Stored) -> Result<()>,
) -> Result<()> {
    let mut connection = SqliteConnection::connect(&url(file)).await?;
    let (mut after, mut seen) = (0, 0);
    while seen < events {
        let rows = page(&mut connection, after).await?;
        let Some(last) = rows.last() else { break };
        after = last.position;
        seen += rows.len();
        rows.iter().try_for_each(&mut each)?;
    }
    connection.close().await?;
    Ok(())
}

async fn replay(file: &Path, events: usize, repetitions: usize, report: &mut Report) -> Result<()> {
    let noise = Noise::begin();
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    let micros = |began: Instant| began.elapsed().as_secs_f64() * 1e6 / events as f64;
    for _ in 0..repetitions {
        let began = Instant::now();
        bare(file, events, |row| {
            black_box(EventBody::parse(&row.kind, &row.data)?);
            Ok(())
        })
        .await?;
        floor.push(micros(began));

        let trace = Trace::open(&url(file), StoreOptions::default()).await?;
        let began = Instant::now();
        let (mut after, mut seen) = (Position(0), 0);
        while seen < events {
            let page = trace.read(after, &Selection::default(), PAGE).await?;
            let last = page.last().context("the log is shorter than it was said to be")?;
            (after, seen) = (last.position, seen + page.len());
            black_box(&page);
        }
        ours.push(micros(began));
        trace.close().await;
    }
    report.add(
        Figure::new("replay/from a cursor", "us an event", ours)
            .against("bare SELECT and typed serde", floor)
            .aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.15))),
    );
    report.noise("replay", &noise);
    Ok(())
}

/// Audits whole runs, against reading and hashing the same rows, and against the hashing alone.
async fn verify(file: &Path, events: usize, repetitions: usize, report: &mut Report) -> Result<()> {
    let noise = Noise::begin();
    let mut runs: Vec<RunId> = Vec::new();
    let mut rows = Vec::new();
    bare(file, events, |row| {
        let run = RunId::from_uuid(row.run);
        if runs.last() != Some(&run) {
            runs.push(run);
        }
        rows.push((row.run, row.seq, row.task, row.principal.clone(), row.at));
        Ok(())
    })
    .await?;
    let (mut ours, mut read, mut hashed) = (Vec::new(), Vec::new(), Vec::new());
    let micros = |seconds: f64| seconds * 1e6 / rows.len() as f64;
    for _ in 0..repetitions {
        let mut hashing = 0.0;
        let mut previous = (Uuid::nil(), GENESIS);
        let began = Instant::now();
        bare(file, events, |row| {
            let began = Instant::now();
            let before = if previous.0 == row.run { previous.1 } else { GENESIS };
            let link = Link {
                run: RunId::from_uuid(row.run),
                seq: row.seq.unsigned_abs(),
                task: row.task.map(TaskId::from_uuid),
                principal: &row.principal,
                at: Timestamp::from_micros(row.at),
                kind: &row.kind,
                data: &row.data,
                idempotency_key: row.key.as_deref(),
            };
            let hash = link.hash(&before);
            ensure!(hash.as_bytes().as_slice() == row.hash, "a hash is not that of its row");
            previous = (row.run, hash);
            hashing += began.elapsed().as_secs_f64();
            Ok(())
        })
        .await?;
        read.push(micros(began.elapsed().as_secs_f64()));
        hashed.push(micros(hashing));

        let trace = Trace::open(&url(file), StoreOptions::default()).await?;
        let began = Instant::now();
        for run in &runs {
            let audit = trace.audit(*run).await?;
            ensure!(audit.faults.is_empty(), "run {run} is not sound");
        }
        ours.push(micros(began.elapsed().as_secs_f64()));
        trace.close().await;
    }
    report.add(
        Figure::new("replay/verified", "us an event", ours.clone())
            .against("bare SELECT and BLAKE3", read)
            .aims(Target::ratio(Limit::AtMost(2.0), Limit::AtMost(1.3))),
    );
    report.add(Figure::new("replay/verified", "us an event", ours).against("BLAKE3 alone", hashed));
    report.noise("replay/verified", &noise);
    Ok(())
}

async fn open(file: &Path, repetitions: usize, report: &mut Report) -> Result<()> {
    let noise = Noise::begin();
    let folder = place::scratch()?;
    let empty = folder.path().join("empty.db");
    Trace::open(&url(&empty), StoreOptions::default()).await?.close().await;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..repetitions {
        for (file, samples) in [(empty.as_path(), &mut floor), (file, &mut ours)] {
            let began = Instant::now();
            let trace = Trace::open(&url(file), StoreOptions::default()).await?;
            samples.push(began.elapsed().as_secs_f64() * 1e3);
            trace.close().await;
        }
    }
    report.add(
        Figure::new("replay/open", "ms", ours)
            .against("an empty store", floor)
            .aims(Target::ratio(Limit::AtMost(1.5), Limit::AtMost(1.1))),
    );
    report.noise("replay/open", &noise);
    Ok(())
}
