//! A request as the wire wants it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use formwork_protocols::{
    Message, ModelRequest, Part, ProviderFault, Role,
    message::{Arguments, Provenance},
    model::ToolChoice,
};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use crate::{
    call_ids::CallIds,
    endpoint::Endpoint,
    fault::Fault,
    media,
    openai_chat::{Shown, result_text, shown_by},
    tool_names::ToolNames,
    tool_schemas::offered,
    usage,
    wire::{Outgoing, auth, join},
};

/// The longest id of a call.
const ID_LENGTH: usize = 64;

/// The smallest window that is asked for; the server's own default would cut most conversations without a word.
const SMALLEST_WINDOW: u64 = 8_192;

/// Room for the answer where the caller sets no limit.
const ANSWER_TOKENS: u64 = 2_048;

#[derive(Debug, Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    options: Options,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'a Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    messages: Vec<WireMessage>,
}

#[derive(Debug, Serialize)]
struct Options {
    num_ctx: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct WireMessage {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

/// Builds the request.
///
/// # Errors
/// When the key cannot be a header, and when a document is no text, for the wire carries none.
pub(crate) fn outgoing(
    endpoint: &Endpoint,
    base: &Url,
    request: &ModelRequest,
) -> Result<Outgoing, Fault> {
    let names = ToolNames::new(&request.tools);
    let body = serde_json::to_vec(&body(endpoint, request, &names)?).map_err(|error| {
        Fault::new(ProviderFault::Invalid, format!("the request cannot be written: {error}"))
    })?;
    let headers = auth(endpoint)?;
    Ok(Outgoing { url: join(&root(base), "api/chat"), headers, body: body.into(), names })
}

/// Returns the base without the `/v1` under which the server speaks another wire.
pub(crate) fn root(base: &Url) -> Url {
    let mut root = base.clone();
    let path = base.path().trim_end_matches('/');
    root.set_path(path.strip_suffix("/v1").unwrap_or(path));
    root
}

/// Returns the window that a request needs. Powers of two, because a server loads the model anew for each size.
fn window(request: &ModelRequest) -> u64 {
    let answer = request.max_output_tokens.map_or(ANSWER_TOKENS, u64::from);
    let needed = usage::estimate_input(request).saturating_add(answer);
    needed.checked_next_power_of_two().unwrap_or(needed).max(SMALLEST_WINDOW)
}

fn body<'a>(
    endpoint: &Endpoint,
    request: &'a ModelRequest,
    names: &ToolNames,
) -> Result<Body<'a>, Fault> {
    // The wire has no choice of tools: what must not be called is not offered.
    let chosen = offered(&request.tools).filter(|(tool, _)| match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::Required => true,
        ToolChoice::Named(name) => tool.name == *name,
        ToolChoice::None => false,
    });
    let tools = chosen.map(|(tool, parameters)| {
        json!({
            "type": "function",
            "function": {
                "name": names.to_wire(tool.name.as_str()),
                "description": tool.description,
                "parameters": parameters,
            },
        })
    });
    let author = Provenance { provider: endpoint.name.clone(), model: request.model.clone() };
    Ok(Body {
        model: request.model.as_str(),
        stream: true,
        options: Options {
            num_ctx: endpoint.context_tokens.unwrap_or_else(|| window(request)),
            num_predict: request.max_output_tokens,
            temperature: request.temperature,
            seed: request.seed,
        },
        format: request.output_schema.as_ref().map(|(_, schema)| schema),
        tools: tools.collect(),
        messages: with_tail(messages(&request.messages, names, &author)?, request.tail.as_deref()),
    })
}

/// Adds what stands behind the conversation: to its last message, because templates want the roles to alternate.
fn with_tail(mut wire: Vec<WireMessage>, tail: Option<&str>) -> Vec<WireMessage> {
    let Some(tail) = tail else { return wire };
    match wire.last_mut().filter(|last| matches!(last.role, "user" | "tool")) {
        Some(last) => last.content = format!("{}\n\n{tail}", last.content),
        None => wire.push(WireMessage {
            role: "user",
            content: tail.to_owned(),
            ..WireMessage::default()
        }),
    }
    wire
}

fn messages(
    messages: &[Message],
    names: &ToolNames,
    author: &Provenance,
) -> Result<Vec<WireMessage>, Fault> {
    let mut ids = CallIds::new(ID_LENGTH);
    let mut wire = Vec::with_capacity(messages.len());
    for message in messages {
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let mut said = WireMessage { role, ..WireMessage::default() };
        let mut results = Vec::new();
        let mut shown = WireMessage { role: "user", ..WireMessage::default() };
        for part in &message.parts {
            match part {
                Part::Text { text } => said.content.push_str(text),
                // Nothing is signed on this wire; the model's own words are all that vouches for it.
                Part::Reasoning(reasoning) if reasoning.provenance == *author => {
                    said.thinking.push_str(&reasoning.text);
                }
                Part::ToolCall(call) => {
                    let arguments = match &call.arguments {
                        Arguments::Json(value) => value.clone(),
                        Arguments::Malformed { text, .. } => json!({ "malformed_arguments": text }),
                    };
                    let name = names.to_wire(&call.name);
                    said.tool_calls.push(json!({
                        "id": ids.call(&call.id),
                        "function": { "name": name, "arguments": arguments },
                    }));
                }
                Part::ToolResult(result) => {
                    results.push(WireMessage {
                        role: "tool",
                        content: result_text(&result.content, result.is_error).into_owned(),
                        tool_name: Some(names.to_wire(&result.name).into_owned()),
                        tool_call_id: Some(ids.result(&result.call_id)),
                        ..WireMessage::default()
                    });
                    for part in shown_by(result, names) {
                        match part {
                            Shown::Text(text) => shown.content.push_str(&text),
                            Shown::Image(image) => shown.images.push(image.data.into_owned()),
                        }
                    }
                }
                part => match media::sent(part) {
                    Some(image) if image.is_image => said.images.push(image.data.into_owned()),
                    Some(file) => {
                        let text = document(file.media_type, &file.data, file.name)?;
                        said.content.push_str(&text);
                    }
                    None => {}
                },
            }
        }
        wire.append(&mut results);
        // Templates know pictures of whoever speaks to the model, and of no tool.
        if !shown.images.is_empty() {
            wire.push(shown);
        }
        if message.role != Role::Tool {
            wire.push(said);
        }
    }
    Ok(wire)
}

fn document(media_type: &str, data: &str, name: Option<&str>) -> Result<String, Fault> {
    let name = name.unwrap_or("document");
    let invalid = |reason: String| {
        Fault::new(ProviderFault::Invalid, format!("document {name:?} cannot be sent: {reason}"))
    };
    if !media_type.starts_with("text/") && media_type != "application/json" {
        return Err(invalid(format!("expected a text, found {media_type}")));
    }
    let bytes = BASE64_STANDARD.decode(data);
    let bytes = bytes.map_err(|error| invalid(format!("it is not base64: {error}")))?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| invalid("it is not text in UTF-8".to_owned()))?;
    Ok(format!("\n\n{name}:\n{text}\n"))
}

#[cfg(test)]
mod tests;
