//! Subscriptions on real stores: what is done by events, in which order and how often, whoever dies meanwhile.

#![expect(clippy::unwrap_used, reason = "tests may, in their helpers too")]

mod document; // What is wrong with a document.
mod faults; // Processes that die, and several of them.
mod matching; // The index against the plain way.
mod runs; // What is done by events.
mod world; // A store, a clock and a host.
