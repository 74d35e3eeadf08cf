//! A model call: what is asked, what streams back, how it can fail.

use std::{fmt, ops::Add, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt as _, stream::BoxStream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    budget::{Price, Usage},
    cancel::Cancel,
    id::{ModelName, ModelRef, ProviderName},
    message::{Attachment, Message, Provenance, ToolDefinition},
    money::Usd,
};

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The model, by its provider's name.
    pub model: ModelName,
    /// The conversation: system messages first, then turns.
    pub messages: Vec<Message>,
    /// What the model is told behind all of it and what is no part of the conversation, because it differs from request
    /// to request: [what is left](left_line) to its task. It stands behind whatever a provider caches.
    pub tail: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Whether it may, must or must not call them.
    pub tool_choice: ToolChoice,
    /// The most tokens that it may answer with.
    pub max_output_tokens: Option<u32>,
    /// How freely it chooses words; the provider's default where absent.
    pub temperature: Option<f32>,
    /// The seed of its choices, where the provider takes one.
    pub seed: Option<u64>,
    /// The JSON Schema that the answer has to follow, with its name.
    pub output_schema: Option<(String, Value)>,
}

impl ModelRequest {
    /// Returns a request without tools or limits.
    pub fn new(model: ModelName, messages: Vec<Message>) -> Self {
        Self {
            model,
            messages,
            tail: None,
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output_tokens: None,
            temperature: None,
            seed: None,
            output_schema: None,
        }
    }
}

/// How a line begins and ends that tells what is left.
const LEFT: (&str, &str) = ("[left of your budget: ", "]");

/// Returns the line that tells a model what is left to its task.
pub fn left_line(left: &str) -> String {
    format!("{}{left}{}", LEFT.0, LEFT.1)
}

/// Returns a text without the line that tells what is left, if it ends with one.
pub fn without_left(text: &str) -> &str {
    let found = text.ends_with(LEFT.1).then(|| text.rfind(LEFT.0)).flatten();
    let before = found.and_then(|at| text.get(..at));
    before.map_or(text, |before| before.strip_suffix("\n\n").unwrap_or(before))
}

/// Whether the model may call tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// It may.
    #[default]
    Auto,
    /// It must call one.
    Required,
    /// It must call this one.
    Named(crate::id::ToolName),
    /// It must not.
    None,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model had said what it had to say.
    EndTurn,
    /// It wants tools called.
    ToolUse,
    /// It met the limit of output tokens: what it was saying is cut.
    Length,
    /// It declined to answer.
    Refusal,
    /// The provider's filter withheld the answer.
    ContentFilter,
    /// The stream ended without saying why; the answer may be cut.
    Missing,
    /// A part of it was lost on its way: an event that could not be read, or one that never came.
    Gap,
    /// It wrote a call of an offered tool as text, which called nothing.
    ProseCall,
    /// For a reason that is not known. Its words came whole as far as anything shows; no call of it may be made.
    Other,
}

/// What a stream brings, in order; the last event of a good stream is [`ModelEvent::Done`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum ModelEvent {
    /// The provider began to answer.
    Started { served_by: ServedBy },
    /// More text.
    Text { text: String },
    /// More reasoning, as far as the provider shows it.
    Reasoning { text: String },
    /// A tool call began; its arguments follow.
    ToolCallStarted { index: usize, id: String, name: String },
    /// More of the arguments of call `index`, as raw JSON text. Never to be executed: wait for `Done`.
    ToolCallDelta { index: usize, text: String },
    /// A try failed and another begins after `wait`. What was streamed of this call before is void.
    Retrying { attempt: u32, wait: Duration, error: Box<ProviderError> },
    /// A model gave up, and another, at another price, is asked in its place. What was streamed of this call
    /// before is void.
    FellBack(Box<FellBack>),
    /// The answer is whole.
    Done(Box<Completion>),
}

/// How an answer went from one model to another. Boxed within its event, which is as large as the largest there is.
#[derive(Debug, Clone, PartialEq)]
pub struct FellBack {
    /// The model that gave up.
    pub from: ModelRef,
    /// The model that is asked in its place.
    pub to: ModelRef,
    /// What that one costs.
    pub price: Price,
    /// How the first failed.
    pub error: ProviderError,
}

/// Which server really answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServedBy {
    /// The configured provider.
    pub provider: ProviderName,
    /// The base address without credentials, or what stands in its place (`scripted:demo.toml`).
    pub endpoint: String,
    /// The model, as the server itself named it.
    pub model: String,
    /// The server's id of the request, where it gave one.
    pub request_id: Option<String>,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// The assistant's message. Its tool calls are complete, or marked as malformed.
    pub message: Message,
    /// Why it ended.
    pub stop: StopReason,
    /// What it used.
    pub usage: Usage,
    /// Whether the provider told the usage, or it was estimated.
    pub usage_estimated: bool,
    /// What the provider counts, where that cannot be, so that it was estimated instead.
    pub usage_doubted: Option<Usage>,
    /// Who answered.
    pub served_by: ServedBy,
    /// The time from the request to the first event with content.
    pub first_token: Option<Duration>,
    /// The time from the request to the end.
    pub elapsed: Duration,
    /// How many tries it took.
    pub tries: u32,
    /// How many events of the stream could not be read; they were recorded and left out.
    pub undecodable: u32,
    /// What the tries before it used in vain, where [`Provider::complete`] collected the answer. A stream tells of each
    /// with the event that says how it failed, and leaves this empty.
    pub lost: Option<Used>,
}

/// What a try used although it brought no answer: providers bill what they have begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Used {
    /// The tokens.
    pub usage: Usage,
    /// Whether any of them were estimated, by what had come, and not told by the provider.
    pub estimated: bool,
}

impl Add for Used {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { usage: self.usage + other.usage, estimated: self.estimated || other.estimated }
    }
}

impl Used {
    /// Adds what may be nothing to what may be nothing.
    fn plus(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        }
    }
}

impl Completion {
    /// Returns the provenance that reasoning blocks of this answer carry.
    pub fn provenance(&self, model: &ModelName) -> Provenance {
        Provenance { provider: self.served_by.provider.clone(), model: model.clone() }
    }
}

/// What a failed model call means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderFault {
    /// Too many requests (429): may pass.
    Throttled,
    /// The server has no capacity (503, 529): may pass.
    Overloaded,
    /// The answer did not come in time (408, 504, or a clock of ours): may pass.
    Timeout,
    /// The connection failed or was cut: may pass.
    Transport,
    /// The server failed (500, 502, an error within a stream): may pass.
    Server,
    /// The account has no money or quota left: final.
    Quota,
    /// The key is missing, wrong or not allowed (401, 403): final.
    Auth,
    /// The model does not exist there (404): final; another model may do.
    ModelNotFound,
    /// The request is wrong (400, 422): final.
    Invalid,
    /// The conversation is longer than the model's window: final until it is cut.
    ContextOverflow,
    /// The answer could not be understood (HTML, not JSON, empty): may pass.
    Protocol,
    /// The answer went on and on, past what it may have: final, since a second one is likely to do the same and would
    /// be billed as well; another model may do.
    Endless,
    /// The answer went on past its cap of output tokens, to which the server does not keep: final, as a second one would
    /// do the same; another model may do.
    Overrun,
    /// The call was cancelled.
    Cancelled,
}

impl ProviderFault {
    /// Tells whether the same request may succeed later.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Throttled
            | Self::Overloaded
            | Self::Timeout
            | Self::Transport
            | Self::Server
            | Self::Protocol => true,
            Self::Quota
            | Self::Auth
            | Self::ModelNotFound
            | Self::Invalid
            | Self::ContextOverflow
            | Self::Endless
            | Self::Overrun
            | Self::Cancelled => false,
        }
    }

    /// Tells whether another model may answer what this one could not.
    ///
    /// A request that is wrong or too long stays so, a missing key is to be mended and not passed over, and what
    /// was cancelled is wanted from nobody.
    pub const fn concerns_one_model(self) -> bool {
        match self {
            Self::Quota | Self::ModelNotFound | Self::Endless | Self::Overrun => true,
            Self::Auth | Self::Invalid | Self::ContextOverflow | Self::Cancelled => false,
            fault => fault.is_retryable(),
        }
    }

    /// Returns the fault's name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Server => "server",
            Self::Quota => "quota",
            Self::Auth => "auth",
            Self::ModelNotFound => "model_not_found",
            Self::Invalid => "invalid",
            Self::ContextOverflow => "context_overflow",
            Self::Protocol => "protocol",
            Self::Endless => "endless",
            Self::Overrun => "overrun",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a model call failed. Bodies are scrubbed and bounded before they get here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderError {
    /// What it means for the caller.
    pub fault: ProviderFault,
    /// What happened, in one sentence without a full stop.
    pub message: String,
    /// The provider that was asked.
    pub provider: ProviderName,
    /// The endpoint that was asked, without credentials.
    pub endpoint: String,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The provider's own code for the error.
    pub code: Option<String>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// The body of the answer, scrubbed and cut to a few KiB.
    pub body: Option<String>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// How many tries were made.
    pub tries: u32,
    /// What the last of them used before it failed, as far as anything shows that it did. What the others used is told
    /// where they failed, and is in it where [`Provider::complete`] was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Box<Used>>,
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "provider {}", self.provider)?;
        // What was never sent went to no endpoint.
        if !self.endpoint.is_empty() {
            write!(f, " at {}", self.endpoint)?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(status) = self.status {
            write!(f, " (HTTP {status}")?;
            if let Some(id) = &self.request_id {
                write!(f, ", request {id}")?;
            }
            f.write_str(")")?;
        }
        if self.tries > 1 {
            write!(f, " after {} tries", self.tries)?;
        }
        Ok(())
    }
}

impl std::error::Error for ProviderError {}

/// What a stream of a model call yields.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ProviderError>>;

/// Answers requests with a model. Calls may overlap.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns the name under which it is configured.
    fn name(&self) -> &ProviderName;

    /// Sends `request` and streams the answer; the first error ends the stream.
    ///
    /// Nothing more is sent before it is asked for: behind [`ModelEvent::Retrying`] and [`ModelEvent::FellBack`] the next
    /// try begins with the next poll. So whoever pays for it decides, and drops the stream where it cannot be paid.
    ///
    /// Raising `cancel`, like dropping the stream, closes the connection at once; the provider may
    /// bill what it began.
    fn stream(&self, request: ModelRequest, cancel: Cancel) -> ModelStream;

    /// Tells whether a model takes images, as far as that is known; a server of one's own may be asked for it once.
    ///
    /// Cancel safe: a dropped future has asked in vain.
    async fn takes_images(&self, _model: &ModelName) -> Option<bool> {
        None
    }

    /// Tells why an image or a document cannot be sent, by what is known of it: its kind, its size, its pixels.
    fn refuses(&self, _attachment: &Attachment) -> Option<String> {
        None
    }

    /// Sends `request` and returns the whole answer, or the error, each with what lost tries used.
    ///
    /// # Errors
    /// The error that ended the stream; [`ProviderFault::Protocol`] where it ended without an answer.
    async fn complete(
        &self,
        request: ModelRequest,
        cancel: Cancel,
    ) -> Result<Completion, ProviderError> {
        let mut events = self.stream(request, cancel);
        let mut lost: Option<Used> = None;
        while let Some(event) = events.next().await {
            let failed = match event {
                Ok(ModelEvent::Done(completion)) => return Ok(Completion { lost, ..*completion }),
                Ok(ModelEvent::Retrying { error, .. }) => error.used,
                Ok(ModelEvent::FellBack(fell)) => fell.error.used,
                Ok(_) => None,
                Err(mut error) => {
                    error.used = Used::plus(lost, error.used.map(|used| *used)).map(Box::new);
                    return Err(error);
                }
            };
            lost = Used::plus(lost, failed.map(|used| *used));
        }
        Err(ProviderError {
            fault: ProviderFault::Protocol,
            message: "the stream ended without an answer".to_owned(),
            provider: self.name().clone(),
            endpoint: String::new(),
            status: None,
            code: None,
            request_id: None,
            body: None,
            retry_after: None,
            tries: 1,
            used: lost.map(Box::new),
        })
    }
}

/// How a model takes tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolCalls {
    /// By the wire's own means.
    #[default]
    Native,
    /// As text that the runtime recognises.
    Text,
    /// Not at all.
    None,
}

/// What is known of a model: by the operator's word, the server's, or the catalogue's, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// The model.
    pub model: ModelRef,
    /// How many tokens fit its window, input and output together.
    pub context_tokens: Option<u64>,
    /// How many tokens it can answer with.
    pub max_output_tokens: Option<u32>,
    /// What it costs. A model without a price is refused before it is called.
    pub price: Option<Price>,
    /// How it takes tools.
    pub tool_calls: ToolCalls,
    /// Whether it takes images, where the operator says so; its server is asked otherwise, if that can tell.
    pub images: Option<bool>,
    /// Whether its words come from a script or a recording and not from a model.
    pub scripted: bool,
}

/// What a model is told of an image that it does not take.
pub const TAKES_NO_IMAGES: &str = "this model takes no images";

/// A model that is ready to be called.
#[derive(Clone)]
pub struct Model {
    /// What is known of it.
    pub info: ModelInfo,
    /// Its price, known.
    pub price: Price,
    /// The most that a call may be billed by: its price, or what is dearer of a model that may answer in its place.
    pub ceiling: Price,
    /// Who answers for it.
    pub provider: std::sync::Arc<dyn Provider>,
}

impl Model {
    /// Tells whether it takes images, as far as that is known.
    ///
    /// Cancel safe: a dropped future has asked in vain.
    pub async fn takes_images(&self) -> Option<bool> {
        match self.info.images {
            Some(known) => Some(known),
            None => self.provider.takes_images(&self.info.model.model).await,
        }
    }

    /// Returns what `usage` costs with this model.
    pub fn cost(&self, usage: &Usage) -> Usd {
        self.price.cost(usage)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("info", &self.info).field("price", &self.price).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_endpoint_that_was_asked_if_any_was() {
        let error = |endpoint: &str| ProviderError {
            fault: ProviderFault::ContextOverflow,
            message: "the request is too long".to_owned(),
            provider: ProviderName::parse("local").unwrap(),
            endpoint: endpoint.to_owned(),
            status: None,
            code: None,
            request_id: None,
            body: None,
            retry_after: None,
            tries: 1,
            used: None,
        };

        assert_eq!(error("").to_string(), "provider local: the request is too long");
        let told = "provider local at http://127.0.0.1:1: the request is too long";
        assert_eq!(error("http://127.0.0.1:1").to_string(), told);
    }
}
