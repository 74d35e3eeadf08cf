use formwork_protocols::{
    ModelEvent, Part, Usage,
    message::{Arguments, Reasoning, ToolCall},
    model::StopReason,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    endpoint::ProviderKind::Anthropic,
    replay::{Replayed, body, same_under_any_chunking, stream, whole},
};

const LLAMA_TEXT: &str = include_str!("../../tests/wire/llama.cpp/messages.stream.sse");
const LLAMA_TOOLS: &str = include_str!("../../tests/wire/llama.cpp/messages.tools.stream.sse");
const LLAMA_LENGTH: &str =
    include_str!("../../tests/wire/llama.cpp/messages.max_tokens.stream.sse");
const VLLM_TOOLS: &str = include_str!("../../tests/wire/vllm/messages.tools.stream.sse");
const GATEWAY_TOOLS: &str =
    include_str!("../../tests/wire/litellm-over-llama.cpp/messages.tools.stream.sse");
const AIMOCK_TOOLS: &str = include_str!("../../tests/wire/aimock/messages.tools.stream.sse");
const THINKING: &str = include_str!("../../tests/wire/anthropic/thinking.stream.sse");
const OVERLOADED: &str = include_str!("../../tests/wire/anthropic/overloaded.stream.sse");
const REFUSAL: &str = include_str!("../../tests/wire/anthropic/refusal.stream.sse");

fn read(text: &str) -> Replayed {
    stream(Anthropic, [text.as_bytes()])
}

fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: Arguments::Json(json!({ "path": "README.md" })),
    })
}

#[test]
fn a_text_is_streamed_and_its_counts_are_the_servers_own() {
    let read = read(LLAMA_TEXT);

    let finished = read.finished();
    assert_eq!(finished.message.to_text(), "The capital of France is Paris.");
    assert_eq!(finished.stop, StopReason::EndTurn);
    assert!(!finished.usage_estimated);
    assert_eq!(finished.usage.output, 8);
    assert_eq!(read.model.as_deref(), Some("smollm2-135m-instruct"));
    let told = read.events.iter().filter_map(|event| match event {
        ModelEvent::Text { text } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(told.collect::<String>(), finished.message.to_text());
}

#[test]
fn a_call_is_assembled_from_its_pieces_at_every_server() {
    let cached = Usage { input: 1, cache_read: 445, output: 34, ..Usage::default() };
    let anew = Usage { input: 446, output: 34, ..Usage::default() };
    for (text, id, usage) in [
        (LLAMA_TOOLS, "3Hkhj1Oy3Aa3ECUqmjbFguRXXrFr5VP6", Some(cached)),
        (VLLM_TOOLS, "chatcmpl-tool-bb3c4ce20a4f1824", Some(anew)),
        (GATEWAY_TOOLS, "call_qPCON9h0kldwGAKjVIONa1db5zblWyAy", Some(cached)),
        (AIMOCK_TOOLS, "toolu_Ceg5w7KQFOEfDjog", None),
    ] {
        let read = read(text);

        let finished = read.finished();
        assert_eq!(finished.message.parts, [call(id)]);
        assert_eq!((finished.stop, read.undecodable), (StopReason::ToolUse, 0));
        assert_eq!(usage.is_none(), finished.usage_estimated, "{id}");
        assert_eq!(usage.unwrap_or(finished.usage), finished.usage, "{id}");
    }
}

#[test]
fn thinking_keeps_its_signature_and_withheld_thinking_its_encrypted_form() {
    let read = read(THINKING);

    let finished = read.finished();
    let reasoning = |text: &str, signature: &str, redacted| {
        Part::Reasoning(Reasoning {
            text: text.to_owned(),
            signature: Some(signature.to_owned()),
            redacted,
            provenance: formwork_protocols::message::Provenance {
                provider: "there".parse().unwrap(),
                model: "m-1".parse().unwrap(),
            },
        })
    };
    assert_eq!(
        finished.message.parts,
        [
            reasoning("The file first.", "EqQBCgIYAhIM1gbcDa9GJwZA2b3h", false),
            reasoning("", "EmwKAhgBEgy3va3pzix", true),
            reasoning("", "EuYBCkQYAiJA", false),
            Part::Text { text: "I will read it.".to_owned() },
            call("toolu_01T1x1fJ34qAmk2tNTrN7Up6"),
        ]
    );
    assert_eq!(
        finished.usage,
        Usage { input: 21, cache_read: 18_000, cache_write: 512, output: 36, reasoning: 52 }
    );
}

#[test]
fn a_call_of_an_answer_that_met_its_limit_is_never_whole() {
    let cut = LLAMA_TOOLS.replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"");

    let read = read(&cut);

    let finished = read.finished();
    assert_eq!(finished.stop, StopReason::Length);
    let calls: Vec<_> = finished.message.tool_calls().collect();
    assert!(matches!(calls[..], [ToolCall { arguments: Arguments::Malformed { .. }, .. }]));
    assert_eq!(stream(Anthropic, [LLAMA_LENGTH.as_bytes()]).finished().stop, StopReason::Length);
}

#[test]
fn a_stream_that_ends_early_is_a_fault_of_the_connection() {
    let cut = &LLAMA_TOOLS[..LLAMA_TOOLS.find("event: message_delta").unwrap()];

    let fault = read(cut).finished.unwrap_err();

    assert_eq!(fault.fault, ProviderFault::Transport);
}

#[test]
fn an_error_inside_a_good_stream_is_typed() {
    let fault = read(OVERLOADED).finished.unwrap_err();

    assert_eq!(fault.fault, ProviderFault::Overloaded);
    assert_eq!(fault.message, "Overloaded");
    assert_eq!(fault.code.as_deref(), Some("overloaded_error"));
}

#[test]
fn a_refusal_is_an_answer_that_says_so() {
    let read = read(REFUSAL);

    assert_eq!(read.finished().stop, StopReason::Refusal);
    assert_eq!(read.finished().message.parts, []);
}

#[test]
fn an_answer_in_one_piece_is_read_like_its_stream() {
    for response in [
        include_str!("../../tests/wire/llama.cpp/messages.tools.res.http"),
        include_str!("../../tests/wire/vllm/messages.tools.res.http"),
        include_str!("../../tests/wire/litellm-over-llama.cpp/messages.tools.res.http"),
    ] {
        let read = whole(Anthropic, body(response));

        let finished = read.finished();
        assert_eq!((finished.stop, finished.usage.total()), (StopReason::ToolUse, 480));
        let calls: Vec<_> = finished.message.tool_calls().collect();
        assert_eq!(calls[0].arguments, Arguments::Json(json!({ "path": "README.md" })));
    }
}

#[test]
fn blocks_and_events_of_tomorrow_are_passed_over() {
    let text = LLAMA_TEXT.replacen(
        "event: content_block_start",
        "event: news\ndata: {\"type\":\"news\"}\n\n\
         event: content_block_start\n\
         data: {\"type\":\"content_block_start\",\"index\":7,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web\"}}\n\n\
         event: content_block_delta\n\
         data: {\"type\":\"content_block_delta\",\"index\":7,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n\
         event: content_block_start",
        1,
    );

    let read = read(&text);

    assert_eq!(read.finished().message.to_text(), "The capital of France is Paris.");
    assert_eq!((read.finished().message.parts.len(), read.undecodable), (1, 0));
}

proptest! {
    #[test]
    fn the_same_bytes_give_the_same_answer_under_any_chunking(
        at in 0_usize..8, seed: u64,
    ) {
        let streams = [
            LLAMA_TEXT, LLAMA_TOOLS, LLAMA_LENGTH, VLLM_TOOLS, GATEWAY_TOOLS, AIMOCK_TOOLS,
            THINKING, OVERLOADED,
        ];
        same_under_any_chunking(Anthropic, streams[at].as_bytes(), seed)?;
    }

    #[test]
    fn no_bytes_make_the_reader_panic(data in "\\PC{0,80}", name in "[a-z_]{0,20}") {
        let event = format!("event: {name}\ndata: {data}\n\n");
        stream(Anthropic, [event.as_bytes()]);
        whole(Anthropic, &data);
    }
}
