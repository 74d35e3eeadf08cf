//! A server of one's own, and a client that says exactly what it is told to say.

use std::{collections::HashMap, net::SocketAddr, path::Path};

use formwork_api::{Api, Hosts, Limits, Server};
use formwork_auth::{Grant, Token};
use formwork_protocols::{Cancel, CredentialId, Principal, Scope};
use formwork_services::{Builder, Formwork, config::Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinSet,
};

/// A workspace, a log, a server, and whoever owns it.
pub(crate) struct World {
    pub(crate) formwork: Formwork,
    pub(crate) address: SocketAddr,
    pub(crate) cancel: Cancel,
    pub(crate) ada: String,
    pub(crate) ada_id: CredentialId,
    pub(crate) folder: TempDir,
    serving: JoinSet<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Limits::default(), None).await
    }

    pub(crate) async fn limited(limits: Limits) -> Self {
        Self::with(limits, None).await
    }

    pub(crate) async fn with(limits: Limits, url: Option<&str>) -> Self {
        Self::beside(limits, url, |api| api).await
    }

    /// The same, with more routes.
    pub(crate) async fn beside(
        limits: Limits,
        url: Option<&str>,
        more: impl FnOnce(Api) -> Api,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let formwork = opened(folder.path(), url).await;
        let (id, token) = given(&formwork, "user:ada", &Scope::ALL).await;
        let hosts = Hosts::default().and("formwork.example");
        let api = more(Api::with_limits(formwork.clone(), limits).hosts(hosts));
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (address, cancel) = (server.address(), Cancel::new());
        let mut serving = JoinSet::new();
        let ends = cancel.clone();
        serving.spawn(async move { server.run(&api, &ends).await });
        let ada = token.expose().to_owned();
        Self { formwork, address, cancel, ada, ada_id: id, folder, serving }
    }

    /// Gives somebody a token.
    pub(crate) async fn token(&self, to: &str, scopes: &[Scope]) -> String {
        given(&self.formwork, to, scopes).await.1.expose().to_owned()
    }

    /// Asks for a capability as ada.
    pub(crate) async fn call(&self, name: &str, params: Value) -> Answer {
        self.call_as(&self.ada, name, params).await
    }

    pub(crate) async fn call_as(&self, token: &str, name: &str, params: Value) -> Answer {
        let body = params.to_string();
        let head = format!(
            "POST /v1/{name} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        self.send(format!("{head}{body}").as_bytes()).await
    }

    /// Asks as ada, with further lines of a head.
    pub(crate) async fn get(&self, path: &str, lines: &str) -> Answer {
        let ada = &self.ada;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ada}\r\nconnection: close\r\n{lines}\r\n"
        );
        self.send(request.as_bytes()).await
    }

    /// Sends these bytes, and reads until the server closes the connection.
    pub(crate) async fn send(&self, request: &[u8]) -> Answer {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        // It may have answered and gone before it has read all of it.
        let _ = socket.write_all(request).await;
        let mut bytes = Vec::new();
        let _ = socket.read_to_end(&mut bytes).await;
        Answer::read(&bytes)
    }

    /// Opens a stream of events.
    pub(crate) async fn stream(&self, path: &str, lines: &str) -> Stream {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let ada = &self.ada;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ada}\r\naccept: text/event-stream\r\n{lines}\r\n"
        );
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut stream = Stream { socket: BufReader::new(socket), left: 0, line: Vec::new() };
        let status = stream.head_line().await;
        assert_eq!(status, "HTTP/1.1 200 OK");
        while !stream.head_line().await.is_empty() {}
        stream
    }

    /// Ends the server and everything.
    pub(crate) async fn end(self) {
        self.end_but_for_its_folder().await;
    }

    /// The same, and leaves the workspace to whoever comes next.
    pub(crate) async fn end_but_for_its_folder(mut self) -> TempDir {
        self.cancel.cancel();
        while self.serving.join_next().await.is_some() {}
        self.formwork.close().await;
        self.folder
    }
}

/// Opens a workspace.
pub(crate) async fn opened(workspace: &Path, url: Option<&str>) -> Formwork {
    let config: Config = serde_json::from_value(json!({
        "database_url": url,
        "sandbox": "off",
        "permissions": { "mode": "auto" },
    }))
    .unwrap();
    let builder = Builder::new(workspace).config(config).environment([("PATH", "/usr/bin:/bin")]);
    builder.build().await.unwrap()
}

async fn given(formwork: &Formwork, to: &str, scopes: &[Scope]) -> (CredentialId, Token) {
    let owner = Principal::parse("user:owner").unwrap();
    let grant = Grant::new(Principal::parse(to).unwrap(), scopes.iter().copied());
    let (credential, token) = formwork.guard().issue(&owner, grant).await.unwrap();
    (credential.id, token)
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self { status: status.unwrap_or(0), headers: headers.collect(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the status and what is wrong.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        (self.status, problem["detail"].as_str().unwrap().to_owned())
    }
}

/// A stream of events that is read as it comes.
pub(crate) struct Stream {
    socket: BufReader<TcpStream>,
    /// How much of the present chunk is left.
    left: usize,
    line: Vec<u8>,
}

/// What comes by a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Came {
    Event(u64, Value),
    Cursor(u64),
    Heartbeat,
    End,
}

impl Stream {
    async fn head_line(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    /// Reads a line of the stream, whatever chunks it comes in; nothing at its end.
    async fn line(&mut self) -> Option<String> {
        loop {
            if self.left == 0 {
                let mut size = String::new();
                if self.socket.read_line(&mut size).await.unwrap_or(0) == 0 {
                    return None;
                }
                self.left = usize::from_str_radix(size.trim(), 16).unwrap();
                if self.left == 0 {
                    return None;
                }
            }
            let there = self.socket.fill_buf().await.ok()?;
            let part = &there[..there.len().min(self.left)];
            let end = part.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(part.len(), |at| at + 1);
            if taken == 0 {
                return None;
            }
            self.line.extend(&part[..end.unwrap_or(taken)]);
            self.socket.consume(taken);
            self.left -= taken;
            if self.left == 0 {
                let mut end = [0; 2];
                self.socket.read_exact(&mut end).await.ok()?;
            }
            if end.is_some() {
                return Some(String::from_utf8(std::mem::take(&mut self.line)).unwrap());
            }
        }
    }

    /// Reads what comes next.
    pub(crate) async fn next(&mut self) -> Came {
        let (mut id, mut data, mut is_comment) = (None, None, false);
        loop {
            let Some(line) = self.line().await else { return Came::End };
            match line.split_once(':') {
                Some(("id", value)) => id = value.trim().parse().ok(),
                Some(("data", value)) => data = Some(serde_json::from_str(value).unwrap()),
                Some(("", _)) => is_comment = true,
                Some(("retry", _)) => {}
                None if line.is_empty() => match (id, data.take()) {
                    (Some(id), Some(data)) => return Came::Event(id, data),
                    (Some(id), None) => return Came::Cursor(id),
                    _ if is_comment => return Came::Heartbeat,
                    _ => {}
                },
                _ => panic!("{line:?}"),
            }
        }
    }

    /// Reads the next event, whatever else comes before.
    pub(crate) async fn event(&mut self) -> (u64, Value) {
        loop {
            match self.next().await {
                Came::Event(id, event) => return (id, event),
                Came::Cursor(_) | Came::Heartbeat => {}
                Came::End => panic!("the stream ended"),
            }
        }
    }
}
