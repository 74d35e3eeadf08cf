//! A provider that answers from a script of turns: for tests, demos and benches.
//!
//! The turn is found by counting what the assistant has said in the request, so that nothing is kept between calls:
//! a resumed conversation goes on where it stood, and many may run from one script at once.

use std::{io, path::Path, sync::Arc, time::Duration};

use formwork_protocols::{
    Cancel, Completion, Message, ModelEvent, ModelRequest, Part, Provider, ProviderError,
    ProviderFault, ProviderName, Role, ToolCall, ToolName, Usage,
    document::{self, DocumentType},
    message::Arguments,
    model::{ModelStream, ServedBy, StopReason},
};
use futures::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Error, text_calls, usage};

/// How many bytes of an answer stand in one event.
const PIECE: usize = 24;

/// What a scripted model says, turn by turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The turns of a conversation, in order, unless a turn says `when`.
    pub turns: Vec<Turn>,
}

impl DocumentType for Script {
    const NAME: &'static str = "script";
}

/// One answer, or one failure.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Answers only where the newest message of the user or of a tool contains this text. Such a turn stands outside of
    /// the order: the first that matches goes before the turns that say no `when`, as often as it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What is thought aloud before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The tools that are called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ScriptedCall>,
    /// Why the answer ends; by what it holds where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// What it uses; by the length of the texts where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Fails in place of answering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<ScriptedFailure>,
}

/// A tool call of a script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, an object.
    #[serde(default)]
    pub arguments: serde_json::Map<String, Value>,
}

/// A failure of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFailure {
    /// What it means for the caller.
    pub fault: ProviderFault,
    /// What happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Script {
    /// Reads a script: JSON where the text begins with a brace, else TOML.
    ///
    /// # Errors
    /// [`Error::Document`] with every fault and its place.
    pub fn parse(source: &str, text: &str) -> Result<Self, Error> {
        if !text.trim_start().starts_with('{') {
            return Ok(document::parse::<Self>(source, text)?.value);
        }
        // One reader checks every document, so that JSON is held to the same rules.
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Error::Json { source_name: source.to_owned(), source: error })?;
        let text = toml::to_string(&value).map_err(|error| Error::NotToml {
            source_name: source.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(document::parse::<Self>(source, &text)?.value)
    }

    /// Returns the turn that answers `request`, or how many turns in order there are where they have run out.
    fn turn(&self, request: &ModelRequest) -> Result<&Turn, usize> {
        let newest = request.messages.iter().rev().find(|said| said.role != Role::Assistant);
        let heard = newest.map(heard).unwrap_or_default();
        let matching = self
            .turns
            .iter()
            .find(|turn| turn.when.as_ref().is_some_and(|text| heard.contains(text.as_str())));
        if let Some(turn) = matching {
            return Ok(turn);
        }
        let said = request.messages.iter().filter(|said| said.role == Role::Assistant).count();
        let mut in_order = self.turns.iter().filter(|turn| turn.when.is_none());
        in_order.nth(said).ok_or_else(|| self.turns.iter().filter(|t| t.when.is_none()).count())
    }
}

/// Returns all that a message says, results of tools included.
fn heard(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        Part::ToolResult(result) => Some(result.content.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A provider that answers from a [`Script`], and says in every answer that it is one.
#[derive(Debug, Clone)]
pub struct Scripted {
    name: ProviderName,
    endpoint: String,
    script: Arc<Script>,
}

/// The largest script or recording that is read, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Reads a regular file: a pipe would be waited for, and a device read without end.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() && !found.is_dir() {
        return Err(io::Error::other("it is no file"));
    }
    if found.len() > LARGEST {
        return Err(io::Error::other(format!("it has more than {LARGEST} bytes")));
    }
    std::fs::read_to_string(path)
}

impl Scripted {
    /// Makes a provider of a script. `title` is what people know it by, such as its file's name.
    pub fn new(name: ProviderName, title: &str, script: Script) -> Self {
        Self { name, endpoint: format!("scripted:{title}"), script: Arc::new(script) }
    }

    /// Reads the script at `path`.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when the file cannot be read, and what [`Script::parse`] returns.
    pub fn read(name: ProviderName, path: &Path) -> Result<Self, Error> {
        let text = read(path).map_err(|source| Error::Unreadable {
            provider: name.clone(),
            path: path.display().to_string(),
            source,
        })?;
        let title =
            path.file_name().map_or_else(|| path.to_string_lossy(), |f| f.to_string_lossy());
        let script = Script::parse(&path.display().to_string(), &text)?;
        Ok(Self::new(name, &title, script))
    }

    fn error(&self, fault: ProviderFault, message: String) -> ProviderError {
        ProviderError {
            fault,
            message,
            provider: self.name.clone(),
            endpoint: self.endpoint.clone(),
            status: None,
            code: None,
            request_id: None,
            body: None,
            retry_after: None,
            tries: 1,
            used: None,
        }
    }

    fn answer(&self, request: &ModelRequest) -> Result<Vec<ModelEvent>, ProviderError> {
        let turn = self.script.turn(request).map_err(|turns| {
            let message = format!(
                "the script has no turn left: it has {turns} in order, and none says `when` of the newest message"
            );
            self.error(ProviderFault::Invalid, message)
        })?;
        if let Some(failure) = &turn.fail {
            let message = failure.message.clone();
            let message = message
                .unwrap_or_else(|| format!("the script fails as {}", failure.fault.as_str()));
            return Err(self.error(failure.fault, message));
        }
        Ok(self.events(turn, request))
    }

    fn events(&self, turn: &Turn, request: &ModelRequest) -> Vec<ModelEvent> {
        let served_by = ServedBy {
            provider: self.name.clone(),
            endpoint: self.endpoint.clone(),
            model: request.model.as_str().to_owned(),
            request_id: None,
        };
        let mut events = vec![ModelEvent::Started { served_by: served_by.clone() }];
        let mut parts = Vec::new();
        if let Some(text) = &turn.reasoning {
            events.extend(pieces(text).map(|text| ModelEvent::Reasoning { text }));
        }
        if let Some(text) = turn.text.as_ref().filter(|text| !text.is_empty()) {
            events.extend(pieces(text).map(|text| ModelEvent::Text { text }));
            parts.push(Part::Text { text: text.clone() });
        }
        for (index, call) in turn.calls.iter().enumerate() {
            // The length of the history differs from turn to turn, so ids do not repeat in it.
            let id = format!("call_{}_{index}", request.messages.len());
            let name = call.tool.as_str().to_owned();
            let arguments = Value::Object(call.arguments.clone());
            events.push(ModelEvent::ToolCallStarted { index, id: id.clone(), name: name.clone() });
            events.push(ModelEvent::ToolCallDelta { index, text: arguments.to_string() });
            let arguments = match turn.stop {
                // A script may show what becomes of a call in a cut answer, as a real wire does.
                Some(StopReason::Length) => Arguments::Malformed {
                    text: arguments.to_string(),
                    error: "the answer met its limit of output tokens before the call was whole"
                        .into(),
                },
                _ => Arguments::Json(arguments),
            };
            parts.push(Part::ToolCall(ToolCall { id, name, arguments }));
        }
        let message = Message { role: Role::Assistant, parts };
        let by_content = match &turn.text {
            _ if !turn.calls.is_empty() => StopReason::ToolUse,
            Some(text) if text_calls::is_prose(text, request) => StopReason::ProseCall,
            _ => StopReason::EndTurn,
        };
        let completion = Completion {
            stop: turn.stop.unwrap_or(by_content),
            usage: turn.usage.unwrap_or_else(|| usage::estimate(request, &message)),
            usage_estimated: turn.usage.is_none(),
            usage_doubted: None,
            message,
            served_by,
            first_token: Some(Duration::ZERO),
            elapsed: Duration::ZERO,
            tries: 1,
            undecodable: 0,
            lost: None,
        };
        events.push(ModelEvent::Done(Box::new(completion)));
        events
    }
}

impl Provider for Scripted {
    fn name(&self) -> &ProviderName {
        &self.name
    }

    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream {
        let script = self.clone();
        let answered = move || match script.answer(&request) {
            Ok(events) => stream::iter(events.into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        };
        let cancelled = self.error(ProviderFault::Cancelled, "the call was cancelled".to_owned());
        let events = stream::once(async move { answered() }).flatten();
        // The first event after the signal is the error, and the last.
        let events = events.scan(false, move |over, event| {
            if *over {
                return futures::future::ready(None);
            }
            *over = cancel.is_cancelled();
            futures::future::ready(Some(if *over { Err(cancelled.clone()) } else { event }))
        });
        events.boxed()
    }
}

/// Cuts a text into pieces as a model's words would come.
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.ceil_char_boundary(PIECE.min(rest.len()));
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}

#[cfg(test)]
mod tests;
