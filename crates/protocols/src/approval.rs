//! Asking whether a call may be made that the rules leave open.
//!
//! The pipeline asks, an [`Approver`] answers: a person at a terminal, a conversation, an inbox, or nobody.
//! Each question and each answer is an event, so that one that is open can be seen and is asked again by
//! whoever takes the run up.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    cancel::Cancel,
    event::BlobHash,
    id::{Principal, ToolName},
    tool::{CallContext, ToolClass},
};

/// A call that nobody has allowed or refused yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// Where the call belongs.
    pub context: CallContext,
    /// The tool.
    pub tool: ToolName,
    /// What it does to the world.
    pub class: ToolClass,
    /// The arguments, whole and without secrets: what is approved is this and nothing else.
    pub arguments: Value,
    /// Why it is asked.
    pub why: String,
    /// The very call.
    pub exact: Cover,
    /// The calls like it that an approval may cover as well, where there is a sensible bound.
    pub alike: Option<Cover>,
}

/// The calls that an approval covers. It never reaches past a denial of the rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "cover", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Cover {
    /// One call: the tool with these very arguments.
    Call {
        /// The tool.
        tool: ToolName,
        /// The hash of the arguments in their canonical form.
        arguments: BlobHash,
    },
    /// Each command that matches a pattern, as those of `permissions.exec`.
    Commands {
        /// The pattern.
        pattern: String,
    },
    /// Each request to a host by its name.
    Host {
        /// The name, without a port.
        host: String,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "approval", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Approval {
    /// This call may be made, and the next one is asked about again.
    Once,
    /// It may be made, and what is covered with it until the conversation ends.
    Session {
        /// What is covered.
        covers: Cover,
    },
    /// It may be made, and what is covered with it in this workspace until somebody takes that back.
    Rule {
        /// What is covered.
        covers: Cover,
    },
    /// It may not be made.
    Denied {
        /// Why, and what to do instead: the model reads it.
        reason: String,
    },
}

/// An answer, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What is answered.
    pub approval: Approval,
    /// Who answers.
    pub by: Principal,
}

/// Answers for the calls that the rules leave open. Questions may overlap.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Asks about a call and waits for the answer; none when `cancel` was raised before there was one.
    ///
    /// Cancel safe: a question whose future is dropped is taken back, and approves nothing.
    async fn ask(&self, request: &ApprovalRequest, cancel: &Cancel) -> Option<Answer>;
}
