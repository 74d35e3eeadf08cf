//! What a writer takes for granted between its commits, and what others did meanwhile.

use super::*;

pub(crate) async fn two_processes_that_write_in_turn_agree(place: &Place) {
    let (one, other) = (place.open().await, place.open().await);
    let runs = [run_at(1), run_at(2), run_at(3)];
    let keyed = |n: u32| NewEvent {
        idempotency_key: Some(format!("key-{}", n / 2)),
        ..note("test.keyed", json!(n))
    };

    for n in 0..12_u32 {
        // Both write to one run, to one of their own, and under keys that the other has used.
        let place = usize::try_from(n).unwrap() % 3;
        for trace in [&one, &other] {
            trace.append(of(runs[place], vec![note("test.note", json!(n))])).await.unwrap();
            trace.append(of(runs[2], vec![keyed(n), note("test.note", json!(n))])).await.unwrap();
        }
    }

    let events = all(&one).await;
    let positions: Vec<u64> = events.iter().map(|event| event.position.0).collect();
    assert_eq!(positions, (1..=u64::try_from(events.len()).unwrap()).collect::<Vec<_>>());
    let kept = events.iter().filter(|event| event.body.kind() == "test.keyed").count();
    assert_eq!((kept, events.len()), (6, 6 + 24 + 24));
    for run in runs {
        assert_eq!(other.audit(run).await.unwrap().faults, []);
    }
    let before = place.views().await;
    other.rebuild().await.unwrap();
    assert_eq!(place.views().await, before);
    one.close().await;
    other.close().await;
}

pub(crate) async fn an_owner_whose_lease_another_process_took_is_refused_at_once(place: &Place) {
    let (one, other) = (place.open().await, place.open().await);
    let run = run_at(1);
    let lease = one.acquire(run, "one", Span::from_secs(60)).await.unwrap();
    let append =
        |token: u64| Append { token: Some(token), ..of(run, vec![note("a.b", json!({}))]) };
    for _ in 0..3 {
        one.append(append(lease.token)).await.unwrap();
    }

    let next = other.take_over(run, "one", "other", Span::from_secs(60)).await.unwrap();
    let refused = one.append(append(lease.token)).await;
    other.append(append(next.token)).await.unwrap();
    other.release(&next).await.unwrap();
    let free = one.append(of(run, vec![note("a.c", json!({}))])).await.unwrap();

    match refused {
        Err(StoreError::NotOwner { owner, .. }) => assert_eq!(owner, "other"),
        other => panic!("{other:?}"),
    }
    assert_eq!(free[0].seq, 5);
    assert_eq!(one.audit(run).await.unwrap().faults, []);
    one.close().await;
    other.close().await;
}

pub(crate) async fn a_cursor_never_skips_a_late_commit(place: &Place) {
    let traces = [place.open().await, place.open().await, place.open().await];
    let reader = place.open().await;
    let mut writers = tokio::task::JoinSet::new();
    let mut expected = 0;
    for (process, trace) in traces.iter().enumerate() {
        for producer in 0..4_i64 {
            let trace = trace.clone();
            let run = run_at(i64::try_from(process).unwrap() * 10 + producer);
            let sizes: Vec<usize> = (0..15).map(|n| 1 + (n * 7 + process) % 5).collect();
            expected += sizes.iter().sum::<usize>();
            writers.spawn(async move {
                for size in sizes {
                    let events = (0..size).map(|n| note("test.note", json!(n))).collect();
                    trace.append(of(run, events)).await.unwrap();
                }
            });
        }
    }

    // Whoever reads on from the last event that it has seen sees each once, with none left out.
    let mut seen: Vec<Event> = Vec::new();
    let mut ends = false;
    while !ends {
        ends = writers.is_empty();
        while writers.try_join_next().is_some_and(|done| done.is_ok()) {}
        let after = seen.last().map_or(Position(0), |event| event.position);
        for event in reader.read(after, &Selection::default(), 7).await.unwrap() {
            let last = seen.last().map_or(0, |event| event.position.0);
            assert_eq!(event.position.0, last + 1);
            ends = false;
            seen.push(event);
        }
        tokio::task::yield_now().await;
    }

    assert_eq!(seen.len(), expected);
    assert!(reader.audit_all().await.unwrap().iter().all(|audit| audit.faults.is_empty()));
    for trace in traces {
        trace.close().await;
    }
    reader.close().await;
}

pub(crate) async fn appends_of_every_size_are_whole(place: &Place) {
    let trace = place.open().await;
    let mut recorded = Vec::new();
    let mut written = Vec::new();
    // Around the numbers of rows for which statements are written.
    for (n, size) in
        [1, 2, 3, 4, 5, 7, 63, 64, 65, 95, 97, 127, 128, 129, 300].into_iter().enumerate()
    {
        for round in 0..2_u32 {
            let run = run_at(i64::try_from(n).unwrap());
            let events: Vec<NewEvent> = (0..size)
                .map(|place| NewEvent {
                    task: (place % 2 == 0).then(|| task_at(place)),
                    idempotency_key: (place % 3 == 0).then(|| format!("{round}-{place}")),
                    ..note("test.note", json!([n, round, place]))
                })
                .collect();
            written.extend(events.clone());
            recorded.extend(trace.append(of(run, events)).await.unwrap());
        }
    }

    let events = all(&trace).await;
    assert_eq!(events.len(), written.len());
    for ((event, wanted), place) in events.iter().zip(&written).zip(&recorded) {
        assert_eq!((&event.body, event.task), (&wanted.body, wanted.task));
        assert_eq!(event.idempotency_key, wanted.idempotency_key);
        assert_eq!(
            (event.position, event.seq, event.hash),
            (place.position, place.seq, place.hash)
        );
        assert!(!place.duplicate);
    }
    assert!(trace.audit_all().await.unwrap().iter().all(|audit| audit.faults.is_empty()));
    trace.close().await;
}
