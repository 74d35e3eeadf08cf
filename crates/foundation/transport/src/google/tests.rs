use formwork_protocols::{
    Part, Usage,
    message::{Arguments, Provenance, Reasoning, ToolCall},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    endpoint::ProviderKind::Google,
    replay::{Replayed, same_under_any_chunking, stream, whole},
};

const TEXT: &str = include_str!("../../tests/wire/google/text.stream.sse");
const TOOLS: &str = include_str!("../../tests/wire/google/tools.stream.sse");
const LENGTH: &str = include_str!("../../tests/wire/google/length.stream.sse");
const SAFETY: &str = include_str!("../../tests/wire/google/safety.stream.sse");
const BLOCKED: &str = include_str!("../../tests/wire/google/blocked.stream.sse");
const MALFORMED: &str = include_str!("../../tests/wire/google/malformed.stream.sse");
const ERROR: &str = include_str!("../../tests/wire/google/error.stream.sse");

fn read(text: &str) -> Replayed {
    stream(Google, [text.as_bytes()])
}

fn reasoning(text: &str, signature: Option<&str>) -> Part {
    Part::Reasoning(Reasoning {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        redacted: false,
        provenance: Provenance {
            provider: "there".parse().unwrap(),
            model: "m-1".parse().unwrap(),
        },
    })
}

fn call(id: &str, path: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "read_file".to_owned(),
        arguments: Arguments::Json(json!({ "path": path })),
    })
}

#[test]
fn a_text_its_thoughts_and_the_signature_at_its_end_are_kept() {
    let read = read(TEXT);

    let finished = read.finished();
    assert_eq!(
        finished.message.parts,
        [
            reasoning("Recall it.", None),
            Part::Text { text: "The capital is Paris.".to_owned() },
            reasoning("", Some("CpcBAR")),
        ]
    );
    assert_eq!(finished.stop, StopReason::EndTurn);
    assert_eq!(
        finished.usage,
        Usage { input: 10, cache_read: 4_096, output: 5, reasoning: 31, ..Usage::default() }
    );
    assert_eq!(read.model.as_deref(), Some("gemini-3-pro"));
}

#[test]
fn parallel_calls_without_ids_stay_apart_and_the_first_keeps_its_signature() {
    let read = read(TOOLS);

    let finished = read.finished();
    assert_eq!(
        finished.message.parts,
        [reasoning("", Some("EpsBAb")), call("call_1_0", "a"), call("call_1_1", "b")]
    );
    assert_eq!(finished.stop, StopReason::ToolUse);
}

#[test]
fn a_call_of_an_answer_that_met_its_limit_is_never_whole() {
    let read = read(LENGTH);

    assert_eq!(read.finished().stop, StopReason::Length);
    let calls: Vec<_> = read.finished().message.tool_calls().collect();
    assert!(matches!(calls[..], [ToolCall { arguments: Arguments::Malformed { .. }, .. }]));
}

#[test]
fn what_a_filter_withheld_is_an_answer_that_says_so() {
    for text in [SAFETY, BLOCKED] {
        assert_eq!(read(text).finished().stop, StopReason::ContentFilter);
    }
}

#[test]
fn a_failure_inside_a_good_stream_is_typed() {
    for (text, fault, code) in [
        (MALFORMED, ProviderFault::Protocol, "MALFORMED_FUNCTION_CALL"),
        (ERROR, ProviderFault::Overloaded, "UNAVAILABLE"),
    ] {
        let found = read(text).finished.unwrap_err();

        assert_eq!((found.fault, found.code.as_deref()), (fault, Some(code)));
    }
}

#[test]
fn a_stream_that_ends_early_is_a_fault_of_the_connection() {
    let cut = &TEXT[..TEXT.find("\r\n\r\n").unwrap() + 4];

    assert_eq!(read(cut).finished.unwrap_err().fault, ProviderFault::Transport);
}

#[test]
fn an_answer_in_one_piece_or_in_a_list_is_read_like_its_stream() {
    let chunks = TOOLS.lines().filter_map(|line| line.strip_prefix("data: "));
    let list = format!("[{}]", chunks.collect::<Vec<_>>().join(",\n"));

    let listed = whole(Google, &list);

    assert_eq!(listed.finished().message, read(TOOLS).finished().message);
    assert_eq!(whole(Google, "{}").finished.unwrap_err().fault, ProviderFault::Protocol);
}

#[test]
fn a_wait_is_asked_for_in_the_body() {
    let body = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.Help"},
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#;

    assert_eq!(asked(body), Some(Duration::from_secs(34)));
    assert_eq!(asked("{}"), None);
}

proptest! {
    #[test]
    fn the_same_bytes_give_the_same_answer_under_any_chunking(at in 0_usize..7, seed: u64) {
        let streams = [TEXT, TOOLS, LENGTH, SAFETY, BLOCKED, MALFORMED, ERROR];
        same_under_any_chunking(Google, streams[at].as_bytes(), seed)?;
    }

    #[test]
    fn no_bytes_make_the_reader_panic(data in "\\PC{0,80}") {
        stream(Google, [format!("data: {data}\n\n").as_bytes()]);
        whole(Google, &data);
    }
}
