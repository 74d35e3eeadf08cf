//! A chunk as it stands on the wire, borrowed from it as far as its texts have no escapes.
//!
//! Nearly all of the work of a stream is reading these, so nothing is read that is not used, and nothing into a tree.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// A chunk of a stream, and a whole answer too, which differs in one key.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow, default)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) object: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) model: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    #[serde(default)]
    pub(super) usage: Option<Counts>,
    #[serde(default)]
    pub(super) timings: Option<Timings>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub(super) index: Option<i64>,
    #[serde(borrow, default, alias = "message")]
    pub(super) delta: Option<ChoiceDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChoiceDelta<'a> {
    #[serde(borrow, default)]
    pub(super) content: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) refusal: Option<Text<'a>>,
    /// Reasoning as DeepSeek and llama.cpp name it.
    #[serde(borrow, default)]
    pub(super) reasoning_content: Option<Text<'a>>,
    /// Reasoning as OpenRouter and vLLM name it.
    #[serde(borrow, default)]
    pub(super) reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
    /// One call as it was written before there were several.
    #[serde(borrow, default)]
    pub(super) function_call: Option<Function<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallDelta<'a> {
    #[serde(default)]
    pub(super) index: Option<i64>,
    #[serde(borrow, default)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    pub(super) name: Option<Text<'a>>,
    /// A text that holds JSON, or the JSON itself, or null.
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Counts {
    #[serde(default)]
    pub(super) prompt_tokens: Option<u64>,
    #[serde(default)]
    pub(super) completion_tokens: Option<u64>,
    #[serde(default)]
    pub(super) total_tokens: Option<u64>,
    /// Cached tokens as DeepSeek names them.
    #[serde(default)]
    pub(super) prompt_cache_hit_tokens: Option<u64>,
    #[serde(default)]
    pub(super) prompt_tokens_details: Option<InputDetails>,
    #[serde(default)]
    pub(super) completion_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct InputDetails {
    #[serde(default)]
    pub(super) cached_tokens: Option<u64>,
    /// As OpenRouter names it.
    #[serde(default)]
    pub(super) cache_write_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default)]
    pub(super) reasoning_tokens: Option<u64>,
}

/// What llama.cpp tells beside the counts, or in their place.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Timings {
    #[serde(default)]
    pub(super) cache_n: Option<u64>,
    #[serde(default)]
    pub(super) prompt_n: Option<u64>,
    #[serde(default)]
    pub(super) predicted_n: Option<u64>,
}

/// Returns the JSON text of arguments, whichever way they were sent.
pub(super) fn arguments_text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    match raw?.get() {
        "null" => None,
        text if text.starts_with('"') => {
            serde_json::from_str::<Text<'_>>(text).ok().map(|text| text.0)
        }
        json => Some(json.into()),
    }
}

/// A text, borrowed where it has no escapes; a list of parts is the text of all of them.
#[derive(Debug)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(text.to_owned().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Text<'de>, E> {
        Ok(Text(number.to_string().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Text<'de>, A::Error> {
        let mut text = String::new();
        while let Some(part) = parts.next_element::<TextPart<'de>>()? {
            text.push_str(part.text.as_ref().map_or("", Text::as_str));
        }
        Ok(Text(text.into()))
    }
}

#[derive(Deserialize)]
struct TextPart<'a> {
    #[serde(borrow, default)]
    text: Option<Text<'a>>,
}
