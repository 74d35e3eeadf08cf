//! One answer while it is read, with its clocks.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use formwork_protocols::{ModelEvent, ModelRequest, ProviderFault, model::ServedBy, text};
use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};
use reqwest::header::CONTENT_TYPE;
use tokio::time::{Instant, Sleep};

use super::{Failure, Inner, WHOLE_READ, tape::Answer, watch::Watch};
use crate::{
    draft::Draft,
    fault::{Fault, is_html},
    frames::Frames,
    limit,
    shape::Shaped,
    wire::{self, Heard},
};

/// The largest event that is read; an image in base64 fits.
const EVENT_LIMIT: usize = 32 * 1024 * 1024;

/// The bytes of a byte order mark.
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// What a compressed body begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(super) struct Reading {
    inner: Arc<Inner>,
    body: BoxStream<'static, Result<Bytes, String>>,
    framing: Framing,
    reader: Shaped,
    pub(super) draft: Draft,
    served_by: ServedBy,
    status: u16,
    begun: Instant,
    first_content: Option<Instant>,
    last_content: Instant,
    clock: Watch<Pin<Box<Sleep>>>,
    told_start: bool,
    over: bool,
    undecodable: u32,
    /// How many bytes of the body came.
    received: u64,
    /// Whether words of it were handed over.
    shown: bool,
}

/// How the body is cut into events.
enum Framing {
    Frames(Frames),
    /// One JSON document.
    Whole(Vec<u8>),
    /// To be told by the first bytes, for want of a content type.
    Unknown,
}

impl Reading {
    pub(super) fn new(
        inner: Arc<Inner>,
        answer: Answer,
        draft: Draft,
        served_by: ServedBy,
        begun: Instant,
    ) -> Self {
        let content_type = answer.headers.get(CONTENT_TYPE);
        let content_type = content_type.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let framing = match content_type.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Framing::Frames(Frames::events(EVENT_LIMIT)),
            "application/x-ndjson" => Framing::Frames(Frames::lines(EVENT_LIMIT)),
            "application/json" | "text/html" => Framing::Whole(Vec::new()),
            _ => Framing::Unknown,
        };
        let first_token = inner.endpoint.clocks.first_token.as_duration();
        Self {
            framing,
            reader: wire::reader(&inner.endpoint),
            draft,
            served_by,
            status: answer.status,
            begun,
            first_content: None,
            last_content: begun,
            clock: Watch::new(Box::pin(tokio::time::sleep_until(begun + first_token))),
            told_start: false,
            over: false,
            undecodable: 0,
            received: 0,
            shown: false,
            body: answer.body,
            inner,
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    pub(super) const fn undecodable(&self) -> u32 {
        self.undecodable
    }

    /// Tells whether words of it were handed over, which somebody may have read by now.
    pub(super) const fn is_shown(&self) -> bool {
        self.shown
    }

    pub(super) fn first_token(&self, begun: Instant) -> Option<Duration> {
        Some(self.first_content?.duration_since(begun))
    }

    pub(super) fn served_by(&self) -> ServedBy {
        let mut served_by = self.served_by.clone();
        if let Some(model) = &self.draft.model {
            served_by.model = self.inner.named(model);
        }
        let id = served_by.request_id.take().or_else(|| self.draft.id.clone());
        served_by.request_id = id.map(|id| self.inner.named(&id));
        served_by
    }

    pub(super) fn failure(&self, fault: Fault) -> Failure {
        Failure {
            status: Some(self.status),
            request_id: self.served_by().request_id,
            ..Failure::new(fault)
        }
    }

    /// Returns the next event that was read.
    pub(super) fn next_event(&mut self) -> Option<ModelEvent> {
        if !self.told_start && self.first_content.is_some() {
            self.told_start = true;
            return Some(ModelEvent::Started { served_by: self.served_by() });
        }
        if self.over {
            self.draft.flush();
        }
        let event = self.draft.pop_event();
        self.shown |= matches!(event, Some(ModelEvent::Text { .. } | ModelEvent::Reasoning { .. }));
        event
    }

    /// Reads what comes next, within the clocks.
    pub(super) fn poll_read(
        &mut self,
        request: &ModelRequest,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let chunk = match self.body.poll_next_unpin(context) {
            Poll::Ready(chunk) => chunk,
            Poll::Pending => return self.poll_clock(context),
        };
        Poll::Ready(match chunk {
            Some(Ok(bytes)) => {
                if self.received == 0 && bytes.starts_with(&GZIP) {
                    let message = "the answer is compressed and does not say so";
                    let fault = Fault::new(ProviderFault::Protocol, message);
                    return Poll::Ready(Err(self.failure(fault)));
                }
                let room = limit::room(self.received, bytes.len(), request);
                self.received = self.received.saturating_add(bytes.len() as u64);
                let taken = self.take(bytes.get(..room).unwrap_or_default(), request);
                match taken {
                    Ok(()) if room == bytes.len() || self.over => Ok(()),
                    // What comes behind the end of an answer is no part of it.
                    Ok(()) if self.draft.stop.is_some() => {
                        self.over = true;
                        Ok(())
                    }
                    Ok(()) => Err(self.failure(limit::passed(request))),
                    Err(failure) => Err(failure),
                }
            }
            // What was cut off after the answer had ended was not part of it.
            Some(Err(_)) if self.draft.stop.is_some() => {
                self.over = true;
                Ok(())
            }
            Some(Err(error)) => Err(self.failure(Fault::new(
                ProviderFault::Transport,
                format!("the connection was cut in the middle of the answer: {error}"),
            ))),
            None => self.end(request),
        })
    }

    fn poll_clock(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            if !self.clock.get().is_elapsed() {
                ready!(self.clock.poll(context));
            }
            // It is not set anew with each chunk, only looked at when it rings.
            let due = self.due();
            if Instant::now() >= due {
                return Poll::Ready(self.run_out());
            }
            self.clock.get_mut().as_mut().reset(due);
        }
    }

    fn due(&self) -> Instant {
        let clocks = &self.inner.endpoint.clocks;
        match self.first_content {
            None => self.begun + clocks.first_token.as_duration(),
            Some(_) => self.last_content + clocks.progress.as_duration(),
        }
    }

    fn run_out(&mut self) -> Result<(), Failure> {
        if self.draft.stop.is_some() {
            self.over = true; // The answer has ended; only the connection has not.
            return Ok(());
        }
        let clocks = &self.inner.endpoint.clocks;
        let message = match self.first_content {
            None => format!("no content came within {}", clocks.first_token),
            Some(_) => format!("the answer stalled: no content came for {}", clocks.progress),
        };
        Err(self.failure(Fault::new(ProviderFault::Timeout, message)))
    }

    fn take(&mut self, mut bytes: &[u8], request: &ModelRequest) -> Result<(), Failure> {
        if matches!(self.framing, Framing::Unknown) {
            let blank = |byte: &u8| byte.is_ascii_whitespace() || BOM.contains(byte);
            let first = bytes.iter().position(|byte| !blank(byte));
            // What stands before is no part of an answer, and may have come alone.
            bytes = first.and_then(|at| bytes.get(at..)).unwrap_or_default();
            self.framing = match bytes.first() {
                None => return Ok(()),
                Some(b'{' | b'[' | b'<') => Framing::Whole(Vec::new()),
                Some(_) => Framing::Frames(Frames::events(EVENT_LIMIT)),
            };
        }
        match &mut self.framing {
            Framing::Whole(body) => {
                body.extend_from_slice(bytes);
                if body.len() > WHOLE_READ {
                    let message = format!("the answer has more than {WHOLE_READ} bytes");
                    return Err(self.failure(Fault::new(ProviderFault::Protocol, message)));
                }
                return Ok(());
            }
            Framing::Frames(frames) => frames.push(bytes),
            Framing::Unknown => {}
        }
        self.take_events(request)
    }

    fn take_events(&mut self, request: &ModelRequest) -> Result<(), Failure> {
        let Framing::Frames(frames) = &mut self.framing else { return Ok(()) };
        let mut progressed = false;
        let mut outcome = Ok(());
        loop {
            let event = match frames.next() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(Fault::new(ProviderFault::Protocol, error.to_string()));
                    break;
                }
            };
            match self.reader.event(&event.name, &event.data, &mut self.draft) {
                Ok(Heard::Progress | Heard::Words) => progressed = true,
                Ok(Heard::Nothing) => {}
                Ok(Heard::End) => {
                    self.over = true;
                    break;
                }
                Ok(Heard::Undecodable) => {
                    self.undecodable = self.undecodable.saturating_add(1);
                    let event = self.inner.scrub(text::head(&event.data, 1_024));
                    tracing::warn!(provider = %self.served_by.provider, event, "an event could not be read");
                }
                Err(fault) => {
                    outcome = Err(fault);
                    break;
                }
            }
            outcome = limit::overrun(&mut self.draft, request);
            if outcome.is_err() {
                break;
            }
        }
        // The event with which it ends may be the one with which it goes too far.
        let outcome = outcome.and_then(|()| limit::overrun(&mut self.draft, request));
        if progressed {
            self.last_content = Instant::now();
            if self.first_content.is_none() {
                self.first_content = Some(self.last_content);
                // The alarm of the first token may lie far behind that of the next.
                let due = self.due();
                self.clock.get_mut().as_mut().reset(due);
            }
        }
        if self.over {
            // Where the end of the body is there already, the connection can be used again.
            let _ = self.body.next().now_or_never();
        }
        outcome.map_err(|fault| self.failure(fault))
    }

    /// Takes the end of the body.
    fn end(&mut self, request: &ModelRequest) -> Result<(), Failure> {
        if let Framing::Frames(frames) = &mut self.framing {
            frames.finish();
            self.take_events(request)?;
        }
        self.over = true;
        let body = match std::mem::replace(&mut self.framing, Framing::Unknown) {
            Framing::Whole(body) => body,
            Framing::Unknown => Vec::new(),
            // Whether the answer was whole is for the draft to say.
            Framing::Frames(_) => return Ok(()),
        };
        let body = String::from_utf8_lossy(&body);
        let fault = if body.trim().is_empty() {
            Some(Fault::new(ProviderFault::Protocol, "the answer is empty"))
        } else if is_html(&body) {
            let page = Fault::of_answer(Some(200), &body);
            let message = format!(
                "{}: base_url of provider {} may lead to a website and not to its API",
                page.message, self.inner.endpoint.name
            );
            Some(Fault { fault: ProviderFault::Protocol, message, ..page })
        } else {
            let read = self.reader.whole(&body, &mut self.draft);
            read.and_then(|()| limit::overrun(&mut self.draft, request)).err()
        };
        if let Some(fault) = fault {
            return Err(self.failure(fault));
        }
        self.last_content = Instant::now();
        self.first_content.get_or_insert(self.last_content);
        Ok(())
    }
}
