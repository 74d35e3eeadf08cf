//! What every wire has to say for itself.

use bytes::Bytes;
use formwork_protocols::{ModelRequest, ProviderFault};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use url::Url;

use crate::{
    anthropic,
    draft::Draft,
    endpoint::{Endpoint, ProviderKind},
    fault::Fault,
    google, ollama, openai_chat, openai_responses,
    shape::Shaped,
    tool_names::ToolNames,
    usage::Counts,
};

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
    pub(crate) names: ToolNames,
}

/// What one event of a stream was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The answer grew.
    Progress,
    /// The answer grew by words, and the same event with other words would do the same again and no more.
    Words,
    /// Nothing of the answer: a ping, or a frame without content.
    Nothing,
    /// It could not be read.
    Undecodable,
    /// The stream is over.
    End,
}

/// Tells whether data is the end marker of OpenAI's wires, which is no JSON.
#[inline]
pub(crate) fn is_done(data: &str) -> bool {
    !data.starts_with('{') && data.trim() == "[DONE]"
}

/// What each event of a wire counts anew.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) keys: &'static [&'static str],
    /// Reads the counts of an event.
    pub(crate) read: fn(&str) -> Option<Counts>,
}

/// Reads the events of one answer into a draft.
pub(crate) trait Reader: Send {
    /// Takes an event of a stream.
    ///
    /// # Errors
    /// When the server reports that it failed.
    fn event(&mut self, name: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault>;

    /// Takes an answer that came in one piece although a stream was asked for.
    ///
    /// # Errors
    /// When it is no answer, or the server reports that it failed.
    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault>;

    /// Names the keys that servers write into each event with another value, and that this wire reads at no place.
    fn unread(&self) -> &'static [&'static str] {
        &[]
    }

    /// Names the key under which a server counts its events, if it does.
    fn numbered(&self) -> Option<&'static str> {
        None
    }

    /// Names the keys under which each event counts the whole answer so far, so that only the last of them hold, and how
    /// they are read. No other key of the wire may have one of these names.
    fn counted(&self) -> Option<Counted> {
        None
    }
}

/// Builds the request for the endpoint's wire.
pub(crate) fn outgoing(
    endpoint: &Endpoint,
    base: &Url,
    request: &ModelRequest,
) -> Result<Outgoing, Fault> {
    match endpoint.kind {
        ProviderKind::Anthropic => anthropic::outgoing(endpoint, base, request),
        ProviderKind::OpenAiResponses => openai_responses::outgoing(endpoint, base, request),
        ProviderKind::Google => google::outgoing(endpoint, base, request),
        ProviderKind::Ollama => ollama::outgoing(endpoint, base, request),
        _ => openai_chat::outgoing(endpoint, base, request),
    }
}

/// Returns the headers by which the endpoint's server knows its caller.
///
/// # Errors
/// When the key cannot be a header.
pub(crate) fn auth(endpoint: &Endpoint) -> Result<Vec<(HeaderName, HeaderValue)>, Fault> {
    let mut headers = Vec::new();
    if endpoint.kind == ProviderKind::Anthropic {
        headers.push(anthropic::VERSION);
    }
    if let Some(key) = &endpoint.api_key {
        let key = key.expose_secret();
        let (name, value) = match endpoint.kind {
            ProviderKind::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
            ProviderKind::Google => (HeaderName::from_static("x-goog-api-key"), key.to_owned()),
            _ => (AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            let told = "it holds a line break or another character that no header may hold";
            Fault::new(ProviderFault::Auth, told)
        })?;
        value.set_sensitive(true);
        headers.push((name, value));
    }
    Ok(headers)
}

/// Makes the reader of the endpoint's wire.
pub(crate) fn reader(endpoint: &Endpoint) -> Shaped {
    Shaped::new(by_rules(endpoint.kind))
}

/// Makes a reader that reads each event by the rules of its wire.
pub(crate) fn by_rules(kind: ProviderKind) -> Box<dyn Reader> {
    match kind {
        ProviderKind::Anthropic => Box::new(anthropic::MessagesReader::default()),
        ProviderKind::OpenAiResponses => Box::new(openai_responses::ResponsesReader::default()),
        ProviderKind::Google => Box::new(google::GeminiReader::default()),
        ProviderKind::Ollama => Box::new(ollama::OllamaReader::default()),
        _ => Box::new(openai_chat::ChatReader),
    }
}

/// Returns `base` with `path` behind it.
pub(crate) fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url
}
