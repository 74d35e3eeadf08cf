//! Whole runs on both stores, with functions of the test for bodies and checks.

#![expect(clippy::unwrap_used, reason = "tests may, in their helpers too")]

mod caps; // What is told of caps.
mod flow; // Conditions, nesting, items, retries.
mod idle; // A scheduler with nothing to do, and without time.
mod lost; // Work whose log cannot be reached: it has no end.
mod made; // Tasks that bodies make while they work.
mod overseer; // Who governs a run, and what they decide.
mod property; // What holds whatever happens.
mod runs; // Driven, broken off, and taken up again.
mod services; // Programs that run while the tasks work.
mod stops; // What is to end while something begins, or comes whole.
mod surroundings; // Commands around attempts, and the end of a run, where a process dies over them.
mod waits; // Events from outside, and questions to people.
mod wide; // Much at once.
mod world; // A store, a clock, a scheduler.
