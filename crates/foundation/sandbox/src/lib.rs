//! Runs a process inside limits and ends its whole tree.
//!
//! Start at [`Sandbox::run`]: it takes a [`Command`] (an argument vector, never shell text) and
//! returns a [`Finished`] with how the process ended and what it wrote, each stream hashed, kept
//! whole, and shortened to a head and a tail. Nothing that the command started outlives the call:
//! neither a process that left its session, nor one that kept the output open, nor any of them when
//! this process is itself killed.
//!
//! A [`Launcher`] makes that certain on Linux, and carries the [`Limits`] of
//! [`Protection::Restricted`]: it is a small process that this one spawns, that adopts every orphan
//! below it, and that confines the command with Landlock, seccomp and resource limits before it
//! starts. A program becomes its own launcher by calling [`launcher::intercept`] first thing in
//! `main`; others install `formwork-launcher`. A protection that was asked for and cannot be had is
//! [`Error::ProtectionMissing`], never a run without it; [`probe`] tells beforehand.
//!
//! A confined command opens no connection, unless it is given a [`Gateway`]: then it has a network of its own, in which
//! there is nothing but a proxy, and somebody else decides where that may connect to.
//!
//! This crate knows nothing of tools, tasks or permissions, and reads no environment: the parent's
//! variables come in as an [`Environment`]. Its `unsafe` blocks are in `launcher/spawn.rs`.
//!
//! ```
//! use formwork_sandbox::{Command, Environment, Exit, Protection, Sandbox};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), formwork_sandbox::Error> {
//! let environment = Environment::new([("PATH", "/usr/bin:/bin")]);
//! let sandbox = Sandbox::new(environment, "/tmp");
//! let command = Command::new(["echo", "hello"], "/", Protection::None);
//!
//! let finished = sandbox.run(command, CancellationToken::new(), None).await?;
//!
//! assert_eq!(finished.exit, Exit::Code(0));
//! assert_eq!(finished.stdout.preview(), "hello\n");
//! # Ok(())
//! # }
//! ```

#[cfg(not(unix))]
compile_error!("formwork-sandbox runs on Unix: it needs process groups and signals");

mod command;
mod environment;
mod gateway;
mod protection;

mod capture;
mod control;
mod finished;
mod proxy;
mod ready;
mod sandbox;
mod temporary;
mod terminal;

mod group;
pub mod launcher;
mod own;
#[cfg(target_os = "linux")]
mod proc;
mod program;
mod wire;

pub mod seatbelt;

mod error;

pub use {
    capture::{Captured, Chunk, Stream, Whole},
    command::{Caps, Command, Terminal},
    environment::Environment,
    error::Error,
    finished::{Exit, Finished, Resource},
    gateway::{Gateway, NoRoute, Refusal, Routes},
    launcher::Launcher,
    own::own,
    protection::{Beyond, Limits, Network, Protection, Protections, Status, probe},
    sandbox::Sandbox,
};
