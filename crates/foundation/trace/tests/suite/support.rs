//! Where a store is, and what is put into it.

use super::*;

/// Returns the options of a store whose leases lapse by a clock of the test's.
pub(super) fn by_hand(clock: Arc<dyn Clock>) -> Options {
    Options { clock, lapse: LapseBy::Options, ..Options::default() }
}

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

    pub(super) async fn open(&self) -> Trace {
        Trace::open(&self.url(), Options::default()).await.unwrap()
    }

    /// Does to the database what nobody should.
    pub(super) async fn tamper(&self, sql: &str) {
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
    pub(super) async fn views(&self) -> BTreeMap<&'static str, Vec<String>> {
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
pub(super) struct Hands(pub(super) AtomicI64);

impl Hands {
    pub(super) fn forward(&self, span: Span) {
        self.0.fetch_add(i64::try_from(span.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

pub(super) fn run_at(millis: i64) -> RunId {
    let clock = Hands(AtomicI64::new(millis * 1000));
    RunId::generate(&clock, &SystemRng)
}

pub(super) fn task_at(millis: i64) -> TaskId {
    let clock = Hands(AtomicI64::new(millis * 1000));
    TaskId::generate(&clock, &SystemRng)
}

pub(super) fn event(body: EventBody) -> NewEvent {
    NewEvent {
        task: None,
        principal: Principal::parse("user:ada").unwrap(),
        at: Timestamp::from_micros(1_000),
        body,
        idempotency_key: None,
    }
}

pub(super) fn note(kind: &str, data: Value) -> NewEvent {
    event(EventBody::Unknown { kind: kind.to_owned(), data })
}

pub(super) fn of(run: RunId, events: Vec<NewEvent>) -> Append {
    Append { run, token: None, events, blobs: vec![] }
}

pub(super) async fn all(trace: &Trace) -> Vec<Event> {
    trace.read(Position(0), &Selection::default(), usize::MAX).await.unwrap()
}

/// A run of one task that failed its check once, with everything that a view shows.
pub(super) struct Story {
    pub(super) run: RunId,
    pub(super) task: TaskId,
    pub(super) call: CallId,
    pub(super) session: SessionId,
    pub(super) attempts: [AttemptId; 2],
    pub(super) verdicts: [Verdict; 2],
    pub(super) usage: Usage,
    pub(super) cost: Usd,
    pub(super) outcome: RunOutcome,
    pub(super) events: Vec<NewEvent>,
}

pub(super) fn story(run: RunId) -> Story {
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
        steps: Vec::new(),
        unjudged: false,
        not_run: false,
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
        more_files: false,
        elapsed: Span::from_secs(3),
        scripted: true,
    };
    let body = Body::Agent { agent: "coder".parse().unwrap(), prompt: "fix it".to_owned() };
    let spec = TaskSpec {
        retries: formwork_protocols::spec::Retries::default(),
        ..TaskSpec::new("fix".parse().unwrap(), body)
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
            apart: false,
        })
    };
    let bodies = vec![
        EventBody::RunCreated(Box::new(RunCreated {
            name: "fix-it".parse().unwrap(),
            workspace: "/home/ada/project".to_owned(),
            mode: PermissionMode::default(),
            budget: Budget::default(),
            root: task,
            setup: json!({}),
            version: "0.1.0".to_owned(),
        })),
        EventBody::TaskCreated(TaskCreated { parent: None, spec: spec.into() }),
        EventBody::RunStarted(RunStarted { owner: "me".to_owned() }),
        moved(TaskState::Created, TaskSignal::Start, TaskState::Prechecking, None),
        moved(TaskState::Prechecking, TaskSignal::Pass, TaskState::Active, None),
        EventBody::AttemptStarted(AttemptStarted {
            attempt: attempts[0],
            number: 1,
            resumes: None,
        }),
        EventBody::ModelCompleted(Box::new(ModelCompleted {
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
            usage_doubted: None,
            cost,
            lost: None,
            tries: 2,
            first_token: None,
            elapsed: Span::from_millis(1_500),
            undecodable: 0,
            purpose: formwork_protocols::Purpose::Turn,
            answer: None,
        })),
        change("src/lib.rs", Some("a"), Some("b")),
        change("new.rs", None, Some("c")),
        change("new.rs", Some("c"), None),
        EventBody::AttemptEnded(AttemptEnded {
            class: None,
            attempt: attempts[0],
            claimed: true,
            reason: "done".to_owned(),
        }),
        moved(TaskState::Active, TaskSignal::End, TaskState::Postchecking, None),
        EventBody::CheckFinished(Box::new(CheckFinished {
            phase: Phase::Exit,
            index: 0,
            verdict: verdicts[0].clone(),
        })),
        moved(TaskState::Postchecking, TaskSignal::Fail, TaskState::PostcheckFailed, None),
        moved(TaskState::PostcheckFailed, TaskSignal::Retry, TaskState::Active, None),
        EventBody::AttemptStarted(AttemptStarted {
            attempt: attempts[1],
            number: 2,
            resumes: None,
        }),
        moved(TaskState::Active, TaskSignal::End, TaskState::Postchecking, None),
        EventBody::CheckFinished(Box::new(CheckFinished {
            phase: Phase::Exit,
            index: 0,
            verdict: verdicts[1].clone(),
        })),
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

pub(super) async fn sound(trace: &Trace, run: RunId) {
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

/// Writes a run's id as the engine's SQL does.
pub(super) fn bytes(place: &Place, run: RunId) -> String {
    match place {
        Place::Sqlite(_) => format!("x'{}'", run.as_uuid().simple()),
        Place::Postgres(_) => format!("'{run}'"),
    }
}

/// Knows one secret.
pub(super) struct Hide(pub(super) &'static str);

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
