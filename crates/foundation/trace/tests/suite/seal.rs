//! What is found of a log that was changed as a whole, and of views that are not what it says.

use formwork_trace::{CheckpointError, CheckpointFault, SigningKey};

use super::*;

fn key() -> SigningKey {
    SigningKey::parse(&SigningKey::generate().unwrap()).unwrap()
}

/// Removes a run with all that remembers it.
async fn remove(place: &Place, run: RunId) {
    let id = bytes(place, run);
    let tables = ["events", "heads", "runs", "tasks", "checks", "calls", "files"];
    let sql: String =
        tables.iter().map(|table| format!("DELETE FROM {table} WHERE run = {id};")).collect();
    place.tamper(&format!("DELETE FROM attempts;{sql}")).await;
}

pub(crate) async fn a_run_that_was_removed_whole_is_found(place: &Place) {
    let trace = place.open().await;
    let (key, runs) = (key(), [1, 2, 3].map(run_at));
    for run in runs {
        trace.append(of(run, story(run).events)).await.unwrap();
    }
    let kept = trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap();

    // From the middle: the positions of its events are gone.
    remove(place, runs[1]).await;
    let middle = trace.audit_store(vec![]).await.unwrap();
    assert_eq!(middle.missing, 20);
    assert!(middle.unguarded.contains(&"events_are_not_changed"), "{:?}", middle.unguarded);
    assert_eq!(middle.checkpoints[0].fault, Some(CheckpointFault::Runs { found: 2 }));
    assert!(middle.audits.iter().all(|audit| audit.faults.is_empty()));

    // From the end, with every checkpoint: only what was kept elsewhere tells.
    remove(place, runs[2]).await;
    place
        .tamper(match place {
            Place::Sqlite(_) => "DROP TRIGGER checkpoints_are_not_deleted; DELETE FROM checkpoints",
            Place::Postgres(_) => {
                "DROP TRIGGER checkpoints_are_not_changed ON checkpoints; DELETE FROM checkpoints"
            }
        })
        .await;
    let end = trace.audit_store(vec![]).await.unwrap();
    assert_eq!((end.missing, end.checkpoints.len()), (0, 0));
    let end = trace.audit_store(vec![kept]).await.unwrap();
    assert_eq!(end.checkpoints[0].fault, Some(CheckpointFault::Ahead));
    trace.close().await;
}

pub(crate) async fn a_history_that_was_written_anew_is_found(place: &Place) {
    let (trace, key) = (place.open().await, key());
    trace.append(of(run_at(1), vec![note("test.one", json!({ "n": 1 }))])).await.unwrap();
    trace.append(of(run_at(2), vec![note("test.two", json!({ "n": 2 }))])).await.unwrap();
    trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap();
    let event = all(&trace).await.remove(0);
    let forged = formwork_protocols::event::Link {
        run: event.run,
        seq: 1,
        task: None,
        principal: event.principal.as_str(),
        at: event.at,
        kind: event.body.kind(),
        data: "{\"n\":9}",
        idempotency_key: None,
    }
    .hash(&formwork_protocols::event::GENESIS);
    let (id, hash) = match place {
        Place::Sqlite(_) => (bytes(place, event.run), format!("x'{forged}'")),
        Place::Postgres(_) => (bytes(place, event.run), format!("'\\x{forged}'")),
    };
    place
        .tamper(&format!(
            "UPDATE events SET data = '{{\"n\":9}}', hash = {hash} WHERE run = {id}; \
             UPDATE heads SET hash = {hash} WHERE run = {id}"
        ))
        .await;

    let audit = trace.audit_store(vec![]).await.unwrap();

    // It agrees with itself, and not with what was signed.
    assert!(audit.audits.iter().all(|audit| audit.faults.is_empty()));
    assert_eq!(audit.missing, 0);
    assert_eq!(audit.checkpoints[0].fault, Some(CheckpointFault::Root));
    trace.close().await;
}

pub(crate) async fn a_checkpoint_that_was_changed_is_found(place: &Place) {
    let (trace, key) = (place.open().await, key());
    trace.append(of(run_at(1), vec![note("test.one", json!({}))])).await.unwrap();
    let kept = trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap();
    place.tamper(match place {
        Place::Sqlite(_) => "DROP TRIGGER checkpoints_are_not_changed; UPDATE checkpoints SET at = 2",
        Place::Postgres(_) => {
            "DROP TRIGGER checkpoints_are_not_changed ON checkpoints; UPDATE checkpoints SET at = 2"
        }
    })
    .await;

    let faults = trace.audit_store(vec![kept]).await.unwrap().checkpoints;

    let mut faults: Vec<_> = faults.into_iter().map(|compared| compared.fault).collect();
    faults.sort_by_key(Option::is_some);
    assert_eq!(faults, [None, Some(CheckpointFault::NotSigned)]);
    trace.close().await;
}

pub(crate) async fn what_is_not_sound_is_not_signed(place: &Place) {
    let (trace, key, run) = (place.open().await, key(), run_at(1));
    let empty = trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap_err();
    trace.append(of(run, story(run).events)).await.unwrap();
    let id = bytes(place, run);
    place.tamper(&format!("DELETE FROM events WHERE run = {id} AND seq = 20")).await;

    let refused = trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap_err();

    assert!(matches!(empty, CheckpointError::Empty));
    assert_eq!(
        refused.to_string(),
        format!("run {run} does not end as the store remembers: nothing was signed")
    );
    trace.close().await;
}

pub(crate) async fn an_audit_holds_while_others_write(place: &Place) {
    let (trace, other, key) = (place.open().await, place.open().await, key());
    let write = async {
        for n in 0..60_u64 {
            let run = run_at(i64::try_from(n % 7).unwrap());
            for _ in 0..3 {
                other.append(of(run, vec![note("test.note", json!({ "n": n }))])).await.unwrap();
            }
        }
    };
    let check = async {
        let mut seen = 0;
        while seen < 180 {
            if trace.head().await.unwrap() > Position(0) {
                trace.checkpoint(&key, Timestamp::from_micros(1)).await.unwrap();
            }
            let audit = trace.audit_store(vec![]).await.unwrap();
            for audit in &audit.audits {
                assert_eq!(audit.faults, []);
            }
            assert_eq!(audit.missing, 0);
            assert!(audit.checkpoints.iter().all(|compared| compared.fault.is_none()));
            assert_eq!(trace.compare_views().await.unwrap(), []);
            seen = audit.audits.iter().map(|audit| audit.events).sum();
        }
    };

    // `run_at` gives another id each time, so each note is a run of its own.
    tokio::join!(write, check);

    trace.close().await;
    other.close().await;
}

pub(crate) async fn a_view_that_is_not_what_the_log_says_is_found_and_mended(place: &Place) {
    let trace = place.open().await;
    for n in 1..=2 {
        trace.append(of(run_at(n), story(run_at(n)).events)).await.unwrap();
    }
    let sound = trace.views_digest().await.unwrap();
    assert_eq!(trace.compare_views().await.unwrap(), []);

    let id = bytes(place, all(&trace).await[0].run);
    place
        .tamper(&format!(
            "UPDATE runs SET cost = cost + 1 WHERE run = {id}; DELETE FROM checks WHERE run = {id}; \
             INSERT INTO files (run, path, added, removed) VALUES ({id}, 'never', 0, 0)"
        ))
        .await;
    let faults = trace.compare_views().await.unwrap();

    let told: Vec<_> =
        faults.iter().map(|fault| (fault.view, fault.missing, fault.extra)).collect();
    assert_eq!(told, [("runs", 1, 1), ("checks", 2, 0), ("files", 0, 1)]);
    assert_ne!(trace.views_digest().await.unwrap(), sound);
    trace.rebuild().await.unwrap();
    assert_eq!(trace.compare_views().await.unwrap(), []);
    assert_eq!(trace.views_digest().await.unwrap(), sound);
    trace.close().await;
}

pub(crate) async fn the_views_made_again_are_the_same_bytes_on_both_engines(place: &Place) {
    let other = match place {
        Place::Sqlite(_) => Place::postgres(),
        Place::Postgres(_) => Some(Place::sqlite()),
    };
    let Some(other) = other else { return };
    let (one, two) = (place.open().await, other.open().await);
    let stories: Vec<_> = (1..=3).map(|n| (run_at(n), story(run_at(n)).events)).collect();
    for (run, events) in stories {
        one.append(of(run, events.clone())).await.unwrap();
        // In pieces: the views do not depend on how events came.
        for event in events {
            two.append(of(run, vec![event])).await.unwrap();
        }
    }
    let kept = one.views_digest().await.unwrap();

    one.rebuild().await.unwrap();
    two.rebuild().await.unwrap();

    assert_eq!(one.views_digest().await.unwrap(), kept);
    assert_eq!(two.views_digest().await.unwrap(), kept);
    one.close().await;
    two.close().await;
}

pub(crate) async fn a_store_tells_what_it_holds_and_gives_space_back(place: &Place) {
    let url = place.url();
    let nothing = Trace::look(&url, Span::from_secs(5)).await.unwrap();
    let trace = place.open().await;
    let there = Trace::look(&url, Span::from_secs(5)).await.unwrap();
    trace.append(of(run_at(1), story(run_at(1)).events)).await.unwrap();
    let mut open = story(run_at(2)).events;
    open.truncate(4);
    trace.append(of(run_at(2), open)).await.unwrap();
    let large = Blob::new(b"a line of some output\n".repeat(20_000));
    trace.append(Append { blobs: vec![large.clone()], ..of(run_at(2), vec![]) }).await.unwrap();

    let status = trace.status(Timestamp::from_micros(1)).await.unwrap();
    let (before, after) = trace.vacuum().await.unwrap();

    assert_eq!((nothing.found, there.found, there.known), (None, Some(3), 3));
    assert_eq!((status.schema, status.head, status.events), (3, Position(24), 24));
    let runs: Vec<_> = status.runs.iter().map(|(state, count)| (state.as_str(), *count)).collect();
    assert_eq!(runs, [("completed", 1), ("running", 1)]);
    assert_eq!((status.waiting, status.blobs, status.archived), (1, 1, 0));
    assert_eq!(status.plain_bytes, large.bytes().len() as u64);
    assert!(status.blob_bytes < status.plain_bytes / 100, "{status:?}");
    assert!(status.size.bytes > 0 && before.bytes > 0 && after.bytes > 0);
    assert_eq!(trace.pages().await.unwrap(), Vec::<String>::new());
    assert_eq!(trace.blob(&large.hash()).await.unwrap().as_deref(), Some(large.bytes()));
    assert_eq!(trace.audit_all().await.unwrap().len(), 2);
    trace.close().await;
}

/// What the first version made of a store.
const FIRST: [&str; 2] = [
    include_str!("../../migrations/sqlite/0001_log.sql"),
    include_str!("../../migrations/postgres/0001_log.sql"),
];

pub(crate) async fn a_store_of_the_first_version_is_migrated_and_its_blobs_are_read(place: &Place) {
    let run = run_at(1);
    let blob = Blob::new(b"kept as it was, before anything was compressed\n".repeat(100));
    let (id, hash) = (bytes(place, run), blob.hash());
    let bytes = formwork_hex(blob.bytes());
    match place {
        Place::Sqlite(_) => {
            let mut connection =
                sqlx::SqliteConnection::connect(&format!("{}?mode=rwc", place.url()))
                    .await
                    .unwrap();
            let made = format!(
                "PRAGMA journal_mode = WAL; {} PRAGMA application_id = {}; PRAGMA user_version = 1;
                 INSERT INTO blobs VALUES (x'{hash}', x'{bytes}')",
                FIRST[0], 0x464d_574b
            );
            sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
        Place::Postgres(_) => {
            let mut connection = sqlx::PgConnection::connect(&place.url()).await.unwrap();
            let made = format!(
                "BEGIN; {}; UPDATE formwork.store SET version = 1;
                 INSERT INTO blobs VALUES ('\\x{hash}', '\\x{bytes}'); COMMIT",
                FIRST[1]
            );
            sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }
    let before = Trace::look(&place.url(), Span::from_secs(5)).await.unwrap();

    let trace = place.open().await;
    let message = EventBody::SessionMessage(SessionMessage {
        session: SessionId::from_uuid(uuid::Uuid::nil()),
        index: 0,
        role: Role::User,
        message: blob.hash(),
        attached: Vec::new(),
    });
    trace
        .append(Append { blobs: vec![blob.clone()], ..of(run, vec![event(message)]) })
        .await
        .unwrap();

    assert_eq!((before.found, before.known), (Some(1), 3));
    assert_eq!(trace.blob(&blob.hash()).await.unwrap().as_deref(), Some(blob.bytes()));
    let status = trace.status(Timestamp::from_micros(1)).await.unwrap();
    assert_eq!((status.blobs, status.blob_bytes), (1, blob.bytes().len() as u64));
    assert_eq!(trace.audit(run).await.unwrap().faults, []);
    place.tamper(&format!("SELECT 1; DELETE FROM runs WHERE run = {id}")).await;
    trace.close().await;
}

fn formwork_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
