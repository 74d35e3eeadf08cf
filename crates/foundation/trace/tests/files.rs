//! What can be wrong with a file, each with its own clear error, and what a killed process leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use formwork_protocols::{
    Append, EventBody, EventStore as _, NewEvent, Position, Principal, Rng as _, RunId, SeededRng,
    Span, StoreError, Timestamp, Views as _,
    store::{AuditFault, Selection},
};
use formwork_trace::{Options, Trace};
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

fn note(n: u64) -> NewEvent {
    NewEvent {
        task: None,
        principal: Principal::system("test"),
        at: Timestamp::from_micros(1),
        body: EventBody::Unknown { kind: "test.note".to_owned(), data: json!({ "n": n }) },
        idempotency_key: None,
    }
}

fn of(run: RunId, events: Vec<NewEvent>) -> Append {
    Append { run, token: None, events, blobs: vec![] }
}

fn run() -> RunId {
    RunId::from_uuid(uuid::Uuid::from_u128(7))
}

fn url(folder: &Path) -> String {
    format!("sqlite://{}/store.db", folder.display())
}

/// Opens a store, on however busy a machine.
async fn open(url: &str) -> Result<Trace, StoreError> {
    open_within(url, Span::from_secs(30)).await
}

/// Opens a store where it is waited for in vain.
async fn open_within(url: &str, wait: Span) -> Result<Trace, StoreError> {
    Trace::open(url, Options { wait, ..Options::default() }).await
}

/// Returns the error's text, with the place left out.
fn said(error: &StoreError, folder: &Path) -> String {
    error.to_string().replace(&folder.display().to_string(), "DIR")
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();

    let error = open(&url(&folder.path().join("none"))).await.unwrap_err();

    assert_eq!(
        said(&error, folder.path()),
        "cannot open the store at DIR/none/store.db: there is no folder DIR/none"
    );
}

#[tokio::test]
async fn a_folder_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("store.db")).unwrap();

    let error = open(&url(folder.path())).await.unwrap_err();

    assert_eq!(
        said(&error, folder.path()),
        "cannot open the store at DIR/store.db: it is a folder"
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let text = "not a database ".repeat(100);
    std::fs::write(&file, &text).unwrap();

    let error = open(&url(folder.path())).await.unwrap_err();

    assert_eq!(
        said(&error, folder.path()),
        "the store at DIR/store.db is damaged: the file is not a SQLite database"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[tokio::test]
async fn a_database_of_another_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let other = format!("{}?mode=rwc", url(folder.path()));
    let mut connection = SqliteConnection::connect(&other).await.unwrap();
    sqlx::raw_sql("CREATE TABLE notes (n)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();

    let error = open(&url(folder.path())).await.unwrap_err();

    assert_eq!(
        said(&error, folder.path()),
        "cannot open the store at DIR/store.db: it is a database of another program"
    );
}

#[tokio::test]
async fn an_address_of_another_kind_is_refused_without_its_password() {
    let error = open("mysql://ada:secret@host/db").await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "cannot open the store at mysql: the address of a store begins with sqlite: or postgres:"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let address =
        format!("postgres://ada:secret@localhost/db?host={}&port=5432", folder.path().display());

    let error = open_within(&address, Span::from_millis(100)).await.unwrap_err();

    let said = said(&error, folder.path());
    assert!(said.starts_with("cannot open the store at postgres://DIR:5432/db: "), "{said}");
    assert!(!said.contains("secret"));
}

#[tokio::test]
async fn a_server_that_refuses_is_told_as_such_and_not_as_a_want_of_time() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };

    let address = format!("postgres://ada:secret@127.0.0.1:{port}/db");
    let error = open_within(&address, Span::from_secs(1)).await.unwrap_err();

    let told =
        format!("cannot open the store at postgres://127.0.0.1:{port}/db: Connection refused");
    assert!(error.to_string().starts_with(&told), "{error}");
}

#[tokio::test]
async fn a_store_in_which_a_table_is_missing_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    let mut other = SqliteConnection::connect(&url(folder.path())).await.unwrap();
    sqlx::raw_sql("DROP TABLE runs").execute(&mut other).await.unwrap();

    let error = trace.runs(None, 9).await.unwrap_err();

    assert_eq!(
        said(&error, folder.path()),
        "the store at DIR/store.db is damaged: no such table: runs; its tables are not those that \
         its version has"
    );
    trace.close().await;
}

#[tokio::test]
async fn a_read_only_store_is_read_and_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let writer = open(&url(folder.path())).await.unwrap();
    writer.append(of(run(), vec![note(1)])).await.unwrap();
    writer.close().await;

    let trace = open(&format!("{}?mode=ro", url(folder.path()))).await.unwrap();
    let events = trace.read(Position(0), &Selection::default(), 9).await.unwrap();
    let error = trace.append(of(run(), vec![note(2)])).await.unwrap_err();

    assert_eq!(events.len(), 1);
    assert_eq!(
        said(&error, folder.path()),
        "the store at DIR/store.db cannot be written: it is read-only"
    );
    trace.close().await;
}

#[tokio::test]
async fn a_locked_store_says_so_and_writes_once_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open_within(&url(folder.path()), Span::from_secs(2)).await.unwrap();
    let mut other = SqliteConnection::connect(&url(folder.path())).await.unwrap();
    sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();

    let error = trace.append(of(run(), vec![note(1)])).await.unwrap_err();
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    let recorded = trace.append(of(run(), vec![note(2)])).await.unwrap();

    assert_eq!(
        said(&error, folder.path()),
        "the store at DIR/store.db cannot be written: it is locked by another process"
    );
    assert_eq!(recorded[0].seq, 1);
    trace.close().await;
}

#[tokio::test]
async fn an_altered_event_is_corrupt_where_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    trace.append(of(run(), vec![note(1)])).await.unwrap();
    let mut other = SqliteConnection::connect(&url(folder.path())).await.unwrap();
    let sql = "DROP TRIGGER events_are_not_changed; UPDATE events SET data = 'no json'";
    sqlx::raw_sql(sql).execute(&mut other).await.unwrap();

    let error = trace.read(Position(0), &Selection::default(), 9).await.unwrap_err();

    let said = said(&error, folder.path());
    assert!(
        said.starts_with("the store at DIR/store.db is damaged: event 1 cannot be read: "),
        "{said}"
    );
    assert!(matches!(trace.rebuild().await, Err(StoreError::Corrupt { .. })));
    trace.close().await;
}

#[tokio::test]
async fn a_damaged_page_is_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    trace.append(of(run(), (0..500).map(note).collect())).await.unwrap();
    trace.close().await;
    let file = folder.path().join("store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();

    let trace = open(&url(folder.path())).await;
    let read = match &trace {
        Ok(trace) => trace.read(Position(0), &Selection::default(), 1_000).await.map(drop),
        Err(StoreError::Corrupt { .. }) => return,
        Err(error) => panic!("{error}"),
    };

    assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
}

#[tokio::test]
async fn a_damaged_page_is_named_and_hides_only_the_run_that_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let trace = open(&url(folder.path())).await.unwrap();
    let (hit, whole) = (run(), RunId::from_uuid(uuid::Uuid::from_u128(8)));
    trace.append(of(hit, (0..300).map(note).collect())).await.unwrap();
    trace.append(of(whole, (300..600).map(note).collect())).await.unwrap();
    trace.close().await;
    let file = folder.path().join("store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let needle = br#"{"n":150}"#;
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    let page = at / 4096;
    bytes[page * 4096] = 0xa5; // Which kind of page it is.
    std::fs::write(&file, &bytes).unwrap();

    let trace = open(&url(folder.path())).await.unwrap();
    let pages = trace.pages().await.unwrap();
    let audit = trace.audit_store(vec![]).await.unwrap();
    trace.close().await;
    let unopened = Trace::pages_at(&url(folder.path()), Span::from_secs(1)).await.unwrap();

    assert!(pages[0].contains(&format!("page {}: ", page + 1)), "{pages:?}");
    assert_eq!(unopened, pages);
    let [first, second] = audit.audits.as_slice() else { panic!("{audit:?}") };
    assert_eq!((first.run, second.run), (hit, whole));
    let damaged = matches!(first.faults.as_slice(), [AuditFault::Unreadable { .. }]);
    assert!(damaged && second.faults.is_empty(), "{audit:?}");
}

/// Not a test: what the next one starts and kills. It writes batches to the store that it is told on
/// its standard input, and says which were acknowledged.
#[tokio::test]
#[ignore = "started by the test of killed processes"]
async fn a_process_that_writes_until_it_is_killed() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    let (Some(url), Some(seed)) = (words.next(), words.next()) else { return };
    let rng = SeededRng::new(seed.parse().unwrap());
    let trace = Trace::open(url, Options::default()).await.unwrap();
    let writers = (0..4_u128).map(|writer| {
        let (trace, rng) = (&trace, &rng);
        async move {
            for batch in 0_u64.. {
                let size = 1 + rng.next_u64() % 6;
                let run = RunId::from_uuid(uuid::Uuid::from_u128(writer));
                let events = (0..size)
                    .map(|n| {
                        let data = json!({ "batch": batch, "size": size, "n": n });
                        let body = EventBody::Unknown { kind: "test.batch".to_owned(), data };
                        NewEvent { body, ..note(n) }
                    })
                    .collect();
                trace.append(of(run, events)).await.unwrap();
                let mut out = std::io::stdout().lock();
                writeln!(out, "acked {writer} {batch}.").unwrap();
                out.flush().unwrap();
            }
        }
    });
    futures::future::join_all(writers).await;
}

#[tokio::test]
async fn a_killed_process_leaves_whole_batches_and_a_sound_log() {
    let folder = tempfile::tempdir().unwrap();
    let url = url(folder.path());
    let rng = SeededRng::new(3);

    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "a_process_that_writes_until_it_is_killed"])
            .arg("--nocapture")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "{url} {round}").unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let most = usize::try_from(20 + rng.next_u64() % 300).unwrap();
        let mut heard: Vec<String> = lines.by_ref().take(most).map(Result::unwrap).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        heard.extend(lines.map_while(Result::ok));

        let acked = heard.iter().filter_map(|line| acked(line)).collect::<BTreeMap<_, _>>();
        let trace = open(&url).await.unwrap();
        for (writer, last) in &acked {
            let run = RunId::from_uuid(uuid::Uuid::from_u128(*writer));
            let audit = trace.audit(run).await.unwrap();
            assert_eq!(audit.faults, [], "round {round}");
            whole(&trace, run, *last).await;
        }
        assert!(!acked.is_empty());
        trace.close().await;
    }
}

/// Reads the writer and the batch out of what the process says; its last line may be cut short.
fn acked(line: &str) -> Option<(u128, u64)> {
    let (_, said) = line.split_once("acked ")?;
    let (writer, batch) = said.strip_suffix('.')?.split_once(' ')?;
    Some((writer.parse().ok()?, batch.parse().ok()?))
}

/// Checks that the run's last process left its batches whole, up to the last acknowledged one.
async fn whole(trace: &Trace, run: RunId, acked: u64) {
    let selection = Selection { run: Some(run), ..Selection::default() };
    let events = trace.read(Position(0), &selection, usize::MAX).await.unwrap();
    let row = |event: &formwork_protocols::Event| {
        let data = event.body.data().unwrap();
        let number = |name: &str| data[name].as_u64().unwrap();
        (number("batch"), number("size"), number("n"))
    };
    let (mut last, mut size, mut next) = (None, 0, 0);
    for (batch, found, n) in events.iter().map(row) {
        if next == size {
            // A later process began again from the first batch.
            assert!(batch == 0 || Some(batch) == last.map(|last: u64| last + 1), "batch {batch}");
            (last, size, next) = (Some(batch), found, 0);
        }
        assert_eq!((Some(batch), found, n), (last, size, next));
        next += 1;
    }
    assert_eq!(next, size, "the last batch is whole");
    assert!(last >= Some(acked), "batch {acked} was acknowledged, the log ends with {last:?}");
}
