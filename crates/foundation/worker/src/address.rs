//! Where a worker dials, and how: with its token in a header, and never where somebody could listen.

use std::{fmt, net::IpAddr, str::FromStr, sync::Arc, time::Duration};

use rustls::{ClientConfig, crypto::ring, pki_types::ServerName};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, ClientRequestBuilder,
        http::{Uri, header::SEC_WEBSOCKET_PROTOCOL},
        protocol::WebSocketConfig,
    },
};
use url::{Host, Url};

use crate::{
    Error,
    message::{MAX_CALL_BYTES, PROTOCOL},
};

/// How long it may take until a connection stands.
const DIAL: Duration = Duration::from_secs(20);

/// Where workers are taken, below a server.
const PATH: &str = "/workers";

/// A stream of bytes, secured or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The address of a hub: `wss://host[:port][/path]`, and `ws://` on this machine alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    url: Url,
    is_secure: bool,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // It may hold what nobody should see, in a place where nothing belongs.
        let fault = |address: &str, reason: String| Error::Address {
            address: address.split(['@', '?', '#']).next().unwrap_or_default().to_owned(),
            reason,
        };
        let mut url = Url::parse(text).map_err(|error| fault("it", error.to_string()))?;
        let bare = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
        let fault = |reason: &str| fault(&bare, reason.to_owned());
        let (scheme, is_secure) = match url.scheme() {
            "ws" | "http" => ("ws", false),
            "wss" | "https" => ("wss", true),
            _ => return Err(fault("it begins with wss://, or with ws:// on this machine")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault(
                "no token stands in an address: it comes from a file or the environment",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(fault("nothing follows its path"));
        }
        let is_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => IpAddr::V4(ip).is_loopback(),
            Some(Host::Ipv6(ip)) => IpAddr::V6(ip).is_loopback(),
            None => return Err(fault("it names no host")),
        };
        if !is_secure && !is_here {
            return Err(fault("whoever listens would see the token and the calls: use wss://"));
        }
        if url.set_scheme(scheme).is_err() {
            return Err(fault("it begins with wss://, or with ws:// on this machine"));
        }
        if matches!(url.path(), "" | "/") {
            url.set_path(PATH);
        }
        Ok(Self { url, is_secure })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.url.as_str())
    }
}

/// What a worker shows so that it is let in. It is not printed.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// The most bytes of a token.
const MAX_TOKEN: usize = 8 * 1024;

impl Token {
    /// Takes a token, without the space around it.
    ///
    /// # Errors
    /// [`Error::Token`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let fault = |reason: &str| Error::Token { reason: reason.to_owned() };
        if text.is_empty() {
            return Err(fault("it is empty"));
        }
        if text.len() > MAX_TOKEN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fault("it is one line of letters, digits and signs"));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Address {
    /// Dials, and returns the connection once it speaks the protocol.
    ///
    /// # Errors
    /// [`Error::Refused`] where it is of no use to try again; [`Error::Unreachable`] where it is.
    pub(crate) async fn dial(
        &self,
        token: &Token,
    ) -> Result<WebSocketStream<Box<dyn Wire>>, Error> {
        let unreachable = |reason: String| Error::Unreachable { address: self.to_string(), reason };
        match timeout(DIAL, self.connect(token)).await {
            Ok(connected) => connected,
            Err(_) => Err(unreachable("no connection stood in time".to_owned())),
        }
    }

    async fn connect(&self, token: &Token) -> Result<WebSocketStream<Box<dyn Wire>>, Error> {
        let unreachable = |reason: String| Error::Unreachable { address: self.to_string(), reason };
        let port = self.url.port_or_known_default().unwrap_or(443);
        let tcp = match self.url.host() {
            Some(Host::Ipv4(ip)) => TcpStream::connect((ip, port)).await,
            Some(Host::Ipv6(ip)) => TcpStream::connect((ip, port)).await,
            Some(Host::Domain(name)) => TcpStream::connect((name, port)).await,
            None => return Err(unreachable("it names no host".to_owned())),
        };
        let tcp = tcp.map_err(|error| unreachable(error.to_string()))?;
        // A call is small and waited for.
        let _ = tcp.set_nodelay(true);
        let wire: Box<dyn Wire> = match self.is_secure {
            false => Box::new(tcp),
            true => {
                let host = self.url.host_str().unwrap_or_default();
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name =
                    ServerName::try_from(host).map_err(|error| unreachable(error.to_string()))?;
                let tls = TlsConnector::from(Arc::new(secured()?)).connect(name, tcp).await;
                Box::new(tls.map_err(|error| unreachable(error.to_string()))?)
            }
        };
        let uri: Uri =
            self.url.as_str().parse().map_err(|error: tungstenite::http::uri::InvalidUri| {
                unreachable(error.to_string())
            })?;
        let request = ClientRequestBuilder::new(uri)
            .with_sub_protocol(PROTOCOL)
            .with_header("authorization", format!("Bearer {}", token.0));
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_CALL_BYTES))
            .max_frame_size(Some(MAX_CALL_BYTES));
        let (socket, response) = client_async_with_config(request, wire, Some(config))
            .await
            .map_err(|error| self.told(error))?;
        let spoken = response.headers().get(SEC_WEBSOCKET_PROTOCOL);
        if spoken.is_none_or(|spoken| spoken != PROTOCOL) {
            let reason = format!("it does not speak {PROTOCOL}");
            return Err(Error::Refused { address: self.to_string(), reason });
        }
        Ok(socket)
    }

    /// Says what an answer that is no WebSocket means. Its body is not told: it is anybody's.
    fn told(&self, error: tungstenite::Error) -> Error {
        let address = self.to_string();
        match error {
            tungstenite::Error::Http(response) => {
                let status = response.status();
                let reason = match status.as_u16() {
                    401 => "it does not know the token".to_owned(),
                    403 => "the token is not good for scope worker".to_owned(),
                    404 => "there are no workers taken at that path".to_owned(),
                    code => format!("it answered with status {code}"),
                };
                // What a server says of itself may pass; what it says of the request does not.
                match status.is_client_error() && !matches!(status.as_u16(), 408 | 425 | 429) {
                    true => Error::Refused { address, reason },
                    false => Error::Unreachable { address, reason },
                }
            }
            error => Error::Unreachable { address, reason: error.to_string() },
        }
    }
}

/// Returns how connections are secured: by what this machine trusts.
fn secured() -> Result<ClientConfig, Error> {
    let tls = |error: rustls::Error| Error::Tls(error.to_string());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(tls)?
        .with_platform_verifier()
        .map_err(tls)?
        .with_no_client_auth();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        match text.parse::<Address>() {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn behaviour_39_a_token_goes_where_nobody_listens_and_never_with_an_address() {
        assert_eq!(told("https://hub.example"), "wss://hub.example/workers");
        assert_eq!(told("ws://127.0.0.1:8080"), "ws://127.0.0.1:8080/workers");
        assert_eq!(told("wss://hub.example/a/workers"), "wss://hub.example/a/workers");
        assert!(told("ws://hub.example").contains("use wss://"));
        assert!(told("ws://127.0.0.1.hub.example").contains("use wss://"));
        assert!(told("file:///etc/passwd").contains("begins with wss://"));
        for shown in ["wss://tok4711@hub.example", "wss://hub.example?token=tok4711", "tok4711"] {
            let told = told(shown);
            assert!(!told.contains("4711") && told.contains("is no address"), "{told}");
        }
    }

    #[test]
    fn a_token_is_one_line_and_is_not_printed() {
        let token = Token::parse(" tok-4711\n").unwrap();

        assert_eq!((format!("{token:?}").as_str(), &*token.0), ("Token", "tok-4711"));
        for bad in ["", " \n", "a\nb: c", "tök"] {
            let error = Token::parse(bad).unwrap_err();
            assert!(!error.to_string().contains("tök"), "{error}");
        }
    }
}
