//! Data of the events of model calls.

use std::ops::Add;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    budget::Usage,
    context::Purpose,
    event::{BlobHash, session::is_zero},
    id::{CallId, ModelRef, SessionId},
    model::{ProviderError, ServedBy, StopReason},
    money::Usd,
    time::Span,
};

/// Data of `model.requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRequested {
    /// What it is told behind the conversation: what is left to its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// The call.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The model that is asked.
    pub model: ModelRef,
    /// How many messages of the conversation are sent.
    pub messages: u32,
    /// How many tokens they are thought to have, never to be short of the truth.
    pub input_tokens_estimated: u64,
    /// The bare measure that the estimate was made from, by which later ones are calibrated.
    #[serde(default)]
    pub measure: u64,
    /// The most tokens that the answer may have.
    pub max_output_tokens: u32,
    /// What it is asked for.
    #[serde(default, skip_serializing_if = "Purpose::is_turn")]
    pub purpose: Purpose,
    /// How many images and documents of the conversation it was told of in words alone, because it takes none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen: u32,
}

/// Data of `model.retried`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRetried {
    /// The call.
    pub call: CallId,
    /// Which try failed, from 1.
    pub attempt: u32,
    /// How long the next one waits.
    pub wait: Span,
    /// How it failed.
    #[schemars(with = "Value")]
    pub error: ProviderError,
    /// What it used in vain. The call's reservation has grown by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
}

/// What tries of a model call used that brought no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// The tokens.
    pub usage: Usage,
    /// What they cost, at the price of the model that was asked.
    pub cost: Usd,
    /// Whether any of it was estimated.
    pub estimated: bool,
}

impl Add for Lost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            usage: self.usage + other.usage,
            cost: self.cost.saturating_add(other.cost),
            estimated: self.estimated || other.estimated,
        }
    }
}

/// Data of `model.fell_back`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFellBack {
    /// The call.
    pub call: CallId,
    /// The model that gave up.
    pub from: ModelRef,
    /// The model that is asked in its place, by whose price the call is billed.
    pub to: ModelRef,
    /// How the first failed.
    #[schemars(with = "Value")]
    pub error: ProviderError,
    /// What its last try used in vain, at its own price. The call's reservation has grown by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
}

/// Data of `model.completed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCompleted {
    /// The call.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The model that was asked.
    pub model: ModelRef,
    /// Who really answered.
    pub served_by: ServedBy,
    /// Why the answer ended.
    pub stop: StopReason,
    /// What the answer used.
    pub usage: Usage,
    /// Whether the usage is an estimate.
    pub usage_estimated: bool,
    /// What the provider counted, where that cannot be: more than what was sent or what came could have, so that it was
    /// estimated instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_doubted: Option<Usage>,
    /// What the answer cost.
    pub cost: Usd,
    /// What the tries before it used in vain, besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// How many tries it took.
    pub tries: u32,
    /// The time to the first event with content.
    pub first_token: Option<Span>,
    /// The time to the end.
    pub elapsed: Span,
    /// How many events of the stream could not be read.
    pub undecodable: u32,
    /// What it was asked for.
    #[serde(default, skip_serializing_if = "Purpose::is_turn")]
    pub purpose: Purpose,
    /// The canonical JSON of the answer, by its hash, where it is no message of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<BlobHash>,
}

/// Data of `model.failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelFailed {
    /// The call.
    pub call: CallId,
    /// The conversation.
    pub session: SessionId,
    /// The model that was asked.
    pub model: ModelRef,
    /// How it failed.
    #[schemars(with = "Value")]
    pub error: ProviderError,
    /// What all of its tries used in vain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// Whether another try was to follow that no budget could bear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unaffordable: bool,
    /// What it had said before it was cancelled: a message, by its hash. It is no part of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<BlobHash>,
}
