//! Floors: the same bytes without Formwork.

use std::{collections::HashMap, fs::File, io::Write as _, path::Path, sync::Arc};

use anyhow::{Context as _, Result, anyhow};
use formwork_protocols::{
    BlobHash, RunId, TaskId, Timestamp,
    event::{GENESIS, Link},
};
use formwork_trace::{Options, Trace};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, SqlSafeStr as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

/// How many requests one commit takes at most, as the product's writer.
const MOST: usize = 2048;

/// How many rows one statement takes; more gain nothing.
const ROWS: usize = 64;

/// A file to which a thread writes what is queued, with one `fdatasync` for all of it.
pub(crate) struct Log {
    sender: mpsc::Sender<(Vec<u8>, oneshot::Sender<()>)>,
    thread: std::thread::JoinHandle<std::io::Result<u64>>,
}

impl Log {
    pub(crate) fn open(file: &Path) -> Result<Self> {
        let mut file = File::create(file).context("cannot make the raw log")?;
        let (sender, mut queue) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>(2 * MOST);
        let thread = std::thread::spawn(move || {
            let (mut batch, mut bytes, mut syncs) = (Vec::with_capacity(MOST), Vec::new(), 0);
            while queue.blocking_recv_many(&mut batch, MOST) > 0 {
                bytes.clear();
                batch.iter().for_each(|(part, _)| bytes.extend_from_slice(part));
                file.write_all(&bytes)?;
                file.sync_data()?;
                syncs += 1;
                for (_, ack) in batch.drain(..) {
                    let _gone = ack.send(());
                }
            }
            Ok(syncs)
        });
        Ok(Self { sender, thread })
    }

    /// Returns when the bytes are durable.
    pub(crate) async fn append(&self, bytes: Vec<u8>) -> Result<()> {
        let (ack, done) = oneshot::channel();
        self.sender.send((bytes, ack)).await.map_err(|_| anyhow!("the raw log is gone"))?;
        done.await.context("the raw log could not be written")
    }

    /// Returns how often it was synced.
    pub(crate) fn close(self) -> Result<u64> {
        drop(self.sender);
        let syncs = self.thread.join().map_err(|_| anyhow!("the raw log's thread panicked"))?;
        syncs.context("the raw log could not be written")
    }
}

/// A row of the log, without what its place in the log adds.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) run: RunId,
    pub(crate) task: Option<TaskId>,
    pub(crate) principal: &'static str,
    pub(crate) at: Timestamp,
    pub(crate) kind: &'static str,
    pub(crate) data: String,
}

type Request = (Vec<Row>, oneshot::Sender<()>);

/// Bare sqlx on the product's own schema: group commit, chain, keys, triggers, heads and the run's row.
pub(crate) struct Sqlite {
    sender: mpsc::Sender<Request>,
    writer: JoinSet<Result<()>>,
}

impl Sqlite {
    /// Opens a file, made with the schema.
    pub(crate) async fn open(file: &Path) -> Result<Self> {
        // The product makes the schema, so that both have the same one.
        let url = format!("sqlite://{}", file.display());
        Trace::open(&url, Options::default()).await?.close().await;
        let options = SqliteConnectOptions::new()
            .filename(file)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .statement_cache_capacity(512);
        let connection = SqliteConnection::connect_with(&options).await?;
        let (sender, queue) = mpsc::channel(2 * MOST);
        let mut writer = JoinSet::new();
        writer.spawn(write(connection, queue));
        Ok(Self { sender, writer })
    }

    /// Returns when the rows are durable.
    pub(crate) async fn append(&self, rows: Vec<Row>) -> Result<()> {
        let (ack, done) = oneshot::channel();
        self.sender.send((rows, ack)).await.map_err(|_| anyhow!("the raw store is gone"))?;
        done.await.context("the raw store could not be written")
    }

    pub(crate) async fn close(mut self) -> Result<()> {
        drop(self.sender);
        self.writer.join_next().await.context("the raw store had no writer")??
    }
}

async fn write(mut connection: SqliteConnection, mut queue: mpsc::Receiver<Request>) -> Result<()> {
    let mut batch = Vec::with_capacity(MOST);
    let mut heads: HashMap<RunId, (i64, BlobHash)> = HashMap::new();
    let statements = Statements::new();
    while queue.recv_many(&mut batch, MOST).await > 0 {
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
        let mut placed: Vec<(&Row, i64, BlobHash)> = Vec::new();
        let mut touched: HashMap<RunId, (i64, Timestamp)> = HashMap::new();
        for row in batch.iter().flat_map(|(rows, _)| rows) {
            let (seq, hash) = heads.entry(row.run).or_insert((0, GENESIS));
            *seq += 1;
            *hash = link(row, *seq).hash(hash);
            placed.push((row, *seq, *hash));
            let (events, at) = touched.entry(row.run).or_insert((0, row.at));
            (*events, *at) = (*events + 1, row.at);
        }
        for rows in placed.chunks(ROWS) {
            let mut query = sqlx::query(statements.events(rows.len()));
            for (row, seq, hash) in rows {
                query = query
                    .bind(row.run.as_bytes().as_slice())
                    .bind(seq)
                    .bind(row.task.as_ref().map(|task| task.as_bytes().as_slice()))
                    .bind(row.principal)
                    .bind(row.at.as_micros())
                    .bind(row.kind)
                    .bind(row.data.as_str())
                    .bind(hash.as_bytes().as_slice());
            }
            query.execute(&mut connection).await?;
        }
        let touched: Vec<_> = touched.into_iter().collect();
        for runs in touched.chunks(ROWS) {
            let mut query = sqlx::query(statements.heads(runs.len()));
            for (run, _) in runs {
                let (seq, hash) = heads.get(run).context("a run without a head")?;
                query = query.bind(run.as_bytes().as_slice()).bind(seq);
                query = query.bind(hash.as_bytes().as_slice());
            }
            query.execute(&mut connection).await?;
            let mut query = sqlx::query(statements.runs(runs.len()));
            for (run, (events, at)) in runs {
                query = query.bind(run.as_bytes().as_slice()).bind(at.as_micros()).bind(events);
            }
            query.execute(&mut connection).await?;
        }
        sqlx::query("COMMIT").execute(&mut connection).await?;
        for (_, ack) in batch.drain(..) {
            let _gone = ack.send(());
        }
    }
    connection.close().await.context("cannot close the raw store")
}

/// Bare sqlx on the product's own schema in PostgreSQL: one connection, one statement for each batch.
pub(crate) struct Postgres {
    sender: mpsc::Sender<Request>,
    writer: JoinSet<Result<()>>,
}

impl Postgres {
    /// Opens a database, made with the schema.
    pub(crate) async fn open(url: &str) -> Result<Self> {
        Trace::open(url, Options::default()).await?.close().await;
        let mut connection = PgConnection::connect(url).await?;
        sqlx::raw_sql("SET search_path = formwork").execute(&mut connection).await?;
        let (sender, queue) = mpsc::channel(2 * MOST);
        let mut writer = JoinSet::new();
        writer.spawn(write_postgres(connection, queue));
        Ok(Self { sender, writer })
    }

    /// Returns when the rows are durable.
    pub(crate) async fn append(&self, rows: Vec<Row>) -> Result<()> {
        let (ack, done) = oneshot::channel();
        self.sender.send((rows, ack)).await.map_err(|_| anyhow!("the raw store is gone"))?;
        done.await.context("the raw store could not be written")
    }

    pub(crate) async fn close(mut self) -> Result<()> {
        drop(self.sender);
        self.writer.join_next().await.context("the raw store had no writer")??
    }
}

const INSERT_POSTGRES: &str = "WITH e AS (INSERT INTO events \
    (position, run, seq, task, principal, at, kind, data, hash) SELECT * FROM unnest($1::BIGINT[], \
    $2::UUID[], $3::BIGINT[], $4::UUID[], $5::TEXT[], $6::BIGINT[], $7::TEXT[], $8::TEXT[], \
    $9::BYTEA[])), h AS (INSERT INTO heads (run, seq, hash) SELECT * FROM unnest($10::UUID[], \
    $11::BIGINT[], $12::BYTEA[]) ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, \
    hash = excluded.hash), r AS (INSERT INTO runs (run, updated, events, rounds, input, cache_read, \
    cache_write, output, reasoning, cost) SELECT u.*, 0, 0, 0, 0, 0, 0, 0 FROM unnest($10::UUID[], \
    $13::BIGINT[], $14::BIGINT[]) u ON CONFLICT (run) DO UPDATE SET updated = excluded.updated, \
    events = runs.events + excluded.events) SELECT 1";

async fn write_postgres(
    mut connection: PgConnection,
    mut queue: mpsc::Receiver<Request>,
) -> Result<()> {
    let mut batch = Vec::with_capacity(MOST);
    let mut heads: HashMap<RunId, (i64, BlobHash)> = HashMap::new();
    let mut top = 0_i64;
    while queue.recv_many(&mut batch, MOST).await > 0 {
        let all: Vec<&Row> = batch.iter().flat_map(|(rows, _)| rows).collect();
        let mut touched: HashMap<RunId, (i64, i64)> = HashMap::new();
        let (mut positions, mut seqs, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
        for row in &all {
            let (seq, hash) = heads.entry(row.run).or_insert((0, GENESIS));
            *seq += 1;
            top += 1;
            *hash = link(row, *seq).hash(hash);
            positions.push(top);
            seqs.push(*seq);
            hashes.push(hash.as_bytes().to_vec());
            let (events, at) = touched.entry(row.run).or_insert((0, 0));
            (*events, *at) = (*events + 1, row.at.as_micros());
        }
        let of_heads = |run: &RunId| heads.get(run).copied().unwrap_or((0, GENESIS));
        let insert = sqlx::query(INSERT_POSTGRES)
            .bind(positions)
            .bind(all.iter().map(|row| row.run.as_uuid()).collect::<Vec<_>>())
            .bind(seqs)
            .bind(all.iter().map(|row| row.task.map(|task| task.as_uuid())).collect::<Vec<_>>())
            .bind(all.iter().map(|row| row.principal).collect::<Vec<_>>())
            .bind(all.iter().map(|row| row.at.as_micros()).collect::<Vec<_>>())
            .bind(all.iter().map(|row| row.kind).collect::<Vec<_>>())
            .bind(all.iter().map(|row| row.data.as_str()).collect::<Vec<_>>())
            .bind(hashes)
            .bind(touched.keys().map(RunId::as_uuid).collect::<Vec<_>>())
            .bind(touched.keys().map(|run| of_heads(run).0).collect::<Vec<_>>())
            .bind(touched.keys().map(|run| of_heads(run).1.as_bytes().to_vec()).collect::<Vec<_>>())
            .bind(touched.values().map(|(_, at)| *at).collect::<Vec<_>>())
            .bind(touched.values().map(|(events, _)| *events).collect::<Vec<_>>());
        insert.execute(&mut connection).await?;
        for (_, ack) in batch.drain(..) {
            let _gone = ack.send(());
        }
    }
    connection.close().await.context("cannot close the raw store")
}

fn link(row: &Row, seq: i64) -> Link<'_> {
    Link {
        run: row.run,
        seq: seq.unsigned_abs(),
        task: row.task,
        principal: row.principal,
        at: row.at,
        kind: row.kind,
        data: &row.data,
        idempotency_key: None,
    }
}

/// The statements of each size, so that each is prepared once.
struct Statements {
    events: Vec<Arc<str>>,
    heads: Vec<Arc<str>>,
    runs: Vec<Arc<str>>,
}

impl Statements {
    fn new() -> Self {
        let sizes = |head: &str, row: &str, tail: &str| {
            (1..=ROWS)
                .map(|size| {
                    Arc::from(format!("{head} VALUES {}{tail}", vec![row; size].join(", ")))
                })
                .collect()
        };
        Self {
            events: sizes(
                "INSERT INTO events (run, seq, task, principal, at, kind, data, hash)",
                "(?, ?, ?, ?, ?, ?, ?, ?)",
                "",
            ),
            heads: sizes(
                "INSERT INTO heads (run, seq, hash)",
                "(?, ?, ?)",
                " ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, hash = excluded.hash",
            ),
            runs: sizes(
                "INSERT INTO runs (run, updated, rounds, input, cache_read, cache_write, output, \
                 reasoning, cost, events)",
                "(?, ?, 0, 0, 0, 0, 0, 0, 0, ?)",
                " ON CONFLICT (run) DO UPDATE SET updated = max(updated, excluded.updated), \
                 events = events + excluded.events",
            ),
        }
    }

    fn events(&self, rows: usize) -> sqlx::SqlStr {
        AssertSqlSafe(Arc::clone(&self.events[rows - 1])).into_sql_str()
    }

    fn heads(&self, rows: usize) -> sqlx::SqlStr {
        AssertSqlSafe(Arc::clone(&self.heads[rows - 1])).into_sql_str()
    }

    fn runs(&self, rows: usize) -> sqlx::SqlStr {
        AssertSqlSafe(Arc::clone(&self.runs[rows - 1])).into_sql_str()
    }
}
