//! `{{secret:NAME}}` within a text.

use std::collections::BTreeSet;

use serde_json::Value;

const OPEN: &str = "{{secret:";
const CLOSE: &str = "}}";

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Stands as it is.
    Text(&'a str),
    /// Stands for the secret of this name.
    Secret(&'a str),
}

/// Splits `text` at its placeholders; one that is never closed is text.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let Some((name, behind)) = after.split_once(CLOSE) else { break };
        pieces.push(Piece::Text(before));
        pieces.push(Piece::Secret(name));
        rest = behind;
    }
    pieces.push(Piece::Text(rest));
    pieces
}

/// Returns the names of all placeholders within the texts of `arguments`, in order and once each.
#[must_use]
pub fn placeholders(arguments: &Value) -> Vec<String> {
    fn collect(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                for piece in pieces(text) {
                    if let Piece::Secret(name) = piece {
                        found.insert(name.to_owned());
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            Value::Object(entries) => entries.values().for_each(|value| collect(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(arguments, &mut found);
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::{Piece::*, *};

    #[test]
    fn a_text_is_split_at_its_placeholders() {
        assert_eq!(
            pieces("a {{secret:K}}{{secret:L}} {{secret:M"),
            [Text("a "), Secret("K"), Text(""), Secret("L"), Text(" {{secret:M")]
        );
        assert_eq!(pieces("{{x}} }}"), [Text("{{x}} }}")]);
    }

    #[test]
    fn the_placeholders_of_arguments_are_told_once_each_and_keys_are_left_alone() {
        let arguments = serde_json::json!({
            "{{secret:KEY}}": ["a {{secret:L}}", { "x": "{{secret:K}}{{secret:L}}" }, 1],
        });

        assert_eq!(placeholders(&arguments), ["K", "L"]);
    }
}
