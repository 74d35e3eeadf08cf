//! Gates of the operator's: programs that are asked about calls, and allow only by saying so.

use serde_json::json;

use crate::{
    answers::{calls, ends},
    world::World,
};

/// Runs an agent that writes two files, behind a gate that is this script.
async fn gated(script: &str) -> World {
    let config = format!(
        "[permissions]\nmode = \"auto\"\n[[hooks]]\nevent = \"tool.before\"\ntools = [\"fs.*\"]\n\
         command = [\"sh\", \"-c\", {script:?}]\ntimeout = \"5s\"\n"
    );
    let world = World::with(&config).await;
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    let write = |path: &str| ("fs.write", json!({ "path": path, "content": "model\n" }));
    world.server.reply(&World::chat("one"), calls(&[write("good.txt"), write("bad.txt")]));
    world.server.reply(&World::chat("one"), ends("Tried."));
    let ended = world.run(["run", "work"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world
}

#[tokio::test]
async fn a_gate_hook_decides_by_its_exit_code() {
    let world = gated("if grep -q bad.txt; then echo not that one >&2; exit 2; fi").await;

    assert!(world.path("good.txt").exists() && !world.path("bad.txt").exists());
    let told = world.server.requests()[1].text();
    assert!(told.contains("error (denied): not that one"), "{told}");
}

#[tokio::test]
async fn a_gate_hook_allows_only_by_saying_so() {
    for script in ["exit 1", "echo rubbish", "kill -9 $$", "sleep 60", "no-such-program-at-all"] {
        let world = gated(script).await;

        assert!(!world.path("good.txt").exists(), "{script}");
        let told = world.server.requests()[1].text();
        assert!(told.contains("failed, which denies"), "{script}: {told}");
    }
}

#[tokio::test]
async fn what_a_gate_replaces_is_done_and_recorded() {
    let answer =
        r#"echo '{"decision":"replace","arguments":{"path":"other.txt","content":"gate"}}'"#;
    let world = World::with(&format!(
        "[permissions]\nmode = \"auto\"\n[[hooks]]\nevent = \"tool.before\"\ntools = [\"fs.write\"]\n\
         command = [\"sh\", \"-c\", {answer:?}]\n"
    ))
    .await;
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    let write = ("fs.write", json!({ "path": "a.txt", "content": "model\n" }));
    world.server.reply(&World::chat("one"), calls(&[write]));
    world.server.reply(&World::chat("one"), ends("Tried."));

    let ended = world.run(["run", "work"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.repo.read("other.txt").unwrap(), "gate");
    assert!(!world.path("a.txt").exists());
    assert_eq!(world.events("tool.requested").await[0]["data"]["arguments"]["path"], "other.txt");
}
