//! One conversation, from turn to turn.

use std::{ops::ControlFlow, pin::pin};

use formwork_protocols::{
    Blob, Cancel, Claim, EventBody, Message, NewEvent, Part, ProviderFault, Role, SessionId,
    StuckPattern, TaskId, ToolClass,
    event::{InstructionsLoaded, SessionEnded, SessionStarted},
    message::Arguments,
    model::{StopReason, ToolCalls},
};

use formwork_context::{Answered, Group, History, Meter, OpenTurn, Turn, message_tokens};

use crate::{
    Error,
    guard::{Guard, Stuck},
    record::Record,
    spec::{Farewell, Instructed, Opening, Seams, SessionEnd, SessionSpec, Totals, Via},
};

mod ask; // One model call.
mod calls; // The calls of one answer.
mod carried; // From one conversation to the next.
mod fit; // Before each of them, within the window.
mod hear; // Between the turns.
mod mask; // What a provider refuses for what is in it.
mod pictures; // Images and documents, from their hashes to their bytes.
mod resume; // From the log back to a conversation.
mod rules; // What it is held to.

pub use carried::Carried;

/// The tool by which a model says that its task is done.
const END_TASK: &str = "end_task";

/// The tool by which a model opens a part of its task.
const START_TASK: &str = "start_task";

/// How many cut answers in a row end the session: a model that cannot be brief will not become so.
const MAX_CUT: u32 = 3;

/// What a model is asked that has stopped without saying that it is done.
const ASK_TO_END: &str = "You stopped without a tool call, and the task is still open. If it is done, call \
    end_task with a summary of what you did. If it is not, go on with it.";

/// How often in a row a model is reminded that a call written as text calls nothing. One that goes on does not take
/// tools by its wire's means, and further reminders would only be paid for.
const MAX_REMINDED: u32 = 2;

/// What a model is told that wrote a call as text.
const REMIND: &str = "You wrote a tool call as text, so nothing was called. Make it again as a real tool call, by the \
    means you were given for it, and not within your answer.";

/// What stands in place of an answer without any words: providers refuse an empty message.
const SAID_NOTHING: &str = "(nothing said)";

/// One conversation of one agent. [`run`](Session::run) drives it to its next end.
///
/// A dropped run leaves a log from which [`Session::resume`] goes on; the value itself is then spent.
pub struct Session {
    id: SessionId,
    spec: SessionSpec,
    seams: Seams,
    record: Record,
    history: History,
    /// The measure of the history: the tokens that it has at the most.
    tokens: u64,
    /// Where in the log of the conversation the task stands, which is never left out.
    task_at: u32,
    /// Whether it goes on with another conversation by a brief of it.
    handed_over: bool,
    /// The event by which somebody spoke to it last, by its place in the run.
    steered: u64,
    /// Whether somebody wants it shorter before the next model call.
    compact_asked: bool,
    /// Whether the server has refused the last request as too long.
    overflowed: bool,
    /// The place of the first message that no answer was given to yet: all before it was accepted once.
    accepted: u32,
    /// Whether the model takes images, once anybody has asked, and how many it was told of in words alone.
    sight: Option<bool>,
    unseen: u32,
    /// The search for what the provider refuses, while it goes on.
    search: Option<mask::Search>,
    /// The last answer, while it has calls that are not answered.
    open: Option<OpenTurn>,
    /// A last answer that was cut or withheld, and why, of which a resumed conversation has done nothing yet.
    untaken: Option<(Message, StopReason)>,
    /// What the open call of `end_task` claims, until somebody answers it.
    claim: Option<Claim>,
    /// What is to be said once the open turn is closed.
    waiting: Vec<String>,
    /// The tasks that calls belong to: the session's own, and those opened within it, innermost last.
    tasks: Vec<TaskId>,
    guard: Guard,
    /// Tool calls that ended well, those of the life of tasks left out.
    made: u32,
    /// How often the model was told that it does not keep to its rules.
    reprompted: u32,
    /// Whether it was asked whether all is done, for it stopped early.
    bailed: bool,
    meter: Meter,
    totals: Totals,
    /// Cut answers in a row.
    cut: u32,
    /// Reminders in a row that calls are not to be written as text.
    reminded: u32,
    /// Whether the model was asked to end its task since somebody last spoke to it.
    asked_to_end: bool,
    /// How often it was told of what it has made and does not know the end of, when it stopped.
    told_open: u32,
}

impl Session {
    /// Begins a conversation. Nothing is recorded or sent before it is [run](Session::run).
    ///
    /// # Errors
    /// [`Error::UnwritableMessage`] when the opening cannot be recorded.
    pub fn start(spec: SessionSpec, opening: &Opening, seams: Seams) -> Result<Self, Error> {
        Self::begin(spec, opening, None, seams)
    }

    /// Begins a conversation that goes on with another one, word for word, and then asks what the opening asks.
    ///
    /// # Errors
    /// As [`Session::start`].
    pub fn carry_on(
        spec: SessionSpec,
        carried: &Carried,
        opening: &Opening,
        seams: Seams,
    ) -> Result<Self, Error> {
        Self::begin(spec, opening, Some(carried), seams)
    }

    fn begin(
        spec: SessionSpec,
        opening: &Opening,
        carried: Option<&Carried>,
        seams: Seams,
    ) -> Result<Self, Error> {
        let id = SessionId::generate(&*seams.clock, &*seams.rng);
        let mut record = Record::new(&spec, &seams, id, 0);
        let tools = seams.tools.offered();
        let started = SessionStarted {
            session: id,
            agent: spec.agent.clone(),
            model: spec.model.info.model.clone(),
            agent_version: spec.agent_version.clone(),
            tools: tools.into_iter().map(|tool| tool.definition.name.to_string()).collect(),
            continues: carried.map(|carried| carried.session),
            carried: carried.map_or(0, |carried| {
                u32::try_from(carried.messages().count()).unwrap_or(u32::MAX).saturating_add(1)
            }),
            counted: carried.and_then(|carried| carried.counted),
            call: spec.call,
        };
        let task_at = started.carried.max(1);
        record.put(spec.task, EventBody::SessionStarted(Box::new(started)));
        for file in &opening.instructions {
            let Instructed { path, hash, bytes, cut } = file.clone();
            let loaded = InstructionsLoaded { session: id, path, hash, bytes, cut };
            record.put(spec.task, EventBody::InstructionsLoaded(loaded));
        }
        let system = Message::text(Role::System, opening.system.as_str());
        let system = record.put_message(spec.task, &system)?;
        let mut messages = vec![system];
        for message in carried.into_iter().flat_map(Carried::messages) {
            messages.push(record.put_message(spec.task, &message)?);
        }
        let damaged = |source| Error::Damaged { session: id, source };
        let (history, _) = History::fold(messages).map_err(damaged)?;

        let mut session = Self::assemble(id, spec, seams, record, history);
        (session.task_at, session.accepted) = (task_at, task_at);
        if let Some((measure, counted)) = carried.and_then(|carried| carried.counted) {
            session.meter.learn(measure, counted);
        }
        opening.instructions.iter().for_each(|file| session.seams.heard.guide.known(&file.path));
        session.put(opening_message(opening))?;
        Ok(session)
    }

    /// Puts a session together whose conversation is `history` and whose parts are at rest.
    fn assemble(
        id: SessionId,
        spec: SessionSpec,
        seams: Seams,
        record: Record,
        history: History,
    ) -> Self {
        let tokens = history.messages().map(|message| message_tokens(&message)).sum();
        let tasks = vec![spec.task];
        let rules = spec.rules;
        Self {
            id,
            spec,
            seams,
            record,
            history,
            tokens,
            open: None,
            untaken: None,
            claim: None,
            waiting: Vec::new(),
            tasks,
            guard: Guard::new(rules.stuck),
            made: 0,
            reprompted: 0,
            bailed: false,
            meter: Meter::default(),
            task_at: 1,
            handed_over: false,
            steered: 0,
            compact_asked: false,
            overflowed: false,
            accepted: 1,
            sight: None,
            unseen: 0,
            search: None,
            totals: Totals::default(),
            cut: 0,
            reminded: 0,
            asked_to_end: false,
            told_open: 0,
        }
    }

    /// Returns the conversation's id.
    pub const fn id(&self) -> SessionId {
        self.id
    }

    /// Returns what was said so far, without an answer whose calls are open.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Returns what the conversation has used so far.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the claim that waits for an answer, if the model has made one by a call.
    pub const fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Drives the conversation until it ends, and makes everything durable that led there.
    ///
    /// A claim that nobody has [answered](Session::answer) ends it again at once. When `cancel` is
    /// raised, a model call is left at once; a tool is given a moment to end what it has started, and the
    /// conversation stays well-formed.
    ///
    /// # Errors
    /// [`Error`] when the log cannot be written. What is in it stands.
    pub async fn run(&mut self, cancel: &Cancel) -> Result<SessionEnd, Error> {
        let stop = cancel.child();
        let Some(after) = self.spec.limits.wall else { return self.drive(&stop).await };
        let timer = tokio::time::sleep(after.as_duration());
        let mut driven = pin!(self.drive(&stop));
        tokio::select! {
            biased;
            end = &mut driven => return end,
            () = timer => stop.cancel(),
        }
        match driven.await? {
            SessionEnd::Cancelled if !cancel.is_cancelled() => Ok(SessionEnd::TimedOut { after }),
            end => Ok(end),
        }
    }

    /// Answers the model's claim, or speaks to it where it made none: the evidence of a failed check, or
    /// what a person wants to say. Goes out with the next request.
    ///
    /// # Errors
    /// [`Error::UnwritableMessage`] when the text cannot be recorded.
    pub fn answer(&mut self, text: &str) -> Result<(), Error> {
        self.asked_to_end = false;
        self.leave_untaken()?;
        match self.open.take() {
            None => self.put_user(text),
            Some(mut open) if self.claim.take().is_some() => {
                open.answer_rest(&Answered::error(text));
                self.settle_turn(open)
            }
            // Calls of a resumed conversation come first: a result has no place after a sentence.
            Some(open) => {
                self.open = Some(open);
                self.waiting.push(text.to_owned());
                Ok(())
            }
        }
    }

    /// Ends the conversation for good, with the last word to whatever call is open. Returns its totals.
    ///
    /// # Errors
    /// [`Error`] when the log cannot be written.
    pub async fn close(mut self, farewell: Farewell<'_>) -> Result<Totals, Error> {
        self.end(farewell)?;
        self.record.flush().await?;
        Ok(self.totals)
    }

    /// Ends the conversation as [`Session::close`] does, and returns the last facts of it for whoever
    /// records the end of its task.
    ///
    /// # Errors
    /// [`Error::UnwritableMessage`] when the last word cannot be recorded.
    pub fn retire(mut self, farewell: Farewell<'_>) -> Result<(Vec<NewEvent>, Vec<Blob>), Error> {
        self.end(farewell)?;
        Ok(self.record.journal().take())
    }

    fn end(&mut self, farewell: Farewell<'_>) -> Result<(), Error> {
        let (reason, is_error) = match farewell {
            Farewell::Accepted(reason) => (reason, self.claim.is_none()),
            Farewell::GivenUp(reason) => (reason, true),
        };
        self.leave_untaken()?;
        if let Some(mut open) = self.open.take() {
            let content = reason.to_owned();
            open.answer_rest(&Answered { content, is_error, attached: Vec::new() });
            self.settle_turn(open)?;
        }
        let ended = SessionEnded { session: self.id, reason: reason.to_owned() };
        self.record.put(self.spec.task, EventBody::SessionEnded(ended));
        Ok(())
    }

    async fn drive(&mut self, stop: &Cancel) -> Result<SessionEnd, Error> {
        let end = loop {
            if let ControlFlow::Break(end) = self.step(stop).await? {
                break end;
            }
        };
        self.record.flush().await?;
        Ok(end)
    }

    /// Makes one turn: finishes the calls that are open, asks the model, carries out what it wants.
    async fn step(&mut self, stop: &Cancel) -> Result<ControlFlow<SessionEnd>, Error> {
        // Between two turns, or before an end: an answer that was not taken yet is no place for it.
        if self.untaken.is_none() && (self.open.is_none() || self.claim.is_some()) {
            self.hear().await?;
        }
        if let Some(claim) = self.claim.clone() {
            if let Some(held) = self.hold_to_rules()? {
                return Ok(held);
            }
            return Ok(ControlFlow::Break(SessionEnd::Claimed { claim, via: Via::EndTask }));
        }
        if let Some((message, reason)) = self.untaken.take() {
            return self.take_answer(message, reason, stop).await;
        }
        // Whether the conversation goes on after them is for the next step to see: one may have ended it.
        if let Some(open) = self.open.take() {
            return self.carry_out(open, stop).await;
        }
        // The state says it and not the course of events, so that a resumed conversation does the same.
        if let Some(Group::Turn(turn)) = self.history.groups().last()
            && turn.results().is_empty()
            && self.waiting.is_empty()
        {
            let text = turn.assistant().to_text();
            return self.take_text_end(text).await;
        }
        for text in std::mem::take(&mut self.waiting) {
            self.put_user(&text)?;
        }
        let completion = match self.ask(stop).await? {
            ControlFlow::Continue(completion) => completion,
            ControlFlow::Break(end) => return Ok(ControlFlow::Break(end)),
        };
        self.take_answer(completion.message, completion.stop, stop).await
    }

    /// Does what an answer asks for.
    async fn take_answer(
        &mut self,
        message: Message,
        reason: StopReason,
        stop: &Cancel,
    ) -> Result<ControlFlow<SessionEnd>, Error> {
        let text = message.to_text();
        let open = OpenTurn::new(message);
        let calls = open.unanswered().count();
        match reason {
            StopReason::Refusal | StopReason::ContentFilter => {
                self.leave(open, "not called: the answer was withheld")?;
                if reason == StopReason::ContentFilter && self.mask_filtered()? {
                    return Ok(ControlFlow::Continue(()));
                }
                let by = if reason == StopReason::Refusal { "the model" } else { "a filter" };
                let detail = format!("{by} withheld the answer: {}", one_line(&text));
                return Ok(ControlFlow::Break(SessionEnd::Refused { detail }));
            }
            // A call may be cut so that it still parses: it is never carried out.
            StopReason::Length | StopReason::Missing | StopReason::Gap => {
                return self.take_cut(open, reason);
            }
            StopReason::ProseCall if calls == 0 => return self.take_prose(open),
            StopReason::Other if calls > 0 => return self.take_unknown(open),
            _ => self.cut = 0,
        }
        self.reminded = 0;
        if calls > 0 {
            return self.carry_out(open, stop).await;
        }
        self.settle_turn(open)?;
        let could = !self.spec.rules.expects_zero_calls && self.can_call();
        Ok(match self.guard.close_words(could) {
            Some(Stuck { pattern, detail }) => {
                ControlFlow::Break(SessionEnd::Stuck { pattern, detail })
            }
            None => ControlFlow::Continue(()),
        })
    }

    /// Tells whether there is anything that the model could call, besides what ends its task.
    fn can_call(&self) -> bool {
        self.spec.model.info.tool_calls != ToolCalls::None
            && self.seams.tools.offered().iter().any(|tool| tool.class != ToolClass::Lifecycle)
    }

    /// Tells the model that its answer was cut, and ends the session when that does not help.
    fn take_cut(
        &mut self,
        open: OpenTurn,
        reason: StopReason,
    ) -> Result<ControlFlow<SessionEnd>, Error> {
        self.cut = self.cut.saturating_add(1);
        let limit = self.max_output();
        let called = open.unanswered().count() > 0;
        let (of_calls, of_words) = match reason {
            StopReason::Gap => (
                "not called: a part of your answer was lost on its way, and it may have been a part of the call. \
                 Make the call again."
                    .to_owned(),
                "A part of your answer was lost on its way. Give it again, whole.".to_owned(),
            ),
            StopReason::Missing => (
                "not called: your answer came without its end, so the call may be cut. Make the call again, whole."
                    .to_owned(),
                "Your answer came without its end. Give it again, whole.".to_owned(),
            ),
            _ => (
                format!(
                    "not called: your answer was cut before its end, at {limit} tokens at the most. \
                     Make the call again, whole, in smaller pieces."
                ),
                format!("Your answer was cut at {limit} tokens. Go on from there, in smaller steps."),
            ),
        };
        self.leave(open, &of_calls)?;
        if self.cut >= MAX_CUT {
            let cut = self.cut;
            return Ok(ControlFlow::Break(match reason {
                // It is not the model that cannot be brief.
                StopReason::Gap | StopReason::Missing => {
                    let what = if reason == StopReason::Gap { "a part" } else { "the end" };
                    let told = format!(
                        "of the last {cut} answers, none came whole: {what} of it is missing"
                    );
                    SessionEnd::ProviderFailed(self.provider_error(ProviderFault::Protocol, &told))
                }
                _ => {
                    let detail = format!("{cut} answers in a row were cut before their end");
                    SessionEnd::Stuck { pattern: StuckPattern::CutAnswers, detail }
                }
            }));
        }
        if !called {
            self.put_user(&of_words)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Ends the session over calls of an answer that ended for a reason that is not known: they may be cut, and the next answer of
    /// that server would end the same way and be paid as well.
    fn take_unknown(&mut self, open: OpenTurn) -> Result<ControlFlow<SessionEnd>, Error> {
        let why = open.unanswered().find_map(|(_, call)| match &call.arguments {
            Arguments::Malformed { error, .. } => Some(error.clone()),
            Arguments::Json(_) => None,
        });
        let why = why.unwrap_or_else(|| {
            "the answer ended for a reason that is not known, so the call may be cut".to_owned()
        });
        self.leave(open, &format!("not called: {why}"))?;
        let told = format!("no call of an answer is made: {why}");
        Ok(ControlFlow::Break(SessionEnd::ProviderFailed(
            self.provider_error(ProviderFault::Protocol, &told),
        )))
    }

    /// Reminds the model that a call written as text calls nothing, and ends the session when that does not help.
    fn take_prose(&mut self, open: OpenTurn) -> Result<ControlFlow<SessionEnd>, Error> {
        self.cut = 0;
        self.settle_turn(open)?;
        if self.reminded >= MAX_REMINDED {
            let answers = self.reminded.saturating_add(1);
            return Ok(ControlFlow::Break(SessionEnd::ProseCalls { answers }));
        }
        self.reminded = self.reminded.saturating_add(1);
        self.put_user(REMIND)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Takes an answer without a call: where a task can be ended by a call the model is asked once to do
    /// so, and its words are its claim otherwise.
    async fn take_text_end(&mut self, text: String) -> Result<ControlFlow<SessionEnd>, Error> {
        if let Some(held) = self.hold_to_rules()? {
            return Ok(held);
        }
        let takes_tools = self.spec.model.info.tool_calls != ToolCalls::None;
        let offered = if takes_tools { self.seams.tools.offered() } else { Vec::new() };
        let can_end = offered.iter().any(|tool| tool.definition.name.as_str() == END_TASK);
        if can_end && !self.asked_to_end && !self.spec.rules.expects_zero_calls {
            self.asked_to_end = true;
            self.put_user(ASK_TO_END)?;
            return Ok(ControlFlow::Continue(()));
        }
        if let Err(open) = self.may_end().await
            && self.told_open < MAX_REMINDED
        {
            self.told_open = self.told_open.saturating_add(1);
            self.put_user(&open)?;
            return Ok(ControlFlow::Continue(()));
        }
        let claim = Claim { summary: text, output: None };
        Ok(ControlFlow::Break(SessionEnd::Claimed { claim, via: Via::Text }))
    }

    /// Tells whether the task may end by the model's words, or what stands in the way.
    async fn may_end(&mut self) -> Result<(), String> {
        self.seams.control.may_end(self.spec.task).await
    }

    /// Closes an answer that a resumed conversation will do nothing of.
    fn leave_untaken(&mut self) -> Result<(), Error> {
        match self.untaken.take() {
            Some((message, _)) => {
                self.leave(OpenTurn::new(message), "not called: the answer was cut or withheld")
            }
            None => Ok(()),
        }
    }

    /// Closes an answer none of whose calls is carried out.
    fn leave(&mut self, mut open: OpenTurn, why: &str) -> Result<(), Error> {
        open.answer_rest(&Answered::error(why));
        self.settle_turn(open)
    }

    /// Adds what a person says to the conversation and to what is to be recorded.
    fn put_user(&mut self, text: &str) -> Result<(), Error> {
        self.put(Message::text(Role::User, text))
    }

    fn put(&mut self, message: Message) -> Result<(), Error> {
        let message = self.record.put_message(self.task(), &message)?;
        self.tokens = self.tokens.saturating_add(message_tokens(&message));
        self.history.say(message);
        Ok(())
    }

    /// Adds a turn to the conversation; its answer is recorded, the results are to be. A turn that is
    /// still open stays so.
    fn settle_turn(&mut self, open: OpenTurn) -> Result<(), Error> {
        let turn = match open.close() {
            Ok(turn) => turn,
            Err(open) => {
                self.open = Some(open);
                return Ok(());
            }
        };
        if let Some(results) = turn.tool_message() {
            self.record.put_message(self.task(), &results)?;
        }
        self.push(turn);
        Ok(())
    }

    fn push(&mut self, turn: Turn) {
        let results = turn.tool_message();
        let said = message_tokens(turn.assistant());
        let answered = results.as_ref().map_or(0, message_tokens);
        self.tokens = self.tokens.saturating_add(said).saturating_add(answered);
        self.history.push(turn);
    }

    /// Returns the task that calls belong to now.
    fn task(&self) -> TaskId {
        self.tasks.last().copied().unwrap_or(self.spec.task)
    }

    /// Returns the most tokens of an answer.
    fn max_output(&self) -> u32 {
        let able = self.spec.model.info.max_output_tokens.unwrap_or(u32::MAX);
        self.spec.limits.max_output_tokens.min(able)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("groups", &self.history.groups().len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}

/// Returns what is asked, with a line ahead of each image and document that says what it is.
fn opening_message(opening: &Opening) -> Message {
    let mut message = Message::text(Role::User, opening.user.as_str());
    for attachment in &opening.attached {
        message.parts.push(Part::Text { text: format!("\n\n[{attachment}]") });
        message.parts.push(Part::Attached(attachment.clone()));
    }
    message
}

/// Puts something in place of an answer without text and calls.
fn with_words(mut message: Message) -> Message {
    let speaks = |part: &Part| {
        matches!(part, Part::ToolCall(_)) || matches!(part, Part::Text { text } if !text.is_empty())
    };
    if !message.parts.iter().any(speaks) {
        message.parts.retain(|part| !matches!(part, Part::Text { .. }));
        message.parts.push(Part::Text { text: SAID_NOTHING.to_owned() });
    }
    message
}

/// Returns the first line of a text, cut to a length that fits a message.
fn one_line(text: &str) -> &str {
    formwork_protocols::text::head(text.trim().lines().next().unwrap_or("no reason given"), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_can_move_between_threads_while_it_runs() {
        fn is_send<T: Send>(_: T) {}
        fn check(session: &mut Session, cancel: &Cancel) {
            is_send(session.run(cancel));
        }
        let _ = check;
    }

    #[test]
    fn an_answer_without_words_or_calls_is_given_some() {
        let empty = Message { role: Role::Assistant, parts: Vec::new() };
        let blank = Message::text(Role::Assistant, "");

        let said = Message::text(Role::Assistant, SAID_NOTHING);
        assert_eq!(with_words(empty), said);
        assert_eq!(with_words(blank), said);
        assert_eq!(with_words(Message::text(Role::User, "hm")), Message::text(Role::User, "hm"));
    }
}
