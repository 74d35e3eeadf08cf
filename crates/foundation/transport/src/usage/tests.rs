use super::*;
use crate::{
    endpoint::ProviderKind::{self, Anthropic, Google, Ollama, OpenAi, OpenAiResponses},
    replay::{Replayed, request, stream},
};

const WIRES: [ProviderKind; 5] = [OpenAi, OpenAiResponses, Anthropic, Google, Ollama];

/// What every answer here says: 12 bytes, which are estimated at 4 tokens.
const SAID: &str = "Hello there.";

/// Reads an answer of a wire whose server counts this of its input and its output; an empty text stands for no count.
fn counted(kind: ProviderKind, input: &str, output: &str) -> Replayed {
    let names = match kind {
        Anthropic | OpenAiResponses => ["input_tokens", "output_tokens"],
        Google => ["promptTokenCount", "candidatesTokenCount"],
        Ollama => ["prompt_eval_count", "eval_count"],
        _ => ["prompt_tokens", "completion_tokens"],
    };
    let [input, output] = [(names[0], input), (names[1], output)].map(|(name, count)| {
        if count.is_empty() { String::new() } else { format!("\"{name}\":{count}") }
    });
    let both: Vec<_> = [&*input, &*output].into_iter().filter(|half| !half.is_empty()).collect();
    let both = both.join(",");
    let sse = |events: &[String]| {
        events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>()
    };
    let body = match kind {
        OpenAiResponses => sse(&[format!(
            r#"{{"type":"response.completed","response":{{"id":"r","output":[{{"type":"message","content":[{{"type":"output_text","text":"{SAID}"}}]}}],"usage":{{{both}}}}}}}"#
        )]),
        Anthropic => sse(&[
            format!(r#"{{"type":"message_start","message":{{"id":"m","usage":{{{input}}}}}}}"#),
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#
                .to_owned(),
            format!(
                r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{SAID}"}}}}"#
            ),
            r#"{"type":"content_block_stop","index":0}"#.to_owned(),
            format!(
                r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{{{output}}}}}"#
            ),
            r#"{"type":"message_stop"}"#.to_owned(),
        ]),
        Google => sse(&[format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{SAID}"}}]}},"finishReason":"STOP"}}],"usageMetadata":{{{both}}}}}"#
        )]),
        Ollama => {
            let both = if both.is_empty() { both } else { format!(",{both}") };
            format!("{{\"message\":{{\"content\":\"{SAID}\"}},\"done\":true{both}}}\n")
        }
        _ => sse(&[
            format!(
                r#"{{"choices":[{{"index":0,"delta":{{"content":"{SAID}"}},"finish_reason":"stop"}}]}}"#
            ),
            format!(r#"{{"choices":[],"usage":{{{both}}}}}"#),
            "[DONE]".to_owned(),
        ]),
    };
    stream(kind, [body.as_bytes()])
}

/// Returns what was counted or estimated of an answer, and whether any of it is an estimate.
fn bill(read: &Replayed) -> (u64, u64, bool) {
    let finished = read.finished();
    assert_eq!(finished.message.to_text(), SAID);
    let usage = finished.usage;
    assert_eq!(usage.total(), usage.input + usage.output);
    (usage.input, usage.output, finished.usage_estimated)
}

#[test]
fn half_a_count_is_told_and_the_other_half_is_estimated_and_marked() {
    for kind in WIRES {
        assert_eq!(bill(&counted(kind, "9", "7")), (9, 7, false), "{kind}");
        assert_eq!(bill(&counted(kind, "9.0", "7.0")), (9, 7, false), "{kind}");
        for none in ["", "null", "-3", "10.7", "\"12\"", "[1]", "{\"a\":1}", "true", "0"] {
            assert_eq!(bill(&counted(kind, none, "7")), (5, 7, true), "{kind} {none}");
            assert_eq!(bill(&counted(kind, "9", none)), (9, 4, true), "{kind} {none}");
            assert_eq!(bill(&counted(kind, none, none)), (5, 4, true), "{kind} {none}");
        }
    }
}

#[test]
fn what_the_cache_held_alone_is_an_input_and_thoughts_alone_are_an_output() {
    let cached = Counts { input: Some(0), cache_read: 40, output: Some(2), ..Counts::default() };
    let thought = Counts { input: Some(9), reasoning: 30, ..Counts::default() };
    let came = |bytes, thought| Came { bytes, thought };

    assert_eq!(cached.bill(&request(), came(6, 0), || 1), (cached.usage(), false));
    assert_eq!(thought.bill(&request(), came(12, 12), || 1), (thought.usage(), false));
    // Words came besides, which nothing counts.
    let estimated = Usage { output: 2, ..thought.usage() };
    assert_eq!(thought.bill(&request(), came(18, 12), || 1), (estimated, true));
}

#[test]
fn counts_that_come_apart_are_put_together_and_a_later_zero_takes_none_back() {
    let input = Counts { input: Some(9), cache_read: 3, ..Counts::default() };
    let output = Counts { output: Some(7), reasoning: 2, ..Counts::default() };
    let zero = Counts { input: Some(0), output: Some(0), ..Counts::default() };
    let both = Counts { output: Some(7), reasoning: 2, ..input };

    assert_eq!(input.then(output), both);
    assert_eq!(output.then(input), both);
    assert_eq!(both.then(zero), both);
    assert_eq!(
        both.then(Counts { input: Some(10), ..Counts::default() }).usage().total_input(),
        10
    );
}
