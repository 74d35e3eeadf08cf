//! Tools called by a person, through all that holds for a call of an agent.

use rustix::process::Signal;
use serde_json::json;

use crate::{
    crash::{marked, stuck},
    world::{World, end_of, on_postgres, signal},
};

const COUNT: &str = "format_version = 1\n[tool]\nname = \"custom.count\"\ndescription = \"Count lines.\"\n\
    [params.files]\ntype = \"array\"\ndescription = \"The files.\"\n\
    [execution.command]\nargv = [\"wc\", \"-l\", \"{{files}}\"]\n";

async fn a_custom_tool_is_tried_out(world: World) {
    world.repo.write(".formwork/tools/count.toml", COUNT).unwrap();
    let words = ["tools", "call", "custom.count", "files=README.md"];

    let untrusted = world.run(words).await;
    let trusted = world.run(["trust"]).await;
    let dry = world.run(words.iter().chain(&["--dry-run"])).await;
    let nothing_ran = world.events("tool.requested").await.is_empty();
    let called = world.run(words).await;
    let whole = r#"{"files":["README.md",".formwork/tools/count.toml"]}"#;
    let both = world.json(["tools", "call", "custom.count", "--args", whole]).await;

    assert_eq!((untrusted.code, trusted.code), (Some(3), Some(0)), "{untrusted:#?}");
    assert!(untrusted.stderr.contains("not trusted as they stand"), "{untrusted:#?}");
    assert_eq!(dry.code, Some(0), "{dry:#?}");
    assert!(
        dry.stdout.starts_with("custom.count would be called\n  runs   wc -l README.md\n"),
        "{dry:#?}"
    );
    assert!(nothing_ran);
    assert_eq!(called.code, Some(0), "{called:#?}");
    assert!(called.stdout.starts_with("exit code 0\n1 README.md\ncompleted: "), "{called:#?}");
    let answer = both["answer"].as_str().unwrap();
    assert!(answer.contains("10 total"), "{both:#}");
    let requested = world.events("tool.requested").await;
    assert_eq!(requested.len(), 2);
    assert_eq!(requested[0]["principal"], "user:ada");
    assert_eq!(requested[0]["data"]["arguments"], json!({ "files": ["README.md"] }));
    let shown = world.shown().await;
    assert_eq!(shown["tasks"][0]["body"], "call");
    assert!(world.server.requests().is_empty());
    let replayed = world.run(["replay"]).await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_custom_tool_is_tried_out_by_hand() {
    a_custom_tool_is_tried_out(World::new().await).await;
}

#[tokio::test]
async fn pg_a_custom_tool_is_tried_out_by_hand() {
    on_postgres(a_custom_tool_is_tried_out).await;
}

#[tokio::test]
async fn a_call_by_hand_is_held_to_what_an_agent_is_held_to() {
    let deny = "if grep -q bad.txt; then echo not that one >&2; exit 2; fi";
    let world = World::with(&format!(
        "[permissions]\nscope = [\"src/**\", \"bad.txt\"]\n[permissions.http]\nhosts = [\"docs.rs\"]\n\
         [[hooks]]\nevent = \"tool.before\"\ncommand = [\"sh\", \"-c\", {deny:?}]\n"
    ))
    .await;
    world.agent("reader", "one");
    let call = async |words: &[&str]| world.run(["tools", "call"].iter().chain(words)).await;
    let edit = ["--mode", "edit"];
    let write = |path: &'static str| [&["fs.write", path, "content=by hand"], &edit[..]].concat();

    let in_ask = call(&["fs.write", "path=src/a.txt", "content=x"]).await;
    let unknown = call(&["fs.wriet", "path=src/a.txt"]).await;
    let no_key = call(&["fs.write", "pth=src/a.txt"]).await;
    let too_few = call(&["fs.write", "path=src/a.txt"]).await;
    let lifecycle = call(&["end_task", "summary=done"]).await;
    let as_reviewer = call(&["fs.write", "path=a", "content=x", "--agent", "reviewer"]).await;
    let runs = world.json(["runs", "list"]).await;
    let outside = call(&write("path=out.txt")).await;
    let gated = call(&write("path=bad.txt")).await;
    let elsewhere = call(&["http", "url=http://example.com/", "--mode", "auto"]).await;
    let dry = call(&["http", "url=http://example.com/", "--mode", "auto", "--dry-run"]).await;
    let done = call(&write("path=src/a.txt")).await;

    for (ended, code, told) in [
        (&in_ask, 2, "tools of class write are not used in mode ask"),
        (&unknown, 3, "nearest is \"fs.write\""),
        (&no_key, 64, "fs.write is given no pth"),
        (&too_few, 64, "\"content\" is a required property"),
        (&lifecycle, 64, "belongs to a conversation"),
        (&as_reviewer, 2, "agent reviewer may not call it"),
    ] {
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        assert!(ended.stderr.contains(told), "{ended:#?}");
    }
    assert_eq!(runs["runs"], json!([]), "{runs:#}");
    for (ended, told) in [
        (&outside, "out.txt"),
        (&gated, "not that one"),
        (&elsewhere, "example.com:80 is not on the list of hosts"),
        (&dry, "http would be refused: example.com:80 is not on the list of hosts"),
    ] {
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.last_line().contains(told), "{ended:#?}");
    }
    assert!(!world.path("out.txt").exists() && !world.path("bad.txt").exists());
    assert_eq!(done.code, Some(0), "{done:#?}");
    assert!(done.stdout.starts_with("created src/a.txt (+1 -0)\n"), "{done:#?}");
    assert!(done.last_line().contains("1 file changed"), "{done:#?}");
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let undone = world.run(["undo", &run]).await;
    assert_eq!(undone.code, Some(0), "{undone:#?}");
    assert!(!world.path("src/a.txt").exists());
}

#[tokio::test]
async fn a_call_by_hand_whose_process_died_is_not_made_again_unasked() {
    let world = World::new().await;
    stuck(&world);
    let call = ["tools", "call", "exec", "command=sh", "command=stuck.sh"];

    let program = world.formwork(call).spawn().unwrap();
    marked(&world).await;
    signal(&program, Signal::KILL);
    end_of(program).await;
    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(1), "{resumed:#?}");
    assert!(resumed.last_line().contains("whether it took effect is unknown"), "{resumed:#?}");
    assert_eq!(world.repo.read("stuck.marks").unwrap(), "done\n");
    let failed = world.events("tool.failed").await;
    assert_eq!(failed[0]["data"]["error"], "outcome_unknown", "{failed:#?}");
    world.assert_sound().await;
}
