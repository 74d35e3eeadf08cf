//! A tool as a person writes it.

use std::collections::{BTreeMap, BTreeSet};

use formwork_protocols::{
    Span, ToolName,
    document::{self, Diagnostic, Diagnostics, DocumentType, Parsed, nearest_hint, pointer},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::template::{Template, is_name};
use crate::{fetch, schema::Validator};

/// What the names of such tools begin with.
const NAMESPACE: &str = "custom.";

/// A tool, written down as data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolDocument {
    /// What it is called and what it is for.
    pub tool: Head,
    /// What it is given, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Param>,
    /// What it does: exactly one of `http` and `command`.
    pub execution: Execution,
    /// What it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
}

/// What a tool is called and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Its name, which begins with `custom.`.
    pub name: ToolName,
    /// What it does, in a sentence for the model.
    pub description: String,
    /// Words by which an allow-list can name it, without the `#`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Something that a tool is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// What kind of value it is.
    #[serde(rename = "type")]
    pub kind: ParamType,
    /// What it means, for the model.
    pub description: String,
    /// Whether it has to be given; it has where absent. A word, header or field that names one that is not given is left
    /// out.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub required: bool,
    /// The values that it may have; any of its type where absent.
    #[serde(default, rename = "enum", skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
    /// A regular expression that a text has to match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The least that a number may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i64>,
    /// The most that a number may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,
}

const fn yes() -> bool {
    true
}

/// What kind of value a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParamType {
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
    /// A list of texts. As a word of its own, each of them becomes one.
    Array,
}

/// What a tool does: exactly one of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "properties": { "http": true, "command": false }, "required": ["http"] },
    { "properties": { "http": false, "command": true }, "required": ["command"] },
]))]
pub struct Execution {
    /// It sends a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpExecution>,
    /// It runs a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandExecution>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpExecution {
    /// `GET` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The address. Its host stands as it is; `{{name}}` behind it is put in as one part of a path or query.
    pub url: String,
    /// The headers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What is sent, as JSON. A text that is `{{name}}` and nothing else becomes the argument with its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// How a request is made: a method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandExecution {
    /// The program, which stands as it is, and its arguments. There is no shell.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// What it reads on its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Variables of the environment that it sees besides the usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass: Vec<String>,
    /// How long it may take, and never longer than programs may here; two minutes where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "formwork_protocols::time::some_time"
    )]
    pub timeout: Option<Span>,
    /// Whether it gets a terminal of 80 columns and 24 rows, which some programs need. Nobody types.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pty: bool,
}

/// What a tool answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The JSON Schema of what it answers. What does not follow it is a failure.
    pub schema: Map<String, Value>,
}

impl DocumentType for ToolDocument {
    const NAME: &'static str = "tool";
}

impl ToolDocument {
    /// Reads a tool; `source` is the name of its file.
    ///
    /// # Errors
    /// [`Diagnostics`] lists every fault with its place.
    pub fn parse(source: &str, text: &str) -> Result<Self, Diagnostics> {
        let parsed = document::parse::<Self>(source, text)?;
        let faults = Judge::new(&parsed).faults();
        if faults.is_empty() { Ok(parsed.value) } else { Err(faults.into_iter().collect()) }
    }

    /// Returns the JSON Schema of its arguments.
    pub fn arguments(&self) -> Value {
        let mut properties = Map::new();
        for (name, param) in &self.params {
            let mut schema = match param.kind {
                ParamType::String => json!({ "type": "string" }),
                ParamType::Integer => json!({ "type": "integer" }),
                ParamType::Number => json!({ "type": "number" }),
                ParamType::Boolean => json!({ "type": "boolean" }),
                ParamType::Array => json!({ "type": "array", "items": { "type": "string" } }),
            };
            let mut set = |key: &str, value: Option<Value>| {
                if let (Some(schema), Some(value)) = (schema.as_object_mut(), value) {
                    schema.insert(key.to_owned(), value);
                }
            };
            set("description", Some(json!(param.description)));
            set("enum", param.choices.clone().map(Value::Array));
            set("pattern", param.pattern.clone().map(Value::String));
            set("minimum", param.minimum.map(Value::from));
            set("maximum", param.maximum.map(Value::from));
            properties.insert(name.clone(), schema);
        }
        let required = self.params.iter().filter(|(_, param)| param.required);
        let required: Vec<&String> = required.map(|(name, _)| name).collect();
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    }
}

/// Finds what is wrong with a document whose form is right.
struct Judge<'a> {
    parsed: &'a Parsed<ToolDocument>,
    used: BTreeSet<String>,
    faults: Vec<Diagnostic>,
}

impl<'a> Judge<'a> {
    const fn new(parsed: &'a Parsed<ToolDocument>) -> Self {
        Self { parsed, used: BTreeSet::new(), faults: Vec::new() }
    }

    fn fault(&mut self, at: &str, told: impl Into<String>) {
        self.faults.push(self.parsed.diagnostic(at, told));
    }

    fn faults(mut self) -> Vec<Diagnostic> {
        let document = &self.parsed.value;
        let name = document.tool.name.as_str();
        if !name.starts_with(NAMESPACE) {
            self.fault("/tool/name", format!("the name {name:?} does not begin with {NAMESPACE}"));
        }
        if document.tool.description.trim().is_empty() {
            self.fault(
                "/tool/description",
                "the description is empty, and it is all that a model knows",
            );
        }
        for tag in &document.tool.tags {
            if ToolName::parse(tag.as_str()).is_err() {
                self.fault(
                    "/tool/tags",
                    format!("{tag:?} is no tag: a tag is written like the name of a tool"),
                );
            }
        }
        for name in document.params.keys().filter(|name| !is_name(name)) {
            let told = format!("{name:?} is no name of a parameter: it is made of a-z, 0-9 and _");
            self.fault(&pointer(["params", name]), told);
        }
        match (&document.execution.http, &document.execution.command) {
            (Some(http), None) => self.http(http),
            (None, Some(command)) => self.command(command),
            _ => self.fault("/execution", "a tool does one thing: http or command"),
        }
        for name in document.params.keys() {
            if !self.used.contains(name) {
                self.fault(
                    &pointer(["params", name]),
                    format!("nothing uses the parameter {name:?}"),
                );
            }
        }
        if self.faults.is_empty()
            && let Err(why) = Validator::new(&document.arguments())
        {
            self.fault("/params", format!("the parameters are no schema: {why}"));
        }
        if let Some(output) = &document.output
            && let Err(why) = Validator::new(&Value::Object(output.schema.clone()))
        {
            self.fault("/output/schema", format!("it is no JSON Schema: {why}"));
        }
        self.faults
    }

    /// Reads a template, and notes what it uses.
    fn template(&mut self, at: &str, text: &str) -> Option<Template> {
        let template = match Template::parse(text) {
            Ok(template) => template,
            Err(why) => {
                self.fault(at, why);
                return None;
            }
        };
        let known = &self.parsed.value.params;
        let unknown: Vec<String> =
            template.names().filter(|name| !known.contains_key(*name)).map(str::to_owned).collect();
        for name in unknown {
            let hint = nearest_hint(&name, self.parsed.value.params.keys().map(String::as_str));
            let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
            self.fault(at, format!("there is no parameter {name:?}{hint}"));
        }
        self.used.extend(template.names().map(str::to_owned));
        Some(template)
    }

    fn http(&mut self, http: &HttpExecution) {
        let at = "/execution/http/url";
        if let Some(template) = self.template(at, &http.url) {
            let beginning = template.beginning();
            let host = beginning.split_once("://").map_or("", |(_, rest)| rest);
            let is_fixed = host.contains(['/', '?']) || template.names().next().is_none();
            if !is_fixed {
                self.fault(at, "the host of the address stands as it is, with a / behind it");
            } else if let Err(error) = fetch::parse(&http.url.replace(['{', '}'], "x")) {
                self.fault(at, error.message);
            }
            let optional = template.names().find(|name| {
                self.parsed.value.params.get(*name).is_some_and(|param| !param.required)
            });
            if let Some(name) = optional.map(str::to_owned) {
                self.fault(at, format!("the address needs {name:?}, which need not be given"));
            }
        }
        for (name, value) in &http.headers {
            let at = pointer(["execution", "http", "headers", name]);
            self.template(&at, value);
            if let Err(error) = fetch::headers([(name.as_str(), "x")]) {
                self.fault(&at, error.message);
            }
        }
        if let Some(body) = &http.body {
            self.body("/execution/http/body", body);
            if matches!(http.method, None | Some(Method::Get | Method::Head)) {
                self.fault("/execution/http/body", "a request by GET or HEAD sends nothing");
            }
        }
    }

    fn body(&mut self, at: &str, body: &Value) {
        match body {
            Value::String(text) => drop(self.template(at, text)),
            Value::Array(items) => items.iter().for_each(|item| self.body(at, item)),
            Value::Object(fields) => fields.values().for_each(|value| self.body(at, value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn command(&mut self, command: &CommandExecution) {
        for (number, word) in command.argv.iter().enumerate() {
            let at = format!("/execution/command/argv/{number}");
            let Some(template) = self.template(&at, word) else { continue };
            if number == 0 && (template.names().next().is_some() || word.trim().is_empty()) {
                self.fault(&at, "the program stands as it is");
            }
            if !formwork_secrets::placeholders(&Value::String(word.clone())).is_empty() {
                self.fault(&at, "a secret among the words of a program is seen by every process");
            }
        }
        if let Some(stdin) = &command.stdin {
            self.template("/execution/command/stdin", stdin);
            if !formwork_secrets::placeholders(&Value::String(stdin.clone())).is_empty() {
                self.fault("/execution/command/stdin", "secrets go to requests alone");
            }
        }
    }
}
