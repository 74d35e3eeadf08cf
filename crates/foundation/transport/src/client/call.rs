//! One call: tries, and the waits between them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use formwork_protocols::{
    Cancel, Completion, ModelEvent, ModelRequest, ProviderError, ProviderFault,
    message::Provenance,
    model::{ServedBy, StopReason},
};
use futures::{FutureExt as _, Stream, future::BoxFuture};
use tokio::time::{Instant, Sleep};

use super::{Failure, Inner, reading::Reading, tape::Answer, watch::Watch};
use crate::{
    draft::Draft,
    fault::Fault,
    media,
    retry::{self, Next},
    wire::{self, Outgoing},
};

/// One call, as the stream of its events. Dropping it closes its connection.
///
/// It is a state machine by hand, because an event that was read already is handed over many times as often as anything
/// else happens.
pub(super) struct Call {
    inner: Arc<Inner>,
    request: ModelRequest,
    /// Built by the first try and sent again by the others.
    outgoing: Option<Arc<Outgoing>>,
    cancel: Cancel,
    cancelled: Watch<BoxFuture<'static, ()>>,
    phase: Phase,
    tries: u32,
    begun: Instant,
}

enum Phase {
    Try,
    Open { begun: Instant, opening: BoxFuture<'static, Result<Answer, Failure>> },
    Read(Box<Reading>),
    Wait(Pin<Box<Sleep>>),
    Over,
}

type Item = Result<ModelEvent, ProviderError>;

impl Stream for Call {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            let call = &mut *self;
            if let Phase::Read(reading) = &mut call.phase {
                if let Some(event) = reading.next_event() {
                    return Poll::Ready(Some(Ok(event)));
                }
                if reading.is_over() {
                    return Poll::Ready(Some(call.end()));
                }
            }
            if let Phase::Over = call.phase {
                return Poll::Ready(None);
            }
            if let Err(failure) = ready!(call.poll_step(context)) {
                return Poll::Ready(Some(call.fail(failure)));
            }
        }
    }
}

impl Call {
    pub(super) fn new(inner: Arc<Inner>, request: ModelRequest, cancel: Cancel) -> Self {
        let signal = cancel.clone();
        Self {
            inner,
            request,
            outgoing: None,
            cancel,
            cancelled: Watch::new(async move { signal.cancelled().await }.boxed()),
            phase: Phase::Try,
            tries: 0,
            begun: Instant::now(),
        }
    }

    /// Goes on to the next state, or reads what comes next.
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        // Before all else: a cancelled call must not send its request.
        if self.cancel.is_cancelled() {
            return Poll::Ready(Err(cancelled()));
        }
        let step = match &mut self.phase {
            Phase::Try => return Poll::Ready(self.open()),
            Phase::Open { begun, opening } => {
                let begun = *begun;
                opening.poll_unpin(context).map(|answer| self.read(answer?, begun))
            }
            Phase::Read(reading) => reading.poll_read(&self.request, context),
            Phase::Wait(sleep) => sleep.poll_unpin(context).map(|()| {
                self.phase = Phase::Try;
                Ok(())
            }),
            Phase::Over => Poll::Ready(Ok(())),
        };
        if step.is_pending() && self.cancelled.poll(context).is_ready() {
            return Poll::Ready(Err(cancelled()));
        }
        step
    }

    /// Begins a try.
    fn open(&mut self) -> Result<(), Failure> {
        self.tries += 1;
        let begun = Instant::now();
        if self.tries == 1 {
            self.begun = begun; // The clock of the call starts when somebody listens.
        }
        let outgoing = match &self.outgoing {
            Some(outgoing) => outgoing,
            None => {
                media::check_all(self.inner.endpoint.kind, &self.request).map_err(Failure::new)?;
                let outgoing =
                    wire::outgoing(&self.inner.endpoint, &self.inner.base, &self.request);
                self.outgoing.insert(Arc::new(outgoing.map_err(Failure::new)?))
            }
        };
        let opening = open(Arc::clone(&self.inner), Arc::clone(outgoing)).boxed();
        self.phase = Phase::Open { begun, opening };
        Ok(())
    }

    /// Begins to read the answer of a try.
    fn read(&mut self, answer: Answer, begun: Instant) -> Result<(), Failure> {
        let names = self.outgoing.as_ref().map(|outgoing| outgoing.names.clone());
        let draft = Draft::new(&self.request, names.unwrap_or_default());
        let served_by = ServedBy {
            provider: self.inner.endpoint.name.clone(),
            endpoint: self.inner.label(),
            model: self.request.model.as_str().to_owned(),
            request_id: super::request_id(&answer.headers),
        };
        let reading = Reading::new(Arc::clone(&self.inner), answer, draft, served_by, begun);
        self.phase = Phase::Read(Box::new(reading));
        Ok(())
    }

    /// Ends the call with its answer, or the try with what is wrong with it.
    fn end(&mut self) -> Item {
        let Phase::Read(reading) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return self.fail(cancelled()); // Only called while an answer is read.
        };
        let mut reading = *reading;
        let provenance = Provenance {
            provider: self.inner.endpoint.name.clone(),
            model: self.request.model.clone(),
        };
        match reading.draft.finish(&self.request, &provenance) {
            Err(fault) => {
                let used = reading.draft.used(&self.request);
                let failure = Failure { used, ..reading.failure(fault) };
                self.fail(failure)
            }
            Ok(finished) => {
                if finished.stop == StopReason::Gap && !reading.is_shown() {
                    let why = reading.draft.lost().unwrap_or_default();
                    let message = format!("a part of the answer was lost: {why}");
                    let failure = reading.failure(Fault::new(ProviderFault::Protocol, message));
                    let used = reading.draft.used(&self.request);
                    let failure = Failure { used, ..failure };
                    // Once no try is left, what there is of it is better than nothing: it says itself what it is.
                    if let Next::Wait(wait) = self.next(&failure) {
                        return Ok(self.wait(failure, wait));
                    }
                }
                let completion = Completion {
                    message: finished.message,
                    stop: finished.stop,
                    usage: finished.usage,
                    usage_estimated: finished.usage_estimated,
                    usage_doubted: finished.usage_doubted,
                    served_by: reading.served_by(),
                    first_token: reading.first_token(self.begun),
                    elapsed: self.begun.elapsed(),
                    tries: self.tries,
                    undecodable: reading.undecodable(),
                    lost: None,
                };
                Ok(ModelEvent::Done(Box::new(completion)))
            }
        }
    }

    /// Ends the try: with a wait before another, or with an error.
    fn fail(&mut self, mut failure: Failure) -> Item {
        // Whatever was open is closed before anything else.
        if let Phase::Read(mut reading) = std::mem::replace(&mut self.phase, Phase::Over) {
            failure.used = reading.draft.used(&self.request);
        }
        match self.next(&failure) {
            Next::Wait(wait) => Ok(self.wait(failure, wait)),
            Next::TooLong => {
                let asked = failure.asked.unwrap_or_default();
                let cap = self.inner.endpoint.retry.cap;
                failure.fault.message +=
                    &format!("; it asks to wait {}, the cap is {cap}", span(asked));
                Err(self.inner.error(failure, self.tries))
            }
            Next::Spent => Err(self.inner.error(failure, self.tries)),
        }
    }

    /// Decides what follows a try that failed.
    fn next(&self, failure: &Failure) -> Next {
        if !failure.fault.fault.is_retryable() {
            return Next::Spent;
        }
        let rng = &*self.inner.seams.rng;
        let policy = &self.inner.endpoint.retry;
        retry::next(policy, failure.after, self.tries, failure.asked, rng)
    }

    /// Waits before another try.
    fn wait(&mut self, failure: Failure, wait: Duration) -> ModelEvent {
        // A server of which only a recording is left needs no patience.
        let pause = if self.inner.tape.is_replay() { Duration::ZERO } else { wait };
        self.phase = Phase::Wait(Box::pin(tokio::time::sleep(pause)));
        let error = Box::new(self.inner.error(failure, self.tries));
        ModelEvent::Retrying { attempt: self.tries, wait, error }
    }
}

fn span(duration: Duration) -> formwork_protocols::Span {
    formwork_protocols::Span::from(duration)
}

fn cancelled() -> Failure {
    Failure::new(Fault::new(ProviderFault::Cancelled, "the call was cancelled"))
}

/// Sends the request and returns the answer that begins.
async fn open(inner: Arc<Inner>, outgoing: Arc<Outgoing>) -> Result<Answer, Failure> {
    let limit = inner.endpoint.clocks.first_token;
    let answer = tokio::time::timeout(limit.as_duration(), inner.send(&outgoing)).await.map_err(
        |_| {
            let message = format!("no answer within {limit}");
            Failure::new(Fault::new(ProviderFault::Timeout, message))
        },
    )??;
    if !answer.is_success() {
        return Err(inner.refusal(answer).await);
    }
    match inner.encoded(&answer) {
        Some(failure) => Err(failure),
        None => Ok(answer),
    }
}
