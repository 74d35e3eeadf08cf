//! What a person is told: files that are not there, outputs that cannot be printed, names that a model has made.

use std::process::Stdio;

use serde_json::json;

use crate::{
    answers::{calls, ends, says},
    world::{World, end_of},
};

#[tokio::test]
async fn a_named_file_that_is_not_there_is_told_of_before_the_model_is_asked() {
    let world = World::new().await;
    world.repo.write("missing.txt", "Here.\n").unwrap();
    world.server.reply(&World::chat("one"), says("I cannot tell."));

    let ended =
        world.run(["ask", "@ada of a@b.c: what does @mising.txt do, as a @dataclass?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told =
        "there is no file mising.txt, and nothing is attached for it; did you mean @missing.txt?";
    let lines: Vec<_> =
        ended.stderr.lines().filter(|line| line.contains("there is no file")).collect();
    assert_eq!(lines, [told], "{ended:#?}");
}

#[tokio::test]
async fn no_program_is_asked_how_large_a_terminal_is() {
    let world = World::new().await;
    world.server.reply(&World::chat("one"), says("Yes."));
    let programs = world.repo.path().join("programs");
    world.repo.write("programs/tput", "#!/bin/sh\ntouch \"$0.was-run\"\n").unwrap();
    let tput = programs.join("tput");
    std::fs::set_permissions(&tput, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", programs.display());

    let ended = end_of(world.formwork(["ask", "Is it?"]).env("PATH", path).spawn().unwrap()).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!programs.join("tput.was-run").exists());
}

#[tokio::test]
async fn a_text_of_which_a_part_is_shown_is_told_with_both_sizes() {
    let world = World::new().await;
    world.repo.write("big.txt", "word\n".repeat(20_000)).unwrap();
    world.server.reply(&World::chat("one"), says("Words."));

    let ended = world.run(["ask", "What is in @big.txt?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told = "big.txt is shown in part: the first 32768 of its 100000 bytes\n";
    assert!(ended.stderr.contains(told), "{ended:#?}");
}

#[tokio::test]
async fn a_name_that_a_model_has_made_forges_no_line_of_a_table() {
    let world = World::new().await;
    let chat = World::chat("one");
    let forged = "fs_read\n  forged                       $0, 0 tokens in 0 calls\u{1b}[31m";
    world.server.reply(&chat, calls(&[(forged, json!({ "path": "README.md" }))]));
    world.server.reply(&chat, ends("Nothing."));

    let ended = world.run(["run", "-m", "Look around."]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");

    let task = world.json(["tasks", "list"]).await["tasks"][0]["path"].as_str().unwrap().to_owned();
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let tables: [&[&str]; 4] =
        [&["spend"], &["runs", "show"], &["tasks", "list"], &["tasks", "get", &run, &task]];
    for table in tables {
        let shown = world.run(table).await;
        assert_eq!(shown.code, Some(0), "{shown:#?}");
        let is_forged = |line: &str| line.trim_start().starts_with("forged");
        assert!(!shown.stdout.lines().any(is_forged), "{shown:#?}");
        assert!(!shown.stdout.contains('\u{1b}'), "{shown:#?}");
    }
    assert!(world.run(["spend"]).await.stdout.contains("fs_read\u{fffd}"));
}

#[tokio::test]
async fn a_full_disk_in_the_place_of_the_output_is_told_as_what_cannot_be_printed() {
    let world = World::new().await;
    for verb in [
        &["--version"][..],
        &["--help"],
        &["tools", "list"],
        &["agents"],
        &["schema", "workflow"],
        &["completions", "bash"],
        &["config", "show"],
        &["runs", "list"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = world.bare(verb);
        command.stdout(Stdio::from(full));

        let ended = end_of(command.spawn().unwrap()).await;

        assert_eq!(ended.code, Some(1), "{verb:?} {ended:#?}");
        assert_eq!(ended.stderr, "formwork: cannot print: no space left on device\n", "{verb:?}");
    }
}

#[tokio::test]
async fn a_recording_of_nothing_leaves_no_folder() {
    let world = World::new().await;
    let folder = world.state().with_file_name("deep").join("tape");
    let record = folder.to_str().unwrap();
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let unpriced = config.replace("price = { input = \"1\", output = \"2\" }\n", "");
    std::fs::write(world.config_file(), unpriced).unwrap();

    let ended = world.run(["ask", "What is this?", "--record", record]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(!folder.exists() && !folder.parent().unwrap().exists());

    std::fs::write(world.config_file(), config).unwrap();
    world.server.reply(&World::chat("one"), says("A repository."));
    let ended = world.run(["ask", "What is this?", "--record", record]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
}
