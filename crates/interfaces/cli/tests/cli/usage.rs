//! What is typed, what is typed wrong, and what is told of it.

use formwork_cli::args::Cli;
use insta::assert_snapshot;
use serde_json::json;

use crate::world::World;

#[test]
fn the_help_names_every_verb() {
    let ran = World::new().run(&["--help"]);

    assert_snapshot!(ran);
}

#[test]
fn the_help_of_a_run_names_every_option() {
    let ran = World::new().run(&["run", "--help"]);

    assert_snapshot!(ran);
}

#[test]
fn every_verb_has_a_help() {
    let world = World::new();
    let command = <Cli as clap::CommandFactory>::command();

    for verb in command.get_subcommands() {
        let ran = world.run(&[verb.get_name(), "--help"]);

        assert_eq!(ran.code, 0, "{}: {ran}", verb.get_name());
        assert!(ran.stdout.contains("Usage: formwork"), "{ran}");
    }
}

#[test]
fn a_verb_that_is_none_is_answered_with_the_nearest() {
    let world = World::new();

    assert_snapshot!(world.run(&["runs", "lst"]));
}

#[test]
fn what_is_typed_wrong_ends_with_64() {
    let world = World::new();
    let wrong: [&[&str]; 9] = [
        &["--frobnicate"],
        &["run"],
        &["run", "fix", "-m", "Fix it"],
        &["run", "-m", "Fix it", "--mode", "yolo"],
        &["run", "-m", "Fix it", "--usd", "much"],
        &["run", "-m", "Fix it", "--model", "gpt"],
        &["runs", "show", "not-a-run"],
        &["blob", "not-a-hash"],
        &["schema", "everything"],
    ];

    for arguments in wrong {
        let ran = world.run(arguments);

        assert_eq!(ran.code, 64, "{arguments:?}: {ran}");
        assert_eq!(ran.stdout, "", "{arguments:?}");
        assert!(ran.stderr.starts_with("error: "), "{arguments:?}: {ran}");
    }
}

#[test]
fn without_anything_to_do_it_says_what_can_be_done() {
    let world = World::new();

    let (nothing, help) = (world.run(&[]), world.run(&["--help"]));

    assert_eq!((nothing.code, nothing.stdout), (64, help.stdout));
}

#[test]
fn nothing_is_coloured_where_nobody_sees_it_or_wants_it() {
    let faulty = "format_version = 1\nname = 3\n";
    for world in [World::new(), World::new().set("NO_COLOR", "1").set("TERM", "xterm-256color")] {
        world.put(".formwork/workflows/a.toml", faulty);

        let ran = world.run(&["validate"]);

        assert!(!ran.stderr.contains('\x1b') && !ran.stdout.contains('\x1b'), "{ran}");
    }
}

#[test]
fn colours_can_be_asked_for() {
    let world = World::new();
    world.put(".formwork/workflows/a.toml", "format_version = 1\nname = 3\n");

    let ran = world.run(&["--color", "always", "validate"]);

    assert!(ran.stderr.contains('\x1b'), "{ran}");
}

#[test]
fn a_run_without_a_model_says_how_to_name_one() {
    assert_snapshot!(World::new().run(&["run", "-m", "Fix the tests"]));
}

#[test]
fn a_machine_is_told_in_json_what_went_wrong() {
    let ran = World::new().run(&["run", "no-such-workflow", "--json"]);

    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (ran.code, &told["version"], &told["outcome"]),
        (3, &1.into(), &json!({ "code": "setup" }))
    );
    assert!(told["errors"][0].as_str().unwrap().contains("no-such-workflow"), "{told}");
}
