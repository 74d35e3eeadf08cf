//! A chunk as it stands on the wire, borrowed from it as far as its texts have no escapes.
//!
//! Nearly all of the work of a stream is reading these, so nothing is read that is not used, and nothing into a tree.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::borrowed::{Few, Fields, Fill, FillFew, count, skip};

/// A chunk of a stream, and a whole answer too, which differs in one key.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    pub(super) id: Option<Text<'a>>,
    pub(super) object: Option<Text<'a>>,
    pub(super) model: Option<Text<'a>>,
    pub(super) choices: Few<Choice<'a>>,
    pub(super) usage: Option<Counts>,
    pub(super) timings: Option<Timings>,
    pub(super) error: Option<IgnoredAny>,
}

impl<'de> Fields<'de> for Chunk<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "id" => self.id = map.next_value()?,
            "object" => self.object = map.next_value()?,
            "model" => self.model = map.next_value()?,
            "choices" => map.next_value_seed(FillFew(&mut self.choices))?,
            "usage" => self.usage = map.next_value()?,
            "timings" => self.timings = map.next_value()?,
            "error" => self.error = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<i64>,
    pub(super) delta: ChoiceDelta<'a>,
    pub(super) finish_reason: Option<Text<'a>>,
    pub(super) error: Option<&'a RawValue>,
}

impl<'de> Fields<'de> for Choice<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "index" => self.index = map.next_value()?,
            "delta" | "message" => {
                map.next_value_seed(Fill(&mut self.delta))?;
            }
            "finish_reason" => self.finish_reason = map.next_value()?,
            "error" => self.error = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(super) struct ChoiceDelta<'a> {
    pub(super) content: Option<Text<'a>>,
    pub(super) refusal: Option<Text<'a>>,
    pub(super) reasoning: Option<Text<'a>>,
    pub(super) tool_calls: Option<Vec<CallDelta<'a>>>,
    /// One call as it was written before there were several.
    pub(super) function_call: Option<Function<'a>>,
}

impl<'de> Fields<'de> for ChoiceDelta<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "content" => self.content = map.next_value()?,
            "refusal" => self.refusal = map.next_value()?,
            // As DeepSeek and llama.cpp name it, and before what OpenRouter and vLLM do.
            "reasoning_content" => {
                let told: Option<Text<'de>> = map.next_value()?;
                self.reasoning = told.or(self.reasoning.take());
            }
            "reasoning" => {
                let told: Option<Text<'de>> = map.next_value()?;
                self.reasoning = self.reasoning.take().or(told);
            }
            "tool_calls" => self.tool_calls = map.next_value()?,
            "function_call" => self.function_call = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
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
    #[serde(default, deserialize_with = "count")]
    pub(super) prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) total_tokens: Option<u64>,
    /// Cached tokens as DeepSeek names them.
    #[serde(default, deserialize_with = "count")]
    pub(super) prompt_cache_hit_tokens: Option<u64>,
    #[serde(default)]
    pub(super) prompt_tokens_details: Option<InputDetails>,
    #[serde(default)]
    pub(super) completion_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct InputDetails {
    #[serde(default, deserialize_with = "count")]
    pub(super) cached_tokens: Option<u64>,
    /// As OpenRouter names it.
    #[serde(default, deserialize_with = "count")]
    pub(super) cache_write_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default, deserialize_with = "count")]
    pub(super) reasoning_tokens: Option<u64>,
}

/// What llama.cpp tells beside the counts, or in their place.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Timings {
    #[serde(default, deserialize_with = "count")]
    pub(super) cache_n: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) prompt_n: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) predicted_n: Option<u64>,
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
