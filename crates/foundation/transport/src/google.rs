//! Google's Gemini: calls without ids, signatures on the parts of an answer, schemas in a subset of OpenAPI.
//!
//! Source: the API reference of Google, v1beta.

mod request;
mod schema;

use std::time::Duration;

use formwork_protocols::{ProviderFault, Span, model::StopReason};
use serde::{
    Deserialize,
    de::{IgnoredAny, MapAccess},
};
use serde_json::{Value, value::RawValue};

pub(crate) use request::{outgoing, v1beta};

use crate::{
    assembly::Delta,
    borrowed::{self, Few, Fields, Fill, FillFew, Str, count, read, skip},
    draft::Draft,
    fault::Fault,
    info::ListedModel,
    usage,
    wire::{Counted, Heard, Reader},
};

/// Reads the chunks of one answer.
#[derive(Debug, Default)]
pub(crate) struct GeminiReader {
    calls: i64,
}

#[derive(Debug, Default)]
struct Chunk<'a> {
    candidates: Few<Candidate<'a>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<Counts>,
    model_version: Option<Str<'a>>,
    response_id: Option<Str<'a>>,
    error: Option<IgnoredAny>,
}

impl<'de> Fields<'de> for Chunk<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "candidates" => map.next_value_seed(FillFew(&mut self.candidates))?,
            "promptFeedback" => self.prompt_feedback = map.next_value()?,
            "usageMetadata" => self.usage_metadata = map.next_value()?,
            "modelVersion" => self.model_version = map.next_value()?,
            "responseId" => self.response_id = map.next_value()?,
            "error" => self.error = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Candidate<'a> {
    index: Option<i64>,
    content: Content<'a>,
    finish_reason: Option<Str<'a>>,
    finish_message: Option<Str<'a>>,
}

impl<'de> Fields<'de> for Candidate<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "index" => self.index = map.next_value()?,
            "content" => {
                map.next_value_seed(Fill(&mut self.content))?;
            }
            "finishReason" => self.finish_reason = map.next_value()?,
            "finishMessage" => self.finish_message = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Content<'a> {
    parts: Few<AnswerPart<'a>>,
}

impl<'de> Fields<'de> for Content<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "parts" => map.next_value_seed(FillFew(&mut self.parts))?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct AnswerPart<'a> {
    text: Option<Str<'a>>,
    thought: bool,
    thought_signature: Option<Str<'a>>,
    function_call: Option<FunctionCall<'a>>,
}

impl<'de> Fields<'de> for AnswerPart<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "text" => self.text = map.next_value()?,
            "thought" => self.thought = map.next_value()?,
            "thoughtSignature" => self.thought_signature = map.next_value()?,
            "functionCall" => self.function_call = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow, default)]
    id: Option<Str<'a>>,
    #[serde(borrow, default)]
    name: Option<Str<'a>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    #[serde(default)]
    block_reason: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    #[serde(default, deserialize_with = "count")]
    prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cached_content_token_count: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    candidates_token_count: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    thoughts_token_count: Option<u64>,
}

impl Reader for GeminiReader {
    fn event(&mut self, _: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        let Ok(chunk) = read::<Chunk<'_>>(data) else { return Ok(Heard::Undecodable) };
        Ok(match self.take(&chunk, data, draft)? {
            // Whatever else a chunk says would be said once more: its counts, its ids, why it ended.
            Heard::Progress => Heard::Words,
            heard => heard,
        })
    }

    fn counted(&self) -> Option<Counted> {
        Some(Counted {
            keys: &[
                "promptTokenCount",
                "candidatesTokenCount",
                "thoughtsTokenCount",
                "cachedContentTokenCount",
                "totalTokenCount",
            ],
            read: |data| {
                let chunk = read::<Chunk<'_>>(data).ok()?;
                chunk.usage_metadata.as_ref().map(counted)
            },
        })
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let unlike = |error: serde_json::Error| {
            let message = format!("the answer is not a generated content: {error}");
            Fault::new(ProviderFault::Protocol, message).with_body(body)
        };
        // A stream that is not asked for as events comes as a list.
        let listed: Vec<&RawValue>;
        let chunks = if body.trim_start().starts_with('[') {
            listed = serde_json::from_str(body).map_err(unlike)?;
            listed.iter().map(|chunk| chunk.get()).collect()
        } else {
            vec![body]
        };
        let mut heard = Heard::Nothing;
        for chunk in chunks {
            let chunk = read::<Chunk<'_>>(chunk).map_err(unlike)?;
            if self.take(&chunk, body, draft)? == Heard::Progress {
                heard = Heard::Progress;
            }
        }
        if heard != Heard::Progress {
            let fault = Fault::new(ProviderFault::Protocol, "the answer holds no candidate");
            return Err(fault.with_body(body));
        }
        draft.ended = true;
        Ok(())
    }
}

impl GeminiReader {
    fn take(&mut self, chunk: &Chunk<'_>, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        let heard = self.take_candidates(chunk, data, draft);
        // Counts grow from chunk to chunk; the last ones hold, for all that came, and what failed is billed as well.
        if let Some(counts) = &chunk.usage_metadata {
            draft.counted(counted(counts));
        }
        heard
    }

    fn take_candidates(
        &mut self,
        chunk: &Chunk<'_>,
        data: &str,
        draft: &mut Draft,
    ) -> Result<Heard, Fault> {
        if chunk.error.is_some() {
            return Err(Fault::of_answer(None, data));
        }
        if draft.model.is_none() {
            draft.model = chunk.model_version.as_deref().map(str::to_owned);
        }
        if draft.id.is_none() {
            draft.id = chunk.response_id.as_deref().map(str::to_owned);
        }
        let mut heard = Heard::Nothing;
        // A prompt that was withheld from the model has no candidate.
        if chunk.prompt_feedback.as_ref().is_some_and(|feedback| feedback.block_reason.is_some()) {
            draft.stop = Some(StopReason::ContentFilter);
            heard = Heard::Progress;
        }
        // Formwork asks for one candidate; another would be a second answer mixed into the first.
        let candidates = chunk.candidates.iter();
        for candidate in candidates.filter(|candidate| candidate.index.unwrap_or(0) == 0) {
            for part in candidate.content.parts.iter() {
                if self.part(part, draft) {
                    heard = Heard::Progress;
                }
            }
            if let Some(reason) = candidate.finish_reason.as_deref() {
                if matches!(reason, "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE") {
                    let told = candidate.finish_message.as_deref().unwrap_or("it gave no detail");
                    let message =
                        format!("the provider could not read what its model wrote: {told}");
                    let fault = Fault::new(ProviderFault::Protocol, message).with_body(data);
                    return Err(Fault { code: Some(reason.to_owned()), ..fault });
                }
                if draft.stop_for(reason) {
                    heard = Heard::Progress;
                }
            }
        }
        Ok(heard)
    }

    /// Takes a part, and tells whether it said anything.
    fn part(&mut self, part: &AnswerPart<'_>, draft: &mut Draft) -> bool {
        let signature = part.thought_signature.as_deref().filter(|signature| !signature.is_empty());
        let text = part.text.as_deref().unwrap_or_default();
        let said = !text.is_empty() || signature.is_some() || part.function_call.is_some();
        if part.thought && !text.is_empty() {
            draft.add_reasoning(text);
            if let Some(signature) = signature {
                draft.sign_reasoning(signature);
            }
            return said;
        }
        // A signature on any other part stands before it, and goes back on it.
        if let Some(signature) = signature {
            draft.add_signature(signature);
        }
        draft.add_text(text);
        if let Some(call) = &part.function_call {
            let arguments = borrowed::arguments(call.args);
            // A call comes whole, so that each is another one.
            draft.add_call(Delta {
                index: Some(self.calls),
                id: call.id.as_deref(),
                name: call.name.as_deref(),
                arguments: arguments.as_deref(),
            });
            self.calls += 1;
        }
        said
    }
}

/// Splits Google's counts, in which what is cached is part of the prompt and thoughts stand beside the answer.
fn counted(counts: &Counts) -> usage::Counts {
    let prompt = counts.prompt_token_count.unwrap_or(0);
    let cache_read = counts.cached_content_token_count.unwrap_or(0).min(prompt);
    let by_tools = counts.tool_use_prompt_token_count.unwrap_or(0);
    usage::Counts {
        input: counts.prompt_token_count.map(|_| (prompt - cache_read).saturating_add(by_tools)),
        cache_read,
        cache_write: 0,
        output: counts.candidates_token_count,
        reasoning: counts.thoughts_token_count.unwrap_or(0),
    }
}

/// Returns how long a refusal asks to wait, which Google says in its body and not in a header.
pub(crate) fn asked(body: &str) -> Option<Duration> {
    let body: Value = serde_json::from_str(body).ok()?;
    let error = body.get(0).unwrap_or(&body).get("error")?;
    let delay = error
        .get("details")?
        .as_array()?
        .iter()
        .find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Some(delay.parse::<Span>().ok()?.as_duration())
}

/// Reads a list of models.
pub(crate) fn listed(answer: &Value) -> Vec<ListedModel> {
    let models = answer.get("models").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let listed = models.iter().filter_map(|model| {
        let name = model.get("name")?.as_str()?;
        Some(ListedModel {
            context_tokens: model.get("inputTokenLimit").and_then(Value::as_u64),
            ..ListedModel::named(name.strip_prefix("models/").unwrap_or(name).parse().ok()?)
        })
    });
    listed.collect()
}

#[cfg(test)]
mod tests;
