//! Servers that break off what they are paid for, and servers that do not stop.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use formwork_protocols::{
    Cancel, Message, ModelEvent, ModelRequest, Price, Provider as _, ProviderError, ProviderFault,
    Role, SeededRng, Span, Usage,
    model::{FellBack, Used},
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Client, Endpoint, ProviderKind, RetryPolicy, Seams, decode,
    fallback::{Fallback, Link},
    limit,
};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// The paths at which the model of each wire is asked.
const PATHS: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/m:streamGenerateContent",
    "/api/chat",
];

/// The tokens of the request by the crate's own estimate: `hi` and the frame of a message.
const ASKED: u64 = 5;

fn request() -> ModelRequest {
    ModelRequest::new("m".parse().unwrap(), vec![Message::text(Role::User, "hi")])
}

fn client(server: &Server, kind: ProviderKind, tries: u32) -> Client {
    let mut endpoint = Endpoint::new("test".parse().unwrap(), kind, server.url());
    endpoint.retry = RetryPolicy { tries, base: Span::ZERO, cap: Span::from_secs(60) };
    let rng = Arc::new(SeededRng::new(1));
    Client::new(endpoint, Seams { rng, ..Seams::default() }).unwrap()
}

async fn server(replies: impl IntoIterator<Item = Reply>) -> Server {
    let server = Server::start().await.unwrap();
    for reply in replies {
        for path in PATHS {
            server.reply(path, reply.clone());
        }
    }
    server
}

/// Returns the error of a call whose only answer breaks off like that.
async fn broken(kind: ProviderKind, reply: Reply) -> ProviderError {
    let server = server([reply]).await;
    client(&server, kind, 1).complete(request(), Cancel::new()).await.unwrap_err()
}

fn sse(events: &[Value]) -> String {
    let named = |event: &Value| match event["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    events.iter().map(named).collect()
}

fn used(usage: Usage, estimated: bool) -> Option<Box<Used>> {
    Some(Box::new(Used { usage, estimated }))
}

fn says(text: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": { "content": text } }] })
}

fn counted(text: &str, prompt: u64, completion: u64) -> Value {
    let mut chunk = says(text);
    chunk["usage"] = json!({ "prompt_tokens": prompt, "completion_tokens": completion });
    chunk
}

fn hello() -> String {
    let stop = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 2 } });
    sse(&[says("hello"), stop, usage]) + "data: [DONE]\n\n"
}

// What was used before a break is in the error, on each wire.

#[tokio::test]
async fn anthropics_counts_at_the_start_of_a_message_are_in_the_error_of_its_break() {
    let counts = json!({
        "input_tokens": 300, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 1,
        "output_tokens": 2,
    });
    let start = json!({ "type": "message_start", "message": { "id": "m1", "usage": counts } });
    let delta = json!({
        "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "nine by t" },
    });
    let input = Usage { input: 300, cache_read: 20, cache_write: 1, output: 2, reasoning: 0 };

    let early =
        broken(ProviderKind::Anthropic, Reply::sse(sse(std::slice::from_ref(&start))).cut()).await;
    let late = broken(ProviderKind::Anthropic, Reply::sse(sse(&[start, delta])).cut()).await;

    assert_eq!((early.fault, early.used), (ProviderFault::Transport, used(input, false)));
    // Nine bytes came behind the counts: three tokens by the estimate.
    assert_eq!(late.used, used(Usage { output: 5, ..input }, true));
}

#[tokio::test]
async fn the_counts_of_a_chat_are_in_the_error_of_its_break() {
    let chunk = counted("nine by t", 40, 3);
    let told = Usage { input: 40, output: 3, ..Usage::default() };

    let at_it =
        broken(ProviderKind::OpenAi, Reply::sse(sse(std::slice::from_ref(&chunk))).cut()).await;
    let behind =
        broken(ProviderKind::OpenAi, Reply::sse(sse(&[chunk, says("six by")])).cut()).await;
    let failed = json!({
        "error": { "message": "the worker died", "code": 500 },
        "choices": [], "usage": { "prompt_tokens": 40, "completion_tokens": 3 },
    });
    let failed = broken(ProviderKind::OpenAi, Reply::sse(sse(&[failed]))).await;

    assert_eq!((at_it.fault, at_it.used), (ProviderFault::Transport, used(told, false)));
    assert_eq!(behind.used, used(Usage { output: 5, ..told }, true));
    assert_eq!((failed.fault, failed.used), (ProviderFault::Server, used(told, false)));
}

#[tokio::test]
async fn words_without_counts_are_estimated_in_the_error_of_their_break() {
    let delta = |text: &str| json!({ "type": "response.output_text.delta", "item_id": "i", "content_index": 0, "delta": text });
    let line =
        |text: &str| format!("{}\n", json!({ "model": "m", "message": { "content": text } }));
    let lines =
        Reply::new(200).header("content-type", "application/x-ndjson").chunk(line("six by"));
    let call =
        json!({ "index": 0, "id": "a", "function": { "name": "read", "arguments": "{\"a\":1}" } });
    let calls = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });

    let chat = broken(ProviderKind::OpenAi, Reply::sse(sse(&[says("six by")])).cut()).await;
    let called = broken(ProviderKind::OpenAi, Reply::sse(sse(&[calls])).cut()).await;
    let responses =
        broken(ProviderKind::OpenAiResponses, Reply::sse(sse(&[delta("six by")])).cut()).await;
    let ollama = broken(ProviderKind::Ollama, lines.cut()).await;

    let two = used(Usage { input: ASKED, output: 2, ..Usage::default() }, true);
    assert_eq!((&chat.used, &responses.used, &ollama.used), (&two, &two, &two));
    assert_eq!(called.used, used(Usage { input: ASKED, output: 4, ..Usage::default() }, true));
}

#[tokio::test]
async fn the_counts_of_a_response_that_fails_are_in_its_error() {
    let failed = json!({ "type": "response.failed", "response": {
        "id": "r1", "error": { "code": "server_error", "message": "it broke" },
        "usage": { "input_tokens": 50, "output_tokens": 6 },
    }});

    let error = broken(ProviderKind::OpenAiResponses, Reply::sse(sse(&[failed]))).await;

    let told = Usage { input: 50, output: 6, ..Usage::default() };
    assert_eq!((error.fault, error.used), (ProviderFault::Server, used(told, false)));
}

#[tokio::test]
async fn geminis_counts_are_in_the_error_of_its_break() {
    let counts =
        json!({ "promptTokenCount": 30, "candidatesTokenCount": 3, "thoughtsTokenCount": 4 });
    let chunk = |text: &str| {
        json!({
            "candidates": [{ "content": { "parts": [{ "text": text }] } }], "usageMetadata": counts,
        })
    };
    let malformed = json!({
        "candidates": [{ "finishReason": "MALFORMED_FUNCTION_CALL" }], "usageMetadata": counts,
    });
    let told = Usage { input: 30, output: 3, reasoning: 4, ..Usage::default() };

    let chunks = [chunk("one"), chunk("two"), chunk("three")];
    let cut = broken(ProviderKind::Google, Reply::sse(sse(&chunks)).cut()).await;
    let malformed = broken(ProviderKind::Google, Reply::sse(sse(&[malformed]))).await;

    assert_eq!((cut.fault, cut.used), (ProviderFault::Transport, used(told, false)));
    assert_eq!((malformed.fault, malformed.used), (ProviderFault::Protocol, used(told, false)));
}

#[tokio::test]
async fn a_try_of_which_nothing_came_has_used_nothing() {
    for reply in [
        Reply::json(500, r#"{"error":{"message":"oops"},"usage":{"prompt_tokens":9}}"#),
        Reply::event_stream().cut(),
        Reply::sse(": ping\n\n").cut(),
    ] {
        assert_eq!(broken(ProviderKind::OpenAi, reply).await.used, None);
    }
}

#[tokio::test]
async fn a_stream_tells_of_each_lost_try_and_a_whole_call_adds_them_up() {
    let lost = || Reply::sse(sse(&[counted("nine by t", 40, 3)])).cut();
    let told = Usage { input: 40, output: 3, ..Usage::default() };

    let streaming = server([lost(), Reply::json(503, "{}"), Reply::sse(hello())]).await;
    let asked = client(&streaming, ProviderKind::OpenAi, 3);
    let events: Vec<_> = asked.stream(request(), Cancel::new()).collect().await;
    let collecting = server([lost(), lost(), Reply::sse(hello())]).await;
    let answer =
        client(&collecting, ProviderKind::OpenAi, 3).complete(request(), Cancel::new()).await;
    let failing = server([lost(), lost(), lost()]).await;
    let error = client(&failing, ProviderKind::OpenAi, 3).complete(request(), Cancel::new()).await;

    let tries = events.iter().filter_map(|event| match event {
        Ok(ModelEvent::Retrying { error, .. }) => Some(error.used.clone()),
        _ => None,
    });
    assert_eq!(tries.collect::<Vec<_>>(), [used(told, false), None]);
    let answer = answer.unwrap();
    assert_eq!(answer.usage, Usage { input: 7, output: 2, ..Usage::default() });
    assert_eq!(answer.lost, Some(Used { usage: told + told, estimated: false }));
    assert_eq!(error.unwrap_err().used, used(told + told + told, false));
}

#[tokio::test]
async fn nothing_more_is_sent_behind_a_lost_try_unless_it_is_asked_for() {
    let lost = || Reply::sse(sse(&[counted("nine by t", 40, 3)])).cut();
    let server = server([lost(), lost()]).await;
    let link = |name: &str| Link {
        model: format!("{name}/m").parse().unwrap(),
        price: Price::LOCAL,
        max_output_tokens: None,
        images: None,
        provider: Arc::new(client(
            &server,
            ProviderKind::OpenAi,
            if name == "one" { 1 } else { 2 },
        )),
    };
    let chain = Fallback::new(link("one"), vec![link("two")]);
    let mut events = chain.stream(request(), Cancel::new());

    let mut seen = Vec::new();
    while let Some(Ok(event)) = events.next().await {
        match event {
            ModelEvent::FellBack(fell) => {
                let FellBack { error, .. } = *fell;
                seen.push((error.used.is_some(), server.requests().len()));
            }
            ModelEvent::Retrying { error, .. } => {
                seen.push((error.used.is_some(), server.requests().len()));
                break;
            }
            _ => {}
        }
    }
    drop(events);
    let again: Vec<_> = chain.stream(request(), Cancel::new()).take(1).collect().await;

    assert_eq!(seen, [(true, 1), (true, 2)]);
    // That the first was passed over is told once more, and what it used is not.
    let [Ok(ModelEvent::FellBack(passed))] = &again[..] else { panic!("{again:?}") };
    assert_eq!((passed.error.tries, &passed.error.used), (0, &None));
    assert_eq!(server.requests().len(), 2);
}

// What does not stop is stopped.

/// More bytes than an answer of one token may have, in events like this one.
fn flood(event: &str) -> Reply {
    let most = usize::try_from(limit::ANSWER_BYTES + 2 * limit::BYTES_PER_TOKEN).unwrap();
    let chunk = event.repeat((64 * 1024_usize).div_ceil(event.len()));
    let count = most.div_ceil(chunk.len());
    (0..count).fold(Reply::event_stream(), |reply, _| reply.chunk(&chunk)).stall()
}

#[tokio::test]
async fn an_endless_answer_is_ended_at_its_limit_and_not_asked_for_again() {
    for event in [": ping\n\n", "data: {}\n\n", "x", "event: y\n", "\r"] {
        let server = server([flood(event), flood(event)]).await;
        let mut asked = request();
        asked.max_output_tokens = Some(1);

        let error = client(&server, ProviderKind::OpenAi, 3)
            .complete(asked, Cancel::new())
            .await
            .unwrap_err();

        assert_eq!(
            (error.fault, error.tries, server.requests().len()),
            (ProviderFault::Endless, 1, 1)
        );
        assert_eq!(
            error.message,
            "the answer has no end: more than 4198480 bytes came, which is the most for 1 tokens"
        );
        assert_eq!(error.used, None, "{event:?}");
    }
}

#[tokio::test]
async fn an_answer_that_goes_on_past_its_cap_is_read_no_further_and_counted_by_what_came() {
    let reasons =
        json!({ "choices": [{ "index": 0, "delta": { "reasoning_content": "and so on " } }] });
    let function = json!({ "name": "", "arguments": "and so on " });
    let calls = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [{ "index": 0, "function": function }] } }] });
    // A server that keeps to no cap may count as it likes as well.
    let lies = counted("and so on ", 5, 1);
    for event in [says("and so on "), reasons, calls, lies] {
        let words = format!("data: {event}\n\n");
        let server = server([flood(&words), flood(&words)]).await;
        let mut asked = request();
        asked.max_output_tokens = Some(100);

        let error = client(&server, ProviderKind::OpenAi, 3)
            .complete(asked, Cancel::new())
            .await
            .unwrap_err();

        assert_eq!(
            (error.fault, error.tries, server.requests().len()),
            (ProviderFault::Overrun, 1, 1)
        );
        assert_eq!(
            error.message,
            "the server does not keep to the cap of 100 output tokens: more than 5696 bytes of words came, and no more was read"
        );
        // 5,700 bytes at three for a token.
        let used = used(Usage { input: ASKED, output: 1_900, ..Usage::default() }, true);
        assert_eq!(error.used, used, "{event}");
        server.wait_for_closed(1).await;
    }
}

#[tokio::test]
async fn an_answer_past_its_cap_is_cut_off_on_each_wire_and_in_one_piece() {
    let long = "and so on ".repeat(600);
    let delta = json!({ "type": "response.output_text.delta", "item_id": "i", "content_index": 0, "delta": long });
    let block = json!({
        "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": long },
    });
    let chunk = json!({ "candidates": [{ "content": { "parts": [{ "text": long }] }, "finishReason": "STOP" }] });
    let line = format!("{}\n", json!({ "message": { "content": long }, "done": true }));
    let lines = Reply::new(200).header("content-type", "application/x-ndjson").chunk(line);
    let whole = json!({ "choices": [{ "index": 0, "message": { "content": long }, "finish_reason": "stop" }] });
    for (kind, reply) in [
        (ProviderKind::OpenAi, Reply::sse(sse(&[says(&long)]))),
        (ProviderKind::OpenAi, Reply::json(200, &whole.to_string())),
        (ProviderKind::OpenAiResponses, Reply::sse(sse(&[delta]))),
        (ProviderKind::Anthropic, Reply::sse(sse(&[block]))),
        (ProviderKind::Google, Reply::sse(sse(&[chunk]))),
        (ProviderKind::Ollama, lines),
    ] {
        let server = server([reply]).await;
        let mut asked = request();
        asked.max_output_tokens = Some(100);
        let error = client(&server, kind, 1).complete(asked, Cancel::new()).await.unwrap_err();

        assert_eq!(error.fault, ProviderFault::Overrun, "{kind}: {error}");
        assert_eq!(error.used.map(|used| used.usage.output), Some(2_000), "{kind}");
    }
}

#[tokio::test]
async fn an_answer_within_the_margin_of_its_cap_is_an_answer() {
    let long = "x".repeat(usize::try_from(100 * limit::BYTES_PER_WORD + limit::SLACK).unwrap());
    let stop = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "length" }] });
    let server = server([Reply::sse(sse(&[says(&long), stop]))]).await;
    let mut asked = request();
    asked.max_output_tokens = Some(100);

    let answer = client(&server, ProviderKind::OpenAi, 1).complete(asked, Cancel::new()).await;

    assert_eq!(answer.unwrap().message.to_text().len(), long.len());
}

#[tokio::test]
async fn an_endless_answer_in_one_piece_is_ended_at_its_limit() {
    let most = usize::try_from(limit::ANSWER_BYTES + 2 * limit::BYTES_PER_TOKEN).unwrap();
    let body = format!("{{\"choices\":[{}", " ".repeat(most));
    let server = server([Reply::json(200, &body)]).await;
    let mut asked = request();
    asked.max_output_tokens = Some(1);

    let error =
        client(&server, ProviderKind::OpenAi, 3).complete(asked, Cancel::new()).await.unwrap_err();

    assert_eq!((error.fault, server.requests().len()), (ProviderFault::Endless, 1));
}

#[test]
fn an_endless_answer_is_ended_without_the_clients_http_too() {
    let endpoint =
        Endpoint::new("test".parse().unwrap(), ProviderKind::Ollama, "http://127.0.0.1:1");
    let mut asked = request();
    asked.max_output_tokens = Some(1);
    let mut answer = decode::Answer::new(&endpoint, asked.clone());
    let line = format!("{}\n", json!({ "message": { "content": "and so on" } }));

    let error = (0..200_000).find_map(|_| answer.push(line.as_bytes()).err()).unwrap();

    assert_eq!(error.fault, ProviderFault::Overrun);
    assert_eq!(error.used.map(|used| (used.usage.output, used.estimated)), Some((1_371, true)));

    let mut answer = decode::Answer::new(&endpoint, asked);
    let lines = "{}\n".repeat(1_000);
    let error = (0..10_000).find_map(|_| answer.push(lines.as_bytes()).err()).unwrap();
    assert_eq!(error.fault, ProviderFault::Endless);
}

#[tokio::test]
async fn a_redirect_says_where_it_leads_and_what_to_set() {
    let to = "https://key:secret@api.example.com/v1/chat/completions?key=abc#x"; // formwork:allow password-in-url
    let server = server([Reply::new(308).header("location", to).body("")]).await;

    let error = client(&server, ProviderKind::OpenAi, 3)
        .complete(request(), Cancel::new())
        .await
        .unwrap_err();

    assert_eq!((error.fault, error.status, error.tries), (ProviderFault::Invalid, Some(308), 1));
    assert_eq!(
        error.message,
        "the server redirects to https://api.example.com/v1/chat/completions, where nothing was sent; if that is the \
         server you mean, set base_url of provider test to its address"
    );
    assert_eq!(server.requests().len(), 1);
}
