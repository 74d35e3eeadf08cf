//! Usage: what a server counts, and estimates where it tells nothing.
//!
//! Input and output are two halves, each of which a server tells or not. A half without a count, or with one that is none (a
//! negative one, a fraction, zero of what there is), is estimated for itself, so that nothing is billed as if it were free.

use formwork_protocols::{Message, ModelRequest, Part, Usage, message::Arguments};

/// Bytes of text for a token. Four is what is said of English prose; code has fewer, and an estimate that is short
/// would let a budget be overspent.
const BYTES_PER_TOKEN: usize = 3;

/// Tokens for an image or a page of a document, about what providers count for a large one.
const TOKENS_PER_IMAGE: u64 = 1_500;

/// Tokens that the frame of a message costs.
const TOKENS_PER_MESSAGE: u64 = 4;

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
    pub(crate) fn input(&self) -> Worth {
        if self.input.is_none() || self.usage().total_input() == 0 {
            return Worth::Missing;
        }
        Worth::Told
    }

    /// Judges the counts of the output of which so much came. A server may leave the words out that an answer of thoughts alone
    /// does not have.
    pub(crate) fn output(&self, came: Came) -> Worth {
        let spoke = came.bytes > came.thought;
        let is_missing = match self.output {
            None => spoke || (came.bytes > 0 && self.reasoning == 0),
            Some(_) => came.bytes > 0 && self.usage().total_output() == 0,
        };
        if is_missing { Worth::Missing } else { Worth::Told }
    }

    /// Returns what was used, and whether any of it is an estimate: `estimate` has what there is to say of the output.
    pub(crate) fn bill(
        &self,
        request: &ModelRequest,
        came: Came,
        estimate: impl FnOnce() -> u64,
    ) -> (Usage, bool) {
        let (input, output) = (self.input(), self.output(came));
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
        (usage, input != Worth::Told || output != Worth::Told)
    }
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
