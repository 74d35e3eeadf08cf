//! What goes wrong with real servers, and what becomes of a call then.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "what was measured is told")]

use std::{
    borrow::Cow,
    io::{Read as _, Write as _},
    sync::Arc,
    time::Duration,
};

use formwork_protocols::{
    Cancel, Completion, Message, ModelEvent, ModelRequest, Part, Provider as _, ProviderError,
    ProviderFault, Role, Scrub, SeededRng, Span, ToolCall, Usage,
    message::{Arguments, ToolDefinition},
    model::{StopReason, ToolChoice},
};
use formwork_testkit::http::{Gate, Reply, Server};
use formwork_transport::{Client, Clocks, Endpoint, ProviderKind, RetryPolicy, Seams};
use futures::StreamExt as _;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn endpoint(server: &Server) -> Endpoint {
    let url = server.url();
    let mut endpoint = Endpoint::new("test".parse().unwrap(), ProviderKind::OpenAiCompatible, url);
    // Waits of no length: what they are made of is tested where they are computed.
    endpoint.retry = RetryPolicy { tries: 3, base: Span::ZERO, cap: Span::from_secs(60) };
    endpoint
}

fn client(endpoint: Endpoint) -> Client {
    let rng = Arc::new(SeededRng::new(1));
    Client::new(endpoint, Seams { rng, ..Seams::default() }).unwrap()
}

fn request() -> ModelRequest {
    ModelRequest::new("m".parse().unwrap(), vec![Message::text(Role::User, "hi")])
}

async fn ask(server: &Server) -> Result<Completion, ProviderError> {
    client(endpoint(server)).complete(request(), Cancel::new()).await
}

/// A stream of chunks with these choices, and the end marker.
fn chunks(choices: &[Value]) -> String {
    let mut stream = String::new();
    for choice in choices {
        let chunk = json!({ "id": "c1", "model": "m-1", "choices": [choice] });
        stream += &format!("data: {chunk}\n\n");
    }
    stream + "data: [DONE]\n\n"
}

fn says(text: &str) -> Value {
    json!({ "index": 0, "delta": { "content": text } })
}

fn stops(reason: &str) -> Value {
    json!({ "index": 0, "delta": {}, "finish_reason": reason })
}

fn calls(id: &str, name: &str, arguments: &Value) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    json!({ "index": 0, "delta": { "tool_calls": [{ "index": 0, "id": id, "function": function }] } })
}

fn hello() -> String {
    chunks(&[says("hello"), stops("stop")])
}

async fn answered_by(reply: Reply) -> Result<Completion, ProviderError> {
    let server = Server::start().await.unwrap();
    server.reply_always(CHAT, reply);
    ask(&server).await
}

/// Returns how many requests a server got that always answers so, and the error.
async fn refused_by(reply: Reply) -> (usize, ProviderError) {
    let server = Server::start().await.unwrap();
    server.reply_always(CHAT, reply);
    let error = ask(&server).await.unwrap_err();
    (server.requests().len(), error)
}

// What may pass is tried again; what may not is told at once.

#[tokio::test]
async fn a_throttled_call_waits_as_long_as_it_is_asked_to() {
    let server = Server::start().await.unwrap();
    server.reply(
        CHAT,
        Reply::json(429, r#"{"error":{"message":"busy"}}"#).header("retry-after-ms", "20"),
    );
    server.reply(CHAT, Reply::sse(hello()));
    let begun = tokio::time::Instant::now();
    let mut events = client(endpoint(&server)).stream(request(), Cancel::new());

    let Some(Ok(ModelEvent::Retrying { attempt, wait, error })) = events.next().await else {
        panic!("no retry was told");
    };
    let rest: Vec<_> = events.collect().await;

    assert_eq!((attempt, wait), (1, Duration::from_millis(20)));
    assert_eq!((error.fault, error.status), (ProviderFault::Throttled, Some(429)));
    let Some(Ok(ModelEvent::Done(done))) = rest.last() else { panic!("{rest:?}") };
    assert_eq!((done.message.to_text().as_str(), done.tries), ("hello", 2));
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

#[tokio::test]
async fn a_server_that_asks_for_longer_than_the_cap_is_not_waited_for() {
    let (requests, error) = refused_by(
        Reply::json(429, r#"{"error":{"message":"busy"}}"#).header("retry-after", "300"),
    )
    .await;

    assert_eq!(requests, 1);
    assert_eq!(error.message, "busy; it asks to wait 5m, the cap is 1m");
    assert_eq!(error.retry_after, Some(Duration::from_secs(300)));
}

#[tokio::test]
async fn behaviour_32_overloaded_late_and_failing_servers_are_asked_again_and_then_given_up() {
    for (status, fault) in [
        (503, ProviderFault::Overloaded),
        (529, ProviderFault::Overloaded),
        (408, ProviderFault::Timeout),
        (504, ProviderFault::Timeout),
        (500, ProviderFault::Server),
        (502, ProviderFault::Server),
    ] {
        let (requests, error) = refused_by(Reply::json(status, "{}")).await;

        assert_eq!((requests, error.fault, error.tries), (3, fault, 3), "{status}");
    }
}

#[tokio::test]
async fn behaviour_32_what_cannot_pass_is_not_asked_again() {
    for (status, body, fault) in [
        (429, r#"{"error":{"code":"insufficient_quota"}}"#, ProviderFault::Quota),
        (402, "{}", ProviderFault::Quota),
        (401, "{}", ProviderFault::Auth),
        (403, "{}", ProviderFault::Auth),
        (
            404,
            r#"{"error":{"message":"The model `x` does not exist"}}"#,
            ProviderFault::ModelNotFound,
        ),
        (400, "{}", ProviderFault::Invalid),
        (422, "{}", ProviderFault::Invalid),
        (400, r#"{"error":{"code":"context_length_exceeded"}}"#, ProviderFault::ContextOverflow),
    ] {
        let (requests, error) = refused_by(Reply::json(status, body)).await;

        assert_eq!((requests, error.fault, error.tries), (1, fault, 1), "{status} {body}");
    }
}

#[tokio::test]
async fn a_redirect_is_refused_and_not_followed() {
    let (requests, error) =
        refused_by(Reply::new(307).header("location", "http://127.0.0.1:1/").body("")).await;

    assert_eq!((requests, error.fault, error.status), (1, ProviderFault::Invalid, Some(307)));
}

#[tokio::test]
async fn a_dead_endpoint_ends_within_a_second_and_says_why() {
    let server = Server::start().await.unwrap();
    server.stop();
    let begun = std::time::Instant::now();

    let error = ask(&server).await.unwrap_err();

    assert_eq!((error.fault, error.tries), (ProviderFault::Transport, 3));
    assert!(error.message.starts_with("no connection: Connection refused"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_stream_that_is_cut_or_reset_is_begun_again() {
    let part = format!("data: {}\n\n", json!({ "choices": [says("hel")] }));
    for broken in
        [Reply::sse(&part).cut(), Reply::event_stream().chunk(&part).reset(), Reply::sse(&part)]
    {
        let server = Server::start().await.unwrap();
        server.reply(CHAT, broken);
        server.reply(CHAT, Reply::sse(hello()));
        let events: Vec<_> = client(endpoint(&server))
            .stream(request(), Cancel::new())
            .map(Result::unwrap)
            .collect()
            .await;

        assert!(events.iter().any(|event| matches!(
            event,
            ModelEvent::Retrying { error, .. } if error.fault == ProviderFault::Transport
        )));
        let Some(ModelEvent::Done(done)) = events.last() else { panic!("{events:?}") };
        assert_eq!(done.message.to_text(), "hello");
    }
}

// An answer that is none.

#[tokio::test]
async fn an_error_inside_a_good_stream_is_an_error() {
    let stream =
        "data: {\"error\":{\"message\":\"the worker died\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let (requests, error) = refused_by(Reply::sse(stream).header("x-request-id", "r-1")).await;

    assert_eq!((requests, error.fault, error.status), (3, ProviderFault::Server, Some(200)));
    assert_eq!(
        (error.message.as_str(), error.request_id.as_deref()),
        ("the worker died", Some("r-1"))
    );
}

#[tokio::test]
async fn an_html_page_is_no_answer() {
    let page = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>";
    for reply in
        [Reply::new(200).header("content-type", "text/html").body(page), Reply::new(200).body(page)]
    {
        let (requests, error) = refused_by(reply).await;

        assert_eq!((requests, error.fault), (2, ProviderFault::Protocol));
        assert_eq!(
            error.message,
            "the server answered with an HTML page titled \"Sign in\": base_url of provider test may lead to a website \
             and not to its API"
        );
    }
}

#[tokio::test]
async fn an_answer_in_an_encoding_that_nobody_asked_for_says_so() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 255, 255];
    let encoded = Reply::new(200).header("content-encoding", "br").body(b"\x0b\x02\x80hello\x03");
    let (requests, error) = refused_by(encoded).await;
    let (again, silent) = refused_by(Reply::event_stream().chunk(gzip)).await;

    assert_eq!((requests, error.fault, error.status), (2, ProviderFault::Protocol, Some(200)));
    assert_eq!(
        error.message,
        "the answer is encoded as br, which was not asked for; whatever stands before the server is to leave answers as \
         they are"
    );
    assert_eq!((again, silent.fault), (2, ProviderFault::Protocol));
    assert_eq!(silent.message, "the answer is compressed and does not say so");
}

#[tokio::test]
async fn a_length_that_lies_leaves_no_answer_that_is_taken_for_whole() {
    let head = |length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let part = format!("data: {}\n\n", json!({ "choices": [says("hel")] }));
    let whole = part.clone() + &hello();
    let short = head(part.len()) + &whole;
    let long = head(whole.len() + 10) + &part;

    for (reply, told) in [
        (short, "the stream ended before the answer was whole"),
        (long, "the connection was cut in the middle of the answer: "),
    ] {
        let (requests, error) = refused_by(Reply::captured(reply)).await;

        assert_eq!((requests, error.fault), (3, ProviderFault::Transport));
        assert!(error.message.starts_with(told), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_answer_over_http_says_what_to_look_at() {
    let flood =
        (0..20_000).fold(Reply::new(200), |reply, n| reply.header("x-more", &n.to_string()));
    let (_, flooded) = refused_by(flood.body("{}")).await;
    let (_, foreign) = refused_by(Reply::captured(b"\x15\x03\x01\x00\x02\x02\x16")).await;

    assert_eq!(flooded.fault, ProviderFault::Protocol);
    assert_eq!(flooded.message, "the head of the answer is too large to be read");
    assert_eq!(foreign.fault, ProviderFault::Protocol);
    assert!(
        foreign.message.starts_with("the server does not answer in HTTP (")
            && foreign
                .message
                .ends_with("; if it speaks TLS, begin base_url of provider test with https://"),
        "{foreign}"
    );
}

#[tokio::test]
async fn a_server_without_tls_is_told_of_with_what_to_write() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // What servers of plain HTTP say to the first bytes of TLS.
    let refusing = std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            stream.read_exact(&mut [0; 16]).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let (name, kind) = ("test".parse().unwrap(), ProviderKind::OpenAiCompatible);
    let mut endpoint = Endpoint::new(name, kind, format!("https://{address}/v1"));
    endpoint.retry = RetryPolicy { tries: 3, base: Span::ZERO, cap: Span::ZERO };

    let error = client(endpoint).complete(request(), Cancel::new()).await.unwrap_err();

    assert_eq!((error.fault, error.tries), (ProviderFault::Protocol, 2), "{error}");
    assert_eq!(
        error.message,
        "the server does not speak TLS; if it speaks plain HTTP, begin base_url of provider test with http://"
    );
    refusing.join().unwrap();
}

#[tokio::test]
async fn no_credentials_follow_a_redirect_to_another_host_whatever_is_asked() {
    let (server, other) = (Server::start().await.unwrap(), Server::start().await.unwrap());
    for path in [CHAT, "/v1/models"] {
        server.reply_always(
            path,
            Reply::new(307).header("location", &format!("{}{path}", other.url())).body(""),
        );
        other.reply_always(path, Reply::sse(hello()));
    }
    let mut endpoint = endpoint(&server);
    endpoint.api_key = Some("sk-very-secret".into());
    let client = client(endpoint);

    let call = client.complete(request(), Cancel::new()).await.unwrap_err();
    let list = client.list_models().await.unwrap_err();

    for error in [call, list] {
        assert_eq!((error.fault, error.status), (ProviderFault::Invalid, Some(307)));
        assert!(error.message.contains("where nothing was sent"), "{error}");
    }
    assert_eq!((server.requests().len(), other.requests().len()), (2, 0));
}

#[tokio::test]
async fn an_empty_answer_is_no_answer() {
    let nothing = chunks(&[stops("stop")]);
    for reply in [Reply::sse(nothing), Reply::sse("data: [DONE]\n\n"), Reply::json(200, "")] {
        let (requests, error) = refused_by(reply).await;

        assert_eq!((requests, error.fault), (2, ProviderFault::Protocol));
        assert_eq!(error.message, "the answer is empty");
    }
}

#[tokio::test]
async fn an_event_stream_with_an_error_status_is_an_error() {
    let (_, error) = refused_by(Reply::new(500).header("content-type", "text/event-stream").body(
        "data: {\"error\":{\"message\":\"no stream\",\"code\":\"500\"}}\n\ndata: [DONE]\n\n",
    ))
    .await;

    assert_eq!((error.fault, error.message.as_str()), (ProviderFault::Server, "no stream"));
}

#[tokio::test]
async fn a_refusal_and_a_filter_are_told_apart_from_an_answer() {
    let refusal = json!({ "index": 0, "delta": { "refusal": "I cannot help with that." } });
    let refused = answered_by(Reply::sse(chunks(&[refusal, stops("stop")]))).await.unwrap();
    let filtered = answered_by(Reply::sse(chunks(&[stops("content_filter")]))).await.unwrap();

    assert_eq!(refused.stop, StopReason::Refusal);
    assert_eq!(refused.message.to_text(), "I cannot help with that.");
    assert_eq!((filtered.stop, filtered.message.parts.len()), (StopReason::ContentFilter, 0));
}

#[tokio::test]
async fn an_event_that_cannot_be_read_is_counted_and_left_out_and_the_answer_is_not_whole() {
    let stream = format!("data: {{\"cut\n\n{}", hello());

    let answer = answered_by(Reply::sse(stream)).await.unwrap();

    assert_eq!((answer.undecodable, answer.message.to_text().as_str()), (1, "hello"));
    // Words of it were handed over, so that it is not asked for again unsaid.
    assert_eq!((answer.stop, answer.tries), (StopReason::Gap, 1));
}

#[tokio::test]
async fn events_of_nothing_are_no_loss() {
    let stream = format!("data:\n\ndata: \n\n{}", hello());

    let answer = answered_by(Reply::sse(stream)).await.unwrap();

    assert_eq!((answer.undecodable, answer.stop), (0, StopReason::EndTurn));
}

#[tokio::test]
async fn a_whole_answer_to_a_request_for_a_stream_is_taken() {
    let answer =
        answered_by(Reply::captured(include_bytes!("wire/llama.cpp/chat.tools.required.res.http")))
            .await
            .unwrap();

    let call = ToolCall {
        id: "nKfV8pR8dr6pAd1tQGujKgiblD1Sg7sy".to_owned(),
        name: "read_file".to_owned(),
        arguments: Arguments::Json(json!({ "path": "README.md" })),
    };
    assert_eq!(answer.message.parts, [Part::ToolCall(call)]);
    assert_eq!(answer.usage, Usage { input: 1, cache_read: 436, output: 34, ..Usage::default() });
}

#[tokio::test]
async fn a_key_that_no_header_may_hold_is_refused_before_any_call_and_not_shown() {
    let server = Server::start().await.unwrap();
    let mut endpoint = endpoint(&server);
    endpoint.api_key = Some("sk-zq7\n".into());

    let error = Client::new(endpoint, Seams::default()).unwrap_err();

    assert_eq!(
        error.to_string(),
        "provider test: its key cannot be sent: it holds a line break or another character that no header may hold"
    );
    assert!(!format!("{error:?}").contains("zq7"));
}

// Calls that are not to be executed.

async fn only_call(choices: &[Value]) -> Arguments {
    let answer = answered_by(Reply::sse(chunks(choices))).await.unwrap();
    answer.message.tool_calls().next().unwrap().arguments.clone()
}

#[tokio::test]
async fn no_call_is_executable_from_an_answer_that_was_cut_for_length() {
    let arguments =
        only_call(&[calls("a", "read", &json!("{\"path\":\"x\"}")), stops("length")]).await;

    assert!(matches!(arguments, Arguments::Malformed { .. }), "{arguments:?}");
}

#[tokio::test]
async fn no_call_is_executable_from_an_answer_without_its_end_marker() {
    let arguments = only_call(&[calls("a", "read", &json!("{\"path\":\"x\"}"))]).await;

    assert!(matches!(arguments, Arguments::Malformed { .. }), "{arguments:?}");
}

#[tokio::test]
async fn no_call_is_executable_from_an_answer_of_which_an_event_could_not_be_read() {
    let more = json!({ "index": 0, "delta": { "tool_calls": [{
        "index": 0, "function": { "arguments": " # end\"}" },
    }] } });
    // Without its middle it is a whole call of another thing.
    let begun = calls("a", "write", &json!("{\"text\":\"rm -rf ./build"));
    let stream = chunks(&[begun, more, stops("tool_calls")]);
    let (before, after) = stream.split_once("\n\n").unwrap();
    let stream = format!("{before}\n\ndata: {{\"cut\n\n{after}");

    let answer = answered_by(Reply::sse(stream)).await.unwrap();

    let arguments = &answer.message.tool_calls().next().unwrap().arguments;
    assert!(matches!(arguments, Arguments::Malformed { .. }), "{arguments:?}");
    // Nothing of it was shown to anybody, so that it was asked for once more.
    assert_eq!((answer.undecodable, answer.stop, answer.tries), (1, StopReason::Gap, 2));
}

#[tokio::test]
async fn a_count_that_is_none_loses_nothing_else_of_its_event() {
    for odd in ["-1", "1.5", "1e30", "\"7\"", "null", "[]", "{}", "true", "18446744073709551615"] {
        let stream = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"hello\"}},\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":{odd},\"completion_tokens\":2.0,\
             \"completion_tokens_details\":{{\"reasoning_tokens\":1}}}}}}\n\ndata: [DONE]\n\n"
        );

        let answer = answered_by(Reply::sse(stream)).await.unwrap();

        assert_eq!((answer.undecodable, answer.message.to_text().as_str()), (0, "hello"), "{odd}");
        // What it does not count of the input is estimated.
        let counted = Usage { input: 5, output: 1, reasoning: 1, ..Usage::default() };
        assert_eq!((answer.usage, answer.usage_estimated), (counted, true), "{odd}");
    }
}

#[tokio::test]
async fn no_call_is_executable_if_its_arguments_do_not_parse() {
    let arguments =
        only_call(&[calls("a", "read", &json!("{\"path\":")), stops("tool_calls")]).await;

    assert_eq!(
        arguments,
        Arguments::Malformed {
            text: "{\"path\":".to_owned(),
            error: "the arguments are not JSON: EOF while parsing a value at line 1 column 8"
                .to_owned(),
        }
    );
}

#[tokio::test]
async fn arguments_may_be_a_text_an_object_empty_or_null() {
    for (sent, read) in [
        (json!("{\"a\":1}"), json!({ "a": 1 })),
        (json!({ "a": 1 }), json!({ "a": 1 })),
        (json!(""), json!({})),
        (Value::Null, json!({})),
    ] {
        let arguments = only_call(&[calls("a", "read", &sent), stops("tool_calls")]).await;

        assert_eq!(arguments, Arguments::Json(read), "{sent}");
    }
}

#[tokio::test]
async fn a_call_is_told_before_the_answer_is_done_even_without_arguments() {
    let server = Server::start().await.unwrap();
    server.reply(CHAT, Reply::sse(chunks(&[calls("a", "read", &json!("")), stops("stop")])));

    let events: Vec<_> = client(endpoint(&server))
        .stream(request(), Cancel::new())
        .map(Result::unwrap)
        .collect()
        .await;

    let [
        ModelEvent::Started { .. },
        ModelEvent::ToolCallStarted { id, .. },
        ModelEvent::Done(done),
    ] = events.as_slice()
    else {
        panic!("{events:?}");
    };
    assert_eq!((id.as_str(), done.stop), ("a", StopReason::ToolUse));
}

#[tokio::test]
async fn a_tool_with_a_dot_in_its_name_is_called_by_its_own_name() {
    let server = Server::start().await.unwrap();
    server.reply(
        CHAT,
        Reply::sse(chunks(&[calls("a", "fs_read", &json!("{}")), stops("tool_calls")])),
    );
    let mut request = request();
    request.tools.push(ToolDefinition {
        name: "fs.read".parse().unwrap(),
        description: "Read a file.".to_owned(),
        parameters: json!({ "type": "object" }),
    });

    let answer = client(endpoint(&server)).complete(request, Cancel::new()).await.unwrap();

    let sent: Value = serde_json::from_slice(&server.requests()[0].body).unwrap();
    assert_eq!(sent["tools"][0]["function"]["name"], "fs_read");
    assert_eq!(answer.message.tool_calls().next().unwrap().name, "fs.read");
}

#[tokio::test]
async fn an_answer_that_ends_for_a_reason_nobody_knows_is_paid_once() {
    let server = Server::start().await.unwrap();
    server.reply(CHAT, Reply::sse(chunks(&[says("hello"), stops("because_i_said_so")])));

    let answer = client(endpoint(&server)).complete(request(), Cancel::new()).await.unwrap();

    assert_eq!((answer.stop, answer.tries), (StopReason::Other, 1));
    assert_eq!(answer.message.to_text(), "hello");
}

#[tokio::test]
async fn a_whole_answer_behind_a_byte_order_mark_is_read_however_it_is_named_and_cut() {
    let whole = json!({ "choices": [{
        "index": 0, "message": { "content": "whole" }, "finish_reason": "stop",
    }] });
    for kind in ["application/json", "text/plain"] {
        let server = Server::start().await.unwrap();
        let mut reply = Reply::new(200).header("content-type", kind);
        for piece in [&b"\xef"[..], b"\xbb\xbf ", whole.to_string().as_bytes()] {
            reply = reply.chunk(piece);
        }
        server.reply(CHAT, reply);

        let answer = client(endpoint(&server)).complete(request(), Cancel::new()).await.unwrap();

        assert_eq!(answer.message.to_text(), "whole", "{kind}");
    }
}

/// How an answer of this text ends that was offered a tool.
async fn ended(text: &str, choice: ToolChoice) -> StopReason {
    let server = Server::start().await.unwrap();
    server.reply(CHAT, Reply::sse(chunks(&[says(text), stops("stop")])));
    let mut request = request();
    request.tool_choice = choice;
    request.tools.push(ToolDefinition {
        name: "fs.read".parse().unwrap(),
        description: "Read a file.".to_owned(),
        parameters: json!({ "type": "object" }),
    });
    client(endpoint(&server)).complete(request, Cancel::new()).await.unwrap().stop
}

#[tokio::test]
async fn a_call_that_is_written_as_text_is_none_and_says_so() {
    for text in [
        "<tool_call>{\"name\": \"fs_read\", \"arguments\": {\"path\": \"a\"}}</tool_call>",
        "I read it:\n```json\n{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}\n```",
        "{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}",
        "<tool_call>{\"name\": \"fs.read\", \"arguments\": {\"path\"</tool_call>",
    ] {
        assert_eq!(ended(text, ToolChoice::Auto).await, StopReason::ProseCall, "{text}");
        assert_eq!(ended(text, ToolChoice::None).await, StopReason::EndTurn, "{text}");
    }
    for text in [
        "Write {\"name\": \"fs.read\", \"arguments\": {}} and it is read.",
        "Servers wrap it as <tool_call>{...}</tool_call>.",
        "{\"name\": \"Ada\", \"arguments\": {}}",
        "It holds {} and [].",
    ] {
        assert_eq!(ended(text, ToolChoice::Auto).await, StopReason::EndTurn, "{text}");
    }
}

// Usage.

#[tokio::test]
async fn a_stream_without_usage_is_estimated_and_marked() {
    let answer = answered_by(Reply::sse(hello())).await.unwrap();

    assert!(answer.usage_estimated);
    assert_eq!(answer.usage, Usage { input: 5, output: 2, ..Usage::default() });
}

#[tokio::test]
async fn usage_is_split_into_disjoint_classes() {
    let usage = json!({
        "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
        "prompt_tokens_details": { "cached_tokens": 60 },
        "completion_tokens_details": { "reasoning_tokens": 20 },
    });
    let stream = hello().replace(
        "data: [DONE]",
        &format!("data: {}\n\ndata: [DONE]", json!({ "choices": [], "usage": usage })),
    );

    let answer = answered_by(Reply::sse(stream)).await.unwrap();

    assert!(!answer.usage_estimated);
    assert_eq!(
        answer.usage,
        Usage { input: 40, cache_read: 60, cache_write: 0, output: 30, reasoning: 20 }
    );
    assert_eq!(answer.usage.total(), 150);
}

// Clocks.

#[tokio::test]
async fn a_server_that_never_begins_ends_at_the_clock_of_the_first_token() {
    let server = Server::start().await.unwrap();
    server.reply(CHAT, Reply::new(200).stall());
    let mut endpoint = endpoint(&server);
    endpoint.retry = RetryPolicy::NONE;
    endpoint.clocks = Clocks { first_token: Span::from_millis(50), ..Clocks::default() };

    let error = client(endpoint).complete(request(), Cancel::new()).await.unwrap_err();

    assert_eq!(
        (error.fault, error.message.as_str()),
        (ProviderFault::Timeout, "no content came within 50ms")
    );
}

#[tokio::test]
async fn a_connection_that_nobody_takes_ends_at_the_clock_of_the_connection() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Who is not let in from a full queue is not answered at all, as by a firewall.
    let mut waiting = Vec::new();
    let patience = Duration::from_millis(300);
    while let Ok(taken) =
        tokio::time::timeout(patience, tokio::net::TcpStream::connect(address)).await
    {
        waiting.push(taken.unwrap());
        assert!(waiting.len() < 100, "the queue of the listener has no end");
    }
    let url = format!("http://{address}");
    let mut endpoint = Endpoint::new("test".parse().unwrap(), ProviderKind::OpenAiCompatible, url);
    endpoint.retry = RetryPolicy { tries: 2, base: Span::ZERO, cap: Span::ZERO };
    endpoint.clocks = Clocks { connect: Span::from_millis(100), ..Clocks::default() };

    let error = client(endpoint).complete(request(), Cancel::new()).await.unwrap_err();

    assert_eq!((error.fault, error.tries), (ProviderFault::Timeout, 2));
    assert_eq!(error.message, "no connection within 100ms");
}

#[tokio::test]
async fn comments_do_not_keep_a_stalled_stream_alive() {
    let server = Server::start().await.unwrap();
    let gates: Vec<Gate> = (0..40).map(|_| Gate::new()).collect();
    let first = format!("data: {}\n\n", json!({ "choices": [says("hel")] }));
    let reply = gates.iter().fold(Reply::event_stream().chunk(first), |reply, gate| {
        reply.pause(gate).chunk(": ping\n\n").chunk("data: {\"choices\":[]}\n\n")
    });
    server.reply(CHAT, reply.stall());
    let mut endpoint = endpoint(&server);
    endpoint.retry = RetryPolicy::NONE;
    endpoint.clocks = Clocks { progress: Span::from_millis(200), ..Clocks::default() };
    let mut events = client(endpoint).stream(request(), Cancel::new());
    while !matches!(events.next().await.unwrap().unwrap(), ModelEvent::Text { .. }) {}
    gates[0].reached().await;
    let begun = tokio::time::Instant::now();

    let pings = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(60));
        for gate in &gates {
            ticks.tick().await;
            gate.open();
        }
        futures::future::pending::<()>().await;
    };
    let error = tokio::select! {
        event = events.next() => event.unwrap().unwrap_err(),
        () = pings => unreachable!(),
    };

    assert_eq!(error.message, "the answer stalled: no content came for 200ms");
    // Had comments counted, the stream would have lived for 2.4 s and more: the bound is for a busy machine.
    println!("the stream ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_end_is_told_by_done_or_by_the_reason_alone() {
    let marked = hello();
    let unmarked = marked.replace("data: [DONE]\n\n", "");
    let followed =
        format!("{marked}data: {{\"choices\":[{{\"delta\":{{\"content\":\"!\"}}}}]}}\n\n");
    for stream in [&marked, &unmarked, &followed] {
        let answer = answered_by(Reply::sse(stream)).await.unwrap();

        assert_eq!(
            (answer.message.to_text().as_str(), answer.stop),
            ("hello", StopReason::EndTurn)
        );
    }
    // With neither, nobody knows whether it was whole.
    let cut = chunks(&[says("hello")]).replace("data: [DONE]\n\n", "");
    let error = answered_by(Reply::sse(cut)).await.unwrap_err();
    assert_eq!(error.fault, ProviderFault::Transport);
}

#[tokio::test]
async fn an_answer_that_has_ended_does_not_wait_for_its_connection() {
    let server = Server::start().await.unwrap();
    let stream = hello().replace("data: [DONE]\n\n", "");
    server.reply(CHAT, Reply::sse(stream).stall());
    let mut endpoint = endpoint(&server);
    endpoint.clocks = Clocks { progress: Span::from_millis(50), ..Clocks::default() };

    let answer = client(endpoint).complete(request(), Cancel::new()).await.unwrap();

    assert_eq!((answer.message.to_text().as_str(), answer.tries), ("hello", 1));
}

// Cancelling.

/// How often a close is measured: the median of so many passes over a machine that was busy for a moment.
const CLOSES: usize = 11;

/// How long a cancelled call may hold its connection, in the median.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Measures how long a server waits for the end of a connection whose call is cancelled at the gate.
async fn closes_at_once(reply: impl Fn(&Gate) -> Reply) {
    let mut took = Vec::with_capacity(CLOSES);
    for _ in 0..CLOSES {
        let gate = Gate::new();
        let server = Server::start().await.unwrap();
        server.reply(CHAT, reply(&gate).stall());
        let cancel = Cancel::new();
        let client = client(endpoint(&server));
        let mut events = client.stream(request(), cancel.clone());
        let ended = async {
            let mut last = None;
            while let Some(event) = events.next().await {
                last = Some(event);
            }
            last.unwrap().unwrap_err()
        };
        let stopping = async {
            gate.reached().await;
            cancel.cancel();
            std::time::Instant::now()
        };

        let (error, begun) = futures::join!(ended, stopping);
        server.wait_for_closed(1).await;

        took.push(begun.elapsed());
        assert_eq!(error.fault, ProviderFault::Cancelled);
    }
    took.sort_unstable();
    let (median, longest) = (took[CLOSES / 2], took[CLOSES - 1]);
    println!("the server saw the end after {median:?} in the median, {longest:?} at the most");
    assert!(median < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn cancelling_before_the_answer_closes_the_connection_at_once() {
    closes_at_once(|gate| Reply::captured("HTTP/1.1 ").pause(gate)).await;
}

#[tokio::test]
async fn cancelling_within_the_answer_closes_the_connection_at_once() {
    let first = format!("data: {}\n\n", json!({ "choices": [says("hel")] }));
    closes_at_once(|gate| Reply::event_stream().chunk(&first).pause(gate)).await;
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection_at_once() {
    let server = Server::start().await.unwrap();
    let first = format!("data: {}\n\n", json!({ "choices": [says("hel")] }));
    server.reply(CHAT, Reply::event_stream().chunk(first).stall());
    let mut events = client(endpoint(&server)).stream(request(), Cancel::new());
    events.next().await.unwrap().unwrap();

    drop(events);

    // Nothing else ends it: the server would wait for ever, and the test with it.
    server.wait_for_closed(1).await;
}

#[tokio::test]
async fn a_wait_between_tries_wakes_on_cancel() {
    let server = Server::start().await.unwrap();
    server.reply_always(CHAT, Reply::json(429, "{}").header("retry-after", "50"));
    let cancel = Cancel::new();
    let mut events = client(endpoint(&server)).stream(request(), cancel.clone());
    assert!(matches!(events.next().await, Some(Ok(ModelEvent::Retrying { .. }))));

    cancel.cancel();
    let error = events.next().await.unwrap().unwrap_err();

    assert_eq!((error.fault, server.requests().len()), (ProviderFault::Cancelled, 1));
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_call_that_was_cancelled_before_sends_nothing() {
    let server = Server::start().await.unwrap();
    let cancel = Cancel::new();
    cancel.cancel();

    let error = client(endpoint(&server)).complete(request(), cancel).await.unwrap_err();

    assert_eq!((error.fault, server.requests().len()), (ProviderFault::Cancelled, 0));
}

// What must not be told.

struct Hides(&'static str);

impl Scrub for Hides {
    fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        text.replace(self.0, "[secret]").into()
    }

    fn scrub_value(&self, _: &mut Value) {}
}

#[tokio::test]
async fn what_a_server_calls_a_request_or_a_model_is_told_without_secrets_and_cut() {
    let server = Server::start().await.unwrap();
    let long = format!("hunter2-sk-123-{}", "x".repeat(1_000));
    let answer = json!({ "model": long, "choices": [{
        "index": 0, "message": { "content": "hello" }, "finish_reason": "stop",
    }] });
    server.reply(CHAT, Reply::json(200, &answer.to_string()).header("x-request-id", &long));
    server.reply(CHAT, Reply::json(401, "{}").header("x-request-id", &long));
    let endpoint = endpoint(&server).with_api_key("sk-123".into());
    let seams = Seams { scrub: Arc::new(Hides("hunter2")), ..Seams::default() };
    let client = Client::new(endpoint, seams).unwrap();

    let served_by = client.complete(request(), Cancel::new()).await.unwrap().served_by;
    let error = client.complete(request(), Cancel::new()).await.unwrap_err();

    for told in [served_by.request_id.unwrap(), served_by.model, error.request_id.unwrap()] {
        assert!(told.starts_with("[secret]-[api key]-x") && told.len() <= 256, "{told}");
    }
}

#[tokio::test]
async fn an_error_keeps_its_body_bounded_and_without_secrets() {
    let server = Server::start().await.unwrap();
    let body = json!({ "error": { "message": "key sk-123 of hunter2 is wrong", "code": "bad" } });
    let body = format!("{body}{}", "x".repeat(20_000));
    server.reply(CHAT, Reply::json(401, &body).header("x-request-id", "r-9"));
    let endpoint = endpoint(&server).with_api_key("sk-123".into());
    let seams = Seams { scrub: Arc::new(Hides("hunter2")), ..Seams::default() };

    let error =
        Client::new(endpoint, seams).unwrap().complete(request(), Cancel::new()).await.unwrap_err();

    assert_eq!(error.message, "key [api key] of [secret] is wrong");
    assert_eq!((error.code.as_deref(), error.request_id.as_deref()), (Some("bad"), Some("r-9")));
    let body = error.body.unwrap();
    assert!(body.len() <= 4_096 && !body.contains("sk-123") && !body.contains("hunter2"), "{body}");
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer sk-123"));
}
