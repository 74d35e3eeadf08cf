//! The task tree: entry, attempts, exit, retries, escalation, budgets.

pub mod core; // What happens next, without IO.
mod ledger; // What it may cost and did cost.
pub mod workflow; // What a person writes, and the plan that comes of it.

pub use ledger::{Accounts, LapsedHold, Spent};
