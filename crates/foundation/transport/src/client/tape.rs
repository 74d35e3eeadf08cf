//! Where answers come from and where they are kept: the network, or recordings of it.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use formwork_protocols::ProviderFault;
use futures::{Stream, StreamExt as _, stream, stream::BoxStream};
use reqwest::header::HeaderMap;

use super::{Failure, Inner, root_cause};
use crate::{
    cassette::{
        Answered, Asked, Cassette, End, VERSION, headers, kept, scrubbed, scrubbed_value,
        without_tail,
    },
    fault::Fault,
    recorded::Deck,
    wire::Outgoing,
};

/// What is done with the traffic of calls.
pub(crate) enum Tape {
    /// It goes over the network.
    Off,
    /// The same, and is kept in this folder.
    Record(PathBuf),
    /// It is taken from recordings.
    Replay(Deck),
}

impl Tape {
    pub(crate) const fn is_replay(&self) -> bool {
        matches!(self, Self::Replay(_))
    }
}

/// An answer whose body is still to come; an error is why it was cut.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: BoxStream<'static, Result<Bytes, String>>,
}

impl Answer {
    pub(crate) const fn is_success(&self) -> bool {
        self.status / 100 == 2
    }
}

impl From<reqwest::Response> for Answer {
    fn from(response: reqwest::Response) -> Self {
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response
                .bytes_stream()
                .map(|chunk| chunk.map_err(|error| root_cause(&error)))
                .boxed(),
        }
    }
}

impl Inner {
    /// Sends a request and returns the answer that begins, from the network or a recording.
    pub(super) async fn send(self: &Arc<Self>, outgoing: &Outgoing) -> Result<Answer, Failure> {
        if let Tape::Replay(deck) = &self.tape {
            let played = deck.play(&self.asked(outgoing)?).map_err(Failure::new)?;
            return Ok(replayed(&played.answer));
        }
        let mut sending = self
            .http
            .post(outgoing.url.clone())
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .header(reqwest::header::ACCEPT, "text/event-stream, application/json")
            .body(outgoing.body.clone());
        for (name, value) in &outgoing.headers {
            sending = sending.header(name, value);
        }
        let answer: Answer = sending.send().await.map_err(|error| self.unreachable(&error))?.into();
        let Tape::Record(folder) = &self.tape else { return Ok(answer) };
        let recording = Recording {
            inner: Arc::clone(self),
            folder: folder.clone(),
            request: Some(self.asked(outgoing)?),
            status: answer.status,
            headers: kept(&answer.headers, |text| self.scrub(text)),
            chunks: Vec::new(),
            body: answer.body,
        };
        Ok(Answer { body: recording.boxed(), ..answer })
    }

    /// Returns what a request is known by in recordings.
    fn asked(&self, outgoing: &Outgoing) -> Result<Asked, Failure> {
        let scrub = |text: &str| self.scrub(text);
        let body = serde_json::from_slice(&outgoing.body).map_err(|error| {
            let message = format!("the request cannot be recorded: {error}");
            Failure::new(Fault::new(ProviderFault::Invalid, message))
        })?;
        let query = outgoing.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = scrub(&format!("{}{query}", outgoing.url.path()));
        Ok(Asked { path, body: without_tail(scrubbed_value(body, &scrub)) })
    }
}

fn replayed(answer: &Answered) -> Answer {
    // A chunk that is not base64 was refused when it was read.
    let chunks = answer.chunks.iter().filter_map(|chunk| chunk.bytes().ok());
    let end = match &answer.end {
        End::Whole => None,
        End::Cut(reason) => Some(Err(reason.clone())),
        End::Left => Some(Err("the recording ends here".to_owned())),
    };
    let items: Vec<_> = chunks.map(Ok).chain(end).collect();
    Answer {
        status: answer.status,
        headers: headers(&answer.headers),
        body: stream::iter(items).boxed(),
    }
}

/// A body that is kept while it is read, and written when it ends or is dropped.
struct Recording {
    inner: Arc<Inner>,
    folder: PathBuf,
    /// Nothing once it is written.
    request: Option<Asked>,
    status: u16,
    headers: Vec<(String, String)>,
    chunks: Vec<Bytes>,
    body: BoxStream<'static, Result<Bytes, String>>,
}

impl Recording {
    fn write(&mut self, end: End) -> Result<(), String> {
        let Some(request) = self.request.take() else { return Ok(()) };
        let scrub = |text: &str| self.inner.scrub(text);
        let cassette = Cassette {
            format_version: VERSION,
            provider: self.inner.endpoint.name.clone(),
            kind: self.inner.endpoint.kind,
            endpoint: scrub(&self.inner.label()),
            request,
            answer: Answered {
                status: self.status,
                headers: std::mem::take(&mut self.headers),
                chunks: scrubbed(&std::mem::take(&mut self.chunks), scrub),
                end,
            },
        };
        let written = cassette.write(&self.folder);
        written.map_err(|error| {
            format!("the answer could not be recorded in {}: {error}", self.folder.display())
        })
    }
}

impl Stream for Recording {
    type Item = Result<Bytes, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(self.body.poll_next_unpin(context));
        let written = match &next {
            Some(Ok(bytes)) => {
                self.chunks.push(bytes.clone());
                Ok(())
            }
            Some(Err(reason)) => {
                let reason = self.inner.scrub(reason);
                self.write(End::Cut(reason))
            }
            None => self.write(End::Whole),
        };
        // A recording that is not there must not be taken for one.
        Poll::Ready(written.map_or_else(|reason| Some(Err(reason)), |()| next))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Err(reason) = self.write(End::Left) {
            tracing::warn!(provider = %self.inner.endpoint.name, reason, "a recording is missing");
        }
    }
}
