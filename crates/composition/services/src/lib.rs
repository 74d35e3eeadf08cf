//! The capabilities of Formwork, each operation once, and the embedder's builder.
//!
//! Start at [`Builder`]: it takes a workspace and a config and returns a [`Formwork`], with an embedded
//! log and no server. [`Formwork::call`] is the one way to every operation in [`operations`];
//! [`CAPABILITIES`](capability::CAPABILITIES) lists them with their schemas, and interfaces are made
//! from that list. This is the one library that names concrete engines together.
//!
//! ```
//! use formwork_protocols::Principal;
//! use formwork_services::{Builder, capability::Caller, operations::agents};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let workspace = tempfile::tempdir()?;
//! let formwork = Builder::new(workspace.path()).build().await?;
//! let caller = Caller::owner(Principal::parse("user:ada")?);
//!
//! let listed = formwork.call::<agents::List>(&caller, agents::ListParams {}).await?;
//!
//! assert!(listed.agents.iter().any(|agent| agent.name.as_str() == "coder"));
//! formwork.close().await;
//! # Ok(())
//! # }
//! ```

pub mod capability; // Every operation, and the one way to it.
mod formwork; // Everything wired together.
pub mod operations; // What each of them does.

pub mod config; // What an operator says.
pub mod documents; // What is written in a workspace.
pub mod reading; // How files are read that others may have put there.
pub mod trust; // What of it may take effect.

mod alive; // Until when somebody worked.
mod apart; // Tasks with a workspace of their own.
mod approval; // Who answers for what the rules leave open.
mod bench; // What a worker works with.
mod bounds; // What a program may write.
mod by_hand; // Calls that a person makes.

mod baseline; // What a task began with.
mod changes; // What a run has changed.
mod checks; // How a check is decided.
mod commits; // And commits of it.
mod consult; // One question to another agent.
pub mod course; // What happened, as it can be compared.
pub mod custom; // The tools that a workspace brings along.
mod effects; // What a plan runs.
mod executor; // The work of tasks.
mod gates; // Programs that are asked about calls.
mod graph; // A plan, and the tasks of it.
mod guarded; // What nobody writes unless a person says so.
mod inbox; // The word of people on its way to conversations.
mod leftover; // What a killed process left in the workspace.
mod making; // Tasks that agents make.
mod models; // From config to models.
mod needed; // Programs that run while tasks work.
mod network; // Where programs may connect to.
mod observers; // Programs that are told what happens.
mod outside; // What came from outside.
mod presence; // Who still works.
mod private; // What nobody but its owner reads.
pub mod project; // How a project is tested and linted.
mod reach; // What a program could write.
mod remote; // Tasks whose calls are carried out elsewhere.
mod repository; // What a repository tells agents.
mod run_tests; // The project's own tests as a tool.
mod seals; // What the log was, signed.
mod setup; // What shapes a run.
pub mod sources; // Who tells of what happens outside.
mod subscriptions; // What is done by events.
mod tape; // What was answered, to be answered again.
mod tool_probe; // Whether a model really calls tools.
mod toolset; // What tools there are.
mod unasked; // What git would run.
mod watched; // What programs change.

pub mod demo; // Which model a demonstration uses.
pub mod doctor; // What would break a run.

mod error;

pub use {
    commits::told as told_of_commit,
    error::{Class, Error},
    formwork::{Builder, Formwork, built_in, default_database_url},
    formwork_dispatch::{Lane, Told, Until},
    formwork_trace::{Checkpoint, Look, PublicKey},
    tool_probe::{ToolOutcome, ToolProbe},
};
