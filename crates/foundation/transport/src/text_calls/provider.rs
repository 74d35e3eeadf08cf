//! A provider whose model is shown its tools in words, and whose calls are read from its words.

use std::{collections::VecDeque, fmt, sync::Arc};

use async_trait::async_trait;
use formwork_protocols::{
    Attachment, Cancel, Completion, Message, ModelEvent, ModelName, ModelRequest, Part, Provider,
    ProviderError, ProviderName, Role,
    message::{Arguments, ToolCall, ToolResult},
    model::{ModelStream, StopReason, ToolChoice},
};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{CLOSE, FENCE, OPEN, recognise};

/// Lets a model call tools that cannot do so by its wire's own means.
///
/// The tools, the calls so far and their results become text before a request goes to the provider within, and what
/// its answer writes as a call (see [`recognise`]) becomes one. A call of an answer that was cut, or that does not
/// parse, is malformed, as on every wire. Words are passed on as they come, up to where a call may begin; what turns
/// out to be none is told with the end of the answer.
#[derive(Clone)]
pub struct InText {
    provider: Arc<dyn Provider>,
}

impl InText {
    /// Puts `provider`, whose model is not to be offered tools by its wire, behind calls in text.
    pub const fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider }
    }
}

#[async_trait]
impl Provider for InText {
    fn name(&self) -> &ProviderName {
        self.provider.name()
    }

    async fn takes_images(&self, model: &ModelName) -> Option<bool> {
        self.provider.takes_images(model).await
    }

    fn refuses(&self, attachment: &Attachment) -> Option<String> {
        self.provider.refuses(attachment)
    }

    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream {
        let answer = Answer {
            events: self.provider.stream(in_words(&request), cancel),
            request,
            text: String::new(),
            told: 0,
            ready: VecDeque::new(),
        };
        stream::unfold(answer, |mut answer| async move {
            let item = answer.next().await?;
            Some((item, answer))
        })
        .boxed()
    }
}

impl fmt::Debug for InText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InText").field("name", self.name()).finish_non_exhaustive()
    }
}

/// An answer while it comes.
struct Answer {
    events: ModelStream,
    request: ModelRequest,
    /// What the model has said so far.
    text: String,
    /// How many bytes of it were passed on.
    told: usize,
    /// What is to be told before the next event is asked for.
    ready: VecDeque<ModelEvent>,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<ModelEvent, ProviderError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match self.events.next().await? {
                Ok(ModelEvent::Text { text }) => self.hear(&text),
                Ok(ModelEvent::Done(done)) => self.end(*done),
                Ok(event @ (ModelEvent::Retrying { .. } | ModelEvent::FellBack(_))) => {
                    self.text.clear(); // What was said before is void.
                    self.told = 0;
                    return Some(Ok(event));
                }
                other => return Some(other),
            }
        }
    }

    /// Passes words on as far as no call can begin in them.
    fn hear(&mut self, text: &str) {
        self.text.push_str(text);
        let from = self.told;
        let until = may_begin(&self.text, from);
        if let Some(text) = self.text.get(from..until).filter(|text| !text.is_empty()) {
            self.ready.push_back(ModelEvent::Text { text: text.to_owned() });
            self.told = until;
        }
    }

    /// Makes calls of what the answer writes as such, and tells what is left of its words.
    fn end(&mut self, mut done: Completion) {
        let salt = self.request.messages.len();
        let said = done.message.to_text();
        let is_withheld = matches!(done.stop, StopReason::Refusal | StopReason::ContentFilter);
        let offered: &[_] = match self.request.tool_choice {
            ToolChoice::None => &[],
            _ => &self.request.tools,
        };
        let mut calls = Vec::new();
        if !is_withheld && !offered.is_empty() {
            let found = recognise(&said, offered, salt);
            if !found.calls.is_empty() {
                calls = found.calls;
                // What stands before the first call was told already; the ends are trimmed.
                let lead = said.len() - said.trim_start().len();
                let rest = found.text.get(self.told.saturating_sub(lead)..).unwrap_or_default();
                self.tell(rest.to_owned());
                done.message.parts.retain(|part| !matches!(part, Part::Text { .. }));
                if !found.text.is_empty() {
                    done.message.parts.push(Part::Text { text: found.text });
                }
            }
        }
        if calls.is_empty() {
            let rest = said.get(self.told..).unwrap_or_default().to_owned();
            self.tell(rest);
        }
        match done.stop {
            StopReason::EndTurn if !calls.is_empty() => done.stop = StopReason::ToolUse,
            StopReason::Length => cut(&mut calls, "the answer met its limit of output tokens"),
            StopReason::Missing => cut(&mut calls, "the answer ended without its end marker"),
            StopReason::Other => cut(&mut calls, "the answer ended for a reason that is not known"),
            StopReason::Gap => cut(&mut calls, "a part of the answer was lost on its way"),
            _ => {}
        }
        let before = done.message.tool_calls().count();
        for (at, call) in calls.into_iter().enumerate() {
            let index = before + at;
            let (id, name) = (call.id.clone(), call.name.clone());
            self.ready.push_back(ModelEvent::ToolCallStarted { index, id, name });
            let text = written(&call.arguments);
            self.ready.push_back(ModelEvent::ToolCallDelta { index, text });
            done.message.parts.push(Part::ToolCall(call));
        }
        self.ready.push_back(ModelEvent::Done(Box::new(done)));
    }

    fn tell(&mut self, text: String) {
        if !text.is_empty() {
            self.ready.push_back(ModelEvent::Text { text });
        }
    }
}

/// Says that calls are not whole, so that they are not made.
fn cut(calls: &mut [ToolCall], why: &str) {
    for call in calls {
        let text = written(&call.arguments);
        call.arguments = Arguments::Malformed { text, error: format!("{why}, so it may be cut") };
    }
}

/// Returns up to where no call can begin at or behind `from`: a tag, a fence, or a line that begins as JSON does,
/// each of which may have come in part.
fn may_begin(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let mut until = rest.len();
    for marker in [OPEN, FENCE] {
        let whole = rest.find(marker);
        let part = || {
            let tail = (1..marker.len()).rev().find(|&size| {
                marker.get(..size).is_some_and(|beginning| rest.ends_with(beginning))
            })?;
            Some(rest.len() - tail)
        };
        until = until.min(whole.or_else(part).unwrap_or(until));
    }
    let line_starts = |at: usize| match at.checked_sub(1) {
        None => from == 0 || text.get(..from).is_some_and(|before| before.ends_with('\n')),
        Some(before) => rest.as_bytes().get(before) == Some(&b'\n'),
    };
    let json = rest.match_indices(['{', '[']).map(|(at, _)| at).find(|&at| line_starts(at));
    from + until.min(json.unwrap_or(until))
}

/// Returns arguments as they are written.
fn written(arguments: &Arguments) -> String {
    match arguments {
        Arguments::Json(value) => value.to_string(),
        Arguments::Malformed { text, .. } => text.clone(),
    }
}

/// Returns the request with its tools, calls and results in words.
fn in_words(request: &ModelRequest) -> ModelRequest {
    let mut messages: Vec<Message> = Vec::with_capacity(request.messages.len() + 1);
    let mut tools = offer(request).map(|text| Message::text(Role::System, text));
    for said in &request.messages {
        if said.role != Role::System {
            messages.extend(tools.take()); // Behind the rules, where it stays the same.
        }
        let role = if said.role == Role::Tool { Role::User } else { said.role };
        let words = said.parts.iter().enumerate();
        let parts = words.flat_map(|(at, part)| {
            let shown = match part {
                Part::ToolResult(result) => result.attached.as_slice(),
                _ => &[],
            };
            let shown = shown.iter().cloned().map(Part::Attached);
            std::iter::once(in_word(part, at > 0)).chain(shown)
        });
        let parts: Vec<Part> = parts.collect();
        match messages.last_mut() {
            // Templates of local models want the two sides to take turns.
            Some(last) if role == Role::User && last.role == Role::User => last.parts.extend(parts),
            _ => messages.push(Message { role, parts }),
        }
    }
    messages.extend(tools);
    ModelRequest { messages, tools: Vec::new(), tool_choice: ToolChoice::Auto, ..request.clone() }
}

fn in_word(part: &Part, follows: bool) -> Part {
    let before = if follows { "\n" } else { "" };
    let text = match part {
        Part::ToolCall(ToolCall { name, arguments, .. }) => {
            let call = match arguments {
                Arguments::Json(value) => call_in_text(name, value),
                Arguments::Malformed { text, .. } => text.clone(),
            };
            format!("{before}{OPEN}\n{call}\n{CLOSE}")
        }
        // A tag here would be one that models write themselves.
        Part::ToolResult(ToolResult { name, content, is_error, .. }) => {
            let what = if name.is_empty() { "the call" } else { name };
            match is_error {
                true => format!("{before}Error of {what}:\n{content}\n"),
                false => format!("{before}Result of {what}:\n{content}\n"),
            }
        }
        other => return other.clone(),
    };
    Part::Text { text }
}

/// Writes a call, its name first: a model that begins with it has less to keep in mind.
fn call_in_text(name: &str, arguments: &Value) -> String {
    format!("{{\"name\": {}, \"arguments\": {arguments}}}", json!(name))
}

/// Returns what a model is told of the tools, if there are any for it.
fn offer(request: &ModelRequest) -> Option<String> {
    if request.tool_choice == ToolChoice::None {
        return None;
    }
    let first = request.tools.first()?;
    let example = call_in_text(first.name.as_str(), &json!({}));
    let mut text = format!(
        "You have tools. To call one, write its name and its arguments as JSON between these tags:\n\n\
         {OPEN}\n{example}\n{CLOSE}\n\n\
         Several calls are several such blocks. Stop after the last one: you are given the results next. \
         Never write a result yourself, and call nothing that is not listed here.\n\n\
         The tools, each with the JSON Schema of its arguments:\n"
    );
    for tool in &request.tools {
        let description = json!(tool.description);
        text.push_str(&format!(
            "{{\"name\": {}, \"description\": {description}, \"parameters\": {}}}\n",
            json!(tool.name),
            tool.parameters
        ));
    }
    match &request.tool_choice {
        ToolChoice::Required => text.push_str("\nYour next answer has to call one of them.\n"),
        ToolChoice::Named(name) => {
            text.push_str(&format!("\nYour next answer has to call {name}.\n"));
        }
        ToolChoice::Auto | ToolChoice::None => {}
    }
    Some(text)
}

#[cfg(test)]
mod tests;
