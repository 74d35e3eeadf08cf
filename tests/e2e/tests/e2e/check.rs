//! Keys are found before they are committed, in the very bytes that would be, and never told.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    world::{Ended, World},
};

/// A key that nobody has, put together here so that this file does not hold it.
fn key() -> String {
    ["ghp", "_", "9aB3dE7fG1hJ5kL2mN8pQ4rS6tU0vW", "xYz123"].concat()
}

fn git(world: &World, arguments: &[&str]) {
    let status = Command::new("git").args(arguments).current_dir(world.repo.path()).status();
    assert!(status.unwrap().success(), "git {arguments:?}");
}

fn found(ended: &Ended) -> Vec<(String, u64, String)> {
    let document = ended.json();
    let findings = document["findings"].as_array().unwrap();
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    findings
        .iter()
        .map(|it| (text(it, "path"), it["line"].as_u64().unwrap(), text(it, "rule")))
        .collect()
}

#[tokio::test]
async fn a_pragma_for_a_rule_that_there_is_not_is_told_and_allows_nothing() {
    let world = World::new().await;
    world.repo.write("a.txt", format!("gh = {:?} # formwork:allow github\n", key())).unwrap();

    let told = world.run(["check", "a.txt"]).await;
    let json = world.run(["check", "a.txt", "--json"]).await.json();

    assert_eq!(told.code, Some(2), "{told:#?}");
    let line = "a.txt:1:7: a token of GitHub (github-token); its `formwork:allow github` names no rule, and allows \
                nothing\n";
    assert!(told.stdout.starts_with(line), "{}", told.stdout);
    assert_eq!(json["findings"][0]["no_rule"], "github", "{json:#}");
    assert_silent(&told);
}

fn assert_silent(ended: &Ended) {
    let middle = &key()[8..24];
    assert!(!ended.stdout.contains(middle) && !ended.stderr.contains(middle), "{ended:#?}");
}

#[tokio::test]
async fn the_secret_scan_reads_staged_blobs_and_prints_no_secret() {
    let world = World::new().await;
    world.repo.write("src/app.py", format!("# app\ntoken = \"{}\"\n", key())).unwrap();
    git(&world, &["add", "src/app.py"]);
    // What the file holds by now is not what would be committed.
    world.repo.write("src/app.py", "# app\n").unwrap();

    let staged = world.run(["check", "--staged", "--json"]).await;
    let tree = world.run(["check", "--all", "--json"]).await;
    let told = world.run(["check", "--staged"]).await;

    assert_eq!(staged.code, Some(2), "{staged:#?}");
    assert!(
        found(&staged).contains(&("src/app.py".into(), 2, "github-token".into())),
        "{staged:#?}"
    );
    assert_eq!(tree.code, Some(0), "{tree:#?}");
    assert!(told.stdout.contains("src/app.py:2:"), "{told:#?}");
    for ended in [&staged, &tree, &told] {
        assert_silent(ended);
    }
}

#[tokio::test]
async fn a_hook_of_git_checks_the_index_that_git_is_about_to_commit() {
    let world = World::new().await;
    world.repo.write("app.py", "one\n").unwrap();
    git(&world, &["add", "app.py"]);
    git(&world, &["commit", "-qm", "app"]);
    let hook = world.path(".git/hooks/pre-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let command = world.bare(["check", "--staged"]);
    let program = command.as_std().get_program().to_str().unwrap().to_owned();
    std::fs::write(&hook, format!("#!/bin/sh\nexec {program} check --staged\n")).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.repo.write("app.py", format!("{}\n", key())).unwrap();

    // Git makes an index of its own for this, and names it to the hook.
    let committed = Command::new("git")
        .args(["commit", "-qam", "leak"])
        .current_dir(world.repo.path())
        .env("FORMWORK_STATE_DIR", world.state())
        .env("FORMWORK_CONFIG_DIR", world.state())
        .output()
        .unwrap();

    assert!(!committed.status.success(), "{committed:?}");
    let said =
        String::from_utf8_lossy(&committed.stdout) + String::from_utf8_lossy(&committed.stderr);
    assert!(said.contains("app.py:1:"), "{said}");
}

#[tokio::test]
async fn the_secret_scan_fails_closed() {
    let world = World::new().await;
    let outside = tempfile::tempdir().unwrap();
    // No repository: nothing can be staged.
    let unstaged = world.run(["-C", outside.path().to_str().unwrap(), "check", "--staged"]).await;
    assert_eq!(unstaged.code, Some(2), "{unstaged:#?}");

    let missing = world.run(["check", "no-such-file"]).await;
    assert_eq!(missing.code, Some(2), "{missing:#?}");

    git(&world, &["add", "."]);
    world.repo.write("a.txt", format!("{}\n", key())).unwrap();
    git(&world, &["add", "a.txt"]);
    let objects = world.path(".git/objects");
    for folder in std::fs::read_dir(&objects).unwrap().flatten() {
        if folder.file_name().len() == 2 {
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
    }
    let damaged = world.run(["check", "--staged"]).await;
    assert_eq!(damaged.code, Some(2), "{damaged:#?}");
}

#[tokio::test]
async fn hostile_files_are_looked_at_or_named() {
    let world = World::new().await;
    let wide: Vec<u8> = key().encode_utf16().flat_map(u16::to_le_bytes).collect();
    world.repo.write("wide.txt", &wide).unwrap();
    world
        .repo
        .write("blob.bin", [b"\0\x01\xff".as_slice(), key().as_bytes(), b"\0"].concat())
        .unwrap();
    world.repo.write("odd \u{202e}name\n.txt", format!("{}\n", key())).unwrap();
    world.repo.write(".gitignore", "ignored.txt\n").unwrap();
    world.repo.write("ignored.txt", format!("{}\n", key())).unwrap();
    world.repo.write("fine.txt", format!("{} # formwork:allow\n", key())).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, world.path("pipe"), 0o644.into()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", world.path("link")).unwrap();

    let all = world.run(["check", "--json"]).await;
    let named = world.run(["check", "ignored.txt"]).await;

    assert_eq!(all.code, Some(2), "{all:#?}");
    let paths: Vec<String> = found(&all).into_iter().map(|(path, ..)| path).collect();
    assert_eq!(paths, ["blob.bin", "odd \u{202e}name\n.txt", "wide.txt"]);
    assert_eq!(all.json()["allowed"], 1);
    assert_eq!(named.code, Some(2), "{named:#?}");
    let text = world.run(["check"]).await;
    assert!(!text.stdout.contains('\u{202e}'), "{text:#?}");
    assert_silent(&text);
}

#[tokio::test]
async fn only_what_git_itself_ignores_is_left_out() {
    let world = World::new().await;
    world.repo.write(".ignore", "*.env\n").unwrap();
    world.repo.write("secrets.env", format!("{}\n", key())).unwrap();
    world.repo.write("sub/.gitignore", "left-out.txt\n").unwrap();
    world.repo.write("sub/left-out.txt", format!("{}\n", key())).unwrap();
    world.repo.write("sub/deep/a.txt", format!("{}\n", key())).unwrap();

    let all = world.run(["check", "--json"]).await;
    let deep = world.run(["check", "sub/deep", "--json"]).await;

    let paths = |ended: &Ended| found(ended).into_iter().map(|(path, ..)| path).collect::<Vec<_>>();
    assert_eq!(paths(&all), ["secrets.env", "sub/deep/a.txt"]);
    assert_eq!(paths(&deep), ["sub/deep/a.txt"]);
}

#[tokio::test]
async fn what_lies_above_the_repository_hides_nothing_in_it() {
    let world = World::new().await;
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("repo");
    std::fs::create_dir(&repo).unwrap();
    std::fs::write(home.path().join(".gitignore"), "*\n").unwrap();
    std::fs::write(repo.join("a.txt"), format!("{}\n", key())).unwrap();
    let check = ["-C", repo.to_str().unwrap(), "check", "--json"];

    let folder = world.run(check).await;
    let made = Command::new("git").args(["init", "-q"]).current_dir(&repo).status();
    assert!(made.unwrap().success());
    let repository = world.run(check).await;

    for ended in [folder, repository] {
        assert_eq!(found(&ended), [("a.txt".into(), 1, "github-token".into())], "{ended:#?}");
    }
}

#[tokio::test]
async fn a_key_in_the_name_of_a_file_is_a_finding() {
    let world = World::new().await;
    world.repo.write(format!("src/{}.txt", key()), "nothing\n").unwrap();

    let ended = world.run(["check", "--json"]).await;
    let told = world.run(["check"]).await;
    git(&world, &["add", "src"]);
    let staged = world.run(["check", "--staged", "--json"]).await;

    let name = "src/(a name that holds what looks like a secret)";
    for ended in [&ended, &staged] {
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert_eq!(found(ended), [(name.into(), 0, "github-token".into())]);
        assert_silent(ended);
    }
    assert!(told.stdout.contains(&format!("{name}: ")), "{told:#?}");
    assert_silent(&told);
}

#[tokio::test]
async fn a_run_commits_only_what_scans_clean_and_no_pragma_excuses_it() {
    let world = World::new().await;
    world.agent("left", "one");
    let content = format!("token = \"{}\" # formwork:allow\n", key());
    world.server.reply(
        &World::chat("one"),
        calls(&[("fs.write", json!({ "path": "app.py", "content": content }))]),
    );
    world
        .server
        .reply(&World::chat("one"), calls(&[("git.commit", json!({ "message": "app: add it" }))]));
    world.server.reply(&World::chat("one"), ends("It is written."));
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");

    let ended = world.run(["run", "work", "--commit"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert_silent(&ended);
    assert_eq!(world.events("commit.made").await, [] as [Value; 0]);
    let told = world.server.requests()[2].text();
    assert!(
        told.contains("line 1 holds what looks like a token of GitHub (github-token)"),
        "{told}"
    );
}

#[tokio::test]
async fn what_was_committed_before_does_not_hold_up_a_commit() {
    let world = World::new().await;
    let old = format!("token = \"{}\"\n", key());
    world.repo.write("app.py", &old).unwrap();
    world.repo.commit("app: as it is").unwrap();
    world.agent("left", "one");
    world.server.reply(&World::chat("one"), calls(&[("fs.read", json!({ "path": "app.py" }))]));
    let new = format!("{old}print(1)\n");
    world.server.reply(
        &World::chat("one"),
        calls(&[("fs.write", json!({ "path": "app.py", "content": new }))]),
    );
    world.server.reply(&World::chat("one"), ends("It prints."));
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");

    let ended = world.run(["run", "work", "--commit"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.events("commit.made").await.len(), 1);
}
