//! A store, a clock that is moved by hand, and a host whose actions are functions of the test.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use formwork_dispatch::{
    Did, Dispatcher, Failure, Host, Job, Lane, Origin, State, Subscription, Until,
};
use formwork_protocols::{
    Append, Cancel, Clock, Event, EventBody, NewEvent, Position, Principal, RunId, Span, Store,
    StoreError, SubscriptionName, SystemRng, Timestamp, WorkflowName, event::DispatchRetried,
    store::Selection,
};
use formwork_testkit::postgres::{Database, Postgres};
use formwork_trace::{LapseBy, Options, Trace};
use serde_json::{Value, json};

/// Makes a test of each scenario, once per store.
macro_rules! on_both {
    ($($name:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::World::sqlite().await).await;
            })*
        }

        mod pg_server {
            $(#[tokio::test]
            async fn $name() {
                let Some(world) = crate::world::World::postgres().await else { return };
                super::$name(world).await;
            })*
        }
    };
}

pub(crate) use on_both;

/// A clock that is moved by hand.
#[derive(Debug, Default)]
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn forward(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000 + self.0.load(Ordering::SeqCst))
    }
}

/// What an action does: the words that it says, or why it is not done; nothing where it never ends.
pub(crate) type Answer = Box<dyn Fn(&Job) -> Option<Result<String, Failure>> + Send + Sync>;

/// Keeps what it was told to do.
pub(crate) struct Recorder {
    /// `key#attempt`, in the order in which the effects were made.
    pub(crate) done: Mutex<Vec<String>>,
    pub(crate) documents: Mutex<Vec<Value>>,
    pub(crate) began: tokio::sync::Notify,
    answer: Answer,
    pub(crate) origins: Mutex<HashMap<RunId, Origin>>,
}

#[async_trait]
impl Host for Recorder {
    async fn origin(&self, run: RunId) -> Result<Option<Origin>, StoreError> {
        Ok(self.origins.lock().unwrap().get(&run).cloned())
    }

    async fn act(&self, job: &Job, cancel: &Cancel) -> Result<Did, Failure> {
        let effect = format!("{}.{}#{}", job.delivery, job.action, job.attempt);
        self.done.lock().unwrap().push(effect);
        self.documents.lock().unwrap().push(job.document());
        self.began.notify_one();
        match (self.answer)(job) {
            Some(done) => done.map(|said| Did { said }),
            None => {
                cancel.cancelled().await;
                Err(Failure::Stopped)
            }
        }
    }
}

impl Recorder {
    pub(crate) fn effects(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) run: RunId,
    _database: Option<Database<'static>>, // Goes with the test, and after its store.
}

pub(crate) const WORKSPACE: &str = "/w";

impl World {
    pub(crate) async fn sqlite() -> Self {
        Self::open("sqlite::memory:", None).await
    }

    pub(crate) async fn postgres() -> Option<Self> {
        let database = Postgres::shared()?.database().unwrap();
        let url = database.url().to_owned();
        Some(Self::open(&url, Some(database)).await)
    }

    async fn open(url: &str, database: Option<Database<'static>>) -> Self {
        let clock = Arc::new(HandClock::default());
        let (time, lapse) = (Arc::clone(&clock) as _, LapseBy::Options);
        let options = Options { clock: time, lapse, ..Options::default() };
        let store = Trace::open(url, options).await.unwrap();
        let run = run_id(1);
        Self { store: Arc::new(store), clock, run, _database: database }
    }

    /// Has something happen in the run, and returns its place.
    pub(crate) async fn happen(&self, kind: &str, data: Value) -> u64 {
        self.happen_in(self.run, "user:ada", kind, data).await
    }

    pub(crate) async fn happen_in(&self, run: RunId, by: &str, kind: &str, data: Value) -> u64 {
        let event = NewEvent {
            task: None,
            principal: Principal::parse(by).unwrap(),
            at: self.clock.now(),
            body: EventBody::from_parts(kind, data).unwrap(),
            idempotency_key: None,
        };
        let append = Append { run, token: None, events: vec![event], blobs: vec![] };
        self.store.append(append).await.unwrap()[0].position.0
    }

    pub(crate) async fn fire(&self, name: &str) -> u64 {
        self.happen("external.fired", json!({ "name": name })).await
    }

    /// A host whose actions all end well.
    pub(crate) fn host(&self) -> Arc<Recorder> {
        self.host_that(|_| Some(Ok("done".to_owned())))
    }

    pub(crate) fn host_that(
        &self,
        answer: impl Fn(&Job) -> Option<Result<String, Failure>> + Send + Sync + 'static,
    ) -> Arc<Recorder> {
        let origins = HashMap::from([(self.run, origin("flow", &[]))]);
        Arc::new(Recorder {
            done: Mutex::default(),
            documents: Mutex::default(),
            began: tokio::sync::Notify::new(),
            answer: Box::new(answer),
            origins: Mutex::new(origins),
        })
    }

    pub(crate) fn dispatcher(&self, host: &Arc<Recorder>, texts: &[&str]) -> Dispatcher {
        self.dispatcher_on(Arc::clone(&self.store), host, texts)
    }

    pub(crate) fn dispatcher_on(
        &self,
        store: Arc<dyn Store>,
        host: &Arc<Recorder>,
        texts: &[&str],
    ) -> Dispatcher {
        let subscriptions = texts.iter().map(|text| Arc::new(subscription(text)));
        let by = (WORKSPACE, Principal::parse("user:ada").unwrap());
        Dispatcher::new(store, Arc::clone(host) as _, by, subscriptions)
            .with_time(Arc::clone(&self.clock) as _, Arc::new(SystemRng))
    }

    /// Dispatches what is there.
    pub(crate) async fn once(&self, host: &Arc<Recorder>, texts: &[&str]) -> Vec<Lane> {
        self.dispatcher(host, texts).run(Until::Idle, &Cancel::new()).await.unwrap()
    }

    pub(crate) async fn state(&self, name: &str) -> State {
        State::read(&*self.store, log(name)).await.unwrap()
    }

    pub(crate) async fn events(&self, run: RunId) -> Vec<Event> {
        let selection = Selection { run: Some(run), ..Selection::default() };
        self.store.read(Position(0), &selection, 10_000).await.unwrap()
    }

    pub(crate) async fn kinds(&self, name: &str) -> Vec<String> {
        let events = self.events(log(name)).await;
        events.iter().map(|event| event.body.kind().to_owned()).collect()
    }

    /// Wants a delivery taken up again.
    pub(crate) async fn retry(&self, name: &str, delivery: u64) {
        let delivery = Position(delivery);
        let event = NewEvent {
            task: None,
            principal: Principal::parse("user:bob").unwrap(),
            at: self.clock.now(),
            body: EventBody::DispatchRetried(DispatchRetried { delivery }),
            idempotency_key: None,
        };
        let append = Append { run: log(name), token: None, events: vec![event], blobs: vec![] };
        self.store.append(append).await.unwrap();
    }
}

pub(crate) fn log(name: &str) -> RunId {
    RunId::of_subscription(WORKSPACE, &SubscriptionName::parse(name).unwrap())
}

pub(crate) fn origin(workflow: &str, caused_by: &[&str]) -> Origin {
    let name = |name: &&str| SubscriptionName::parse(*name).unwrap();
    Origin {
        workflow: WorkflowName::parse(workflow).unwrap(),
        caused_by: caused_by.iter().map(name).collect(),
    }
}

pub(crate) fn run_id(number: u32) -> RunId {
    format!("00000000-0000-7000-8000-{number:012x}").parse().unwrap()
}

pub(crate) fn subscription(text: &str) -> Subscription {
    let text = format!("format_version = 1\n{text}");
    let workflows = BTreeSet::from([WorkflowName::parse("mend").unwrap()]);
    Subscription::parse("test.toml", &text, &workflows).unwrap_or_else(|faults| panic!("{faults}"))
}

/// Ends what follows the log as a kill does: nothing of it goes on, and nothing is given back.
pub(crate) const LEASE: Span = Span::from_secs(30);
