//! OpenAI's Responses, without state at the provider, and what the servers that follow it make of it.
//!
//! Source: the API reference of OpenAI, and captured traffic of llama.cpp, vLLM and LiteLLM.

mod request;

use std::collections::BTreeMap;

use formwork_protocols::{ProviderFault, model::StopReason};
use serde::{
    Deserialize as _,
    de::{IgnoredAny, MapAccess},
};
use serde_json::{Value, json, value::RawValue};

pub(crate) use request::outgoing;

use crate::{
    assembly::Delta,
    borrowed::{Count, Fields, Lenient, Str, read, skip},
    draft::Draft,
    fault::Fault,
    usage::Counts,
    wire::{Heard, Reader, is_done},
};

/// Reads the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct ResponsesReader {
    items: Vec<Item>,
    /// The parts of items that came in pieces, so that their whole form is not added again, and how many bytes of each came.
    streamed: BTreeMap<(usize, i64), usize>,
    /// The part that grew last. Words that are read by the shape of their event alone are its own.
    grows: Option<(usize, i64)>,
    /// How many bytes of the answer had come when an event was read last.
    seen: usize,
}

/// An item of the answer as far as it is known. Servers name items by id, by place, or not at all.
#[derive(Debug)]
struct Item {
    id: Option<String>,
    output_index: Option<i64>,
}

/// An event. Items and whole responses are few and kept as they stand until the kind asks for them.
#[derive(Debug, Default)]
struct Event<'a> {
    kind: Option<Str<'a>>,
    item_id: Option<Str<'a>>,
    output_index: Option<i64>,
    content_index: Option<i64>,
    summary_index: Option<i64>,
    delta: Option<Lenient<'a>>,
    text: Option<Lenient<'a>>,
    refusal: Option<Lenient<'a>>,
    arguments: Option<Lenient<'a>>,
    item: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    error: Option<IgnoredAny>,
    number: Option<u64>,
}

impl<'de> Fields<'de> for Event<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "item_id" => self.item_id = map.next_value()?,
            "output_index" => self.output_index = map.next_value()?,
            "content_index" => self.content_index = map.next_value()?,
            "summary_index" => self.summary_index = map.next_value()?,
            "delta" => self.delta = map.next_value()?,
            "text" => self.text = map.next_value()?,
            "refusal" => self.refusal = map.next_value()?,
            "arguments" => self.arguments = map.next_value()?,
            "item" => self.item = map.next_value()?,
            "response" => self.response = map.next_value()?,
            "error" => self.error = map.next_value()?,
            NUMBER => self.number = map.next_value::<Count>()?.0,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// The key under which servers count their events.
const NUMBER: &str = "sequence_number";

impl Reader for ResponsesReader {
    fn event(&mut self, name: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        if is_done(data) {
            draft.ended = true;
            return Ok(Heard::End);
        }
        if let Some(part) = self.grows.take() {
            *self.streamed.entry(part).or_default() += draft.bytes().saturating_sub(self.seen);
        }
        let heard = self.take(name, data, draft);
        self.seen = draft.bytes();
        heard
    }

    fn unread(&self) -> &'static [&'static str] {
        &["obfuscation"]
    }

    fn numbered(&self) -> Option<&'static str> {
        Some(NUMBER)
    }

    fn whole(&mut self, body: &str, draft: &mut Draft) -> Result<(), Fault> {
        let response: Value = serde_json::from_str(body).map_err(|error| {
            Fault::new(ProviderFault::Protocol, format!("the answer is not a response: {error}"))
                .with_body(body)
        })?;
        if response.get("output").is_none() && response.get("error").is_none() {
            let fault = Fault::new(ProviderFault::Protocol, "the answer holds no output");
            return Err(fault.with_body(body));
        }
        let status = response.get("status").and_then(Value::as_str).unwrap_or("completed");
        self.response(&format!("response.{status}"), &response, draft)?;
        draft.ended = true;
        Ok(())
    }
}

/// Takes the counts of the whole answer, where they are told.
fn count(response: &Value, draft: &mut Draft) {
    if let Some(counts) = response.get("usage").filter(|usage| !usage.is_null()) {
        draft.counted(counted(counts));
    }
}

impl ResponsesReader {
    fn take(&mut self, name: &str, data: &str, draft: &mut Draft) -> Result<Heard, Fault> {
        let Ok(event) = read::<Event<'_>>(data) else { return Ok(Heard::Undecodable) };
        if let Some(number) = event.number {
            draft.numbered(number);
        }
        let kind = event.kind.as_deref().unwrap_or(name);
        if kind == "error" || event.error.is_some() {
            return Err(Fault::of_answer(None, data));
        }
        if let Some(response) = event.response {
            let Ok(response) = serde_json::from_str(response.get()) else {
                return Ok(Heard::Undecodable);
            };
            return self.response(kind, &response, draft);
        }
        Ok(match kind {
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.function_call_arguments.delta"
            | "response.reasoning_summary_text.delta"
            | "response.reasoning_text.delta"
                if event.delta.as_ref().is_some_and(|delta| !delta.is_text()) =>
            {
                Heard::Undecodable
            }
            "response.output_text.delta" => match self.text(&event, &event.delta, draft) {
                Heard::Progress => Heard::Words,
                heard => heard,
            },
            "response.output_text.done" if !self.has_streamed(&event) => {
                self.text(&event, &event.text, draft)
            }
            "response.output_text.done" => {
                self.compare(self.part(&event), str(&event.text), draft);
                Heard::Nothing
            }
            "response.refusal.delta" => self.refusal(&event, &event.delta, draft),
            "response.refusal.done" if !self.has_streamed(&event) => {
                self.refusal(&event, &event.refusal, draft)
            }
            "response.refusal.done" => {
                self.compare(self.part(&event), str(&event.refusal), draft);
                Heard::Nothing
            }
            "response.function_call_arguments.delta" => self.arguments(&event, &event.delta, draft),
            "response.function_call_arguments.done" if !self.has_streamed(&event) => {
                self.arguments(&event, &event.arguments, draft)
            }
            "response.function_call_arguments.done" => {
                compare_arguments(self.at(&event), str(&event.arguments), draft);
                Heard::Nothing
            }
            "response.reasoning_summary_part.added" if event.summary_index > Some(0) => {
                draft.add_reasoning("\n\n");
                Heard::Progress
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let text = str(&event.delta);
                self.mark(&event, text);
                draft.add_reasoning(text);
                if text.is_empty() { Heard::Nothing } else { Heard::Words }
            }
            "response.output_item.added" | "response.output_item.done" => {
                let Some(item) = event.item else { return Ok(Heard::Nothing) };
                let Ok(item) = serde_json::from_str(item.get()) else {
                    return Ok(Heard::Undecodable);
                };
                match kind {
                    "response.output_item.added" => self.begin(&item, event.output_index, draft),
                    _ => self.end(&item, event.output_index, draft),
                }
            }
            // What only repeats the pieces, and whatever a later version adds.
            _ => Heard::Nothing,
        })
    }

    /// Takes the state of the whole answer, which is its end unless it is still being made.
    fn response(
        &mut self,
        kind: &str,
        response: &Value,
        draft: &mut Draft,
    ) -> Result<Heard, Fault> {
        let text = |key: &str| response.get(key).and_then(Value::as_str).map(str::to_owned);
        draft.id = draft.id.take().or_else(|| text("id"));
        draft.model = text("model").or(draft.model.take());
        let error = response.get("error").filter(|error| !error.is_null());
        if error.is_some() || kind == "response.failed" {
            count(response, draft); // What failed is billed as well.
            let error =
                error.cloned().unwrap_or_else(|| json!({ "message": "the response failed" }));
            return Err(Fault::of_answer(None, &json!({ "error": error }).to_string()));
        }
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let stop = match kind {
            "response.completed" => StopReason::EndTurn,
            "response.incomplete" => match reason {
                Some("max_output_tokens") => StopReason::Length,
                Some("content_filter") => StopReason::ContentFilter,
                _ => StopReason::Missing,
            },
            "response.cancelled" => StopReason::Missing,
            _ => return Ok(Heard::Nothing),
        };
        // An answer in one piece, and the streams of servers that send no more than its end.
        let is_new = self.items.is_empty();
        let output = response.get("output").and_then(Value::as_array);
        for (index, item) in (0..).zip(output.map_or(&[][..], Vec::as_slice)) {
            let known = self.find(item.get("id").and_then(Value::as_str), None);
            match known {
                _ if is_new => {
                    self.end(item, Some(index), draft);
                }
                Some(at) => self.compare_item(at, item, draft),
                // Servers give an item another name at its end; which of them it is, nobody can tell then.
                None => {}
            }
        }
        count(response, draft);
        draft.stop = Some(stop);
        draft.ended = true;
        Ok(Heard::End)
    }

    /// Takes an item that begins.
    fn begin(&mut self, item: &Value, output_index: Option<i64>, draft: &mut Draft) -> Heard {
        let at = self.items.len();
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        self.items.push(Item { id: text("id").map(str::to_owned), output_index });
        if text("type") != Some("function_call") {
            return Heard::Nothing;
        }
        let arguments = text("arguments").filter(|text| !text.is_empty());
        if let Some(arguments) = arguments {
            self.streamed.insert((at, 0), arguments.len());
        }
        draft.add_call(Delta {
            index: index(at),
            id: text("call_id").or_else(|| text("id")),
            name: text("name"),
            arguments,
        });
        Heard::Progress
    }

    /// Takes an item that is whole, and adds of it what had not come in pieces.
    fn end(&mut self, item: &Value, output_index: Option<i64>, draft: &mut Draft) -> Heard {
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let known = self.find(text("id"), output_index);
        let at = known.unwrap_or(self.items.len());
        if known.is_none() {
            self.begin(item, output_index, draft);
        }
        self.compare_item(at, item, draft);
        match text("type") {
            Some("function_call") if !self.streamed.contains_key(&(at, 0)) => {
                let arguments = text("arguments");
                self.streamed.insert((at, 0), arguments.map_or(0, str::len));
                draft.add_call(Delta { index: index(at), arguments, ..Delta::default() });
            }
            Some("message") => {
                for (place, kind, said) in spoken(item) {
                    if self.streamed.contains_key(&(at, place)) {
                        continue;
                    }
                    self.streamed.insert((at, place), said.len());
                    match kind {
                        "refusal" => draft.add_refusal(said),
                        _ => draft.add_text(said),
                    }
                }
            }
            Some("reasoning") => self.reasoning(at, item, draft),
            _ => return Heard::Nothing,
        }
        Heard::Progress
    }

    /// Takes a whole item of reasoning and keeps it as it has to go back.
    fn reasoning(&mut self, at: usize, item: &Value, draft: &mut Draft) {
        let list =
            |key: &str| item.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut shown = self.streamed.keys().any(|(item, _)| *item == at);
        if !shown {
            let texts = list("summary").iter().chain(list("content"));
            let texts: Vec<_> =
                texts.filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
            draft.add_reasoning(&texts.join("\n\n"));
            shown = texts.iter().any(|text| !text.is_empty());
        }
        let encrypted = item.get("encrypted_content").and_then(Value::as_str);
        // An item that holds neither its encrypted form nor its text is a name for what only the provider had.
        if encrypted.is_none_or(str::is_empty) && list("content").is_empty() {
            return;
        }
        let kept = ["type", "id", "summary", "content", "encrypted_content"];
        let kept = kept.iter().filter_map(|key| {
            let value = item.get(*key).filter(|value| !value.is_null() && **value != "")?;
            Some(((*key).to_owned(), value.clone()))
        });
        let kept = Value::Object(kept.collect()).to_string();
        if shown {
            draft.sign_reasoning(&kept);
        } else {
            draft.add_signature(&kept);
        }
    }

    fn text(&mut self, event: &Event<'_>, text: &Option<Lenient<'_>>, draft: &mut Draft) -> Heard {
        let text = str(text);
        self.mark(event, text);
        draft.add_text(text);
        grown(text)
    }

    fn refusal(
        &mut self,
        event: &Event<'_>,
        text: &Option<Lenient<'_>>,
        draft: &mut Draft,
    ) -> Heard {
        let text = str(text);
        self.mark(event, text);
        draft.add_refusal(text);
        grown(text)
    }

    fn arguments(
        &mut self,
        event: &Event<'_>,
        text: &Option<Lenient<'_>>,
        draft: &mut Draft,
    ) -> Heard {
        let text = str(text);
        let at = self.at(event);
        *self.streamed.entry((at, 0)).or_default() += text.len();
        draft.add_call(Delta { index: index(at), arguments: Some(text), ..Delta::default() });
        grown(text)
    }

    /// Notes that a part has come in pieces.
    fn mark(&mut self, event: &Event<'_>, text: &str) {
        if !text.is_empty() {
            let part = self.part(event);
            *self.streamed.entry(part).or_default() += text.len();
            self.grows = Some(part);
        }
    }

    fn has_streamed(&self, event: &Event<'_>) -> bool {
        self.streamed.contains_key(&self.part(event))
    }

    /// Holds the whole form of an item against the pieces in which it came.
    fn compare_item(&self, at: usize, item: &Value, draft: &mut Draft) {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                for (place, _, said) in spoken(item) {
                    self.compare((at, place), said, draft);
                }
            }
            Some("function_call") if self.streamed.contains_key(&(at, 0)) => {
                let arguments = item.get("arguments").and_then(Value::as_str);
                compare_arguments(at, arguments.unwrap_or_default(), draft);
            }
            _ => {}
        }
    }

    /// Holds the whole words of a part against the pieces in which it came. Servers may trim them, and add nothing.
    fn compare(&self, part: (usize, i64), whole: &str, draft: &mut Draft) {
        if self.streamed.get(&part).is_some_and(|came| *came < whole.trim().len()) {
            draft.lose("its whole text is longer than its pieces");
        }
    }

    /// Returns the part that an event is of.
    fn part(&self, event: &Event<'_>) -> (usize, i64) {
        (self.at(event), event.content_index.unwrap_or(0))
    }

    /// Returns the place of the item that an event is of: the newest where it does not say.
    fn at(&self, event: &Event<'_>) -> usize {
        let found = self.find(event.item_id.as_deref(), event.output_index);
        found.unwrap_or(self.items.len().saturating_sub(1))
    }

    fn find(&self, id: Option<&str>, output_index: Option<i64>) -> Option<usize> {
        let by_id =
            id.and_then(|id| self.items.iter().rposition(|item| item.id.as_deref() == Some(id)));
        by_id.or_else(|| {
            let index = Some(output_index?);
            self.items.iter().rposition(|item| item.output_index == index)
        })
    }
}

/// Returns what a whole message says, part by part: its place, its kind and its words.
fn spoken(item: &Value) -> impl Iterator<Item = (i64, &str, &str)> {
    let parts = item.get("content").and_then(Value::as_array);
    (0..).zip(parts.map_or(&[][..], Vec::as_slice)).map(|(place, part)| {
        let said = |key: &str| part.get(key).and_then(Value::as_str).unwrap_or_default();
        match said("type") {
            "refusal" => (place, "refusal", said("refusal")),
            kind => (place, kind, said("text")),
        }
    })
}

/// Holds the whole arguments of a call against the pieces in which they came. Servers may write them in other words.
fn compare_arguments(at: usize, whole: &str, draft: &mut Draft) {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    let came = draft.arguments(index(at)).unwrap_or_default();
    // What does not parse is no call to be made, which needs no other reason.
    let differ =
        came != whole && value(came).zip(value(whole)).is_some_and(|(came, whole)| came != whole);
    if differ {
        draft.lose("the whole arguments of a call differ from their pieces");
    }
}

fn index(at: usize) -> Option<i64> {
    i64::try_from(at).ok()
}

fn str<'a>(text: &'a Option<Lenient<'_>>) -> &'a str {
    text.as_deref().unwrap_or_default()
}

const fn grown(text: &str) -> Heard {
    if text.is_empty() { Heard::Nothing } else { Heard::Progress }
}

/// Splits OpenAI's counts, in which what the cache read and wrote is part of the input and reasoning part of the output.
fn counted(counts: &Value) -> Counts {
    let told =
        |path: &str| counts.pointer(path).and_then(|count| Count::deserialize(count).ok()?.0);
    let count = |path: &str| told(path).unwrap_or(0);
    let (input, output) = (count("/input_tokens"), count("/output_tokens"));
    let cache_read = count("/input_tokens_details/cached_tokens").min(input);
    let cache_write = count("/input_tokens_details/cache_write_tokens").min(input - cache_read);
    let reasoning = count("/output_tokens_details/reasoning_tokens").min(output);
    Counts {
        input: told("/input_tokens").map(|_| input - cache_read - cache_write),
        cache_read,
        cache_write,
        output: told("/output_tokens").map(|_| output - reasoning),
        reasoning,
    }
}

#[cfg(test)]
mod tests;
