//! What a machine does to a store: the disk fills up, a file goes, a server restarts. Each is a clear error, and
//! nothing that was acknowledged is lost.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
};

use formwork_protocols::{
    Append, EventBody, EventStore as _, NewEvent, Position, Principal, RunId, Span, StoreError,
    Timestamp, store::Selection,
};
use formwork_testkit::{mounts::Mounts, postgres::Postgres};
use formwork_trace::{Options, Trace};
use serde_json::json;
use sqlx::Connection as _;

fn run() -> RunId {
    RunId::from_uuid(uuid::Uuid::from_u128(7))
}

fn note(n: u64) -> Append {
    let data = json!({ "n": n, "text": "as long as most events are: ".repeat(20) });
    let event = NewEvent {
        task: None,
        principal: Principal::system("test"),
        at: Timestamp::from_micros(1),
        body: EventBody::Unknown { kind: "test.note".to_owned(), data },
        idempotency_key: None,
    };
    Append { run: run(), token: None, events: vec![event], blobs: vec![] }
}

/// How long a store may take to be opened. Nothing here waits for that long, on however busy a machine.
const PATIENCE: Span = Span::from_secs(30);

async fn open(url: &str) -> Result<Trace, StoreError> {
    Trace::open(url, Options { wait: PATIENCE, ..Options::default() }).await
}

fn url(folder: &Path) -> String {
    format!("sqlite://{}/store.db", folder.display())
}

/// Checks that the log is whole and holds at least so many events.
async fn assert_holds(trace: &Trace, acknowledged: u64) {
    let events = trace.read(Position(0), &Selection::default(), usize::MAX).await.unwrap();
    assert!(events.len() as u64 >= acknowledged, "{} of {acknowledged}", events.len());
    let audit = trace.audit_store(vec![]).await.unwrap();
    assert!(audit.audits.iter().all(|audit| audit.faults.is_empty()));
    assert_eq!((audit.missing, trace.compare_views().await.unwrap()), (0, vec![]));
}

/// Not a test: what others start in a namespace of its own. It writes until it is refused, says how much was
/// acknowledged and why no more is, waits for a line, and goes on.
#[tokio::test]
#[ignore = "started by the test of a full disk"]
async fn a_process_that_writes_until_it_is_refused() {
    let mut input = BufReader::new(std::io::stdin()).lines();
    let Some(Ok(url)) = input.next() else { return };
    let trace = open(&url).await.unwrap();
    let mut acknowledged = 0;
    for line in 0..2 {
        let refused = loop {
            match trace.append(note(acknowledged)).await {
                Ok(_) => acknowledged += 1,
                Err(error) => break error.to_string(),
            }
            if line == 1 && acknowledged % 50 == 0 {
                break "no more".to_owned();
            }
            if line == 0 && acknowledged == 100 {
                println(&format!("ready {acknowledged}"));
            }
        };
        println(&format!("refused {acknowledged} {refused}"));
        input.next();
    }
    assert_holds(&trace, acknowledged).await;
    println(&format!("sound {acknowledged}"));
    trace.close().await;
}

fn println(line: &str) {
    let mut out = std::io::stdout().lock();
    // The runner's own words stand before it on the line.
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

/// Runs it on a file system of its own, does `spoil` to that by a script once it is ready, then `mend`, and returns
/// what it said.
fn spoiled(mounts: Mounts, spoil: &str, mend: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$1\" && exec \"$2\" --ignored --exact \
        a_process_that_writes_until_it_is_refused --nocapture";
    let mut child = mounts
        .shell(script)
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", url(folder.path())).unwrap();
    let within = |script: &str| {
        // Into the same namespaces, where the file system is.
        let done = std::process::Command::new("nsenter")
            .args(["--target", &pid, "--user", "--preserve-credentials", "--mount"])
            .args(["sh", "-c", script, "sh"])
            .arg(folder.path())
            .status()
            .unwrap();
        assert!(done.success(), "{script}");
    };
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if line.starts_with("ready") {
            within(spoil);
        } else if line.starts_with("refused") {
            if said.is_empty() {
                within(mend);
            }
            said.push(line);
            writeln!(input).unwrap();
        } else if line.starts_with("sound") {
            said.push(line);
        }
    }
    assert!(child.wait().unwrap().success(), "{said:?}");
    said
}

#[track_caller]
fn assert_recovered(said: &[String], reason: &str) {
    let [first, second, sound] = said else { panic!("{said:?}") };
    assert!(first.contains("/store.db cannot be written: ") && first.ends_with(reason), "{first}");
    assert!(second.ends_with("no more"), "{second}");
    assert!(sound.starts_with("sound"), "{sound}");
}

#[test]
fn a_disk_that_is_full_is_told_and_written_on_once_there_is_room() {
    let Some(mounts) = Mounts::available() else { return };

    let said = spoiled(
        mounts,
        "dd if=/dev/zero of=\"$1/fill\" bs=4096 2>/dev/null; true",
        "rm \"$1/fill\"",
    );

    assert_recovered(&said, "the disk is full");
}

#[test]
fn a_store_on_a_read_only_disk_is_told_when_it_is_opened() {
    let Some(mounts) = Mounts::available() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o ro none \"$1\" && exec \"$2\" --ignored --exact \
        a_process_that_opens_and_says_what_it_meets --nocapture";

    let output = mounts
        .shell(script)
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .arg(url(folder.path()))
        .env("URL_OF_STORE", url(folder.path()))
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains(
            "/store.db: the file cannot be opened; its folder must exist and be writable"
        ),
        "{said}"
    );
}

#[test]
fn a_full_disk_is_told_when_a_store_is_opened_on_it() {
    let Some(mounts) = Mounts::available() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64k none \"$1\" \
        && { dd if=/dev/zero of=\"$1/fill\" bs=4096 2>/dev/null; true; } && exec \"$2\" --ignored \
        --exact a_process_that_opens_and_says_what_it_meets --nocapture";

    let output = mounts
        .shell(script)
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .env("URL_OF_STORE", url(folder.path()))
        .output()
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("/store.db: the disk is full"), "{said}");
}

/// Not a test: opens a store and says what it met.
#[tokio::test]
#[ignore = "started by the test of a read-only disk"]
#[expect(
    clippy::disallowed_methods,
    reason = "a process that a test starts is told by its environment"
)]
async fn a_process_that_opens_and_says_what_it_meets() {
    let url = std::env::var("URL_OF_STORE").unwrap();
    let error = open(&url).await.unwrap_err();
    println(&error.to_string());
}

/// Not a test: reads a store, and says how many events it holds or what it met.
#[tokio::test]
#[ignore = "started by the tests of who only reads"]
#[expect(
    clippy::disallowed_methods,
    reason = "a process that a test starts is told by its environment"
)]
async fn a_process_that_reads_and_says_what_there_is() {
    let url = std::env::var("URL_OF_STORE").unwrap();
    let options = Options { wait: PATIENCE, ..Options::default() };
    match Trace::open_to_read(&url, options).await {
        Err(error) => println(&format!("refused: {error}")),
        Ok(trace) => {
            let events = trace.read(Position(0), &Selection::default(), usize::MAX).await.unwrap();
            let look = Trace::look(&url, PATIENCE).await.unwrap();
            let pages = Trace::pages_at(&url, PATIENCE).await.unwrap();
            let sound = trace.audit_store(vec![]).await.unwrap().audits[0].faults.is_empty();
            let written = trace.append(note(99)).await.unwrap_err();
            println(&format!(
                "holds {} with schema {:?}, pages {pages:?}, sound {sound}; {written}",
                events.len(),
                look.found
            ));
        }
    }
}

/// Makes a store of three events in a folder; with `open` it is copied while it is still written, its last events beside it.
async fn made(folder: &Path, open_still: bool) {
    let own = tempfile::tempdir().unwrap();
    let trace = open(&url(own.path())).await.unwrap();
    for n in 0..3 {
        trace.append(note(n)).await.unwrap();
    }
    if !open_still {
        trace.close().await;
    }
    for file in ["store.db", "store.db-wal"].map(|name| own.path().join(name)) {
        if file.exists() {
            std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
        }
    }
    trace.close().await;
}

/// Reads the store of a folder in a process that may write nowhere near it, once `script` has spoilt it.
fn read_by(mounts: Mounts, folder: &Path, script: &str, within: &str) -> String {
    let whole = format!(
        "{script} exec {within} \"$2\" --ignored --exact a_process_that_reads_and_says_what_there_is --nocapture"
    );
    let output = mounts
        .shell(&whole)
        .arg(folder)
        .arg(std::env::current_exe().unwrap())
        .env("URL_OF_STORE", url(folder))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = said.lines().find(|line| line.starts_with("holds") || line.starts_with("refused"));
    told.map_or_else(
        || panic!("{output:?}"),
        |line| line.replace(&*folder.to_string_lossy(), "DIR"),
    )
}

/// Begins a process in a namespace in which nobody is anybody: it has no rights beyond those of its owner.
const NOBODY: &str = "unshare --user";

const IN_A_FILE_SYSTEM: &str = "cp -r \"$1\" /tmp/kept.$$ && mount -t tmpfs -o size=400k none \"$1\" \
    && cp /tmp/kept.$$/* \"$1\" && rm -r /tmp/kept.$$ &&";

#[tokio::test]
async fn a_store_is_read_on_a_full_disk_on_one_that_is_read_only_and_in_a_folder_of_somebody_else()
{
    let Some(mounts) = Mounts::available() else { return };
    let full = format!(
        "{IN_A_FILE_SYSTEM} {{ dd if=/dev/zero of=\"$1/fill\" bs=4096 2>/dev/null; true; }} &&"
    );
    let read_only = format!("{IN_A_FILE_SYSTEM} mount -o remount,ro \"$1\" &&");
    let of_others = "chmod 555 \"$1\" && chmod 444 \"$1\"/* &&";

    let mut said = Vec::new();
    for (script, within) in [(full.as_str(), ""), (&read_only, ""), (of_others, NOBODY)] {
        let folder = tempfile::tempdir().unwrap();
        made(folder.path(), false).await;
        said.push(read_by(mounts, folder.path(), script, within));
        let _ = std::process::Command::new("chmod").arg("755").arg(folder.path()).status();
    }

    let holds = "holds 3 with schema Some(3), pages [], sound true; the store at DIR/store.db cannot be written: ";
    assert_eq!(
        said,
        [
            format!("{holds}it is read-only"),
            format!("{holds}it is read-only"),
            format!("{holds}it is read-only")
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_read_without_writing_says_so_and_makes_nothing() {
    let Some(mounts) = Mounts::available() else { return };
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), true).await;

    let told = read_by(mounts, folder.path(), "chmod 555 \"$1\" && chmod 444 \"$1\"/* &&", NOBODY);
    let _ = std::process::Command::new("chmod").arg("755").arg(folder.path()).status();

    let mut files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["store.db", "store.db-wal"]);
    assert!(
        told.starts_with("refused: cannot open the store at DIR/store.db: ")
            && told.ends_with(
                "; its last events are in DIR/store.db-wal, which is read only where files can be made beside it: copy \
                 both to such a folder"
            ),
        "{told}"
    );
}

#[tokio::test]
async fn where_there_is_no_store_whoever_reads_finds_nothing_and_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");

    let trace = Trace::open_to_read(&url(folder.path()), Options::default()).await.unwrap();
    let events = trace.read(Position(0), &Selection::default(), 9).await.unwrap();
    trace.close().await;
    std::fs::create_dir(&file).unwrap();
    let refused = Trace::open_to_read(&url(folder.path()), Options::default()).await.unwrap_err();

    assert_eq!(events, []);
    assert!(refused.to_string().ends_with("store.db: it is a folder"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_file_that_is_removed_while_it_is_open_is_an_error_of_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    trace.append(note(1)).await.unwrap();
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        std::fs::remove_file(folder.path().join(file)).unwrap();
    }

    let refused = trace.append(note(2)).await.unwrap_err();
    let lease = trace.acquire(run(), "me", Span::from_secs(1)).await.unwrap_err();

    let told = format!(
        "the store at {}/store.db cannot be written: its file was removed while it was open",
        folder.path().display()
    );
    assert_eq!((refused.to_string(), lease.to_string()), (told.clone(), told));
    trace.close().await;
}

#[tokio::test]
async fn a_file_that_is_replaced_while_it_is_open_is_an_error_of_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    trace.append(note(1)).await.unwrap();
    let other = tempfile::tempdir().unwrap();
    let another = open(&url(other.path())).await.unwrap();
    another.append(note(1)).await.unwrap();
    another.close().await;
    std::fs::copy(other.path().join("store.db"), folder.path().join("new.db")).unwrap();
    std::fs::rename(folder.path().join("new.db"), folder.path().join("store.db")).unwrap();

    let refused = trace.append(note(2)).await.unwrap_err();

    assert!(
        refused.to_string().ends_with("its file was replaced by another while it was open"),
        "{refused}"
    );
    trace.close().await;
}

#[tokio::test]
async fn a_write_ahead_log_that_is_removed_while_it_is_open_is_an_error_of_the_next_write() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    trace.append(note(1)).await.unwrap();
    std::fs::remove_file(folder.path().join("store.db-wal")).unwrap();

    let refused = trace.append(note(2)).await.unwrap_err();

    let told = refused.to_string();
    assert!(
        told.ends_with("store.db-wal, which holds its last events, was removed while it was open"),
        "{told}"
    );
    trace.close().await;
}

#[tokio::test]
async fn a_vacuum_by_another_process_is_no_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    trace.append(note(1)).await.unwrap();
    let other = open(&url(folder.path())).await.unwrap();
    other.vacuum().await.unwrap();
    other.close().await;

    trace.append(note(2)).await.unwrap();

    assert_holds(&trace, 2).await;
    trace.close().await;
}

#[tokio::test]
async fn pg_connections_that_are_cut_lose_nothing() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    let trace = Trace::open(database.url(), Options::default()).await.unwrap();
    let mut other = sqlx::PgConnection::connect(database.url()).await.unwrap();
    let mut acknowledged = 0;

    for n in 0..40 {
        if n % 8 == 7 {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
            sqlx::raw_sql(cut).execute(&mut other).await.unwrap();
        }
        match trace.append(note(n)).await {
            Ok(_) => acknowledged += 1,
            Err(error) => assert!(matches!(error, StoreError::Unavailable { .. }), "{error}"),
        }
    }

    assert!(acknowledged >= 35, "{acknowledged}");
    // What reads may meet a cut connection once.
    let _ = trace.head().await;
    let again = Trace::open(database.url(), Options::default()).await.unwrap();
    assert_holds(&again, acknowledged).await;
    again.close().await;
    trace.close().await;
}

#[tokio::test]
async fn pg_a_server_that_stops_is_told_and_one_that_comes_back_is_written_on() {
    let Some(postgres) = Postgres::of_ones_own() else { return };
    let database = postgres.database().unwrap();
    let trace = open(database.url()).await.unwrap();
    for n in 0..20 {
        trace.append(note(n)).await.unwrap();
    }

    postgres.stop().unwrap();
    let refused = trace.append(note(20)).await.unwrap_err();
    let unread = trace.head().await.unwrap_err();
    let unopened = open(database.url()).await.map(drop).unwrap_err();
    postgres.start().unwrap();
    let mut after = trace.append(note(21)).await;
    if after.is_err() {
        // The connection that was found dead is not used again.
        after = trace.append(note(21)).await;
    }

    for error in [&refused, &unread] {
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.to_string().starts_with("the store at postgres://"), "{error}");
    }
    assert!(matches!(unopened, StoreError::Open { .. }), "{unopened}");
    after.unwrap();
    let again = open(database.url()).await.unwrap();
    assert_holds(&again, 21).await;
    again.close().await;
    trace.close().await;
}

#[tokio::test]
async fn pg_whoever_reads_where_there_is_no_store_finds_nothing_and_makes_none() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();

    let trace = Trace::open_to_read(database.url(), Options::default()).await.unwrap();
    let events = trace.read(Position(0), &Selection::default(), 9).await.unwrap();
    trace.close().await;

    assert_eq!(events, []);
    let mut other = sqlx::PgConnection::connect(database.url()).await.unwrap();
    let schemas = "SELECT COUNT(*) FROM pg_catalog.pg_namespace WHERE nspname = 'formwork'";
    let made: i64 = sqlx::query_scalar(schemas).fetch_one(&mut other).await.unwrap();
    assert_eq!(made, 0);
}

#[tokio::test]
async fn pg_a_database_that_is_only_read_is_told_before_anything_is_appended() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    let trace = Trace::open(database.url(), Options::default()).await.unwrap();
    trace.append(note(1)).await.unwrap();
    trace.may_append().await.unwrap();
    trace.close().await;

    let only_read = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', \
        current_database()); END $$";
    let mut other = sqlx::PgConnection::connect(database.url()).await.unwrap();
    sqlx::raw_sql(only_read).execute(&mut other).await.unwrap();
    let trace = Trace::open_to_read(database.url(), Options::default()).await.unwrap();
    let told = trace.may_append().await.unwrap_err();

    assert!(
        told.to_string().contains("cannot execute INSERT in a read-only transaction"),
        "{told}"
    );
    assert_eq!(trace.head().await.unwrap(), Position(1));
    trace.close().await;
}

#[tokio::test]
async fn pg_who_may_only_read_is_told_so_and_who_may_not_vacuum_too() {
    let Some(postgres) = Postgres::shared() else { return };
    let database = postgres.database().unwrap();
    let trace = Trace::open(database.url(), Options::default()).await.unwrap();
    trace.append(note(1)).await.unwrap();
    trace.close().await;
    let mut owner = sqlx::PgConnection::connect(database.url()).await.unwrap();
    let reader = format!("reader_{}", uuid::Uuid::new_v4().simple());
    let made = format!(
        "CREATE ROLE {reader} LOGIN; GRANT USAGE ON SCHEMA formwork TO {reader}; \
         GRANT SELECT ON ALL TABLES IN SCHEMA formwork TO {reader}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(made)).execute(&mut owner).await.unwrap();

    let (_, place) = database.url().split_once('@').unwrap();
    let trace = Trace::open_to_read(&format!("postgres://{reader}@{place}"), Options::default())
        .await
        .unwrap();
    let append = trace.may_append().await.unwrap_err();
    let vacuum = trace.vacuum().await.unwrap_err();
    trace.close().await;
    let gone = format!("DROP OWNED BY {reader}; DROP ROLE {reader}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(gone)).execute(&mut owner).await.unwrap();

    assert!(append.to_string().contains("it refuses: permission denied for table"), "{append}");
    let whose = format!("who owns its tables, may vacuum them, and this is {reader}");
    assert!(vacuum.to_string().ends_with(&whose), "{vacuum}");
}

#[test]
fn pg_an_address_that_is_none_is_told_without_what_is_secret_in_it() {
    let told = |url| Trace::address(url).unwrap_err().to_string();

    let port = told("postgres://ada:s3cret@db:99999/fw");
    let mode = told("postgres://ada:s3cret@db/fw?sslmode=bogus");

    assert!(port.contains("postgres://…@db:99999/fw") && port.contains("invalid port"), "{port}");
    assert!(mode.contains("bogus") && !mode.contains("error with configuration"), "{mode}");
    assert!(!port.contains("s3cret") && !mode.contains("s3cret"), "{port} {mode}");
    assert_eq!(Trace::address("postgres://ada@[::1]:5432/fw"), Ok(()));
}
