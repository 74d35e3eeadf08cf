//! What a run's models, tools, commands and checks answered, to be answered again without any of them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use formwork_policy::Decision;
use formwork_protocols::{
    Attachment, CallId, Cancel, Completion, Ending, Escalation, Event, EventBody, FailureClass,
    Journal, Message, Model, ModelEvent, ModelName, ModelRequest, Part, Price, Provider,
    ProviderError, ProviderName, Role, SessionId, Span, Store, TaskId, Tool, ToolCall, ToolClass,
    ToolError, ToolErrorKind, ToolOutput, ToolResult, ToolSpec, Toolbox,
    check::{Phase, Verdict},
    event::{
        FileChange, GateAnswer, InstructionsLoaded, ModelCompleted, SessionMessage, SessionSteered,
    },
    model::{ModelInfo, ModelStream},
    tool::{CallContext, Control, ToolReply},
};
use formwork_scheduler::AttemptEnd;
use futures::{
    StreamExt as _,
    future::{Either, select},
    stream,
};
use serde_json::Value;

use crate::{Error, course};

mod heard; // What was heard besides the task.
mod overseen; // What was decided about what would be given up.
mod played; // When there is nothing more to play.

use heard::{Hearing, Words};
use played::Playing;
pub(crate) use {heard::heard, overseen::PlayedOverseer, played::Next};

/// The record of a run, as answers.
#[derive(Default)]
pub(crate) struct Tape {
    tasks: Mutex<HashMap<String, Track>>,
    /// What is under way by now, of what the record holds.
    pub(crate) playing: Playing,
}

/// The record of one task.
#[derive(Default)]
struct Track {
    sessions: VecDeque<Arc<Talk>>,
    current: Option<Arc<Talk>>,
    ends: VecDeque<AttemptEnd>,
    /// Where in the record its attempts ended by themselves.
    turns: VecDeque<u64>,
    verdicts: HashMap<(Phase, u32), VecDeque<(u64, Verdict)>>,
}

/// The record of one conversation.
#[derive(Default)]
pub(crate) struct Talk {
    /// The task that it is about, by the names from the root to it.
    path: String,
    answers: Mutex<VecDeque<Answer>>,
    /// What came of the calls, by the id that pairs each in its turn: some servers give one again.
    calls: Mutex<HashMap<String, VecDeque<Outcome>>>,
    /// What gates answered about calls, in the order of the calls that bear the same id.
    gated: Mutex<HashMap<String, VecDeque<(CallId, Gated)>>>,
    /// What it heard besides its task.
    hearing: Mutex<Hearing>,
    /// Whether it was told of images in words alone.
    is_blind: AtomicBool,
    /// The turn that goes on, and the calls of each turn that were answered and not made, as a stop came before them.
    turn: AtomicUsize,
    unmade: Mutex<HashMap<(usize, String), String>>,
}

/// What the gates answered about one call, all together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gated {
    pub(crate) decision: Decision,
    pub(crate) arguments: Option<Value>,
}

impl Talk {
    /// Returns what gates answered about the call of a pair that is next, if any was asked.
    pub(crate) fn gated(&self, pair: &str) -> Option<Gated> {
        let call = lock(&self.calls).get(pair).and_then(|calls| Some(calls.front()?.call));
        let gated = lock(&self.gated);
        let answers = gated.get(pair)?;
        let own = answers.iter().find(|(of, _)| call.is_none_or(|call| *of == call));
        own.map(|(_, answer)| answer.clone())
    }

    /// Takes what one more gate answered.
    fn gate(&self, pair: &str, call: CallId, said: Gated) {
        let mut gated = lock(&self.gated);
        let answers = gated.entry(pair.to_owned()).or_default();
        match answers.back_mut().filter(|(of, _)| *of == call) {
            Some((_, before)) => {
                before.decision = before.decision.clone().and(said.decision);
                before.arguments = said.arguments.or(before.arguments.take());
            }
            None => answers.push_back((call, said)),
        }
    }

    /// Returns what was told of a call of the turn that goes on, where it was not made: the run was stopped before it.
    fn unmade(&self, pair: &str) -> Option<String> {
        let turn = self.turn.load(Ordering::Relaxed);
        lock(&self.unmade).get(&(turn, pair.to_owned())).cloned()
    }

    /// Returns how the next call of a pair failed, if it did.
    pub(crate) fn failed(&self, pair: &str) -> Option<(ToolErrorKind, String)> {
        let calls = lock(&self.calls);
        calls.get(pair)?.front()?.result.clone().err()
    }
}

/// How a call ended, behind what was lost of it before.
struct Answer {
    lost: Vec<ModelEvent>,
    end: Result<Box<Completion>, ProviderError>,
    /// The turn that it begins, where it begins one.
    turn: Option<usize>,
}

/// The tries of calls that used something in vain, until their end is read.
#[derive(Default)]
struct Tries(HashMap<CallId, Vec<ModelEvent>>);

impl Tries {
    /// Notes a try that was lost. One that gave way to another model is told as any other: which one answered stands in
    /// the answer.
    fn lose(&mut self, call: CallId, wait: Span, error: &ProviderError) {
        if error.used.is_none() {
            return;
        }
        let tries = self.0.entry(call).or_default();
        let attempt = u32::try_from(tries.len()).unwrap_or(u32::MAX).saturating_add(1);
        let (wait, error) = (wait.as_duration(), Box::new(error.clone()));
        tries.push(ModelEvent::Retrying { attempt, wait, error });
    }

    /// Returns what was answered to a call.
    fn end(&mut self, call: CallId, end: Result<Box<Completion>, ProviderError>) -> Answer {
        Answer { lost: self.0.remove(&call).unwrap_or_default(), end, turn: None }
    }
}

#[derive(Clone)]
struct Outcome {
    /// The call that ended so, the turn that it was made in, and the place of its end in the record.
    call: CallId,
    turn: usize,
    at: u64,
    result: Result<String, (ToolErrorKind, String)>,
    changes: Vec<FileChange>,
    notes: Vec<String>,
    /// Where it came from, if from outside.
    outside: Option<String>,
    /// The pictures that it showed.
    attached: Vec<Attachment>,
}

/// A conversation that is being read.
#[derive(Default)]
struct Reading {
    path: String,
    talk: Talk,
    /// The answer whose words are to come.
    answered: Option<ModelCompleted>,
    turn: usize,
    /// The calls of the last answer that were not made yet.
    open: Vec<String>,
}

impl Reading {
    /// Takes what was told of the calls of a turn that were not made.
    fn close(&mut self, results: &Message) {
        let open = std::mem::take(&mut self.open);
        let told = results.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) if open.contains(&result.call_id) => Some(result),
            _ => None,
        });
        let turn = self.turn;
        let unmade = told.map(|result| ((turn, result.call_id.clone()), result.content.clone()));
        lock(&self.talk.unmade).extend(unmade);
    }
}

/// Conversations that go on in others of the same run, because the window was full.
#[derive(Default)]
struct Same(HashMap<SessionId, SessionId>);

impl Same {
    /// Returns the conversation that this one began as.
    fn of(&self, session: SessionId) -> SessionId {
        self.0.get(&session).copied().unwrap_or(session)
    }

    fn join(&mut self, session: SessionId, before: Option<SessionId>) {
        if let Some(before) = before {
            self.0.insert(session, self.of(before));
        }
    }
}

/// Tells whether the words of a message matter that is no answer.
fn wants(reading: &HashMap<SessionId, Reading>, same: &Same, said: &SessionMessage) -> bool {
    let of = reading.get(&same.of(said.session));
    of.is_some_and(|of| lock(&of.talk.hearing).wants(said))
}

impl Tape {
    /// Reads what was answered in a run.
    ///
    /// # Errors
    /// [`Error::Store`] when a message or an output cannot be read.
    pub(crate) async fn read(store: &dyn Store, events: &[Event]) -> Result<Self, Error> {
        let (paths, void) = (course::paths(events), course::void_checks(events));
        let asides = course::asides(events);
        let mut tracks: HashMap<String, Track> = HashMap::new();
        let mut order = Vec::new();
        let (mut same, mut words) = (Same::default(), Words::default());
        let mut tries = Tries::default();
        let mut reading: HashMap<SessionId, Reading> = HashMap::new();
        let mut made: HashMap<CallId, (SessionId, String)> = HashMap::new();
        for (at, event) in events.iter().enumerate() {
            if asides.contains(&event.seq) {
                continue;
            }
            let path = event.task.and_then(|task| paths.get(&task));
            match &event.body {
                // A conversation that goes on with another one of the run is the same talk.
                EventBody::SessionStarted(started)
                    if started
                        .continues
                        .is_some_and(|before| reading.contains_key(&same.of(before))) =>
                {
                    same.join(started.session, started.continues);
                }
                EventBody::SessionStarted(started) => {
                    let path = path.cloned().unwrap_or_default();
                    let talk = Talk { path: path.clone(), ..Talk::default() };
                    let of = Reading { path, talk, ..Reading::default() };
                    *lock(&of.talk.hearing) = Hearing::begin(started);
                    reading.insert(started.session, of);
                    order.push(started.session);
                }
                EventBody::RunSteered(_) | EventBody::InboxContradicted(_) => {
                    heard::word(&mut words, event);
                }
                EventBody::InstructionsLoaded(InstructionsLoaded { session, .. })
                | EventBody::SessionSteered(SessionSteered { session, .. }) => {
                    if let Some(of) = reading.get_mut(&same.of(*session)) {
                        lock(&of.talk.hearing).take(&event.body, &words);
                    }
                }
                EventBody::SessionMessage(said) if wants(&reading, &same, said) => {
                    let bytes = store.blob(&said.message).await?.unwrap_or_default();
                    let Ok(message) = serde_json::from_slice(&bytes) else { continue };
                    if let Some(of) = reading.get_mut(&same.of(said.session)) {
                        lock(&of.talk.hearing).hear(said, message);
                    }
                }
                EventBody::ModelCompleted(done) => {
                    let Some(of) = reading.get_mut(&same.of(done.session)) else { continue };
                    let Some(answer) = done.answer else {
                        of.answered = Some(ModelCompleted::clone(done));
                        continue;
                    };
                    // It is no message of the conversation, which it sums up.
                    let bytes = store.blob(&answer).await?.unwrap_or_default();
                    let Ok(message) = serde_json::from_slice(&bytes) else { continue };
                    let said = Ok(Box::new(completion(ModelCompleted::clone(done), message)));
                    lock(&of.talk.answers).push_back(tries.end(done.call, said));
                }
                EventBody::ModelRequested(asked) if asked.unseen > 0 => {
                    if let Some(of) = reading.get(&same.of(asked.session)) {
                        of.talk.is_blind.store(true, Ordering::Relaxed);
                    }
                }
                EventBody::ModelRetried(tried) => {
                    tries.lose(tried.call, tried.wait, &tried.error);
                }
                EventBody::ModelFellBack(fell) => {
                    tries.lose(fell.call, Span::ZERO, &fell.error);
                }
                EventBody::ModelFailed(failed) => {
                    // Another try that no budget could bear is asked for again, and refused again.
                    let mut error = failed.error.clone();
                    if failed.unaffordable {
                        tries.lose(failed.call, Span::ZERO, &error);
                        error.used = None;
                    }
                    let is_answer =
                        failed.error.fault != formwork_protocols::ProviderFault::Cancelled;
                    if let Some(of) =
                        reading.get_mut(&same.of(failed.session)).filter(|_| is_answer)
                    {
                        let answer = tries.end(failed.call, Err(error));
                        lock(&of.talk.answers).push_back(answer);
                    }
                }
                EventBody::SessionMessage(said) if said.role == Role::Assistant => {
                    let Some(of) = reading.get_mut(&same.of(said.session)) else { continue };
                    of.turn += 1;
                    let Some(done) = of.answered.take() else { continue };
                    let bytes = store.blob(&said.message).await?.unwrap_or_default();
                    let Ok(message) = serde_json::from_slice::<Message>(&bytes) else { continue };
                    let call = done.call;
                    of.open = message.tool_calls().map(|call| call.id.clone()).collect();
                    let answer = tries.end(call, Ok(Box::new(completion(done, message))));
                    let answer = Answer { turn: Some(of.turn), ..answer };
                    lock(&of.talk.answers).push_back(answer);
                }
                EventBody::SessionMessage(said) if said.role == Role::Tool => {
                    let Some(of) = reading.get_mut(&same.of(said.session)) else { continue };
                    if of.open.is_empty() {
                        continue;
                    }
                    let bytes = store.blob(&said.message).await?.unwrap_or_default();
                    let Ok(message) = serde_json::from_slice::<Message>(&bytes) else { continue };
                    of.close(&message);
                }
                EventBody::ToolRequested(call) => {
                    let session = same.of(call.session);
                    if let Some(of) = reading.get_mut(&session) {
                        of.open.retain(|pair| *pair != call.pair);
                    }
                    // One that only repeats others is refused by the conversation itself.
                    if !call.arguments.is_null() {
                        made.insert(call.call, (session, call.pair.clone()));
                    }
                }
                EventBody::ToolGated(gated) => {
                    let said = said(store, &gated.answer).await?;
                    if let Some(of) = reading.get_mut(&same.of(gated.session)) {
                        of.talk.gate(&gated.pair, gated.call, said);
                    }
                }
                EventBody::ToolCompleted(done) => {
                    let bytes = store.blob(&done.output).await?;
                    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                    let text = text.unwrap_or_else(|| done.preview.clone());
                    let outside = done.outside.clone();
                    ended(&mut reading, &made, (done.call, event.seq), Ok(text), outside);
                }
                EventBody::ToolFailed(failed) => {
                    // What is told of where it came from is told anew.
                    let told = failed.outside.as_deref().map(formwork_tool::unvouched);
                    let bare = told.and_then(|told| failed.message.strip_prefix(&told));
                    let failure = (failed.error, bare.unwrap_or(&failed.message).to_owned());
                    let outside = failed.outside.clone();
                    ended(&mut reading, &made, (failed.call, event.seq), Err(failure), outside);
                }
                EventBody::CheckFinished(done) if !void.contains(&event.seq) => {
                    let Some(path) = path else { continue };
                    let track = tracks.entry(path.clone()).or_default();
                    let verdicts = track.verdicts.entry((done.phase, done.index)).or_default();
                    verdicts.push_back((event.seq, done.verdict.clone()));
                }
                EventBody::AttemptEnded(end) => {
                    let Some(path) = path else { continue };
                    let after = events.get(at..).unwrap_or_default();
                    if let Some(end) = attempt_end(end, event.task, after) {
                        let track = tracks.entry(path.clone()).or_default();
                        track.ends.push_back(end);
                        track.turns.push_back(event.seq);
                    }
                }
                _ => {}
            }
        }
        for event in events {
            let (call, add): (CallId, &dyn Fn(&mut Outcome)) = match &event.body {
                EventBody::FileChanged(change) => match change.call {
                    Some(call) => (call, &|outcome| outcome.changes.push(change.clone())),
                    None => continue,
                },
                EventBody::NoteAdded(note) => {
                    (note.call, &|outcome| outcome.notes.push(note.text.clone()))
                }
                EventBody::ToolCompleted(done) if !done.attached.is_empty() => {
                    (done.call, &|outcome| outcome.attached.clone_from(&done.attached))
                }
                _ => continue,
            };
            if let Some((session, pair)) = made.get(&call)
                && let Some(of) = reading.get_mut(session)
            {
                let mut calls = lock(&of.talk.calls);
                let outcomes = calls.get_mut(pair).into_iter().flatten();
                outcomes.filter(|outcome| outcome.call == call).for_each(add);
            }
        }
        for session in order {
            if let Some(Reading { path, talk, .. }) = reading.remove(&session) {
                tracks.entry(path).or_default().sessions.push_back(Arc::new(talk));
            }
        }
        Ok(Self { tasks: Mutex::new(tracks), ..Self::default() })
    }

    /// Takes up the next conversation of a task, or the one that goes on.
    pub(crate) fn talk(&self, path: &str, goes_on: bool) -> Arc<Talk> {
        let mut tasks = lock(&self.tasks);
        let track = tasks.entry(path.to_owned()).or_default();
        if goes_on && let Some(current) = &track.current {
            return Arc::clone(current);
        }
        let next = track
            .sessions
            .pop_front()
            .unwrap_or_else(|| Arc::new(Talk { path: path.to_owned(), ..Talk::default() }));
        track.current = Some(Arc::clone(&next));
        next
    }

    /// Returns how the next attempt at a body without a conversation ended; waits for `cancel` where that is
    /// not recorded.
    pub(crate) async fn attempt(&self, path: &str, cancel: &Cancel) -> AttemptEnd {
        let end = lock(&self.tasks).get_mut(path).and_then(|track| track.ends.pop_front());
        match end {
            Some(end) => end,
            None => {
                self.playing.wait(path, cancel).await;
                AttemptEnd::Interrupted { session: None }
            }
        }
    }

    /// Returns the next verdict of a check.
    pub(crate) async fn check(
        &self,
        path: &str,
        place: (Phase, u32),
        cancel: &Cancel,
    ) -> Option<Verdict> {
        let next = |track: &mut Track| track.verdicts.get_mut(&place)?.pop_front();
        let Some((at, verdict)) = lock(&self.tasks).get_mut(path).and_then(next) else {
            self.playing.wait(path, cancel).await;
            return None;
        };
        self.playing.turn(path, Some(at), cancel).await;
        Some(verdict)
    }

    /// Waits until an attempt at a task ends that has come to its end.
    pub(crate) async fn attempted(&self, path: &str, cancel: &Cancel) {
        let at = lock(&self.tasks).get_mut(path).and_then(|track| track.turns.pop_front());
        self.playing.turn(path, at, cancel).await;
    }

    /// Returns how a conversation's attempt ended, given how the conversation did: of the workspace there was more to be
    /// said, which is not there any more.
    pub(crate) fn judged(&self, path: &str, end: AttemptEnd) -> AttemptEnd {
        let recorded = lock(&self.tasks).get_mut(path).and_then(|track| track.ends.pop_front());
        let (session, files_changed) = match end {
            AttemptEnd::Claimed { session, files_changed, .. }
            | AttemptEnd::Failed { session, files_changed, .. } => (session, files_changed),
            AttemptEnd::Interrupted { .. } => return end,
        };
        let is_claimed = matches!(end, AttemptEnd::Claimed { .. });
        match recorded {
            Some(AttemptEnd::Failed { why, .. })
                if is_claimed || why.to_string().ends_with(crate::executor::LOOK_FIRST) =>
            {
                AttemptEnd::Failed { why, session, files_changed }
            }
            _ => end,
        }
    }

    /// Returns a model that says what was said.
    pub(crate) fn model(self: &Arc<Self>, info: ModelInfo, talk: &Arc<Talk>) -> Model {
        let name = info.model.provider.clone();
        let provider = Player { name, tape: Arc::clone(self), talk: Arc::clone(talk) };
        // What it cost stands in the log; what it costs now is no part of what happened.
        let price = info.price.unwrap_or(Price::LOCAL);
        Model { info, price, ceiling: price, provider: Arc::new(provider) }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads what a gate answered. What cannot be read any more denies.
async fn said(store: &dyn Store, answer: &GateAnswer) -> Result<Gated, Error> {
    let deny = |why: &str| Decision::Deny { why: why.to_owned() };
    Ok(match answer {
        GateAnswer::Allow => Gated { decision: Decision::Allow, arguments: None },
        GateAnswer::Ask { reason } => {
            Gated { decision: Decision::Ask { why: reason.clone() }, arguments: None }
        }
        GateAnswer::Deny { reason } => Gated { decision: deny(reason), arguments: None },
        GateAnswer::Replace { arguments } => {
            let bytes = store.blob(arguments).await?.unwrap_or_default();
            match serde_json::from_slice(&bytes) {
                Ok(arguments) => Gated { decision: Decision::Allow, arguments: Some(arguments) },
                Err(_) => Gated {
                    decision: deny("what a gate put in its place is lost"),
                    arguments: None,
                },
            }
        }
        _ => Gated {
            decision: deny("this version does not know what a gate answered"),
            arguments: None,
        },
    })
}

/// Notes what came of a call. One that was made again ends again, and the later end counts.
fn ended(
    reading: &mut HashMap<SessionId, Reading>,
    made: &HashMap<CallId, (SessionId, String)>,
    (call, at): (CallId, u64),
    result: Result<String, (ToolErrorKind, String)>,
    outside: Option<String>,
) {
    if let Some((session, pair)) = made.get(&call)
        && let Some(of) = reading.get_mut(session)
    {
        let (changes, notes) = (Vec::new(), Vec::new());
        let (turn, attached) = (of.turn, Vec::new());
        let outcome = Outcome { call, turn, at, result, changes, notes, outside, attached };
        let mut calls = lock(&of.talk.calls);
        let outcomes = calls.entry(pair.clone()).or_default();
        if outcomes.back().is_some_and(|before| before.turn == outcome.turn) {
            outcomes.pop_back();
        }
        outcomes.push_back(outcome);
    }
}

fn completion(done: ModelCompleted, message: Message) -> Completion {
    Completion {
        message,
        stop: done.stop,
        usage: done.usage,
        usage_estimated: done.usage_estimated,
        usage_doubted: done.usage_doubted,
        served_by: done.served_by,
        first_token: done.first_token.map(|span| span.as_duration()),
        elapsed: done.elapsed.as_duration(),
        tries: done.tries,
        undecodable: done.undecodable,
        lost: None,
    }
}

/// Reads how an attempt ended: from its own event, and from the move that was recorded with it, where there is one. One
/// that is tried again has none.
fn attempt_end(
    end: &formwork_protocols::event::AttemptEnded,
    task: Option<TaskId>,
    after: &[Event],
) -> Option<AttemptEnd> {
    let own = after.iter().skip(1).filter(|event| event.task == task).map(|event| &event.body);
    let is_next = |body: &&EventBody| {
        matches!(body, EventBody::AttemptStarted(_) | EventBody::CheckStarted(_))
    };
    let moved = own.take_while(|body| !is_next(body)).find_map(|body| match body {
        EventBody::TaskMoved(moved) => Some(moved),
        _ => None,
    });
    if end.claimed {
        let claim = moved.and_then(|moved| moved.claim.as_deref().cloned()).unwrap_or_default();
        return Some(AttemptEnd::Claimed { claim, session: None, files_changed: 0 });
    }
    if end.reason == course::BROKEN_OFF {
        return None;
    }
    let why = match moved.and_then(|moved| moved.ending.clone()) {
        // What became of it later has another reason than the attempt had.
        Some(Ending::Escalated { why }) if end.class.is_none_or(|own| own == why.class()) => why,
        _ => failure(end.class, &end.reason),
    };
    Some(AttemptEnd::Failed { why, session: None, files_changed: 0 })
}

/// Puts together why an attempt failed that was tried again: only these two classes are.
fn failure(class: Option<FailureClass>, reason: &str) -> Escalation {
    match class {
        Some(FailureClass::Passing) => {
            let whole = Escalation::Unreachable { detail: String::new() }.to_string();
            let detail = reason.strip_prefix(whole.as_str()).unwrap_or(reason).to_owned();
            Escalation::Unreachable { detail }
        }
        _ => Escalation::BodyFailed { detail: reason.to_owned() },
    }
}

/// A provider that says what was said.
struct Player {
    name: ProviderName,
    tape: Arc<Tape>,
    talk: Arc<Talk>,
}

#[async_trait]
impl Provider for Player {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    async fn takes_images(&self, _: &ModelName) -> Option<bool> {
        Some(!self.talk.is_blind.load(Ordering::Relaxed))
    }

    fn stream(&self, _: ModelRequest, cancel: Cancel) -> ModelStream {
        match lock(&self.talk.answers).pop_front() {
            Some(Answer { lost, end, turn }) => {
                if let Some(turn) = turn {
                    self.talk.turn.store(turn, Ordering::Relaxed);
                }
                let end = end.map(ModelEvent::Done);
                stream::iter(lost.into_iter().map(Ok).chain([end])).boxed()
            }
            None => {
                let (tape, talk) = (Arc::clone(&self.tape), Arc::clone(&self.talk));
                stream::once(async move { tape.playing.wait(&talk.path, &cancel).await })
                    .filter_map(|()| std::future::ready(None))
                    .boxed()
            }
        }
    }
}

/// The tools of a conversation, which do nothing but answer what they answered.
pub(crate) struct Played {
    pub(crate) tools: Arc<dyn Toolbox>,
    pub(crate) tape: Arc<Tape>,
    pub(crate) talk: Arc<Talk>,
    pub(crate) pairs: Pairs,
}

/// The ids that pair calls in a conversation, by Formwork's own.
pub(crate) type Pairs = Arc<Mutex<HashMap<CallId, String>>>;

#[async_trait]
impl Toolbox for Played {
    fn offered(&self) -> Vec<ToolSpec> {
        self.tools.offered()
    }

    async fn call(
        &self,
        context: &CallContext,
        call: &ToolCall,
        journal: &Journal,
        cancel: &Cancel,
    ) -> ToolReply {
        let _call = self.tape.playing.call(&self.talk.path);
        if let Some(told) = self.talk.unmade(&call.id) {
            let result = ToolResult {
                call_id: call.id.clone(),
                name: call.name.clone(),
                content: told,
                is_error: true,
                attached: Vec::new(),
            };
            return ToolReply { result, control: Control::Continue };
        }
        lock(&self.pairs).insert(context.call, call.id.clone());
        let mut reply = self.tools.call(context, call, journal, cancel).await;
        let outcome = lock(&self.talk.calls).get_mut(&call.id).and_then(VecDeque::pop_front);
        // What a crash has swallowed was told by whoever took the run up, and not by the tool.
        if let Some(Outcome { result: Err((ToolErrorKind::OutcomeUnknown, told)), .. }) = outcome {
            reply.result.content = told;
        }
        reply
    }
}

/// Puts what was answered in the place of each tool that does something beyond the tree of tasks.
pub(crate) fn played(
    tools: Vec<Arc<dyn Tool>>,
    tape: &Arc<Tape>,
    talk: &Arc<Talk>,
    pairs: &Pairs,
) -> Vec<Arc<dyn Tool>> {
    let play = |tool: Arc<dyn Tool>| -> Arc<dyn Tool> {
        let (tape, talk, pairs) = (Arc::clone(tape), Arc::clone(talk), Arc::clone(pairs));
        if tool.spec().class == ToolClass::Lifecycle {
            return Arc::new(PlayedTask { tool, tape, talk, pairs });
        }
        Arc::new(PlayedTool { tool, tape, talk, pairs })
    };
    tools.into_iter().map(play).collect()
}

/// A tool of the tree of tasks: what it did is done again, and what it was refused then is refused, because a refusal
/// may have hung on what others did at that moment. What it told is told again.
struct PlayedTask {
    tool: Arc<dyn Tool>,
    tape: Arc<Tape>,
    talk: Arc<Talk>,
    pairs: Pairs,
}

#[async_trait]
impl Tool for PlayedTask {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let pair = lock(&self.pairs).get(&context.call).cloned().unwrap_or_default();
        let next = lock(&self.talk.calls).get(&pair).and_then(VecDeque::front).cloned();
        let at = next.as_ref().map_or(u64::MAX, |outcome| outcome.at);
        match next.map(|outcome| outcome.result) {
            Some(Err((ToolErrorKind::Cancelled, message))) => {
                self.broken_off(context, arguments, at, cancel).await;
                Err(ToolError::new(ToolErrorKind::Cancelled, message))
            }
            Some(Err((kind, message)))
                if matches!(kind, ToolErrorKind::Denied | ToolErrorKind::InvalidArguments) =>
            {
                Err(ToolError::new(kind, message))
            }
            Some(Ok(text)) => {
                let output = self.tool.call(context, arguments, cancel).await?;
                Ok(ToolOutput { text, ..output })
            }
            _ => self.tool.call(context, arguments, cancel).await,
        }
    }
}

impl PlayedTask {
    /// Does what a call did that was broken off, until the place in the record at which it was: somebody stopped the run, and
    /// what the call waited for may be there by now. Where the conversation was left with it, it is left here as well.
    async fn broken_off(&self, context: &CallContext, arguments: Value, at: u64, cancel: &Cancel) {
        let (playing, path) = (&self.tape.playing, self.talk.path.as_str());
        let goes_on = !lock(&self.talk.answers).is_empty();
        let call = self.tool.call(context, arguments, cancel);
        let stopped = async {
            match goes_on {
                true => Some(playing.come(at).await),
                false => std::future::pending().await,
            }
        };
        let (call, stopped) = (Box::pin(call), Box::pin(stopped));
        match select(call, stopped).await {
            // It listens no longer before anything else comes.
            Either::Right((_come, call)) => drop(call),
            Either::Left((_, stopped)) => {
                drop(stopped);
                match goes_on {
                    true => playing.turn(path, Some(at), cancel).await,
                    false => playing.wait(path, cancel).await,
                }
            }
        }
    }
}

struct PlayedTool {
    tool: Arc<dyn Tool>,
    tape: Arc<Tape>,
    talk: Arc<Talk>,
    pairs: Pairs,
}

#[async_trait]
impl Tool for PlayedTool {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn paths(&self, arguments: &Value) -> Vec<String> {
        self.tool.paths(arguments)
    }

    fn command(&self, arguments: &Value) -> Option<Vec<String>> {
        self.tool.command(arguments)
    }

    fn hosts(&self, arguments: &Value) -> Vec<String> {
        self.tool.hosts(arguments)
    }

    fn secrets(&self) -> Vec<String> {
        self.tool.secrets()
    }

    async fn call(
        &self,
        context: &CallContext,
        _: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        let pair = lock(&self.pairs).get(&context.call).cloned().unwrap_or_default();
        let next = lock(&self.talk.calls).get(&pair).and_then(VecDeque::front).cloned();
        match next {
            Some(Outcome { result: Ok(text), changes, notes, outside, attached, .. }) => {
                let bare = ToolOutput::default();
                Ok(ToolOutput { text, changes, notes, outside, attached, ..bare })
            }
            Some(Outcome { result: Err((kind, message)), outside, .. }) => {
                // It was broken off, and the conversation with it.
                if kind == ToolErrorKind::Cancelled && lock(&self.talk.answers).is_empty() {
                    self.tape.playing.wait(&self.talk.path, cancel).await;
                }
                Err(ToolError { outside, ..ToolError::new(kind, message) })
            }
            None => {
                self.tape.playing.wait(&self.talk.path, cancel).await;
                Err(ToolError::new(ToolErrorKind::Cancelled, "the record ends before this call"))
            }
        }
    }
}
