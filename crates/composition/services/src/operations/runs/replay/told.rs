//! What people and programs outside said to a run, said again to the one that is carried out in its place.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use formwork_protocols::{
    Append, Body, Claim, Event, EventBody, NewEvent, Position, Principal, RunId, Store, StoreError,
    TaskId, TaskState, Timestamp,
    event::{ExternalFired, InboxAnswered, inbox_key},
    store::Selection,
};
use formwork_scheduler::Signals;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, course,
    tape::{Next, Tape},
};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// Something that was said to a task, and by whom.
#[derive(Clone)]
struct Word {
    by: Principal,
    at: Timestamp,
    body: EventBody,
}

/// Tells each task what it was told then, as soon as it waits for it.
pub(super) struct Telling {
    /// What was said to the tasks of each path, in order.
    words: HashMap<String, VecDeque<Word>>,
    memory: Arc<dyn Store>,
    tape: Arc<Tape>,
    /// The tasks of the run that is carried out now.
    tasks: HashMap<TaskId, Replaying>,
    /// The latest task of each path, while it goes on.
    open: HashMap<String, TaskId>,
}

/// A task of the run that is carried out now.
struct Replaying {
    path: String,
    waits_for_event: bool,
}

impl Telling {
    /// Takes what was said from the events of a run.
    pub(super) fn new(events: &[Event], memory: &Arc<dyn Store>, tape: &Arc<Tape>) -> Self {
        Self {
            words: words(events),
            memory: Arc::clone(memory),
            tape: Arc::clone(tape),
            tasks: HashMap::new(),
            open: HashMap::new(),
        }
    }

    /// Returns the task of a path, where it goes on.
    fn going_on(&self, path: &str) -> Option<TaskId> {
        self.open.get(path).copied()
    }

    /// Goes on until the run is `over`. It is paused where the record is, and where this cannot go on: nobody would tell it
    /// anything more.
    ///
    /// It is to be awaited to its end: a log in memory goes with a read of it that is broken off.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub(super) async fn tell(
        mut self,
        run: RunId,
        signals: &Signals,
        over: &CancellationToken,
    ) -> Result<(), Error> {
        // Watches before it reads, so that nothing is missed between the two.
        let mut happening = self.memory.watch();
        let mut after = Position::default();
        loop {
            // Asked before it is looked whether there is anything to be said.
            let is_played = self.tape.playing.is_over();
            let (last, is_said) = match self.look(run, after).await {
                Ok(looked) => looked,
                Err(error) => {
                    signals.pause.cancel();
                    return Err(error.into());
                }
            };
            after = last;
            if is_said {
                self.tape.playing.stir();
            } else if is_played {
                match self.tape.playing.end_next() {
                    Next::GoesOn => {}
                    Next::Stops(stopped) => {
                        // One that has ended by itself meanwhile is nobody's to end.
                        if let Some(task) = self.going_on(&stopped.path) {
                            signals.stop(task, stopped.by);
                        }
                        self.tape.playing.stir();
                    }
                    // The record is over before the run is: as far as it went, it is compared.
                    Next::IsOver => {
                        signals.pause.cancel();
                        over.cancelled().await;
                        return Ok(());
                    }
                }
            }
            tokio::select! {
                () = over.cancelled() => return Ok(()),
                () = self.tape.playing.ended() => {}
                happened = happening.next() => if happened.is_none() {
                    over.cancelled().await;
                },
            }
        }
    }

    /// Reads what has happened since, and says what is waited for.
    async fn look(
        &mut self,
        run: RunId,
        mut after: Position,
    ) -> Result<(Position, bool), StoreError> {
        let kinds = ["task.", "inbox.asked"].map(str::to_owned).to_vec();
        let selection = Selection { run: Some(run), task: None, kinds };
        let mut is_said = false;
        loop {
            let events = self.memory.read(after, &selection, PAGE).await?;
            let Some(last) = events.last() else { return Ok((after, is_said)) };
            after = last.position;
            let said: Vec<NewEvent> =
                events.into_iter().filter_map(|event| self.answer(event)).collect();
            if !said.is_empty() {
                is_said = true;
                let batch = Append { run, token: None, events: said, blobs: Vec::new() };
                self.memory.append(batch).await?;
            }
        }
    }

    /// Returns what is to be said about an event, if anything is.
    fn answer(&mut self, event: Event) -> Option<NewEvent> {
        let task = event.task?;
        match event.body {
            EventBody::TaskCreated(created) => {
                let name = created.spec.name.as_str();
                let path = match created.parent.and_then(|above| self.tasks.get(&above)) {
                    Some(Replaying { path, .. }) => format!("{path}/{name}"),
                    None => name.to_owned(),
                };
                let waits_for_event = matches!(created.spec.body, Body::WaitFor(_));
                self.open.insert(path.clone(), task);
                self.tasks.insert(task, Replaying { path, waits_for_event });
                None
            }
            EventBody::TaskMoved(moved) if moved.to == TaskState::Suspended => {
                let waits = self.tasks.get(&task)?.waits_for_event;
                if waits { self.next(task) } else { None }
            }
            EventBody::TaskMoved(moved) if moved.to.is_terminal() => {
                let path = &self.tasks.get(&task)?.path;
                if self.open.get(path) == Some(&task) {
                    self.open.remove(path);
                }
                None
            }
            EventBody::InboxAsked(asked) if !asked.escalation => self.next(task),
            _ => None,
        }
    }

    /// Takes what is said to a task next.
    fn next(&mut self, task: TaskId) -> Option<NewEvent> {
        let Replaying { path, .. } = self.tasks.get(&task)?;
        let Word { by, at, body } = self.words.get_mut(path)?.pop_front()?;
        // Who comes second to a question is not heard.
        let is_reply = body.kind().starts_with("inbox.");
        let idempotency_key = is_reply.then(|| inbox_key(task));
        Some(NewEvent { task: Some(task), principal: by, at, body, idempotency_key })
    }
}

/// Lists what was said to tasks that waited for it, by their paths. A run that goes on from another one does not have what
/// that was told, but what it made of it.
fn words(events: &[Event]) -> HashMap<String, VecDeque<Word>> {
    let paths = course::paths(events);
    let mut fired: HashMap<Position, Word> = HashMap::new();
    let mut bodies: HashMap<TaskId, &Body> = HashMap::new();
    let mut said: HashMap<TaskId, Word> = HashMap::new();
    let mut words: HashMap<String, VecDeque<Word>> = HashMap::new();
    for event in events {
        let (by, at) = (event.principal.clone(), event.at);
        let word = || Word { by, at, body: event.body.clone() };
        let Some(task) = event.task else {
            if matches!(event.body, EventBody::ExternalFired(_)) {
                fired.insert(event.position, word());
            }
            continue;
        };
        match &event.body {
            EventBody::TaskCreated(created) => {
                bodies.insert(task, &created.spec.body);
            }
            EventBody::WaitMet(met) => {
                if let Some(word) = fired.get(&met.event) {
                    said.insert(task, word.clone());
                }
            }
            EventBody::InboxAnswered(_)
            | EventBody::InboxSkipped(_)
            | EventBody::InboxRejected(_) => {
                said.entry(task).or_insert_with(word);
            }
            EventBody::TaskMoved(moved) => {
                let claim = moved.claim.as_ref();
                if let (Some(body), Some(claim)) = (bodies.get(&task), claim)
                    && !said.contains_key(&task)
                    && let Some((by, body)) = claimed(body, claim)
                {
                    said.insert(task, Word { by, at, body });
                }
            }
            _ => {}
        }
    }
    // In the order in which the tasks of a path came to be.
    for event in events {
        if let (EventBody::TaskCreated(_), Some(task)) = (&event.body, event.task)
            && let (Some(word), Some(path)) = (said.remove(&task), paths.get(&task))
        {
            words.entry(path.clone()).or_default().push_back(word);
        }
    }
    words
}

/// Returns what a task was told, by what it has claimed for it.
fn claimed(body: &Body, claim: &Claim) -> Option<(Principal, EventBody)> {
    match body {
        Body::WaitFor(wait) => {
            let (_, by) = claim.summary.rsplit_once(" by ")?;
            let (name, data) = (wait.event.clone(), claim.output.clone().unwrap_or_default());
            Some((by.parse().ok()?, EventBody::ExternalFired(ExternalFired { name, data })))
        }
        Body::Decision(_) => {
            let output = claim.output.as_ref()?;
            // What was assumed nobody has said.
            let by = output.get("by")?.as_str().filter(|_| output["assumed"] == false)?;
            let answer = output.get("answer")?.as_str()?.to_owned();
            Some((by.parse().ok()?, EventBody::InboxAnswered(InboxAnswered { answer })))
        }
        _ => None,
    }
}
