//! From the log back to a conversation, at the boundary of a turn.

use std::collections::HashMap;

use formwork_protocols::{
    AgentName, Blob, BlobHash, CallId, Claim, ContextEdit, EventBody, EventStore, HoldId, Message,
    Position, ProviderFault, Purpose, Role, RunId, SessionId, Span, TaskId, TaskName, ToolCall,
    ToolClass, ToolErrorKind, Usage,
    event::{
        Lost, ModelCompleted, ModelFailed, ModelRequested, SessionMessage, ToolCompleted,
        ToolFailed, ToolRequested,
    },
    message::Arguments,
    model::StopReason,
    rules::SessionRule,
    store::Selection,
    tool::{CallContext, Replay},
};

use super::{
    ASK_TO_END, END_TASK, REMIND, START_TASK, Session,
    calls::{CLOSED, SKIPPED},
};
use formwork_context::{Answered, Group, History, Meter, OpenTurn, outside};

use crate::{
    Error,
    guard::Came,
    record::Record,
    spec::{Seams, SessionSpec, Totals},
};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// What a model is told of a call whose outcome a crash has swallowed, or that a log which was away did not take.
const UNKNOWN: &str = "the run stopped while this call ran: whether it took effect is unknown, and it was \
    not repeated. Look at what is there before you go on.";

/// What the record is told of a call that is made again after that.
const REPEATED: &str = "the run stopped before the outcome was recorded; the call is made again";

/// What the log holds of one conversation.
#[derive(Default)]
pub(super) struct Found {
    pub(super) messages: Vec<SessionMessage>,
    /// The calls since the last answer of the model, in order, each with the task that made it.
    calls: Vec<(ToolRequested, TaskId)>,
    outcomes: HashMap<CallId, Ended>,
    /// What was used and counted in each conversation of the run: one may go on with another.
    pub(super) used: HashMap<SessionId, Used>,
    /// What was done so that the conversation fits, in order.
    pub(super) edits: Vec<BlobHash>,
    /// The instruction files that it was told, as far as that is not left out again.
    instructed: Vec<String>,
    /// Where the task stands, and whether it goes on with another conversation by a brief of it.
    task_at: u32,
    handed_over: bool,
    /// The model call that was sent last, until its end is recorded.
    pending: Option<ModelRequested>,
    /// What the pending call is known to have used: its lost tries, or all that its reservation was settled at.
    lost: Option<Lost>,
    /// The calls under way that count as work, by the conversation that made them.
    working: HashMap<CallId, SessionId>,
    /// The reservation that was taken last, until it is settled. Whoever resumes the run may have
    /// settled it already.
    hold: Option<(CallId, HoldId)>,
    /// The place of the last answer: all before it was accepted once.
    accepted: u32,
    /// What was said of an answer that was cancelled, where nothing came after it.
    pub(super) cut_off: Option<BlobHash>,
    /// Why the last answer ended.
    stop: Option<StopReason>,
    /// The tasks that were opened since the last answer, by the task that they are a part of.
    opened: HashMap<TaskId, TaskName>,
}

/// What was used and counted in a conversation.
#[derive(Default, Clone)]
pub(super) struct Used {
    totals: Totals,
    pub(super) meter: Meter,
    /// The event by which somebody spoke to it last.
    steered: u64,
    overflowed: bool,
    /// Calls that ended well, and how often it was told that it does not keep to its rules.
    made: u32,
    reprompted: u32,
    bailed: bool,
    /// The model call that was sent last, its measure, and what for.
    sent: Option<(CallId, u64, Purpose)>,
}

/// How a tool call ended.
enum Ended {
    Well(ToolCompleted),
    Badly(ToolFailed),
}

impl Session {
    /// Takes a conversation up again where the log ends, whatever the process was at when it ended.
    ///
    /// `opened` are the tasks that were opened within the conversation and are not yet ended, outermost
    /// first. A call that was begun and has no outcome is made again when [run](Session::run), if its
    /// tool's replay class allows; otherwise the model is told that its outcome is unknown. A model call
    /// that was on its way counts as failed, at what its input is thought to have cost.
    ///
    /// # Errors
    /// [`Error`] when the log cannot be read, or is not that of a conversation.
    pub async fn resume(
        spec: SessionSpec,
        id: SessionId,
        opened: Vec<TaskId>,
        seams: Seams,
    ) -> Result<Self, Error> {
        let found = Found::read(&*seams.store, spec.run, id).await?;
        if found.messages.is_empty() {
            return Err(Error::NoSuchSession { run: spec.run, session: id });
        }
        let next = found.messages.last().map_or(0, |said| said.index.saturating_add(1));
        let messages = read_messages(&*seams.store, &found.messages, id).await?;
        let (mut history, mut open) =
            History::fold(messages).map_err(|source| Error::Damaged { session: id, source })?;
        let untaken = found.broken().and_then(|stop| {
            let message = match open.take() {
                Some(open) => open.assistant().clone(),
                None => history.take_last_answer()?,
            };
            Some((message, stop))
        });

        let record = Record::new(&spec, &seams, id, next);
        let mut session = Self::assemble(id, spec, seams, record, history);
        session.tasks.extend(opened);
        let used = found.used.get(&id).cloned().unwrap_or_default();
        (session.totals, session.meter) = (used.totals, used.meter);
        (session.overflowed, session.steered) = (used.overflowed, used.steered);
        (session.made, session.reprompted, session.bailed) =
            (used.made, used.reprompted, used.bailed);
        found.instructed.iter().for_each(|path| session.seams.heard.guide.known(path));
        (session.task_at, session.handed_over) = (found.task_at.max(1), found.handed_over);
        session.accepted = found.accepted.max(session.task_at);
        session.untaken = untaken;
        session.remember();
        // What was left out was seen once, by the guard too.
        for &hash in &found.edits {
            session.leave_out(&edits_of(&*session.seams.store, id, hash).await?);
        }
        if let Some(pending) = &found.pending {
            session.give_up(pending, found.hold, found.lost);
        }
        if let Some(open) = open {
            session.take_up(open, &found);
        }
        Ok(session)
    }

    /// Shows the guard what was called, as if it had watched.
    fn remember(&mut self) {
        let classes: HashMap<_, _> = self
            .seams
            .tools
            .offered()
            .into_iter()
            .map(|tool| (tool.definition.name.to_string(), tool.class))
            .collect();
        let could = !self.spec.rules.expects_zero_calls && self.can_call();
        for group in self.history.groups() {
            match group {
                Group::User(message) => {
                    let text = message.to_text();
                    self.asked_to_end = text == ASK_TO_END;
                    self.reminded =
                        if text == REMIND { self.reminded.saturating_add(1) } else { 0 };
                }
                Group::Turn(turn) if turn.results().is_empty() => {
                    // What it is stuck in ends it at its next answer.
                    let _ = self.guard.close_words(could);
                }
                Group::Turn(turn) => {
                    for (call, result) in turn.pairs() {
                        self.guard.judge(call);
                        let class = classes.get(&call.name).copied();
                        if !result.is_error
                            && class.is_some_and(|class| super::calls::changes(class, &call.name))
                        {
                            self.guard.changed(call);
                        }
                    }
                    let calls: Vec<_> = turn.assistant().tool_calls().cloned().collect();
                    self.reminded = 0;
                    // What it is stuck in ends it at its next turn, not before it had one.
                    let class = |call: &ToolCall| classes.get(&call.name).copied();
                    let changed = turn.pairs().any(|(call, result)| {
                        !result.is_error
                            && class(call)
                                .is_some_and(|class| super::calls::changes(class, &call.name))
                    });
                    let ends = turn.pairs();
                    let ends =
                        ends.map(|(call, result)| (call, result.content.as_str(), result.is_error));
                    let _ = self.guard.close_turn(&calls, Came { changed, ..Came::of(ends) });
                }
            }
        }
    }

    /// Records the end of a model call that was on its way when the run stopped.
    fn give_up(
        &mut self,
        pending: &ModelRequested,
        hold: Option<(CallId, HoldId)>,
        lost: Option<Lost>,
    ) {
        let task = self.task();
        let error = self.provider_error(
            ProviderFault::Cancelled,
            "the run stopped before the answer was recorded",
        );
        let open = hold.filter(|(call, _)| *call == pending.call);
        let lost = match open {
            // Whoever took the run up has settled it, or there was none.
            None => lost,
            Some(_) => {
                let usage = Usage { input: pending.input_tokens_estimated, ..Usage::default() };
                // Which model of a chain had begun is not known for certain.
                let cost = self.model_for(pending.purpose).ceiling.cost(&usage);
                let last = Lost { usage, cost, estimated: true };
                Some(lost.map_or(last, |before| before + last))
            }
        };
        let failed = ModelFailed {
            call: pending.call,
            session: self.id,
            model: pending.model.clone(),
            error,
            lost,
            unaffordable: false,
            said: None,
        };
        self.record.put(task, EventBody::ModelFailed(Box::new(failed)));
        if let Some(((call, hold), total)) = open.zip(lost) {
            let crossings = self.seams.ledger.settle(hold, &total.usage, total.cost);
            self.totals.usage += total.usage;
            self.totals.cost = self.totals.cost.saturating_add(total.cost);
            self.put_settled(hold, call, &total);
            self.put_crossings(crossings);
        }
    }

    /// Answers those calls of the last answer whose outcome is known, or will never be.
    fn take_up(&mut self, mut open: OpenTurn, found: &Found) {
        let unanswered: Vec<_> =
            open.unanswered().map(|(place, call)| (place, call.clone())).collect();
        let mut claim = None;
        for (place, call) in unanswered {
            // A call that was made again stands in the log twice: the later one counts.
            let made = found.calls.iter().rev().find(|(made, _)| made.pair == call.id);
            let Some((made, task)) = made else { continue };
            match found.outcomes.get(&made.call) {
                Some(Ended::Well(_)) if made.tool == END_TASK && *task == self.spec.task => {
                    claim = Some((place, claimed(&call.arguments)));
                }
                // The call ended and its task did not: it is made again, which ends the task.
                Some(Ended::Well(_)) if made.tool == END_TASK && self.tasks.contains(task) => {}
                Some(Ended::Well(_)) if made.tool == END_TASK => {
                    open.answer(place, Answered::ok(CLOSED));
                }
                Some(Ended::Well(completed)) => {
                    let attached = completed.attached.clone();
                    let told = Answered::ok(outside(&completed.preview));
                    open.answer(place, Answered { attached, ..told });
                }
                Some(Ended::Badly(failed))
                    if failed.error != ToolErrorKind::OutcomeUnknown
                        || (made.replay == Replay::Once && made.tool != START_TASK) =>
                {
                    open.answer(place, Answered::error(outside(&failed.message)));
                }
                // It is made again, and its first try was already given up.
                Some(Ended::Badly(_)) => {}
                // What it does stands in the log: whether it did is known, and it is made again if not.
                None if made.tool == START_TASK => match found.opened.get(task) {
                    Some(name) => {
                        let told = format!("task {name} is open; close it with end_task");
                        self.put_completed(made.call, *task, &told);
                        open.answer(place, Answered::ok(told));
                    }
                    None => {
                        let context = self.context_of(made.call, *task);
                        self.put_failed(&context, ToolErrorKind::OutcomeUnknown, REPEATED);
                    }
                },
                None => {
                    let told = match made.replay {
                        Replay::Once => UNKNOWN,
                        Replay::Pure | Replay::Idempotent => REPEATED,
                    };
                    let context = self.context_of(made.call, *task);
                    self.put_failed(&context, ToolErrorKind::OutcomeUnknown, told);
                    if made.replay == Replay::Once {
                        open.answer(place, Answered::error(UNKNOWN));
                    }
                }
            }
        }
        if let Some((at, claim)) = claim {
            let rest: Vec<_> = open.unanswered().map(|(place, _)| place).collect();
            for place in rest.into_iter().filter(|place| *place != at) {
                open.answer(place, Answered::error(SKIPPED));
            }
            self.claim = Some(claim);
        }
        self.open = Some(open);
    }

    /// Gathers that a call ended well of which the process that made it could not tell any more.
    fn put_completed(&mut self, call: CallId, task: TaskId, told: &str) {
        let blob = Blob::new(told.as_bytes());
        let completed = ToolCompleted {
            call,
            preview: told.to_owned(),
            output: blob.hash(),
            bytes: told.len() as u64,
            elapsed: Span::ZERO,
            outside: None,
            attached: Vec::new(),
            worker: None,
        };
        self.record.put_with(task, EventBody::ToolCompleted(completed), blob);
    }

    fn context_of(&self, call: CallId, task: TaskId) -> CallContext {
        let agent: AgentName = self.spec.agent.clone();
        CallContext { run: self.spec.run, task, session: self.id, call, agent }
    }
}

/// Reads what a call of the tool that ends a task claims.
fn claimed(arguments: &Arguments) -> Claim {
    match arguments {
        Arguments::Json(value) => serde_json::from_value(value.clone()).unwrap_or_default(),
        Arguments::Malformed { .. } => Claim::default(),
    }
}

/// Fetches what was done once so that a conversation fits.
pub(super) async fn edits_of(
    store: &dyn EventStore,
    session: SessionId,
    hash: BlobHash,
) -> Result<Vec<ContextEdit>, Error> {
    let bytes = store.blob(&hash).await.map_err(|source| Error::Store { session, source })?;
    let edits = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    edits.ok_or(Error::LostCompaction { session, hash })
}

/// Fetches the messages of a conversation.
pub(super) async fn read_messages(
    store: &dyn EventStore,
    said: &[SessionMessage],
    session: SessionId,
) -> Result<Vec<Message>, Error> {
    let mut messages = Vec::with_capacity(said.len());
    for &SessionMessage { index, message: hash, .. } in said {
        let bytes = store.blob(&hash).await.map_err(|source| Error::Store { session, source })?;
        let bytes = bytes.ok_or(Error::MissingMessage { session, index, hash })?;
        let message = serde_json::from_slice(&bytes)
            .map_err(|source| Error::UnreadableMessage { session, index, source })?;
        messages.push(message);
    }
    Ok(messages)
}

impl Found {
    /// Tells whether the last answer was cut, withheld or no real call, and nothing was done of it yet: it is
    /// then taken as it was meant to be, and no call of it is made.
    fn broken(&self) -> Option<StopReason> {
        let is_last = self.messages.last().is_some_and(|said| said.role == Role::Assistant);
        self.stop.filter(|stop| {
            let is_broken = match stop {
                StopReason::EndTurn | StopReason::ToolUse => false,
                StopReason::Length
                | StopReason::Refusal
                | StopReason::ContentFilter
                | StopReason::Missing
                | StopReason::Gap
                | StopReason::ProseCall
                | StopReason::Other => true,
                _ => false,
            };
            is_last && is_broken && self.calls.is_empty()
        })
    }

    /// Reads what the log holds of a conversation.
    pub(super) async fn read(
        store: &dyn EventStore,
        run: RunId,
        session: SessionId,
    ) -> Result<Self, Error> {
        let kinds =
            ["session.", "context.", "instructions.", "tool.", "model.", "budget.", "task.created"];
        let kinds = kinds.into_iter().map(str::to_owned).collect();
        let selection = Selection { run: Some(run), task: None, kinds };
        let mut found = Self::default();
        let mut after = Position::default();
        loop {
            let page = store
                .read(after, &selection, PAGE)
                .await
                .map_err(|source| Error::Store { session, source })?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last.position;
            for event in page {
                let Some(task) = event.task else { continue };
                found.take(event.body, task, session);
            }
        }
    }

    /// Counts what rules are held against.
    fn tally(&mut self, body: &EventBody) {
        match body {
            EventBody::ToolRequested(made)
                if made.class.is_some_and(|class| class != ToolClass::Lifecycle) =>
            {
                self.working.insert(made.call, made.session);
            }
            EventBody::ToolCompleted(done) => {
                if let Some(session) = self.working.remove(&done.call) {
                    let made = &mut self.used.entry(session).or_default().made;
                    *made = made.saturating_add(1);
                }
            }
            EventBody::ToolFailed(failed) => drop(self.working.remove(&failed.call)),
            EventBody::SessionReprompted(told) => {
                let used = self.used.entry(told.session).or_default();
                used.bailed |= told.rule == SessionRule::EarlyBail;
                if told.rule.is_binding() {
                    used.reprompted = told.number;
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, body: EventBody, task: TaskId, session: SessionId) {
        self.tally(&body);
        match body {
            EventBody::SessionMessage(said) if said.session == session => {
                self.cut_off = None;
                if said.role == Role::Assistant {
                    if self.stop != Some(StopReason::ContentFilter) {
                        self.accepted = said.index;
                    }
                    self.calls.clear();
                    self.outcomes.clear();
                    self.opened.clear();
                }
                self.messages.push(said);
            }
            EventBody::ToolRequested(made) if made.session == session => {
                self.calls.push((*made, task));
            }
            EventBody::ToolCompleted(ended) if self.made(ended.call) => {
                self.outcomes.insert(ended.call, Ended::Well(ended));
            }
            EventBody::ToolFailed(ended) if self.made(ended.call) => {
                self.outcomes.insert(ended.call, Ended::Badly(ended));
            }
            EventBody::TaskCreated(created) => {
                if let Some(parent) = created.parent {
                    self.opened.insert(parent, created.spec.name.clone());
                }
            }
            EventBody::BudgetReserved(reserved) => self.hold = Some((reserved.call, reserved.hold)),
            EventBody::SessionStarted(started) => {
                if started.session == session {
                    self.task_at = started.carried;
                    self.handed_over = started.continues.is_some() && started.carried == 0;
                }
                let before = started.continues.and_then(|before| self.used.get(&before).cloned());
                let mut used = before.unwrap_or_default();
                if let Some((measure, counted)) = started.counted {
                    used.meter.learn(measure, counted);
                }
                self.used.insert(started.session, used);
            }
            EventBody::ContextCompacted(done) if done.session == session => {
                self.edits.extend(done.edits);
                if done.summarised > 0 {
                    self.instructed.clear();
                }
            }
            EventBody::InstructionsLoaded(loaded) if loaded.session == session => {
                self.instructed.push(loaded.path);
            }
            EventBody::SessionSteered(steered) => {
                let used = self.used.entry(steered.session).or_default();
                used.steered = used.steered.max(steered.request);
            }
            EventBody::ModelRequested(sent) => {
                let used = self.used.entry(sent.session).or_default();
                if sent.purpose.is_turn() {
                    used.totals.rounds = used.totals.rounds.saturating_add(1);
                }
                used.sent = Some((sent.call, sent.measure, sent.purpose));
                if sent.session == session {
                    self.pending = Some(sent);
                    self.lost = None;
                }
            }
            EventBody::ModelCompleted(done) => {
                if done.session == session && done.purpose.is_turn() {
                    self.stop = Some(done.stop);
                }
                self.pending.take_if(|sent| sent.call == done.call);
                self.answered(&done);
            }
            EventBody::ModelFailed(failed) => {
                let ModelFailed { call, session: of, error, said, .. } = *failed;
                if of == session {
                    self.cut_off = said;
                }
                self.pending.take_if(|sent| sent.call == call);
                let used = self.used.entry(of).or_default();
                if let Some((_, measure, Purpose::Turn)) = used.sent.filter(|sent| sent.0 == call)
                    && error.fault == ProviderFault::ContextOverflow
                {
                    used.meter.refuse(measure);
                    used.overflowed = true;
                }
            }
            EventBody::ModelRetried(retried) => self.lose(retried.call, retried.lost),
            EventBody::ModelFellBack(fell) => self.lose(fell.call, fell.lost),
            EventBody::BudgetSettled(settled) => {
                if self.pending.as_ref().is_some_and(|sent| sent.call == settled.call) {
                    let (usage, cost) = (settled.usage, settled.usd);
                    self.lost = Some(Lost { usage, cost, estimated: true });
                }
                self.hold.take_if(|(call, _)| *call == settled.call);
                let sent =
                    |used: &&mut Used| used.sent.is_some_and(|(call, ..)| call == settled.call);
                if let Some(used) = self.used.values_mut().find(sent) {
                    used.totals.usage += settled.usage;
                    used.totals.cost = used.totals.cost.saturating_add(settled.usd);
                }
            }
            _ => {}
        }
    }

    /// Counts what a try used that brought no answer, if it was one of the call that is open.
    fn lose(&mut self, call: CallId, lost: Option<Lost>) {
        if let Some(lost) = lost
            && self.pending.as_ref().is_some_and(|sent| sent.call == call)
        {
            self.lost = Some(self.lost.map_or(lost, |before| before + lost));
        }
    }

    /// Counts an answer as the session did that had it.
    fn answered(&mut self, done: &ModelCompleted) {
        let used = self.used.entry(done.session).or_default();
        if let Some((_, measure, Purpose::Turn)) = used.sent.filter(|sent| sent.0 == done.call) {
            used.overflowed = false;
            if !done.usage_estimated {
                used.meter.learn(measure, done.usage.total_input());
            }
        }
    }

    fn made(&self, call: CallId) -> bool {
        self.calls.iter().any(|(made, _)| made.call == call)
    }
}
