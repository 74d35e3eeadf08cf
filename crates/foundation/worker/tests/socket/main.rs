//! Both ends over real sockets: what holds of a call whatever a worker, a network or a caller does.

#![expect(clippy::unwrap_used, reason = "what a test sets up is there, or the test is wrong")]

mod calls; // What becomes of calls.
mod doors; // Who is let in.
mod liars; // Workers that do not keep to what was agreed.
mod lost; // Workers that go.
mod world;
