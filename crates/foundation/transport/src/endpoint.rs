//! Where a provider is reached and how patiently.

use std::{fmt, path::PathBuf, str::FromStr};

use formwork_protocols::{ProviderName, Span, text};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::Error;

/// What kind of server an endpoint is, and so which wire it speaks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProviderKind {
    /// OpenAI's own Chat Completions.
    #[serde(rename = "openai")]
    OpenAi,
    /// OpenAI's Responses, at OpenAI or at a server that follows it.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Anthropic's Messages, at Anthropic or at a server that follows it.
    Anthropic,
    /// Google's Gemini.
    Google,
    /// OpenRouter.
    #[serde(rename = "openrouter")]
    OpenRouter,
    /// Ollama.
    Ollama,
    /// vLLM.
    Vllm,
    /// llama.cpp's server.
    LlamaCpp,
    /// LM Studio.
    LmStudio,
    /// Any other server that speaks OpenAI's Chat Completions.
    #[serde(rename = "openai-compatible")]
    OpenAiCompatible,
    /// A script of turns, for tests, demos and benches; `base_url` is its path.
    Scripted,
    /// Recorded traffic of another provider; `base_url` is the folder of the recordings.
    Recorded,
}

impl ProviderKind {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::OpenAi,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Google,
        Self::OpenRouter,
        Self::Ollama,
        Self::Vllm,
        Self::LlamaCpp,
        Self::LmStudio,
        Self::OpenAiCompatible,
        Self::Scripted,
        Self::Recorded,
    ];

    /// Returns the kind's name, as configuration writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Google => "google",
            Self::OpenRouter => "openrouter",
            Self::Ollama => "ollama",
            Self::Vllm => "vllm",
            Self::LlamaCpp => "llama-cpp",
            Self::LmStudio => "lm-studio",
            Self::OpenAiCompatible => "openai-compatible",
            Self::Scripted => "scripted",
            Self::Recorded => "recorded",
        }
    }

    /// Tells whether such a server says of its models whether they take images.
    pub(crate) const fn tells_of_images(self) -> bool {
        matches!(self, Self::Ollama | Self::LlamaCpp | Self::LmStudio | Self::OpenRouter)
    }

    /// Returns where the provider itself answers; a server of one's own has no such place.
    pub const fn default_base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Google => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::OpenRouter => Some("https://openrouter.ai/api/v1"),
            Self::Ollama
            | Self::Vllm
            | Self::LlamaCpp
            | Self::LmStudio
            | Self::OpenAiCompatible
            | Self::Scripted
            | Self::Recorded => None,
        }
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ProviderKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| Error::UnknownKind {
            text: text.to_owned(),
            expected: Self::ALL.map(Self::as_str).join(", "),
        })
    }
}

/// How long each part of a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Clocks {
    /// From the first packet to an open connection.
    pub connect: Span,
    /// From the request to the first content; a cold local model may need minutes to load.
    pub first_token: Span,
    /// From content to more content. Comments and pings are none.
    pub progress: Span,
}

impl Default for Clocks {
    /// Five seconds to connect, ten minutes to the first token, two minutes between tokens.
    fn default() -> Self {
        Self {
            connect: Span::from_secs(5),
            first_token: Span::from_secs(600),
            progress: Span::from_secs(120),
        }
    }
}

/// How often a call is tried and how long it waits in between.
///
/// The wait before try `n + 1` is random between nothing and `base` doubled `n - 1` times, at most `cap` (full jitter);
/// what the provider asks for is its floor. A provider that asks for more than `cap` is not waited for: the call
/// fails at once, so that the caller can turn to another model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Tries altogether; 1 is no retry.
    pub tries: u32,
    /// The bound of the first wait.
    pub base: Span,
    /// The longest wait.
    pub cap: Span,
}

impl Default for RetryPolicy {
    /// Four tries, waits from one second to a minute.
    fn default() -> Self {
        Self { tries: 4, base: Span::from_secs(1), cap: Span::from_secs(60) }
    }
}

impl RetryPolicy {
    /// One try.
    pub const NONE: Self = Self { tries: 1, base: Span::ZERO, cap: Span::ZERO };
}

/// Where a provider is reached and how patiently.
#[derive(Clone)]
pub struct Endpoint {
    /// The name under which it is configured.
    pub name: ProviderName,
    /// What kind of server it is.
    pub kind: ProviderKind,
    /// Its base address, such as `http://127.0.0.1:8080/v1`; the `/v1` may be left out where it is the usual one.
    pub base_url: String,
    /// Its key, sent as the kind of server wants it.
    pub api_key: Option<SecretString>,
    /// Further headers of every request; their values are taken for secrets.
    pub headers: Vec<(String, SecretString)>,
    /// How long each part of a call may take.
    pub clocks: Clocks,
    /// How often it is tried.
    pub retry: RetryPolicy,
    /// The window that an Ollama server is asked to hold, in tokens; as large as each request needs where absent.
    pub context_tokens: Option<u64>,
    /// The folder, which is there, in which calls and their answers are recorded, without secrets.
    pub record: Option<PathBuf>,
}

/// What the wires add to a base address for a call.
const CALLS: [&str; 6] = [
    "/chat/completions",
    "/responses",
    "/messages",
    "/api/chat",
    ":streamGenerateContent",
    ":generateContent",
];

impl Endpoint {
    /// Makes an endpoint without a key, with default clocks and retries.
    pub fn new(name: ProviderName, kind: ProviderKind, base_url: impl Into<String>) -> Self {
        Self {
            name,
            kind,
            base_url: base_url.into(),
            api_key: None,
            headers: Vec::new(),
            clocks: Clocks::default(),
            retry: RetryPolicy::default(),
            context_tokens: None,
            record: None,
        }
    }

    /// Returns it with a key.
    #[must_use]
    pub fn with_api_key(mut self, key: SecretString) -> Self {
        self.api_key = Some(key);
        self
    }

    /// Tells whether it is on this machine.
    pub fn is_loopback(&self) -> bool {
        Url::parse(&self.base_url).is_ok_and(|url| match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        })
    }

    /// Parses the base address.
    ///
    /// # Errors
    /// [`Error::BaseUrl`] when it is none, is not HTTP, holds credentials, which belong into the key, or is the whole
    /// address of a call.
    pub(crate) fn url(&self) -> Result<Url, Error> {
        let wrong = |reason: &str| Error::BaseUrl {
            provider: self.name.clone(),
            text: text::address(&self.base_url).into_owned(),
            reason: reason.to_owned(),
        };
        if !self.base_url.contains("://") {
            return Err(wrong("it has no scheme; begin it with http:// or https://"));
        }
        let mut url = Url::parse(&self.base_url).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("expected http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it holds credentials, which belong into api_key"));
        }
        url.set_query(None);
        url.set_fragment(None);
        let path = url.path().trim_end_matches('/').to_owned();
        if let Some(call) = CALLS.iter().find(|call| path.ends_with(**call)) {
            return Err(wrong(&format!(
                "it ends with {call}, which is added to it; leave that out"
            )));
        }
        url.set_path(&path);
        Ok(url)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Endpoint")
            .field("name", &self.name.as_str())
            .field("kind", &self.kind)
            .field(
                "base_url",
                &self.base_url.rsplit_once('@').map_or(&*self.base_url, |(_, rest)| rest),
            )
            .field("has_api_key", &self.api_key.is_some())
            .field("headers", &headers)
            .field("clocks", &self.clocks)
            .field("retry", &self.retry)
            .field("context_tokens", &self.context_tokens)
            .field("record", &self.record)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint::new("local".parse().unwrap(), ProviderKind::OpenAiCompatible, url)
    }

    #[test]
    fn no_secret_is_in_its_debug_form() {
        let mut endpoint = endpoint("http://me:hunter2@127.0.0.1/v1").with_api_key("sk-1".into()); // formwork:allow password-in-url
        endpoint.headers.push(("x-token".to_owned(), "t0ken".into()));

        let text = format!("{endpoint:?} {:?}", endpoint.url());

        assert!(!["hunter2", "sk-1", "t0ken"].iter().any(|secret| text.contains(secret)), "{text}");
        assert!(text.contains("x-token"), "{text}");
    }

    #[test]
    fn an_address_that_is_none_says_what_is_wrong_and_what_to_write() {
        let told = |url: &str| endpoint(url).url().map_err(|error| error.to_string());
        for (url, reason) in [
            ("127.0.0.1:8080/v1", "it has no scheme; begin it with http:// or https://"),
            ("localhost:11434", "it has no scheme; begin it with http:// or https://"),
            ("", "it has no scheme; begin it with http:// or https://"),
            ("ftp://127.0.0.1/v1", "expected http:// or https://"),
            ("http://", "empty host"),
            (
                "http://127.0.0.1/v1/chat/completions/",
                "it ends with /chat/completions, which is added to it; leave that out",
            ),
            (
                "http://127.0.0.1/v1/messages",
                "it ends with /messages, which is added to it; leave that out",
            ),
        ] {
            let wanted = format!("provider local: {url:?} is not a base address: {reason}");
            assert_eq!(told(url), Err(wanted));
        }
        for url in ["http://127.0.0.1/v1", "http://127.0.0.1/v1/", "http://127.0.0.1/v1//?a=b#c"] {
            assert_eq!(told(url).unwrap().as_str(), "http://127.0.0.1/v1", "{url}");
        }
    }

    #[test]
    fn every_kind_survives_its_text_and_its_serde_form() {
        for kind in ProviderKind::ALL {
            assert_eq!(kind.as_str().parse::<ProviderKind>().unwrap(), kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!(
            "gpt".parse::<ProviderKind>().unwrap_err().to_string(),
            "\"gpt\" is not a kind of provider: expected one of openai, openai-responses, anthropic, google, \
             openrouter, ollama, vllm, llama-cpp, lm-studio, openai-compatible, scripted, recorded"
        );
    }

    #[test]
    fn loopback_is_told_by_the_address() {
        for url in ["http://127.0.0.1:1", "http://localhost:1/v1", "http://[::1]:1"] {
            assert!(endpoint(url).is_loopback(), "{url}");
        }
        for url in ["http://10.0.0.1", "https://api.openai.com/v1", "localhost:1"] {
            assert!(!endpoint(url).is_loopback(), "{url}");
        }
    }
}
