//! What the store is, how large it is, and making it smaller.

use std::collections::BTreeMap;

use formwork_protocols::{Position, StoreError, Timestamp};
use futures::TryStreamExt as _;

use crate::database::{Connection, Database, Engine};

/// What a store is and holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Where it is, without credentials.
    pub at: String,
    /// `sqlite` or `postgres`.
    pub engine: &'static str,
    /// The engine's own version.
    pub engine_version: String,
    /// The version of its tables.
    pub schema: i64,
    /// The position of the last event.
    pub head: Position,
    /// How many runs there are of each state.
    pub runs: BTreeMap<String, u64>,
    /// How many of those that have not ended are nobody's: they wait to be resumed.
    pub waiting: u64,
    /// How many events there are.
    pub events: u64,
    /// How many blobs there are.
    pub blobs: u64,
    /// How many bytes the blobs have as they are kept.
    pub blob_bytes: u64,
    /// How many bytes the blobs have when plain.
    pub plain_bytes: u64,
    /// How many runs were taken out into an archive.
    pub archived: u64,
    /// How many checkpoints there are.
    pub checkpoints: u64,
    /// How many bytes the store takes up.
    pub size: Size,
}

/// How many bytes a store takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// All that it takes up, the log of the engine included.
    pub bytes: u64,
    /// What of it is free, and would be given back by a vacuum; not known of PostgreSQL.
    pub free: u64,
}

pub(crate) const RUNS: &str = "SELECT COALESCE(state, 'unknown'), COUNT(*) FROM runs \
    WHERE created IS NOT NULL GROUP BY 1";
pub(crate) const WAITING: &str = "SELECT COUNT(*) FROM runs r LEFT JOIN heads h ON h.run = r.run \
    WHERE r.created IS NOT NULL AND r.state NOT IN ('completed', 'failed', 'aborted') \
    AND (h.owner IS NULL OR h.held_until <= $1)";
pub(crate) const COUNTS: &str = "SELECT (SELECT COALESCE(MAX(position), 0) FROM events), \
    (SELECT COUNT(*) FROM events), (SELECT COUNT(*) FROM archived), \
    (SELECT COUNT(*) FROM checkpoints), COUNT(*), \
    CAST(COALESCE(SUM(LENGTH(bytes)), 0) AS BIGINT), \
    CAST(COALESCE(SUM(COALESCE(size, LENGTH(bytes))), 0) AS BIGINT) FROM blobs";
const SQLITE: &str = "SELECT sqlite_version(), v.user_version FROM pragma_user_version v";
const POSTGRES: &str = "SELECT current_setting('server_version'), version FROM store";
const SQLITE_SIZE: &str = "SELECT p.page_count * s.page_size, f.freelist_count * s.page_size \
    FROM pragma_page_count p, pragma_page_size s, pragma_freelist_count f";
const POSTGRES_SIZE: &str = "SELECT CAST(COALESCE(SUM(pg_total_relation_size(c.oid)), 0) AS BIGINT), \
    CAST(0 AS BIGINT) FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname = 'formwork' AND c.relkind = 'r'";

/// The tables that a vacuum of PostgreSQL goes through.
const TABLES: [&str; 11] = [
    "events",
    "blobs",
    "heads",
    "runs",
    "tasks",
    "attempts",
    "checks",
    "calls",
    "files",
    "archived",
    "checkpoints",
];

/// Tells what the store is and holds.
pub(crate) async fn status(database: &Database, now: Timestamp) -> Result<Status, StoreError> {
    let size = size(database).await?;
    let read = async {
        let mut connection = database.read.acquire().await?;
        let (engine, about) = match database.engine {
            Engine::Sqlite => ("sqlite", SQLITE),
            Engine::Postgres => ("postgres", POSTGRES),
        };
        let rows = connection.fetch(about, vec![]).await?;
        let about = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let counts = connection.fetch(COUNTS, vec![]).await?;
        let counts = counts.first().ok_or(sqlx::Error::RowNotFound)?;
        let number = |column| Ok::<_, sqlx::Error>(unsigned(counts.int(column)?));
        let mut runs = BTreeMap::new();
        for row in connection.fetch(RUNS, vec![]).await? {
            runs.insert(row.text(0)?, unsigned(row.int(1)?));
        }
        let waiting = connection.fetch(WAITING, vec![now.as_micros().into()]).await?;
        let waiting = waiting.first().map_or(Ok(0), |row| row.int(0))?;
        Ok(Status {
            at: database.at.to_string(),
            engine,
            engine_version: about.text(0)?,
            schema: about.int(1)?,
            head: Position(number(0)?),
            runs,
            waiting: unsigned(waiting),
            events: number(1)?,
            blobs: number(4)?,
            blob_bytes: number(5)?,
            plain_bytes: number(6)?,
            archived: number(2)?,
            checkpoints: number(3)?,
            size,
        })
    };
    read.await.map_err(|error| database.failed(&error))
}

fn unsigned(number: i64) -> u64 {
    crate::read::unsigned(number).unwrap_or(0)
}

/// Measures the store.
pub(crate) async fn size(database: &Database) -> Result<Size, StoreError> {
    let sql = match database.engine {
        Engine::Sqlite => SQLITE_SIZE,
        Engine::Postgres => POSTGRES_SIZE,
    };
    let rows = database.fetch(sql, vec![]).await?;
    let measured = rows.first().map_or(Ok((0, 0)), |row| Ok((row.int(0)?, row.int(1)?)));
    let (bytes, free) = measured.map_err(|error| database.failed(&error))?;
    let beside = if database.engine == Engine::Sqlite && !database.single {
        std::fs::metadata(format!("{}-wal", database.at)).map_or(0, |log| log.len())
    } else {
        0
    };
    Ok(Size { bytes: unsigned(bytes) + beside, free: unsigned(free) })
}

/// Who asks, and who owns a table that they may not vacuum; nothing where they may vacuum all. Source: the manual of
/// PostgreSQL 15 on VACUUM; from 17 on the right `MAINTAIN` does as well.
const NOT_ONES_OWN: &str = "SELECT current_user::TEXT, pg_get_userbyid(c.relowner)::TEXT FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname = 'formwork' AND c.relkind = 'r' AND NOT pg_has_role(c.relowner, 'USAGE') AND CASE \
    WHEN current_setting('server_version_num')::INT < 170000 THEN TRUE \
    ELSE NOT has_table_privilege(c.oid, 'MAINTAIN') END LIMIT 1";

/// Asks a server whether this user may append, by an append of nothing. The rights of a file are the system's.
pub(crate) async fn may_append(database: &Database) -> Result<(), StoreError> {
    if database.engine == Engine::Postgres {
        for table in ["events", "blobs", "heads", "runs"] {
            let none = format!("INSERT INTO {table} SELECT * FROM {table} WHERE FALSE");
            database.fetch(none, vec![]).await?;
        }
    }
    Ok(())
}

/// Gives free space back to the machine, and lets the engine count anew what it plans by.
pub(crate) async fn vacuum(database: &Database) -> Result<(Size, Size), StoreError> {
    let before = size(database).await?;
    let failed = |error: sqlx::Error| database.failed(&error);
    let mut connection = database.read.acquire().await.map_err(failed)?;
    let run = async |connection: &mut Connection, sql: String| {
        connection.script(sql).await.map_err(failed)
    };
    match database.engine {
        Engine::Sqlite => {
            for sql in ["PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA optimize"] {
                run(&mut connection, sql.to_owned()).await?;
            }
            run(&mut connection, "PRAGMA wal_checkpoint(TRUNCATE)".to_owned()).await?;
        }
        Engine::Postgres => {
            // The server would only warn, which nobody reads.
            let rows = connection.fetch(NOT_ONES_OWN, vec![]).await.map_err(failed)?;
            if let Some(row) = rows.first() {
                let (user, owner) = (row.text(0).map_err(failed)?, row.text(1).map_err(failed)?);
                let reason = format!(
                    "only {owner}, who owns its tables, may vacuum them, and this is {user}"
                );
                return Err(StoreError::Unavailable { at: database.at.to_string(), reason });
            }
            for table in TABLES {
                run(&mut connection, format!("VACUUM (ANALYZE) formwork.{table}")).await?;
            }
        }
    }
    drop(connection);
    Ok((before, size(database).await?))
}

/// Asks the engine whether its own pages are sound; nothing is told where they are, or where it cannot be asked.
pub(crate) async fn pages(database: &Database) -> Result<Vec<String>, StoreError> {
    if database.engine == Engine::Postgres {
        return Ok(Vec::new());
    }
    let failed = |error: sqlx::Error| database.failed(&error);
    let mut connection = database.read.acquire().await.map_err(failed)?;
    let mut lines = Vec::new();
    let mut found = connection.stream("PRAGMA integrity_check(20)");
    // It ends with an error once it meets what it has just told of.
    loop {
        match found.try_next().await.map_err(failed) {
            Ok(Some(row)) => lines.push(row.text(0).map_err(failed)?),
            Ok(None) => break,
            Err(StoreError::Corrupt { detail, .. }) if lines.is_empty() => {
                lines.push(format!("its schema cannot be read: {detail}"));
                break;
            }
            Err(StoreError::Corrupt { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    let lines = lines.iter().flat_map(|text| text.lines()).map(str::trim);
    Ok(lines.filter(|line| *line != "ok" && !line.starts_with("***")).map(str::to_owned).collect())
}
