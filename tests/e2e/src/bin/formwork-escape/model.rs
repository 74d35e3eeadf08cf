//! The words of a hostile model, as a server speaks them that streams OpenAI's Chat Completions.

use formwork_testkit::http::Reply;
use serde_json::{Value, json};

/// A call of a tool: its name and its arguments.
pub(crate) type Call = (&'static str, Value);

/// Asks for calls.
pub(crate) fn calls(calls: &[Call]) -> Reply {
    let calls: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| {
            // The wire's names have no dots.
            let function =
                json!({ "name": name.replace('.', "_"), "arguments": arguments.to_string() });
            json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function })
        })
        .collect();
    streamed(json!({ "role": "assistant", "content": "", "tool_calls": calls }), "tool_calls")
}

/// Says that the task is done.
pub(crate) fn ends() -> Reply {
    calls(&[("end_task", json!({ "summary": "Tried." }))])
}

fn streamed(delta: Value, finish: &str) -> Reply {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_795_972_489,
            "model": "m", "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 });
    let choice = |delta, finish| json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);
    Reply::sse(
        chunk(choice(delta, Value::Null), Value::Null)
            + &chunk(choice(json!({}), json!(finish)), Value::Null)
            + &chunk(json!([]), usage)
            + "data: [DONE]\n\n",
    )
}
