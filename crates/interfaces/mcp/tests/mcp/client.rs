//! A client that says what it likes, and hears every line that is said to it.

use std::time::Duration;

use formwork_services::{Formwork, capability::Caller};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio_util::sync::CancellationToken;

/// When an answer that should have come is taken to be lost. Nothing waits for it that goes well.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    read: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    asked: u32,
    /// The ids of all that was answered.
    pub(crate) answered: Vec<Value>,
}

/// Serves a client of this caller until it goes.
pub(crate) async fn with_client<T>(
    formwork: &Formwork,
    caller: Caller,
    act: impl AsyncFnOnce(&mut Client) -> T,
) -> T {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let streams = tokio::io::split(ours);
    let served = formwork_mcp::serve(formwork, caller, streams, CancellationToken::new());
    let acts = async {
        let (read, write) = tokio::io::split(theirs);
        let mut client =
            Client { read: BufReader::new(read).lines(), write, asked: 100, answered: vec![] };
        act(&mut client).await
    };
    let (served, done) = tokio::join!(served, acts);
    served.unwrap();
    done
}

impl Client {
    pub(crate) fn request(id: u32, method: &str, params: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    }

    pub(crate) fn notification(method: &str, params: &Value) -> String {
        json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
    }

    pub(crate) async fn say(&mut self, line: &str) {
        self.say_bytes(format!("{line}\n").as_bytes()).await;
    }

    pub(crate) async fn say_bytes(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    /// Returns the next line that is said, which is always a message.
    pub(crate) async fn hear(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(DEADLINE, self.read.next_line()).await;
        let line = line.expect("an answer comes before the deadline").unwrap()?;
        let message: Value = serde_json::from_str(&line).unwrap();
        self.answered.push(message["id"].clone());
        Some(message)
    }

    pub(crate) async fn greet(&mut self) {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        self.say(&Self::request(1, "initialize", &params)).await;
        let answer = self.hear().await.unwrap();
        assert_eq!(answer["result"]["serverInfo"]["name"], "formwork", "{answer:#}");
        self.say(&Self::notification("notifications/initialized", &json!({}))).await;
    }

    /// Calls a tool, and returns what is answered to that.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.asked += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        self.say(&Self::request(self.asked, "tools/call", &params)).await;
        loop {
            let answer = self.hear().await.unwrap();
            if answer["id"] == self.asked {
                return answer;
            }
        }
    }
}
