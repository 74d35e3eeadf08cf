//! A run that is recorded, and carried out again without its server.

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends},
    world::World,
};

/// What of the log has to be the same in both runs.
async fn told(world: &World) -> Vec<Value> {
    let run = world.shown().await["run"]["run"].as_str().map(str::to_owned);
    let mut events = Vec::new();
    for kind in ["model.completed", "tool.requested", "tool.completed", "session.message"] {
        events.extend(world.events(kind).await);
    }
    let kept = events.iter().filter(|event| event["run"].as_str() == run.as_deref()).map(|event| {
        let data = &event["data"];
        let keys = ["usage", "stop", "tool", "arguments", "preview", "role", "message", "index"];
        json!(keys.map(|key| data.get(key)))
    });
    kept.collect()
}

#[tokio::test]
async fn a_recorded_run_is_carried_out_again_without_its_server() {
    let key = "sk-e2e-0123456789abcdef";
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let keyed = "[providers.one]\napi_key = { env = \"KEY\" }\n";
    std::fs::write(world.config_file(), config.replace("[providers.one]\n", keyed)).unwrap();
    let folder = world.state().with_file_name("tape");
    let chat = World::chat("one");
    world.server.reply(&chat, calls(&[("fs.read", json!({ "path": "README.md" }))]));
    world.server.reply(&chat, ends("It says what it is."));
    let task = ["run", "-m", "What does the README say?"];

    let mut command = world.formwork(task);
    command.arg("--record").arg(&folder).env("KEY", key);
    let ended = crate::world::end_of(command.spawn().unwrap()).await;
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let live = told(&world).await;
    let headers = format!("{:?}", world.server.requests()[0]);
    assert!(headers.contains(key), "the key was sent: {headers}");
    world.server.stop();

    for entry in std::fs::read_dir(&folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!text.contains(key), "{text}");
    }
    let replay = config
        .replacen("kind = \"openai-compatible\"", "kind = \"recorded\"", 1)
        .replace(&format!("{}/one/v1", world.server.url()), &folder.display().to_string());
    std::fs::write(world.config_file(), replay).unwrap();
    let again = world.run(task).await;
    assert_eq!(again.code, Some(0), "{again:#?}");
    assert_eq!(told(&world).await, live);
    assert!(live.len() > 6, "{live:#?}");
    let served = world.events("model.completed").await;
    assert_eq!(served.last().unwrap()["data"]["served_by"]["endpoint"], "recorded:tape");

    let other = world.run(["run", "-m", "What else does the README say?"]).await;
    assert_ne!(other.code, Some(0));
    assert!(other.stderr.contains("this request was not recorded"), "{other:#?}");
    assert!(other.stderr.contains("messages[1]"), "{other:#?}");
    world.assert_sound().await;
}
