//! How rows of each table are inserted, many in one statement, and merged with what is there.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use crate::database::{Arg, Columns, Connection};

/// How many rows of a table one statement of SQLite takes at most. A larger one gains nothing more, and
/// costs the memory of each statement that is kept prepared.
pub(crate) const ROWS: usize = 128;

/// What becomes of a column when the row is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// It names the row.
    Key,
    /// What is there stays.
    Keep,
    /// The new value, where there is one.
    Latest,
    /// What is there, where there is something.
    First,
    /// The sum, at most the largest number. Neither is negative.
    Sum,
    /// The larger one.
    Most,
    /// The new value, even where it is none.
    Replace,
}

use Merge::{First, Keep, Key, Latest, Most, Replace, Sum};

/// A table and how its rows merge.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    columns: &'static [(&'static str, Merge)],
}

pub(crate) const EVENTS: Table = Table {
    name: "events",
    columns: &[
        ("position", Keep),
        ("run", Keep),
        ("seq", Keep),
        ("task", Keep),
        ("principal", Keep),
        ("at", Keep),
        ("kind", Keep),
        ("data", Keep),
        ("idempotency_key", Keep),
        ("hash", Keep),
    ],
};

/// Events that wait to be put into the log.
pub(crate) const ARRIVING: Table = Table { name: "arriving", ..EVENTS };

pub(crate) const BLOBS: Table = Table {
    name: "blobs",
    columns: &[("hash", Key), ("bytes", Keep), ("form", Keep), ("size", Keep)],
};

pub(crate) const HEADS: Table =
    Table { name: "heads", columns: &[("run", Key), ("seq", Latest), ("hash", Latest)] };

pub(crate) const RUNS: Table = Table {
    name: "runs",
    columns: &[
        ("run", Key),
        ("name", First),
        ("workspace", First),
        ("state", Latest),
        ("created", First),
        ("updated", Most),
        ("code", Latest),
        ("reason", Latest),
        ("rounds", Sum),
        ("input", Sum),
        ("cache_read", Sum),
        ("cache_write", Sum),
        ("output", Sum),
        ("reasoning", Sum),
        ("cost", Sum),
        ("events", Sum),
    ],
};

pub(crate) const TASKS: Table = Table {
    name: "tasks",
    columns: &[
        ("task", Key),
        ("run", First),
        ("position", First),
        ("parent", First),
        ("name", First),
        ("body", First),
        ("state", Latest),
        ("ending", Latest),
        ("attempts", Most),
        ("input", Sum),
        ("cache_read", Sum),
        ("cache_write", Sum),
        ("output", Sum),
        ("reasoning", Sum),
        ("cost", Sum),
        ("started", First),
        ("ended", Latest),
    ],
};

pub(crate) const ATTEMPTS: Table = Table {
    name: "attempts",
    columns: &[
        ("attempt", Key),
        ("task", First),
        ("number", First),
        ("started", First),
        ("ended", Latest),
        ("reason", Latest),
    ],
};

pub(crate) const CHECKS: Table = Table {
    name: "checks",
    columns: &[
        ("position", Keep),
        ("run", Keep),
        ("task", Keep),
        ("phase", Keep),
        ("idx", Keep),
        ("at", Keep),
        ("verdict", Keep),
    ],
};

pub(crate) const CALLS: Table = Table {
    name: "calls",
    columns: &[
        ("position", Keep),
        ("run", Keep),
        ("call", Keep),
        ("task", Keep),
        ("session", Keep),
        ("model", Keep),
        ("endpoint", Keep),
        ("input", Keep),
        ("cache_read", Keep),
        ("cache_write", Keep),
        ("output", Keep),
        ("reasoning", Keep),
        ("estimated", Keep),
        ("cost", Keep),
        ("tries", Keep),
        ("elapsed", Keep),
        ("at", Keep),
    ],
};

pub(crate) const FILES: Table = Table {
    name: "files",
    columns: &[
        ("run", Key),
        ("path", Key),
        ("first_hash", Keep),
        ("last_hash", Replace),
        ("added", Sum),
        ("removed", Sum),
    ],
};

/// The tables that are made from the log, and can be made again.
#[cfg(test)]
pub(crate) const VIEWS: [&Table; 6] = [&RUNS, &TASKS, &ATTEMPTS, &CHECKS, &CALLS, &FILES];

/// A column's type, as PostgreSQL calls a list of it.
fn list_of(column: &str) -> &'static str {
    match column {
        "run" | "task" | "parent" | "attempt" | "call" | "session" => "UUID[]",
        "hash" | "bytes" | "first_hash" | "last_hash" => "BYTEA[]",
        "principal" | "kind" | "data" | "idempotency_key" | "name" | "workspace" | "state"
        | "code" | "reason" | "body" | "ending" | "phase" | "verdict" | "model" | "endpoint"
        | "path" => "TEXT[]",
        _ => "BIGINT[]",
    }
}

/// Returns for how many rows a statement of SQLite is written that takes `rows` of them: one of few
/// numbers, so that few statements have to be kept prepared, and never a half more than is needed.
pub(crate) fn room(rows: usize) -> usize {
    let power = rows.next_power_of_two();
    match power / 4 * 3 {
        less if less >= rows => less,
        _ => power,
    }
}

impl Table {
    /// Writes the statement of SQLite that inserts up to `room` rows.
    ///
    /// Rows that are left over have no first column, and are passed over. Parameters are written `?`: the
    /// name of a numbered one would be looked up in the list of all, for each of them.
    pub(crate) fn insert_sqlite(&self, room: usize, guard: &str) -> String {
        let mut sql =
            format!("INSERT INTO {} ({}) SELECT * FROM (VALUES ", self.name, self.names());
        let row = format!("({})", vec!["?"; self.width()].join(", "));
        sql.push_str(&vec![row.as_str(); room].join(", "));
        sql.push_str(") WHERE column1 IS NOT NULL");
        sql.push_str(guard);
        self.merge(sql)
    }

    /// Writes the statement of PostgreSQL that inserts rows whose columns are given as lists.
    pub(crate) fn insert_postgres(&self) -> String {
        let lists: Vec<_> = (self.columns.iter().enumerate())
            .map(|(at, (name, _))| format!("${}::{}", at + 1, list_of(name)))
            .collect();
        let lists = lists.join(", ");
        self.merge(format!(
            "INSERT INTO {} ({}) SELECT * FROM unnest({lists})",
            self.name,
            self.names()
        ))
    }

    /// Returns how many columns a row has.
    pub(crate) const fn width(&self) -> usize {
        self.columns.len()
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// Adds what becomes of a row that is there already.
    fn merge(&self, mut sql: String) -> String {
        let keys: Vec<_> = self.named(|merge| merge == Key).collect();
        if keys.is_empty() {
            return sql;
        }
        let merged: Vec<_> =
            self.columns.iter().filter_map(|(name, merge)| self.merged(name, *merge)).collect();
        let _ = write!(sql, " ON CONFLICT ({}) DO ", keys.join(", "));
        if merged.is_empty() {
            sql.push_str("NOTHING");
        } else {
            let _ = write!(sql, "UPDATE SET {}", merged.join(", "));
        }
        sql
    }

    /// Lists the columns that hold the rows' contents.
    #[cfg(test)]
    pub(crate) fn column_names(&self) -> Vec<&'static str> {
        self.named(|_| true).collect()
    }

    fn named(&self, wanted: fn(Merge) -> bool) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter(move |(_, merge)| wanted(*merge)).map(|(name, _)| *name)
    }

    fn merged(&self, column: &str, merge: Merge) -> Option<String> {
        let (old, new) = (format!("{}.{column}", self.name), format!("excluded.{column}"));
        match merge {
            Key | Keep => None,
            Latest => Some(format!("{column} = COALESCE({new}, {old})")),
            First => Some(format!("{column} = COALESCE({old}, {new})")),
            Replace => Some(format!("{column} = {new}")),
            Most => Some(format!("{column} = CASE WHEN {new} > {old} THEN {new} ELSE {old} END")),
            Sum => Some(format!(
                "{column} = CASE WHEN {old} > {most} - {new} THEN {most} ELSE {old} + {new} END",
                most = i64::MAX
            )),
        }
    }
}

/// Writes the statement of SQLite that removes up to `room` rows; none is named by a null.
pub(crate) fn delete_sqlite(table: &str, column: &str, room: usize) -> String {
    format!("DELETE FROM {table} WHERE {column} IN ({})", vec!["?"; room].join(", "))
}

/// Writes the statement of PostgreSQL that removes the rows that a list names.
pub(crate) fn delete_postgres(table: &str, column: &str) -> String {
    format!("DELETE FROM {table} WHERE {column} = ANY($1::{})", list_of(column))
}

/// Rows of one table, one after another.
pub(crate) struct Rows {
    pub(crate) table: &'static Table,
    pub(crate) args: Vec<Arg>,
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.args.len() / self.table.width()
    }
}

/// The lock under which a process that shares a PostgreSQL writes, held until its transaction ends.
macro_rules! lock_postgres {
    () => {
        "pg_advisory_xact_lock(77310411014146)"
    };
}
pub(crate) use lock_postgres;

/// What one statement of SQLite holds besides rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    /// Nothing.
    Bare,
    /// The end of the transaction.
    Commit,
    /// The whole transaction, which goes on only if no other connection has written since a version.
    Whole,
}

impl Frame {
    /// Returns how many statements it adds to those that insert rows.
    const fn statements(self) -> usize {
        match self {
            Self::Bare => 0,
            Self::Commit => 1,
            Self::Whole => 2,
        }
    }
}

/// Fails unless the version is the given one: SQLite has no other way to leave a script than an error. It
/// is part of the first insert, because the answer to each statement of a script wakes who waits for all.
pub(crate) const GUARD: &str = " AND abs(-9223372036854775807 - \
    ((SELECT data_version FROM pragma_data_version) <> ?)) > 0";

/// The name of a text: its frame, and each table with the room for its rows.
type Shape = (Frame, Vec<(&'static str, usize)>);

/// How many texts are kept.
const TEXTS: usize = 1024;

/// The texts of the statements, each written once.
#[derive(Default)]
pub(crate) struct Statements {
    texts: Mutex<HashMap<Shape, Arc<str>>>,
}

impl Statements {
    /// Inserts rows, merging them with those that are there.
    pub(crate) async fn insert(
        &self,
        connection: &mut Connection,
        table: &'static Table,
        rows: Vec<Vec<Arg>>,
    ) -> Result<(), sqlx::Error> {
        let args = rows.into_iter().flatten().collect();
        self.insert_all(connection, vec![Rows { table, args }]).await
    }

    /// Inserts rows of several tables, in their order.
    pub(crate) async fn insert_all(
        &self,
        connection: &mut Connection,
        all: Vec<Rows>,
    ) -> Result<(), sqlx::Error> {
        for rows in all {
            let width = rows.table.width();
            if let Connection::Postgres(_) = connection {
                if !rows.args.is_empty() {
                    let shape = (Frame::Bare, vec![(rows.table.name, 0)]);
                    let text = self.text(shape, || rows.table.insert_postgres());
                    let columns = [Columns { width, rows: &rows.args }];
                    connection.execute_columns(text, &columns).await?;
                }
                continue;
            }
            let mut args = rows.args.into_iter().peekable();
            while args.peek().is_some() {
                let part = args.by_ref().take(ROWS * width).collect();
                self.run_bare(connection, Rows { table: rows.table, args: part }).await?;
            }
        }
        Ok(())
    }

    /// Removes from a table what rows of this or another one name first, by the name that it has there.
    pub(crate) async fn delete(
        &self,
        connection: &mut Connection,
        from: &'static str,
        rows: &Rows,
    ) -> Result<(), sqlx::Error> {
        let width = rows.table.width();
        let keys: Vec<Arg> = rows.args.iter().step_by(width.max(1)).cloned().collect();
        let Some((column, _)) = rows.table.columns.first() else { return Ok(()) };
        if let Connection::Postgres(_) = connection {
            if !keys.is_empty() {
                let text = delete_postgres(from, column);
                let columns = [Columns { width: 1, rows: &keys }];
                connection.execute_columns(Arc::from(text), &columns).await?;
            }
            return Ok(());
        }
        for part in keys.chunks(ROWS) {
            let room = room(part.len());
            let left = std::iter::repeat_n(Arg::Int(None), room - part.len());
            let args = part.iter().cloned().chain(left).collect();
            connection.execute(delete_sqlite(from, column, room), args).await?;
        }
        Ok(())
    }

    /// Runs one script of SQLite with up to [`ROWS`] rows of each table, which ends with the transaction.
    pub(crate) async fn run(
        &self,
        connection: &mut Connection,
        frame: Frame,
        version: Option<i64>,
        all: Vec<Rows>,
        committing: Option<&Notify>,
    ) -> Result<(), sqlx::Error> {
        let (text, args, statements) = self.script_of(frame, version, all);
        connection.commit(text, args, statements, committing).await
    }

    /// Runs one statement of SQLite with up to [`ROWS`] rows.
    async fn run_bare(&self, connection: &mut Connection, rows: Rows) -> Result<(), sqlx::Error> {
        let (text, args, _) = self.script_of(Frame::Bare, None, vec![rows]);
        connection.execute_shared(text, args).await.map(drop)
    }

    /// Returns the text of a script, its arguments, and of how many statements it is.
    fn script_of(
        &self,
        frame: Frame,
        version: Option<i64>,
        all: Vec<Rows>,
    ) -> (Arc<str>, Vec<Arg>, usize) {
        let rooms = all.iter().filter(|rows| rows.len() > 0);
        let rooms: Vec<_> = rooms.map(|rows| (rows.table.name, room(rows.len()))).collect();
        let statements = rooms.len() + frame.statements();
        let text = self.text((frame, rooms), || {
            let tables = all.iter().filter(|rows| rows.len() > 0);
            script(frame, tables.map(|rows| (rows.table, room(rows.len()))))
        });
        let mut args = Vec::new();
        let mut version = version.map(Arg::from);
        for rows in all.into_iter().filter(|rows| rows.len() > 0) {
            let whole = room(rows.len()) * rows.table.width();
            let left = whole - rows.args.len();
            args.extend(rows.args);
            args.extend(std::iter::repeat_n(Arg::Int(None), left));
            args.extend(version.take());
        }
        (text, args, statements)
    }

    /// Runs one statement of PostgreSQL that is a transaction of its own, with all rows of all tables.
    ///
    /// It fails unless the runs' leases are still those of `held`, in the order of the heads' rows.
    pub(crate) async fn run_postgres(
        &self,
        connection: &mut Connection,
        all: Vec<Rows>,
        held: Vec<[Arg; 3]>,
    ) -> Result<(), sqlx::Error> {
        let tables: Vec<_> = all.iter().map(|rows| rows.table).collect();
        let shape = tables.iter().map(|table| (table.name, 0)).collect();
        let text = self.text((Frame::Whole, shape), || all_of_postgres(&tables));
        let held: Vec<Arg> = held.into_iter().flatten().collect();
        let mut columns: Vec<_> = (all.iter())
            .map(|rows| Columns { width: rows.table.width(), rows: &rows.args })
            .collect();
        columns.push(Columns { width: 3, rows: &held });
        connection.execute_columns(text, &columns).await.map(drop)
    }

    fn text(&self, shape: Shape, write: impl FnOnce() -> String) -> Arc<str> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = texts.get(&shape) {
            return Arc::clone(text);
        }
        if texts.len() >= TEXTS {
            texts.clear();
        }
        let text: Arc<str> = Arc::from(write());
        texts.insert(shape, Arc::clone(&text));
        text
    }
}

/// Writes the statement of PostgreSQL that is a whole transaction: rows of several tables, the heads among
/// them or not, under the lock of those who write.
pub(crate) fn all_of_postgres(tables: &[&Table]) -> String {
    let mut place = 0;
    let mut list = |name: &str| {
        place += 1;
        format!("${place}::{}", list_of(name))
    };
    let mut parts =
        vec![concat!("lock AS MATERIALIZED (SELECT ", lock_postgres!(), ")").to_owned()];
    let mut heads = None;
    for table in tables {
        let lists: Vec<_> = table.columns.iter().map(|(name, _)| list(name)).collect();
        if table.name == HEADS.name {
            heads = Some(lists.join(", "));
            continue;
        }
        let insert = format!(
            "INSERT INTO {} ({}) SELECT u.* FROM lock, unnest({}) u",
            table.name,
            table.names(),
            lists.join(", ")
        );
        parts.push(format!("of_{} AS ({})", table.name, table.merge(insert)));
    }
    let Some(heads) = heads else { return format!("WITH {} SELECT 1", parts.join(", ")) };
    let [owner, token, until] = ["name", "token", "held_until"].map(list);
    parts.push(format!(
        "moved AS (INSERT INTO heads (run, seq, hash, owner, token, held_until) \
         SELECT u.* FROM lock, unnest({heads}, {owner}, {token}, {until}) u \
         ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, hash = excluded.hash \
         WHERE heads.token = excluded.token AND heads.held_until = excluded.held_until \
         AND heads.owner IS NOT DISTINCT FROM excluded.owner RETURNING 1)"
    ));
    // To divide by nothing is how a statement gives up all that it did.
    format!(
        "WITH {} SELECT 1 / (SELECT CASE WHEN COUNT(*) = cardinality({token}) THEN 1 ELSE 0 END \
         FROM moved)",
        parts.join(", ")
    )
}

/// Writes the statements that insert into tables with so much room, in their frame.
pub(crate) fn script(
    frame: Frame,
    tables: impl Iterator<Item = (&'static Table, usize)>,
) -> String {
    let mut all = Vec::new();
    let mut guard = "";
    if frame == Frame::Whole {
        all.push("BEGIN IMMEDIATE".to_owned());
        guard = GUARD;
    }
    for (table, room) in tables {
        all.push(table.insert_sqlite(room, std::mem::take(&mut guard)));
    }
    if frame != Frame::Bare {
        all.push("COMMIT".to_owned());
    }
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_room_for_its_rows_and_little_more() {
        for rows in 1..=ROWS {
            let room = room(rows);
            assert!(room >= rows && 2 * room <= 3 * rows, "{rows}: {room}");
        }
        assert_eq!(room(ROWS), ROWS);
    }
}
