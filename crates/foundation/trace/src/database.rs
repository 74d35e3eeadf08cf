//! One door to both engines: the same statements with `$1` placeholders, the same four types.

use std::{borrow::Cow, sync::Arc};

use formwork_protocols::StoreError;
use sqlx::{
    AssertSqlSafe, PgPool, Postgres, Row as _, SqlSafeStr as _, Sqlite, SqlitePool,
    pool::PoolConnection, postgres::PgRow, sqlite::SqliteRow,
};
use uuid::Uuid;

use crate::error;

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

impl From<&str> for Arg {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
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
    ($sql:expr, $args:expr) => {{
        let mut query = sqlx::query($sql);
        for arg in $args {
            query = match arg {
                Arg::Int(value) => query.bind(value),
                Arg::Text(value) => query.bind(value),
                Arg::Bytes(value) => query.bind(value),
                Arg::Id(value) => query.bind(value),
            };
        }
        query
    }};
}

impl Connection {
    /// Runs a statement and returns its rows.
    pub(crate) async fn fetch(
        &mut self,
        sql: impl Into<Cow<'static, str>>,
        args: Vec<Arg>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let sql = AssertSqlSafe(sql.into()).into_sql_str();
        match self {
            Self::Sqlite(connection) => {
                let rows = bound!(sql, args).fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(connection) => {
                let rows = bound!(sql, args).fetch_all(&mut **connection).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
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
                Ok(bound!(sql, args).execute(&mut **connection).await?.rows_affected())
            }
            Self::Postgres(connection) => {
                Ok(bound!(sql, args).execute(&mut **connection).await?.rows_affected())
            }
        }
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
        use sqlx::Executor as _;
        let sql = AssertSqlSafe(sql).into_sql_str();
        match self {
            Self::Sqlite(connection) => (&mut **connection).prepare(sql).await.map(drop),
            Self::Postgres(connection) => (&mut **connection).prepare(sql).await.map(drop),
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
}

impl Database {
    pub(crate) fn failed(&self, error: &sqlx::Error) -> StoreError {
        error::failed(&self.at, error)
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
        let read = async { self.read.acquire().await?.fetch(sql, args).await };
        read.await.map_err(|error| self.failed(&error))
    }

    pub(crate) async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}
