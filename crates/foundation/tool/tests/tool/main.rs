//! Calls through the whole pipeline, on real files and real processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod approvals; // Who is asked.
mod calls; // Who may call what, and what is recorded.
mod changes; // What changes several files, or what a file is called.
mod custom; // Tools that are written down as data.
mod deferred; // What is listed by name alone.
mod files;
mod http; // Where requests go.
mod notepad;
mod outputs; // What is long, and what is secret.
mod process;
mod search;
mod tasks;
mod world; // What the tests share.
