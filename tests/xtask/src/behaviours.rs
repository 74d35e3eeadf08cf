//! That every test exists which the map of behaviours names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What stands before a test.
const MARKS: [&str; 2] = ["#[test]", "#[tokio::test"];

/// The macro that makes a test of each function of a list, once per engine.
const LIST: &str = "on_both! {";

/// Collects the names of all tests below a folder.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_hidden =
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.is_dir() && !is_hidden && !path.ends_with("target") {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(tests_of(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Returns the names of the tests of a file: functions that an attribute makes one, and those that a list names.
fn tests_of(text: &str) -> BTreeSet<String> {
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut found = BTreeSet::new();
    let (mut is_test, mut is_list) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with(LIST) {
            is_list = true;
        } else if is_list {
            is_list = !line.starts_with('}');
            let names = line.split(',').map(|name| word(name.trim()));
            found.extend(names.filter(|name| !name.is_empty()));
        } else if MARKS.iter().any(|mark| line.starts_with(mark)) {
            is_test = true;
        } else if let Some((before, name)) = line.split_once("fn ")
            && matches!(before, "" | "async " | "pub " | "pub(crate) " | "pub(crate) async ")
            && std::mem::take(&mut is_test)
        {
            found.insert(word(name));
        }
    }
    found
}

/// Returns the words of a line that stand between back quotes, and are names of tests.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        word.len() > 20 && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    line.split('`').skip(1).step_by(2).filter(is_name)
}

fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests"] {
        tests(&root().join(folder), &mut known);
    }
    known
}

/// Returns the numbers of the behaviours that a test is named after.
fn numbers(name: &str) -> Vec<u32> {
    let name = name.strip_prefix("pg_").unwrap_or(name);
    let words = name.strip_prefix("behaviour_").or_else(|| name.strip_prefix("behaviours_"));
    let words = words.unwrap_or_default().split('_');
    words
        .take_while(|word| *word == "and" || word.parse::<u32>().is_ok())
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[test]
fn a_test_is_told_by_what_makes_it_one() {
    let text = "#[test]\n#[should_panic]\nfn one() {}\nfn helper() {}\n\
                #[tokio::test(start_paused = true)]\nasync fn two() {}\n\
                on_both! {\n    three,\n}\nasync fn three(world: World) {}\n\
                proptest::proptest! {\n#[test]\nfn four(x in 0..3) {}\n}\n";

    let found: Vec<String> = tests_of(text).into_iter().collect();
    assert_eq!(found, ["four", "one", "three", "two"]);
    assert_eq!(numbers("pg_behaviours_11_and_35_other_processes_answer"), [11, 35]);
    assert_eq!(numbers("behaviour_7_an_agents_verdict"), [7]);
    assert_eq!(numbers("an_audit_finds_2_columns"), Vec::<u32>::new());
}

#[test]
fn each_behaviour_that_is_there_has_a_test_named_after_it_and_says_no_more_than_that() {
    let map = fs::read_to_string(root().join("docs/behaviours.md")).unwrap();
    let named: BTreeSet<u32> = known().iter().flat_map(|name| numbers(name)).collect();
    let row = |number: u32| {
        let begin = format!("| {number} | ");
        map.lines().find(|line| line.starts_with(&begin)).unwrap_or_default()
    };

    // Of the engine's own behaviours, each that is shown by anything.
    let unnamed: Vec<u32> = (1..=40)
        .filter(|number| names(row(*number)).next().is_some())
        .filter(|number| !names(row(*number)).any(|name| numbers(name).contains(number)))
        .collect();
    let denied: Vec<&u32> = named
        .iter()
        .filter(|number| row(**number).trim_end().ends_with("| not there yet |"))
        .collect();
    let strangers: Vec<&str> = map
        .lines()
        .flat_map(|line| {
            let number = line.split('|').nth(1).and_then(|it| it.trim().parse::<u32>().ok());
            names(line).filter(move |name| {
                let numbers = numbers(name);
                number.is_some_and(|own| !numbers.is_empty() && !numbers.contains(&own))
            })
        })
        .collect();

    assert_eq!(unnamed, Vec::<u32>::new(), "behaviours without a test named after them");
    assert_eq!(
        denied,
        Vec::<&u32>::new(),
        "behaviours that have a test and are said to be missing"
    );
    assert_eq!(strangers, ["behaviour_35_the_first_resolution_counts_and_a_second_returns_it"]);
}

#[test]
fn every_test_exists_that_the_map_of_behaviours_names() {
    let map = fs::read_to_string(root().join("docs/behaviours.md")).unwrap();
    let known = known();

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
        let says = names(line).next().is_some() || line.ends_with("| not there yet |");
        assert!(says, "behaviour {number} names no test and does not say so");
    }
}
