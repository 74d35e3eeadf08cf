//! The course of a run, task by task, without what differs from run to run, and where two of them part.

use std::collections::{BTreeMap, HashMap, HashSet};

use formwork_protocols::{
    BlobHash, Body, CallId, Event, EventBody, Message, Position, ProviderFault, Replay, Role,
    RunId, SessionId, Store, TaskId, ToolErrorKind,
    event::{Decided, ToolRequested},
    store::Selection,
    text,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Error;

mod stops; // What ended tasks that was nobody's answer.

pub(crate) use stops::{Stopped, Stops};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// How many bytes of a value are told where two differ.
const TOLD: usize = 160;

/// Why an attempt ended that was told to stop: that was nobody's answer.
pub(crate) const BROKEN_OFF: &str = "broken off";

/// The tool whose effect stands in the log, so that it is made again where that is missing.
const START_TASK: &str = "start_task";

/// Where two courses part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Divergence {
    /// The task, by the names from the root to it.
    pub task: String,
    /// What happened at that point in the first run; nothing where its course is over.
    pub first: Option<Step>,
    /// What happened in the second.
    pub second: Option<Step>,
    /// What differs, in a line.
    pub what: String,
}

/// A step of a course.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Step {
    pub seq: u64,
    pub kind: String,
}

/// What happened, as it can be compared.
#[derive(Debug, Clone, PartialEq)]
struct Fact {
    seq: u64,
    kind: String,
    data: Value,
    /// The message that it added to a conversation.
    message: Option<BlobHash>,
    /// By what the facts of calls that may overlap are put in order.
    order: Option<String>,
}

/// A task, by the names from the root to it, and which one of those that bear them.
type Place = (String, usize);

/// The facts of each task, in their order.
#[derive(Debug, Default)]
pub(crate) struct Course {
    tasks: BTreeMap<Place, Vec<Fact>>,
    /// The tasks that were broken off by what was nobody's answer: they are compared up to there.
    broken_off: HashSet<Place>,
    /// How many facts there are.
    pub(crate) facts: usize,
}

/// Reads all events of a run.
///
/// # Errors
/// [`Error::Store`].
pub(crate) async fn events(store: &dyn Store, run: RunId) -> Result<Vec<Event>, Error> {
    let selection = Selection { run: Some(run), ..Selection::default() };
    let (mut events, mut after) = (Vec::new(), Position::default());
    loop {
        let page = store.read(after, &selection, PAGE).await?;
        let Some(last) = page.last() else { return Ok(events) };
        after = last.position;
        events.extend(page);
    }
}

/// Returns the names from the root to each task.
pub(crate) fn paths(events: &[Event]) -> HashMap<TaskId, String> {
    let mut paths: HashMap<TaskId, String> = HashMap::new();
    for event in events {
        if let (EventBody::TaskCreated(created), Some(task)) = (&event.body, event.task) {
            let name = created.spec.name.as_str();
            let path = match created.parent.and_then(|parent| paths.get(&parent)) {
                Some(above) => format!("{above}/{name}"),
                None => name.to_owned(),
            };
            paths.insert(task, path);
        }
    }
    paths
}

/// Returns which task is which: one that was made again bears the names of the one before.
fn places(events: &[Event], paths: &HashMap<TaskId, String>) -> HashMap<TaskId, Place> {
    let mut counted: HashMap<&String, usize> = HashMap::new();
    let mut places = HashMap::new();
    for event in events {
        if let (EventBody::TaskCreated(_), Some(task)) = (&event.body, event.task)
            && let Some(path) = paths.get(&task)
        {
            let number = counted.entry(path).or_default();
            places.insert(task, (path.clone(), *number));
            *number += 1;
        }
    }
    places
}

impl Course {
    /// Takes a run's events, whatever they came of.
    pub(crate) fn of(events: &[Event]) -> Self {
        Self::without(events, &Stops::default())
    }

    /// Takes a run's events, without what came of ends that were nobody's answer.
    pub(crate) fn without(events: &[Event], stops: &Stops) -> Self {
        let (paths, void) = (paths(events), void(events));
        let places = places(events, &paths);
        let mut again = void_checks(events);
        again.extend(farewells(events));
        let asides = asides(events);
        let deciding = deciding(events);
        let unknown: HashSet<CallId> = events
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::ToolFailed(failed) if failed.error == ToolErrorKind::OutcomeUnknown => {
                    Some(failed.call)
                }
                _ => None,
            })
            .collect();
        let calls: HashMap<CallId, &ToolRequested> = events
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::ToolRequested(made) => Some((made.call, &**made)),
                _ => None,
            })
            .collect();
        let mut course = Self::default();
        for event in events {
            // What counts of tasks that decide a check is its verdict.
            let counts = |task: &TaskId| !deciding.contains(task);
            let Some(place) = event.task.filter(counts).and_then(|task| places.get(&task)) else {
                continue;
            };
            if event.task.is_some_and(|task| stops.broke_off(task)) {
                course.broken_off.insert(place.clone());
            }
            if stops.is_of_one(event) {
                continue;
            }
            let Some((mut data, call)) = comparable(&event.body) else { continue };
            // Why something ended may name a task, which has another id in each run.
            if matches!(event.body, EventBody::AttemptEnded(_) | EventBody::TaskMoved(_)) {
                name_tasks(&mut data, &paths);
            }
            if call.is_some_and(|call| void.contains(&call))
                || again.contains(&event.seq)
                || asides.contains(&event.seq)
            {
                continue;
            }
            // What was found changed around a command or a check may be the work of whoever ran beside it, and what a call had
            // changed that a process died over is told by whoever looked.
            let is_file = matches!(event.body, EventBody::FileChanged(_));
            let is_told = |call: CallId| calls.contains_key(&call) && !unknown.contains(&call);
            if is_file && !call.is_some_and(is_told) {
                continue;
            }
            let order = call.and_then(|call| calls.get(&call)).map(|made| {
                let arguments = &made.arguments;
                // Of one call in the order in which it goes, whoever tells of its files.
                let step = match &event.body {
                    EventBody::ToolRequested(_) => 0,
                    EventBody::FileChanged(_) => 1,
                    _ => 2,
                };
                format!("{} {arguments} {} {step}", made.tool, made.pair)
            });
            let message = match &event.body {
                EventBody::SessionMessage(said) => Some(said.message),
                _ => None,
            };
            let kind = event.body.kind().to_owned();
            let facts = course.tasks.entry(place.clone()).or_default();
            facts.push(Fact { seq: event.seq, kind, data, message, order });
        }
        for facts in course.tasks.values_mut() {
            // Calls beside each other end in any order.
            for block in
                facts.chunk_by_mut(|one, other| one.order.is_some() && other.order.is_some())
            {
                block.sort_by(|one, other| one.order.cmp(&other.order));
            }
            course.facts += facts.len();
        }
        course
    }

    /// Finds the first fact in which two courses differ. Where the first was `left` before its end, what the
    /// second has beyond it is no difference.
    ///
    /// # Errors
    /// [`Error::Store`] when a message cannot be read.
    pub(crate) async fn parts_from(
        &self,
        other: &Self,
        left: bool,
        stores: (&dyn Store, &dyn Store),
    ) -> Result<Option<Divergence>, Error> {
        let mut found: Option<(u64, &Place, Option<&Fact>, Option<&Fact>)> = None;
        let names = self.tasks.keys().chain(other.tasks.keys());
        let none = Vec::new();
        for name in names {
            let first = self.tasks.get(name).unwrap_or(&none);
            let second = other.tasks.get(name).unwrap_or(&none);
            let same =
                first.iter().zip(second).take_while(|(one, other)| is_same(one, other)).count();
            let (one, two) = (first.get(same), second.get(same));
            let is_cut = left || self.broken_off.contains(name) || other.broken_off.contains(name);
            if one.is_none() && (two.is_none() || is_cut) {
                continue;
            }
            let at = one.or(two).map_or(u64::MAX, |fact| fact.seq);
            if found.as_ref().is_none_or(|(earliest, ..)| at < *earliest) {
                found = Some((at, name, one, two));
            }
        }
        let Some((_, (task, _), first, second)) = found else { return Ok(None) };
        let what = match (first, second) {
            (Some(first), Some(second)) => told(first, second, stores).await?,
            (Some(first), None) => format!("only the first run has {}", named(first)),
            (None, Some(second)) => format!("only the second run has {}", named(second)),
            (None, None) => String::new(),
        };
        let step = |fact: &Fact| Step { seq: fact.seq, kind: fact.kind.clone() };
        let (first, second) = (first.map(step), second.map(step));
        Ok(Some(Divergence { task: task.clone(), first, second, what }))
    }
}

fn is_same(one: &Fact, other: &Fact) -> bool {
    one.kind == other.kind && one.data == other.data && one.message == other.message
}

/// Lists the calls that were made again later, because a process left them without an outcome or without its
/// consequence: the later one counts. So it is with what a model was still being asked when the run was left: whoever takes it
/// up asks anew.
fn void(events: &[Event]) -> HashSet<CallId> {
    let mut made: HashMap<CallId, &ToolRequested> = HashMap::new();
    let mut asked: HashSet<CallId> = HashSet::new();
    let mut turns: HashMap<SessionId, HashMap<&str, CallId>> = HashMap::new();
    let mut void = HashSet::new();
    for event in events {
        match &event.body {
            EventBody::SessionMessage(said) if said.role == Role::Assistant => {
                turns.remove(&said.session);
            }
            EventBody::ToolRequested(call) => {
                made.insert(call.call, call);
                let turn = turns.entry(call.session).or_default();
                void.extend(turn.insert(&call.pair, call.call));
            }
            EventBody::ToolFailed(failed) if failed.error == ToolErrorKind::OutcomeUnknown => {
                let again = made
                    .get(&failed.call)
                    .is_some_and(|call| call.replay != Replay::Once || call.tool == START_TASK);
                if again {
                    void.insert(failed.call);
                }
            }
            EventBody::ModelRequested(request) => {
                asked.insert(request.call);
            }
            EventBody::ModelCompleted(answered) => {
                asked.remove(&answered.call);
            }
            EventBody::ModelFailed(failed) => {
                asked.remove(&failed.call);
                if failed.error.fault == ProviderFault::Cancelled {
                    void.insert(failed.call);
                }
            }
            _ => {}
        }
    }
    void.extend(asked);
    void
}

/// Lists the verdicts, by their places in the run, of phases that a process left before their end: whoever took
/// the run up began the phase again.
pub(crate) fn void_checks(events: &[Event]) -> HashSet<u64> {
    let mut open: HashMap<TaskId, Vec<u64>> = HashMap::new();
    let mut void = HashSet::new();
    for event in events {
        match (&event.body, event.task) {
            (EventBody::CheckFinished(_), Some(task)) => {
                open.entry(task).or_default().push(event.seq);
            }
            (EventBody::TaskMoved(_), Some(task)) => drop(open.remove(&task)),
            (EventBody::RunResumed(_), _) => void.extend(open.drain().flat_map(|(_, seqs)| seqs)),
            _ => {}
        }
    }
    void
}

/// Lists the tasks that decide checks, with all below them.
pub(crate) fn deciding(events: &[Event]) -> HashSet<TaskId> {
    let mut found = HashSet::new();
    for event in events {
        if let (EventBody::TaskCreated(created), Some(task)) = (&event.body, event.task)
            && (created.spec.decides().is_some()
                || created.parent.is_some_and(|parent| found.contains(&parent)))
        {
            found.insert(task);
        }
    }
    found
}

/// Lists what was said and done in the conversations of checks and of those who were asked a question, and in calls by
/// hand, by its places in the run: what counts of them is the verdict, the answer and the end.
pub(crate) fn asides(events: &[Event]) -> HashSet<u64> {
    let mut checking: HashSet<TaskId> = HashSet::new();
    let mut sessions: HashSet<SessionId> = HashSet::new();
    let mut calls: HashSet<CallId> = HashSet::new();
    let mut found = HashSet::new();
    let mut by_hand: HashSet<TaskId> = HashSet::new();
    for event in events {
        let is_aside = match (&event.body, event.task) {
            (EventBody::TaskCreated(created), Some(task)) => {
                if matches!(created.spec.body, Body::Call(_)) {
                    by_hand.insert(task);
                }
                false
            }
            (EventBody::CheckStarted(_), Some(task)) => {
                checking.insert(task);
                false
            }
            (EventBody::CheckFinished(_) | EventBody::TaskMoved(_), Some(task)) => {
                checking.remove(&task);
                false
            }
            (EventBody::SessionStarted(started), Some(task))
                if checking.contains(&task) || started.call.is_some() =>
            {
                sessions.insert(started.session)
            }
            (EventBody::SessionMessage(said), _) => sessions.contains(&said.session),
            (EventBody::SessionEnded(ended), _) => sessions.contains(&ended.session),
            (EventBody::SessionReprompted(told), _) => sessions.contains(&told.session),
            (EventBody::ContextCompacted(done), _) => sessions.contains(&done.session),
            (EventBody::ModelRequested(asked), _) => sessions.contains(&asked.session),
            // What a person called is not called again: what counts of it is how its task ended.
            (EventBody::ToolRequested(made), task)
                if sessions.contains(&made.session)
                    || task.is_some_and(|task| by_hand.contains(&task)) =>
            {
                calls.insert(made.call);
                true
            }
            (EventBody::NoteAdded(note), _) => calls.contains(&note.call),
            (EventBody::ModelCompleted(done), _) => sessions.contains(&done.session),
            (EventBody::ModelFailed(failed), _) => sessions.contains(&failed.session),
            (EventBody::ToolCompleted(done), _) => calls.contains(&done.call),
            (EventBody::ToolFailed(failed), _) => calls.contains(&failed.call),
            (EventBody::FileChanged(change), _) => {
                change.call.is_some_and(|call| calls.contains(&call))
            }
            _ => false,
        };
        if is_aside {
            found.insert(event.seq);
        }
    }
    found
}

/// Lists the last results of conversations, by their places in the run: that a task is accepted or given up
/// is told to nobody any more, and not at all where the process had died.
fn farewells(events: &[Event]) -> Vec<u64> {
    let mut last: HashMap<SessionId, u64> = HashMap::new();
    let mut farewells = Vec::new();
    for event in events {
        match &event.body {
            EventBody::SessionMessage(said) if said.role == Role::Tool => {
                last.insert(said.session, event.seq);
            }
            EventBody::SessionMessage(said) => drop(last.remove(&said.session)),
            EventBody::SessionEnded(ended) => farewells.extend(last.remove(&ended.session)),
            _ => {}
        }
    }
    farewells
}

/// Puts the names of tasks in the place of their ids, wherever a sentence names one.
fn name_tasks(data: &mut Value, paths: &HashMap<TaskId, String>) {
    match data {
        Value::String(text) if text.contains("task ") => {
            let path = |word: &str| paths.get(&word.parse::<TaskId>().ok()?).map(String::as_str);
            let words = text.split(' ').map(|word| path(word).unwrap_or(word));
            *text = words.collect::<Vec<_>>().join(" ");
        }
        Value::Array(values) => values.iter_mut().for_each(|value| name_tasks(value, paths)),
        Value::Object(fields) => fields.values_mut().for_each(|value| name_tasks(value, paths)),
        _ => {}
    }
}

/// Returns what of an event can be compared, and the call that it belongs to; nothing of one that says only
/// when, by whom or how dearly something was done.
fn comparable(body: &EventBody) -> Option<(Value, Option<CallId>)> {
    Some(match body {
        EventBody::TaskCreated(created) => (json!({ "spec": created.spec }), None),
        EventBody::TaskMoved(moved) => {
            let ending = moved.ending.as_ref();
            (json!({ "signal": moved.signal, "ending": ending, "claim": moved.claim }), None)
        }
        EventBody::AttemptStarted(started) => (json!({ "number": started.number }), None),
        EventBody::AttemptEnded(ended) if ended.reason == BROKEN_OFF => return None,
        EventBody::AttemptEnded(ended) => {
            (json!({ "claimed": ended.claimed, "reason": ended.reason }), None)
        }
        EventBody::CheckFinished(done) => {
            let (check, passed) = (&done.verdict.check, done.verdict.passed);
            let place = (done.phase, done.index);
            (json!({ "phase": place.0, "index": place.1, "check": check, "passed": passed }), None)
        }
        EventBody::SessionStarted(started) => {
            let version = &started.agent_version;
            let data = json!({
                "agent": started.agent, "agent_version": version, "model": started.model,
                "tools": started.tools,
            });
            (data, None)
        }
        EventBody::ContextCompacted(done) => {
            let data = json!({
                "cause": done.cause, "superseded": done.superseded, "spilled": done.spilled,
                "summarised": done.summarised, "masked": done.masked, "edits": done.edits,
            });
            (data, None)
        }
        EventBody::SessionReprompted(told) => {
            (json!({ "rule": told.rule, "number": told.number, "index": told.index }), None)
        }
        EventBody::SessionMessage(said) => {
            (json!({ "index": said.index, "role": said.role }), None)
        }
        EventBody::ModelRequested(asked) => {
            let data = json!({
                "model": asked.model, "messages": asked.messages,
                "max_output_tokens": asked.max_output_tokens,
            });
            (data, Some(asked.call))
        }
        EventBody::ModelCompleted(answered) => {
            (json!({ "model": answered.model, "stop": answered.stop }), Some(answered.call))
        }
        EventBody::ModelFailed(failed) => {
            let fault = failed.error.fault;
            (json!({ "model": failed.model, "fault": fault }), Some(failed.call))
        }
        EventBody::ToolRequested(made) => {
            let reason = match &made.decision {
                Decided::Allowed => None,
                Decided::Refused { reason } => Some(reason),
            };
            let data = json!({
                "tool": made.tool, "arguments": made.arguments, "class": made.class,
                "refused": reason,
            });
            (data, Some(made.call))
        }
        EventBody::NoteAdded(note) => (json!({ "text": note.text }), Some(note.call)),
        EventBody::ToolCompleted(done) => {
            (json!({ "output": done.output, "preview": done.preview }), Some(done.call))
        }
        EventBody::ToolFailed(failed) => {
            (json!({ "error": failed.error, "message": failed.message }), Some(failed.call))
        }
        EventBody::FileChanged(change) => {
            let data =
                json!({ "path": change.path, "before": change.before, "after": change.after });
            (data, change.call)
        }
        _ => return None,
    })
}

/// Names a fact by what it is about.
fn named(fact: &Fact) -> String {
    let about = ["tool", "check", "path", "role", "agent"].iter().find_map(|key| {
        let word = fact.data.get(key)?.as_str()?;
        Some(format!(" ({word})"))
    });
    format!("{}{} at event {}", fact.kind, about.unwrap_or_default(), fact.seq)
}

/// Says in a line what differs between two facts.
async fn told(
    first: &Fact,
    second: &Fact,
    (one, other): (&dyn Store, &dyn Store),
) -> Result<String, Error> {
    if first.kind != second.kind {
        return Ok(format!("{}, and in the second run {}", named(first), named(second)));
    }
    let (mut a, mut b) = (first.data.clone(), second.data.clone());
    if let (Some(left), Some(right)) = (first.message, second.message) {
        (a["message"], b["message"]) = (read(one, left).await?, read(other, right).await?);
    }
    let (place, a, b) = differs(&a, &b, String::new()).unwrap_or_default();
    Ok(format!("{}: {place} was {a}, and in the second run {b}", named(first)))
}

async fn read(store: &dyn Store, hash: BlobHash) -> Result<Value, Error> {
    let bytes = store.blob(&hash).await?.unwrap_or_default();
    let message = serde_json::from_slice::<Message>(&bytes).ok();
    Ok(message.map_or(Value::Null, |message| json!(message.parts)))
}

/// Finds the first place in which two values differ, and both values there.
fn differs(one: &Value, other: &Value, place: String) -> Option<(String, String, String)> {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            let below = |key: &String| {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                let none = Value::Null;
                differs(a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none), place)
            };
            keys.filter_map(below).next()
        }
        (Value::Array(a), Value::Array(b)) => {
            let none = Value::Null;
            let pair = |at: usize| (a.get(at).unwrap_or(&none), b.get(at).unwrap_or(&none));
            (0..a.len().max(b.len())).find_map(|at| {
                let (one, other) = pair(at);
                differs(one, other, format!("{place}[{at}]"))
            })
        }
        (one, other) if one == other => None,
        (Value::String(one), Value::String(other)) => {
            let (one, other) = apart(one, other);
            Some((place, format!("{one:?}"), format!("{other:?}")))
        }
        (one, other) => {
            let short = |value: &Value| text::head(&value.to_string(), TOLD).to_owned();
            Some((place, short(one), short(other)))
        }
    }
}

/// Returns the parts of two texts around the first character in which they differ.
fn apart<'a>(one: &'a str, other: &'a str) -> (&'a str, &'a str) {
    let same =
        one.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8());
    let same: usize = same.sum();
    // Some of what is the same shows where it is.
    let from = one.char_indices().map(|(at, _)| at).find(|at| at + TOLD / 4 >= same).unwrap_or(0);
    let cut = |text: &'a str| text::head(text.get(from..).unwrap_or_default(), TOLD);
    (cut(one), cut(other))
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{
        Principal, SystemClock, SystemRng, Timestamp, ToolClass,
        event::{GENESIS, TaskCreated, ToolFailed},
    };
    use formwork_trace::{Options, Trace};

    use super::*;

    /// Tells what happened to one task, in order.
    fn told(bodies: Vec<EventBody>) -> Vec<Event> {
        let spec = json!({ "name": "fix", "body": { "native": { "function": "fix" } } });
        let spec = serde_json::from_value(spec).unwrap();
        let created = EventBody::TaskCreated(TaskCreated { parent: None, spec });
        let task = TaskId::generate(&SystemClock, &SystemRng);
        let run = RunId::generate(&SystemClock, &SystemRng);
        let bodies = std::iter::once(created).chain(bodies).enumerate();
        let event = |(at, body): (usize, EventBody)| Event {
            position: Position(at as u64 + 1),
            run,
            seq: at as u64 + 1,
            task: Some(task),
            principal: Principal::system("test"),
            at: Timestamp::from_micros(1),
            body,
            idempotency_key: None,
            hash: GENESIS,
        };
        bodies.map(event).collect()
    }

    fn call(id: CallId, replay: Replay, word: &str) -> EventBody {
        EventBody::ToolRequested(Box::new(ToolRequested {
            call: id,
            session: SessionId::generate(&SystemClock, &SystemRng),
            pair: "call_1".to_owned(),
            tool: "exec".to_owned(),
            arguments: json!({ "command": ["cargo", word] }),
            class: Some(ToolClass::Exec),
            replay,
            paths: Vec::new(),
            decision: Decided::Allowed,
        }))
    }

    fn unknown(call: CallId) -> EventBody {
        let message = "nobody knows".to_owned();
        let (error, elapsed) = (ToolErrorKind::OutcomeUnknown, formwork_protocols::Span::ZERO);
        EventBody::ToolFailed(ToolFailed {
            call,
            error,
            message,
            elapsed,
            outside: None,
            worker: None,
        })
    }

    fn id() -> CallId {
        CallId::generate(&SystemClock, &SystemRng)
    }

    async fn parts(first: Vec<EventBody>, second: Vec<EventBody>) -> Option<Divergence> {
        let store = Trace::open("sqlite::memory:", Options::default()).await.unwrap();
        let (first, second) = (Course::of(&told(first)), Course::of(&told(second)));
        first.parts_from(&second, false, (&store, &store)).await.unwrap()
    }

    #[tokio::test]
    async fn where_two_runs_part_is_named_by_task_event_and_place() {
        let test = call(id(), Replay::Once, "test");
        let check = call(id(), Replay::Once, "check");

        let parted = parts(vec![test.clone()], vec![check]).await.unwrap();
        let shorter = parts(vec![test.clone()], vec![]).await.unwrap();
        let same = parts(vec![test.clone()], vec![test]).await;

        assert_eq!(parted.task, "fix");
        assert_eq!(
            parted.what,
            "tool.requested (exec) at event 2: arguments.command[1] was \"test\", and in the second run \"check\""
        );
        assert_eq!(shorter.what, "only the first run has tool.requested (exec) at event 2");
        assert_eq!(same, None);
    }

    #[tokio::test]
    async fn a_call_that_was_made_again_after_a_crash_counts_once() {
        let (lost, again) = (id(), id());
        let broken = vec![
            call(lost, Replay::Idempotent, "test"),
            unknown(lost),
            call(again, Replay::Idempotent, "test"),
        ];
        let whole = vec![call(id(), Replay::Idempotent, "test")];

        assert_eq!(parts(broken, whole).await, None);
    }

    #[test]
    fn the_place_is_told_in_which_two_values_differ() {
        let one = json!({ "a": [1, { "b": "the same, then one" }], "c": 1 });
        let other = json!({ "a": [1, { "b": "the same, then two" }], "c": 2 });

        let found = differs(&one, &other, String::new()).unwrap();

        let (place, a, b) = (found.0.as_str(), found.1.as_str(), found.2.as_str());
        assert_eq!((place, a, b), ("a[1].b", "\"the same, then one\"", "\"the same, then two\""));
        assert_eq!(differs(&one, &one, String::new()), None);
    }

    #[test]
    fn long_texts_are_told_around_what_differs_and_whole_characters_stay_whole() {
        let one = format!("{}é", "日".repeat(500));
        let other = format!("{}è", "日".repeat(500));

        let (a, b) = apart(&one, &other);

        assert!(a.len() <= TOLD && a.ends_with('é') && b.ends_with('è'), "{a} {b}");
    }
}
