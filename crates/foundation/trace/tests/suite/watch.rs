//! What those who watch receive.

use super::*;

pub(crate) async fn two_processes_share_one_log_and_each_watcher_sees_every_event_once_in_order(
    place: &Place,
) {
    // Two handles have nothing in common but the database, as two processes have.
    let (here, there) = (place.open().await, place.open().await);
    let (mine, theirs) = (here.watch(), there.watch());
    let run = run_at(1);
    const EACH: u64 = 60;

    let write = |trace: Trace, name: &'static str| async move {
        for n in 0..EACH {
            trace.append(of(run, vec![note("test.note", json!([name, n]))])).await.unwrap();
        }
    };
    let see = |watch: futures::stream::BoxStream<'static, Live>| async move {
        watch
            .take(usize::try_from(2 * EACH).unwrap())
            .map(|live| match live {
                Live::Event(event) => event.position.0,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
            .await
    };
    let (_, _, mine, theirs) =
        tokio::join!(write(here.clone(), "a"), write(there.clone(), "b"), see(mine), see(theirs));

    let expected: Vec<_> = (1..=2 * EACH).collect();
    assert_eq!(mine, expected);
    assert_eq!(theirs, expected);
    assert_eq!(here.audit(run).await.unwrap().faults, []);
    here.close().await;
    there.close().await;
}

pub(crate) async fn a_slow_watcher_is_told_where_to_read_on(place: &Place) {
    let trace = place.open().await;
    let run = run_at(1);
    let mut watch = trace.watch();
    let batch = |n: u64| (0..n).map(|n| note("test.note", json!(n))).collect();

    trace.append(of(run, batch(1))).await.unwrap();
    let first = watch.next().await.unwrap();
    trace.append(of(run, batch(6_000))).await.unwrap();
    // Events are handed on after the answer: one behind them shows that they were.
    let mut marker = trace.watch();
    let last = trace.append(of(run, batch(1))).await.unwrap()[0].position;
    loop {
        match marker.next().await {
            Some(Live::Event(event)) if event.position == last => break,
            Some(_) => {}
            None => panic!("the store is open"),
        }
    }
    let lagged = watch.next().await.unwrap();

    assert!(matches!(first, Live::Event(event) if event.position == Position(1)));
    assert_eq!(lagged, Live::Lagged(Position(1)));
    // Reading on from there, and then watching, leaves nothing out.
    let mut seen = 1;
    for event in trace.read(Position(1), &Selection::default(), usize::MAX).await.unwrap() {
        assert_eq!(event.position.0, seen + 1);
        seen = event.position.0;
    }
    assert!(seen > 6_000);
    trace.close().await;
}

pub(crate) async fn behaviour_33_words_reach_watchers_and_are_not_stored(place: &Place) {
    let options = Options { scrub: Arc::new(Hide("hunter2")), ..Options::default() };
    let trace = Trace::open(&place.url(), options).await.unwrap();
    let delta = |text: &str| Delta {
        run: run_at(1),
        task: task_at(1),
        session: SessionId::from_uuid(uuid::Uuid::nil()),
        agent: AgentName::parse("coder").unwrap(),
        kind: DeltaKind::Text,
        text: text.to_owned(),
    };
    trace.publish(delta("nobody listens"));
    let mut watch = trace.watch();

    trace.publish(delta("the word is hunter2"));

    match watch.next().await {
        Some(Live::Delta(delta)) => assert_eq!(delta.text, "the word is [hidden]"),
        other => panic!("{other:?}"),
    }
    assert_eq!(trace.head().await.unwrap(), Position(0));
    trace.close().await;
    assert_eq!(watch.next().await, None);
}
