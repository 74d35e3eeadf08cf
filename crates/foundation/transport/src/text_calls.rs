//! Tool calls that a model wrote as text.
//!
//! Models without calls of their own, and sometimes models with them, write a call into their answer. Three forms are
//! recognised: `<tool_call>` tags, a fenced block of JSON, and a call that stands alone. A tag says that a call is
//! meant, whatever it holds; the other forms are calls only where they name a tool that was offered and hold nothing
//! but a call, so that an example in an explanation is none.
//!
//! [`InText`] puts a provider behind them, for a model that is declared so. A model that has calls of its own and
//! writes one as text all the same called nothing: its answer ends with
//! [`StopReason::ProseCall`](formwork_protocols::model::StopReason::ProseCall), for whoever asked to remind it.
//!
//! ```
//! use formwork_protocols::message::ToolDefinition;
//! use formwork_transport::text_calls::recognise;
//!
//! let tools = [ToolDefinition {
//!     name: "fs.read".parse()?,
//!     description: "Read a file.".to_owned(),
//!     parameters: serde_json::json!({ "type": "object" }),
//! }];
//! let answer = "Let me look.\n<tool_call>{\"name\": \"fs.read\", \"arguments\": {\"path\": \"a\"}}</tool_call>";
//!
//! let found = recognise(answer, &tools, 1);
//!
//! assert_eq!(found.text, "Let me look.");
//! assert_eq!(found.calls[0].name, "fs.read");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod provider; // Calls in text for a model that has no others.

use std::{fmt::Display, ops::Range};

use formwork_protocols::{
    ModelRequest,
    message::{Arguments, ToolCall, ToolDefinition},
    model::ToolChoice,
};
use serde_json::{Map, Value};

use crate::assembly::parse_arguments;

pub use provider::InText;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
const FENCE: &str = "```";

/// What a text held.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The text without its calls.
    pub text: String,
    /// The calls, in order. One that does not parse is malformed, and never to be executed.
    pub calls: Vec<ToolCall>,
}

/// A call without its id.
type Call = (String, Arguments);

/// Finds the calls in the text of an answer that ended well; an answer that was cut holds none to be executed.
///
/// The ids are `call_text_SALT_0`, `call_text_SALT_1` and so on; a salt that no other answer of the conversation has
/// keeps them apart.
pub fn recognise(text: &str, tools: &[ToolDefinition], salt: impl Display) -> Found {
    let mut found = tagged(text, tools);
    if found.is_empty() {
        found = fenced(text, tools);
    }
    if found.is_empty() {
        found = alone(text, tools);
    }
    let mut rest = String::new();
    let mut done = 0;
    let mut calls = Vec::new();
    for (span, found) in found {
        rest.push_str(text.get(done..span.start).unwrap_or_default());
        done = span.end;
        calls.extend(found);
    }
    rest.push_str(text.get(done..).unwrap_or_default());
    let calls = calls.into_iter().enumerate().map(|(at, (name, arguments))| ToolCall {
        id: format!("call_text_{salt}_{at}"),
        name,
        arguments,
    });
    Found { text: rest.trim().to_owned(), calls: calls.collect() }
}

/// Tells whether the text of an answer without calls writes what should have been a call of an offered tool.
///
/// A tag that does not parse is one if it names a tool that was offered; an explanation of such tags is none.
pub(crate) fn is_prose(text: &str, request: &ModelRequest) -> bool {
    let may_call = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
    // An answer by a schema may look like anything, and a call without a brace is none.
    if !may_call || request.output_schema.is_some() || !text.contains('{') {
        return false;
    }
    let is_offered = |name: &str| request.tools.iter().any(|tool| tool.name.as_str() == name);
    recognise(text, &request.tools, "").calls.iter().any(|call| match &call.arguments {
        Arguments::Json(_) => is_offered(&call.name),
        Arguments::Malformed { text, .. } => {
            is_offered(&call.name)
                || request.tools.iter().any(|tool| text.contains(tool.name.as_str()))
        }
    })
}

/// Finds the calls in tags. A tag that is not closed ends with the text.
fn tagged(text: &str, tools: &[ToolDefinition]) -> Vec<(Range<usize>, Vec<Call>)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = text.get(from..).and_then(|rest| rest.find(OPEN)).map(|at| from + at) {
        let inside = start + OPEN.len();
        let rest = text.get(inside..).unwrap_or_default();
        let (length, end) = match rest.find(CLOSE) {
            Some(at) => (at, inside + at + CLOSE.len()),
            None => (rest.len(), text.len()),
        };
        let content = rest.get(..length).unwrap_or_default().trim();
        let calls = calls_of(content, tools, Naming::Any).unwrap_or_else(|| {
            let error = match serde_json::from_str::<Value>(content) {
                Ok(_) => "expected an object with a name and arguments".to_owned(),
                Err(error) => format!("the call is not JSON: {error}"),
            };
            vec![(String::new(), Arguments::Malformed { text: content.to_owned(), error })]
        });
        found.push((start..end, calls));
        from = end;
    }
    found
}

/// Finds the fenced blocks that hold nothing but calls of offered tools.
fn fenced(text: &str, tools: &[ToolDefinition]) -> Vec<(Range<usize>, Vec<Call>)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = text.get(from..).and_then(|rest| rest.find(FENCE)).map(|at| from + at) {
        let inside = start + FENCE.len();
        let rest = text.get(inside..).unwrap_or_default();
        let Some(length) = rest.find(FENCE) else { break };
        let block = rest.get(..length).unwrap_or_default();
        from = inside + length + FENCE.len();
        let (language, content) = block.split_once('\n').unwrap_or(("", block));
        let is_json = matches!(language.trim(), "" | "json" | "tool_call" | "tool_code");
        if let Some(calls) =
            is_json.then(|| calls_of(content.trim(), tools, Naming::Offered)).flatten()
        {
            found.push((start..from, calls));
        }
    }
    found
}

/// Finds calls of offered tools that are all of the text, or all of it from some line on.
fn alone(text: &str, tools: &[ToolDefinition]) -> Vec<(Range<usize>, Vec<Call>)> {
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with(['{', '['])
            && let Some(rest) = text.get(from..)
            && let Some(calls) = calls_of(rest.trim(), tools, Naming::Offered)
        {
            return vec![(from..text.len(), calls)];
        }
        from += line.len();
    }
    Vec::new()
}

/// Which names make a call one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Any,
    Offered,
}

/// Reads JSON values, one after the other or in a list, all of which have to be calls.
fn calls_of(content: &str, tools: &[ToolDefinition], naming: Naming) -> Option<Vec<Call>> {
    let mut calls = Vec::new();
    for value in serde_json::Deserializer::from_str(content).into_iter::<Value>() {
        match value.ok()? {
            Value::Array(values) => {
                for value in values {
                    calls.push(call_of(value.as_object()?, tools, naming)?);
                }
            }
            value => calls.push(call_of(value.as_object()?, tools, naming)?),
        }
    }
    (!calls.is_empty()).then_some(calls)
}

fn call_of(object: &Map<String, Value>, tools: &[ToolDefinition], naming: Naming) -> Option<Call> {
    if let Some(function) = object.get("function").and_then(Value::as_object) {
        return call_of(function, tools, naming);
    }
    let name = object.get("name")?.as_str()?;
    let arguments = ["arguments", "parameters", "input"].iter().find_map(|key| object.get(*key));
    // Models write the name as they were shown it, and the wire shows no dots.
    let offered = tools.iter().map(|tool| tool.name.as_str());
    let offered = offered.into_iter().find(|tool| *tool == name || tool.replace('.', "_") == name);
    let name = match naming {
        Naming::Offered => {
            arguments?;
            offered?
        }
        Naming::Any => offered.unwrap_or(name),
    };
    let arguments = match arguments {
        Some(Value::String(text)) => parse_arguments(text),
        Some(value) => parse_arguments(&value.to_string()),
        None => parse_arguments(""),
    };
    Some((name.to_owned(), arguments))
}

#[cfg(test)]
mod tests;
