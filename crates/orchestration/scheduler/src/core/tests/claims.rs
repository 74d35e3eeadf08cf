//! Tasks that write the same.

use super::*;

fn writing(text: &str, globs: &[&str]) -> TaskSpec {
    let globs = globs.iter().map(|glob| (*glob).to_owned()).collect();
    TaskSpec { write_paths: Some(globs), ..leaf(text) }
}

#[test]
fn two_tasks_that_may_write_the_same_do_not_work_at_once() {
    let tasks = vec![
        writing("code", &["src/**"]),
        writing("core", &["src/core/*.rs"]),
        writing("docs", &["docs/**"]),
        leaf("reads"),
    ];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 8);

    assert_eq!(tree.working(), ["code", "docs", "reads"]);
    assert!(tree.moves.contains(&"core waits for code to release src/core/".to_owned()));
    tree.fail("code");
    assert_eq!(tree.working(), ["docs", "reads", "core"]);
    tree.pass("core");
}

#[test]
fn whoever_waits_is_passed_by_nobody_that_may_write_the_same() {
    let tasks = vec![
        writing("code", &["src/**"]),
        writing("all", &["**"]),
        writing("docs", &["docs/**"]),
        writing("more", &["src/a.rs"]),
    ];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 8);

    assert_eq!(tree.working(), ["code"]);
    tree.pass("code");
    assert_eq!(tree.working(), ["all"]);
    tree.pass("all");
    assert_eq!(tree.working(), ["docs", "more"]);
}

#[test]
fn the_uppermost_task_claims_for_all_below_it() {
    let below = vec![writing("one", &["src/**"]), writing("two", &["src/**"])];
    let whole = TaskSpec {
        write_paths: Some(vec!["src/**".to_owned()]),
        ..parent("whole", OnFailure::default(), below)
    };
    let tasks = vec![whole, writing("other", &["src/b.rs"])];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 8);

    assert_eq!(tree.working(), ["one", "two"]);
    tree.pass("one");
    assert_eq!(tree.working(), ["two"]);
    tree.pass("two");
    assert_eq!(tree.working(), ["other"]);
}

#[test]
fn a_task_that_is_cancelled_while_it_waits_lets_the_next_one_go() {
    let tasks =
        vec![writing("code", &["src/**"]), writing("all", &["**"]), writing("docs", &["docs/**"])];
    let mut tree = Tree::begin(parent("root", OnFailure::default(), tasks), 8);

    let task = tree.named("all");
    tree.input(Input::Cancel { task }).unwrap();

    assert_eq!(tree.working(), ["code", "docs"]);
}

#[test]
fn a_task_that_may_write_nothing_waits_for_nobody_and_gives_the_word_to_none_below_it() {
    let nothing = TaskSpec {
        write_paths: Some(Vec::new()),
        ..parent("looks", OnFailure::default(), vec![writing("below", &["src/**"])])
    };
    let tasks = vec![writing("code", &["src/**"]), nothing];
    let tree = Tree::begin(parent("root", OnFailure::default(), tasks), 8);

    assert_eq!(tree.working(), ["code", "below"]);
}
