//! What agents are held to: a fewest number of calls, none at all, and the patterns of being stuck.

use serde_json::json;

use crate::{
    answers::{calling, calls, ends, held, says},
    world::{World, end_of, on_postgres, signal},
};
use formwork_testkit::http::Gate;
use rustix::process::Signal;

/// Makes an agent with these rules, and a workflow of one task for it.
fn ruled(world: &World, rules: &str) -> &'static str {
    world.agent("worker", "one");
    let file = ".formwork/agents/worker.toml";
    let document = world.repo.read(file).unwrap();
    world.repo.write(file, document + rules).unwrap();
    world.workflow(
        "[[tasks]]\nname = \"work\"\nagent = \"worker\"\nprompt = \"Do it.\"\nretries = { max = 0 }\n",
    )
}

async fn reprompted(world: &World) -> Vec<serde_json::Value> {
    let events = world.events("session.reprompted").await;
    events.into_iter().map(|event| event["data"].clone()).collect()
}

async fn fewest_calls(world: World) {
    let workflow = ruled(&world, "[session]\nmin_tool_calls = 2\n");
    let chat = World::chat("one");
    world.server.reply(&chat, ends("Done."));
    world.server.reply(&chat, says("All is done."));
    let both = [("fs.read", json!({ "path": "README.md" })), ("fs.list_dir", json!({}))];
    world.server.reply(&chat, calls(&both));
    world.server.reply(&chat, ends("Now it is done."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.stderr.contains("reprompted 1 of 2: min_tool_calls: no tool calls of at least 2"),
        "{ended:#?}"
    );
    let told = reprompted(&world).await;
    assert_eq!(told.len(), 2, "{told:#?}");
    assert_eq!((&told[1]["number"], &told[1]["most"]), (&json!(2), &json!(2)));
    let asked = world.server.requests()[1].text();
    assert!(asked.contains("needs at least 2 tool calls that end well"), "{asked}");
    let replayed = world.json(["replay"]).await;
    assert_eq!(replayed["divergence"], json!(null), "{replayed:#}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_claim_before_the_fewest_calls_is_reprompted_and_then_taken() {
    fewest_calls(World::new().await).await;
}

#[tokio::test]
async fn pg_a_claim_before_the_fewest_calls_is_reprompted_and_then_taken() {
    on_postgres(fewest_calls).await;
}

#[tokio::test]
async fn who_is_reprompted_often_enough_ends_by_the_name_of_the_rule() {
    let world = World::new().await;
    let workflow = ruled(&world, "[session]\nmin_tool_calls = 1\nreprompts = 1\n");
    world.server.reply_always(&World::chat("one"), ends("Done."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.stdout.contains("rule min_tool_calls is not kept"), "{ended:#?}");
    assert_eq!(world.server.requests().len(), 2);
    assert_eq!(reprompted(&world).await.len(), 1);
    world.assert_sound().await;
}

#[tokio::test]
async fn a_reprompt_survives_a_kill_and_is_not_counted_anew() {
    let world = World::new().await;
    let workflow = ruled(&world, "[session]\nmin_tool_calls = 1\nreprompts = 1\n");
    let (chat, gate) = (World::chat("one"), Gate::new());
    world.server.reply(&chat, ends("Done."));
    world.server.reply(&chat, held(&gate, &calling(&[("fs.list_dir", json!({}))])));
    world.server.reply(&chat, ends("Done."));
    let program = world.formwork(["run", workflow]).spawn().unwrap();
    gate.reached().await;
    signal(&program, Signal::KILL);
    end_of(program).await;

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(2), "{resumed:#?}");
    assert_eq!(reprompted(&world).await.len(), 1);
    world.assert_sound().await;
}

#[tokio::test]
async fn where_no_calls_are_expected_none_is_made_and_the_model_is_told() {
    let world = World::new().await;
    let workflow = ruled(&world, "[session]\nexpects_zero_calls = true\n");
    let chat = World::chat("one");
    world
        .server
        .reply(&chat, calls(&[("fs.write", json!({ "path": "made.txt", "content": "x" }))]));
    world.server.reply(&chat, says("It is so."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!world.path("made.txt").exists());
    assert!(world.events("tool.requested").await.is_empty());
    assert_eq!(reprompted(&world).await[0]["rule"], "expects_zero_calls");
    // Words are the answer: nobody is asked to call end_task.
    assert_eq!(world.server.requests().len(), 2);
    world.assert_sound().await;
}

#[tokio::test]
async fn policies_nudge_once_or_now_and_then_and_end_nothing() {
    let world = World::new().await;
    let workflow = ruled(&world, "[session]\nearly_bail = 5\nwrite_pressure = 2\n");
    let chat = World::chat("one");
    for line in 1..=4 {
        world
            .server
            .reply(&chat, calls(&[("fs.read", json!({ "path": "README.md", "from": line }))]));
    }
    world.server.reply(&chat, ends("Done."));
    world.server.reply(&chat, ends("Done, and I have looked."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let rules: Vec<_> =
        reprompted(&world).await.into_iter().map(|told| told["rule"].clone()).collect();
    assert_eq!(rules, ["write_pressure", "write_pressure", "early_bail"], "{ended:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_pattern_of_stuck_calls_ends_the_task_by_that_name() {
    let cases = [
        (
            "[session.stuck]\nno_artifact = 3\n",
            3,
            "stuck: no artifact: 3 turns of calls have changed nothing",
        ),
        (
            "[session.stuck]\nerrors = 2\n",
            2,
            "stuck: repeated errors: 2 turns in a row brought nothing but one error",
        ),
        ("", 8, "stuck: ping-pong: the same 2 turns were made 4 times over"),
        ("", 6, "stuck: repeated call: the call of \"fs.read\" was repeated"),
    ];
    for (case, (rules, asked, told)) in cases.into_iter().enumerate() {
        let world = World::new().await;
        let workflow = ruled(&world, rules);
        for turn in 0..12 {
            let arguments = match case {
                0 => json!({ "path": "README.md", "from": turn + 1 }),
                1 => json!({ "path": format!("missing{turn}.txt") }),
                // Other calls change something between, so that none is refused.
                2 if turn % 2 == 0 => json!({ "path": "made.txt", "content": "x" }),
                _ => json!({ "path": "README.md" }),
            };
            let name = if arguments.get("content").is_some() { "fs.write" } else { "fs.read" };
            world.server.reply(&World::chat("one"), calls(&[(name, arguments)]));
        }

        let ended = world.run(["run", workflow]).await;

        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stdout.contains(told), "{told}: {ended:#?}");
        assert_eq!(world.server.requests().len(), asked, "{told}: {ended:#?}");
        let task = world.events("task.escalated").await;
        assert!(task[0]["data"]["ending"]["why"]["pattern"].is_string(), "{task:#?}");
        world.assert_sound().await;
    }
}

#[tokio::test]
async fn rules_that_contradict_each_other_are_refused_with_their_place() {
    let world = World::new().await;
    ruled(&world, "[session]\nexpects_zero_calls = true\nmin_tool_calls = 3\n");

    let ended = world.run(["validate", ".formwork/agents"]).await;

    assert_ne!(ended.code, Some(0), "{ended:#?}");
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(told.contains("worker.toml:9"), "{told}");
    assert!(world.server.requests().is_empty());
}
