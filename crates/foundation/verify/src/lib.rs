//! Runs a task's checks and returns a verdict with its evidence.
//!
//! Start at [`Verifier`]. It runs one [`CheckSpec`] with [`Verifier::check`], or a phase of them with
//! [`Verifier::run_phase`], where the first failure stops. A command is run in the sandbox and its
//! output read by a [`Parser`]: **a test run that ran no test is a failure**, and so is an exit code of 0
//! beside a failed test. What must have stayed as it was is compared with a [`Baseline`] taken when the
//! task began; what the task changed comes in through [`Changes`].
//!
//! A check that could not be made is a failed verdict that says why: a program that is not there, a time
//! that was over, a process that was killed. Only cancelling gives no verdict.
//!
//! This crate knows nothing of models, prices or scheduling, and records nothing: verdicts and outputs
//! are handed back.
//!
//! ```
//! use formwork_protocols::check::{Counts, Parser};
//! use formwork_verify::{Output, parse};
//!
//! let stdout = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 3 \
//!     filtered out; finished in 0.00s\n";
//! let report = parse(Parser::CargoTest, Output { stdout, stderr: "" }).expect("a summary is there");
//!
//! assert_eq!(report.counts, Some(Counts { run: 0, failed: 0, skipped: 0 }));
//! ```
//!
//! [`CheckSpec`]: formwork_protocols::check::CheckSpec
//! [`Parser`]: formwork_protocols::check::Parser

mod verifier; // A check, and a phase of checks.

mod command; // A process and what its output proves.
mod contract; // Requirements, each with what proves it.
mod parse; // Output, format by format.

mod baseline; // What must stay as it was.
mod changes; // What the task changed.
mod dependencies; // What it depends on.
mod exports; // What others can use of it.
mod scripts; // What a package's own scripts say.

mod error;

pub use {
    baseline::{Baseline, Paths},
    changes::Changes,
    error::Error,
    parse::{Output, Report, parse},
    scripts::script_of,
    verifier::{Checked, Ground, Verifier},
};
