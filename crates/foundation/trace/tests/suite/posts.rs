//! What is handed over without waiting for the disk.

use super::*;

fn numbers(events: &[Event]) -> Vec<Value> {
    events.iter().map(|event| event.body.data().unwrap()).collect()
}

fn numbered(run: RunId, n: i64) -> Append {
    of(run, vec![note("test.note", json!(n))])
}

pub(crate) async fn an_acknowledged_append_covers_what_was_posted_before(place: &Place) {
    let trace = place.open().await;
    let (one, two) = (run_at(1), run_at(2));

    trace.post(numbered(one, 1)).await.unwrap();
    trace.post(numbered(two, 2)).await.unwrap();
    trace.post(numbered(one, 3)).await.unwrap();
    // Another handle to the same store, and another run.
    trace.clone().append(numbered(two, 4)).await.unwrap();
    // As after a crash: whatever else this process has to say is not asked for.
    let found = all(&place.open().await).await;

    assert_eq!(numbers(&found), [json!(1), json!(2), json!(3), json!(4)]);
    for run in [one, two] {
        assert_eq!(trace.audit(run).await.unwrap().faults, []);
    }
    trace.close().await;
}

pub(crate) async fn an_append_of_nothing_waits_for_what_was_posted(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);

    trace.post(numbered(run, 1)).await.unwrap();
    let recorded = trace.append(of(run, vec![])).await.unwrap();
    let found = all(&place.open().await).await;

    assert_eq!((recorded.len(), found.len()), (0, 1));
    trace.close().await;
}

pub(crate) async fn what_is_posted_is_written_although_nothing_follows(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let mut watch = trace.watch();

    trace.post(numbered(run, 1)).await.unwrap();
    let seen = match watch.next().await {
        Some(Live::Event(event)) => event.position,
        other => panic!("{other:?}"),
    };

    assert_eq!(all(&place.open().await).await[0].position, seen);
    trace.close().await;
}

pub(crate) async fn a_store_that_is_closed_keeps_what_was_posted(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);

    for n in 0..100 {
        trace.post(numbered(run, n)).await.unwrap();
    }
    trace.close().await;
    let refused = trace.post(numbered(run, 100)).await;
    let again = place.open().await;

    assert_eq!(refused, Err(StoreError::Closed));
    assert_eq!(numbers(&all(&again).await), (0..100).map(Value::from).collect::<Vec<_>>());
    again.close().await;
}

pub(crate) async fn what_a_post_failed_of_is_told_by_the_next_append_of_its_run(place: &Place) {
    let trace = place.open().await;
    let (lapsed, other) = (run_at(1), run_at(2));
    let with = |token, n| Append { token, ..numbered(lapsed, n) };
    let first = trace.acquire(lapsed, "one", Span::from_secs(60)).await.unwrap();
    trace.release(&first).await.unwrap();
    let second = trace.acquire(lapsed, "two", Span::from_secs(60)).await.unwrap();

    trace.post(with(Some(first.token), 1)).await.unwrap();
    trace.post(numbered(other, 2)).await.unwrap();
    let waited = trace.append(Append { token: Some(first.token), ..of(lapsed, vec![]) }).await;
    let refused = trace.append(with(Some(first.token), 3)).await;
    trace.append(with(Some(second.token), 4)).await.unwrap();

    for result in [waited, refused] {
        assert!(
            matches!(result, Err(StoreError::NotOwner { run, .. }) if run == lapsed),
            "{result:?}"
        );
    }
    assert_eq!(numbers(&all(&trace).await), [json!(2), json!(4)]);
    trace.close().await;
}

pub(crate) async fn many_who_post_and_append_leave_each_their_own_order(place: &Place) {
    let trace = place.open().await;
    const EACH: i64 = 120;
    let runs: Vec<_> = (1..=8).map(run_at).collect();

    let producers = runs.iter().map(|&run| {
        let trace = trace.clone();
        async move {
            for n in 0..EACH {
                match n % 7 {
                    6 => drop(trace.append(numbered(run, n)).await.unwrap()),
                    _ => trace.post(numbered(run, n)).await.unwrap(),
                }
            }
            trace.append(of(run, vec![])).await.unwrap();
        }
    });
    futures::future::join_all(producers).await;
    let found = all(&trace).await;

    let positions: Vec<_> = found.iter().map(|event| event.position.0).collect();
    assert_eq!(positions, (1..=8 * EACH.unsigned_abs()).collect::<Vec<_>>());
    for run in runs {
        let of_run: Vec<_> = found.iter().filter(|event| event.run == run).cloned().collect();
        assert_eq!(numbers(&of_run), (0..EACH).map(Value::from).collect::<Vec<_>>());
        assert_eq!(trace.audit(run).await.unwrap().faults, []);
    }
    trace.close().await;
}
