//! The state machines: each a total function that names every state.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::{ServiceName, TaskName},
    rules::StuckPattern,
    time::Span,
};

/// A signal that leads nowhere from the state it met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{machine} cannot {signal} while it is {from}")]
pub struct IllegalTransition {
    /// What kind of thing was to move: `task` or `run`.
    pub machine: &'static str,
    /// The state it was in.
    pub from: &'static str,
    /// What was asked of it.
    pub signal: &'static str,
}

/// Where a task stands. The last four are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// It exists, and waits for what it depends on.
    Created,
    /// Its entry checks run.
    Prechecking,
    /// Its body runs.
    Active,
    /// It waits for an event, a person or a resumed run.
    Suspended,
    /// Its exit checks run.
    Postchecking,
    /// An exit check failed; it is tried again or given up.
    PostcheckFailed,
    /// Its exit checks passed.
    Completed,
    /// An entry check failed; nothing of its body ran.
    PrecheckFailed,
    /// It was given up, for a reason that its parent receives.
    Escalated,
    /// It was ended before its end, or never begun.
    Cancelled,
}

/// What moves a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskSignal {
    /// What it depends on is done.
    Start,
    /// The checks of its present phase passed.
    Pass,
    /// A check of its present phase failed.
    Fail,
    /// Its body says that it is done.
    End,
    /// A further attempt begins.
    Retry,
    /// It counts as done although an exit check failed, by the word of whoever governs the run.
    Accept,
    /// It has to wait.
    Suspend,
    /// What it waited for is there.
    Resume,
    /// It is given up.
    Escalate,
    /// It is ended from outside.
    Cancel,
}

impl TaskState {
    /// Every state, in the order of a task's life.
    pub const ALL: [Self; 10] = [
        Self::Created,
        Self::Prechecking,
        Self::Active,
        Self::Suspended,
        Self::Postchecking,
        Self::PostcheckFailed,
        Self::Completed,
        Self::PrecheckFailed,
        Self::Escalated,
        Self::Cancelled,
    ];

    /// Returns the state that `signal` leads to.
    ///
    /// # Errors
    /// [`IllegalTransition`] when it leads nowhere from here.
    pub fn after(self, signal: TaskSignal) -> Result<Self, IllegalTransition> {
        use {TaskSignal::*, TaskState::*};
        match (self, signal) {
            (Created, Start) => Ok(Prechecking),
            (Prechecking, Pass) => Ok(Active),
            (Prechecking, Fail) => Ok(PrecheckFailed),
            (Active, End) => Ok(Postchecking),
            (Active, Suspend) => Ok(Suspended),
            (Suspended, TaskSignal::Resume) => Ok(Active),
            (Postchecking, Pass) => Ok(Completed),
            (Postchecking, Fail) => Ok(PostcheckFailed),
            (PostcheckFailed, Retry) => Ok(Active),
            (PostcheckFailed, Accept) => Ok(Completed),
            (Active | Suspended | Prechecking | Postchecking | PostcheckFailed, Escalate) => {
                Ok(Escalated)
            }
            (
                Created | Prechecking | Active | Suspended | Postchecking | PostcheckFailed,
                Cancel,
            ) => Ok(Cancelled),
            // Names every state, so that a new one does not compile until it is placed above.
            (
                from @ (Created | Prechecking | Active | Suspended | Postchecking | PostcheckFailed
                | Completed | PrecheckFailed | Escalated | Cancelled),
                signal,
            ) => Err(IllegalTransition {
                machine: "task",
                from: from.as_str(),
                signal: signal.as_str(),
            }),
        }
    }

    /// Tells whether the state is final.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::PrecheckFailed | Self::Escalated | Self::Cancelled => true,
            Self::Created
            | Self::Prechecking
            | Self::Active
            | Self::Suspended
            | Self::Postchecking
            | Self::PostcheckFailed => false,
        }
    }

    /// Returns the state's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Prechecking => "prechecking",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Postchecking => "postchecking",
            Self::PostcheckFailed => "postcheck_failed",
            Self::Completed => "completed",
            Self::PrecheckFailed => "precheck_failed",
            Self::Escalated => "escalated",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl TaskSignal {
    /// Every signal.
    pub const ALL: [Self; 10] = [
        Self::Start,
        Self::Pass,
        Self::Fail,
        Self::End,
        Self::Retry,
        Self::Accept,
        Self::Suspend,
        Self::Resume,
        Self::Escalate,
        Self::Cancel,
    ];

    /// Returns the signal's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::End => "end",
            Self::Retry => "retry",
            Self::Accept => "accept",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Escalate => "escalate",
            Self::Cancel => "cancel",
        }
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a run stands. The last three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It is recorded and not yet begun.
    Created,
    /// A process works on it, or did until it died.
    Running,
    /// It was paused or interrupted, and can be resumed.
    Paused,
    /// Its root task completed.
    Completed,
    /// Its root task ended any other way.
    Failed,
    /// It was ended from outside.
    Aborted,
}

/// What moves a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunSignal {
    /// A process takes it up.
    Start,
    /// New work stops.
    Pause,
    /// Work goes on.
    Resume,
    /// The root task completed.
    Complete,
    /// The root task ended any other way.
    Fail,
    /// It is ended from outside.
    Abort,
}

impl RunState {
    /// Every state, in the order of a run's life.
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Running, Self::Paused, Self::Completed, Self::Failed, Self::Aborted];

    /// Returns the state that `signal` leads to.
    ///
    /// # Errors
    /// [`IllegalTransition`] when it leads nowhere from here.
    pub fn after(self, signal: RunSignal) -> Result<Self, IllegalTransition> {
        use {RunSignal::*, RunState::*};
        match (self, signal) {
            (Created, Start) => Ok(Running),
            (Running, Pause) => Ok(Paused),
            (Paused, RunSignal::Resume) => Ok(Running),
            (Running, Complete) => Ok(Completed),
            (Created | Running, Fail) => Ok(Failed),
            (Created | Running | Paused, Abort) => Ok(Aborted),
            // Names every state, so that a new one does not compile until it is placed above.
            (from @ (Created | Running | Paused | Completed | Failed | Aborted), signal) => {
                Err(IllegalTransition {
                    machine: "run",
                    from: from.as_str(),
                    signal: signal.as_str(),
                })
            }
        }
    }

    /// Tells whether the state is final.
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Aborted => true,
            Self::Created | Self::Running | Self::Paused => false,
        }
    }

    /// Returns the state's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        }
    }

    /// Returns the state of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl RunSignal {
    /// Returns the signal's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Abort => "abort",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a question to a person stands. All but the first are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InboxState {
    /// It waits.
    Pending,
    /// Somebody has answered.
    Answered,
    /// Somebody left it to whoever asked.
    Skipped,
    /// Somebody does not want what it is about at all.
    Rejected,
    /// Nobody has answered in time.
    Expired,
}

impl InboxState {
    /// Returns the state's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Skipped => "skipped",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for InboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a task was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Escalation {
    /// Its exit checks failed in every attempt it had.
    ChecksExhausted { attempts: u32, check: String },
    /// It, or one of its ancestors, has not enough left to go on.
    BudgetExhausted { detail: String },
    /// Its time was over.
    TimedOut { after: Span },
    /// The model would not answer, and would not at another try.
    ProviderFailed { detail: String },
    /// The model could not be reached, at whatever it is asked through; a later try may pass.
    Unreachable { detail: String },
    /// It repeated itself without getting anywhere.
    Stuck {
        /// By what pattern; logs of earlier versions do not tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pattern: Option<StuckPattern>,
        detail: String,
    },
    /// A child failed, and the task cannot do without it.
    ChildFailed { child: TaskName },
    /// Nobody knows whether an effect took place before the process died.
    OutcomeUnknown { detail: String },
    /// It kept asking for what its rules refuse.
    Refused { detail: String },
    /// Its body itself failed: a command ended badly, a native function returned an error.
    BodyFailed { detail: String },
    /// Its body cannot be begun as it stands, at no attempt: its prompt cannot be composed.
    CannotBegin { detail: String },
    /// The model of an agent that was to judge the work did not answer.
    Unjudged { detail: String },
    /// A check could not be run: nobody knows what it would have said of the work.
    CheckNotRun { check: String, detail: String },
    /// A service that the tasks need was not ready in time, or has ended and was started again as often as it may.
    ServiceFailed { service: ServiceName, detail: String },
    /// No worker was there that could carry out its calls.
    NoWorker { detail: String },
}

/// What kind of failure it is. The kind alone decides what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// It may pass by itself, as an outage does: tried again without using an attempt up, for as long as the task
    /// waits for that.
    Passing,
    /// The work itself failed: tried again while attempts are left, with the evidence.
    Work,
    /// The model goes round in circles: given up at once, because it would go on.
    Model,
    /// Dollars, calls or time are used up: given up at once.
    Budget,
    /// The rules refuse it, or a person does: given up at once.
    Policy,
    /// Something that it needs is missing or wrong: given up at once, because it would be at every attempt.
    Setup,
    /// A child failed that the task cannot do without: given up once the others have ended.
    Child,
    /// Nobody knows what took place: never done again without a person.
    Unknown,
}

impl Escalation {
    /// Returns what kind of failure it is.
    pub const fn class(&self) -> FailureClass {
        match self {
            Self::Unreachable { .. } => FailureClass::Passing,
            Self::BodyFailed { .. } | Self::ChecksExhausted { .. } => FailureClass::Work,
            Self::Stuck { .. } => FailureClass::Model,
            Self::BudgetExhausted { .. } | Self::TimedOut { .. } => FailureClass::Budget,
            Self::Refused { .. } => FailureClass::Policy,
            Self::ProviderFailed { .. }
            | Self::CannotBegin { .. }
            | Self::Unjudged { .. }
            | Self::CheckNotRun { .. }
            | Self::ServiceFailed { .. }
            | Self::NoWorker { .. } => FailureClass::Setup,
            Self::ChildFailed { .. } => FailureClass::Child,
            Self::OutcomeUnknown { .. } => FailureClass::Unknown,
        }
    }
}

impl fmt::Display for Escalation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChecksExhausted { attempts: 1, check } => {
                write!(f, "check {check:?} failed in the only attempt")
            }
            Self::ChecksExhausted { attempts, check } => {
                write!(f, "check {check:?} failed in the last of {attempts} attempts")
            }
            Self::BudgetExhausted { detail } => write!(f, "budget exhausted: {detail}"),
            Self::TimedOut { after } => write!(f, "timed out after {after}"),
            Self::ProviderFailed { detail } | Self::Unreachable { detail } => {
                write!(f, "model call failed: {detail}")
            }
            Self::Stuck { pattern: Some(pattern), detail } => {
                write!(f, "stuck: {pattern}: {detail}")
            }
            Self::Stuck { pattern: None, detail } => write!(f, "stuck: {detail}"),
            Self::ChildFailed { child } => write!(f, "task {child} failed"),
            Self::OutcomeUnknown { detail } => write!(f, "outcome unknown: {detail}"),
            Self::Refused { detail } => f.write_str(detail),
            Self::BodyFailed { detail }
            | Self::CannotBegin { detail }
            | Self::NoWorker { detail } => f.write_str(detail),
            Self::Unjudged { detail } => write!(f, "no reviewer answered: {detail}"),
            Self::ServiceFailed { service, detail } => write!(f, "service {service} {detail}"),
            Self::CheckNotRun { check, detail } => write!(
                f,
                "check {check:?} could not be run: {detail}; no work mends that: install what is missing, or set the check right"
            ),
        }
    }
}

/// Why a task was ended before its end, or never begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Cancellation {
    /// Somebody asked for it.
    Requested,
    /// A task that it depends on did not complete.
    DependencyFailed { task: TaskName },
    /// Its `when` was false: it is skipped, and what depends on it goes on.
    Skipped { condition: String },
    /// Its parent or its run ended first.
    ParentEnded,
}

impl fmt::Display for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("cancelled on request"),
            Self::DependencyFailed { task } => write!(f, "task {task} did not complete"),
            Self::Skipped { condition } => write!(f, "skipped: {condition} is false"),
            Self::ParentEnded => f.write_str("its parent ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_keeps_the_task_open() {
        let failed = TaskState::Postchecking.after(TaskSignal::Fail);

        assert_eq!(failed, Ok(TaskState::PostcheckFailed));
        assert_eq!(TaskState::PostcheckFailed.after(TaskSignal::Retry), Ok(TaskState::Active));
    }

    #[test]
    fn a_terminal_state_is_final() {
        for state in TaskState::ALL.into_iter().filter(|state| state.is_terminal()) {
            for signal in TaskSignal::ALL {
                assert!(state.after(signal).is_err(), "{state} moved on {}", signal.as_str());
            }
        }
    }

    #[test]
    fn every_open_state_can_be_cancelled_and_every_begun_one_escalated() {
        for state in TaskState::ALL.into_iter().filter(|state| !state.is_terminal()) {
            assert_eq!(state.after(TaskSignal::Cancel), Ok(TaskState::Cancelled));
            assert_eq!(
                state.after(TaskSignal::Escalate).is_ok(),
                state != TaskState::Created,
                "{state}"
            );
        }
    }

    #[test]
    fn an_illegal_transition_names_all_three() {
        let error = TaskState::Created.after(TaskSignal::End).unwrap_err();

        assert_eq!(error.to_string(), "task cannot end while it is created");
    }

    #[test]
    fn a_run_pauses_and_goes_on_and_ends_once() {
        assert_eq!(RunState::Running.after(RunSignal::Pause), Ok(RunState::Paused));
        assert_eq!(RunState::Paused.after(RunSignal::Resume), Ok(RunState::Running));
        assert!(RunState::Completed.after(RunSignal::Abort).is_err());
        assert!(RunState::Paused.after(RunSignal::Complete).is_err());
    }

    #[test]
    fn a_name_leads_back_to_its_state() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::from_name(state.as_str()), Some(state));
        }
        for state in RunState::ALL {
            assert_eq!(RunState::from_name(state.as_str()), Some(state));
        }
    }
}
