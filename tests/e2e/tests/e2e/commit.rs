//! Commits hold what the run has changed, and nothing else.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    answers::{calls, ends, says},
    world::{World, end_of, signal},
};

/// A repository with something staged, something changed and something new of the user's own.
async fn in_the_midst() -> World {
    let world = World::new().await;
    let repo = &world.repo;
    repo.write("src/a.txt", "one\ntwo\nthree\nfour\nfive\n").unwrap();
    repo.write("src/b.txt", "b\n").unwrap();
    repo.write("staged.txt", "old\n").unwrap();
    repo.commit("tree: what there is").unwrap();
    repo.write("src/a.txt", "one, mine\ntwo\nthree\nfour\nfive\n").unwrap();
    repo.write("staged.txt", "new\n").unwrap();
    repo.git(&["add", "staged.txt"]).unwrap();
    repo.write("mine.txt", "not yet\n").unwrap();
    world
}

/// Changes a file that the user has changed as well, adds one, removes one, and leaves one by a program.
fn work() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("fs.edit", json!({ "path": "src/a.txt", "old": "five", "new": "5" })),
        ("fs.write", json!({ "path": "src/new.txt", "content": "new\n" })),
        ("fs.delete", json!({ "path": "src/b.txt", "reason": "unused" })),
        ("exec", json!({ "command": ["cp", "src/new.txt", "copied.txt"] })),
    ]
}

#[tokio::test]
async fn a_run_with_commit_commits_its_own_changes_once_it_has_completed() {
    let world = in_the_midst().await;
    world.repo.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n").unwrap();
    world.server.reply(&World::chat("one"), calls(&work()));
    world.server.reply(&World::chat("one"), ends("Counted to 5."));

    let ended = world.run(["run", "-m", "Count to five.", "--commit"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("committed "), "{ended:#?}");
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let shown = world.repo.git(&["show", "--format=%B", "--name-status", "HEAD"]).unwrap();
    let expected = format!(
        "Count to five.\n\nCounted to 5.\n\nFormwork-Run: {run}\n\n\nA\tcopied.txt\nM\tsrc/a.txt\nD\tsrc/b.txt\nA\tsrc/new.txt"
    );
    assert_eq!(shown.trim(), expected);
    let committed = world.repo.git(&["show", "HEAD:src/a.txt"]).unwrap();
    assert_eq!(committed.trim(), "one\ntwo\nthree\nfour\n5");
    let status = world.repo.git(&["status", "--porcelain"]).unwrap();
    assert_eq!(status.trim(), "M src/a.txt\nM  staged.txt\n?? mine.txt");
    assert_eq!(world.events("commit.made").await.len(), 1);
    world.assert_sound().await;
}

#[tokio::test]
async fn what_builds_write_is_not_committed_where_nobody_has_it_ignored() {
    let world = World::new().await;
    let made = "pkg/__pycache__/a.pyc";
    world.server.reply(
        &World::chat("one"),
        calls(&[
            ("exec", json!({ "command": ["mkdir", "-p", "pkg/__pycache__", "src/target"] })),
            ("exec", json!({ "command": ["cp", "README.md", made] })),
            ("exec", json!({ "command": ["cp", "README.md", "src/target/b.txt"] })),
            ("fs.write", json!({ "path": "pkg/a.py", "content": "x = 1\n" })),
        ]),
    );
    world.server.reply(&World::chat("one"), ends("Done."));

    let ended = world.run(["run", "-m", "Build it.", "--commit"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let shown = world.repo.git(&["show", "--format=", "--name-only", "HEAD"]).unwrap();
    assert_eq!(shown.trim(), "pkg/a.py\nsrc/target/b.txt");
    let told = world.events("commit.made").await[0]["data"]["left"].to_string();
    assert!(told.starts_with(&format!("[\"{made}: what builds write")), "{told}");
}

#[tokio::test]
async fn what_a_rule_of_the_run_ignores_is_not_committed_as_deleted() {
    let world = World::with("[permissions]\nmode = \"auto\"\n").await;
    world.repo.write("other/f", "kept\n").unwrap();
    world.repo.write("ignore.sh", "echo other/ > .gitignore\necho new > g\n").unwrap();
    world.repo.commit("tree: what there is").unwrap();
    world
        .server
        .reply(&World::chat("one"), calls(&[("exec", json!({ "command": ["sh", "ignore.sh"] }))]));
    world.server.reply(&World::chat("one"), ends("Ignored."));

    let ended = world.run(["run", "-m", "Ignore other.", "--commit"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let shown = world.repo.git(&["show", "--format=", "--name-status", "HEAD"]).unwrap();
    assert_eq!(shown.trim(), "A\t.gitignore\nA\tg");
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let undone = world.run(["undo", &run]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert_eq!(world.repo.read("other/f").unwrap(), "kept\n");
    assert!(!world.path(".gitignore").exists());
}

#[tokio::test]
async fn a_run_that_did_not_complete_commits_nothing() {
    let world = in_the_midst().await;
    let before = world.repo.head().unwrap();
    world.server.reply(&World::chat("one"), calls(&work()));
    for _ in 0..8 {
        world.server.reply(&World::chat("one"), ends("Counted to 5."));
    }

    let ended =
        world.run(["run", "-m", "Count to five.", "--commit", "--check", "test -e never"]).await;

    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.repo.head().unwrap(), before);
}

#[tokio::test]
async fn behaviour_26_an_agent_commits_step_by_step_and_from_a_subdirectory() {
    let world = in_the_midst().await;
    world.agent("worker", "one");
    let edit =
        |old: &str, new: &str| ("fs.edit", json!({ "path": "b.txt", "old": old, "new": new }));
    let commit = |message: &str| ("git.commit", json!({ "message": message }));
    let answer = [
        edit("b", "c"),
        commit("b: say c\n\nIt was b."),
        commit("b: again"),
        edit("c", "d"),
        commit("b: say d"),
    ];
    world.server.reply(&World::chat("one"), calls(&answer));
    world.server.reply(&World::chat("one"), says("Both are made."));
    world.server.reply(&World::chat("one"), ends("Both are made."));
    for folder in [".formwork/agents/worker.toml", ".formwork/agents/worker.md"] {
        let text = world.repo.read(folder).unwrap();
        world.repo.write(format!("src/{folder}"), text).unwrap();
    }
    let folder = world.path("src").display().to_string();
    world.run(["trust", "-C", &folder]).await;

    let ended = world.run(["run", "-C", &folder, "-m", "Say d.", "--agent", "worker"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let log = world.repo.git(&["log", "--format=%s", "--name-only", "-2"]).unwrap();
    assert_eq!(log.trim(), "b: say d\n\nsrc/b.txt\nb: say c\n\nsrc/b.txt");
    let trailers = world.repo.git(&["log", "-1", "--format=%(trailers:keyonly)"]).unwrap();
    assert_eq!(trailers.trim(), "Formwork-Run\nFormwork-Task");
    let failed = world.events("tool.failed").await;
    assert_eq!(failed.len(), 1, "{failed:#?}");
    assert!(failed[0]["data"]["message"].to_string().contains("nothing to commit"), "{failed:#?}");
}

#[tokio::test]
async fn a_secret_is_not_committed() {
    let secrets = "[secrets]\nDEPLOY = { env = \"DEPLOY_TOKEN\" }\n[permissions]\nmode = \"auto\"\n\
         exec_secrets = { DEPLOY = [\"sh put.sh *\"] }\n";
    let world = World::with(secrets).await;
    world.repo.write("put.sh", "echo \"$1\" > key.txt\n").unwrap();
    let before = world.repo.head().unwrap();
    let write = ("exec", json!({ "command": ["sh", "put.sh", "{{secret:DEPLOY}}"] }));
    world.server.reply(&World::chat("one"), calls(&[write]));
    world.server.reply(&World::chat("one"), ends("Written."));

    let mut command = world.formwork(["run", "-m", "Write the key.", "--commit"]);
    let ended = end_of(command.env("DEPLOY_TOKEN", "tok-not-to-be-told-0815").spawn().unwrap());
    let ended = ended.await;

    assert_eq!(world.repo.read("key.txt").unwrap(), "tok-not-to-be-told-0815\n");
    assert_ne!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stderr.contains("key.txt") && ended.stderr.contains("secret"), "{ended:#?}");
    assert!(!ended.stderr.contains("0815"), "{ended:#?}");
    assert_eq!(world.repo.head().unwrap(), before);
}

#[tokio::test]
async fn what_keeps_a_commit_from_being_made_is_told_with_the_outcome() {
    let world = World::new().await;
    let before = world.repo.head().unwrap();
    let branch = world.repo.git(&["symbolic-ref", "HEAD"]).unwrap();
    world.repo.write(format!(".git/{}.lock", branch.trim()), "").unwrap();
    let write = ("fs.write", json!({ "path": "new.txt", "content": "new\n" }));
    world.server.reply(&World::chat("one"), calls(&[write]));
    world.server.reply(&World::chat("one"), ends("Written."));

    let ended = world.run(["run", "-m", "Write it.", "--commit", "--json"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let reason = told["outcome"]["reason"].as_str().unwrap();
    assert!(reason.contains("not committed: ") && reason.contains("lock"), "{reason}");
    assert!(told["outcome"]["run"].is_string(), "{told:#}");
    assert_eq!(world.repo.head().unwrap(), before);
}

/// Has a program commit while another git holds the index, and kills it once the branch has moved.
async fn killed_before_the_index_follows(world: &World, arguments: &[&str]) -> String {
    let before = world.repo.head().unwrap();
    world.repo.write(".git/index.lock", "").unwrap();
    let program = world.formwork(arguments).spawn().unwrap();
    while world.repo.head().unwrap() == before {
        tokio::task::yield_now().await;
    }
    signal(&program, Signal::KILL);
    end_of(program).await;
    std::fs::remove_file(world.path(".git/index.lock")).unwrap();
    world.repo.head().unwrap()
}

/// Holds that everything is committed once, and nothing is staged back.
async fn is_committed_once(world: &World, made: &str) {
    assert_eq!(world.repo.head().unwrap(), made);
    let status = world.repo.git(&["status", "--porcelain", "--", ".", ":!.formwork"]).unwrap();
    assert_eq!(status.trim(), "M src/a.txt\nM  staged.txt\n?? mine.txt");
    let told = world.events("commit.made").await;
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0]["data"]["commit"], made);
    world.assert_sound().await;
}

async fn killed_over_the_last_commit(world: World) {
    world.server.reply(&World::chat("one"), calls(&work()));
    world.server.reply(&World::chat("one"), ends("Counted to 5."));
    let asked = ["run", "-m", "Count to five.", "--commit"];
    let made = killed_before_the_index_follows(&world, &asked).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    is_committed_once(&world, &made).await;
}

#[tokio::test]
async fn what_is_owed_at_the_end_of_a_run_is_done_by_whoever_takes_it_up() {
    killed_over_the_last_commit(in_the_midst().await).await;
}

#[tokio::test]
async fn a_commit_of_an_agent_that_a_process_died_over_is_known_and_whole_afterwards() {
    let world = in_the_midst().await;
    world.agent("worker", "one");
    let mut answer = work();
    answer.push(("git.commit", json!({ "message": "five: count to it" })));
    world.server.reply(&World::chat("one"), calls(&answer));
    world.server.reply(&World::chat("one"), ends("Counted to 5."));
    let asked = ["run", "-m", "Count to five.", "--agent", "worker"];
    let made = killed_before_the_index_follows(&world, &asked).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    is_committed_once(&world, &made).await;
}
