//! Servers of one's own: what they are by what they answer, what they say of their models, how long that is kept.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use formwork_protocols::ModelName;
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Client, Discovered, Endpoint, InfoCache, ListedModel, ProviderInfo, ProviderKind, Seams,
    discover_at,
};

const LLAMA_CPP: &str = include_str!("wire/llama.cpp/models.res.http");
const LLAMA_CPP_PROPS: &str = include_str!("wire/llama.cpp/native.props.res.http");
const VLLM: &str = include_str!("wire/vllm/models.res.http");
const LITELLM: &str = include_str!("wire/litellm/models.res.http");
const STUDIO: &str = include_str!("wire/lm-studio/models.json");
const STUDIO_V1: &str = include_str!("wire/lm-studio/models.v1.json");
const SHOW: &str = include_str!("wire/ollama/show.json");
const PS: &str = include_str!("wire/ollama/ps.json");
const TAGS: &str = include_str!("wire/ollama/tags.json");

fn port(server: &Server) -> u16 {
    server.url().rsplit_once(':').unwrap().1.parse().unwrap()
}

async fn discovered(server: &Server) -> Discovered {
    let mut found = discover_at(&[port(server)], &Seams::default()).await;
    found.pop().expect("the server is found")
}

fn client(server: &Server, kind: ProviderKind) -> Client {
    let endpoint = Endpoint::new("here".parse().unwrap(), kind, server.url());
    Client::new(endpoint, Seams::default()).unwrap()
}

fn name(text: &str) -> ModelName {
    text.parse().unwrap()
}

/// A server that answers as Ollama does.
async fn ollama() -> Server {
    let server = Server::start().await.unwrap();
    server.reply_always("/api/version", Reply::json(200, r#"{"version":"0.13.0"}"#));
    let list =
        r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model","owned_by":"library"}]}"#;
    server.reply_always("/v1/models", Reply::json(200, list));
    server.reply_always("/api/tags", Reply::json(200, TAGS));
    server.reply_always("/api/ps", Reply::json(200, PS));
    server.reply_always("/api/show", Reply::json(200, SHOW));
    server
}

#[tokio::test]
async fn llama_cpp_is_found_with_the_window_that_it_was_started_with() {
    let server = Server::start().await.unwrap();
    server.reply_always("/v1/models", Reply::captured(LLAMA_CPP));
    server.reply_always("/props", Reply::captured(LLAMA_CPP_PROPS));

    let found = discovered(&server).await;

    assert_eq!(found.endpoint.kind, ProviderKind::LlamaCpp);
    assert_eq!(found.endpoint.name.as_str(), "llama-cpp");
    let [model] = found.models.as_slice() else { panic!("{found:?}") };
    assert_eq!(model.name.as_str(), "smollm2-135m-instruct");
    assert_eq!((model.context_tokens, model.parameters), (Some(8_192), Some(134_515_008)));
    assert_eq!((model.quantisation.as_deref(), model.loaded), (Some("Q4_1"), Some(true)));
    assert_eq!(model.capabilities, ["tools"]);
}

#[tokio::test]
async fn vllm_is_found_with_the_length_that_it_serves() {
    let server = Server::start().await.unwrap();
    server.reply_always("/v1/models", Reply::captured(VLLM));
    server.reply_always("/version", Reply::json(200, r#"{"version":"0.32.0"}"#));

    let found = discovered(&server).await;
    let info = client(&server, ProviderKind::Vllm).inspect().await.unwrap();

    assert_eq!(found.endpoint.kind, ProviderKind::Vllm);
    assert_eq!(found.models[0].context_tokens, Some(4_096));
    assert_eq!(found.models[0].loaded, Some(true));
    assert_eq!(info.version.as_deref(), Some("0.32.0"));
}

#[tokio::test]
async fn lm_studio_is_found_with_what_its_own_list_says() {
    let server = Server::start().await.unwrap();
    server.reply_always("/v1/models", Reply::json(200, STUDIO_V1));
    server.reply_always("/api/v0/models", Reply::json(200, STUDIO));

    let found = discovered(&server).await;

    assert_eq!(found.endpoint.kind, ProviderKind::LmStudio);
    let loaded = &found.models[0];
    assert_eq!(loaded.name.as_str(), "qwen2.5-coder-14b-instruct");
    // The window that it was loaded with, not the one that it could have.
    assert_eq!((loaded.context_tokens, loaded.loaded), (Some(4_096), Some(true)));
    assert_eq!(loaded.quantisation.as_deref(), Some("Q4_K_M"));
    assert_eq!(loaded.capabilities, ["tool_use"]);
    assert_eq!(found.models[1].loaded, Some(false));
}

#[tokio::test]
async fn ollama_is_found_with_what_is_on_disk_and_what_is_in_memory() {
    let server = ollama().await;

    let found = discovered(&server).await;

    assert_eq!(found.endpoint.kind, ProviderKind::Ollama);
    let [qwen, other] = found.models.as_slice() else { panic!("{found:?}") };
    assert_eq!((qwen.name.as_str(), qwen.loaded), ("qwen3:8b", Some(true)));
    assert_eq!((qwen.context_tokens, qwen.parameters), (Some(8_192), Some(8_200_000_000)));
    assert_eq!((other.loaded, other.context_tokens), (Some(false), None));
}

#[tokio::test]
async fn an_ollama_server_without_a_model_is_one_all_the_same() {
    let server = Server::start().await.unwrap();
    server.reply_always("/api/version", Reply::json(200, r#"{"version":"0.13.0"}"#));
    server.reply_always("/v1/models", Reply::json(200, r#"{"object":"list","data":null}"#));
    server.reply_always("/api/tags", Reply::json(200, r#"{"models":null}"#));
    server.reply_always("/api/ps", Reply::json(200, r#"{"models":[]}"#));

    let found = discovered(&server).await;

    assert_eq!((found.endpoint.kind, found.models.len()), (ProviderKind::Ollama, 0));
}

#[tokio::test]
async fn the_window_the_size_and_the_cache_of_one_model_are_told() {
    let server = ollama().await;
    // It was configured as something else: what answers decides.
    let client = client(&server, ProviderKind::OpenAiCompatible);

    let model = client.inspect_model(&name("qwen3:8b")).await.unwrap().unwrap();
    let missing = client.inspect_model(&name("llama9")).await.unwrap();

    assert_eq!((model.context_tokens, model.loaded), (Some(8_192), Some(true)));
    assert_eq!(model.parameters, Some(8_190_735_360));
    assert_eq!(model.capabilities, ["completion", "tools", "thinking"]);
    assert_eq!(model.cache_bytes(), Some(8_192 * 147_456));
    assert_eq!(missing, None);
}

#[tokio::test]
async fn a_gateway_that_could_be_anything_stays_what_it_was_configured_as() {
    let server = Server::start().await.unwrap();
    server.reply_always("/v1/models", Reply::captured(LITELLM));

    let found = discovered(&server).await;
    let info = client(&server, ProviderKind::OpenAiResponses).inspect().await.unwrap();

    assert_eq!(found.endpoint.kind, ProviderKind::OpenAiCompatible);
    assert_eq!(info.kind, ProviderKind::OpenAiResponses);
}

#[tokio::test]
async fn what_does_not_answer_is_not_there() {
    let silent = Server::start().await.unwrap();
    for path in ["/v1/models", "/api/version", "/api/v0/models", "/props"] {
        silent.reply_always(path, Reply::new(200).stall());
    }
    let page = Server::start().await.unwrap();
    page.reply_always("/v1/models", Reply::new(200).body("<!doctype html>"));
    let gone = Server::start().await.unwrap();
    gone.stop();

    let found = discover_at(&[port(&silent), port(&page), port(&gone)], &Seams::default()).await;

    assert!(found.is_empty(), "{found:?}");
    let error = client(&page, ProviderKind::Vllm).inspect().await.unwrap_err();
    assert_eq!(error.message, "the server did not answer with JSON");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_is_kept_until_it_is_old_or_forgotten() {
    let server = ollama().await;
    let client = client(&server, ProviderKind::Ollama);
    let cache = InfoCache::default();
    let asked = || server.requests().len();

    let first: ProviderInfo = cache.get(&client).await.unwrap();
    let model: Option<ListedModel> = cache.model(&client, &name("qwen3:8b")).await.unwrap();
    let once = asked();
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(cache.get(&client).await.unwrap(), first);
    assert_eq!(cache.model(&client, &name("qwen3:8b")).await.unwrap(), model);
    assert_eq!(asked(), once);

    tokio::time::advance(Duration::from_secs(2)).await;
    cache.get(&client).await.unwrap();
    let twice = asked();
    assert!(twice > once);

    cache.forget(&client);
    cache.get(&client).await.unwrap();
    let thrice = asked();
    assert!(thrice > twice);

    cache.fresh(&client).await.unwrap();
    assert!(asked() > thrice);
}

#[tokio::test]
async fn a_server_that_was_down_is_found_by_the_next_question() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/models", Reply::json(503, "{}"));
    server.reply_always("/v1/models", Reply::captured(VLLM));
    let client = client(&server, ProviderKind::Vllm);
    let cache = InfoCache::default();

    let down = cache.get(&client).await.unwrap_err();
    let up = cache.get(&client).await.unwrap();

    assert_eq!((down.status, up.models.len()), (Some(503), 1));
}
