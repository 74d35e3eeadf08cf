//! The driver: carries out what the core decides, and records it.

mod carry; // What the core decides, written down and made ready.
mod control; // Tasks within a conversation.
mod drive; // The loop that owns the state.
mod dry; // Budgets that run dry.
mod fill; // Words with variables in them.
pub(crate) mod fold; // From the log back to where the run was left.
mod judge; // What expressions say of the results so far.
mod mail; // What was said from outside.
pub(crate) mod output; // Whether a result has its form.
mod oversee; // Who governs the run decides about what would be given up.
mod scheduler; // The front door.
mod services; // Programs that run while the tasks work.
mod tree; // The state, with what the record adds to it.
mod waiting; // Tasks that wait for somebody outside.
mod work; // What is under way outside the loop.

pub use scheduler::{NewRun, Report, Scheduler, Setup, Signals, Stop};
