//! Who answers for what the rules leave open, and what of the answers is kept.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use formwork_policy::ApprovalBook;
use formwork_protocols::{
    Answer, Approval, ApprovalRequest, Approver, CallId, Cancel, Cover, EventBody, Position,
    Principal, RunId, SessionId, Store, ToolErrorKind, store::Selection,
};

use crate::{
    Error, Formwork,
    error::chain,
    tape::{Pairs, Talk},
};

/// Returns the approvals of a workspace that outlive its runs.
///
/// # Errors
/// [`Error::Trust`] when the state folder lies within the workspace, where an agent could write them.
pub(crate) fn book(state: &Path, workspace: &Path) -> Result<ApprovalBook, Error> {
    ApprovalBook::new(state.join("approvals.json"), workspace)
        .map_err(|error| Error::Trust { reason: chain(&error) })
}

/// Returns what was approved for good in the workspace of `formwork` before a run begins. What cannot be
/// kept safely approves nothing.
pub(crate) fn standing(formwork: &Formwork) -> Result<Vec<Cover>, Error> {
    match book(formwork.state(), formwork.workspace()) {
        Ok(book) => book.covers().map_err(|error| Error::Trust { reason: chain(&error) }),
        Err(_) => Ok(Vec::new()),
    }
}

/// Returns what was approved beyond single calls in a run so far: its rules, and what holds for `session`.
pub(crate) async fn approved(
    store: &dyn Store,
    run: RunId,
    session: Option<SessionId>,
) -> Result<Vec<Cover>, Error> {
    let kinds = vec!["tool.decided".to_owned()];
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut found, mut after) = (Vec::new(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(found) };
        after = last.position;
        for event in events {
            let EventBody::ToolDecided(decided) = event.body else { continue };
            match decided.approval {
                Approval::Rule { covers } => found.push(covers),
                Approval::Session { covers } if session == Some(decided.session) => {
                    found.push(covers);
                }
                _ => {}
            }
        }
    }
}

/// An approver whose rules are kept beyond the run.
pub(crate) struct Kept {
    pub(crate) inner: Arc<dyn Approver>,
    /// Where they are kept; the reason where they cannot be.
    pub(crate) book: Result<ApprovalBook, String>,
}

#[async_trait]
impl Approver for Kept {
    async fn ask(&self, request: &ApprovalRequest, cancel: &Cancel) -> Option<Answer> {
        let answer = self.inner.ask(request, cancel).await?;
        let Approval::Rule { covers } = &answer.approval else { return Some(answer) };
        let kept = match &self.book {
            Ok(book) => book.add(covers).map_err(|error| chain(&error)),
            Err(reason) => Err(reason.clone()),
        };
        Some(match kept {
            Ok(()) => answer,
            // It was approved; what is not kept holds no longer than it can.
            Err(_) => {
                let approval = Approval::Session { covers: covers.clone() };
                Answer { approval, ..answer }
            }
        })
    }
}

/// Answers as it was answered, in a run that is carried out again without anybody.
pub(crate) struct Taped {
    pub(crate) talk: Arc<Talk>,
    pub(crate) pairs: Pairs,
}

#[async_trait]
impl Approver for Taped {
    async fn ask(&self, request: &ApprovalRequest, _: &Cancel) -> Option<Answer> {
        let call: CallId = request.context.call;
        let pair = lock(&self.pairs).get(&call).cloned().unwrap_or_default();
        let by = Principal::system("replay");
        // What was refused was told to the model in the words of the refusal; all else was allowed.
        let approval = match self.talk.failed(&pair) {
            Some((ToolErrorKind::Denied, reason)) => Approval::Denied { reason },
            _ => Approval::Once,
        };
        Some(Answer { approval, by })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
