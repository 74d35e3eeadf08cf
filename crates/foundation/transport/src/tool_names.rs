//! Tool names as the wires allow them.
//!
//! Formwork's names hold dots (`fs.read`), the wires' do not (`^[a-zA-Z0-9_-]{1,64}$`). A request's names are mapped
//! together, so that no two of them meet and each leads back to its tool.

use std::{borrow::Cow, collections::BTreeMap};

use formwork_protocols::{ToolName, message::ToolDefinition};

/// The names of one request, both ways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolNames {
    to_wire: BTreeMap<String, String>,
    from_wire: BTreeMap<String, String>,
}

impl ToolNames {
    /// Maps the names of `tools`. The same set of tools gives the same names, in whatever order it comes.
    pub(crate) fn new(tools: &[ToolDefinition]) -> Self {
        Self::of(tools.iter().map(|tool| &tool.name))
    }

    fn of<'a>(tools: impl IntoIterator<Item = &'a ToolName>) -> Self {
        let mut names = Self::default();
        let mut sorted: Vec<_> = tools.into_iter().map(ToolName::as_str).collect();
        // Names that stay as they are come first, so that no changed one takes their place.
        sorted.sort_unstable_by_key(|name| (name.contains('.'), *name));
        sorted.dedup();
        for name in sorted {
            let plain = name.replace('.', "_");
            let mut wire = plain.clone();
            let mut number = 2_u32;
            while names.from_wire.contains_key(&wire) {
                let suffix = format!("_{number}");
                // The name is ASCII and has at most 64 characters; so has what is made of it.
                wire = plain.chars().take(64 - suffix.len()).collect::<String>() + &suffix;
                number += 1;
            }
            names.from_wire.insert(wire.clone(), name.to_owned());
            names.to_wire.insert(name.to_owned(), wire);
        }
        names
    }

    /// Returns the wire's name for a tool of this request, or for one that an earlier turn called.
    pub(crate) fn to_wire<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        let is_allowed =
            |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        match self.to_wire.get(name) {
            Some(wire) => wire.into(),
            None if !name.is_empty() && name.len() <= 64 && name.chars().all(is_allowed) => {
                name.into()
            }
            // A model may have made a name up; in the history it must not break the next request.
            None if name.is_empty() => "unnamed".into(),
            None => name
                .chars()
                .map(|character| if is_allowed(character) { character } else { '_' })
                .take(64)
                .collect::<String>()
                .into(),
        }
    }

    /// Returns Formwork's name for what a model called; a name that no tool of the request has stays as it is.
    pub(crate) fn back<'a>(&'a self, name: &'a str) -> &'a str {
        self.from_wire.get(name).map_or(name, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(tools: &[&str]) -> ToolNames {
        let tools: Vec<ToolName> = tools.iter().map(|name| name.parse().unwrap()).collect();
        ToolNames::of(&tools)
    }

    #[test]
    fn a_dot_becomes_an_underscore_and_leads_back() {
        let names = names(&["fs.read", "exec"]);

        assert_eq!(names.to_wire("fs.read"), "fs_read");
        assert_eq!(names.back("fs_read"), "fs.read");
        assert_eq!(names.back("fs.read"), "fs.read");
        assert_eq!(names.back("unknown"), "unknown");
    }

    #[test]
    fn names_that_would_meet_are_numbered() {
        let names = names(&["a.b", "a_b", "a.b_2"]);

        assert_eq!(names.to_wire("a_b"), "a_b");
        assert_eq!(names.to_wire("a.b"), "a_b_2");
        assert_eq!(names.to_wire("a.b_2"), "a_b_2_2");
    }

    #[test]
    fn a_made_up_name_of_the_history_is_made_fit() {
        assert_eq!(names(&[]).to_wire("no such/tool"), "no_such_tool");
        assert_eq!(names(&[]).to_wire(""), "unnamed");
    }

    proptest! {
        #[test]
        fn every_name_is_allowed_and_leads_back(
            tools in prop::collection::vec("[ab_.2-]{1,64}", 0..12),
        ) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let names = names(&tools);

            for tool in tools {
                let wire = names.to_wire(tool).into_owned();
                prop_assert_eq!(names.back(&wire), tool);
                prop_assert!(wire.len() <= 64 && !wire.contains('.'), "{}", wire);
            }
        }
    }
}
