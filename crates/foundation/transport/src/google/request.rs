//! A request as the wire wants it.

use std::borrow::Cow;

use formwork_protocols::{
    Message, ModelRequest, Part, ProviderFault, Role,
    message::{Arguments, Provenance, Reasoning, ToolResult},
    model::ToolChoice,
};
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use super::schema::openapi;
use crate::{
    call_ids::CallIds,
    endpoint::Endpoint,
    fault::Fault,
    media::{self, Sent},
    tool_names::ToolNames,
    tool_schemas::offered,
    wire::{Outgoing, auth, join},
};

/// The longest id of a call.
const ID_LENGTH: usize = 64;

/// What Google has a client send in the place of a signature for a call that another model made.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The first letters of the models that want no signatures on calls, and know no pictures within results.
const OLDER: [&str; 3] = ["gemini-1", "gemini-2", "gemma"];

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<Value>,
    generation_config: Config,
    contents: Vec<Content>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_schema: Option<Value>,
}

/// Messages of one role in a row, which the wire wants as one.
#[derive(Debug, Serialize)]
struct Content {
    role: &'static str,
    parts: Vec<Value>,
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
    let model = request.model.as_str();
    let model = model.strip_prefix("models/").unwrap_or(model);
    let mut url = join(&v1beta(base), &format!("models/{model}:streamGenerateContent"));
    url.set_query(Some("alt=sse"));
    let headers = auth(endpoint)?;
    Ok(Outgoing { url, headers, body: body.into(), names })
}

/// Returns the base with the usual `/v1beta` where it names no path at all.
pub(crate) fn v1beta(base: &Url) -> Cow<'_, Url> {
    if base.path().trim_matches('/').is_empty() {
        Cow::Owned(join(base, "v1beta"))
    } else {
        Cow::Borrowed(base)
    }
}

fn body(request: &ModelRequest, names: &ToolNames, author: &Provenance) -> Body {
    let leading = request.messages.iter().take_while(|said| said.role == Role::System).count();
    let (system, rest) = request.messages.split_at(leading);
    let system = system.iter().map(Message::to_text).filter(|text| !text.is_empty());
    let system: Vec<_> = system.map(|text| json!({ "text": text })).collect();
    let functions = offered(&request.tools).map(|(tool, parameters)| {
        let mut function = json!({
            "name": names.to_wire(tool.name.as_str()),
            "description": tool.description,
        });
        let parameters = openapi(&parameters);
        // The wire refuses an object without properties, and takes no parameters for none.
        if parameters.get("properties").is_some()
            && let Some(function) = function.as_object_mut()
        {
            function.insert("parameters".to_owned(), parameters);
        }
        function
    });
    let functions: Vec<_> = functions.collect();
    let schema = request.output_schema.as_ref().map(|(_, schema)| openapi(schema));
    Body {
        system_instruction: (!system.is_empty()).then(|| json!({ "parts": system })),
        tool_config: tool_config(request, names),
        tools: if functions.is_empty() {
            Vec::new()
        } else {
            vec![json!({ "functionDeclarations": functions })]
        },
        generation_config: Config {
            max_output_tokens: request.max_output_tokens,
            temperature: request.temperature,
            // The wire's seed is a positive number of 32 bits.
            seed: request.seed.map(|seed| seed & 0x7fff_ffff),
            response_mime_type: schema.is_some().then_some("application/json"),
            response_schema: schema,
        },
        contents: with_tail(contents(rest, names, author), request.tail.as_deref()),
    }
}

/// Adds what stands behind the conversation.
fn with_tail(mut contents: Vec<Content>, tail: Option<&str>) -> Vec<Content> {
    let Some(tail) = tail else { return contents };
    let part = json!({ "text": tail });
    match contents.last_mut().filter(|content| content.role == "user") {
        Some(last) => last.parts.push(part),
        None => contents.push(Content { role: "user", parts: vec![part] }),
    }
    contents
}

fn tool_config(request: &ModelRequest, names: &ToolNames) -> Option<Value> {
    if request.tools.is_empty() {
        return None;
    }
    let config = match &request.tool_choice {
        ToolChoice::Auto => return None,
        ToolChoice::Required => json!({ "mode": "ANY" }),
        ToolChoice::None => json!({ "mode": "NONE" }),
        ToolChoice::Named(name) => json!({
            "mode": "ANY",
            "allowedFunctionNames": [names.to_wire(name.as_str())],
        }),
    };
    Some(json!({ "functionCallingConfig": config }))
}

fn contents(messages: &[Message], names: &ToolNames, author: &Provenance) -> Vec<Content> {
    let mut ids = CallIds::new(ID_LENGTH);
    let mut contents: Vec<Content> = Vec::with_capacity(messages.len());
    // The calls of the last answer, in whose order the results have to come.
    let mut calls: Vec<&str> = Vec::new();
    let model = author.model.as_str();
    let results_show = !OLDER.iter().any(|start| model.starts_with(start));
    for message in messages {
        let (role, parts) = if message.role == Role::Assistant {
            calls = message.tool_calls().map(|call| call.id.as_str()).collect();
            ("model", answer(message, names, author, &mut ids))
        } else {
            ("user", user(message, (&calls, results_show), names, &ids))
        };
        if parts.is_empty() {
            continue; // The wire refuses a content without parts.
        }
        match contents.last_mut() {
            Some(content) if content.role == role => content.parts.extend(parts),
            _ => contents.push(Content { role, parts }),
        }
    }
    contents
}

fn answer(
    message: &Message,
    names: &ToolNames,
    author: &Provenance,
    ids: &mut CallIds,
) -> Vec<Value> {
    let mut parts = Vec::with_capacity(message.parts.len());
    // The signature that goes onto the next part.
    let mut signature: Option<&str> = None;
    let model = author.model.as_str();
    let mut wants_signature = !OLDER.iter().any(|start| model.starts_with(start));
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.is_empty() => {
                parts.push(signed(json!({ "text": text }), signature.take()));
            }
            Part::ToolCall(call) => {
                let args = match &call.arguments {
                    Arguments::Json(value) => value.clone(),
                    // The wire takes objects only.
                    Arguments::Malformed { text, .. } => json!({ "malformed_arguments": text }),
                };
                let name = names.to_wire(&call.name);
                let call = json!({ "id": ids.call(&call.id), "name": name, "args": args });
                // Of the calls of one answer only the first is signed.
                let foreign = wants_signature.then_some(FOREIGN_SIGNATURE);
                wants_signature = false;
                let signature = signature.take().or(foreign);
                parts.push(signed(json!({ "functionCall": call }), signature));
            }
            Part::Reasoning(Reasoning { text, signature: sealed, provenance, .. })
                if provenance == author =>
            {
                if let Some(before) = signature.take() {
                    parts.push(signed(json!({ "text": "" }), Some(before)));
                }
                match sealed.as_deref() {
                    Some(sealed) if text.is_empty() => signature = Some(sealed),
                    Some(sealed) => {
                        parts.push(signed(json!({ "text": text, "thought": true }), Some(sealed)));
                    }
                    None => {} // A summary is for people; the model has its thoughts in the signatures.
                }
            }
            _ => {}
        }
    }
    if let Some(last) = signature {
        parts.push(signed(json!({ "text": "" }), Some(last)));
    }
    parts
}

fn signed(mut part: Value, signature: Option<&str>) -> Value {
    if let (Some(part), Some(signature)) = (part.as_object_mut(), signature) {
        part.insert("thoughtSignature".to_owned(), Value::from(signature));
    }
    part
}

/// Returns the parts of what is said to the model. Pictures of results stand within these where the model knows that form,
/// and behind all of them where not.
fn user(
    message: &Message,
    (calls, results_show): (&[&str], bool),
    names: &ToolNames,
    ids: &CallIds,
) -> Vec<Value> {
    let mut results = Vec::new();
    let mut parts = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } if !text.is_empty() => parts.push(json!({ "text": text })),
            Part::ToolResult(result) => results.push(result),
            part => parts.extend(media::sent(part).map(|sent| inline(&sent))),
        }
    }
    // Servers that know no ids pair results with calls by their order.
    results.sort_by_key(|result| {
        calls.iter().position(|id| *id == result.call_id).unwrap_or(calls.len())
    });
    let mut responses = Vec::with_capacity(results.len());
    let mut behind = Vec::new();
    for result in results {
        let mut response = function_response(result, names, ids);
        let images = result.attached.iter().map(|attachment| inline(&media::attached(attachment)));
        let images: Vec<Value> = images.collect();
        if !images.is_empty() {
            match response.pointer_mut("/functionResponse").and_then(Value::as_object_mut) {
                Some(response) if results_show => {
                    drop(response.insert("parts".to_owned(), images.into()));
                }
                _ => behind.extend(images),
            }
        }
        responses.push(response);
    }
    responses.into_iter().chain(behind).chain(parts).collect()
}

fn inline(sent: &Sent<'_>) -> Value {
    json!({ "inlineData": { "mimeType": sent.media_type, "data": sent.data } })
}

fn function_response(result: &ToolResult, names: &ToolNames, ids: &CallIds) -> Value {
    let key = if result.is_error { "error" } else { "output" };
    json!({
        "functionResponse": {
            "id": ids.result(&result.call_id),
            "name": names.to_wire(&result.name),
            "response": { key: result.content },
        },
    })
}

#[cfg(test)]
mod tests;
