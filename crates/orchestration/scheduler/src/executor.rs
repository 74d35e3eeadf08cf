//! The seam to whatever carries out attempts and checks.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{
    AttemptId, Blob, Cancel, Claim, Escalation, Ledger, NewEvent, RunId, RunOutcome, SessionId,
    StoreError, TaskId, TaskSpec, TaskState,
    check::{CheckSpec, Phase, Verdict},
    spec::ServiceSpec,
    tool::TaskControl,
};
use serde_json::{Map, Value};

use crate::{path::TaskPath, results::Results};

/// One attempt at a task, with all that it may use.
#[derive(Clone)]
pub struct AttemptJob {
    /// The run.
    pub run: RunId,
    /// The task.
    pub task: TaskId,
    /// The names from the root to the task, itself included.
    pub path: TaskPath,
    /// What was asked.
    pub spec: Arc<TaskSpec>,
    /// The attempt.
    pub attempt: AttemptId,
    /// Its number; the first is 1.
    pub number: u32,
    /// Whether it was begun before by a process that is gone.
    pub continues: bool,
    /// The conversation to go on in, if one does.
    pub resumes: Option<SessionId>,
    /// Why the attempt before failed, where the next one is to be shown it.
    pub evidence: Vec<Verdict>,
    /// The variables of the workflow.
    pub variables: Arc<Map<String, Value>>,
    /// The results of the tasks that it depends on or that its prompt names.
    pub results: Results,
    /// Opens and closes tasks within its conversation.
    pub control: Arc<dyn TaskControl>,
    /// Holds the budgets of the run.
    pub ledger: Arc<dyn Ledger>,
    /// The token of the run's lease, for whatever the attempt records.
    pub token: Option<u64>,
}

impl fmt::Debug for AttemptJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptJob")
            .field("task", &self.task)
            .field("path", &self.path)
            .field("number", &self.number)
            .field("continues", &self.continues)
            .field("resumes", &self.resumes)
            .finish_non_exhaustive()
    }
}

/// How an attempt ended. What it says has been scrubbed. `files_changed` counts those of all attempts at the
/// task so far, each once.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum AttemptEnd {
    /// The body says that it is done; the exit checks are next.
    Claimed { claim: Claim, session: Option<SessionId>, files_changed: u64 },
    /// The body gave up. [`Escalation::BodyFailed`] is tried again while attempts are left.
    Failed { why: Escalation, session: Option<SessionId>, files_changed: u64 },
    /// It was broken off as asked; it can go on later.
    Interrupted { session: Option<SessionId> },
}

/// One check of a phase, with all that it may use.
#[derive(Clone)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct CheckJob {
    pub run: RunId,
    pub task: TaskId,
    pub spec: Arc<TaskSpec>,
    pub phase: Phase,
    /// Its place among the checks of its phase.
    pub index: u32,
    pub check: CheckSpec,
    /// The attempt that it follows, for an exit check of a task that has attempts.
    pub attempt: Option<AttemptId>,
    /// The names from the root to the task, itself included.
    pub path: TaskPath,
    /// What the body says of itself, for an exit check.
    pub claim: Option<Claim>,
    /// The variables of the workflow.
    pub variables: Arc<Map<String, Value>>,
    /// The results of other tasks that its prompts may name.
    pub results: Results,
    /// Has tasks of their own decide.
    pub control: Arc<dyn TaskControl>,
    /// Holds the budgets of the run.
    pub ledger: Arc<dyn Ledger>,
    /// The token of the run's lease.
    pub token: Option<u64>,
}

impl fmt::Debug for CheckJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckJob")
            .field("task", &self.task)
            .field("path", &self.path)
            .field("phase", &self.phase)
            .field("index", &self.index)
            .field("check", &self.check)
            .finish_non_exhaustive()
    }
}

/// A service of a run, with all that it may use.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct ServiceJob {
    pub run: RunId,
    /// The root of the tasks that need it.
    pub task: TaskId,
    pub spec: Arc<TaskSpec>,
    /// The service, with all words put in.
    pub service: ServiceSpec,
}

/// How a service ended. What it says has been scrubbed.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceEnd {
    /// How, in a few words: with which exit code, or why it could not be started.
    pub how: String,
    /// The end of its output.
    pub excerpt: String,
    /// Its output, the middle left out where that is long.
    pub output: Option<Blob>,
}

/// The last facts of a conversation, with the bytes that they refer to. They have been scrubbed.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct LastWords {
    pub events: Vec<NewEvent>,
    pub blobs: Vec<Blob>,
}

/// Carries out attempts and checks. Calls overlap, up to the width of the run.
///
/// What cannot be recorded has no end. An attempt whose conversation has lost its log may have made an effect that no log tells
/// of: to fail it would have it made again. So the log's error is no end of an attempt and no verdict of a check: the run
/// stops there, what was begun stands open in the log, and whoever takes the run up judges it as after a crash.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Makes one attempt at a body that is no tree.
    ///
    /// When `cancel` is raised it returns soon; a future that does not is dropped after a short grace.
    ///
    /// # Errors
    /// What the log could not do.
    async fn attempt(&self, job: AttemptJob, cancel: &Cancel) -> Result<AttemptEnd, StoreError>;

    /// Runs one check. A check that cannot run is one that failed, and its verdict says why.
    ///
    /// When `cancel` is raised it returns soon, as an attempt does; but one that merges is waited for once it writes, and
    /// what it then says counts.
    ///
    /// # Errors
    /// What the log could not do.
    async fn check(&self, job: CheckJob, cancel: &Cancel) -> Result<Verdict, StoreError>;

    /// Runs a service until it ends by itself or `cancel` is raised, and with it all that it has started.
    ///
    /// A dropped future ends it at once. An executor that runs no programs says so.
    async fn serve(&self, job: ServiceJob, _cancel: &Cancel) -> ServiceEnd {
        let how = format!("cannot be started: nothing here runs {}", job.service.argv.join(" "));
        ServiceEnd { how, excerpt: String::new(), output: None }
    }

    /// Looks once whether a service is ready.
    ///
    /// # Errors
    /// What the look found in its place, in one line.
    async fn is_ready(&self, _job: &ServiceJob) -> Result<(), String> {
        Ok(())
    }

    /// Takes leave of a conversation that nobody goes on with, and returns the last facts of it, to be
    /// recorded with the reason why. Nothing is returned of one that it does not know.
    fn leave(&self, _session: SessionId, _task: TaskState, _reason: &str) -> Option<LastWords> {
        None
    }

    /// Does what belongs to the end of a run, of which all tasks have ended, and returns the outcome that is recorded: the one
    /// given, with what is to be told besides.
    ///
    /// Whoever takes up a run whose process died over this does it again, so that what was done before is to be found.
    /// `token` is of the run's lease. A dropped future leaves it half done.
    ///
    /// # Errors
    /// What the log could not do: the run has not ended then.
    async fn ending(&self, outcome: RunOutcome, _token: u64) -> Result<RunOutcome, StoreError> {
        Ok(outcome)
    }

    /// Hears that nothing is left to decide before something of what is under way ends or asks for something, somebody outside
    /// speaks, or it is time for something. `under_way` is how many attempts, checks and questions are carried out,
    /// without those that wait for other tasks. It is told again and again, as often as it is so.
    ///
    /// Who wants to hear it once more [looks](crate::Signals::look).
    fn idle(&self, _under_way: usize) {}

    /// Tells whether any model that it asks is a script.
    fn is_scripted(&self) -> bool {
        false
    }
}
