//! A seeded simulator: drives the core with a simulated world, and holds it to its promises.
//!
//! [`simulate`] grows tree after tree by chance and lets each run to its end in a world where bodies
//! call models and tools, open parts of their conversations, claim or give up, checks fail, time runs
//! out, somebody pauses or cancels, and processes die: the state is thrown away then, and folded anew
//! from the record by the code that resumes real runs. After every step it checks what is promised
//! for all runs, by books of its own that know nothing of how the core keeps its:
//!
//! - tasks move as [`TaskState`](formwork_protocols::TaskState) allows, and end once, after their children;
//! - nothing begins before what it depends on has ended well, before its parent acts, or during a pause;
//! - no more work is under way than the width allows, and no place is left empty while a task is ready;
//! - no budget is ever passed, by the task itself or by all below it together, and none refuses
//!   what it could bear;
//! - a record tells where every task stands, so that a crash changes no end;
//! - every task comes to an end, whatever happens.
//!
//! The same seed always gives the same series of steps, byte for byte, and [`Report::digest`] tells
//! one series from another. Tree number `n` grows from the seed plus `n`, so that whatever breaks is
//! shown again by its own seed and a single step.
//!
//! ```
//! let report = formwork_scheduler::sim::simulate(7, 2_000)?;
//! assert!(report.steps >= 2_000);
//! assert_eq!(report, formwork_scheduler::sim::simulate(7, 2_000)?);
//! # Ok::<(), formwork_scheduler::sim::Broken>(())
//! ```

mod chance; // Numbers that follow from the seed.
mod forest; // Trees, and how kind the world is to them.
mod purse; // What was spent, counted a second time.
mod record; // The log of a run, in memory.
mod report; // What was seen.
mod watch; // The promises.
mod world; // What happens.

#[cfg(test)]
mod tests;

pub use {
    report::{Broken, Report},
    world::simulate,
};

/// Nothing, or the promise that was broken.
type Kept<T = ()> = Result<T, String>;
