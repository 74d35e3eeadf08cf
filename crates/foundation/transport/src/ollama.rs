//! Ollama's own chat: lines of JSON, calls whole, a window that the client has to ask for.
//!
//! Source: the API reference of Ollama, and captured traffic of a server that follows it.

mod request;

use formwork_protocols::{ProviderFault, Usage, model::StopReason};
use serde::Deserialize;
use serde_json::Value;

pub(crate) use request::{outgoing, root};

use crate::{
    assembly::Delta,
    draft::Draft,
    fault::Fault,
    wire::{Heard, Reader},
};

/// Reads the lines of one answer.
#[derive(Debug, Default)]
pub(crate) struct OllamaReader {
    calls: i64,
}

#[derive(Debug, Deserialize)]
struct Line {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    message: Option<Piece>,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    done_reason: Option<String>,
    #[serde(default)]
    prompt_eval_count: Option<u64>,
    #[serde(default)]
    eval_count: Option<u64>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Piece {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
}

#[derive(Debug, Deserialize)]
struct Call {
    #[serde(default)]
    id: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

impl Reader for OllamaReader {
    fn event(&mut self, _: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        match serde_json::from_str::<Line>(data) {
            Ok(line) => self.take(line, data, draft),
            Err(_) => Ok(Heard::Undecodable),
        }
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let mut heard = Heard::Nothing;
        // A stream that was sent under the name of a document is still a stream.
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            let found = serde_json::from_str::<Line>(line).map_err(|error| {
                let message = format!("the answer is not a chat: {error}");
                Fault::new(ProviderFault::Protocol, message).with_body(body)
            })?;
            heard = self.take(found, line, draft)?;
        }
        if heard == Heard::End {
            return Ok(());
        }
        Err(Fault::new(ProviderFault::Protocol, "the answer does not say that it is done")
            .with_body(body))
    }
}

impl OllamaReader {
    fn take(&mut self, line: Line, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        if line.error.is_some_and(|error| !error.is_null()) {
            return Err(Fault::of_answer(None, data));
        }
        if draft.model.is_none() {
            draft.model = line.model;
        }
        let mut heard = Heard::Nothing;
        if let Some(piece) = line.message {
            let thinking = piece.thinking.unwrap_or_default();
            let content = piece.content.unwrap_or_default();
            draft.add_reasoning(&thinking);
            draft.add_text(&content);
            if !thinking.is_empty() || !content.is_empty() {
                heard = Heard::Progress;
            }
            for call in piece.tool_calls.unwrap_or_default() {
                let arguments = match call.function.arguments {
                    Some(Value::String(text)) => Some(text),
                    Some(Value::Null) | None => None,
                    Some(value) => Some(value.to_string()),
                };
                // A call comes whole, so that each is another one, whatever the server numbers it.
                draft.add_call(Delta {
                    index: Some(self.calls),
                    id: call.id.as_deref(),
                    name: call.function.name.as_deref(),
                    arguments: arguments.as_deref(),
                });
                self.calls += 1;
                heard = Heard::Progress;
            }
        }
        if !line.done {
            return Ok(heard);
        }
        // A server leaves the first count out for a prompt that it held already; half a count is none.
        if let (Some(input), Some(output)) = (line.prompt_eval_count, line.eval_count) {
            draft.usage = Some(Usage { input, output, ..Usage::default() });
        }
        draft.stop = Some(stop_reason(line.done_reason.as_deref()));
        draft.ended = true;
        Ok(Heard::End)
    }
}

fn stop_reason(reason: Option<&str>) -> StopReason {
    match reason {
        // Servers of before the field end without it.
        None | Some("" | "stop") => StopReason::EndTurn,
        Some("length") => StopReason::Length,
        // The model was loaded or let go, and nothing was answered; or a reason that nobody knows.
        Some(_) => StopReason::Missing,
    }
}

#[cfg(test)]
mod tests;
