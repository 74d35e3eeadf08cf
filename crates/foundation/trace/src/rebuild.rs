//! The views made anew, run by run: what a run's rows should be is found out before anybody has to wait for it.

use formwork_protocols::{RunId, StoreError};
use futures::FutureExt as _;
use uuid::Uuid;

use crate::{
    changes::Changes,
    database::{Arg, Connection, Database},
    read::{self, Stored},
    tables::{ATTEMPTS, CALLS, CHECKS, Statements, TASKS},
    trace::Trace,
    writer,
};

/// How many events are held at once, and how many rows that belong to nothing are removed at once.
const PAGE: i64 = 500;

pub(crate) const NEXT: &str = "SELECT run FROM events WHERE run > $1 ORDER BY run LIMIT 1";

/// In this order: what tells which attempts are the run's goes after them.
pub(crate) const LEAVE: [&str; 6] = [
    "DELETE FROM attempts WHERE task IN (SELECT task FROM tasks WHERE run = $1)",
    "DELETE FROM tasks WHERE run = $1",
    "DELETE FROM checks WHERE run = $1",
    "DELETE FROM calls WHERE run = $1",
    "DELETE FROM files WHERE run = $1",
    "DELETE FROM runs WHERE run = $1",
];

/// The views, what names their rows, and whether that is an id. Attempts belong to their tasks, all others to their runs.
const VIEWS: [(&str, &str, bool); 6] = [
    ("runs", "run", true),
    ("tasks", "task", true),
    ("attempts", "attempt", true),
    ("checks", "position", false),
    ("calls", "position", false),
    ("files", "run", true),
];

/// Writes what finds the rows of a view that belong to nothing, and what removes one of them.
pub(crate) fn stray(view: &str, key: &str) -> [String; 2] {
    let of = match view {
        "attempts" => "SELECT 1 FROM tasks o WHERE o.task = v.task",
        _ => "SELECT 1 FROM events o WHERE o.run = v.run",
    };
    [
        format!("SELECT v.{key} FROM {view} AS v WHERE NOT EXISTS ({of}) LIMIT {PAGE}"),
        format!("DELETE FROM {view} AS v WHERE v.{key} = $1 AND NOT EXISTS ({of})"),
    ]
}

/// Lists the statements of fixed shape.
#[cfg(test)]
pub(crate) fn statements() -> Vec<String> {
    let fixed = [NEXT].into_iter().chain(LEAVE).map(str::to_owned);
    fixed.chain(VIEWS.into_iter().flat_map(|(view, key, _)| stray(view, key))).collect()
}

impl Trace {
    /// Makes every view anew from the log, in a transaction for each run and then some for what belongs to no run. Others write
    /// between them, and wait for as long as the rows of one run take.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] names the event that cannot be read; the rows of its run and of those that come after it by
    /// their ids stay as they were.
    pub async fn rebuild(&self) -> Result<(), StoreError> {
        let database = self.database();
        let mut last = Uuid::nil();
        while let Some(row) = database.fetch(NEXT, vec![last.into()]).await?.first() {
            last = row.id(0).map_err(|error| database.failed(&error))?;
            self.rebuild_run(RunId::from_uuid(last)).await?;
        }
        for (view, key, is_id) in VIEWS {
            while self.remove_stray(stray(view, key), is_id).await? {}
        }
        Ok(())
    }

    async fn rebuild_run(&self, run: RunId) -> Result<(), StoreError> {
        let database = self.database().clone();
        let mut connection =
            database.read.acquire().await.map_err(|error| database.failed(&error))?;
        let (mut changes, mut seq) = (Changes::default(), 0);
        while gather(&mut connection, &database, run, &mut seq, &mut changes).await? {}
        connection.give_back().await;
        self.maintain(move |connection| {
            async move {
                let args: Vec<Arg> = vec![run.as_uuid().into(), seq.into()];
                let here = connection.fetch(writer::AT, args).await;
                if here.map_err(|error| database.failed(&error))?.is_empty() {
                    return Ok(()); // It has left meanwhile.
                }
                // What came since.
                while gather(connection, &database, run, &mut seq, &mut changes).await? {}
                replace(connection, run, changes).await.map_err(|error| database.failed(&error))
            }
            .boxed()
        })
        .await
    }

    /// Removes some rows that belong to nothing. Returns whether there may be more.
    async fn remove_stray(
        &self,
        [find, remove]: [String; 2],
        is_id: bool,
    ) -> Result<bool, StoreError> {
        let database = self.database().clone();
        let rows = database.fetch(find, vec![]).await?;
        let key = |row: &crate::database::Row| match is_id {
            true => row.id(0).map(Arg::from),
            false => row.int(0).map(Arg::from),
        };
        let keys: Result<Vec<Arg>, sqlx::Error> = rows.iter().map(key).collect();
        let keys = keys.map_err(|error| database.failed(&error))?;
        if keys.is_empty() {
            return Ok(false);
        }
        self.maintain(move |connection| {
            async move {
                let mut gone = 0;
                for key in keys {
                    let removed = connection.execute(remove.clone(), vec![key]).await;
                    gone += removed.map_err(|error| database.failed(&error))?;
                }
                Ok(gone > 0)
            }
            .boxed()
        })
        .await
    }
}

/// Takes up the next events of a run. Returns whether there were any.
async fn gather(
    connection: &mut Connection,
    database: &Database,
    run: RunId,
    seq: &mut i64,
    changes: &mut Changes,
) -> Result<bool, StoreError> {
    let failed = |error: sqlx::Error| database.failed(&error);
    let args: Vec<Arg> = vec![run.as_uuid().into(), (*seq).into(), PAGE.into()];
    let rows = connection.fetch(read::PAGE_OF_RUN, args).await.map_err(failed)?;
    for row in &rows {
        let stored = Stored::of(row).map_err(failed)?;
        let position = stored.position;
        *seq = stored.seq;
        let unreadable =
            |reason: String| database.corrupt(format!("event {position} cannot be read: {reason}"));
        let event = stored.event().map_err(unreadable)?;
        changes.take(&event).map_err(|error| unreadable(error.to_string()))?;
    }
    Ok(!rows.is_empty())
}

/// Puts rows in the place of all that a run has.
async fn replace(
    connection: &mut Connection,
    run: RunId,
    changes: Changes,
) -> Result<(), sqlx::Error> {
    for sql in LEAVE {
        connection.execute(sql, vec![run.as_uuid().into()]).await?;
    }
    // Those that somebody gave to another run go as well.
    let (statements, rows) = (Statements::default(), changes.rows());
    for rows in &rows {
        let name = rows.table.name;
        if [&TASKS, &ATTEMPTS, &CHECKS, &CALLS].iter().any(|table| table.name == name) {
            statements.delete(connection, name, rows).await?;
        }
        if name == TASKS.name {
            statements.delete(connection, ATTEMPTS.name, rows).await?;
        }
    }
    statements.insert_all(connection, rows).await
}
