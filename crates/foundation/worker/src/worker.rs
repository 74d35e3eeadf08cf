//! The far end of a connection: dials out, takes calls, keeps their answers until they are taken.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use formwork_protocols::{Cancel, Rng, ToolErrorKind, WorkerLabel, WorkerName};
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout, timeout_at},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use crate::{
    Error,
    address::{Address, Token, Wire},
    far::Bench,
    message::{Answer, FromWorker, Given, Hello, Lease, ToWorker, decode, encode, parts},
};

/// How long it is waited before the hub is tried again: at first, and at the most.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// For how long a connection has to have stood before the wait begins anew.
const CALM: Duration = Duration::from_secs(60);

/// How long calls may take to end when the worker leaves.
const LEAVING: Duration = Duration::from_secs(20);

/// How long is waited for the answer to the first word.
const WELCOME: Duration = Duration::from_secs(20);

/// Who a worker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name, by which what was begun there is found again.
    pub name: WorkerName,
    /// What it offers.
    pub labels: Vec<WorkerLabel>,
    /// How many calls it takes at once, up to [`MAX_SLOTS`](crate::MAX_SLOTS).
    pub slots: u32,
}

/// What a person is told of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant's sentence names its fields")]
pub enum Status {
    /// It is connected to the hub at `address`.
    Connected { address: String },
    /// It is not, for `reason`, and tries again after a while.
    Away { reason: String, again: Duration },
    /// It was away for too long: the calls that it held, `ended` of them, were ended.
    GivenUp { ended: usize },
    /// It leaves, and has ended the calls that it held.
    Leaving { ended: usize },
}

/// Takes calls from a hub and has them carried out.
pub struct Worker {
    identity: Identity,
    address: Address,
    token: Token,
    bench: Arc<dyn Bench>,
    rng: Arc<dyn Rng>,
}

type Socket = WebSocketStream<Box<dyn Wire>>;

/// How a connection ended.
enum End {
    /// It is over.
    Over(Error),
    /// The worker was told to leave.
    Leave,
}

/// What a worker holds, across connections.
struct Load {
    calls: HashMap<Lease, Call>,
    jobs: JoinSet<(Lease, Answer)>,
    /// When the hub settles without it what it holds; never while it is connected.
    until: Option<Instant>,
    grace: Duration,
    silence: Duration,
}

/// A call that was taken.
struct Call {
    cancel: Cancel,
    /// What came of it, in parts, until that is taken.
    answer: Option<Vec<String>>,
}

impl Load {
    fn at_work(&self) -> usize {
        self.calls.values().filter(|call| call.answer.is_none()).count()
    }

    /// Ends all that is at work, and forgets it: nobody waits for it any more.
    fn give_up(&mut self) -> usize {
        let ended = self.at_work();
        self.calls.values().for_each(|call| call.cancel.cancel());
        self.calls.clear();
        ended
    }

    /// Takes what a job came back with. Nothing is returned where nobody waits for it.
    fn answered(&mut self, lease: Lease, answer: &Answer) -> bool {
        let Some(call) = self.calls.get_mut(&lease) else { return false };
        call.answer = Some(parts(answer));
        true
    }
}

impl Worker {
    /// Makes a worker of `bench`, which dials `address` and shows `token`.
    pub fn new(
        identity: Identity,
        (address, token): (Address, Token),
        bench: Arc<dyn Bench>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        Self { identity, address, token, bench, rng }
    }

    /// Works until `cancel` is raised: then what it has at work is ended, the hub is told, and it returns. While the hub is
    /// away it is tried again and again, after longer and longer waits.
    ///
    /// # Errors
    /// [`Error::Refused`] where the hub does not take it, and would not at a later try.
    pub async fn run(
        self,
        cancel: &Cancel,
        told: &(dyn Fn(Status) + Send + Sync),
    ) -> Result<(), Error> {
        let instance = format!("{:016x}{:016x}", self.rng.next_u64(), self.rng.next_u64());
        let mut load = Load {
            calls: HashMap::new(),
            jobs: JoinSet::new(),
            until: None,
            grace: Duration::ZERO,
            silence: WELCOME,
        };
        let mut wait = FIRST;
        loop {
            let mut dialling = Box::pin(self.address.dial(&self.token));
            let dialled = loop {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => break None,
                    () = self.expired(&mut load, told) => {}
                    dialled = &mut dialling => break Some(dialled),
                }
            };
            let entered = match dialled {
                None => break,
                Some(Err(error)) => Err(error),
                Some(Ok(socket)) => tokio::select! {
                    biased;
                    () = cancel.cancelled() => break,
                    entered = self.enter(socket, &instance, &mut load) => entered,
                },
            };
            let over = match entered {
                Ok(mut socket) => {
                    told(Status::Connected { address: self.address.to_string() });
                    let began = Instant::now();
                    load.until = None;
                    let end = self.work(&mut socket, &mut load, cancel).await;
                    load.until = Some(Instant::now() + load.grace);
                    if began.elapsed() > CALM {
                        wait = FIRST;
                    }
                    match end {
                        End::Leave => {
                            told(Status::Leaving { ended: load.at_work() });
                            self.leave(&mut socket, &mut load).await;
                            return Ok(());
                        }
                        End::Over(error) => error,
                    }
                }
                Err(error @ (Error::Unreachable { .. } | Error::Over { .. })) => error,
                Err(error) => {
                    load.give_up();
                    self.rest(&mut load).await;
                    return Err(error);
                }
            };
            // Workers that lost one hub together do not come back together.
            let part = u32::try_from(self.rng.next_u64() % 512).unwrap_or(0);
            let again = wait / 2 + wait / 1_024 * part;
            wait = (wait * 2).min(LONGEST);
            told(Status::Away { reason: over.to_string(), again });
            let until = Instant::now() + again;
            loop {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => break,
                    () = sleep_until(until) => break,
                    () = self.expired(&mut load, told) => {}
                }
            }
        }
        told(Status::Leaving { ended: load.give_up() });
        self.rest(&mut load).await;
        Ok(())
    }

    /// Returns once what it held was given up, or something that it holds has ended; else not at all.
    async fn expired(&self, load: &mut Load, told: &(dyn Fn(Status) + Send + Sync)) {
        let until = load.until;
        let is_over = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let done = async {
            match load.jobs.join_next().await {
                Some(Ok((lease, answer))) => Some((lease, answer)),
                Some(Err(_)) => None,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = is_over => {
                load.until = None;
                let ended = load.give_up();
                if ended > 0 {
                    told(Status::GivenUp { ended });
                }
            }
            done = done => {
                if let Some((lease, answer)) = done {
                    load.answered(lease, &answer);
                }
            }
        }
    }

    /// Introduces itself and is taken. Returns with what it still holds and no more.
    async fn enter(
        &self,
        mut socket: Socket,
        instance: &str,
        load: &mut Load,
    ) -> Result<Socket, Error> {
        let Identity { name, labels, slots } = self.identity.clone();
        let (instance, tools) = (instance.to_owned(), self.bench.tools());
        let hello = FromWorker::Hello(Hello { name, instance, labels, slots, tools });
        self.say(&mut socket, &hello, WELCOME).await?;
        let (open, beat_ms, grace_ms) =
            match self.hear(&mut socket, Instant::now() + WELCOME).await? {
                ToWorker::Welcome { open, beat_ms, grace_ms } => (open, beat_ms, grace_ms),
                ToWorker::Refused { reason, again } => {
                    let address = self.address.to_string();
                    return Err(match again {
                        true => Error::Unreachable { address, reason },
                        false => Error::Refused { address, reason },
                    });
                }
                _ => return Err(self.over("it said something else than welcome")),
            };
        load.grace = Duration::from_millis(grace_ms);
        load.silence = Duration::from_millis(beat_ms).max(Duration::from_millis(1));
        // What the hub has settled without it is not to go on.
        load.calls.retain(|lease, call| {
            let is_open = open.contains(lease);
            if !is_open {
                call.cancel.cancel();
            }
            is_open
        });
        let held: Vec<Lease> = load.calls.keys().copied().collect();
        for lease in held {
            self.hand_in(&mut socket, load, lease).await?;
        }
        // What the hub takes for given and never came here has ended: it says so.
        for lease in open {
            if let Entry::Vacant(unknown) = load.calls.entry(lease) {
                let told = "the connection broke as the call was given, and it was not begun";
                let answer = Answer::failed(ToolErrorKind::Failed, told);
                unknown.insert(Call { cancel: Cancel::new(), answer: Some(parts(&answer)) });
                self.hand_in(&mut socket, load, lease).await?;
            }
        }
        let at_work = u32::try_from(load.at_work()).unwrap_or(u32::MAX);
        let room = self.identity.slots.saturating_sub(at_work);
        self.say(&mut socket, &FromWorker::Pull { calls: room }, load.silence).await?;
        Ok(socket)
    }

    /// Works on what comes until the connection is over or it is told to leave.
    async fn work(&self, socket: &mut Socket, load: &mut Load, cancel: &Cancel) -> End {
        let silence = load.silence;
        let mut beats = interval((silence / 4).max(Duration::from_millis(1)));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut until = Instant::now() + silence;
        loop {
            let done = tokio::select! {
                biased;
                () = cancel.cancelled() => return End::Leave,
                heard = self.hear(socket, until) => match heard {
                    Ok(heard) => {
                        until = Instant::now() + silence;
                        if let Err(error) = self.take(load, heard) {
                            return End::Over(error);
                        }
                        continue;
                    }
                    Err(error) => return End::Over(error),
                },
                Some(done) = load.jobs.join_next() => done,
                _ = beats.tick() => {
                    if let Err(error) = self.say(socket, &FromWorker::Beat {}, silence).await {
                        return End::Over(error);
                    }
                    continue;
                }
            };
            let Ok((lease, answer)) = done else { continue };
            load.answered(lease, &answer);
            let handed_in = async {
                self.hand_in(socket, load, lease).await?;
                self.say(socket, &FromWorker::Pull { calls: 1 }, silence).await
            };
            if let Err(error) = handed_in.await {
                return End::Over(error);
            }
        }
    }

    /// Does what the hub says.
    fn take(&self, load: &mut Load, heard: ToWorker) -> Result<(), Error> {
        match heard {
            ToWorker::Beat {} => {}
            ToWorker::Cancel { of } => {
                if let Some(call) = load.calls.get(&of) {
                    call.cancel.cancel();
                }
            }
            ToWorker::Taken { of } => drop(load.calls.remove(&of)),
            // What it has it does not take twice.
            ToWorker::Call { of, .. } if load.calls.contains_key(&of) => {}
            ToWorker::Call { of, left_ms, given } => {
                // A call of before, given anew, is this one from now on.
                load.calls.retain(|lease, call| {
                    let is_other = lease.lease != of.lease;
                    if !is_other {
                        call.cancel.cancel();
                    }
                    is_other
                });
                let cancel = Cancel::new();
                let call = Call { cancel: cancel.clone(), answer: None };
                load.calls.insert(of, call);
                let (bench, left) = (Arc::clone(&self.bench), Duration::from_millis(left_ms));
                load.jobs
                    .spawn(async move { (of, carried_out(&*bench, *given, left, &cancel).await) });
            }
            ToWorker::Welcome { .. } => return Err(self.over("it said welcome twice")),
            ToWorker::Refused { reason, .. } => return Err(self.over(&reason)),
        }
        Ok(())
    }

    /// Hands in what came of a call, if it has ended. It is kept until it is taken.
    async fn hand_in(&self, socket: &mut Socket, load: &Load, of: Lease) -> Result<(), Error> {
        let Some(answer) = load.calls.get(&of).and_then(|call| call.answer.as_ref()) else {
            return Ok(());
        };
        for text in answer {
            let part = FromWorker::Part { of, text: text.clone() };
            self.say(socket, &part, load.silence).await?;
        }
        let parts = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        self.say(socket, &FromWorker::Done { of, parts }, load.silence).await
    }

    /// Ends what is at work, hands in what came of it, and says goodbye.
    async fn leave(&self, socket: &mut Socket, load: &mut Load) {
        load.calls.values().for_each(|call| call.cancel.cancel());
        let leaving = async {
            while load.at_work() > 0 {
                match load.jobs.join_next().await {
                    Some(Ok((lease, answer))) => {
                        load.answered(lease, &answer);
                        self.hand_in(socket, load, lease).await?;
                    }
                    Some(Err(_)) => {}
                    None => break,
                }
            }
            self.say(socket, &FromWorker::Bye {}, load.silence).await
        };
        // The hub settles what it does not hear of.
        let _ = timeout(LEAVING, leaving).await;
        let _ = timeout(Duration::from_secs(2), socket.close(None)).await;
        self.rest(load).await;
    }

    /// Waits for a while until nothing is at work any more.
    async fn rest(&self, load: &mut Load) {
        let ended = async { while load.jobs.join_next().await.is_some() {} };
        let _ = timeout(LEAVING, ended).await;
        load.jobs.shutdown().await;
    }

    fn over(&self, reason: &str) -> Error {
        Error::Over { address: self.address.to_string(), reason: reason.to_owned() }
    }

    async fn say(
        &self,
        socket: &mut Socket,
        message: &FromWorker,
        within: Duration,
    ) -> Result<(), Error> {
        match timeout(within, socket.send(Message::text(encode(message)))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.over(&error.to_string())),
            Err(_) => Err(self.over("it takes nothing off")),
        }
    }

    /// Waits for the next word. Cancel safe.
    async fn hear(&self, socket: &mut Socket, until: Instant) -> Result<ToWorker, Error> {
        loop {
            match timeout_at(until, socket.next()).await {
                Ok(Some(Ok(Message::Text(frame)))) => {
                    return decode(&frame).map_err(|fault| self.over(&fault.to_string()));
                }
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => {}
                Ok(Some(Ok(Message::Binary(_)))) => return Err(self.over("it sent no text")),
                Ok(None | Some(Ok(Message::Close(_)))) => return Err(self.over("it was closed")),
                Ok(Some(Err(error))) => return Err(self.over(&error.to_string())),
                Err(_) => return Err(self.over("nothing was heard")),
            }
        }
    }
}

/// Has a call carried out, and ended when its time is over.
async fn carried_out(bench: &dyn Bench, given: Given, left: Duration, cancel: &Cancel) -> Answer {
    let working = AssertUnwindSafe(bench.carry_out(given, cancel)).catch_unwind();
    tokio::pin!(working);
    let ended = tokio::select! {
        ended = &mut working => ended,
        () = sleep(left) => {
            cancel.cancel();
            working.await
        }
    };
    ended.unwrap_or_else(|_| {
        Answer::failed(ToolErrorKind::OutcomeUnknown, "the tool broke off in the middle of it")
    })
}
