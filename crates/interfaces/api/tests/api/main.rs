//! The interface as a client meets it: a server on a real socket, and the bytes that go over it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls; // Capabilities, and how they fail.
mod events; // The log as a stream.
mod hostile; // What others could make of it.
mod mounted; // Routes of others beside it.
mod runs; // Runs that are begun by it, and its end.
mod world; // What the tests share.
