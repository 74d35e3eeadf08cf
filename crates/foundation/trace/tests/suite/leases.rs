//! Who may write.

use super::*;

pub(crate) async fn a_lapsed_owner_cannot_write(place: &Place) {
    let clock = Arc::new(Hands::default());
    let open = async || {
        let options = Options { clock: clock.clone(), ..Options::default() };
        Trace::open(&place.url(), options).await.unwrap()
    };
    let (one, two) = (open().await, open().await);
    let run = run_at(1);
    let with = |token| Append { token, ..of(run, vec![note("test.note", json!({}))]) };
    let refused = |result: Result<_, StoreError>| match result {
        Err(StoreError::NotOwner { run: found, owner }) if found == run => owner,
        other => panic!("{other:?}"),
    };

    one.append(with(None)).await.unwrap();
    let first = one.acquire(run, "one", Span::from_secs(10)).await.unwrap();
    one.append(with(Some(first.token))).await.unwrap();
    assert_eq!(refused(two.append(with(None)).await), "one");
    assert_eq!(refused(two.append(with(Some(first.token + 1))).await), "one");
    assert_eq!(refused(two.acquire(run, "two", Span::from_secs(10)).await.map(|_| vec![])), "one");

    clock.forward(Span::from_secs(11));
    assert_eq!(refused(one.append(with(Some(first.token))).await), "nobody");
    let second = two.acquire(run, "two", Span::from_secs(10)).await.unwrap();
    assert!(second.token > first.token);
    assert_eq!(refused(one.append(with(Some(first.token))).await), "two");
    assert_eq!(refused(one.renew(&first, Span::from_secs(10)).await.map(|_| vec![])), "two");
    two.append(with(Some(second.token))).await.unwrap();

    assert_eq!(all(&one).await.len(), 3);
    one.close().await;
    two.close().await;
}

pub(crate) async fn only_one_of_many_gets_the_lease(place: &Place) {
    let handles = [place.open().await, place.open().await, place.open().await];
    let run = run_at(1);

    let asked = (0..12).map(|n| {
        let trace = handles[n % 3].clone();
        async move { trace.acquire(run, &format!("owner-{n}"), Span::from_secs(60)).await }
    });
    let answers = futures::future::join_all(asked).await;

    let winners: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    for answer in &answers {
        if let Err(error) = answer {
            assert_eq!(error.to_string(), format!("run {run} is owned by {}", winners[0].owner));
        }
    }
    for trace in handles {
        trace.close().await;
    }
}

pub(crate) async fn a_lease_is_renewed_and_given_back(place: &Place) {
    let clock = Arc::new(Hands::default());
    let options = Options { clock: clock.clone(), ..Options::default() };
    let trace = Trace::open(&place.url(), options).await.unwrap();
    let run = run_at(1);
    let first = trace.acquire(run, "one", Span::from_secs(10)).await.unwrap();

    clock.forward(Span::from_secs(8));
    let renewed = trace.renew(&first, Span::from_secs(10)).await.unwrap();
    let owners = async |clock: &Hands| trace.owners(run..=run, clock.now()).await.unwrap();
    assert_eq!(owners(&clock).await, BTreeMap::from([(run, "one".to_owned())]));
    clock.forward(Span::from_secs(8));
    let with = Append { token: Some(first.token), ..of(run, vec![note("a.b", json!({}))]) };
    trace.append(with.clone()).await.unwrap();
    // Late, but nobody took it since.
    clock.forward(Span::from_secs(60));
    assert_eq!(owners(&clock).await, BTreeMap::new());
    let again = trace.renew(&renewed, Span::from_secs(10)).await.unwrap();
    trace.append(with.clone()).await.unwrap();
    trace.release(&again).await.unwrap();

    assert_eq!((renewed.token, again.token), (first.token, first.token));
    assert!(matches!(trace.append(with).await, Err(StoreError::NotOwner { .. })));
    trace.append(of(run, vec![note("a.b", json!({}))])).await.unwrap();
    let next = trace.acquire(run, "two", Span::from_secs(10)).await.unwrap();
    assert!(next.token > first.token);
    // What is released late takes nothing from the next owner.
    trace.release(&again).await.unwrap();
    assert!(matches!(
        trace.acquire(run, "three", Span::from_secs(10)).await,
        Err(StoreError::NotOwner { owner, .. }) if owner == "two"
    ));
    trace.close().await;
}

pub(crate) async fn a_lease_is_taken_over_from_the_named_owner_alone(place: &Place) {
    let trace = place.open().await;
    let (run, long) = (run_at(1), Span::from_secs(600));
    let first = trace.acquire(run, "one", long).await.unwrap();

    let from_another = trace.take_over(run, "two", "three", long).await;
    let taken = trace.take_over(run, "one", "three", long).await.unwrap();
    let once_more = trace.take_over(run, "one", "four", long).await;

    let owned_by =
        |owner: &str| Err(StoreError::NotOwner { run, owner: owner.to_owned() }.to_string());
    assert_eq!(from_another.map_err(|error| error.to_string()), owned_by("one"));
    assert_eq!(once_more.map_err(|error| error.to_string()), owned_by("three"));
    // Should the one before live after all, it writes no more.
    assert_eq!((taken.owner.as_str(), taken.token), ("three", first.token + 1));
    let late = Append { token: Some(first.token), ..of(run, vec![note("a.b", json!({}))]) };
    assert!(matches!(trace.append(late).await, Err(StoreError::NotOwner { .. })));
    trace.close().await;
}
