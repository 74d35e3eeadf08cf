//! How tasks and runs end.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    budget::Usage,
    check::Verdict,
    id::{RunId, TaskId, TaskName},
    money::Usd,
    state::{Cancellation, Escalation, TaskState},
    time::Span,
};

/// What a body says of itself at its end. It is a claim until the exit checks have passed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Claim {
    /// What was done, in the body's own words.
    pub summary: String,
    /// The structured result, for later tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// Why a task ended as it did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "end", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Ending {
    /// Its exit checks passed.
    Completed,
    /// An entry check failed, and nothing of its body ran.
    PrecheckFailed { check: String },
    /// It was given up.
    Escalated { why: Escalation },
    /// It was ended before its end, or never begun.
    Cancelled { why: Cancellation },
}

impl Ending {
    /// Returns the terminal state of a task that ended so.
    pub const fn state(&self) -> TaskState {
        match self {
            Self::Completed => TaskState::Completed,
            Self::PrecheckFailed { .. } => TaskState::PrecheckFailed,
            Self::Escalated { .. } => TaskState::Escalated,
            Self::Cancelled { .. } => TaskState::Cancelled,
        }
    }

    /// Tells whether what depends on the task may go on: it completed, or was skipped.
    pub const fn satisfies(&self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled { why: Cancellation::Skipped { .. } })
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::PrecheckFailed { check } => write!(f, "entry check {check:?} failed"),
            Self::Escalated { why } => why.fmt(f),
            Self::Cancelled { why } => why.fmt(f),
        }
    }
}

/// What a parent always receives of a child: how it ended, what it made, and the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct TaskOutcome {
    pub task: TaskId,
    pub name: TaskName,
    pub ending: Ending,
    /// What its body claimed last: the result if it completed, partial work otherwise.
    pub claim: Option<Claim>,
    /// The verdicts of the checks of its last phase.
    pub verdicts: Vec<Verdict>,
    pub attempts: u32,
    /// What the subtree cost.
    pub cost: Usd,
    /// What the subtree used.
    pub usage: Usage,
    pub files_changed: u64,
    pub elapsed: Span,
}

/// The one word for how a run ended, whatever the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutcomeCode {
    /// The work is done, and checked.
    Completed,
    /// A gate, a check, a budget or a review said no.
    Refused,
    /// Something that the run needs is missing or wrong: config, a model, a sandbox.
    Setup,
    /// The command line was wrong.
    Usage,
    /// It was stopped by a person; it can be resumed.
    Interrupted,
    /// Anything else.
    Failed,
}

impl OutcomeCode {
    /// Returns the code's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Refused => "refused",
            Self::Setup => "setup",
            Self::Usage => "usage",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }

    /// Returns the exit code of a program that ends so.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Refused => 2,
            Self::Setup => 3,
            Self::Usage => 64,
            Self::Interrupted => 130,
        }
    }

    /// Returns the code of a run whose root task ended so.
    pub const fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Completed => Self::Completed,
            Ending::PrecheckFailed { .. } => Self::Refused,
            Ending::Escalated { why } => match why {
                Escalation::ChecksExhausted { .. }
                | Escalation::BudgetExhausted { .. }
                | Escalation::Refused { .. }
                | Escalation::Stuck { .. }
                | Escalation::ChildFailed { .. } => Self::Refused,
                // As a model or a sandbox that is missing from the start.
                Escalation::Unjudged { .. }
                | Escalation::CheckNotRun { .. }
                | Escalation::ServiceFailed { .. }
                | Escalation::NoWorker { .. } => Self::Setup,
                Escalation::TimedOut { .. }
                | Escalation::ProviderFailed { .. }
                | Escalation::Unreachable { .. }
                | Escalation::OutcomeUnknown { .. }
                | Escalation::BodyFailed { .. }
                | Escalation::CannotBegin { .. } => Self::Failed,
            },
            Ending::Cancelled { why } => match why {
                Cancellation::Requested | Cancellation::ParentEnded => Self::Interrupted,
                Cancellation::DependencyFailed { .. } => Self::Refused,
                Cancellation::Skipped { .. } => Self::Completed,
            },
        }
    }
}

impl fmt::Display for OutcomeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a run ended: one code, one line, one exit code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct RunOutcome {
    pub run: RunId,
    pub code: OutcomeCode,
    /// Why, in one line without a full stop.
    pub reason: String,
    /// Model calls.
    pub rounds: u32,
    pub usage: Usage,
    pub cost: Usd,
    pub files_changed: u64,
    /// Whether more were changed than were told one by one, and so counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_files: bool,
    pub elapsed: Span,
    /// Whether any model of the run was a script.
    pub scripted: bool,
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = match (self.files_changed, self.more_files) {
            (_, true) => "and more files",
            (1, false) => "file",
            (_, false) => "files",
        };
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        write!(
            f,
            "{}: {} · {} {rounds} · {} tokens · ${} · {} {files} changed · run {}",
            self.code,
            self.reason,
            self.rounds,
            self.usage.total(),
            self.cost,
            self.files_changed,
            self.run,
        )?;
        if self.scripted {
            f.write_str(" · scripted model")?;
        }
        Ok(())
    }
}
