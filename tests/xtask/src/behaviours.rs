//! That every test exists which the map of behaviours names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Collects the names of all functions below a folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !is_hidden && !path.ends_with("target") {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("fn ") {
                let rest = text.get(at + 3..).unwrap_or_default();
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                found.insert(name.to_owned());
            }
        }
    }
}

/// Returns the words of a line that stand between back quotes, and are names of tests.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        word.len() > 20 && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    line.split('`').skip(1).step_by(2).filter(is_name)
}

#[test]
fn every_test_exists_that_the_map_of_behaviours_names() {
    let map = fs::read_to_string(root().join("docs/behaviours.md")).unwrap();
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests"] {
        functions(&root().join(folder), &mut known);
    }

    let missing: Vec<&str> =
        map.lines().flat_map(names).filter(|it| !known.contains(*it)).collect();

    assert!(missing.is_empty(), "docs/behaviours.md names tests that are not there: {missing:#?}");
}

#[test]
fn every_behaviour_has_its_line_and_none_is_silent() {
    let map = fs::read_to_string(root().join("docs/behaviours.md")).unwrap();
    let lines: Vec<&str> = map.lines().collect();

    for number in 1..=67 {
        let begin = format!("| {number} | ");
        let mut own = lines.iter().filter(|line| line.starts_with(&begin));
        let line = own.next().unwrap_or_else(|| panic!("behaviour {number} has no line"));
        assert!(own.next().is_none(), "behaviour {number} has two lines");
        let says = names(line).next().is_some() || line.contains("not there yet");
        assert!(says, "behaviour {number} names no test and does not say so");
    }
}
