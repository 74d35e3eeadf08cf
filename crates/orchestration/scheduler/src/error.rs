//! Why a run could not be begun or carried on.

use formwork_protocols::{RunId, StoreError};

use crate::core::BuildError;

/// Why a run could not be begun or carried on. What was recorded stands.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The log cannot be read or written, or another process owns the run.
    #[error("run {run} cannot be recorded")]
    Store { run: RunId, source: StoreError },
    /// The tasks make no tree.
    #[error("the tasks of run {run} make no tree")]
    Tree { run: RunId, source: BuildError },
    /// The run has come to its end before.
    #[error("run {run} has ended: {outcome}")]
    Ended { run: RunId, outcome: String },
    /// The log lacks what a run begins with.
    #[error("run {run} has no {missing} in its log")]
    Incomplete { run: RunId, missing: &'static str },
}
