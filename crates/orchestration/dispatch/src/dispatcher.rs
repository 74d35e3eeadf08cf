//! Follows the log, finds what is to be done, and has it done: in the order of the log for each subscription, and for several
//! of them at once.

mod going; // All that goes on.

use std::{fmt, sync::Arc};

use formwork_protocols::{
    Cancel, Clock, EventBody, Position, Principal, Rng, RunId, Span, Store, SubscriptionName,
    SystemClock, SystemRng,
};

use self::going::Going;
use crate::{Error, Host, Subscription};

/// How long a subscription is held without a sign of life, where nobody says otherwise: as long as a run is.
const LEASE: Span = Span::from_secs(30);

/// Until when the log is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Until there is nothing left that is to be done by now. What waits for a later time is left.
    Idle,
    /// Until it is cancelled.
    Cancelled,
}

/// Something that was recorded of a subscription.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The subscription.
    pub subscription: &'a SubscriptionName,
    /// What.
    pub body: &'a EventBody,
}

/// What became of one subscription while the log was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// The subscription.
    pub name: SubscriptionName,
    /// Who dispatches it, where that is somebody else.
    pub held_by: Option<String>,
    /// How many deliveries were done whole.
    pub delivered: u64,
    /// How many attempts failed.
    pub failed: u64,
    /// How many deliveries were given up.
    pub dead: u64,
    /// How many are left to be done.
    pub waiting: usize,
    /// How many events wait for others.
    pub gathered: usize,
    /// The event up to which everything was looked at.
    pub cursor: Position,
}

/// Follows a log on behalf of subscriptions.
#[derive(Clone)]
pub struct Dispatcher {
    store: Arc<dyn Store>,
    host: Arc<dyn Host>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    owner: String,
    lease: Span,
    gone: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    told: Arc<dyn Fn(Told<'_>) + Send + Sync>,
    workspace: String,
    principal: Principal,
    subscriptions: Vec<Arc<Subscription>>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("owner", &self.owner)
            .field("workspace", &self.workspace)
            .field("subscriptions", &self.subscriptions.len())
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    /// Takes the subscriptions of a workspace and whoever does what they say; `principal` is who wants it done.
    pub fn new(
        store: Arc<dyn Store>,
        host: Arc<dyn Host>,
        (workspace, principal): (impl Into<String>, Principal),
        subscriptions: impl IntoIterator<Item = Arc<Subscription>>,
    ) -> Self {
        let rng: Arc<dyn Rng> = Arc::new(SystemRng);
        Self {
            store,
            host,
            clock: Arc::new(SystemClock),
            owner: format!("dispatcher-{:016x}", rng.next_u64()),
            rng,
            lease: LEASE,
            gone: Arc::new(|_: &str| false),
            told: Arc::new(|_: Told<'_>| {}),
            workspace: workspace.into(),
            principal,
            subscriptions: subscriptions.into_iter().collect(),
        }
    }

    /// Takes another clock and another source of chance.
    #[must_use]
    pub fn with_time(mut self, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        (self.clock, self.rng) = (clock, rng);
        self
    }

    /// Sets under which name subscriptions are held; a made one otherwise.
    #[must_use]
    pub fn with_owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets how long a subscription is held without a sign of life; half a minute otherwise.
    #[must_use]
    pub const fn with_lease(mut self, lease: Span) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how to tell by its name that an owner has ended for sure: what it held is taken over at once.
    #[must_use]
    pub fn with_gone(mut self, gone: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.gone = Arc::new(gone);
        self
    }

    /// Has somebody told of each thing that is recorded, once it is.
    #[must_use]
    pub fn with_told(mut self, told: impl Fn(Told<'_>) + Send + Sync + 'static) -> Self {
        self.told = Arc::new(told);
        self
    }

    /// Follows the log. A subscription that another process holds is left to it, and taken up once that has ended.
    ///
    /// Returns once there is nothing left to do, as `until` says, or soon after `cancel` is raised: what was under way then
    /// is broken off, and is done again by whoever follows the log next. So it is after a dropped future, once the leases
    /// have lapsed.
    ///
    /// # Errors
    /// [`Error`] when the log cannot be read or written. What is under way is broken off.
    pub async fn run(self, until: Until, cancel: &Cancel) -> Result<Vec<Lane>, Error> {
        let mut going = Going::new(self);
        let done = Box::pin(going.go(until, cancel)).await;
        going.end().await;
        done.map(|()| going.lanes())
    }

    /// Returns the log of a subscription.
    fn log_of(&self, subscription: &Subscription) -> RunId {
        RunId::of_subscription(&self.workspace, &subscription.name)
    }
}
