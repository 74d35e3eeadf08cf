//! Over a pair of streams: what one client says in lines, until it goes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use formwork_services::{Formwork, capability::Caller};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, LARGEST,
    lines::{Line, Lines},
    message::{self, Fault, Message},
    server::Server,
};

/// How many requests are looked at together. More are not read before one is answered.
const REQUESTS: usize = 64;

/// How many answers wait for a client that does not read them. Then nothing more is read of it.
const ANSWERS: usize = 16;

/// How long what is under way may take once the client has gone: whoever writes all its requests at once wants their answers.
const LEAVE: Duration = Duration::from_secs(5);

/// Serves one client over a pair of streams until it goes, or `cancel` is raised. What is under way then is given a moment
/// to be done and answered.
///
/// # Errors
/// [`Error::Read`] when the client cannot be read from. One that does not read any more has gone.
pub async fn serve<R, W>(
    formwork: &Formwork,
    caller: Caller,
    (read, write): (R, W),
    cancel: CancellationToken,
) -> Result<(), Error>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (tell, answers) = mpsc::channel(ANSWERS);
    let (gone, written) = (cancel.child_token(), CancellationToken::new());
    let abandoned = CancellationToken::new();
    let server = Server::new(formwork);
    let client = Client { server, caller: Arc::new(caller), tell, gone: gone.clone() };
    let hearing = async {
        let heard = client.hear(Lines::new(read, LARGEST)).await;
        // Nothing more is said; whoever reads has read all of it soon.
        let _ = tokio::time::timeout(LEAVE, written.cancelled()).await;
        abandoned.cancel();
        heard
    };
    let writing = async {
        tokio::select! {
            // Who does not read has gone; what was said to them is lost with them.
            _ = write_all(write, answers) => {}
            () = abandoned.cancelled() => {}
        }
        gone.cancel();
        written.cancel();
    };
    let (heard, ()) = tokio::join!(hearing, writing);
    heard
}

/// Writes answers, one a line, until there are no more.
async fn write_all<W: AsyncWrite + Unpin>(
    mut write: W,
    mut answers: mpsc::Receiver<Value>,
) -> std::io::Result<()> {
    while let Some(answer) = answers.recv().await {
        // JSON has no line end in it: within a text it is written as \n.
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        write.flush().await?;
    }
    write.shutdown().await
}

struct Client {
    server: Server,
    caller: Arc<Caller>,
    tell: mpsc::Sender<Value>,
    /// Raised once nobody is there to be answered, or nothing more is to be done.
    gone: CancellationToken,
}

/// The requests that are under way, by their ids as they are written.
type UnderWay = HashMap<String, CancellationToken>;

impl Client {
    async fn hear<R: AsyncRead + Unpin>(self, mut lines: Lines<R>) -> Result<(), Error> {
        let (mut requests, mut under_way) = (JoinSet::new(), UnderWay::new());
        let heard = loop {
            tokio::select! {
                biased;
                () = self.gone.cancelled() => break Ok(()),
                Some(done) = requests.join_next(), if !requests.is_empty() => {
                    self.end(done, &mut under_way).await;
                }
                line = lines.next(), if requests.len() < REQUESTS => match line {
                    Ok(Line::Whole(line)) => self.take(&line, &mut requests, &mut under_way).await,
                    Ok(Line::TooLong) => {
                        let told = format!("a message has at most {LARGEST} bytes");
                        self.say(Fault::request(told).answer(Value::Null)).await;
                    }
                    Ok(Line::End) => break Ok(()),
                    Err(error) => break Err(Error::Read(error)),
                },
            }
        };
        let rest = async {
            while let Some(done) = requests.join_next().await {
                self.end(done, &mut under_way).await;
            }
            self.server.close().await;
        };
        // What takes longer ends with the process, and is in the log as far as it has come.
        let _ = tokio::time::timeout(LEAVE, rest).await;
        heard
    }

    async fn take(
        &self,
        line: &[u8],
        requests: &mut JoinSet<(String, Option<Value>)>,
        under_way: &mut UnderWay,
    ) {
        match message::parse(line) {
            Err(answer) => self.say(answer).await,
            Ok(Message::Answer) => {}
            Ok(Message::Notification { method, params }) => {
                let named = params.get("requestId").filter(|_| method == "notifications/cancelled");
                if let Some(call) = named.and_then(|id| under_way.get(&id.to_string())) {
                    call.cancel();
                }
            }
            Ok(Message::Request { id, method, params }) => {
                let named = id.to_string();
                if under_way.contains_key(&named) {
                    let fault = Fault::request("a request of that id is under way");
                    return self.say(fault.answer(id)).await;
                }
                let cancel = CancellationToken::new();
                under_way.insert(named.clone(), cancel.clone());
                let (server, caller) = (self.server.clone(), Arc::clone(&self.caller));
                requests.spawn(async move {
                    let answer = server.answer(&caller, (id, &method, params), &cancel).await;
                    // What was taken back is not answered, as it may be by chance.
                    (named, answer.filter(|_| !cancel.is_cancelled()))
                });
            }
        }
    }

    async fn end(
        &self,
        done: Result<(String, Option<Value>), tokio::task::JoinError>,
        under_way: &mut UnderWay,
    ) {
        let Ok((named, answer)) = done else { return };
        under_way.remove(&named);
        if let Some(answer) = answer {
            self.say(answer).await;
        }
    }

    async fn say(&self, answer: Value) {
        tokio::select! {
            // Nobody hears it where this fails.
            _ = self.tell.send(answer) => {}
            () = self.gone.cancelled() => {}
        }
    }
}
