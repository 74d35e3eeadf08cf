//! Who is there, and who holds what: every move of it in one place, without a socket and without a clock.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use formwork_protocols::{
    BlobHash, CallId, Principal, TaskId, Timestamp, ToolName, WorkerLabel, WorkerName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::{
    message::{Answer, Given, Hello, Lease, MAX_ANSWER_BYTES, ToWorker, whole},
    near::Tell,
};

/// The most calls that one worker takes at once, whatever it says: each may hold an answer of [`MAX_ANSWER_BYTES`].
pub const MAX_SLOTS: u32 = 32;

/// The most workers of one hub, those included that are away for a moment.
const MAX_WORKERS: usize = 1_024;

/// The most labels and tools that a worker names.
const MAX_LABELS: usize = 32;
const MAX_TOOLS: usize = 1_024;

/// How many calls wait for one worker: as many as a wide run makes at once. More wait before they are given to anybody.
const MAX_QUEUED: usize = 64;

/// What can wait to be written to one worker: a call, its cancelling and its receipt for every slot, and some.
pub(crate) const LINK: usize = 4 * MAX_SLOTS as usize;

/// Of how many calls that have ended it is known whose they were, so that an answer that comes late is told in their run.
const MAX_ENDED: usize = 4_096;

/// How many answers of one connection are refused before it is ended.
const MAX_REFUSED: u32 = 8;

/// A worker, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerRow {
    /// Its name.
    pub worker: WorkerName,
    /// Whose token it showed.
    pub principal: Principal,
    /// What it offers.
    pub labels: Vec<WorkerLabel>,
    /// How many calls it takes at once.
    pub slots: u32,
    /// How many it works on.
    pub at_work: usize,
    /// How many wait for it.
    pub queued: usize,
    /// Since when it is here.
    pub since: Timestamp,
    /// Whether it is connected now; else it is awaited for a moment.
    pub connected: bool,
    /// How many signs of life it has given.
    pub beats: u64,
    /// How many of its answers were refused.
    pub refused: u32,
    /// The tools that it has.
    pub tools: Vec<ToolName>,
}

/// Where what happened to a call is told.
#[derive(Clone)]
pub(crate) struct Whose {
    pub(crate) tell: Arc<dyn Tell>,
    pub(crate) task: TaskId,
    pub(crate) call: CallId,
}

/// How a call came back.
#[derive(Debug)]
pub(crate) enum Back {
    /// It was answered.
    Answered(Answer),
    /// Its worker is gone.
    Lost {
        /// Whether the worker had been given it.
        begun: bool,
        /// How it went.
        reason: String,
    },
}

/// A call that is to be carried out.
pub(crate) struct Asked {
    pub(crate) given: Box<Given>,
    pub(crate) left_ms: u64,
    pub(crate) whose: Whose,
    pub(crate) back: oneshot::Sender<Back>,
}

/// An answer that was not taken.
pub(crate) struct Refusal {
    pub(crate) reason: String,
    /// In whose run it is told, where that is known.
    pub(crate) whose: Option<Whose>,
    /// Whether it was one too many.
    pub(crate) is_last: bool,
}

/// Why a worker was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotTaken {
    pub(crate) reason: String,
    /// Whether a later try may be.
    pub(crate) again: bool,
}

struct Member {
    principal: Principal,
    hello: Hello,
    tools: BTreeMap<ToolName, BlobHash>,
    /// The connection; none while it is away.
    link: Option<mpsc::Sender<ToWorker>>,
    /// Which connection of it that is, among all of the board.
    connection: u64,
    credit: u32,
    at_work: BTreeSet<u64>,
    queue: VecDeque<u64>,
    since: Timestamp,
    beats: u64,
    refused: u32,
}

struct Open {
    epoch: u32,
    worker: WorkerName,
    is_sent: bool,
    asked: Asked,
    parts: Vec<String>,
    bytes: usize,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Board {
    workers: BTreeMap<WorkerName, Member>,
    open: HashMap<u64, Open>,
    ended: VecDeque<(u64, Whose)>,
    last_lease: u64,
    last_connection: u64,
}

impl Board {
    /// Takes a worker, which comes for the first time or comes back. Returns which connection it is, and what it still holds.
    ///
    /// # Errors
    /// Why it is not taken.
    pub(crate) fn join(
        &mut self,
        mut hello: Hello,
        principal: &Principal,
        link: mpsc::Sender<ToWorker>,
        now: Timestamp,
    ) -> Result<(u64, Vec<Lease>), NotTaken> {
        let refused = |reason: String| Err(NotTaken { reason, again: false });
        if hello.labels.is_empty() || hello.labels.len() > MAX_LABELS {
            return refused(format!("a worker has 1 to {MAX_LABELS} labels"));
        }
        if hello.tools.len() > MAX_TOOLS || hello.instance.len() > 64 {
            return refused(format!("a worker has at most {MAX_TOOLS} tools"));
        }
        if !(1..=MAX_SLOTS).contains(&hello.slots) {
            return refused(format!("a worker takes 1 to {MAX_SLOTS} calls at once"));
        }
        hello.labels.sort();
        hello.labels.dedup();
        self.last_connection += 1;
        let connection = self.last_connection;
        let tools = hello.tools.iter().map(|it| (it.name.clone(), it.schema)).collect();
        let (name, is_back) = (
            hello.name.clone(),
            self.workers.get(&hello.name).map(|there| {
                (there.principal == *principal, there.hello.instance == hello.instance)
            }),
        );
        match is_back {
            // A name stands for a workspace that runs trust: nobody takes it from another.
            Some((false, _)) => {
                return refused(format!("the name {name} is another's: choose another one"));
            }
            Some((true, true)) => {
                let Some(member) = self.workers.get_mut(&name) else {
                    return refused("it is gone".to_owned());
                };
                // The connection before ends with its link.
                (member.hello, member.tools) = (hello, tools);
                (member.link, member.connection, member.credit) = (Some(link), connection, 0);
                let held = member.at_work.iter();
                let held = held.filter_map(|lease| {
                    Some(Lease { lease: *lease, epoch: self.open.get(lease)?.epoch })
                });
                let held: Vec<Lease> = held.collect();
                // What it had sent of an answer it sends again.
                for it in &held {
                    if let Some(open) = self.open.get_mut(&it.lease) {
                        open.parts.clear();
                        open.bytes = 0;
                    }
                }
                return Ok((connection, held));
            }
            Some((true, false)) => {
                self.lose(&name, None, "another process came under its name");
            }
            None => {}
        }
        if self.workers.len() >= MAX_WORKERS {
            let reason = format!("there are {MAX_WORKERS} workers already");
            return Err(NotTaken { reason, again: true });
        }
        let member = Member {
            principal: principal.clone(),
            hello,
            tools,
            link: Some(link),
            connection,
            credit: 0,
            at_work: BTreeSet::new(),
            queue: VecDeque::new(),
            since: now,
            beats: 0,
            refused: 0,
        };
        self.workers.insert(name, member);
        Ok((connection, Vec::new()))
    }

    /// Returns a worker, as long as this is its connection.
    fn of(&mut self, name: &WorkerName, connection: u64) -> Option<&mut Member> {
        self.workers.get_mut(name).filter(|member| member.connection == connection)
    }

    /// Tells whether this is still the connection of a worker.
    pub(crate) fn is_of(&self, name: &WorkerName, connection: u64) -> bool {
        self.workers.get(name).is_some_and(|member| member.connection == connection)
    }

    /// Takes note that a connection is over. What the worker holds it holds still.
    pub(crate) fn leave(&mut self, name: &WorkerName, connection: u64) {
        if let Some(member) = self.of(name, connection) {
            (member.link, member.credit) = (None, 0);
        }
    }

    /// Gives a worker up, if this is still its connection: its calls come back, each with whether it was begun.
    pub(crate) fn lose(
        &mut self,
        name: &WorkerName,
        connection: Option<u64>,
        reason: &str,
    ) -> bool {
        if connection.is_some_and(|connection| !self.is_of(name, connection)) {
            return false;
        }
        let Some(member) = self.workers.remove(name) else { return false };
        for lease in member.at_work.into_iter().chain(member.queue) {
            if let Some(open) = self.end(lease) {
                let lost = Back::Lost { begun: open.is_sent, reason: reason.to_owned() };
                // Who does not wait any more has settled it.
                let _ = open.asked.back.send(lost);
            }
        }
        true
    }

    /// Takes note of a sign of life.
    pub(crate) fn beat(&mut self, name: &WorkerName, connection: u64) {
        if let Some(member) = self.of(name, connection) {
            member.beats += 1;
        }
    }

    /// Takes note that a worker has room for so many calls more, and gives it some.
    pub(crate) fn pull(&mut self, name: &WorkerName, connection: u64, calls: u32) {
        if let Some(member) = self.of(name, connection) {
            member.credit = member.credit.saturating_add(calls).min(member.hello.slots);
        }
        self.pump(name);
    }

    /// Gives a worker what waits for it, as far as it has room.
    fn pump(&mut self, name: &WorkerName) {
        let Some(member) = self.workers.get_mut(name) else { return };
        while let Some(link) = &member.link
            && member.credit > 0
            && member.at_work.len() < member.hello.slots as usize
            && let Some(lease) = member.queue.pop_front()
        {
            let Some(open) = self.open.get_mut(&lease) else { continue };
            let of = Lease { lease, epoch: open.epoch };
            let (given, left_ms) = (open.asked.given.clone(), open.asked.left_ms);
            // From here on it may take effect, whether it comes to be written or not.
            open.is_sent = true;
            member.at_work.insert(lease);
            member.credit -= 1;
            if link.try_send(ToWorker::Call { of, left_ms, given }).is_err() {
                // It takes nothing off: its connection ends with the link.
                member.link = None;
            }
        }
    }

    /// Chooses a worker with a label: the one with most room.
    pub(crate) fn choose(&self, label: &WorkerLabel) -> Option<WorkerName> {
        let there = self
            .workers
            .iter()
            .filter(|(_, member)| member.link.is_some() && member.hello.labels.contains(label));
        let load = |member: &Member| {
            let held = member.at_work.len() + member.queue.len();
            held * 1_000 / member.hello.slots as usize
        };
        there.min_by_key(|(_, member)| load(member)).map(|(name, _)| name.clone())
    }

    /// Tells whether a worker is here, or awaited for a moment, and still offers a label.
    pub(crate) fn is_here(&self, name: &WorkerName, label: &WorkerLabel) -> bool {
        self.workers.get(name).is_some_and(|member| member.hello.labels.contains(label))
    }

    /// Tells which tool of that name a worker has, and the names of all.
    pub(crate) fn tools(&self, name: &WorkerName) -> Option<&BTreeMap<ToolName, BlobHash>> {
        self.workers.get(name).map(|member| &member.tools)
    }

    /// Tells whether another call can wait for a worker; nothing where it is gone.
    pub(crate) fn has_room(&self, name: &WorkerName) -> Option<bool> {
        self.workers.get(name).map(|member| member.queue.len() < MAX_QUEUED)
    }

    /// Gives a call to a worker: under a new lease, or under the same one with the next epoch.
    ///
    /// # Errors
    /// The call, where the worker is gone or has no room.
    pub(crate) fn give(
        &mut self,
        name: &WorkerName,
        asked: Asked,
        before: Option<Lease>,
    ) -> Result<Lease, Asked> {
        if self.has_room(name) != Some(true) {
            return Err(asked);
        }
        let of = match before {
            Some(before) => Lease { epoch: before.epoch.saturating_add(1), ..before },
            None => {
                self.last_lease += 1;
                Lease { lease: self.last_lease, epoch: 1 }
            }
        };
        let worker = name.clone();
        let Lease { lease, epoch } = of;
        self.ended.retain(|(ended, _)| *ended != lease);
        let (parts, bytes) = (Vec::new(), 0);
        self.open.insert(lease, Open { epoch, worker, is_sent: false, asked, parts, bytes });
        if let Some(member) = self.workers.get_mut(name) {
            member.queue.push_back(lease);
        }
        self.pump(name);
        Ok(of)
    }

    /// Asks for the end of a call. Returns whether its worker had been given it; if not, it is none any more.
    pub(crate) fn cancel(&mut self, of: Lease) -> bool {
        let Some(open) = self.open.get(&of.lease).filter(|open| open.epoch == of.epoch) else {
            return false;
        };
        if !open.is_sent {
            self.end(of.lease);
            return false;
        }
        let link = self.workers.get(&open.worker).and_then(|member| member.link.as_ref());
        if let Some(link) = link {
            // Where it takes nothing off it is soon given up.
            let _ = link.try_send(ToWorker::Cancel { of });
        }
        true
    }

    /// Ends a call, however that came, and gives its worker the next one.
    pub(crate) fn give_up(&mut self, of: Lease) {
        if self.open.get(&of.lease).is_some_and(|open| open.epoch == of.epoch) {
            self.end(of.lease);
        }
    }

    fn end(&mut self, lease: u64) -> Option<Open> {
        let open = self.open.remove(&lease)?;
        if let Some(member) = self.workers.get_mut(&open.worker) {
            member.at_work.remove(&lease);
            member.queue.retain(|queued| *queued != lease);
        }
        self.ended.push_back((lease, open.asked.whose.clone()));
        if self.ended.len() > MAX_ENDED {
            self.ended.pop_front();
        }
        let worker = open.worker.clone();
        self.pump(&worker);
        Some(open)
    }

    /// Finds a call that a worker answers, if it holds it.
    fn held(
        &mut self,
        name: &WorkerName,
        connection: u64,
        of: Lease,
    ) -> Result<&mut Open, Refusal> {
        let ended = self.ended.iter().rev().find(|(ended, _)| *ended == of.lease);
        let ended = ended.map(|(_, whose)| whose.clone());
        let (reason, whose) = match self.open.get(&of.lease) {
            _ if !self.is_of(name, connection) => {
                ("the worker was given up before".to_owned(), None)
            }
            None if ended.is_some() => (format!("lease {} was settled before", of.lease), ended),
            None => (format!("lease {} was never given", of.lease), None),
            Some(open) if open.worker != *name || !open.is_sent => {
                (format!("lease {} is not its own", of.lease), Some(open.asked.whose.clone()))
            }
            Some(open) if open.epoch != of.epoch => {
                let reason = format!(
                    "epoch {} of lease {} is not the present one, which is {}",
                    of.epoch, of.lease, open.epoch
                );
                (reason, Some(open.asked.whose.clone()))
            }
            Some(_) => {
                return self.open.get_mut(&of.lease).ok_or_else(|| Refusal {
                    reason: "it is gone".to_owned(),
                    whose: None,
                    is_last: false,
                });
            }
        };
        Err(Refusal { reason, whose, is_last: false })
    }

    /// Takes a part of an answer. Of one that is to be refused nothing is kept: that is told of it as a whole.
    pub(crate) fn part(&mut self, name: &WorkerName, connection: u64, of: Lease, text: String) {
        let Ok(open) = self.held(name, connection, of) else { return };
        open.bytes = open.bytes.saturating_add(text.len());
        // Beyond, only the length is kept: the answer is refused as a whole once it is said to be done.
        match open.bytes > MAX_ANSWER_BYTES {
            true => open.parts.clear(),
            false => open.parts.push(text),
        }
    }

    /// Takes an answer that is whole, for whoever waits for it.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn done(
        &mut self,
        name: &WorkerName,
        connection: u64,
        of: Lease,
        parts: u32,
    ) -> Result<(), Refusal> {
        let refused = self.held(name, connection, of).err();
        if let Some(link) = self.of(name, connection).and_then(|member| member.link.clone()) {
            // Taken or refused, nothing of it has to be kept.
            let _ = link.try_send(ToWorker::Taken { of });
        }
        if let Some(refusal) = refused {
            let refused = self.of(name, connection).map_or(MAX_REFUSED, |member| {
                member.refused += 1;
                member.refused
            });
            return Err(Refusal { is_last: refused >= MAX_REFUSED, ..refusal });
        }
        let Some(open) = self.open.get_mut(&of.lease) else { return Ok(()) };
        let (told, bytes) = (std::mem::take(&mut open.parts), open.bytes);
        let answer = match (told.len() == parts as usize, whole(&told)) {
            (true, Ok(answer)) => answer,
            // It has ended there, for certain, and what came of it cannot be read.
            (_, fault) => {
                let why = fault.err().map_or_else(
                    || format!("{} of its {parts} parts came", told.len()),
                    |fault| fault.to_string(),
                );
                Answer::failed(
                    formwork_protocols::ToolErrorKind::OutcomeUnknown,
                    format!(
                        "the worker has done it, and its answer of {bytes} bytes cannot be read: {why}"
                    ),
                )
            }
        };
        if let Some(open) = self.end(of.lease) {
            let _ = open.asked.back.send(Back::Answered(answer));
        }
        Ok(())
    }

    /// Lists the workers.
    pub(crate) fn rows(&self) -> Vec<WorkerRow> {
        let row = |(name, member): (&WorkerName, &Member)| WorkerRow {
            worker: name.clone(),
            principal: member.principal.clone(),
            labels: member.hello.labels.clone(),
            slots: member.hello.slots,
            at_work: member.at_work.len(),
            queued: member.queue.len(),
            since: member.since,
            connected: member.link.is_some(),
            beats: member.beats,
            refused: member.refused,
            tools: member.tools.keys().cloned().collect(),
        };
        self.workers.iter().map(row).collect()
    }
}
