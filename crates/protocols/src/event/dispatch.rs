//! Data of the events of a subscription: what it was given, and what was done by it.
//!
//! Each subscription has a log of its own, as a run has. A delivery is what one event, or some that were gathered, give a
//! subscription to do: it is named after the place of the last of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::Position,
    id::{RunId, SubscriptionName},
    time::Timestamp,
};

/// Data of `dispatch.subscribed`, the first event of a subscription; the event's principal is who had it begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchSubscribed {
    /// The subscription.
    pub name: SubscriptionName,
    /// The root of the workspace that it belongs to.
    pub workspace: String,
    /// What it is given comes after this event.
    pub after: Position,
}

/// Data of `dispatch.collected`: an event is for it and waits for others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchCollected {
    /// The event, by its place in the store.
    pub event: Position,
    /// What it has in common with those that it is gathered with; empty where all are gathered together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// When it happened.
    pub happened: Timestamp,
    /// The key whose events were let go of, since there were too many keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_go: Option<String>,
}

/// Data of `dispatch.matched`: there is something to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchMatched {
    /// The events, by their places in the store. The last one names the delivery.
    pub events: Vec<Position>,
    /// What they have in common, where they were gathered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

/// Data of `dispatch.started`: an action is about to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchStarted {
    /// The delivery.
    pub delivery: Position,
    /// Which action, by its place in the document; the first is 0.
    pub action: u32,
    /// Which attempt; the first is 1. One that was lost with its process has its number again.
    pub attempt: u32,
    /// The run that the action begins, if it begins one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

/// Data of `dispatch.stopped`: an action was broken off, since nobody was to do anything any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchStopped {
    /// The delivery.
    pub delivery: Position,
    /// Which action.
    pub action: u32,
    /// Which attempt. It is made again, by its number, and whatever it has begun goes on.
    pub attempt: u32,
}

/// Data of `dispatch.done`: an action ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchDone {
    /// The delivery.
    pub delivery: Position,
    /// Which action.
    pub action: u32,
    /// Which attempt.
    pub attempt: u32,
    /// What it said, cut short.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// Data of `dispatch.failed`: an attempt at an action failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchFailed {
    /// The delivery.
    pub delivery: Position,
    /// Which action.
    pub action: u32,
    /// Which attempt.
    pub attempt: u32,
    /// Why.
    pub reason: String,
    /// When it is tried again, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at: Option<Timestamp>,
}

/// Data of `dispatch.dead`: an action is not tried again by itself, and those behind it are not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchDead {
    /// The delivery.
    pub delivery: Position,
    /// Which action.
    pub action: u32,
    /// Why.
    pub reason: String,
}

/// Data of `dispatch.delivered`: every action was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchDelivered {
    /// The delivery.
    pub delivery: Position,
}

/// Data of `dispatch.retried`: a delivery that was given up is to be taken up again, from the action that failed; the event's
/// principal is who wants it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchRetried {
    /// The delivery.
    pub delivery: Position,
}

/// Data of `dispatch.passed`: nothing up to here is left to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatchPassed {
    /// The last event that was looked at.
    pub to: Position,
}
