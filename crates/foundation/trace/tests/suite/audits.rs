//! What an audit finds.

use super::*;

pub(crate) async fn an_audit_finds_each_edited_column(place: &Place) {
    let trace = place.open().await;
    let other = run_at(999);

    for (n, edit) in [
        "task = NULL",
        "principal = 'user:eve'",
        "at = at + 1",
        "kind = 'test.other'",
        "data = '{\"n\":9}'",
        "idempotency_key = 'other'",
        "idempotency_key = NULL",
        "hash = (SELECT e.hash FROM events e WHERE e.run = events.run AND e.seq = 5)",
    ]
    .into_iter()
    .enumerate()
    {
        let run = run_at(i64::try_from(n).unwrap());
        sound(&trace, run).await;
        let id = bytes(place, run);
        place.tamper(&format!("UPDATE events SET {edit} WHERE run = {id} AND seq = 3")).await;

        let audit = trace.audit(run).await.unwrap();

        let found = audit
            .faults
            .iter()
            .any(|fault| matches!(fault, AuditFault::HashMismatch { seq: 3 | 4, .. }));
        assert!(found, "{edit}: {:?}", audit.faults);
        assert_eq!(audit.events, 6);
    }
    assert!(matches!(trace.audit(other).await, Err(StoreError::NoSuchRun { run }) if run == other));
    trace.close().await;
}

pub(crate) async fn an_audit_finds_what_was_removed_moved_or_cut(place: &Place) {
    let trace = place.open().await;
    let mut n = 0;
    let mut spoiled = async |sql: &str| {
        n += 1;
        let run = run_at(n);
        sound(&trace, run).await;
        let sql = sql.replace("RUN", &bytes(place, run));
        place.tamper(&sql).await;
        trace.audit(run).await.unwrap()
    };

    let middle = spoiled("DELETE FROM events WHERE run = RUN AND seq = 3").await;
    assert!(middle.faults.contains(&AuditFault::Gap { after: 2, found: 4 }), "{middle:?}");

    let end = spoiled("DELETE FROM events WHERE run = RUN AND seq > 4").await;
    assert_eq!(end.faults, [AuditFault::Truncated { expected: 6, found: 4 }]);

    let whole = spoiled("DELETE FROM events WHERE run = RUN").await;
    assert_eq!(whole.faults, [AuditFault::Truncated { expected: 6, found: 0 }]);

    let swapped = spoiled(
        "UPDATE events SET seq = 100 WHERE run = RUN AND seq = 2; \
         UPDATE events SET seq = 2 WHERE run = RUN AND seq = 3; \
         UPDATE events SET seq = 3 WHERE run = RUN AND seq = 100",
    )
    .await;
    let reordered = |fault: &AuditFault| matches!(fault, AuditFault::Reordered { seq: 3, .. });
    assert!(swapped.faults.iter().any(reordered), "{swapped:?}");

    let forgotten = spoiled("DELETE FROM heads WHERE run = RUN").await;
    assert!(matches!(forgotten.faults[..], [AuditFault::HeadMismatch { .. }]), "{forgotten:?}");

    // A last event that was written anew, its hash computed again, is not the remembered one.
    n += 1;
    let run = run_at(n);
    sound(&trace, run).await;
    let of_run = Selection { run: Some(run), ..Selection::default() };
    let events = trace.read(Position(0), &of_run, 9).await.unwrap();
    let (before, last) = (&events[4], &events[5]);
    let forged = formwork_protocols::event::Link {
        run,
        seq: last.seq,
        task: last.task,
        principal: last.principal.as_str(),
        at: last.at,
        kind: last.body.kind(),
        data: "{\"n\":9}",
        idempotency_key: last.idempotency_key.as_deref(),
    }
    .hash(&before.hash);
    let hash = match place {
        Place::Sqlite(_) => format!("x'{forged}'"),
        Place::Postgres(_) => format!("'\\x{forged}'"),
    };
    let id = bytes(place, run);
    place
        .tamper(&format!(
            "UPDATE events SET data = '{{\"n\":9}}', hash = {hash} WHERE run = {id} AND seq = 6"
        ))
        .await;
    let audit = trace.audit(run).await.unwrap();
    let mismatch = AuditFault::HeadMismatch { expected: last.hash, found: forged };
    assert_eq!(audit.faults, [mismatch]);

    let all = trace.audit_all().await.unwrap();
    assert_eq!(i64::try_from(all.len()).unwrap(), n);
    assert!(all.iter().all(|audit| !audit.faults.is_empty()));
    trace.close().await;
}

pub(crate) async fn an_audit_finds_missing_and_altered_blobs(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let message = |index, blob: &Blob| {
        event(EventBody::SessionMessage(SessionMessage {
            session: SessionId::from_uuid(uuid::Uuid::nil()),
            index,
            role: Role::User,
            message: blob.hash(),
            attached: Vec::new(),
        }))
    };
    let [one, two, three, four] =
        ["one", "two", "three", "four"].map(|text| Blob::new(text.as_bytes().to_vec()));
    let mut shows = message(4, &one);
    if let EventBody::SessionMessage(said) = &mut shows.body {
        said.attached = vec![three.hash(), four.hash()];
    }
    let events =
        vec![message(0, &one), message(1, &two), message(2, &three), message(3, &one), shows];
    let blobs = vec![one.clone(), two.clone(), three.clone(), four.clone()];
    trace.append(Append { blobs, ..of(run, events) }).await.unwrap();
    assert_eq!(trace.audit(run).await.unwrap().faults, []);
    assert_eq!(trace.blob(&two.hash()).await.unwrap(), Some(b"two".to_vec()));
    assert_eq!(trace.blob(&BlobHash::of(b"none")).await.unwrap(), None);

    let literal = |hash: BlobHash| match place {
        Place::Sqlite(_) => format!("x'{hash}'"),
        Place::Postgres(_) => format!("'\\x{hash}'"),
    };
    place
        .tamper(&format!(
            "DELETE FROM blobs WHERE hash IN ({}, {}); UPDATE blobs SET bytes = {} WHERE hash = {}",
            literal(two.hash()),
            literal(four.hash()),
            literal(two.hash()),
            literal(three.hash()),
        ))
        .await;
    let audit = trace.audit(run).await.unwrap();

    let faults: BTreeSet<String> =
        audit.faults.iter().map(|fault| serde_json::to_string(fault).unwrap()).collect();
    let expected = [
        AuditFault::MissingBlob { seq: 2, hash: two.hash() },
        AuditFault::MissingBlob { seq: 5, hash: four.hash() },
        AuditFault::BlobMismatch { hash: three.hash() },
    ];
    assert_eq!(
        faults,
        expected.iter().map(|fault| serde_json::to_string(fault).unwrap()).collect()
    );
    assert!(matches!(trace.blob(&three.hash()).await, Err(StoreError::Corrupt { .. })));
    trace.close().await;
}
