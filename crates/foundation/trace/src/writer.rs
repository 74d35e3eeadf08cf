//! The one task that writes: it commits at once whatever is queued, and the time of that commit is
//! what gathers the next batch.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use formwork_protocols::{
    BlobHash, Clock, Event, Position, RunId, Span, StoreError, Timestamp,
    event::{GENESIS, Link},
    store::{Lease, Recorded},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    changes::{Changes, count},
    database::{Arg, Connection, Database, Engine},
    error,
    feed::Feed,
    prepare::{Draft, Prepared},
    read,
    tables::{BLOBS, EVENTS, HEADS, Statements, VIEWS},
};

/// How many requests one commit takes at most.
const MOST: usize = 2048;

/// How many events `rebuild` holds at once.
const PAGE: i64 = 1000;

/// How many idempotency keys one statement asks for; SQLite joins at most 500 SELECTs.
const KEYS: usize = 32;

/// Begins a transaction of a process that shares a PostgreSQL.
///
/// Positions are taken under this lock and it is held until the commit, so that no position becomes
/// visible after a larger one: a reader's cursor never skips a late commit.
const BEGIN_POSTGRES: &str = "BEGIN; SELECT pg_advisory_xact_lock(77310411014146)";
const BEGIN_SQLITE: &str = "BEGIN IMMEDIATE";

pub(crate) const LEASE: &str = "SELECT owner, token, held_until FROM heads WHERE run = $1";
pub(crate) const TAKE: &str = "INSERT INTO heads (run, hash, owner, token, held_until) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (run) DO UPDATE SET owner = excluded.owner, \
    token = excluded.token, held_until = excluded.held_until";
pub(crate) const RELEASE: &str =
    "UPDATE heads SET owner = NULL, held_until = 0 WHERE run = $1 AND token = $2 AND owner = $3";

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer is asked.
pub(crate) enum Command {
    Append(Prepared, Reply<Vec<Recorded>>),
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
    Rebuild(Reply<()>),
    /// Finishes what is queued and ends.
    Close,
}

/// The writer's state. It ends when every sender is gone.
pub(crate) struct Writer {
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) database: Database,
    pub(crate) feed: Arc<Feed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) statements: Statements,
    /// Kept between commits; none before the first and after a failure.
    pub(crate) connection: Option<Connection>,
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

impl Writer {
    /// Serves until it is closed or nobody can ask any more.
    pub(crate) async fn run(mut self) {
        let mut queue = Vec::with_capacity(MOST);
        while self.commands.recv_many(&mut queue, MOST).await > 0 {
            let mut appends = Vec::new();
            for command in queue.drain(..) {
                match command {
                    Command::Append(append, reply) => appends.push((append, reply)),
                    Command::Close => self.commands.close(),
                    other => {
                        self.record(mem::take(&mut appends)).await;
                        self.serve(other).await;
                    }
                }
            }
            self.record(appends).await;
        }
    }

    async fn serve(&mut self, command: Command) {
        // Whoever asked may have gone: then the answer is nobody's.
        match command {
            Command::Acquire { run, owner, span, gone, reply } => {
                let _ = reply.send(self.acquire(run, owner, span, gone.as_deref()).await);
            }
            Command::Renew { lease, span, reply } => {
                let _ = reply.send(self.renew(lease, span).await);
            }
            Command::Release { lease, reply } => {
                let _ = reply.send(self.release(&lease).await);
            }
            Command::Rebuild(reply) => {
                let _ = reply.send(self.rebuild().await);
            }
            Command::Append(..) | Command::Close => {}
        }
    }

    /// Records appends in one transaction, and answers each.
    async fn record(&mut self, appends: Vec<(Prepared, Reply<Vec<Recorded>>)>) {
        if appends.is_empty() {
            return;
        }
        let (mut drafts, replies): (Vec<_>, Vec<_>) = appends.into_iter().unzip();
        match self.write(&mut drafts).await {
            Ok((answers, events)) => {
                for (answer, reply) in answers.into_iter().zip(replies) {
                    let _ = reply.send(answer);
                }
                self.feed.committed(events);
            }
            // One that cannot be written must not take the others with it.
            Err(Failure::Database(error))
                if drafts.len() > 1 && error::is_about_the_data(&error) =>
            {
                for (draft, reply) in drafts.into_iter().zip(replies) {
                    match self.write(&mut [draft]).await {
                        Ok((answers, events)) => {
                            let answer = answers.into_iter().next();
                            let _ = reply.send(answer.unwrap_or(Err(StoreError::Closed)));
                            self.feed.committed(events);
                        }
                        Err(failure) => {
                            let _ = reply.send(Err(self.explain(failure)));
                        }
                    }
                }
            }
            Err(Failure::Database(error)) => {
                for reply in replies {
                    let _ = reply.send(Err(self.database.failed(&error)));
                }
            }
            Err(Failure::Store(error)) => {
                let detail = error.to_string();
                for reply in replies {
                    let _ = reply.send(Err(self.database.corrupt(detail.clone())));
                }
            }
        }
    }

    fn explain(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Database(error) => self.database.failed(&error),
            Failure::Store(error) => error,
        }
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
        mut connection: Connection,
        done: Result<T, Failure>,
    ) -> Result<T, Failure> {
        let ended = match done {
            Ok(value) => match connection.execute("COMMIT", vec![]).await {
                Ok(_) => Ok(value),
                Err(error) => Err(error.into()),
            },
            Err(failure) => Err(failure),
        };
        // SQLite has undone the transaction by itself after some failures; then this one fails too.
        if ended.is_err() && connection.execute("ROLLBACK", vec![]).await.is_err() {
            connection.forsake();
        } else if !self.database.single {
            self.connection = Some(connection);
        }
        ended
    }

    async fn write(
        &mut self,
        appends: &mut [Prepared],
    ) -> Result<(Vec<Result<Vec<Recorded>, StoreError>>, Vec<Event>), Failure> {
        let mut connection = self.begin().await?;
        let done = self.write_in(&mut connection, appends).await;
        self.end(connection, done).await
    }

    async fn write_in(
        &self,
        connection: &mut Connection,
        appends: &[Prepared],
    ) -> Result<(Vec<Result<Vec<Recorded>, StoreError>>, Vec<Event>), Failure> {
        let mut plan = Plan {
            at: &self.database.at,
            now: self.clock.now(),
            heads: BTreeMap::new(),
            known: HashMap::new(),
            top: 0,
            rows: Vec::new(),
            events: Vec::new(),
            blobs: BTreeMap::new(),
        };
        plan.load(connection, appends).await?;
        let answers: Vec<_> = appends.iter().map(|append| plan.place(append)).collect();

        let Plan { heads, rows, events, blobs, .. } = plan;
        let blobs = blobs
            .into_iter()
            .map(|(hash, bytes)| vec![hash.as_bytes().to_vec().into(), bytes.to_vec().into()])
            .collect();
        self.statements.insert(connection, &BLOBS, blobs).await?;
        if !rows.is_empty() {
            let touched: BTreeSet<RunId> = events.iter().map(|event| event.run).collect();
            let heads = heads
                .into_iter()
                .filter(|(run, _)| touched.contains(run))
                .map(|(run, head)| {
                    vec![
                        run.as_uuid().into(),
                        count(head.seq).into(),
                        head.hash.as_bytes().to_vec().into(),
                    ]
                })
                .collect();
            let mut changes = Changes::default();
            for event in &events {
                changes.take(event).map_err(|error| {
                    self.database.corrupt(format!("a view cannot hold an event: {error}"))
                })?;
            }
            self.statements.insert(connection, &EVENTS, rows).await?;
            self.statements.insert(connection, &HEADS, heads).await?;
            changes.apply(connection, &self.statements).await?;
        }
        Ok((answers, events))
    }

    async fn acquire(
        &mut self,
        run: RunId,
        owner: String,
        span: Span,
        gone: Option<&str>,
    ) -> Result<Lease, StoreError> {
        let now = self.clock.now();
        self.with_lease(run, async |connection, held| {
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
        let now = self.clock.now();
        self.with_lease(lease.run, async |connection, held| {
            // A lease that lapsed and that nobody took since is still the newest one.
            if held.token != lease.token || held.owner.as_deref() != Some(lease.owner.as_str()) {
                let owner = held.owner.unwrap_or_else(|| NOBODY.to_owned());
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
        act: impl AsyncFnOnce(&mut Connection, Held) -> Result<Lease, Failure>,
    ) -> Result<Lease, StoreError> {
        let mut connection = match self.begin().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.database.failed(&error)),
        };
        let done = match held(&mut connection, run).await {
            Ok(held) => act(&mut connection, held).await,
            Err(error) => Err(error.into()),
        };
        self.end(connection, done).await.map_err(|failure| self.explain(failure))
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
        self.end(connection, done).await.map_err(|failure| self.explain(failure))
    }

    /// Makes every view anew, in one transaction.
    async fn rebuild(&mut self) -> Result<(), StoreError> {
        let mut connection = match self.begin().await {
            Ok(connection) => connection,
            Err(error) => return Err(self.database.failed(&error)),
        };
        let done = self.rebuild_in(&mut connection).await;
        self.end(connection, done).await.map_err(|failure| self.explain(failure))
    }

    async fn rebuild_in(&self, connection: &mut Connection) -> Result<(), Failure> {
        for table in VIEWS {
            connection.execute(format!("DELETE FROM {}", table.name), vec![]).await?;
        }
        let mut after = 0;
        loop {
            let rows = connection.fetch(read::PAGE, vec![after.into(), PAGE.into()]).await?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut changes = Changes::default();
            for row in &rows {
                let stored = read::Stored::of(row)?;
                after = stored.position;
                let unreadable = |reason: String| {
                    self.database.corrupt(format!("event {after} cannot be read: {reason}"))
                };
                let event = stored.event().map_err(unreadable)?;
                changes.take(&event).map_err(|error| unreadable(error.to_string()))?;
            }
            changes.apply(connection, &self.statements).await?;
        }
    }
}

/// Who is named where a lease lapsed or was given back.
const NOBODY: &str = "nobody";

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

/// The lease of a run, as it is stored.
struct Held {
    owner: Option<String>,
    token: u64,
    until: Timestamp,
}

impl Held {
    /// Returns who owns the run now.
    fn owner_at(&self, now: Timestamp) -> Option<&str> {
        self.owner.as_deref().filter(|_| self.until > now)
    }
}

async fn held(connection: &mut Connection, run: RunId) -> Result<Held, sqlx::Error> {
    let rows = connection.fetch(LEASE, vec![run.as_uuid().into()]).await?;
    match rows.first() {
        None => Ok(Held { owner: None, token: 0, until: Timestamp::default() }),
        Some(row) => Ok(Held {
            owner: row.maybe_text(0)?,
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

/// Where the appends of one transaction go.
struct Plan<'a> {
    at: &'a str,
    now: Timestamp,
    heads: BTreeMap<RunId, Head>,
    /// What was recorded under a key, in the store or in this batch.
    known: HashMap<(RunId, String), Recorded>,
    top: u64,
    rows: Vec<Vec<Arg>>,
    events: Vec<Event>,
    blobs: BTreeMap<BlobHash, &'a [u8]>,
}

struct Head {
    seq: u64,
    hash: BlobHash,
    held: Held,
}

/// Writes the statement that reads the heads of `runs` runs, and the last position beside each.
pub(crate) fn heads_of(runs: usize) -> String {
    let places: Vec<_> = (1..=runs).map(|n| format!("${n}")).collect();
    format!(
        "SELECT p.top, h.run, h.seq, h.hash, h.owner, h.token, h.held_until \
         FROM (SELECT COALESCE(MAX(position), 0) AS top FROM events) p \
         LEFT JOIN heads h ON h.run IN ({})",
        places.join(", ")
    )
}

/// Writes the statement that looks up `keys` idempotency keys.
pub(crate) fn known_of(keys: usize) -> String {
    let selects: Vec<_> = (0..keys)
        .map(|n| {
            format!(
                "SELECT run, idempotency_key, position, seq, hash FROM events \
                 WHERE run = ${} AND idempotency_key = ${}",
                2 * n + 1,
                2 * n + 2
            )
        })
        .collect();
    selects.join(" UNION ALL ")
}

impl<'a> Plan<'a> {
    async fn load(
        &mut self,
        connection: &mut Connection,
        appends: &'a [Prepared],
    ) -> Result<(), Failure> {
        let runs: BTreeSet<RunId> = appends.iter().map(|append| append.run).collect();
        let mut ids: Vec<Arg> = runs.iter().map(|run| run.as_uuid().into()).collect();
        pad(&mut ids, 1);
        for row in connection.fetch(heads_of(ids.len()), ids).await? {
            self.top = read::unsigned(row.int(0)?).unwrap_or(0);
            let Some(run) = row.maybe_id(1)? else { continue };
            let hash = read::hash(&row.bytes(3)?).ok_or_else(|| StoreError::Corrupt {
                at: self.at.to_owned(),
                detail: format!("the head of run {run} has no whole hash"),
            })?;
            let held = Held {
                owner: row.maybe_text(4)?,
                token: read::unsigned(row.int(5)?).unwrap_or(0),
                until: Timestamp::from_micros(row.int(6)?),
            };
            let seq = read::unsigned(row.int(2)?).unwrap_or(0);
            self.heads.insert(RunId::from_uuid(run), Head { seq, hash, held });
        }
        let keys: BTreeSet<(RunId, &str)> = appends
            .iter()
            .flat_map(|append| append.events.iter().map(|event| (append.run, &event.key)))
            .filter_map(|(run, key)| key.as_deref().map(|key| (run, key)))
            .collect();
        let keys: Vec<_> = keys.into_iter().collect();
        for keys in keys.chunks(KEYS) {
            let mut args = Vec::new();
            for (run, key) in keys {
                args.extend([run.as_uuid().into(), (*key).into()]);
            }
            pad(&mut args, 2);
            for row in connection.fetch(known_of(args.len() / 2), args).await? {
                let recorded = Recorded {
                    position: Position(read::unsigned(row.int(2)?).unwrap_or(0)),
                    seq: read::unsigned(row.int(3)?).unwrap_or(0),
                    hash: read::hash(&row.bytes(4)?).unwrap_or(GENESIS),
                    duplicate: true,
                };
                self.known.insert((RunId::from_uuid(row.id(0)?), row.text(1)?), recorded);
            }
        }
        Ok(())
    }

    /// Gives an append its place, or refuses the whole of it.
    fn place(&mut self, append: &'a Prepared) -> Result<Vec<Recorded>, StoreError> {
        let head = self.heads.entry(append.run).or_insert_with(|| Head {
            seq: 0,
            hash: GENESIS,
            held: Held { owner: None, token: 0, until: Timestamp::default() },
        });
        may_write(append, &head.held, self.now)?;
        for blob in &append.blobs {
            self.blobs.insert(blob.hash(), blob.bytes());
        }
        let mut recorded = Vec::with_capacity(append.events.len());
        for draft in &append.events {
            if let Some(key) = &draft.key
                && let Some(first) = self.known.get(&(append.run, key.clone()))
            {
                recorded.push(*first);
                continue;
            }
            head.seq += 1;
            self.top += 1;
            let link = link(append.run, head.seq, draft);
            head.hash = link.hash(&head.hash);
            let event = event(append.run, head, self.top, draft);
            self.rows.push(row(&event, &draft.data));
            let place = Recorded {
                position: event.position,
                seq: event.seq,
                hash: event.hash,
                duplicate: false,
            };
            if let Some(key) = &draft.key {
                let again = Recorded { duplicate: true, ..place };
                self.known.insert((append.run, key.clone()), again);
            }
            self.events.push(event);
            recorded.push(place);
        }
        Ok(recorded)
    }
}

/// Checks the token of an append against the run's present lease. What somebody asks of a run needs none.
fn may_write(append: &Prepared, held: &Held, now: Timestamp) -> Result<(), StoreError> {
    let owner = held.owner_at(now);
    let asks = || {
        !append.events.is_empty() && append.events.iter().all(|event| !event.body.needs_lease())
    };
    let allowed = match append.token {
        Some(token) => owner.is_some() && token == held.token,
        None => owner.is_none() || asks(),
    };
    if allowed {
        return Ok(());
    }
    Err(StoreError::NotOwner { run: append.run, owner: owner.unwrap_or(NOBODY).to_owned() })
}

/// Repeats the last `width` arguments until their groups are a power of two, so that few
/// statements serve every number of them.
fn pad(args: &mut Vec<Arg>, width: usize) {
    let wanted = (args.len() / width).next_power_of_two() * width;
    while args.len() < wanted {
        let Some(from) = args.len().checked_sub(width) else { return };
        args.extend_from_within(from..);
    }
}

fn link(run: RunId, seq: u64, draft: &Draft) -> Link<'_> {
    Link {
        run,
        seq,
        task: draft.task,
        principal: draft.principal.as_str(),
        at: draft.at,
        kind: draft.body.kind(),
        data: &draft.data,
        idempotency_key: draft.key.as_deref(),
    }
}

fn event(run: RunId, head: &Head, position: u64, draft: &Draft) -> Event {
    Event {
        position: Position(position),
        run,
        seq: head.seq,
        task: draft.task,
        principal: draft.principal.clone(),
        at: draft.at,
        body: draft.body.clone(),
        idempotency_key: draft.key.clone(),
        hash: head.hash,
    }
}

fn row(event: &Event, data: &str) -> Vec<Arg> {
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
pub(crate) fn statements() -> Vec<String> {
    let mut all: Vec<String> = [LEASE, TAKE, RELEASE].into_iter().map(str::to_owned).collect();
    for n in [1, 2, 4, 32] {
        all.extend([heads_of(n), known_of(n)]);
    }
    let tables: [&crate::tables::Table; 3] = [&EVENTS, &BLOBS, &HEADS];
    for table in tables.into_iter().chain(VIEWS) {
        all.extend([table.insert(1), table.insert(crate::tables::ROWS)]);
    }
    for table in VIEWS {
        all.push(format!("DELETE FROM {}", table.name));
    }
    all
}
