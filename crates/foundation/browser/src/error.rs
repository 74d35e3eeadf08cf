//! Why a browser did not do what it was asked.

use std::{io, path::PathBuf};

/// Why a browser did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// There is no Chromium, or none that may be used.
    #[error("{reason}")]
    NoChromium { reason: String },
    /// It could not be started, as `source` says.
    #[error("{program} could not be started")]
    NotStarted { program: PathBuf, source: io::Error },
    /// It ended, or could not be spoken to any more.
    #[error("the browser is gone: {reason}")]
    Gone { reason: String },
    /// It answered that it cannot do this.
    #[error("the browser cannot do this: {reason}")]
    Refused { reason: String },
    /// A page did not come, or not in time.
    #[error("{reason}")]
    Page { reason: String },
    /// No page is open.
    #[error("no page is open in this conversation: call browser.open first")]
    NoPage,
    /// What was numbered is not there any more.
    #[error(
        "there is no {number} on the page as it was read last: call browser.read, and take a number of that"
    )]
    NoElement { number: u32 },
}

impl Error {
    /// Tells whether the browser cannot be used any more.
    pub(crate) const fn is_fatal(&self) -> bool {
        matches!(self, Self::NoChromium { .. } | Self::NotStarted { .. } | Self::Gone { .. })
    }
}
