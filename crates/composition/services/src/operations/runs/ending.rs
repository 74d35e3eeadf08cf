//! What belongs to the end of a run and is done before it is recorded, so that whoever takes up a run whose process died over
//! it does it again: the best of rounds that did not pass is kept, and what was changed is committed.

use std::sync::{Mutex, PoisonError, Weak};

use formwork_protocols::{OutcomeCode, RunOutcome, StoreError};

use super::Kind;
use crate::{
    Error, Formwork,
    capability::Caller,
    commits::LastCommit,
    formwork::Inner,
    operations::{loops::Course, undo::undo},
};

/// What a run does at its end.
pub(crate) struct Ending {
    /// A run does not keep open what it is a part of.
    formwork: Weak<Inner>,
    caller: Caller,
    kind: Kind,
    commit: LastCommit,
    /// What it failed by, for whoever waits for the run.
    failed: Mutex<Option<Error>>,
}

impl Ending {
    pub(super) fn new(
        formwork: &Formwork,
        caller: &Caller,
        kind: Kind,
        subject: Option<String>,
    ) -> Self {
        Self {
            formwork: std::sync::Arc::downgrade(&formwork.inner),
            caller: caller.clone(),
            kind,
            commit: LastCommit::new(formwork, caller, subject),
            failed: Mutex::default(),
        }
    }

    /// Does it, and passes the outcome on, with what kept the run from being committed. What it fails by does not keep the
    /// run from ending, and is told by [`Ending::failed`].
    ///
    /// # Errors
    /// What the log could not do. Whoever takes the run up does it again.
    pub(crate) async fn of(
        &self,
        outcome: RunOutcome,
        token: u64,
    ) -> Result<RunOutcome, StoreError> {
        let done = async {
            self.salvage(&outcome, token).await?;
            self.commit.of(outcome.clone(), token).await
        };
        match done.await {
            Ok(outcome) => Ok(outcome),
            Err(error) => {
                let error = error.beside_the_log()?;
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Ok(outcome)
            }
        }
    }

    /// Returns what it failed by, once.
    pub(super) fn failed(&self) -> Result<(), Error> {
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Takes back what a loop did after its best round, where it has not passed. What somebody else has changed since is left
    /// as it is, with all that the loop did.
    async fn salvage(&self, outcome: &RunOutcome, token: u64) -> Result<(), Error> {
        let is_over = !matches!(outcome.code, OutcomeCode::Completed | OutcomeCode::Interrupted);
        let inner = self.formwork.upgrade().filter(|_| self.kind == Kind::Loop && is_over);
        let Some(inner) = inner else { return Ok(()) };
        let formwork = Formwork { inner };
        let course = Course::read(&*formwork.inner.store, outcome.run).await?;
        let Some(best) = course.best() else { return Ok(()) };
        let held = (outcome.run, Some(token));
        match undo(&formwork, &self.caller, held, best.at, (false, false)).await {
            Ok(_) | Err(Error::NotAsLeft { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
