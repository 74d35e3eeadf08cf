//! Requests over HTTP that go where they may and nowhere else.
//!
//! A name is resolved after it was decided on, each of its addresses is judged, and the connection is made to one of
//! these: a name that means something else a moment later changes nothing. A redirect is a request of its own.

mod address;
mod ways; // The same judgement, for connections of programs.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use formwork_policy::HostPatterns;
use formwork_protocols::{Cancel, ToolError, ToolErrorKind};
use reqwest::{
    Method, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use url::{Host, Url};

use address::Reach;

pub use ways::Ways;

/// How long a request may take with all that it is redirected to, until its last byte.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a connection may take, and the resolution of a name.
const CONNECT: Duration = Duration::from_secs(10);

/// The most of an answer that is read: a long page of documentation has a tenth of it.
const MAX_BYTES: usize = 4 << 20;

/// How often a request is redirected. Source: the Fetch standard allows 20, curl follows 50; nobody needs more than this.
const MAX_REDIRECTS: usize = 5;

/// The longest address. Source: servers refuse longer ones, RFC 9110 asks for 8,000 at the least.
const MAX_URL_BYTES: usize = 8_000;

/// The headers that the connection itself is made of.
const OF_THE_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where requests may go. The policy decides on each call by the same list; here it decides on redirects.
#[derive(Debug, Clone)]
pub struct HttpRules {
    /// The hosts that were listed. Without a list, a redirect to another host is not followed.
    pub hosts: Option<HostPatterns>,
    /// The hosts whose addresses may be those of this machine or of a private network.
    pub private: HostPatterns,
}

impl HttpRules {
    /// Returns rules by which nothing is listed.
    ///
    /// # Errors
    /// [`formwork_policy::Error`] never: there is nothing to parse.
    pub fn nothing() -> Result<Self, formwork_policy::Error> {
        Self::parse(None, &[])
    }

    /// Reads rules: the hosts that may be asked, if there is a list of them, and those that may be at a private address.
    ///
    /// # Errors
    /// [`formwork_policy::Error`] names the first pattern that cannot be read.
    pub fn parse(
        hosts: Option<&[String]>,
        private: &[String],
    ) -> Result<Self, formwork_policy::Error> {
        let hosts = hosts.map(HostPatterns::parse).transpose()?;
        Ok(Self { hosts, private: HostPatterns::parse(private)? })
    }

    /// Returns the addresses of a host that was decided on, given as `host:port`. Each of them may be connected to.
    ///
    /// # Errors
    /// [`ToolErrorKind::Denied`] for one that may not, and [`ToolErrorKind::Failed`] where there is none.
    pub async fn addresses(&self, authority: &str) -> Result<Vec<SocketAddr>, ToolError> {
        addresses(&self.private, "permissions.http", &parse(&format!("http://{authority}/"))?).await
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<String>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Response {
    /// Who answered.
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Whether more was answered than is read.
    pub(crate) cut: bool,
    /// Where it was not followed to, and why.
    pub(crate) unfollowed: Option<(String, String)>,
}

fn invalid(told: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, told)
}

fn denied(told: impl Into<String>) -> ToolError {
    ToolError::new(ToolErrorKind::Denied, told)
}

/// Reads an address that a request can be sent to.
///
/// # Errors
/// [`ToolErrorKind::InvalidArguments`] for what is no such address, or carries a name and password.
pub(crate) fn parse(text: &str) -> Result<Url, ToolError> {
    if text.len() > MAX_URL_BYTES {
        return Err(invalid(format!(
            "the url has {} bytes; {MAX_URL_BYTES} are allowed",
            text.len()
        )));
    }
    let mut url = Url::parse(text).map_err(|error| invalid(format!("the url is none: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("only http and https are spoken, and not {}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("the url holds a user or password; send a header instead"));
    }
    if authority(&url).is_none() {
        return Err(invalid("the url names no host and port to connect to"));
    }
    url.set_fragment(None);
    Ok(url)
}

/// Returns where an address leads, as `host:port`.
pub(crate) fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let port = url.port_or_known_default().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| format!("{host}:{port}"))
}

/// Reads the headers of a request.
///
/// # Errors
/// [`ToolErrorKind::InvalidArguments`] names the header, and never what it says.
pub(crate) fn headers<'a>(
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<HeaderMap, ToolError> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let shown = formwork_protocols::text::head(name, 64);
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| invalid(format!("{shown:?} is not the name of a header")))?;
        if OF_THE_CONNECTION.contains(&parsed.as_str()) {
            return Err(invalid(format!("the header {shown:?} is set by the connection itself")));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            invalid(format!("the value of the header {shown:?} has characters that none may have"))
        })?;
        value.set_sensitive(true);
        headers.append(parsed, value);
    }
    Ok(headers)
}

/// How much of what is answered to something that is told is looked at.
const MAX_TOLD: usize = 2_000;

/// Something that is told to a server, by POST and as JSON.
#[derive(Debug, Clone)]
pub struct Post {
    /// Where it goes.
    pub url: String,
    /// The headers, with all that is secret in them.
    pub headers: Vec<(String, String)>,
    /// A text of JSON.
    pub body: String,
}

impl Post {
    /// Returns where an address leads, as `host:port`, by which it is decided on.
    ///
    /// # Errors
    /// What is wrong with the address.
    pub fn destination(url: &str) -> Result<String, String> {
        let url = parse(url).map_err(|error| error.message)?;
        authority(&url).ok_or_else(|| "the url names no host".to_owned())
    }

    /// Tells whether a header may be set.
    ///
    /// # Errors
    /// Why not.
    pub fn may_set(header: &str) -> Result<(), String> {
        headers([(header, "x")]).map(drop).map_err(|error| error.message)
    }

    /// Sends it where the rules list its host, as nobody is there to be asked about another, and returns the status and the
    /// beginning of what was answered.
    ///
    /// Ends soon once `cancel` is raised; whether it was heard by then is not known, and neither is it where there is an error.
    ///
    /// # Errors
    /// [`ToolErrorKind::Denied`] for a host that is not listed, or an address that may not be connected to, and whatever a
    /// request can fail of.
    pub async fn send(
        self,
        rules: &HttpRules,
        cancel: &Cancel,
    ) -> Result<(u16, String), ToolError> {
        let url = parse(&self.url)?;
        let to = authority(&url).unwrap_or_default();
        if !rules.hosts.as_ref().is_some_and(|hosts| hosts.matches(&to)) {
            return Err(denied(format!("{to} is none of permissions.http.hosts")));
        }
        let pairs = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut headers = headers(pairs)?;
        let kind = HeaderValue::from_static("application/json");
        headers.entry(reqwest::header::CONTENT_TYPE).or_insert(kind);
        let request = Request { method: Method::POST, url, headers, body: Some(self.body) };
        let response = fetch(rules, request, cancel).await?;
        let said = String::from_utf8_lossy(&response.body);
        let said = formwork_protocols::text::head(&said, MAX_TOLD).trim().to_owned();
        Ok((response.status.as_u16(), said))
    }
}

/// Sends a request and what it is redirected to, and reads the answer.
///
/// # Errors
/// [`ToolErrorKind::Denied`] for an address that may not be connected to, [`ToolErrorKind::TimedOut`],
/// [`ToolErrorKind::Cancelled`], and [`ToolErrorKind::Failed`] when nobody answered.
pub(crate) async fn fetch(
    rules: &HttpRules,
    request: Request,
    cancel: &Cancel,
) -> Result<Response, ToolError> {
    let work = tokio::time::timeout(LONGEST, follow(rules, request));
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled")),
        done = work => done.unwrap_or_else(|_| {
            let told = format!("nobody had answered whole after {} s", LONGEST.as_secs());
            Err(ToolError::new(ToolErrorKind::TimedOut, told))
        }),
    }
}

async fn follow(rules: &HttpRules, mut request: Request) -> Result<Response, ToolError> {
    for hop in 0.. {
        let mut response = send(rules, &request).await?;
        let Some(location) = redirect(&response) else { return Ok(response) };
        let next = match hop {
            MAX_REDIRECTS.. => Err(format!("it was redirected {MAX_REDIRECTS} times")),
            _ => redirected(rules, &request, response.status, &location),
        };
        match next {
            Ok(next) => request = next,
            Err(why) => {
                response.unfollowed = Some((location, why));
                return Ok(response);
            }
        }
    }
    Err(ToolError::new(ToolErrorKind::Failed, "it was redirected without end"))
}

/// Returns where an answer redirects to, as far as it is text.
fn redirect(response: &Response) -> Option<String> {
    let redirects = matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers.get(LOCATION).filter(|_| redirects)?;
    Some(location.to_str().unwrap_or("[an address that is no text]").to_owned())
}

/// Decides on a redirect anew. Another host gets nothing that the first one was sent.
fn redirected(
    rules: &HttpRules,
    request: &Request,
    status: StatusCode,
    location: &str,
) -> Result<Request, String> {
    let url = request.url.join(location).map_err(|error| format!("it is no address: {error}"))?;
    let url = parse(url.as_str()).map_err(|error| error.message)?;
    if request.url.scheme() == "https" && url.scheme() == "http" {
        return Err("it leads from an encrypted connection to one that is not".to_owned());
    }
    let is_same = url.origin() == request.url.origin();
    let becomes_encrypted = url.host() == request.url.host()
        && (request.url.port_or_known_default(), url.port_or_known_default())
            == (Some(80), Some(443));
    let to = authority(&url).unwrap_or_default();
    let is_listed = rules.hosts.as_ref().is_some_and(|hosts| hosts.matches(&to));
    if !is_same && !becomes_encrypted && !is_listed {
        return Err(format!("{to} was not decided on; a call with that url is"));
    }
    let keeps = matches!(status.as_u16(), 307 | 308)
        || matches!(request.method, Method::GET | Method::HEAD);
    if !is_same && request.body.is_some() && keeps {
        return Err("what was sent would be sent to another host".to_owned());
    }
    let method = if keeps { request.method.clone() } else { Method::GET };
    let (headers, body) = match is_same {
        true => (request.headers.clone(), request.body.clone().filter(|_| keeps)),
        false => (HeaderMap::new(), None),
    };
    Ok(Request { method, url, headers, body })
}

/// Returns the addresses of a host, each of which may be connected to. Those that are private only may be where `private`
/// names the host, which whoever starts the run says `below` that table of the config.
///
/// # Errors
/// [`ToolErrorKind::Denied`] for an address that may not be connected to, [`ToolErrorKind::Failed`] when there is none.
async fn addresses(
    private: &HostPatterns,
    below: &str,
    url: &Url,
) -> Result<Vec<SocketAddr>, ToolError> {
    let to = authority(url).unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let found: Vec<SocketAddr> = match url.host() {
        Some(Host::Ipv4(address)) => vec![(IpAddr::V4(address), port).into()],
        Some(Host::Ipv6(address)) => vec![(IpAddr::V6(address), port).into()],
        Some(Host::Domain(name)) => {
            let looking = tokio::net::lookup_host((name, port));
            let unknown = |why: String| {
                ToolError::new(
                    ToolErrorKind::Failed,
                    format!("the name {name} leads nowhere: {why}"),
                )
            };
            let found = tokio::time::timeout(CONNECT, looking).await;
            let found = found.map_err(|_| unknown("nobody knew it in time".to_owned()))?;
            found.map_err(|error| unknown(error.to_string()))?.collect()
        }
        None => Vec::new(),
    };
    if found.is_empty() {
        let told = format!("the name {to} has no address");
        return Err(ToolError::new(ToolErrorKind::Failed, told));
    }
    let may_be_private = private.matches(&to);
    for address in &found {
        let ip = address.ip();
        match address::reach(ip) {
            Reach::Public => {}
            Reach::Private if may_be_private => {}
            Reach::Private => {
                return Err(denied(format!(
                    "{to} is at {ip}, an address of this machine or of a private network; whoever starts the run can \
                     allow that by allow_private below [{below}] of the config"
                )));
            }
            Reach::Never => {
                return Err(denied(format!(
                    "{to} is at {ip}, an address that no request is sent to"
                )));
            }
        }
    }
    Ok(found)
}

async fn send(rules: &HttpRules, request: &Request) -> Result<Response, ToolError> {
    let addresses = addresses(&rules.private, "permissions.http", &request.url).await?;
    let failed = |what: &str, error: reqwest::Error| {
        let to = authority(&request.url).unwrap_or_default();
        // The url may hold a secret.
        let cause = crate::workspace::chain(&error.without_url());
        ToolError::new(ToolErrorKind::Failed, format!("{what} {to}: {cause}"))
    };
    let client =
        client(&request.url, &addresses).map_err(|error| failed("cannot speak to", error))?;
    let mut asked = client.request(request.method.clone(), request.url.clone());
    asked = asked.headers(request.headers.clone());
    if let Some(body) = &request.body {
        asked = asked.body(body.clone());
    }
    let mut answer =
        asked.send().await.map_err(|error| failed("nothing was answered by", error))?;
    if let Some(connected) = answer.remote_addr()
        && !addresses.iter().any(|address| address.ip() == connected.ip())
    {
        return Err(denied(format!(
            "the connection was made to {}, which nobody judged",
            connected.ip()
        )));
    }
    let (status, headers) = (answer.status(), answer.headers().clone());
    let (mut body, mut cut) = (Vec::new(), false);
    while let Some(chunk) =
        answer.chunk().await.map_err(|error| failed("the answer was cut short by", error))?
    {
        let room = MAX_BYTES - body.len();
        body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if chunk.len() > room {
            cut = true;
            break;
        }
    }
    Ok(Response { url: request.url.clone(), status, headers, body, cut, unfollowed: None })
}

/// Makes a client for one request: a connection that is kept would be one to who knows whom.
fn client(url: &Url, addresses: &[SocketAddr]) -> Result<reqwest::Client, reqwest::Error> {
    // It may have been installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("formwork/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        // A proxy would resolve the name anew, and connect where it likes.
        .no_proxy();
    if url.scheme() == "http" {
        builder = builder.tls_certs_only([]); // Reading the machine's certificates takes longer than a call.
    }
    if let Some(Host::Domain(name)) = url.host() {
        builder = builder.resolve_to_addrs(name, addresses);
    }
    builder.build()
}
