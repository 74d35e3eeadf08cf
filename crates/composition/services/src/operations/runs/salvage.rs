//! What is kept of rounds that did not pass: the best of them, and not the last.

use std::sync::{Arc, Weak};

use formwork_protocols::{OutcomeCode, RunId, RunOutcome};

use super::Kind;
use crate::{
    Error, Formwork,
    capability::{Caller, Operation as _},
    formwork::Inner,
    operations::{
        loops::Course,
        undo::{Undo, UndoParams},
    },
};

/// Takes back what a loop did after its best round, once it has ended without passing.
pub(super) struct Salvage {
    /// A run does not keep open what it is a part of.
    formwork: Weak<Inner>,
    caller: Caller,
    run: RunId,
    kind: Kind,
}

impl Salvage {
    pub(super) fn new(formwork: &Formwork, caller: &Caller, run: RunId, kind: Kind) -> Self {
        let (formwork, caller) = (Arc::downgrade(&formwork.inner), caller.clone());
        Self { formwork, caller, run, kind }
    }

    /// Passes the outcome on. A loop that was broken off goes on later, and one that has completed is kept whole;
    /// what somebody else has changed since is left as it is, with all that the loop did.
    ///
    /// # Errors
    /// [`Error::Store`] and [`Error::Workspace`]. The run has ended nonetheless, as the log says.
    pub(super) async fn after(self, outcome: RunOutcome) -> Result<RunOutcome, Error> {
        let Self { formwork, caller, run, kind } = self;
        let is_over = !matches!(outcome.code, OutcomeCode::Completed | OutcomeCode::Interrupted);
        let Some(inner) = formwork.upgrade().filter(|_| kind == Kind::Loop && is_over) else {
            return Ok(outcome);
        };
        let formwork = Formwork { inner };
        let course = Course::read(&*formwork.inner.store, run).await?;
        let Some(best) = course.best() else { return Ok(outcome) };
        let params = UndoParams { run, to: Some(best.at), force: false, dry_run: false };
        match Undo::run(&formwork, &caller, params).await {
            Ok(_) | Err(Error::NotAsLeft { .. }) => Ok(outcome),
            Err(error) => Err(error),
        }
    }
}
