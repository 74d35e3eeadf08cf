use formwork_protocols::{
    Part, Usage,
    message::{Arguments, Provenance, Reasoning, ToolCall},
};
use proptest::prelude::*;

use super::*;
use crate::{
    endpoint::ProviderKind::OpenAiResponses,
    replay::{Replayed, body, same_under_any_chunking, stream, whole},
};

const LLAMA_TEXT: &str = include_str!("../../tests/wire/llama.cpp/responses.stream.sse");
const LLAMA_TOOLS: &str = include_str!("../../tests/wire/llama.cpp/responses.tools.stream.sse");
const VLLM_TEXT: &str = include_str!("../../tests/wire/vllm/responses.stream.sse");
const VLLM_TOOLS: &str = include_str!("../../tests/wire/vllm/responses.tools.stream.sse");
const GATEWAY_TEXT: &str =
    include_str!("../../tests/wire/litellm-over-llama.cpp/responses.stream.sse");
const GATEWAY_TOOLS: &str =
    include_str!("../../tests/wire/litellm-over-llama.cpp/responses.tools.stream.sse");
const GATEWAY_FAILED: &str = include_str!("../../tests/wire/litellm/responses.stream.sse");
const AIMOCK_TEXT: &str = include_str!("../../tests/wire/aimock/responses.stream.sse");
const AIMOCK_TOOLS: &str = include_str!("../../tests/wire/aimock/responses.tools.stream.sse");
const REASONING: &str = include_str!("../../tests/wire/openai/reasoning.stream.sse");
const INCOMPLETE: &str = include_str!("../../tests/wire/openai/incomplete.stream.sse");
const FAILED: &str = include_str!("../../tests/wire/openai/failed.stream.sse");
const ERROR: &str = include_str!("../../tests/wire/openai/error.stream.sse");
const REFUSAL: &str = include_str!("../../tests/wire/openai/refusal.stream.sse");

fn read(text: &str) -> Replayed {
    stream(OpenAiResponses, [text.as_bytes()])
}

#[test]
fn a_text_is_streamed_once_although_its_whole_form_follows() {
    for (text, said) in [
        (LLAMA_TEXT, "The capital of France is Paris."),
        (VLLM_TEXT, "The capital of France is Paris."),
        (GATEWAY_TEXT, "The capital of France is Paris."),
        (AIMOCK_TEXT, "Paris."),
    ] {
        let read = read(text);

        let finished = read.finished();
        assert_eq!(finished.message.parts, [Part::Text { text: said.to_owned() }]);
        assert_eq!((finished.stop, read.undecodable), (StopReason::EndTurn, 0));
    }
    let usage = Usage { input: 1, cache_read: 14, output: 8, ..Usage::default() };
    assert_eq!(read(LLAMA_TEXT).finished().usage, usage);
}

#[test]
fn a_call_is_assembled_with_and_without_the_place_of_its_item() {
    for text in [LLAMA_TOOLS, VLLM_TOOLS, GATEWAY_TOOLS, AIMOCK_TOOLS] {
        let read = read(text);

        let finished = read.finished();
        assert_eq!(finished.stop, StopReason::ToolUse, "{text}");
        let calls: Vec<_> = finished.message.tool_calls().collect();
        assert_eq!(calls.len(), 1, "{text}");
        assert!(!calls[0].id.is_empty() && !calls[0].id.starts_with("fc_"), "{}", calls[0].id);
        assert_eq!(calls[0].arguments, Arguments::Json(json!({ "path": "README.md" })));
    }
}

#[test]
fn reasoning_is_kept_as_the_item_that_has_to_go_back() {
    let read = read(REASONING);

    let item = json!({
        "type": "reasoning",
        "id": "rs_1",
        "summary": [
            { "type": "summary_text", "text": "Find the file." },
            { "type": "summary_text", "text": "Read it." },
        ],
        "encrypted_content": "gAAAAABo",
    });
    let finished = read.finished();
    let author = Provenance { provider: "there".parse().unwrap(), model: "m-1".parse().unwrap() };
    assert_eq!(
        finished.message.parts,
        [
            Part::Reasoning(Reasoning {
                text: "Find the file.\n\nRead it.".to_owned(),
                signature: Some(item.to_string()),
                redacted: false,
                provenance: author.clone(),
            }),
            Part::Reasoning(Reasoning {
                text: String::new(),
                signature: Some(
                    json!({ "type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAAABp" })
                        .to_string()
                ),
                redacted: false,
                provenance: author,
            }),
            Part::ToolCall(ToolCall {
                id: "call_1".to_owned(),
                name: "read_file".to_owned(),
                arguments: Arguments::Json(json!({ "path": "a" })),
            }),
            Part::ToolCall(ToolCall {
                id: "call_2".to_owned(),
                name: "read_file".to_owned(),
                arguments: Arguments::Json(json!({ "path": "b" })),
            }),
        ]
    );
    assert_eq!(
        finished.usage,
        Usage { input: 172, cache_read: 1_024, cache_write: 128, output: 45, reasoning: 64 }
    );
}

#[test]
fn an_answer_that_met_its_limit_holds_no_call_to_execute() {
    let read = read(INCOMPLETE);

    let finished = read.finished();
    assert_eq!(finished.stop, StopReason::Length);
    let calls: Vec<_> = finished.message.tool_calls().collect();
    assert!(matches!(calls[..], [ToolCall { arguments: Arguments::Malformed { .. }, .. }]));
}

#[test]
fn a_failure_inside_a_good_stream_is_typed() {
    for (text, fault, message) in [
        (FAILED, ProviderFault::Throttled, "Rate limit reached for gpt-5.1"),
        (
            ERROR,
            ProviderFault::ContextOverflow,
            "Your input exceeds the context window of this model",
        ),
        (GATEWAY_FAILED, ProviderFault::Server, "Error processing stream start"),
    ] {
        let found = read(text).finished.unwrap_err();

        assert_eq!((found.fault, found.message.as_str()), (fault, message));
    }
}

#[test]
fn a_refusal_is_an_answer_that_says_so() {
    let read = read(REFUSAL);

    assert_eq!(read.finished().stop, StopReason::Refusal);
    assert_eq!(read.finished().message.to_text(), "I can't help with that.");
}

#[test]
fn a_stream_that_ends_early_is_a_fault_of_the_connection() {
    let cut = &LLAMA_TOOLS[..LLAMA_TOOLS.find("event: response.completed").unwrap()];

    assert_eq!(read(cut).finished.unwrap_err().fault, ProviderFault::Transport);
}

#[test]
fn an_answer_in_one_piece_is_read_like_its_stream() {
    for (response, said) in [
        (
            include_str!("../../tests/wire/llama.cpp/responses.res.http"),
            "The capital of France is Paris.",
        ),
        (
            include_str!("../../tests/wire/vllm/responses.res.http"),
            "The capital of France is Paris.",
        ),
        (include_str!("../../tests/wire/litellm/responses.res.http"), "Paris, says the mock."),
    ] {
        let read = whole(OpenAiResponses, body(response));

        assert_eq!(read.finished().message.to_text(), said);
        assert!(!read.finished().usage_estimated);
        assert_eq!(read.finished().stop, StopReason::EndTurn);
    }
}

#[test]
fn a_stream_of_only_its_end_holds_the_whole_answer() {
    let end = LLAMA_TOOLS.find("event: response.completed").unwrap();

    let read = read(&LLAMA_TOOLS[end..]);

    assert_eq!(read.finished().message.tool_calls().count(), 1);
}

proptest! {
    #[test]
    fn the_same_bytes_give_the_same_answer_under_any_chunking(at in 0_usize..14, seed: u64) {
        let streams = [
            LLAMA_TEXT, LLAMA_TOOLS, VLLM_TEXT, VLLM_TOOLS, GATEWAY_TEXT, GATEWAY_TOOLS,
            GATEWAY_FAILED, AIMOCK_TEXT, AIMOCK_TOOLS, REASONING, INCOMPLETE, FAILED, ERROR, REFUSAL,
        ];
        same_under_any_chunking(OpenAiResponses, streams[at].as_bytes(), seed)?;
    }

    #[test]
    fn no_bytes_make_the_reader_panic(data in "\\PC{0,80}", name in "[a-z_.]{0,40}") {
        let event = format!("event: {name}\ndata: {data}\n\n");
        stream(OpenAiResponses, [event.as_bytes()]);
        whole(OpenAiResponses, &data);
    }
}
