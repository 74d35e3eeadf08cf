//! Opened, and closed.

use super::*;

pub(crate) async fn a_store_that_was_closed_says_so_and_keeps_what_it_acknowledged(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let appends = (0..50).map(|n| {
        let trace = trace.clone();
        async move { trace.append(of(run, vec![note("a.b", json!(n))])).await }
    });
    let appends = futures::future::join_all(appends);

    let (answers, ()) = tokio::join!(appends, trace.close());

    for result in [
        trace.append(of(run, vec![note("a.b", json!({}))])).await.map(drop),
        trace.head().await.map(drop),
        trace.rebuild().await,
        trace.audit(run).await.map(drop),
        trace.acquire(run, "me", Span::from_secs(1)).await.map(drop),
    ] {
        assert!(matches!(result, Err(StoreError::Closed)), "{result:?}");
    }
    trace.close().await;
    let again = place.open().await;
    let kept = all(&again).await.len();
    assert_eq!(kept, answers.iter().filter(|answer| answer.is_ok()).count());
    again.close().await;
}

pub(crate) async fn a_store_of_a_later_version_is_refused(place: &Place) {
    place.open().await.close().await;
    place
        .tamper(match place {
            Place::Sqlite(_) => "PRAGMA user_version = 99",
            Place::Postgres(_) => "UPDATE store SET version = 99",
        })
        .await;

    let refused = Trace::open(&place.url(), Options::default()).await;

    match refused {
        Err(StoreError::TooNew { found: 99, known: 3, at }) => assert!(!at.is_empty()),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn opening_twice_changes_nothing(place: &Place) {
    let url = place.url();
    let opened = futures::future::join_all(
        (0..4).map(|_| async { Trace::open(&url, Options::default()).await.unwrap() }),
    )
    .await;
    let run = run_at(1);
    opened[0].append(of(run, vec![note("a.b", json!({}))])).await.unwrap();
    for trace in opened {
        trace.close().await;
    }

    let again = place.open().await;

    assert_eq!(all(&again).await.len(), 1);
    again.close().await;
}
