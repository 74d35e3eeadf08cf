//! Subscriptions: what is done by which events of the log, in which order and how often.
//!
//! Start at [`Subscription`], which is read from a document, and at [`Dispatcher`], which follows a log and has a [`Host`] do
//! what subscriptions say. [`Matcher`] alone tells which of many subscriptions an event is for, without IO. What an action does
//! is up to the host: this crate knows no process, no workflow and no address.
//!
//! Each subscription has a log of its own, with a lease of its own, in the same store. Where it stands is what its log says,
//! so that a process that dies at any point is followed by another that does what is left: everything at least once, with a key
//! by which whoever is acted upon tells a second time from the first.
//!
//! ```
//! use std::{collections::BTreeSet, sync::Arc};
//!
//! use formwork_dispatch::{Matcher, Occurrence, Subscription};
//! use formwork_protocols::{
//!     BlobHash, Event, EventBody, Position, Principal, RunId, Timestamp, WorkflowName,
//! };
//! use serde_json::json;
//!
//! let text = r#"
//! format_version = 1
//! name = "on-refusal"
//!
//! [filter]
//! kinds = ["hook.*", "external.fired"]
//! when = "data.name == 'merged' && data.data.branch == 'main'"
//!
//! [[actions]]
//! command = ["./tell", "merged"]
//! "#;
//! let subscription = Subscription::parse("on-refusal.toml", text, &BTreeSet::new())?;
//! let matcher = Matcher::new([Arc::new(subscription)]);
//! let event = Event {
//!     position: Position(7),
//!     run: RunId::from_uuid(uuid::Uuid::nil()),
//!     seq: 3,
//!     task: None,
//!     principal: Principal::parse("user:ada")?,
//!     at: Timestamp::from_micros(0),
//!     body: EventBody::from_parts(
//!         "external.fired",
//!         json!({ "name": "merged", "data": { "branch": "main" } }),
//!     )?,
//!     idempotency_key: None,
//!     hash: BlobHash::of(b""),
//! };
//!
//! let workflow = WorkflowName::parse("feature")?;
//! assert_eq!(matcher.matching(&Occurrence::new(&event, &workflow)), [0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod document; // What a person writes.
mod subscription; // And what it means.

mod matcher; // Which of many an event is for.
mod pattern; // Kinds and principals with a star.
mod scope; // What expressions see.

mod gather; // Events that wait for others.
mod state; // Where a subscription stands, from its log.

mod dispatcher; // Follows the log, and has done what is to be done.
mod host; // The seam to whoever does it.

mod error;

pub use {
    dispatcher::{Dispatcher, Lane, Told, Until},
    document::{
        AccumulateDocument, ActionDocument, FilterDocument, RetryDocument, SubscriptionDocument,
        WebhookDocument,
    },
    error::Error,
    gather::{Gathered, Held, Taken},
    host::{Did, Failure, Host, Job, Origin},
    matcher::Matcher,
    pattern::Pattern,
    scope::Occurrence,
    state::{DeadLetter, Delivery, State, UnderWay},
    subscription::{Accumulate, Action, ActionKind, Begin, Filter, Retry, Subscription, Webhook},
};
