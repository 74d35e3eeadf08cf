//! OpenAI's Chat Completions, and what the servers that follow it make of it.
//!
//! Source: the API reference of OpenAI, and captured traffic of llama.cpp, vLLM and LiteLLM.

mod chunk;
mod request;

use formwork_protocols::ProviderFault;

pub(crate) use request::{Shown, outgoing, result_text, shown_by, v1};

use crate::{
    assembly::Delta,
    borrowed::{arguments, read},
    draft::Draft,
    fault::Fault,
    usage::Counts,
    wire::{Heard, Reader, is_done},
};
use chunk::{Chunk, Timings};

/// Reads chunks. All that it has to remember stands in the draft.
#[derive(Debug)]
pub(crate) struct ChatReader;

impl Reader for ChatReader {
    fn event(&mut self, _: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        if is_done(data) {
            draft.ended = true;
            return Ok(Heard::End);
        }
        let Ok(chunk) = read::<Chunk<'_>>(data) else { return Ok(Heard::Undecodable) };
        Ok(match take(&chunk, data, draft)? {
            // Whatever else a chunk says would be said once more: its counts, its ids, why it ended.
            Heard::Progress => Heard::Words,
            heard => heard,
        })
    }

    fn unread(&self) -> &'static [&'static str] {
        &["obfuscation", "created"]
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let chunk = read::<Chunk<'_>>(body).map_err(|error| {
            Fault::new(ProviderFault::Protocol, format!("the answer is not a completion: {error}"))
                .with_body(body)
        })?;
        let heard = take(&chunk, body, draft)?;
        if heard != Heard::Progress {
            return Err(
                Fault::new(ProviderFault::Protocol, "the answer holds no choice").with_body(body)
            );
        }
        draft.ended = true;
        Ok(())
    }
}

fn take(chunk: &Chunk<'_>, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
    let heard = take_choices(chunk, data, draft);
    // Counts grow from chunk to chunk where a server sends them with each; the last ones hold, for all that came, and
    // what failed is billed as well.
    let timings = chunk.timings.as_ref().map(counts_of_timings);
    let counts = chunk.usage.as_ref().map(counts_of_usage);
    let counts = counts.filter(|counts| counts.usage().total() > 0);
    let counts = match (timings, counts) {
        // What its usage counts goes before.
        (Some(timings), Some(counts)) => timings.then(counts),
        (timings, counts) => match counts.or(timings) {
            Some(counts) => counts,
            None => return heard,
        },
    };
    draft.counted(counts);
    heard.map(|_| Heard::Progress)
}

fn take_choices(chunk: &Chunk<'_>, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
    if chunk.error.is_some()
        || chunk.object.as_ref().is_some_and(|object| object.as_str() == "error")
    {
        return Err(Fault::of_answer(None, data));
    }
    if draft.model.is_none() {
        draft.model = chunk.model.as_ref().map(|model| model.as_str().to_owned());
    }
    if draft.id.is_none() {
        draft.id = chunk.id.as_ref().map(|id| id.as_str().to_owned());
    }
    let mut heard = Heard::Nothing;
    // Formwork asks for one choice; another would be a second answer mixed into the first.
    for choice in chunk.choices.iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
        if let Some(error) = choice.error {
            return Err(Fault::of_answer(None, &format!("{{\"error\":{}}}", error.get())));
        }
        let delta = &choice.delta;
        if let Some(text) = delta.reasoning.as_ref().filter(|text| !text.as_str().is_empty()) {
            draft.add_reasoning(text.as_str());
            heard = Heard::Progress;
        }
        if let Some(text) = delta.content.as_ref().filter(|text| !text.as_str().is_empty()) {
            draft.add_text(text.as_str());
            heard = Heard::Progress;
        }
        if let Some(text) = delta.refusal.as_ref().filter(|text| !text.as_str().is_empty()) {
            draft.add_refusal(text.as_str());
            heard = Heard::Progress;
        }
        for call in delta.tool_calls.as_deref().unwrap_or_default() {
            let function = call.function.as_ref();
            let arguments = function.and_then(|function| arguments(function.arguments));
            draft.add_call(Delta {
                index: call.index,
                id: call.id.as_ref().map(|id| id.as_str()),
                name: function.and_then(|f| f.name.as_ref()).map(|name| name.as_str()),
                arguments: arguments.as_deref(),
            });
            heard = Heard::Progress;
        }
        if let Some(function) = &delta.function_call {
            let arguments = arguments(function.arguments);
            draft.add_call(Delta {
                name: function.name.as_ref().map(|name| name.as_str()),
                arguments: arguments.as_deref(),
                ..Delta::default()
            });
            heard = Heard::Progress;
        }
        let reason = choice.finish_reason.as_ref();
        if reason.is_some_and(|reason| draft.stop_for(reason.as_str())) {
            heard = Heard::Progress;
        }
    }
    Ok(heard)
}

/// Splits OpenAI's counts, in which cached tokens are part of the prompt and reasoning part of the completion.
fn counts_of_usage(counts: &chunk::Counts) -> Counts {
    let prompt = counts.prompt_tokens.unwrap_or(0);
    let completion = counts.completion_tokens.unwrap_or(0);
    let input_details = counts.prompt_tokens_details.unwrap_or_default();
    let cache_read =
        input_details.cached_tokens.or(counts.prompt_cache_hit_tokens).unwrap_or(0).min(prompt);
    let cache_write = input_details.cache_write_tokens.unwrap_or(0).min(prompt - cache_read);
    let reasoning =
        counts.completion_tokens_details.unwrap_or_default().reasoning_tokens.unwrap_or(0);
    // Some servers count reasoning beside the completion; their own total tells.
    let beside = reasoning > completion
        || (reasoning > 0
            && counts.total_tokens
                == Some(prompt.saturating_add(completion).saturating_add(reasoning)));
    let said = if beside { completion } else { completion - reasoning };
    Counts {
        input: counts.prompt_tokens.map(|_| prompt - cache_read - cache_write),
        cache_read,
        cache_write,
        output: counts.completion_tokens.map(|_| said),
        reasoning,
    }
}

/// Splits llama.cpp's timings, in which cached tokens stand beside the prompt.
fn counts_of_timings(timings: &Timings) -> Counts {
    Counts {
        input: timings.prompt_n,
        cache_read: timings.cache_n.unwrap_or(0),
        output: timings.predicted_n,
        ..Counts::default()
    }
}
