//! Remote tool execution: calls carried out by workers elsewhere, under fenced leases.
//!
//! Both ends of one WebSocket. The near end is a [`Hub`]: [`Hub::accept`] takes the connection of a worker whose token was
//! looked at, and [`Near`] gives the calls of a run to one of them, as the tools that [`Near::tool`] returns. The far end is
//! a [`Worker`], which dials out, pulls as many calls as it has room for, and has each carried out by a [`Bench`], through
//! the one pipeline of [`formwork_tool`] and the rules of its own place.
//!
//! What holds between the two: a call is given to exactly one worker, under a lease with an epoch; signs of life do not wait
//! for calls; an answer that comes late, twice or with an old epoch is refused and recorded; the calls of a worker that is
//! lost are settled by what a second time would do. What was decided on a call stays with the run: this crate judges
//! nothing, it narrows ([`Bounds`]).
//!
//! This crate knows nothing of tokens, models or scheduling.
//!
//! ```
//! use formwork_worker::{FromWorker, decode, encode};
//!
//! let frame = encode(&FromWorker::Pull { calls: 2 });
//!
//! assert_eq!(frame, r#"{"type":"pull","calls":2}"#);
//! assert_eq!(decode::<FromWorker>(&frame), Ok(FromWorker::Pull { calls: 2 }));
//! assert!(decode::<FromWorker>(r#"{"type":"lunch"}"#).is_err());
//! ```

mod message; // What the two ends say.

mod board; // Who is there, and who holds what.
mod hub; // The near end of every connection.
mod near; // The calls of one run under one label.

mod address; // Where a worker dials, and how.
mod far; // A call at the far end.
mod worker; // The far end of a connection.

mod error;

pub use {
    address::{Address, Token},
    board::{MAX_SLOTS, WorkerRow},
    error::Error,
    far::{Bench, through},
    hub::{Guest, Hub, SCOPE, Times},
    message::{
        Announced, Answer, Bounds, Fault, FromWorker, Given, Globs, Hello, Lease, MAX_ANSWER_BYTES,
        MAX_CALL_BYTES, MAX_FRAME_BYTES, PROTOCOL, Picture, ToWorker, decode, encode, schema_of,
    },
    near::{Missing, Near, Tell},
    worker::{Identity, Status, Worker},
};
