//! `runs.fork` and `runs.rewind`: a run that goes on from a point of another one.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
};

use async_trait::async_trait;
use formwork_protocols::{
    Append, Event, EventBody, NewEvent, Position, RunId, Store, TaskId, TaskName,
    event::{RunForked, RunPaused},
    store::Selection,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{named, own};
use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    operations::undo::{Left, Undo, UndoParams, Undone},
};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// A point of a run: after one of its events, named by its place in the run or in the whole log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The place in the run; the first event is 1.
    Seq(u64),
    /// The place in the log.
    Position(Position),
}

impl Point {
    /// Finds where it lies in the log; 0 is before all of them.
    ///
    /// # Errors
    /// [`Error::NotForkable`] when the run, of which something is `wanted`, has no such event.
    pub(crate) async fn in_log(
        self,
        store: &dyn Store,
        (run, wanted): (RunId, &'static str),
    ) -> Result<Position, Error> {
        let row = named(store, run).await?;
        let selection = Selection { run: Some(run), ..Selection::default() };
        let not = |reason: String| Error::NotForkable { run, wanted, reason };
        match self {
            Self::Seq(0) | Self::Position(Position(0)) => Ok(Position::default()),
            Self::Seq(seq) => {
                let mut after = Position::default();
                loop {
                    let page = store.read(after, &selection, PAGE).await?;
                    if let Some(event) = page.iter().find(|event| event.seq == seq) {
                        return Ok(event.position);
                    }
                    let Some(last) = page.last() else { break };
                    after = last.position;
                }
                Err(not(format!("it has {} events, and no event {seq}", row.events)))
            }
            Self::Position(at) => {
                let before = Position(at.0.saturating_sub(1));
                let found = store.read(before, &selection, 1).await?;
                match found.first() {
                    Some(event) if event.position == at => Ok(at),
                    _ => Err(not(format!("no event of it is at @{at} of the log"))),
                }
            }
        }
    }
}

impl FromStr for Point {
    type Err = String;

    /// Reads `57`, a place in the run, or `@1042`, a place in the log.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse().map_err(|_| {
                "expected the place of an event in its run, as 57, or in the log, as @1042"
                    .to_owned()
            })
        };
        match text.strip_prefix('@') {
            Some(position) => number(position).map(|at| Self::Position(Position(at))),
            None => number(text).map(Self::Seq),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => write!(f, "{seq}"),
            Self::Position(position) => write!(f, "@{position}"),
        }
    }
}

/// Which run to go on from, and where.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkParams {
    /// The run.
    pub run: RunId,
    /// The last event that the new run begins with; the last of the run, but for its end, where absent.
    #[serde(default)]
    pub at: Option<Point>,
}

/// Which run to go back in, and where to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RewindParams {
    /// The run.
    pub run: RunId,
    /// The last event that is kept.
    pub to: Point,
    /// Whether files are made what they were although somebody else has changed them since.
    #[serde(default)]
    pub force: bool,
}

/// A run that goes on from another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Forked {
    /// The new run; paused, to be resumed.
    pub run: RunId,
    /// The run that it comes from.
    pub from: RunId,
    /// The last event that was taken over, by its place in the run: the one that was asked for, or the last
    /// before it that a process could have stopped at.
    pub seq: u64,
    /// The paths that were made what they were then.
    pub restored: Vec<String>,
    /// Paths that could not be, each with the reason.
    pub left: Vec<Left>,
}

/// `runs.fork`
pub struct Fork;

#[async_trait]
impl Operation for Fork {
    const NAME: &'static str = "runs.fork";
    const DOC: &'static str =
        "Makes a new run that goes on from an event of another one. No file is touched.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = ForkParams;
    type Output = Forked;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: ForkParams,
    ) -> Result<Forked, Error> {
        let ForkParams { run, at } = params;
        own(formwork, run, "forked").await?;
        let kept = Kept::read(&*formwork.inner.store, (run, "forked"), at).await?;
        kept.record(formwork, caller, None).await
    }
}

/// `runs.rewind`
pub struct Rewind;

#[async_trait]
impl Operation for Rewind {
    const NAME: &'static str = "runs.rewind";
    const DOC: &'static str = "Makes the files that a run changed what they were at one of its events, and a new run that \
         goes on from there.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = RewindParams;
    type Output = Forked;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: RewindParams,
    ) -> Result<Forked, Error> {
        let RewindParams { run, to, force } = params;
        own(formwork, run, "rewound").await?;
        let kept = Kept::read(&*formwork.inner.store, (run, "rewound"), Some(to)).await?;
        // It holds the run meanwhile, so that nobody works on it.
        let undo =
            UndoParams { run, to: Some(Point::Position(kept.position)), force, dry_run: false };
        let undone = <Undo as Operation>::run(formwork, caller, undo).await?;
        kept.record(formwork, caller, Some(undone)).await
    }
}

/// What of a run another one begins with.
struct Kept {
    run: RunId,
    events: Vec<Event>,
    position: Position,
}

impl Kept {
    /// Reads a run, of which one thing is `wanted`, up to a point or to the last event before it that a process could have
    /// stopped at.
    ///
    /// # Errors
    /// [`Error::NotForkable`] when the run has no such point.
    async fn read(
        store: &dyn Store,
        (run, wanted): (RunId, &'static str),
        at: Option<Point>,
    ) -> Result<Self, Error> {
        let row = named(store, run).await?;
        let not = |reason: String| Error::NotForkable { run, wanted, reason };
        let selection = Selection { run: Some(run), ..Selection::default() };
        // The tree as it was asked for is recorded in one piece, and there is no point within it.
        let mut whole = true;
        let (mut events, mut after) = (Vec::new(), Position::default());
        'pages: loop {
            let page = store.read(after, &selection, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.position;
            for event in page {
                let is_past = match at {
                    None => matches!(event.body, EventBody::RunFinished(_)),
                    Some(Point::Seq(seq)) => event.seq > seq,
                    Some(Point::Position(position)) => event.position > position,
                };
                if is_past {
                    whole = !is_plan(&event.body)
                        || events.iter().any(|event: &Event| !is_plan(&event.body));
                    break 'pages;
                }
                events.push(event);
            }
        }
        if let Some(Point::Seq(seq)) = at
            && events.last().is_none_or(|last| last.seq < seq)
        {
            return Err(not(format!("it has {} events, and no event {seq}", row.events)));
        }
        if let Some(Event { seq, body: EventBody::RunFinished(_), .. }) = events.last() {
            let last = seq.saturating_sub(1);
            return Err(not(format!("it ended at event {seq}; the last before is {last}")));
        }
        let planted = events.iter().take_while(|event| is_plan(&event.body)).count();
        while events.len() > planted && !is_stop(&events) {
            events.pop();
        }
        let Some(last) = events.last().filter(|_| whole) else {
            return Err(not("the point lies before the end of its plan".to_owned()));
        };
        if let Some((name, seq)) = at_work_apart(&events) {
            return Err(not(format!(
                "task {name} was at work in a workspace of its own, which is no part of the log: choose a point before event {seq}"
            )));
        }
        let position = last.position;
        Ok(Self { run, events, position })
    }

    /// Records the new run, in one piece.
    async fn record(
        self,
        formwork: &Formwork,
        caller: &Caller,
        undone: Option<Undone>,
    ) -> Result<Forked, Error> {
        let Self { run: from, events, .. } = self;
        let inner = &formwork.inner;
        let (clock, rng) = (&*inner.clock, &*inner.rng);
        let run = RunId::generate(clock, rng);
        let mut ids = Ids::default();
        let (mut seq, mut hash) = (0, formwork_protocols::event::GENESIS);
        let mut copies = Vec::with_capacity(events.len() + 2);
        let unreadable = |source| Error::Parameters { capability: "the log of a run", source };
        for event in events {
            (seq, hash) = (event.seq, event.hash);
            // Requests were meant for the run that they were made of.
            if !event.body.needs_lease() {
                continue;
            }
            let mut data = event.body.data().map_err(unreadable)?;
            let mut make = || TaskId::generate(clock, rng);
            ids.rename(&mut data, &mut make);
            copies.push(NewEvent {
                task: event.task.map(|task| ids.of(task, &mut make)),
                principal: event.principal,
                at: event.at,
                body: EventBody::from_parts(event.body.kind(), data).map_err(unreadable)?,
                idempotency_key: event.idempotency_key,
            });
        }
        let forked = RunForked { from, seq, hash, rewound: undone.is_some() };
        let reason = format!("goes on from event {seq} of run {from}");
        for body in [EventBody::RunForked(forked), EventBody::RunPaused(RunPaused { reason })] {
            copies.push(NewEvent {
                task: None,
                principal: caller.principal().clone(),
                at: inner.clock.now(),
                body,
                idempotency_key: None,
            });
        }
        let batch = Append { run, token: None, events: copies, blobs: Vec::new() };
        inner.store.append(batch).await?;
        let (restored, left) = undone.map(|undone| (undone.paths, undone.left)).unwrap_or_default();
        Ok(Forked { run, from, seq, restored, left })
    }
}

fn is_plan(body: &EventBody) -> bool {
    matches!(body, EventBody::RunCreated(_) | EventBody::TaskCreated(_))
}

/// Tells whether a process could have stopped after the last event. Events that are recorded together have
/// no point between them.
fn is_stop(events: &[Event]) -> bool {
    match events.last().map(|event| &event.body) {
        // A move is recorded with what follows from it, unless it is an end.
        Some(EventBody::TaskMoved(moved)) => moved.to.is_terminal(),
        // An end of an attempt is recorded with the move, a claim with the checks, a part with its beginning.
        Some(EventBody::AttemptEnded(_) | EventBody::TaskCreated(_)) => false,
        // A reservation is recorded with its request, an answer with its cost and its words, and what a task waited for
        // with what follows from it.
        Some(
            EventBody::BudgetReserved(_)
            | EventBody::ModelCompleted(_)
            | EventBody::SessionStarted(_)
            | EventBody::WaitMet(_),
        ) => false,
        Some(EventBody::BudgetSettled(settled)) => {
            let answered = |event: &Event| match &event.body {
                EventBody::ModelCompleted(completed) => completed.call == settled.call,
                _ => false,
            };
            // Of a call that failed, nothing more is to come.
            !events.iter().rev().take(4).any(answered)
        }
        _ => true,
    }
}

/// The keys whose values name something of a run: what is copied is another of its kind.
const NAMING: [&str; 11] = [
    "attempt",
    "around",
    "call",
    "continues",
    "handed_over",
    "hold",
    "parent",
    "resumes",
    "root",
    "session",
    "task",
];

/// New ids in place of old ones, each old one always by the same. Ids of every kind have one form.
#[derive(Default)]
struct Ids(HashMap<TaskId, TaskId>);

impl Ids {
    fn of(&mut self, id: TaskId, make: &mut impl FnMut() -> TaskId) -> TaskId {
        *self.0.entry(id).or_insert_with(make)
    }

    /// Renames all that data names, however deep.
    fn rename(&mut self, data: &mut Value, make: &mut impl FnMut() -> TaskId) {
        match data {
            Value::Object(map) => {
                for (key, value) in map {
                    let names = NAMING.contains(&key.as_str());
                    match value {
                        Value::String(text) if names => {
                            if let Ok(id) = text.parse() {
                                *text = self.of(id, make).to_string();
                            }
                        }
                        other => self.rename(other, make),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename(item, make)),
            _ => {}
        }
    }
}

/// Finds a task that has begun in a workspace of its own and not ended, and the event by which it began.
fn at_work_apart(events: &[Event]) -> Option<(&TaskName, u64)> {
    let (mut apart, mut begun) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        let Some(task) = event.task else { continue };
        match &event.body {
            EventBody::TaskCreated(created) if !created.spec.isolation.is_none() => {
                apart.insert(task, &created.spec.name);
            }
            EventBody::AttemptStarted(_) => drop(begun.entry(task).or_insert(event.seq)),
            EventBody::TaskMoved(moved) if moved.to.is_terminal() => drop(begun.remove(&task)),
            _ => {}
        }
    }
    begun.into_iter().find_map(|(task, seq)| Some((*apart.get(&task)?, seq)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_a_place_in_the_run_or_in_the_log() {
        assert_eq!("57".parse(), Ok(Point::Seq(57)));
        assert_eq!("@1042".parse(), Ok(Point::Position(Position(1042))));
        assert!("@".parse::<Point>().is_err() && "x".parse::<Point>().is_err());
        assert_eq!(Point::Position(Position(7)).to_string(), "@7");
    }

    #[test]
    fn ids_are_renamed_alike_wherever_they_stand_and_texts_are_left() {
        let id = "0190a3b0-0000-7000-8000-000000000001";
        let mut ids = Ids::default();
        let new = "00000000-0000-0000-0000-000000000001";
        let mut make = || new.parse().unwrap();
        let mut data = serde_json::json!({
            "task": id, "text": id, "within": [{ "call": id, "hold": null, "name": "task" }],
        });

        ids.rename(&mut data, &mut make);

        let wanted = serde_json::json!({
            "task": new, "text": id, "within": [{ "call": new, "hold": null, "name": "task" }],
        });
        assert_eq!(data, wanted);
    }
}
