//! The way out of a confined command: a proxy that connects where it is let, and nowhere else.
//!
//! It speaks `CONNECT` and requests with a whole address over plain HTTP. What goes through a tunnel is between the command and
//! whom it is connected to; of a plain request it reads the head, so that a connection carries one request to one host.

mod request; // What a command asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::Instant,
};
use uuid::Uuid;

use crate::{Gateway, NoRoute, Refusal};
use request::{Asked, Kind, Wrong};

/// Where it listens, in a network that holds nothing else. Proxies do so by custom.
pub(crate) const PORT: u16 = 3128;

/// The name that goes with the token, since a proxy's credentials have two parts.
const USER: &str = "formwork";

/// The variables by which programs find a proxy. Some know only one spelling.
const NAMES: [&str; 6] =
    ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy"];

/// The variables by which they are told what needs none: nothing.
const EXCEPT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// How many connections of one command there are at once; more wait. A browser opens six to each host.
const CONNECTIONS: usize = 64;

/// How long a command may take to say what it wants, once connected.
const HEAD: Duration = Duration::from_secs(10);

/// How long it may take to connect to one address.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a connection is kept on which nothing moves.
const IDLE: Duration = Duration::from_secs(120);

/// How much passes for one command, both ways together. Toolchains have some hundred megabytes.
const MOST_BYTES: u64 = 4 << 30;

/// How many places are told that a command was connected to.
const MOST_REACHED: usize = 100;

/// How long to wait with the next connection where this process has no room for one.
const NO_ROOM: Duration = Duration::from_millis(50);

/// Bytes per read.
const READ: usize = 16 << 10;

/// The proxy of one command.
pub(crate) struct Proxy {
    gateway: Gateway,
    program: String,
    token: String,
    seen: Mutex<Seen>,
}

/// What a command did with its way out.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) refused: Vec<Refusal>,
    pub(crate) reached: BTreeSet<String>,
    bytes: u64,
}

/// An answer of the proxy's own.
struct Answer {
    status: &'static str,
    header: &'static str,
    text: String,
}

impl Proxy {
    /// Makes one for a run of `program`, with a token of its own.
    pub(crate) fn new(gateway: Gateway, program: String) -> Self {
        let token = Uuid::new_v4().simple().to_string();
        Self { gateway, program, token, seen: Mutex::default() }
    }

    /// Lets the command know of it. Whatever was set of other proxies is gone.
    pub(crate) fn give(&self, environment: &mut BTreeMap<OsString, OsString>) {
        let url = format!("http://{USER}:{}@127.0.0.1:{PORT}", self.token);
        environment.extend(NAMES.map(|name| (name.into(), url.clone().into())));
        environment.extend(EXCEPT.map(|name| (name.into(), OsString::new())));
    }

    /// Answers whoever connects, until it is dropped.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut open = JoinSet::new(); // Dropping it ends what is still connected.
        while let Ok(place) = Arc::clone(&room).acquire_owned().await {
            let accepted = listener.accept().await;
            while open.try_join_next().is_some() {}
            match accepted {
                Ok((client, _)) => {
                    let proxy = Arc::clone(&self);
                    open.spawn(async move {
                        // What breaks off is seen at both of its ends.
                        let _ = proxy.answer(client).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(NO_ROOM).await,
            }
        }
    }

    /// Returns what came of it.
    pub(crate) fn seen(&self) -> Seen {
        std::mem::take(&mut self.lock())
    }

    async fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let read = tokio::time::timeout(HEAD, request::read(&mut client)).await;
        let Ok((head, more)) = read? else { return Ok(()) };
        match self.connected(&head).await {
            Err(answer) => {
                client.write_all(&answer.bytes()).await?;
                client.shutdown().await
            }
            Ok((server, asked)) => self.pass(client, server, asked, more).await,
        }
    }

    /// Connects a command that may be, or says why not.
    async fn connected(&self, head: &[u8]) -> Result<(TcpStream, Asked), Answer> {
        let refused = |why: String| Answer { status: "403 Forbidden", header: "", text: why };
        let asked = match request::parse(head) {
            Ok(asked) => asked,
            Err(Wrong { to, why }) => {
                self.refuse(&to, why).await;
                return Err(Answer {
                    status: "400 Bad Request",
                    header: "",
                    text: format!("not passed on: {why}"),
                });
            }
        };
        if !self.knows(asked.credentials.as_deref()) {
            // Some programs ask first and tell their token when they are asked for it.
            if asked.credentials.is_some() {
                self.refuse(&asked.to, "its token is not that of this run").await;
            }
            return Err(Answer {
                status: "407 Proxy Authentication Required",
                header: "Proxy-Authenticate: Basic realm=\"formwork\"\r\n",
                text: "the proxy's address in HTTPS_PROXY holds a token, which has to be sent"
                    .to_owned(),
            });
        }
        let unreached = |why: String| Answer { status: "502 Bad Gateway", header: "", text: why };
        let addresses = match self.gateway.routes().addresses(&asked.to).await {
            Ok(addresses) => addresses,
            Err(NoRoute::Failed(why)) => return Err(unreached(why)),
            Err(NoRoute::Refused(why)) => {
                self.refuse(&asked.to, &why).await;
                return Err(refused(why));
            }
        };
        for address in addresses {
            let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(address));
            if let Ok(Ok(server)) = connecting.await {
                let _ = server.set_nodelay(true);
                let mut seen = self.lock();
                if seen.reached.len() < MOST_REACHED {
                    seen.reached.insert(asked.to.clone());
                }
                drop(seen);
                return Ok((server, asked));
            }
        }
        Err(unreached(format!("nobody answers at {}", asked.to)))
    }

    /// Compares credentials in a time that tells nothing of how far they agree.
    fn knows(&self, credentials: Option<&str>) -> bool {
        let wanted = STANDARD.encode(format!("{USER}:{}", self.token));
        credentials
            .is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(wanted.as_bytes()))
    }

    /// Passes on what both say until one of them has said all, or nothing moves any more.
    async fn pass(
        &self,
        mut client: TcpStream,
        mut server: TcpStream,
        asked: Asked,
        more: Bytes,
    ) -> io::Result<()> {
        let moved = Mutex::new(Instant::now());
        let (mut from_client, mut to_client) = client.split();
        let (from_server, mut to_server) = server.split();
        let through = Through { proxy: self, to: &asked.to, moved: &moved };
        let both = async {
            match asked.kind {
                Kind::Tunnel => {
                    to_client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
                    let up = async {
                        through.one_way((&more[..]).chain(from_client), &mut to_server).await?;
                        to_server.shutdown().await
                    };
                    let down = async {
                        through.one_way(from_server, &mut to_client).await?;
                        to_client.shutdown().await
                    };
                    tokio::try_join!(up, down).map(drop)
                }
                Kind::Plain { head, body } => {
                    let up = async {
                        to_server.write_all(&head).await?;
                        let said = (&more[..]).chain(&mut from_client);
                        let mut said = said.take(body);
                        through.one_way(&mut said, &mut to_server).await?;
                        // Whatever follows is another request, which this connection is not for.
                        let mut said = said.into_inner();
                        match said.read_u8().await {
                            Ok(_) => Ok(()),
                            Err(_) => std::future::pending().await,
                        }
                    };
                    let down = async {
                        through.one_way(from_server, &mut to_client).await?;
                        to_client.shutdown().await
                    };
                    tokio::select! {
                        done = up => done,
                        done = down => done,
                    }
                }
            }
        };
        tokio::select! {
            done = both => done,
            () = idle(&moved) => Ok(()),
        }
    }

    /// Tells of a refusal, before whoever is refused knows of it.
    async fn refuse(&self, to: &str, why: &str) {
        let refusal =
            Refusal { program: self.program.clone(), to: to.to_owned(), why: why.to_owned() };
        {
            let mut seen = self.lock();
            if seen.refused.len() >= Refusal::MOST || seen.refused.contains(&refusal) {
                return;
            }
            seen.refused.push(refusal.clone());
        }
        self.gateway.routes().refused(&refusal).await;
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let Self { status, header, text } = self;
        let length = text.len() + 1;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
             Connection: close\r\nProxy-Connection: close\r\n{header}\r\n{text}\n"
        )
        .into_bytes()
    }
}

/// One connection of a command to where it is let.
struct Through<'a> {
    proxy: &'a Proxy,
    to: &'a str,
    moved: &'a Mutex<Instant>,
}

impl Through<'_> {
    /// Passes on what one side says until it has said all.
    async fn one_way(
        &self,
        mut from: impl AsyncRead + Unpin,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        let mut bytes = BytesMut::with_capacity(READ);
        while from.read_buf(&mut bytes).await? > 0 {
            self.count(bytes.len() as u64).await?;
            to.write_all(&bytes).await?;
            *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            bytes.clear();
            bytes.reserve(READ);
        }
        Ok(())
    }

    async fn count(&self, bytes: u64) -> io::Result<()> {
        let passed = {
            let mut seen = self.proxy.lock();
            seen.bytes = seen.bytes.saturating_add(bytes);
            seen.bytes
        };
        if passed <= MOST_BYTES {
            return Ok(());
        }
        let why = format!("more than {} MiB went over its connections", MOST_BYTES >> 20);
        self.proxy.refuse(self.to, &why).await;
        Err(io::ErrorKind::QuotaExceeded.into())
    }
}

/// Waits until nothing has moved for too long.
async fn idle(moved: &Mutex<Instant>) {
    loop {
        let until = *moved.lock().unwrap_or_else(PoisonError::into_inner) + IDLE;
        if until <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use async_trait::async_trait;

    use super::*;
    use crate::Routes;

    /// Leads everywhere to one address.
    struct There(SocketAddr);

    #[async_trait]
    impl Routes for There {
        async fn addresses(&self, _: &str) -> Result<Vec<SocketAddr>, NoRoute> {
            Ok(vec![self.0])
        }

        async fn refused(&self, _: &Refusal) {}
    }

    /// Connects through a proxy, and returns it with both ends.
    async fn through(head: &str) -> (Arc<Proxy>, TcpStream, TcpStream, JoinSet<()>) {
        let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = Gateway::new(There(there.local_addr().unwrap()));
        let proxy = Arc::new(Proxy::new(gateway, "program".to_owned()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(Arc::clone(&proxy).serve(listener));
        let mut client = TcpStream::connect(at).await.unwrap();
        let credentials = STANDARD.encode(format!("{USER}:{}", proxy.token));
        let head = format!("{head}\r\nProxy-Authorization: Basic {credentials}\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(b"\r\n").await.unwrap();
        let (server, _) = there.accept().await.unwrap();
        (proxy, client, server, serving)
    }

    async fn tunnel() -> (Arc<Proxy>, TcpStream, TcpStream, JoinSet<()>) {
        let (proxy, mut client, server, serving) = through("CONNECT a:443 HTTP/1.1").await;
        let mut established = [0; 39];
        client.read_exact(&mut established).await.unwrap();
        (proxy, client, server, serving)
    }

    #[tokio::test]
    async fn one_side_may_have_said_all_while_the_other_goes_on() {
        let (_proxy, mut client, mut server, _serving) = tunnel().await;

        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut asked, mut answered) = (String::new(), String::new());
        server.read_to_string(&mut asked).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        drop(server);
        client.read_to_string(&mut answered).await.unwrap();

        assert_eq!((asked.as_str(), answered.as_str()), ("question", "answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nothing_moves_is_closed() {
        let (_proxy, mut client, _server, _serving) = tunnel().await;
        let begun = Instant::now();

        let read = client.read(&mut [0; 8]).await;

        assert_eq!(read.unwrap(), 0);
        assert!(begun.elapsed() >= IDLE);
    }

    #[tokio::test]
    async fn a_command_over_which_too_much_went_is_connected_no_more() {
        let (proxy, mut client, mut server, _serving) = tunnel().await;
        proxy.lock().bytes = MOST_BYTES - 3;

        client.write_all(b"abc").await.unwrap();
        server.read_exact(&mut [0; 3]).await.unwrap();
        client.write_all(b"d").await.unwrap();
        let read = server.read(&mut [0; 8]).await;

        assert_eq!(read.unwrap_or_default(), 0);
        let told: Vec<String> = proxy.seen().refused.iter().map(ToString::to_string).collect();
        let wanted =
            "a connection to a:443 was refused: more than 4096 MiB went over its connections";
        assert_eq!(told, [wanted]);
    }

    #[tokio::test]
    async fn a_plain_connection_carries_one_request() {
        let head = "POST http://a/ HTTP/1.1\r\nContent-Length: 4";
        let (_proxy, mut client, mut server, _serving) = through(head).await;
        client.write_all(b"bodyGET http://b/ HTTP/1.1\r\n\r\n").await.unwrap();
        let mut said = String::new();

        server.read_to_string(&mut said).await.unwrap();

        assert!(said.starts_with("POST / HTTP/1.1\r\nHost: a\r\n"), "{said}");
        assert!(said.ends_with("Connection: close\r\n\r\nbody"), "{said}");
    }
}
