//! The program as a person or a script meets it: what it prints, where, and the code it ends with.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auth;
mod documents; // What is written in a workspace.
mod folder; // The example that needs no code.
mod hostile; // What others could make of it.
mod json; // What a machine reads.
mod ready; // What keeps a run from beginning.
mod usage; // What is typed wrong, and what is told of it.
mod world; // What the tests share.
