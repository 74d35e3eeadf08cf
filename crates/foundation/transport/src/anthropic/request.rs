//! A request as the wire wants it, with the places from which the provider's cache is to hold.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use formwork_protocols::{
    Message, ModelRequest, Part, ProviderFault, Role,
    message::{Arguments, Provenance, ToolCall, ToolResult},
    model::ToolChoice,
};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use super::schema::closed;
use crate::{
    call_ids::CallIds,
    endpoint::Endpoint,
    fault::Fault,
    media::{self, Sent},
    openai_chat::v1,
    tool_names::ToolNames,
    tool_schemas::offered,
    wire::{Outgoing, auth, join},
};

/// What may be answered where the caller sets no limit: the wire wants one, and every current model allows this.
const MAX_TOKENS: u32 = 8_192;

/// The longest id of a call.
const ID_LENGTH: usize = 64;

/// How many user messages lie between two fixed places of the cache. The provider looks back 20 blocks from a place
/// for what it holds already, so that the moving places alone would lose a history after a few parallel calls.
const STRIDE: usize = 8;

/// The order of the fields is the order in which the cache is keyed: what changes least comes first, then the messages,
/// so that a turn's request begins with the bytes of the one before. How long the answer may be changes where the
/// window is nearly full.
#[derive(Debug, Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Value>,
    messages: Vec<Group>,
    max_tokens: u32,
}

/// Messages of one role in a row, which the wire wants as one.
#[derive(Debug, Serialize)]
struct Group {
    role: &'static str,
    content: Vec<Value>,
}

/// Builds the request.
///
/// # Errors
/// When the key cannot be a header, and when a document is of a kind that the wire cannot carry.
pub(crate) fn outgoing(
    endpoint: &Endpoint,
    base: &Url,
    request: &ModelRequest,
) -> Result<Outgoing, Fault> {
    let names = ToolNames::new(&request.tools);
    let author = Provenance { provider: endpoint.name.clone(), model: request.model.clone() };
    let body = serde_json::to_vec(&body(request, &names, &author)?).map_err(|error| {
        Fault::new(ProviderFault::Invalid, format!("the request cannot be written: {error}"))
    })?;
    let headers = auth(endpoint)?;
    Ok(Outgoing { url: join(&v1(base), "messages"), headers, body: body.into(), names })
}

fn body<'a>(
    request: &'a ModelRequest,
    names: &ToolNames,
    author: &Provenance,
) -> Result<Body<'a>, Fault> {
    let leading = request.messages.iter().take_while(|said| said.role == Role::System).count();
    let (system, rest) = request.messages.split_at(leading);
    let system = system.iter().map(Message::to_text).filter(|text| !text.trim().is_empty());
    let mut system: Vec<_> = system.map(text).collect();
    let tools = offered(&request.tools).map(|(tool, parameters)| {
        json!({
            "name": names.to_wire(tool.name.as_str()),
            "description": tool.description,
            "input_schema": parameters,
        })
    });
    let mut tools: Vec<_> = tools.collect();
    // Tools stand before the system texts, so that one place holds both.
    if let Some(last) = system.last_mut().or(tools.last_mut()) {
        keep(last);
    }
    let mut messages = groups(rest, names, author)?;
    keep_turns(&mut messages);
    if let Some(tail) = &request.tail {
        // Behind the last mark, so that the cache does not hold it.
        match messages.last_mut().filter(|group| group.role == "user") {
            Some(last) => last.content.push(text(tail)),
            None => messages.push(Group { role: "user", content: vec![text(tail)] }),
        }
    }
    Ok(Body {
        model: request.model.as_str(),
        stream: true,
        max_tokens: request.max_output_tokens.unwrap_or(MAX_TOKENS),
        temperature: request.temperature,
        output_config: request.output_schema.as_ref().map(
            |(_, schema)| json!({ "format": { "type": "json_schema", "schema": closed(schema) } }),
        ),
        tool_choice: tool_choice(request, names),
        tools,
        system,
        messages,
    })
}

fn tool_choice(request: &ModelRequest, names: &ToolNames) -> Option<Value> {
    if request.tools.is_empty() {
        return None; // Servers refuse a choice among no tools.
    }
    match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Required => Some(json!({ "type": "any" })),
        ToolChoice::None => Some(json!({ "type": "none" })),
        ToolChoice::Named(name) => {
            Some(json!({ "type": "tool", "name": names.to_wire(name.as_str()) }))
        }
    }
}

fn text(text: impl AsRef<str>) -> Value {
    json!({ "type": "text", "text": text.as_ref() })
}

/// Marks a block as one up to which the cache is to hold.
fn keep(block: &mut Value) {
    if let Some(block) = block.as_object_mut() {
        block.insert("cache_control".to_owned(), json!({ "type": "ephemeral" }));
    }
}

/// Marks the last user message, where this turn's cache is written; the one before, where the last turn's was; and one
/// that stays where it is for several turns. With the system's that is four, the most that the wire allows.
fn keep_turns(messages: &mut [Group]) {
    let users: Vec<_> = messages.iter_mut().filter(|group| group.role == "user").collect();
    let Some(last) = users.len().checked_sub(1) else { return };
    let fixed = last / STRIDE * STRIDE;
    let kept = BTreeSet::from([last, last.saturating_sub(1), fixed]);
    for (place, group) in users.into_iter().enumerate() {
        if kept.contains(&place)
            && let Some(block) = group.content.last_mut()
        {
            keep(block);
        }
    }
}

fn groups(
    messages: &[Message],
    names: &ToolNames,
    author: &Provenance,
) -> Result<Vec<Group>, Fault> {
    let mut ids = CallIds::new(ID_LENGTH);
    let mut groups: Vec<Group> = Vec::with_capacity(messages.len());
    for message in messages {
        let (role, blocks) = match message.role {
            Role::Assistant => ("assistant", assistant(message, names, author, &mut ids)),
            // The wire knows no system message among the turns.
            Role::System | Role::User | Role::Tool => ("user", user(message, &ids)?),
        };
        if blocks.is_empty() {
            continue; // The wire refuses a message without content.
        }
        match groups.last_mut() {
            Some(group) if group.role == role => group.content.extend(blocks),
            _ => groups.push(Group { role, content: blocks }),
        }
    }
    for group in &mut groups {
        // Results come first in the message after their calls, or the wire takes them for missing.
        group.content.sort_by_key(|block| {
            group.role == "user" && block.get("type") != Some(&Value::from("tool_result"))
        });
    }
    Ok(groups)
}

fn assistant(
    message: &Message,
    names: &ToolNames,
    author: &Provenance,
    ids: &mut CallIds,
) -> Vec<Value> {
    let blocks = message.parts.iter().filter_map(|part| match part {
        Part::Text { text: said } => (!said.trim().is_empty()).then(|| text(said)),
        Part::ToolCall(call) => Some(tool_use(call, names, ids)),
        // Reasoning goes back unchanged to the model that signed it, and to no other.
        Part::Reasoning(reasoning) if reasoning.provenance == *author => {
            let signature = reasoning.signature.as_ref()?;
            Some(if reasoning.redacted {
                json!({ "type": "redacted_thinking", "data": signature })
            } else {
                json!({ "type": "thinking", "thinking": reasoning.text, "signature": signature })
            })
        }
        _ => None,
    });
    blocks.collect()
}

fn tool_use(call: &ToolCall, names: &ToolNames, ids: &mut CallIds) -> Value {
    let input = match &call.arguments {
        Arguments::Json(input) => input.clone(),
        // The wire takes objects only.
        Arguments::Malformed { text, .. } => json!({ "malformed_arguments": text }),
    };
    json!({
        "type": "tool_use",
        "id": ids.call(&call.id),
        "name": names.to_wire(&call.name),
        "input": input,
    })
}

fn user(message: &Message, ids: &CallIds) -> Result<Vec<Value>, Fault> {
    let mut blocks = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        match part {
            Part::Text { text: said } if !said.trim().is_empty() => blocks.push(text(said)),
            Part::ToolResult(result) => {
                let mut block = json!({
                    "type": "tool_result",
                    "tool_use_id": ids.result(&result.call_id),
                    "content": content(result),
                });
                if result.is_error
                    && let Some(block) = block.as_object_mut()
                {
                    block.insert("is_error".to_owned(), Value::Bool(true));
                }
                blocks.push(block);
            }
            part => blocks.extend(media::sent(part).map(|sent| shown(&sent)).transpose()?),
        }
    }
    Ok(blocks)
}

/// Returns what a result says: its text, with its pictures behind it where it has any.
fn content(result: &ToolResult) -> Value {
    if result.attached.is_empty() {
        return Value::from(result.content.as_str());
    }
    let words = (!result.content.trim().is_empty()).then(|| text(&result.content));
    let images = result.attached.iter().map(|attachment| image(&media::attached(attachment)));
    words.into_iter().chain(images).collect()
}

fn shown(sent: &Sent<'_>) -> Result<Value, Fault> {
    match sent.is_image {
        true => Ok(image(sent)),
        false => document(sent.media_type, &sent.data, sent.name),
    }
}

fn image(sent: &Sent<'_>) -> Value {
    json!({
        "type": "image",
        "source": { "type": "base64", "media_type": sent.media_type, "data": sent.data },
    })
}

fn document(media_type: &str, data: &str, name: Option<&str>) -> Result<Value, Fault> {
    let name = name.unwrap_or("document");
    let invalid = |reason: String| {
        Fault::new(ProviderFault::Invalid, format!("document {name:?} cannot be sent: {reason}"))
    };
    let source = if media_type == "application/pdf" {
        json!({ "type": "base64", "media_type": media_type, "data": data })
    } else if media_type.starts_with("text/") || media_type == "application/json" {
        let bytes = BASE64_STANDARD.decode(data);
        let bytes = bytes.map_err(|error| invalid(format!("it is not base64: {error}")))?;
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| invalid("it is not text in UTF-8".to_owned()))?;
        json!({ "type": "text", "media_type": "text/plain", "data": text })
    } else {
        return Err(invalid(format!("expected a PDF or a text, found {media_type}")));
    };
    Ok(json!({ "type": "document", "source": source, "title": name }))
}

#[cfg(test)]
mod tests;
