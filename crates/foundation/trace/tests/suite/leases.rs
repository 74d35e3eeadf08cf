//! Who may write.

use super::*;

pub(crate) async fn an_owner_writes_on_until_another_takes_the_run(place: &Place) {
    let clock = Arc::new(Hands::default());
    let open = async || {
        let options = by_hand(clock.clone());
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

    // As after a sleep of the machine: nobody else was there, so nothing was missed.
    clock.forward(Span::from_secs(11));
    one.append(with(Some(first.token))).await.unwrap();
    // By that it is owned from now on, for as long as it was at first.
    assert_eq!(refused(two.acquire(run, "two", Span::from_secs(10)).await.map(|_| vec![])), "one");
    one.append(with(Some(first.token))).await.unwrap();

    clock.forward(Span::from_secs(11));
    let second = two.acquire(run, "two", Span::from_secs(10)).await.unwrap();
    assert!(second.token > first.token);
    assert_eq!(refused(one.append(with(Some(first.token))).await), "two");
    assert_eq!(refused(one.renew(&first, Span::from_secs(10)).await.map(|_| vec![])), "two");
    two.append(with(Some(second.token))).await.unwrap();
    // Nor does the first write once the second has let its own lapse.
    clock.forward(Span::from_secs(11));
    assert_eq!(refused(one.append(with(Some(first.token))).await), "two");
    two.release(&second).await.unwrap();
    assert_eq!(refused(two.append(with(Some(second.token))).await), "nobody");

    assert_eq!(all(&one).await.len(), 5);
    one.close().await;
    two.close().await;
}

/// Machines that share a server need not agree on the time; whoever shares a file is on one machine, and its clock counts.
pub(crate) async fn a_clock_that_is_set_takes_no_run_from_its_owner(place: &Place) {
    let clock = Arc::new(Hands::default());
    let ahead = Options { clock: clock.clone(), ..Options::default() };
    let (one, two) = (place.open().await, Trace::open(&place.url(), ahead).await.unwrap());
    let run = run_at(1);
    let lease = one.acquire(run, "one", Span::from_secs(60)).await.unwrap();
    // A day past the end of it, by the clock of who wants it.
    clock.forward(Span::from_micros(lease.until.as_micros().unsigned_abs()));
    clock.forward(Span::from_secs(24 * 60 * 60));

    let now = two.time().await.unwrap();
    let owners = two.owners(run..=run, now).await.unwrap();
    let taken = two.acquire(run, "two", Span::from_secs(60)).await;

    match place {
        Place::Sqlite(_) => assert!(taken.is_ok() && owners.is_empty(), "{taken:?}"),
        Place::Postgres(_) => {
            assert_eq!(owners, BTreeMap::from([(run, "one".to_owned())]));
            assert_eq!(taken.unwrap_err().to_string(), format!("run {run} is owned by one"));
            // Nor is it given for a day more to whoever's clock is ahead.
            one.release(&lease).await.unwrap();
            let lease = two.acquire(run, "two", Span::from_secs(60)).await.unwrap();
            assert!(lease.until.since(now) < Span::from_secs(60 * 60), "{lease:?}");
            let token = Some(lease.token);
            two.append(Append { token, ..of(run, vec![note("a.b", json!({}))]) }).await.unwrap();
            let renewed = two.renew(&lease, Span::from_secs(60)).await.unwrap();
            assert!(renewed.until.since(now) < Span::from_secs(60 * 60), "{renewed:?}");
        }
    }
    one.close().await;
    two.close().await;
}

pub(crate) async fn behaviour_19_only_one_of_many_gets_the_lease(place: &Place) {
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
    let options = by_hand(clock.clone());
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
