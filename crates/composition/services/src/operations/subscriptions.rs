//! `subscriptions.*`: what is done by events, where each stands, and what was given up.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_dispatch::{DeadLetter, Delivery, Dispatcher, Lane, State, Subscription, Told, Until};
use formwork_protocols::{
    Append, Cancel, EventBody, NewEvent, Position, Rng as _, RunId, Store, SubscriptionName,
    SystemRng, Timestamp,
    document::{Diagnostics, nearest_hint},
    event::DispatchRetried,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    presence::{self, Presence},
    subscriptions::{self, Doing, Found},
    trust,
};

/// How a subscription stands, in a line.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How many faults its file has; it is not dispatched while it has any.
    #[serde(default)]
    pub faults: usize,
    /// Whether it is trusted as it stands; it is not dispatched while it is not.
    pub trusted: bool,
    /// The event up to which everything was looked at; 0 where nothing was yet.
    pub cursor: Position,
    /// How much is to be done.
    pub waiting: usize,
    /// How many events wait for others.
    pub gathered: usize,
    /// How much was given up.
    pub dead: usize,
    /// How much was done whole.
    pub delivered: u64,
    /// Who dispatches it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
}

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The subscriptions of the workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// In the order of their names.
    pub subscriptions: Vec<Summary>,
    /// The last event of the log.
    pub head: Position,
}

/// `subscriptions.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "subscriptions.list";
    const DOC: &'static str = "Lists the subscriptions of the workspace and where each stands.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let mut summaries = Vec::new();
        for found in subscriptions::read(formwork.workspace())? {
            // One whose file has no such name was never dispatched.
            let name = SubscriptionName::parse(found.name()).ok();
            let log = name.map(|name| log_of(formwork, &name));
            summaries.push(summary(formwork, &found, log).await?.0);
        }
        let head = formwork.inner.store.head().await?;
        Ok(Listed { subscriptions: summaries, head })
    }
}

/// Which subscription.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// Its name.
    pub name: SubscriptionName,
}

/// Something that is to be done, or was given up.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryRow {
    /// Its name: the place of the last event that it is about.
    pub delivery: Position,
    /// The events that it is about.
    pub events: Vec<Position>,
    /// What they have in common, where they were gathered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The action that is next, or that failed; the first is 0.
    pub action: u32,
    /// What that does, as the document says now.
    pub does: String,
    /// How often it has failed.
    pub failed: u32,
    /// Whether it was begun, and nothing more is known.
    #[serde(default)]
    pub under_way: bool,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at: Option<Timestamp>,
    /// Why it failed the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A subscription, whole.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Detail {
    /// Where it stands.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its file.
    pub file: String,
    /// The log of its own, by which `events` lists what was done.
    pub log: RunId,
    /// What is wrong with its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What it does, in order.
    pub actions: Vec<String>,
    /// What is to be done, in order.
    pub queue: Vec<DeliveryRow>,
    /// What was given up.
    pub letters: Vec<DeliveryRow>,
}

/// `subscriptions.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "subscriptions.get";
    const DOC: &'static str =
        "Shows a subscription: what it does, what waits, and what was given up and why.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Detail;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Detail, Error> {
        let found = named(formwork, &params.name)?;
        let log = log_of(formwork, &params.name);
        let (summary, state) = summary(formwork, &found, Some(log)).await?;
        let does: Vec<String> = match &found.read {
            Ok(subscription) => subscription.actions.iter().map(|it| it.kind.told()).collect(),
            Err(_) => Vec::new(),
        };
        let errors = found.read.as_ref().err().into_iter().flatten().map(ToString::to_string);
        let row = |delivery: &Delivery, reason: Option<&String>| {
            let action = usize::try_from(delivery.action).ok();
            let does = action.and_then(|at| does.get(at).cloned()).unwrap_or_default();
            DeliveryRow {
                delivery: delivery.id(),
                events: delivery.events.clone(),
                key: delivery.key.clone(),
                action: delivery.action,
                does,
                failed: delivery.failed,
                under_way: delivery.under_way.is_some(),
                again_at: delivery.again_at,
                reason: reason.or(delivery.reason.as_ref()).cloned(),
            }
        };
        let letter = |letter: &DeadLetter| row(&letter.delivery, Some(&letter.reason));
        Ok(Detail {
            file: found.path.display().to_string(),
            log,
            errors: errors.collect(),
            queue: state.queue.iter().map(|delivery| row(delivery, None)).collect(),
            letters: state.dead.values().map(letter).collect(),
            summary,
            actions: does,
        })
    }
}

/// What is to be taken up again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryParams {
    /// The subscription.
    pub name: SubscriptionName,
    /// What it has given up; all of that where absent.
    #[serde(default)]
    pub delivery: Option<Position>,
}

/// What is taken up again by whoever dispatches next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct Retried {
    pub deliveries: Vec<Position>,
}

/// `subscriptions.retry`
pub struct Retry;

#[async_trait]
impl Operation for Retry {
    const NAME: &'static str = "subscriptions.retry";
    const DOC: &'static str =
        "Has what a subscription gave up taken up again, from the action that failed.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = RetryParams;
    type Output = Retried;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: RetryParams,
    ) -> Result<Retried, Error> {
        let RetryParams { name, delivery } = params;
        named(formwork, &name)?;
        let log = log_of(formwork, &name);
        let state = State::read(&*formwork.inner.store, log).await?;
        let deliveries: Vec<Position> = match delivery {
            None => state.dead.into_keys().collect(),
            Some(delivery) if state.dead.contains_key(&delivery) => vec![delivery],
            Some(delivery) => {
                let reason = format!("it has given up nothing by the name of {delivery}");
                return Err(Error::Subscription { name, reason });
            }
        };
        let event = |delivery: &Position| NewEvent {
            task: None,
            principal: caller.principal().clone(),
            at: formwork.now(),
            body: EventBody::DispatchRetried(DispatchRetried { delivery: *delivery }),
            idempotency_key: None,
        };
        let events: Vec<NewEvent> = deliveries.iter().map(event).collect();
        if !events.is_empty() {
            let append = Append { run: log, token: None, events, blobs: Vec::new() };
            formwork.inner.store.append(append).await?;
        }
        Ok(Retried { deliveries })
    }
}

/// Finds a subscription of the workspace.
fn named(formwork: &Formwork, name: &SubscriptionName) -> Result<Found, Error> {
    let all = subscriptions::read(formwork.workspace())?;
    let known: Vec<String> = all.iter().map(Found::name).collect();
    all.into_iter().find(|found| found.name() == name.as_str()).ok_or_else(|| {
        let hint = nearest_hint(name.as_str(), known.iter().map(String::as_str));
        Error::NoSuchSubscription { name: name.clone(), hint }
    })
}

/// Returns the log of a subscription.
fn log_of(formwork: &Formwork, name: &SubscriptionName) -> RunId {
    RunId::of_subscription(&formwork.workspace().display().to_string(), name)
}

/// Tells how a subscription stands, by its log.
async fn summary(
    formwork: &Formwork,
    found: &Found,
    log: Option<RunId>,
) -> Result<(Summary, State), Error> {
    let (mut state, mut held_by) = (State::default(), None);
    if let Some(log) = log {
        state = State::read(&*formwork.inner.store, log).await?;
        let now = formwork.trace().time().await?;
        let owner = formwork.trace().owners(log..=log, now).await?.remove(&log);
        held_by = owner.filter(|owner| !presence::is_gone(owner, formwork.state()));
    }
    let (faults, description) = match &found.read {
        Ok(subscription) => (0, subscription.description.clone()),
        Err(faults) => (faults.len(), String::new()),
    };
    let summary = Summary {
        name: found.name(),
        description,
        faults,
        trusted: is_trusted(formwork, found),
        cursor: state.cursor,
        waiting: state.queue.len(),
        gathered: state.gathered.len(),
        dead: state.dead.len(),
        delivered: state.delivered,
        held_by,
    };
    Ok((summary, state))
}

fn is_trusted(formwork: &Formwork, found: &Found) -> bool {
    let brought = trust::of_subscription(formwork.workspace(), found);
    brought.iter().all(|it| it.is_trusted(formwork.state(), formwork.workspace()))
}

/// Which subscriptions are dispatched, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchParams {
    /// Their names; all of the workspace where there are none.
    pub names: Vec<SubscriptionName>,
    /// Until when the log is followed.
    pub until: Until,
}

/// Follows the log and does what subscriptions say, until there is nothing left to do or `cancel` is raised. `told` hears of
/// each thing that is recorded.
///
/// # Errors
/// [`Error::Documents`] lists every fault of every document, [`Error::Untrusted`] names the first that is not trusted as it
/// stands; nothing is dispatched then. [`Error::Store`] when the log cannot be followed any more.
pub async fn dispatch(
    formwork: &Formwork,
    caller: &Caller,
    params: DispatchParams,
    cancel: &Cancel,
    told: impl Fn(Told<'_>) + Send + Sync + 'static,
) -> Result<Vec<Lane>, Error> {
    caller.may::<Retry>()?;
    if formwork.workspace().to_str().is_none() {
        let workspace = formwork.workspace().display().to_string();
        return Err(Error::WorkspaceName { workspace });
    }
    let chosen = chosen(formwork, &params.names)?;
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let doing = Box::pin(Doing::new(formwork)).await?;
    let owner = format!("dispatch-{}-{:016x}", std::process::id(), SystemRng.next_u64());
    let present = Presence::of(&owner, formwork.state())?;
    let state = formwork.state().to_owned();
    let inner = &formwork.inner;
    let by = (formwork.workspace().display().to_string(), caller.principal().clone());
    let store: Arc<dyn Store> = Arc::clone(&inner.store);
    let dispatcher = Dispatcher::new(store, Arc::new(doing), by, chosen)
        .with_time(Arc::clone(&inner.clock), Arc::clone(&inner.rng))
        .with_owner(owner)
        .with_gone(move |owner| presence::is_gone(owner, &state))
        .with_told(told);
    let dispatcher = match inner.lease {
        Some(lease) => dispatcher.with_lease(lease),
        None => dispatcher,
    };
    match Box::pin(dispatcher.run(params.until, cancel)).await {
        Ok(lanes) => Ok(lanes),
        Err(
            formwork_dispatch::Error::Store { source, .. }
            | formwork_dispatch::Error::Log { source },
        ) => {
            // What it holds cannot be given back.
            present.end_without_giving_back();
            Err(source.into())
        }
        Err(error) => {
            let reason = crate::error::chain(&error);
            Err(Error::Panicked { what: "the dispatch", reason })
        }
    }
}

/// Reads the subscriptions that are to be dispatched, each without a fault and trusted as it stands.
fn chosen(
    formwork: &Formwork,
    names: &[SubscriptionName],
) -> Result<Vec<Arc<Subscription>>, Error> {
    let mut all = Vec::new();
    if names.is_empty() {
        all = subscriptions::read(formwork.workspace())?;
    }
    for name in names {
        all.push(named(formwork, name)?);
    }
    let mut faults = Diagnostics::default();
    let mut chosen = Vec::new();
    for found in &all {
        match &found.read {
            Ok(subscription) => chosen.push(Arc::new(subscription.clone())),
            Err(own) => faults.merge(own.iter().cloned()),
        }
    }
    faults.or(())?;
    for found in &all {
        for brought in trust::of_subscription(formwork.workspace(), found) {
            if !brought.is_trusted(formwork.state(), formwork.workspace()) {
                let why = format!("subscription {} does nothing before", found.name());
                return Err(Error::Untrusted { path: brought.path, why });
            }
        }
    }
    Ok(chosen)
}
