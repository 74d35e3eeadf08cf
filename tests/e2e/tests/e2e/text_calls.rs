//! Models that write their calls as text, and models that take no tools at all.

use serde_json::{Value, json};

use crate::{
    answers::{calls, ends, says},
    world::World,
};

const READ: &str = "I will look.\n<tool_call>\n{\"name\": \"fs.read\", \"arguments\": {\"path\": \"README.md\"}}\n</tool_call>";

const END: &str = "<tool_call>\n{\"name\": \"end_task\", \"arguments\": {\"summary\": \"It is a repository.\"}}\n</tool_call>";

/// A world whose first model takes tools so.
async fn world(tool_calls: &str) -> World {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    let model = "[models.\"one/m\"]\n";
    assert!(config.contains(model));
    let declared = format!("{model}tool_calls = \"{tool_calls}\"\n");
    std::fs::write(world.config_file(), config.replace(model, &declared)).unwrap();
    world
}

fn sent(world: &World, at: usize) -> Value {
    serde_json::from_slice(&world.server.requests()[at].body).unwrap()
}

/// Returns the texts of the messages that were sent, and by whom each is said.
fn said(request: &Value) -> Vec<(String, String)> {
    let messages = request["messages"].as_array().unwrap().iter();
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts.to_string(),
    };
    messages.map(|said| (said["role"].as_str().unwrap().to_owned(), text(said))).collect()
}

#[tokio::test]
async fn a_model_that_is_declared_so_works_by_calls_in_its_words() {
    let world = world("text").await;
    for answer in [READ, END] {
        world.server.reply(&World::chat("one"), says(answer));
    }

    let ended = world.run(["run", "-m", "What is this?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let tools: Vec<_> = world.events("tool.requested").await;
    let tools: Vec<_> = tools.iter().map(|event| event["data"]["tool"].clone()).collect();
    assert_eq!(tools, ["fs.read", "end_task"]);
    let first = sent(&world, 0);
    assert!(first.get("tools").is_none(), "{first:#}");
    let described = said(&first).into_iter().any(|(role, text)| {
        role == "system" && text.contains("<tool_call>") && text.contains("\"fs.read\"")
    });
    assert!(described, "{first:#}");
    let heard = said(&sent(&world, 1));
    let (role, text) = heard.last().unwrap();
    assert_eq!(role, "user");
    assert!(text.starts_with("Result of fs.read:\n"), "{text}");
    assert!(text.contains("A repository to work on."), "{text}");
    // What a person watches are the words and not the call.
    assert!(!ended.stdout.contains("<tool_call>"), "{ended:#?}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_model_with_calls_of_its_own_is_reminded_that_a_call_in_words_is_none() {
    let world = World::new().await;
    let chat = World::chat("one");
    world.server.reply(&chat, says(READ));
    world.server.reply(&chat, calls(&[("fs.read", json!({ "path": "README.md" }))]));
    world.server.reply(&chat, says(READ));
    world.server.reply(&chat, says(READ));
    world.server.reply(&chat, ends("It is a repository."));

    let ended = world.run(["run", "-m", "What is this?"]).await;

    // A call between them makes the reminders begin again.
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let stops = world.events("model.completed").await;
    let stops: Vec<_> = stops.iter().map(|event| event["data"]["stop"].clone()).collect();
    assert_eq!(stops, ["prose_call", "tool_use", "prose_call", "prose_call", "tool_use"]);
    let heard = said(&sent(&world, 1));
    assert!(heard.last().unwrap().1.contains("nothing was called"), "{heard:?}");
    assert_eq!(world.events("tool.requested").await.len(), 2);
}

#[tokio::test]
async fn a_model_that_goes_on_to_write_its_calls_fails_by_that_name_after_two_reminders() {
    let world = World::new().await;
    world.server.reply_always(&World::chat("one"), says(READ));

    let ended = world.run(["run", "-m", "What is this?"]).await;

    assert_eq!((ended.code, world.server.requests().len()), (Some(2), 3), "{ended:#?}");
    let why = "the model wrote its tool calls as text, 3 answers in a row";
    assert!(ended.last_line().contains(why) || ended.stdout.contains(why), "{ended:#?}");
    assert!(world.events("tool.requested").await.is_empty());
    world.assert_sound().await;
}

#[tokio::test]
async fn a_model_without_tools_is_told_of_none_and_its_words_are_its_claim() {
    let world = world("none").await;
    world.server.reply(&World::chat("one"), says("It is a repository."));

    let ended = world.run(["run", "-m", "What is this?"]).await;

    assert_eq!((ended.code, world.server.requests().len()), (Some(0), 1), "{ended:#?}");
    let request = sent(&world, 0);
    assert!(request.get("tools").is_none(), "{request:#}");
    let (_, rules) = &said(&request)[0];
    assert!(rules.contains("You have no tools here"), "{rules}");
}

#[tokio::test]
async fn a_check_that_fails_asks_a_model_without_tools_for_no_call() {
    let world = world("none").await;
    world.server.reply_always(&World::chat("one"), says("It is there."));

    let ended = world.run(["run", "-m", "Make it.", "--check", "test -e nothing"]).await;

    assert_eq!(ended.code, Some(2), "{ended:#?}");
    let last = world.server.requests().len() - 1;
    let heard = said(&sent(&world, last));
    let (_, evidence) = heard.last().unwrap();
    assert!(evidence.contains("is not done"), "{evidence}");
    assert!(!evidence.contains("end_task"), "{evidence}");
}

#[tokio::test]
async fn a_prompt_that_is_too_large_is_told_once_and_asked_of_nobody() {
    let world = World::new().await;
    world.agent("solo", "one");
    let prompt = "{{x}}".repeat(100);
    let name = world.workflow(&format!(
        "[variables.x]\nrequired = true\n[[tasks]]\nname = \"a\"\nagent = \"solo\"\nprompt = \"{prompt}\"\n\
         retries = {{ max = 2 }}\n"
    ));
    let value = format!("x={}", "a".repeat(100_000));

    let ended = world.run(["run", name, "--var", &value]).await;

    assert_eq!((ended.code, world.server.requests().len()), (Some(1), 0), "{ended:#?}");
    assert_eq!(world.events("attempt.started").await.len(), 1);
    assert!(ended.stdout.contains("bytes of output, at most"), "{ended:#?}");
}
