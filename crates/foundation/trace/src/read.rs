//! Events, blobs and views, out of the database.

use std::str::FromStr;

use formwork_protocols::{
    AttemptId, BlobHash, CallId, Event, EventBody, OutcomeCode, Position, Principal, RunId,
    RunState, SessionId, Span, StoreError, TaskId, TaskName, TaskState, Timestamp, Usage, Usd,
    WorkflowName,
    check::Phase,
    event::TOLD_ONE_BY_ONE,
    store::{AttemptRow, CallRow, CheckRow, RunRow, Selection, TaskRow},
};
use uuid::Uuid;

use crate::{
    changes::count,
    database::{Arg, Database, Engine, Row},
    pack::unpack,
};

/// The columns of an event, in the order in which [`Stored`] reads them.
macro_rules! event_columns {
    () => {
        "position, run, seq, task, principal, at, kind, data, idempotency_key, hash"
    };
}

pub(crate) const HEAD: &str = "SELECT COALESCE(MAX(position), 0) FROM events";
pub(crate) const PAGE: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM events WHERE position > $1 ORDER BY position LIMIT $2"
);
pub(crate) const PAGE_OF_RUN: &str = concat!(
    "SELECT ",
    event_columns!(),
    " FROM events WHERE run = $1 AND seq > $2 ORDER BY seq LIMIT $3"
);
pub(crate) const BLOB: &str = "SELECT bytes, form, size FROM blobs WHERE hash = $1";

macro_rules! run_columns {
    () => {
        "SELECT run, name, workspace, state, created, updated, code, reason, rounds, input, \
         cache_read, cache_write, output, reasoning, cost, events, (SELECT COUNT(*) FROM files \
         WHERE files.run = runs.run AND first_hash IS DISTINCT FROM last_hash) FROM runs "
    };
}

pub(crate) const RUNS: &str =
    concat!(run_columns!(), "WHERE run < $1 AND created IS NOT NULL ORDER BY run DESC LIMIT $2");
pub(crate) const RUN: &str = concat!(run_columns!(), "WHERE run = $1 AND created IS NOT NULL");
/// A quote within a text of JSON is escaped, so that no path looks like this.
pub(crate) const UNTOLD: &str = "SELECT position FROM events WHERE run = $1 AND kind = 'workspace.snapshot' \
    AND data LIKE '%\"untold\":%' LIMIT 1";
pub(crate) const TASKS: &str = "SELECT task, run, parent, name, body, state, ending, attempts, \
    input, cache_read, cache_write, output, reasoning, cost, started, ended FROM tasks \
    WHERE run = $1 AND position IS NOT NULL ORDER BY position";
pub(crate) const ATTEMPTS: &str = "SELECT attempt, task, number, started, ended, reason \
    FROM attempts WHERE task = $1 AND number IS NOT NULL ORDER BY number, attempt";
pub(crate) const CHECKS: &str = "SELECT task, phase, idx, at, verdict FROM checks \
    WHERE run = $1 ORDER BY position";
pub(crate) const CALLS: &str = "SELECT call, task, session, model, endpoint, input, cache_read, \
    cache_write, output, reasoning, estimated, cost, tries, elapsed, at FROM calls \
    WHERE run = $1 ORDER BY position";

/// An event as its row holds it.
pub(crate) struct Stored {
    pub(crate) position: i64,
    pub(crate) run: Uuid,
    pub(crate) seq: i64,
    pub(crate) task: Option<Uuid>,
    pub(crate) principal: String,
    pub(crate) at: i64,
    pub(crate) kind: String,
    pub(crate) data: String,
    pub(crate) key: Option<String>,
    pub(crate) hash: Vec<u8>,
}

impl Stored {
    pub(crate) fn of(row: &Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            position: row.int(0)?,
            run: row.id(1)?,
            seq: row.int(2)?,
            task: row.maybe_id(3)?,
            principal: row.text(4)?,
            at: row.int(5)?,
            kind: row.text(6)?,
            data: row.text(7)?,
            key: row.maybe_text(8)?,
            hash: row.bytes(9)?,
        })
    }

    /// Reads the row as an event.
    ///
    /// # Errors
    /// In words, what of it cannot be what was written.
    pub(crate) fn event(self) -> Result<Event, String> {
        let body = EventBody::parse(&self.kind, &self.data).map_err(|error| error.to_string())?;
        Ok(Event {
            position: Position(unsigned(self.position).ok_or("its position is negative")?),
            run: RunId::from_uuid(self.run),
            seq: unsigned(self.seq).ok_or("its place in the run is negative")?,
            task: self.task.map(TaskId::from_uuid),
            principal: Principal::parse(self.principal).map_err(|error| error.to_string())?,
            at: Timestamp::from_micros(self.at),
            body,
            idempotency_key: self.key,
            hash: hash(&self.hash).ok_or("its hash has not 32 bytes")?,
        })
    }
}

pub(crate) fn unsigned(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

pub(crate) fn hash(bytes: &[u8]) -> Option<BlobHash> {
    bytes.try_into().ok().map(BlobHash::from_bytes)
}

/// Reads a hash out of a column that may hold none.
pub(crate) fn hash_or_none(row: &Row, column: usize) -> Result<Option<BlobHash>, sqlx::Error> {
    Ok(row.maybe_bytes(column)?.and_then(|bytes| hash(&bytes)))
}

/// Returns the position of the last event.
pub(crate) async fn head(database: &Database) -> Result<u64, StoreError> {
    let rows = database.fetch(HEAD, vec![]).await?;
    let head = rows.first().map_or(Ok(0), |row| row.int(0));
    let head = head.map_err(|error| database.failed(&error))?;
    Ok(unsigned(head).unwrap_or(0))
}

/// Reads events of the whole store after a position.
pub(crate) async fn page(
    database: &Database,
    after: u64,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    events(database, PAGE, vec![count(after).into(), limit_of(limit)]).await
}

fn limit_of(limit: usize) -> Arg {
    i64::try_from(limit).unwrap_or(i64::MAX).into()
}

/// Writes the statement that reads a selection, with its arguments.
pub(crate) fn select(after: Position, selection: &Selection, limit: usize) -> (String, Vec<Arg>) {
    let mut args: Vec<Arg> = vec![count(after.0).into(), limit_of(limit)];
    let mut sql =
        String::from(concat!("SELECT ", event_columns!(), " FROM events WHERE position > $1"));
    let mut order = "position";
    if let (Some(run), Some(_)) = (selection.run, selection.task) {
        args.push(run.as_uuid().into());
        // A task has few of the events of its run: an expression keeps the index of runs from being taken instead of that
        // of tasks, or beside it.
        sql.push_str(&format!(" AND COALESCE(run, run) = ${}", args.len()));
    } else if let Some(run) = selection.run {
        args.push(run.as_uuid().into());
        let n = args.len();
        // The cursor is most often the run's own last event: the index then leads straight to it.
        sql.push_str(&format!(
            " AND run = ${n} AND seq > COALESCE((SELECT seq FROM events \
             WHERE position = $1 AND run = ${n}), 0)"
        ));
        order = "seq";
    }
    if let Some(task) = selection.task {
        args.push(task.as_uuid().into());
        sql.push_str(&format!(" AND task = ${}", args.len()));
    }
    let mut joint = " AND (";
    for kind in &selection.kinds {
        let characters = kind.chars().count();
        args.push(kind.as_str().into());
        sql.push_str(&format!("{joint}SUBSTR(kind, 1, {characters}) = ${}", args.len()));
        joint = " OR ";
    }
    if !selection.kinds.is_empty() {
        sql.push(')');
    }
    sql.push_str(&format!(" ORDER BY {order} LIMIT $2"));
    (sql, args)
}

/// Reads a selection of events.
pub(crate) async fn selection(
    database: &Database,
    after: Position,
    selection: &Selection,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    if selection == &Selection::default() {
        return page(database, after.0, limit).await;
    }
    let (sql, args) = select(after, selection, limit);
    events(database, sql, args).await
}

async fn events(
    database: &Database,
    sql: impl Into<std::borrow::Cow<'static, str>>,
    args: Vec<Arg>,
) -> Result<Vec<Event>, StoreError> {
    let rows = database.fetch(sql, args).await?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let stored = Stored::of(row).map_err(|error| database.failed(&error))?;
        let position = stored.position;
        events.push(stored.event().map_err(|reason| {
            database.corrupt(format!("event {position} cannot be read: {reason}"))
        })?);
    }
    Ok(events)
}

/// Returns the plain bytes under a hash, compared with it.
///
/// # Errors
/// The inner error says in words why what is stored cannot be what was written.
pub(crate) async fn blob(
    database: &Database,
    hash: &BlobHash,
) -> Result<Option<Result<Vec<u8>, String>>, StoreError> {
    let rows = database.fetch(BLOB, vec![hash.as_bytes().to_vec().into()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    plain(row, 0, hash).map(Some).map_err(|error| database.failed(&error))
}

/// Reads the plain bytes out of a row whose columns from `first` on are those of [`BLOB`].
pub(crate) fn plain(
    row: &Row,
    first: usize,
    hash: &BlobHash,
) -> Result<Result<Vec<u8>, String>, sqlx::Error> {
    let plain = unpack(row.int(first + 1)?, row.maybe_int(first + 2)?, row.bytes(first)?);
    Ok(plain.and_then(|bytes| match BlobHash::of(&bytes) == *hash {
        true => Ok(bytes),
        false => Err("its bytes were changed".to_owned()),
    }))
}

/// Reads a view and turns each row into what the seam shows.
async fn view<T>(
    database: &Database,
    sql: &'static str,
    args: Vec<Arg>,
    read: fn(&Row) -> Result<T, Unreadable>,
) -> Result<Vec<T>, StoreError> {
    let rows = database.fetch(sql, args).await?;
    rows.iter()
        .map(|row| {
            read(row).map_err(|error| match error {
                Unreadable::Column(error) => database.failed(&error),
                Unreadable::Value(text) => {
                    database.corrupt(format!("a view holds {text:?}; `db rebuild` makes it anew"))
                }
            })
        })
        .collect()
}

/// Why a row of a view cannot be shown.
enum Unreadable {
    Column(sqlx::Error),
    Value(String),
}

impl From<sqlx::Error> for Unreadable {
    fn from(error: sqlx::Error) -> Self {
        Self::Column(error)
    }
}

pub(crate) async fn runs(
    database: &Database,
    before: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunRow>, StoreError> {
    let before = before.map_or(Uuid::max(), |run| run.as_uuid());
    let args = vec![before.into(), limit_of(limit)];
    let mut runs = match database.engine {
        Engine::Sqlite => runs_at_once(database, args).await,
        Engine::Postgres => view(database, RUNS, args, run_row).await,
    }?;
    for run in &mut runs {
        run.more_files = has_untold(database, run).await?;
    }
    Ok(runs)
}

/// Tells whether more files of a run were changed than were told one by one: only one of which very many were told is asked
/// about.
async fn has_untold(database: &Database, run: &RunRow) -> Result<bool, StoreError> {
    if run.files_changed < TOLD_ONE_BY_ONE {
        return Ok(false);
    }
    Ok(!database.fetch(UNTOLD, vec![run.run.as_uuid().into()]).await?.is_empty())
}

/// The same in one row. A row of SQLite goes from its thread to that of the reader value by value, which takes three
/// times as long as finding it; a list of runs is the one view that may have thousands of rows.
pub(crate) const RUNS_AT_ONCE: &str = "SELECT json_group_array(json_array(hex(run), name, workspace, \
    state, created, updated, code, reason, rounds, input, cache_read, cache_write, output, reasoning, \
    cost, events, (SELECT COUNT(*) FROM files WHERE files.run = listed.run \
    AND first_hash IS DISTINCT FROM last_hash))) FROM (SELECT * FROM runs \
    WHERE run < $1 AND created IS NOT NULL ORDER BY run DESC LIMIT $2) listed";

/// A run as [`RUNS_AT_ONCE`] writes it, in the order of its columns.
#[derive(serde::Deserialize)]
struct Listed {
    run: Uuid,
    name: WorkflowName,
    workspace: String,
    state: String,
    created: i64,
    updated: i64,
    code: Option<OutcomeCode>,
    reason: Option<String>,
    rounds: i64,
    input: i64,
    cache_read: i64,
    cache_write: i64,
    output: i64,
    reasoning: i64,
    cost: i64,
    events: i64,
    files: i64,
}

async fn runs_at_once(database: &Database, args: Vec<Arg>) -> Result<Vec<RunRow>, StoreError> {
    let rows = database.fetch(RUNS_AT_ONCE, args).await?;
    let text = rows.first().map_or(Ok(String::new()), |row| row.text(0));
    let text = text.map_err(|error| database.failed(&error))?;
    let damaged =
        |what: String| database.corrupt(format!("a view holds {what}; `db rebuild` makes it anew"));
    let listed: Vec<Listed> =
        serde_json::from_str(&text).map_err(|error| damaged(format!("what is no run: {error}")))?;
    let count = |number: i64| unsigned(number).unwrap_or(0);
    let row = |listed: Listed| {
        let state = RunState::from_name(&listed.state);
        Ok(RunRow {
            run: RunId::from_uuid(listed.run),
            name: listed.name,
            workspace: listed.workspace,
            state: state.ok_or_else(|| damaged(format!("{:?}", listed.state)))?,
            created: Timestamp::from_micros(listed.created),
            updated: Timestamp::from_micros(listed.updated),
            code: listed.code,
            reason: listed.reason,
            rounds: small(listed.rounds),
            usage: Usage {
                input: count(listed.input),
                cache_read: count(listed.cache_read),
                cache_write: count(listed.cache_write),
                output: count(listed.output),
                reasoning: count(listed.reasoning),
            },
            cost: Usd::from_nanos(listed.cost),
            events: count(listed.events),
            files_changed: count(listed.files),
            more_files: false,
        })
    };
    let mut runs: Vec<RunRow> = listed.into_iter().map(row).collect::<Result<_, _>>()?;
    // What is gathered into one row has no order that is promised.
    runs.sort_unstable_by_key(|row| std::cmp::Reverse(row.run));
    Ok(runs)
}

pub(crate) async fn run(database: &Database, run: RunId) -> Result<Option<RunRow>, StoreError> {
    let mut run = view(database, RUN, vec![run.as_uuid().into()], run_row).await?.pop();
    if let Some(run) = &mut run {
        run.more_files = has_untold(database, run).await?;
    }
    Ok(run)
}

pub(crate) async fn tasks(database: &Database, run: RunId) -> Result<Vec<TaskRow>, StoreError> {
    view(database, TASKS, vec![run.as_uuid().into()], task_row).await
}

pub(crate) async fn attempts(
    database: &Database,
    task: TaskId,
) -> Result<Vec<AttemptRow>, StoreError> {
    view(database, ATTEMPTS, vec![task.as_uuid().into()], attempt_row).await
}

pub(crate) async fn checks(database: &Database, run: RunId) -> Result<Vec<CheckRow>, StoreError> {
    view(database, CHECKS, vec![run.as_uuid().into()], check_row).await
}

pub(crate) async fn calls(database: &Database, run: RunId) -> Result<Vec<CallRow>, StoreError> {
    view(database, CALLS, vec![run.as_uuid().into()], call_row).await
}

fn run_row(row: &Row) -> Result<RunRow, Unreadable> {
    Ok(RunRow {
        run: RunId::from_uuid(row.id(0)?),
        name: parsed::<WorkflowName>(&row.text(1)?)?,
        workspace: row.text(2)?,
        state: named(&row.text(3)?, RunState::from_name)?,
        created: Timestamp::from_micros(row.int(4)?),
        updated: Timestamp::from_micros(row.int(5)?),
        code: row
            .maybe_text(6)?
            .map(|code| json::<OutcomeCode>(&format!("\"{code}\"")))
            .transpose()?,
        reason: row.maybe_text(7)?,
        rounds: small(row.int(8)?),
        usage: usage(row, 9)?,
        cost: Usd::from_nanos(row.int(14)?),
        events: unsigned(row.int(15)?).unwrap_or(0),
        files_changed: unsigned(row.int(16)?).unwrap_or(0),
        more_files: false,
    })
}

fn task_row(row: &Row) -> Result<TaskRow, Unreadable> {
    Ok(TaskRow {
        task: TaskId::from_uuid(row.id(0)?),
        run: RunId::from_uuid(row.id(1)?),
        parent: row.maybe_id(2)?.map(TaskId::from_uuid),
        name: parsed::<TaskName>(&row.text(3)?)?,
        body: row.text(4)?,
        state: named(&row.text(5)?, TaskState::from_name)?,
        ending: row.maybe_text(6)?.map(|ending| json(&ending)).transpose()?,
        attempts: small(row.int(7)?),
        usage: usage(row, 8)?,
        cost: Usd::from_nanos(row.int(13)?),
        started: row.maybe_int(14)?.map(Timestamp::from_micros),
        ended: row.maybe_int(15)?.map(Timestamp::from_micros),
    })
}

fn attempt_row(row: &Row) -> Result<AttemptRow, Unreadable> {
    Ok(AttemptRow {
        attempt: AttemptId::from_uuid(row.id(0)?),
        task: TaskId::from_uuid(row.id(1)?),
        number: small(row.int(2)?),
        started: Timestamp::from_micros(row.int(3)?),
        ended: row.maybe_int(4)?.map(Timestamp::from_micros),
        reason: row.maybe_text(5)?,
    })
}

fn check_row(row: &Row) -> Result<CheckRow, Unreadable> {
    Ok(CheckRow {
        task: TaskId::from_uuid(row.id(0)?),
        phase: named(&row.text(1)?, |name| {
            Phase::ALL.into_iter().find(|phase| phase.as_str() == name)
        })?,
        index: small(row.int(2)?),
        at: Timestamp::from_micros(row.int(3)?),
        verdict: json(&row.text(4)?)?,
    })
}

fn call_row(row: &Row) -> Result<CallRow, Unreadable> {
    Ok(CallRow {
        call: CallId::from_uuid(row.id(0)?),
        task: TaskId::from_uuid(row.id(1)?),
        session: SessionId::from_uuid(row.id(2)?),
        model: row.text(3)?,
        endpoint: row.text(4)?,
        usage: usage(row, 5)?,
        usage_estimated: row.int(10)? != 0,
        cost: Usd::from_nanos(row.int(11)?),
        tries: small(row.int(12)?),
        elapsed: Span::from_micros(unsigned(row.int(13)?).unwrap_or(0)),
        at: Timestamp::from_micros(row.int(14)?),
    })
}

fn usage(row: &Row, first: usize) -> Result<Usage, Unreadable> {
    let tokens = |column| Ok::<_, Unreadable>(unsigned(row.int(first + column)?).unwrap_or(0));
    Ok(Usage {
        input: tokens(0)?,
        cache_read: tokens(1)?,
        cache_write: tokens(2)?,
        output: tokens(3)?,
        reasoning: tokens(4)?,
    })
}

fn parsed<T: FromStr>(text: &str) -> Result<T, Unreadable> {
    text.parse().map_err(|_| Unreadable::Value(text.to_owned()))
}

fn named<T>(name: &str, from_name: impl Fn(&str) -> Option<T>) -> Result<T, Unreadable> {
    from_name(name).ok_or_else(|| Unreadable::Value(name.to_owned()))
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|_| Unreadable::Value(text.to_owned()))
}

/// Returns a count that was stored from a `u32`, or summed up from many.
fn small(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(if number < 0 { 0 } else { u32::MAX })
}
