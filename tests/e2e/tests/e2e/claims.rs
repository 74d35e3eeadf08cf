//! Tasks that may write the same take turns, and say for whom they wait.

use formwork_testkit::http::Gate;
use serde_json::json;

use crate::{
    answers::{calling, ends, held},
    world::{World, end_of, on_postgres},
};

const TWO: &str = r#"
[[tasks]]
name = "code"
agent = "code"
prompt = "Write src/code.txt."
write_paths = ["src/**"]

[[tasks]]
name = "core"
agent = "core"
prompt = "Write src/core/core.txt."
write_paths = ["src/core/*.txt"]
"#;

async fn two_take_turns(world: World) {
    world.agent("code", "one");
    world.agent("core", "two");
    let workflow = world.workflow(TWO);
    let gate = Gate::new();
    let write = ("fs.write", json!({ "path": "src/code.txt", "content": "code\n" }));
    world.server.reply(&World::chat("one"), held(&gate, &calling(&[write])));
    world.server.reply(&World::chat("one"), ends("Written."));
    world.server.reply(&World::chat("two"), ends("There was nothing to do."));

    let program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    let listed = world.run(["tasks", "list"]).await.stdout;
    let shown = world.run(["runs", "show"]).await.stdout;
    let run = world.json(["runs", "list"]).await["runs"][0]["run"].as_str().unwrap().to_owned();
    let got = world.run(["tasks", "get", &run, "core"]).await.stdout;
    gate.open();
    let ended = end_of(program).await;

    let waits = "waits for code to release src/core/";
    for told in [&listed, &shown, &got] {
        assert!(told.contains(waits), "{told}");
    }
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!world.run(["tasks", "list"]).await.stdout.contains(waits));
    let asked: Vec<String> =
        world.server.requests().iter().map(|request| request.path().to_owned()).collect();
    assert_eq!(asked, [World::chat("one"), World::chat("one"), World::chat("two")]);
    let blocked = world.events("task.blocked").await;
    assert_eq!(blocked.len(), 1, "{blocked:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_20_two_tasks_that_may_write_the_same_take_turns() {
    two_take_turns(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_20_two_tasks_that_may_write_the_same_take_turns() {
    on_postgres(two_take_turns).await;
}
