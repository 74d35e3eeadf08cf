//! Ids that the runtime makes and names that people choose, each parsed once.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::seam::{Clock, Rng};

/// Why a text is not an id or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum NameError {
    /// The text is not a UUID.
    #[error("{text:?} is no {what}: expected a UUID such as 0198f6a2-7c1e-7000-8000-5f3c9d1b2a4e")]
    NotAnId { what: &'static str, text: String },
    /// The text names no scope.
    #[error("{text:?} is no scope: expected read, run, admin or worker")]
    NotAScope { text: String },
    /// The text is not the hash of anything.
    #[error("{text:?} is no hash: expected 64 hexadecimal digits")]
    NotAHash { text: String },
    /// The text is empty or too long.
    #[error("the {what} has {found} characters, wanted 1 to {max}")]
    Length { what: &'static str, max: usize, found: usize },
    /// The text holds a character that such a name does not allow.
    #[error("{text:?} is no {what}: {character:?} is not one of {allowed}")]
    Character { what: &'static str, text: String, character: char, allowed: &'static str },
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// A UUIDv7: sorts by the time it was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a new id from the time and ten random bytes.
            pub fn generate(clock: &dyn Clock, rng: &dyn Rng) -> Self {
                let mut random = [0_u8; 10];
                rng.fill(&mut random);
                let millis = u64::try_from(clock.now().as_millis()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            /// Takes a UUID that is already known to be one of these, as a store does.
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            /// Returns the bare UUID.
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }

            /// Returns the 16 bytes, as they are stored and hashed.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| NameError::NotAnId { what: $what, text: text.to_owned() })
            }
        }
    )*};
}

ids! {
    /// Names a run: one tree of tasks and its part of the log.
    RunId, "run id";
    /// Names a task in a run's tree.
    TaskId, "task id";
    /// Names one attempt at a task.
    AttemptId, "attempt id";
    /// Names one conversation with a model.
    SessionId, "session id";
    /// Names one model call or tool call of Formwork's own, whatever the provider calls it.
    CallId, "call id";
    /// Names something that a run asks a person: the task that asks, or the call that is asked about.
    ItemId, "item";
    /// Names one reservation of money.
    HoldId, "hold id";
    /// Names a credential, by which somebody asks from outside.
    CredentialId, "credential id";
}

impl RunId {
    /// Returns the name of the log of a subscription: the same for the same workspace and name, whoever asks.
    ///
    /// No run has such an id: its version is 8, and that of a run is 7.
    pub fn of_subscription(workspace: &str, name: &SubscriptionName) -> Self {
        Self::of_log("formwork 2026 log of a subscription", workspace, name.as_str())
    }

    /// Returns the name of the log of what a source has sent: as that of a subscription, and of none.
    pub fn of_source(workspace: &str, name: &SourceName) -> Self {
        Self::of_log("formwork 2026 log of a source", workspace, name.as_str())
    }

    /// Tells whether it names such a log, and no run.
    pub fn is_of_log(&self) -> bool {
        self.0.get_version_num() == 8
    }

    fn of_log(what: &str, workspace: &str, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(what);
        // A name has no such byte, and so no two pairs are told apart by chance.
        hasher.update(name.as_bytes()).update(&[0]).update(workspace.as_bytes());
        Self::of_no_run(&hasher)
    }

    /// Returns the name of the log of the credentials of a store: the same in each.
    ///
    /// No run has such an id: its version is 8, and that of a run is 7.
    pub fn of_credentials() -> Self {
        Self::of_no_run(&blake3::Hasher::new_derive_key("formwork 2026 log of credentials"))
    }

    fn of_no_run(hasher: &blake3::Hasher) -> Self {
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl From<TaskId> for ItemId {
    fn from(task: TaskId) -> Self {
        Self(task.0)
    }
}

impl From<CallId> for ItemId {
    fn from(call: CallId) -> Self {
        Self(call.0)
    }
}

/// Checks `text` against the rule of a name: 1 to `max` characters of which each is `allowed`.
fn check_name(
    what: &'static str,
    text: &str,
    max: usize,
    allowed: &'static str,
    is_allowed: fn(char) -> bool,
) -> Result<(), NameError> {
    let found = text.chars().count();
    if found == 0 || found > max {
        return Err(NameError::Length { what, max, found });
    }
    match text.chars().find(|&character| !is_allowed(character)) {
        None => Ok(()),
        Some(character) => {
            Err(NameError::Character { what, text: text.to_owned(), character, allowed })
        }
    }
}

fn plain(character: char) -> bool {
    matches!(character, 'a'..='z' | '0'..='9' | '_' | '-')
}

fn dotted(character: char) -> bool {
    plain(character) || character == '.'
}

fn printable(character: char) -> bool {
    !character.is_control() && !character.is_whitespace()
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $allowed:literal, $rule:ident, $pattern:literal;)*) => {$(
        $(#[$doc])*
        // Names stand in every event and every path, so a clone shares the text.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// [`NameError`] when the text is too short, too long, or holds another character.
            pub fn parse(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                check_name($what, &text, $max, $allowed, $rule)?;
                Ok(Self(text.into()))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "minLength": 1, "maxLength": $max, "pattern": $pattern })
            }
        }
    )*};
}

names! {
    /// Names a task within its parent: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    TaskName, "task name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names an agent: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    AgentName, "agent name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a category that agents ask for: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    CategoryName, "category name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a workflow: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    WorkflowName, "workflow name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a variable of a workflow: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    VariableName, "variable name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a service of a workflow: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    ServiceName, "service name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a worker: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    WorkerName, "worker name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names what workers offer, such as `gpu`: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    WorkerLabel, "worker label", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a subscription: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    SubscriptionName, "subscription name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a source of what happens outside: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    SourceName, "source name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a configured provider: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    ProviderName, "provider name", 64, "a-z 0-9 _ -", plain, "^[a-z0-9_-]+$";
    /// Names a tool, its namespace first: 1 to 64 characters of `a-z`, `0-9`, `_`, `-` and `.`.
    ToolName, "tool name", 64, "a-z 0-9 _ - .", dotted, "^[a-z0-9_.-]+$";
    /// Names what is fired from outside: 1 to 64 characters of `a-z`, `0-9`, `_`, `-` and `.`.
    EventName, "event name", 64, "a-z 0-9 _ - .", dotted, "^[a-z0-9_.-]+$";
    /// Names a model as its provider does: 1 to 200 printable characters without spaces.
    ModelName, "model name", 200, "printable characters", printable, "^\\S+$";
    /// Names who acts, as `kind:name`: `user:ada`, `agent:coder`, `system:scheduler`.
    Principal, "principal", 200, "printable characters", printable, "^\\S+$";
}

impl Principal {
    /// Returns a subscription, acting on what has happened.
    pub fn subscription(name: &SubscriptionName) -> Self {
        Self(format!("subscription:{name}").into())
    }

    /// Returns a source, telling of what has happened outside.
    pub fn source(name: &SourceName) -> Self {
        Self(format!("source:{name}").into())
    }

    /// Returns the runtime itself, acting as one of its parts.
    pub fn system(part: &str) -> Self {
        Self(format!("system:{part}").into())
    }

    /// Returns an agent, acting in a session.
    pub fn agent(name: &AgentName) -> Self {
        Self(format!("agent:{name}").into())
    }
}

/// Names a model at a provider, as `provider/model`: `local/qwen2.5-coder:14b`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ModelRef {
    /// The configured provider.
    pub provider: ProviderName,
    /// The model, by the provider's own name; it may hold further slashes.
    pub model: ModelName,
}

impl FromStr for ModelRef {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (provider, model) = text.split_once('/').unwrap_or(("", text));
        Ok(Self { provider: provider.parse()?, model: model.parse()? })
    }
}

impl TryFrom<String> for ModelRef {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<ModelRef> for String {
    fn from(model: ModelRef) -> Self {
        model.to_string()
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.provider, self.model))
    }
}

impl JsonSchema for ModelRef {
    fn schema_name() -> Cow<'static, str> {
        "ModelRef".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "provider/model, such as local/qwen2.5-coder:14b",
            "pattern": "^[a-z0-9_-]+/\\S+$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_parsed_once_and_says_what_is_wrong() {
        assert_eq!(TaskName::parse("fix-it").unwrap().as_str(), "fix-it");
        assert_eq!(
            TaskName::parse("").unwrap_err().to_string(),
            "the task name has 0 characters, wanted 1 to 64"
        );
        assert_eq!(
            TaskName::parse("Fix").unwrap_err().to_string(),
            "\"Fix\" is no task name: 'F' is not one of a-z 0-9 _ -"
        );
        assert!(ToolName::parse("fs.read").is_ok());
        assert!(TaskName::parse("fs.read").is_err());
    }

    #[test]
    fn a_model_keeps_the_slashes_of_its_own_name() {
        let model: ModelRef = "openrouter/meta/llama-4:free".parse().unwrap();

        assert_eq!(model.provider.as_str(), "openrouter");
        assert_eq!(model.model.as_str(), "meta/llama-4:free");
        assert_eq!(model.to_string(), "openrouter/meta/llama-4:free");
        assert!("no-provider".parse::<ModelRef>().is_err());
    }
}
