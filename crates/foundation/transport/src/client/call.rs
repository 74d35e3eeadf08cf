//! One call: tries, and the waits between them.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use formwork_protocols::{
    Cancel, Completion, ModelEvent, ModelRequest, ProviderError, ProviderFault,
    message::Provenance, model::ServedBy,
};
use futures::{Stream, stream};
use tokio::time::{Instant, Sleep};

use super::{Failure, Inner, reading::Reading};
use crate::{
    draft::Draft,
    fault::Fault,
    retry::{self, Next},
    wire::{self, Outgoing},
};

/// One call. Dropping it closes its connection.
pub(super) struct Call {
    inner: Arc<Inner>,
    request: ModelRequest,
    /// Built by the first try and sent again by the others.
    outgoing: Option<Outgoing>,
    /// Made once: to make it anew for each chunk would cost more than to read the chunk.
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
    phase: Phase,
    tries: u32,
    begun: Instant,
}

enum Phase {
    Try,
    Read(Box<Reading>),
    Wait(Pin<Box<Sleep>>),
    Over,
}

type Item = Result<ModelEvent, ProviderError>;

impl Call {
    pub(super) fn new(inner: Arc<Inner>, request: ModelRequest, cancel: Cancel) -> Self {
        Self {
            inner,
            request,
            outgoing: None,
            cancelled: Box::pin(async move { cancel.cancelled().await }),
            phase: Phase::Try,
            tries: 0,
            begun: Instant::now(),
        }
    }

    pub(super) fn into_stream(mut self) -> impl Stream<Item = Item> + Send {
        // The clock of the call starts when somebody listens, not when the stream is made.
        self.begun = Instant::now();
        stream::unfold(Box::new(self), |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        })
    }

    async fn next(&mut self) -> Option<Item> {
        loop {
            let outcome = match &mut self.phase {
                Phase::Over => return None,
                Phase::Try => {
                    self.tries += 1;
                    if self.tries == 1 {
                        self.begun = Instant::now();
                    }
                    let opening = open(&self.inner, &self.request, &mut self.outgoing);
                    let opened = tokio::select! {
                        biased; // A cancelled call must not send its request.
                        () = &mut self.cancelled => Err(cancelled()),
                        opened = opening => opened,
                    };
                    opened.map(|reading| self.phase = Phase::Read(Box::new(reading)))
                }
                Phase::Wait(sleep) => {
                    let waited = tokio::select! {
                        biased;
                        () = &mut self.cancelled => Err(cancelled()),
                        () = sleep => Ok(()),
                    };
                    waited.map(|()| self.phase = Phase::Try)
                }
                Phase::Read(reading) => {
                    if let Some(event) = reading.next_event() {
                        return Some(Ok(event));
                    }
                    if reading.is_over() {
                        return Some(self.end());
                    }
                    tokio::select! {
                        biased;
                        () = &mut self.cancelled => Err(cancelled()),
                        read = reading.read() => read,
                    }
                }
            };
            if let Err(failure) = outcome {
                return Some(self.fail(failure));
            }
        }
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
                let failure = reading.failure(fault);
                self.fail(failure)
            }
            Ok(finished) => {
                let completion = Completion {
                    message: finished.message,
                    stop: finished.stop,
                    usage: finished.usage,
                    usage_estimated: finished.usage_estimated,
                    served_by: reading.served_by(),
                    first_token: reading.first_token(self.begun),
                    elapsed: self.begun.elapsed(),
                    tries: self.tries,
                    undecodable: reading.undecodable(),
                };
                Ok(ModelEvent::Done(Box::new(completion)))
            }
        }
    }

    /// Ends the try: with a wait before another, or with an error.
    fn fail(&mut self, mut failure: Failure) -> Item {
        self.phase = Phase::Over; // Whatever was open is closed before anything else.
        let asked = failure.asked;
        let next = if failure.fault.fault.is_retryable() {
            let rng = &*self.inner.seams.rng;
            retry::next(&self.inner.endpoint.retry, failure.after, self.tries, asked, rng)
        } else {
            Next::Spent
        };
        match next {
            Next::Wait(wait) => {
                // A server of which only a recording is left needs no patience.
                let pause = if self.inner.tape.is_replay() { Duration::ZERO } else { wait };
                self.phase = Phase::Wait(Box::pin(tokio::time::sleep(pause)));
                let error = self.inner.error(failure, self.tries);
                Ok(ModelEvent::Retrying { attempt: self.tries, wait, error })
            }
            Next::TooLong => {
                let (asked, cap) = (asked.unwrap_or_default(), self.inner.endpoint.retry.cap);
                failure.fault.message +=
                    &format!("; it asks to wait {}, the cap is {cap}", span(asked));
                Err(self.inner.error(failure, self.tries))
            }
            Next::Spent => Err(self.inner.error(failure, self.tries)),
        }
    }
}

fn span(duration: Duration) -> formwork_protocols::Span {
    formwork_protocols::Span::from(duration)
}

fn cancelled() -> Failure {
    Failure::new(Fault::new(ProviderFault::Cancelled, "the call was cancelled"))
}

/// Sends the request and returns the answer that begins.
async fn open(
    inner: &Arc<Inner>,
    request: &ModelRequest,
    outgoing: &mut Option<Outgoing>,
) -> Result<Reading, Failure> {
    let begun = Instant::now();
    let outgoing = match outgoing {
        Some(outgoing) => outgoing,
        empty => empty
            .insert(wire::outgoing(&inner.endpoint, &inner.base, request).map_err(Failure::new)?),
    };
    let limit = inner.endpoint.clocks.first_token;
    let answer =
        tokio::time::timeout(limit.as_duration(), inner.send(outgoing)).await.map_err(|_| {
            let message = format!("no answer within {limit}");
            Failure::new(Fault::new(ProviderFault::Timeout, message))
        })??;
    if !answer.is_success() {
        return Err(inner.refusal(answer).await);
    }
    let draft = Draft::new(request, outgoing.names.clone());
    let served_by = ServedBy {
        provider: inner.endpoint.name.clone(),
        endpoint: inner.label(),
        model: request.model.as_str().to_owned(),
        request_id: super::request_id(&answer.headers),
    };
    Ok(Reading::new(Arc::clone(inner), answer, draft, served_by, begun))
}
