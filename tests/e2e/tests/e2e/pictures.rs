//! Pictures: from a file or a tool to the log by their hash, and from there to the model by their bytes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use formwork_protocols::BlobHash;
use formwork_testkit::http::{Gate, Reply};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::{
    answers::{calls, ends, held, saying, says},
    world::{World, end_of, signal},
};

/// A dot, as an encoder writes it.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

fn dot() -> Vec<u8> {
    BASE64_STANDARD.decode(PNG).unwrap()
}

/// A world with a picture in it, whose first model takes images or does not, by the operator's word.
async fn world(images: Option<bool>) -> World {
    let world = World::new().await;
    if let Some(images) = images {
        let config = std::fs::read_to_string(world.config_file()).unwrap();
        let word = format!("context_tokens = 100000\nimages = {images}\n");
        let config = config.replacen("context_tokens = 100000\n", &word, 1);
        std::fs::write(world.config_file(), config).unwrap();
    }
    world.repo.write("pic.png", dot()).unwrap();
    world
}

/// Returns the pictures of the last request, in their order, each by the bytes that the server received.
fn received(world: &World) -> Vec<Vec<u8>> {
    let request: Value =
        serde_json::from_str(&world.server.requests().last().unwrap().text()).unwrap();
    let messages = request["messages"].as_array().unwrap().iter();
    let parts = messages.filter_map(|message| message["content"].as_array()).flatten();
    let urls = parts.filter_map(|part| part["image_url"]["url"].as_str());
    urls.map(|url| {
        BASE64_STANDARD.decode(url.strip_prefix("data:image/png;base64,").unwrap()).unwrap()
    })
    .collect()
}

/// Checks that the log names pictures by their hash and holds none within anything else.
async fn assert_by_hash(world: &World, place: &str) {
    let hash = BlobHash::of(&dot()).to_string();
    let said = world.events("session.message").await;
    let named: Vec<_> = said.iter().filter(|said| !said["data"]["attached"].is_null()).collect();
    assert!(!named.is_empty(), "{place}: no message names a picture");
    for message in &named {
        assert_eq!(message["data"]["attached"], json!([hash]), "{place}");
    }
    for message in said {
        let hash = message["data"]["message"].as_str().unwrap().to_owned();
        let text = world.run(["blob", &hash]).await.stdout;
        assert!(!text.contains("iVBOR"), "{place}: {text}");
    }
    let all = serde_json::to_string(&world.events("").await).unwrap();
    assert!(!all.contains("iVBOR"), "{place}");
    world.assert_sound().await;
}

#[tokio::test]
async fn a_picture_of_a_question_reaches_the_model_and_is_kept_once_by_its_hash() {
    let world = world(None).await;
    world.server.reply(&World::chat("one"), says("A dot."));

    let ended = world.run(["ask", "What is this @pic.png?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert_eq!(received(&world), [dot()]);
    let asked = world.server.requests()[0].text();
    assert!(asked.contains("What is this @pic.png?"), "{asked}");
    assert!(asked.contains("[pic.png: image/png, 1 × 1 pixels, 70 bytes]"), "{asked}");
    assert_by_hash(&world, "ask").await;

    // What was answered is answered again, and a file of the run holds the picture.
    let again = world.run(["replay"]).await;
    assert_eq!(again.code, Some(0), "{again:#?}");
    let file = world.state().join("run.jsonl");
    let file = file.to_str().unwrap();
    let run = world.shown().await["run"]["run"].as_str().unwrap().to_owned();
    let out = world.run(["runs", "export", &run, "-o", file]).await;
    assert_eq!(out.code, Some(0), "{out:#?}");
    let other = World::new().await;
    let taken = other.run(["runs", "import", file]).await;
    assert_eq!(taken.code, Some(0), "{taken:#?}");
    assert_by_hash(&other, "import").await;
    let kept = other.formwork(["blob", &BlobHash::of(&dot()).to_string()]).output().await.unwrap();
    assert_eq!(kept.stdout, dot());
}

#[tokio::test]
async fn a_run_that_was_killed_sends_the_same_picture_again() {
    let world = world(None).await;
    let chat = World::chat("one");
    let gate = Gate::new();
    world.server.reply(&chat, held(&gate, &saying("never heard")));
    let child = world.formwork(["run", "-m", "What is this @pic.png?"]).spawn().unwrap();
    gate.reached().await;
    let before = received(&world);
    signal(&child, rustix::process::Signal::KILL);
    end_of(child).await;
    // The file says something else by now; what was asked stays what it was.
    world.repo.write("pic.png", "no picture any more").unwrap();
    world.server.reply(&chat, ends("A dot."));

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!((before, received(&world)), (vec![dot()], vec![dot()]));
    assert_by_hash(&world, "resume").await;
}

#[tokio::test]
async fn a_model_that_takes_no_images_is_told_in_words_and_so_is_the_person() {
    let world = world(Some(false)).await;
    world.server.reply(&World::chat("one"), calls(&[("fs.read", json!({ "path": "pic.png" }))]));
    world.server.reply(&World::chat("one"), says("I cannot see it."));

    let ended = world.run(["ask", "What is this @pic.png?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let told =
        "pic.png is not shown to one/m, which is told of it in words: this model takes no images";
    assert!(ended.stderr.contains(told), "{ended:#?}");
    let asked = world.server.requests().last().unwrap().text();
    assert!(!asked.contains("image_url") && !asked.contains(PNG), "{asked}");
    let line = "[pic.png is not shown to you: this model takes no images]";
    assert_eq!(asked.matches(line).count(), 2, "{asked}");
    let asked = world.events("model.requested").await;
    assert_eq!((&asked[0]["data"]["unseen"], &asked[1]["data"]["unseen"]), (&1.into(), &2.into()));
    let again = world.run(["replay"]).await;
    assert_eq!(again.code, Some(0), "{again:#?}");
    assert_by_hash(&world, "blind").await;
}

#[tokio::test]
async fn a_server_that_says_what_its_model_takes_is_believed() {
    for (capabilities, images) in [("\"completion\"", 0), ("\"completion\", \"vision\"", 1)] {
        let world = world(None).await;
        let url = world.server.url();
        let config = std::fs::read_to_string(world.config_file()).unwrap();
        let (old, new) = ("kind = \"openai-compatible\"", "kind = \"ollama\"");
        let config =
            config.replacen(old, new, 1).replace(&format!("{url}/one/v1"), &format!("{url}/one"));
        std::fs::write(world.config_file(), config).unwrap();
        let shown = format!("{{\"capabilities\": [{capabilities}]}}");
        world.server.reply("/one/api/show", Reply::json(200, &shown));
        let answer = json!({
            "model": "m", "message": { "role": "assistant", "content": "A dot." },
            "done": true, "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 3,
        });
        let stream = Reply::new(200).header("content-type", "application/x-ndjson");
        world.server.reply("/one/api/chat", stream.body(format!("{answer}\n")));

        let ended = world.run(["ask", "What is this @pic.png?"]).await;

        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let asked = world.server.requests().last().unwrap().text();
        assert_eq!(asked.matches(PNG).count(), images, "{asked}");
        assert_eq!(
            ended.stderr.contains("pic.png is not shown to one/m"),
            images == 0,
            "{ended:#?}"
        );
        let shows =
            world.server.requests().iter().filter(|it| it.path() == "/one/api/show").count();
        assert_eq!(shows, 1, "it is asked once");
    }
}

#[tokio::test]
async fn a_picture_that_a_server_refuses_is_masked_and_the_question_goes_on() {
    let world = world(None).await;
    let refusal = r#"{"error":{"message":"this model does not support image input"}}"#;
    world.server.reply(&World::chat("one"), Reply::json(400, refusal));
    world.server.reply(&World::chat("one"), says("I see no picture."));

    let ended = world.run(["ask", "What is this @pic.png?"]).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let asked = world.server.requests().last().unwrap().text();
    assert!(asked.contains("What is this @pic.png?") && !asked.contains(PNG), "{asked}");
    assert!(asked.contains("[an image is masked: the provider refused"), "{asked}");
    let compacted = world.events("context.compacted").await;
    assert_eq!(compacted[0]["data"]["cause"], "refused", "{compacted:#?}");
    assert_by_hash(&world, "refused").await;
}

#[tokio::test]
async fn what_cannot_be_shown_is_refused_in_one_line_before_anything_is_sent() {
    let world = world(None).await;
    let cut = dot();
    world.repo.write("cut.png", &cut[..cut.len() - 4]).unwrap();

    let ended = world.run(["run", "-m", "What is this @cut.png?"]).await;

    assert_ne!(ended.code, Some(0), "{ended:#?}");
    let told = "cut.png cannot be attached: its PNG is not whole: it ends too early";
    assert!(ended.stderr.contains(told), "{ended:#?}");
    assert!(world.server.requests().is_empty());
    assert_eq!(world.json(["runs", "list"]).await["runs"], json!([]));
}

#[tokio::test]
async fn a_picture_that_a_tool_brings_is_shown_behind_the_results_and_to_no_later_process_otherwise()
 {
    let world = world(None).await;
    let chat = World::chat("one");
    let reads =
        [("fs.read", json!({ "path": "pic.png" })), ("fs.read", json!({ "path": "README.md" }))];
    world.server.reply(&chat, calls(&reads));
    let gate = Gate::new();
    world.server.reply(&chat, held(&gate, &saying("never heard")));
    let child = world.formwork(["run", "-m", "Look at what is here."]).spawn().unwrap();
    gate.reached().await;
    let before = world.server.requests().last().unwrap().text();
    signal(&child, rustix::process::Signal::KILL);
    end_of(child).await;
    world.server.reply(&chat, ends("A dot."));

    let resumed = world.run(["runs", "resume"]).await;

    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert_eq!(received(&world), [dot()]);
    let sent: Value = serde_json::from_str(&before).unwrap();
    let roles: Vec<_> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|said| said["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(sent["messages"][5]["content"][0]["text"], "[pic.png, from the result of fs_read:]");
    let after: Value =
        serde_json::from_str(&world.server.requests().last().unwrap().text()).unwrap();
    assert_eq!(after["messages"][5]["content"][1], sent["messages"][5]["content"][1]);
    assert_by_hash(&world, "tool").await;
    let again = world.run(["replay"]).await;
    assert_eq!(again.code, Some(0), "{again:#?}");
}

#[tokio::test]
async fn what_is_piped_in_has_no_file_shown_whatever_it_names() {
    let world = world(None).await;
    world.server.reply(&World::chat("one"), says("Nothing."));
    let mut command = world.formwork(["ask", "-"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"Say nothing of @pic.png and @README.md.").await.unwrap();
    drop(input);

    let ended = end_of(child).await;

    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let asked = world.server.requests()[0].text();
    assert!(asked.contains("@README.md") && !asked.contains("A repository to work on"), "{asked}");
    assert!(!asked.contains(PNG), "{asked}");
}

#[tokio::test]
async fn a_chat_keeps_a_picture_in_sight_from_turn_to_turn() {
    let world = world(None).await;
    let chat = World::chat("one");
    let Some(terminal) = crate::chat::Terminal::open(&world, &["chat"]).await else { return };
    terminal.shows("\n>").await;
    world.server.reply(&chat, says("It is a dot."));
    terminal.send("What is this @pic.png?").await;
    terminal.answers("It is a dot.").await;
    let first = received(&world);
    world.server.reply(&chat, says("It is grey."));
    terminal.send("And its colour?").await;
    terminal.answers("It is grey.").await;
    terminal.send("/exit").await;

    assert_eq!((first, received(&world)), (vec![dot()], vec![dot()]));
    assert_by_hash(&world, "chat").await;
}
