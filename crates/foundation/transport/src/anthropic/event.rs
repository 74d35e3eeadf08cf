//! Events and messages as they stand on the wire.

use serde::{
    Deserialize,
    de::{IgnoredAny, MapAccess},
};
use serde_json::value::RawValue;

use crate::borrowed::{Few, Fields, Fill, FillFew, Str, count, skip};

#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) kind: Option<Str<'a>>,
    pub(super) index: Option<i64>,
    /// A [`Message`], which one event of an answer has.
    pub(super) message: Option<&'a RawValue>,
    /// A block that begins, or what one grows by.
    pub(super) block: Block<'a>,
    pub(super) usage: Option<Counts>,
    pub(super) error: Option<IgnoredAny>,
}

impl<'de> Fields<'de> for Event<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "index" => self.index = map.next_value()?,
            "message" => self.message = map.next_value()?,
            "delta" | "content_block" => {
                map.next_value_seed(Fill(&mut self.block))?;
            }
            "usage" => self.usage = map.next_value()?,
            "error" => self.error = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// A whole message, and the empty one with which a stream begins.
#[derive(Debug, Default)]
pub(super) struct Message<'a> {
    pub(super) kind: Option<Str<'a>>,
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) content: Few<Block<'a>>,
    pub(super) stop_reason: Option<Str<'a>>,
    pub(super) usage: Option<Counts>,
    pub(super) error: Option<IgnoredAny>,
}

impl<'de> Fields<'de> for Message<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "id" => self.id = map.next_value()?,
            "model" => self.model = map.next_value()?,
            "content" => map.next_value_seed(FillFew(&mut self.content))?,
            "stop_reason" => self.stop_reason = map.next_value()?,
            "usage" => self.usage = map.next_value()?,
            "error" => self.error = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

/// A block that begins, what one grows by, or a whole one, as its kind says; in the last delta of a message, why it ended.
#[derive(Debug, Default)]
pub(super) struct Block<'a> {
    pub(super) kind: Option<Str<'a>>,
    pub(super) text: Option<Str<'a>>,
    pub(super) thinking: Option<Str<'a>>,
    pub(super) signature: Option<Str<'a>>,
    /// The encrypted form of reasoning that is withheld.
    pub(super) data: Option<Str<'a>>,
    pub(super) id: Option<Str<'a>>,
    pub(super) name: Option<Str<'a>>,
    pub(super) input: Option<&'a RawValue>,
    pub(super) partial_json: Option<Str<'a>>,
    pub(super) stop_reason: Option<Str<'a>>,
}

impl Block<'_> {
    /// Tells whether it is what text or reasoning grows by, and no more.
    pub(super) fn is_words(&self) -> bool {
        matches!(self.kind.as_deref(), Some("text_delta" | "thinking_delta"))
    }
}

impl<'de> Fields<'de> for Block<'de> {
    #[inline]
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "text" => self.text = map.next_value()?,
            "thinking" => self.thinking = map.next_value()?,
            "signature" => self.signature = map.next_value()?,
            "data" => self.data = map.next_value()?,
            "id" => self.id = map.next_value()?,
            "name" => self.name = map.next_value()?,
            "input" => self.input = map.next_value()?,
            "partial_json" => self.partial_json = map.next_value()?,
            "stop_reason" => self.stop_reason = map.next_value()?,
            _ => skip(map)?,
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Counts {
    #[serde(default, deserialize_with = "count")]
    pub(super) input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    pub(super) output_tokens: Option<u64>,
    #[serde(default)]
    pub(super) output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct OutputDetails {
    #[serde(default, deserialize_with = "count")]
    pub(super) thinking_tokens: Option<u64>,
}
