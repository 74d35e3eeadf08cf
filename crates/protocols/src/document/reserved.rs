//! Keys and values that are designed but not there yet.

use super::path::Segment;

/// A key or a value that is refused by name as not yet supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    path: &'static str,
    value: Option<&'static str>,
}

impl Reserved {
    /// Reserves the key at `path`: names joined by dots, `*` for any one name or index, `**` for any number of them.
    ///
    /// `tasks.**.target` reserves `target` in tasks at any depth.
    #[must_use]
    pub const fn key(path: &'static str) -> Self {
        Self { path, value: None }
    }

    /// Reserves the string `value` at `path`, as in `value("providers.*.kind", "google")`.
    #[must_use]
    pub const fn value(path: &'static str, value: &'static str) -> Self {
        Self { path, value: Some(value) }
    }

    /// Reports whether this reserves the key at `path`.
    pub(crate) fn reserves_key(&self, path: &[Segment]) -> bool {
        self.value.is_none() && self.matches(path)
    }

    /// Reports whether this reserves `value` at `path`.
    pub(crate) fn reserves_value(&self, path: &[Segment], value: &str) -> bool {
        self.value == Some(value) && self.matches(path)
    }

    fn matches(&self, path: &[Segment]) -> bool {
        let pattern: Vec<&str> = self.path.split('.').collect();
        matches(&pattern, path)
    }
}

fn matches(pattern: &[&str], path: &[Segment]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => {
            matches(rest, path)
                || path.split_first().is_some_and(|(_, tail)| matches(pattern, tail))
        }
        (["*", rest @ ..], [_, tail @ ..]) => matches(rest, tail),
        ([name, rest @ ..], [Segment::Key(key), tail @ ..]) => name == key && matches(rest, tail),
        _ => false,
    }
}
