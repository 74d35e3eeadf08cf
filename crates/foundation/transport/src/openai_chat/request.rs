//! A request as the wire wants it.

use std::borrow::Cow;

use formwork_protocols::{
    Message, ModelRequest, Part, ProviderFault, Role,
    message::{Arguments, ToolDefinition, ToolResult},
    model::ToolChoice,
};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use crate::{
    endpoint::{Endpoint, ProviderKind},
    fault::Fault,
    media::{self, Sent},
    tool_names::ToolNames,
    tool_schemas::offered,
    wire::{Outgoing, auth, join},
};

/// What changes least comes first, then the conversation, and last what may change from turn to turn: the provider's
/// cache holds what requests begin with.
#[derive(Debug, Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
}

#[derive(Debug, Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Debug, Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<'a> {
    None,
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
}

#[derive(Debug, Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Debug, Serialize)]
struct WireFunction<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

#[derive(Debug, Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: ToolFunction<'a>,
}

#[derive(Debug, Serialize)]
struct ToolFunction<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: Cow<'a, Value>,
}

/// Builds the request.
///
/// # Errors
/// When the key cannot be a header.
pub(crate) fn outgoing(
    endpoint: &Endpoint,
    base: &Url,
    request: &ModelRequest,
) -> Result<Outgoing, Fault> {
    let names = ToolNames::new(&request.tools);
    let body = serde_json::to_vec(&body(endpoint.kind, request, &names)).map_err(|error| {
        Fault::new(ProviderFault::Invalid, format!("the request cannot be written: {error}"))
    })?;
    let headers = auth(endpoint)?;
    Ok(Outgoing { url: join(&v1(base), "chat/completions"), headers, body: body.into(), names })
}

/// Returns the base with the usual `/v1` where it names no path at all.
pub(crate) fn v1(base: &Url) -> Cow<'_, Url> {
    if base.path().trim_matches('/').is_empty() {
        Cow::Owned(join(base, "v1"))
    } else {
        Cow::Borrowed(base)
    }
}

fn body<'a>(kind: ProviderKind, request: &'a ModelRequest, names: &'a ToolNames) -> Body<'a> {
    // OpenAI's reasoning models refuse the old name; the servers of others know only that one.
    let (max_tokens, max_completion_tokens) = match kind {
        ProviderKind::OpenAi => (None, request.max_output_tokens),
        _ => (request.max_output_tokens, None),
    };
    Body {
        model: request.model.as_str(),
        messages: with_tail(messages(&request.messages, names), request.tail.as_deref()),
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        tools: offered(&request.tools)
            .map(|(tool, parameters)| self::tool(tool, parameters, names))
            .collect(),
        tool_choice: tool_choice(request, names),
        max_tokens,
        max_completion_tokens,
        temperature: request.temperature,
        seed: request.seed,
        response_format: request.output_schema.as_ref().map(|(name, schema)| {
            json!({ "type": "json_schema", "json_schema": { "name": name, "schema": schema } })
        }),
    }
}

fn tool<'a>(
    tool: &'a ToolDefinition,
    parameters: Cow<'a, Value>,
    names: &'a ToolNames,
) -> WireTool<'a> {
    WireTool {
        r#type: "function",
        function: ToolFunction {
            name: names.to_wire(tool.name.as_str()),
            description: &tool.description,
            parameters,
        },
    }
}

fn tool_choice(request: &ModelRequest, names: &ToolNames) -> Option<Value> {
    if request.tools.is_empty() {
        return None; // Servers refuse a choice among no tools.
    }
    match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Named(name) => Some(json!({
            "type": "function",
            "function": { "name": names.to_wire(name.as_str()) },
        })),
    }
}

fn messages<'a>(messages: &'a [Message], names: &'a ToolNames) -> Vec<WireMessage<'a>> {
    let mut wire = Vec::with_capacity(messages.len());
    let leading = messages.iter().take_while(|message| message.role == Role::System).count();
    let (system, rest) = messages.split_at(leading);
    // The templates of many local models know one system message, at the start.
    let system: Vec<_> =
        system.iter().map(Message::to_text).filter(|text| !text.is_empty()).collect();
    if !system.is_empty() {
        wire.push(plain("system", Content::Text(system.join("\n\n").into())));
    }
    for message in rest {
        match message.role {
            Role::System => wire.push(plain("system", Content::Text(message.to_text().into()))),
            Role::User => wire.push(plain("user", content(&message.parts))),
            Role::Assistant => wire.push(assistant(message, names)),
            Role::Tool => {}
        }
        let mut shown = Vec::new();
        for part in &message.parts {
            let Part::ToolResult(result) = part else { continue };
            wire.push(WireMessage {
                tool_call_id: Some(&result.call_id),
                ..plain("tool", Content::Text(result_text(&result.content, result.is_error)))
            });
            shown.extend(shown_by(result, names).map(|shown| match shown {
                Shown::Text(text) => json!({ "type": "text", "text": text }),
                Shown::Image(image) => image_url(&image),
            }));
        }
        // A result is text on this wire, and no result may be missing before anything else is said.
        if !shown.is_empty() {
            wire.push(plain("user", Content::Parts(shown)));
        }
    }
    wire
}

/// What stands in a message behind results, on wires whose results are text.
pub(crate) enum Shown<'a> {
    Text(String),
    Image(Sent<'a>),
}

/// Yields the pictures of a result, each behind a line that says whose it is.
pub(crate) fn shown_by<'a>(
    result: &'a ToolResult,
    names: &'a ToolNames,
) -> impl Iterator<Item = Shown<'a>> {
    result.attached.iter().flat_map(move |attachment| {
        let name = names.to_wire(&result.name);
        let text = format!("[{}, from the result of {name}:]", attachment.name);
        [Shown::Text(text), Shown::Image(media::attached(attachment))]
    })
}

fn image_url(image: &Sent<'_>) -> Value {
    json!({ "type": "image_url", "image_url": { "url": image.url() } })
}

/// Adds what stands behind the conversation: to its last message, because the templates of many local models
/// want the roles to alternate.
fn with_tail<'a>(mut wire: Vec<WireMessage<'a>>, tail: Option<&str>) -> Vec<WireMessage<'a>> {
    let Some(tail) = tail else { return wire };
    let is_heard = |message: &&mut WireMessage<'_>| matches!(message.role, "user" | "tool");
    match wire.last_mut().filter(is_heard).map(|last| &mut last.content) {
        Some(Content::Text(text)) => *text = format!("{text}\n\n{tail}").into(),
        Some(Content::Parts(parts)) => parts.push(json!({ "type": "text", "text": tail })),
        Some(Content::None) | None => {
            wire.push(plain("user", Content::Text(tail.to_owned().into())));
        }
    }
    wire
}

const fn plain<'a>(role: &'static str, content: Content<'a>) -> WireMessage<'a> {
    WireMessage { role, content, tool_calls: Vec::new(), tool_call_id: None }
}

/// Returns a result's text. The wire has no mark for a failure, so that it must not look like an empty success.
pub(crate) fn result_text(content: &str, is_error: bool) -> Cow<'_, str> {
    let says_so = content.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("error"));
    if is_error && !says_so { format!("error: {content}").into() } else { content.into() }
}

fn assistant<'a>(message: &'a Message, names: &'a ToolNames) -> WireMessage<'a> {
    let calls = message.tool_calls().map(|call| WireCall {
        id: &call.id,
        r#type: "function",
        function: WireFunction {
            name: names.to_wire(&call.name),
            arguments: match &call.arguments {
                Arguments::Json(value) => value.to_string(),
                // Chat templates parse the arguments of the history, so that they must be JSON.
                Arguments::Malformed { text, .. } => {
                    json!({ "malformed_arguments": text }).to_string()
                }
            },
        },
    });
    let tool_calls: Vec<_> = calls.collect();
    let text = message.to_text();
    let content = if text.is_empty() && !tool_calls.is_empty() {
        Content::None
    } else {
        Content::Text(text.into())
    };
    WireMessage { tool_calls, ..plain("assistant", content) }
}

fn content(parts: &[Part]) -> Content<'_> {
    if let [Part::Text { text }] = parts {
        return Content::Text(text.into());
    }
    let parts = parts.iter().filter_map(|part| match (part, media::sent(part)) {
        (Part::Text { text }, _) => Some(json!({ "type": "text", "text": text })),
        (_, Some(image)) if image.is_image => Some(image_url(&image)),
        (_, Some(document)) => Some(json!({
            "type": "file",
            "file": {
                "filename": document.name.unwrap_or("document"),
                "file_data": document.url(),
            },
        })),
        _ => None,
    });
    Content::Parts(parts.collect())
}

#[cfg(test)]
mod tests;
