use formwork_protocols::{
    Part, Usage,
    message::{Arguments, Provenance, Reasoning, ToolCall},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    endpoint::ProviderKind::Ollama,
    replay::{Replayed, same_under_any_chunking, stream, whole},
};

const TEXT: &str = include_str!("../../tests/wire/aimock/ollama.chat.stream.ndjson");
const TOOLS: &str = include_str!("../../tests/wire/aimock/ollama.tools.stream.ndjson");
const THINKING: &str = include_str!("../../tests/wire/ollama/thinking.stream.ndjson");
const LENGTH: &str = include_str!("../../tests/wire/ollama/length.stream.ndjson");
const ERROR: &str = include_str!("../../tests/wire/ollama/error.stream.ndjson");

fn read(text: &str) -> Replayed {
    stream(Ollama, [text.as_bytes()])
}

fn call(id: &str, path: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: Arguments::Json(json!({ "path": path })),
    })
}

#[test]
fn a_text_is_read_from_its_lines_and_counts_of_zero_are_estimated() {
    let read = read(TEXT);

    let finished = read.finished();
    assert_eq!(finished.message.to_text(), "Paris.");
    assert_eq!((finished.stop, finished.usage_estimated), (StopReason::EndTurn, true));
    assert_eq!(read.model.as_deref(), Some("gpt-5"));
}

#[test]
fn a_call_without_an_id_is_given_one() {
    assert_eq!(read(TOOLS).finished().message.parts, [call("call_1_0", "README.md")]);
    assert_eq!(read(TOOLS).finished().stop, StopReason::ToolUse);
}

#[test]
fn thinking_and_parallel_calls_of_one_tool_stay_apart() {
    let read = read(THINKING);

    let finished = read.finished();
    assert_eq!(
        finished.message.parts,
        [
            Part::Reasoning(Reasoning {
                text: "Both files.".to_owned(),
                signature: None,
                redacted: false,
                provenance: Provenance {
                    provider: "there".parse().unwrap(),
                    model: "m-1".parse().unwrap(),
                },
            }),
            Part::Text { text: "Reading.".to_owned() },
            call("call_1_0", "a"),
            call("call_1_1", "b"),
        ]
    );
    assert_eq!(finished.usage, Usage { input: 174, output: 37, ..Usage::default() });
}

#[test]
fn a_call_of_an_answer_that_met_its_limit_is_never_whole() {
    let read = read(LENGTH);

    assert_eq!(read.finished().stop, StopReason::Length);
    let calls: Vec<_> = read.finished().message.tool_calls().collect();
    assert!(matches!(calls[..], [ToolCall { arguments: Arguments::Malformed { .. }, .. }]));
}

#[test]
fn an_error_inside_a_good_stream_is_typed() {
    let fault = read(ERROR).finished.unwrap_err();

    assert_eq!(fault.fault, ProviderFault::Server);
    assert_eq!(fault.message, "an error was encountered while running the model: unexpected EOF");
}

#[test]
fn a_stream_that_ends_early_is_a_fault_of_the_connection() {
    let cut = TEXT.lines().next().unwrap();

    assert_eq!(read(cut).finished.unwrap_err().fault, ProviderFault::Transport);
}

#[test]
fn a_prompt_that_the_server_held_already_is_estimated() {
    let text = THINKING.replace("\"prompt_eval_count\":174,", "");

    let read = read(&text);

    let finished = read.finished();
    assert_eq!((finished.usage.output, finished.usage_estimated), (37, true));
}

#[test]
fn an_answer_in_one_piece_is_read_like_its_stream() {
    let line = r#"{"model":"m","message":{"role":"assistant","content":"Hi."},"done":true,"done_reason":"stop","prompt_eval_count":5,"eval_count":2}"#;

    let read = whole(Ollama, line);

    assert_eq!(read.finished().message.to_text(), "Hi.");
    assert_eq!(read.finished().usage.total(), 7);
    assert_eq!(whole(Ollama, TOOLS).finished().message.tool_calls().count(), 1);
    assert_eq!(whole(Ollama, "{}").finished.unwrap_err().fault, ProviderFault::Protocol);
}

proptest! {
    #[test]
    fn the_same_bytes_give_the_same_answer_under_any_chunking(at in 0_usize..5, seed: u64) {
        let streams = [TEXT, TOOLS, THINKING, LENGTH, ERROR];
        same_under_any_chunking(Ollama, streams[at].as_bytes(), seed)?;
    }

    #[test]
    fn no_bytes_make_the_reader_panic(data in "\\PC{0,80}") {
        stream(Ollama, [data.as_bytes()]);
        whole(Ollama, &data);
    }
}
