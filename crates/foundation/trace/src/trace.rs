//! The front door: one handle that writes through the writer and reads beside it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, BlobHash, Clock, Event, EventStore, Live, NoSecrets, Position, RunId, Scrub, Span,
    StoreError, SystemClock, TaskId, Timestamp, Views,
    event::Delta,
    store::{AttemptRow, Audit, CallRow, CheckRow, Lease, Recorded, RunRow, Selection, TaskRow},
};
use futures::stream::BoxStream;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use crate::{
    audit,
    database::{Database, Engine},
    feed::Feed,
    pack::Packer,
    plan::Memory,
    posted::Posted,
    prepare::{Prepared, prepare},
    read, schema,
    tables::Statements,
    upkeep,
    wal::Wal,
    writer::{Command, Reply, Writer},
};

/// How many requests may wait for the writer before those who ask have to wait themselves: two full
/// commits, so that the next is ready when one ends.
const WAITING: usize = 4096;

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// Takes secrets out of whatever is recorded or published.
    pub scrub: Arc<dyn Scrub>,
    /// Tells when leases lapse, where the store does not.
    pub clock: Arc<dyn Clock>,
    /// Whose clock it is that counts for them.
    pub lapse: LapseBy,
    /// How long a write waits for another process that holds the database, and an opening for a
    /// server that does not answer.
    pub wait: Span,
}

impl Default for Options {
    /// Knows no secrets, reads the machine's clock and waits five seconds.
    fn default() -> Self {
        Self {
            scrub: Arc::new(NoSecrets),
            clock: Arc::new(SystemClock),
            lapse: LapseBy::default(),
            wait: Span::from_secs(5),
        }
    }
}

/// Whose clock tells when leases lapse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LapseBy {
    /// That of the server, so that the machines that share it need not agree. Whoever shares a file is on one machine, and goes
    /// by the clock of the options.
    #[default]
    Store,
    /// That of the options, whatever the store: for who moves it by hand.
    Options,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("wait", &self.wait).finish_non_exhaustive()
    }
}

/// An open store. Clones share it; the last one to go ends its tasks.
#[derive(Clone)]
pub struct Trace {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    commands: mpsc::Sender<Command>,
    feed: Arc<Feed>,
    scrub: Arc<dyn Scrub>,
    /// Tells when leases lapse; none where the server does.
    clock: Option<Arc<dyn Clock>>,
    packer: Arc<Packer>,
    /// Whether anything was asked of the writer, and whether anything was posted.
    is_written: AtomicBool,
    is_posted: AtomicBool,
    /// The writer, by itself, so that closing can wait for it.
    writer: Mutex<JoinSet<()>>,
    /// What goes on until the store is closed.
    followers: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("at", &self.inner.database.at).finish_non_exhaustive()
    }
}

impl Trace {
    /// Opens the store at `sqlite:///path`, `sqlite::memory:` or `postgres://…`.
    ///
    /// A store that is not there is made; one of an earlier version is migrated. Nothing is scanned.
    ///
    /// # Errors
    /// [`StoreError::TooNew`] when a later version wrote it, [`StoreError::Corrupt`] when it is no
    /// database, [`StoreError::Open`] with the reason in every other case.
    pub async fn open(url: &str, options: Options) -> Result<Self, StoreError> {
        let database = schema::open(url, options.wait.as_duration()).await?;
        Self::over(database, options).await
    }

    /// Opens a store for somebody who only reads it: where there is none, nothing is made and nothing is found; where it
    /// cannot be written, as on a full disk or in somebody else's folder, it is read all the same.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`StoreError::Open`] too where it cannot be written and would have to be migrated.
    pub async fn open_to_read(url: &str, options: Options) -> Result<Self, StoreError> {
        let database = schema::open_to_read(url, options.wait.as_duration()).await?;
        Self::over(database, options).await
    }

    async fn over(database: Database, options: Options) -> Result<Self, StoreError> {
        let feed = Arc::new(Feed::new(read::head(&database).await?));
        let (commands, queue) = mpsc::channel(WAITING);
        let has_wal = database.engine == Engine::Sqlite && !database.single;
        let wal = has_wal.then(|| Arc::new(Wal::default()));
        let by_server = database.engine == Engine::Postgres && options.lapse == LapseBy::Store;
        let clock = (!by_server).then(|| Arc::clone(&options.clock));
        let mut writer = JoinSet::new();
        writer.spawn(
            Writer {
                commands: queue,
                database: database.clone(),
                feed: Arc::clone(&feed),
                clock: options.clock,
                by_server,
                ahead: 0,
                statements: Statements::default(),
                connection: None,
                memory: Memory::default(),
                wary: 0,
                wal: wal.clone(),
                posted: Posted::default(),
            }
            .run(),
        );
        let mut followers = JoinSet::new();
        if let Some(wal) = wal {
            followers.spawn(wal.follow(database.clone()));
        }
        // A database in memory is this process's own.
        if !database.single {
            followers.spawn(Arc::clone(&feed).follow(database.clone()));
        }
        if database.engine == Engine::Postgres {
            followers.spawn(Arc::clone(&feed).tell(database.clone()));
        }
        let inner = Inner {
            database,
            commands,
            feed,
            scrub: options.scrub,
            clock,
            packer: Arc::default(),
            is_written: AtomicBool::new(false),
            is_posted: AtomicBool::new(false),
            writer: Mutex::new(writer),
            followers: Mutex::new(followers),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the time by which leases lapse.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server cannot be asked.
    pub async fn time(&self) -> Result<Timestamp, StoreError> {
        if let Some(clock) = &self.inner.clock {
            return Ok(clock.now());
        }
        let database = &self.inner.database;
        let rows = database.fetch(crate::writer::TIME, vec![]).await?;
        let row = rows.first().ok_or_else(|| database.corrupt("it tells no time"))?;
        row.int(0).map(Timestamp::from_micros).map_err(|error| database.failed(&error))
    }

    /// Says whether a URL could name a store. Nothing is opened and nobody is asked.
    ///
    /// # Errors
    /// [`StoreError::Open`] with what is wrong with it.
    pub fn address(url: &str) -> Result<(), StoreError> {
        schema::address(url)
    }

    /// Finishes what is queued, ends every watcher's stream and closes the database.
    ///
    /// Whatever is asked of any clone after that fails with [`StoreError::Closed`].
    pub async fn close(&self) {
        // It fails where the store is closed already.
        let _ = self.inner.commands.send(Command::Close).await;
        let tasks = |tasks: &Mutex<JoinSet<()>>| {
            std::mem::take(&mut *tasks.lock().unwrap_or_else(PoisonError::into_inner))
        };
        tasks(&self.inner.writer).join_all().await;
        tasks(&self.inner.followers).shutdown().await;
        if self.inner.database.engine == Engine::Postgres {
            // Of the last commits, perhaps: whoever waits for one hears of it at once.
            self.inner.feed.tell_now(&self.inner.database).await;
        }
        self.inner.feed.close();
        self.inner.database.close().await;
    }

    /// Ends the use of a store by a process that itself ends at once.
    ///
    /// A store that was written to is closed. One that was only read is left to the system: the last who closes a SQLite
    /// file removes the files beside it, which whoever opens it next has to make again, and both are half of what a verb
    /// that reads costs. As after a crash nothing is lost, and the next who writes tidies up. In a process that goes on,
    /// this would keep the connection and its thread for ever.
    pub async fn quit(self) {
        if self.inner.is_written.load(Ordering::Relaxed) {
            self.close().await;
        } else {
            std::mem::forget(self);
        }
    }

    /// Audits every run, in the order of their ids.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn audit_all(&self) -> Result<Vec<Audit>, StoreError> {
        Ok(audit::store(&self.inner.database, Vec::new()).await?.audits)
    }

    /// Asks whether this user may append, of a server that decides on it, and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with what the server says: no rights, or a database that is only read.
    pub async fn may_append(&self) -> Result<(), StoreError> {
        upkeep::may_append(&self.inner.database).await
    }

    /// Returns where the store is, without credentials.
    pub fn at(&self) -> &str {
        &self.inner.database.at
    }

    pub(crate) fn database(&self) -> &Database {
        &self.inner.database
    }

    pub(crate) fn packer(&self) -> Arc<Packer> {
        Arc::clone(&self.inner.packer)
    }

    /// Makes an append ready to be written.
    async fn prepare(&self, batch: Append) -> Result<Prepared, StoreError> {
        let (mut prepared, blobs) = prepare(batch, self.inner.scrub.as_ref())?;
        prepared.blobs = self.inner.packer.pack_all(blobs).await;
        Ok(prepared)
    }

    async fn command(&self, command: Command) -> Result<(), StoreError> {
        self.inner.is_written.store(true, Ordering::Relaxed);
        self.inner.commands.send(command).await.map_err(|_| StoreError::Closed)
    }

    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.command(command(reply)).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

#[async_trait]
impl EventStore for Trace {
    async fn append(&self, batch: Append) -> Result<Vec<Recorded>, StoreError> {
        let prepared = self.prepare(batch).await?;
        // One of nothing waits for what was posted.
        if prepared.is_empty() && !self.inner.is_posted.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        self.ask(|reply| Command::Append(prepared, reply)).await
    }

    async fn post(&self, batch: Append) -> Result<(), StoreError> {
        let prepared = self.prepare(batch).await?;
        if prepared.is_empty() {
            return Ok(());
        }
        self.inner.is_posted.store(true, Ordering::Relaxed);
        self.command(Command::Post(prepared)).await
    }

    async fn read(
        &self,
        after: Position,
        selection: &Selection,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        read::selection(&self.inner.database, after, selection, limit).await
    }

    fn watch(&self) -> BoxStream<'static, Live> {
        self.inner.feed.watch()
    }

    fn publish(&self, mut delta: Delta) {
        if let std::borrow::Cow::Owned(clean) = self.inner.scrub.scrub_text(&delta.text) {
            delta.text = clean;
        }
        self.inner.feed.publish(delta);
    }

    async fn head(&self) -> Result<Position, StoreError> {
        read::head(&self.inner.database).await.map(Position)
    }

    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError> {
        let bytes = read::blob(&self.inner.database, hash).await?;
        let unreadable = |reason| self.inner.database.corrupt(format!("blob {hash}: {reason}"));
        bytes.transpose().map_err(unreadable)
    }

    async fn acquire(&self, run: RunId, owner: &str, for_: Span) -> Result<Lease, StoreError> {
        let owner = owner.to_owned();
        self.ask(|reply| Command::Acquire { run, owner, span: for_, gone: None, reply }).await
    }

    async fn take_over(
        &self,
        run: RunId,
        gone: &str,
        owner: &str,
        for_: Span,
    ) -> Result<Lease, StoreError> {
        let (owner, gone) = (owner.to_owned(), Some(gone.to_owned()));
        self.ask(|reply| Command::Acquire { run, owner, span: for_, gone, reply }).await
    }

    async fn renew(&self, lease: &Lease, for_: Span) -> Result<Lease, StoreError> {
        let lease = lease.clone();
        self.ask(|reply| Command::Renew { lease, span: for_, reply }).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.ask(|reply| Command::Release { lease, reply }).await
    }

    async fn audit(&self, run: RunId) -> Result<Audit, StoreError> {
        audit::run(&self.inner.database, run).await
    }
}

#[async_trait]
impl Views for Trace {
    async fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunRow>, StoreError> {
        read::runs(&self.inner.database, before, limit).await
    }

    async fn run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        read::run(&self.inner.database, run).await
    }

    async fn tasks(&self, run: RunId) -> Result<Vec<TaskRow>, StoreError> {
        read::tasks(&self.inner.database, run).await
    }

    async fn attempts(&self, task: TaskId) -> Result<Vec<AttemptRow>, StoreError> {
        read::attempts(&self.inner.database, task).await
    }

    async fn checks(&self, run: RunId) -> Result<Vec<CheckRow>, StoreError> {
        read::checks(&self.inner.database, run).await
    }

    async fn calls(&self, run: RunId) -> Result<Vec<CallRow>, StoreError> {
        read::calls(&self.inner.database, run).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every statement of a shape that does not depend on what is asked, and one of each that does.
    fn statements(engine: Engine) -> Vec<String> {
        let run = RunId::from_uuid(uuid::Uuid::nil());
        let task = TaskId::from_uuid(uuid::Uuid::nil());
        let mut all = crate::writer::statements(engine);
        all.extend(
            [
                read::HEAD,
                read::PAGE,
                read::PAGE_OF_RUN,
                read::BLOB,
                read::RUNS,
                read::RUN,
                read::TASKS,
                read::ATTEMPTS,
                read::CHECKS,
                read::CALLS,
                audit::HEAD,
                audit::RUNS,
            ]
            .map(str::to_owned),
        );
        for (run, task) in [(Some(run), None), (None, Some(task)), (Some(run), Some(task))] {
            for kinds in [vec![], vec!["tool.".to_owned()], vec!["a".to_owned(), "b".to_owned()]] {
                let selection = Selection { run, task, kinds };
                all.push(read::select(Position(1), &selection, 10).0);
            }
        }
        all
    }

    async fn prepares_every_statement(url: &str) {
        let trace = Trace::open(url, Options::default()).await.unwrap();
        let mut connection = trace.inner.database.write.acquire().await.unwrap();

        for sql in statements(trace.inner.database.engine) {
            let prepared = connection.prepare(sql.clone()).await;
            assert!(prepared.is_ok(), "{sql}: {prepared:?}");
        }
        drop(connection);
        trace.close().await;
    }

    #[tokio::test]
    async fn sqlite_prepares_every_statement() {
        prepares_every_statement("sqlite::memory:").await;
    }

    #[tokio::test]
    async fn pg_prepares_every_statement() {
        let Some(postgres) = formwork_testkit::postgres::Postgres::shared() else { return };
        let database = postgres.database().unwrap();
        prepares_every_statement(database.url()).await;
    }

    #[tokio::test]
    async fn the_views_tables_have_the_columns_of_their_statements() {
        let trace = Trace::open("sqlite::memory:", Options::default()).await.unwrap();
        for table in crate::tables::VIEWS {
            let sql = format!("SELECT name FROM pragma_table_info('{}') ORDER BY cid", table.name);
            let rows = trace.inner.database.fetch(sql, vec![]).await.unwrap();
            let found: Vec<_> = rows.iter().map(|row| row.text(0).unwrap()).collect();
            assert_eq!(found, table.column_names(), "{}", table.name);
        }
        trace.close().await;
    }

    fn note(n: u64) -> Append {
        let data = serde_json::json!({ "n": n, "text": "x".repeat(500) });
        let body = formwork_protocols::EventBody::Unknown { kind: "test.note".to_owned(), data };
        let event = formwork_protocols::NewEvent {
            task: None,
            principal: formwork_protocols::Principal::system("test"),
            at: formwork_protocols::Timestamp::from_micros(1),
            body,
            idempotency_key: None,
        };
        let run = RunId::from_uuid(uuid::Uuid::nil());
        Append { run, token: None, events: vec![event], blobs: vec![] }
    }

    #[tokio::test]
    async fn what_was_posted_onto_a_full_disk_is_told_by_every_later_append_of_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        let trace = Trace::open(&url, Options::default()).await.unwrap();
        let mut connection = trace.inner.database.write.acquire().await.unwrap();
        connection.script("PRAGMA max_page_count = 60").await.unwrap();
        drop(connection);
        let lease = trace.acquire(note(0).run, "one", Span::from_secs(60)).await.unwrap();
        let with = |n| Append { token: Some(lease.token), ..note(n) };

        for n in 0..500 {
            trace.post(with(n)).await.unwrap();
        }
        let waited = trace.append(Append { events: vec![], ..with(0) }).await;
        let later = trace.append(with(500)).await;
        let read = trace.read(Position(0), &Selection::default(), 10_000).await.unwrap();

        assert!(matches!(waited, Err(StoreError::Unavailable { .. })), "{waited:?}");
        assert_eq!(later, waited, "what came before it is missing");
        let data: Vec<_> =
            read.iter().map(|event| event.body.data().unwrap()["n"].clone()).collect();
        assert_eq!(data, (0..read.len()).map(serde_json::Value::from).collect::<Vec<_>>());
        trace.close().await;
    }

    #[tokio::test]
    async fn a_full_disk_loses_nothing_that_was_acknowledged_and_passes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db");
        let url = format!("sqlite://{}", file.display());
        let trace = Trace::open(&url, Options::default()).await.unwrap();
        // The limit is the connection's own, and the writer takes it up with its first append.
        let mut connection = trace.inner.database.write.acquire().await.unwrap();
        connection.script("PRAGMA max_page_count = 60").await.unwrap();
        drop(connection);

        let mut kept = 0;
        let full = loop {
            match trace.append(note(kept)).await {
                Ok(_) => kept += 1,
                Err(error) => break error,
            }
        };
        let read = trace.read(Position(0), &Selection::default(), 10_000).await.unwrap();
        trace.close().await;
        let trace = Trace::open(&url, Options::default()).await.unwrap();
        let next = trace.append(note(kept)).await.unwrap();

        let said = format!("the store at {} cannot be written: the disk is full", file.display());
        assert_eq!(full.to_string(), said);
        assert!(kept > 10, "{kept}");
        assert_eq!(read.len(), usize::try_from(kept).unwrap());
        assert_eq!(next[0].seq, kept + 1);
        assert_eq!(trace.audit_all().await.unwrap()[0].faults, []);
        trace.close().await;
    }

    /// Returns how a task's events are looked for in a run that has many.
    async fn how_a_task_is_read(url: &str) -> String {
        let trace = Trace::open(url, Options::default()).await.unwrap();
        let tasks: Vec<TaskId> =
            (0..100).map(|n| TaskId::from_uuid(uuid::Uuid::from_u128(n))).collect();
        let of = |task: &TaskId| {
            let mut event = note(0).events.remove(0);
            event.task = Some(*task);
            event
        };
        for _ in 0..20 {
            let events = tasks.iter().map(of).collect();
            trace.append(Append { events, ..note(0) }).await.unwrap();
        }
        let kinds = vec!["test.".to_owned()];
        let selection = Selection { run: Some(note(0).run), task: Some(tasks[7]), kinds };
        let (explain, column) = match trace.inner.database.engine {
            Engine::Sqlite => ("EXPLAIN QUERY PLAN", 3),
            Engine::Postgres => {
                trace.inner.database.fetch("ANALYZE", vec![]).await.unwrap();
                ("EXPLAIN", 0)
            }
        };
        let (sql, args) = read::select(Position(1), &selection, 10);
        let rows = trace.inner.database.fetch(format!("{explain} {sql}"), args).await.unwrap();
        let found = trace.read(Position(0), &selection, 100).await.unwrap().len();
        assert_eq!(found, 20);
        trace.close().await;
        rows.iter().map(|row| row.text(column).unwrap()).collect::<Vec<_>>().join("\n")
    }

    #[tokio::test]
    async fn what_a_task_did_is_found_without_a_look_at_the_rest_of_its_run() {
        let how = how_a_task_is_read("sqlite::memory:").await;

        assert_eq!(how, "SEARCH events USING INDEX events_by_task (task=? AND rowid>?)");
    }

    #[tokio::test]
    async fn pg_what_a_task_did_is_found_without_a_look_at_the_rest_of_its_run() {
        let Some(postgres) = formwork_testkit::postgres::Postgres::shared() else { return };
        let database = postgres.database().unwrap();

        let how = how_a_task_is_read(database.url()).await;

        assert!(how.contains("events_by_task"), "{how}");
        assert!(!how.contains("events_run_seq_key") && !how.contains("Seq Scan"), "{how}");
    }

    #[tokio::test]
    async fn pages_of_runs_and_events_are_found_by_an_index() {
        let trace = Trace::open("sqlite::memory:", Options::default()).await.unwrap();
        let selection =
            Selection { run: Some(RunId::from_uuid(uuid::Uuid::nil())), ..Selection::default() };
        let of_run = read::select(Position(1), &selection, 10).0;

        for sql in
            [read::RUNS_AT_ONCE, read::RUNS, read::PAGE, read::PAGE_OF_RUN, read::HEAD, &of_run]
        {
            let plan = format!("EXPLAIN QUERY PLAN {sql}");
            let rows = trace.inner.database.fetch(plan, vec![]).await.unwrap();
            for row in rows {
                let step = row.text(3).unwrap();
                // What a statement has just found itself is gone through once more.
                let scans = step.starts_with("SCAN") && step != "SCAN listed";
                assert!(!scans && !step.contains("TEMP"), "{sql}: {step}");
            }
        }
        trace.close().await;
    }

    #[tokio::test]
    async fn a_store_that_was_only_read_is_left_and_one_that_was_written_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db");
        let url = format!("sqlite://{}", file.display());
        let beside = || folder.path().join("store.db-wal").exists();
        let open = || Trace::open(&url, Options::default());

        let trace = open().await.unwrap();
        trace.append(note(0)).await.unwrap();
        trace.quit().await;
        assert!(!beside());

        let trace = open().await.unwrap();
        assert_eq!(trace.runs(None, 10).await.unwrap(), []);
        trace.quit().await;
        assert!(beside());

        let trace = open().await.unwrap();
        assert_eq!(trace.append(note(1)).await.unwrap()[0].seq, 2);
        assert_eq!(trace.audit_all().await.unwrap()[0].faults, []);
        trace.close().await;
    }
}
