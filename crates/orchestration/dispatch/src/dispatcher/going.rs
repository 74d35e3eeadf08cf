//! What goes on while the log is followed: one loop that owns where each subscription stands, and a task for each action that
//! is under way.

use std::{collections::HashMap, sync::Arc, time::Duration};

use formwork_protocols::{
    Append, Cancel, Event, EventBody, Live, NewEvent, Position, Principal, RunId, StoreError,
    SubscriptionName, WorkflowName,
    event::{
        DispatchCollected, DispatchDead, DispatchDelivered, DispatchDone, DispatchFailed,
        DispatchMatched, DispatchPassed, DispatchStarted, DispatchStopped, DispatchSubscribed,
    },
    store::{Lease, Selection},
};
use futures::{StreamExt as _, stream::BoxStream};
use tokio::{task::JoinSet, time::Instant};

use super::{Dispatcher, Lane, Told, Until};
use crate::{
    ActionKind, Begin, Did, Error, Failure, Held, Job, Matcher, Occurrence, Origin, State,
    Subscription,
};

/// How many events are read at once.
const PAGE: usize = 500;

/// How many actions are under way at once: what one person's machine bears.
const AT_ONCE: usize = 4;

/// How many deliveries of one subscription may wait: beyond, no further events are looked at for it until some are done.
const MOST_WAITING: usize = 1_000;

/// After how many events that were for nobody the place in the log is recorded, so that nobody looks at them again.
const PASSED: u64 = 10_000;

/// How often in a row an action may be lost with its process before it is given up: it may be what ends the process.
const MOST_LOST: u32 = 5;

/// How many runs are remembered that events were of.
const MOST_ORIGINS: usize = 10_000;

/// The most bytes that are kept of what an action says, and of why it failed.
const SAID: usize = 2_000;

/// The most bytes of what events have in common.
const KEY: usize = 200;

/// The most beginnings of kinds that the store is asked for; where there are more, it is asked for all events.
const MOST_KINDS: usize = 32;

/// A subscription, where it stands, and what of it goes on.
struct Open {
    subscription: Arc<Subscription>,
    log: RunId,
    /// Proof that nobody else dispatches it; none while somebody does.
    lease: Option<Lease>,
    held_by: Option<String>,
    state: State,
    /// The event up to which everything was looked at here, which need not be recorded yet.
    looked: Position,
    /// Whether so much waits that no further events are looked at.
    is_full: bool,
    /// Breaks off what is under way.
    working: Option<Cancel>,
    delivered: u64,
    failed: u64,
    dead: u64,
}

/// How an action ended.
struct Ended {
    at: usize,
    token: u64,
    delivery: Position,
    action: u32,
    attempt: u32,
    result: Result<Did, Failure>,
}

pub(super) struct Going {
    by: Dispatcher,
    matcher: Matcher,
    open: Vec<Open>,
    by_log: HashMap<RunId, usize>,
    origins: HashMap<RunId, Option<Arc<Origin>>>,
    selection: Selection,
    work: JoinSet<Ended>,
    stop: Cancel,
    renewed: Instant,
}

impl Going {
    pub(super) fn new(by: Dispatcher) -> Self {
        let open: Vec<Open> = by
            .subscriptions
            .iter()
            .map(|subscription| Open {
                log: by.log_of(subscription),
                subscription: Arc::clone(subscription),
                lease: None,
                held_by: None,
                state: State::default(),
                looked: Position::default(),
                is_full: false,
                working: None,
                delivered: 0,
                failed: 0,
                dead: 0,
            })
            .collect();
        Self {
            matcher: Matcher::new(by.subscriptions.iter().cloned()),
            by_log: open.iter().enumerate().map(|(at, open)| (open.log, at)).collect(),
            selection: Selection { kinds: kinds(&by.subscriptions), ..Selection::default() },
            open,
            origins: HashMap::new(),
            work: JoinSet::new(),
            stop: Cancel::new(),
            renewed: Instant::now(),
            by,
        }
    }

    pub(super) fn lanes(&self) -> Vec<Lane> {
        let lane = |open: &Open| Lane {
            name: open.subscription.name.clone(),
            held_by: open.held_by.clone(),
            delivered: open.delivered,
            failed: open.failed,
            dead: open.dead,
            waiting: open.state.queue.len(),
            gathered: open.state.gathered.len(),
            cursor: open.looked.max(open.state.cursor),
        };
        self.open.iter().map(lane).collect()
    }

    /// Follows the log until there is nothing to do, or somebody wants no more.
    pub(super) async fn go(&mut self, until: Until, cancel: &Cancel) -> Result<(), Error> {
        // Before anything is read, so that nothing is missed between the two.
        let mut happening = self.by.store.watch();
        self.take_up().await?;
        loop {
            if cancel.is_cancelled() {
                return Ok(());
            }
            while let Some(ended) = self.work.try_join_next() {
                self.ended(ended).await?;
            }
            if self.renewed.elapsed() >= self.renewal() {
                self.renew().await?;
            }
            let has_more = self.look().await?;
            if !has_more {
                self.let_time_pass().await?;
            }
            self.begin().await?;
            if has_more {
                continue;
            }
            if until == Until::Idle && self.work.is_empty() {
                return Ok(());
            }
            let pause = self.pause();
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(()),
                Some(ended) = self.work.join_next(), if !self.work.is_empty() => {
                    self.ended(ended).await?;
                }
                goes_on = stirred(&mut happening) => if !goes_on {
                    return Ok(());
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Breaks off what is under way, waits for it, and gives back what is held.
    pub(super) async fn end(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.work.join_next().await {
            // What has ended well by now is not to be done again. Where that cannot be recorded, it is.
            let _ = self.ended(ended).await;
        }
        for open in &mut self.open {
            if let Some(lease) = open.lease.take() {
                // One that cannot be given back lapses by itself.
                let _ = self.by.store.release(&lease).await;
            }
        }
    }

    /// How often there is a sign of life: so often that two may fail.
    const fn renewal(&self) -> Duration {
        Duration::from_micros(self.by.lease.as_micros() / 3)
    }

    /// How long there is nothing to do by itself.
    fn pause(&self) -> Duration {
        let now = self.by.clock.now();
        let held = self.open.iter().filter(|open| open.lease.is_some());
        // Where nothing can be begun, the end of what is under way is waited for.
        let has_room = self.work.len() < AT_ONCE;
        let again = |open: &Open| {
            let front = open.state.queue.front().filter(|_| has_room && open.working.is_none());
            front.and_then(|it| it.again_at)
        };
        let due = |open: &Open| {
            let rule = open.subscription.accumulate.as_ref().filter(|_| open.looks())?;
            open.state.gathered.next_due(rule)
        };
        let next = held.flat_map(|open| [again(open), due(open)]).flatten().min();
        let until = next.map(|next| next.since(now).as_duration());
        let renewal = self.renewal().saturating_sub(self.renewed.elapsed());
        // A clock that is moved by hand says nothing of how long that takes.
        until.map_or(renewal, |until| until.max(Duration::from_millis(1)).min(renewal))
    }

    /// Takes every subscription up that nobody else dispatches, from where its log says that it stands.
    async fn take_up(&mut self) -> Result<(), Error> {
        for at in 0..self.open.len() {
            if self.open[at].lease.is_none() && self.open[at].working.is_none() {
                self.open_one(at).await?;
            }
        }
        Ok(())
    }

    async fn open_one(&mut self, at: usize) -> Result<(), Error> {
        let (store, log) = (Arc::clone(&self.by.store), self.open[at].log);
        let name = self.open[at].subscription.name.clone();
        let failed = |source| Error::Store { subscription: name.clone(), source };
        let acquired = match store.acquire(log, &self.by.owner, self.by.lease).await {
            Err(StoreError::NotOwner { owner, .. }) if (self.by.gone)(&owner) => {
                store.take_over(log, &owner, &self.by.owner, self.by.lease).await
            }
            acquired => acquired,
        };
        let lease = match acquired {
            Ok(lease) => lease,
            Err(StoreError::NotOwner { owner, .. }) => {
                self.open[at].held_by = Some(owner);
                return Ok(());
            }
            Err(source) => return Err(failed(source)),
        };
        let state = State::read(&*store, log).await.map_err(failed)?;
        let open = &mut self.open[at];
        (open.lease, open.held_by, open.state) = (Some(lease), None, state);
        if !open.state.is_begun {
            let after = match open.subscription.begin {
                Begin::Beginning => Position::default(),
                Begin::Now => store.head().await.map_err(failed)?,
            };
            let workspace = self.by.workspace.clone();
            let begun = DispatchSubscribed { name: name.clone(), workspace, after };
            self.record(at, vec![EventBody::DispatchSubscribed(begun)]).await?;
        }
        let open = &mut self.open[at];
        open.looked = open.state.cursor;
        open.is_full = open.state.queue.len() >= MOST_WAITING;
        Ok(())
    }

    /// Gives a sign of life for each subscription, and takes up those that others have left.
    async fn renew(&mut self) -> Result<(), Error> {
        for at in 0..self.open.len() {
            let Some(lease) = self.open[at].lease.clone() else { continue };
            match self.by.store.renew(&lease, self.by.lease).await {
                Ok(lease) => self.open[at].lease = Some(lease),
                Err(StoreError::NotOwner { owner, .. }) => self.lose(at, owner),
                Err(source) => {
                    let subscription = self.open[at].subscription.name.clone();
                    return Err(Error::Store { subscription, source });
                }
            }
        }
        self.renewed = Instant::now();
        self.take_up().await
    }

    /// Lets go of a subscription that another process dispatches now.
    fn lose(&mut self, at: usize, owner: String) {
        let open = &mut self.open[at];
        (open.lease, open.held_by) = (None, Some(owner));
        if let Some(working) = &open.working {
            working.cancel();
        }
    }

    /// Records facts of a subscription and takes them up. Nothing is recorded of one that was lost.
    async fn record(&mut self, at: usize, bodies: Vec<EventBody>) -> Result<(), Error> {
        for body in &bodies {
            self.open[at].state.apply(body);
        }
        self.write(at, bodies).await
    }

    /// Records facts that were taken up.
    async fn write(&mut self, at: usize, bodies: Vec<EventBody>) -> Result<(), Error> {
        let open = &self.open[at];
        let Some(lease) = open.lease.as_ref().filter(|_| !bodies.is_empty()) else { return Ok(()) };
        let name = open.subscription.name.clone();
        let now = self.by.clock.now();
        let event = |body: &EventBody| NewEvent {
            task: None,
            principal: match body {
                EventBody::DispatchSubscribed(_) => self.by.principal.clone(),
                _ => Principal::subscription(&name),
            },
            at: now,
            body: body.clone(),
            idempotency_key: None,
        };
        let events = bodies.iter().map(event).collect();
        let append = Append { run: open.log, token: Some(lease.token), events, blobs: Vec::new() };
        match self.by.store.append(append).await {
            Ok(_) => {}
            Err(StoreError::NotOwner { owner, .. }) => {
                self.lose(at, owner);
                return Ok(());
            }
            Err(source) => return Err(Error::Store { subscription: name, source }),
        }
        let open = &mut self.open[at];
        for body in &bodies {
            match body {
                EventBody::DispatchDelivered(_) => open.delivered += 1,
                EventBody::DispatchFailed(_) => open.failed += 1,
                EventBody::DispatchDead(_) => open.dead += 1,
                _ => {}
            }
            (self.by.told)(Told { subscription: &name, body });
        }
        Ok(())
    }

    /// Reads on, and records for whom the events are. Returns whether there are more.
    async fn look(&mut self) -> Result<bool, Error> {
        for open in &mut self.open {
            open.is_full &= open.state.queue.len() >= MOST_WAITING;
        }
        let from = self.open.iter().filter(|open| open.looks()).map(|open| open.looked).min();
        let Some(mut cursor) = from else { return Ok(false) };
        let log = |source| Error::Log { source };
        let store = Arc::clone(&self.by.store);
        let events = store.read_on(&mut cursor, &self.selection, PAGE).await.map_err(log)?;
        let mut found: Vec<Vec<EventBody>> = self.open.iter().map(|_| Vec::new()).collect();
        for event in &events {
            if let EventBody::DispatchRetried(_) = &event.body {
                if let Some(open) =
                    self.by_log.get(&event.run).and_then(|at| self.open.get_mut(*at))
                {
                    open.state.take(event.position, &event.body);
                }
                continue;
            }
            for at in self.matching(event).await.map_err(log)? {
                let facts = self.open[at].given(event, &self.origins);
                for fact in &facts {
                    self.open[at].state.apply(fact);
                }
                found[at].extend(facts);
                let open = &mut self.open[at];
                if open.state.queue.len() >= MOST_WAITING {
                    (open.is_full, open.looked) = (true, event.position);
                }
            }
        }
        for (at, facts) in found.into_iter().enumerate() {
            self.write(at, facts).await?;
            let open = &mut self.open[at];
            if !open.looks() {
                continue;
            }
            open.looked = open.looked.max(cursor);
            if open.looked.0 >= open.state.cursor.0.saturating_add(PASSED) {
                let passed = DispatchPassed { to: open.looked };
                self.record(at, vec![EventBody::DispatchPassed(passed)]).await?;
            }
        }
        Ok(events.len() >= PAGE)
    }

    /// Returns for which subscriptions an event is that were not given it yet.
    async fn matching(&mut self, event: &Event) -> Result<Vec<usize>, StoreError> {
        let mut candidates = self.matcher.candidates(event);
        candidates.retain(|at| {
            self.open.get(*at).is_some_and(|open| open.looks() && open.looked < event.position)
        });
        if candidates.is_empty() {
            return Ok(candidates);
        }
        let Some(origin) = self.origin(event.run).await? else { return Ok(Vec::new()) };
        let seen = Occurrence::new(event, &origin.workflow);
        candidates.retain(|at| {
            let Some(open) = self.open.get(*at) else { return false };
            // What it has brought about itself would come back to it without end.
            !origin.caused_by.contains(&open.subscription.name)
                && open.subscription.filter.holds_for_the_rest(&seen)
        });
        Ok(candidates)
    }

    async fn origin(&mut self, run: RunId) -> Result<Option<Arc<Origin>>, StoreError> {
        if let Some(known) = self.origins.get(&run) {
            return Ok(known.clone());
        }
        let origin = self.by.host.origin(run).await?.map(Arc::new);
        if self.origins.len() >= MOST_ORIGINS {
            self.origins.clear();
        }
        self.origins.insert(run, origin.clone());
        Ok(origin)
    }

    /// Has what was gathered be done once its time is over.
    async fn let_time_pass(&mut self) -> Result<(), Error> {
        let now = self.by.clock.now();
        for at in 0..self.open.len() {
            let open = &self.open[at];
            if !open.looks() || open.state.gathered.is_empty() {
                continue;
            }
            let due = open.state.gathered.due(open.subscription.accumulate.as_ref(), now);
            let matched = due.into_iter().map(|(key, events)| matched(events, key)).collect();
            self.record(at, matched).await?;
        }
        Ok(())
    }

    /// Begins what is next for each subscription, as far as there is room.
    async fn begin(&mut self) -> Result<(), Error> {
        for at in 0..self.open.len() {
            while self.work.len() < AT_ONCE && self.is_due(at) {
                if self.begin_one(at).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn is_due(&self, at: usize) -> bool {
        let open = &self.open[at];
        let now = self.by.clock.now();
        let is_next = |open: &Open| {
            let next = open.state.queue.front()?;
            Some(next.again_at.is_none_or(|again| again <= now))
        };
        open.lease.is_some() && open.working.is_none() && is_next(open).unwrap_or_default()
    }

    /// Begins the next action of a subscription. Returns whether one is under way now.
    async fn begin_one(&mut self, at: usize) -> Result<bool, Error> {
        let open = &self.open[at];
        let Some(delivery) = open.state.queue.front().cloned() else { return Ok(false) };
        let (id, action) = (delivery.id(), delivery.action);
        let index = usize::try_from(action).unwrap_or(usize::MAX);
        let Some(what) = open.subscription.actions.get(index).cloned() else {
            // The document has fewer actions by now.
            let done = DispatchDelivered { delivery: id };
            self.record(at, vec![EventBody::DispatchDelivered(done)]).await?;
            return Ok(false);
        };
        let attempt = delivery.failed.saturating_add(1);
        let is_lost = delivery.under_way.is_some() && !delivery.is_stopped;
        if is_lost && delivery.lost.saturating_add(1) >= MOST_LOST {
            let reason = format!("its process ended {MOST_LOST} times while it was done");
            self.give_up(at, (id, action, attempt), reason).await?;
            return Ok(false);
        }
        let log = |source| Error::Log { source };
        let mut events = Vec::with_capacity(delivery.events.len());
        let mut caused_by: Vec<SubscriptionName> = Vec::new();
        for position in &delivery.events {
            let Some(event) = self.event(*position).await.map_err(log)? else {
                let reason = format!("event @{position} is no longer in the log");
                self.give_up(at, (id, action, attempt), reason).await?;
                return Ok(false);
            };
            // A run that is here no more has left with its events.
            let Some(origin) = self.origin(event.run).await.map_err(log)? else {
                let reason = format!("the run of event @{position} is no longer in the log");
                self.give_up(at, (id, action, attempt), reason).await?;
                return Ok(false);
            };
            let new = origin.caused_by.iter().filter(|it| !caused_by.contains(it));
            let new: Vec<_> = new.cloned().collect();
            caused_by.extend(new);
            events.push((event, origin.workflow.clone()));
        }
        let run = match &what.kind {
            ActionKind::Workflow { .. } => Some(self.run_of(&delivery).await.map_err(log)?),
            ActionKind::Command { .. } | ActionKind::Webhook(_) => None,
        };
        let started = DispatchStarted { delivery: id, action, attempt, run };
        self.record(at, vec![EventBody::DispatchStarted(started)]).await?;
        let stop = self.stop.child();
        let open = &mut self.open[at];
        // It may have been lost by now, and then nobody has said that it may be done here.
        let Some(token) = open.lease.as_ref().map(|lease| lease.token) else { return Ok(false) };
        caused_by.push(open.subscription.name.clone());
        let job = Job {
            subscription: Arc::clone(&open.subscription),
            log: open.log,
            delivery: id,
            action,
            attempt,
            events,
            group: delivery.key,
            run,
            caused_by,
        };
        open.working = Some(stop.clone());
        let host = Arc::clone(&self.by.host);
        self.work.spawn(async move {
            let result = host.act(&job, &stop).await;
            Ended { at, token, delivery: id, action, attempt, result }
        });
        Ok(true)
    }

    /// Returns the run that a workflow is run as: the one that a process before this one has begun, where there is one.
    async fn run_of(&self, delivery: &crate::Delivery) -> Result<RunId, StoreError> {
        if let Some(run) = delivery.under_way.and_then(|under_way| under_way.run)
            && self.by.store.run(run).await?.is_some()
        {
            return Ok(run);
        }
        // Under a name of its own, so that one who was held up and comes too late makes no second run of it.
        Ok(RunId::generate(&*self.by.clock, &*self.by.rng))
    }

    async fn event(&self, at: Position) -> Result<Option<Event>, StoreError> {
        let before = Position(at.0.saturating_sub(1));
        let events = self.by.store.read(before, &Selection::default(), 1).await?;
        Ok(events.into_iter().find(|event| event.position == at))
    }

    async fn give_up(
        &mut self,
        at: usize,
        (delivery, action, attempt): (Position, u32, u32),
        reason: String,
    ) -> Result<(), Error> {
        let reason = formwork_protocols::text::head(&reason, SAID).to_owned();
        let failed =
            DispatchFailed { delivery, action, attempt, reason: reason.clone(), again_at: None };
        let dead = DispatchDead { delivery, action, reason };
        let facts = vec![EventBody::DispatchFailed(failed), EventBody::DispatchDead(dead)];
        self.record(at, facts).await
    }

    /// Takes note of how an action ended.
    async fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) -> Result<(), Error> {
        // One that panicked is lost as with its process. Which it was is not known, so all that have ended are looked at.
        let Ok(Ended { at, token, delivery, action, attempt, result }) = ended else {
            if self.work.is_empty() {
                self.open.iter_mut().for_each(|open| open.working = None);
            }
            return Ok(());
        };
        self.open[at].working = None;
        if self.open[at].lease.as_ref().is_none_or(|lease| lease.token != token) {
            // Whoever holds it now knows nothing of this, and does it again.
            return Ok(());
        }
        match result {
            Ok(Did { said }) => {
                let said = formwork_protocols::text::head(&said, SAID).to_owned();
                let done = DispatchDone { delivery, action, attempt, said };
                let mut facts = vec![EventBody::DispatchDone(done)];
                let next = usize::try_from(action).unwrap_or(usize::MAX).saturating_add(1);
                if next >= self.open[at].subscription.actions.len() {
                    let whole = DispatchDelivered { delivery };
                    facts.push(EventBody::DispatchDelivered(whole));
                }
                self.record(at, facts).await
            }
            Err(Failure::Stopped) => {
                let stopped = DispatchStopped { delivery, action, attempt };
                self.record(at, vec![EventBody::DispatchStopped(stopped)]).await
            }
            Err(Failure::Final(reason)) => {
                self.give_up(at, (delivery, action, attempt), reason).await
            }
            Err(Failure::Failed(reason)) => {
                let index = usize::try_from(action).unwrap_or(usize::MAX);
                let retry = self.open[at].subscription.actions.get(index).map(|it| it.retry);
                let Some(retry) = retry.filter(|retry| attempt < retry.attempts) else {
                    return self.give_up(at, (delivery, action, attempt), reason).await;
                };
                let reason = formwork_protocols::text::head(&reason, SAID).to_owned();
                let again_at = Some(self.by.clock.now().after(retry.delay));
                let failed = DispatchFailed { delivery, action, attempt, reason, again_at };
                self.record(at, vec![EventBody::DispatchFailed(failed)]).await
            }
        }
    }
}

impl Open {
    /// Tells whether events are looked at for it.
    const fn looks(&self) -> bool {
        self.lease.is_some() && !self.is_full
    }

    /// Returns what is recorded of an event that is for it.
    fn given(
        &self,
        event: &Event,
        origins: &HashMap<RunId, Option<Arc<Origin>>>,
    ) -> Vec<EventBody> {
        let Some(rule) = &self.subscription.accumulate else {
            return vec![matched(vec![event.position], String::new())];
        };
        let nowhere = WorkflowName::parse("run").ok();
        let origin = origins.get(&event.run).and_then(Option::as_ref);
        let workflow = origin.map(|origin| &origin.workflow).or(nowhere.as_ref());
        let key = workflow.map(|it| rule.key_of(&Occurrence::new(event, it))).unwrap_or_default();
        let key = formwork_protocols::text::head(&key, KEY).to_owned();
        let taken =
            self.state.gathered.take(rule, &key, Held { event: event.position, at: event.at });
        let mut facts = Vec::new();
        facts.extend(taken.before.map(|events| matched(events, key.clone())));
        facts.push(EventBody::DispatchCollected(DispatchCollected {
            event: event.position,
            key: key.clone(),
            happened: event.at,
            let_go: taken.let_go,
        }));
        facts.extend(taken.full.map(|events| matched(events, key)));
        facts
    }
}

fn matched(events: Vec<Position>, key: String) -> EventBody {
    EventBody::DispatchMatched(DispatchMatched { events, key })
}

/// Returns what the kinds begin with that any of these subscriptions asks for; nothing where they may be any.
fn kinds(subscriptions: &[Arc<Subscription>]) -> Vec<String> {
    let patterns = subscriptions.iter().flat_map(|it| &it.filter.kinds);
    let mut kinds: Vec<String> = patterns.map(|it| it.beginning().to_owned()).collect();
    kinds.push("dispatch.retried".to_owned());
    kinds.sort();
    kinds.dedup();
    if kinds.len() > MOST_KINDS || kinds.iter().any(String::is_empty) {
        return Vec::new();
    }
    kinds
}

/// Waits until something has happened that may be for anybody; false when nothing will any more.
async fn stirred(happening: &mut BoxStream<'static, Live>) -> bool {
    while let Some(happened) = happening.next().await {
        match happened {
            Live::Delta(_) => {}
            Live::Event(event) => {
                let kind = event.body.kind();
                if !kind.starts_with("dispatch.") || kind == "dispatch.retried" {
                    return true;
                }
            }
            Live::Lagged(_) => return true,
        }
    }
    false
}
