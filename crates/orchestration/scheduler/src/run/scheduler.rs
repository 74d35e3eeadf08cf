//! The front door: begins runs and takes them up again.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use formwork_protocols::{
    Append, Blob, Cancel, Clock, Escalation, EventBody, NewEvent, PermissionMode, Position,
    Principal, Rng, RunId, RunOutcome, Span, Store, StoreError, SystemClock, SystemRng, TaskId,
    TaskOutcome,
    event::{RunCreated, TaskCreated},
    overseer::{Choice, Overseer},
    store::Lease,
};
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::{
    drive::{Drive, Parts},
    fold::{self, Folded},
    tree::{Progress, Tree},
};
use crate::{
    core::{Builder, Planted, flatten},
    error::Error,
    executor::Executor,
    ledger::Accounts,
    workflow::Plan,
};

/// Leaves at work at once where nobody says otherwise: what one person's machine and account bear.
const WIDTH: NonZeroUsize = NonZeroUsize::new(4).expect("four is not zero");

/// How long a run is owned without a sign of life, where nobody says otherwise: longer than a process is
/// held up by a busy machine, and short enough to wait for after a crash.
const LEASE: Span = Span::from_secs(30);

/// Carries out runs on one store, through one executor. Runs may overlap.
#[derive(Clone)]
pub struct Scheduler {
    pub(super) store: Arc<dyn Store>,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) rng: Arc<dyn Rng>,
    pub(super) width: NonZeroUsize,
    pub(super) owner: String,
    pub(super) lease: Span,
    pub(super) is_headless: bool,
    /// Whether nothing ends or is put off because of the time.
    pub(super) is_untimed: bool,
    pub(super) overseer: Option<Governed>,
    /// What they may decide alone; all that can be done where absent.
    pub(super) grant: Option<Arc<[Choice]>>,
    gone: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// Who governs runs, and how long they may take for an answer.
#[derive(Clone)]
pub(super) struct Governed {
    pub(super) overseer: Arc<dyn Overseer>,
    pub(super) within: Span,
}

/// What a run begins with, besides its plan.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Setup {
    /// The root of the workspace.
    pub workspace: String,
    pub mode: PermissionMode,
    /// Who asked for it.
    pub principal: Principal,
    /// Everything else that shapes the run; the scheduler adds the variables as `vars`.
    pub setup: Map<String, Value>,
}

/// What reaches a run while it goes on.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    /// Breaks off what is under way and keeps it: the run can be resumed.
    pub pause: Cancel,
    /// Ends everything for good.
    pub abort: Cancel,
    asked: Arc<Notify>,
    stops: Arc<Mutex<Vec<(TaskId, Stop)>>>,
}

/// What ends a task of a run that is [untimed](Scheduler::untimed), as it ended then: somebody outside, or the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Somebody ends it and all below it.
    Cancelled,
    /// Its time is over, as this says.
    TimedOut(Escalation),
    /// It has waited long enough for somebody outside: what it assumes holds, or it is given up.
    Expired,
}

impl Signals {
    /// Has a task end that goes on, by what is nobody's answer. One that has ended stays as it ended.
    pub fn stop(&self, task: TaskId, stop: Stop) {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner).push((task, stop));
        self.look();
    }

    /// Takes what is to end.
    pub(super) fn stops(&self) -> Vec<(TaskId, Stop)> {
        std::mem::take(&mut *self.stops.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says that the log may hold a request to pause or end the run; it is looked at soon. Without this it is
    /// looked at with each sign of life.
    pub fn look(&self) {
        self.asked.notify_one();
    }

    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }
}

/// A run that is recorded and not yet begun.
#[derive(Debug)]
pub struct NewRun {
    id: RunId,
    tree: Tree,
    variables: Map<String, Value>,
}

impl NewRun {
    /// Returns the run's id.
    pub const fn id(&self) -> RunId {
        self.id
    }
}

/// How a run ended or was left, and all its tasks.
#[derive(Debug)]
pub struct Report {
    /// How it ended; [interrupted](formwork_protocols::OutcomeCode::Interrupted) where it was paused.
    pub outcome: RunOutcome,
    pub(super) tree: Tree,
}

impl Report {
    /// Returns the outcome of the root task, if it has ended.
    pub fn root(&self) -> Option<TaskOutcome> {
        self.tree.outcome(self.tree.state.root())
    }

    /// Lists the outcomes of all tasks that have ended, parents before their children.
    pub fn tasks(&self) -> impl Iterator<Item = TaskOutcome> + '_ {
        self.tree.state.tasks().filter_map(|task| self.tree.outcome(task))
    }
}

impl Scheduler {
    /// Takes a store and an executor; time and chance are the machine's.
    pub fn new(store: Arc<dyn Store>, executor: Arc<dyn Executor>) -> Self {
        let rng: Arc<dyn Rng> = Arc::new(SystemRng);
        let owner = format!("scheduler-{:016x}", rng.next_u64());
        let gone = Arc::new(|_: &str| false);
        let clock = Arc::new(SystemClock);
        Self {
            store,
            executor,
            clock,
            rng,
            width: WIDTH,
            owner,
            lease: LEASE,
            is_headless: false,
            is_untimed: false,
            overseer: None,
            grant: None,
            gone,
        }
    }

    /// Takes another clock and another source of chance.
    #[must_use]
    pub fn with_time(mut self, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        self.clock = clock;
        self.rng = rng;
        self
    }

    /// Sets how many leaves are at work at once; four otherwise.
    #[must_use]
    pub const fn with_width(mut self, width: NonZeroUsize) -> Self {
        self.width = width;
        self
    }

    /// Sets under which name runs are owned; a made one otherwise.
    #[must_use]
    pub fn with_owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets how long a run is owned without a sign of life, of which there is one in each third of it;
    /// half a minute otherwise. A crash is taken over after this.
    #[must_use]
    pub const fn with_lease(mut self, lease: Span) -> Self {
        self.lease = lease;
        self
    }

    /// Says that nobody is there to be asked: what would be assumed in the end is assumed at once, and a question
    /// without an assumed answer fails.
    #[must_use]
    pub const fn headless(mut self, is_headless: bool) -> Self {
        self.is_headless = is_headless;
        self
    }

    /// Says that time does not count: nothing ends, rests or is broken off because of it. For runs whose course is known and
    /// that are only carried out again, on however busy a machine.
    #[must_use]
    pub const fn untimed(mut self) -> Self {
        self.is_untimed = true;
        self
    }

    /// Says who governs the runs: whoever is asked about tasks that would be given up and of which nobody within the run hears
    /// who could do something about it. What they have not answered `within` so long goes on to a person's inbox.
    #[must_use]
    pub fn with_overseer(mut self, overseer: Arc<dyn Overseer>, within: Span) -> Self {
        self.overseer = Some(Governed { overseer, within });
        self
    }

    /// Says what whoever governs the runs may decide alone: all that can be done, where nobody says less. What they decide beyond
    /// it is not done, and goes on to a person's inbox as what they pass does.
    #[must_use]
    pub fn with_grant(mut self, may: impl IntoIterator<Item = Choice>) -> Self {
        self.grant = Some(may.into_iter().collect());
        self
    }

    /// How often there is a sign of life: so often that two may fail.
    pub(super) const fn renewal(&self) -> Duration {
        Duration::from_micros(self.lease.as_micros() / 3)
    }

    /// Sets how to tell by its name that an owner has ended for sure: its runs are taken over at once.
    /// Otherwise the lease of whoever died has to lapse first.
    #[must_use]
    pub fn with_gone(mut self, gone: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.gone = Arc::new(gone);
        self
    }

    /// Records a run with all its tasks, in one piece.
    ///
    /// # Errors
    /// [`Error::Tree`] when the tasks make no tree, [`Error::Store`] when nothing could be recorded.
    pub async fn create(&self, plan: &Plan, setup: Setup) -> Result<NewRun, Error> {
        let run = RunId::generate(&*self.clock, &*self.rng);
        self.create_as(run, plan, setup).await
    }

    /// The same under a name that the caller has made before, and recorded: no other run may have it.
    ///
    /// # Errors
    /// As [`Scheduler::create`].
    pub async fn create_as(&self, run: RunId, plan: &Plan, setup: Setup) -> Result<NewRun, Error> {
        let planted = flatten(plan.root().clone(), || TaskId::generate(&*self.clock, &*self.rng));
        let tree = self.plant(run, &planted)?;
        let variables = plan.variables().clone();
        let Setup { workspace, mode, principal, mut setup } = setup;
        setup.insert("vars".to_owned(), Value::Object(variables.clone()));
        let created = RunCreated {
            name: plan.name().clone(),
            workspace,
            mode,
            budget: plan.root().budget.clone(),
            root: tree.state.id(tree.state.root()),
            setup: Value::Object(setup),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let at = self.clock.now();
        let event = |task, body| NewEvent {
            task,
            principal: principal.clone(),
            at,
            body,
            idempotency_key: None,
        };
        let shown = planted.iter().flat_map(|planted| &planted.spec.attached);
        let blobs = shown.filter_map(|attachment| attachment.content.clone().map(Blob::new));
        let blobs = blobs.collect();
        let mut events = Vec::with_capacity(planted.len() + 1);
        events.push(event(None, EventBody::RunCreated(Box::new(created))));
        events.extend(planted.into_iter().map(|Planted { id, parent, spec }| {
            event(Some(id), EventBody::TaskCreated(TaskCreated { parent, spec }))
        }));
        self.store
            .append(Append { run, token: None, events, blobs })
            .await
            .map_err(|source| Error::Store { run, source })?;
        Ok(NewRun { id: run, tree, variables })
    }

    fn plant(&self, run: RunId, planted: &[Planted]) -> Result<Tree, Error> {
        let accounts = Accounts::new();
        let mut builder = Builder::new(self.width);
        for Planted { id, parent, spec } in planted {
            accounts.open(*id, *parent, &spec.budget);
            builder
                .add(*id, *parent, Arc::clone(spec))
                .map_err(|source| Error::Tree { run, source })?;
        }
        let state = builder.build().map_err(|source| Error::Tree { run, source })?;
        let progress = vec![Progress::default(); state.len()];
        Ok(Tree { state, progress, accounts: Arc::new(accounts) })
    }

    /// Carries out a run that was just recorded.
    ///
    /// Returns when it has ended, or when it was paused and nothing of it is under way any more. A
    /// dropped future breaks everything off; the run can then be resumed once its lease has lapsed.
    ///
    /// # Errors
    /// [`Error::Store`] when the log cannot be written; what was under way has been broken off.
    pub async fn run(&self, new: NewRun, signals: &Signals) -> Result<Report, Error> {
        let folded = Folded {
            tree: new.tree,
            variables: new.variables,
            worked: Span::ZERO,
            was_started: false,
            calls: Default::default(),
            last: Position(0),
            is_abort_asked: false,
            is_paused: false,
            mail: Default::default(),
        };
        self.carry_out(new.id, signals, async { Ok(folded) }).await
    }

    /// Takes a run up where it was left: paused, or by a process whose lease has lapsed.
    ///
    /// What had ended stays as it ended; an attempt that was broken off goes on in its conversation.
    /// A reservation that was never settled counts as spent, because the provider may have billed it.
    ///
    /// # Errors
    /// [`Error::Store`] when another process owns it, [`Error::Ended`] when it has ended before.
    pub async fn resume(&self, run: RunId, signals: &Signals) -> Result<Report, Error> {
        self.carry_out(run, signals, fold::fold(&*self.store, run, self.width)).await
    }

    async fn carry_out(
        &self,
        run: RunId,
        signals: &Signals,
        folded: impl Future<Output = Result<Folded, Error>> + Send,
    ) -> Result<Report, Error> {
        let store = |source| Error::Store { run, source };
        let lease = self.acquire(run).await.map_err(store)?;
        let parts = Parts { scheduler: self.clone(), run, lease: lease.clone() };
        let result = match folded.await {
            // The future of the loop is large, and lives as long as the run.
            Ok(folded) => Box::pin(Drive::new(parts, folded).run(signals)).await,
            Err(error) => Err(error),
        };
        // A lease that cannot be given back lapses by itself.
        let released = self.store.release(&lease).await;
        match result {
            Ok(report) => released.map(|()| report).map_err(store),
            Err(error) => Err(error),
        }
    }
}

impl Scheduler {
    async fn acquire(&self, run: RunId) -> Result<Lease, StoreError> {
        match self.store.acquire(run, &self.owner, self.lease).await {
            Err(StoreError::NotOwner { owner, .. }) if (self.gone)(&owner) => {
                self.store.take_over(run, &owner, &self.owner, self.lease).await
            }
            acquired => acquired,
        }
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("owner", &self.owner)
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}
