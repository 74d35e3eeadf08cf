//! A provider behind HTTP: one owner of clocks, retries and errors around every wire.

mod call;
pub(crate) mod ollama;
mod reading;
pub(crate) mod tape;
mod watch;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Once},
    time::Duration,
};

use async_trait::async_trait;
use formwork_protocols::{
    Attachment, Cancel, ModelName, ModelRequest, Provider, ProviderError, ProviderFault,
    ProviderName, Span,
    model::{ModelStream, Used},
    text,
};
use futures::StreamExt as _;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use url::Url;

use crate::{Endpoint, Error, ProviderKind, Seams, fault::Fault, google, media, retry, wire};
use call::Call;
use tape::{Answer, Tape};

/// The most of an answer's body that an error keeps, in bytes.
const ERROR_BODY: usize = 4 * 1024;

/// The most of it that is read.
const ERROR_READ: usize = 64 * 1024;
/// How many bytes are kept of what a server calls a request or a model.
const NAMED: usize = 256;
/// How long the body of an error may take.
const ERROR_TIME: Duration = Duration::from_secs(10);
/// How long a question about models may take.
pub(crate) const INFO_TIME: Duration = Duration::from_secs(10);
/// The most of a whole answer that is read.
const WHOLE_READ: usize = 32 * 1024 * 1024;

/// A provider behind HTTP. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    endpoint: Endpoint,
    base: Url,
    http: reqwest::Client,
    seams: Seams,
    tape: Tape,
    /// What the server told of its models: whether they take images.
    images: tokio::sync::Mutex<HashMap<ModelName, Option<bool>>>,
}

/// A try that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    fault: Fault,
    status: Option<u16>,
    request_id: Option<String>,
    asked: Option<Duration>,
    after: retry::After,
    /// What it used all the same.
    used: Option<Used>,
}

impl Failure {
    fn new(fault: Fault) -> Self {
        let after = match fault.fault {
            ProviderFault::Protocol => retry::After::Unusable,
            _ => retry::After::Failure,
        };
        Self { fault, status: None, request_id: None, asked: None, after, used: None }
    }
}

impl Client {
    /// Makes a client. Nothing is sent before the first call.
    ///
    /// # Errors
    /// [`Error::BaseUrl`], [`Error::Header`] and [`Error::ApiKey`] when the endpoint cannot be used as it is configured,
    /// [`Error::HttpClient`] when the machine's certificates cannot be read.
    pub fn new(endpoint: Endpoint, seams: Seams) -> Result<Self, Error> {
        let tape = endpoint.record.clone().map_or(Tape::Off, Tape::Record);
        Self::with_tape(endpoint, seams, tape)
    }

    pub(crate) fn with_tape(endpoint: Endpoint, seams: Seams, tape: Tape) -> Result<Self, Error> {
        let base = endpoint.url()?;
        wire::auth(&endpoint).map_err(|fault| Error::ApiKey {
            provider: endpoint.name.clone(),
            reason: fault.message,
        })?;
        install_crypto();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("formwork/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(endpoint.clocks.connect.as_duration())
            // A redirect would carry the conversation to a server that nobody configured.
            .redirect(reqwest::redirect::Policy::none())
            // Retries have one owner, and it is not the HTTP library.
            .retry(reqwest::retry::never())
            .default_headers(headers(&endpoint)?);
        if base.scheme() == "http" || tape.is_replay() {
            builder = builder.tls_certs_only([]); // Reading the machine's certificates takes longer than a call.
        }
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| Error::HttpClient {
            provider: endpoint.name.clone(),
            reason: root_cause(&error),
        })?;
        Ok(Self {
            inner: Arc::new(Inner {
                endpoint,
                base,
                http,
                seams,
                tape,
                images: Default::default(),
            }),
        })
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    pub(crate) fn base(&self) -> &Url {
        &self.inner.base
    }

    /// Asks for `url` once, without retries, and returns the JSON that it answers.
    pub(crate) async fn get(&self, url: Url) -> Result<Value, ProviderError> {
        self.get_within(url, INFO_TIME).await
    }

    /// The same, within another time.
    pub(crate) async fn get_within(
        &self,
        url: Url,
        limit: Duration,
    ) -> Result<Value, ProviderError> {
        self.ask(self.inner.http.get(url), limit).await
    }

    /// Sends a request once, without retries, and returns the JSON that the server answers.
    async fn ask(
        &self,
        mut request: reqwest::RequestBuilder,
        limit: Duration,
    ) -> Result<Value, ProviderError> {
        let inner = &self.inner;
        let asking = async {
            for (name, value) in wire::auth(&inner.endpoint).map_err(Failure::new)? {
                request = request.header(name, value);
            }
            let answer: Answer =
                request.send().await.map_err(|error| inner.unreachable(&error))?.into();
            if !answer.is_success() {
                return Err(inner.refusal(answer).await);
            }
            if let Some(failure) = inner.encoded(&answer) {
                return Err(failure);
            }
            let status = Some(answer.status);
            let body = read(answer, WHOLE_READ).await;
            serde_json::from_str(&body).map_err(|_| {
                let message = "the server did not answer with JSON";
                let fault = Fault::new(ProviderFault::Protocol, message).with_body(&body);
                Failure { status, ..Failure::new(fault) }
            })
        };
        let answer = tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| {
            Err(Failure::new(Fault::new(
                ProviderFault::Timeout,
                format!("the server did not answer within {}", Span::from(limit)),
            )))
        });
        answer.map_err(|failure| inner.error(failure, 1))
    }
}

#[async_trait]
impl Provider for Client {
    fn name(&self) -> &ProviderName {
        &self.inner.endpoint.name
    }

    /// Asks the server for it once, where it is of a kind that tells.
    async fn takes_images(&self, model: &ModelName) -> Option<bool> {
        if self.inner.tape.is_replay() || !self.endpoint().kind.tells_of_images() {
            return None;
        }
        let mut asked = self.inner.images.lock().await;
        if let Some(known) = asked.get(model) {
            return *known;
        }
        // A server that does not answer says so to the request itself.
        let told = match self.endpoint().kind {
            ProviderKind::Ollama => self.ollama_show(model).await.ok(),
            _ => self.inspect_model(model).await.ok().flatten(),
        };
        let told = told.and_then(|told| told.images);
        asked.insert(model.clone(), told);
        told
    }

    fn refuses(&self, attachment: &Attachment) -> Option<String> {
        media::allows(self.endpoint().kind, attachment).err().map(|unfit| unfit.to_string())
    }

    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream {
        Box::pin(Call::new(Arc::clone(&self.inner), request, cancel))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.inner.endpoint).finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns the address as it is shown.
    fn label(&self) -> String {
        if let Tape::Replay(deck) = &self.tape {
            return deck.label();
        }
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// Takes the endpoint's own secrets and all known ones out of a text.
    fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let own = self.endpoint.api_key.iter().map(|key| ("[api key]", key));
        let headers = self.endpoint.headers.iter().map(|(_, value)| ("[header]", value));
        for (name, secret) in own.chain(headers) {
            let secret = secret.expose_secret();
            if !secret.is_empty() {
                text = text.replace(secret, name);
            }
        }
        self.seams.scrub.scrub_text(&text).into_owned()
    }

    /// Returns a name that a server gave something: without secrets, and no longer than names are.
    fn named(&self, name: &str) -> String {
        text::head(&self.scrub(name), NAMED).to_owned()
    }

    fn error(&self, failure: Failure, tries: u32) -> ProviderError {
        ProviderError {
            fault: failure.fault.fault,
            message: self.scrub(&failure.fault.message),
            provider: self.endpoint.name.clone(),
            endpoint: self.label(),
            status: failure.status,
            code: failure.fault.code.map(|code| self.scrub(&code)),
            request_id: failure.request_id.map(|id| self.named(&id)),
            // Scrubbed before it is cut: half a secret would not be known for one.
            body: failure
                .fault
                .body
                .filter(|body| !body.is_empty())
                .map(|body| text::head(&self.scrub(&body), ERROR_BODY).to_owned()),
            retry_after: failure.asked,
            tries,
            used: failure.used.map(Box::new),
        }
    }

    /// Says why no answer began.
    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let cause = root_cause(error);
        if let Some(message) = self.no_http(&cause) {
            return Failure::new(Fault::new(ProviderFault::Protocol, message));
        }
        if !error.is_connect() {
            return Failure::new(Fault::new(
                ProviderFault::Transport,
                format!("the request could not be sent: {cause}"),
            ));
        }
        let fault = if error.is_timeout() {
            let limit = self.endpoint.clocks.connect;
            Fault::new(ProviderFault::Timeout, format!("no connection within {limit}"))
        } else {
            Fault::new(ProviderFault::Transport, format!("no connection: {cause}"))
        };
        Failure { after: retry::After::NoConnection, ..Failure::new(fault) }
    }

    /// Says what was found in place of an answer over HTTP, by the words of those who looked for one.
    fn no_http(&self, cause: &str) -> Option<String> {
        let provider = &self.endpoint.name;
        let is_tls = self.base.scheme() == "https";
        let other = if is_tls { "http" } else { "https" };
        if is_tls && cause.contains("InvalidContentType") {
            return Some(format!(
                "the server does not speak TLS; if it speaks plain HTTP, begin base_url of provider {provider} with {other}://"
            ));
        }
        if cause.starts_with("message head is too large") {
            return Some("the head of the answer is too large to be read".to_owned());
        }
        let is_foreign = cause.starts_with("invalid HTTP") || cause.starts_with("invalid header");
        is_foreign.then(|| {
            format!(
                "the server does not answer in HTTP ({cause}); if it speaks {}, begin base_url of provider {provider} with {other}://",
                if is_tls { "plain HTTP" } else { "TLS" },
            )
        })
    }

    /// Refuses an answer in an encoding that nobody asked for: nothing could be read from it.
    fn encoded(&self, answer: &Answer) -> Option<Failure> {
        let encoding = answer.headers.get(reqwest::header::CONTENT_ENCODING)?.to_str().ok()?;
        if encoding.trim().eq_ignore_ascii_case("identity") {
            return None;
        }
        let encoding = self.named(encoding);
        let message = format!(
            "the answer is encoded as {encoding}, which was not asked for; whatever stands before the server is to leave answers as they are"
        );
        let fault = Fault::new(ProviderFault::Protocol, message);
        Some(Failure { status: Some(answer.status), ..Failure::new(fault) })
    }

    /// Reads an answer with an error status.
    async fn refusal(&self, answer: Answer) -> Failure {
        let status = answer.status;
        let request_id = request_id(&answer.headers);
        let asked = retry::asked(&answer.headers, self.seams.clock.now());
        let redirect = self.redirect(&answer);
        let body =
            tokio::time::timeout(ERROR_TIME, read(answer, ERROR_READ)).await.unwrap_or_default();
        Failure {
            status: Some(status),
            request_id,
            asked: asked.or_else(|| google::asked(&body)),
            ..Failure::new(redirect.unwrap_or_else(|| Fault::of_answer(Some(status), &body)))
        }
    }

    /// Says where a server would rather be asked, if it answers with that. Nothing is sent there: it would be given the
    /// key and the conversation by a server that may not be the one that was meant.
    fn redirect(&self, answer: &Answer) -> Option<Fault> {
        if answer.status / 100 != 3 {
            return None;
        }
        let location = answer.headers.get(reqwest::header::LOCATION)?.to_str().ok()?;
        let mut to = self.base.join(location).ok()?;
        // Credentials, and what was asked, are no part of an address to set.
        let _ = (to.set_username(""), to.set_password(None));
        to.set_query(None);
        to.set_fragment(None);
        let (to, provider) = (self.named(to.as_str()), &self.endpoint.name);
        let message = format!(
            "the server redirects to {to}, where nothing was sent; if that is the server you mean, set base_url of provider {provider} to its address"
        );
        Some(Fault::new(ProviderFault::Invalid, message))
    }
}

/// Reads up to `limit` bytes of a body, as far as it comes.
async fn read(mut answer: Answer, limit: usize) -> String {
    let mut body = Vec::new();
    while let Some(Ok(chunk)) = answer.body.next().await {
        body.extend_from_slice(&chunk);
        if body.len() >= limit {
            body.truncate(limit);
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// Returns the server's id of the request, by the header in which it stands.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let names = ["x-request-id", "request-id", "x-litellm-call-id", "x-goog-request-id", "cf-ray"];
    names.iter().find_map(|name| headers.get(*name)?.to_str().ok()).map(str::to_owned)
}

/// Returns what lies at the bottom of an error; the library's own words above it repeat the address.
fn root_cause(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in &endpoint.headers {
        let wrong = |reason: &str| Error::Header {
            provider: endpoint.name.clone(),
            name: name.clone(),
            reason: reason.to_owned(),
        };
        let header =
            HeaderName::try_from(name.as_str()).map_err(|_| wrong("it is not a header name"))?;
        let mut value = HeaderValue::from_str(value.expose_secret())
            .map_err(|_| wrong("its value holds a character that no header may hold"))?;
        value.set_sensitive(true);
        map.append(header, value);
    }
    Ok(map)
}

/// Sets the process's TLS implementation, unless the program has set its own.
fn install_crypto() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // It fails where one is installed already, which then is the one to use.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
