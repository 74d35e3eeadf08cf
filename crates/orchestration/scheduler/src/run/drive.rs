//! The loop that owns the state of a run.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use formwork_protocols::{
    Append, AttemptId, Blob, Body, Budget, Cancel, Claim, Ending, Escalation, EventBody,
    Ledger as _, NewEvent, Position, Principal, RunId, RunOutcome, SessionId, Span, TaskId,
    TaskName, TaskSignal, TaskSpec, TaskState, Timestamp, Usage,
    budget::Crossing,
    check::{Evidence, Phase, Verdict},
    event::{
        AttemptEnded, AttemptStarted, BudgetExhausted, BudgetSettled, CheckFinished, CheckStarted,
        RunFinished, RunPaused, RunResumed, RunStarted, SessionEnded, TaskCreated, TaskMoved,
    },
    spec::Retries,
    store::{Lease, Selection},
};
use futures::FutureExt as _;
use serde_json::{Map, Value};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    control::{Active, Control, Reply, Request, WAITING},
    fold::Folded,
    scheduler::{Report, Scheduler, Signals},
    tree::{Tree, one_line},
};
use crate::{
    core::{self, BodyEnd, Command, Input, Refusal, TaskIndex},
    error::Error,
    executor::{AttemptEnd, AttemptJob, CheckJob},
};

/// Why an attempt ended that was told to stop.
pub(super) const BROKEN_OFF: &str = "broken off";

/// How many requests are read at once; whoever asks again and again is heard with the next.
const ASKED: usize = 100;

/// How long work that was asked to stop may take to say so; a stop by hand is over within a second.
const GRACE: Duration = Duration::from_millis(700);

/// What a loop works with.
pub(super) struct Parts {
    pub(super) scheduler: Scheduler,
    pub(super) run: RunId,
    pub(super) lease: Lease,
}

/// Something to do once what was decided is durable.
enum Effect {
    Attempt(TaskIndex, Box<AttemptJob>),
    Check(TaskIndex, Box<CheckJob>),
    Activate(TaskId),
    Answer(Reply, Result<TaskId, String>),
}

/// Work that came back.
enum Done {
    Attempt { task: TaskIndex, end: AttemptEnd },
    Check { task: TaskIndex, phase: Phase, index: u32, verdict: Option<Verdict> },
}

enum End {
    Finished,
    Paused,
}

pub(super) struct Drive {
    scheduler: Scheduler,
    run: RunId,
    lease: Lease,
    tree: Tree,
    variables: Arc<Map<String, Value>>,
    /// The time that processes before this one worked on it, and since when this one does.
    worked: Span,
    since: Timestamp,
    was_started: bool,
    calls: HashMap<formwork_protocols::HoldId, formwork_protocols::CallId>,
    principal: Principal,
    /// Kept between decisions so that they allocate once.
    commands: Vec<Command>,
    events: Vec<NewEvent>,
    blobs: Vec<Blob>,
    effects: Vec<Effect>,
    jobs: JoinSet<Done>,
    cancels: HashMap<TaskIndex, Cancel>,
    active: Arc<Active>,
    control: Arc<Control>,
    requests: mpsc::Receiver<Request>,
    timers: BinaryHeap<Reverse<(Instant, TaskIndex)>>,
    renewal: Instant,
    /// Up to where the log was searched for what somebody asks of the run.
    heeded: Position,
    end: Option<End>,
    is_aborting: bool,
    was_paused: bool,
    is_pausing: bool,
    /// Why it is paused.
    why_paused: String,
}

impl Drive {
    pub(super) fn new(parts: Parts, folded: Folded) -> Self {
        let Parts { scheduler, run, lease } = parts;
        let renewal = scheduler.renewal();
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
            worked: folded.worked,
            was_started: folded.was_started,
            calls: folded.calls,
            principal: Principal::system("scheduler"),
            commands: Vec::new(),
            events: Vec::new(),
            blobs: Vec::new(),
            effects: Vec::new(),
            jobs: JoinSet::new(),
            cancels: HashMap::new(),
            active,
            control: Arc::new(control),
            requests,
            timers: BinaryHeap::new(),
            renewal: Instant::now() + renewal,
            heeded: folded.last,
            end: None,
            is_aborting: folded.is_abort_asked,
            was_paused: folded.is_paused,
            is_pausing: false,
            why_paused: "stopped from outside".to_owned(),
        }
    }

    pub(super) async fn run(mut self, signals: &Signals) -> Result<Report, Error> {
        let ended = self.go(signals).await;
        for cancel in self.cancels.values() {
            cancel.cancel();
        }
        self.jobs.shutdown().await;
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
        for task in self.tree.state.tasks() {
            let state = self.tree.state.state_of(task);
            if !state.is_terminal() && state != TaskState::Created {
                self.set_timer(task);
            }
        }
        // What had no time left does not begin again, and ends for that reason and no other.
        self.time_out();
        if self.end.is_some() {
            return;
        }
        let root = self.tree.state.root();
        // One that is only to be stopped does not begin anything before.
        if self.tree.state.state_of(root).is_terminal() {
            self.decide_late(Input::Start);
        } else if self.is_aborting || signals.abort.is_cancelled() {
            self.abort();
        } else if signals.pause.is_cancelled() {
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

    fn pause(&mut self) {
        self.is_pausing = true;
        self.decide_late(Input::Pause);
    }

    /// Does what was asked of the run in the log, by whatever process.
    async fn heed(&mut self) -> Result<(), Error> {
        let kinds = ["run.pause_requested", "run.abort_requested"].map(str::to_owned);
        let selection = Selection { run: Some(self.run), task: None, kinds: kinds.to_vec() };
        let asked = self
            .scheduler
            .store
            .read(self.heeded, &selection, ASKED)
            .await
            .map_err(|source| Error::Store { run: self.run, source })?;
        for event in asked {
            self.heeded = event.position;
            match event.body {
                EventBody::RunAbortRequested(_) if !self.is_aborting => self.abort(),
                EventBody::RunPauseRequested(asked) if !self.is_pausing && !self.is_aborting => {
                    self.why_paused = one_line(&asked.reason);
                    self.pause();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for the next thing to happen and decides on it, and on all else that has happened.
    async fn wait(&mut self, signals: &Signals) -> Result<(), Error> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let wake = timer.map_or(self.renewal, |timer| timer.min(self.renewal));
        tokio::select! {
            biased; // Who stops the run is heard before those who would go on.
            () = signals.abort.cancelled(), if !self.is_aborting => {
                self.abort();
            }
            () = signals.pause.cancelled(), if !self.is_pausing && !self.is_aborting => {
                self.pause();
            }
            () = signals.asked() => self.heed().await?,
            Some(request) = self.requests.recv() => self.answer(request),
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
        }
        // A busy run never gets to its sleep, so what is due is looked at after every step.
        self.time_out();
        let now = Instant::now();
        if self.renewal <= now {
            self.lease = self
                .scheduler
                .store
                .renew(&self.lease, self.scheduler.lease)
                .await
                .map_err(|source| Error::Store { run: self.run, source })?;
            self.renewal = now + self.scheduler.renewal();
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
                self.decide_late(Input::TimedOut { task, why });
            }
        }
    }

    /// Decides on something that may come too late to matter.
    fn decide_late(&mut self, input: Input) {
        // A refusal changes nothing, and nobody waits for it.
        let _late = self.decide(input);
    }

    fn decide(&mut self, input: Input) -> Result<(), Refusal> {
        let mut commands = std::mem::take(&mut self.commands);
        let result = core::decide(&mut self.tree.state, input, &mut commands);
        for command in commands.drain(..) {
            self.translate(command);
        }
        self.commands = commands;
        result
    }

    fn translate(&mut self, command: Command) {
        match command {
            Command::Create { task } => {
                let spec = TaskSpec::clone(self.tree.state.spec(task));
                let id = self.tree.state.id(task);
                let parent = self.tree.state.parent(task).map(|above| self.tree.state.id(above));
                self.tree.accounts.open(id, parent, &spec.budget);
                self.record(Some(id), EventBody::TaskCreated(TaskCreated { parent, spec }));
            }
            Command::Move { task, from, signal, to, ending } => {
                self.moved(task, TaskMoved { from, signal, to, ending, claim: None });
            }
            Command::Timer { task } => self.set_timer(task),
            Command::Check { task, phase } => {
                self.tree.of_mut(task).verdicts.clear();
                self.begin_check(task, phase, 0);
            }
            Command::Attempt { task, number, continues } => {
                self.begin_attempt(task, number, continues);
            }
            Command::Interrupt { task } => {
                if let Some(cancel) = self.cancels.get(&task) {
                    cancel.cancel();
                }
                self.active.remove(self.tree.state.id(task));
            }
            Command::Paused => {
                let reason = self.why_paused.clone();
                self.record(None, EventBody::RunPaused(RunPaused { reason }));
                self.end = Some(End::Paused);
            }
            Command::Finish => self.end = Some(End::Finished),
        }
    }

    fn moved(&mut self, task: TaskIndex, mut moved: TaskMoved) {
        let id = self.tree.state.id(task);
        let now = self.worked_so_far();
        let progress = self.tree.of_mut(task);
        if moved.signal == TaskSignal::Start {
            progress.began = Some(now);
        }
        if moved.signal == TaskSignal::End {
            moved.claim = progress.claim.as_deref().cloned();
        }
        let left = match moved.to.is_terminal() {
            true => {
                progress.ended = Some(now);
                progress.session
            }
            false => None,
        };
        if moved.from == TaskState::Active {
            self.active.remove(id);
        }
        if moved.to == TaskState::Active
            && matches!(self.tree.state.spec(task).body, Body::Inline { .. })
        {
            self.effects.push(Effect::Activate(id));
        }
        let reason = match &moved.ending {
            Some(Ending::Completed) | None => "accepted: every check passed".to_owned(),
            Some(ending) => one_line(&ending.to_string()),
        };
        let to = moved.to;
        self.record(Some(id), EventBody::TaskMoved(moved));
        if let Some(session) = left {
            self.leave(id, session, to, &reason);
        }
    }

    /// Ends a conversation that nobody goes on with.
    fn leave(&mut self, task: TaskId, session: SessionId, state: TaskState, reason: &str) {
        match self.scheduler.executor.leave(session, state, reason) {
            Some(last) => {
                self.events.extend(last.events);
                self.blobs.extend(last.blobs);
            }
            // It went with the process that held it.
            None => {
                let ended = SessionEnded { session, reason: reason.to_owned() };
                self.record(Some(task), EventBody::SessionEnded(ended));
            }
        }
    }

    fn set_timer(&mut self, task: TaskIndex) {
        let Some((after, _)) = self.tree.state.deadline(task) else { return };
        let began = self.tree.of(task).and_then(|progress| progress.began).unwrap_or_default();
        let used = self.worked_so_far().as_micros().saturating_sub(began.as_micros());
        let left = Span::from_micros(after.as_micros().saturating_sub(used));
        // A span that no clock can hold is none.
        if let Some(at) = Instant::now().checked_add(left.as_duration()) {
            self.timers.push(Reverse((at, task)));
        }
    }

    fn begin_check(&mut self, task: TaskIndex, phase: Phase, index: u32) {
        let spec = Arc::clone(self.tree.state.spec(task));
        let checks = match phase {
            Phase::Entry => &spec.prechecks,
            Phase::Exit => &spec.postchecks,
        };
        let Some(check) = checks.get(index as usize).cloned() else { return };
        let id = self.tree.state.id(task);
        let started = CheckStarted { phase, index, check: check.name.clone() };
        self.record(Some(id), EventBody::CheckStarted(started));
        let job = CheckJob {
            run: self.run,
            task: id,
            spec: Arc::clone(&spec),
            phase,
            index,
            check,
            attempt: self.tree.of(task).and_then(|progress| progress.attempt),
            token: Some(self.lease.token),
        };
        self.effects.push(Effect::Check(task, Box::new(job)));
    }

    fn begin_attempt(&mut self, task: TaskIndex, number: u32, continues: bool) {
        let spec = Arc::clone(self.tree.state.spec(task));
        let id = self.tree.state.id(task);
        let known = self.tree.of(task).cloned().unwrap_or_default();
        let (attempt, resumes) = match known.attempt.filter(|_| continues) {
            Some(attempt) => (attempt, known.session),
            None => {
                let (clock, rng) = (&*self.scheduler.clock, &*self.scheduler.rng);
                let attempt = AttemptId::generate(clock, rng);
                let resumes = known.session.filter(|_| number > 1 && spec.retries.resume);
                let started = AttemptStarted { attempt, number, resumes };
                self.record(Some(id), EventBody::AttemptStarted(started));
                if let Some(before) = known.session.filter(|_| resumes.is_none()) {
                    self.leave(id, before, TaskState::Active, "another attempt begins afresh");
                }
                (attempt, resumes)
            }
        };
        let shows = number > 1 && spec.retries.inject_failure;
        let evidence = known.verdicts.into_iter().filter(|verdict| shows && !verdict.passed);
        let job = AttemptJob {
            run: self.run,
            task: id,
            path: self.path(task),
            attempt,
            number,
            continues,
            resumes,
            evidence: evidence.collect(),
            variables: Arc::clone(&self.variables),
            results: self.tree.results(task),
            control: Arc::clone(&self.control) as _,
            ledger: Arc::clone(&self.tree.accounts) as _,
            token: Some(self.lease.token),
            spec,
        };
        let progress = self.tree.of_mut(task);
        progress.attempt = Some(attempt);
        progress.session = resumes;
        self.effects.push(Effect::Activate(id));
        // Parts of a conversation that goes on are open in it still.
        let mut open = vec![task];
        while let Some(above) = open.pop() {
            for part in self.tree.state.children(above) {
                if self.tree.state.is_acting(part) {
                    self.effects.push(Effect::Activate(self.tree.state.id(part)));
                    open.push(part);
                }
            }
        }
        self.effects.push(Effect::Attempt(task, Box::new(job)));
    }

    fn path(&self, task: TaskIndex) -> Vec<TaskName> {
        let up = std::iter::successors(Some(task), |task| self.tree.state.parent(*task));
        let mut path: Vec<TaskName> =
            up.map(|task| self.tree.state.spec(task).name.clone()).collect();
        path.reverse();
        path
    }

    /// Records what was decided. Nothing is carried out before.
    async fn flush(&mut self) -> Result<(), Error> {
        if self.events.is_empty() {
            return Ok(());
        }
        // As many follow the next time, more or less.
        let room = Vec::with_capacity(self.events.len());
        let events = std::mem::replace(&mut self.events, room);
        let blobs = std::mem::take(&mut self.blobs);
        let token = Some(self.lease.token);
        self.scheduler
            .store
            .append(Append { run: self.run, token, events, blobs })
            .await
            .map(|_| ())
            .map_err(|source| Error::Store { run: self.run, source })
    }

    fn launch(&mut self) {
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                Effect::Activate(task) => {
                    // It may have ended in the same breath.
                    let acts = self.tree.state.find(task);
                    if acts.is_some_and(|task| self.tree.state.is_acting(task)) {
                        self.active.add(task);
                    }
                }
                // One that no longer listens has been broken off.
                Effect::Answer(reply, answer) => drop(reply.send(answer)),
                Effect::Attempt(task, job) => {
                    let (executor, cancel) = (Arc::clone(&self.scheduler.executor), Cancel::new());
                    self.cancels.insert(task, cancel.clone());
                    if self.tree.state.is_stopping(task) {
                        cancel.cancel();
                    }
                    self.jobs.spawn(async move {
                        let work = AssertUnwindSafe(executor.attempt(*job, &cancel)).catch_unwind();
                        let end = tokio::select! {
                            biased;
                            end = work => end.unwrap_or_else(|_| {
                                let detail = "it panicked".to_owned();
                                let why = Escalation::BodyFailed { detail };
                                AttemptEnd::Failed { why, session: None, files_changed: 0 }
                            }),
                            () = grace(&cancel) => AttemptEnd::Interrupted { session: None },
                        };
                        Done::Attempt { task, end }
                    });
                }
                Effect::Check(task, job) => {
                    let (executor, cancel) = (Arc::clone(&self.scheduler.executor), Cancel::new());
                    self.cancels.insert(task, cancel.clone());
                    if self.tree.state.is_stopping(task) {
                        cancel.cancel();
                    }
                    let (phase, index) = (job.phase, job.index);
                    self.jobs.spawn(async move {
                        let name = job.check.name.clone();
                        let work = AssertUnwindSafe(executor.check(*job, &cancel)).catch_unwind();
                        let verdict = tokio::select! {
                            biased;
                            verdict = work => Some(verdict.unwrap_or_else(|_| {
                                failed_verdict(name, "the check itself panicked")
                            })),
                            () = grace(&cancel) => None,
                        };
                        // A verdict of work that was told to stop may be about the stop.
                        let verdict = verdict.filter(|_| !cancel.is_cancelled());
                        Done::Check { task, phase, index, verdict }
                    });
                }
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Attempt { task, end } => {
                self.cancels.remove(&task);
                self.attempt_done(task, end);
            }
            Done::Check { task, verdict: None, .. } => {
                self.cancels.remove(&task);
                self.decide_late(Input::Interrupted { task });
            }
            Done::Check { task, phase, index, verdict: Some(verdict) } => {
                self.cancels.remove(&task);
                self.check_done(task, phase, index, verdict);
            }
        }
    }

    fn check_done(&mut self, task: TaskIndex, phase: Phase, index: u32, verdict: Verdict) {
        let id = self.tree.state.id(task);
        let passed = verdict.passed;
        self.tree.of_mut(task).verdicts.push(verdict.clone());
        let finished = CheckFinished { phase, index, verdict };
        self.record(Some(id), EventBody::CheckFinished(finished));
        let spec = self.tree.state.spec(task);
        let count = match phase {
            Phase::Entry => spec.prechecks.len(),
            Phase::Exit => spec.postchecks.len(),
        };
        if passed && (index as usize) + 1 < count {
            self.begin_check(task, phase, index + 1);
        } else {
            let failed = (!passed).then_some(index);
            self.decide_late(Input::Checked { task, phase, failed });
        }
    }

    fn attempt_done(&mut self, task: TaskIndex, end: AttemptEnd) {
        let id = self.tree.state.id(task);
        let progress = self.tree.of_mut(task);
        let attempt = progress.attempt;
        let (input, claimed, reason) = match end {
            AttemptEnd::Claimed { claim, session, files_changed } => {
                progress.session = session.or(progress.session);
                progress.files_changed = progress.files_changed.max(files_changed);
                progress.claim = Some(Box::new(claim));
                (Input::Ended { task, end: BodyEnd::Claimed }, true, "done".to_owned())
            }
            AttemptEnd::Failed { why, session, files_changed } => {
                progress.session = session.or(progress.session);
                progress.files_changed = progress.files_changed.max(files_changed);
                let reason = why.to_string();
                progress.verdicts = vec![failed_body(&reason)];
                (Input::Ended { task, end: BodyEnd::Failed(why) }, false, one_line(&reason))
            }
            AttemptEnd::Interrupted { session } => {
                progress.session = session.or(progress.session);
                (Input::Interrupted { task }, false, BROKEN_OFF.to_owned())
            }
        };
        // An attempt that a pause broke off goes on in a later process.
        let is_kept = matches!(input, Input::Interrupted { .. })
            && self.is_pausing
            && self.tree.state.is_acting(task);
        if let Some(attempt) = attempt
            && !is_kept
        {
            let ended = AttemptEnded { attempt, claimed, reason };
            self.record(Some(id), EventBody::AttemptEnded(ended));
        }
        let was_over = self.tree.state.state_of(task).is_terminal();
        self.decide_late(input);
        if was_over && let Some(session) = self.tree.of(task).and_then(|known| known.session) {
            self.leave(id, session, TaskState::Cancelled, "its task had ended");
        }
    }

    fn answer(&mut self, request: Request) {
        let gone = |task: TaskId| format!("there is no task {task}");
        let (reply, answer) = match request {
            Request::Open { parent, name, goal, reply } => {
                let id = TaskId::generate(&*self.scheduler.clock, &*self.scheduler.rng);
                let spec = Arc::new(inline(name, goal));
                let answer = match self.tree.state.find(parent) {
                    None => Err(gone(parent)),
                    Some(parent) => self
                        .decide(Input::Open { parent, id, spec })
                        .map(|()| id)
                        .map_err(|refusal| refusal.to_string()),
                };
                (reply, answer)
            }
            Request::Close { task, claim, reply } => {
                let answer = match self.tree.state.find(task) {
                    None => Err(gone(task)),
                    Some(index) => self.close(index, claim),
                };
                (reply, answer)
            }
        };
        self.effects.push(Effect::Answer(reply, answer));
    }

    fn close(&mut self, task: TaskIndex, claim: Claim) -> Result<TaskId, String> {
        let before = self.tree.of_mut(task).claim.replace(Box::new(claim));
        match self.decide(Input::Close { task }) {
            Ok(()) => {
                let state = &self.tree.state;
                let parent = state.parent(task).map(|parent| state.id(parent));
                Ok(parent.unwrap_or_else(|| state.id(task)))
            }
            Err(refusal) => {
                self.tree.of_mut(task).claim = before;
                Err(refusal.to_string())
            }
        }
    }

    async fn finish(&mut self) -> Result<RunOutcome, Error> {
        let outcome = self.outcome().await?;
        let finished = RunFinished { outcome: outcome.clone() };
        self.record(None, EventBody::RunFinished(finished));
        self.flush().await?;
        Ok(outcome)
    }

    async fn outcome(&self) -> Result<RunOutcome, Error> {
        let (code, reason) = self.tree.verdict();
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
            files_changed: row.map_or(0, |row| row.files_changed),
            elapsed: self.worked_so_far(),
            scripted: self.scheduler.executor.is_scripted(),
        })
    }

    fn worked_so_far(&self) -> Span {
        self.worked.saturating_add(self.scheduler.clock.now().since(self.since))
    }

    fn record(&mut self, task: Option<TaskId>, body: EventBody) {
        self.events.push(NewEvent {
            task,
            principal: self.principal.clone(),
            at: self.scheduler.clock.now(),
            body,
            idempotency_key: None,
        });
    }
}

/// Tells of a line that a budget crossed.
fn crossed(crossing: Crossing) -> EventBody {
    if !crossing.exhausted {
        return EventBody::BudgetWarned(crossing);
    }
    let detail = format!("{} of {} used", crossing.used, crossing.limit);
    EventBody::BudgetExhausted(BudgetExhausted { task: crossing.task, cap: crossing.cap, detail })
}

/// Waits until work that was asked to stop has had its time.
async fn grace(cancel: &Cancel) {
    cancel.cancelled().await;
    sleep(GRACE).await;
}

/// Says why an attempt failed, in the form in which the next one is shown it.
pub(super) fn failed_body(reason: &str) -> Verdict {
    failed_verdict("body".to_owned(), reason)
}

fn failed_verdict(check: String, reason: &str) -> Verdict {
    let evidence = Evidence { excerpt: reason.to_owned(), ..Evidence::default() };
    Verdict { check, passed: false, reason: one_line(reason), issues: Vec::new(), evidence }
}

/// Returns what is asked of a part of a conversation.
fn inline(name: TaskName, goal: String) -> TaskSpec {
    TaskSpec {
        name,
        description: String::new(),
        body: Body::Inline { goal },
        depends_on: Vec::new(),
        prechecks: Vec::new(),
        postchecks: Vec::new(),
        retries: Retries { max: 0, ..Retries::default() },
        timeout: None,
        budget: Budget::default(),
        write_paths: Vec::new(),
        protected_paths: Vec::new(),
    }
}
