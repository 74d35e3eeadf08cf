//! Which tools an allow-list names.

use std::{collections::BTreeSet, fmt};

use formwork_protocols::{ToolName, ToolSpec, document::nearest_hint};

use crate::Error;

/// An allow-list of tools as it is written: names, `namespace.*`, `#tag`, or `*` for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPatterns(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    All,
    Name(ToolName),
    Namespace(String),
    Tag(String),
}

impl ToolPatterns {
    /// Parses an allow-list. An empty one names nothing.
    ///
    /// # Errors
    /// [`Error::ToolPattern`] names the first that has none of the forms.
    pub fn parse<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let parsed = patterns.into_iter().map(|pattern| Pattern::parse(pattern.as_ref()));
        Ok(Self(parsed.collect::<Result<_, _>>()?))
    }

    /// Says whether one of the patterns names the tool of that name and those tags.
    pub fn matches(&self, name: &ToolName, tags: &[String]) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name, tags))
    }

    /// Returns the names of those of `tools` that the patterns name.
    ///
    /// # Errors
    /// [`Error::UnknownTools`] names every pattern that no tool answers to, each with the nearest one.
    pub fn resolve<'a>(
        &self,
        tools: impl IntoIterator<Item = &'a ToolSpec>,
    ) -> Result<BTreeSet<ToolName>, Error> {
        let tools: Vec<_> = tools.into_iter().collect();
        let named = |pattern: &Pattern| {
            tools.iter().any(|it| pattern.matches(&it.definition.name, &it.tags))
        };
        let unknown: Vec<_> = self
            .0
            .iter()
            .filter(|pattern| !matches!(pattern, Pattern::All) && !named(pattern))
            .map(|pattern| pattern.unknown(&tools))
            .collect();
        if !unknown.is_empty() {
            return Err(Error::UnknownTools { unknown });
        }
        let names = tools.iter().filter(|it| self.matches(&it.definition.name, &it.tags));
        Ok(names.map(|it| it.definition.name.clone()).collect())
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::ToolPattern { pattern: text.to_owned() };
        let word = |text: &str| ToolName::parse(text).map_err(|_| wrong());
        if text == "*" {
            Ok(Self::All)
        } else if let Some(tag) = text.strip_prefix('#') {
            word(tag)?;
            Ok(Self::Tag(tag.to_owned()))
        } else if let Some(namespace) = text.strip_suffix(".*") {
            word(namespace)?;
            Ok(Self::Namespace(format!("{namespace}.")))
        } else {
            word(text).map(Self::Name)
        }
    }

    fn matches(&self, name: &ToolName, tags: &[String]) -> bool {
        match self {
            Self::All => true,
            Self::Name(wanted) => wanted == name,
            Self::Namespace(prefix) => name.as_str().starts_with(prefix.as_str()),
            Self::Tag(tag) => tags.contains(tag),
        }
    }

    /// Says that no tool answers to this, and what was probably meant.
    fn unknown(&self, tools: &[&ToolSpec]) -> String {
        let names = || tools.iter().map(|it| it.definition.name.as_str());
        let candidates: BTreeSet<String> = match self {
            Self::All | Self::Name(_) => names().map(str::to_owned).collect(),
            Self::Namespace(_) => names()
                .filter_map(|name| name.rsplit_once('.'))
                .map(|(namespace, _)| format!("{namespace}.*"))
                .collect(),
            Self::Tag(_) => {
                tools.iter().flat_map(|it| &it.tags).map(|tag| format!("#{tag}")).collect()
            }
        };
        let wrong = self.to_string();
        match nearest_hint(&wrong, candidates.iter().map(String::as_str)) {
            Some(hint) => format!("no tool is named by {wrong:?}; {hint}"),
            None => format!("no tool is named by {wrong:?}"),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => write!(f, "*"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Namespace(prefix) => write!(f, "{prefix}*"),
            Self::Tag(tag) => write!(f, "#{tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{Replay, ToolClass, message::ToolDefinition};

    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let tool = |name: &str, tags: &[&str]| ToolSpec {
            definition: ToolDefinition {
                name: ToolName::parse(name).unwrap(),
                description: String::new(),
                parameters: serde_json::json!({}),
            },
            class: ToolClass::Read,
            replay: Replay::Pure,
            tags: tags.iter().map(ToString::to_string).collect(),
        };
        vec![
            tool("fs.read", &["readonly"]),
            tool("fs.write", &[]),
            tool("fsx.copy", &[]),
            tool("git", &["readonly"]),
            tool("exec", &["process"]),
        ]
    }

    fn resolve(patterns: &[&str]) -> Result<Vec<String>, String> {
        let parsed = ToolPatterns::parse(patterns).map_err(|error| error.to_string())?;
        let names = parsed.resolve(&tools()).map_err(|error| error.to_string())?;
        Ok(names.into_iter().map(|name| name.to_string()).collect())
    }

    #[test]
    fn behaviour_28_each_form_names_its_tools() {
        let names = |patterns: &[&str]| resolve(patterns).unwrap().join(" ");

        assert_eq!(names(&["exec"]), "exec");
        assert_eq!(names(&["fs.*"]), "fs.read fs.write");
        assert_eq!(names(&["#readonly"]), "fs.read git");
        assert_eq!(names(&["*"]), "exec fs.read fs.write fsx.copy git");
        assert_eq!(names(&["exec", "#readonly", "fs.read"]), "exec fs.read git");
        assert_eq!(names(&[]), "");
    }

    #[test]
    fn behaviour_28_every_unknown_pattern_is_named_with_the_nearest() {
        let error = resolve(&["exce", "fz.*", "#readonyl", "git"]).unwrap_err();

        assert_eq!(
            error,
            r##"no tool is named by "exce"; nearest is "exec"; no tool is named by "fz.*"; nearest is "fs.*"; no tool is named by "#readonyl"; nearest is "#readonly""##
        );
    }

    #[test]
    fn what_has_none_of_the_forms_is_an_error() {
        for pattern in ["", "#", "fs.*.x", "f*", ".*", "a b", "#*"] {
            assert!(resolve(&[pattern]).is_err(), "{pattern:?}");
        }
    }
}
