//! What a conversation heard besides its task, to be heard again.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use formwork_context::{Instruction, folders};
use formwork_protocols::{
    Event, EventBody, Message, Principal, Role, SessionId, StoreError,
    event::{InstructionsLoaded, SessionMessage, SessionStarted},
};
use formwork_session::{Carried, Guide, Heard, Inbox, Steering};

use super::{Talk, lock};

/// What was heard, as it is read from a record.
#[derive(Default)]
pub(super) struct Hearing {
    /// The conversation that goes on, and what its provider had counted.
    began: Option<Began>,
    /// The messages that were taken over.
    carried: Vec<Message>,
    notes: VecDeque<Instruction>,
    said: Vec<(u32, Steering)>,
    /// The file whose text comes with the next message.
    file: Option<InstructionsLoaded>,
}

/// The conversation, how many messages were taken over from it, and what its provider had counted.
type Began = (SessionId, u32, Option<(u64, u64)>);

/// What people said to a run, by its place.
pub(super) type Words = HashMap<u64, (Principal, String)>;

impl Hearing {
    pub(super) fn begin(started: &SessionStarted) -> Self {
        let began = started.continues.filter(|_| started.carried > 0);
        let began = began.map(|session| (session, started.carried, started.counted));
        Self { began, ..Self::default() }
    }

    /// Takes an event that is neither an answer nor a call.
    pub(super) fn take(&mut self, body: &EventBody, words: &Words) {
        match body {
            EventBody::InstructionsLoaded(loaded) => self.file = Some(loaded.clone()),
            EventBody::SessionSteered(steered) => {
                if let Some((by, text)) = words.get(&steered.request).cloned() {
                    let said = Steering { seq: steered.request, by, text };
                    self.said.push((steered.index, said));
                }
            }
            _ => {}
        }
    }

    /// Tells whether a message was taken over from another conversation.
    pub(super) fn is_carried(&self, said: &SessionMessage) -> bool {
        self.began.is_some_and(|(_, carried, _)| said.index < carried)
    }

    /// Tells whether somebody wants to know the words of a message.
    pub(super) fn wants(&self, said: &SessionMessage) -> bool {
        self.is_carried(said) || (self.file.is_some() && said.role != Role::Assistant)
    }

    /// Takes the words of a message.
    pub(super) fn hear(&mut self, said: &SessionMessage, message: Message) {
        let text = message.to_text();
        match self.file.take().filter(|_| said.role == Role::User && !self.is_carried(said)) {
            Some(file) => self.notes.push_back(Instruction {
                path: file.path,
                shown: text,
                hash: file.hash,
                bytes: usize::try_from(file.bytes).unwrap_or(usize::MAX),
                cut: file.cut,
            }),
            None if self.is_carried(said) => self.carried.push(message),
            None => {}
        }
    }
}

/// Remembers what people said to a run.
pub(super) fn word(words: &mut Words, event: &Event) {
    if let Some(text) = crate::inbox::said(&event.body) {
        words.insert(event.seq, (event.principal.clone(), text));
    }
}

impl Talk {
    /// Returns what it went on with.
    pub(crate) fn carried(&self) -> Option<Carried> {
        let hearing = lock(&self.hearing);
        let (session, _, counted) = hearing.began?;
        Carried::of(session, hearing.carried.clone(), counted).ok()
    }
}

/// Returns what a conversation heard.
pub(crate) fn heard(talk: &Arc<Talk>) -> Heard {
    let guide = PlayedGuide { talk: Arc::clone(talk), looked: Mutex::default() };
    Heard { guide: Arc::new(guide), inbox: Arc::new(PlayedInbox(Arc::clone(talk))) }
}

/// Tells the instructions that were told.
struct PlayedGuide {
    talk: Arc<Talk>,
    looked: Mutex<HashSet<String>>,
}

impl Guide for PlayedGuide {
    fn on_the_way(&self, paths: &[String]) -> Vec<Instruction> {
        let (mut hearing, mut looked) = (lock(&self.talk.hearing), lock(&self.looked));
        let mut found = Vec::new();
        for folder in paths.iter().flat_map(|path| folders(path)) {
            if !looked.insert(folder.clone()) {
                continue;
            }
            let of = |note: &Instruction| {
                note.path.rsplit_once('/').is_some_and(|(own, _)| own == folder)
            };
            let at = hearing.notes.iter().position(of);
            found.extend(at.and_then(|at| hearing.notes.remove(at)));
        }
        found
    }

    fn known(&self, _: &str) {}

    fn forget(&self) {
        lock(&self.looked).clear();
    }
}

/// Says what people said, where they said it.
struct PlayedInbox(Arc<Talk>);

#[async_trait]
impl Inbox for PlayedInbox {
    async fn take(&self, after: u64, next: u32) -> Result<Vec<Steering>, StoreError> {
        let hearing = lock(&self.0.hearing);
        let now = hearing.said.iter().filter(|(index, said)| *index == next && said.seq > after);
        Ok(now.map(|(_, said)| said.clone()).collect())
    }
}
