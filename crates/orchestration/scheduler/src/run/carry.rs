//! What the core decides: written down, and made ready to be done.

use std::{cmp::Reverse, sync::Arc};

use formwork_protocols::{
    AttemptId, Body, Ending, Escalation, EventBody, SessionId, Span, TaskId, TaskSignal, TaskSpec,
    TaskState,
    check::{CheckKind, Phase},
    event::{
        AttemptStarted, CheckStarted, RunPaused, SessionEnded, TaskBlocked, TaskCreated, TaskMoved,
    },
};
use tokio::time::Instant;

use super::{
    drive::{Drive, End},
    dry::Alarm,
    judge::Question,
    tree::one_line,
    work::{Effect, failed_verdict},
};
use crate::{
    core::{Command, TaskIndex},
    executor::{AttemptEnd, AttemptJob, CheckJob},
};

impl Drive {
    pub(super) fn translate(&mut self, command: Command) {
        match command {
            Command::Create { task } => {
                let spec = Arc::clone(self.tree.state.spec(task));
                let id = self.tree.state.id(task);
                let parent = self.tree.state.parent(task).map(|above| self.tree.state.id(above));
                self.tree.accounts.open(id, parent, &spec.budget);
                self.has_outputs |= spec.output.is_some();
                self.record(Some(id), EventBody::TaskCreated(TaskCreated { parent, spec }));
                self.tell_growth(task);
            }
            Command::Move { task, from, signal, to, ending } => {
                self.moved(task, TaskMoved { from, signal, to, ending, claim: None });
            }
            Command::Judge { task } => self.questions.push_back(Question::Condition(task)),
            Command::Expand { task } => self.questions.push_back(Question::Items(task)),
            Command::Oversee { task, why } => self.oversee(task, why),
            Command::Wait { task } => self.begin_wait(task),
            Command::Timer { task } => self.set_timer(task),
            Command::Rest { task, after } => {
                let after = if self.scheduler.is_untimed { Span::ZERO } else { after };
                // A span that no clock can hold is none.
                if let Some(at) = Instant::now().checked_add(after.as_duration()) {
                    self.alarms.push(Reverse((at, task, Alarm::RestOver)));
                }
            }
            Command::Check { task, phase } => {
                if matches!(phase, Phase::Entry | Phase::Exit) {
                    let progress = self.tree.of_mut(task);
                    progress.verdicts.clear();
                    progress.mended.clear();
                }
                self.begin_checks(task, phase);
            }
            Command::Attempt { task, number, continues } => {
                self.begin_attempt(task, number, continues);
            }
            Command::Rejoin { task } => self.rejoin(task),
            Command::Blocked { task, by, path } => {
                let state = &self.tree.state;
                let (id, name) = (state.id(task), state.spec(by).name.clone());
                let by = state.id(by);
                self.record(Some(id), EventBody::TaskBlocked(TaskBlocked { by, name, path }));
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

    pub(super) fn moved(&mut self, task: TaskIndex, mut moved: TaskMoved) {
        let id = self.tree.state.id(task);
        let (now, wall) = (self.worked_so_far(), self.now());
        if moved.to.is_terminal() {
            self.waits.remove(&task);
            if let Some(cancel) = self.overseen.remove(&task) {
                cancel.cancel();
            }
        }
        if moved.signal == TaskSignal::End
            && let Some(claim) = self.tree.claim_of_parent(task)
        {
            self.tree.of_mut(task).claim = Some(Arc::new(claim));
        }
        let progress = self.tree.of_mut(task);
        if moved.signal == TaskSignal::Start {
            progress.began = Some(now);
        }
        if moved.signal == TaskSignal::End {
            moved.claim = progress.claim.clone();
        }
        if moved.to == TaskState::Suspended {
            progress.waits_since.get_or_insert(wall);
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
            self.effects.push(Effect::Activate(task));
        }
        // Whoever takes leave of a conversation says why; few tasks have one.
        let left = left.map(|session| (session, why_left(&moved)));
        let to = moved.to;
        let why = match &moved.ending {
            Some(Ending::Escalated { why }) => Some(why.clone()),
            _ => None,
        };
        self.record(Some(id), EventBody::TaskMoved(moved));
        if let Some(why) = why {
            self.ask_about_escalation(task, &why);
        }
        if let Some((session, reason)) = left {
            self.leave(id, session, to, &reason);
        }
    }

    /// Ends a conversation that nobody goes on with.
    pub(super) fn leave(
        &mut self,
        task: TaskId,
        session: SessionId,
        state: TaskState,
        reason: &str,
    ) {
        match self.scheduler.executor.leave(session, state, reason) {
            Some(last) => {
                self.events.extend(last.events);
                self.blobs.extend(last.blobs);
                // They have times of their own, and what follows them is not before them.
                self.decided = self.decided.map(|_| self.scheduler.clock.now());
            }
            // It went with the process that held it.
            None => {
                let ended = SessionEnded { session, reason: reason.to_owned() };
                self.record(Some(task), EventBody::SessionEnded(ended));
            }
        }
    }

    pub(super) fn set_timer(&mut self, task: TaskIndex) {
        if self.scheduler.is_untimed {
            return;
        }
        self.warn_of_wall(task);
        self.watch_idle(task);
        let Some((after, _)) = self.tree.state.deadline(task) else { return };
        let began = self.tree.of(task).and_then(|progress| progress.began).unwrap_or_default();
        let used = self.worked_so_far().as_micros().saturating_sub(began.as_micros());
        let left = Span::from_micros(after.as_micros().saturating_sub(used));
        // A span that no clock can hold is none.
        if let Some(at) = Instant::now().checked_add(left.as_duration()) {
            self.timers.push(Reverse((at, task)));
        }
    }

    /// Begins the checks of a phase, or goes on behind what a process before this one has made of them.
    fn begin_checks(&mut self, task: TaskIndex, phase: Phase) {
        let left = self.tree.of_mut(task).left.take().filter(|left| left.phase == phase);
        let Some(left) = left else { return self.begin_check(task, phase, 0) };
        let count = self.tree.state.spec(task).checks(phase).len();
        if left.is_unknown() {
            self.questions.push_back(Question::Lost { task, phase, index: left.index });
        } else if (left.index as usize) < count {
            self.begin_check(task, phase, left.index);
        } else {
            self.questions.push_back(Question::AllMade { task, phase });
        }
    }

    pub(super) fn begin_check(&mut self, task: TaskIndex, phase: Phase, index: u32) {
        let spec = Arc::clone(self.tree.state.spec(task));
        let Some(mut check) = spec.checks(phase).get(index as usize).cloned() else { return };
        let is_phase = matches!(phase, Phase::Entry | Phase::Exit);
        if is_phase && self.tree.of(task).is_some_and(|it| it.mended.contains(&index)) {
            check.fix = None;
        }
        let id = self.tree.state.id(task);
        let started = CheckStarted { phase, index, check: check.name.clone() };
        self.record(Some(id), EventBody::CheckStarted(started));
        let ready = match &mut check.kind {
            CheckKind::Output(_) => {
                self.questions.push_back(Question::Output { task, index });
                return;
            }
            CheckKind::Command(command) => self.fill(task, &mut command.argv),
            CheckKind::Suite(suite) => self.fill(task, &mut suite.argv),
            CheckKind::Workflow(workflow) => self.fill_values(task, &mut workflow.variables),
            _ => Ok(()),
        };
        if let Err(reason) = ready {
            let verdict = Box::new(failed_verdict(check.name, &reason));
            self.questions.push_back(Question::Verdict { task, phase, index, verdict });
            return;
        }
        let job = CheckJob {
            run: self.run,
            task: id,
            spec: Arc::clone(&spec),
            phase,
            index,
            check,
            attempt: self.tree.of(task).and_then(|progress| progress.attempt),
            path: self.tree.path(task),
            claim: self
                .tree
                .of(task)
                .filter(|_| phase == Phase::Exit)
                .and_then(|progress| progress.claim.as_deref().cloned()),
            variables: self.variables_of(task),
            results: self.tree.results(task),
            control: Arc::clone(&self.control) as _,
            ledger: Arc::clone(&self.tree.accounts) as _,
            token: Some(self.lease.token),
        };
        self.effects.push(Effect::Check(task, Box::new(job)));
    }

    pub(super) fn begin_attempt(&mut self, task: TaskIndex, number: u32, continues: bool) {
        let mut spec = Arc::clone(self.tree.state.spec(task));
        let id = self.tree.state.id(task);
        let known = self.tree.of_mut(task);
        let (known_attempt, session) = (known.attempt, known.session);
        // What only has the wrong form is put right where it was made.
        let is_repair = known.verdicts.last().is_some_and(|last| !last.passed)
            && self.tree.state.is_repairing(task);
        let (attempt, resumes) = match known_attempt.filter(|_| continues) {
            Some(attempt) => (attempt, session),
            None => {
                let (clock, rng) = (&*self.scheduler.clock, &*self.scheduler.rng);
                let attempt = AttemptId::generate(clock, rng);
                let resumes = session.filter(|_| number > 1 && (spec.retries.resume || is_repair));
                let started = AttemptStarted { attempt, number, resumes };
                self.record(Some(id), EventBody::AttemptStarted(started));
                if let Some(before) = session.filter(|_| resumes.is_none()) {
                    self.leave(id, before, TaskState::Active, "another attempt begins afresh");
                }
                (attempt, resumes)
            }
        };
        // What only could not reach its model has heard all of it.
        let known = self.tree.of_mut(task);
        let goes_on = known.goes_on && resumes.is_some();
        let shows = number > 1 && !goes_on && (spec.retries.inject_failure || is_repair);
        let evidence = known.verdicts.iter().filter(|verdict| shows && !verdict.passed).cloned();
        let advice =
            known.advice.as_deref().map(|advice| failed_verdict("overseer".to_owned(), advice));
        let evidence = evidence.chain(advice).collect();
        if let Body::Command { argv } = &spec.body
            && argv.iter().any(|word| word.contains("{{"))
        {
            let mut argv = argv.clone();
            match self.fill(task, &mut argv) {
                Ok(()) => {
                    spec = Arc::new(TaskSpec {
                        body: Body::Command { argv },
                        ..TaskSpec::clone(&spec)
                    });
                }
                Err(detail) => {
                    let end = AttemptEnd::Failed {
                        why: Escalation::CannotBegin { detail },
                        session: None,
                        files_changed: 0,
                    };
                    self.tree.of_mut(task).attempt = Some(attempt);
                    self.questions.push_back(Question::Failed { task, end });
                    return;
                }
            }
        }
        let job = AttemptJob {
            run: self.run,
            task: id,
            path: self.tree.path(task),
            attempt,
            number,
            continues,
            resumes,
            evidence,
            variables: self.variables_of(task),
            results: self.tree.results(task),
            control: Arc::clone(&self.control) as _,
            ledger: Arc::clone(&self.tree.accounts) as _,
            token: Some(self.lease.token),
            spec,
        };
        let progress = self.tree.of_mut(task);
        progress.attempt = Some(attempt);
        progress.session = resumes;
        self.effects.push(Effect::Activate(task));
        // Parts of a conversation that goes on are open in it still.
        let acting = |above| {
            let state = &self.tree.state;
            state.children(above).filter(|part| state.is_acting(*part))
        };
        let mut open: Vec<TaskIndex> = acting(task).collect();
        while let Some(part) = open.pop() {
            self.effects.push(Effect::Activate(part));
            open.extend(acting(part));
        }
        self.effects.push(Effect::Attempt(task, job));
    }
}

/// Says why a conversation is left whose task has ended.
fn why_left(moved: &TaskMoved) -> String {
    match &moved.ending {
        _ if moved.signal == TaskSignal::Accept => "accepted by whoever governs the run".to_owned(),
        Some(Ending::Completed) | None => "accepted: every check passed".to_owned(),
        Some(ending) => one_line(&ending.to_string()),
    }
}
