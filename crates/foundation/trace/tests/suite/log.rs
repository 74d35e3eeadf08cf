//! What is appended and read.

use super::*;

pub(crate) async fn what_is_appended_is_read_in_order(place: &Place) {
    let trace = place.open().await;
    let (one, two) = (run_at(1), run_at(2));
    let task = task_at(1);
    let first = NewEvent {
        task: Some(task),
        idempotency_key: Some("key".to_owned()),
        ..note("a.b", json!({ "x": [1, 2.5, null, "ü\u{0}"] }))
    };

    let recorded =
        trace.append(of(one, vec![first.clone(), note("a.c", json!({}))])).await.unwrap();
    let other = trace.append(of(two, vec![note("a.d", json!(7))])).await.unwrap();

    let events = all(&trace).await;
    assert_eq!(events.len(), 3);
    let whole = Event {
        position: Position(1),
        run: one,
        seq: 1,
        task: first.task,
        principal: first.principal,
        at: first.at,
        body: first.body,
        idempotency_key: first.idempotency_key,
        hash: recorded[0].hash,
    };
    assert_eq!(events[0], whole);
    let places: Vec<_> = events.iter().map(|e| (e.position.0, e.run, e.seq)).collect();
    assert_eq!(places, [(1, one, 1), (2, one, 2), (3, two, 1)]);
    assert_eq!((other[0].position, other[0].seq, other[0].duplicate), (Position(3), 1, false));
    assert_eq!(trace.head().await.unwrap(), Position(3));
    assert_eq!(trace.read(Position(1), &Selection::default(), 1).await.unwrap(), events[1..2]);
    trace.close().await;
}

pub(crate) async fn behaviour_15_an_append_is_recorded_whole_or_not_at_all(place: &Place) {
    let trace = place.open().await;
    let mut deep = json!(1);
    for _ in 0..127 {
        deep = json!([deep]);
    }

    for (bad, reason) in [
        (note("", json!({})), "a kind has 1 to 200 printable characters"),
        (note("a\nb", json!({})), "a kind has 1 to 200 printable characters"),
        (note("a.deep", deep), "its data is nested deeper than 120 levels"),
        (
            NewEvent { idempotency_key: Some("a\0b".to_owned()), ..note("a.key", json!({})) },
            "an idempotency key has 1 to 1024 bytes and no NUL",
        ),
    ] {
        let kind = bad.body.kind().to_owned();
        let refused = trace.append(of(run_at(1), vec![note("good", json!({})), bad])).await;
        match refused {
            Err(StoreError::Invalid { kind: found, reason: said }) => {
                assert_eq!((found, said.as_str()), (kind, reason));
            }
            other => panic!("{other:?}"),
        }
    }

    assert_eq!(all(&trace).await, []);
    assert_eq!(trace.append(of(run_at(1), vec![])).await.unwrap(), []);
    trace.close().await;
}

pub(crate) async fn data_of_a_known_kind_that_does_not_fit_is_refused(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);

    let refused = trace.append(of(run, vec![note("run.started", json!({ "owner": 5 }))])).await;
    let fits = note("run.started", json!({ "owner": "me" }));
    trace.append(of(run, vec![fits])).await.unwrap();

    assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    let started = EventBody::RunStarted(RunStarted { owner: "me".to_owned() });
    assert_eq!(all(&trace).await[0].body, started);
    trace.close().await;
}

pub(crate) async fn an_amount_below_nothing_is_not_recorded(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let created = RunCreated {
        name: "fix-it".parse().unwrap(),
        workspace: "/home/ada/project".to_owned(),
        mode: PermissionMode::default(),
        budget: Budget { usd: Some("-0.25".parse().unwrap()), ..Budget::default() },
        root: task_at(1),
        setup: json!({}),
        version: "0.1.0".to_owned(),
    };

    let refused = trace.append(of(run, vec![event(EventBody::RunCreated(created.into()))])).await;

    let Err(StoreError::Invalid { kind, reason }) = refused else { panic!("{refused:?}") };
    assert_eq!(kind, "run.created");
    assert!(reason.contains("wanted at least 0, found -0.25"), "{reason}");
    assert_eq!(all(&trace).await, []);
    trace.close().await;
}

pub(crate) async fn behaviour_18_a_second_write_with_a_key_returns_the_first_event(place: &Place) {
    let trace = place.open().await;
    let (run, other) = (run_at(1), run_at(2));
    let keyed = |key: &str, n: u32| NewEvent {
        idempotency_key: Some(key.to_owned()),
        ..note("a.b", json!(n))
    };

    let first = trace.append(of(run, vec![keyed("k", 1)])).await.unwrap();
    let batch = vec![note("a.c", json!({})), keyed("k", 2), keyed("l", 3), keyed("l", 4)];
    let second = trace.append(of(run, batch)).await.unwrap();
    let elsewhere = trace.append(of(other, vec![keyed("k", 5)])).await.unwrap();

    assert!(!first[0].duplicate);
    let duplicates: Vec<_> = second.iter().map(|r| (r.position.0, r.seq, r.duplicate)).collect();
    assert_eq!(duplicates, [(2, 2, false), (1, 1, true), (3, 3, false), (3, 3, true)]);
    assert_eq!((second[1].hash, second[3].hash), (first[0].hash, second[2].hash));
    assert!(!elsewhere[0].duplicate);
    assert_eq!(all(&trace).await.len(), 4);

    // Many producers with one key: one of them writes.
    let many = futures::future::join_all((0..20).map(|n| {
        let trace = trace.clone();
        async move { trace.append(of(run, vec![keyed("race", n)])).await.unwrap()[0] }
    }))
    .await;
    assert_eq!(many.iter().filter(|recorded| !recorded.duplicate).count(), 1);
    assert!(many.iter().all(|recorded| recorded.seq == many[0].seq));
    assert_eq!(trace.audit(run).await.unwrap().faults, []);
    trace.close().await;
}

pub(crate) async fn a_selection_reads_a_run_a_task_and_kinds_by_prefix(place: &Place) {
    let trace = place.open().await;
    let (one, two) = (run_at(1), run_at(2));
    let (a, b) = (task_at(1), task_at(2));
    for n in 0..10 {
        let kinds = ["tool.requested.x", "tool.completed.x", "to%l", "Tool.x"];
        let make = |run, task, n: usize| {
            let event = NewEvent { task, ..note(kinds[n % 4], json!(n)) };
            of(run, vec![event])
        };
        trace.append(make(one, Some(a), n)).await.unwrap();
        trace.append(make(two, if n % 2 == 0 { Some(b) } else { None }, n)).await.unwrap();
    }
    let everything = all(&trace).await;

    for run in [None, Some(one), Some(two)] {
        for task in [None, Some(a), Some(b)] {
            for kinds in [vec![], vec!["tool."], vec!["to%"], vec!["tool.c", "Tool"], vec!["ü"]] {
                let kinds: Vec<_> = kinds.into_iter().map(str::to_owned).collect();
                let expected: Vec<_> = everything
                    .iter()
                    .filter(|e| run.is_none_or(|run| e.run == run))
                    .filter(|e| task.is_none_or(|task| e.task == Some(task)))
                    .filter(|e| {
                        kinds.is_empty() || kinds.iter().any(|k| e.body.kind().starts_with(k))
                    })
                    .cloned()
                    .collect();
                let selection = Selection { run, task, kinds };

                // By pages of three, and from every cursor at once.
                let mut paged = Vec::new();
                let mut after = Position(0);
                loop {
                    let page = trace.read(after, &selection, 3).await.unwrap();
                    let Some(last) = page.last() else { break };
                    after = last.position;
                    paged.extend(page);
                }
                assert_eq!(paged, expected, "{selection:?}");
                for after in [1, 2, 7, 19] {
                    let rest = trace.read(Position(after), &selection, 100).await.unwrap();
                    let expected: Vec<_> =
                        expected.iter().filter(|e| e.position.0 > after).cloned().collect();
                    assert_eq!(rest, expected, "{selection:?} after {after}");
                }
            }
        }
    }
    trace.close().await;
}

pub(crate) async fn many_producers_leave_a_gapless_sound_log(place: &Place) {
    let trace = place.open().await;
    let runs: Arc<Vec<RunId>> = Arc::new((0..7).map(run_at).collect());

    let producers = (0..24_u64).map(|seed| {
        let (trace, runs) = (trace.clone(), Arc::clone(&runs));
        async move {
            let rng = SeededRng::new(seed);
            let pick = |below: u64| usize::try_from(rng.next_u64() % below).unwrap();
            for n in 0..12 {
                let batch = (0..1 + pick(5))
                    .map(|i| note("test.note", json!({ "seed": seed, "n": n, "i": i })))
                    .collect();
                let recorded = trace.append(of(runs[pick(7)], batch)).await.unwrap();
                for pair in recorded.windows(2) {
                    assert_eq!(pair[1].seq, pair[0].seq + 1);
                    assert_eq!(pair[1].position.0, pair[0].position.0 + 1);
                }
            }
        }
    });
    futures::future::join_all(producers).await;

    let events = all(&trace).await;
    let mut seqs: HashMap<RunId, u64> = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        let seq = seqs.entry(event.run).or_default();
        *seq += 1;
        assert_eq!((event.seq, event.position.0), (*seq, u64::try_from(at).unwrap() + 1));
    }
    let audits = trace.audit_all().await.unwrap();
    assert_eq!(audits.len(), seqs.len());
    assert!(audits.iter().all(|audit| audit.faults.is_empty()), "{audits:?}");
    assert_eq!(
        audits.iter().map(|audit| audit.events).sum::<u64>(),
        u64::try_from(events.len()).unwrap()
    );
    trace.close().await;
}

pub(crate) async fn behaviour_16_the_log_refuses_to_be_changed(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let blob = Blob::new(b"bytes".to_vec());
    let append = Append { blobs: vec![blob], ..of(run, vec![note("a.b", json!({}))]) };
    trace.append(append).await.unwrap();

    for sql in [
        "UPDATE events SET data = '{}'",
        "DELETE FROM events",
        "UPDATE blobs SET bytes = hash",
        "DELETE FROM blobs",
    ] {
        let said = refusal(place, sql).await;
        assert!(said.contains("append-only"), "{sql}: {said}");
    }
    trace.close().await;
}

/// What was said and what was noted are events and blobs as all else, so there is nothing beside the log to be changed.
pub(crate) async fn behaviour_16_transcripts_and_the_notepad_are_append_only(place: &Place) {
    let trace = place.open().await;
    let (run, session) = (run_at(1), SessionId::from_uuid(run_at(2).as_uuid()));
    let message = Blob::new(br#"{"role":"user","parts":[{"text":"Hello."}]}"#.to_vec());
    let said = EventBody::SessionMessage(SessionMessage {
        session,
        index: 0,
        role: Role::User,
        message: message.hash(),
        attached: Vec::new(),
    });
    let (call, text) = (CallId::from_uuid(run_at(3).as_uuid()), "Mind the tabs.".to_owned());
    let noted = EventBody::NoteAdded(NoteAdded { call, text });
    let append = Append { blobs: vec![message], ..of(run, vec![event(said), event(noted)]) };
    trace.append(append).await.unwrap();

    for (table, of) in [
        ("events", "kind = 'session.message'"),
        ("events", "kind = 'note.added'"),
        ("blobs", "true"),
    ] {
        for sql in [
            format!("DELETE FROM {table} WHERE {of}"),
            match table {
                "events" => format!("UPDATE events SET data = '{{}}' WHERE {of}"),
                _ => format!("UPDATE blobs SET bytes = hash WHERE {of}"),
            },
        ] {
            let said = refusal(place, &sql).await;
            assert!(said.contains("append-only"), "{sql}: {said}");
        }
    }
    let selection = Selection { run: Some(run), ..Selection::default() };
    let kept = trace.read(Position::default(), &selection, 10).await.unwrap();
    assert_eq!(kept.len(), 2);
    trace.close().await;
}

/// Returns why the storage does not carry a statement out.
async fn refusal(place: &Place, sql: &str) -> String {
    let sql = sql.to_owned();
    let refused = match place {
        Place::Sqlite(_) => {
            let mut connection = sqlx::SqliteConnection::connect(&place.url()).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map(drop)
        }
        Place::Postgres(_) => {
            let mut connection = sqlx::PgConnection::connect(&place.url()).await.unwrap();
            sqlx::raw_sql("SET search_path = formwork").execute(&mut connection).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map(drop)
        }
    };
    refused.unwrap_err().to_string()
}

pub(crate) async fn behaviour_23_secrets_reach_neither_events_nor_keys_nor_blobs(place: &Place) {
    let options = Options { scrub: Arc::new(Hide("hunter2")), ..Options::default() };
    let trace = Trace::open(&place.url(), options).await.unwrap();
    let run = run_at(1);
    let dirty = Blob::new(b"password: hunter2".to_vec());
    let raw = Blob::new(vec![0xff, 0xfe, 1]);
    let message = EventBody::SessionMessage(SessionMessage {
        session: SessionId::from_uuid(uuid::Uuid::nil()),
        index: 0,
        role: Role::User,
        message: dirty.hash(),
        attached: Vec::new(),
    });
    let keyed = || NewEvent {
        idempotency_key: Some("key-hunter2".to_owned()),
        ..note("a.b", json!({ "hunter2": ["my hunter2"] }))
    };
    let mut watch = trace.watch();

    let append = Append {
        blobs: vec![dirty.clone(), raw.clone()],
        ..of(run, vec![keyed(), event(message)])
    };
    trace.append(append).await.unwrap();
    let again = trace.append(of(run, vec![keyed()])).await.unwrap();

    let events = all(&trace).await;
    assert_eq!(events[0].idempotency_key.as_deref(), Some("key-[hidden]"));
    assert_eq!(events[0].body.data().unwrap(), json!({ "[hidden]": ["my [hidden]"] }));
    assert!(again[0].duplicate);
    // The event refers to the blob as it was stored.
    let clean = BlobHash::of(b"password: [hidden]");
    assert!(matches!(&events[1].body, EventBody::SessionMessage(m) if m.message == clean));
    assert_eq!(trace.blob(&clean).await.unwrap().unwrap(), b"password: [hidden]");
    assert_eq!(trace.blob(&dirty.hash()).await.unwrap(), None);
    assert_eq!(trace.blob(&raw.hash()).await.unwrap().as_deref(), Some(raw.bytes()));
    for event in &events {
        match watch.next().await {
            Some(Live::Event(seen)) => assert_eq!(&*seen, event),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(trace.audit(run).await.unwrap().faults, []);
    trace.close().await;
}

pub(crate) async fn text_of_every_kind_survives(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let long = "ü𝄞\u{0}\u{7f}\r\n\"\\".repeat(50_000);
    let data = json!({ "": "", "long": long, "n": [u64::MAX, i64::MIN, 1e300, -0.0, 0.1] });

    trace.append(of(run, vec![note("größe.𝄞", data.clone())])).await.unwrap();

    let events = all(&trace).await;
    assert_eq!((events[0].body.kind(), events[0].body.data().unwrap()), ("größe.𝄞", data));
    assert_eq!(trace.audit(run).await.unwrap().faults, []);
    trace.close().await;
}

pub(crate) async fn a_cursor_goes_on_past_what_it_does_not_look_for(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let rare = Selection { run: Some(run), task: None, kinds: vec!["rare.".to_owned()] };
    let mut cursor = Position::default();
    let mut look = async || {
        let found = trace.read_on(&mut cursor, &rare, 2).await.unwrap();
        (found.iter().map(|event| event.seq).collect::<Vec<_>>(), cursor)
    };
    let add = async |kind: &str| {
        trace.append(of(run, vec![note(kind, json!(1))])).await.unwrap();
    };
    assert_eq!(look().await, (vec![], Position(0)));

    for kind in ["common.x", "common.x", "rare.x", "common.x"] {
        add(kind).await;
    }
    assert_eq!(look().await, (vec![3], Position(4)));
    assert_eq!(look().await, (vec![], Position(4)));

    // A full page ends where its last event is.
    for kind in ["rare.x", "rare.x", "common.x", "rare.x", "common.x"] {
        add(kind).await;
    }
    assert_eq!(look().await, (vec![5, 6], Position(6)));
    assert_eq!(look().await, (vec![8], Position(9)));
    trace.close().await;
}
