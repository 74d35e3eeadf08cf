//! One model call: reserved, recorded, sent, streamed, settled, recorded.

use std::{ops::ControlFlow, pin::pin};

use formwork_protocols::{
    Ask, Blob, CallId, Cancel, Completion, EventBody, HoldId, ModelEvent, ModelRequest, OverBudget,
    ProviderError, ProviderFault, Purpose, Span, Usage, Usd,
    budget::{Crossing, Remaining},
    event::{
        BudgetExhausted, BudgetReserved, BudgetSettled, Delta, DeltaKind, Lost, ModelCompleted,
        ModelFailed, ModelFellBack, ModelRequested, ModelRetried, crossed,
    },
    message::ToolDefinition,
    model::{FellBack, StopReason, ToolCalls, ToolChoice, Used, left_line},
};
use futures::StreamExt as _;

use super::{END_TASK, Session, mask::may_be_content, with_words};
use formwork_context::{tokens_of, tool_tokens};

use crate::{
    Error,
    hold::{Bill, Hold},
    spec::SessionEnd,
};

/// How a stream ended before its answer was whole.
pub(super) struct Broken {
    pub(super) error: ProviderError,
    /// What its last try used that no reservation knows of yet; nothing where the provider never began.
    pub(super) used: Used,
    /// What it had said, where it was cancelled.
    pub(super) said: String,
    /// The budget that cannot bear another try, where one was to follow.
    pub(super) over: Option<OverBudget>,
}

/// What came of one try.
#[derive(Clone, Copy, Default)]
struct Heard {
    began: bool,
    bytes: usize,
}

impl Heard {
    /// Estimates what the try used of which no more than this is known.
    fn used(self, input: u64) -> Used {
        let output = tokens_of(u64::try_from(self.bytes).unwrap_or(u64::MAX));
        Used { usage: Usage { input, output, ..Usage::default() }, estimated: true }
    }

    /// Has the error of a failed try say what it used, by what came of it where the provider does not, and returns it.
    fn lost(self, error: &mut ProviderError, input: u64) -> Option<Used> {
        if error.used.is_none() && self.began {
            error.used = Some(Box::new(self.used(input)));
        }
        error.used.as_deref().copied().filter(|used| used.usage.total() > 0)
    }
}

/// What one model call is known by.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) call: CallId,
    /// The bare measure of its input, by which a later one is calibrated.
    pub(super) measure: u64,
    /// The tokens that its input has at the most.
    pub(super) input: u64,
    pub(super) purpose: Purpose,
}

impl Session {
    /// Asks the model for its next answer, and gathers it with what it cost.
    pub(super) async fn ask(
        &mut self,
        stop: &Cancel,
    ) -> Result<ControlFlow<SessionEnd, Completion>, Error> {
        loop {
            if let Some(asked) = self.ask_once(stop).await? {
                if asked.is_break() {
                    self.leave_search();
                }
                return Ok(asked);
            }
        }
    }

    /// The same; nothing is returned where the server refused the conversation, and it is now another one: shorter, or
    /// with something masked.
    async fn ask_once(
        &mut self,
        stop: &Cancel,
    ) -> Result<Option<ControlFlow<SessionEnd, Completion>>, Error> {
        if stop.is_cancelled() {
            return Ok(Some(ControlFlow::Break(SessionEnd::Cancelled)));
        }
        let rounds = self.totals.rounds;
        if self.spec.limits.max_rounds.is_some_and(|max| rounds >= max) {
            return Ok(Some(ControlFlow::Break(SessionEnd::RoundsExhausted { rounds })));
        }
        self.see(stop).await;
        if stop.is_cancelled() {
            return Ok(Some(ControlFlow::Break(SessionEnd::Cancelled)));
        }
        // What is masked for a try only makes it shorter.
        if self.search.is_none()
            && let ControlFlow::Break(end) = self.fit(stop).await?
        {
            return Ok(Some(ControlFlow::Break(end)));
        }
        let measure = self.measure();
        let mut request = self.request(measure);
        let (sent, mut hold) = match self.reserve(measure, &request, Purpose::Turn) {
            ControlFlow::Continue(reserved) => reserved,
            ControlFlow::Break(end) => return Ok(Some(ControlFlow::Break(end))),
        };
        self.record.flush().await?;
        self.load(&mut request).await?;

        hold.sent(sent.input);
        self.totals.rounds = rounds.saturating_add(1);
        match self.receive(request, sent, &mut hold, stop).await? {
            Ok(completion) => {
                self.overflowed = false;
                self.accept()?;
                if completion.stop != StopReason::ContentFilter {
                    self.accepted = self.record.next();
                }
                self.keep(completion, sent, hold).map(|kept| Some(ControlFlow::Continue(kept)))
            }
            Err(broken) => {
                let over = broken.over.clone();
                let error = self.fail(broken, sent, hold);
                self.record.flush().await?;
                if let Some(over) = over {
                    return Ok(Some(ControlFlow::Break(SessionEnd::OverBudget(over))));
                }
                Ok(Some(ControlFlow::Break(match error.fault {
                    ProviderFault::Cancelled => SessionEnd::Cancelled,
                    // It is made shorter once; a server that refuses that too has another reason.
                    ProviderFault::ContextOverflow if !self.overflowed => {
                        self.overflowed = true;
                        self.leave_search();
                        self.meter.refuse(measure);
                        return Ok(None);
                    }
                    ProviderFault::ContextOverflow => SessionEnd::ContextOverflow(error),
                    ProviderFault::Overrun => SessionEnd::Overrun(error),
                    ProviderFault::Invalid if may_be_content(&error) && self.mask_next() => {
                        return Ok(None);
                    }
                    _ => SessionEnd::ProviderFailed(error),
                })))
            }
        }
    }

    /// Returns the measure of the next request: the conversation, and the tools of this moment.
    pub(super) fn measure(&self) -> u64 {
        let tail = self.tail().map_or(0, |tail| tokens_of(tail.len() as u64));
        self.tokens.saturating_add(tool_tokens(&self.tools())).saturating_add(tail)
    }

    /// Returns what the model is told behind the conversation: what is left to its task, where anything bounds it.
    fn tail(&self) -> Option<String> {
        let mut left = self.seams.ledger.remaining(self.task());
        let own = self.spec.limits.max_rounds;
        let own = own.map(|most| most.saturating_sub(self.totals.rounds));
        left.rounds = left.rounds.into_iter().chain(own).min();
        let told = told(&left);
        (!told.is_empty()).then(|| left_line(&told))
    }

    /// Returns the tools of this moment, where the model takes any.
    pub(super) fn tools(&self) -> Vec<ToolDefinition> {
        if self.spec.model.info.tool_calls == ToolCalls::None {
            return Vec::new();
        }
        self.seams.tools.offered().into_iter().map(|tool| tool.definition).collect()
    }

    /// Returns what the model is sent: the whole conversation, and the tools of this moment.
    fn request(&self, measure: u64) -> ModelRequest {
        let tools = self.tools();
        ModelRequest {
            model: self.spec.model.info.model.model.clone(),
            messages: self.history.messages().collect(),
            tail: self.tail(),
            tools,
            tool_choice: ToolChoice::Auto,
            max_output_tokens: Some(self.answer_limit(measure)),
            temperature: self.spec.limits.temperature,
            seed: self.spec.limits.seed,
            output_schema: None,
        }
    }

    /// Reserves the worst case on the whole path to the root, and gathers the facts of it.
    pub(super) fn reserve(
        &mut self,
        measure: u64,
        request: &ModelRequest,
        purpose: Purpose,
    ) -> ControlFlow<SessionEnd, (Sent, Hold)> {
        let task = self.task();
        let input = match purpose {
            Purpose::Turn => self.meter.worst(measure),
            _ => measure,
        };
        let model = self.model_for(purpose);
        let max_output = request.max_output_tokens.unwrap_or_default();
        let Some(usd) = model.ceiling.checked_worst_case(input, u64::from(max_output)) else {
            let message = format!(
                "at its price, a call of {input} tokens and an answer of {max_output} may cost more than {}, the largest amount that is counted",
                Usd::MAX
            );
            let error = self.provider_error(ProviderFault::Invalid, &message);
            return ControlFlow::Break(SessionEnd::ProviderFailed(error));
        };
        let ask = Ask { usd, tokens: input.saturating_add(u64::from(max_output)) };
        let id = HoldId::generate(&*self.seams.clock, &*self.seams.rng);
        let (price, asked) = (model.price, model.info.model.clone());
        let hold = match Hold::take(&self.seams.ledger, task, id, ask, price) {
            Ok(hold) => hold,
            Err(over) => {
                self.put_exhausted(&over);
                return ControlFlow::Break(SessionEnd::OverBudget(over));
            }
        };
        let call = CallId::generate(&*self.seams.clock, &*self.seams.rng);
        let reserved = BudgetReserved { hold: id, call, usd: ask.usd, tokens: ask.tokens };
        let requested = ModelRequested {
            tail: request.tail.clone(),
            call,
            session: self.id,
            model: asked,
            messages: u32::try_from(request.messages.len()).unwrap_or(u32::MAX),
            input_tokens_estimated: input,
            measure,
            max_output_tokens: max_output,
            purpose,
            unseen: if purpose.is_turn() { self.unseen } else { 0 },
        };
        self.record.put(task, EventBody::BudgetReserved(reserved));
        self.record.put(task, EventBody::ModelRequested(requested));
        ControlFlow::Continue((Sent { call, measure, input, purpose }, hold))
    }

    /// Sends a request and passes its answer on as it comes.
    pub(super) async fn receive(
        &mut self,
        request: ModelRequest,
        sent: Sent,
        hold: &mut Hold,
        stop: &Cancel,
    ) -> Result<Result<Completion, Broken>, Error> {
        let mut cancelled = pin!(stop.cancelled());
        let mut events = self.model_for(sent.purpose).provider.stream(request, stop.clone());
        // Only an answer is shown as it comes.
        let shown = sent.purpose.is_turn();
        let mut heard = Heard::default();
        let mut said = String::new();
        loop {
            let event = tokio::select! {
                biased;
                () = &mut cancelled => {
                    let error = self.provider_error(ProviderFault::Cancelled, "the call was cancelled");
                    // The request is with the provider, which bills what it has begun.
                    let used = heard.used(sent.input);
                    return Ok(Err(Broken { error, used, said, over: None }));
                }
                event = events.next() => event,
            };
            let event = match event {
                Some(Ok(event)) => event,
                Some(Err(mut error)) => {
                    let used = heard.lost(&mut error, sent.input).unwrap_or_default();
                    return Ok(Err(Broken { error, used, said, over: None }));
                }
                None => {
                    let mut error = self.provider_error(
                        ProviderFault::Protocol,
                        "the stream ended without an answer",
                    );
                    let used = heard.lost(&mut error, sent.input).unwrap_or_default();
                    return Ok(Err(Broken { error, used, said, over: None }));
                }
            };
            match event {
                ModelEvent::Done(completion) if hold.cost(&completion.usage).is_some() => {
                    return Ok(Ok(*completion));
                }
                ModelEvent::Done(completion) => {
                    let message = format!(
                        "the answer is counted at {} tokens, which at its price cost more than {}, the largest amount that is counted",
                        completion.usage.total(),
                        Usd::MAX
                    );
                    let error = self.provider_error(ProviderFault::Protocol, &message);
                    let used = heard.used(sent.input);
                    return Ok(Err(Broken { error, used, said, over: None }));
                }
                ModelEvent::Text { text } => {
                    heard.bytes = heard.bytes.saturating_add(text.len());
                    if shown {
                        self.publish(DeltaKind::Text, &text);
                        said.push_str(&text);
                    }
                }
                ModelEvent::Reasoning { text } => {
                    heard.bytes = heard.bytes.saturating_add(text.len());
                    if shown {
                        self.publish(DeltaKind::Reasoning, &text);
                    }
                }
                ModelEvent::ToolCallDelta { text, .. } => {
                    heard.bytes = heard.bytes.saturating_add(text.len());
                }
                ModelEvent::Retrying { attempt, wait, mut error } => {
                    said.clear();
                    let lost = match lose(hold, std::mem::take(&mut heard), &mut error, sent) {
                        Ok(lost) => lost,
                        Err(over) => return Ok(Err(Broken::unaffordable(*error, over))),
                    };
                    let (call, error, wait) = (sent.call, *error, Span::from(wait));
                    let retried = ModelRetried { call, attempt, wait, error, lost };
                    self.record.put(self.task(), EventBody::ModelRetried(Box::new(retried)));
                    // Whoever watches has to know why nothing comes.
                    self.record.flush().await?;
                    continue;
                }
                ModelEvent::FellBack(fell) => {
                    said.clear();
                    let FellBack { from, to, price, mut error } = *fell;
                    // It is paid at the price of the model that it was lost with.
                    let lost = match lose(hold, std::mem::take(&mut heard), &mut error, sent) {
                        Ok(lost) => lost,
                        Err(over) => return Ok(Err(Broken::unaffordable(error, over))),
                    };
                    hold.answered_at(price);
                    let fell = ModelFellBack { call: sent.call, from, to, error, lost };
                    self.record.put(self.task(), EventBody::ModelFellBack(Box::new(fell)));
                    self.record.flush().await?;
                    continue;
                }
                // `Started`, the beginning of a tool call, and what later versions bring: signs of life.
                _ => {}
            }
            heard.began = true;
        }
    }

    /// Gathers a whole answer, with what it cost and what that did to the budgets. It is durable before
    /// anything is changed by it.
    fn keep(
        &mut self,
        mut completion: Completion,
        sent: Sent,
        hold: Hold,
    ) -> Result<Completion, Error> {
        if !completion.usage_estimated {
            self.meter.learn(sent.measure, completion.usage.total_input());
        }
        self.settle(&completion, sent, hold, None);
        let task = self.task();
        completion.message = self.record.put_message(task, &with_words(completion.message))?;
        Ok(completion)
    }

    /// Settles a call that brought an answer, and gathers what it cost.
    pub(super) fn settle(
        &mut self,
        completion: &Completion,
        sent: Sent,
        hold: Hold,
        answer: Option<Blob>,
    ) {
        let usage = completion.usage;
        let id = hold.id();
        let used = Used { usage, estimated: completion.usage_estimated };
        let Bill { cost, lost, total, crossings } = hold.settle(used);
        self.totals.usage += total.usage;
        self.totals.cost = self.totals.cost.saturating_add(total.cost);

        let task = self.task();
        let completed = ModelCompleted {
            call: sent.call,
            session: self.id,
            model: self.model_for(sent.purpose).info.model.clone(),
            served_by: completion.served_by.clone(),
            stop: completion.stop,
            usage,
            usage_estimated: completion.usage_estimated,
            usage_doubted: completion.usage_doubted,
            cost,
            lost,
            tries: completion.tries,
            first_token: completion.first_token.map(Span::from),
            elapsed: Span::from(completion.elapsed),
            undecodable: completion.undecodable,
            purpose: sent.purpose,
            answer: answer.as_ref().map(Blob::hash),
        };
        self.record.journal().put([], answer);
        self.record.put(task, EventBody::ModelCompleted(Box::new(completed)));
        self.put_settled(id, sent.call, &total);
        // Of a budget that is used up altogether nothing is left to be told of.
        let is_over = |line: &Crossing| {
            crossings.iter().any(|it| it.exhausted && (it.task, it.cap) == (line.task, line.cap))
        };
        let warned = crossings.iter().any(|line| !line.exhausted && !is_over(line));
        self.put_crossings(crossings);
        // Who has just said that it is done needs no such word.
        let goes_on = completion.message.tool_calls().any(|call| call.name != END_TASK);
        if warned && goes_on && sent.purpose == Purpose::Turn {
            self.waiting.push(self.budget_left());
        }
    }

    /// Settles a call that brought no answer, and gathers the facts of it.
    pub(super) fn fail(&mut self, broken: Broken, sent: Sent, hold: Hold) -> ProviderError {
        let Broken { error, used, said, over } = broken;
        let id = hold.id();
        let Bill { total, crossings, .. } = hold.settle(used);
        self.totals.usage += total.usage;
        self.totals.cost = self.totals.cost.saturating_add(total.cost);

        let task = self.task();
        let model = self.model_for(sent.purpose).info.model.clone();
        // What was said until then is kept beside the conversation, for one that goes on with it.
        let said = (error.fault == ProviderFault::Cancelled && !said.trim().is_empty())
            .then(|| Blob::new(self.seams.scrub.scrub_text(&said).into_owned().into_bytes()));
        let failed = ModelFailed {
            call: sent.call,
            session: self.id,
            model,
            error: error.clone(),
            lost: (total.usage.total() > 0).then_some(total),
            unaffordable: over.is_some(),
            said: said.as_ref().map(Blob::hash),
        };
        self.record.journal().put([], said);
        self.record.put(task, EventBody::ModelFailed(Box::new(failed)));
        self.put_settled(id, sent.call, &total);
        self.put_crossings(crossings);
        if let Some(over) = over {
            self.put_exhausted(&over);
        }
        error
    }

    /// Gathers what a reservation was settled at.
    pub(super) fn put_settled(&mut self, hold: HoldId, call: CallId, total: &Lost) {
        let settled = BudgetSettled { hold, call, usd: total.cost, usage: total.usage };
        self.record.put(self.task(), EventBody::BudgetSettled(settled));
    }

    /// Gathers that a budget cannot bear a call, or another try of one.
    fn put_exhausted(&mut self, over: &OverBudget) {
        let exhausted =
            BudgetExhausted { task: over.task, cap: over.cap, detail: over.to_string() };
        self.record.put(self.task(), EventBody::BudgetExhausted(exhausted));
    }

    /// Tells the model what is left for its task, once most of a budget is used.
    fn budget_left(&self) -> String {
        let left = self.seams.ledger.remaining(self.task());
        format!(
            "Most of the budget of this task is used. Left: {}. Finish what matters most and end the task \
             while you can.",
            told(&left)
        )
    }

    /// Gathers the lines that budgets crossed when a call was settled.
    pub(super) fn put_crossings(&mut self, crossings: Vec<Crossing>) {
        for crossing in crossings {
            self.record.put(self.task(), crossed(crossing));
        }
    }

    /// Passes words on to those who watch.
    fn publish(&self, kind: DeltaKind, text: &str) {
        self.seams.store.publish(Delta {
            run: self.spec.run,
            task: self.task(),
            session: self.id,
            agent: self.spec.agent.clone(),
            kind,
            text: self.seams.scrub.scrub_text(text).into_owned(),
        });
    }

    pub(super) fn provider_error(&self, fault: ProviderFault, message: &str) -> ProviderError {
        ProviderError {
            fault,
            message: message.to_owned(),
            provider: self.spec.model.info.model.provider.clone(),
            endpoint: String::new(),
            status: None,
            code: None,
            request_id: None,
            body: None,
            retry_after: None,
            tries: 1,
            used: None,
        }
    }
}

impl Broken {
    /// Ends a call whose next try cannot be paid. What the last one used is known to its reservation already.
    fn unaffordable(error: ProviderError, over: OverBudget) -> Self {
        Self { error, used: Used::default(), said: String::new(), over: Some(over) }
    }
}

/// Takes what a failed try used in vain, if anything, and makes room for the next in every budget.
fn lose(
    hold: &mut Hold,
    heard: Heard,
    error: &mut ProviderError,
    sent: Sent,
) -> Result<Option<Lost>, OverBudget> {
    let mut used = heard.lost(error, sent.input);
    // What cannot be paid by anybody was counted wrong.
    if used.is_some_and(|used| hold.cost(&used.usage).is_none()) {
        error.used = Some(Box::new(heard.used(sent.input)));
        used = error.used.as_deref().copied();
    }
    used.map(|used| hold.lose(used)).transpose()
}

/// Says in words what is left, as far as anything is bounded.
fn told(left: &Remaining) -> String {
    let mut parts = Vec::new();
    parts.extend(left.usd.map(|usd| format!("${usd}")));
    parts.extend(left.tokens.map(|tokens| format!("{tokens} tokens")));
    parts.extend(left.rounds.map(|rounds| format!("{rounds} model calls")));
    parts.extend(left.tool_calls.map(|calls| format!("{calls} tool calls")));
    parts.join(", ")
}
