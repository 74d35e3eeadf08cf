//! Anthropic's Messages, and what the servers that follow it make of it.
//!
//! Source: the API reference of Anthropic, version 2023-06-01, and captured traffic of llama.cpp, vLLM and LiteLLM.

mod event;
mod request;
mod schema;

use std::collections::BTreeSet;

use formwork_protocols::{ProviderFault, Usage, model::StopReason};
use reqwest::header::{HeaderName, HeaderValue};

pub(crate) use request::outgoing;

use crate::{
    assembly::Delta,
    draft::Draft,
    fault::Fault,
    wire::{Heard, Reader},
};
use event::{Block, BlockDelta, Counts, Event, Whole};

/// The version of the wire, which every request names.
pub(crate) const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// Reads the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct MessagesReader {
    counts: Counts,
    thinking: Option<Thinking>,
    /// The places of the blocks that are calls; the deltas of others are not theirs.
    calls: BTreeSet<i64>,
}

/// The block of reasoning that is being read.
#[derive(Debug)]
struct Thinking {
    shown: bool,
    signature: String,
}

impl Reader for MessagesReader {
    fn event(&mut self, name: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        if data.trim() == "[DONE]" {
            return Ok(self.end(draft));
        }
        let Ok(event) = serde_json::from_str::<Event>(data) else { return Ok(Heard::Undecodable) };
        match event.kind.as_deref().unwrap_or(name) {
            "error" => Err(Fault::of_answer(None, data)),
            _ if event.error.is_some() => Err(Fault::of_answer(None, data)),
            "message_start" => {
                if let Some(message) = event.message {
                    draft.id = message.id;
                    draft.model = message.model;
                    self.count(message.usage, draft);
                }
                Ok(Heard::Nothing)
            }
            "content_block_start" => {
                self.seal(draft);
                Ok(event
                    .content_block
                    .map_or(Heard::Nothing, |block| self.begin(event.index, block, draft)))
            }
            "content_block_delta" => Ok(event
                .delta
                .map_or(Heard::Nothing, |delta| self.grow(event.index, &delta, draft))),
            "content_block_stop" => {
                self.seal(draft);
                Ok(Heard::Nothing)
            }
            "message_delta" => {
                self.seal(draft);
                self.count(event.usage, draft);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    draft.stop = Some(stop_reason(&reason));
                }
                Ok(Heard::Progress)
            }
            "message_stop" => Ok(self.end(draft)),
            // Pings, and whatever a later version adds, which readers are to pass over.
            _ => Ok(Heard::Nothing),
        }
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let message = serde_json::from_str::<Whole>(body).map_err(|error| {
            Fault::new(ProviderFault::Protocol, format!("the answer is not a message: {error}"))
                .with_body(body)
        })?;
        if message.kind.as_deref() == Some("error") || message.error.is_some() {
            return Err(Fault::of_answer(None, body));
        }
        draft.id = message.id;
        draft.model = message.model;
        for (index, block) in (0..).zip(message.content) {
            self.begin(Some(index), block, draft);
            self.seal(draft);
        }
        self.count(message.usage, draft);
        draft.stop = message.stop_reason.as_deref().map(stop_reason);
        draft.ended = true;
        Ok(())
    }
}

impl MessagesReader {
    fn end(&mut self, draft: &mut Draft) -> Heard {
        self.seal(draft);
        draft.ended = true;
        Heard::End
    }

    fn begin(&mut self, index: Option<i64>, block: Block, draft: &mut Draft) -> Heard {
        match block.kind.as_deref() {
            Some("text") => {
                let text = block.text.unwrap_or_default();
                draft.add_text(&text);
                if text.is_empty() { Heard::Nothing } else { Heard::Progress }
            }
            Some("thinking") => {
                let text = block.thinking.unwrap_or_default();
                draft.add_reasoning(&text);
                self.thinking = Some(Thinking {
                    shown: !text.is_empty(),
                    signature: block.signature.unwrap_or_default(),
                });
                if text.is_empty() { Heard::Nothing } else { Heard::Progress }
            }
            Some("redacted_thinking") => {
                draft.add_redacted_reasoning(&block.data.unwrap_or_default());
                Heard::Progress
            }
            Some("tool_use") => {
                self.calls.extend(index);
                // A stream begins a call with an empty input and sends the true one in pieces.
                let input =
                    block.input.filter(|input| input.as_object().is_none_or(|o| !o.is_empty()));
                let input = input.filter(|input| !input.is_null()).map(|input| input.to_string());
                draft.add_call(Delta {
                    index,
                    id: block.id.as_deref(),
                    name: block.name.as_deref(),
                    arguments: input.as_deref(),
                });
                Heard::Progress
            }
            // Blocks of tools that run at the provider, which Formwork does not offer.
            _ => Heard::Nothing,
        }
    }

    fn grow(&mut self, index: Option<i64>, delta: &BlockDelta, draft: &mut Draft) -> Heard {
        match delta.kind.as_deref() {
            Some("text_delta") => {
                let text = delta.text.as_deref().unwrap_or_default();
                draft.add_text(text);
                if text.is_empty() { Heard::Nothing } else { Heard::Progress }
            }
            Some("thinking_delta") => {
                let text = delta.thinking.as_deref().unwrap_or_default();
                draft.add_reasoning(text);
                if let Some(thinking) = &mut self.thinking {
                    thinking.shown |= !text.is_empty();
                }
                if text.is_empty() { Heard::Nothing } else { Heard::Progress }
            }
            Some("signature_delta") => {
                let signature = delta.signature.as_deref().unwrap_or_default();
                let thinking = Thinking { shown: false, signature: String::new() };
                self.thinking.get_or_insert(thinking).signature.push_str(signature);
                Heard::Progress
            }
            Some("input_json_delta") if index.is_none_or(|index| self.calls.contains(&index)) => {
                draft.add_call(Delta {
                    index,
                    arguments: delta.partial_json.as_deref(),
                    ..Delta::default()
                });
                Heard::Progress
            }
            _ => Heard::Nothing,
        }
    }

    /// Signs the block of reasoning that has ended.
    fn seal(&mut self, draft: &mut Draft) {
        match self.thinking.take() {
            Some(thinking) if thinking.signature.is_empty() => {}
            Some(Thinking { shown: true, signature }) => draft.sign_reasoning(&signature),
            Some(Thinking { shown: false, signature }) => draft.add_signature(&signature),
            None => {}
        }
    }

    /// Takes counts, which are totals each time; a later zero stands for what a server does not tell again.
    fn count(&mut self, counts: Option<Counts>, draft: &mut Draft) {
        let Some(new) = counts else { return };
        let known = |new: Option<u64>, old: Option<u64>| new.filter(|count| *count > 0).or(old);
        self.counts = Counts {
            input_tokens: known(new.input_tokens, self.counts.input_tokens),
            cache_creation_input_tokens: known(
                new.cache_creation_input_tokens,
                self.counts.cache_creation_input_tokens,
            ),
            cache_read_input_tokens: known(
                new.cache_read_input_tokens,
                self.counts.cache_read_input_tokens,
            ),
            output_tokens: known(new.output_tokens, self.counts.output_tokens),
            output_tokens_details: new.output_tokens_details.or(self.counts.output_tokens_details),
        };
        draft.usage = Some(usage(&self.counts));
    }
}

/// Splits Anthropic's counts: its input is what no cache held already; its output includes the thinking.
fn usage(counts: &Counts) -> Usage {
    let output = counts.output_tokens.unwrap_or(0);
    let reasoning = counts.output_tokens_details.and_then(|details| details.thinking_tokens);
    let reasoning = reasoning.unwrap_or(0).min(output);
    Usage {
        input: counts.input_tokens.unwrap_or(0),
        cache_read: counts.cache_read_input_tokens.unwrap_or(0),
        cache_write: counts.cache_creation_input_tokens.unwrap_or(0),
        output: output - reasoning,
        reasoning,
    }
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::EndTurn,
        "tool_use" => StopReason::ToolUse,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        // A paused turn is not whole, and a reason that nobody knows does not vouch that it is.
        _ => StopReason::Missing,
    }
}

#[cfg(test)]
mod tests;
