//! What the database said, as the error that the seam promises.

use formwork_protocols::StoreError;

/// Translates a failure of an open store.
pub(crate) fn failed(at: &str, error: &sqlx::Error) -> StoreError {
    match classify(error) {
        Class::Corrupt(detail) => StoreError::Corrupt { at: at.to_owned(), detail },
        Class::Closed => StoreError::Closed,
        Class::Passing(reason) => StoreError::Unavailable { at: at.to_owned(), reason },
        Class::Other(reason) => {
            StoreError::Unavailable { at: at.to_owned(), reason: refused(at, reason) }
        }
    }
}

/// Says that a server is there, and refuses what it was asked.
fn refused(at: &str, reason: String) -> String {
    match at.starts_with("postgres:") {
        true => format!("{REFUSES}{reason}"),
        false => reason,
    }
}

/// Translates a failure to open a store.
pub(crate) fn not_opened(at: &str, error: &sqlx::Error) -> StoreError {
    match classify(error) {
        Class::Corrupt(detail) => StoreError::Corrupt { at: at.to_owned(), detail },
        Class::Closed => StoreError::Closed,
        Class::Passing(reason) => StoreError::Open { at: at.to_owned(), reason },
        Class::Other(reason) => StoreError::Open { at: at.to_owned(), reason: refused(at, reason) },
    }
}

/// Tells whether the failure may lie in what was written, and not in where.
pub(crate) fn is_about_the_data(error: &sqlx::Error) -> bool {
    matches!(classify(error), Class::Other(_))
}

/// Tells whether another transaction was in the way, so that the same may go well when it is tried again.
pub(crate) fn is_a_conflict(error: &sqlx::Error) -> bool {
    postgres_code(error).is_some_and(|code| code.starts_with("40"))
}

/// Tells whether the connection itself is of no more use.
pub(crate) fn breaks_the_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => postgres_code(error)
            .is_some_and(|code| code.starts_with("08") || code.starts_with("57P")),
        sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } => false,
        _ => true,
    }
}

enum Class {
    /// It may pass: full, locked, read-only, unreachable.
    Passing(String),
    /// What is stored is damaged.
    Corrupt(String),
    Closed,
    Other(String),
}

fn classify(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::PoolClosed => Class::Closed,
        sqlx::Error::PoolTimedOut => {
            Class::Passing("no connection could be had in time".to_owned())
        }
        sqlx::Error::Io(cause) => Class::Passing(of_the_system(cause)),
        sqlx::Error::Tls(cause) => Class::Passing(cause.to_string()),
        sqlx::Error::WorkerCrashed => Class::Passing("its thread ended".to_owned()),
        sqlx::Error::ColumnDecode { index, source } => {
            Class::Corrupt(format!("column {index} cannot be read: {source}"))
        }
        sqlx::Error::Database(cause) => match sqlite_code(error) {
            Some(code) => sqlite(code, cause.message()),
            None => postgres(postgres_code(error).as_deref().unwrap_or(""), cause.message()),
        },
        // Each layer of it says once more that it is about the configuration.
        sqlx::Error::Configuration(cause) => Class::Passing(
            cause.to_string().trim_start_matches("error with configuration: ").to_owned(),
        ),
        other => Class::Other(other.to_string()),
    }
}

/// Says what the system did not give. A connection to SQLite is a thread, and one that is not begun is the usual cause.
fn of_the_system(cause: &std::io::Error) -> String {
    // EMFILE and ENFILE, which have no kind of their own.
    match cause.raw_os_error() {
        Some(23 | 24) => format!("no more files may be opened: {cause}"),
        _ if cause.kind() == std::io::ErrorKind::WouldBlock => {
            format!("no more threads may be started: {cause}")
        }
        _ => cause.to_string(),
    }
}

/// What is said of a database that another connection holds.
pub const LOCKED: &str = "it is locked by another process";

/// Tells whether a store failed by what passes without anybody's doing, or once there is room again: another process holds it, its disk is
/// full, its server is not there. What a server refuses that is there does not pass.
pub fn passes(error: &StoreError) -> bool {
    let (StoreError::Unavailable { at, reason } | StoreError::Open { at, reason }) = error else {
        return false;
    };
    match at.starts_with("postgres:") {
        true => !reason.starts_with(REFUSES),
        false => [LOCKED, FULL].contains(&reason.as_str()),
    }
}

/// How what a server says begins that is there and refuses what it was asked: to ask again is of no use.
const REFUSES: &str = "it refuses: ";

/// What is said of a store whose disk is full. It passes once there is room.
const FULL: &str = "the disk is full";

/// SQLITE_IOERR_SHMSIZE.
const SHARED_MEMORY_SIZE: i64 = 4874;

/// Says of a database in which a table or a column is missing what that means.
fn not_ours(message: &str) -> String {
    format!("{message}; its tables are not those that its version has")
}

/// Source: the result codes of SQLite, <https://sqlite.org/rescode.html>; the low byte is the kind.
fn sqlite(code: i64, message: &str) -> Class {
    match code & 0xff {
        // What a table is missed for is no matter of the statement, which is always the same.
        1 if message.starts_with("no such ") => Class::Corrupt(not_ours(message)),
        5 | 6 => Class::Passing(LOCKED.to_owned()),
        8 => Class::Passing("it is read-only".to_owned()),
        // The file beside it that its readers share could not grow.
        10 if code == SHARED_MEMORY_SIZE => Class::Passing(FULL.to_owned()),
        10 => Class::Passing(format!("the disk failed: {message}")),
        13 => Class::Passing(FULL.to_owned()),
        14 => Class::Passing(
            "the file cannot be opened; its folder must exist and be writable".to_owned(),
        ),
        11 => Class::Corrupt(message.to_owned()),
        26 => Class::Corrupt("the file is not a SQLite database".to_owned()),
        _ => Class::Other(message.to_owned()),
    }
}

/// Source: appendix "PostgreSQL Error Codes" of its manual; the first two characters are the class.
fn postgres(code: &str, message: &str) -> Class {
    match code.get(..2) {
        Some("08" | "40" | "53" | "55" | "57" | "58" | "25") => Class::Passing(message.to_owned()),
        Some("XX") => Class::Corrupt(message.to_owned()),
        // No such table, column or schema.
        _ if ["42P01", "42703", "3F000"].contains(&code) => Class::Corrupt(not_ours(message)),
        _ => Class::Other(message.to_owned()),
    }
}

fn sqlite_code(error: &sqlx::Error) -> Option<i64> {
    let cause = error.as_database_error()?;
    cause.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    cause.code()?.parse().ok()
}

fn postgres_code(error: &sqlx::Error) -> Option<String> {
    let cause = error.as_database_error()?;
    cause.try_downcast_ref::<sqlx::postgres::PgDatabaseError>()?;
    cause.code().map(std::borrow::Cow::into_owned)
}
