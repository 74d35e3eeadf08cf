//! The near end of every connection: workers come in here, and calls go out.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    extract::ws::{Message, WebSocket, WebSocketUpgrade},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use formwork_protocols::{
    Cancel, Clock, EventBody, Principal, SystemClock, WorkerName, event::WorkerRefused,
};
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};

use crate::{
    board::{Board, LINK, NotTaken, Refusal, WorkerRow},
    message::{FromWorker, Hello, MAX_FRAME_BYTES, PROTOCOL, ToWorker, decode, encode},
};

/// What a token has to be good for, so that a worker may come with it.
pub const SCOPE: &str = "worker";

/// How long what belongs together may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// How often each end says that it is there, whatever it works on.
    pub beat: Duration,
    /// After how long without a word an end is taken for gone.
    pub silence: Duration,
    /// How long a worker may be away before its calls are settled without it.
    pub grace: Duration,
    /// How long a call that is to end may take to.
    pub ending: Duration,
}

impl Default for Times {
    /// Three signs of life may be lost, and a network may be away as long as a laptop takes to find another one.
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(10),
            silence: Duration::from_secs(35),
            grace: Duration::from_secs(30),
            ending: Duration::from_secs(15),
        }
    }
}

/// Who connects: whose token was shown, and what it is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    principal: Principal,
    scopes: BTreeSet<String>,
}

impl Guest {
    /// Returns who was found by a token.
    pub fn new(principal: Principal, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { principal, scopes: scopes.into_iter().map(Into::into).collect() }
    }
}

/// Where workers are connected, and calls wait for them. Clones share it.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    board: Mutex<Board>,
    /// Moves with whatever moves on the board.
    moved: watch::Sender<u64>,
    times: Times,
    clock: Arc<dyn Clock>,
}

impl Default for Hub {
    fn default() -> Self {
        Self::new(Times::default(), Arc::new(SystemClock))
    }
}

/// How a connection ended.
enum End {
    /// The worker said that it leaves.
    Left,
    /// It did not keep to the protocol.
    Broken(String),
    /// It is away, and may come back.
    Away(String),
    /// This end leaves.
    Closing,
}

impl Hub {
    /// Returns a hub without workers.
    pub fn new(times: Times, clock: Arc<dyn Clock>) -> Self {
        let (board, moved) = (Mutex::default(), watch::Sender::default());
        Self { inner: Arc::new(Inner { board, moved, times, clock }) }
    }

    pub(crate) fn times(&self) -> Times {
        self.inner.times
    }

    /// Lists the workers that are here, and those that are awaited for a moment, by name.
    pub fn workers(&self) -> Vec<WorkerRow> {
        self.lock().rows()
    }

    /// Returns what changes with whatever happens here; that it is here already counts as a change that was not seen yet.
    pub fn moves(&self) -> watch::Receiver<u64> {
        let mut moves = self.inner.moved.subscribe();
        moves.mark_changed();
        moves
    }

    /// Does something to the board, and wakes whoever waits for it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Board) -> T) -> T {
        let done = change(&mut self.lock());
        self.inner.moved.send_modify(|moved| *moved = moved.wrapping_add(1));
        done
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Board) -> T) -> T {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.inner.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request to become a WebSocket, of somebody whose token was looked at, and serves the connection until it
    /// ends or `cancel` is raised. Who may not is told so before there is any.
    pub fn accept(&self, request: WebSocketUpgrade, guest: Guest, cancel: Cancel) -> Response {
        if !guest.scopes.contains(SCOPE) {
            let told = format!("this token is not good for scope {SCOPE}\n");
            return (StatusCode::FORBIDDEN, told).into_response();
        }
        let request = request
            .protocols([PROTOCOL])
            .max_message_size(MAX_FRAME_BYTES)
            .max_frame_size(MAX_FRAME_BYTES);
        if request.selected_protocol().is_none() {
            let told = format!("this end speaks {PROTOCOL} and nothing else\n");
            return (StatusCode::BAD_REQUEST, told).into_response();
        }
        let hub = self.clone();
        request.on_upgrade(move |socket| async move {
            hub.serve(socket, &guest.principal, &cancel).await;
        })
    }

    /// Serves a connection until it is over and its worker has come back by another, or was given up.
    async fn serve(&self, mut socket: WebSocket, principal: &Principal, cancel: &Cancel) {
        let times = self.inner.times;
        let hello = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            hello = timeout(times.silence, hello(&mut socket)) => hello,
        };
        let hello = match hello {
            Ok(Ok(hello)) => hello,
            Ok(Err(reason)) => return refuse(socket, NotTaken { reason, again: false }).await,
            // Who says nothing is told nothing.
            Err(_) => return,
        };
        let (link, orders) = mpsc::channel(LINK);
        let name = hello.name.clone();
        let now = self.inner.clock.now();
        let (connection, open) = match self.with(|board| board.join(hello, principal, link, now)) {
            Ok(joined) => joined,
            Err(why) => return refuse(socket, why).await,
        };
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (beat_ms, grace_ms) = (millis(times.silence), millis(times.grace));
        let welcome = ToWorker::Welcome { open, beat_ms, grace_ms };
        let end = {
            let (mut out, words) = socket.split();
            let writing = async {
                let said = write(&mut out, &welcome, times.silence).await;
                match said {
                    Ok(()) => self.write(&mut out, orders).await,
                    Err(reason) => End::Away(reason),
                }
            };
            let reading = self.read(words, &name, connection);
            // Neither waits for the other: what is long to write keeps no sign of life from being heard.
            tokio::select! {
                biased;
                () = cancel.cancelled() => End::Closing,
                end = reading => end,
                end = writing => end,
            }
        };
        self.over(&name, connection, end, cancel).await;
    }

    /// Does what follows the end of a connection.
    async fn over(&self, name: &WorkerName, connection: u64, end: End, cancel: &Cancel) {
        let reason = match end {
            End::Left => "it left".to_owned(),
            End::Closing => "the hub closes".to_owned(),
            End::Broken(reason) => reason,
            End::Away(reason) => {
                self.with(|board| board.leave(name, connection));
                let mut moves = self.moves();
                let until = Instant::now() + self.inner.times.grace;
                loop {
                    if !self.look(|board| board.is_of(name, connection)) {
                        return;
                    }
                    tokio::select! {
                        () = cancel.cancelled() => break,
                        moved = timeout_at(until, moves.changed()) => match moved {
                            Ok(Ok(())) => {}
                            Ok(Err(_)) | Err(_) => break,
                        },
                    }
                }
                let grace = formwork_protocols::Span::from(self.inner.times.grace);
                format!("{reason}, and it did not come back within {grace}")
            }
        };
        self.with(|board| board.lose(name, Some(connection), &reason));
    }

    /// Writes what is for a worker, and that this end is there.
    async fn write(
        &self,
        out: &mut (impl Sink<Message, Error = axum::Error> + Unpin),
        mut orders: mpsc::Receiver<ToWorker>,
    ) -> End {
        let Times { beat, silence, .. } = self.inner.times;
        let mut beats = interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let order = tokio::select! {
                order = orders.recv() => match order {
                    Some(order) => order,
                    // It came by another connection, or takes nothing off.
                    None => return End::Away("its connection was given up".to_owned()),
                },
                _ = beats.tick() => ToWorker::Beat {},
            };
            if let Err(reason) = write(out, &order, silence).await {
                return End::Away(reason);
            }
        }
    }

    /// Reads what a worker says.
    async fn read(
        &self,
        mut words: impl Stream<Item = Result<Message, axum::Error>> + Unpin,
        name: &WorkerName,
        connection: u64,
    ) -> End {
        loop {
            let silence = self.inner.times.silence;
            let until = Instant::now() + silence;
            // A connection that is alive is no worker that is.
            let frame = loop {
                match timeout_at(until, words.next()).await {
                    Ok(Some(Ok(Message::Text(frame)))) => break frame,
                    Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                    Ok(Some(Ok(Message::Binary(_)))) => {
                        return End::Broken("it sent a frame that is no text".to_owned());
                    }
                    Ok(None | Some(Ok(Message::Close(_)))) => {
                        return End::Away("its connection ended".to_owned());
                    }
                    Ok(Some(Err(error))) => {
                        return End::Away(format!("its connection broke: {error}"));
                    }
                    Err(_) => {
                        let silence = formwork_protocols::Span::from(silence);
                        return End::Away(format!("nothing was heard of it for {silence}"));
                    }
                }
            };
            let said = match decode(&frame) {
                Ok(said) => said,
                Err(fault) => return End::Broken(fault.to_string()),
            };
            let taken = match said {
                FromWorker::Hello(_) => {
                    return End::Broken("it introduced itself twice".to_owned());
                }
                FromWorker::Bye {} => return End::Left,
                FromWorker::Beat {} => {
                    self.with(|board| board.beat(name, connection));
                    Ok(())
                }
                FromWorker::Pull { calls } => {
                    self.with(|board| board.pull(name, connection, calls));
                    Ok(())
                }
                FromWorker::Part { of, text } => {
                    self.with(|board| board.part(name, connection, of, text));
                    Ok(())
                }
                FromWorker::Done { of, parts } => {
                    self.with(|board| board.done(name, connection, of, parts))
                }
            };
            let Err(Refusal { reason, whose, is_last }) = taken else { continue };
            if let Some(whose) = whose {
                let (worker, call, reason) = (name.clone(), whose.call, reason.clone());
                let refused = WorkerRefused { worker, call, reason };
                whose.tell.tell(whose.task, EventBody::WorkerRefused(refused)).await;
            }
            if is_last {
                return End::Broken(format!("too many of its answers were refused: {reason}"));
            }
        }
    }
}

/// Waits for the first word.
async fn hello(socket: &mut WebSocket) -> Result<Hello, String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(frame))) => {
                return match decode(&frame) {
                    Ok(FromWorker::Hello(hello)) => Ok(hello),
                    Ok(_) => Err("a worker introduces itself first".to_owned()),
                    Err(fault) => Err(fault.to_string()),
                };
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Binary(_) | Message::Close(_)) | Err(_)) | None => {
                return Err("a worker introduces itself first".to_owned());
            }
        }
    }
}

/// Says that a worker is not taken, and why.
async fn refuse(mut socket: WebSocket, NotTaken { reason, again }: NotTaken) {
    let said = ToWorker::Refused { reason, again };
    // Who has gone needs no words.
    let _ = write(&mut socket, &said, Duration::from_secs(5)).await;
    let _ = timeout(Duration::from_secs(5), socket.send(Message::Close(None))).await;
}

/// Writes a message to an end that has to take it off in time.
async fn write(
    out: &mut (impl Sink<Message, Error = axum::Error> + Unpin),
    message: &ToWorker,
    within: Duration,
) -> Result<(), String> {
    match timeout(within, out.send(Message::Text(encode(message).into()))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("its connection broke: {error}")),
        Err(_) => Err("it takes nothing off its connection".to_owned()),
    }
}
