//! The one way out of a browser: each request is judged by its host, and connected only to addresses that were judged.

use std::{
    collections::BTreeSet,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use formwork_protocols::ToolError;
use formwork_tool::HttpRules;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use url::Url;

/// How many connections are open at once. A page opens some dozens.
const MAX_CONNECTIONS: usize = 256;

/// The most bytes before an empty line. Source: Chromium sends no more than 256 KiB, servers refuse above 16.
const MAX_HEAD: usize = 256 << 10;

/// How long a head may take, and a connection to be made.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many refusals are kept until somebody asks.
const MAX_REFUSED: usize = 20;

/// Where a Chromium asks of its own accord, now and then and whatever its switches say. It is refused like all, but no page is told.
/// Source: the address that the switches name in place of Google's, and Chromium's services for updates, settings and hints.
const OF_THE_BROWSER: [&str; 7] = [
    "127.0.0.1:1",
    "clients2.google.com:443",
    "clientservices.googleapis.com:443",
    "edgedl.me.gvt1.com:443",
    "optimizationguide-pa.googleapis.com:443",
    "update.googleapis.com:443",
    "update.googleapis.com:80",
];

/// What the proxy goes by, and what it has refused.
pub(crate) struct Ways {
    rules: HttpRules,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The hosts that were decided on one by one, where no list is given.
    opened: BTreeSet<String>,
    /// What was asked for and refused, each once, with the reason.
    refused: Vec<(String, String)>,
}

impl Ways {
    pub(crate) fn new(rules: HttpRules) -> Self {
        Self { rules, state: Mutex::default() }
    }

    /// Lets a host be asked that was decided on by itself: where there is no list of hosts, that is all there is.
    pub(crate) fn open(&self, url: &Url) {
        let Some(authority) = authority(url) else { return };
        let mut state = self.lock();
        if let Some(host) = authority.strip_suffix(":80") {
            // Most servers lead from there to their encrypted selves.
            state.opened.insert(format!("{host}:443"));
        }
        state.opened.insert(authority);
    }

    /// Returns what was refused since the last time.
    pub(crate) fn refused(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.lock().refused)
    }

    /// Returns which refusal of the last time kept a page of `authority` from coming: its own, or that of where it led.
    pub(crate) fn kept_off(&self, authority: Option<&str>) -> Option<(String, String)> {
        let mut refused = self.refused();
        let own = refused.iter().position(|(host, _)| Some(host.as_str()) == authority);
        (!refused.is_empty()).then(|| refused.swap_remove(own.unwrap_or_default()))
    }

    /// Decides on a host, and only then asks for its addresses.
    async fn addresses(&self, authority: &str) -> Result<Vec<SocketAddr>, String> {
        let is_listed = match &self.rules.hosts {
            Some(hosts) => hosts.matches(authority),
            None => self.lock().opened.contains(authority),
        };
        let found = match is_listed {
            true => self.rules.addresses(authority).await.map_err(|error: ToolError| error.message),
            false => Err("it is not on the list of hosts".to_owned()),
        };
        if let Err(why) = &found
            && !OF_THE_BROWSER.contains(&authority)
        {
            let mut state = self.lock();
            let is_new = state.refused.iter().all(|(host, _)| host != authority);
            if is_new && state.refused.len() < MAX_REFUSED {
                state.refused.push((authority.to_owned(), why.clone()));
            }
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy of one browser. It ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>, // Owns the accepting task, which owns a task for each connection.
}

impl Proxy {
    pub(crate) async fn start(ways: Arc<Ways>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, ways));
        Ok(Self { address, _tasks: tasks })
    }
}

async fn accept(listener: TcpListener, ways: Arc<Ways>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else { continue };
        let ways = Arc::clone(&ways);
        connections.spawn(async move {
            let _place = place;
            // A side that leaves is part of every page.
            let _ = serve(stream, &ways).await;
        });
    }
}

/// Passes one request on, or refuses it. A connection is for one request: the next may be for another host.
async fn serve(mut client: TcpStream, ways: &Ways) -> io::Result<()> {
    let Ok(read) = tokio::time::timeout(PATIENCE, head(&mut client, Vec::new())).await else {
        return Ok(());
    };
    let (head, rest) = read?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let tunnel = method == "CONNECT";
    let (authority, path) = match wanted(method, target) {
        Some(wanted) => wanted,
        None => return Ok(()),
    };
    let addresses = match ways.addresses(&authority).await {
        Ok(addresses) => addresses,
        Err(_) => return refuse(&mut client, tunnel).await,
    };
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(&addresses[..])).await;
    let Ok(Ok(mut server)) = connecting else {
        return refuse(&mut client, tunnel).await;
    };
    if tunnel {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        server.write_all(&rest).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    }
    let headers: Vec<(&str, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.trim()))
        .collect();
    let named = |wanted: &str| {
        headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
    };
    let length = match (named("transfer-encoding"), named("content-length").map(str::parse::<u64>))
    {
        (None, None) => 0,
        (None, Some(Ok(length))) => length,
        // Of a request whose end is not known the next one cannot be told apart.
        _ => return Ok(()),
    };
    let mut sent = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| !is_of_the_connection(name)) {
        sent.push_str(&format!("{name}: {value}\r\n"));
    }
    sent.push_str("connection: close\r\n\r\n");
    server.write_all(sent.as_bytes()).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let upload = async {
        // No byte behind the request goes there: it would belong to the next one, which nobody has judged.
        let mut body = (&rest[..]).chain(&mut from_client).take(length);
        tokio::io::copy(&mut body, &mut to_server).await?;
        // Whoever has what it wanted leaves, whatever the server still does; what it says besides is not heard.
        if from_client.read_u8().await.is_ok() {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let download = async {
        answer(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        biased;
        done = download => done,
        left = upload => left,
    }
}

/// Passes an answer on as the last of its connection.
async fn answer(
    server: &mut (impl AsyncRead + Unpin),
    client: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut before = Vec::new();
    loop {
        let (head, rest) = head(server, before).await?;
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.split("\r\n");
        let status = lines.next().unwrap_or_default();
        let is_first = status.split(' ').nth(1).is_some_and(|code| code.starts_with('1'));
        let (mut told, mut length) = (format!("{status}\r\n"), None);
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            if name.trim().eq_ignore_ascii_case("content-length") {
                length = value.trim().parse::<u64>().ok();
            }
            if !is_of_the_connection(name) {
                told.push_str(&format!("{line}\r\n"));
            }
        }
        told.push_str(if is_first { "\r\n" } else { "connection: close\r\n\r\n" });
        client.write_all(told.as_bytes()).await?;
        if !is_first {
            let mut body = (&rest[..]).chain(server).take(length.unwrap_or(u64::MAX));
            return tokio::io::copy(&mut body, client).await.map(drop);
        }
        before = rest;
    }
}

/// Returns where an address leads, as `host:port`.
pub(crate) fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(format!("{}:{}", host.strip_suffix('.').unwrap_or(host), url.port_or_known_default()?))
}

/// Returns where a request leads, as `host:port`, and what it asks for there.
fn wanted(method: &str, target: &str) -> Option<(String, String)> {
    if method == "CONNECT" {
        let (host, port) = target.rsplit_once(':')?;
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        return (!host.is_empty()).then(|| (format!("{host}:{port}"), String::new()));
    }
    let url = Url::parse(target).ok().filter(|url| url.scheme() == "http")?;
    let authority = authority(&url)?;
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    is_method.then_some((authority, path))
}

fn is_of_the_connection(name: &str) -> bool {
    ["connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "te"]
        .iter()
        .any(|known| name.trim().eq_ignore_ascii_case(known))
}

/// Reads up to the first empty line, beginning with what was read already, and returns what came behind it too.
async fn head(
    from: &mut (impl AsyncRead + Unpin),
    mut bytes: Vec<u8>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut looked = 0;
    loop {
        let found =
            bytes.get(looked..).unwrap_or_default().windows(4).position(|it| it == b"\r\n\r\n");
        if let Some(at) = found {
            let rest = bytes.split_off(looked + at + 4);
            bytes.truncate(looked + at);
            return Ok((bytes, rest));
        }
        // The line may have begun in what was read before.
        looked = bytes.len().saturating_sub(3);
        if bytes.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if from.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Gives no answer: to a page, one of ours would be one of whom it asked.
async fn refuse(client: &mut TcpStream, tunnel: bool) -> io::Result<()> {
    if tunnel {
        // Who asks for a tunnel knows that the proxy speaks.
        let told = b"HTTP/1.1 403 Refused\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        client.write_all(told).await?;
    }
    client.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_asks_for_is_read_and_nothing_else_is_passed_on() {
        let read = |line: &str| {
            let (method, target) = line.split_once(' ').unwrap();
            wanted(method, target)
        };
        let pair = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));

        assert_eq!(read("CONNECT Docs.rs.:443"), pair("docs.rs:443", ""));
        assert_eq!(read("CONNECT [::1]:443"), pair("[::1]:443", ""));
        assert_eq!(read("GET http://docs.rs/a?b=c"), pair("docs.rs:80", "/a?b=c"));
        assert_eq!(read("GET http://2130706433:8/"), pair("127.0.0.1:8", "/"));
        for none in [
            "GET /local",
            "GET https://docs.rs/",
            "get http://a/",
            "CONNECT a",
            "CONNECT a:0",
            "GET file:///etc",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    #[tokio::test]
    async fn a_page_is_told_of_its_own_refusal_and_never_of_what_the_browser_asks_by_itself() {
        let ways = Ways::new(HttpRules::parse(Some(&["docs.rs".to_owned()]), &[]).unwrap());
        for authority in ["update.googleapis.com:443", "pictures.test:443", "page.test:80"] {
            ways.addresses(authority).await.unwrap_err();
        }
        let own = ways.kept_off(Some("page.test:80")).unwrap();
        ways.addresses("led.test:443").await.unwrap_err();
        let led = ways.kept_off(Some("docs.rs:443")).unwrap();
        ways.addresses("update.googleapis.com:443").await.unwrap_err();

        assert_eq!(own.0, "page.test:80");
        assert_eq!(led.0, "led.test:443");
        assert_eq!(ways.kept_off(Some("docs.rs:443")), None);
        assert_eq!(ways.refused(), []);
    }

    #[tokio::test]
    async fn a_second_request_on_one_connection_goes_nowhere() {
        let server = formwork_testkit::http::Server::start().await.unwrap();
        server.reply_always("/a", formwork_testkit::http::Reply::text(200, "first"));
        server.reply_always("/b", formwork_testkit::http::Reply::text(200, "second"));
        let host = server.url().trim_start_matches("http://").to_owned();
        let list = [host.clone()];
        let rules = HttpRules::parse(Some(&list), &list).unwrap();
        let proxy = Proxy::start(Arc::new(Ways::new(rules))).await.unwrap();

        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let two = format!(
            "GET http://{host}/a HTTP/1.1\r\nhost: {host}\r\nproxy-authorization: x\r\n\r\nGET http://elsewhere.test/b HTTP/1.1\r\nhost: elsewhere.test\r\n\r\n"
        );
        client.write_all(two.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The second request was not read when the connection was closed, which is told to whoever sent it.
        let _ = client.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();

        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("first"), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        let requests = server.requests();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].header("proxy-authorization"), None);
    }
}
