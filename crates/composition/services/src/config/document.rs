//! The config document.

use std::collections::BTreeMap;

use formwork_protocols::{
    Budget, CategoryName, ModelRef, PermissionMode, Price, ProviderName, Span,
    document::{DocumentType, Reserved},
    model::ToolCalls,
};
use formwork_secrets::{SecretName, Source};
use formwork_transport::{Clocks, ProviderKind, RetryPolicy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A config, or one layer of it. What a layer does not say, the layers below it say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the log is: `sqlite:///path/to/file` or `postgres://…`. SQLite in the state folder where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_url: Option<String>,
    /// The endpoints that models are asked at, by the name that models are prefixed with.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub providers: BTreeMap<ProviderName, ProviderConfig>,
    /// What is known of models beyond the catalogue; the operator's word wins.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<ModelRef, ModelConfig>,
    /// What tools may be given as `{{secret:NAME}}`, and where each comes from. Never the secret itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<SecretName, Source>,
    /// What agents ask for, mapped to what is there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<CategoryName, ModelRef>,
    /// The caps of every run unless it says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What agents may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// Whether processes are confined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
    /// Programs that are asked about calls, those of every layer one after the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookConfig>,
    /// What of the repository's own instructions agents are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<InstructionsConfig>,
}

/// What of a repository's own instructions agents are told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InstructionsConfig {
    /// The names of instruction files. In each folder on the way to a file at hand the first that is there counts.
    /// `AGENTS.md` where absent; none for an empty list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
    /// How many tokens of them one conversation is told at the most, and never more than an eighth of its window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u32>,
}

/// A program that is asked about calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// When it is asked.
    pub event: HookEvent,
    /// About which tools: a name, a `namespace.*`, a `#tag` or `*`. All where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The program and its arguments. It is run in the workspace, and reads the call as JSON on its standard input.
    pub command: Vec<String>,
    /// How long it may take; ten seconds where absent. One that takes longer has denied the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookEvent {
    /// Before a call that the rules allow or leave open: a gate, which allows only by saying so.
    #[serde(rename = "tool.before")]
    ToolBefore,
}

impl HookEvent {
    /// Returns its name, as it is written and told to the program.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolBefore => "tool.before",
        }
    }
}

/// An endpoint at which models are asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The wire that it speaks.
    pub kind: ProviderKind,
    /// Its address; that of the provider itself where it has one and this is absent. For `scripted`, the
    /// path of the script; for `recorded`, the folder of the recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Where its key comes from. Never the key itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Source>,
    /// How long each part of a call may take. A cold local model may need minutes for its first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// How often a call is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
}

/// What is known of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// How many tokens fit its window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// How many tokens it may answer with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// What it costs: `"local"` for nothing, or dollars per million tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceConfig>,
    /// How it takes tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<ToolCallsConfig>,
    /// The models that are asked in its place, in this order, where it has spent its tries, has no money left or
    /// is not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<ModelRef>,
}

/// How a model takes tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallsConfig {
    /// By the wire's own means.
    Native,
    /// As text that is recognised: the tools are described in its prompt.
    Text,
    /// Not at all: it is offered none.
    None,
}

impl ToolCallsConfig {
    /// Returns the same in the words of a model call.
    pub const fn tool_calls(self) -> ToolCalls {
        match self {
            Self::Native => ToolCalls::Native,
            Self::Text => ToolCalls::Text,
            Self::None => ToolCalls::None,
        }
    }
}

/// What a model costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PriceConfig {
    /// A word for a price.
    Word(PriceWord),
    /// Dollars per million tokens of each class.
    PerMillion(Price),
}

/// A word for a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PriceWord {
    /// It runs on one's own machine and costs nothing.
    Local,
}

impl PriceConfig {
    /// Returns the price.
    pub const fn price(self) -> Price {
        match self {
            Self::Word(PriceWord::Local) => Price::LOCAL,
            Self::PerMillion(price) => price,
        }
    }
}

/// What agents may do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Permissions {
    /// How much: `ask` reads, `plan` plans, `edit` writes in scope, `auto` does what is not refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
    /// The folders and globs that may be written, from the root of the workspace. All where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Vec<String>>,
    /// The commands that may run, such as `cargo test *`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<Vec<String>>,
    /// Whether agents may run texts of shell, each command of which is judged like any other. They may not where
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell: Option<bool>,
}

/// Whether processes are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxMode {
    /// They are, or the run does not begin.
    #[default]
    On,
    /// They are where the machine can, and the run says so where it cannot.
    Auto,
    /// They are not.
    Off,
}

impl DocumentType for Config {
    const NAME: &'static str = "config";

    fn reserved() -> &'static [Reserved] {
        const RESERVED: &[Reserved] = &[
            Reserved::key("autonomy"),
            Reserved::key("mcp"),
            Reserved::key("permissions.network"),
        ];
        RESERVED
    }
}
