//! The pure core: what happens next to a tree of tasks, without IO, time or chance.
//!
//! A [`State`] holds the tree in flat arrays, [`decide`] takes what happened and says what to do. Whoever
//! drives it records the moves, carries out the rest, and hands back what came of it. The same inputs
//! always give the same commands, so a run can be simulated, and rebuilt from its record.
//!
//! ```
//! use std::{num::NonZeroUsize, sync::Arc};
//!
//! use formwork_protocols::{Body, SystemClock, SystemRng, TaskId, TaskSpec, TaskState};
//! use formwork_scheduler::core::{BodyEnd, Builder, Command, Input, decide};
//!
//! let spec: TaskSpec = serde_json::from_str(
//!     r#"{ "name": "hello", "body": { "native": { "function": "hello" } } }"#,
//! )?;
//! let mut builder = Builder::new(NonZeroUsize::MIN);
//! let task = builder.add(TaskId::generate(&SystemClock, &SystemRng), None, Arc::new(spec))?;
//! let mut state = builder.build()?;
//!
//! let mut commands = Vec::new();
//! decide(&mut state, Input::Start, &mut commands)?;
//! assert_eq!(commands.last(), Some(&Command::Attempt { task, number: 1, continues: false }));
//! decide(&mut state, Input::Ended { task, end: BodyEnd::Claimed }, &mut commands)?;
//! assert_eq!(state.state_of(task), TaskState::Completed);
//! assert_eq!(commands.last(), Some(&Command::Finish));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build; // From specs, or from a record, to a state.
pub(crate) mod claims; // What tasks write, so that two do not write the same.
pub(crate) mod clock; // Ends by the time, and how they are told from others.
mod conditions; // Whether a task is wanted at all.
mod decide; // What happened, what to do, and the one function between them.
mod ends; // How tasks end, and what becomes of those around them.
mod flow; // What can go on, as far as the width allows.
mod items; // The children of a task that has one for each item.
mod made; // Tasks that a body makes, and waits for.
mod oversight; // What becomes of a task that would be given up.
mod parts; // Tasks that are added while their parent works.
mod phases; // Checks and attempts, and what follows from each.
mod state;
mod waits; // What waits for somebody outside.

#[cfg(test)]
mod tests;

pub(crate) use phases::heeds_evidence;
pub use {
    build::{BuildError, Builder, Planted, Standing, flatten},
    clock::is_by_clock,
    decide::{BodyEnd, Command, Input, Oversight, Refusal, decide},
    oversight::MOST_GRANTED,
    parts::Growth,
    state::{State, TaskIndex},
};
