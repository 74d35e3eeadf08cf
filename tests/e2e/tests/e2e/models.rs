//! Servers of models as a person meets them: listed, looked at closely, asked for a tool call, given a model.

use formwork_testkit::http::Reply;
use serde_json::{Value, json};

use crate::{
    answers::{calls, captured, says},
    world::{Ended, World, on_postgres},
};

/// A world whose only provider is a server that answers as Ollama does.
async fn ollama() -> World {
    let world = World::with("").await;
    let config = format!(
        "format_version = 1\nsandbox = \"off\"\n[providers.local]\nkind = \"ollama\"\nbase_url = \"{}\"\n\
         [providers.local.retry]\ntries = 1\n[models.\"local/qwen3:8b\"]\nprice = \"local\"\n\
         [categories]\ndefault = \"local/qwen3:8b\"\n",
        world.server.url()
    );
    std::fs::write(world.config_file(), config).unwrap();
    let json = |file: &str| Reply::json(200, &String::from_utf8(captured(file)).unwrap());
    let list = r#"{"object":"list","data":[{"id":"qwen3:8b","owned_by":"library"}]}"#;
    world.server.reply_always("/v1/models", Reply::json(200, list));
    world.server.reply_always("/api/version", Reply::json(200, r#"{"version":"0.13.0"}"#));
    world.server.reply_always("/api/tags", json("ollama/tags.json"));
    world.server.reply_always("/api/ps", json("ollama/ps.json"));
    world.server.reply_always("/api/show", json("ollama/show.json"));
    world
}

/// Answers as Ollama does with one message.
fn lines(message: &Value) -> Reply {
    let line = json!({ "model": "qwen3:8b", "message": message, "done": false });
    let end = json!({
        "model": "qwen3:8b", "message": { "role": "assistant", "content": "" }, "done": true,
        "done_reason": "stop", "prompt_eval_count": 90, "eval_count": 12,
    });
    let body = format!("{line}\n{end}\n");
    Reply::new(200).header("content-type", "application/x-ndjson").body(body)
}

fn reports(word: &str) -> Reply {
    let call = json!({ "function": { "name": "report", "arguments": { "word": word } } });
    lines(&json!({ "role": "assistant", "content": "", "tool_calls": [call] }))
}

#[tokio::test]
async fn a_model_that_is_looked_at_closely_is_asked_for_a_real_call() {
    let world = ollama().await;
    world.server.reply("/api/chat", reports("ready"));

    let probed = world.json(["models", "probe", "local/qwen3:8b"]).await;

    let endpoint = &probed["endpoints"][0];
    assert_eq!((&endpoint["kind"], &endpoint["version"]), (&"ollama".into(), &"0.13.0".into()));
    let model = &endpoint["models"][0];
    assert_eq!(model["context_tokens"], 8_192);
    assert_eq!(model["parameters"], 8_190_735_360_u64);
    assert_eq!(model["capabilities"], json!(["completion", "tools", "thinking"]));
    assert_eq!((&model["loaded"], &model["cache_bytes"]), (&true.into(), &1_207_959_552.into()));
    assert_eq!(probed["tools"]["outcome"], "called");
    let asked = world.server.requests();
    let chat = asked.iter().find(|request| request.path() == "/api/chat").unwrap();
    assert!(chat.text().contains("\"report\""), "{}", chat.text());
}

#[tokio::test]
async fn what_was_wrong_with_a_call_is_said_with_what_to_do() {
    let prose =
        "<tool_call>{\"name\": \"report\", \"arguments\": {\"word\": \"ready\"}}</tool_call>";
    let says = |text: &str| lines(&json!({ "role": "assistant", "content": text }));
    for (reply, outcome, found, advice) in [
        (reports("steady"), "called_wrongly", "called it with", "choose a larger one"),
        (says(prose), "wrote_it", "it wrote the call as text", "tool_calls = \"text\""),
        (says("I am ready."), "only_words", "said: \"I am ready.\"", "capabilities name tools"),
        (
            Reply::json(404, r#"{"error":"model 'qwen3:8b' not found"}"#),
            "failed",
            "not found",
            "`formwork models pull local/qwen3:8b` fetches it",
        ),
    ] {
        let world = ollama().await;
        world.server.reply("/api/chat", reply);

        let probed = world.run(["models", "probe", "local/qwen3:8b", "--json"]).await;

        assert_eq!(probed.code, Some(3), "{probed:#?}");
        let tools = &probed.json()["tools"];
        assert_eq!(tools["outcome"], outcome, "{tools:#}");
        assert!(tools["found"].as_str().unwrap().contains(found), "{tools:#}");
        assert!(tools["advice"].as_str().unwrap().contains(advice), "{tools:#}");
    }
}

#[tokio::test]
async fn an_address_is_looked_at_and_how_to_use_it_is_told() {
    let world = ollama().await;

    let probed = world.run(["models", "probe", &world.server.url()]).await;

    assert_eq!(probed.code, Some(0), "{probed:#?}");
    assert!(probed.stdout.contains("kind = \"ollama\""), "{probed:#?}");
    assert!(probed.stdout.contains("8.2B parameters · Q4_K_M · in memory"), "{probed:#?}");
}

#[tokio::test]
async fn a_server_that_is_taken_for_another_kind_is_found_out() {
    let world = World::new().await;
    let models = Reply::captured(captured("llama.cpp/models.res.http"));
    for name in ["one", "two", "three"] {
        world.server.reply_always(&format!("/{name}/v1/models"), models.clone());
    }

    let listed = world.json(["models"]).await;

    let one = &listed["endpoints"].as_array().unwrap().iter().find(|it| it["provider"] == "one");
    let one = one.unwrap();
    assert_eq!(
        (&one["kind"], &one["answers_as"]),
        (&"openai-compatible".into(), &"llama-cpp".into())
    );
    assert_eq!(one["models"][0]["context_tokens"], 8_192);
}

fn pull() -> Reply {
    let head = Reply::new(200).header("content-type", "application/x-ndjson");
    captured("ollama/pull.ndjson").chunks(50).fold(head, Reply::chunk)
}

#[tokio::test]
async fn a_pull_tells_how_far_it_has_come() {
    let world = ollama().await;
    world.server.reply_always("/api/pull", pull());

    let told = world.run(["models", "pull", "local/qwen3:8b"]).await;
    let machine = world.run(["models", "pull", "local/qwen3:8b", "--jsonl"]).await;

    assert_eq!((told.code, told.stdout.as_str()), (Some(0), "local/qwen3:8b is there: 5.2 GB\n"));
    let steps: Vec<_> = told.stderr.lines().collect();
    assert_eq!(steps.first(), Some(&"pulling manifest"), "{told:#?}");
    assert_eq!(steps.last(), Some(&"success"), "{told:#?}");
    let lines: Vec<Value> =
        machine.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 7, "{machine:#?}");
    assert_eq!(lines[0]["progress"]["status"], "pulling manifest");
    assert_eq!(lines[6]["pulled"]["bytes"], 5_225_374_496_u64);
    let asked = world.server.requests();
    let asked = asked.iter().find(|request| request.path() == "/api/pull").unwrap();
    assert_eq!(asked.text(), "{\"model\":\"qwen3:8b\",\"stream\":true}");
}

#[tokio::test]
async fn a_pull_that_fails_says_why() {
    let world = ollama().await;
    let failed = String::from_utf8(captured("ollama/pull.error.ndjson")).unwrap();
    world.server.reply(
        "/api/pull",
        Reply::new(200).header("content-type", "application/x-ndjson").body(failed),
    );

    let ended = world.run(["models", "pull", "local/none"]).await;

    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stderr.contains("pull model manifest: file does not exist"), "{ended:#?}");
}

#[tokio::test]
async fn a_server_that_fetches_nothing_refuses_by_its_kind_with_what_to_do() {
    let world = World::new().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    for (kind, advice) in [
        ("llama-cpp", "llama-server -m FILE"),
        ("vllm", "vllm serve MODEL"),
        ("lm-studio", "lms get MODEL"),
        ("openrouter", "only Ollama fetches on request"),
    ] {
        let kinds = config.replace("\"openai-compatible\"", &format!("\"{kind}\""));
        std::fs::write(world.config_file(), kinds).unwrap();

        let ended = world.run(["models", "pull", "one/m"]).await;

        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert!(ended.stderr.contains(&format!("of kind {kind} fetches none")), "{ended:#?}");
        assert!(ended.stderr.contains(advice), "{ended:#?}");
    }
    assert!(world.server.requests().is_empty());
}

/// What the doctor says of endpoints and models, where the model of the default category answers so.
async fn doctor(world: &World, reply: Reply) -> (Option<i32>, Vec<Value>) {
    world.server.reply(&World::chat("one"), reply);
    let ended: Ended = world.run(["doctor", "--json"]).await;
    let findings = ended.json()["findings"].as_array().unwrap().clone();
    let about = |it: &Value| it["about"] == "model" || it["about"] == "endpoint";
    (ended.code, findings.into_iter().filter(about).collect())
}

#[tokio::test]
async fn the_doctor_asks_for_a_real_call_and_says_what_was_wrong() {
    let list = r#"{"object":"list","data":[{"id":"m","owned_by":"me"}]}"#;
    for (reply, code, found) in [
        (calls(&[("report", json!({ "word": "ready" }))]), 0, "called the tool"),
        (says("I am ready."), 3, "it called nothing and said: \"I am ready.\""),
        (calls(&[("reports", json!({}))]), 3, "it called \"reports\", which it was not offered"),
    ] {
        let world = World::new().await;
        for name in ["one", "two", "three"] {
            world.server.reply_always(&format!("/{name}/v1/models"), Reply::json(200, list));
        }

        let (ended, findings) = doctor(&world, reply).await;

        assert_eq!(ended, Some(code), "{findings:#?}");
        let model = findings.iter().find(|finding| finding["about"] == "model").unwrap();
        let told = model["found"].as_str().unwrap();
        assert!(told.starts_with("one/m: ") && told.contains(found), "{told}");
        // A model that nobody asks for is not asked.
        assert_eq!(findings.iter().filter(|finding| finding["about"] == "model").count(), 1);
    }
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_stands_in_the_way_only_of_those_who_need_it() {
    let world = World::new().await;
    let list = r#"{"object":"list","data":[{"id":"m","owned_by":"me"}]}"#;
    for name in ["one", "two"] {
        world.server.reply_always(&format!("/{name}/v1/models"), Reply::json(200, list));
    }
    world.server.reply_always("/three/v1/models", Reply::json(401, r#"{"error":"no"}"#));

    let (ended, findings) = doctor(&world, calls(&[("report", json!({ "word": "ready" }))])).await;

    assert_eq!(ended, Some(0), "{findings:#?}");
    let grades: Vec<_> = findings.iter().map(|finding| finding["grade"].clone()).collect();
    // One, three, two, and the model.
    assert_eq!(grades, ["sound", "weak", "sound", "sound"]);

    world.server.reply_always("/one/v1/models", Reply::json(503, "{}"));
    let (ended, findings) = doctor(&world, says("nobody hears this")).await;
    assert_eq!(ended, Some(3), "{findings:#?}");
    assert_eq!(findings[0]["grade"], "broken");
    let told = findings.last().unwrap()["found"].as_str().unwrap();
    assert_eq!(told, "one/m was not asked: its endpoint does not answer");
}

#[tokio::test]
async fn the_doctor_says_how_to_come_to_a_model_that_is_not_there() {
    let world = ollama().await;
    let config = std::fs::read_to_string(world.config_file()).unwrap();
    std::fs::write(world.config_file(), config.replace("qwen3:8b", "llama9")).unwrap();

    let ended = world.run(["doctor"]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let told = "local/llama9 is not among the models that local holds";
    assert!(ended.stdout.contains(told), "{ended:#?}");
    assert!(ended.stdout.contains("`formwork models pull local/llama9` fetches it"), "{ended:#?}");
}

async fn what_has_no_price_is_not_begun(world: World) {
    world.agent("left", "one");
    let document = world.repo.read(".formwork/agents/left.toml").unwrap();
    let document = document.replace("\"one/m\"", "\"one/other\"");
    world.repo.write(".formwork/agents/left.toml", document).unwrap();
    let workflow =
        world.workflow("[[tasks]]\nname = \"a\"\nagent = \"left\"\nprompt = \"Do it.\"\n");

    let ended = world.run(["run", workflow]).await;

    assert_eq!(ended.code, Some(3), "{ended:#?}");
    assert!(ended.stderr.contains("model one/other has no price"), "{ended:#?}");
    assert!(world.server.requests().is_empty());
    let listed = world.json(["runs", "list"]).await;
    assert_eq!(listed["runs"], json!([]), "{listed:#}");
}

#[tokio::test]
async fn behaviour_14_a_run_with_a_model_without_a_price_is_not_begun() {
    what_has_no_price_is_not_begun(World::new().await).await;
}

#[tokio::test]
async fn pg_behaviour_14_a_run_with_a_model_without_a_price_is_not_begun() {
    on_postgres(what_has_no_price_is_not_begun).await;
}
