use formwork_protocols::ModelEvent;
use proptest::prelude::*;

use super::*;
use crate::{ProviderKind, replay, tool_names::ToolNames, wire};

const KINDS: [ProviderKind; 5] = [
    ProviderKind::OpenAiCompatible,
    ProviderKind::OpenAiResponses,
    ProviderKind::Anthropic,
    ProviderKind::Google,
    ProviderKind::Ollama,
];

/// Reads events by their shape, and once more each by the rules of its wire.
fn both_ways(kind: ProviderKind, events: &[(&str, String)]) -> [String; 2] {
    let told = |read: &mut dyn FnMut(&str, &str, &mut Draft) -> Result<Heard, Fault>| {
        let mut draft = Draft::new(&replay::request(), ToolNames::default());
        let mut heard = Vec::new();
        for (name, data) in events {
            heard.push(match read(name, data, &mut draft) {
                Ok(Heard::Words) => Ok(Heard::Progress),
                Ok(heard) => {
                    if heard == Heard::Undecodable {
                        draft.lose("an event could not be read");
                    }
                    Ok(heard)
                }
                Err(fault) => Err(fault.message),
            });
        }
        draft.count_now();
        let said: Vec<ModelEvent> = std::iter::from_fn(|| draft.pop_event()).collect();
        format!("{heard:?} {said:?} {draft:?}")
            // Where words stood differs from one reading to the other.
            .split("last_words")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let mut shaped = Shaped::new(wire::by_rules(kind));
    let mut plain = wire::by_rules(kind);
    [
        told(&mut |name, data, draft| shaped.event(name, data, draft)),
        told(&mut |name, data, draft| plain.event(name, data, draft)),
    ]
}

/// An event of a wire with a text in its place, in one of several shapes.
fn event(kind: ProviderKind, shape: usize, text: &str) -> (&'static str, String) {
    let text = serde_json::to_string(text).unwrap();
    match kind {
        ProviderKind::Anthropic => match shape {
            0 | 1 => (
                "content_block_delta",
                format!(
                    r#"{{"type":"content_block_delta","index":{shape},"delta":{{"type":"text_delta","text":{text}}}}}"#
                ),
            ),
            2 => (
                "content_block_delta",
                format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"thinking_delta","thinking":{text}}}}}"#
                ),
            ),
            3 => (
                "content_block_delta",
                format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"signature_delta","signature":{text}}}}}"#
                ),
            ),
            4 => (
                "content_block_start",
                format!(
                    r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"text","text":{text}}}}}"#
                ),
            ),
            5 => ("ping", r#"{"type":"ping"}"#.to_owned()),
            _ => (
                "content_block_delta",
                format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":{text}}}}}"#
                ),
            ),
        },
        ProviderKind::OpenAiResponses => match shape {
            0 | 1 => (
                "",
                format!(
                    r#"{{"type":"response.output_text.delta","item_id":"m{shape}","output_index":{shape},"content_index":0,"delta":{text}}}"#
                ),
            ),
            2 => (
                "",
                format!(
                    r#"{{"type":"response.output_text.done","item_id":"m0","content_index":0,"text":{text}}}"#
                ),
            ),
            3 => ("", format!(r#"{{"type":"response.reasoning_text.delta","delta":{text}}}"#)),
            4 => ("", format!(r#"{{"type":"response.refusal.delta","delta":{text}}}"#)),
            5 => (
                "",
                format!(
                    r#"{{"type":"response.output_item.added","output_index":1,"item":{{"type":"message","id":{text}}}}}"#
                ),
            ),
            _ => (
                "",
                format!(r#"{{"type":"response.function_call_arguments.delta","delta":{text}}}"#),
            ),
        },
        ProviderKind::Google => {
            let (part, rest) = match shape {
                0 | 1 => (format!(r#"{{"text":{text}}}"#), ""),
                2 => (format!(r#"{{"text":{text},"thought":true}}"#), ""),
                3 => (format!(r#"{{"text":{text},"thoughtSignature":"s"}}"#), ""),
                4 => (format!(r#"{{"text":{text}}},{{"functionCall":{{"name":"f"}}}}"#), ""),
                5 => (format!(r#"{{"text":"a"}},{{"text":{text}}}"#), ""),
                _ => (format!(r#"{{"text":{text}}}"#), r#","finishReason":"STOP""#),
            };
            (
                "",
                format!(
                    r#"{{"responseId":"m{shape}","candidates":[{{"index":0,"content":{{"parts":[{part}]}}{rest}}}]}}"#
                ),
            )
        }
        ProviderKind::Ollama => match shape {
            0 | 1 => (
                "",
                format!(
                    r#"{{"model":"m{shape}","message":{{"role":"assistant","content":{text}}},"done":false}}"#
                ),
            ),
            2 => ("", format!(r#"{{"message":{{"content":"","thinking":{text}}},"done":false}}"#)),
            3 => (
                "",
                format!(
                    r#"{{"message":{{"content":{text},"tool_calls":[{{"function":{{"name":"f","arguments":{{}}}}}}]}},"done":false}}"#
                ),
            ),
            4 => ("", format!(r#"{{"message":{{"content":"a","thinking":{text}}},"done":false}}"#)),
            5 => ("", format!(r#"{{"message":{{"content":{text}}},"done":"no"}}"#)),
            _ => ("", format!(r#"{{"error":{text}}}"#)),
        },
        _ => match shape {
            0 => ("", format!(r#"{{"choices":[{{"index":0,"delta":{{"content":{text}}}}}]}}"#)),
            1 => (
                "",
                format!(
                    r#"{{"choices":[{{"index":0,"delta":{{"reasoning":"a","content":{text}}}}}]}}"#
                ),
            ),
            2 => (
                "",
                format!(r#"{{"choices":[{{"index":0,"delta":{{"reasoning_content":{text}}}}}]}}"#),
            ),
            3 => (
                "",
                format!(
                    r#"{{"choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":"length"}}],"usage":{{"prompt_tokens":3,"completion_tokens":2}}}}"#
                ),
            ),
            4 => (
                "",
                format!(
                    r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"f","arguments":{text}}}}}]}}}}]}}"#
                ),
            ),
            5 => ("", format!(r#"{{"choices":[{{"index":1,"delta":{{"content":{text}}}}}]}}"#)),
            _ => (
                "",
                format!(
                    r#"{{"choices":[{{"index":0,"delta":{{"content":{text},"refusal":"no"}}}}]}}"#
                ),
            ),
        },
    }
}

/// The same event with what a server counts, dates or pads it with: before the rest of it or behind, as it is written or odd.
fn marked(kind: ProviderKind, data: &str, mark: usize, n: u32) -> String {
    let (number, text) = match kind {
        ProviderKind::OpenAiResponses => ("sequence_number", "obfuscation"),
        ProviderKind::Ollama => ("total", "created_at"),
        _ => ("created", "obfuscation"),
    };
    let inside = data.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    if kind == ProviderKind::Google {
        // Its counts stand within an object, and none elsewhere.
        let counts = match mark {
            0 => return data.to_owned(),
            1 => format!(r#""promptTokenCount":8,"candidatesTokenCount":{n}"#),
            2 => format!(r#""totalTokenCount":{}, "candidatesTokenCount": {n} "#, n + 8),
            3 => format!(r#""thoughtsTokenCount":{n}00000000000000000000"#),
            4 => format!(r#""candidatesTokenCount":"{n}""#),
            5 => format!(r#""candidatesTokenCount":0{n}"#),
            6 => format!(r#""candidatesTokenCount":-{n}"#),
            _ => format!(r#""candidatesTokenCount":{n},"more":{n}"#),
        };
        return format!(r#"{{{inside},"usageMetadata":{{{counts}}}}}"#);
    }
    match mark {
        0 => data.to_owned(),
        1 => format!(r#"{{"{number}":{n},{inside}}}"#),
        2 => format!(r#"{{{inside},"{number}": {n} , "{text}":"{}"}}"#, "x".repeat(n as usize % 9)),
        3 => format!(r#"{{"{text}":"at",{inside},"{number}":{n}}}"#),
        // A key that only looks like it, an escape, a number that JSON does not know, and one that is none.
        4 => format!(r#"{{"a\"{number}":{n},{inside},"{text}":"\u00{:02}"}}"#, n % 100),
        5 => format!(r#"{{"{number}":0{n},{inside}}}"#),
        6 => format!(r#"{{"{number}":{n}.5,{inside},"{number}":-{n}}}"#),
        _ => format!(r#"{{{inside},"{number}":null,"{text}":{n}}}"#),
    }
}

proptest! {
    #[test]
    fn an_event_read_by_its_shape_says_what_it_says_by_the_rules_of_its_wire(
        steps in prop::collection::vec(
            (
                prop_oneof![3 => Just(0), 2 => 0..7_usize],
                prop_oneof![
                    3 => "[a-z ]{1,6}",
                    1 => any::<String>(),
                    1 => r#"["\\{}\[\],:\n\u{1}é]{0,4}"#,
                ],
                0..120_u32,
            ),
            0..40,
        ),
        mark in 0..8_usize,
        other in 0..8_usize,
    ) {
        for kind in KINDS {
            let events: Vec<_> = steps
                .iter()
                .map(|(shape, text, n)| {
                    let (name, data) = event(kind, *shape, text);
                    (name, marked(kind, &data, if n % 5 == 0 { other } else { mark }, *n))
                })
                .collect();
            let [shaped, plain] = both_ways(kind, &events);
            prop_assert_eq!(shaped, plain);
        }
    }
}

/// Returns the words of an event, where the shape of the last one is enough to find them.
fn words<'a>(shaped: &Shaped, draft: &Draft, name: &str, data: &'a str) -> Option<&'a str> {
    shaped.shape.words(name, data, draft.next_number()).map(|(words, _)| words)
}

#[test]
fn an_event_of_the_last_ones_shape_is_known_and_another_one_is_not() {
    for kind in KINDS {
        let mut shaped = Shaped::new(wire::by_rules(kind));
        let mut draft = Draft::new(&replay::request(), ToolNames::default());
        let (name, first) = event(kind, 0, "one");
        shaped.event(name, &first, &mut draft).unwrap();

        let (_, second) = event(kind, 0, " two");
        assert_eq!(words(&shaped, &draft, name, &second), Some(" two"), "{kind}");
        for text in ["", "\"", "\\", "\n"] {
            let (_, other) = event(kind, 0, text);
            assert_eq!(words(&shaped, &draft, name, &other), None, "{kind}: {text:?}");
        }
        assert_eq!(words(&shaped, &draft, "other", &second), None, "{kind}");
        assert_eq!(words(&shaped, &draft, name, &second.replace(['0', 'm'], "x")), None, "{kind}");
    }
}

#[test]
fn an_event_is_known_although_its_server_numbers_dates_or_pads_it() {
    for kind in [ProviderKind::OpenAiCompatible, ProviderKind::OpenAiResponses] {
        for mark in [1, 2, 3] {
            let mut shaped = Shaped::new(wire::by_rules(kind));
            let mut draft = Draft::new(&replay::request(), ToolNames::default());
            let (name, first) = event(kind, 0, "one");
            shaped.event(name, &marked(kind, &first, mark, 9), &mut draft).unwrap();

            let (_, second) = event(kind, 0, " two");
            let numbered = marked(kind, &second, mark, 10);
            assert_eq!(words(&shaped, &draft, name, &numbered), Some(" two"), "{kind}: {numbered}");
            for odd in ["010", "10.0", "-10", "\"10\"", "", "1e1", "null"] {
                let odd = numbered.replace("10", odd);
                let found = words(&shaped, &draft, name, &odd);
                assert_eq!(found, None, "{kind}: {odd}");
            }
        }
    }
}

#[test]
fn an_event_that_was_left_out_is_missed_whatever_reads_the_others() {
    let kind = ProviderKind::OpenAiResponses;
    let lost = |numbers: &[u32]| {
        let mut shaped = Shaped::new(wire::by_rules(kind));
        let mut draft = Draft::new(&replay::request(), ToolNames::default());
        for number in numbers {
            let (name, data) = event(kind, 0, "one");
            shaped.event(name, &marked(kind, &data, 1, *number), &mut draft).unwrap();
        }
        draft.lost()
    };

    assert_eq!(lost(&[0, 1, 2, 3, 4]), None);
    assert_eq!(lost(&[7, 8, 9]), None);
    assert_eq!(lost(&[0, 0, 0]), None);
    assert!(lost(&[0, 1, 3, 4]).is_some());
    assert!(lost(&[0, 2]).is_some());
    assert!(lost(&[0, 1, 2, 3, 12]).is_some());
}

#[test]
fn a_server_that_counts_under_a_key_of_its_own_is_not_compared_with_for_long() {
    let mut shaped = Shaped::new(wire::by_rules(ProviderKind::OpenAiCompatible));
    let mut draft = Draft::new(&replay::request(), ToolNames::default());
    for n in 0..40 {
        let data = format!(r#"{{"n":{n},"choices":[{{"index":0,"delta":{{"content":"x"}}}}]}}"#);
        shaped.event("", &data, &mut draft).unwrap();
        assert_eq!(shaped.shape.is_known, n + 1 < usize::from(TRIES), "{n}");
    }
}
