//! The config document.

use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use formwork_policy::ToolPatterns;
use formwork_protocols::{
    Budget, CategoryName, ModelRef, PermissionMode, Price, ProviderName, Span,
    document::{DocumentType, Reserved},
    model::ToolCalls,
};
use formwork_secrets::{SecretName, Source};
use formwork_transport::{Clocks, ProviderKind, RetryPolicy};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

/// A config, or one layer of it. What a layer does not say, the layers below it say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the log is: `sqlite:///path/to/file` or `postgres://…`. SQLite in the state folder where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_url: Option<String>,
    /// How long a run waits, all times together, for a log that is away: held by another process, on a full disk, on a server
    /// that is not there. 10 minutes where absent; with `0s` it stops at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_wait: Option<Span>,
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
    /// How much programs may use, where they are confined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<ProgramsConfig>,
    /// Programs that are asked about calls or told of what happens, those of every layer one after the other.
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

/// A program that is asked about calls, or told of what has happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// When it is asked.
    pub event: HookEvent,
    /// About which tools, for an event of a tool: a name, a `namespace.*`, a `#tag` or `*`. All where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The program and its arguments. It is run in the workspace, and reads the call or the event as JSON on its standard
    /// input.
    pub command: Vec<String>,
    /// How long it may take; ten seconds where absent. A gate that takes longer has denied the call.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
}

impl HookConfig {
    /// Says whether it names a program, and tools that there can be; or which key does not, why, and what to write instead.
    ///
    /// # Errors
    /// The key, what is wrong with it, and what to write instead.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String, Option<&'static str>)> {
        let is_named = self.command.first().is_some_and(|program| !program.trim().is_empty());
        if !is_named {
            return Err(("command", "its command names no program".to_owned(), None));
        }
        match &self.tools {
            // A gate of no tools would let everything pass.
            Some(tools) if tools.is_empty() => {
                let hint = "name tools, as in [\"exec\"], or leave the key out for all of them";
                Err(("tools", "a hook about no tools is never asked".to_owned(), Some(hint)))
            }
            Some(tools) => match ToolPatterns::parse(tools) {
                Err(error) => Err(("tools", error.to_string(), None)),
                Ok(_) => Ok(()),
            },
            None => Ok(()),
        }
    }
}

/// When a hook is asked or told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookEvent {
    /// Before a call that the rules allow or leave open: a gate, which allows only by saying so.
    #[serde(rename = "tool.before")]
    ToolBefore,
    /// After a call of a tool, however it ended. This and all that follow are observers: they hold nothing up.
    #[serde(rename = "tool.after")]
    ToolAfter,
    /// After a check has decided.
    #[serde(rename = "check.after")]
    CheckAfter,
    /// Once a run has begun.
    #[serde(rename = "run.started")]
    RunStarted,
    /// Once a run is paused.
    #[serde(rename = "run.paused")]
    RunPaused,
    /// Once a run goes on that was paused or broken off.
    #[serde(rename = "run.resumed")]
    RunResumed,
    /// Once a run has ended.
    #[serde(rename = "run.finished")]
    RunFinished,
    /// Once a conversation has begun.
    #[serde(rename = "session.started")]
    SessionStarted,
    /// Once a conversation has ended.
    #[serde(rename = "session.ended")]
    SessionEnded,
}

impl HookEvent {
    /// Returns its name, as it is written and told to the program.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolBefore => "tool.before",
            Self::ToolAfter => "tool.after",
            Self::CheckAfter => "check.after",
            Self::RunStarted => "run.started",
            Self::RunPaused => "run.paused",
            Self::RunResumed => "run.resumed",
            Self::RunFinished => "run.finished",
            Self::SessionStarted => "session.started",
            Self::SessionEnded => "session.ended",
        }
    }

    /// Tells whether whoever is asked decides, and does not only watch.
    pub const fn is_gate(self) -> bool {
        matches!(self, Self::ToolBefore)
    }

    /// Returns the kinds of events of the log that it stands for; none for a gate.
    pub(crate) const fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::ToolBefore => &[],
            Self::ToolAfter => &["tool.completed", "tool.failed"],
            Self::CheckAfter => &["check.finished"],
            Self::RunStarted => &["run.started"],
            Self::RunPaused => &["run.paused"],
            Self::RunResumed => &["run.resumed"],
            Self::RunFinished => &["run.finished"],
            Self::SessionStarted => &["session.started"],
            Self::SessionEnded => &["session.ended"],
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
    /// Whether it takes images. Its server is asked otherwise, if that can tell; who knows nothing sends them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
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

/// Tells what is wrong with the one that was meant, where a derived one would only say that it is neither.
impl<'de> Deserialize<'de> for PriceConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = PriceConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"local\", or a table as { input = \"3\", output = \"15\" }")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<PriceConfig, E> {
                match word {
                    "local" => Ok(PriceConfig::Word(PriceWord::Local)),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PriceConfig, A::Error> {
                Price::deserialize(MapAccessDeserializer::new(map)).map(PriceConfig::PerMillion)
            }
        }

        deserializer.deserialize_any(Either)
    }
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
    /// What becomes of calls that the rules leave open where nobody is at a terminal; they are refused where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Unattended>,
    /// How long a call waits in the inbox before it is refused; for an hour where absent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub ask_within: Option<Span>,
    /// The commands of `exec` that each secret may stand in, such as `sh deploy.sh *`. One that is not named here is given to
    /// no program. Other processes of the machine can see the words of a program while it runs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub exec_secrets: BTreeMap<SecretName, Vec<String>>,
    /// Where tools may send requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpConfig>,
    /// Where programs may connect to. Where absent they open no connection at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConfig>,
    /// What may not happen unseen once something from outside was read, which nobody vouches for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_outside: Option<AfterOutside>,
}

/// What becomes of calls that the rules leave open where nobody is at a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unattended {
    /// They are refused.
    #[default]
    Refuse,
    /// They wait in the inbox, for anybody to answer from another process.
    Inbox,
}

/// Where tools may send requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// The hosts, such as `docs.rs`, `*.example.com` or `localhost:8080`; ports 80 and 443 where none is named, all for
    /// `:*`. With a list, what it does not name is refused; each request is asked about where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// The hosts that may be at an address of this machine or of a private network. They have to be listed as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_private: Vec<String>,
    /// The hosts that each secret may be sent to. One that is not named here is sent nowhere.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<SecretName, Vec<String>>,
}

/// Where confined programs may connect to: those of agents, checks, hooks and tasks. They do so over HTTP and HTTPS through
/// a proxy of Formwork's own, which the variables `HTTPS_PROXY` and its like name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// The hosts, such as `static.crates.io`, `*.example.com` or `localhost:8080`; ports 80 and 443 where none is named, all
    /// for `:*`. What is not named is not connected to; for an empty list nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The hosts that may be at an address of this machine or of a private network. They have to be listed as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_private: Vec<String>,
}

/// The tools whose calls are not like others once something from outside was read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AfterOutside {
    /// Each call of these is asked about: a name, a `namespace.*`, a `#tag` or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// These are not called any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// How much a program of an agent, a check or a gate may use, with all that it starts. One that uses more is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramsConfig {
    /// How many processes there are at once; 1024 where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<NonZeroU32>,
    /// How much memory they hold together, in MiB; three quarters of the machine's where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_mib: Option<NonZeroU32>,
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
        const RESERVED: &[Reserved] = &[Reserved::key("autonomy"), Reserved::key("mcp")];
        RESERVED
    }
}
