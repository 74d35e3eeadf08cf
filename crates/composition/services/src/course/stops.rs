//! What ended tasks that was nobody's answer: somebody outside, or the clock.
//!
//! Nothing is recorded when such an end is decided, only what comes of it: work that is broken off, tasks that end because the
//! one above them does, and then that one. The first of these is the place of the end in the record. What tells it from an end
//! that the work itself brought about is that no attempt had ended above it, and no task beside it had failed.

use std::collections::HashMap;

use formwork_protocols::{
    Body, Cancellation, Ending, Event, EventBody, TaskId, TaskState, spec::OnFailure,
};
use formwork_scheduler::{Stop, core::is_by_clock};

use super::BROKEN_OFF;

/// An end that was nobody's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stopped {
    /// The place of the first event that comes of it.
    pub(crate) at: u64,
    /// The task, by the names from the root to it.
    pub(crate) path: String,
    /// How it is ended.
    pub(crate) by: Stop,
}

/// All such ends of a run.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// In the order of their places.
    pub(crate) all: Vec<Stopped>,
    /// From where on what is recorded of a task comes of such an end.
    cuts: HashMap<TaskId, u64>,
    /// The place of an end that was begun and of which the record holds no task that it was for.
    pub(crate) begun: Option<u64>,
}

/// What is known of a task.
#[derive(Default)]
struct Known {
    parent: Option<TaskId>,
    path: String,
    is_decision: bool,
    /// What becomes of the others below it once one has failed, and whether one has.
    on_failure: OnFailure,
    has_failed: bool,
    /// Whether its own work is over, by which all ends that it has made.
    is_done: bool,
    /// Where its last attempt has ended, and whether it was broken off, while it has not moved since.
    ended: Option<(u64, bool)>,
    /// The first that came of an end of it, or of one above it.
    began: Option<u64>,
    /// The task that it is a part of as far as such ends go: whoever was ended first.
    cut: Option<u64>,
    is_over: bool,
}

impl Stops {
    /// Finds them. What decides checks is no part of a course.
    pub(crate) fn of(events: &[Event], paths: &HashMap<TaskId, String>) -> Self {
        let deciding = super::deciding(events);
        let (mut known, mut order) = (HashMap::<TaskId, Known>::new(), Vec::new());
        let mut stops = Self::default();
        for event in events {
            let Some(task) = event.task.filter(|task| !deciding.contains(task)) else { continue };
            if let EventBody::TaskCreated(created) = &event.body {
                let body = &created.spec.body;
                let of = Known {
                    parent: created.parent,
                    path: paths.get(&task).cloned().unwrap_or_default(),
                    is_decision: matches!(body, Body::Decision(_)),
                    on_failure: on_failure(body),
                    ..Known::default()
                };
                known.insert(task, of);
                order.push(task);
                continue;
            }
            let Some(of) = known.get_mut(&task) else { continue };
            match &event.body {
                EventBody::AttemptStarted(_) => (of.is_done, of.ended) = (false, None),
                EventBody::AttemptEnded(ended) => {
                    let is_broken_off = ended.reason == BROKEN_OFF;
                    of.is_done = !is_broken_off;
                    of.ended = Some((event.seq, is_broken_off));
                }
                EventBody::InboxExpired(_) if of.is_decision && !of.is_over => {
                    stops.put(event.seq, of, Stop::Expired);
                }
                EventBody::TaskMoved(moved) => {
                    // What was not broken off and ended all the same was to end before it did.
                    let is_of_it = |(at, is_broken_off): &(u64, bool)| {
                        *is_broken_off || at.saturating_add(1) == event.seq
                    };
                    let ended = of.ended.take().filter(is_of_it).map(|(at, _)| at);
                    let at = ended.unwrap_or(event.seq);
                    let at = of.began.map_or(at, |began| began.min(at));
                    of.is_over = moved.to.is_terminal();
                    let Some(ending) = &moved.ending else { continue };
                    if let Some(by) = by_nobody(ending) {
                        of.cut = Some(at);
                        stops.put(at, of, by);
                    }
                    of.began = None;
                    let above = of.parent;
                    if let Some(above) = above.and_then(|above| known.get_mut(&above)) {
                        above.take(ending, at, moved.from);
                    }
                }
                _ => {}
            }
        }
        stops.all.sort_by_key(|stopped| stopped.at);
        stops.begun = known.values().filter(|of| !of.is_over).filter_map(|of| of.began).min();
        for task in order {
            let Some(of) = known.get(&task) else { continue };
            let above = of.parent.and_then(|above| stops.cuts.get(&above)).copied();
            if let Some(cut) = of.cut.into_iter().chain(above).min() {
                stops.cuts.insert(task, cut);
            }
        }
        stops
    }

    /// Tells whether an event comes of such an end.
    pub(crate) fn is_of_one(&self, event: &Event) -> bool {
        let cut = event.task.and_then(|task| self.cuts.get(&task));
        cut.is_some_and(|cut| *cut <= event.seq)
    }

    /// Tells whether a task was broken off by one.
    pub(crate) fn broke_off(&self, task: TaskId) -> bool {
        self.cuts.contains_key(&task)
    }

    /// Tells whether any task was broken off.
    pub(crate) fn any(&self) -> bool {
        !self.cuts.is_empty()
    }

    fn put(&mut self, at: u64, of: &Known, by: Stop) {
        self.all.push(Stopped { at, path: of.path.clone(), by });
    }
}

impl Known {
    /// Takes how a task below it has ended that stood there, and from where on that was so.
    fn take(&mut self, ending: &Ending, at: u64, from: TaskState) {
        match ending {
            Ending::Cancelled { why: Cancellation::ParentEnded } if !self.ends(from) => {
                self.began = Some(self.began.map_or(at, |began| began.min(at)));
            }
            Ending::Cancelled {
                why: Cancellation::ParentEnded | Cancellation::DependencyFailed { .. },
            } => {}
            ending => self.has_failed |= !ending.satisfies(),
        }
    }

    /// Tells whether it is by its own doing that a task below it ends that stands there.
    fn ends(&self, from: TaskState) -> bool {
        let by_failure = match self.on_failure {
            OnFailure::AbortAll => true,
            OnFailure::Halt => from == TaskState::Created,
            OnFailure::ContinueIndependent | OnFailure::Ignore => false,
        };
        self.is_done || (self.has_failed && by_failure)
    }
}

/// Returns what becomes of the others below a body once one has failed.
fn on_failure(body: &Body) -> OnFailure {
    match body {
        Body::Subtasks { on_failure, .. } => *on_failure,
        Body::ForEach(each) => each.on_failure,
        _ => OnFailure::ContinueIndependent,
    }
}

/// Tells whether somebody outside or the clock ended a task, and how.
fn by_nobody(ending: &Ending) -> Option<Stop> {
    match ending {
        Ending::Cancelled { why: Cancellation::Requested } => Some(Stop::Cancelled),
        Ending::Escalated { why } if is_by_clock(why) => Some(Stop::TimedOut(why.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{
        AttemptId, Escalation, Position, Principal, RunId, Span, SystemClock, SystemRng,
        TaskSignal, Timestamp,
        event::{AttemptEnded, AttemptStarted, GENESIS, TaskCreated, TaskMoved},
    };
    use serde_json::json;

    use super::*;

    /// A run whose root has a part that ends once one of its own has failed, beside another.
    struct Story {
        tasks: Vec<(&'static str, TaskId)>,
        events: Vec<Event>,
    }

    impl Story {
        fn begin() -> Self {
            let mut story = Self { tasks: Vec::new(), events: Vec::new() };
            let parts = |policy| json!({ "subtasks": { "tasks": [], "on_failure": policy } });
            let native = || json!({ "native": { "function": "f" } });
            story.create("w", None, parts("continue-independent"));
            story.create("halts", Some("w"), parts("halt"));
            story.create("other", Some("w"), native());
            for name in ["fails", "goes-on", "never"] {
                story.create(name, Some("halts"), native());
            }
            story
        }

        fn task(&self, name: &str) -> TaskId {
            self.tasks.iter().find(|(known, _)| *known == name).unwrap().1
        }

        fn create(&mut self, name: &'static str, parent: Option<&str>, body: serde_json::Value) {
            let spec = serde_json::from_value(json!({ "name": name, "body": body })).unwrap();
            let parent = parent.map(|parent| self.task(parent));
            self.tasks.push((name, TaskId::generate(&SystemClock, &SystemRng)));
            self.tell(name, EventBody::TaskCreated(TaskCreated { parent, spec }));
        }

        fn tell(&mut self, name: &str, body: EventBody) {
            let seq = self.events.len() as u64 + 1;
            self.events.push(Event {
                position: Position(seq),
                run: RunId::generate(&SystemClock, &SystemRng),
                seq,
                task: Some(self.task(name)),
                principal: Principal::system("test"),
                at: Timestamp::from_micros(1),
                body,
                idempotency_key: None,
                hash: GENESIS,
            });
        }

        /// Tells that work at a task began, and how it ended.
        fn attempt(&mut self, name: &str, reason: &str) {
            let attempt = AttemptId::generate(&SystemClock, &SystemRng);
            let started = AttemptStarted { attempt, number: 1, resumes: None };
            self.tell(name, EventBody::AttemptStarted(started));
            let (reason, class) = (reason.to_owned(), None);
            let ended = AttemptEnded { attempt, claimed: false, reason, class };
            self.tell(name, EventBody::AttemptEnded(ended));
        }

        fn end(&mut self, name: &str, ending: Ending) {
            let has_begun = name == "halts"
                || self.events.iter().any(|event| {
                    event.task == Some(self.task(name))
                        && matches!(event.body, EventBody::AttemptStarted(_))
                });
            let from = if has_begun { TaskState::Active } else { TaskState::Created };
            let (signal, to) = match &ending {
                Ending::Cancelled { .. } => (TaskSignal::Cancel, TaskState::Cancelled),
                _ => (TaskSignal::Escalate, TaskState::Escalated),
            };
            let ending = Some(ending);
            let moved = TaskMoved { from, signal, to, ending, claim: None };
            self.tell(name, EventBody::TaskMoved(moved));
        }

        fn stops(&self) -> Stops {
            Stops::of(&self.events, &super::super::paths(&self.events))
        }
    }

    fn parent_ended() -> Ending {
        Ending::Cancelled { why: Cancellation::ParentEnded }
    }

    fn timed_out() -> Escalation {
        Escalation::TimedOut { after: Span::from_secs(1) }
    }

    #[test]
    fn what_comes_of_a_clock_begins_with_what_is_broken_off_and_not_with_what_a_failure_has_ended()
    {
        let mut story = Story::begin();
        story.attempt("fails", "it failed");
        story.end(
            "fails",
            Ending::Escalated { why: Escalation::BodyFailed { detail: "x".to_owned() } },
        );
        story.end("never", parent_ended()); // Event 10: for one beside it has failed.
        story.attempt("goes-on", BROKEN_OFF); // Events 11 and 12.
        story.end("goes-on", parent_ended());
        story.end("halts", Ending::Escalated { why: timed_out() });

        let stops = story.stops();

        let by = Stop::TimedOut(timed_out());
        let path = "w/halts".to_owned();
        assert_eq!(stops.all, [Stopped { at: 12, path, by }]);
        assert_eq!(stops.begun, None);
        assert!(stops.broke_off(story.task("goes-on")) && !stops.broke_off(story.task("other")));
    }

    #[test]
    fn what_comes_of_somebody_begins_with_the_first_task_that_ends_for_it() {
        let mut story = Story::begin();
        story.attempt("goes-on", BROKEN_OFF); // Events 7 and 8.
        story.end("fails", parent_ended());
        story.end("goes-on", parent_ended());
        let half_way = story.stops();
        story.end("halts", parent_ended());
        story.end("w", Ending::Cancelled { why: Cancellation::Requested });

        let stops = story.stops();

        assert_eq!((half_way.all, half_way.begun), (Vec::new(), Some(8)));
        let path = "w".to_owned();
        assert_eq!(stops.all, [Stopped { at: 8, path, by: Stop::Cancelled }]);
        let of_one: Vec<u64> = story
            .events
            .iter()
            .filter(|event| stops.is_of_one(event))
            .map(|event| event.seq)
            .collect();
        assert_eq!(of_one, [8, 9, 10, 11, 12]);
    }
}
