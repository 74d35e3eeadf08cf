//! JSON as some servers write it, made such as a reader takes it.
//!
//! Half of a surrogate pair is no character, and serde refuses it; the libraries that most servers and clients are written with
//! take it, so that a model that stumbles over an emoji, or is cut within one, would cost a whole answer. It becomes U+FFFD, as
//! with them. A byte order mark before the text is left out. A number that no float holds (`1e400`) becomes null, which is no
//! count and no argument: what it is counts as not said. Nothing of this is looked for in what can be read as it is.

/// How many bytes an escape by number has.
const ESCAPE: usize = "\\ud800".len();

/// Returns JSON without halves of surrogate pairs, without numbers that no float holds and without a byte order mark; nothing
/// where it has none of them.
pub(crate) fn mended(json: &str) -> Option<String> {
    let whole = whole(json);
    finite(whole.as_deref().unwrap_or(json)).or(whole)
}

/// Returns JSON with null in the place of each number that no float holds; nothing where it has none.
fn finite(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let (mut finite, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(byte) = bytes.get(at) {
        let rest = bytes.get(at..).unwrap_or_default();
        match byte {
            b'"' => at += string(rest),
            b'-' | b'0'..=b'9' => {
                let end = at + rest.iter().take_while(|byte| is_of_number(**byte)).count();
                let number = json.get(at..end).unwrap_or_default();
                if number.parse::<f64>().is_ok_and(f64::is_infinite) {
                    finite.push_str(json.get(kept..at).unwrap_or_default());
                    finite.push_str("null");
                    kept = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if kept == 0 {
        return None;
    }
    finite.push_str(json.get(kept..).unwrap_or_default());
    Some(finite)
}

const fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Returns how many bytes the text has that begins with a quotation mark, with both of them.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns JSON without halves of surrogate pairs and without a byte order mark; nothing where it has neither.
fn whole(json: &str) -> Option<String> {
    let rest = json.trim_start().trim_start_matches('\u{feff}');
    let mut mended = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = rest.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        at += match (surrogate(rest, at), surrogate(rest, at + ESCAPE)) {
            (Some(Half::High), Some(Half::Low)) => 2 * ESCAPE,
            (Some(_), _) => {
                mended.push_str(rest.get(kept..at).unwrap_or_default());
                mended.push_str("\\ufffd");
                kept = at + ESCAPE;
                ESCAPE
            }
            // A backslash and what it stands before, which may be another.
            (None, _) => 2,
        };
    }
    if kept == 0 && rest.len() == json.trim_start().len() {
        return None;
    }
    mended.push_str(rest.get(kept..).unwrap_or_default());
    Some(mended)
}

/// Which half of a pair an escape is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    High,
    Low,
}

/// Returns which half of a pair is escaped at a place of JSON.
fn surrogate(json: &str, at: usize) -> Option<Half> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..=0xDBFF => Some(Half::High),
        0xDC00..=0xDFFF => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::{
        endpoint::ProviderKind::{Anthropic, Google, Ollama, OpenAi, OpenAiResponses},
        replay::{same_under_any_chunking, stream, whole},
    };

    const LONE: &str = r"lone \ud800 sur";

    /// Streams of each wire that say [`LONE`].
    fn streams() -> [(crate::ProviderKind, String); 5] {
        let sse = |event: &str| format!("data: {event}\n\n");
        [
            (
                OpenAi,
                sse(&format!(
                    r#"{{"choices":[{{"index":0,"delta":{{"content":"{LONE}"}},"finish_reason":"stop"}}]}}"#
                )) + "data: [DONE]\n\n",
            ),
            (
                OpenAiResponses,
                sse(&format!(
                    r#"{{"type":"response.completed","sequence_number":7,"response":{{"output":[{{"type":"message","content":[{{"type":"output_text","text":"{LONE}"}}]}}]}}}}"#
                )),
            ),
            (
                Anthropic,
                sse(
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                ) + &sse(&format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{LONE}"}}}}"#
                )) + &sse(r#"{"type":"content_block_stop","index":0}"#)
                    + &sse(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#)
                    + &sse(r#"{"type":"message_stop"}"#),
            ),
            (
                Google,
                sse(&format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{LONE}"}}]}},"finishReason":"STOP"}}]}}"#
                )),
            ),
            (Ollama, format!("{{\"message\":{{\"content\":\"{LONE}\"}},\"done\":true}}\n")),
        ]
    }

    #[test]
    fn half_a_surrogate_pair_costs_no_answer_on_any_wire() {
        for (kind, body) in streams() {
            let read = stream(kind, [body.as_bytes()]);

            assert_eq!(read.finished().message.to_text(), "lone \u{fffd} sur", "{kind}");
            assert_eq!(read.undecodable, 0, "{kind}");
            assert_ne!(read.finished().stop, formwork_protocols::model::StopReason::Gap, "{kind}");
        }
    }

    #[test]
    fn a_whole_answer_is_read_behind_a_byte_order_mark() {
        let choice = format!(
            "\u{feff}{{\"choices\":[{{\"message\":{{\"content\":\"{LONE}\"}},\"finish_reason\":\"stop\"}}]}}"
        );
        let line = format!("\u{feff}{{\"message\":{{\"content\":\"{LONE}\"}},\"done\":true}}");

        for (kind, body) in [(OpenAi, choice), (Ollama, line)] {
            assert_eq!(
                whole(kind, &body).finished().message.to_text(),
                "lone \u{fffd} sur",
                "{kind}"
            );
        }
    }

    #[test]
    fn a_piece_of_arguments_with_half_a_pair_is_not_left_out() {
        let body = r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"path\":\"a\ud800b\"}"}}]},"finish_reason":"tool_calls"}]}"#;

        let read = stream(OpenAi, [format!("{body}\n\ndata: [DONE]\n\n").as_bytes()]);

        let arguments = &read.finished().message.tool_calls().next().unwrap().arguments;
        let wanted = serde_json::json!({ "path": "a\u{fffd}b" });
        assert_eq!(*arguments, formwork_protocols::message::Arguments::Json(wanted));
    }

    #[test]
    fn only_halves_are_replaced() {
        let mend = |text: &str| mended(&format!("\"{text}\""));

        assert_eq!(mend(r"\ud83d\ude80 \\ud800 \n é"), None);
        assert_eq!(mend(r"\ud800\ud83d\ude80").as_deref(), Some(r#""\ufffd\ud83d\ude80""#));
        assert_eq!(mend(r"\uDC00\uD800").as_deref(), Some(r#""\ufffd\ufffd""#));
        assert_eq!(mend(r"\ud800\u0041").as_deref(), Some(r#""\ufffd\u0041""#));
        assert_eq!(mend(r"\ud80").as_deref(), None);
        assert_eq!(mended("\u{feff}{}").as_deref(), Some("{}"));
    }

    #[test]
    fn a_count_that_no_float_holds_costs_no_answer_and_counts_as_not_said() {
        let body = concat!(
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"1e400 is \"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"large\"},\"finish_reason\":\"stop\"}],",
            "\"usage\":{\"prompt_tokens\":1e400,\"completion_tokens\":3}}\n\n",
            "data: [DONE]\n\n"
        );

        let read = stream(OpenAi, [body.as_bytes()]);

        let finished = read.finished();
        assert_eq!(finished.message.to_text(), "1e400 is large");
        assert_eq!(read.undecodable, 0);
        assert_ne!(finished.stop, formwork_protocols::model::StopReason::Gap);
        assert!(finished.usage_estimated, "{finished:?}");
    }

    #[test]
    fn only_numbers_that_no_float_holds_become_null() {
        let long = format!("[{}]", "9".repeat(400));

        assert_eq!(mended("[1e308,-1e308,1e-400,0,\"1e400\",\"a\\\"1e400\"]"), None);
        assert_eq!(
            mended("{\"a\":1e400,\"b\":[-1E+400 ,2]}").as_deref(),
            Some("{\"a\":null,\"b\":[null ,2]}")
        );
        assert_eq!(mended(&long).as_deref(), Some("[null]"));
        assert_eq!(mended(r#"["\ud800",1e999]"#).as_deref(), Some(r#"["\ufffd",null]"#));
        assert_eq!(mended("\"1e400"), None);
    }

    proptest! {
        #[test]
        fn whatever_a_text_escapes_is_read_once_it_is_mended(
            units in prop::collection::vec(prop_oneof![0xD700_u16..0xE100, any::<u16>()], 0..12),
        ) {
            let text: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let json = format!("[\"{text}\"]");

            let mended = mended(&json);

            let read: Value = serde_json::from_str(mended.as_deref().unwrap_or(&json)).unwrap();
            let wanted = String::from_utf16_lossy(&units);
            prop_assert_eq!(read[0].as_str().unwrap(), wanted);
            prop_assert_eq!(mended.is_none(), serde_json::from_str::<Value>(&json).is_ok());
        }

        #[test]
        fn a_mended_answer_is_the_same_under_any_chunking(at in 0_usize..5, seed: u64) {
            let (kind, body) = &streams()[at];
            same_under_any_chunking(*kind, body.as_bytes(), seed)?;
        }
    }
}
