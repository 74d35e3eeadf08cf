//! Programs of the operator's: gates that allow only by saying so, and observers that hold nothing up.

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
    // The program is not asked again, and what it answered then is done again.
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
}

#[tokio::test]
async fn each_answer_of_a_gate_is_an_event_that_the_run_shows() {
    let script =
        "read call; case $call in *good*) exit 0;; *) echo not that one >&2; exit 2;; esac";
    let world = gated(script).await;

    let gated = world.events("tool.gated").await;
    let shown = world.run(["runs", "show"]).await;

    let answers: Vec<_> = gated.iter().map(|it| &it["data"]["answer"]).collect();
    assert_eq!(answers, ["allow", "deny"], "{gated:#?}");
    assert_eq!(gated[1]["data"]["reason"], "not that one");
    let line = format!("fs.write by sh -c {script}: denied: not that one");
    assert!(shown.stdout.contains("\ngates\n") && shown.stdout.contains(&line), "{shown:#?}");
    world.assert_sound().await;
}

/// Runs an agent that writes a file, watched by this script at these events.
async fn watched(events: &[&str], script: &str) -> World {
    let hooks: String = events
        .iter()
        .map(|event| {
            format!("[[hooks]]\nevent = {event:?}\ncommand = [\"sh\", \"-c\", {script:?}]\n")
        })
        .collect();
    let world = World::with(&format!("[permissions]\nmode = \"auto\"\n{hooks}")).await;
    world.agent("left", "one");
    world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");
    let write = ("fs.write", json!({ "path": "a.txt", "content": "model\n" }));
    world.server.reply(&World::chat("one"), calls(&[write]));
    world.server.reply(&World::chat("one"), ends("Done."));
    let ended = world.run(["run", "work"]).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(world.repo.read("a.txt").unwrap(), "model\n");
    world
}

#[tokio::test]
async fn an_observer_is_told_what_happens_in_order_and_before_the_program_ends() {
    let events = ["run.started", "session.started", "tool.after", "session.ended", "run.finished"];
    let world = watched(&events, "cat >> seen.jsonl; echo >> seen.jsonl").await;

    let seen = world.repo.read("seen.jsonl").unwrap();
    let told: Vec<serde_json::Value> = seen
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();

    let names: Vec<_> = told.iter().map(|it| it["event"].as_str().unwrap()).collect();
    let expected = [
        "run.started",
        "session.started",
        "tool.after",
        "tool.after",
        "session.ended",
        "run.finished",
    ];
    assert_eq!(names, expected, "{seen}");
    assert_eq!(
        (&told[2]["tool"], &told[2]["kind"]),
        (&json!("fs.write"), &json!("tool.completed"))
    );
    assert_eq!(told[2]["arguments"]["path"], "a.txt");
    assert_eq!(world.events("hook.failed").await, [] as [serde_json::Value; 0]);
}

#[tokio::test]
async fn an_observer_that_fails_holds_nothing_up_and_is_recorded() {
    let world = watched(&["tool.after", "run.finished"], "echo no room >&2; exit 3").await;

    let failed = world.events("hook.failed").await;
    let shown = world.run(["runs", "show"]).await;
    let replayed = world.run(["replay"]).await;

    let told: Vec<_> = failed.iter().map(|it| it["data"]["event"].as_str().unwrap()).collect();
    assert_eq!(told, ["tool.after", "tool.after", "run.finished"], "{failed:#?}");
    assert_eq!(failed[0]["data"]["reason"], "exit code 3: no room");
    assert_eq!(failed[0]["principal"], "system:hooks");
    assert!(shown.stdout.contains("hook failed: sh -c"), "{shown:#?}");
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn no_run_begins_with_a_hook_that_names_no_program() {
    for event in ["tool.before", "run.finished"] {
        let hook = format!("[[hooks]]\nevent = {event:?}\ncommand = []\n");
        let world = World::with(&format!("[permissions]\nmode = \"auto\"\n{hook}")).await;
        world.agent("left", "one");
        world.workflow("[[tasks]]\nname = \"left\"\nagent = \"left\"\nprompt = \"Go.\"\n");

        let ended = world.run(["run", "work"]).await;

        assert_eq!(ended.code, Some(3), "{event}: {ended:#?}");
        assert!(ended.stderr.contains("its command names no program"), "{event}: {ended:#?}");
        assert!(world.server.requests().is_empty(), "{event}");
        // Whoever mends the config finds nothing of it.
        let mended = world.providers(&world.server.url());
        std::fs::write(world.config_file(), mended).unwrap();
        let listed = world.json(["runs", "list"]).await;
        assert_eq!(listed["runs"], json!([]), "{event}: nothing is left to be resumed");
    }
}
