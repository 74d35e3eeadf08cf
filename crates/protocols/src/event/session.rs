//! Data of the events of conversations.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::BlobHash,
    id::{AgentName, CallId, ModelRef, SessionId},
    message::Role,
    rules::SessionRule,
};

/// Data of `session.started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionStarted {
    /// The conversation.
    pub session: SessionId,
    /// Who speaks for the model.
    pub agent: AgentName,
    /// The model that is asked.
    pub model: ModelRef,
    /// The content hash of everything that shapes the agent.
    pub agent_version: String,
    /// The tools that are offered at its start.
    pub tools: Vec<String>,
    /// The conversation that goes on in this one, of this run or of an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<SessionId>,
    /// How many messages were taken over from it, word for word. What is asked comes after them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried: u32,
    /// What its provider counted last: the measure of a request, and its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<(u64, u64)>,
    /// The tool call that it answers, where another conversation asks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// Data of `instructions.loaded`; the message that tells them comes next, or they stand in the system message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstructionsLoaded {
    /// The conversation.
    pub session: SessionId,
    /// The file, from the root of the workspace.
    pub path: String,
    /// The hash of its text with what it includes.
    pub hash: BlobHash,
    /// How many bytes that text has.
    pub bytes: u64,
    /// Whether only a part of it was told.
    pub cut: bool,
}

/// Data of `run.steered`; the event's principal is who says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunSteered {
    /// What is said.
    pub text: String,
}

/// Data of `session.steered`: the message comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSteered {
    /// The conversation.
    pub session: SessionId,
    /// The event by which it was said, by its place in the run.
    pub request: u64,
    /// The place of the message in the conversation.
    pub index: u32,
}

/// Data of `session.reprompted`: the message comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReprompted {
    /// The conversation.
    pub session: SessionId,
    /// What it does not keep to.
    pub rule: SessionRule,
    /// What was found, in a few words.
    pub detail: String,
    /// Which reprompt it is, from 1.
    pub number: u32,
    /// How many there are at the most; none for a policy, which is told and not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// The place of the message in the conversation.
    pub index: u32,
}

impl fmt::Display for SessionReprompted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) => {
                write!(f, "reprompted {} of {most}: {}: {}", self.number, self.rule, self.detail)
            }
            None => write!(f, "nudged: {}: {}", self.rule, self.detail),
        }
    }
}

pub(super) const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Data of `session.message`: the message itself is a blob, stored once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionMessage {
    /// The conversation.
    pub session: SessionId,
    /// Its place in the conversation, from 0.
    pub index: u32,
    /// Who speaks.
    pub role: Role,
    /// The canonical JSON of the message, by its hash.
    pub message: BlobHash,
    /// The bytes of the images and documents of the message, by their hashes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<BlobHash>,
}

/// Data of `session.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionEnded {
    /// The conversation.
    pub session: SessionId,
    /// In one line, why it ended.
    pub reason: String,
}
