//! Usage where a server tells none.

use formwork_protocols::{Message, ModelRequest, Part, Usage, message::Arguments};

/// Bytes of text for a token. Four is what is said of English prose; code has fewer, and an estimate that is short
/// would let a budget be overspent.
const BYTES_PER_TOKEN: usize = 3;

/// Tokens for an image or a page of a document, about what providers count for a large one.
const TOKENS_PER_IMAGE: u64 = 1_500;

/// Tokens that the frame of a message costs.
const TOKENS_PER_MESSAGE: u64 = 4;

/// Estimates what `request` and its answer used, by the length of their texts.
pub fn estimate(request: &ModelRequest, answer: &Message) -> Usage {
    Usage { input: estimate_input(request), output: message(answer), ..Usage::default() }
}

/// Estimates the input of `request`, tools included.
pub fn estimate_input(request: &ModelRequest) -> u64 {
    let tools = request.tools.iter().map(|tool| {
        let schema = tool.parameters.to_string();
        tokens(tool.name.as_str().len() + tool.description.len() + schema.len())
    });
    let messages = request.messages.iter().map(|said| message(said) + TOKENS_PER_MESSAGE);
    let tail = request.tail.as_deref().map_or(0, str::len);
    messages.chain(tools).chain([tokens(tail)]).sum()
}

fn message(message: &Message) -> u64 {
    let parts = message.parts.iter().map(|part| match part {
        Part::Text { text } => tokens(text.len()),
        Part::Image { .. } | Part::Document { .. } | Part::Attached(_) => TOKENS_PER_IMAGE,
        Part::ToolCall(call) => tokens(
            call.name.len()
                + match &call.arguments {
                    Arguments::Json(value) => value.to_string().len(),
                    Arguments::Malformed { text, .. } => text.len(),
                },
        ),
        Part::ToolResult(result) => {
            let shown = u64::try_from(result.attached.len()).unwrap_or(u64::MAX);
            tokens(result.content.len()).saturating_add(shown.saturating_mul(TOKENS_PER_IMAGE))
        }
        Part::Reasoning(reasoning) => tokens(reasoning.text.len()),
        _ => 0,
    });
    parts.sum()
}

/// Estimates how many tokens so many bytes of text are.
pub(crate) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}
