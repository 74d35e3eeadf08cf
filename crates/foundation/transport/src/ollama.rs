//! Ollama's own chat: lines of JSON, calls whole, a window that the client has to ask for.
//!
//! Source: the API reference of Ollama, and captured traffic of a server that follows it.

mod request;

use formwork_protocols::{ProviderFault, model::StopReason};
use serde::{
    Deserialize,
    de::{IgnoredAny, MapAccess},
};
use serde_json::value::RawValue;

pub(crate) use request::{outgoing, root};

use crate::{
    assembly::Delta,
    borrowed::{self, Count, Fields, Fill, Str, read, skip},
    draft::Draft,
    fault::Fault,
    usage::Counts,
    wire::{Heard, Reader},
};

/// Reads the lines of one answer.
#[derive(Debug, Default)]
pub(crate) struct OllamaReader {
    calls: i64,
}

#[derive(Debug, Default)]
struct Line<'a> {
    model: Option<Str<'a>>,
    message: Piece<'a>,
    done: bool,
    done_reason: Option<Str<'a>>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    error: Option<IgnoredAny>,
}

impl<'de> Fields<'de> for Line<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "model" => self.model = map.next_value()?,
            "message" => {
                map.next_value_seed(Fill(&mut self.message))?;
            }
            "done" => self.done = map.next_value()?,
            "done_reason" => self.done_reason = map.next_value()?,
            "prompt_eval_count" => self.prompt_eval_count = map.next_value::<Count>()?.0,
            "eval_count" => self.eval_count = map.next_value::<Count>()?.0,
            "error" => self.error = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Piece<'a> {
    content: Option<Str<'a>>,
    thinking: Option<Str<'a>>,
    tool_calls: Option<Vec<Call<'a>>>,
}

impl<'de> Fields<'de> for Piece<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "content" => self.content = map.next_value()?,
            "thinking" => self.thinking = map.next_value()?,
            "tool_calls" => self.tool_calls = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct Call<'a> {
    #[serde(borrow, default)]
    id: Option<Str<'a>>,
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Debug, Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Str<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl Reader for OllamaReader {
    fn event(&mut self, _: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        let Ok(line) = read::<Line<'_>>(data) else { return Ok(Heard::Undecodable) };
        let has_calls = line.message.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        Ok(match self.take(&line, data, draft)? {
            Heard::Progress if !has_calls => Heard::Words,
            heard => heard,
        })
    }

    fn unread(&self) -> &'static [&'static str] {
        &["created_at"]
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let mut heard = Heard::Nothing;
        // A stream that was sent under the name of a document is still a stream.
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            let found = read::<Line<'_>>(line).map_err(|error| {
                let message = format!("the answer is not a chat: {error}");
                Fault::new(ProviderFault::Protocol, message).with_body(body)
            })?;
            heard = self.take(&found, line, draft)?;
        }
        if heard == Heard::End {
            return Ok(());
        }
        Err(Fault::new(ProviderFault::Protocol, "the answer does not say that it is done")
            .with_body(body))
    }
}

impl OllamaReader {
    fn take(&mut self, line: &Line<'_>, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        if line.error.is_some() {
            return Err(Fault::of_answer(None, data));
        }
        if draft.model.is_none() {
            draft.model = line.model.as_deref().map(str::to_owned);
        }
        let mut heard = Heard::Nothing;
        let piece = &line.message;
        let thinking = piece.thinking.as_deref().unwrap_or_default();
        let content = piece.content.as_deref().unwrap_or_default();
        draft.add_reasoning(thinking);
        draft.add_text(content);
        if !thinking.is_empty() || !content.is_empty() {
            heard = Heard::Progress;
        }
        for call in piece.tool_calls.as_deref().unwrap_or_default() {
            let arguments = borrowed::arguments(call.function.arguments);
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
        if !line.done {
            return Ok(heard);
        }
        // A server leaves the first count out for a prompt that it held already.
        let (input, output) = (line.prompt_eval_count, line.eval_count);
        draft.counted(Counts { input, output, ..Counts::default() });
        // Servers of before the field end without it.
        if !draft.stop_for(line.done_reason.as_deref().unwrap_or_default()) {
            draft.stop = Some(StopReason::EndTurn);
        }
        draft.ended = true;
        Ok(Heard::End)
    }
}

#[cfg(test)]
mod tests;
