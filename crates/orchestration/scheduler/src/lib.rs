//! The task tree: entry, attempts, exit, retries, escalation, budgets.
//!
//! Start at [`Scheduler`]: it carries out a [`workflow::Plan`] on any store of `formwork-protocols`,
//! records every step before it is taken, and takes a run up where another process left it. What an
//! attempt or a check does is up to an [`Executor`]; this crate knows no model, tool or file.
//! [`core`] alone decides what happens next, without IO, and can be used without the rest.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use formwork_protocols::{PermissionMode, Principal, Store};
//! use formwork_scheduler::{Error, Executor, Scheduler, Setup, Signals, workflow::Plan};
//!
//! async fn carry_out(
//!     store: Arc<dyn Store>,
//!     executor: Arc<dyn Executor>,
//!     plan: &Plan,
//! ) -> Result<(), Error> {
//!     let scheduler = Scheduler::new(store, executor);
//!     let setup = Setup {
//!         workspace: "/home/ada/project".to_owned(),
//!         mode: PermissionMode::Edit,
//!         principal: Principal::system("example"),
//!         setup: Default::default(),
//!     };
//!     let run = scheduler.create(plan, setup).await?;
//!     let report = scheduler.run(run, &Signals::default()).await?;
//!     assert_eq!(report.outcome.code.exit_code(), 0);
//!     Ok(())
//! }
//! ```

pub mod core; // What happens next, without IO.
mod ledger; // What it may cost and did cost.
pub mod workflow; // What a person writes, and the plan that comes of it.

mod ids; // Tables by id.
mod path; // Where a task stands, by names.
mod results; // What others have come to.

mod executor; // The seam to whatever does the work.
mod native; // Functions of the embedder as bodies.
mod run; // Carries out what the core decides, and records it.

pub mod sim; // The core in a simulated world.

mod error;

pub use {
    error::Error,
    executor::{AttemptEnd, AttemptJob, CheckJob, Executor, LastWords, ServiceEnd, ServiceJob},
    ledger::{Accounts, Exhausted, LapsedHold, Spent},
    native::{NativeExecutor, Natives},
    path::TaskPath,
    results::Results,
    run::{NewRun, Report, Scheduler, Setup, Signals, Stop},
};
