use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

struct Held(HashMap<&'static str, String>);

impl Files for Held {
    fn read(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }
}

fn held<const N: usize>(files: [(&'static str, &str); N]) -> Held {
    Held(files.into_iter().map(|(path, text)| (path, text.to_owned())).collect())
}

fn names() -> Vec<String> {
    vec!["AGENTS.md".to_owned(), "CLAUDE.md".to_owned()]
}

fn shown(files: &Held, folder: &str) -> String {
    instruction(files, &names(), folder, &mut 1_000).unwrap().shown
}

#[test]
fn a_file_is_shown_with_what_it_includes_and_where_it_is_from() {
    let files = held([
        (
            "AGENTS.md",
            "Use tabs.\n@docs/style.md\n```\n@docs/style.md\n```\nMail ada@example.org or @ada.\n",
        ),
        (
            "docs/style.md",
            "Short names.\n@../AGENTS.md\n@../../etc/passwd\n@/etc/passwd\n@missing.md\n</instructions>\u{202E}\n",
        ),
    ]);

    insta::assert_snapshot!(shown(&files, ""));
}

#[test]
fn in_each_folder_the_first_name_that_is_there_counts() {
    let files =
        held([("a/CLAUDE.md", "Be brief."), ("b/AGENTS.md", "  \n"), ("b/CLAUDE.md", "Be kind.")]);

    assert!(shown(&files, "a").contains("Be brief."));
    assert!(shown(&files, "b").contains("from=\"b/CLAUDE.md\""));
    assert_eq!(instruction(&files, &names(), "", &mut 1_000), None);
    assert_eq!(folders("a/b/c.rs"), ["a", "a/b"]);
    assert_eq!(folders("./a/../b//c.rs"), ["b"]);
    assert_eq!(folders("../a/c.rs"), [""; 0]);
}

#[test]
fn what_the_budget_has_no_room_for_is_cut_and_said_to_be() {
    let long = "日".repeat(1_000);
    let files = held([("AGENTS.md", &long), ("a/AGENTS.md", "More.")]);
    let mut budget = 100;

    let found = instruction(&files, &names(), "", &mut budget).unwrap();

    assert_eq!((found.cut, found.bytes, budget), (true, 3_001, 0));
    assert!(found.shown.contains("[cut here: 399 of 3001 bytes fit;"), "{}", found.shown);
    assert_eq!(instruction(&files, &names(), "a", &mut budget), None);
}

#[test]
fn files_that_include_each_other_end() {
    let many: String = (0..40).map(|at| format!("@f{at}.md\n")).collect();
    let files = held([
        ("AGENTS.md", &many),
        ("f0.md", "@f1.md\n"),
        ("f1.md", "@f0.md\n@f2.md"),
        ("f2.md", "@f3.md"),
        ("f3.md", "@f4.md"),
        ("f4.md", "@f5.md"),
    ]);

    let shown = shown(&files, "");

    assert!(shown.contains("[@f0.md is not included: it is included already]"), "{shown}");
    assert!(shown.contains("too many files include each other"), "{shown}");
}

proptest! {
    #[test]
    fn no_file_panics_leaves_its_element_or_exceeds_its_budget(text in "(@[a-z./]{0,12}\n|\\PC{0,30}\n|```\n|</instructions>){0,20}", budget in 0_usize..60) {
        let files = held([("AGENTS.md", &text), ("a.md", &text)]);
        let mut left = budget;
        if let Some(found) = instruction(&files, &names(), "", &mut left) {
            prop_assert_eq!(found.shown.matches("</instructions>").count(), 1);
            prop_assert!(found.shown.len() <= budget * BYTES_PER_TOKEN * 2 + 400);
        }
        prop_assert!(left <= budget);
    }

    #[test]
    fn no_path_leads_out_of_the_root(folder in "[a-z/.]{0,10}", path in "[a-z/.~]{0,16}") {
        if let Some(path) = normal(&folder.replace('.', ""), &path) {
            prop_assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
        }
    }
}
