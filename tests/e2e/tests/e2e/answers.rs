//! What a model answers, in the chunks of a server that speaks OpenAI's Chat Completions.

use formwork_testkit::http::{Gate, Reply};
use serde_json::{Value, json};

/// Captured bytes of real servers, kept with the crate that reads them.
const WIRE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/foundation/transport/tests/wire/");

/// Answers with text.
pub(crate) fn says(text: &str) -> Reply {
    Reply::sse(saying(text))
}

/// Answers with calls.
pub(crate) fn calls(calls: &[(&str, Value)]) -> Reply {
    Reply::sse(calling(calls))
}

/// Claims that the task is done.
pub(crate) fn ends(summary: &str) -> Reply {
    Reply::sse(ending(summary))
}

/// Begins to answer with `stream` once the test opens `gate`.
pub(crate) fn held(gate: &Gate, stream: &str) -> Reply {
    Reply::event_stream().pause(gate).chunk(stream)
}

/// Answers with the first half of `stream`, and with the rest once the test opens `gate`.
pub(crate) fn halted(gate: &Gate, stream: &str) -> Reply {
    let half = first_half(stream).len();
    Reply::event_stream().chunk(&stream[..half]).pause(gate).chunk(&stream[half..])
}

/// Returns the words that [`halted`] answers with before the test opens the gate.
pub(crate) fn halted_words(stream: &str) -> String {
    let events = first_half(stream).lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.map(|event| serde_json::from_str::<Value>(event).unwrap());
    let words = events.map(|event| {
        let delta = &event["choices"][0]["delta"]["content"];
        delta.as_str().unwrap_or_default().to_owned()
    });
    words.collect()
}

fn first_half(stream: &str) -> &str {
    let half = stream.len() / 2;
    let half = stream[half..].find("\n\n").map_or(half, |end| half + end + 2);
    &stream[..half]
}

/// Returns the stream of an answer with text, word by word.
pub(crate) fn saying(text: &str) -> String {
    let words: Vec<Value> =
        text.split_inclusive(' ').map(|word| json!({ "content": word })).collect();
    stream(&words, "stop")
}

/// Returns the stream of a claim that the task is done.
pub(crate) fn ending(summary: &str) -> String {
    calling(&[("end_task", json!({ "summary": summary }))])
}

/// Returns the stream of an answer with calls, the arguments of each in two pieces, as servers send them.
pub(crate) fn calling(calls: &[(&str, Value)]) -> String {
    let mut deltas = Vec::new();
    for (index, (name, arguments)) in calls.iter().enumerate() {
        // The wire's names have no dots; ids differ from call to call of a conversation.
        let id = format!("call_{index}_{}", short_hash(&arguments.to_string()));
        let function = json!({ "name": name.replace('.', "_"), "arguments": "" });
        let begin = json!({ "index": index, "id": id, "type": "function", "function": function });
        deltas.push(json!({ "tool_calls": [begin] }));
        let text = arguments.to_string();
        let (head, tail) = text.split_at(1); // An object's brace: never within a character.
        for piece in [head, tail] {
            let function = json!({ "arguments": piece });
            deltas.push(json!({ "tool_calls": [{ "index": index, "function": function }] }));
        }
    }
    stream(&deltas, "tool_calls")
}

/// Returns a stream whose server has counted so many tokens of input.
pub(crate) fn counted(stream: &str, tokens: u64) -> String {
    stream.replace("\"prompt_tokens\":100", &format!("\"prompt_tokens\":{tokens}"))
}

/// Returns what a real server once answered.
pub(crate) fn captured(file: &str) -> Vec<u8> {
    std::fs::read(format!("{WIRE}{file}")).unwrap()
}

fn stream(deltas: &[Value], finish: &str) -> String {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chatcmpl-ba3f414c0813b02e", "object": "chat.completion.chunk",
            "created": 1_795_972_489, "model": "m", "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let choice = |delta: &Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]), Value::Null)
    };
    let mut stream = choice(&json!({ "role": "assistant", "content": "" }), Value::Null);
    for delta in deltas {
        stream += &choice(delta, Value::Null);
    }
    stream += &choice(&json!({}), json!(finish));
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 });
    stream + &chunk(json!([]), usage) + "data: [DONE]\n\n"
}

fn short_hash(text: &str) -> String {
    formwork_protocols::BlobHash::of(text.as_bytes()).to_string().chars().take(8).collect()
}
