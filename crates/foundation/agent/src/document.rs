//! An agent as a person writes it.

use std::borrow::Cow;
use std::fmt;

use formwork_protocols::document::DocumentType;
use formwork_protocols::{AgentName, Budget, CategoryName, ModelRef, SessionRules, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What an agent's TOML document says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct AgentDocument {
    /// Its name, by which tasks ask for it.
    pub name: AgentName,
    /// What it is for, for people.
    pub description: String,
    /// What it thinks with.
    pub model: ModelChoice,
    /// The Markdown file that says who it is.
    pub prompt: PromptFile,
    /// What it may do.
    pub tools: Tools,
    /// The caps of each task that it works on.
    pub budget: Budget,
    /// What its conversations have to keep to.
    pub session: SessionRules,
}

/// What an agent thinks with: a category that the configuration maps to a model, or one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelChoice {
    /// Whatever model the configuration gives to this category.
    Category(CategoryName),
    /// This model and no other.
    Model(ModelRef),
}

/// What an agent may do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// The tools it is offered: names, `namespace.*`, `#tag` or `*`; nothing means none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// More tools, written in the same way, which it is told by name alone until it loads them with
    /// `load_tools`. A tool that both lists name is deferred.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<String>,
    /// Which programs its `exec` may run, and for how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecRules>,
}

/// Which programs an agent may run, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecRules {
    /// The commands it may run, such as `cargo test *`; where absent, no rule of its own narrows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// How long one command may take.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
    /// The hosts that its programs may connect to, of those that the config lists below `[permissions.network]`: none for an
    /// empty list, all of those where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
}

/// The document key by key; only one with exactly one of `category` and `model` becomes an [`AgentDocument`].
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "properties": { "category": true, "model": false }, "required": ["category"] },
    { "properties": { "category": false, "model": true }, "required": ["model"] },
]))]
struct Written {
    /// Its name, by which tasks ask for it.
    name: AgentName,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    description: String,
    /// A category that the configuration maps to a model; instead of `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<CategoryName>,
    /// A model, as `provider/model`; instead of `category`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<ModelRef>,
    /// The Markdown file next to this one that says who it is.
    prompt: PromptFile,
    /// What it may do.
    #[serde(default, skip_serializing_if = "is_default")]
    tools: Tools,
    /// The caps of each task that it works on.
    #[serde(default, skip_serializing_if = "is_default")]
    budget: Budget,
    /// What its conversations have to keep to.
    #[serde(default, skip_serializing_if = "is_default")]
    session: SessionRules,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl DocumentType for AgentDocument {
    const NAME: &'static str = "agent";
}

impl JsonSchema for AgentDocument {
    fn schema_name() -> Cow<'static, str> {
        "AgentDocument".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Written::json_schema(generator)
    }
}

impl TryFrom<Written> for AgentDocument {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { name, description, category, model, prompt, tools, budget, session } =
            written;
        let model = match (category, model) {
            (Some(category), None) => ModelChoice::Category(category),
            (None, Some(model)) => ModelChoice::Model(model),
            (Some(_), Some(_)) => return Err(BOTH),
            (None, None) => return Err("wanted \"category\" or \"model\", found neither"),
        };
        Ok(Self { name, description, model, prompt, tools, budget, session })
    }
}

/// What is wrong with a document that says twice what the agent thinks with.
pub(crate) const BOTH: &str = "wanted \"category\" or \"model\", found both";

impl From<AgentDocument> for Written {
    fn from(document: AgentDocument) -> Self {
        let AgentDocument { name, description, model, prompt, tools, budget, session } = document;
        let (category, model) = match model {
            ModelChoice::Category(category) => (Some(category), None),
            ModelChoice::Model(model) => (None, Some(model)),
        };
        Self { name, description, category, model, prompt, tools, budget, session }
    }
}

/// Names a Markdown file in the folder of its agent: a plain file name that ends in `.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PromptFile(String);

impl PromptFile {
    /// Parses a file name.
    ///
    /// # Errors
    /// What was wanted, for a path that leads elsewhere or a file that is no Markdown.
    pub fn parse(text: impl Into<String>) -> Result<Self, String> {
        let text = text.into();
        let leads_elsewhere = text.contains(['/', '\\', ':']) || text.contains(char::is_control);
        let stem = text.strip_suffix(".md").filter(|stem| !stem.is_empty() && !leads_elsewhere);
        // A leading dot hides a file, and hidden files are not read.
        match stem {
            Some(stem) if !stem.starts_with('.') => Ok(Self(text)),
            _ => Err(format!(
                "wanted the name of a .md file in the folder of the agent, found {text:?}"
            )),
        }
    }

    /// Returns the file name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name without `.md`, which is what other prompts include it by.
    #[must_use]
    pub fn stem(&self) -> &str {
        self.0.strip_suffix(".md").unwrap_or(&self.0)
    }
}

impl TryFrom<String> for PromptFile {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl From<PromptFile> for String {
    fn from(file: PromptFile) -> Self {
        file.0
    }
}

impl fmt::Display for PromptFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for PromptFile {
    fn schema_name() -> Cow<'static, str> {
        "PromptFile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "pattern": "^[^./\\\\:][^/\\\\:]*\\.md$" })
    }
}
