//! The one form of a JSON value whose bytes are hashed: sorted keys, no white space.
//!
//! A dependency may switch the order of `serde_json`'s maps for the whole program, so a digest is
//! never taken over what `serde_json` itself writes.

use serde::Serialize;
use serde_json::Value;

/// Returns the canonical text of a value: keys sorted by their bytes, no white space.
///
/// # Errors
/// [`serde_json::Error`] when the value cannot be JSON, as a map whose keys are no texts.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> Result<String, serde_json::Error> {
    let value = serde_json::to_value(value)?;
    let mut text = String::with_capacity(128);
    write(&value, &mut text)?;
    Ok(text)
}

/// Appends the canonical text of a value.
fn write(value: &Value, text: &mut String) -> Result<(), serde_json::Error> {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&serde_json::to_string(key)?);
                text.push(':');
                write(value, text)?;
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(item, text)?;
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&serde_json::to_string(value)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let value = json!({ "b": 1, "a": { "d": [{ "f": 1, "e": "x\n" }], "c": null } });

        let text = to_string(&value).unwrap();

        assert_eq!(text, r#"{"a":{"c":null,"d":[{"e":"x\n","f":1}]},"b":1}"#);
    }
}
