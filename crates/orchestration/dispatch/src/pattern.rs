//! Texts with stars in them: `tool.*`, `*.failed`, `user:*`.

/// A text in which each `*` stands for any characters, also for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    /// What stands between the stars; one part where there is none.
    parts: Box<[Box<str>]>,
}

impl Pattern {
    /// Takes a text.
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), parts: text.split('*').map(Into::into).collect() }
    }

    /// Returns it as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the one text that it stands for, if it is one.
    pub fn literal(&self) -> Option<&str> {
        match &*self.parts {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns what each text begins with that it stands for.
    pub fn beginning(&self) -> &str {
        self.parts.first().map_or("", |part| part)
    }

    /// Tells whether it stands for `text`.
    pub fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.parts else { return *self.text == *text };
        let Some(mut rest) = text.strip_prefix(&**first) else { return false };
        // Each at its first place leaves the most for those behind it.
        for part in middle {
            let Some(at) = rest.find(&**part) else { return false };
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        rest.ends_with(&**last)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by trying every way.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                naive(rest, text)
                    || text.split_first().is_some_and(|(_, text)| naive(pattern, text))
            }
            ([first, rest @ ..], [other, text @ ..]) => first == other && naive(rest, text),
            _ => false,
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, wanted) in [
            ("tool.*", "tool.failed", true),
            ("tool.*", "tool", false),
            ("*.failed", "model.failed", true),
            ("*", "anything", true),
            ("run.finished", "run.finished", true),
            ("run.finished", "run.finished2", false),
            ("a*a", "a", false),
            ("user:*", "user:ada", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), wanted, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_stands_for_what_every_way_of_reading_it_finds(
            pattern in "[ab*]{0,6}", text in "[ab]{0,8}",
        ) {
            let wanted = naive(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Pattern::new(&pattern).matches(&text), wanted);
        }
    }
}
