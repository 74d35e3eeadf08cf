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

/// Every event that names blobs, each by a text of its own: the body and what it names.
fn bodies_with_blobs(run: RunId) -> Vec<(EventBody, Vec<&'static str>)> {
    let hash = |text: &str| json!(BlobHash::of(text.as_bytes()));
    let story = story(run);
    let told = |kind: &str| {
        let told = story.events.iter().find(|event| event.body.kind() == kind).unwrap();
        told.body.data().unwrap()
    };
    let (session, call) = (story.session, story.call);
    let picture = |name: &str| json!([{ "blob": hash(name), "media_type": "image/png", "bytes": 3, "name": "a.png" }]);

    let mut created = told("task.created");
    created["spec"]["attached"] = picture("a picture of a task");
    let mut completed = told("model.completed");
    completed["answer"] = hash("an answer");
    let mut finished = told("check.finished");
    finished["verdict"]["evidence"]["output"] = hash("an output");
    finished["verdict"]["steps"] = json!([{
        "what": "control", "passed": false, "reason": "it failed",
        "evidence": { "output": hash("an output of a step") },
    }]);
    let failed = json!({
        "call": call, "session": session, "model": "local/small", "said": hash("what was said"),
        "error": {
            "fault": "cancelled", "message": "it was cancelled", "provider": "local", "endpoint": "",
            "status": null, "code": null, "request_id": null, "body": null, "retry_after": null,
            "tries": 1,
        },
    });
    let gated = json!({
        "call": call, "session": session, "pair": "one", "tool": "exec", "gate": "gate",
        "answer": "replace", "arguments": hash("{}"), "elapsed": "1s",
    });
    let ended = json!({
        "call": call, "preview": "", "output": hash("a result"), "bytes": 8, "elapsed": "1s",
        "attached": picture("a picture of a result"),
    });
    let message = json!({
        "session": session, "index": 0, "role": "user", "message": hash("a message"),
        "attached": [hash("a picture of a message")],
    });
    let compacted = json!({
        "session": session, "cause": "window", "before": 2, "after": 1, "rebilled_tokens": 0,
        "rebilled": "0", "edits": hash("[]"),
    });
    [
        ("task.created", created, vec!["a picture of a task"]),
        ("model.completed", completed, vec!["an answer"]),
        ("model.failed", failed, vec!["what was said"]),
        ("check.finished", finished, vec!["an output", "an output of a step"]),
        ("tool.gated", gated, vec!["{}"]),
        ("tool.completed", ended, vec!["a result", "a picture of a result"]),
        ("session.message", message, vec!["a message", "a picture of a message"]),
        ("context.compacted", compacted, vec!["[]"]),
        (
            "workspace.snapshot",
            json!({ "baseline": hash("{\"a\":1}"), "within": hash("[\"src\"]") }),
            vec!["{\"a\":1}", "[\"src\"]"],
        ),
    ]
    .map(|(kind, data, names)| (EventBody::from_parts(kind, data).unwrap(), names))
    .into()
}

pub(crate) async fn an_audit_finds_each_blob_that_is_needed_and_gone(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let (bodies, texts): (Vec<_>, Vec<_>) = bodies_with_blobs(run).into_iter().unzip();
    let texts: Vec<&str> = texts.into_iter().flatten().collect();
    let blobs = texts.iter().map(|text| Blob::new(text.as_bytes().to_vec())).collect();
    let events = bodies.into_iter().map(event).collect();
    trace.append(Append { blobs, ..of(run, events) }).await.unwrap();
    assert_eq!(trace.audit(run).await.unwrap().faults, []);

    for (removed, text) in texts.iter().enumerate() {
        let hash = BlobHash::of(text.as_bytes());
        let literal = match place {
            Place::Sqlite(_) => format!("x'{hash}'"),
            Place::Postgres(_) => format!("'\\x{hash}'"),
        };
        place.tamper(&format!("DELETE FROM blobs WHERE hash = {literal}")).await;

        let faults = trace.audit(run).await.unwrap().faults;

        let is_told = |fault: &AuditFault| matches!(fault, AuditFault::MissingBlob { hash: of, .. } if *of == hash);
        assert!(faults.iter().any(is_told), "{text}: {faults:?}");
        assert_eq!(faults.len(), removed + 1, "{text}: {faults:?}");
    }
    trace.close().await;
}
