//! The calls of one answer: reads beside each other, everything else in order.

use std::{collections::HashMap, ops::ControlFlow, time::Duration};

use formwork_protocols::{
    CallId, Cancel, Claim, EventBody, Journal, Span, TaskId, ToolCall, ToolClass, ToolErrorKind,
    Toolbox,
    event::{Decided, ToolFailed, ToolRequested},
    message::Arguments,
    tool::{CREATE_TASK, CREATE_WORKFLOW, CallContext, Control, Replay, ToolReply},
};
use futures::{StreamExt as _, stream};

use formwork_context::{Answered, Group, OpenTurn, outside};

use super::Session;
use crate::{
    Error,
    guard::{Came, Judgement, Stuck},
    spec::SessionEnd,
};

/// How many reads run beside each other. Enough for a disk's queue; more would only hold memory.
const MAX_PARALLEL: usize = 8;

/// How long a cancelled tool may take to end what it has started before it is dropped.
///
/// Long enough to end a process tree, short enough that a person who interrupts is not kept.
const GRACE: Duration = Duration::from_millis(800);

/// What a model is told of a call that it has made twice before.
const WARNING: &str = "note: this is the third time that you make this very call with nothing changed in \
    between. A fourth will be refused: do something else.";

/// What a model is told of a call that it has made three times before.
const REFUSAL: &str = "refused: you have made this very call three times with nothing changed in between, \
    and its result would be the same. Do something else, or end the task and say what stands in the way.";

/// What a model is told that has ended a part of its task.
pub(super) const CLOSED: &str = "the subtask is closed; its parent goes on";

/// What a model is told of a call that comes after the end of its task.
pub(super) const SKIPPED: &str =
    "not called: the call before it ended the task. Make it again if the task goes on.";

/// What is known of the offered tools, by name.
type Known = HashMap<String, (ToolClass, Replay)>;

/// A call on its way: its place in the answer, what it is known by, and what the guard said.
struct Planned {
    place: usize,
    call: ToolCall,
    context: CallContext,
    warn: bool,
}

/// What became of a call.
enum Outcome {
    Replied(ToolReply),
    /// The session was stopped before it.
    NotBegun,
    /// The session was stopped during it, and it did not return in time.
    Dropped,
}

impl Session {
    /// Carries out what is not yet answered of an answer, and adds the turn to the conversation, unless
    /// the model claims by it that it is done.
    pub(super) async fn carry_out(
        &mut self,
        mut open: OpenTurn,
        stop: &Cancel,
    ) -> Result<ControlFlow<SessionEnd>, Error> {
        let mut known = self.known();
        let is_lifecycle =
            |name: &str| known.get(name).is_some_and(|(class, _)| *class == ToolClass::Lifecycle);
        open = match self.hold_to_words(open, is_lifecycle)? {
            Ok(held) => return Ok(held),
            Err(open) => open,
        };
        let calls: Vec<_> = open.unanswered().map(|(place, call)| (place, call.clone())).collect();
        let mut refused = None;
        let batches: Vec<_> =
            calls.chunk_by(|(_, a), (_, b)| is_read(&known, a) && is_read(&known, b)).collect();
        for batch in batches {
            // A call may have loaded the tool of a later one.
            if batch.iter().any(|(_, call)| !known.contains_key(&call.name)) {
                known = self.known();
            }
            if self.claim.is_some() || refused.is_some() {
                batch.iter().for_each(|(place, _)| open.answer(*place, Answered::error(SKIPPED)));
                continue;
            }
            let planned = self.plan(batch, &known, &mut open);
            let journal = self.record.journal();
            for (plan, outcome) in run(&*self.seams.tools, planned, journal, stop).await {
                if let Some(detail) = self.take(plan, outcome, &known, &mut open).await {
                    refused = Some(detail);
                }
            }
        }
        self.finish_turn(open, &known, refused, stop)
    }

    /// Returns what is known of the tools that are offered now.
    fn known(&self) -> Known {
        let mut known = Known::new();
        for tool in self.seams.tools.offered() {
            let name = tool.definition.name.as_str();
            // Of a tool that was loaded in the same answer the provider's form of the name is all there is.
            known.insert(name.replace('.', "_"), (tool.class, tool.replay));
            known.insert(name.to_owned(), (tool.class, tool.replay));
        }
        known
    }

    /// Decides which calls of a batch are made, and answers those that are not.
    fn plan(
        &mut self,
        batch: &[(usize, ToolCall)],
        known: &Known,
        open: &mut OpenTurn,
    ) -> Vec<Planned> {
        let mut planned = Vec::with_capacity(batch.len());
        for (place, call) in batch {
            let context = CallContext {
                run: self.spec.run,
                task: self.task(),
                session: self.id,
                call: CallId::generate(&*self.seams.clock, &*self.seams.rng),
                agent: self.spec.agent.clone(),
            };
            let judgement = self.guard.judge(call);
            if judgement == Judgement::Refuse {
                self.put_refused(&context, call, known);
                open.answer(*place, Answered::error(REFUSAL));
                continue;
            }
            let warn = judgement == Judgement::Warn;
            planned.push(Planned { place: *place, call: call.clone(), context, warn });
        }
        planned
    }

    /// Takes what became of a call. Returns why the task ends as refused, if it does.
    async fn take(
        &mut self,
        plan: Planned,
        outcome: Outcome,
        known: &Known,
        open: &mut OpenTurn,
    ) -> Option<String> {
        let Planned { place, call, context, warn } = plan;
        let reply = match outcome {
            Outcome::Replied(reply) => reply,
            Outcome::NotBegun => {
                open.answer(place, Answered::error("cancelled before it was begun"));
                return None;
            }
            Outcome::Dropped => {
                let answered = self.put_dropped(&context, &call, known);
                open.answer(place, answered);
                return None;
            }
        };
        if !reply.result.is_error
            && known.get(&call.name).is_some_and(|(class, _)| changes(*class, &call.name))
        {
            self.guard.changed(&call);
        }
        let is_work =
            known.get(&call.name).is_some_and(|(class, _)| *class != ToolClass::Lifecycle);
        if is_work && !reply.result.is_error {
            self.made = self.made.saturating_add(1);
        }
        let content = outside(&reply.result.content).into_owned();
        let (is_error, attached) = (reply.result.is_error, reply.result.attached);
        let mut answered = Answered { content, is_error, attached };
        let mut refused = None;
        match reply.control {
            Control::Enter(task) => self.enter(task),
            Control::End(claim) if self.tasks.len() > 1 => {
                answered = self.end_inner(claim).await;
            }
            // The call stays open: its answer is what the checks say.
            Control::End(claim) => {
                self.claim = Some(claim);
                return None;
            }
            Control::Refuse(detail) => refused = Some(detail),
            // `Continue`, and what later versions bring.
            _ => {}
        }
        if warn {
            if !answered.content.is_empty() {
                answered.content.push_str("\n\n");
            }
            answered.content.push_str(WARNING);
        }
        open.answer(place, answered);
        refused
    }

    /// Ends a task that was opened within the conversation, which leads back to the one around it.
    async fn end_inner(&mut self, claim: Claim) -> Answered {
        // The log tells that the call was made before it tells what came of it.
        if let Err(error) = self.record.flush().await {
            return Answered::error(error.to_string());
        }
        match self.seams.control.end(self.task(), claim).await {
            Ok(around) => {
                self.enter(around);
                Answered::ok(CLOSED)
            }
            Err(reason) => Answered::error(reason),
        }
    }

    /// Makes further calls belong to a task: one that was opened, or one around the present.
    fn enter(&mut self, task: TaskId) {
        match self.tasks.iter().position(|&outer| outer == task) {
            Some(place) => self.tasks.truncate(place.saturating_add(1)),
            None => self.tasks.push(task),
        }
    }

    /// Adds a turn to the conversation, unless a claim is open, and says whether the session ends by it.
    fn finish_turn(
        &mut self,
        open: OpenTurn,
        known: &Known,
        refused: Option<String>,
        stop: &Cancel,
    ) -> Result<ControlFlow<SessionEnd>, Error> {
        let calls: Vec<_> = open.assistant().tool_calls().cloned().collect();
        let usable = calls.iter().any(|call| {
            matches!(call.arguments, Arguments::Json(_)) && known.contains_key(&call.name)
        });
        self.settle_turn(open)?;
        let came = Came { usable, ..self.came(&calls, known) };
        let stuck = self.guard.close_turn(&calls, came);
        if self.claim.is_some() {
            return Ok(ControlFlow::Continue(()));
        }
        self.guide(&calls)?;
        if stuck.is_none() && refused.is_none() {
            self.press()?;
        }
        Ok(if stop.is_cancelled() {
            ControlFlow::Break(SessionEnd::Cancelled)
        } else if let Some(detail) = refused {
            ControlFlow::Break(SessionEnd::Refused { detail })
        } else if let Some(Stuck { pattern, detail }) = stuck {
            ControlFlow::Break(SessionEnd::Stuck { pattern, detail })
        } else {
            ControlFlow::Continue(())
        })
    }

    /// Returns what came of the calls of the last turn; nothing where one of them is still open.
    fn came(&self, calls: &[ToolCall], known: &Known) -> Came {
        let turn = match (&self.open, self.history.groups().last()) {
            (None, Some(Group::Turn(turn))) => turn,
            _ => return Came::default(),
        };
        let class = |call: &ToolCall| known.get(&call.name).map(|(class, _)| *class);
        let results = calls.iter().zip(turn.results());
        let changed = results.clone().any(|(call, result)| {
            !result.is_error && class(call).is_some_and(|class| changes(class, &call.name))
        });
        let ends = results.map(|(call, result)| (call, result.content.as_str(), result.is_error));
        Came { changed, ..Came::of(ends) }
    }

    /// Gathers that a call was not made because it repeats another.
    fn put_refused(&mut self, context: &CallContext, call: &ToolCall, known: &Known) {
        let reason =
            "the same call was made three times with nothing changed in between".to_owned();
        let requested = ToolRequested {
            call: context.call,
            session: self.id,
            pair: call.id.clone(),
            tool: call.name.clone(),
            // What was asked stands in the log three times over.
            arguments: serde_json::Value::Null,
            class: known.get(&call.name).map(|(class, _)| *class),
            replay: replay(known, call),
            paths: Vec::new(),
            decision: Decided::Refused { reason },
        };
        self.record.put(context.task, EventBody::ToolRequested(Box::new(requested)));
        self.put_failed(context, ToolErrorKind::Denied, REFUSAL);
    }

    /// Gathers that a cancelled call did not end in time. Returns what the model is told.
    fn put_dropped(&mut self, context: &CallContext, call: &ToolCall, known: &Known) -> Answered {
        let (kind, told) = match replay(known, call) {
            Replay::Once => (
                ToolErrorKind::OutcomeUnknown,
                "cancelled while it ran: whether it took effect is unknown. Look before you repeat it.",
            ),
            Replay::Pure | Replay::Idempotent => {
                (ToolErrorKind::Cancelled, "cancelled while it ran")
            }
        };
        self.put_failed(context, kind, told);
        Answered::error(told)
    }

    pub(super) fn put_failed(
        &mut self,
        context: &CallContext,
        error: ToolErrorKind,
        message: &str,
    ) {
        let message = message.to_owned();
        let failed = ToolFailed {
            call: context.call,
            error,
            message,
            elapsed: Span::ZERO,
            outside: None,
            worker: None,
        };
        self.record.put(context.task, EventBody::ToolFailed(failed));
    }
}

/// Tells whether a call of that class, by that tool, may change what another call finds.
pub(super) fn changes(class: ToolClass, name: &str) -> bool {
    match class {
        ToolClass::Read => false,
        // What was made can be waited for, as often as there is more of it.
        ToolClass::Lifecycle => name == CREATE_TASK || name == CREATE_WORKFLOW,
        ToolClass::Write
        | ToolClass::Delete
        | ToolClass::Exec
        | ToolClass::Shell
        | ToolClass::Network
        | ToolClass::Memory => true,
    }
}

fn is_read(known: &Known, call: &ToolCall) -> bool {
    known.get(&call.name).is_some_and(|(class, _)| *class == ToolClass::Read)
}

/// Returns what a crash in the middle of a call means; a tool that nobody knows does nothing.
fn replay(known: &Known, call: &ToolCall) -> Replay {
    known.get(&call.name).map_or(Replay::Pure, |(_, replay)| *replay)
}

/// Makes some calls beside each other and returns what became of each, in their order.
async fn run(
    tools: &dyn Toolbox,
    planned: Vec<Planned>,
    journal: &Journal,
    stop: &Cancel,
) -> Vec<(Planned, Outcome)> {
    let calls = planned.into_iter().map(|plan| async move {
        let outcome = call(tools, &plan, journal, stop).await;
        (plan, outcome)
    });
    stream::iter(calls).buffered(MAX_PARALLEL).collect().await
}

/// Makes one call. A cancelled one has [`GRACE`] to return; then it is dropped.
async fn call(tools: &dyn Toolbox, plan: &Planned, journal: &Journal, stop: &Cancel) -> Outcome {
    if stop.is_cancelled() {
        return Outcome::NotBegun;
    }
    let over = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        reply = tools.call(&plan.context, &plan.call, journal, stop) => Outcome::Replied(reply),
        () = over => Outcome::Dropped,
    }
}
