//! What a conversation has to keep to besides its limits, and how it gets stuck.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a conversation has to keep to. Where it does not, the model is told so, a few times; then it is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionRules {
    /// The fewest tool calls that have ended well before its word is taken that it is done.
    pub min_tool_calls: u32,
    /// Whether it answers from what it was told, without any call: none is then made.
    pub expects_zero_calls: bool,
    /// How often the model is told that it does not keep to these two before the conversation is ended.
    #[schemars(range(max = 20))]
    pub reprompts: u32,
    /// Where it says that it is done before so many calls have ended well, it is asked once whether it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub early_bail: Option<u32>,
    /// After so many turns of calls that change nothing it is asked to begin with the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub write_pressure: Option<u32>,
    /// When it counts as stuck, besides the same calls over and over.
    pub stuck: StuckRules,
}

impl Default for SessionRules {
    /// No rule and no policy; two reprompts for what has one.
    fn default() -> Self {
        Self {
            min_tool_calls: 0,
            expects_zero_calls: false,
            reprompts: 2,
            early_bail: None,
            write_pressure: None,
            stuck: StuckRules::default(),
        }
    }
}

impl SessionRules {
    /// Says what is wrong with rules that no conversation can keep to; its key and why.
    ///
    /// # Errors
    /// The key within the rules, and what was wanted.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.expects_zero_calls && self.min_tool_calls > 0 {
            let why = "wanted no calls at all or a fewest number of them, found both";
            return Err(("min_tool_calls", why.to_owned()));
        }
        let policies = [("early_bail", self.early_bail), ("write_pressure", self.write_pressure)];
        let clash = policies.into_iter().find(|(_, at)| self.expects_zero_calls && at.is_some());
        if let Some((key, _)) = clash {
            return Err((key, "wanted nothing here, since no calls are expected".to_owned()));
        }
        let limits = [
            ("early_bail", self.early_bail),
            ("write_pressure", self.write_pressure),
            ("stuck/monologue", self.stuck.monologue),
            ("stuck/errors", self.stuck.errors),
            ("stuck/no_artifact", self.stuck.no_artifact),
        ];
        match limits.into_iter().find(|(_, at)| *at == Some(0)) {
            Some((key, _)) => Err((key, "wanted 1 or more, found 0".to_owned())),
            None if self.reprompts > MAX_REPROMPTS => Err((
                "reprompts",
                format!("wanted at most {MAX_REPROMPTS}, found {}", self.reprompts),
            )),
            None => Ok(()),
        }
    }
}

/// The most reprompts: what did not help so often will not.
const MAX_REPROMPTS: u32 = 20;

/// When a conversation counts as stuck, in turns of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StuckRules {
    /// So many answers in a row call nothing, though there are tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub monologue: Option<u32>,
    /// So many turns in a row bring nothing but the same error of the same tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub errors: Option<u32>,
    /// So many turns of calls have changed nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub no_artifact: Option<u32>,
}

impl Default for StuckRules {
    /// Eight answers of words alone, six times the same error; who only looks may do so as long as it likes.
    fn default() -> Self {
        Self { monologue: Some(8), errors: Some(6), no_artifact: None }
    }
}

/// How a conversation got stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StuckPattern {
    /// The same call was repeated although it was refused.
    RepeatedCall,
    /// The same turns came one after the other, over and over.
    PingPong,
    /// Answers called only what does not exist or cannot be read.
    UnusableCalls,
    /// Answers were cut before their end, over and over.
    CutAnswers,
    /// It wrote its calls as text.
    ProseCalls,
    /// It talked and called nothing.
    Monologue,
    /// The same error came over and over.
    RepeatedErrors,
    /// It changed nothing.
    NoArtifact,
}

impl StuckPattern {
    /// Returns its name, as it is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RepeatedCall => "repeated call",
            Self::PingPong => "ping-pong",
            Self::UnusableCalls => "unusable calls",
            Self::CutAnswers => "cut answers",
            Self::ProseCalls => "prose calls",
            Self::Monologue => "monologue",
            Self::RepeatedErrors => "repeated errors",
            Self::NoArtifact => "no artifact",
        }
    }
}

impl fmt::Display for StuckPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A rule or policy by which a model is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionRule {
    /// See [`SessionRules::min_tool_calls`].
    MinToolCalls,
    /// See [`SessionRules::expects_zero_calls`].
    ExpectsZeroCalls,
    /// See [`SessionRules::early_bail`].
    EarlyBail,
    /// See [`SessionRules::write_pressure`].
    WritePressure,
}

impl SessionRule {
    /// Returns the key by which it is set.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MinToolCalls => "min_tool_calls",
            Self::ExpectsZeroCalls => "expects_zero_calls",
            Self::EarlyBail => "early_bail",
            Self::WritePressure => "write_pressure",
        }
    }

    /// Tells whether the conversation is ended that does not keep to it.
    pub const fn is_binding(self) -> bool {
        matches!(self, Self::MinToolCalls | Self::ExpectsZeroCalls)
    }
}

impl fmt::Display for SessionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_no_conversation_can_keep_to_are_named_by_their_key() {
        let both =
            SessionRules { min_tool_calls: 1, expects_zero_calls: true, ..SessionRules::default() };
        let zero = SessionRules { write_pressure: Some(0), ..SessionRules::default() };
        let many = SessionRules { reprompts: 21, ..SessionRules::default() };
        let pressed = SessionRules {
            expects_zero_calls: true,
            write_pressure: Some(3),
            ..SessionRules::default()
        };

        let key = |rules: SessionRules| rules.check().unwrap_err().0;
        assert_eq!(
            [key(both), key(zero), key(many), key(pressed)],
            ["min_tool_calls", "write_pressure", "reprompts", "write_pressure"]
        );
        assert_eq!(SessionRules::default().check(), Ok(()));
    }
}
