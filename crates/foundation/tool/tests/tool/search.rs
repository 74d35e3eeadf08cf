//! Files found by name and by what they hold.

use std::os::unix::fs::symlink;

use formwork_protocols::{Cancel, message::Arguments};
use serde_json::json;

use crate::world::World;

fn sources() -> World {
    let world = World::new();
    world.put(".gitignore", "target/\n*.log\n");
    world.put("src/lib.rs", "pub fn one() {}\n");
    world.put("src/deep/two.rs", "pub fn two() {}\n");
    world.put("target/debug/gen.rs", "pub fn generated() {}\n");
    world.put("run.log", "fn\n");
    world.put(".git/hooks/x.rs", "pub fn hook() {}\n");
    world
}

#[tokio::test]
async fn names_are_found_without_what_git_ignores() {
    let world = sources();

    let all = world.done("fs.glob", json!({ "pattern": "**/*.rs" })).await;
    let below = world.done("fs.glob", json!({ "pattern": "*.rs", "path": "src" })).await;
    let none = world.done("fs.glob", json!({ "pattern": "*.log" })).await;

    assert_eq!(all, "src/deep/two.rs\nsrc/lib.rs\n");
    assert_eq!(below, "src/lib.rs\n");
    assert_eq!(none, "no file matches *.log");
}

#[tokio::test]
async fn a_folder_within_is_searched_by_the_rules_of_the_whole() {
    let world = sources();
    world.put("src/trace.log", "fn\n");

    let told = world.done("fs.glob", json!({ "pattern": "**", "path": "src" })).await;

    assert_eq!(told, "src/deep/two.rs\nsrc/lib.rs\n");
}

#[tokio::test]
async fn of_more_names_than_are_told_the_first_are() {
    let world = World::new();
    let names =
        |folder: &str| (0..300).map(|it| format!("{folder}/{it:03}.rs")).collect::<Vec<_>>();
    for name in names("b").iter().chain(&names("a")) {
        world.put(name, "");
    }

    let told = world.done("fs.glob", json!({ "pattern": "**/*.rs" })).await;

    let mut wanted = [names("a"), names("b")[..200].to_vec()].concat();
    wanted.push("[100 more; narrow the pattern]".to_owned());
    assert!(told.lines().eq(wanted), "{told}");
}

#[tokio::test]
async fn a_pattern_of_names_that_is_none_is_at_fault() {
    let world = World::new();

    let told = world.fails("fs.glob", json!({ "pattern": "src/[a" })).await;

    assert!(told.starts_with(r#"error (invalid_arguments): pattern "src/[a": "#), "{told}");
}

#[tokio::test]
async fn lines_are_found_in_the_order_of_paths() {
    let world = sources();

    let told = world.done("fs.grep", json!({ "pattern": r"fn \w+" })).await;

    assert_eq!(told, "src/deep/two.rs:1: pub fn two() {}\nsrc/lib.rs:1: pub fn one() {}\n");
}

#[tokio::test]
async fn a_search_is_narrowed_by_name_path_case_and_count() {
    let world = sources();
    world.put("notes.md", "FN main\nfn main\nfn last\n");
    let grep = async |arguments| world.done("fs.grep", arguments).await;

    assert_eq!(
        grep(json!({ "pattern": "fn", "glob": "*.md" })).await,
        "notes.md:2: fn main\nnotes.md:3: fn last\n"
    );
    assert_eq!(
        grep(json!({ "pattern": "fn", "glob": "*.rs" })).await,
        "src/deep/two.rs:1: pub fn two() {}\nsrc/lib.rs:1: pub fn one() {}\n"
    );
    assert_eq!(
        grep(json!({ "pattern": "fn", "glob": "src/*.rs" })).await,
        "src/lib.rs:1: pub fn one() {}\n"
    );
    assert_eq!(
        grep(json!({ "pattern": "fn", "path": "src/deep" })).await,
        "src/deep/two.rs:1: pub fn two() {}\n"
    );
    assert_eq!(
        grep(json!({ "pattern": "^fn main", "path": "notes.md", "ignore_case": true })).await,
        "notes.md:1: FN main\nnotes.md:2: fn main\n"
    );
}

#[tokio::test]
async fn a_search_says_when_it_has_left_lines_out_and_only_then() {
    let world = World::new();
    world.put("a.txt", "x\nx\nx\n");

    let cut = world.done("fs.grep", json!({ "pattern": "x", "limit": 2 })).await;
    let whole = world.done("fs.grep", json!({ "pattern": "x", "limit": 3 })).await;

    assert_eq!(cut, "a.txt:1: x\na.txt:2: x\n[more than 2 lines; narrow the search]\n");
    assert_eq!(whole, "a.txt:1: x\na.txt:2: x\na.txt:3: x\n");
}

#[tokio::test]
async fn the_end_of_a_line_is_found_whatever_ends_it() {
    let world = World::new();
    world.put("unix.txt", "done\n");
    world.put("windows.txt", "done\r\n");

    let told = world.done("fs.grep", json!({ "pattern": "done$" })).await;

    assert_eq!(told, "unix.txt:1: done\nwindows.txt:1: done\n");
}

#[tokio::test]
async fn what_is_not_text_is_passed_over() {
    let world = World::new();
    world.put("data.bin", b"needle\0needle\n");
    world.put("text.txt", "needle\n");

    let told = world.done("fs.grep", json!({ "pattern": "needle" })).await;

    assert_eq!(told, "text.txt:1: needle\n");
}

#[tokio::test]
async fn a_long_line_is_cut_at_a_character() {
    let world = World::new();
    world.put("min.js", format!("var a;{}\n", "ä".repeat(1_000_000)));

    let told = world.done("fs.grep", json!({ "pattern": "var" })).await;

    assert_eq!(told, format!("min.js:1: var a;{} […]\n", "ä".repeat(197)));
}

#[tokio::test]
async fn a_search_that_finds_nothing_says_where_it_looked() {
    let world = World::new();
    world.put("a.txt", "x\n");

    let told = world.done("fs.grep", json!({ "pattern": "needle" })).await;

    assert_eq!(told, "no line of 1 files matches needle\n");
}

#[tokio::test]
async fn a_pattern_that_is_none_is_at_fault() {
    let world = World::new();

    let told = world.fails("fs.grep", json!({ "pattern": "fn main(" })).await;

    assert!(told.starts_with("error (invalid_arguments): regex parse error"), "{told}");
    assert!(told.contains("unclosed group"), "{told}");
}

#[tokio::test]
async fn no_search_leads_out_of_the_workspace() {
    let world = World::new();
    std::fs::write(world.folder().parent().unwrap().join("outside.txt"), "needle\n").unwrap();
    symlink("..", world.path("up")).unwrap();

    let found = world.done("fs.grep", json!({ "pattern": "needle" })).await;
    for path in ["..", "up", "/"] {
        let told = world.fails("fs.grep", json!({ "pattern": "needle", "path": path })).await;
        assert!(told.starts_with("error (denied): "), "{path}: {told}");
        let told = world.fails("fs.glob", json!({ "pattern": "**", "path": path })).await;
        assert!(told.starts_with("error (denied): "), "{path}: {told}");
    }

    assert_eq!(found, "no line of 0 files matches needle\n");
}

#[tokio::test]
async fn a_cancelled_search_ends() {
    let world = sources();
    let cancel = Cancel::new();
    cancel.cancel();

    let arguments = Arguments::Json(json!({ "pattern": "fn" }));
    let told = world.call_with("fs.grep", arguments, &cancel).await;

    assert_eq!(told.text, "error (cancelled): cancelled before it was done");
}

#[tokio::test]
async fn a_pattern_of_repeats_of_repeats_is_refused_and_not_built() {
    let world = World::new();
    world.put("a.txt", "aaaa\n");

    let pattern = "((a{1,100}){1,100}){1,100}";
    let told = world.fails("fs.grep", json!({ "pattern": pattern })).await;

    assert!(told.starts_with("error (invalid_arguments): ") && told.contains("size"), "{told}");
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_or_of_what_is_ignored_holds_no_search_up() {
    let world = sources();
    let pipe = |below: &str| {
        let made = std::process::Command::new("mkfifo").arg(world.path(below)).status().unwrap();
        assert!(made.success());
    };
    pipe("src/pipe.rs");
    world.put("held/x.rs", "pub fn x() {}\n");
    pipe("held/.gitignore");

    let found = world.done("fs.grep", json!({ "pattern": "fn" })).await;
    let direct = world.done("fs.grep", json!({ "pattern": "fn", "path": "src/pipe.rs" })).await;
    let within = world.done("fs.grep", json!({ "pattern": "fn", "path": "held" })).await;
    let names = world.done("fs.glob", json!({ "pattern": "**/*.rs" })).await;

    assert_eq!(found, "src/deep/two.rs:1: pub fn two() {}\nsrc/lib.rs:1: pub fn one() {}\n");
    assert_eq!(direct, "no line of 0 files matches fn\n");
    assert_eq!(within, "held/x.rs:1: pub fn x() {}\n");
    assert_eq!(names, "src/deep/two.rs\nsrc/lib.rs\nsrc/pipe.rs\n");
}
