//! Anthropic's wire over real sockets: what is sent, and what a refusal means.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use formwork_protocols::{
    Cancel, Message, ModelRequest, Provider as _, ProviderError, ProviderFault, Role,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, RetryPolicy, Seams};

const THINKING: &str = include_str!("wire/anthropic/thinking.stream.sse");
const OVERLOADED: &str = include_str!("wire/anthropic/overloaded.stream.sse");

fn client(server: &Server) -> Client {
    let name = "claude".parse().unwrap();
    let mut endpoint = Endpoint::new(name, ProviderKind::Anthropic, server.url());
    endpoint.retry = RetryPolicy::NONE;
    Client::new(endpoint.with_api_key("sk-ant-1".into()), Seams::default()).unwrap()
}

fn request() -> ModelRequest {
    let model = "claude-opus-4-8".parse().unwrap();
    ModelRequest::new(model, vec![Message::text(Role::User, "Read README.md.")])
}

async fn refused(reply: Reply) -> ProviderError {
    let server = Server::start().await.unwrap();
    server.reply("/v1/messages", reply);
    client(&server).complete(request(), Cancel::new()).await.unwrap_err()
}

#[tokio::test]
async fn a_request_names_its_version_and_its_key_and_the_answer_is_whole() {
    let server = Server::start().await.unwrap();
    let reply = Reply::sse_in(THINKING, 7).header("request-id", "req_011CSHoEeqs5C35K2UUqR7Fy");
    server.reply("/v1/messages", reply);

    let answer = client(&server).complete(request(), Cancel::new()).await.unwrap();

    let sent = &server.requests()[0];
    assert_eq!(sent.header("x-api-key"), Some("sk-ant-1"));
    assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(sent.header("authorization"), None);
    assert_eq!(answer.served_by.model, "claude-opus-4-8");
    assert_eq!(answer.served_by.request_id.as_deref(), Some("req_011CSHoEeqs5C35K2UUqR7Fy"));
    assert_eq!(answer.usage.total(), 21 + 18_000 + 512 + 88);
    assert_eq!((answer.tries, answer.undecodable), (1, 0));
}

#[tokio::test]
async fn a_refusal_is_typed_by_its_status_and_its_body() {
    use ProviderFault::*;
    let body = |kind: &str, message: &str| {
        format!(
            "{{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"{message}\"}}}}"
        )
    };
    for (status, kind, message, fault) in [
        (400, "invalid_request_error", "messages: at least one message is required", Invalid),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 208310 tokens > 200000 maximum",
            ContextOverflow,
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
            ContextOverflow,
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API",
            Quota,
        ),
        (401, "authentication_error", "invalid x-api-key", Auth),
        (402, "billing_error", "billing", Quota),
        (403, "permission_error", "not allowed", Auth),
        (404, "not_found_error", "model: claude-none", ModelNotFound),
        (413, "request_too_large", "Request exceeds the maximum size", Invalid),
        (429, "rate_limit_error", "This request would exceed your rate limit", Throttled),
        (500, "api_error", "Internal server error", Server),
        (504, "timeout_error", "Request timed out", Timeout),
        (529, "overloaded_error", "Overloaded", Overloaded),
    ] {
        let error = refused(Reply::json(status, &body(kind, message))).await;

        assert_eq!(error.fault, fault, "{status} {kind} {message}");
        assert_eq!((error.status, error.code.as_deref()), (Some(status), Some(kind)));
        assert!(error.body.unwrap().contains(message));
    }
}

#[tokio::test]
async fn the_refusals_of_servers_that_follow_the_wire_are_typed() {
    for (response, fault) in [
        (include_str!("wire/llama.cpp/messages.err.nomessages.res.http"), ProviderFault::Server),
        (include_str!("wire/vllm/messages.err.nomax.res.http"), ProviderFault::Invalid),
        (include_str!("wire/litellm/messages.err.nomax.res.http"), ProviderFault::Invalid),
        (include_str!("wire/llama.cpp/err.auth.wrong.res.http"), ProviderFault::Auth),
    ] {
        assert_eq!(refused(Reply::captured(response)).await.fault, fault, "{response}");
    }
}

#[tokio::test]
async fn an_overload_inside_a_good_stream_is_tried_again() {
    let server = Server::start().await.unwrap();
    server.reply("/v1/messages", Reply::sse(OVERLOADED));
    server.reply("/v1/messages", Reply::sse(THINKING));
    let mut endpoint = client(&server).endpoint().clone();
    endpoint.retry = RetryPolicy { tries: 2, ..RetryPolicy::NONE };
    let client = Client::new(endpoint, Seams::default()).unwrap();

    let answer = client.complete(request(), Cancel::new()).await.unwrap();

    assert_eq!(answer.tries, 2);
    assert_eq!(answer.message.tool_calls().count(), 1);
}
