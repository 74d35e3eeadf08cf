//! The one task that writes: it commits at once whatever is queued, and the time of that commit is
//! what gathers the next batch.

use std::sync::Arc;

use formwork_protocols::{
    Clock, Event, RunId, Span, StoreError, Timestamp,
    event::GENESIS,
    store::{Lease, Recorded},
};
use futures::future::BoxFuture;
use tokio::{
    sync::{mpsc, oneshot},
    time::sleep_until,
};

use crate::{
    changes::count,
    database::{Arg, Connection, Database, Engine},
    error,
    feed::Feed,
    plan::{self, Answer, Held, Memory, NOBODY, Plan, Unread},
    posted::{Ask, Posted},
    prepare::Prepared,
    read,
    tables::{Frame, ROWS, Rows, Statements, lock_postgres},
    wal::Wal,
};

/// How many requests one commit takes at most.
const MOST: usize = 2048;

/// How many rows something rare is taken to have written: it does not say.
const RARE: usize = 1000;

/// For how many commits nothing is taken for granted once another process has written in between.
const WARY: u32 = 16;

/// Begins a transaction of a process that shares a PostgreSQL.
///
/// Positions are taken under a lock that is held until the commit, so that no position becomes visible
/// after a larger one: a reader's cursor never skips a late commit.
const BEGIN_POSTGRES: &str = concat!("BEGIN; SELECT ", lock_postgres!());
const BEGIN_SQLITE: &str = "BEGIN IMMEDIATE";

/// Where SQLite keeps what a statement may have to take back. Outside of a transaction alone it can be changed.
pub(crate) const UNDO_FROM_MEMORY: &str = "PRAGMA temp_store = MEMORY";
const UNDO_FROM_FILE: &str = "PRAGMA temp_store = FILE";

pub(crate) const LEASE: &str = "SELECT owner, token, held_until FROM heads WHERE run = $1";
pub(crate) const TAKE: &str = "INSERT INTO heads (run, hash, owner, token, held_until) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (run) DO UPDATE SET owner = excluded.owner, \
    token = excluded.token, held_until = excluded.held_until";
pub(crate) const RELEASE: &str =
    "UPDATE heads SET owner = NULL, held_until = 0 WHERE run = $1 AND token = $2 AND owner = $3";

/// Asks a PostgreSQL what time it is.
pub(crate) const TIME: &str = concat!("SELECT ", plan::server_time!());

pub(crate) const AT: &str = "SELECT hash FROM events WHERE run = $1 AND seq = $2";

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What is done in a transaction between two commits. Where it fails, nothing of it is kept.
pub(crate) type Job =
    Box<dyn for<'a> FnOnce(&'a mut Connection) -> BoxFuture<'a, Result<(), StoreError>> + Send>;

/// What the writer is asked.
pub(crate) enum Command {
    Append(Prepared, Reply<Vec<Recorded>>),
    /// The same, which nobody waits for.
    Post(Prepared),
    Acquire {
        run: RunId,
        owner: String,
        span: Span,
        /// An owner that is known to have ended: its lease need not have lapsed.
        gone: Option<String>,
        reply: Reply<Lease>,
    },
    Renew {
        lease: Lease,
        span: Span,
        reply: Reply<Lease>,
    },
    Release {
        lease: Lease,
        reply: Reply<()>,
    },
    /// Does something rare in a transaction of its own.
    Maintain(Job, Reply<()>),
    /// Finishes what is queued and ends.
    Close,
}

/// The writer's state. It ends when every sender is gone.
pub(crate) struct Writer {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) database: Database,
    pub(crate) feed: Arc<Feed>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether the server tells when leases lapse, and how far it was ahead of the clock when it was last asked, in
    /// microseconds.
    pub(crate) by_server: bool,
    pub(crate) ahead: i64,
    pub(crate) statements: Statements,
    /// Kept between commits; none before the first and after a failure.
    pub(crate) connection: Option<Connection>,
    pub(crate) memory: Memory,
    /// For how many commits more nothing is taken for granted.
    pub(crate) wary: u32,
    /// What is kept of a SQLite file besides the file itself; none where there is none.
    pub(crate) wal: Option<Arc<Wal>>,
    /// What was posted and is not written yet.
    pub(crate) posted: Posted,
}

/// Why a transaction was not committed.
enum Failure {
    Database(sqlx::Error),
    Store(StoreError),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What a commit came to: an answer to each append, and how many rows were written for them.
struct Done {
    answers: Vec<Answer>,
    rows: usize,
}

impl Writer {
    /// Serves until it is closed or nobody can ask any more.
    pub(crate) async fn run(mut self) {
        let mut queue = Vec::new();
        if self.next(&mut queue).await {
            // What writing takes is a lot of room, which whoever only reads does without.
            Box::pin(self.go_on(queue)).await;
        }
    }

    /// Does what is asked, and then what is asked next.
    async fn go_on(mut self, mut queue: Vec<Command>) {
        let mut crowd = 0;
        loop {
            // Those who were just answered together are about to ask again, and share a sync once more.
            if crowd > 1 {
                tokio::task::yield_now().await;
                while queue.len() < MOST
                    && let Ok(command) = self.commands.try_recv()
                {
                    queue.push(command);
                }
            }
            crowd = queue.len();
            let mut asked = Vec::new();
            for command in queue.drain(..) {
                match command {
                    Command::Append(draft, reply) => {
                        // What was posted before goes before it.
                        self.posted.take(&mut asked);
                        asked.push(Ask { draft, reply: Some(reply) });
                    }
                    Command::Post(draft) => self.posted.put(draft),
                    Command::Close => self.commands.close(),
                    other => {
                        self.posted.take(&mut asked);
                        self.record(std::mem::take(&mut asked)).await;
                        self.serve(other).await;
                    }
                }
            }
            if !asked.is_empty() || self.posted.is_due() {
                self.posted.take(&mut asked);
            }
            self.record(asked).await;
            if !self.next(&mut queue).await {
                break;
            }
        }
        let mut asked = Vec::new();
        self.posted.take(&mut asked);
        self.record(asked).await;
    }

    /// Waits for what is asked next, or until what was posted is due. Tells whether it goes on.
    async fn next(&mut self, queue: &mut Vec<Command>) -> bool {
        let Some(due) = self.posted.due() else {
            return self.commands.recv_many(queue, MOST).await > 0;
        };
        tokio::select! {
            biased; // What is asked is written together with what is due.
            asked = self.commands.recv_many(queue, MOST) => asked > 0,
            () = sleep_until(due) => true,
        }
    }

    async fn serve(&mut self, command: Command) {
        // Whoever asked may have gone: then the answer is nobody's.
        match command {
            Command::Acquire { run, owner, span, gone, reply } => {
                let done = self.acquire(run, owner, span, gone.as_deref()).await;
                // Whoever owns it now begins with what the log says.
                self.posted.forgive(run);
                let _ = reply.send(self.looked(done));
            }
            Command::Renew { lease, span, reply } => {
                let done = self.renew(lease, span).await;
                let _ = reply.send(self.looked(done));
            }
            Command::Release { lease, reply } => {
                self.posted.forgive(lease.run);
                let _ = reply.send(self.release(&lease).await);
            }
            Command::Maintain(job, reply) => {
                let done = self.maintain(job).await;
                // It may have added events, and took no notice of who watches.
                self.feed.changed(&self.database).await;
                let _ = reply.send(self.looked(done));
            }
            Command::Append(..) | Command::Post(_) | Command::Close => {}
        }
    }

    /// Records what was asked in one transaction, and answers each.
    async fn record(&mut self, asked: Vec<Ask>) {
        // Those that have nothing to say wait for those that have.
        let (asked, waiting): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|ask| !ask.draft.is_empty());
        self.write_all(asked).await;
        for ask in waiting {
            if let Some(ask) = self.posted.pass(ask) {
                ask.tell(Ok(Vec::new()));
            }
        }
    }

    async fn write_all(&mut self, asked: Vec<Ask>) {
        let asked: Vec<_> = asked.into_iter().filter_map(|ask| self.posted.pass(ask)).collect();
        if asked.is_empty() {
            return;
        }
        self.catch_up_wal().await;
        let (drafts, replies): (Vec<_>, Vec<_>) = asked.into_iter().map(Ask::apart).unzip();
        match self.write(&drafts).await {
            Ok(done) => self.answer(drafts, done, replies).await,
            // One that cannot be written must not take the others with it.
            Err(Failure::Database(error))
                if drafts.len() > 1 && error::is_about_the_data(&error) =>
            {
                for (draft, reply) in drafts.into_iter().zip(replies) {
                    let Some(ask) = self.posted.pass(Ask { draft, reply }) else { continue };
                    let (draft, reply) = ask.apart();
                    match self.write(std::slice::from_ref(&draft)).await {
                        Ok(done) => self.answer(vec![draft], done, vec![reply]).await,
                        Err(failure) => {
                            let error = self.explain(failure);
                            self.posted.answer(Ask { draft, reply }, Err(error));
                        }
                    }
                }
            }
            Err(failure) => {
                let error = match failure {
                    Failure::Database(error) => self.database.failed(&error),
                    Failure::Store(error) => self.database.corrupt(error.to_string()),
                };
                for (draft, reply) in drafts.into_iter().zip(replies) {
                    self.posted.answer(Ask { draft, reply }, Err(error.clone()));
                }
            }
        }
    }

    /// Empties a write-ahead log that never was read to its end, because this writer was always ahead.
    async fn catch_up_wal(&mut self) {
        if let (Some(wal), Some(connection)) = (&self.wal, &mut self.connection)
            && wal.is_behind()
            && let Err(error) = wal.checkpoint(connection).await
        {
            tracing::debug!(%error, "the write-ahead log could not be emptied; it grows meanwhile");
        }
    }

    /// Tells of a commit: first those who watch, so that nobody knows of it who could not have seen it.
    async fn answer(
        &mut self,
        drafts: Vec<Prepared>,
        done: Done,
        replies: Vec<Option<Reply<Vec<Recorded>>>>,
    ) {
        let Done { answers, rows } = done;
        if let Err(error) = self.database.look() {
            // What was committed goes with a file that nobody will find again.
            for (draft, reply) in drafts.into_iter().zip(replies) {
                self.posted.answer(Ask { draft, reply }, Err(error.clone()));
            }
            return;
        }
        for ((draft, reply), answer) in drafts.iter().zip(&replies).zip(&answers) {
            if let (None, Err(error)) = (reply, answer) {
                self.posted.lose(draft.run, draft.token, error.clone());
            }
        }
        self.feed.committed(&answers, || plan::events(drafts, &answers));
        for (answer, reply) in answers.into_iter().zip(replies) {
            if let Some(reply) = reply {
                let _ = reply.send(answer);
            }
        }
        if let Some(wal) = &self.wal {
            wal.written(rows);
        }
    }

    /// Passes on what was done, unless what it was written into is gone.
    fn looked<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        let done = done?;
        self.database.look().map(|()| done)
    }

    fn explain(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Database(error) => self.database.failed(&error),
            Failure::Store(error) => error,
        }
    }

    /// Returns the time by which leases lapse, as far as is known without asking.
    fn now(&self) -> Timestamp {
        let own = self.clock.now().as_micros();
        Timestamp::from_micros(own.saturating_add(self.ahead))
    }

    /// Asks for the time by which leases lapse.
    async fn time(&mut self, connection: &mut Connection) -> Result<Timestamp, sqlx::Error> {
        if self.by_server {
            let rows = connection.fetch(TIME, vec![]).await?;
            let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
            self.heard(Timestamp::from_micros(row.int(0)?));
        }
        Ok(self.now())
    }

    /// Takes note of what time it is at the server.
    fn heard(&mut self, server: Timestamp) {
        self.ahead = server.as_micros().saturating_sub(self.clock.now().as_micros());
    }

    async fn begin(&mut self) -> Result<Connection, sqlx::Error> {
        let begin = match self.database.engine {
            Engine::Sqlite => BEGIN_SQLITE,
            Engine::Postgres => BEGIN_POSTGRES,
        };
        if let Some(mut connection) = self.connection.take() {
            match start(&mut connection, self.database.engine, begin).await {
                Ok(()) => return Ok(connection),
                // The server may have been started anew since the last commit. Nothing was written
                // yet, so a new connection can be tried without doing anything twice.
                Err(error) if error::breaks_the_connection(&error) => connection.forsake(),
                Err(error) => {
                    self.connection = Some(connection);
                    return Err(error);
                }
            }
        }
        let mut connection = self.database.write.acquire().await?;
        match start(&mut connection, self.database.engine, begin).await {
            Ok(()) => Ok(connection),
            Err(error) => {
                connection.forsake();
                Err(error)
            }
        }
    }

    /// Ends a transaction: commits what went well, and undoes what did not.
    async fn end<T>(
        &mut self,
        connection: Connection,
        done: Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.end_of(connection, done, false).await
    }

    async fn end_of<T>(
        &mut self,
        mut connection: Connection,
        done: Result<T, Failure>,
        is_committed: bool,
    ) -> Result<T, Failure> {
        let ended = match done {
            Ok(value) if is_committed => Ok(value),
            Ok(value) => match connection.execute("COMMIT", vec![]).await {
                Ok(_) => Ok(value),
                Err(error) => Err(error.into()),
            },
            Err(failure) => Err(failure),
        };
        // SQLite has undone the transaction by itself after some failures; then this one fails too.
        if ended.is_err() && connection.execute("ROLLBACK", vec![]).await.is_err() {
            connection.forsake();
            self.memory.forget();
        } else if !self.database.single {
            self.connection = Some(connection);
        }
        ended
    }

    async fn write(&mut self, appends: &[Prepared]) -> Result<Done, Failure> {
        if let Some(done) = self.write_at_once(appends).await? {
            return Ok(done);
        }
        let mut connection = self.begin().await?;
        let done = self.write_in(&mut connection, appends).await;
        let is_committed = matches!(done, Ok((_, _, true)));
        let (plan, done, _) = self.end_of(connection, done, is_committed).await?;
        self.memory.learn(plan.top, plan.heads);
        Ok(done)
    }

    /// Writes in one round trip what nobody else has touched since the last commit.
    ///
    /// Returns nothing where it cannot be done so, and where another process was in between: then nothing
    /// was written, and what was remembered is forgotten.
    async fn write_at_once(&mut self, appends: &[Prepared]) -> Result<Option<Done>, Failure> {
        if self.wary > 0 {
            self.wary -= 1;
            return Ok(None);
        }
        let Some(mut plan) = self.memory.plan(appends, self.now()) else { return Ok(None) };
        let answers = self.place(&mut plan, appends)?;
        // Whoever is refused is told by what the database says now.
        if answers.iter().any(Result::is_err) {
            return Ok(None);
        }
        // A run that does not move is not compared with what the database says of it, and a lease is not given anew by this.
        if !plan.all_move() || plan.is_late() {
            return Ok(None);
        }
        let all = plan.rows();
        let rows = all.iter().map(Rows::len).sum();
        if self.database.engine == Engine::Sqlite && all.iter().any(|rows| rows.len() > ROWS) {
            return Ok(None);
        }
        let (frame, version) = (Frame::Whole, self.memory.version);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None if self.database.single => self.database.write.acquire().await?,
            None => return Ok(None),
        };
        let done = match self.database.engine {
            Engine::Sqlite => {
                let committing = self.database.committing.as_deref();
                self.statements.run(&mut connection, frame, version, all, committing).await
            }
            Engine::Postgres => {
                self.statements.run_postgres(&mut connection, all, plan.held()).await
            }
        };
        match done {
            Ok(()) => {
                if !self.database.single {
                    self.connection = Some(connection);
                }
                self.memory.learn(plan.top, plan.heads);
                Ok(Some(Done { answers, rows }))
            }
            Err(error) => {
                self.memory.forget();
                if self.database.engine == Engine::Sqlite
                    && connection.execute("ROLLBACK", vec![]).await.is_err()
                {
                    connection.forsake();
                } else if error::breaks_the_connection(&error) {
                    connection.forsake();
                    drop(connection);
                    return self.find(plan, Done { answers, rows }).await;
                } else if !self.database.single {
                    self.connection = Some(connection);
                }
                if error::is_about_the_data(&error) || error::is_a_conflict(&error) {
                    self.wary = WARY;
                    return Ok(None);
                }
                Err(error.into())
            }
        }
    }

    /// Tells whether what was under way when the connection broke was committed.
    async fn find(&mut self, plan: Plan, done: Done) -> Result<Option<Done>, Failure> {
        let Some((run, head)) = plan.last_moved() else { return Ok(None) };
        let mut connection = self.begin().await?;
        let args = vec![run.as_uuid().into(), count(head.seq).into()];
        let found = connection.fetch(AT, args).await;
        let found = self.end(connection, found.map_err(Failure::from)).await?;
        let hash = found.first().map(|row| row.bytes(0)).transpose()?;
        // The hash binds all that the run is, so no other commit could have written it.
        let was_committed = hash.is_some_and(|hash| hash == head.hash.as_bytes());
        Ok(was_committed.then_some(done))
    }

    fn place(&mut self, plan: &mut Plan, appends: &[Prepared]) -> Result<Vec<Answer>, Failure> {
        let mut answers = Vec::with_capacity(appends.len());
        for append in appends {
            let answer = plan.place(append, &mut self.memory).map_err(|error| {
                self.database.corrupt(format!("a view cannot hold an event: {error}"))
            })?;
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Writes within a transaction, and tells whether that has been committed too.
    async fn write_in(
        &mut self,
        connection: &mut Connection,
        appends: &[Prepared],
    ) -> Result<(Plan, Done, bool), Failure> {
        let now = (!self.by_server).then(|| self.now());
        let loaded = Plan::load(connection, appends, now).await;
        let (mut plan, version) = loaded.map_err(|error| match error {
            Unread::Database(error) => Failure::Database(error),
            Unread::Damaged(detail) => Failure::Store(self.database.corrupt(detail)),
        })?;
        if self.by_server {
            self.heard(plan.now);
        }
        if self.memory.version != Some(version) {
            self.memory.forget();
        }
        let answers = self.place(&mut plan, appends)?;
        for lease in plan.renew_late(&self.memory) {
            take(connection, &lease).await?;
        }
        let all = plan.rows();
        let rows = all.iter().map(Rows::len).sum();
        // On SQLite what is left of the transaction is one round trip, unless it is a long one.
        let is_last =
            self.database.engine == Engine::Sqlite && all.iter().all(|rows| rows.len() <= ROWS);
        match is_last {
            true => {
                let committing = self.database.committing.as_deref();
                self.statements.run(connection, Frame::Commit, None, all, committing).await?;
            }
            false => self.statements.insert_all(connection, all).await?,
        }
        self.memory.version = Some(version);
        Ok((plan, Done { answers, rows }, is_last))
    }

    async fn acquire(
        &mut self,
        run: RunId,
        owner: String,
        span: Span,
        gone: Option<&str>,
    ) -> Result<Lease, StoreError> {
        self.with_lease(run, span, async |connection, held, now| {
            if let Some(owner) = held.owner_at(now).filter(|owner| Some(*owner) != gone) {
                return Err(StoreError::NotOwner { run, owner: owner.to_owned() }.into());
            }
            let lease = Lease { run, owner, token: held.token + 1, until: now.after(span) };
            take(connection, &lease).await?;
            Ok(lease)
        })
        .await
    }

    async fn renew(&mut self, lease: Lease, span: Span) -> Result<Lease, StoreError> {
        self.with_lease(lease.run, span, async |connection, held, now| {
            // A lease that lapsed and that nobody took since is still the newest one.
            if held.token != lease.token || held.owner.as_deref() != Some(lease.owner.as_str()) {
                let owner = held.owner.as_deref().unwrap_or(NOBODY).to_owned();
                return Err(StoreError::NotOwner { run: lease.run, owner }.into());
            }
            let lease = Lease { until: now.after(span), ..lease };
            take(connection, &lease).await?;
            Ok(lease)
        })
        .await
    }

    async fn with_lease(
        &mut self,
        run: RunId,
        span: Span,
        act: impl AsyncFnOnce(&mut Connection, Held, Timestamp) -> Result<Lease, Failure>,
    ) -> Result<Lease, StoreError> {
        let mut connection = match self.begin().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.database.failed(&error)),
        };
        let done = match (self.time(&mut connection).await, held(&mut connection, run).await) {
            (Ok(now), Ok(held)) => act(&mut connection, held, now).await,
            (Err(error), _) | (_, Err(error)) => Err(error.into()),
        };
        let ended = self.end(connection, done).await;
        let held = ended.as_ref().ok().map(|lease| Held {
            owner: Some(lease.owner.as_str().into()),
            token: lease.token,
            until: lease.until,
        });
        self.memory.hold(run, held);
        if let Ok(lease) = &ended {
            self.memory.gave(lease, span);
        }
        ended.map_err(|failure| self.explain(failure))
    }

    async fn release(&mut self, lease: &Lease) -> Result<(), StoreError> {
        let mut connection = match self.begin().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.database.failed(&error)),
        };
        let args: Vec<Arg> = vec![
            lease.run.as_uuid().into(),
            count(lease.token).into(),
            lease.owner.as_str().into(),
        ];
        let done = connection.execute(RELEASE, args).await.map(drop).map_err(Failure::from);
        self.memory.hold(lease.run, None);
        self.end(connection, done).await.map_err(|failure| self.explain(failure))
    }

    async fn maintain(&mut self, job: Job) -> Result<(), StoreError> {
        self.undo_from(UNDO_FROM_FILE).await;
        let mut connection = match self.begin().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.database.failed(&error)),
        };
        let done = job(&mut connection).await.map_err(Failure::from);
        // Whatever it did, it did not say.
        self.memory.forget();
        if let Some(wal) = &self.wal {
            wal.written(RARE);
        }
        let ended = self.end(connection, done).await.map_err(|failure| self.explain(failure));
        self.undo_from(UNDO_FROM_MEMORY).await;
        ended
    }

    /// Says where SQLite keeps what a statement may have to take back: that of rare ones may be much of a store.
    async fn undo_from(&mut self, where_from: &'static str) {
        if self.database.engine == Engine::Postgres || self.database.single {
            return;
        }
        if self.connection.is_none() {
            self.connection = self.database.write.acquire().await.ok();
        }
        if let Some(connection) = &mut self.connection
            && let Err(error) = connection.script(where_from).await
        {
            tracing::debug!(%error, "what a statement may have to take back stays where it was kept");
        }
    }
}

async fn start(
    connection: &mut Connection,
    engine: Engine,
    begin: &'static str,
) -> Result<(), sqlx::Error> {
    match engine {
        Engine::Sqlite => connection.execute(begin, vec![]).await.map(drop),
        // Two statements in one round trip.
        Engine::Postgres => connection.script(begin).await,
    }
}

async fn held(connection: &mut Connection, run: RunId) -> Result<Held, sqlx::Error> {
    let rows = connection.fetch(LEASE, vec![run.as_uuid().into()]).await?;
    match rows.first() {
        None => Ok(Held::default()),
        Some(row) => Ok(Held {
            owner: row.maybe_text(0)?.map(Arc::from),
            token: read::unsigned(row.int(1)?).unwrap_or(0),
            until: Timestamp::from_micros(row.int(2)?),
        }),
    }
}

async fn take(connection: &mut Connection, lease: &Lease) -> Result<(), sqlx::Error> {
    let args: Vec<Arg> = vec![
        lease.run.as_uuid().into(),
        GENESIS.as_bytes().to_vec().into(),
        lease.owner.as_str().into(),
        count(lease.token).into(),
        lease.until.as_micros().into(),
    ];
    connection.execute(TAKE, args).await.map(drop)
}

/// Returns the row of the table of events.
pub(crate) fn row(event: &Event, data: &str) -> Vec<Arg> {
    vec![
        count(event.position.0).into(),
        event.run.as_uuid().into(),
        count(event.seq).into(),
        event.task.map(|task| task.as_uuid()).into(),
        event.principal.as_str().into(),
        event.at.as_micros().into(),
        event.body.kind().into(),
        data.into(),
        event.idempotency_key.clone().into(),
        event.hash.as_bytes().to_vec().into(),
    ]
}

/// Lists the statements of fixed shape that the writer uses.
#[cfg(test)]
pub(crate) fn statements(engine: Engine) -> Vec<String> {
    use crate::tables::{BLOBS, EVENTS, HEADS, VIEWS, all_of_postgres, script};

    let mut all: Vec<String> = [LEASE, TAKE, RELEASE, AT].into_iter().map(str::to_owned).collect();
    for n in [1, 2, 4, 32] {
        all.extend([plan::heads_of(engine, n), plan::known_of(engine, n)]);
    }
    let tables = [&BLOBS, &EVENTS, &HEADS].into_iter().chain(VIEWS);
    match engine {
        Engine::Sqlite => {
            for room in [1, 3, ROWS] {
                all.extend(tables.clone().map(|table| table.insert_sqlite(room, "")));
            }
            // Its parts: what is prepared is the first statement of a script.
            let whole = script(Frame::Whole, tables.map(|table| (table, 2)));
            all.extend(whole.split("; ").map(str::to_owned));
        }
        Engine::Postgres => {
            all.push(TIME.to_owned());
            all.extend(tables.clone().map(|table| table.insert_postgres()));
            all.push(all_of_postgres(&tables.collect::<Vec<_>>()));
            all.push(all_of_postgres(&[&BLOBS]));
        }
    }
    for (table, column) in [("tasks", "task"), ("attempts", "attempt"), ("calls", "position")] {
        all.push(match engine {
            Engine::Sqlite => crate::tables::delete_sqlite(table, column, 3),
            Engine::Postgres => crate::tables::delete_postgres(table, column),
        });
    }
    all.extend(crate::rebuild::statements());
    all
}
