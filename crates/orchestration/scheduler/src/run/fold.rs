//! From the log back to where the run was left.

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
    sync::Arc,
};

use formwork_protocols::{
    Ask, CallId, EventBody, FailureClass, HoldId, Ledger as _, Position, RunId, Span, Store,
    TaskId, TaskName, TaskState, Timestamp, ToolClass,
    check::{CheckKind, Phase},
    event::{Decided, Lost},
    overseer::Choice,
    spec::CheckPlace,
    store::Selection,
    tool::AWAIT_TASKS,
};
use serde_json::{Map, Value};

use super::{
    mail::Mail,
    tree::{Left, Progress, Tree},
    work::{BROKEN_OFF, failed_body},
};
use crate::{
    core::{Builder, Standing, TaskIndex, heeds_evidence},
    error::Error,
    ledger::Accounts,
};

/// Events read at once: enough to spare round trips, few enough to hold.
const PAGE: usize = 2_000;

/// A run as its log tells it.
pub(crate) struct Folded {
    pub(crate) tree: Tree,
    pub(super) variables: Map<String, Value>,
    /// The time that processes worked on it.
    pub(crate) worked: Span,
    pub(super) was_started: bool,
    /// The model calls of reservations that were never settled.
    pub(super) calls: HashMap<HoldId, CallId>,
    /// Where the last event stands; requests after it are heeded.
    pub(super) last: Position,
    /// Whether somebody asked to end the run for good.
    pub(super) is_abort_asked: bool,
    /// Whether it was paused and nobody has taken it up since.
    pub(super) is_paused: bool,
    /// What was said from outside.
    pub(super) mail: Mail,
}

/// Reads a run.
///
/// # Errors
/// [`Error`] when the log cannot be read, tells no tree, or tells of an end.
pub(super) async fn fold(
    store: &dyn Store,
    run: RunId,
    width: NonZeroUsize,
) -> Result<Folded, Error> {
    let mut folding = Folding::new(run, width);
    let selection = Selection { run: Some(run), ..Selection::default() };
    let mut after = Position(0);
    loop {
        let page = store
            .read(after, &selection, PAGE)
            .await
            .map_err(|source| Error::Store { run, source })?;
        let Some(last) = page.last() else { break };
        after = last.position;
        let is_last = page.len() < PAGE;
        for event in page {
            folding.mail.take(&event);
            folding.take(event.task, event.at, event.body)?;
        }
        if is_last {
            break;
        }
    }
    let folded = folding.finish()?;
    Ok(Folded { last: after, ..folded })
}

/// Tells whether something happens around the work of tasks: of services, and of what was held when a process died.
const fn opens(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::ServiceStarted(_)
            | EventBody::ServiceReady(_)
            | EventBody::ServiceFailed(_)
            | EventBody::ServiceStopped(_)
            | EventBody::BudgetSettled(_)
            | EventBody::BudgetWarned(_)
            | EventBody::BudgetExhausted(_)
    )
}

/// A run that is being read.
pub(crate) struct Folding {
    run: RunId,
    builder: Builder,
    standings: Vec<Standing>,
    progress: Vec<Progress>,
    accounts: Accounts,
    variables: Option<Map<String, Value>>,
    worked: Span,
    last: Option<Timestamp>,
    was_started: bool,
    calls: HashMap<HoldId, CallId>,
    files: HashSet<(TaskId, String)>,
    is_abort_asked: bool,
    is_paused: bool,
    /// Whether it was taken up, and nothing of its tasks has happened since.
    opens: bool,
    mail: Mail,
    /// The exit checks that are about the form of a result.
    outputs: HashSet<(usize, u32)>,
    /// Calls that wait for made tasks, each with its task and the names that it waits for, all where there are none.
    awaits: HashMap<CallId, (TaskIndex, Vec<String>)>,
    /// The parent and the name of each task, by its place.
    names: Vec<(Option<TaskIndex>, TaskName)>,
    /// The tasks that decide checks, by their places: whose check each decides, and which.
    deciding: Vec<(TaskIndex, CheckPlace, usize)>,
}

impl Folding {
    pub(crate) fn new(run: RunId, width: NonZeroUsize) -> Self {
        Self {
            run,
            builder: Builder::new(width),
            standings: Vec::new(),
            progress: Vec::new(),
            accounts: Accounts::new(),
            variables: None,
            worked: Span::ZERO,
            last: None,
            was_started: false,
            calls: HashMap::new(),
            files: HashSet::new(),
            mail: Mail::default(),
            outputs: HashSet::new(),
            awaits: HashMap::new(),
            names: Vec::new(),
            deciding: Vec::new(),
            is_abort_asked: false,
            is_paused: false,
            opens: false,
        }
    }

    fn place(&self, task: Option<TaskId>) -> Option<TaskIndex> {
        self.builder.find(task?)
    }

    /// Takes the next event.
    pub(crate) fn take(
        &mut self,
        task: Option<TaskId>,
        at: Timestamp,
        body: EventBody,
    ) -> Result<(), Error> {
        // Nobody takes an end back. A pause is over as soon as somebody takes the run up.
        self.is_abort_asked |= matches!(body, EventBody::RunAbortRequested(_));
        // Requests say nothing of whether anybody worked.
        if !body.needs_lease() || matches!(body, EventBody::RunForked(_)) {
            return Ok(());
        }
        // Between a pause or a crash and the next start nobody worked on it, and nobody did before its services were ready.
        let is_start = matches!(body, EventBody::RunStarted(_) | EventBody::RunResumed(_));
        self.opens |= is_start;
        self.opens &= is_start || opens(&body);
        if let Some(last) = self.last
            && !is_start
            && !self.opens
            && !(self.is_paused && opens(&body))
        {
            self.worked = self.worked.saturating_add(at.since(last));
        }
        self.last = Some(at);
        match body {
            EventBody::RunCreated(created) => {
                let variables = created.setup.get("vars").and_then(Value::as_object).cloned();
                self.variables = Some(variables.unwrap_or_default());
            }
            EventBody::RunStarted(_) | EventBody::RunResumed(_) => {
                (self.was_started, self.is_paused) = (true, false);
                self.left(Left::lost);
            }
            EventBody::RunPaused(_) => {
                self.is_paused = true;
                self.left(Left::stopped);
            }
            EventBody::RunFinished(finished) => {
                let outcome = finished.outcome.to_string();
                return Err(Error::Ended { run: self.run, outcome });
            }
            EventBody::TaskCreated(created) => {
                let Some(id) = task else { return Ok(()) };
                self.accounts.open(id, created.parent, &created.spec.budget);
                for (index, check) in (0..).zip(&created.spec.postchecks) {
                    let is_output = matches!(check.kind, CheckKind::Output(_));
                    if is_output && heeds_evidence(&created.spec.body) {
                        self.outputs.insert((self.standings.len(), index));
                    }
                }
                let parent = created.parent.and_then(|parent| self.builder.find(parent));
                if let (Some(parent), Some(place)) = (parent, created.spec.decides()) {
                    self.deciding.push((parent, place, self.progress.len()));
                }
                self.names.push((parent, created.spec.name.clone()));
                self.builder
                    .add(id, created.parent, created.spec)
                    .map_err(|source| Error::Tree { run: self.run, source })?;
                let above = parent.and_then(|above| self.standings.get(above.position()));
                let born = above.map_or(0, |above| above.attempt);
                self.progress.push(Progress::default());
                self.standings.push(Standing {
                    born,
                    passing: 0,
                    rests: false,
                    state: TaskState::Created,
                    ending: None,
                    attempt: 0,
                    attempt_open: false,
                    failed_check: 0,
                    repaired: false,
                    follows: false,
                    granted: 0,
                    overseen: None,
                });
            }
            EventBody::BudgetReserved(reserved) => {
                if let Some(task) = task {
                    let ask = Ask { usd: reserved.usd, tokens: reserved.tokens };
                    self.accounts.restore_hold(task, reserved.hold, ask);
                    self.calls.insert(reserved.hold, reserved.call);
                }
            }
            EventBody::BudgetWarned(found) => {
                let place = self.place(Some(found.task)).map(TaskIndex::position);
                if let Some(progress) = place.and_then(|place| self.progress.get_mut(place)) {
                    progress.tell(found.cap, false);
                }
            }
            EventBody::BudgetExhausted(found) => {
                // Of the task whose budget it is, whoever has found it used up.
                let place = self.place(Some(found.task)).map(TaskIndex::position);
                if let Some(progress) = place.and_then(|place| self.progress.get_mut(place)) {
                    progress.tell(found.cap, true);
                    if found.cap.begins_grace() {
                        progress.exhausted.get_or_insert((self.worked, found.detail));
                    }
                }
            }
            EventBody::ModelRetried(retried) => self.lost(retried.call, retried.lost),
            EventBody::ModelFellBack(fell) => self.lost(fell.call, fell.lost),
            EventBody::BudgetSettled(settled) => {
                self.accounts.settle(settled.hold, &settled.usage, settled.usd);
                self.calls.remove(&settled.hold);
            }
            EventBody::ToolRequested(requested)
                if requested.decision == Decided::Allowed
                    && requested.class == Some(ToolClass::Lifecycle) =>
            {
                if let Some(place) = self.place(task)
                    && requested.tool == AWAIT_TASKS
                {
                    let names = requested.arguments.get("names").and_then(Value::as_array);
                    let names = names.map(|names| {
                        names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
                    });
                    self.awaits.insert(requested.call, (place, names.unwrap_or_default()));
                }
            }
            EventBody::ToolCompleted(done) => {
                if let Some((place, names)) = self.awaits.remove(&done.call) {
                    self.told(place, &names);
                }
            }
            EventBody::ToolRequested(requested) if requested.decision == Decided::Allowed => {
                if let Some(task) = task {
                    self.accounts.restore_tool_call(task);
                }
            }
            body => {
                if let Some(place) = self.place(task) {
                    if let EventBody::CheckFinished(done) = &body {
                        self.decided(place, CheckPlace { phase: done.phase, index: done.index });
                    }
                    self.of_task(place, task, at, body);
                }
            }
        }
        Ok(())
    }

    /// Notes what a try of a call used that brought no answer.
    fn lost(&mut self, call: CallId, lost: Option<Lost>) {
        let of_call = |(hold, of): (&HoldId, &CallId)| (*of == call).then_some(*hold);
        if let (Some(lost), Some(hold)) = (lost, self.calls.iter().find_map(of_call)) {
            let ask = Ask { usd: lost.cost, tokens: lost.usage.total() };
            self.accounts.restore_lost(hold, ask);
        }
    }

    /// Notes what became of the commands that surround attempts.
    fn left(&mut self, note: fn(&mut Left)) {
        self.progress.iter_mut().filter_map(|progress| progress.left.as_mut()).for_each(note);
    }

    /// Notes that what was to decide a check has decided it: the next run of the check begins anew.
    fn decided(&mut self, task: TaskIndex, decided: CheckPlace) {
        for (parent, place, child) in &self.deciding {
            if *parent == task
                && *place == decided
                && let Some(progress) = self.progress.get_mut(*child)
            {
                progress.was_told = true;
            }
        }
    }

    /// Notes that a task was told of the ends of tasks that it has made.
    fn told(&mut self, parent: TaskIndex, names: &[String]) {
        for (place, (above, name)) in self.names.iter().enumerate() {
            let is_meant = *above == Some(parent)
                && (names.is_empty() || names.iter().any(|known| known == name.as_str()));
            let has_ended =
                self.standings.get(place).is_some_and(|standing| standing.state.is_terminal());
            if let Some(progress) = self.progress.get_mut(place).filter(|_| is_meant && has_ended) {
                progress.was_told = true;
            }
        }
    }

    fn of_task(&mut self, task: TaskIndex, id: Option<TaskId>, at: Timestamp, body: EventBody) {
        let place = task.position();
        let (Some(standing), Some(progress)) =
            (self.standings.get_mut(place), self.progress.get_mut(place))
        else {
            return;
        };
        match body {
            EventBody::TaskMoved(moved) => {
                progress.left = None;
                standing.state = moved.to;
                standing.ending = moved.ending;
                if let Some(claim) = moved.claim {
                    progress.claim = Some(claim);
                }
                progress.began.get_or_insert(self.worked);
                if moved.to == TaskState::Suspended {
                    progress.waits_since.get_or_insert(at);
                }
                if moved.to.is_terminal() {
                    progress.ended = Some(self.worked);
                }
            }
            EventBody::AttemptStarted(started) => {
                progress.left = None;
                standing.attempt = started.number;
                standing.attempt_open = true;
                progress.attempt = Some(started.attempt);
                progress.session = started.resumes;
            }
            EventBody::AttemptEnded(ended) => {
                standing.attempt_open = false;
                progress.advice = None;
                standing.rests = ended.class == Some(FailureClass::Passing);
                standing.passing = standing.passing.saturating_add(u32::from(standing.rests));
                if !ended.claimed && ended.reason != BROKEN_OFF && !standing.rests {
                    progress.verdicts = vec![failed_body(&ended.reason)];
                }
            }
            EventBody::InboxAsked(_) => progress.was_asked = true,
            EventBody::OverseerAsked(asked) => {
                progress.overseeing = Some(asked.deadline);
                // What was asked about has not rested: its attempt takes one of its own away.
                standing.passing = standing.passing.saturating_sub(u32::from(standing.rests));
                standing.rests = false;
                standing.overseen = Some(asked.why);
            }
            EventBody::OverseerAnswered(answered) => {
                progress.overseeing = None;
                standing.overseen = None;
                standing.granted += u32::from(answered.action.choice() == Choice::Retry);
                progress.heed(&answered.action);
            }
            EventBody::WaitMet(met) => progress.met = Some(met.event),
            // One that a check has, or that another one asks, is not the task's own.
            EventBody::SessionStarted(started)
                if standing.state == TaskState::Active && started.call.is_none() =>
            {
                progress.session = Some(started.session);
            }
            EventBody::CheckStarted(started)
                if started.index == 0 && matches!(started.phase, Phase::Entry | Phase::Exit) =>
            {
                progress.verdicts.clear();
            }
            EventBody::CheckStarted(started) if started.phase.has_effects() => {
                standing.follows |= started.phase == Phase::Success;
                progress.left = Some(Left::begun(started.phase, started.index));
            }
            EventBody::CheckFinished(finished) if finished.phase.has_effects() => {
                let next = Left::before(finished.phase, finished.index.saturating_add(1));
                progress.left = finished.verdict.passed.then_some(next);
            }
            EventBody::CheckFinished(finished) => {
                if finished.phase == Phase::Exit && !finished.verdict.passed {
                    standing.failed_check = finished.index;
                    progress.count_failure(finished.index);
                    standing.repaired |=
                        standing.attempt > 0 && self.outputs.contains(&(place, finished.index));
                }
                progress.verdicts.push(finished.verdict);
            }
            EventBody::FileChanged(change) => {
                if let Some(id) = id
                    && self.files.insert((id, change.path))
                {
                    progress.files_changed += 1;
                }
            }
            _ => {}
        }
    }

    pub(crate) fn finish(mut self) -> Result<Folded, Error> {
        let run = self.run;
        let variables = self.variables.ok_or(Error::Incomplete { run, missing: "run.created" })?;
        for (place, standing) in self.standings.into_iter().enumerate() {
            if let Some(task) = self.builder.at(place) {
                self.builder.stand(task, standing);
            }
        }
        for progress in &mut self.progress {
            // A fork was told of nothing that its run was told of, and waits for what comes to itself.
            progress.met = progress.met.filter(|met| self.mail.at(*met).is_some());
        }
        let state = self.builder.build().map_err(|source| Error::Tree { run, source })?;
        Ok(Folded {
            tree: Tree { state, progress: self.progress, accounts: Arc::new(self.accounts) },
            variables,
            worked: self.worked,
            was_started: self.was_started,
            calls: self.calls,
            last: Position(0),
            is_abort_asked: self.is_abort_asked,
            is_paused: self.is_paused,
            mail: self.mail,
        })
    }
}
