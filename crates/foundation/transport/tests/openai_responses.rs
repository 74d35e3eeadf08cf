//! OpenAI's Responses over real sockets: what is sent, and what a refusal means.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use formwork_protocols::{
    Cancel, Message, ModelRequest, Provider as _, ProviderError, ProviderFault, Role,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{Client, Endpoint, ProviderKind, RetryPolicy, Seams};

fn client(server: &Server) -> Client {
    let name = "openai".parse().unwrap();
    let mut endpoint = Endpoint::new(name, ProviderKind::OpenAiResponses, server.url());
    endpoint.retry = RetryPolicy::NONE;
    Client::new(endpoint.with_api_key("sk-1".into()), Seams::default()).unwrap()
}

fn request() -> ModelRequest {
    let model = "gpt-5.1".parse().unwrap();
    ModelRequest::new(model, vec![Message::text(Role::User, "Read both.")])
}

async fn refused(reply: Reply) -> ProviderError {
    let server = Server::start().await.unwrap();
    server.reply("/v1/responses", reply);
    client(&server).complete(request(), Cancel::new()).await.unwrap_err()
}

#[tokio::test]
async fn a_request_is_sent_without_state_and_the_answer_is_whole() {
    let server = Server::start().await.unwrap();
    let stream = include_str!("wire/openai/reasoning.stream.sse");
    server.reply("/v1/responses", Reply::sse_in(stream, 13));

    let answer = client(&server).complete(request(), Cancel::new()).await.unwrap();

    let sent = &server.requests()[0];
    assert_eq!(sent.header("authorization"), Some("Bearer sk-1"));
    assert!(sent.text().contains("\"store\":false"), "{}", sent.text());
    assert_eq!(answer.message.tool_calls().count(), 2);
    assert_eq!((answer.usage.total(), answer.undecodable), (1_433, 0));
    assert_eq!(answer.served_by.model, "gpt-5.1");
}

#[tokio::test]
async fn a_refusal_is_typed_by_its_status_and_its_body() {
    let body = |code: &str, message: &str| {
        format!(
            "{{\"error\":{{\"message\":\"{message}\",\"type\":\"x\",\"param\":null,\"code\":\"{code}\"}}}}"
        )
    };
    for (status, code, message, fault) in [
        (
            400,
            "context_length_exceeded",
            "Your input exceeds the context window of this model.",
            ProviderFault::ContextOverflow,
        ),
        (
            400,
            "unsupported_parameter",
            "Unsupported parameter: 'temperature'",
            ProviderFault::Invalid,
        ),
        (401, "invalid_api_key", "Incorrect API key provided", ProviderFault::Auth),
        (
            404,
            "model_not_found",
            "The model `gpt-none` does not exist",
            ProviderFault::ModelNotFound,
        ),
        (429, "rate_limit_exceeded", "Rate limit reached", ProviderFault::Throttled),
        (429, "insufficient_quota", "You exceeded your current quota", ProviderFault::Quota),
        (500, "server_error", "The server had an error", ProviderFault::Server),
    ] {
        let error = refused(Reply::json(status, &body(code, message))).await;

        assert_eq!(error.fault, fault, "{status} {code}");
        assert_eq!((error.status, error.code.as_deref()), (Some(status), Some(code)));
    }
}

#[tokio::test]
async fn the_refusals_of_servers_that_follow_the_wire_are_typed() {
    for response in [
        include_str!("wire/llama.cpp/responses.err.noinput.res.http"),
        include_str!("wire/vllm/responses.err.noinput.res.http"),
        include_str!("wire/litellm/responses.err.noinput.res.http"),
    ] {
        let error = refused(Reply::captured(response)).await;
        assert_eq!(error.fault, ProviderFault::Invalid, "{response}");
    }
    // A stream that fails before it starts is an error within an answer that began well.
    let failed = Reply::sse(include_str!("wire/litellm/responses.stream.sse"));
    assert_eq!(refused(failed).await.fault, ProviderFault::Server);
}
