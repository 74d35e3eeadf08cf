//! An answer from the bytes of its body, without HTTP; usable alone.
//!
//! [`Client`](crate::Client) reads what its own connection brings. An answer that comes another way, such as through
//! a queue, from a file or from an HTTP library of one's own, is read here, with the same rules for every wire:
//!
//! ```
//! use formwork_protocols::{Message, ModelEvent, ModelRequest, Role};
//! use formwork_transport::{Endpoint, ProviderKind, decode::Answer};
//!
//! let endpoint = Endpoint::new("local".parse()?, ProviderKind::Ollama, "http://127.0.0.1:11434");
//! let request = ModelRequest::new("m".parse()?, vec![Message::text(Role::User, "Hello?")]);
//! let mut answer = Answer::new(&endpoint, request);
//! let mut text = String::new();
//! for bytes in [
//!     &br#"{"model":"m","message":{"role":"assistant","content":"Hel"#[..],
//!     b"lo.\"},\"done\":false}\n",
//!     br#"{"model":"m","message":{"content":""},"done":true,"done_reason":"stop","eval_count":2}"#,
//! ] {
//!     answer.push(bytes)?;
//!     while let Some(event) = answer.next_event() {
//!         if let ModelEvent::Text { text: more } = event {
//!             text += &more;
//!         }
//!     }
//! }
//! let completion = answer.finish()?;
//!
//! assert_eq!(text, "Hello.");
//! assert_eq!(completion.message.to_text(), text);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{fmt, time::Duration};

use formwork_protocols::{
    Completion, ModelEvent, ModelRequest, ProviderError, ProviderFault, message::Provenance,
    model::ServedBy,
};

use crate::{
    Endpoint, ProviderKind,
    draft::Draft,
    fault::Fault,
    frames::Frames,
    limit,
    shape::Shaped,
    tool_names::ToolNames,
    wire::{self, Heard},
};

/// The largest event that is read; an image in base64 fits.
const EVENT_LIMIT: usize = 32 * 1024 * 1024;

/// One answer while it is read: server-sent events, or lines of JSON from Ollama's own wire.
///
/// It has no clock and makes no second try, so its [`Completion`] tells of neither. The message of an error is in
/// the server's words as they came; whoever has secrets takes them out.
pub struct Answer {
    request: ModelRequest,
    served_by: ServedBy,
    frames: Frames,
    reader: Shaped,
    draft: Draft,
    undecodable: u32,
    received: u64,
    is_over: bool,
}

impl Answer {
    /// Begins to read the answer of that kind of server to `request`. The endpoint is named in what comes of it, and not
    /// reached.
    pub fn new(endpoint: &Endpoint, request: ModelRequest) -> Self {
        let frames = match endpoint.kind {
            ProviderKind::Ollama => Frames::lines(EVENT_LIMIT),
            _ => Frames::events(EVENT_LIMIT),
        };
        // An address that does not parse may hold credentials, and must not be told.
        let label = endpoint.url().map(|url| url.as_str().trim_end_matches('/').to_owned());
        let served_by = ServedBy {
            provider: endpoint.name.clone(),
            endpoint: label.unwrap_or_default(),
            model: request.model.as_str().to_owned(),
            request_id: None,
        };
        let draft = Draft::new(&request, ToolNames::new(&request.tools));
        let reader = wire::reader(endpoint);
        let (undecodable, received, is_over) = (0, 0, false);
        Self { request, served_by, frames, reader, draft, undecodable, received, is_over }
    }

    /// Takes the next bytes of the body, cut anywhere. What follows the end of the answer is passed over.
    ///
    /// # Errors
    /// When the server reports that it failed, an event is too long, or the answer has no end; it cannot be read on.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        if self.is_over {
            return Ok(());
        }
        let room = limit::room(self.received, bytes.len(), &self.request);
        self.received = self.received.saturating_add(bytes.len() as u64);
        self.take(bytes.get(..room).unwrap_or_default())?;
        if room == bytes.len() || self.is_over {
            return Ok(());
        }
        // What comes behind the end of an answer is no part of it.
        self.is_over = self.draft.stop.is_some();
        if !self.is_over {
            let fault = limit::passed(&self.request);
            return Err(self.error(fault));
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        self.frames.push(bytes);
        if self.frames.is_waiting() { Ok(()) } else { self.read() }
    }

    /// Returns the next event that is there. Of tool calls none is to be executed before [`finish`](Self::finish).
    #[inline]
    pub fn next_event(&mut self) -> Option<ModelEvent> {
        self.draft.pop_event()
    }

    /// Takes the end of the body and returns the answer. Events that were not asked for are in it all the same.
    ///
    /// # Errors
    /// When the body ended before the answer did, and when the answer is empty.
    pub fn finish(mut self) -> Result<Completion, ProviderError> {
        if !self.is_over {
            self.frames.finish();
            self.read()?;
        }
        let provenance = Provenance {
            provider: self.served_by.provider.clone(),
            model: self.request.model.clone(),
        };
        let finished = self.draft.finish(&self.request, &provenance);
        let finished = finished.map_err(|fault| self.error(fault))?;
        Ok(Completion {
            message: finished.message,
            stop: finished.stop,
            usage: finished.usage,
            usage_estimated: finished.usage_estimated,
            usage_doubted: finished.usage_doubted,
            served_by: self.told(),
            first_token: None,
            elapsed: Duration::ZERO,
            tries: 1,
            undecodable: self.undecodable,
            lost: None,
        })
    }

    fn read(&mut self) -> Result<(), ProviderError> {
        loop {
            let event = match self.frames.next() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let fault = Fault::new(ProviderFault::Protocol, error.to_string());
                    return Err(self.error(fault));
                }
            };
            match self.reader.event(&event.name, &event.data, &mut self.draft) {
                Ok(Heard::Progress | Heard::Words | Heard::Nothing) => {}
                Ok(Heard::Undecodable) => self.undecodable = self.undecodable.saturating_add(1),
                Ok(Heard::End) => self.is_over = true,
                Err(fault) => return Err(self.error(fault)),
            }
            if let Err(fault) = limit::overrun(&mut self.draft, &self.request) {
                return Err(self.error(fault));
            }
            if self.is_over {
                return Ok(());
            }
        }
    }

    fn told(&self) -> ServedBy {
        let mut served_by = self.served_by.clone();
        if let Some(model) = &self.draft.model {
            served_by.model.clone_from(model);
        }
        served_by.request_id.clone_from(&self.draft.id);
        served_by
    }

    fn error(&mut self, fault: Fault) -> ProviderError {
        let used = self.draft.used(&self.request).map(Box::new);
        ProviderError {
            used,
            fault: fault.fault,
            message: fault.message,
            provider: self.served_by.provider.clone(),
            endpoint: self.served_by.endpoint.clone(),
            status: None,
            code: fault.code,
            request_id: self.draft.id.clone(),
            body: None,
            retry_after: None,
            tries: 1,
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("served_by", &self.served_by).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay;

    const CAPTURED: [(ProviderKind, &str); 5] = [
        (
            ProviderKind::Anthropic,
            include_str!("../tests/wire/aimock/messages.toolresult.stream.sse"),
        ),
        (ProviderKind::OpenAi, include_str!("../tests/wire/llama.cpp/chat.tools.stream.sse")),
        (
            ProviderKind::OpenAiResponses,
            include_str!("../tests/wire/aimock/responses.tools.stream.sse"),
        ),
        (ProviderKind::Google, include_str!("../tests/wire/google/tools.stream.sse")),
        (ProviderKind::Ollama, include_str!("../tests/wire/aimock/ollama.tools.stream.ndjson")),
    ];

    #[test]
    fn a_captured_answer_is_read_from_its_bytes_as_the_client_reads_it() {
        for (kind, body) in CAPTURED {
            let mut answer = Answer::new(&replay::endpoint(kind), replay::request());
            let mut events = Vec::new();
            for bytes in body.as_bytes().chunks(7) {
                answer.push(bytes).unwrap();
                events.extend(std::iter::from_fn(|| answer.next_event()));
            }
            let completion = answer.finish().unwrap();

            let wanted = replay::stream(kind, [body.as_bytes()]);
            assert_eq!(events, wanted.events, "{kind}");
            assert_eq!(completion.message, wanted.finished().message, "{kind}");
            assert_eq!(completion.usage, wanted.finished().usage, "{kind}");
            assert!(completion.elapsed.is_zero() && completion.undecodable == 0, "{kind}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_is_none_and_no_credentials_are_told() {
        let mut endpoint = replay::endpoint(ProviderKind::OpenAi);
        endpoint.base_url = "http://me:hunter2@127.0.0.1/v1".to_owned(); // formwork:allow password-in-url
        let mut answer = Answer::new(&endpoint, replay::request());
        let chunk = br#"data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}"#;
        answer.push(&[&chunk[..], b"\n\n"].concat()).unwrap();

        let error = answer.finish().unwrap_err();

        assert_eq!(error.fault, ProviderFault::Transport);
        assert_eq!(
            error.to_string(),
            "provider there: the stream ended before the answer was whole"
        );
    }
}
