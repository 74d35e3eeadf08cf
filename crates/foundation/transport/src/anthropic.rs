//! Anthropic's Messages, and what the servers that follow it make of it.
//!
//! Source: the API reference of Anthropic, version 2023-06-01, and captured traffic of llama.cpp, vLLM and LiteLLM.

mod event;
mod request;
mod schema;

use std::collections::BTreeSet;

use formwork_protocols::ProviderFault;
use reqwest::header::{HeaderName, HeaderValue};

pub(crate) use request::outgoing;

use crate::{
    assembly::Delta,
    borrowed,
    draft::Draft,
    fault::Fault,
    usage,
    wire::{Heard, Reader, is_done},
};
use event::{Block, Counts, Event, Message};

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
    /// The places of the blocks that have begun and not ended, and the place of the next one.
    open: BTreeSet<i64>,
    next: i64,
}

/// The block of reasoning that is being read.
#[derive(Debug, Default)]
struct Thinking {
    shown: bool,
    signature: String,
}

impl Reader for MessagesReader {
    fn event(&mut self, name: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        if is_done(data) {
            return Ok(self.end(draft));
        }
        let Ok(event) = borrowed::read::<Event<'_>>(data) else { return Ok(Heard::Undecodable) };
        Ok(match event.kind.as_deref().unwrap_or(name) {
            "error" => return Err(Fault::of_answer(None, data)),
            _ if event.error.is_some() => return Err(Fault::of_answer(None, data)),
            "content_block_delta" => {
                if event.index.is_some_and(|index| !self.open.contains(&index)) {
                    draft.lose("a block grows that has not begun");
                }
                match self.take(event.index, &event.block, draft) {
                    // What else stands in such a block, its kind does not look at.
                    Heard::Progress if event.block.is_words() => Heard::Words,
                    heard => heard,
                }
            }
            "content_block_start" => {
                self.seal(draft);
                self.begin(event.index, draft);
                self.take(event.index, &event.block, draft)
            }
            "content_block_stop" => {
                self.seal(draft);
                if event.index.is_some_and(|index| !self.open.remove(&index)) {
                    draft.lose("a block ends that has not begun");
                }
                Heard::Nothing
            }
            "message_start" => {
                let Some(message) = event.message else { return Ok(Heard::Nothing) };
                let Ok(message) = borrowed::read::<Message<'_>>(message.get()) else {
                    return Ok(Heard::Undecodable);
                };
                draft.id = message.id;
                draft.model = message.model;
                self.count(message.usage, draft);
                Heard::Nothing
            }
            "message_delta" => {
                self.seal(draft);
                self.count(event.usage, draft);
                if let Some(reason) = event.block.stop_reason {
                    if !self.open.is_empty() {
                        draft.lose("a block has not ended");
                    }
                    draft.stop_for(&reason);
                }
                Heard::Progress
            }
            "message_stop" => self.end(draft),
            // Pings, and whatever a later version adds, which readers are to pass over.
            _ => Heard::Nothing,
        })
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let message = borrowed::read::<Message<'_>>(body).map_err(|error| {
            Fault::new(ProviderFault::Protocol, format!("the answer is not a message: {error}"))
                .with_body(body)
        })?;
        if message.kind.as_deref() == Some("error") || message.error.is_some() {
            return Err(Fault::of_answer(None, body));
        }
        draft.id = message.id;
        draft.model = message.model;
        for (index, block) in (0..).zip(message.content.iter()) {
            self.take(Some(index), block, draft);
            self.seal(draft);
        }
        self.count(message.usage, draft);
        if let Some(reason) = message.stop_reason.as_deref() {
            draft.stop_for(reason);
        }
        draft.ended = true;
        Ok(())
    }
}

impl MessagesReader {
    /// Takes note of a block that begins: they do so one by one, in their order.
    fn begin(&mut self, index: Option<i64>, draft: &mut Draft) {
        let Some(index) = index else { return };
        if index != self.next {
            draft.lose("a block is left out, or begins twice");
        }
        self.next = index.saturating_add(1);
        self.open.insert(index);
    }

    fn end(&mut self, draft: &mut Draft) -> Heard {
        self.seal(draft);
        draft.ended = true;
        Heard::End
    }

    /// Takes a block that begins, what one grows by, or a whole one.
    fn take(&mut self, index: Option<i64>, block: &Block<'_>, draft: &mut Draft) -> Heard {
        let said = match block.kind.as_deref() {
            Some("text_delta" | "text") => {
                let text = block.text.as_deref().unwrap_or_default();
                draft.add_text(text);
                !text.is_empty()
            }
            Some("thinking_delta" | "thinking" | "signature_delta") => {
                let text = block.thinking.as_deref().unwrap_or_default();
                let signature = block.signature.as_deref().unwrap_or_default();
                draft.add_reasoning(text);
                let thinking = self.thinking.get_or_insert_default();
                thinking.shown |= !text.is_empty();
                thinking.signature.push_str(signature);
                !text.is_empty() || !signature.is_empty()
            }
            Some("input_json_delta") if index.is_none_or(|index| self.calls.contains(&index)) => {
                let arguments = block.partial_json.as_deref();
                draft.add_call(Delta { index, arguments, ..Delta::default() });
                true
            }
            Some("tool_use") => {
                self.calls.extend(index);
                // A stream begins a call with an empty input and sends the true one in pieces.
                let input = borrowed::arguments(block.input).filter(|input| !is_empty(input));
                draft.add_call(Delta {
                    index,
                    id: block.id.as_deref(),
                    name: block.name.as_deref(),
                    arguments: input.as_deref(),
                });
                true
            }
            Some("redacted_thinking") => {
                draft.add_redacted_reasoning(block.data.as_deref().unwrap_or_default());
                true
            }
            // Blocks of tools that run at the provider, which Formwork does not offer.
            _ => false,
        };
        if said { Heard::Progress } else { Heard::Nothing }
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
        let known =
            |new: Option<u64>, old: Option<u64>| new.filter(|count| *count > 0).or(old).or(new);
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
        draft.counted(counted(&self.counts));
    }
}

/// Splits Anthropic's counts: its input is what no cache held already; its output includes the thinking.
fn counted(counts: &Counts) -> usage::Counts {
    let output = counts.output_tokens.unwrap_or(0);
    let reasoning = counts.output_tokens_details.and_then(|details| details.thinking_tokens);
    let reasoning = reasoning.unwrap_or(0).min(output);
    usage::Counts {
        input: counts.input_tokens,
        cache_read: counts.cache_read_input_tokens.unwrap_or(0),
        cache_write: counts.cache_creation_input_tokens.unwrap_or(0),
        output: counts.output_tokens.map(|_| output - reasoning),
        reasoning,
    }
}

/// Tells whether JSON is an object without a key.
fn is_empty(json: &str) -> bool {
    json.bytes().filter(|byte| !byte.is_ascii_whitespace()).eq(*b"{}")
}

#[cfg(test)]
mod tests;
