use formwork_protocols::ModelEvent;
use proptest::prelude::*;

use super::*;
use crate::{ProviderKind, replay, tool_names::ToolNames, wire};

const KINDS: [ProviderKind; 3] =
    [ProviderKind::OpenAiCompatible, ProviderKind::OpenAiResponses, ProviderKind::Anthropic];

/// Reads events by their shape, and once more each by the rules of its wire.
fn both_ways(kind: ProviderKind, events: &[(&str, String)]) -> [String; 2] {
    let told = |read: &mut dyn FnMut(&str, &str, &mut Draft) -> Result<Heard, Fault>| {
        let mut draft = Draft::new(&replay::request(), ToolNames::default());
        let mut heard = Vec::new();
        for (name, data) in events {
            heard.push(match read(name, data, &mut draft) {
                Ok(Heard::Words) => Ok(Heard::Progress),
                Ok(heard) => Ok(heard),
                Err(fault) => Err(fault.message),
            });
        }
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

proptest! {
    #[test]
    fn an_event_read_by_its_shape_says_what_it_says_by_the_rules_of_its_wire(
        steps in prop::collection::vec(
            (0..7_usize, prop_oneof![
                3 => "[a-z ]{1,6}",
                1 => any::<String>(),
                1 => r#"["\\{}\[\],:\n\u{1}é]{0,4}"#,
            ]),
            0..40,
        ),
    ) {
        for kind in KINDS {
            let events: Vec<_> =
                steps.iter().map(|(shape, text)| event(kind, *shape, text)).collect();
            let [shaped, plain] = both_ways(kind, &events);
            prop_assert_eq!(shaped, plain);
        }
    }
}

#[test]
fn an_event_of_the_last_ones_shape_is_known_and_another_one_is_not() {
    for kind in KINDS {
        let mut shaped = Shaped::new(wire::by_rules(kind));
        let mut draft = Draft::new(&replay::request(), ToolNames::default());
        let (name, first) = event(kind, 0, "one");
        shaped.event(name, &first, &mut draft).unwrap();

        let (_, second) = event(kind, 0, " two");
        assert_eq!(shaped.shape.words(name, &second), Some(" two"), "{kind}");
        for text in ["", "\"", "\\", "\n"] {
            let (_, other) = event(kind, 0, text);
            assert_eq!(shaped.shape.words(name, &other), None, "{kind}: {text:?}");
        }
        assert_eq!(shaped.shape.words("other", &second), None, "{kind}");
        assert_eq!(shaped.shape.words(name, &second.replace(['0', 'm'], "x")), None, "{kind}");
    }
}

#[test]
fn a_server_that_numbers_its_events_is_not_compared_with_for_long() {
    let mut shaped = Shaped::new(wire::by_rules(ProviderKind::OpenAiCompatible));
    let mut draft = Draft::new(&replay::request(), ToolNames::default());
    for n in 0..40 {
        let data = format!(r#"{{"n":{n},"choices":[{{"index":0,"delta":{{"content":"x"}}}}]}}"#);
        shaped.event("", &data, &mut draft).unwrap();
        assert_eq!(shaped.shape.is_known, n + 1 < usize::from(TRIES), "{n}");
    }
}
