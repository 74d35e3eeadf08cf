//! Ollama's wire over real sockets: chat, what the server knows of its models, and a pull.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use formwork_protocols::{
    Cancel, Message, ModelName, ModelRequest, Provider as _, ProviderFault, Role,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, PullProgress, RetryPolicy, Seams};
use futures::StreamExt as _;

fn client(server: &Server) -> Client {
    let name = "local".parse().unwrap();
    let mut endpoint = Endpoint::new(name, ProviderKind::Ollama, server.url());
    endpoint.retry = RetryPolicy::NONE;
    Client::new(endpoint, Seams::default()).unwrap()
}

fn model() -> ModelName {
    "qwen3:8b".parse().unwrap()
}

fn request() -> ModelRequest {
    ModelRequest::new(model(), vec![Message::text(Role::User, "Read both.")])
}

fn lines(body: &str, size: usize) -> Reply {
    let head = Reply::new(200).header("content-type", "application/x-ndjson");
    body.as_bytes().chunks(size).fold(head, Reply::chunk)
}

#[tokio::test]
async fn a_chat_is_read_in_any_chunks_and_under_either_address() {
    let server = Server::start().await.unwrap();
    for size in [1, 7, 10_000] {
        server.reply("/api/chat", lines(include_str!("wire/ollama/thinking.stream.ndjson"), size));

        let answer = client(&server).complete(request(), Cancel::new()).await.unwrap();

        assert_eq!(answer.message.tool_calls().count(), 2, "{size}");
        assert_eq!((answer.usage.total(), answer.undecodable), (211, 0));
        assert_eq!(answer.served_by.model, "qwen3:8b");
    }
    server.reply(
        "/api/chat",
        Reply::captured(include_str!("wire/aimock/ollama.chat.stream.res.http")),
    );
    let answer = client(&server).complete(request(), Cancel::new()).await.unwrap();
    assert_eq!(answer.message.to_text(), "Paris.");
}

#[tokio::test]
async fn a_last_line_without_its_line_feed_still_ends_the_answer() {
    let server = Server::start().await.unwrap();
    let body = include_str!("wire/ollama/thinking.stream.ndjson").trim_end();
    server.reply("/api/chat", lines(body, 100));

    let answer = client(&server).complete(request(), Cancel::new()).await.unwrap();

    assert_eq!(answer.message.tool_calls().count(), 2);
}

#[tokio::test]
async fn a_refusal_is_typed_by_its_status_and_its_words() {
    for (status, message, fault) in [
        (404, "model 'qwen3:8b' not found", ProviderFault::ModelNotFound),
        (
            404,
            "model \\\"qwen3:8b\\\" not found, try pulling it first",
            ProviderFault::ModelNotFound,
        ),
        (400, "registry.ollama.ai/library/x does not support tools", ProviderFault::Invalid),
        (401, "unauthorized", ProviderFault::Auth),
        (
            500,
            "model requires more system memory (9.0 GiB) than is available (4.0 GiB)",
            ProviderFault::Server,
        ),
        (
            503,
            "server busy, please try again. maximum pending requests exceeded",
            ProviderFault::Overloaded,
        ),
    ] {
        let server = Server::start().await.unwrap();
        server.reply("/api/chat", Reply::json(status, &format!("{{\"error\":\"{message}\"}}")));

        let error = client(&server).complete(request(), Cancel::new()).await.unwrap_err();

        assert_eq!((error.fault, error.status), (fault, Some(status)), "{message}");
    }
}

#[tokio::test]
async fn the_server_tells_the_window_the_size_and_the_cache_of_a_model() {
    let server = Server::start().await.unwrap();
    server.reply("/api/show", Reply::json(200, include_str!("wire/ollama/show.json")));

    let shown = client(&server).ollama_show(&model()).await.unwrap();

    assert_eq!(server.requests()[0].text(), "{\"model\":\"qwen3:8b\"}");
    assert_eq!(shown.context_tokens, Some(40_960));
    assert_eq!(shown.parameters, Some(8_190_735_360));
    assert_eq!(shown.quantisation.as_deref(), Some("Q4_K_M"));
    assert_eq!(shown.capabilities, ["completion", "tools", "thinking"]);
    assert_eq!(shown.cache_bytes_per_token, Some(36 * 8 * (128 + 128) * 2));
    assert_eq!(shown.cache_bytes(), Some(40_960 * 147_456));
}

#[tokio::test]
async fn the_server_is_asked_once_whether_a_model_takes_images() {
    let server = Server::start().await.unwrap();
    server.reply("/api/show", Reply::json(200, include_str!("wire/ollama/show.json")));
    let client = client(&server);

    let told = [client.takes_images(&model()).await, client.takes_images(&model()).await];

    assert_eq!((told, server.requests().len()), ([Some(false); 2], 1));
}

#[tokio::test]
async fn models_on_disk_and_in_memory_are_listed() {
    let server = Server::start().await.unwrap();
    server.reply("/api/tags", Reply::captured(include_str!("wire/aimock/ollama.tags.res.http")));
    server.reply("/api/ps", Reply::json(200, include_str!("wire/ollama/ps.json")));
    let client = client(&server);

    let on_disk = client.list_models().await.unwrap();
    let in_memory = client.ollama_loaded().await.unwrap();

    assert_eq!(on_disk.len(), 5);
    assert_eq!(on_disk[0].name.as_str(), "gpt-4");
    assert_eq!(in_memory[0].context_tokens, Some(8_192));
    assert_eq!((in_memory[0].parameters, in_memory[0].loaded), (Some(8_200_000_000), Some(true)));
}

#[tokio::test]
async fn a_pull_tells_how_far_it_has_come_until_it_succeeds() {
    let server = Server::start().await.unwrap();
    server.reply("/api/pull", lines(include_str!("wire/ollama/pull.ndjson"), 9));

    let steps: Vec<_> = client(&server).ollama_pull(&model(), Cancel::new()).collect().await;

    let steps: Vec<PullProgress> = steps.into_iter().map(Result::unwrap).collect();
    assert_eq!(steps.len(), 6);
    assert_eq!((steps[2].completed, steps[2].total), (Some(241_970), Some(5_225_374_496)));
    assert_eq!(steps[5].status, "success");
    assert_eq!(server.requests()[0].text(), "{\"model\":\"qwen3:8b\",\"stream\":true}");
}

#[tokio::test]
async fn a_pull_that_fails_is_cut_or_is_cancelled_ends_with_one_error() {
    let server = Server::start().await.unwrap();
    let pull = include_str!("wire/ollama/pull.ndjson");
    server.reply("/api/pull", lines(include_str!("wire/ollama/pull.error.ndjson"), 50));
    server.reply("/api/pull", lines(&pull[..200], 50));
    server.reply("/api/pull", lines(&pull[..200], 200).stall());
    let client = client(&server);

    let failed: Vec<_> = client.ollama_pull(&model(), Cancel::new()).collect().await;
    let cut: Vec<_> = client.ollama_pull(&model(), Cancel::new()).collect().await;
    let cancel = Cancel::new();
    let mut steps = client.ollama_pull(&model(), cancel.clone());
    let first = steps.next().await;
    cancel.cancel();
    let cancelled: Vec<_> = steps.collect().await;

    let last = |steps: &[Result<PullProgress, formwork_protocols::ProviderError>]| {
        steps.last().unwrap().as_ref().unwrap_err().clone()
    };
    assert_eq!(last(&failed).message, "pull model manifest: file does not exist");
    assert_eq!(last(&cut).fault, ProviderFault::Transport);
    assert!(first.unwrap().is_ok());
    assert_eq!((cancelled.len(), last(&cancelled).fault), (1, ProviderFault::Cancelled));
    server.wait_for_closed(1).await;
}
