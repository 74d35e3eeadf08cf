//! The loop that owns the state of a run.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, VecDeque},
    future::poll_fn,
    sync::Arc,
    task::Poll,
};

use formwork_protocols::{
    Append, Blob, Cancel, EventBody, Ledger as _, NewEvent, OutcomeCode, Position, Principal,
    RunId, RunOutcome, Span, StoreError, TaskId, TaskState, Timestamp, Usage,
    check::Phase,
    event::{BudgetSettled, RunFinished, RunResumed, RunStarted, crossed},
    store::{Lease, Selection},
};
use serde_json::{Map, Value};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    control::{Active, Awaited, Control, Request, WAITING},
    dry::Alarm,
    fold::Folded,
    judge::{Expressions, Question},
    mail::{self, Mail},
    scheduler::{Report, Scheduler, Signals, Stop},
    services::Services,
    tree::{Progress, Tree, one_line},
    waiting::Wait,
    work::{Done, Effect},
};
use crate::{
    core::{self, Command, Input, Refusal, TaskIndex},
    error::Error,
    ids::IdMap,
};

/// How many requests are read at once; whoever asks again and again is heard with the next.
const ASKED: usize = 100;

/// What a loop works with.
pub(super) struct Parts {
    pub(super) scheduler: Scheduler,
    pub(super) run: RunId,
    pub(super) lease: Lease,
}

pub(super) enum End {
    Finished,
    Paused,
}

pub(super) struct Drive {
    pub(super) scheduler: Scheduler,
    pub(super) run: RunId,
    pub(super) lease: Lease,
    pub(super) tree: Tree,
    pub(super) variables: Arc<Map<String, Value>>,
    /// Whether any task gives a name to its result.
    pub(super) has_outputs: bool,
    /// The time that processes before this one worked on it, and since when this one does.
    pub(super) worked: Span,
    pub(super) since: Timestamp,
    pub(super) was_started: bool,
    pub(super) calls: HashMap<formwork_protocols::HoldId, formwork_protocols::CallId>,
    pub(super) principal: Principal,
    /// When what is being carried out was decided: all that one decision leads to happens at one time.
    pub(super) decided: Option<Timestamp>,
    /// Kept between decisions so that they allocate once.
    pub(super) commands: Vec<Command>,
    /// What the core has asked and waits for.
    pub(super) questions: VecDeque<Question>,
    pub(super) is_answering: bool,
    /// Those that wait for somebody outside, and what was said.
    pub(super) waits: BTreeMap<TaskIndex, Wait>,
    pub(super) mail: Mail,
    /// Grows each time somebody looks at what was said.
    pub(super) round: u64,
    pub(super) expressions: Expressions,
    pub(super) events: Vec<NewEvent>,
    pub(super) blobs: Vec<Blob>,
    pub(super) effects: Vec<Effect>,
    pub(super) jobs: JoinSet<Done>,
    pub(super) services: Services,
    /// Why the run cannot go on that was left, where a service that it needs is not to be had.
    pub(super) unready: Option<String>,
    pub(super) cancels: IdMap<TaskIndex, Cancel>,
    /// Questions to whoever governs the run, each to be taken back.
    pub(super) overseen: IdMap<TaskIndex, Cancel>,
    /// What attempts wait for, by their tasks.
    pub(super) awaited: IdMap<TaskIndex, Awaited>,
    pub(super) active: Arc<Active>,
    pub(super) control: Arc<Control>,
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, TaskIndex)>>,
    /// What is due besides the ends of tasks.
    pub(super) alarms: BinaryHeap<Reverse<(Instant, TaskIndex, Alarm)>>,
    /// Tasks that may be without a sign of life since a place in the log.
    pub(super) idle: Vec<(TaskIndex, Position)>,
    pub(super) renewal: Instant,
    /// Up to where the log was searched for what somebody asks of the run.
    pub(super) heeded: Position,
    /// The end of the log, as far as this process knows it.
    pub(super) head: Position,
    pub(super) end: Option<End>,
    /// What the log could not do for something that was under way, and that has no end by that.
    pub(super) lost: Option<StoreError>,
    pub(super) is_aborting: bool,
    pub(super) was_paused: bool,
    pub(super) is_pausing: bool,
    /// Why it is paused.
    pub(super) why_paused: String,
}

impl Drive {
    pub(super) fn new(parts: Parts, folded: Folded) -> Self {
        let Parts { scheduler, run, lease } = parts;
        let renewal = scheduler.renewal();
        let mut folded = folded;
        if scheduler.overseer.is_some() {
            folded.tree.state.oversee();
        }
        let state = &folded.tree.state;
        let has_outputs = state.tasks().any(|task| state.spec(task).output.is_some());
        let services = Services::of(&state.spec(state.root()).services);
        let (sender, requests) = mpsc::channel(WAITING);
        let active = Arc::new(Active::default());
        let control = Control { requests: sender, active: Arc::clone(&active) };
        Self {
            since: scheduler.clock.now(),
            scheduler,
            run,
            lease,
            tree: folded.tree,
            variables: Arc::new(folded.variables),
            has_outputs,
            worked: folded.worked,
            was_started: folded.was_started,
            calls: folded.calls,
            principal: Principal::system("scheduler"),
            decided: None,
            commands: Vec::new(),
            questions: VecDeque::new(),
            is_answering: false,
            waits: BTreeMap::new(),
            mail: folded.mail,
            round: 0,
            expressions: Expressions::default(),
            events: Vec::new(),
            blobs: Vec::new(),
            effects: Vec::new(),
            jobs: JoinSet::new(),
            services,
            unready: None,
            cancels: IdMap::default(),
            overseen: IdMap::default(),
            awaited: IdMap::default(),
            active,
            control: Arc::new(control),
            requests,
            timers: BinaryHeap::new(),
            alarms: BinaryHeap::new(),
            idle: Vec::new(),
            renewal: Instant::now() + renewal,
            heeded: folded.last,
            head: folded.last,
            end: None,
            lost: None,
            is_aborting: folded.is_abort_asked,
            was_paused: folded.is_paused,
            is_pausing: false,
            why_paused: "stopped from outside".to_owned(),
        }
    }

    pub(super) async fn run(mut self, signals: &Signals) -> Result<Report, Error> {
        let ended = self.go(signals).await;
        for cancel in self.cancels.values().chain(self.overseen.values()) {
            cancel.cancel();
        }
        self.jobs.shutdown().await;
        self.services.shutdown().await;
        let outcome = ended?;
        Ok(Report { outcome, tree: self.tree })
    }

    async fn go(&mut self, signals: &Signals) -> Result<RunOutcome, Error> {
        // Whoever only wants it paused may find that it was, by the owner who has just left it.
        let is_ending = self.is_aborting || signals.abort.is_cancelled();
        if self.was_paused && signals.pause.is_cancelled() && !is_ending {
            return self.outcome().await;
        }
        self.take_up(signals);
        loop {
            if self.end.is_some() {
                self.stop_services().await?;
            }
            self.let_go_on();
            self.flush().await?;
            self.launch();
            match self.end {
                Some(End::Finished) => return self.finish().await,
                Some(End::Paused) => return self.outcome().await,
                None => {}
            }
            self.wait(signals).await?;
        }
    }

    fn take_up(&mut self, signals: &Signals) {
        let owner = self.scheduler.owner.clone();
        self.record(
            None,
            if self.was_started {
                EventBody::RunResumed(RunResumed { owner })
            } else {
                EventBody::RunStarted(RunStarted { owner })
            },
        );
        for lapsed in self.tree.accounts.unsettled() {
            // The provider may have billed all of it, and nobody knows how much: the most it can be.
            let usage = Usage { input: lapsed.ask.tokens, ..Usage::default() };
            let crossings = self.tree.accounts.settle(lapsed.hold, &usage, lapsed.ask.usd);
            if let Some(&call) = self.calls.get(&lapsed.hold) {
                let settled = BudgetSettled { hold: lapsed.hold, call, usd: lapsed.ask.usd, usage };
                self.record(Some(lapsed.task), EventBody::BudgetSettled(settled));
            }
            for crossing in crossings {
                self.record(Some(lapsed.task), crossed(crossing));
            }
        }
        if !self.was_started {
            self.tell_written();
        }
        let (is_abort, is_pause) = (signals.abort.is_cancelled(), signals.pause.is_cancelled());
        let is_over = self.tree.state.state_of(self.tree.state.root()).is_terminal();
        if self.services.is_empty() || self.is_aborting || is_abort || is_pause || is_over {
            self.begin_tasks(is_abort, is_pause);
        } else {
            self.start_services();
        }
    }

    /// Begins with the tasks, or goes on with them.
    pub(super) fn begin_tasks(&mut self, is_abort: bool, is_pause: bool) {
        for task in self.tree.state.tasks() {
            let state = self.tree.state.state_of(task);
            if !state.is_terminal() && state != TaskState::Created {
                self.set_timer(task);
                self.go_on_with_grace(task);
            }
        }
        for task in self.tree.state.tasks() {
            if self.tree.state.state_of(task) == TaskState::PostcheckFailed
                && let Some(index) = self.tree.of(task).and_then(Progress::failed_check)
            {
                self.tell_last_round(task, index);
            }
        }
        // What had no time left does not begin again, and ends for that reason and no other.
        self.time_out();
        self.ring();
        if self.end.is_some() {
            return;
        }
        let root = self.tree.state.root();
        // One that is only to be stopped does not begin anything before.
        if self.tree.state.state_of(root).is_terminal() {
            self.decide_late(Input::Start);
        } else if self.is_aborting || is_abort {
            self.abort();
        } else if is_pause {
            self.pause();
        } else {
            self.decide_late(Input::Start);
        }
    }

    fn abort(&mut self) {
        self.is_aborting = true;
        let task = self.tree.state.root();
        self.decide_late(Input::Cancel { task });
    }

    pub(super) fn pause(&mut self) {
        self.is_pausing = true;
        self.decide_late(Input::Pause);
    }

    /// Does what was asked of the run in the log, by whatever process.
    pub(super) async fn heed(&mut self) -> Result<(), Error> {
        while self.heed_some().await? == ASKED {}
        self.look_for_all();
        Ok(())
    }

    /// Reads a page of it and tells how many there were.
    async fn heed_some(&mut self) -> Result<usize, Error> {
        let kinds = ["run.pause_requested", "run.abort_requested"].into_iter().chain(mail::KINDS);
        let kinds = kinds.map(str::to_owned).collect();
        let selection = Selection { run: Some(self.run), task: None, kinds };
        let asked = self
            .scheduler
            .store
            .read_on(&mut self.heeded, &selection, ASKED)
            .await
            .map_err(|source| Error::Store { run: self.run, source })?;
        let count = asked.len();
        for event in asked {
            self.mail.take(&event);
            match event.body {
                EventBody::RunAbortRequested(_) if !self.is_aborting => self.abort(),
                EventBody::RunPauseRequested(asked) if !self.is_pausing && !self.is_aborting => {
                    self.why_paused = one_line(&asked.reason);
                    self.pause();
                }
                _ => {}
            }
        }
        Ok(count)
    }

    /// Ends what is to end by somebody or the clock, as it ended then.
    async fn heed_stops(&mut self, signals: &Signals) -> Result<(), Error> {
        for (id, stop) in signals.stops() {
            let Some(task) = self.tree.state.find(id) else { continue };
            match stop {
                Stop::Cancelled => self.decide_late(Input::Cancel { task }),
                Stop::TimedOut(_) | Stop::Expired if self.waits.contains_key(&task) => {
                    self.end_waiting(task).await?;
                }
                Stop::TimedOut(why) => self.decide_late(Input::TimedOut { task, why }),
                Stop::Expired => {}
            }
        }
        Ok(())
    }

    /// Waits for the next thing to happen and decides on it, and on all else that has happened.
    async fn wait(&mut self, signals: &Signals) -> Result<(), Error> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let alarm = self.alarms.peek().map(|Reverse((at, ..))| *at);
        let due = timer.into_iter().chain(alarm).min();
        let mut wake = due.map_or(self.renewal, |due| due.min(self.renewal));
        if let Some(deadline) = self.next_deadline() {
            let left = deadline.since(self.scheduler.clock.now());
            wake = wake.min(Instant::now() + left.as_duration());
        }
        let accounts = Arc::clone(&self.tree.accounts);
        let executor = Arc::clone(&self.scheduler.executor);
        // Of those that wait for others each is one piece of work.
        let under_way = self.jobs.len().saturating_sub(self.awaited.len());
        let is_busy = due.is_some_and(|due| due <= Instant::now()) || self.services.are_awaited();
        tokio::select! {
            biased; // Who stops the run is heard before those who would go on.
            () = signals.abort.cancelled(), if !self.is_aborting => {
                self.abort();
            }
            () = signals.pause.cancelled(), if !self.is_pausing && !self.is_aborting => {
                self.pause();
            }
            () = signals.asked() => {
                self.heed().await?;
                self.heed_stops(signals).await?;
            }
            () = accounts.dry() => self.heed_budgets(),
            Some(request) = self.requests.recv() => self.answer(request),
            Some(news) = self.services.next() => self.heed_service(news),
            Some(done) = self.jobs.join_next() => {
                if let Ok(done) = done {
                    self.done(done);
                }
                while let Some(done) = self.jobs.try_join_next() {
                    if let Ok(done) = done {
                        self.done(done);
                    }
                }
            }
            () = sleep_until(wake) => {}
            // The last, so that whoever hears it knows that there was nothing else.
            () = poll_fn(|_| { executor.idle(under_way); Poll::Pending }), if !is_busy => {}
        }
        // Nothing of this step is recorded: what it would begin is not begun any more.
        if let Some(source) = self.lost.take() {
            return Err(Error::Store { run: self.run, source });
        }
        // A busy run never gets to its sleep, so what is due is looked at after every step.
        self.time_out();
        self.ring();
        self.end_idle().await?;
        self.expire().await?;
        if self.renewal <= Instant::now() {
            self.renew().await?;
            // Whoever said that something was asked may not have reached this process.
            self.heed().await?;
        }
        Ok(())
    }

    /// Ends the tasks whose time is over.
    fn time_out(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((at, task))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            if let Some((_, why)) = self.tree.state.deadline(task) {
                self.tell_wall_ends(task, &why);
                self.decide_late(Input::TimedOut { task, why });
            }
        }
    }

    /// Decides on something that may come too late to matter.
    pub(super) fn decide_late(&mut self, input: Input) {
        // A refusal changes nothing, and nobody waits for it.
        let _late = self.decide(input);
    }

    pub(super) fn decide(&mut self, input: Input) -> Result<(), Refusal> {
        let result = self.decide_once(input);
        self.answer_questions();
        result
    }

    /// Answers what the core has asked and what needs nobody else, until nothing is open.
    pub(super) fn answer_questions(&mut self) {
        // What an answer leads to is answered by whoever began, however much it is.
        if std::mem::replace(&mut self.is_answering, true) {
            return;
        }
        while let Some(question) = self.questions.pop_front() {
            match question {
                // It may have ended since it was asked.
                Question::Condition(task) => {
                    let holds = self.judge(task);
                    let _late = self.decide_once(Input::Judged { task, holds });
                }
                Question::Items(task) => {
                    let items = self.items(task);
                    let _late = self.decide_once(Input::Expanded { task, items });
                }
                Question::Wait { task, round } => self.look_for(task, round),
                Question::Output { task, index } => {
                    let verdict = self.judge_output(task, index);
                    self.check_done(task, Phase::Exit, index, verdict);
                }
                Question::Verdict { task, phase, index, verdict } => {
                    self.check_done(task, phase, index, *verdict);
                }
                Question::Lost { task, phase, index } => self.lost(task, phase, index),
                Question::AllMade { task, phase } => {
                    let _late = self.decide_once(Input::Checked { task, phase, failed: None });
                }
                Question::Failed { task, end } => self.attempt_done(task, end),
            }
        }
        self.is_answering = false;
    }

    pub(super) fn decide_once(&mut self, input: Input) -> Result<(), Refusal> {
        let mut commands = std::mem::take(&mut self.commands);
        let result = core::decide(&mut self.tree.state, input, &mut commands);
        if !commands.is_empty() {
            let before = self.decided.replace(self.scheduler.clock.now());
            for command in commands.drain(..) {
                self.translate(command);
            }
            self.decided = before;
        }
        self.commands = commands;
        if let Err(refusal) = &result {
            self.tell_refused(refusal);
        }
        result
    }

    /// Records what was decided. Nothing is carried out before.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        if self.events.is_empty() {
            return Ok(());
        }
        // As many follow the next time, more or less, and to move them all costs more than room for a few.
        let room = Vec::with_capacity(self.events.len() + self.events.len() / 8);
        let events = std::mem::replace(&mut self.events, room);
        let blobs = std::mem::take(&mut self.blobs);
        let token = Some(self.lease.token);
        let batch = Append { run: self.run, token, events, blobs };
        let recorded = self.scheduler.store.append(batch).await;
        let recorded = recorded.map_err(|source| Error::Store { run: self.run, source })?;
        if let Some(last) = recorded.last() {
            self.head = self.head.max(last.position);
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<RunOutcome, Error> {
        let outcome = self.outcome().await?;
        let outcome = self.ending(outcome).await?;
        let finished = RunFinished { outcome: outcome.clone() };
        self.record(None, EventBody::RunFinished(finished));
        self.flush().await?;
        Ok(outcome)
    }

    /// Has done what belongs to the end of the run, and goes on to show signs of life meanwhile.
    async fn ending(&mut self, outcome: RunOutcome) -> Result<RunOutcome, Error> {
        let executor = Arc::clone(&self.scheduler.executor);
        let mut ending = executor.ending(outcome, self.lease.token);
        loop {
            tokio::select! {
                biased;
                outcome = &mut ending => {
                    return outcome.map_err(|source| Error::Store { run: self.run, source });
                }
                () = sleep_until(self.renewal) => self.renew().await?,
            }
        }
    }

    /// Shows a sign of life.
    pub(super) async fn renew(&mut self) -> Result<(), Error> {
        let store = &self.scheduler.store;
        let renewed = store.renew(&self.lease, self.scheduler.lease).await;
        self.lease = renewed.map_err(|source| Error::Store { run: self.run, source })?;
        self.renewal = Instant::now() + self.scheduler.renewal();
        Ok(())
    }

    async fn outcome(&self) -> Result<RunOutcome, Error> {
        let (code, reason) = match &self.unready {
            Some(why) => {
                (OutcomeCode::Setup, format!("{}, and the run can be resumed", one_line(why)))
            }
            None => self.tree.verdict(),
        };
        let row = self
            .scheduler
            .store
            .run(self.run)
            .await
            .map_err(|source| Error::Store { run: self.run, source })?;
        let spent = self.tree.accounts.spent(self.tree.state.id(self.tree.state.root()));
        Ok(RunOutcome {
            run: self.run,
            code,
            reason,
            rounds: spent.rounds,
            usage: spent.usage,
            cost: spent.usd,
            files_changed: row.as_ref().map_or(0, |row| row.files_changed),
            more_files: row.is_some_and(|row| row.more_files),
            elapsed: self.worked_so_far(),
            scripted: self.scheduler.executor.is_scripted(),
        })
    }

    pub(super) fn worked_so_far(&self) -> Span {
        self.worked.saturating_add(self.now().since(self.since))
    }

    /// Returns the present time: that of the decision where one is carried out.
    pub(super) fn now(&self) -> Timestamp {
        self.decided.unwrap_or_else(|| self.scheduler.clock.now())
    }

    pub(super) fn record(&mut self, task: Option<TaskId>, body: EventBody) {
        let at = self.now();
        self.events.push(NewEvent {
            task,
            principal: self.principal.clone(),
            at,
            body,
            idempotency_key: None,
        });
    }
}
