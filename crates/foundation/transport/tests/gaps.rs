//! Answers of which a part was lost on its way, on each wire: none of them is taken for a whole one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use formwork_protocols::{
    Cancel, Completion, Message, ModelEvent, ModelRequest, Provider as _, ProviderFault, Role,
    SeededRng, Span, message::Arguments, model::StopReason,
};
use formwork_testkit::http::{Reply, Server};
use formwork_transport::{
    Client, Endpoint, ProviderKind, RetryPolicy, Seams, structured::OutputSchema,
};
use futures::StreamExt as _;
use serde_json::{Value, json};

const PATHS: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/m:streamGenerateContent",
    "/api/chat",
];

const KINDS: [ProviderKind; 5] = [
    ProviderKind::OpenAi,
    ProviderKind::OpenAiResponses,
    ProviderKind::Anthropic,
    ProviderKind::Google,
    ProviderKind::Ollama,
];

fn request() -> ModelRequest {
    ModelRequest::new("m".parse().unwrap(), vec![Message::text(Role::User, "hi")])
}

fn client(server: &Server, kind: ProviderKind) -> Client {
    let mut endpoint = Endpoint::new("test".parse().unwrap(), kind, server.url());
    endpoint.retry = RetryPolicy { tries: 3, base: Span::ZERO, cap: Span::from_secs(60) };
    let rng = Arc::new(SeededRng::new(1));
    Client::new(endpoint, Seams { rng, ..Seams::default() }).unwrap()
}

/// Starts a server that gives these answers one behind the other.
async fn server(bodies: &[String], kind: ProviderKind) -> Server {
    let server = Server::start().await.unwrap();
    for body in bodies {
        let reply = match kind {
            ProviderKind::Ollama => {
                Reply::new(200).header("content-type", "application/x-ndjson").body(body.as_str())
            }
            _ => Reply::sse(body.as_str()),
        };
        for path in PATHS {
            server.reply(path, reply.clone());
        }
    }
    server
}

/// Returns the answer of which these are the events, and how often it was asked for.
async fn answer(kind: ProviderKind, events: &[Value]) -> (Completion, usize) {
    let body = written(kind, events);
    let server = server(&[body.clone(), body.clone(), body], kind).await;
    let answer = client(&server, kind).complete(request(), Cancel::new()).await.unwrap();
    (answer, server.requests().len())
}

/// Writes events as they stand on the wire; a text is written as it is.
fn written(kind: ProviderKind, events: &[Value]) -> String {
    let line = |event: &Value| match event {
        Value::String(raw) => raw.clone(),
        event => event.to_string(),
    };
    let events = events.iter().map(|event| match (kind, event["type"].as_str()) {
        (ProviderKind::Ollama, _) => format!("{}\n", line(event)),
        (_, Some(name)) => format!("event: {name}\ndata: {event}\n\n"),
        (_, None) => format!("data: {}\n\n", line(event)),
    });
    let mut body: String = events.collect();
    if kind == ProviderKind::OpenAi {
        body.push_str("data: [DONE]\n\n");
    }
    body
}

/// Returns an event that says this, and the one that ends the answer well.
fn says(kind: ProviderKind, text: &str) -> Value {
    match kind {
        ProviderKind::OpenAi => {
            json!({ "choices": [{ "index": 0, "delta": { "content": text } }] })
        }
        ProviderKind::OpenAiResponses => json!({
            "type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": text,
        }),
        ProviderKind::Anthropic => json!({
            "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text },
        }),
        ProviderKind::Google => {
            json!({ "candidates": [{ "content": { "parts": [{ "text": text }] } }] })
        }
        _ => json!({ "message": { "content": text }, "done": false }),
    }
}

fn ends(kind: ProviderKind) -> Vec<Value> {
    match kind {
        ProviderKind::OpenAi => {
            vec![json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] })]
        }
        ProviderKind::OpenAiResponses => {
            vec![json!({ "type": "response.completed", "response": { "id": "r", "output": [] } })]
        }
        ProviderKind::Anthropic => vec![
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
        ],
        ProviderKind::Google => vec![json!({ "candidates": [{ "finishReason": "STOP" }] })],
        _ => vec![json!({ "message": { "content": "" }, "done": true, "done_reason": "stop" })],
    }
}

fn begins(kind: ProviderKind) -> Vec<Value> {
    match kind {
        ProviderKind::OpenAiResponses => vec![json!({
            "type": "response.output_item.added", "output_index": 0, "item": { "type": "message", "id": "i" },
        })],
        ProviderKind::Anthropic => vec![
            json!({ "type": "message_start", "message": { "id": "m" } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        ],
        _ => Vec::new(),
    }
}

/// Returns a whole answer of a wire, with something in its middle.
fn around(kind: ProviderKind, middle: &[Value]) -> Vec<Value> {
    let before = begins(kind).into_iter().chain([says(kind, "one "), says(kind, "two ")]);
    let behind = [says(kind, "four")].into_iter().chain(ends(kind));
    before.chain(middle.iter().cloned()).chain(behind).collect()
}

#[tokio::test]
async fn an_answer_with_an_event_that_cannot_be_read_is_no_whole_answer_on_any_wire() {
    for kind in KINDS {
        let (whole, _) = answer(kind, &around(kind, &[says(kind, "three ")])).await;
        let broken = json!("{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"thr");
        let (cut, asked) = answer(kind, &around(kind, &[broken])).await;

        assert_eq!((whole.stop, whole.undecodable), (StopReason::EndTurn, 0), "{kind}");
        assert_eq!((cut.stop, cut.undecodable, asked), (StopReason::Gap, 1, 1), "{kind}");
        assert_eq!(cut.message.to_text(), "one two four", "{kind}");
    }
}

#[tokio::test]
async fn an_answer_of_which_nothing_was_shown_is_asked_for_again() {
    let kind = ProviderKind::OpenAi;
    let call = json!({ "index": 0, "id": "a", "function": { "name": "read", "arguments": "{}" } });
    let call = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] });
    let broken = written(kind, &[&[json!("{\"cut"), call][..], &ends(kind)].concat());
    let whole = written(kind, &around(kind, &[]));
    let server = server(&[broken, whole], kind).await;

    let events: Vec<_> =
        client(&server, kind).stream(request(), Cancel::new()).map(Result::unwrap).collect().await;

    let again = events.iter().find_map(|event| match event {
        ModelEvent::Retrying { error, .. } => Some((error.fault, error.message.clone())),
        _ => None,
    });
    let told = "a part of the answer was lost: an event could not be read".to_owned();
    assert_eq!(again, Some((ProviderFault::Protocol, told)));
    let Some(ModelEvent::Done(done)) = events.last() else { panic!("{events:?}") };
    assert_eq!((done.stop, done.tries), (StopReason::EndTurn, 2));
}

#[tokio::test]
async fn an_answer_no_part_of_which_could_be_read_says_so() {
    for kind in KINDS {
        let body = written(kind, &[&[json!("{\"cut")][..], &ends(kind)].concat());
        let server = server(&[body.clone(), body], kind).await;

        let error = client(&server, kind).complete(request(), Cancel::new()).await.unwrap_err();

        assert_eq!((error.fault, error.tries), (ProviderFault::Protocol, 2), "{kind}");
        let told = "no part of the answer could be read: an event could not be read";
        assert_eq!(error.message, told, "{kind}");
    }
}

#[tokio::test]
async fn blocks_of_anthropic_begin_grow_and_end_in_their_order() {
    let kind = ProviderKind::Anthropic;
    let start = |index: u32| json!({ "type": "content_block_start", "index": index, "content_block": { "type": "text", "text": "" } });
    let grows = |index: u32| json!({ "type": "content_block_delta", "index": index, "delta": { "type": "text_delta", "text": "x" } });
    let stop = |index: u32| json!({ "type": "content_block_stop", "index": index });
    let end = || {
        [
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
        ]
    };

    for (events, whole) in [
        (vec![start(0), grows(0), stop(0), start(1), grows(1), stop(1)], true),
        (vec![grows(0), stop(0)], false),
        (vec![start(0), grows(0), stop(0), grows(1), stop(1)], false),
        (vec![start(0), grows(0), stop(0), start(2), grows(2), stop(2)], false),
        (vec![start(0), grows(0), stop(0), grows(0)], false),
        (vec![start(0), grows(0), start(1), grows(1), stop(1)], false),
        (vec![start(0), grows(0), stop(0), stop(1)], false),
    ] {
        let (answer, _) = answer(kind, &[&events[..], &end()].concat()).await;

        let wanted = if whole { StopReason::EndTurn } else { StopReason::Gap };
        assert_eq!(answer.stop, wanted, "{events:?}");
    }
}

#[tokio::test]
async fn an_event_of_responses_whose_number_is_left_out_is_missed() {
    let kind = ProviderKind::OpenAiResponses;
    let numbered = |left_out: Option<usize>| {
        let all = around(kind, &[says(kind, "three ")]);
        let mut events = Vec::new();
        for (number, mut event) in all.into_iter().enumerate() {
            event["sequence_number"] = json!(number);
            if Some(number) != left_out {
                events.push(event);
            }
        }
        events
    };

    assert_eq!(answer(kind, &numbered(None)).await.0.stop, StopReason::EndTurn);
    for left_out in 1..5 {
        let (cut, _) = answer(kind, &numbered(Some(left_out))).await;
        assert_eq!(cut.stop, StopReason::Gap, "{left_out}");
    }
}

#[tokio::test]
async fn what_responses_repeat_at_their_end_is_held_against_their_pieces() {
    let kind = ProviderKind::OpenAiResponses;
    let said = |text: &str| {
        let done = json!({
            "type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": text,
        });
        let item = json!({ "type": "message", "id": "i", "content": [{ "type": "output_text", "text": text }] });
        let ended = json!({ "type": "response.output_item.done", "output_index": 0, "item": item });
        let completed =
            json!({ "type": "response.completed", "response": { "id": "r", "output": [item] } });
        [done, ended, completed]
    };
    let stops = async |text: &str| {
        let mut stops = Vec::new();
        for end in said(text) {
            stops.push(answer(kind, &around(kind, &[end])).await.0.stop);
        }
        stops
    };

    assert_eq!(stops("one two").await, [StopReason::EndTurn; 3]);
    assert_eq!(stops("one two\n\n").await, [StopReason::EndTurn; 3]);
    assert_eq!(stops("one and two").await, [StopReason::Gap; 3]);
}

#[tokio::test]
async fn a_call_of_responses_that_lacks_a_part_is_not_made() {
    let kind = ProviderKind::OpenAiResponses;
    let call = |arguments: &str| json!({ "type": "function_call", "id": "f", "call_id": "c", "name": "write", "arguments": arguments });
    let begun =
        json!({ "type": "response.output_item.added", "output_index": 0, "item": call("") });
    let grows = json!({
        "type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 0,
        "delta": "{\"text\":\"rm -rf ./build\"}",
    });
    let arguments = |whole: &str| {
        json!({
            "type": "response.function_call_arguments.done", "item_id": "f", "output_index": 0, "arguments": whole,
        })
    };
    let ended = |whole: &str| json!({ "type": "response.output_item.done", "output_index": 0, "item": call(whole) });
    let same = "{ \"text\": \"rm -rf ./build\" }";
    let more = "{\"text\":\"rm -rf ./build # not now\"}";

    for (event, whole) in [
        (arguments(same), true),
        (ended(same), true),
        (arguments(more), false),
        (ended(more), false),
    ] {
        let events = [&[begun.clone(), grows.clone(), event][..], &ends(kind)].concat();
        let (answer, _) = answer(kind, &events).await;

        let made = &answer.message.tool_calls().next().unwrap().arguments;
        assert_eq!(matches!(made, Arguments::Json(_)), whole, "{made:?}");
        assert_eq!(answer.stop == StopReason::ToolUse, whole);
    }
}

#[tokio::test]
async fn an_answer_that_ends_for_calls_of_which_none_came_is_no_whole_answer() {
    let kind = ProviderKind::OpenAi;
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });

    let (answer, _) = answer(kind, &[says(kind, "I write it now."), end]).await;

    assert_eq!(answer.stop, StopReason::Gap);
}

#[tokio::test]
async fn an_answer_without_its_reason_or_of_which_a_part_is_lost_follows_no_schema() {
    let kind = ProviderKind::OpenAi;
    let schema = OutputSchema::new("any", json!({ "type": "object" })).unwrap();
    let value = says(kind, "{\"a\":1}");

    let (whole, _) = answer(kind, &[&[value.clone()][..], &ends(kind)].concat()).await;
    let (endless, _) = answer(kind, std::slice::from_ref(&value)).await;
    let (gap, _) = answer(kind, &[&[value, json!("{\"cut")][..], &ends(kind)].concat()).await;

    assert_eq!(schema.read(&whole), Ok(json!({ "a": 1 })));
    assert_eq!(endless.stop, StopReason::Missing);
    for (answer, told) in [
        (endless, "the answer ended without its end marker"),
        (gap, "a part of the answer was lost on its way"),
    ] {
        assert_eq!(schema.read(&answer).unwrap_err().problems, [told]);
    }
}
