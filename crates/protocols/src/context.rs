//! What is done to a conversation so that it fits its model's window.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{event::BlobHash, id::SessionId, money::Usd};

/// Data of `context.compacted`: a conversation was made shorter before a model was asked.
///
/// What was said stays in the log as it was. Whoever takes the conversation up does the same `edits` to it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextCompacted {
    /// The conversation.
    pub session: SessionId,
    /// Why.
    pub cause: CompactionCause,
    /// How many tokens the request was thought to have.
    pub before: u64,
    /// How many it is thought to have now.
    pub after: u64,
    /// How many the window has room for, besides the answer, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// Results left out because a later one says the same or more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub superseded: u32,
    /// Results of which only the beginning and the end are shown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spilled: u32,
    /// Groups of messages that a summary stands for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub summarised: u32,
    /// Blocks that the provider refused and a marker stands for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub masked: u32,
    /// Tokens behind the first change, which no provider has in its cache any more.
    pub rebilled_tokens: u64,
    /// What these cost more than from the cache.
    pub rebilled: Usd,
    /// What was changed, by the hash of its JSON: a list of [`ContextEdit`]. None where a new conversation goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<BlobHash>,
    /// The conversation that goes on in its place, with a brief of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<SessionId>,
}

impl std::fmt::Display for ContextCompacted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "context: {} → {} tokens", self.before, self.after)?;
        let mut parts = Vec::new();
        let mut part = |count: u32, one: &str, many: &str| match count {
            0 => {}
            1 => parts.push(format!("1 {one}")),
            count => parts.push(format!("{count} {many}")),
        };
        part(self.superseded, "result superseded", "results superseded");
        part(self.spilled, "result cut", "results cut");
        part(self.summarised, "group of messages summed up", "groups of messages summed up");
        part(self.masked, "block masked that was refused", "blocks masked that were refused");
        if self.handed_over.is_some() {
            parts.push("goes on in a new conversation".to_owned());
        }
        if !parts.is_empty() {
            write!(f, ": {}", parts.join(", "))?;
        }
        if self.rebilled > Usd::ZERO {
            write!(f, "; {} tokens sent anew, ${}", self.rebilled_tokens, self.rebilled)?;
        }
        Ok(())
    }
}

const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why a conversation was made shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionCause {
    /// The window was nearly full.
    Window,
    /// The server said that it was full.
    Overflow,
    /// Somebody asked for it.
    Asked,
    /// The provider refused something of it.
    Refused,
    /// It had more pictures than a request may carry.
    Pictures,
}

/// One change of a conversation. A group of messages is known by the place of its first message in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "edit", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum ContextEdit {
    /// The result at a place among those of a group reads otherwise.
    Result { group: u32, result: u32, content: String },
    /// One message stands for all groups from the one at `from` to the one at `through`.
    Summary { from: u32, through: u32, content: String },
}

/// What a model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Purpose {
    /// The next answer of a conversation.
    #[default]
    Turn,
    /// A summary of what was said, by a cheap model.
    Summary,
}

impl Purpose {
    /// Tells whether it is the ordinary one.
    pub const fn is_turn(&self) -> bool {
        matches!(self, Self::Turn)
    }
}
