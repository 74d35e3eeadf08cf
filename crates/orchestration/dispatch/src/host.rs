//! The seam to whoever does what subscriptions say.

use std::sync::Arc;

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Event, Position, RunId, StoreError, SubscriptionName, WorkflowName,
};
use serde_json::{Map, Value, json};

use crate::{Action, ActionKind, Occurrence, Subscription};

/// What is known of the run of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its workflow.
    pub workflow: WorkflowName,
    /// The subscriptions that had it begin, one by what another had done. None of them is given its events.
    pub caused_by: Vec<SubscriptionName>,
}

/// An action that is to be done.
#[derive(Debug, Clone)]
pub struct Job {
    /// Whose action it is.
    pub subscription: Arc<Subscription>,
    /// The log of that.
    pub log: RunId,
    /// What it is about, by name.
    pub delivery: Position,
    /// Which action, by its place.
    pub action: u32,
    /// Which attempt at it; the first is 1.
    pub attempt: u32,
    /// The events that it is about, each with the workflow of its run, in their order. There is at least one.
    pub events: Vec<(Event, WorkflowName)>,
    /// What they have in common, where they were gathered.
    pub group: String,
    /// The run that a workflow is run as. Where there is one by that name already, a process before this one has begun it.
    pub run: Option<RunId>,
    /// The subscriptions that had this come about, this one the last.
    pub caused_by: Vec<SubscriptionName>,
}

impl Job {
    /// Returns the key by which whoever is acted upon tells a second time from the first: the same for every attempt.
    pub fn key(&self) -> String {
        format!("{}-{}-{}", self.log, self.delivery, self.action)
    }

    /// Returns the action, if the document still has one at its place.
    pub fn what(&self) -> Option<&Action> {
        self.subscription.actions.get(usize::try_from(self.action).ok()?)
    }

    /// Returns what a program reads, and what is sent.
    pub fn document(&self) -> Value {
        let events: Vec<&Event> = self.events.iter().map(|(event, _)| event).collect();
        let mut document = json!({
            "format_version": 1,
            "subscription": self.subscription.name,
            "delivery": self.delivery,
            "action": self.action,
            "attempt": self.attempt,
            "key": self.key(),
            "workflow": self.events.last().map(|(_, workflow)| workflow),
            "event": events.last(),
        });
        if self.subscription.accumulate.is_some()
            && let Some(fields) = document.as_object_mut()
        {
            fields.insert("group".to_owned(), json!(self.group));
            fields.insert("events".to_owned(), json!(events));
        }
        document
    }

    /// Returns what the variables of its workflow are set to.
    ///
    /// # Errors
    /// Which variable has no value, and why.
    pub fn variables(&self) -> Result<Map<String, Value>, String> {
        let Some(ActionKind::Workflow { vars, .. }) = self.what().map(|action| &action.kind) else {
            return Ok(Map::new());
        };
        let whole =
            |(event, workflow): &(Event, WorkflowName)| Occurrence::new(event, workflow).whole();
        let mut known = self.events.last().map(whole).unwrap_or_default();
        let mut set = Map::new();
        for (name, expression) in vars {
            let all = ["events", "count", "key"];
            if expression.references().any(|it| all.contains(&it.name())) {
                let events: Vec<Value> = self.events.iter().map(|it| whole(it).into()).collect();
                known.insert("count".to_owned(), events.len().into());
                known.insert("events".to_owned(), events.into());
                known.insert("key".to_owned(), self.group.clone().into());
            }
            let value = expression.evaluate(&known);
            let value = value.map_err(|error| format!("variable {name} has no value: {error}"))?;
            set.insert(name.to_string(), value);
        }
        Ok(set)
    }
}

/// An action that was done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Did {
    /// What it said, cut short.
    pub said: String,
}

/// Why an action was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It may be done by another attempt.
    Failed(String),
    /// It may not: another attempt would come to the same.
    Final(String),
    /// It was broken off, since nobody is to do anything any more. It counts as lost with the process.
    Stopped,
}

/// Does what subscriptions say. Jobs of several subscriptions overlap, those of one do not.
#[async_trait]
pub trait Host: Send + Sync {
    /// Returns what is known of a run; nothing of one whose events are for no subscription here.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be told.
    async fn origin(&self, run: RunId) -> Result<Option<Origin>, StoreError>;

    /// Does an action to its end.
    ///
    /// Ends soon once `cancel` is raised. A dropped future may have done all of it, some or nothing.
    ///
    /// # Errors
    /// [`Failure`] says whether another attempt may help.
    async fn act(&self, job: &Job, cancel: &Cancel) -> Result<Did, Failure>;
}
