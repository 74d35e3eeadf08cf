//! Texts with `{{name}}` in them, filled with arguments by their types and never read again.

use serde_json::{Map, Value};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Stands as it is; so does the placeholder of a secret.
    Text(String),
    /// Stands for the argument of this name.
    Argument(String),
}

/// A text with places for arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut push = |text: &str| match pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => pieces.push(Piece::Text(text.to_owned())),
        };
        let mut rest = text;
        let mut arguments = Vec::new();
        while let Some((before, after)) = rest.split_once(OPEN) {
            push(before);
            let (name, behind) = after
                .split_once(CLOSE)
                .ok_or_else(|| format!("{OPEN} is never closed by {CLOSE}"))?;
            if name.starts_with("secret:") {
                push(&format!("{OPEN}{name}{CLOSE}"));
            } else {
                let name = name.trim();
                if !is_name(name) {
                    return Err(format!(
                        "{{{{{name}}}}} names no parameter: a name is made of a-z, 0-9 and _"
                    ));
                }
                arguments.push(name.to_owned());
                push("\0");
            }
            rest = behind;
        }
        push(rest);
        if text.contains('\0') {
            return Err("it holds a character of no width and no meaning".to_owned());
        }
        // Each mark stands for the next argument.
        let mut arguments = arguments.into_iter();
        let mut found = Vec::new();
        for piece in pieces {
            let Piece::Text(text) = piece else { continue };
            for (at, part) in text.split('\0').enumerate() {
                if at > 0 {
                    found.extend(arguments.next().map(Piece::Argument));
                }
                if !part.is_empty() {
                    found.push(Piece::Text(part.to_owned()));
                }
            }
        }
        Ok(Self(found))
    }

    /// Returns the names of the arguments that it asks for.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// Returns the one argument that it is, where it is nothing else.
    pub(super) fn alone(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Piece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// Tells whether an argument stands at its very beginning.
    pub(super) fn begins_with_argument(&self) -> bool {
        matches!(self.0.first(), Some(Piece::Argument(_)))
    }

    /// Returns the text that it begins with, up to its first argument.
    pub(super) fn beginning(&self) -> &str {
        match self.0.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// Returns it with what stands in it written otherwise by `write`, which is not read again.
    pub(super) fn with_texts<E>(
        mut self,
        write: impl Fn(&str) -> Result<String, E>,
    ) -> Result<Self, E> {
        for piece in &mut self.0 {
            if let Piece::Text(text) = piece {
                *text = write(text)?;
            }
        }
        Ok(self)
    }

    /// Fills it. Each argument is written by `write`; nothing where one of them is not given.
    pub(super) fn fill(
        &self,
        arguments: &Map<String, Value>,
        write: impl Fn(&str) -> String,
    ) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Argument(name) => filled.push_str(&write(&plain(arguments.get(name)?))),
            }
        }
        Some(filled)
    }
}

/// Returns an argument as text: the words of a list stand side by side.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Tells whether a parameter can be named so.
pub(super) fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    begins
        && name.len() <= 64
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fill(template: &str, arguments: Value) -> Option<String> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        Template::parse(template).unwrap().fill(&arguments, |text| text.to_owned())
    }

    #[test]
    fn arguments_go_in_once_and_what_they_hold_is_not_read_again() {
        let arguments = json!({ "a": "{{b}}", "b": 2, "list": ["x", "y"] });

        assert_eq!(fill("<{{a}}{{ b }}> {{list}}", arguments).unwrap(), "<{{b}}2> x y");
        assert_eq!(fill("{{c}}", json!({})), None);
        assert_eq!(
            fill("Bearer {{secret:K}}{{a}}", json!({ "a": 1 })).unwrap(),
            "Bearer {{secret:K}}1"
        );
    }

    #[test]
    fn what_is_no_template_is_told() {
        for wrong in ["{{a", "{{}}", "{{A}}", "{{a b}}", "{{../a}}", "\0"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_text_without_places_stands_as_it_is(text in "[^{}\\x00]{0,40}") {
            let filled = Template::parse(&text).unwrap().fill(&Map::new(), |_| unreachable!());
            prop_assert_eq!(filled, Some(text));
        }
    }
}
