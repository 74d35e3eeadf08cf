//! Schemas of tools as every wire takes them, and the tools whose schema none does.
//!
//! Wires want an object at the root, its properties named, and no choice between several. What can be said so is
//! said so; a tool whose schema cannot is left out alone, for with it the whole request would be refused.

use std::borrow::Cow;

use formwork_protocols::{ToolName, message::ToolDefinition};
use serde_json::{Map, Value, json};

/// How many references may lead from one to the next.
const DEEPEST: usize = 16;

/// A tool that cannot be offered, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Quarantined {
    pub tool: ToolName,
    pub reason: String,
}

/// Returns the tools of a request that are left out of it because their schema cannot be sent.
pub fn quarantined(tools: &[ToolDefinition]) -> Vec<Quarantined> {
    let found = tools.iter().filter_map(|tool| {
        let reason = fit(&tool.parameters).err()?;
        Some(Quarantined { tool: tool.name.clone(), reason })
    });
    found.collect()
}

/// Returns the tools that can be offered, each with its schema as it is sent.
pub(crate) fn offered(
    tools: &[ToolDefinition],
) -> impl Iterator<Item = (&ToolDefinition, Cow<'_, Value>)> {
    tools.iter().filter_map(|tool| match fit(&tool.parameters) {
        Ok(schema) => Some((tool, schema)),
        Err(reason) => {
            tracing::warn!(tool = tool.name.as_str(), reason, "a tool is not offered");
            None
        }
    })
}

/// Returns the schema as wires take it.
///
/// # Errors
/// Why it cannot be sent.
fn fit(schema: &Value) -> Result<Cow<'_, Value>, String> {
    check_references(schema, schema)?;
    let Some(root) = schema.as_object() else {
        return match schema {
            Value::Bool(true) => Ok(Cow::Owned(json!({ "type": "object", "properties": {} }))),
            _ => Err("the schema is no object".to_owned()),
        };
    };
    let is_plain = root.get("type").is_some_and(|kind| kind == "object")
        && root.get("properties").is_some_and(Value::is_object)
        && !["$ref", "allOf", "anyOf", "oneOf", "enum", "not"]
            .iter()
            .any(|key| root.contains_key(*key));
    if is_plain {
        return Ok(Cow::Borrowed(schema));
    }
    let mut flat = flattened(root, schema, 0)?;
    match flat.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "object") => {}
        Some(kind) => return Err(format!("the arguments are of type {kind}, expected an object")),
    }
    flat.insert("type".to_owned(), json!("object"));
    flat.entry("properties").or_insert_with(|| json!({}));
    for definitions in ["$defs", "definitions"] {
        if let Some(value) = root.get(definitions) {
            flat.insert(definitions.to_owned(), value.clone());
        }
    }
    Ok(Cow::Owned(Value::Object(flat)))
}

/// Writes what the root of a schema refers to and chooses between into one object.
fn flattened(
    from: &Map<String, Value>,
    root: &Value,
    depth: usize,
) -> Result<Map<String, Value>, String> {
    if depth > DEEPEST {
        return Err("its references do not end".to_owned());
    }
    let dropped = ["$ref", "allOf", "anyOf", "oneOf", "enum", "not"];
    let kept = from.iter().filter(|(key, _)| !dropped.contains(&key.as_str()));
    let mut to: Map<String, Value> =
        kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    let part = |value: &Value| match value.as_object() {
        Some(object) => flattened(object, root, depth + 1),
        None => Ok(Map::new()),
    };
    if let Some(target) = from.get("$ref").and_then(Value::as_str).and_then(|to| target(to, root)) {
        join(&mut to, part(target)?, true);
    }
    for all in list(from, "allOf") {
        join(&mut to, part(all)?, true);
    }
    for key in ["anyOf", "oneOf"] {
        let choices: Vec<_> = list(from, key).iter().map(part).collect::<Result<_, _>>()?;
        // What every choice requires is required; what any of them knows may be given.
        let common: Vec<Value> = choices.split_first().map_or_else(Vec::new, |(first, rest)| {
            let in_all = |name: &&Value| rest.iter().all(|c| list(c, "required").contains(name));
            list(first, "required").iter().filter(in_all).cloned().collect()
        });
        for choice in choices {
            join(&mut to, choice, false);
        }
        if !common.is_empty() {
            join(&mut to, Map::from_iter([("required".to_owned(), Value::Array(common))]), true);
        }
    }
    Ok(to)
}

/// Adds a part to an object; what the object says itself goes first.
fn join(to: &mut Map<String, Value>, part: Map<String, Value>, requires: bool) {
    for (key, value) in part {
        match (to.get_mut(&key), value) {
            (_, Value::Array(_)) if key == "required" && !requires => {}
            (Some(Value::Object(old)), Value::Object(new)) if key == "properties" => {
                for (name, schema) in new {
                    old.entry(name).or_insert(schema);
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if key == "required" => {
                for name in new {
                    if !old.contains(&name) {
                        old.push(name);
                    }
                }
            }
            (Some(_), _) => {}
            (None, value) => {
                to.insert(key, value);
            }
        }
    }
}

/// Tells whether every reference leads to a place within the schema.
fn check_references(value: &Value, root: &Value) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref")
                && target(reference, root).is_none()
            {
                return Err(format!("its reference {reference:?} leads nowhere within the schema"));
            }
            object.values().try_for_each(|value| check_references(value, root))
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_references(value, root)),
        _ => Ok(()),
    }
}

fn target<'a>(reference: &str, root: &'a Value) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

fn list<'a>(from: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    from.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_wires_refuse_is_written_as_one_object() {
        for (schema, wanted) in [
            (json!({}), json!({ "type": "object", "properties": {} })),
            (json!(true), json!({ "type": "object", "properties": {} })),
            (
                json!({ "$ref": "#/$defs/a", "$defs": { "a": {
                    "type": "object", "properties": { "x": { "$ref": "#/$defs/b" } }, "required": ["x"],
                }, "b": { "type": "string" } } }),
                json!({
                    "type": "object",
                    "properties": { "x": { "$ref": "#/$defs/b" } },
                    "required": ["x"],
                    "$defs": { "a": {
                        "type": "object", "properties": { "x": { "$ref": "#/$defs/b" } }, "required": ["x"],
                    }, "b": { "type": "string" } },
                }),
            ),
            (
                json!({ "type": "object", "anyOf": [
                    { "properties": { "a": {}, "b": {} }, "required": ["a", "b"] },
                    { "properties": { "a": {}, "c": {} }, "required": ["a", "c"] },
                ] }),
                json!({
                    "type": "object",
                    "properties": { "a": {}, "b": {}, "c": {} },
                    "required": ["a"],
                }),
            ),
            (
                json!({ "allOf": [
                    { "type": "object", "properties": { "a": {} }, "required": ["a"] },
                    { "properties": { "b": {} }, "required": ["b"] },
                ] }),
                json!({
                    "type": "object",
                    "properties": { "a": {}, "b": {} },
                    "required": ["a", "b"],
                }),
            ),
        ] {
            assert_eq!(fit(&schema).unwrap().into_owned(), wanted, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_wires_take_is_not_copied() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });

        assert!(matches!(fit(&schema), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn a_tool_whose_schema_cannot_be_sent_is_left_out_alone() {
        let tool = |name: &str, parameters| ToolDefinition {
            name: name.parse().unwrap(),
            description: String::new(),
            parameters,
        };
        let tools = [
            tool("good", json!({ "type": "object", "properties": {} })),
            tool("text", json!({ "type": "string" })),
            tool(
                "remote",
                json!({ "type": "object", "properties": { "a": { "$ref": "https://x/y" } } }),
            ),
            tool("loop", json!({ "$ref": "#" })),
            tool("number", json!(7)),
        ];

        let offered: Vec<_> = offered(&tools).map(|(tool, _)| tool.name.as_str()).collect();
        let reasons: Vec<_> =
            quarantined(&tools).into_iter().map(|q| (q.tool.to_string(), q.reason)).collect();

        assert_eq!(offered, ["good"]);
        let reason = |tool: &str, reason: &str| (tool.to_owned(), reason.to_owned());
        assert_eq!(
            reasons,
            [
                reason("text", "the arguments are of type \"string\", expected an object"),
                reason("remote", "its reference \"https://x/y\" leads nowhere within the schema"),
                reason("loop", "its references do not end"),
                reason("number", "the schema is no object"),
            ]
        );
    }
}
