//! Failures of a kind that may pass by itself.

use formwork_testkit::http::Reply;
use serde_json::Value;

use crate::{
    answers::{calls, ends},
    world::{World, on_postgres},
};

const PATIENT: &str = r#"
[[tasks]]
name = "only"
agent = "only"
prompt = "Read it."
retries = { max = 0, outage = "10s" }
"#;

fn down() -> Reply {
    Reply::json(503, r#"{"error": {"message": "no capacity"}}"#)
}

async fn a_server_that_died_is_waited_for(world: World) {
    world.agent("only", "one");
    let workflow = world.workflow(PATIENT);
    let chat = World::chat("one");
    let read = ("fs.read", serde_json::json!({ "path": "README.md" }));
    world.server.reply(&chat, calls(&[read]));
    // As often as one call is tried, and then for another attempt as well.
    for _ in 0..6 {
        world.server.reply(&chat, down());
    }
    world.server.reply(&chat, ends("Read."));

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let shown = world.shown().await;
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 3, "{attempts:#?}");
    let failed = world.events("attempt.ended").await;
    let classes: Vec<&Value> = failed.iter().map(|event| &event["data"]["class"]).collect();
    assert_eq!(classes, [&Value::from("passing"), &Value::from("passing"), &Value::Null]);
    // It is one conversation: the last request is the one that was refused, to the byte.
    let requests = world.server.requests();
    assert_eq!(requests.last().unwrap().text(), requests[1].text());
    world.assert_sound().await;
}

#[tokio::test]
async fn behaviour_66_a_server_that_died_is_waited_for_and_the_conversation_goes_on() {
    a_server_that_died_is_waited_for(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_66_a_server_that_died_is_waited_for_and_the_conversation_goes_on() {
    on_postgres(a_server_that_died_is_waited_for).await;
}
