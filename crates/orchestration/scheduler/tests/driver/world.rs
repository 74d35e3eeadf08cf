//! A store, a clock and a scheduler whose bodies and checks are functions of the test.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use formwork_protocols::{
    Cancel, Claim, Clock, Event, PermissionMode, Position, RunId, Store, SystemRng, Timestamp,
    check::Verdict, store::Selection,
};
use formwork_scheduler::{
    AttemptJob, CheckJob, NativeExecutor, Natives, Report, Scheduler, Setup, Signals,
    workflow::{Known, Plan},
};
use formwork_testkit::postgres::{Database, Postgres};
use formwork_trace::{LapseBy, Options, Trace};
use serde_json::Map;

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
        Timestamp::from_micros(1_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// What decides on checks.
pub(crate) trait Check: Fn(&CheckJob) -> Verdict + Send + Sync + 'static {}

impl<F: Fn(&CheckJob) -> Verdict + Send + Sync + 'static> Check for F {}

pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<HandClock>,
    _database: Option<Database<'static>>, // Goes with the test, and after its store.
}

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
        Self { store: Arc::new(store), clock, _database: database }
    }

    pub(crate) fn scheduler(&self, natives: Natives, check: impl Check) -> Scheduler {
        let executor = NativeExecutor::new(natives, check);
        Scheduler::new(Arc::clone(&self.store), Arc::new(executor))
            .with_time(Arc::clone(&self.clock) as _, Arc::new(SystemRng))
    }

    pub(crate) async fn run(&self, text: &str, natives: Natives, check: impl Check) -> Report {
        let scheduler = self.scheduler(natives.clone(), check);
        let run = scheduler.create(&plan(text, &natives), setup()).await.unwrap();
        scheduler.run(run, &Signals::default()).await.unwrap()
    }

    pub(crate) async fn events(&self, run: RunId) -> Vec<Event> {
        let selection = Selection { run: Some(run), ..Selection::default() };
        self.store.read(Position(0), &selection, 10_000).await.unwrap()
    }

    pub(crate) async fn kinds(&self, run: RunId) -> Vec<String> {
        self.events(run).await.iter().map(|event| event.body.kind().to_owned()).collect()
    }
}

pub(crate) fn setup() -> Setup {
    Setup {
        workspace: "/w".to_owned(),
        mode: PermissionMode::Edit,
        principal: "user:ada".parse().unwrap(),
        setup: Map::new(),
    }
}

pub(crate) fn plan(text: &str, natives: &Natives) -> Plan {
    let natives: BTreeSet<String> = natives.names().map(str::to_owned).collect();
    let known = Known { natives, ..Known::default() };
    let text = format!("format_version = 1\nname = \"flow\"\n{text}");
    Plan::parse("flow.toml", &text, &known, &Map::new()).unwrap_or_else(|faults| panic!("{faults}"))
}

pub(crate) fn verdict(job: &CheckJob, passed: bool) -> Verdict {
    Verdict::bare(&*job.check.name, passed, "as the test says")
}

pub(crate) fn pass(job: &CheckJob) -> Verdict {
    verdict(job, true)
}

pub(crate) fn fail(job: &CheckJob) -> Verdict {
    verdict(job, false)
}

pub(crate) async fn done(_: AttemptJob, _: Cancel) -> Result<Claim, String> {
    Ok(Claim { summary: "done".to_owned(), output: None })
}

/// Works until it is told to stop.
pub(crate) async fn hang(_: AttemptJob, cancel: Cancel) -> Result<Claim, String> {
    cancel.cancelled().await;
    Err("told to stop".to_owned())
}

pub(crate) fn ending(report: &Report, name: &str) -> String {
    let outcome = report.tasks().find(|task| task.name.as_str() == name);
    outcome.map_or_else(|| "open".to_owned(), |outcome| outcome.ending.to_string())
}
