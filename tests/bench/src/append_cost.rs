//! What each promise of the log costs a row: bare SQLite in memory, one promise after the other, and the
//! product with all of them.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use formwork_protocols::{
    Append, BlobHash, Clock as _, EventBody, EventStore as _, NewEvent, Principal, RunId,
    SystemClock, SystemRng, TaskId,
    event::{GENESIS, Link},
};
use formwork_trace::{Options as StoreOptions, Trace};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, SqlSafeStr as _, SqliteConnection};

use crate::{
    allocations,
    figure::{Figure, Report},
    noise::Noise,
};

/// How many events a commit has.
const BATCH: usize = 256;

/// How many rows a statement has.
const ROWS: usize = 64;

/// How many runs the events are of.
const RUNS: usize = 16;

const PRINCIPAL: &str = "system:bench";
const KIND: &str = "bench.note";

/// The promises, in the order in which they are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    Nothing,
    OnePlaceInTheRun,
    IndexOfTasks,
    Chain,
    Keys,
    Triggers,
    Views,
}

use Promise::{Chain, IndexOfTasks, Keys, Nothing, OnePlaceInTheRun, Triggers, Views};

const ALL: [(Promise, &str); 7] = [
    (Nothing, "bare row"),
    (OnePlaceInTheRun, "+ unique place in its run"),
    (IndexOfTasks, "+ index of tasks"),
    (Chain, "+ BLAKE3 chain"),
    (Keys, "+ unique keys, 1 in 8"),
    (Triggers, "+ append-only triggers"),
    (Views, "+ heads and runs, once a batch"),
];

/// Runs the bench.
pub(crate) fn run(is_quick: bool, report: &mut Report) -> Result<()> {
    let (repetitions, batches) = if is_quick { (3, 60) } else { (7, 200) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let noise = Noise::begin();
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); ALL.len()];
    let (mut ours, mut allocated) = (Vec::new(), Vec::new());
    let events = (batches * BATCH) as f64;
    for _ in 0..repetitions {
        for ((promise, _), samples) in ALL.iter().zip(&mut costs) {
            let took = runtime.block_on(bare(*promise, batches))?;
            samples.push(took.as_secs_f64() * 1e6 / events);
        }
        let before = allocations::count();
        let took = runtime.block_on(product(batches))?;
        allocated.push((allocations::count() - before) / events);
        ours.push(took.as_secs_f64() * 1e6 / events);
    }
    let bare = costs.first().cloned().unwrap_or_default();
    let whole = costs.last().cloned().unwrap_or_default();
    for ((_, name), samples) in ALL.iter().zip(costs) {
        let figure = Figure::new(format!("append-cost/{name}"), "us an event", samples);
        report.add(figure.against("bare row", bare.clone()));
    }
    report.add(
        Figure::new("append-cost/the product", "us an event", ours)
            .against("all of it in bare sqlx", whole),
    );
    report.add(Figure::new("append-cost/the product, allocations", "per event", allocated));
    report.noise("append-cost", &noise);
    Ok(())
}

fn schema(promise: Promise) -> String {
    let mut sql = String::from(
        "CREATE TABLE events (position INTEGER PRIMARY KEY, run BLOB NOT NULL, seq INTEGER NOT NULL, \
         task BLOB, principal TEXT NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, \
         data TEXT NOT NULL, idempotency_key TEXT, hash BLOB) STRICT;",
    );
    let parts = [
        (OnePlaceInTheRun, "CREATE UNIQUE INDEX places ON events (run, seq);"),
        (IndexOfTasks, "CREATE INDEX tasks ON events (task) WHERE task IS NOT NULL;"),
        (
            Keys,
            "CREATE UNIQUE INDEX keys ON events (run, idempotency_key) \
             WHERE idempotency_key IS NOT NULL;",
        ),
        (
            Triggers,
            "CREATE TRIGGER kept BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, ''); END; \
             CREATE TRIGGER held BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, ''); END;",
        ),
        (
            Views,
            "CREATE TABLE heads (run BLOB PRIMARY KEY, seq INTEGER, hash BLOB) STRICT, WITHOUT ROWID; \
             CREATE TABLE runs (run BLOB PRIMARY KEY, updated INTEGER, events INTEGER) STRICT, \
             WITHOUT ROWID;",
        ),
    ];
    parts.iter().filter(|(part, _)| *part <= promise).for_each(|(_, part)| sql.push_str(part));
    sql
}

async fn bare(promise: Promise, batches: usize) -> Result<Duration> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    sqlx::raw_sql(AssertSqlSafe(schema(promise)).into_sql_str()).execute(&mut connection).await?;
    let row = format!("({})", ["?"; 9].join(", "));
    let insert = format!(
        "INSERT INTO events (run, seq, task, principal, at, kind, data, idempotency_key, hash) \
         VALUES {}",
        vec![row; ROWS].join(", ")
    );
    let insert: std::sync::Arc<str> = insert.into();
    let runs: Vec<_> = (0..RUNS).map(|_| RunId::generate(&SystemClock, &SystemRng)).collect();
    let task = TaskId::generate(&SystemClock, &SystemRng);
    let mut heads: HashMap<RunId, (u64, BlobHash)> = HashMap::new();
    let began = Instant::now();
    for batch in 0..batches {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
        for part in 0..BATCH / ROWS {
            let mut query = sqlx::query(AssertSqlSafe(insert.clone()).into_sql_str());
            for place in 0..ROWS {
                let n = (batch * BATCH) + part * ROWS + place;
                let (run, at) = (runs[n % RUNS], SystemClock.now());
                let data = data(n).to_string();
                let key = (promise >= Keys && n.is_multiple_of(8)).then(|| n.to_string());
                let (seq, hash) = heads.entry(run).or_insert((0, GENESIS));
                *seq += 1;
                if promise >= Chain {
                    let (task, idempotency_key) = (Some(task), key.as_deref());
                    let (principal, kind, data) = (PRINCIPAL, KIND, data.as_str());
                    let link =
                        Link { run, seq: *seq, task, principal, at, kind, data, idempotency_key };
                    *hash = link.hash(hash);
                }
                query = query
                    .bind(run.as_bytes().as_slice())
                    .bind(i64::try_from(*seq)?)
                    .bind(task.as_bytes().as_slice())
                    .bind(PRINCIPAL)
                    .bind(at.as_micros())
                    .bind(KIND)
                    .bind(data)
                    .bind(key)
                    .bind((promise >= Chain).then(|| hash.as_bytes().to_vec()));
            }
            query.execute(&mut connection).await?;
        }
        if promise >= Views {
            views(&mut connection, &heads).await?;
        }
        sqlx::query("COMMIT").execute(&mut connection).await?;
    }
    let took = began.elapsed();
    connection.close().await?;
    Ok(took)
}

async fn views(
    connection: &mut SqliteConnection,
    all: &HashMap<RunId, (u64, BlobHash)>,
) -> Result<()> {
    let heads = format!(
        "INSERT INTO heads (run, seq, hash) VALUES {} ON CONFLICT (run) DO UPDATE SET \
         seq = excluded.seq, hash = excluded.hash",
        vec!["(?, ?, ?)"; all.len()].join(", ")
    );
    let runs = format!(
        "INSERT INTO runs (run, updated, events) VALUES {} ON CONFLICT (run) DO UPDATE SET \
         updated = excluded.updated, events = events + excluded.events",
        vec!["(?, ?, ?)"; all.len()].join(", ")
    );
    let mut query = sqlx::query(AssertSqlSafe(heads).into_sql_str());
    for (run, (seq, hash)) in all {
        query = query.bind(run.as_bytes().as_slice()).bind(i64::try_from(*seq)?);
        query = query.bind(hash.as_bytes().as_slice());
    }
    query.execute(&mut *connection).await?;
    let mut query = sqlx::query(AssertSqlSafe(runs).into_sql_str());
    for run in all.keys() {
        query = query.bind(run.as_bytes().as_slice());
        query = query.bind(SystemClock.now().as_micros()).bind(i64::try_from(BATCH / RUNS)?);
    }
    query.execute(connection).await?;
    Ok(())
}

/// The same events through the front door, as one append for each run of a batch.
async fn product(batches: usize) -> Result<Duration> {
    let trace = Trace::open("sqlite::memory:", StoreOptions::default()).await?;
    let runs: Vec<_> = (0..RUNS).map(|_| RunId::generate(&SystemClock, &SystemRng)).collect();
    let task = TaskId::generate(&SystemClock, &SystemRng);
    let began = Instant::now();
    for batch in 0..batches {
        let appends = runs.iter().enumerate().map(|(place, run)| {
            let events = (0..BATCH / RUNS).map(|part| {
                let n = (batch * BATCH) + part * RUNS + place;
                NewEvent {
                    task: Some(task),
                    principal: Principal::system("bench"),
                    at: SystemClock.now(),
                    body: EventBody::Unknown { kind: KIND.to_owned(), data: data(n) },
                    idempotency_key: n.is_multiple_of(8).then(|| n.to_string()),
                }
            });
            let (run, events) = (*run, events.collect());
            trace.append(Append { run, token: None, events, blobs: Vec::new() })
        });
        for appended in futures::future::join_all(appends).await {
            appended?;
        }
    }
    let took = began.elapsed();
    trace.close().await;
    Ok(took)
}

/// As long as most events are: 450 bytes with the rest of the row.
fn data(n: usize) -> serde_json::Value {
    json!({ "n": n, "text": "as long as most events are: ".repeat(11) })
}
