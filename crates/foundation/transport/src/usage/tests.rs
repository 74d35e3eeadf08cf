use formwork_protocols::Role;
use proptest::prelude::*;

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
    let bill = |counts: Counts, bytes, thought| {
        let billed = counts.bill(&request(), Came { bytes, thought }, || 1);
        (billed.usage, billed.is_estimated())
    };

    assert_eq!(bill(cached, 6, 0), (cached.usage(), false));
    assert_eq!(bill(thought, 12, 12), (thought.usage(), false));
    // Words came besides, which nothing counts.
    let estimated = Usage { output: 2, ..thought.usage() };
    assert_eq!(bill(thought, 18, 12), (estimated, true));
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

#[test]
fn a_count_that_cannot_be_is_estimated_and_kept_as_odd_on_each_wire() {
    for kind in WIRES {
        for count in ["1000000000000000", "9223372036854775808", "18446744073709551615", "1e30"] {
            for (input, output) in [(count, "7"), ("9", count), (count, count)] {
                let read = counted(kind, input, output);

                let wanted = (if input == "9" { 9 } else { 5 }, if output == "7" { 7 } else { 4 });
                assert_eq!(bill(&read), (wanted.0, wanted.1, true), "{kind} {count}");
                let doubted = read.finished().usage_doubted.unwrap();
                assert!(doubted.total() >= 1_000_000_000_000_000, "{kind} {count} {doubted:?}");
            }
        }
        assert_eq!(counted(kind, "9", "7").finished().usage_doubted, None, "{kind}");
    }
}

/// Tells whether counts of a request are believed of which so many bytes came.
fn is_believed(request: &ModelRequest, counts: Counts, bytes: usize) -> bool {
    let billed = counts.bill(request, Came { bytes, thought: 0 }, || 1);
    billed.doubted().is_none()
}

#[test]
fn no_honest_server_is_doubted() {
    let told =
        |input, output| Counts { input: Some(input), output: Some(output), ..Counts::default() };
    let said = |parts| {
        let message = Message { role: Role::User, parts };
        let mut request = ModelRequest::new("m".parse().unwrap(), vec![message]);
        request.max_output_tokens = Some(1_000);
        request
    };
    let words = |text: &str| said(vec![Part::Text { text: text.to_owned() }]);
    let image = Part::Image { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
    let document = Part::Document {
        media_type: "application/pdf".to_owned(),
        data: "JVBERi0x".to_owned(),
        name: None,
    };
    let hello = words("Hello.");

    // A token for each byte, as an emoji or a script that the tokenizer does not know has them.
    let emoji = "\u{1f9d1}\u{200d}\u{1f680}".repeat(20_000);
    assert!(is_believed(&words(&emoji), told(emoji.len() as u64, 9), 5));
    assert!(is_believed(&hello, told(9, emoji.len() as u64), emoji.len()));
    // Thoughts that nobody sees, of a model that may think for as long as any, and for which no cap holds.
    assert!(is_believed(&hello, told(9, 128_000), 2));
    let thought = Counts { reasoning: 128_000, ..told(9, 900) };
    assert!(is_believed(&hello, thought, 2));
    // Rules and tools of the provider before a request of a word.
    assert!(is_believed(&hello, told(40_000, 9), 5));
    // The dearest image that any provider counts, and a document that fills the largest window.
    assert!(is_believed(&said(vec![image.clone()]), told(48_169, 9), 5));
    assert!(is_believed(&said(vec![image; 20]), told(20 * 48_169, 9), 5));
    assert!(is_believed(&said(vec![document]), told(2_000_000, 9), 5));
    // What the cache held is a part of the input and no more of it.
    let long = words(&"word ".repeat(200_000));
    let cached = Counts { cache_read: 199_000, cache_write: 900, ..told(100, 9) };
    assert!(is_believed(&long, cached, 5));

    assert!(!is_believed(&hello, told(1_000_000, 9), 5));
    assert!(!is_believed(&hello, told(9, 1_000_000), 5));
    assert!(!is_believed(&hello, Counts { cache_read: 1_000_000, ..told(9, 9) }, 5));
    assert!(!is_believed(&hello, Counts { reasoning: 1_000_000, ..told(9, 9) }, 5));
}

proptest! {
    #[test]
    fn a_token_for_each_byte_is_believed_whatever_was_said(
        asked in "\\PC{0,2000}", cap in prop::option::of(1_u32..200_000), bytes in 0_usize..2_000_000, seed: u64,
    ) {
        let mut request = ModelRequest::new("m".parse().unwrap(), vec![Message::text(Role::User, &*asked)]);
        request.max_output_tokens = cap;
        let most = u64::from(cap.unwrap_or(0)).max(bytes as u64);
        let (input, output) = (asked.len() as u64 + seed % 25_000 + 1, seed % (most + 1));

        let counts = Counts { input: Some(input), output: Some(output), ..Counts::default() };

        prop_assert!(is_believed(&request, counts, bytes));
    }
}
