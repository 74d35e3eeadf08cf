//! Contracts: requirements that a task is held to, whatever it says of itself.

use serde_json::json;

use crate::{
    answers::{calls, ends},
    world::{World, on_postgres},
};

/// A contract of two requirements.
const SPEC: &str = "# The greeting\n\n## R1: It greets\n\nIn English.\n\n- check: run `grep -q hello greeting.txt`\n\
    - check: touched `greeting.txt`\n- check: called `fs.write`\n\n## R2: Nothing else is touched\n\n\
    - check: untouched `README.md`, `src/**`\n- check: lacks `greeting.txt` `TODO`\n- check: not called `fs.delete`\n";

fn write(text: &str) -> formwork_testkit::http::Reply {
    calls(&[("fs.write", json!({ "path": "greeting.txt", "content": text }))])
}

async fn held(world: World) {
    world.repo.write("SPEC.md", SPEC).unwrap();
    world.agent("worker", "one");
    let workflow = world.workflow(
        "[[tasks]]\nname = \"greet\"\nagent = \"worker\"\nprompt = \"Greet.\"\nspec = \"SPEC.md\"\n",
    );
    let chat = World::chat("one");
    world.server.reply(&chat, write("TODO\n"));
    world.server.reply(&chat, ends("It greets."));
    world.server.reply(&chat, write("hello\n"));
    world.server.reply(&chat, ends("Now it greets."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let requests = world.server.requests();
    let asked = requests[0].text();
    assert!(asked.contains("R1: It greets") && asked.contains("<contract>"), "{asked}");
    let told = requests[2].text();
    for told_of in
        ["0 of 2 requirements are kept", "R1 (It greets) is not kept", "SPEC.md:7", "SPEC.md:14"]
    {
        assert!(told.contains(told_of), "{told_of}: {told}");
    }
    let verdicts = world.events("check.finished").await;
    let passed: Vec<_> =
        verdicts.iter().map(|it| it["data"]["verdict"]["passed"].clone()).collect();
    assert_eq!(passed, [json!(false), json!(true)], "{verdicts:#?}");
    let steps = verdicts[1]["data"]["verdict"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6);
    assert!(steps.iter().all(|step| step["what"] == "requirement" && step["passed"] == true));
    let run = verdicts[0]["run"].as_str().unwrap();
    let shown = world.run(["tasks", "get", run, "greet"]).await;
    assert!(shown.stdout.contains("all 2 requirements are kept"), "{shown:#?}");
    assert!(shown.stdout.contains("R2 not called fs.delete"), "{shown:#?}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_task_is_held_to_its_contract_and_told_which_requirement_it_does_not_keep() {
    held(World::new().await).await;
}

#[tokio::test]
async fn pg_a_task_is_held_to_its_contract_and_told_which_requirement_it_does_not_keep() {
    on_postgres(held).await;
}

#[tokio::test]
async fn a_task_that_changes_its_contract_is_held_to_what_it_said_before() {
    let world = World::new().await;
    world.repo.write("SPEC.md", SPEC).unwrap();
    world.agent("worker", "one");
    let chat = World::chat("one");
    let weaker = "## R1: Nothing\n- check: exists `README.md`\n";
    world.server.reply(&chat, calls(&[("fs.read", json!({ "path": "SPEC.md" }))]));
    world
        .server
        .reply(&chat, calls(&[("fs.write", json!({ "path": "SPEC.md", "content": weaker }))]));
    for _ in 0..3 {
        world.server.reply(&chat, ends("It keeps all."));
    }

    let ended = world.run(["run", "-m", "Greet.", "--agent", "worker", "--spec", "SPEC.md"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(
        ended.stdout.contains("check \"spec SPEC.md\" failed in the last of 3 attempts"),
        "{ended:#?}"
    );
    world.assert_sound().await;
}

#[tokio::test]
async fn faults_of_a_contract_are_told_with_their_lines_before_anything_is_paid() {
    let world = World::new().await;
    world
        .repo
        .write("SPEC.md", "## R1: One\n- check: rn `x`\n- check: called `fs.raed`\n")
        .unwrap();
    world.agent("worker", "one");
    let task = |spec: &str| {
        format!(
            "[[tasks]]\nname = \"greet\"\nagent = \"worker\"\nprompt = \"Greet.\"\nspec = \"{spec}\"\n"
        )
    };

    let checked = world.run(["validate", "SPEC.md"]).await;
    let workflow = world.workflow(&task("SPEC.md"));
    let wrong = world.run(["run", workflow]).await;
    let single = world.run(["run", "-m", "Greet.", "--spec", "SPEC.md"]).await;
    let workflow = world.workflow(&task("../SPEC.md"));
    let outside = world.run(["run", workflow]).await;
    let missing = world.run(["run", "-m", "Greet.", "--spec", "none.md"]).await;

    for ended in [&checked, &wrong, &single] {
        assert_ne!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.stderr.contains("SPEC.md:2"), "{ended:#?}");
    }
    for ended in [&outside, &missing] {
        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert!(ended.stderr.contains("cannot be read"), "{ended:#?}");
    }
    world.repo.write("SPEC.md", "## R1: One\n- check: called `fs.raed`\n").unwrap();
    let tool = world.run(["run", "-m", "Greet.", "--spec", "SPEC.md"]).await;
    assert!(
        tool.stderr.contains("there is no tool fs.raed") && tool.stderr.contains("fs.read"),
        "{tool:#?}"
    );
    assert!(world.server.requests().is_empty());
}
