//! One door to both engines: the same statements with `$1` placeholders, the same four types.
//!
//! Long statements are written for each engine in `tables`: to SQLite a `$1` is a named parameter, and
//! the name of each is looked up in the list of all.

use std::{borrow::Cow, sync::Arc, task::Poll, time::Duration};

use formwork_protocols::StoreError;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use sqlx::{
    Arguments as _, AssertSqlSafe, Executor as _, PgPool, Postgres, Row as _, SqlSafeStr as _,
    Sqlite, SqlitePool,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    sqlite::SqliteRow,
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{error, place::Place};

/// How long a script is left to itself that has not come to its commit: one that fails before never does.
const UNHEARD: Duration = Duration::from_millis(1);

/// Which engine a database is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

/// A value that goes into a statement.
#[derive(Debug, Clone)]
pub(crate) enum Arg {
    Int(Option<i64>),
    Text(Option<String>),
    /// Text that is used elsewhere too.
    Shared(Arc<str>),
    Bytes(Option<Vec<u8>>),
    Id(Option<Uuid>),
}

macro_rules! args {
    ($($from:ty => $variant:ident,)*) => {$(
        impl From<$from> for Arg {
            fn from(value: $from) -> Self {
                Self::$variant(Some(value))
            }
        }

        impl From<Option<$from>> for Arg {
            fn from(value: Option<$from>) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

args! {
    i64 => Int,
    String => Text,
    Vec<u8> => Bytes,
    Uuid => Id,
}

impl From<Arc<str>> for Arg {
    fn from(value: Arc<str>) -> Self {
        Self::Shared(value)
    }
}

impl From<Option<Arc<str>>> for Arg {
    fn from(value: Option<Arc<str>>) -> Self {
        value.map_or(Self::Text(None), Self::Shared)
    }
}

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

/// Rows of so many columns, one after another, as PostgreSQL takes them: a list for each column.
pub(crate) struct Columns<'a> {
    pub(crate) width: usize,
    pub(crate) rows: &'a [Arg],
}

impl Columns<'_> {
    /// Writes the lists into the arguments of a statement. Nothing is copied on the way.
    ///
    /// # Errors
    /// When a column has values of several types.
    fn bind(&self, all: &mut PgArguments) -> Result<(), sqlx::Error> {
        for (column, first) in self.rows.iter().take(self.width).enumerate() {
            let bound = match first {
                Arg::Int(_) => all.add(self.list(column, |arg| match arg {
                    Arg::Int(value) => Some(*value),
                    _ => None,
                })?),
                Arg::Text(_) | Arg::Shared(_) => all.add(self.list(column, |arg| match arg {
                    Arg::Text(value) => Some(value.as_deref()),
                    Arg::Shared(value) => Some(Some(&**value)),
                    _ => None,
                })?),
                Arg::Bytes(_) => all.add(self.list(column, |arg| match arg {
                    Arg::Bytes(value) => Some(value.as_deref()),
                    _ => None,
                })?),
                Arg::Id(_) => all.add(self.list(column, |arg| match arg {
                    Arg::Id(value) => Some(*value),
                    _ => None,
                })?),
            };
            bound.map_err(sqlx::Error::Encode)?;
        }
        Ok(())
    }

    fn list<'a, T>(
        &'a self,
        column: usize,
        of: impl Fn(&'a Arg) -> Option<Option<T>>,
    ) -> Result<Vec<Option<T>>, sqlx::Error> {
        let values = self.rows.iter().skip(column).step_by(self.width.max(1));
        let refuse = |arg| sqlx::Error::Protocol(format!("column {column} does not take {arg:?}"));
        values.map(|arg| of(arg).ok_or_else(|| refuse(arg))).collect()
    }
}

/// A row that came out of a statement. Columns are asked for by their place.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

macro_rules! getters {
    ($($name:ident -> $type:ty;)*) => {$(
        pub(crate) fn $name(&self, column: usize) -> Result<$type, sqlx::Error> {
            match self {
                Self::Sqlite(row) => row.try_get(column),
                Self::Postgres(row) => row.try_get(column),
            }
        }
    )*};
}

impl Row {
    getters! {
        int -> i64;
        maybe_int -> Option<i64>;
        text -> String;
        maybe_text -> Option<String>;
        bytes -> Vec<u8>;
        maybe_bytes -> Option<Vec<u8>>;
        id -> Uuid;
        maybe_id -> Option<Uuid>;
    }
}

/// A connection that is ours until it is dropped.
pub(crate) enum Connection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

macro_rules! bound {
    ($database:ty, $sql:expr, $args:expr) => {{
        let args: Vec<Arg> = $args;
        let mut all = <$database as sqlx::Database>::Arguments::default();
        all.reserve(args.len(), 0);
        for arg in args {
            match arg {
                Arg::Int(value) => all.add(value),
                Arg::Text(value) => all.add(value),
                Arg::Shared(value) => all.add(value),
                Arg::Bytes(value) => all.add(value),
                Arg::Id(value) => all.add(value),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        sqlx::query_with($sql, all)
    }};
}

impl Connection {
    pub(crate) const fn engine(&self) -> Engine {
        match self {
            Self::Sqlite(_) => Engine::Sqlite,
            Self::Postgres(_) => Engine::Postgres,
        }
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        args: Vec<Arg>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let sql = AssertSqlSafe(sql.into()).into_sql_str();
        match self {
            Self::Sqlite(connection) => {
                let rows = bound!(Sqlite, sql, args).fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(connection) => {
                let rows = bound!(Postgres, sql, args).fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Runs a statement that has no arguments and returns its rows one by one, also those before an error.
    pub(crate) fn stream(&mut self, sql: &'static str) -> BoxStream<'_, Result<Row, sqlx::Error>> {
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(sql).fetch(&mut **connection).map_ok(Row::Sqlite).boxed()
            }
            Self::Postgres(connection) => {
                sqlx::raw_sql(sql).fetch(&mut **connection).map_ok(Row::Postgres).boxed()
            }
        }
    }

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        args: Vec<Arg>,
    ) -> Result<u64, sqlx::Error> {
        self.execute_shared(Arc::from(sql.into()), args).await
    }

    /// Runs a statement whose text is kept elsewhere.
    pub(crate) async fn execute_shared(
        &mut self,
        sql: Arc<str>,
        args: Vec<Arg>,
    ) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql).into_sql_str();
        match self {
            Self::Sqlite(connection) => {
                Ok(bound!(Sqlite, sql, args).execute(&mut **connection).await?.rows_affected())
            }
            Self::Postgres(connection) => {
                Ok(bound!(Postgres, sql, args).execute(&mut **connection).await?.rows_affected())
            }
        }
    }

    /// Runs a script of so many statements, of which the last commits.
    ///
    /// The answer to each statement wakes who waits for it, and where both share a core the two take turns, which is most
    /// of what a short script takes. So nothing is heard until the commit has begun, when all the answers before it are there.
    pub(crate) async fn commit(
        &mut self,
        sql: Arc<str>,
        args: Vec<Arg>,
        statements: usize,
        committing: Option<&Notify>,
    ) -> Result<(), sqlx::Error> {
        let (Self::Sqlite(connection), Some(committing)) = (&mut *self, committing) else {
            return self.execute_shared(sql, args).await.map(drop);
        };
        let query = bound!(Sqlite, AssertSqlSafe(sql).into_sql_str(), args);
        let mut answers = (&mut **connection).fetch_many(query);
        let committing = std::pin::pin!(committing.notified());
        // Sends the script. What was answered by now counts below.
        let mut first = match futures::poll!(answers.next()) {
            Poll::Ready(first) => first.transpose()?.is_some(),
            Poll::Pending => false,
        };
        // Where it has failed, or takes long, its answers say so.
        let _ = tokio::time::timeout(UNHEARD, committing).await;
        for _ in 0..statements {
            if !std::mem::take(&mut first) && answers.try_next().await?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Runs a statement of PostgreSQL whose arguments are whole columns.
    pub(crate) async fn execute_columns(
        &mut self,
        sql: Arc<str>,
        columns: &[Columns<'_>],
    ) -> Result<u64, sqlx::Error> {
        let Self::Postgres(connection) = self else {
            return Err(sqlx::Error::Protocol("columns are for PostgreSQL alone".to_owned()));
        };
        let mut all = PgArguments::default();
        for columns in columns {
            columns.bind(&mut all)?;
        }
        let query = sqlx::query_with(AssertSqlSafe(sql).into_sql_str(), all);
        Ok(query.execute(&mut **connection).await?.rows_affected())
    }

    /// Runs several statements that have no arguments.
    pub(crate) async fn script(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
    ) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.into()).into_sql_str();
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(sql).execute(&mut **connection).await.map(drop)
            }
            Self::Postgres(connection) => {
                sqlx::raw_sql(sql).execute(&mut **connection).await.map(drop)
            }
        }
    }

    /// Prepares a statement without running it.
    #[cfg(test)]
    pub(crate) async fn prepare(&mut self, sql: String) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql).into_sql_str();
        match self {
            Self::Sqlite(connection) => (&mut **connection).prepare(sql).await.map(drop),
            Self::Postgres(connection) => (&mut **connection).prepare(sql).await.map(drop),
        }
    }

    /// Gives it back so that whoever asks next finds it.
    ///
    /// A connection that is dropped is taken back by a task of its own, and whoever asks before that has had its turn opens
    /// another: a thread and the schema read anew, which is a fourth of what a verb that reads two things costs.
    pub(crate) async fn give_back(mut self) {
        match &mut self {
            Self::Sqlite(connection) => connection.return_to_pool().await,
            Self::Postgres(connection) => connection.return_to_pool().await,
        }
    }

    /// Makes sure that the connection is not used again once it is dropped.
    pub(crate) fn forsake(&mut self) {
        match self {
            Self::Sqlite(connection) => connection.close_on_drop(),
            Self::Postgres(connection) => connection.close_on_drop(),
        }
    }
}

/// Connections of one kind.
#[derive(Clone)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Pool {
    pub(crate) async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => pool.acquire().await.map(Connection::Sqlite),
            Self::Postgres(pool) => pool.acquire().await.map(Connection::Postgres),
        }
    }

    async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A database that is open and has our schema.
#[derive(Clone)]
pub(crate) struct Database {
    /// Where it is, for messages; without credentials.
    pub(crate) at: Arc<str>,
    pub(crate) engine: Engine,
    pub(crate) read: Pool,
    pub(crate) write: Pool,
    /// Whether reading and writing share the one connection, as in memory.
    pub(crate) single: bool,
    /// The file of a SQLite database that is open.
    pub(crate) place: Option<Arc<Place>>,
    /// Is told when a commit has begun, by the connection that writes to a file of SQLite.
    pub(crate) committing: Option<Arc<Notify>>,
}

impl Database {
    /// Looks, after something was committed, whether what it was written into is still there.
    pub(crate) fn look(&self) -> Result<(), StoreError> {
        let looked = self.place.as_ref().map_or(Ok(()), |place| place.look());
        looked.map_err(|reason| StoreError::Unavailable { at: self.at.to_string(), reason })
    }

    pub(crate) fn failed(&self, error: &sqlx::Error) -> StoreError {
        match error::failed(&self.at, error) {
            // What was beside it goes with the last who closes.
            StoreError::Closed => StoreError::Closed,
            // What a file that is gone, or another one in its place, answers says nothing of that.
            told => self.look().err().unwrap_or(told),
        }
    }

    pub(crate) fn corrupt(&self, detail: impl Into<String>) -> StoreError {
        StoreError::Corrupt { at: self.at.to_string(), detail: detail.into() }
    }

    /// Reads with one statement.
    pub(crate) async fn fetch(
        &self,
        sql: impl Into<Cow<'static, str>>,
        args: Vec<Arg>,
    ) -> Result<Vec<Row>, StoreError> {
        let read = async {
            let mut connection = self.read.acquire().await?;
            let rows = connection.fetch(sql, args).await?;
            connection.give_back().await;
            Ok(rows)
        };
        read.await.map_err(|error| self.failed(&error))
    }

    pub(crate) async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{read, schema};

    #[tokio::test]
    async fn reads_one_after_another_share_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/store.db", folder.path().display());
        let database = schema::open(&url, Duration::from_secs(5)).await.unwrap();

        for _ in 0..3 {
            database.fetch(read::HEAD, vec![]).await.unwrap();
        }

        let Pool::Sqlite(pool) = &database.read else { panic!("it is a file") };
        assert_eq!(pool.size(), 1);
        database.close().await;
    }
}
