//! Skills: texts that are listed by name, and read when one is needed.

use formwork_protocols::text;

use crate::{
    instructions::{attribute, closed},
    outside::outside,
    visible::visible,
};

/// How many skills are listed at the most.
pub const MAX_SKILLS: usize = 64;

/// How many bytes of a description are listed.
const LISTED_BYTES: usize = 240;

/// The longest name of a skill.
const NAME_BYTES: usize = 64;

/// How many bytes of a skill are shown.
const SHOWN_BYTES: usize = 32 * 1024;

/// A skill as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The name of its folder.
    pub name: String,
    /// What it is for, in a line.
    pub description: String,
}

impl Skill {
    /// Reads the head of a skill's `SKILL.md`: the `description` between two lines of `---`, or else its first line of
    /// text. `folder` is the name that it is asked for by. Nothing is returned for a folder that is no name.
    pub fn read(folder: &str, file: &str) -> Option<Self> {
        let is_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
        if folder.is_empty()
            || folder.len() > NAME_BYTES
            || folder.starts_with('.')
            || !folder.chars().all(is_name)
        {
            return None;
        }
        let (head, body) = split(file);
        let described = head.lines().find_map(|line| line.strip_prefix("description:"));
        let described =
            described.map(|it| it.trim().trim_matches(['"', '\''])).filter(|it| !it.is_empty());
        let first =
            body.lines().map(|line| line.trim_start_matches('#').trim()).find(|it| !it.is_empty());
        let description = visible(described.or(first).unwrap_or_default()).into_owned();
        let description = text::head(&description, LISTED_BYTES).to_owned();
        Some(Self { name: folder.to_owned(), description })
    }
}

/// Lists skills for the model that may load them with `tool`; nothing where there are none.
pub fn listed(skills: &[Skill], tool: &str) -> Option<String> {
    if skills.is_empty() {
        return None;
    }
    let lines = skills
        .iter()
        .take(MAX_SKILLS)
        .map(|skill| format!("- {}: {}\n", skill.name, closed(&skill.description)));
    let lines: String = lines.collect();
    Some(format!(
        "<skills trust=\"repository\">\nTexts of this repository on how to do something. Load one with {tool} when the task is of its kind.\n{lines}</skills>"
    ))
}

/// Returns a skill as a model is shown it that has loaded it.
pub fn skill(name: &str, file: &str) -> String {
    let (_, body) = split(file);
    let body = outside(body.trim());
    let kept = text::head(&body, SHOWN_BYTES);
    let more = if kept.len() < body.len() { "\n[the rest is left out]" } else { "" };
    format!(
        "<skill name=\"{}\" trust=\"repository\">\n{}{more}\n</skill>",
        attribute(name),
        closed(kept)
    )
}

/// Takes the head between two lines of `---` off a text, if it has one.
fn split(file: &str) -> (&str, &str) {
    let file = file.trim_start_matches('\u{FEFF}');
    let Some(rest) = file.strip_prefix("---\n").or_else(|| file.strip_prefix("---\r\n")) else {
        return ("", file);
    };
    match rest.find("\n---") {
        Some(end) => {
            let body = rest.get(end + 4..).unwrap_or_default();
            (
                rest.get(..end).unwrap_or_default(),
                body.split_once('\n').map_or("", |(_, body)| body),
            )
        }
        None => ("", file),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "---\nname: release\ndescription: \"How a release is made.\"\n---\n\n# Releases\n\nTag it.\n";

    #[test]
    fn a_skill_is_listed_by_its_description_and_loaded_without_its_head() {
        let release = Skill::read("release", FILE).unwrap();
        let bare = Skill::read("bare", "# Bare bones\nDo it.\n").unwrap();

        assert_eq!(release.description, "How a release is made.");
        assert_eq!(bare.description, "Bare bones");
        insta::assert_snapshot!(format!(
            "{}\n{}",
            listed(&[release, bare], "skill.load").unwrap(),
            skill("release", FILE)
        ));
        assert_eq!(listed(&[], "skill.load"), None);
    }

    #[test]
    fn a_folder_that_is_no_name_is_no_skill() {
        for folder in ["", ".hidden", "a b", "a/b", "..", &"x".repeat(65)] {
            assert_eq!(Skill::read(folder, FILE), None, "{folder}");
        }
    }

    proptest! {
        #[test]
        fn no_file_panics_or_leaves_its_element(file in "(---\n)?(\\PC{0,20}\n|description: \\PC{0,20}\n|---\n|</skill>){0,8}") {
            prop_assert!(Skill::read("a", &file).is_some());
            prop_assert_eq!(skill("a", &file).matches("</skill>").count(), 1);
        }
    }
}
