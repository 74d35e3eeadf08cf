//! What a turn sends begins with what the turn before has sent, byte for byte, so that a provider's cache holds.

use std::collections::BTreeSet;

use formwork_testkit::http::Reply;
use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    world::World,
};

/// What the model calls, turn by turn: reads beside each other, a write, a program, what fails.
fn turns() -> Vec<Vec<(&'static str, Value)>> {
    vec![
        vec![("fs.read", json!({ "path": "README.md" })), ("fs.list_dir", json!({}))],
        vec![("fs.write", json!({ "path": "notes.md", "content": "größe\n" }))],
        vec![("fs.grep", json!({ "pattern": "größe" }))],
        vec![("fs.read", json!({ "path": "notes.md" }))],
        vec![("exec", json!({ "command": ["echo", "hello"] }))],
        vec![("fs.read", json!({ "path": "missing.md" }))],
        vec![("fs.glob", json!({ "pattern": "*.md" }))],
    ]
}

/// Returns what each request has behind what the next one begins with, each once. `strip` takes out what marks a place
/// for the provider's cache and is no part of what it holds.
fn tails(requests: &[String], strip: &str) -> String {
    let bare: Vec<String> = requests.iter().map(|text| text.replace(strip, "")).collect();
    let mut tails = BTreeSet::new();
    for pair in bare.windows(2) {
        let [before, next] = pair else { continue };
        let shared = before.bytes().zip(next.bytes()).take_while(|(a, b)| a == b).count();
        let tail = before.get(shared..).expect("they part between two characters");
        assert!(shared > before.len() / 2, "only {shared} bytes are shared of {before}");
        tails.insert(tail.to_owned());
    }
    tails.into_iter().collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn each_request_on_openais_wire_begins_with_the_one_before_up_to_its_tail() {
    let world = World::new().await;
    for turn in turns() {
        world.server.reply(&World::chat("one"), calls(&turn));
    }
    world.server.reply(&World::chat("one"), ends("Done."));

    let ended = world.run(["run", "-m", "Look around."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let requests: Vec<String> = world.server.requests().iter().map(|it| it.text()).collect();
    assert_eq!(requests.len(), 8);
    insta::assert_snapshot!("openai", tails(&requests, "\0"));
}

/// Returns a stream of Anthropic's wire with some calls.
fn stream(turn: usize, calls: &[(&str, Value)]) -> String {
    let mut events = vec![json!({ "type": "message_start", "message": {
        "id": format!("msg_{turn}"), "type": "message", "role": "assistant", "content": [], "model": "claude",
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 100, "output_tokens": 2 },
    } })];
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let block = json!({
            "type": "tool_use", "id": format!("toolu_{turn}_{index}"), "name": name.replace('.', "_"), "input": {},
        });
        let delta = json!({ "type": "input_json_delta", "partial_json": arguments.to_string() });
        events.extend([
            json!({ "type": "content_block_start", "index": index, "content_block": block }),
            json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            json!({ "type": "content_block_stop", "index": index }),
        ]);
    }
    let delta = json!({ "stop_reason": "tool_use", "stop_sequence": null });
    events
        .push(json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 20 } }));
    events.push(json!({ "type": "message_stop" }));
    let line = |event: &Value| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
    };
    events.iter().map(line).collect()
}

#[tokio::test]
async fn each_request_on_anthropics_wire_begins_with_the_one_before_up_to_its_tail() {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let key = world.state().with_file_name("key");
    std::fs::write(&key, "sk-made-up-for-a-test").unwrap();
    let config = config.replace(
        "[categories]\ndefault = \"one/m\"\n",
        &format!(
            "[providers.claude]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = {{ file = \"{}\" }}\n\
             [models.\"claude/m\"]\nprice = {{ input = \"1\", output = \"2\" }}\ncontext_tokens = 100000\n\
             max_output_tokens = 1000\n[categories]\ndefault = \"claude/m\"\n",
            world.server.url(),
            key.display()
        ),
    );
    std::fs::write(world.config_file(), config).unwrap();
    let turns = turns();
    for (at, turn) in turns.iter().enumerate() {
        world.server.reply("/v1/messages", Reply::sse(stream(at, turn)));
    }
    let end = [("end_task", json!({ "summary": "Done." }))];
    world.server.reply("/v1/messages", Reply::sse(stream(turns.len(), &end)));

    let ended = world.run(["run", "-m", "Look around."]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let requests: Vec<String> = world.server.requests().iter().map(|it| it.text()).collect();
    assert_eq!(requests.len(), 8);
    assert!(requests.iter().all(|text| text.matches("cache_control").count() <= 4));
    insta::assert_snapshot!(
        "anthropic",
        tails(&requests, "\"cache_control\":{\"type\":\"ephemeral\"},")
    );
}
