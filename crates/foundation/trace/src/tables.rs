//! How rows of each table are inserted, many in one statement, and merged with what is there.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use crate::database::{Arg, Connection};

/// How many rows one statement takes. A larger one gains nothing more; each size is a statement
/// that the connection keeps prepared.
pub(crate) const ROWS: usize = 64;

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

pub(crate) const BLOBS: Table = Table { name: "blobs", columns: &[("hash", Key), ("bytes", Keep)] };

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
pub(crate) const VIEWS: [&Table; 6] = [&RUNS, &TASKS, &ATTEMPTS, &CHECKS, &CALLS, &FILES];

impl Table {
    /// Writes the statement that inserts `rows` rows.
    pub(crate) fn insert(&self, rows: usize) -> String {
        let names: Vec<_> = self.columns.iter().map(|(name, _)| *name).collect();
        let mut sql = format!("INSERT INTO {} ({}) VALUES ", self.name, names.join(", "));
        for row in 0..rows {
            sql.push_str(if row == 0 { "(" } else { ", (" });
            for column in 0..names.len() {
                let comma = if column == 0 { "" } else { ", " };
                // Writing into a `String` cannot fail.
                let _ = write!(sql, "{comma}${}", row * names.len() + column + 1);
            }
            sql.push(')');
        }
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
    pub(crate) fn names(&self) -> Vec<&'static str> {
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

/// The texts of the statements, each written once.
#[derive(Default)]
pub(crate) struct Statements {
    texts: Mutex<HashMap<(&'static str, usize), Arc<str>>>,
}

impl Statements {
    /// Inserts rows, merging them with those that are there.
    pub(crate) async fn insert(
        &self,
        connection: &mut Connection,
        table: &'static Table,
        rows: Vec<Vec<Arg>>,
    ) -> Result<(), sqlx::Error> {
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let mut args = Vec::new();
            let mut count = 0;
            for row in rows.by_ref().take(ROWS) {
                args.extend(row);
                count += 1;
            }
            connection.execute_shared(self.text(table, count), args).await?;
        }
        Ok(())
    }

    fn text(&self, table: &'static Table, rows: usize) -> Arc<str> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(texts.entry((table.name, rows)).or_insert_with(|| Arc::from(table.insert(rows))))
    }
}
