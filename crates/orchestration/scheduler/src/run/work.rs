//! Work that is under way outside the loop: begun, broken off, and come back.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use formwork_protocols::{
    Cancel, Escalation, EventBody, FailureClass, StoreError, TaskId, TaskOutcome, TaskState,
    budget::Cap,
    check::{CheckKind, Evidence, Phase, StepKind, Verdict},
    event::{AttemptEnded, CheckFinished},
    overseer::{Decided, Escalated},
};
use futures::FutureExt as _;
use tokio::time::sleep;

use super::{control::Reply, drive::Drive, services::Serve, tree::one_line};
use crate::{
    core::{BodyEnd, Input, TaskIndex},
    executor::{AttemptEnd, AttemptJob, CheckJob},
    workflow::lines_check,
};

/// Why an attempt ended that was told to stop.
pub(super) const BROKEN_OFF: &str = "broken off";

/// How long work that was asked to stop may take to say so; a stop by hand is over within a second.
const GRACE: Duration = Duration::from_millis(700);

/// Something to do once what was decided is durable.
pub(super) enum Effect {
    // Nearly all are attempts, and a box of each would be freed by another thread.
    Attempt(TaskIndex, AttemptJob),
    Check(TaskIndex, Box<CheckJob>),
    Activate(TaskIndex),
    Answer(Reply, Result<TaskId, String>),
    Told(Reply<Vec<TaskOutcome>>, Result<Vec<TaskOutcome>, String>),
    /// To begin a service that was recorded as begun.
    Serve(Box<Serve>),
    Oversee(TaskIndex, Box<Escalated>),
}

/// Work that came back.
pub(super) enum Done {
    Attempt {
        task: TaskIndex,
        end: AttemptEnd,
    },
    Check {
        task: TaskIndex,
        phase: Phase,
        index: u32,
        verdict: Option<Box<Verdict>>,
    },
    /// What has no end, since the log could not be reached.
    Lost(StoreError),
    Overseen {
        task: TaskIndex,
        decided: Result<Decided, String>,
    },
}

impl Drive {
    pub(super) fn launch(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        // No work begins while a service is started again. What is to be stopped is begun, to hear of it at once.
        let is_held = self.services.are_awaited() && !self.is_pausing && !self.is_aborting;
        for effect in effects.drain(..) {
            match effect {
                Effect::Attempt(task, _) | Effect::Check(task, _)
                    if is_held && !self.tree.state.is_stopping(task) =>
                {
                    self.effects.push(effect);
                }
                Effect::Serve(job) => self.serve(*job),
                Effect::Activate(task) => {
                    // It may have ended in the same breath.
                    if self.tree.state.is_acting(task) {
                        self.active.add(self.tree.state.id(task));
                    }
                }
                // One that no longer listens has been broken off.
                Effect::Answer(reply, answer) => drop(reply.send(answer)),
                Effect::Told(reply, outcomes) => drop(reply.send(outcomes)),
                Effect::Oversee(task, escalated) => self.put(task, *escalated),
                Effect::Attempt(task, job) => {
                    let (executor, cancel) = (Arc::clone(&self.scheduler.executor), Cancel::new());
                    let is_timed = !self.scheduler.is_untimed;
                    self.begin(task, &cancel);
                    self.jobs.spawn(async move {
                        let work = AssertUnwindSafe(executor.attempt(job, &cancel)).catch_unwind();
                        let end = tokio::select! {
                            biased;
                            end = work => end.unwrap_or_else(|_| {
                                let detail = "it panicked".to_owned();
                                let why = Escalation::BodyFailed { detail };
                                Ok(AttemptEnd::Failed { why, session: None, files_changed: 0 })
                            }),
                            () = grace(&cancel), if is_timed => Ok(AttemptEnd::Interrupted { session: None }),
                        };
                        end.map_or_else(Done::Lost, |end| Done::Attempt { task, end })
                    });
                }
                Effect::Check(task, job) => {
                    let (executor, cancel) = (Arc::clone(&self.scheduler.executor), Cancel::new());
                    self.begin(task, &cancel);
                    let (phase, index) = (job.phase, job.index);
                    // What has begun to come into the workspace of the run comes whole, and then is there.
                    let merges = matches!(job.check.kind, CheckKind::Merged);
                    let is_timed = !self.scheduler.is_untimed;
                    self.jobs.spawn(async move {
                        let name = job.check.name.clone();
                        let work = AssertUnwindSafe(executor.check(*job, &cancel)).catch_unwind();
                        let verdict = tokio::select! {
                            biased;
                            verdict = work => verdict
                                .unwrap_or_else(|_| Ok(failed_verdict(name, "the check itself panicked")))
                                .map(Some),
                            () = grace(&cancel), if is_timed && !merges => Ok(None),
                        };
                        // A verdict of work that was told to stop may be about the stop.
                        let counts = |it: &Verdict| !cancel.is_cancelled() || (merges && it.passed);
                        let verdict = verdict.map(|it| it.filter(counts).map(Box::new));
                        verdict.map_or_else(Done::Lost, |verdict| {
                            Done::Check { task, phase, index, verdict }
                        })
                    });
                }
            }
        }
        // Kept, so that the next ones need no room of their own.
        if self.effects.is_empty() {
            self.effects = effects;
        }
    }

    /// Notes how to break off work that begins. Whoever was to be stopped between what was decided and what is begun is
    /// told so at once, since nothing of it was under way then.
    fn begin(&mut self, task: TaskIndex, cancel: &Cancel) {
        self.cancels.insert(task, cancel.clone());
        if self.is_pausing || self.tree.state.is_stopping(task) {
            cancel.cancel();
        }
    }

    pub(super) fn done(&mut self, done: Done) {
        match done {
            Done::Attempt { task, end } => {
                self.cancels.remove(&task);
                self.attempt_done(task, end);
            }
            Done::Overseen { task, decided } => self.overseen(task, decided),
            Done::Lost(error) => self.lost = Some(error),
            Done::Check { task, verdict: None, .. } => {
                self.cancels.remove(&task);
                self.decide_late(Input::Interrupted { task });
            }
            Done::Check { task, phase, index, verdict: Some(verdict) } => {
                self.cancels.remove(&task);
                self.check_done(task, phase, index, *verdict);
            }
        }
        self.answer_questions();
    }

    pub(super) fn check_done(
        &mut self,
        task: TaskIndex,
        phase: Phase,
        index: u32,
        verdict: Verdict,
    ) {
        let id = self.tree.state.id(task);
        let passed = verdict.passed;
        let given_up = given_up(&verdict);
        let is_phase = matches!(phase, Phase::Entry | Phase::Exit);
        let is_mended = verdict.steps.iter().any(|step| step.what == StepKind::Fix);
        let lines = verdict.evidence.lines;
        if is_phase {
            self.tree.of_mut(task).verdicts.push(verdict.clone());
        }
        let finished = CheckFinished { phase, index, verdict };
        self.record(Some(id), EventBody::CheckFinished(Box::new(finished)));
        self.tell_lines(task, (phase, index), lines);
        let count = self.tree.state.spec(task).checks(phase).len();
        if passed && is_phase && is_mended && index > 0 {
            // What mended it may have undone what those before it proved.
            let progress = self.tree.of_mut(task);
            progress.verdicts.clear();
            progress.mended.push(index);
            self.begin_check(task, phase, 0);
        } else if passed && (index as usize) + 1 < count {
            self.begin_check(task, phase, index + 1);
        } else {
            if let Some(why) = given_up {
                // Nothing that the task could mend: another attempt would meet the same.
                self.decide_late(Input::TimedOut { task, why });
            } else if !passed && phase == Phase::Exit {
                self.tree.of_mut(task).count_failure(index);
                self.tell_last_round(task, index);
            }
            let failed = (!passed).then_some(index);
            self.decide_late(Input::Checked { task, phase, failed });
        }
    }

    /// Tells of the lines that a task's cap of changed lines has crossed, where a check has compared them with it.
    fn tell_lines(&mut self, task: TaskIndex, (phase, index): (Phase, u32), lines: Option<u64>) {
        let spec = self.tree.state.spec(task);
        let (Some(limit), Some(lines)) = (spec.budget.diff_lines, lines) else { return };
        let check = spec.checks(phase).get(index as usize);
        if check.is_some() && check == lines_check(&spec.budget).as_ref() {
            self.tell_used(task, Cap::DiffLines, lines, limit);
        }
    }

    /// Gives up a task over a command that nobody knows the outcome of, and that is not made again unasked.
    pub(super) fn lost(&mut self, task: TaskIndex, phase: Phase, index: u32) {
        let check = self.tree.state.spec(task).checks(phase).get(index as usize);
        let name = check.map_or_else(String::new, |check| check.name.clone());
        let detail = format!("the run stopped while {name} ran; whether it took effect is unknown");
        let verdict = failed_verdict(name, &detail);
        let id = self.tree.state.id(task);
        let finished = CheckFinished { phase, index, verdict };
        self.record(Some(id), EventBody::CheckFinished(Box::new(finished)));
        let why = Escalation::OutcomeUnknown { detail };
        self.decide_late(Input::TimedOut { task, why });
        self.decide_late(Input::Checked { task, phase, failed: Some(index) });
    }

    /// Tells the core that the check at `index`, which has failed, has failed as often as it may.
    pub(super) fn tell_last_round(&mut self, task: TaskIndex, index: u32) {
        let check = self.tree.state.spec(task).postchecks.get(index as usize);
        let Some(most) = check.and_then(|check| check.max_rounds) else { return };
        let most = most.saturating_add(self.tree.state.granted(task));
        if self.tree.of(task).is_some_and(|progress| progress.failures(index) >= most) {
            self.decide_late(Input::LastRound { task });
        }
    }

    pub(super) fn attempt_done(&mut self, task: TaskIndex, end: AttemptEnd) {
        let id = self.tree.state.id(task);
        self.awaited.remove(&task);
        let end = match (end, self.tree.state.open_names(task)) {
            (AttemptEnd::Claimed { session, files_changed, .. }, Some(open)) => {
                let detail = format!("it ended while its tasks were open: {open}");
                let why = Escalation::BodyFailed { detail };
                AttemptEnd::Failed { why, session, files_changed }
            }
            (end, _) => end,
        };
        let progress = self.tree.of_mut(task);
        let attempt = progress.attempt;
        let mut class = None;
        let (input, claimed, reason) = match end {
            AttemptEnd::Claimed { claim, session, files_changed } => {
                progress.session = session.or(progress.session);
                progress.files_changed = progress.files_changed.max(files_changed);
                progress.claim = Some(Arc::new(claim));
                (Input::Ended { task, end: BodyEnd::Claimed }, true, "done".to_owned())
            }
            AttemptEnd::Failed { why, session, files_changed } => {
                progress.session = session.or(progress.session);
                progress.files_changed = progress.files_changed.max(files_changed);
                let reason = why.to_string();
                progress.goes_on = why.class() == FailureClass::Passing;
                class = Some(why.class());
                if !progress.goes_on {
                    progress.verdicts = vec![failed_body(&reason)];
                }
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
            self.tree.of_mut(task).advice = None;
            let ended = AttemptEnded { attempt, claimed, reason, class };
            self.record(Some(id), EventBody::AttemptEnded(ended));
        }
        let was_over = self.tree.state.state_of(task).is_terminal();
        self.decide_late(input);
        if was_over && let Some(session) = self.tree.of(task).and_then(|known| known.session) {
            self.leave(id, session, TaskState::Cancelled, "its task had ended");
        }
    }
}

/// Tells why a task is given up whose check said nothing of the work.
fn given_up(verdict: &Verdict) -> Option<Escalation> {
    let detail = || one_line(&verdict.reason);
    match (verdict.passed, verdict.not_run, verdict.unjudged) {
        (true, ..) | (_, false, false) => None,
        (_, true, _) => {
            let check = verdict.check.clone();
            Some(Escalation::CheckNotRun { check, detail: detail() })
        }
        (_, _, true) => Some(Escalation::Unjudged { detail: verdict.reason.clone() }),
    }
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

pub(super) fn failed_verdict(check: String, reason: &str) -> Verdict {
    let evidence = Evidence { excerpt: reason.to_owned(), ..Evidence::default() };
    Verdict {
        check,
        passed: false,
        reason: one_line(reason),
        issues: Vec::new(),
        evidence,
        steps: Vec::new(),
        unjudged: false,
        not_run: false,
    }
}
