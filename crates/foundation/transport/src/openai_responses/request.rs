//! A request as the wire wants it.

use formwork_protocols::{
    Message, ModelRequest, Part, ProviderFault, Role,
    message::{Arguments, Provenance, ToolCall, ToolResult},
    model::ToolChoice,
};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use crate::{
    call_ids::CallIds,
    endpoint::Endpoint,
    fault::Fault,
    media::{self, Sent},
    openai_chat::{result_text, v1},
    tool_names::ToolNames,
    tool_schemas::offered,
    wire::{Outgoing, auth, join},
};

/// The longest id of a call.
const ID_LENGTH: usize = 64;

/// The first letters of OpenAI's models that do not reason, and refuse to be asked for it.
const WITHOUT_REASONING: [&str; 3] = ["gpt-3", "gpt-4", "chatgpt"];

/// What changes least comes first and the conversation last: the provider's cache holds what requests begin with.
#[derive(Debug, Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    /// The conversation is Formwork's to keep.
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    input: Vec<Value>,
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
    let author = Provenance { provider: endpoint.name.clone(), model: request.model.clone() };
    let body = serde_json::to_vec(&body(request, &names, &author)).map_err(|error| {
        Fault::new(ProviderFault::Invalid, format!("the request cannot be written: {error}"))
    })?;
    let headers = auth(endpoint)?;
    Ok(Outgoing { url: join(&v1(base), "responses"), headers, body: body.into(), names })
}

fn body<'a>(request: &'a ModelRequest, names: &ToolNames, author: &Provenance) -> Body<'a> {
    let model = request.model.as_str();
    let reasons = !WITHOUT_REASONING.iter().any(|start| model.starts_with(start));
    let leading = request.messages.iter().take_while(|said| said.role == Role::System).count();
    let (system, rest) = request.messages.split_at(leading);
    let system: Vec<_> =
        system.iter().map(Message::to_text).filter(|text| !text.is_empty()).collect();
    let tools = offered(&request.tools).map(|(tool, parameters)| {
        json!({
            "type": "function",
            "name": names.to_wire(tool.name.as_str()),
            "description": tool.description,
            "parameters": parameters,
            // The wire's default would refuse every schema with an optional key.
            "strict": false,
        })
    });
    Body {
        model,
        stream: true,
        store: false,
        include: if reasons { &["reasoning.encrypted_content"] } else { &[] },
        max_output_tokens: request.max_output_tokens,
        temperature: request.temperature,
        text: request.output_schema.as_ref().map(|(name, schema)| {
            json!({ "format": { "type": "json_schema", "name": name, "schema": schema } })
        }),
        tool_choice: tool_choice(request, names),
        tools: tools.collect(),
        instructions: (!system.is_empty()).then(|| system.join("\n\n")),
        input: {
            let mut items = input(rest, names, author);
            items.extend(request.tail.iter().map(|tail| json!({ "role": "user", "content": tail })));
            items
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
        ToolChoice::Named(name) => {
            Some(json!({ "type": "function", "name": names.to_wire(name.as_str()) }))
        }
    }
}

fn input(messages: &[Message], names: &ToolNames, author: &Provenance) -> Vec<Value> {
    let mut ids = CallIds::new(ID_LENGTH);
    let mut items = Vec::with_capacity(messages.len());
    for message in messages {
        match message.role {
            Role::System => {
                items.push(json!({ "role": "system", "content": message.to_text() }));
            }
            Role::User => items.push(json!({ "role": "user", "content": content(&message.parts) })),
            Role::Assistant => assistant(message, names, author, &mut ids, &mut items),
            Role::Tool => {}
        }
        items.extend(message.parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(json!({
                "type": "function_call_output",
                "call_id": ids.result(&result.call_id),
                "output": output(result),
            })),
            _ => None,
        }));
    }
    items
}

/// Returns a result: its text, with its pictures behind it where it has any.
fn output(result: &ToolResult) -> Value {
    let text = result_text(&result.content, result.is_error);
    if result.attached.is_empty() {
        return Value::from(text);
    }
    let text = json!({ "type": "input_text", "text": text });
    let images = result.attached.iter().map(|attachment| shown(&media::attached(attachment)));
    std::iter::once(text).chain(images).collect()
}

/// Returns an image or a document as the wire wants it.
fn shown(sent: &Sent<'_>) -> Value {
    match sent.is_image {
        true => json!({ "type": "input_image", "image_url": sent.url() }),
        false => json!({
            "type": "input_file",
            "filename": sent.name.unwrap_or("document"),
            "file_data": sent.url(),
        }),
    }
}

fn assistant(
    message: &Message,
    names: &ToolNames,
    author: &Provenance,
    ids: &mut CallIds,
    items: &mut Vec<Value>,
) {
    // Reasoning waits for what it led to: the wire refuses it alone.
    let mut waiting = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.is_empty() => {
                items.append(&mut waiting);
                items.push(json!({
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{ "type": "output_text", "text": text, "annotations": [] }],
                }));
            }
            Part::ToolCall(call) => {
                items.append(&mut waiting);
                items.push(function_call(call, names, ids));
            }
            Part::Reasoning(reasoning) if reasoning.provenance == *author => {
                let item = reasoning.signature.as_deref().map(serde_json::from_str::<Value>);
                waiting.extend(
                    item.and_then(Result::ok)
                        .filter(|item| item.get("type").is_some_and(|kind| kind == "reasoning"))
                        .map(with_summary),
                );
            }
            _ => {}
        }
    }
}

/// Returns the item with the summary that the wire wants, be it an empty one.
fn with_summary(mut item: Value) -> Value {
    if let Some(item) = item.as_object_mut() {
        item.entry("summary").or_insert_with(|| json!([]));
    }
    item
}

fn function_call(call: &ToolCall, names: &ToolNames, ids: &mut CallIds) -> Value {
    let arguments = match &call.arguments {
        Arguments::Json(value) => value.to_string(),
        // Servers parse the arguments of the history, so that they must be JSON.
        Arguments::Malformed { text, .. } => json!({ "malformed_arguments": text }).to_string(),
    };
    json!({
        "type": "function_call",
        "call_id": ids.call(&call.id),
        "name": names.to_wire(&call.name),
        "arguments": arguments,
    })
}

fn content(parts: &[Part]) -> Value {
    if let [Part::Text { text }] = parts {
        return Value::from(text.as_str());
    }
    let parts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({ "type": "input_text", "text": text })),
        part => media::sent(part).map(|sent| shown(&sent)),
    });
    parts.collect()
}

#[cfg(test)]
mod tests;
