//! Data of the events of tool calls, and of what programs did meanwhile.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::{Approval, Cover},
    event::BlobHash,
    id::{CallId, SessionId, WorkerName},
    message::Attachment,
    time::Span,
    tool::{Replay, ToolClass, ToolErrorKind},
};

/// Data of `tool.asked`: a question that is open until a `tool.decided` of the same call. One that its process
/// took to its grave is asked again under the same pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolAsked {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// The tool's name.
    pub tool: String,
    /// What the tool does to the world.
    pub class: ToolClass,
    /// The arguments, with placeholders where secrets go in. Long ones are cut for the record.
    pub arguments: Value,
    /// Why it is asked.
    pub why: String,
    /// What covers this very call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Cover>,
    /// What covers the calls like it, where there is a sensible bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<Cover>,
}

/// Data of `tool.answered`: what somebody says who is not at the terminal of the run. Whoever works on the run takes it
/// for the answer, which it records as `tool.decided`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolAnswered {
    /// The call that was asked about.
    pub call: CallId,
    /// The answer.
    #[serde(flatten)]
    pub approval: Approval,
}

/// Data of `tool.decided`: the answer. The event's principal is whoever decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDecided {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// What was decided.
    #[serde(flatten)]
    pub approval: Approval,
}

/// Data of `tool.gated`: what one gate answered. The rules had not refused the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolGated {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// The tool's name.
    pub tool: String,
    /// The gate: its program and the arguments of that.
    pub gate: String,
    /// What it answered.
    #[serde(flatten)]
    pub answer: GateAnswer,
    /// How long it took.
    pub elapsed: Span,
}

/// What a gate answers about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GateAnswer {
    /// The call may be made.
    Allow,
    /// A person has to be asked.
    Ask {
        /// Why.
        reason: String,
    },
    /// The call may not be made: it said so, or it failed.
    Deny {
        /// Why.
        reason: String,
    },
    /// The call may be made with other arguments, if the rules allow those.
    Replace {
        /// The arguments, whole, by their hash.
        arguments: BlobHash,
    },
}

/// Data of `note.added`; the event's principal is whoever wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoteAdded {
    /// The call that added it.
    pub call: CallId,
    /// What it says.
    pub text: String,
}

/// Data of `hook.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookFailed {
    /// The program and its arguments.
    pub hook: String,
    /// What it was told of, such as `tool.after`.
    pub event: String,
    /// The event that it did not take, by its place in the run.
    pub seq: u64,
    /// What went wrong.
    pub reason: String,
}

/// Data of `network.refused`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRefused {
    /// The program that was run. What it started is part of it.
    pub program: String,
    /// Where it wanted to connect to, as `host:port`; empty where it did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Why it may not.
    pub reason: String,
}

impl fmt::Display for NetworkRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to.as_str() {
            "" => write!(f, "{} was refused a connection: {}", self.program, self.reason),
            to => write!(f, "{} was refused a connection to {to}: {}", self.program, self.reason),
        }
    }
}

/// Data of `tool.requested`: the intent, durable before the effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRequested {
    /// The call, by Formwork's own id.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The call, by the id that pairs it in the conversation.
    pub pair: String,
    /// The tool's name, as the model wrote it.
    pub tool: String,
    /// The arguments, with placeholders where secrets go in. Long ones are cut for the record.
    pub arguments: Value,
    /// What the tool does to the world; none where there is no such tool.
    pub class: Option<ToolClass>,
    /// What a crash in the middle of it means.
    pub replay: Replay,
    /// The paths of the workspace that it may change, from the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Whether it is carried out: the policy's decision and its reason.
    pub decision: Decided,
}

/// What the pipeline decided about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant names its field")]
pub enum Decided {
    /// It is carried out.
    Allowed,
    /// It is refused.
    Refused { reason: String },
}

/// Data of `tool.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCompleted {
    /// The call.
    pub call: CallId,
    /// What the model sees of the output.
    pub preview: String,
    /// The whole output, by its hash.
    pub output: BlobHash,
    /// How many bytes the whole output has.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Span,
    /// Where the output came from, where that is not this workspace: nobody vouches for what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// The pictures that it shows the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
    /// The worker that carried it out, where it was not done here. Boxed, since it seldom is and events are to be small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Box<WorkerName>>,
}

/// Data of `tool.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFailed {
    /// The call.
    pub call: CallId,
    /// What kind of failure it is.
    pub error: ToolErrorKind,
    /// What the model sees of it.
    pub message: String,
    /// How long it took.
    pub elapsed: Span,
    /// Where what is quoted came from, where that is not this workspace: nobody vouches for what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<String>,
    /// The worker that was to carry it out, where it was not done here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
}
