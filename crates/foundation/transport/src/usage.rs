//! Usage: what a server counts, and estimates where it tells nothing.
//!
//! Input and output are two halves, each of which a server tells or not. A half without a count, or with one that is none (a
//! negative one, a fraction, zero of what there is), is estimated for itself, so that nothing is billed as if it were free.
//! And so is a half whose count cannot be: a server that counts a million tokens of one word is wrong or lies, and is not paid.
//! The bounds are far above whatever an honest server counts, so that none is ever doubted.

use formwork_protocols::{Message, ModelRequest, Part, Usage, message::Arguments};

use crate::limit;

/// Bytes of text for a token. Four is what is said of English prose; code has fewer, and an estimate that is short
/// would let a budget be overspent.
const BYTES_PER_TOKEN: usize = 3;

/// Tokens for an image or a page of a document, about what providers count for a large one.
const TOKENS_PER_IMAGE: u64 = 1_500;

/// Tokens that the frame of a message costs.
const TOKENS_PER_MESSAGE: u64 = 4;

/// Output that no byte shows and no cap may bound: what a model thinks unseen, and the marks around words and calls. The longest
/// answers that providers sell have 128,000 tokens, thoughts included. Source: the makers' tables of models, 2026-11.
const UNSEEN_OUTPUT: u64 = 128 * 1024;

/// Input that stands in no request: the rules that a provider, a gateway or a template puts before it, and how it writes tools.
/// Anthropic adds 300 to 900 tokens for tools; the longest rules of a product that were published have about 25,000.
const UNSEEN_INPUT: u64 = 128 * 1024;

/// How often what is sent may be counted: a template may write a tool once as its schema and once as words, with escapes.
const TIMES: u64 = 2;

/// The most tokens of an image, above the 48,169 of OpenAI's dearest: 8 tiles of 5,667 and 2,833 for the whole.
/// Source: OpenAI's guide to images.
const MOST_PER_IMAGE: u64 = 64 * 1024;

/// The most tokens of a document, which may have a thousand pages in few bytes: the largest window that any of the makers sells.
const MOST_PER_DOCUMENT: u64 = 2 * 1024 * 1024;

/// What a server counts of an answer. What it left out, and what is no count, is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Input that was read anew.
    pub(crate) input: Option<u64>,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    /// Output, without reasoning.
    pub(crate) output: Option<u64>,
    pub(crate) reasoning: u64,
}

/// How many bytes of an answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came {
    /// Words, reasoning and calls.
    pub(crate) bytes: usize,
    /// Of these, reasoning.
    pub(crate) thought: usize,
}

/// Whether half of what a server counts can be billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    /// It is told.
    Told,
    /// It is not, although there must be something.
    Missing,
    /// It is more than can be.
    Impossible,
}

impl Counts {
    /// Returns these counts with later ones of the same answer in their place, half by half, as far as those count anything.
    #[must_use]
    pub(crate) fn then(self, later: Self) -> Self {
        let input = if later.usage().total_input() > 0 { later } else { self };
        let output = if later.usage().total_output() > 0 { later } else { self };
        Self {
            input: input.input,
            cache_read: input.cache_read,
            cache_write: input.cache_write,
            output: output.output,
            reasoning: output.reasoning,
        }
    }

    /// Returns what is counted, with zero for what is not.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            input: self.input.unwrap_or(0),
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            output: self.output.unwrap_or(0),
            reasoning: self.reasoning,
        }
    }

    /// Judges the counts of the input, which no request is without.
    fn input(&self, request: &ModelRequest) -> Worth {
        let told = self.usage().total_input();
        // Hardly a request has more than the first, so that the second is not counted for each.
        if told > UNSEEN_INPUT && told > most_input(request) {
            return Worth::Impossible;
        }
        if self.input.is_none() || told == 0 { Worth::Missing } else { Worth::Told }
    }

    /// Judges the counts of the output of which so much came. A server may leave the words out that an answer of thoughts alone
    /// does not have.
    fn output(&self, request: &ModelRequest, came: Came) -> Worth {
        if self.usage().total_output() > most_output(request, came) {
            return Worth::Impossible;
        }
        let spoke = came.bytes > came.thought;
        let is_missing = match self.output {
            None => spoke || (came.bytes > 0 && self.reasoning == 0),
            Some(_) => came.bytes > 0 && self.usage().total_output() == 0,
        };
        if is_missing { Worth::Missing } else { Worth::Told }
    }

    /// Returns what was used: as it is counted, and where that is nothing or cannot be as it is estimated. `estimate` has what
    /// there is to say of the output.
    pub(crate) fn bill(
        &self,
        request: &ModelRequest,
        came: Came,
        estimate: impl FnOnce() -> u64,
    ) -> Billed {
        let (input, output) = (self.input(request), self.output(request, came));
        let mut usage = self.usage();
        if input != Worth::Told {
            usage = Usage { cache_read: 0, cache_write: 0, ..usage };
            usage.input = estimate_input(request);
        }
        if output == Worth::Missing && self.reasoning > 0 {
            usage.output = tokens(came.bytes.saturating_sub(came.thought));
        } else if output != Worth::Told {
            (usage.output, usage.reasoning) = (estimate(), 0);
        }
        Billed { usage, input, output, told: self.usage() }
    }
}

/// What an answer is billed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Billed {
    pub(crate) usage: Usage,
    input: Worth,
    pub(crate) output: Worth,
    told: Usage,
}

impl Billed {
    /// Tells whether any of it is an estimate.
    pub(crate) fn is_estimated(&self) -> bool {
        self.input != Worth::Told || self.output != Worth::Told
    }

    /// Returns what the server counts, if that cannot be.
    pub(crate) fn doubted(&self) -> Option<Usage> {
        [self.input, self.output].contains(&Worth::Impossible).then_some(self.told)
    }
}

/// Returns how many tokens the input of a request can have at the most: one for each byte, as no tokenizer has more, and what
/// stands in no request.
fn most_input(request: &ModelRequest) -> u64 {
    let bytes = estimate_input(request).saturating_mul(BYTES_PER_TOKEN as u64);
    let (mut images, mut documents) = (0_u64, 0_u64);
    let mut count = |is_image: bool| *(if is_image { &mut images } else { &mut documents }) += 1;
    for part in request.messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Image { .. } => count(true),
            Part::Document { .. } => count(false),
            Part::Attached(attached) => count(attached.is_image()),
            Part::ToolResult(result) => {
                result.attached.iter().for_each(|attached| count(attached.is_image()));
            }
            _ => {}
        }
    }
    UNSEEN_INPUT
        .saturating_add(bytes.saturating_mul(TIMES))
        .saturating_add(images.saturating_mul(MOST_PER_IMAGE))
        .saturating_add(documents.saturating_mul(MOST_PER_DOCUMENT))
}

/// Returns how many tokens an answer can have at the most of which so much came: one for each byte, or as many as it may have,
/// and what nobody sees.
fn most_output(request: &ModelRequest, came: Came) -> u64 {
    let cap = u64::from(request.max_output_tokens.unwrap_or(limit::TOKENS));
    UNSEEN_OUTPUT.saturating_add(cap).saturating_add(came.bytes as u64)
}

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

/// Estimates the tokens of a message.
pub(crate) fn message(message: &Message) -> u64 {
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

#[cfg(test)]
mod tests;
