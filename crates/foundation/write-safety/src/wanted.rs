//! Whether a piece of work is still wanted: one that was given up changes nothing any more.

use crate::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Says whether a piece of work is still wanted. Clones are of the same work.
///
/// What a file shall be is made ready beside it, and that may take long; whoever waits may not. What is put in place is
/// put there while it is wanted, or not at all: once [`end`](Self::end) has returned, nothing more is changed.
#[derive(Debug, Clone)]
pub struct Wanted(Arc<Mutex<bool>>);

impl Default for Wanted {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(true)))
    }
}

impl Wanted {
    /// Gives the work up. What is being put in place at this moment is waited for.
    pub fn end(&self) {
        *self.lock() = false;
    }

    /// Keeps the work wanted until the result is dropped.
    pub(crate) fn begin(&self, path: &str) -> Result<MutexGuard<'_, bool>, Error> {
        let wanted = self.lock();
        if *wanted { Ok(wanted) } else { Err(Error::Unwanted { path: path.to_owned() }) }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
