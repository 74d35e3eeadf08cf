//! The views made again from the log, beside those that are there, and whether the two are the same.

use formwork_protocols::{BlobHash, StoreError};
use sqlx::{Row as _, TypeInfo as _, ValueRef as _};

use crate::{
    changes::Changes,
    database::{Arg, Connection, Database, Engine, Row},
    read::{self, Stored},
    tables::Statements,
};

/// How many events or rows are held at once.
const PAGE: i64 = 1000;

/// The views and what names their rows.
pub(crate) const VIEWS: [(&str, &[&str]); 6] = [
    ("runs", &["run"]),
    ("tasks", &["task"]),
    ("attempts", &["attempt"]),
    ("checks", &["position"]),
    ("calls", &["position"]),
    ("files", &["run", "path"]),
];

/// A view that is not what the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewFault {
    /// Its name.
    pub view: &'static str,
    /// How many rows are missing from it, or are other than they should be.
    pub missing: u64,
    /// How many rows it has that it should not have, or that are other than they should be.
    pub extra: u64,
}

/// Writes what every event of the log changes into the tables that the connection finds by the views' names.
pub(crate) async fn replay(
    connection: &mut Connection,
    database: &Database,
    statements: &Statements,
) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| database.failed(&error);
    let mut after = 0;
    loop {
        let args = vec![after.into(), PAGE.into()];
        let rows = connection.fetch(read::PAGE, args).await.map_err(failed)?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut changes = Changes::default();
        for row in &rows {
            let stored = Stored::of(row).map_err(failed)?;
            after = stored.position;
            let unreadable = |reason: String| {
                database.corrupt(format!("event {after} cannot be read: {reason}"))
            };
            let event = stored.event().map_err(unreadable)?;
            changes.take(&event).map_err(|error| unreadable(error.to_string()))?;
        }
        changes.apply(connection, statements).await.map_err(failed)?;
    }
}

/// Makes the views again in temporary tables and compares. It sees the store as it was at one moment, and holds up
/// nobody who writes.
pub(crate) async fn compare(database: &Database) -> Result<Vec<ViewFault>, StoreError> {
    let mut connection = database.read.acquire().await.map_err(|error| database.failed(&error))?;
    let done = compare_in(&mut connection, database).await;
    // The temporary tables go with it.
    if connection.execute("ROLLBACK", vec![]).await.is_err() {
        connection.forsake();
    }
    done
}

async fn compare_in(
    connection: &mut Connection,
    database: &Database,
) -> Result<Vec<ViewFault>, StoreError> {
    let failed = |error: sqlx::Error| database.failed(&error);
    let schema = match database.engine {
        Engine::Sqlite => {
            connection.execute("BEGIN", vec![]).await.map_err(failed)?;
            for (view, _) in VIEWS {
                const TEXT: &str =
                    "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = $1";
                let rows = connection.fetch(TEXT, vec![view.into()]).await.map_err(failed)?;
                let text = rows.first().map(|row| row.text(0)).transpose().map_err(failed)?;
                let text = text.ok_or_else(|| database.corrupt(format!("there is no {view}")))?;
                let made = text.replacen("CREATE TABLE", "CREATE TEMP TABLE", 1);
                connection.script(made).await.map_err(failed)?;
            }
            "main"
        }
        Engine::Postgres => {
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
            connection.execute(begin, vec![]).await.map_err(failed)?;
            for (view, _) in VIEWS {
                let made = format!(
                    "CREATE TEMP TABLE {view} (LIKE formwork.{view} INCLUDING ALL) ON COMMIT DROP"
                );
                connection.script(made).await.map_err(failed)?;
            }
            "formwork"
        }
    };
    replay(connection, database, &Statements::default()).await?;
    let temporary = match database.engine {
        Engine::Sqlite => "temp",
        Engine::Postgres => "pg_temp",
    };
    let mut faults = Vec::new();
    for (view, _) in VIEWS {
        let mut differing = [0, 0];
        let sides = [(temporary, schema), (schema, temporary)];
        for (count, (one, other)) in differing.iter_mut().zip(sides) {
            let sql = format!(
                "SELECT COUNT(*) FROM (SELECT * FROM {one}.{view} EXCEPT \
                 SELECT * FROM {other}.{view}) differing"
            );
            let rows = connection.fetch(sql, vec![]).await.map_err(failed)?;
            *count = rows.first().map_or(Ok(0), |row| row.int(0)).map_err(failed)?;
        }
        if differing != [0, 0] {
            let [missing, extra] = differing.map(|count| read::unsigned(count).unwrap_or(0));
            faults.push(ViewFault { view, missing, extra });
        }
    }
    Ok(faults)
}

/// Hashes every row of every view in the order of what names them. Both engines give the same hash for the same log.
pub(crate) async fn digest(database: &Database) -> Result<BlobHash, StoreError> {
    let failed = |error: sqlx::Error| database.failed(&error);
    let mut connection = database.read.acquire().await.map_err(failed)?;
    let begin = match database.engine {
        Engine::Sqlite => "BEGIN",
        Engine::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    };
    connection.execute(begin, vec![]).await.map_err(failed)?;
    let done = digest_in(&mut connection, database.engine).await;
    if connection.execute("ROLLBACK", vec![]).await.is_err() {
        connection.forsake();
    }
    done.map_err(failed)
}

async fn digest_in(connection: &mut Connection, engine: Engine) -> Result<BlobHash, sqlx::Error> {
    let mut hasher = blake3::Hasher::new();
    for (view, keys) in VIEWS {
        hasher.update(view.as_bytes()).update(&[0]);
        let mut after: Option<Vec<Arg>> = None;
        loop {
            let begins = after.is_some();
            let rows = connection
                .fetch(page(view, keys, engine, begins), after.take().unwrap_or_default())
                .await?;
            let Some(last) = rows.last() else { break };
            after = Some(named_by(last, keys.len(), engine)?);
            for row in &rows {
                hash_row(&mut hasher, row)?;
            }
        }
    }
    Ok(BlobHash::from_bytes(*hasher.finalize().as_bytes()))
}

/// Writes the statement that reads a page of a view: those rows first that the digest takes first.
pub(crate) fn page(view: &str, keys: &[&str], engine: Engine, after: bool) -> String {
    // The order of texts is otherwise that of the database's language.
    let key = |name: &&str| match (engine, *name) {
        (Engine::Postgres, "path") => "path COLLATE \"C\"".to_owned(),
        (_, name) => name.to_owned(),
    };
    let keys: Vec<String> = keys.iter().map(key).collect();
    let places: Vec<String> = (1..=keys.len()).map(|n| format!("${n}")).collect();
    let (keys, places) = (keys.join(", "), places.join(", "));
    let after = if after { format!("WHERE ({keys}) > ({places})") } else { String::new() };
    format!("SELECT * FROM {view} {after} ORDER BY {keys} LIMIT {PAGE}")
}

/// Returns what names a row: its first columns.
fn named_by(row: &Row, keys: usize, engine: Engine) -> Result<Vec<Arg>, sqlx::Error> {
    (0..keys)
        .map(|column| {
            Ok(match cell(row, column)? {
                Cell::Null => Arg::Int(None),
                Cell::Int(value) => value.into(),
                Cell::Text(value) => value.into(),
                Cell::Bytes(value) => match (engine, uuid::Uuid::from_slice(&value)) {
                    (Engine::Postgres, Ok(id)) => id.into(),
                    _ => value.into(),
                },
            })
        })
        .collect()
}

fn hash_row(hasher: &mut blake3::Hasher, row: &Row) -> Result<(), sqlx::Error> {
    let columns = match row {
        Row::Sqlite(row) => row.len(),
        Row::Postgres(row) => row.len(),
    };
    for column in 0..columns {
        let (tag, bytes) = match cell(row, column)? {
            Cell::Null => (0, Vec::new()),
            Cell::Int(value) => (1, value.to_le_bytes().to_vec()),
            Cell::Text(value) => (2, value.into_bytes()),
            Cell::Bytes(value) => (3, value),
        };
        hasher.update(&[tag]).update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(())
}

/// A value of either engine. Ids are their 16 bytes.
enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

fn cell(row: &Row, column: usize) -> Result<Cell, sqlx::Error> {
    let name = match row {
        Row::Sqlite(row) => {
            let raw = row.try_get_raw(column)?;
            if raw.is_null() { "NULL".to_owned() } else { raw.type_info().name().to_owned() }
        }
        Row::Postgres(row) => {
            let raw = row.try_get_raw(column)?;
            if raw.is_null() { "NULL".to_owned() } else { raw.type_info().name().to_owned() }
        }
    };
    Ok(match name.as_str() {
        "NULL" => Cell::Null,
        "TEXT" => Cell::Text(row.text(column)?),
        "INTEGER" | "INT8" => Cell::Int(row.int(column)?),
        "UUID" => Cell::Bytes(row.id(column)?.as_bytes().to_vec()),
        _ => Cell::Bytes(row.bytes(column)?),
    })
}
