//! Traffic that was recorded: one file for each request and its answer, without headers of the request or secrets.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use formwork_protocols::{BlobHash, ProviderName, canonical, model::without_left};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::endpoint::ProviderKind;

/// The form of the files.
pub(crate) const VERSION: u32 = 1;

/// Headers of an answer that mean something to a client; others may hold what belongs to an account.
const KEPT: [&str; 7] = [
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
    "request-id",
    "x-litellm-call-id",
    "x-goog-request-id",
];

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cassette {
    pub(crate) format_version: u32,
    pub(crate) provider: ProviderName,
    pub(crate) kind: ProviderKind,
    /// The base address.
    pub(crate) endpoint: String,
    pub(crate) request: Asked,
    pub(crate) answer: Answered,
}

/// A request, by which its answer is found again: what is the same however the server is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// The path and the query.
    pub(crate) path: String,
    pub(crate) body: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The body as it came.
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) end: End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chunk {
    Text(String),
    /// Bytes that are no text by themselves, such as those of half a character.
    Base64(String),
}

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Whole,
    /// The connection was cut, for this reason.
    Cut(String),
    /// The reader had heard enough, or waited no longer.
    Left,
}

impl Asked {
    /// Returns the name under which answers to it are kept.
    ///
    /// # Errors
    /// When it cannot be JSON.
    pub(crate) fn name(&self) -> Result<String, serde_json::Error> {
        let hash = BlobHash::of(canonical::to_string(self)?.as_bytes()).to_string();
        Ok(hash.get(..16).unwrap_or(&hash).to_owned())
    }
}

impl Cassette {
    /// Writes it into `folder`, behind earlier answers to the same request.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let name = self.request.name()?;
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let mut number = 1_u32;
        loop {
            let path = folder.join(format!("{}-{name}-{number:04}.json", self.provider));
            match fs::File::create_new(path) {
                Ok(mut file) => return file.write_all(text.as_bytes()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Chunk {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(BASE64_STANDARD.encode(bytes)),
        }
    }

    /// Returns the bytes.
    ///
    /// # Errors
    /// When the base64 is none.
    pub(crate) fn bytes(&self) -> Result<Bytes, base64::DecodeError> {
        Ok(match self {
            Self::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            Self::Base64(text) => BASE64_STANDARD.decode(text)?.into(),
        })
    }
}

/// Takes the secrets out of a body, and keeps where it was cut as far as no secret lies across a cut.
pub(crate) fn scrubbed(chunks: &[Bytes], scrub: impl Fn(&str) -> String) -> Vec<Chunk> {
    let whole = chunks.concat();
    let text = String::from_utf8_lossy(&whole);
    let clean = scrub(&text);
    if clean == text {
        return chunks.iter().map(|chunk| Chunk::of(chunk)).collect();
    }
    let pieces: Option<Vec<String>> =
        chunks.iter().map(|chunk| std::str::from_utf8(chunk).ok().map(&scrub)).collect();
    match pieces.filter(|pieces| pieces.concat() == clean) {
        Some(pieces) => pieces.into_iter().map(Chunk::Text).collect(),
        None => vec![Chunk::Text(clean)],
    }
}

/// Takes the secrets out of every text of a value, its keys included.
pub(crate) fn scrubbed_value(value: Value, scrub: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(scrub(&text)),
        Value::Array(values) => {
            values.into_iter().map(|value| scrubbed_value(value, scrub)).collect()
        }
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (scrub(&key), scrubbed_value(value, scrub)))
            .collect(),
        plain => plain,
    }
}

/// Takes out of every text of a value what is told behind a conversation: it differs from run to run, and says
/// nothing of what was asked.
pub(crate) fn without_tail(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_left(&text).to_owned()),
        Value::Array(values) => Value::Array(values.into_iter().map(without_tail).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(key, value)| (key, without_tail(value))).collect())
        }
        plain => plain,
    }
}

/// Returns the headers that are kept.
pub(crate) fn kept(headers: &HeaderMap, scrub: impl Fn(&str) -> String) -> Vec<(String, String)> {
    let kept = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str();
        (KEPT.contains(&name) || name.contains("ratelimit"))
            .then(|| Some((name.to_owned(), scrub(value.to_str().ok()?))))?
    });
    kept.collect()
}

/// Returns the headers as an answer has them; what cannot be one is left out.
pub(crate) fn headers(kept: &[(String, String)]) -> HeaderMap {
    let headers = kept.iter().filter_map(|(name, value)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    });
    headers.collect()
}

/// Where two requests differ: each place with what was recorded and what is asked.
pub(crate) fn differences(recorded: &Asked, asked: &Asked) -> Vec<String> {
    let mut found = Vec::new();
    if recorded.path != asked.path {
        found.push(told("the path", &recorded.path, &asked.path));
    }
    compare("", &recorded.body, &asked.body, &mut found);
    found
}

fn compare(place: &str, recorded: &Value, asked: &Value, found: &mut Vec<String>) {
    let below = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    };
    match (recorded, asked) {
        (Value::Object(before), Value::Object(now)) => {
            let added = now.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(added) {
                let (before, now) = (before.get(key), now.get(key));
                let null = &Value::Null;
                compare(&below(key), before.unwrap_or(null), now.unwrap_or(null), found);
            }
        }
        (Value::Array(before), Value::Array(now)) => {
            for at in 0..before.len().max(now.len()) {
                let null = &Value::Null;
                let (before, now) = (before.get(at).unwrap_or(null), now.get(at).unwrap_or(null));
                compare(&format!("{place}[{at}]"), before, now, found);
            }
        }
        (before, now) if before == now => {}
        (Value::String(before), Value::String(now)) => found.push(told(place, before, now)),
        (before, now) => found.push(told(place, &before.to_string(), &now.to_string())),
    }
}

/// Shows two texts from a little before where they part.
fn told(place: &str, recorded: &str, asked: &str) -> String {
    let same = recorded.bytes().zip(asked.bytes()).take_while(|(one, other)| one == other).count();
    let from = recorded.floor_char_boundary(same.saturating_sub(20));
    let cut = |text: &str| {
        let rest = text.get(text.ceil_char_boundary(from)..).unwrap_or_default();
        let head = formwork_protocols::text::head(rest, 80);
        let (before, behind) =
            (if from > 0 { "…" } else { "" }, if head.len() < rest.len() { "…" } else { "" });
        format!("{before}{head}{behind}")
    };
    format!("{place}: recorded {:?}, asked {:?}", cut(recorded), cut(asked))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hide(text: &str) -> String {
        text.replace("sk-1234", "[api key]")
    }

    #[test]
    fn a_secret_is_taken_out_wherever_the_body_was_cut() {
        let cut = |pieces: &[&str]| {
            let chunks: Vec<_> =
                pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
            scrubbed(&chunks, hide)
        };
        let text = |text: &str| Chunk::Text(text.to_owned());

        assert_eq!(cut(&["a", "b"]), [text("a"), text("b")]);
        assert_eq!(cut(&["a sk-1234", " b"]), [text("a [api key]"), text(" b")]);
        assert_eq!(cut(&["a sk-1", "234 b"]), [text("a [api key] b")]);
    }

    #[test]
    fn half_a_character_survives() {
        let (head, tail) = "é".as_bytes().split_at(1);
        let chunks = [Bytes::copy_from_slice(head), Bytes::copy_from_slice(tail)];

        let kept = scrubbed(&chunks, hide);

        let back: Vec<_> = kept.iter().map(|chunk| chunk.bytes().unwrap()).collect();
        assert_eq!(back, chunks);
    }

    #[test]
    fn what_differs_is_told_by_its_place() {
        let asked = |text: &str, more: Value| Asked {
            path: "/v1/chat".to_owned(),
            body: json!({ "messages": [{ "content": text }], "n": 1, "more": more }),
        };

        let before = asked("the same beginning of a long text, then one", json!(null));
        let now = asked("the same beginning of a long text, then two", json!([1]));

        assert_eq!(
            differences(&before, &now),
            [
                "messages[0].content: recorded \"…f a long text, then one\", asked \"…f a long text, then two\"",
                "more: recorded \"null\", asked \"[1]\"",
            ]
        );
        assert_eq!(differences(&now, &now), Vec::<String>::new());
    }
}
