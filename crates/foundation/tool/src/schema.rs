//! The JSON Schemas of arguments: made from Rust types, checked before a tool sees a value.

use formwork_protocols::{ToolError, ToolErrorKind, ToolName, message::ToolDefinition, text};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How many faults of one call a model is told at once.
const MAX_FAULTS: usize = 8;
/// How many bytes one fault is told in: it repeats the value that is at fault, whatever its length.
const MAX_FAULT_BYTES: usize = 400;

/// Describes a tool whose arguments are `T`.
///
/// The schema has no references and no titles: some servers cannot read the first, and no model
/// needs the second.
pub(crate) fn definition<T: JsonSchema>(name: ToolName, description: &str) -> ToolDefinition {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut parameters = settings.into_generator().into_root_schema_for::<T>().to_value();
    strip(&mut parameters);
    ToolDefinition { name, description: description.to_owned(), parameters }
}

/// Tells whether what a schema says under a key is nothing.
type Silence = fn(&Value) -> bool;

/// Removes what only people read, what repeats the type, and what says nothing: each byte of a tool is
/// sent with each request. That an optional argument may be null is not told; [`without_nulls`] takes it.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let unsaid: [(&str, Silence); 5] = [
                ("title", Value::is_string),
                ("format", Value::is_string),
                ("default", |default| default.is_null() || default == &Value::Bool(false)),
                ("minimum", |least| least.as_u64() == Some(0)),
                // The type itself refuses what it does not know, and names what it does.
                ("additionalProperties", Value::is_boolean),
            ];
            for (key, says_nothing) in unsaid {
                // A property may bear such a name; its schema is an object and stays.
                if map.get(key).is_some_and(says_nothing) {
                    map.remove(key);
                }
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".to_owned(), only);
                }
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Leaves out arguments that are null: some models write down every optional one.
pub(crate) fn without_nulls(arguments: &Value) -> Value {
    match arguments {
        Value::Object(map) => map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        other => other.clone(),
    }
}

/// A schema that is ready to judge arguments.
pub(crate) struct Validator(jsonschema::Validator);

impl Validator {
    /// Compiles a schema. References to other documents are not followed.
    ///
    /// # Errors
    /// What is wrong with the schema, in one line.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        jsonschema::validator_for(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Judges arguments.
    ///
    /// # Errors
    /// [`ToolErrorKind::InvalidArguments`] lists every fault with its place, for the model to mend.
    pub(crate) fn check(&self, tool: &ToolName, arguments: &Value) -> Result<(), ToolError> {
        let mut faults: Vec<String> = Vec::new();
        for error in self.0.iter_errors(arguments).take(MAX_FAULTS) {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "the arguments".to_owned() } else { place };
            let said = error.to_string();
            faults.push(format!("{place}: {}", text::preview(&said, MAX_FAULT_BYTES)));
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(ToolError::new(
            ToolErrorKind::InvalidArguments,
            format!("the arguments of {tool} do not follow its schema: {}", faults.join("; ")),
        ))
    }
}

/// Holds arguments against the schema of a tool, before anything else is asked of it.
///
/// # Errors
/// [`ToolErrorKind::InvalidArguments`] lists every fault with its place.
pub fn check(tool: &ToolDefinition, arguments: &Value) -> Result<(), ToolError> {
    let validator = Validator::new(&tool.parameters)
        .map_err(|reason| ToolError::new(ToolErrorKind::InvalidArguments, reason))?;
    validator.check(&tool.name, &without_nulls(arguments))
}

/// Reads arguments that have passed their schema.
///
/// # Errors
/// [`ToolErrorKind::InvalidArguments`] for what a schema cannot say, such as a malformed duration.
pub(crate) fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments)
        .map_err(|error| ToolError::new(ToolErrorKind::InvalidArguments, error.to_string()))
}
