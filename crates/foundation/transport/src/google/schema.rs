//! JSON Schemas in the subset of OpenAPI 3.0 that Gemini knows. What it does not know is left out where that only
//! allows more; the runtime checks arguments by the whole schema anyway.

use serde_json::{Map, Value, json};

/// What is taken over as it is.
const KEPT: [&str; 10] = [
    "title",
    "description",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "nullable",
];

/// How deep references are followed; a schema that goes on is a tree of its own kind, which cannot be written out.
const DEEPEST: usize = 16;

/// Returns `schema` as Gemini takes it.
pub(super) fn openapi(schema: &Value) -> Value {
    Value::Object(convert(schema, schema, &mut Vec::new()))
}

fn convert<'a>(schema: &'a Value, root: &'a Value, open: &mut Vec<&'a str>) -> Map<String, Value> {
    let Some(from) = schema.as_object() else { return anything(None) };
    if let Some(reference) = from.get("$ref").and_then(Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|path| root.pointer(path));
        let described = from.get("description");
        let Some(target) = target.filter(|_| !open.contains(&reference) && open.len() < DEEPEST)
        else {
            let mut object = typed("OBJECT");
            object.extend(described.map(|text| ("description".to_owned(), text.clone())));
            return object;
        };
        open.push(reference);
        let mut to = convert(target, root, open);
        open.pop();
        to.extend(described.map(|text| ("description".to_owned(), text.clone())));
        return to;
    }
    let kept = KEPT.iter().filter_map(|key| Some(((*key).to_owned(), from.get(*key)?.clone())));
    let mut to: Map<String, Value> = kept.collect();
    let mut choices: Vec<Map<String, Value>> = Vec::new();
    for choice in list(from, "anyOf").iter().chain(list(from, "oneOf")) {
        if choice.get("type").is_some_and(|kind| kind == "null") {
            to.insert("nullable".to_owned(), Value::Bool(true));
        } else {
            choices.push(convert(choice, root, open));
        }
    }
    let mut kinds: Vec<&str> = match from.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if kinds.contains(&"null") {
        kinds.retain(|kind| *kind != "null");
        to.insert("nullable".to_owned(), Value::Bool(true));
    }
    match kinds[..] {
        [] => {}
        [kind] => of_kind(kind, from, root, open, &mut to),
        _ => choices.extend(kinds.into_iter().map(|kind| {
            let mut choice = Map::new();
            of_kind(kind, from, root, open, &mut choice);
            choice
        })),
    }
    for part in list(from, "allOf") {
        merge(&mut to, convert(part, root, open));
    }
    values(from, &mut to);
    match choices.len() {
        0 => {}
        1 => choices.into_iter().for_each(|choice| merge(&mut to, choice)),
        _ => {
            to.insert("anyOf".to_owned(), choices.into_iter().map(Value::Object).collect());
        }
    }
    if !to.contains_key("type") && !to.contains_key("anyOf") {
        if from.contains_key("properties") {
            of_kind("object", from, root, open, &mut to);
        } else {
            to = anything(Some(to));
        }
    }
    to
}

/// Adds what a schema says for one kind of value.
fn of_kind<'a>(
    kind: &str,
    from: &'a Map<String, Value>,
    root: &'a Value,
    open: &mut Vec<&'a str>,
    to: &mut Map<String, Value>,
) {
    to.insert("type".to_owned(), Value::from(kind.to_ascii_uppercase()));
    let format = from.get("format").and_then(Value::as_str);
    let known = matches!(
        (kind, format),
        ("string", Some("date-time"))
            | ("integer", Some("int32" | "int64"))
            | ("number", Some("float" | "double"))
    );
    if let Some(format) = format.filter(|_| known) {
        to.insert("format".to_owned(), Value::from(format));
    }
    match kind {
        "object" => {
            let Some(properties) = from.get("properties").and_then(Value::as_object) else {
                return;
            };
            if properties.is_empty() {
                return;
            }
            let required = list(from, "required").iter();
            let required =
                required.filter(|key| key.as_str().is_some_and(|k| properties.contains_key(k)));
            let required: Vec<Value> = required.cloned().collect();
            if !required.is_empty() {
                to.insert("required".to_owned(), Value::Array(required));
            }
            let properties = properties
                .iter()
                .map(|(key, schema)| (key.clone(), Value::Object(convert(schema, root, open))));
            to.insert("properties".to_owned(), Value::Object(properties.collect()));
        }
        "array" => {
            let items = from.get("items").or_else(|| list(from, "prefixItems").first());
            let items = items.map_or_else(|| anything(None), |items| convert(items, root, open));
            to.insert("items".to_owned(), Value::Object(items));
        }
        _ => {}
    }
}

/// Adds the values that a schema allows: as such where they are texts, in words where the wire has no means.
fn values(from: &Map<String, Value>, to: &mut Map<String, Value>) {
    let only = from.get("const").map(std::slice::from_ref);
    let Some(allowed) = only.or_else(|| from.get("enum")?.as_array().map(Vec::as_slice)) else {
        return;
    };
    let (nulls, allowed): (Vec<&Value>, Vec<&Value>) =
        allowed.iter().partition(|value| value.is_null());
    if !nulls.is_empty() {
        to.insert("nullable".to_owned(), Value::Bool(true));
    }
    if !allowed.is_empty() && allowed.iter().all(|value| value.is_string()) {
        to.insert("type".to_owned(), Value::from("STRING"));
        to.insert("enum".to_owned(), allowed.into_iter().cloned().collect());
        return;
    }
    let texts: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    let before = to.get("description").and_then(Value::as_str).unwrap_or_default();
    let text = format!("{before} One of: {}.", texts.join(", "));
    to.insert("description".to_owned(), Value::from(text.trim()));
    let kind = match allowed.first() {
        Some(Value::Number(number)) if number.is_f64() => "NUMBER",
        Some(Value::Number(_)) => "INTEGER",
        Some(Value::Bool(_)) => "BOOLEAN",
        _ => return,
    };
    to.entry("type").or_insert_with(|| Value::from(kind));
}

/// Adds a part of a schema that holds beside the rest.
fn merge(to: &mut Map<String, Value>, part: Map<String, Value>) {
    for (key, value) in part {
        match (to.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
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

/// Returns a schema for any value, which the wire cannot say: a text, that may hold JSON.
fn anything(described: Option<Map<String, Value>>) -> Map<String, Value> {
    let mut to = described.unwrap_or_default();
    to.insert("type".to_owned(), Value::from("STRING"));
    to
}

fn typed(kind: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!(kind))])
}

fn list<'a>(from: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    from.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_subset_lacks_is_said_by_what_it_has() {
        for (schema, wanted) in [
            (json!({ "type": "string", "format": "uri" }), json!({ "type": "STRING" })),
            (
                json!({ "type": "integer", "format": "int64", "exclusiveMinimum": 0 }),
                json!({ "type": "INTEGER", "format": "int64" }),
            ),
            (json!({ "type": ["string", "null"] }), json!({ "type": "STRING", "nullable": true })),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }], "description": "d" }),
                json!({ "type": "INTEGER", "nullable": true, "description": "d" }),
            ),
            (
                json!({ "type": ["string", "integer"] }),
                json!({ "anyOf": [{ "type": "STRING" }, { "type": "INTEGER" }] }),
            ),
            (json!({ "const": "a" }), json!({ "type": "STRING", "enum": ["a"] })),
            (
                json!({ "type": "integer", "enum": [1, 2] }),
                json!({ "type": "INTEGER", "description": "One of: 1, 2." }),
            ),
            (json!({ "type": "array" }), json!({ "type": "ARRAY", "items": { "type": "STRING" } })),
            (json!(true), json!({ "type": "STRING" })),
            (
                json!({ "type": "object", "additionalProperties": false }),
                json!({ "type": "OBJECT" }),
            ),
            (
                json!({
                    "$defs": { "point": {
                        "type": "object", "properties": { "x": { "type": "number" } },
                        "required": ["x", "y"],
                    } },
                    "allOf": [{ "$ref": "#/$defs/point" }],
                    "type": "object",
                    "properties": { "at": { "$ref": "#/$defs/point", "description": "where" } },
                }),
                json!({
                    "type": "OBJECT",
                    "properties": {
                        "x": { "type": "NUMBER" },
                        "at": {
                            "type": "OBJECT", "properties": { "x": { "type": "NUMBER" } },
                            "required": ["x"], "description": "where",
                        },
                    },
                    "required": ["x"],
                }),
            ),
        ] {
            assert_eq!(openapi(&schema), wanted, "{schema}");
        }
    }

    #[test]
    fn a_schema_that_holds_itself_ends_in_an_object() {
        let tree = json!({
            "$defs": { "node": {
                "type": "object",
                "properties": { "next": { "$ref": "#/$defs/node" } },
            } },
            "$ref": "#/$defs/node",
        });

        assert_eq!(
            openapi(&tree),
            json!({ "type": "OBJECT", "properties": { "next": { "type": "OBJECT" } } })
        );
    }

    fn schemas() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({})),
            Just(json!(true)),
            Just(json!({ "$ref": "#" })),
            Just(json!({ "$ref": "#/nowhere" })),
            Just(json!({ "type": ["string", "null"], "format": "email" })),
            Just(json!({ "enum": [1, "a", null] })),
            Just(json!({ "type": 7, "properties": [] })),
        ];
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                prop::collection::btree_map("[a-c]", inner.clone(), 0..3)
                    .prop_map(|properties| json!({ "type": "object", "properties": properties, "required": ["a", "z"] })),
                prop::collection::vec(inner.clone(), 0..3).prop_map(|any| json!({ "anyOf": any })),
                prop::collection::vec(inner.clone(), 0..3).prop_map(|all| json!({ "allOf": all, "type": "object" })),
                inner.prop_map(|items| json!({ "type": "array", "items": items })),
            ]
        })
    }

    fn check(schema: &Value) -> Result<(), TestCaseError> {
        let known =
            [&KEPT[..], &["type", "format", "properties", "required", "items", "enum", "anyOf"]];
        let object = schema.as_object().unwrap();
        for (key, value) in object {
            prop_assert!(known.concat().contains(&key.as_str()), "{}", key);
            match key.as_str() {
                "properties" => value.as_object().unwrap().values().try_for_each(check)?,
                "items" => check(value)?,
                "anyOf" => value.as_array().unwrap().iter().try_for_each(check)?,
                _ => {}
            }
        }
        prop_assert!(object.contains_key("type") || object.contains_key("anyOf"), "{}", schema);
        Ok(())
    }

    proptest! {
        #[test]
        fn every_schema_becomes_one_of_the_subset(schema in schemas()) {
            check(&openapi(&schema))?;
        }
    }
}
