//! Where a subscription stands: what its own log says, and nothing else.

use std::collections::{BTreeMap, VecDeque};

use formwork_protocols::{
    EventBody, EventStore, Position, RunId, StoreError, Timestamp,
    event::{DispatchFailed, DispatchStarted},
    store::Selection,
};

use crate::{Gathered, Held};

/// An action that was begun and of which nothing more is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderWay {
    /// The run that it was to begin, if it was to begin one.
    pub run: Option<RunId>,
}

/// Something that is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The events that it is about, by their places in the store. The last one names it.
    pub events: Vec<Position>,
    /// What they have in common, where they were gathered.
    pub key: String,
    /// The action that is next, by its place in the document.
    pub action: u32,
    /// How often that has failed.
    pub failed: u32,
    /// How often in a row it was lost with the process that did it.
    pub lost: u32,
    /// Whether it was begun.
    pub under_way: Option<UnderWay>,
    /// Whether it was broken off in good order since, and not lost.
    pub is_stopped: bool,
    /// Before which it is not tried again.
    pub again_at: Option<Timestamp>,
    /// Why it failed the last time.
    pub reason: Option<String>,
}

impl Delivery {
    fn new(events: Vec<Position>, key: String) -> Self {
        Self {
            events,
            key,
            action: 0,
            failed: 0,
            lost: 0,
            under_way: None,
            is_stopped: false,
            again_at: None,
            reason: None,
        }
    }

    /// Returns its name: the place of its last event.
    pub fn id(&self) -> Position {
        self.events.last().copied().unwrap_or_default()
    }

    fn ended(&mut self) {
        (self.under_way, self.lost, self.again_at) = (None, 0, None);
        self.is_stopped = false;
    }
}

/// Something that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// What was to be done, with the action that failed.
    pub delivery: Delivery,
    /// Why.
    pub reason: String,
}

/// Where a subscription stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Whether it was ever dispatched.
    pub is_begun: bool,
    /// The event up to which everything was looked at.
    pub cursor: Position,
    /// The events that wait for others.
    pub gathered: Gathered,
    /// What is to be done, in this order.
    pub queue: VecDeque<Delivery>,
    /// What was given up.
    pub dead: BTreeMap<Position, DeadLetter>,
    /// How much was done whole.
    pub delivered: u64,
    /// The last event of its own log that was taken up from there.
    seen: Position,
}

/// How many events of a subscription's own log are read at once.
const PAGE: usize = 1_000;

impl State {
    /// Reads where a subscription stands, from its log.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be read.
    pub async fn read<S: EventStore + ?Sized>(store: &S, log: RunId) -> Result<Self, StoreError> {
        let kinds = vec!["dispatch.".to_owned()];
        let selection = Selection { run: Some(log), task: None, kinds };
        let (mut state, mut after) = (Self::default(), Position::default());
        loop {
            let events = store.read(after, &selection, PAGE).await?;
            for event in &events {
                state.take(event.position, &event.body);
            }
            match events.last() {
                Some(last) if events.len() == PAGE => after = last.position,
                _ => return Ok(state),
            }
        }
    }

    /// Takes up an event of its log, read from there. One that was taken up is passed over.
    pub fn take(&mut self, at: Position, body: &EventBody) {
        if at > self.seen {
            self.seen = at;
            self.apply(body);
        }
    }

    /// Takes up what is recorded. What others record of it comes by [`State::take`].
    pub fn apply(&mut self, body: &EventBody) {
        match body {
            EventBody::DispatchSubscribed(data) => {
                self.is_begun = true;
                self.pass(data.after);
            }
            EventBody::DispatchPassed(data) => self.pass(data.to),
            EventBody::DispatchCollected(data) => {
                if let Some(key) = &data.let_go {
                    self.gathered.clear(key);
                }
                let held = Held { event: data.event, at: data.happened };
                self.gathered.hold(&data.key, held);
                self.pass(data.event);
            }
            EventBody::DispatchMatched(data) => {
                self.gathered.clear(&data.key);
                self.pass(data.events.last().copied().unwrap_or_default());
                self.queue.push_back(Delivery::new(data.events.clone(), data.key.clone()));
            }
            EventBody::DispatchStarted(data) => self.started(data),
            EventBody::DispatchStopped(data) => {
                if let Some(delivery) = self.delivery(data.delivery) {
                    delivery.is_stopped = true;
                }
            }
            EventBody::DispatchDone(data) => {
                if let Some(delivery) = self.delivery(data.delivery) {
                    delivery.ended();
                    (delivery.action, delivery.failed) = (data.action.saturating_add(1), 0);
                    delivery.reason = None;
                }
            }
            EventBody::DispatchFailed(data) => self.failed(data),
            EventBody::DispatchDead(data) => {
                if let Some(delivery) = self.remove(data.delivery) {
                    let letter = DeadLetter { delivery, reason: data.reason.clone() };
                    self.dead.insert(data.delivery, letter);
                }
            }
            EventBody::DispatchDelivered(data) => {
                self.delivered += u64::from(self.remove(data.delivery).is_some());
            }
            EventBody::DispatchRetried(data) => {
                if let Some(DeadLetter { mut delivery, .. }) = self.dead.remove(&data.delivery) {
                    delivery.ended();
                    delivery.failed = 0;
                    self.queue.push_back(delivery);
                }
            }
            // What programs were refused stands there too, and changes nothing.
            _ => {}
        }
    }

    fn pass(&mut self, to: Position) {
        self.cursor = self.cursor.max(to);
    }

    fn delivery(&mut self, id: Position) -> Option<&mut Delivery> {
        self.queue.iter_mut().find(|delivery| delivery.id() == id)
    }

    fn remove(&mut self, id: Position) -> Option<Delivery> {
        let at = self.queue.iter().position(|delivery| delivery.id() == id)?;
        self.queue.remove(at)
    }

    fn started(&mut self, data: &DispatchStarted) {
        let Some(delivery) = self.delivery(data.delivery) else { return };
        if delivery.under_way.is_some() && !delivery.is_stopped {
            delivery.lost += 1;
        }
        delivery.is_stopped = false;
        delivery.action = data.action;
        delivery.again_at = None;
        delivery.under_way = Some(UnderWay { run: data.run });
    }

    fn failed(&mut self, data: &DispatchFailed) {
        let Some(delivery) = self.delivery(data.delivery) else { return };
        delivery.ended();
        delivery.failed += 1;
        delivery.again_at = data.again_at;
        delivery.reason = Some(data.reason.clone());
    }
}
