//! Opening a database: no scan, and no migration unless its version differs.

use std::{path::Path, str::FromStr as _, sync::Arc, time::Duration};

use formwork_protocols::{StoreError, text};
use sqlx::{
    ConnectOptions as _, PgPool, Sqlite, SqlitePool,
    pool::PoolOptions,
    postgres::PgConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    database::{Connection, Database, Engine, Pool},
    error::{LOCKED, not_opened},
    place::Place,
    upkeep,
};

/// The migrations, oldest first; a store's version is how many of them it has.
const SQLITE: &[&str] = &[
    include_str!("../migrations/sqlite/0001_log.sql"),
    include_str!("../migrations/sqlite/0002_keeping.sql"),
    include_str!("../migrations/sqlite/0003_origin.sql"),
];
const POSTGRES: &[&str] = &[
    include_str!("../migrations/postgres/0001_log.sql"),
    include_str!("../migrations/postgres/0002_keeping.sql"),
    include_str!("../migrations/postgres/0003_origin.sql"),
];

/// What is said of a database that others made.
const FOREIGN: &str = "it is a database of another program";

/// What the header of our SQLite files says they are: "FMWK".
const APPLICATION: i64 = 0x464d_574b;

/// The oldest PostgreSQL whose behaviour is tested.
const OLDEST_POSTGRES: i64 = 150_000;

/// The lock under which a PostgreSQL is migrated.
const MIGRATION_LOCK: i64 = 0x464d_574b_0001;

/// How many connections read beside the one that writes.
const READERS: u32 = 4;

/// How many prepared statements a connection keeps: those that read, and the shapes of transaction that
/// are at all frequent, of which a large one takes some hundred kilobytes.
const STATEMENTS: usize = 128;

/// How many rows wait for their reader. The thread of SQLite and that of the reader take turns, and on a
/// busy machine each turn is waited for.
const ROWS: usize = 1_024;

/// How long an opening that met a lock waits before it tries again: a switch of the journal takes less.
const AGAIN: Duration = Duration::from_millis(10);

/// How long a server that gave no connection is asked why: one that refuses does so at once.
const WHY: Duration = Duration::from_secs(1);

/// Says whether a URL could name a store. Nothing is opened and nobody is asked.
///
/// # Errors
/// [`StoreError::Open`] with what is wrong with it.
pub(crate) fn address(url: &str) -> Result<(), StoreError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => sqlite_options(url).map(drop),
        _ => postgres_options(url).map(drop),
    }
}

/// Opens the database that a URL names, made or migrated if need be.
pub(crate) async fn open(url: &str, wait: Duration) -> Result<Database, StoreError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => {
            // SQLite does not wait by itself where a connection switches to the write-ahead log, so two who
            // make one store at the same time would refuse each other.
            let begun = Instant::now();
            loop {
                match open_once(url, wait).await {
                    Err(StoreError::Open { reason, .. })
                        if reason == LOCKED && begun.elapsed() < wait =>
                    {
                        tokio::time::sleep(AGAIN).await;
                    }
                    opened => return opened,
                }
            }
        }
        _ => prepare(postgres(url, wait)?).await,
    }
}

/// Where a store is, and which version its tables have, told without making or changing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Where it is, without credentials.
    pub at: String,
    /// The version of its tables; none where there is no store.
    pub found: Option<i64>,
    /// The version that this program makes and migrates to.
    pub known: i64,
}

/// Looks at the store that a URL names.
pub(crate) async fn look(url: &str, wait: Duration) -> Result<Look, StoreError> {
    let database = if url.starts_with("sqlite:") {
        let named = sqlite(url, wait, Mode::Find)?;
        if !named.single && !is_there(&named.at)? {
            let known = known(named.engine);
            return Ok(Look { at: named.at.to_string(), found: None, known });
        }
        reached(url, wait).await?
    } else {
        postgres(url, wait)?
    };
    let found = version(&database).await?;
    database.close().await;
    let known = known(database.engine);
    Ok(Look { at: database.at.to_string(), found: (found > 0).then_some(found), known })
}

/// Asks for the version of the tables.
async fn version(database: &Database) -> Result<i64, StoreError> {
    let mut connection = first(database).await?;
    let found = match database.engine {
        Engine::Sqlite => sqlite_version(database, &mut connection).await?,
        Engine::Postgres => postgres_version(database, &mut connection).await?,
    };
    connection.give_back().await;
    Ok(found)
}

/// Opens a store for somebody who only reads it. Nothing is made where there is none: it is read as one of nothing.
///
/// A file is opened as by everybody else, and where that needs to write what cannot be written, on a full disk, a disk that
/// is read-only or in a folder of somebody else, by less.
pub(crate) async fn open_to_read(url: &str, wait: Duration) -> Result<Database, StoreError> {
    if !url.starts_with("sqlite:") {
        let named = postgres(url, wait)?;
        return match version(&named).await? {
            0 => nothing(named.at, wait).await,
            found => brought(named, found).await,
        };
    }
    let named = sqlite(url, wait, Mode::Find)?;
    if named.single {
        return open(url, wait).await;
    }
    has_folder(&named.at, Path::new(&*named.at))?;
    let is_empty = |at: &str| std::fs::metadata(at).is_ok_and(|found| found.len() == 0);
    if !is_there(&named.at)? || is_empty(&named.at) {
        return nothing(named.at, wait).await;
    }
    let refused = match open(url, wait).await {
        Err(error) if is_about_the_place(&error) => error,
        opened => return opened,
    };
    let database = lesser(url, wait, &refused).await?;
    let (found, known) = (version(&database).await?, known(database.engine));
    let at = database.at.to_string();
    match found {
        _ if found == known => Ok(database),
        _ if found > known => Err(StoreError::TooNew { at, found, known }),
        _ => {
            let reason = format!(
                "it has schema version {found}, and cannot be brought to {known}: {}",
                reason(&refused)
            );
            Err(StoreError::Open { at, reason })
        }
    }
}

/// Returns a store that holds nothing, and stands for the one that is not there.
async fn nothing(at: Arc<str>, wait: Duration) -> Result<Database, StoreError> {
    let nothing = prepare(sqlite("sqlite::memory:", wait, Mode::Make)?).await?;
    Ok(Database { at, ..nothing })
}

/// Says whether there is a file, and that it is one.
fn is_there(at: &str) -> Result<bool, StoreError> {
    let open = |reason: String| StoreError::Open { at: at.to_owned(), reason };
    match std::fs::metadata(at) {
        // It is not opened for that: whoever closes it again lets go of every lock that this process has on it.
        Ok(found) if found.is_file() => Ok(true),
        Ok(found) if found.is_dir() => Err(open("it is a folder".to_owned())),
        Ok(_) => Err(open("it is no file".to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(open(format!("it cannot be looked at: {error}"))),
    }
}

/// Returns a file as it can be read, by whatever rights there are. What else is wrong with it is told when it is read.
async fn reached(url: &str, wait: Duration) -> Result<Database, StoreError> {
    let database = sqlite(url, wait, Mode::Find)?;
    match version(&database).await {
        Err(error) if is_about_the_place(&error) => lesser(url, wait, &error).await,
        _ => Ok(database),
    }
}

/// Returns a file that can be read without writing beside it.
async fn lesser(url: &str, wait: Duration, refused: &StoreError) -> Result<Database, StoreError> {
    let database = sqlite(url, wait, Mode::Read)?;
    match version(&database).await {
        Err(error) if is_about_the_place(&error) => {}
        _ => return Ok(database),
    }
    let log = format!("{}-wal", database.at);
    if std::fs::metadata(&log).is_ok_and(|found| found.len() > 0) {
        let reason = format!(
            "{}; its last events are in {log}, which is read only where files can be made beside it: copy both to \
             such a folder",
            reason(refused)
        );
        return Err(StoreError::Open { at: database.at.to_string(), reason });
    }
    // Whoever could write it would have left files beside it that can be read.
    let database = sqlite(url, wait, Mode::Still)?;
    match version(&database).await {
        Err(error) if is_about_the_place(&error) => {
            let reason = "it is there and cannot be opened, not even to be read".to_owned();
            Err(StoreError::Open { at: database.at.to_string(), reason })
        }
        _ => Ok(database),
    }
}

/// Says whether it is not what is in the file that is in the way.
fn is_about_the_place(error: &StoreError) -> bool {
    matches!(error, StoreError::Open { reason, .. } if reason != LOCKED && reason != FOREIGN)
}

fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Open { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// Asks SQLite what is wrong with the pages of the file that a URL names, whether or not it can be opened as a store.
pub(crate) async fn pages(url: &str, wait: Duration) -> Result<Vec<String>, StoreError> {
    if !url.starts_with("sqlite:") {
        return Ok(Vec::new());
    }
    let database = reached(url, wait).await?;
    let pages = upkeep::pages(&database).await;
    database.close().await;
    pages
}

/// Returns the version of a store that has every migration.
fn known(engine: Engine) -> i64 {
    let migrations = match engine {
        Engine::Sqlite => SQLITE,
        Engine::Postgres => POSTGRES,
    };
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

async fn open_once(url: &str, wait: Duration) -> Result<Database, StoreError> {
    let mut database = prepare(sqlite(url, wait, Mode::Make)?).await?;
    if !database.single {
        let place = Place::of(Path::new(&*database.at)).map_err(|error| StoreError::Open {
            at: database.at.to_string(),
            reason: error.to_string(),
        })?;
        database.place = Some(Arc::new(place));
    }
    Ok(database)
}

/// How a SQLite file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// To be read and written, and made where it is not there.
    Make,
    /// As it is.
    Find,
    /// To be read alone, beside whoever writes it.
    Read,
    /// To be read as it stands, without anything beside it.
    Still,
}

fn sqlite_options(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    let options = SqliteConnectOptions::from_str(url).map_err(|error| not_opened(url, &error))?;
    if options.get_filename().as_os_str().is_empty() {
        let reason = "the address names no file, as sqlite:///path/to/file does".to_owned();
        return Err(StoreError::Open { at: url.to_owned(), reason });
    }
    Ok(options)
}

/// Names a SQLite database. Nothing is opened yet.
fn sqlite(url: &str, wait: Duration, mode: Mode) -> Result<Database, StoreError> {
    let options = sqlite_options(url)?
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(wait)
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging();
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let single = address == "sqlite::memory:" || parameters.contains("mode=memory");
    let read_only = parameters.contains("mode=ro") || parameters.contains("immutable");
    let file = options.get_filename().to_owned();
    let at: Arc<str> =
        if single { Arc::from("memory") } else { Arc::from(file.to_string_lossy().as_ref()) };
    if !single && mode == Mode::Make {
        has_folder(&at, &file)?;
        is_there(&at)?;
        if !read_only {
            make_private(&file);
        }
    }
    // A connection that comes later shall not make a file anew that was removed meanwhile.
    let options = options.create_if_missing(single);
    // A file that is only read keeps the mode it has.
    let options = match mode {
        Mode::Make if !single && !read_only => options.journal_mode(SqliteJournalMode::Wal),
        Mode::Make | Mode::Find => options,
        Mode::Read => options.read_only(true),
        Mode::Still => options.read_only(true).immutable(true),
    };
    let pool = |connections: u32, options: SqliteConnectOptions| -> SqlitePool {
        lasting(connections, wait).connect_lazy_with(options)
    };
    // What is written is put in its place by another task: see `wal`. What a statement may have to take back is kept in
    // memory: it is of a hundred rows and gone with the statement, and as a file it was most of what appends wrote.
    let write = options.clone().pragma("wal_autocheckpoint", "0").pragma("temp_store", "MEMORY");
    let committing = (!single).then(Arc::default);
    let write = match &committing {
        Some(committing) => telling(lasting(1, wait), committing, write),
        None => pool(1, write),
    };
    let read = if single { write.clone() } else { pool(READERS, options.row_buffer_size(ROWS)) };
    let database = Database {
        at,
        engine: Engine::Sqlite,
        read: Pool::Sqlite(read),
        write: Pool::Sqlite(write),
        single,
        place: None,
        committing,
    };
    Ok(database)
}

/// Makes a pool whose connections tell when a commit has begun.
fn telling(
    options: PoolOptions<Sqlite>,
    committing: &Arc<Notify>,
    write: SqliteConnectOptions,
) -> SqlitePool {
    let committing = Arc::clone(committing);
    let options = options.after_connect(move |connection, _| {
        let committing = Arc::clone(&committing);
        Box::pin(async move {
            connection.lock_handle().await?.set_commit_hook(move || {
                committing.notify_one();
                true
            });
            Ok(())
        })
    });
    options.connect_lazy_with(write)
}

/// Makes the file for its owner alone, where there is none: SQLite would let others read it, and gives the files beside it
/// the same rights.
fn make_private(file: &Path) {
    let mut options = std::fs::File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    // Why it cannot be made is told by SQLite, which is about to try.
    let _ = options.open(file);
}

/// SQLite says only that it cannot open a file; the folder is the usual cause.
fn has_folder(at: &str, file: &Path) -> Result<(), StoreError> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => return Ok(()),
    };
    let open = |reason: String| StoreError::Open { at: at.to_owned(), reason };
    if !folder.is_dir() {
        return Err(open(format!("there is no folder {}", folder.display())));
    }
    Ok(())
}

fn postgres_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    if !url.starts_with("postgres:") && !url.starts_with("postgresql:") {
        return Err(StoreError::Open {
            // The rest may hold a password.
            at: url.split_once(':').map_or(url, |(scheme, _)| scheme).to_owned(),
            reason: "the address of a store begins with sqlite: or postgres:".to_owned(),
        });
    }
    let shown = text::address(url);
    let options = PgConnectOptions::from_str(url).map_err(|error| not_opened(&shown, &error))?;
    // An IPv6 address stands in brackets in a URL, and nowhere else.
    let host = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(match host.map(str::to_owned) {
        Some(host) => options.host(&host),
        None => options,
    })
}

/// Names a PostgreSQL database. Nothing is opened yet.
fn postgres(url: &str, wait: Duration) -> Result<Database, StoreError> {
    let options = postgres_options(url)?
        .application_name("formwork")
        // An acknowledged append is durable, whatever the server's default is.
        .options([
            ("search_path", "formwork"),
            ("synchronous_commit", "on"),
            // Under the lock of a write, each statement sees what was committed before it.
            ("default_transaction_isolation", "read committed"),
        ])
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging();
    let at = format!(
        "postgres://{}:{}/{}",
        options
            .get_socket()
            .map_or_else(|| options.get_host().to_owned(), |socket| socket.display().to_string()),
        options.get_port(),
        options.get_database().unwrap_or("")
    );
    let pool = |connections: u32| -> PgPool {
        lasting(connections, wait).connect_lazy_with(options.clone())
    };
    let database = Database {
        at: Arc::from(at),
        engine: Engine::Postgres,
        read: Pool::Postgres(pool(READERS)),
        write: Pool::Postgres(pool(1)),
        single: false,
        place: None,
        committing: None,
    };
    Ok(database)
}

/// Returns the options of a pool whose connections stay: a database in memory lives in them.
fn lasting<DB: sqlx::Database>(connections: u32, wait: Duration) -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(connections)
        .idle_timeout(None)
        .max_lifetime(None)
        // A question before each use would double the cost of a short read.
        .test_before_acquire(false)
        // A busy machine takes longer than some waits to begin the thread of a connection.
        .acquire_timeout(wait.max(Duration::from_secs(1)))
}

/// Compares the version, and migrates only on difference.
async fn prepare(database: Database) -> Result<Database, StoreError> {
    // Most who open a store only read it, and a connection more is a third of what a start costs.
    let found = version(&database).await?;
    brought(database, found).await
}

/// Brings a store from the version that was found to the one that is known.
async fn brought(database: Database, found: i64) -> Result<Database, StoreError> {
    let failed = |error: sqlx::Error| not_opened(&database.at, &error);
    let known = known(database.engine);
    if found > known {
        return Err(StoreError::TooNew { at: database.at.to_string(), found, known });
    }
    if found < known {
        let mut connection = database.write.acquire().await.map_err(failed)?;
        let (begin, set) = match database.engine {
            Engine::Sqlite => (
                "BEGIN IMMEDIATE".to_owned(),
                format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {known}"),
            ),
            Engine::Postgres => (
                format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"),
                format!("UPDATE formwork.store SET version = {known}"),
            ),
        };
        let migrated = async {
            connection.script(begin).await.map_err(failed)?;
            // Another process may have migrated while this one waited for the lock.
            let (found, all) = match database.engine {
                Engine::Sqlite => (sqlite_version(&database, &mut connection).await?, SQLITE),
                Engine::Postgres => (postgres_version(&database, &mut connection).await?, POSTGRES),
            };
            let done = usize::try_from(found).unwrap_or(usize::MAX);
            for migration in all.iter().skip(done) {
                connection.script(*migration).await.map_err(failed)?;
            }
            connection.script(set).await.map_err(failed)?;
            connection.script("COMMIT").await.map_err(failed)
        };
        if let Err(error) = migrated.await {
            connection.forsake();
            return Err(error);
        }
        connection.give_back().await;
    }
    Ok(database)
}

/// Makes the first connection to a database.
///
/// A pool tries again for as long as a server refuses it, and tells in the end only that the time is up: why is asked
/// once more, of the server itself.
async fn first(database: &Database) -> Result<Connection, StoreError> {
    let error = match database.read.acquire().await {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    if let (sqlx::Error::PoolTimedOut, Pool::Postgres(pool)) = (&error, &database.read) {
        let options = pool.connect_options();
        if let Ok(Err(cause)) = tokio::time::timeout(WHY, options.connect()).await {
            return Err(not_opened(&database.at, &cause));
        }
    }
    Err(not_opened(&database.at, &error))
}

async fn sqlite_version(
    database: &Database,
    connection: &mut Connection,
) -> Result<i64, StoreError> {
    const QUESTION: &str = "SELECT v.user_version, a.application_id, \
        (SELECT COUNT(*) FROM sqlite_schema) FROM pragma_user_version v, pragma_application_id a";
    let asked = async {
        let rows = connection.fetch(QUESTION, vec![]).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok((row.int(0)?, row.int(1)?, row.int(2)?))
    };
    let (version, application, tables) =
        asked.await.map_err(|error| not_opened(&database.at, &error))?;
    match (version, application, tables) {
        (version, APPLICATION, _) => Ok(version),
        (0, 0, 0) => Ok(0),
        _ => Err(StoreError::Open { at: database.at.to_string(), reason: FOREIGN.to_owned() }),
    }
}

async fn postgres_version(
    database: &Database,
    connection: &mut Connection,
) -> Result<i64, StoreError> {
    let asked = async {
        // Reads the catalogue's rows and not `to_regclass`, which may still answer from before the
        // migration that this connection has just waited for.
        let sql = "SELECT current_setting('server_version_num')::BIGINT, (SELECT COUNT(*) \
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
            WHERE n.nspname = 'formwork' AND c.relname = 'store')";
        let rows = connection.fetch(sql, vec![]).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let (server, has_schema) = (row.int(0)?, row.int(1)? != 0);
        if !has_schema {
            return Ok((server, 0));
        }
        let rows = connection.fetch("SELECT version FROM formwork.store", vec![]).await?;
        Ok((server, rows.first().map_or(Ok(0), |row| row.int(0))?))
    };
    let (server, version) = asked.await.map_err(|error| not_opened(&database.at, &error))?;
    if server < OLDEST_POSTGRES {
        return Err(StoreError::Open {
            at: database.at.to_string(),
            reason: format!("the server is PostgreSQL {}, at least 15 is needed", server / 10_000),
        });
    }
    Ok(version)
}
