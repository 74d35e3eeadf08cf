//! One model of a conversation for every provider.

use std::{fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    event::BlobHash,
    id::{ModelName, ProviderName, ToolName},
};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The rules and the frame of the conversation.
    System,
    /// A person, or the runtime in a person's place.
    User,
    /// The model.
    Assistant,
    /// The results of the tool calls of the assistant message before.
    Tool,
}

/// One message: who speaks, and the parts of what is said, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
}

impl Message {
    /// Returns a message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text { text: text.into() }] }
    }

    /// Returns the tool calls in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    /// Returns all its text, one part after the other.
    pub fn to_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// Yields the images and documents that it refers to, those of its results among them.
    pub fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.parts.iter().flat_map(|part| match part {
            Part::Attached(attachment) => std::slice::from_ref(attachment),
            Part::ToolResult(result) => result.attached.as_slice(),
            _ => &[],
        })
    }

    /// The same, to be changed.
    pub fn attachments_mut(&mut self) -> impl Iterator<Item = &mut Attachment> {
        self.parts.iter_mut().flat_map(|part| match part {
            Part::Attached(attachment) => std::slice::from_mut(attachment),
            Part::ToolResult(result) => result.attached.as_mut_slice(),
            _ => &mut [],
        })
    }

    /// Puts a line in the place of each image and document that `why` has a reason against. Returns how many there were.
    pub fn mask(&mut self, why: &dyn Fn(&Attachment) -> Option<String>) -> u32 {
        let mut masked = 0;
        for part in &mut self.parts {
            match part {
                Part::Attached(attachment) => {
                    if let Some(why) = why(attachment) {
                        let text = format!("\n\n{}", attachment.unseen(&why));
                        *part = Part::Text { text };
                        masked += 1;
                    }
                }
                Part::ToolResult(result) => masked += result.mask(why),
                _ => {}
            }
        }
        masked
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum Part {
    /// Text.
    Text { text: String },
    /// An image, by its media type and base64 of its bytes.
    Image { media_type: String, data: String },
    /// A document, by its media type, base64 of its bytes and its name.
    Document { media_type: String, data: String, name: Option<String> },
    /// An image or a document that is kept under its hash. Whoever sends the message puts the bytes in first.
    Attached(Attachment),
    /// What the model wants done. Only in assistant messages.
    ToolCall(ToolCall),
    /// What came of a tool call. Only in tool messages.
    ToolResult(ToolResult),
    /// What the model thought. Only in assistant messages, and only shown to the model that signed it.
    Reasoning(Reasoning),
}

/// An image or a document that is kept once, under the hash of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// Its bytes, by their hash.
    pub blob: BlobHash,
    /// What it is, by what stands in it.
    pub media_type: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// Width and height in pixels, of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<(u32, u32)>,
    /// What it is called: a path, or what a tool says of it.
    pub name: String,
    /// Its bytes themselves, while a request is on its way. They are no part of what is recorded.
    #[serde(skip)]
    #[schemars(skip)]
    pub content: Option<Arc<[u8]>>,
}

impl Attachment {
    /// Tells whether it is an image.
    pub fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    /// Returns the line that stands for it where it is not shown.
    pub fn unseen(&self, why: &str) -> String {
        format!("[{} is not shown to you: {why}]", self.name)
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.media_type)?;
        if let Some((width, height)) = self.pixels {
            write!(f, ", {width} × {height} pixels")?;
        }
        write!(f, ", {} bytes", self.bytes)
    }
}

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// The id by which its result is paired; the provider's, or made where it gave none.
    pub id: String,
    /// The tool's name as the model wrote it, not yet known to exist.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
}

/// The arguments of a call: a value, or the text that would not parse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    /// They parsed: a JSON object; no arguments are an empty one.
    Json(Value),
    /// They did not: the raw text and what is wrong with it. Such a call is never executed.
    #[expect(missing_docs, reason = "the sentence above names them")]
    Malformed { text: String, error: String },
}

/// What came of a tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The text: the whole output, or a preview that says where the rest is.
    pub content: String,
    /// Whether the call failed or was refused.
    pub is_error: bool,
    /// The pictures that it shows besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<Attachment>,
}

impl ToolResult {
    /// Puts a line in the place of each picture that `why` has a reason against. Returns how many there were.
    pub fn mask(&mut self, why: &dyn Fn(&Attachment) -> Option<String>) -> u32 {
        let mut masked = 0;
        let content = &mut self.content;
        self.attached.retain(|attachment| {
            let Some(why) = why(attachment) else { return true };
            content.push('\n');
            content.push_str(&attachment.unseen(&why));
            masked += 1;
            false
        });
        masked
    }
}

/// A block of reasoning and who can vouch for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reasoning {
    /// The text, as far as the provider shows it.
    pub text: String,
    /// The provider's signature or encrypted form, which must go back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Whether the provider withheld the text and gave only its encrypted form.
    #[serde(default)]
    pub redacted: bool,
    /// The model that made it.
    pub provenance: Provenance,
}

/// The provider and model that an answer came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its fields")]
pub struct Provenance {
    pub provider: ProviderName,
    pub model: ModelName,
}

/// A tool as it is offered to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolDefinition {
    /// Its name.
    pub name: ToolName,
    /// What it does, in the imperative, for the model.
    pub description: String,
    /// The JSON Schema of its arguments, an object.
    pub parameters: Value,
}
