//! Who answers for what the rules leave open, and what of the answers is kept.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use formwork_policy::{ApprovalBook, Unattended};
use formwork_protocols::{
    Answer, Approval, ApprovalRequest, Approver, CallId, Cancel, Cover, EventBody, Live, Position,
    Principal, RunId, SessionId, Span, Store, StoreError, ToolErrorKind, event::ToolAsked,
    store::Selection,
};
use futures::StreamExt as _;

use crate::{
    Error, Formwork, config,
    error::chain,
    setup::RunSetup,
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

/// How long a call waits in the inbox, unless the config says otherwise.
const ASK_WITHIN: Duration = Duration::from_secs(3_600);

/// Returns who answers for the calls of a run: whoever is there, else the inbox where the config says so, else nobody.
pub(crate) fn approver(formwork: &Formwork, setup: &RunSetup) -> Arc<dyn Approver> {
    if let Some(approver) = &formwork.inner.approver {
        return Arc::clone(approver);
    }
    let permissions = setup.config.permissions.as_ref();
    match permissions.and_then(|permissions| permissions.unattended) {
        Some(config::Unattended::Inbox) if !setup.headless => Arc::new(FromInbox {
            store: Arc::clone(&formwork.inner.store),
            within: permissions
                .and_then(|permissions| permissions.ask_within)
                .map_or(ASK_WITHIN, Span::as_duration),
        }),
        _ => Arc::new(Unattended),
    }
}

/// An approver that waits for what somebody says in another process. The question is in the log already.
struct FromInbox {
    store: Arc<dyn Store>,
    within: Duration,
}

impl FromInbox {
    /// Returns the calls by which the same was asked before in the conversation, by a process that died, and this one.
    async fn same(&self, request: &ApprovalRequest) -> Result<Vec<CallId>, StoreError> {
        let context = &request.context;
        let kinds = vec!["tool.asked".to_owned()];
        let selection = Selection { run: Some(context.run), task: Some(context.task), kinds };
        let (mut asked, mut after) = (Vec::new(), Position::default());
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { break };
            after = last.position;
            asked.extend(events.into_iter().filter_map(|event| match event.body {
                EventBody::ToolAsked(asked) => Some(*asked),
                _ => None,
            }));
        }
        let pair = asked.iter().find(|own| own.call == context.call).map(|own| own.pair.clone());
        let is_same = |own: &&ToolAsked| {
            own.session == context.session
                && Some(&own.pair) == pair.as_ref()
                && own.exact.as_ref() == Some(&request.exact)
        };
        Ok(asked.iter().filter(is_same).map(|own| own.call).chain([context.call]).collect())
    }

    /// Returns what was answered, if anything was.
    async fn answered(&self, run: RunId, calls: &[CallId]) -> Result<Option<Answer>, StoreError> {
        let kinds = vec!["tool.answered".to_owned()];
        let selection = Selection { run: Some(run), task: None, kinds };
        let mut after = Position::default();
        loop {
            let events = self.store.read(after, &selection, 1_000).await?;
            let Some(last) = events.last() else { return Ok(None) };
            after = last.position;
            for event in events {
                if let EventBody::ToolAnswered(said) = event.body
                    && calls.contains(&said.call)
                {
                    return Ok(Some(Answer { approval: said.approval, by: event.principal }));
                }
            }
        }
    }

    async fn wait(&self, request: &ApprovalRequest) -> Result<Answer, StoreError> {
        // Before the log is read, so that no answer falls between.
        let mut happening = self.store.watch();
        let run = request.context.run;
        let calls = self.same(request).await?;
        loop {
            if let Some(answer) = self.answered(run, &calls).await? {
                return Ok(answer);
            }
            loop {
                match happening.next().await {
                    Some(Live::Event(event)) => {
                        if event.run == run && matches!(event.body, EventBody::ToolAnswered(_)) {
                            break;
                        }
                    }
                    Some(Live::Lagged(_)) => break,
                    Some(Live::Delta(_)) => {}
                    None => return Err(StoreError::Closed),
                }
            }
        }
    }
}

#[async_trait]
impl Approver for FromInbox {
    async fn ask(&self, request: &ApprovalRequest, cancel: &Cancel) -> Option<Answer> {
        let denied = |reason: String| Answer {
            approval: Approval::Denied { reason },
            by: Principal::system("inbox"),
        };
        let waiting = tokio::time::timeout(self.within, self.wait(request));
        tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            answered = waiting => Some(match answered {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => denied(format!("the inbox could not be read: {}", chain(&error))),
                Err(_) => {
                    let within = Span::from(self.within);
                    denied(format!("nobody answered within {within}: do without it, or ask for something else"))
                }
            }),
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
