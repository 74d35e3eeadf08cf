//! A run that comes in, put down beside the log until it is whole.
//!
//! All that takes time is done before anybody has to wait for it: reading, checking, compressing. Blobs are kept as they come, as
//! they are of no run. Events stand in a table of their own, which goes with its connection, and are put into the log by
//! one transaction that does nothing else.

use formwork_protocols::{BlobHash, RunId};
use futures::FutureExt as _;

use crate::{
    audit,
    bundle::BundleError,
    changes::{Changes, count},
    database::{Arg, Connection, Database, Engine},
    origin, read,
    tables::{ARRIVING, HEADS, Statements, lock_postgres},
    trace::Trace,
};

const MAKE_SQLITE: &str = "CREATE TEMP TABLE IF NOT EXISTS arriving (position INTEGER PRIMARY KEY, \
    run BLOB, seq INTEGER, task BLOB, principal TEXT, at INTEGER, kind TEXT, data TEXT, \
    idempotency_key TEXT, hash BLOB)";
const MAKE_POSTGRES: &str = "CREATE TEMP TABLE IF NOT EXISTS arriving (LIKE formwork.events)";
const EMPTY: &str = "DELETE FROM arriving";
const ENTER: &str = "INSERT INTO events (position, run, seq, task, principal, at, kind, data, \
    idempotency_key, hash) SELECT position + $1, run, seq, task, principal, at, kind, data, \
    idempotency_key, hash FROM arriving ORDER BY position";

/// A run as its line in a bundle tells of it: how many events it has, and the hash of the last.
pub(crate) type Whole = (RunId, u64, BlobHash);

/// Events that wait.
pub(crate) struct Arriving {
    database: Database,
    statements: Statements,
    /// The connection whose table it is; none where all share one, which has to be given back in between.
    held: Option<Connection>,
    changes: Changes,
}

impl Arriving {
    pub(crate) async fn new(database: &Database) -> Result<Self, BundleError> {
        let (database, statements) = (database.clone(), Statements::default());
        let mut arriving = Self { database, statements, held: None, changes: Changes::default() };
        let mut connection = arriving.take().await?;
        let make = match arriving.database.engine {
            Engine::Sqlite => MAKE_SQLITE,
            Engine::Postgres => MAKE_POSTGRES,
        };
        let made = async {
            connection.execute(make, vec![]).await?;
            connection.execute(EMPTY, vec![]).await
        };
        made.await.map_err(|error| arriving.failed(&error))?;
        arriving.put_back(connection).await;
        Ok(arriving)
    }

    fn failed(&self, error: &sqlx::Error) -> BundleError {
        self.database.failed(error).into()
    }

    async fn take(&mut self) -> Result<Connection, BundleError> {
        if let Some(connection) = self.held.take() {
            return Ok(connection);
        }
        let acquired = self.database.read.acquire().await;
        let mut connection = acquired.map_err(|error| self.failed(&error))?;
        if !self.database.single {
            // The table goes with it, whatever becomes of whoever waits for this.
            connection.forsake();
        }
        Ok(connection)
    }

    async fn put_back(&mut self, connection: Connection) {
        match self.database.single {
            true => connection.give_back().await,
            false => self.held = Some(connection),
        }
    }

    /// Puts events down, and takes note of what they change in the views. Their positions are their numbers within the run.
    pub(crate) async fn put(&mut self, rows: Vec<Vec<Arg>>) -> Result<(), BundleError> {
        let mut connection = self.take().await?;
        let put = async {
            connection.execute("BEGIN", vec![]).await?;
            self.statements.insert(&mut connection, &ARRIVING, rows).await?;
            connection.execute("COMMIT", vec![]).await
        };
        if let Err(error) = put.await {
            connection.forsake();
            return Err(self.failed(&error));
        }
        self.put_back(connection).await;
        Ok(())
    }

    pub(crate) fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// Puts what was put down into the log: all of it or nothing.
    pub(crate) async fn enter(mut self, trace: &Trace, whole: Whole) -> Result<(), BundleError> {
        let (database, changes) = (self.database.clone(), std::mem::take(&mut self.changes));
        if database.single {
            // It stands on the one connection, which is the writer's.
            let refused = trace.maintain(move |connection| {
                async move {
                    match entered(connection, &database, whole, changes).await {
                        Ok(()) => Ok(None),
                        Err(BundleError::Store(error)) => Err(error),
                        // Nothing was written yet.
                        Err(error) => Ok(Some(error)),
                    }
                }
                .boxed()
            });
            return refused.await?.map_or(Ok(()), Err);
        }
        let mut connection = self.take().await?;
        let begin = match database.engine {
            Engine::Sqlite => "BEGIN IMMEDIATE",
            Engine::Postgres => concat!("BEGIN; SELECT ", lock_postgres!()),
        };
        connection.script(begin).await.map_err(|error| self.failed(&error))?;
        entered(&mut connection, &database, whole, changes).await?;
        let committed = connection.execute("COMMIT", vec![]).await;
        committed.map_err(|error| self.failed(&error))?;
        database.look()?;
        Ok(())
    }
}

/// Writes what waits into the log, within a transaction.
async fn entered(
    connection: &mut Connection,
    database: &Database,
    (run, events, head): Whole,
    mut changes: Changes,
) -> Result<(), BundleError> {
    let failed = |error: sqlx::Error| BundleError::from(database.failed(&error));
    let known = connection.fetch(audit::HEAD, vec![run.as_uuid().into()]).await.map_err(failed)?;
    let here = known.first().map_or(Ok(0), |row| row.int(0)).map_err(failed)?;
    let remembered = known.first().map(|row| row.bytes(1)).transpose().map_err(failed)?;
    let is_own = here != 0 && remembered.as_deref() == Some(head.as_bytes().as_slice());
    if here != 0 && (here != count(events) || !is_own) {
        // It began while the bundle was verified.
        let here = read::unsigned(here).unwrap_or(0);
        return Err(BundleError::Differs { run, here, there: events });
    }
    let write = async {
        let rows = connection.fetch(read::HEAD, vec![]).await?;
        let top = rows.first().map_or(Ok(0), |row| row.int(0))?;
        let statements = Statements::default();
        connection.execute(ENTER, vec![top.into()]).await?;
        connection.execute(EMPTY, vec![]).await?;
        changes.move_by(top);
        changes.apply(connection, &statements).await?;
        let row = vec![run.as_uuid().into(), count(events).into(), head.as_bytes().to_vec().into()];
        statements.insert(connection, &HEADS, vec![row]).await?;
        if is_own {
            // The store remembers how it ended, and by the chain all that it held: nobody chose it but who ran it here. One that
            // came from elsewhere before it was archived is still marked.
            return Ok(());
        }
        origin::mark(connection, run).await
    };
    write.await.map_err(failed)
}
