//! The behaviours, each a function of the place where the store is.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use formwork_protocols::{
    AgentName, Append, AttemptId, Blob, BlobHash, Body, Budget, CallId, Clock, Ending, Event,
    EventBody, EventStore as _, Live, NewEvent, OutcomeCode, PermissionMode, Position, Principal,
    Rng as _, RunId, RunOutcome, RunState, Scrub, SeededRng, SessionId, Span, StoreError,
    SystemRng, TaskId, TaskSignal, TaskSpec, TaskState, Timestamp, Usage, Usd, Views as _,
    check::{Evidence, Phase, Verdict},
    event::{
        AttemptEnded, AttemptStarted, CheckFinished, Delta, DeltaKind, FileChange, ModelCompleted,
        RunCreated, RunFinished, RunStarted, SessionMessage, TaskCreated, TaskMoved,
    },
    message::Role,
    model::{ServedBy, StopReason},
    store::{AuditFault, Selection},
};
use formwork_testkit::postgres::{Database, Postgres};
use formwork_trace::{Options, Trace};
use futures::StreamExt as _;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

/// Where a test's store is. It goes with the value.
pub(crate) enum Place {
    Sqlite(tempfile::TempDir),
    Postgres(Database<'static>),
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    pub(crate) fn postgres() -> Option<Self> {
        Postgres::shared().map(|postgres| Self::Postgres(postgres.database().unwrap()))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => {
                format!("sqlite://{}", folder.path().join("store.db").display())
            }
            Self::Postgres(database) => database.url().to_owned(),
        }
    }

    async fn open(&self) -> Trace {
        Trace::open(&self.url(), Options::default()).await.unwrap()
    }

    /// Does to the database what nobody should.
    async fn tamper(&self, sql: &str) {
        match self {
            Self::Sqlite(_) => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url()).await.unwrap();
                let unlock = "DROP TRIGGER IF EXISTS events_are_not_changed; \
                    DROP TRIGGER IF EXISTS events_are_not_deleted; \
                    DROP TRIGGER IF EXISTS blobs_are_not_changed; \
                    DROP TRIGGER IF EXISTS blobs_are_not_deleted;";
                let sql = AssertSqlSafe(format!("{unlock}{sql}"));
                sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres(_) => {
                let mut connection = sqlx::PgConnection::connect(&self.url()).await.unwrap();
                let unlock = "SET search_path = formwork; \
                    DROP TRIGGER IF EXISTS events_are_not_changed ON events; \
                    DROP TRIGGER IF EXISTS blobs_are_not_changed ON blobs;";
                let sql = AssertSqlSafe(format!("{unlock}{sql}"));
                sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// Returns every row of every view as text.
    async fn views(&self) -> BTreeMap<&'static str, Vec<String>> {
        let mut all = BTreeMap::new();
        for table in ["runs", "tasks", "attempts", "checks", "calls", "files"] {
            let rows = match self {
                Self::Sqlite(_) => {
                    let mut connection =
                        sqlx::SqliteConnection::connect(&self.url()).await.unwrap();
                    let sql = format!(
                        "SELECT group_concat('quote(' || name || ')', '||''|''||') \
                         FROM pragma_table_info('{table}')"
                    );
                    let columns: String = sqlx::query(AssertSqlSafe(sql))
                        .fetch_one(&mut connection)
                        .await
                        .unwrap()
                        .get(0);
                    let sql = format!("SELECT {columns} FROM {table} ORDER BY 1");
                    let rows =
                        sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
                    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>()
                }
                Self::Postgres(_) => {
                    let mut connection = sqlx::PgConnection::connect(&self.url()).await.unwrap();
                    let sql = format!("SELECT t::TEXT FROM formwork.{table} t ORDER BY 1");
                    let rows =
                        sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
                    rows.iter().map(|row| row.get::<String, _>(0)).collect()
                }
            };
            all.insert(table, rows);
        }
        all
    }
}

/// A clock that stands until it is moved.
#[derive(Default)]
struct Hands(AtomicI64);

impl Hands {
    fn forward(&self, span: Span) {
        self.0.fetch_add(i64::try_from(span.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

fn run_at(millis: i64) -> RunId {
    let clock = Hands(AtomicI64::new(millis * 1000));
    RunId::generate(&clock, &SystemRng)
}

fn task_at(millis: i64) -> TaskId {
    let clock = Hands(AtomicI64::new(millis * 1000));
    TaskId::generate(&clock, &SystemRng)
}

fn event(body: EventBody) -> NewEvent {
    NewEvent {
        task: None,
        principal: Principal::parse("user:ada").unwrap(),
        at: Timestamp::from_micros(1_000),
        body,
        idempotency_key: None,
    }
}

fn note(kind: &str, data: Value) -> NewEvent {
    event(EventBody::Unknown { kind: kind.to_owned(), data })
}

fn of(run: RunId, events: Vec<NewEvent>) -> Append {
    Append { run, token: None, events, blobs: vec![] }
}

async fn all(trace: &Trace) -> Vec<Event> {
    trace.read(Position(0), &Selection::default(), usize::MAX).await.unwrap()
}

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

pub(crate) async fn an_append_is_recorded_whole_or_not_at_all(place: &Place) {
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

pub(crate) async fn a_second_write_with_a_key_returns_the_first_event(place: &Place) {
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

pub(crate) async fn words_reach_watchers_and_are_not_stored(place: &Place) {
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
    clock.forward(Span::from_secs(8));
    let with = Append { token: Some(first.token), ..of(run, vec![note("a.b", json!({}))]) };
    trace.append(with.clone()).await.unwrap();
    // Late, but nobody took it since.
    clock.forward(Span::from_secs(60));
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

/// A run of one task that failed its check once, with everything that a view shows.
struct Story {
    run: RunId,
    task: TaskId,
    call: CallId,
    session: SessionId,
    attempts: [AttemptId; 2],
    verdicts: [Verdict; 2],
    usage: Usage,
    cost: Usd,
    outcome: RunOutcome,
    events: Vec<NewEvent>,
}

fn story(run: RunId) -> Story {
    let task = task_at(5);
    let clock = Hands::default();
    let call = CallId::generate(&clock, &SystemRng);
    let session = SessionId::generate(&clock, &SystemRng);
    let attempts = [(); 2].map(|()| AttemptId::generate(&clock, &SystemRng));
    let verdict = |passed| Verdict {
        check: "tests".to_owned(),
        passed,
        reason: "as it says".to_owned(),
        issues: vec![],
        evidence: Evidence::default(),
    };
    let verdicts = [verdict(false), verdict(true)];
    let usage = Usage { input: 10, cache_read: 20, cache_write: 30, output: 40, reasoning: 50 };
    let cost: Usd = "0.25".parse().unwrap();
    let outcome = RunOutcome {
        run,
        code: OutcomeCode::Completed,
        reason: "every check passed".to_owned(),
        rounds: 1,
        usage,
        cost,
        files_changed: 1,
        elapsed: Span::from_secs(3),
        scripted: true,
    };
    let spec = TaskSpec {
        name: "fix".parse().unwrap(),
        description: String::new(),
        body: Body::Agent { agent: "coder".parse().unwrap(), prompt: "fix it".to_owned() },
        depends_on: vec![],
        prechecks: vec![],
        postchecks: vec![],
        retries: formwork_protocols::spec::Retries::default(),
        timeout: None,
        budget: Budget::default(),
        write_paths: vec![],
        protected_paths: vec![],
    };
    let moved = |from, signal, to: TaskState, ending| {
        EventBody::TaskMoved(TaskMoved { from, signal, to, ending, claim: None })
    };
    let change = |path: &str, before: Option<&str>, after: Option<&str>| {
        EventBody::FileChanged(FileChange {
            path: path.to_owned(),
            before: before.map(|text| BlobHash::of(text.as_bytes())),
            after: after.map(|text| BlobHash::of(text.as_bytes())),
            added: 2,
            removed: 1,
            before_mode: None,
            after_mode: None,
            call: None,
        })
    };
    let bodies = vec![
        EventBody::RunCreated(RunCreated {
            name: "fix-it".parse().unwrap(),
            workspace: "/home/ada/project".to_owned(),
            mode: PermissionMode::default(),
            budget: Budget::default(),
            root: task,
            setup: json!({}),
            version: "0.1.0".to_owned(),
        }),
        EventBody::TaskCreated(TaskCreated { parent: None, spec }),
        EventBody::RunStarted(RunStarted { owner: "me".to_owned() }),
        moved(TaskState::Created, TaskSignal::Start, TaskState::Prechecking, None),
        moved(TaskState::Prechecking, TaskSignal::Pass, TaskState::Active, None),
        EventBody::AttemptStarted(AttemptStarted {
            attempt: attempts[0],
            number: 1,
            resumes: None,
        }),
        EventBody::ModelCompleted(ModelCompleted {
            call,
            session,
            model: "local/small".parse().unwrap(),
            served_by: ServedBy {
                provider: "local".parse().unwrap(),
                endpoint: "http://127.0.0.1:1".to_owned(),
                model: "small".to_owned(),
                request_id: None,
            },
            stop: StopReason::EndTurn,
            usage,
            usage_estimated: true,
            cost,
            tries: 2,
            first_token: None,
            elapsed: Span::from_millis(1_500),
            undecodable: 0,
        }),
        change("src/lib.rs", Some("a"), Some("b")),
        change("new.rs", None, Some("c")),
        change("new.rs", Some("c"), None),
        EventBody::AttemptEnded(AttemptEnded {
            attempt: attempts[0],
            claimed: true,
            reason: "done".to_owned(),
        }),
        moved(TaskState::Active, TaskSignal::End, TaskState::Postchecking, None),
        EventBody::CheckFinished(CheckFinished {
            phase: Phase::Exit,
            index: 0,
            verdict: verdicts[0].clone(),
        }),
        moved(TaskState::Postchecking, TaskSignal::Fail, TaskState::PostcheckFailed, None),
        moved(TaskState::PostcheckFailed, TaskSignal::Retry, TaskState::Active, None),
        EventBody::AttemptStarted(AttemptStarted {
            attempt: attempts[1],
            number: 2,
            resumes: None,
        }),
        moved(TaskState::Active, TaskSignal::End, TaskState::Postchecking, None),
        EventBody::CheckFinished(CheckFinished {
            phase: Phase::Exit,
            index: 0,
            verdict: verdicts[1].clone(),
        }),
        moved(
            TaskState::Postchecking,
            TaskSignal::Pass,
            TaskState::Completed,
            Some(Ending::Completed),
        ),
        EventBody::RunFinished(RunFinished { outcome: outcome.clone() }),
    ];
    let events = bodies
        .into_iter()
        .zip(1_i64..)
        .map(|(body, n)| {
            let of_run = body.kind().starts_with("run.");
            NewEvent {
                task: (!of_run).then_some(task),
                at: Timestamp::from_micros(n * 1_000),
                ..event(body)
            }
        })
        .collect();
    Story { run, task, call, session, attempts, verdicts, usage, cost, outcome, events }
}

pub(crate) async fn the_views_tell_the_story_of_a_run(place: &Place) {
    let trace = place.open().await;
    let story = story(run_at(1));
    let at = |n: i64| Timestamp::from_micros(n * 1_000);

    trace.append(of(story.run, story.events[..3].to_vec())).await.unwrap();
    assert_eq!(trace.run(story.run).await.unwrap().unwrap().state, RunState::Running);
    trace.append(of(story.run, story.events[3..].to_vec())).await.unwrap();

    let row = trace.run(story.run).await.unwrap().unwrap();
    let expected = formwork_protocols::store::RunRow {
        run: story.run,
        name: "fix-it".parse().unwrap(),
        state: RunState::Completed,
        workspace: "/home/ada/project".to_owned(),
        created: at(1),
        updated: at(20),
        code: Some(OutcomeCode::Completed),
        reason: Some(story.outcome.reason),
        rounds: 1,
        usage: story.usage,
        cost: story.cost,
        // A file that came and went is none.
        files_changed: 1,
        events: 20,
    };
    assert_eq!(row, expected);
    assert_eq!(trace.runs(None, 10).await.unwrap(), [expected]);
    let expected = formwork_protocols::store::TaskRow {
        task: story.task,
        run: story.run,
        parent: None,
        name: "fix".parse().unwrap(),
        body: "agent".to_owned(),
        state: TaskState::Completed,
        ending: Some(Ending::Completed),
        attempts: 2,
        cost: story.cost,
        usage: story.usage,
        started: Some(at(4)),
        ended: Some(at(19)),
    };
    assert_eq!(trace.tasks(story.run).await.unwrap(), [expected]);
    let attempt = |n: usize, started, ended: Option<i64>, reason: Option<&str>| {
        formwork_protocols::store::AttemptRow {
            attempt: story.attempts[n],
            task: story.task,
            number: u32::try_from(n).unwrap() + 1,
            started: at(started),
            ended: ended.map(at),
            reason: reason.map(str::to_owned),
        }
    };
    assert_eq!(
        trace.attempts(story.task).await.unwrap(),
        [attempt(0, 6, Some(11), Some("done")), attempt(1, 16, None, None)]
    );
    let check = |n: usize, seen| formwork_protocols::store::CheckRow {
        task: story.task,
        phase: Phase::Exit,
        index: 0,
        at: at(seen),
        verdict: story.verdicts[n].clone(),
    };
    assert_eq!(trace.checks(story.run).await.unwrap(), [check(0, 13), check(1, 18)]);
    let call = formwork_protocols::store::CallRow {
        call: story.call,
        task: story.task,
        session: story.session,
        model: "local/small".to_owned(),
        endpoint: "http://127.0.0.1:1".to_owned(),
        usage: story.usage,
        usage_estimated: true,
        cost: story.cost,
        tries: 2,
        elapsed: Span::from_millis(1_500),
        at: at(7),
    };
    assert_eq!(trace.calls(story.run).await.unwrap(), [call]);
    trace.close().await;
}

pub(crate) async fn the_views_are_the_same_when_made_anew(place: &Place) {
    let trace = place.open().await;
    for n in 0..5 {
        let story = story(run_at(n));
        // One event a batch, and all in one.
        let size = if n % 2 == 0 { 1 } else { story.events.len() };
        for batch in story.events.chunks(size) {
            trace.append(of(story.run, batch.to_vec())).await.unwrap();
        }
    }
    let before = place.views().await;
    assert_eq!(before["runs"].len(), 5);
    assert_eq!(before["calls"].len(), 5);

    place.tamper("UPDATE runs SET rounds = 77; DELETE FROM tasks; DELETE FROM calls").await;
    trace.rebuild().await.unwrap();

    assert_eq!(place.views().await, before);
    assert_eq!(trace.audit_all().await.unwrap().len(), 5);
    trace.close().await;
}

pub(crate) async fn runs_are_listed_newest_first_page_by_page(place: &Place) {
    let trace = place.open().await;
    let mut runs: Vec<RunId> = Vec::new();
    for n in 0..25 {
        let run = run_at(1_000 + n);
        trace.append(of(run, story(run).events[..1].to_vec())).await.unwrap();
        runs.insert(0, run);
    }
    // A run of which nobody told how it was made is not shown.
    trace.append(of(run_at(5_000), vec![note("a.b", json!({}))])).await.unwrap();

    let mut listed = Vec::new();
    let mut before = None;
    loop {
        let page = trace.runs(before, 10).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.run);
        listed.extend(page.iter().map(|row| row.run));
    }

    assert_eq!(listed, runs);
    assert_eq!(trace.run(run_at(9_000)).await.unwrap(), None);
    assert_eq!(trace.tasks(run_at(9_000)).await.unwrap(), []);
    trace.close().await;
}

async fn sound(trace: &Trace, run: RunId) {
    for n in 0..6 {
        let event = NewEvent {
            task: Some(task_at(n)),
            idempotency_key: Some(format!("key-{n}")),
            ..note("test.note", json!({ "n": n }))
        };
        trace.append(of(run, vec![event])).await.unwrap();
    }
    let audit = trace.audit(run).await.unwrap();
    assert_eq!((audit.events, audit.faults), (6, vec![]));
}

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

/// Writes a run's id as the engine's SQL does.
fn bytes(place: &Place, run: RunId) -> String {
    match place {
        Place::Sqlite(_) => format!("x'{}'", run.as_uuid().simple()),
        Place::Postgres(_) => format!("'{run}'"),
    }
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
        }))
    };
    let [one, two, three] = ["one", "two", "three"].map(|text| Blob::new(text.as_bytes().to_vec()));
    let events = vec![message(0, &one), message(1, &two), message(2, &three), message(3, &one)];
    let blobs = vec![one.clone(), two.clone(), three.clone()];
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
            "DELETE FROM blobs WHERE hash = {}; UPDATE blobs SET bytes = {} WHERE hash = {}",
            literal(two.hash()),
            literal(two.hash()),
            literal(three.hash()),
        ))
        .await;
    let audit = trace.audit(run).await.unwrap();

    let faults: BTreeSet<String> =
        audit.faults.iter().map(|fault| serde_json::to_string(fault).unwrap()).collect();
    let expected = [
        AuditFault::MissingBlob { seq: 2, hash: two.hash() },
        AuditFault::BlobMismatch { hash: three.hash() },
    ];
    assert_eq!(
        faults,
        expected.iter().map(|fault| serde_json::to_string(fault).unwrap()).collect()
    );
    assert!(matches!(trace.blob(&three.hash()).await, Err(StoreError::Corrupt { .. })));
    trace.close().await;
}

pub(crate) async fn the_log_refuses_to_be_changed(place: &Place) {
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
        let refused = match place {
            Place::Sqlite(_) => {
                let mut connection = sqlx::SqliteConnection::connect(&place.url()).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut connection).await.map(drop)
            }
            Place::Postgres(_) => {
                let mut connection = sqlx::PgConnection::connect(&place.url()).await.unwrap();
                sqlx::raw_sql("SET search_path = formwork").execute(&mut connection).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut connection).await.map(drop)
            }
        };
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("append-only"), "{sql}: {said}");
    }
    trace.close().await;
}

/// Knows one secret.
struct Hide(&'static str);

impl Scrub for Hide {
    fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if text.contains(self.0) {
            Cow::Owned(text.replace(self.0, "[hidden]"))
        } else {
            Cow::Borrowed(text)
        }
    }

    fn scrub_value(&self, value: &mut Value) {
        let text = value.to_string();
        if let Cow::Owned(clean) = self.scrub_text(&text) {
            *value = serde_json::from_str(&clean).unwrap();
        }
    }
}

pub(crate) async fn secrets_reach_neither_events_nor_keys_nor_blobs(place: &Place) {
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
        Err(StoreError::TooNew { found: 99, known: 1, at }) => assert!(!at.is_empty()),
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

pub(crate) async fn sums_stop_at_the_largest_number(place: &Place) {
    let trace = place.open().await;
    let mut story = story(run_at(1));
    let most = Usage {
        input: u64::MAX,
        cache_read: u64::MAX,
        cache_write: u64::MAX,
        output: u64::MAX,
        reasoning: u64::MAX,
    };
    for event in &mut story.events {
        if let EventBody::ModelCompleted(data) = &mut event.body {
            data.usage = most;
            data.cost = Usd::MAX;
        }
    }
    let call = story.events[6].clone();

    trace.append(of(story.run, story.events.clone())).await.unwrap();
    trace.append(of(story.run, vec![call.clone()])).await.unwrap();
    trace.append(of(story.run, vec![call.clone(), call])).await.unwrap();

    let row = trace.run(story.run).await.unwrap().unwrap();
    let largest = u64::try_from(i64::MAX).unwrap();
    assert_eq!((row.rounds, row.cost, row.usage.input), (4, Usd::MAX, largest));
    let before = place.views().await;
    trace.rebuild().await.unwrap();
    assert_eq!(place.views().await, before);
    trace.close().await;
}
