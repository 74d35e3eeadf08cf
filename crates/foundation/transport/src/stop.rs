//! Why an answer ended, by the words that servers have for it.
//!
//! Makers use the same few words, and whoever follows their wires mixes them: one table holds for all, in whatever case they are
//! written. Source: the makers' API references, and what llama.cpp, vLLM, SGLang, OpenRouter and Ollama write.

use formwork_protocols::model::StopReason;

/// Returns what a word says of an answer; nothing where nobody knows it.
pub(crate) fn known(word: &str) -> Option<StopReason> {
    let word = word.trim().to_ascii_lowercase();
    Some(match word.as_str() {
        "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" | "complete" => {
            StopReason::EndTurn
        }
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => StopReason::ToolUse,
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "model_length"
        | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        "content_filter"
        | "sensitive"
        | "safety"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "model_armor"
        | "image_safety"
        | "image_prohibited_content"
        | "image_recitation" => StopReason::ContentFilter,
        // It says itself that the answer is not whole: it broke off, was paused, or the model was only loaded.
        "error"
        | "network_error"
        | "insufficient_system_resource"
        | "abort"
        | "aborted"
        | "cancelled"
        | "canceled"
        | "pause_turn"
        | "load"
        | "unload"
        | "other"
        | "language"
        | "finish_reason_unspecified"
        | "malformed_function_call"
        | "malformed_response"
        | "unexpected_tool_call"
        | "too_many_tool_calls"
        | "missing_thought_signature" => StopReason::Missing,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use formwork_protocols::message::Arguments;

    use super::*;
    use crate::{
        endpoint::ProviderKind::{self, Anthropic, Google, Ollama, OpenAi},
        replay::{Replayed, stream},
    };

    const WIRES: [ProviderKind; 4] = [OpenAi, Anthropic, Google, Ollama];

    /// Reads an answer that says a word, or calls a tool, and ends for `reason`.
    fn answer(kind: ProviderKind, calls: bool, reason: &str) -> Replayed {
        let sse = |event: String| format!("data: {event}\n\n");
        let body = match kind {
            Anthropic => {
                let block = match calls {
                    true => r#"{"type":"tool_use","id":"a","name":"t","input":{"p":1}}"#,
                    false => r#"{"type":"text","text":"Hi."}"#,
                };
                sse(format!(
                    r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#
                )) + &sse(r#"{"type":"content_block_stop","index":0}"#.to_owned())
                    + &sse(format!(
                        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#
                    ))
                    + &sse(r#"{"type":"message_stop"}"#.to_owned())
            }
            Google => {
                let part = match calls {
                    true => r#"{"functionCall":{"name":"t","args":{"p":1}}}"#,
                    false => r#"{"text":"Hi."}"#,
                };
                sse(format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{part}]}},"finishReason":"{reason}"}}]}}"#
                ))
            }
            Ollama => {
                let said = match calls {
                    true => r#"{"tool_calls":[{"function":{"name":"t","arguments":{"p":1}}}]}"#,
                    false => r#"{"content":"Hi."}"#,
                };
                format!("{{\"message\":{said},\"done\":true,\"done_reason\":\"{reason}\"}}\n")
            }
            _ => {
                let delta = match calls {
                    true => {
                        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"t","arguments":"{\"p\":1}"}}]}"#
                    }
                    false => r#"{"content":"Hi."}"#,
                };
                sse(format!(
                    r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":"{reason}"}}]}}"#
                )) + "data: [DONE]\n\n"
            }
        };
        stream(kind, [body.as_bytes()])
    }

    #[test]
    fn a_word_of_another_wire_or_in_another_case_is_what_it_says() {
        for kind in WIRES {
            for word in ["STOP", "stop", "end_turn", "END_TURN", "eos_token"] {
                let read = answer(kind, false, word);
                assert_eq!(read.finished().stop, StopReason::EndTurn, "{kind} {word}");
            }
            let read = answer(kind, true, "Tool_Calls");
            let call = read.finished().message.tool_calls().next().unwrap();
            assert_eq!(read.finished().stop, StopReason::ToolUse, "{kind}");
            assert!(matches!(call.arguments, Arguments::Json(_)), "{kind} {call:?}");
        }
    }

    #[test]
    fn words_that_end_for_a_reason_nobody_knows_stand_and_calls_are_never_made() {
        for kind in WIRES {
            let said = answer(kind, false, "because_i_said_so");
            assert_eq!(said.finished().stop, StopReason::Other, "{kind}");
            assert_eq!(said.finished().message.to_text(), "Hi.", "{kind}");

            let called = answer(kind, true, "because_i_said_so");
            assert_eq!(called.finished().stop, StopReason::Other, "{kind}");
            let call = called.finished().message.tool_calls().next().unwrap();
            let Arguments::Malformed { error, .. } = &call.arguments else {
                panic!("{kind} {call:?}")
            };
            assert_eq!(
                error,
                "the answer ended for \"because_i_said_so\", which is no reason that is known, so the call may be cut"
            );
        }
    }

    #[test]
    fn every_reason_says_whether_the_answer_is_whole_in_whatever_case_it_is_written() {
        for (word, stop) in [
            ("stop", StopReason::EndTurn),
            ("end_turn", StopReason::EndTurn),
            ("tool_use", StopReason::ToolUse),
            ("tool_calls", StopReason::ToolUse),
            ("max_tokens", StopReason::Length),
            ("model_context_window_exceeded", StopReason::Length),
            ("refusal", StopReason::Refusal),
            ("content_filter", StopReason::ContentFilter),
            ("recitation", StopReason::ContentFilter),
            ("pause_turn", StopReason::Missing),
            ("other", StopReason::Missing),
            ("load", StopReason::Missing),
        ] {
            for word in [word.to_owned(), word.to_uppercase(), format!(" {word}\n")] {
                assert_eq!(known(&word), Some(stop), "{word}");
            }
        }
        for word in ["", "because_i_said_so", "42", "stopped\u{1b}[31m"] {
            assert_eq!(known(word), None, "{word}");
        }
    }
}
