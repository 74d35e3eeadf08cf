//! The DevTools protocol over two pipes: one command at a time, each message ended by a zero byte.
//!
//! Source: Chromium's `--remote-debugging-pipe`, which reads from file 3 and writes to file 4.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout},
};

use crate::Error;

/// The largest message that is read: the picture of a large page has some megabytes.
const MAX_MESSAGE: u64 = 64 << 20;

/// Both ends of the pipes. It is spent once a future of it was dropped.
pub(crate) struct Connection {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    /// What happened while an answer was waited for, for whoever looks.
    pub(crate) notes: Vec<Note>,
}

/// Something that a page did by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// It wanted to say or ask something in a box, which was closed.
    Dialog(String),
}

impl Connection {
    pub(crate) fn new(input: ChildStdin, output: ChildStdout) -> Self {
        Self { input, output: BufReader::new(output), next: 0, notes: Vec::new() }
    }

    /// Sends a command, to the browser itself or to a page of it, and returns its answer.
    pub(crate) async fn command(
        &mut self,
        page: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, Error> {
        let id = self.send(page, method, params).await?;
        loop {
            let mut message = self.receive().await?;
            if message["id"].as_u64() != Some(id) {
                self.happened(&message).await?;
                continue;
            }
            if let Some(error) = message.get("error") {
                let reason = error["message"].as_str().unwrap_or("it says no more").to_owned();
                return Err(Error::Refused { reason });
            }
            return Ok(message["result"].take());
        }
    }

    async fn send(
        &mut self,
        page: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<u64, Error> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(page) = page {
            message["sessionId"] = json!(page);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let gone = |error: std::io::Error| Error::Gone { reason: error.to_string() };
        self.input.write_all(&bytes).await.map_err(gone)?;
        self.input.flush().await.map_err(gone)?;
        Ok(self.next)
    }

    async fn receive(&mut self) -> Result<Value, Error> {
        let gone = |reason: String| Error::Gone { reason };
        let mut bytes = Vec::new();
        (&mut self.output)
            .take(MAX_MESSAGE)
            .read_until(0, &mut bytes)
            .await
            .map_err(|error| gone(error.to_string()))?;
        if bytes.pop() != Some(0) {
            return Err(gone("it ended or said too much at once".to_owned()));
        }
        serde_json::from_slice(&bytes).map_err(|error| gone(error.to_string()))
    }

    /// Closes boxes that a page opens: nobody is there to answer, and the page stands still until somebody does.
    async fn happened(&mut self, event: &Value) -> Result<(), Error> {
        if event["method"] == "Page.javascriptDialogOpening" {
            let said = event["params"]["message"].as_str().unwrap_or_default();
            self.notes.push(Note::Dialog(formwork_protocols::text::head(said, 200).to_owned()));
            let page = event["sessionId"].as_str().map(str::to_owned);
            let answer = json!({ "accept": false });
            // Its answer comes as any other that nobody waits for.
            self.send(page.as_deref(), "Page.handleJavaScriptDialog", answer).await?;
        }
        Ok(())
    }
}
