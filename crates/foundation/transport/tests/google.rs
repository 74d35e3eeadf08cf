//! Google's wire over real sockets: what is sent, what a refusal means, and how long it asks to wait.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use formwork_protocols::{
    Cancel, Message, ModelRequest, Provider as _, ProviderError, ProviderFault, Role,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, RetryPolicy, Seams};

const TOOLS: &str = include_str!("wire/google/tools.stream.sse");
const PATH: &str = "/v1beta/models/gemini-3-pro:streamGenerateContent";

fn client(server: &Server) -> Client {
    let name = "gemini".parse().unwrap();
    let mut endpoint = Endpoint::new(name, ProviderKind::Google, server.url());
    endpoint.retry = RetryPolicy::NONE;
    Client::new(endpoint.with_api_key("AIza-1".into()), Seams::default()).unwrap()
}

fn request() -> ModelRequest {
    let model = "gemini-3-pro".parse().unwrap();
    ModelRequest::new(model, vec![Message::text(Role::User, "Read both.")])
}

async fn refused(status: u16, body: &str) -> ProviderError {
    let server = Server::start().await.unwrap();
    server.reply(PATH, Reply::json(status, body));
    client(&server).complete(request(), Cancel::new()).await.unwrap_err()
}

#[tokio::test]
async fn a_request_carries_its_key_in_a_header_and_the_answer_is_whole() {
    let server = Server::start().await.unwrap();
    server.reply(PATH, Reply::sse_in(TOOLS, 11));

    let answer = client(&server).complete(request(), Cancel::new()).await.unwrap();

    let sent = &server.requests()[0];
    assert_eq!(sent.header("x-goog-api-key"), Some("AIza-1"));
    assert_eq!(sent.header("authorization"), None);
    assert!(sent.target.ends_with(":streamGenerateContent?alt=sse"), "{}", sent.target);
    assert_eq!(answer.message.tool_calls().count(), 2);
    assert_eq!((answer.usage.total(), answer.undecodable), (110, 0));
    assert_eq!(answer.served_by.model, "gemini-3-pro");
}

#[tokio::test]
async fn a_refusal_is_typed_by_its_status_and_its_body() {
    for (status, kind, message, fault) in [
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            ProviderFault::Auth,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            ProviderFault::ContextOverflow,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "Function call is missing a thought_signature in functionCall parts.",
            ProviderFault::Invalid,
        ),
        (
            403,
            "PERMISSION_DENIED",
            "Your API key doesn't have the required permissions.",
            ProviderFault::Auth,
        ),
        (
            404,
            "NOT_FOUND",
            "models/gemini-none is not found for API version v1beta",
            ProviderFault::ModelNotFound,
        ),
        (
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan",
            ProviderFault::Throttled,
        ),
        (500, "INTERNAL", "An internal error has occurred.", ProviderFault::Server),
        (
            503,
            "UNAVAILABLE",
            "The model is overloaded. Please try again later.",
            ProviderFault::Overloaded,
        ),
        (
            504,
            "DEADLINE_EXCEEDED",
            "The service is unable to finish processing",
            ProviderFault::Timeout,
        ),
    ] {
        let body = format!(
            "{{\"error\":{{\"code\":{status},\"message\":\"{message}\",\"status\":\"{kind}\"}}}}"
        );
        let error = refused(status, &body).await;

        assert_eq!(error.fault, fault, "{status} {kind} {message}");
        assert_eq!((error.status, error.code.as_deref()), (Some(status), Some(kind)));
    }
}

#[tokio::test]
async fn a_wait_that_the_body_asks_for_is_told() {
    let body = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded","details":[
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#;

    assert_eq!(refused(429, body).await.retry_after, Some(Duration::from_secs(34)));
}

#[tokio::test]
async fn models_are_listed_by_the_names_under_which_they_are_called() {
    let server = Server::start().await.unwrap();
    let body = r#"{"models":[{"name":"models/gemini-3-pro","inputTokenLimit":1048576,"outputTokenLimit":65536}]}"#;
    server.reply("/v1beta/models", Reply::json(200, body));

    let models = client(&server).list_models().await.unwrap();

    assert_eq!(models.len(), 1);
    assert_eq!(models[0].name.as_str(), "gemini-3-pro");
    assert_eq!(models[0].context_tokens, Some(1_048_576));
}
