//! Answers as the five wires stream them, each event with another word, and the least that any program must do to read one.

use std::borrow::Cow;

use anyhow::{Context as _, Result};
use formwork_transport::ProviderKind;
use serde::Deserialize;

/// One wire: an answer that was captured, with one of its events repeated.
pub(crate) struct Wire {
    pub(crate) name: &'static str,
    pub(crate) kind: ProviderKind,
    captured: &'static str,
    /// What tells the event that brings text.
    grows: &'static str,
    /// The word in that event, as it stands there.
    word: &'static str,
    marks: Option<Marks>,
    /// How long the text of an event is found, for each line of JSON.
    parse: fn(&str) -> Option<usize>,
}

/// A piece of an event, and what stands there in the n-th: what a provider counts, dates or pads its events with.
type Marks = (&'static str, fn(usize) -> String);

pub(crate) const WIRES: [Wire; 5] = [
    Wire {
        name: "openai_chat",
        kind: ProviderKind::OpenAiCompatible,
        captured: include_str!(
            "../../../crates/foundation/transport/tests/wire/llama.cpp/chat.stream.usage.sse"
        ),
        grows: "\"content\":\" capital\"",
        word: "\" capital\"",
        marks: None,
        parse: chat,
    },
    Wire {
        name: "openai_responses",
        kind: ProviderKind::OpenAiResponses,
        captured: include_str!(
            "../../../crates/foundation/transport/tests/wire/aimock/responses.stream.sse"
        ),
        grows: "event: response.output_text.delta",
        word: "\"Paris.\"",
        marks: Some(("\"item_id\":", |n| {
            let padding = "k".repeat(n % 14);
            format!("\"sequence_number\":{n},\"obfuscation\":\"{padding}\",\"item_id\":")
        })),
        parse: responses,
    },
    Wire {
        name: "anthropic",
        kind: ProviderKind::Anthropic,
        captured: include_str!(
            "../../../crates/foundation/transport/tests/wire/aimock/messages.stream.sse"
        ),
        grows: "event: content_block_delta",
        word: "\"Paris.\"",
        marks: None,
        parse: messages,
    },
    Wire {
        name: "google",
        kind: ProviderKind::Google,
        captured: include_str!(
            "../../../crates/foundation/transport/tests/wire/google/text.stream.sse"
        ),
        grows: "The capital",
        word: "\"The capital\"",
        marks: Some(("\"modelVersion\":", |n| {
            let total = n + 8;
            format!(
                "\"usageMetadata\":{{\"promptTokenCount\":8,\"candidatesTokenCount\":{n},\"totalTokenCount\":{total}}},\"modelVersion\":"
            )
        })),
        parse: gemini,
    },
    Wire {
        name: "ollama",
        kind: ProviderKind::Ollama,
        captured: include_str!(
            "../../../crates/foundation/transport/tests/wire/aimock/ollama.chat.stream.ndjson"
        ),
        grows: "\"done\":false",
        word: "\"Paris.\"",
        marks: Some((".004Z", |n| format!(".{:03}Z", n % 1000))),
        parse: ollama,
    },
];

/// Words of a common length for a token.
const WORDS: [&str; 7] = [" the", " capital", " of", " a", " country", ",", " Größe"];

impl Wire {
    /// Returns the events of an answer, as they are sent, with so many that bring text, each another word.
    ///
    /// # Errors
    /// When the captured answer has no such event.
    pub(crate) fn events(&self, count: usize) -> Result<Vec<String>> {
        let (before, event, after) = self.around()?;
        let mut events: Vec<String> = before.into_iter().map(str::to_owned).collect();
        for n in 0..count {
            let word = format!("\"{}\"", WORDS[n % WORDS.len()]);
            let mut event = event.replacen(self.word, &word, 1);
            if let Some((from, to)) = self.marks {
                event = event.replacen(from, &to(n), 1);
            }
            events.push(event);
        }
        events.extend(after.into_iter().map(str::to_owned));
        Ok(events)
    }

    /// Returns what comes before the event that brings text, the event, and what comes after it.
    ///
    /// # Errors
    /// When the captured answer has no such event.
    pub(crate) fn around(&self) -> Result<(Vec<&'static str>, &'static str, Vec<&'static str>)> {
        let end = match self.kind {
            ProviderKind::Ollama => "\n",
            _ if self.captured.contains("\r\n") => "\r\n\r\n",
            _ => "\n\n",
        };
        let mut before: Vec<_> = self.captured.split_inclusive(end).collect();
        let grows = before.iter().position(|event| event.contains(self.grows));
        let at = grows.with_context(|| format!("{} has no event with text", self.name))?;
        let mut after = before.split_off(at);
        let event = after.remove(0);
        Ok((before, event, after))
    }

    /// Makes the floor's reader of this wire.
    pub(crate) const fn bare(&self) -> Bare {
        Bare::new(self.parse)
    }
}

/// A splitter by `memchr`, and borrowed structs that hold nothing but what is looked at.
pub(crate) struct Bare {
    carry: Vec<u8>,
    parse: fn(&str) -> Option<usize>,
    /// Lines that held JSON of this wire.
    pub(crate) lines: usize,
    /// Bytes of text in them.
    pub(crate) text: usize,
}

impl Bare {
    /// Takes what is summed up of each line of JSON that `parse` knows.
    pub(crate) const fn new(parse: fn(&str) -> Option<usize>) -> Self {
        Self { carry: Vec::new(), parse, lines: 0, text: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            rest = after;
            if self.carry.is_empty() {
                self.line(line);
            } else {
                self.carry.extend_from_slice(line);
                let line = std::mem::take(&mut self.carry);
                self.line(&line);
                self.carry = line;
                self.carry.clear();
            }
        }
        self.carry.extend_from_slice(rest);
    }

    fn line(&mut self, line: &[u8]) {
        let json = match line.strip_prefix(b"data: ") {
            Some(json) => json,
            None if line.first() == Some(&b'{') => line,
            None => return,
        };
        if let Ok(json) = std::str::from_utf8(json)
            && let Some(text) = (self.parse)(json)
        {
            self.lines += 1;
            self.text += text;
        }
    }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: ChoiceDelta<'a>,
}

#[derive(Deserialize)]
struct ChoiceDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
}

fn chat(json: &str) -> Option<usize> {
    let chunk: Chunk<'_> = serde_json::from_str(json).ok()?;
    Some(chunk.choices.iter().map(|choice| length(choice.delta.content.as_ref())).sum())
}

/// Reads a chunk of the first wire whose text is a number.
pub(crate) fn number(json: &str) -> Option<usize> {
    let chunk: Chunk<'_> = serde_json::from_str(json).ok()?;
    chunk.choices.first()?.delta.content.as_ref()?.0.parse().ok()
}

fn length(text: Option<&Text<'_>>) -> usize {
    text.map_or(0, |text| text.0.len())
}

#[derive(Deserialize)]
struct ResponseEvent<'a> {
    #[serde(borrow, default)]
    delta: Option<Text<'a>>,
}

fn responses(json: &str) -> Option<usize> {
    let event: ResponseEvent<'_> = serde_json::from_str(json).ok()?;
    Some(length(event.delta.as_ref()))
}

#[derive(Deserialize)]
struct MessageEvent<'a> {
    #[serde(borrow, default)]
    delta: Option<BlockDelta<'a>>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

fn messages(json: &str) -> Option<usize> {
    let event: MessageEvent<'_> = serde_json::from_str(json).ok()?;
    Some(length(event.delta.and_then(|delta| delta.text).as_ref()))
}

#[derive(Deserialize)]
struct Generated<'a> {
    #[serde(borrow, default)]
    candidates: Vec<Candidate<'a>>,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Vec<ContentPart<'a>>,
}

#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}

fn gemini(json: &str) -> Option<usize> {
    let answer: Generated<'_> = serde_json::from_str(json).ok()?;
    let parts = answer.candidates.iter().flat_map(|candidate| &candidate.content.parts);
    Some(parts.map(|part| length(part.text.as_ref())).sum())
}

#[derive(Deserialize)]
struct ChatLine<'a> {
    #[serde(borrow)]
    message: ChatMessage<'a>,
}

#[derive(Deserialize)]
struct ChatMessage<'a> {
    #[serde(borrow)]
    content: Text<'a>,
}

fn ollama(json: &str) -> Option<usize> {
    let line: ChatLine<'_> = serde_json::from_str(json).ok()?;
    Some(line.message.content.0.len())
}
