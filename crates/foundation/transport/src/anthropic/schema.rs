//! A schema of an answer as the wire takes it: every object closed, and no limits, which it refuses. What is left
//! out only allows more; the runtime checks the answer by the whole schema anyway.

use serde_json::{Map, Value};

/// The limits that the wire refuses.
const REFUSED: [&str; 10] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// Returns `schema` as the wire takes it.
pub(super) fn closed(schema: &Value) -> Value {
    let Some(from) = schema.as_object() else { return schema.clone() };
    let kept = from.iter().filter(|(key, value)| {
        let is_refused = REFUSED.contains(&key.as_str());
        // Of the least of items the wire knows none and one.
        !is_refused && (*key != "minItems" || value.as_u64().is_some_and(|least| least <= 1))
    });
    let mut to: Map<String, Value> = kept
        .map(|(key, value)| {
            let value = match key.as_str() {
                "properties" | "$defs" | "definitions" => each(value),
                "items" | "not" => closed(value),
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => all(value),
                _ => value.clone(),
            };
            (key.clone(), value)
        })
        .collect();
    if to.get("type").is_some_and(|kind| kind == "object") || to.contains_key("properties") {
        to.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Value::Object(to)
}

/// Closes the schemas that stand under names.
fn each(schemas: &Value) -> Value {
    let Some(schemas) = schemas.as_object() else { return schemas.clone() };
    Value::Object(schemas.iter().map(|(name, schema)| (name.clone(), closed(schema))).collect())
}

fn all(schemas: &Value) -> Value {
    schemas.as_array().map_or_else(|| schemas.clone(), |list| list.iter().map(closed).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_closed_and_limits_left_out_but_not_properties_of_such_names() {
        let schema = json!({
            "type": "object",
            "properties": {
                "minimum": { "type": "integer", "minimum": 1 },
                "list": { "type": "array", "minItems": 2, "items": {
                    "anyOf": [{ "type": "object", "properties": { "a": { "maxLength": 3 } } }, { "type": "null" }],
                } },
            },
            "required": ["minimum"],
        });

        assert_eq!(
            closed(&schema),
            json!({
                "type": "object",
                "properties": {
                    "minimum": { "type": "integer" },
                    "list": { "type": "array", "items": {
                        "anyOf": [
                            {
                                "type": "object", "properties": { "a": {} },
                                "additionalProperties": false,
                            },
                            { "type": "null" },
                        ],
                    } },
                },
                "required": ["minimum"],
                "additionalProperties": false,
            })
        );
    }
}
