//! The durable, hash-chained event log and its views, on SQLite and PostgreSQL.
//!
//! Start at [`Trace`]: it is the [`EventStore`] and the [`Views`] of `formwork-protocols` over one
//! database. Facts are appended in batches that are recorded whole or not at all; each is bound to
//! the one before of its run by its hash, and [`Trace::audit_all`] finds a log that was changed.
//! What the facts mean is left to others: this crate keeps them, counts them and hands them out.
//!
//! ```
//! use formwork_protocols::{
//!     Append, Clock as _, EventBody, EventStore as _, NewEvent, Position, Principal, RunId,
//!     SystemClock, SystemRng, store::Selection,
//! };
//! use formwork_trace::{Options, Trace};
//! use serde_json::json;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let trace = Trace::open("sqlite::memory:", Options::default()).await?;
//! let run = RunId::generate(&SystemClock, &SystemRng);
//! let event = NewEvent {
//!     task: None,
//!     principal: Principal::system("example"),
//!     at: SystemClock.now(),
//!     body: EventBody::from_parts("weather.changed", json!({ "sun": true }))?,
//!     idempotency_key: None,
//! };
//!
//! trace.append(Append { run, token: None, events: vec![event], blobs: vec![] }).await?;
//!
//! let events = trace.read(Position(0), &Selection::default(), 10).await?;
//! assert_eq!(events[0].body.kind(), "weather.changed");
//! assert!(trace.audit(run).await?.faults.is_empty());
//! trace.close().await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`EventStore`]: formwork_protocols::EventStore
//! [`Views`]: formwork_protocols::Views

mod trace; // The front door.

mod pack; // How blobs are kept.
mod plan; // Where each event goes.
mod posted; // What waits for a commit that it can share.
mod prepare; // The funnel: scrubs and serialises in the caller's task.
mod wal; // What SQLite has written and not yet put in its place.
mod writer; // The one task that writes.

mod changes; // What events change in the views.
mod tables; // How rows are inserted and merged.

mod archive; // What leaves, and what is remembered of it.
mod arriving; // A run that comes in, beside the log until it is whole.
mod audit; // Whether a log is what was written.
mod bundle; // Runs as a file.
mod checkpoint; // What a log was, signed.
mod keep; // Operations on the log as a whole.
mod mirror; // The views made again, beside those that are there.
mod names; // Which hashes the log names.
mod origin; // What a store is, and which runs came from elsewhere.
mod prune; // Blobs that no run refers to.
mod rebuild; // The views made anew.
mod transfer; // Out of the store and in again.
mod upkeep; // What the store is, and making it smaller.

mod feed; // What those who watch receive.
mod read; // Events, blobs and views, out of the database.

mod database; // One door to both engines.
mod error;
mod place; // Whether a file is still there.
mod schema; // Opening, and migrating.

pub use {
    archive::Archived,
    audit::{CheckpointFault, Compared, StoreAudit},
    bundle::{BundleError, Counts, Form},
    checkpoint::{Checkpoint, KeyError, PublicKey, SigningKey},
    error::{LOCKED, passes},
    keep::{CheckpointError, Departure, digest},
    mirror::ViewFault,
    plan::NOBODY,
    prune::Orphans,
    schema::Look,
    trace::{LapseBy, Options, Trace},
    transfer::Fate,
    upkeep::{Size, Status},
};
