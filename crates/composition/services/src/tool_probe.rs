//! Whether a model really calls tools: it is asked for one call of a harmless one.

use formwork_protocols::{
    Cancel, Completion, Message, Model, ModelRef, ModelRequest, ProviderError, ProviderFault, Role,
    Usage, Usd,
    message::{Arguments, ToolDefinition},
    model::{StopReason, ToolCalls},
    text,
};
use formwork_transport::ProviderKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The tool that is asked for. It does nothing, and nobody carries it out.
const TOOL: &str = "report";

/// What it is to be called with.
const WORD: &str = "ready";

/// The most tokens of the answer: enough for a model that thinks first, little enough to cost next to nothing.
const MAX_TOKENS: u32 = 1_024;

/// How much of a model's own words is told, in bytes.
const TOLD: usize = 160;

/// What came of asking a model for one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolProbe {
    /// The model.
    pub model: ModelRef,
    /// What it did.
    pub outcome: ToolOutcome,
    /// The same in a sentence, with what was wrong.
    pub found: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What it used.
    pub usage: Usage,
    /// What that cost.
    pub cost: Usd,
}

/// What a model did that was asked for one call of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It called the tool as it was asked to.
    Called,
    /// It answered, and is declared to take no tools.
    Answered,
    /// It called it with other arguments, or called something else.
    CalledWrongly,
    /// Its call did not parse.
    Malformed,
    /// It wrote the call as text.
    WroteIt,
    /// It answered in words and called nothing.
    OnlyWords,
    /// It met the limit of the answer before it had called anything.
    Cut,
    /// There was no answer.
    Failed,
}

impl ToolOutcome {
    /// Tells whether agents can work with such a model.
    pub const fn is_sound(self) -> bool {
        matches!(self, Self::Called | Self::Answered)
    }
}

/// Asks `model`, at a server of that kind, for one call. It is paid for as any other.
pub(crate) async fn probe(model: &Model, kind: ProviderKind, cancel: Cancel) -> ToolProbe {
    let takes_tools = model.info.tool_calls != ToolCalls::None;
    let answer = model.provider.complete(request(model, takes_tools), cancel).await;
    // Tries that broke off are paid for as well.
    let usage = match &answer {
        Ok(answer) => answer.usage + answer.lost.unwrap_or_default().usage,
        Err(error) => error.used.as_ref().map(|used| used.usage).unwrap_or_default(),
    };
    let (outcome, found) = match &answer {
        Err(error) => (ToolOutcome::Failed, error.to_string()),
        Ok(answer) if !takes_tools => (ToolOutcome::Answered, at(answer, "answered")),
        Ok(answer) => judged(answer),
    };
    ToolProbe {
        advice: advice(outcome, model, kind, answer.as_ref().err()),
        model: model.info.model.clone(),
        outcome,
        found,
        usage,
        cost: model.cost(&usage),
    }
}

fn request(model: &Model, takes_tools: bool) -> ModelRequest {
    let asked = if takes_tools {
        format!("Call the tool `{TOOL}` once, with the word `{WORD}`. Do nothing else.")
    } else {
        format!("Answer with the one word: {WORD}")
    };
    let words = vec![Message::text(Role::User, asked)];
    let mut request = ModelRequest::new(model.info.model.model.clone(), words);
    let most = model.info.max_output_tokens.unwrap_or(MAX_TOKENS);
    request.max_output_tokens = Some(most.min(MAX_TOKENS));
    if takes_tools {
        request.tools.push(ToolDefinition {
            name: TOOL.parse().expect("this is the name of a tool"),
            description: "Report that you are there.".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": { "word": { "type": "string", "description": "The word." } },
                "required": ["word"],
                "additionalProperties": false,
            }),
        });
    }
    request
}

/// Says what an answer is for that was to be one call.
fn judged(answer: &Completion) -> (ToolOutcome, String) {
    let calls: Vec<_> = answer.message.tool_calls().collect();
    let said = told(&answer.message.to_text());
    if answer.stop == StopReason::Length {
        let found = format!("its answer was cut at its limit before the call was whole: {said}");
        return (ToolOutcome::Cut, found);
    }
    if answer.stop == StopReason::Gap {
        let found = format!("a part of its answer was lost on its way: {said}");
        return (ToolOutcome::Malformed, found);
    }
    if let Some(call) = calls.iter().find(|call| call.name == TOOL) {
        return match &call.arguments {
            Arguments::Malformed { error, text } => {
                let found = format!("its call does not parse: {error}: {}", told(text));
                (ToolOutcome::Malformed, found)
            }
            Arguments::Json(arguments) if arguments.get("word") == Some(&json!(WORD)) => {
                (ToolOutcome::Called, at(answer, "called the tool that it was asked to call"))
            }
            Arguments::Json(arguments) => {
                let found = format!(
                    "it was to call {TOOL} with {{\"word\": \"{WORD}\"}} and called it with {}",
                    told(&arguments.to_string())
                );
                (ToolOutcome::CalledWrongly, found)
            }
        };
    }
    if let Some(call) = calls.first() {
        let found = match &call.arguments {
            Arguments::Malformed { error, text } => {
                return (
                    ToolOutcome::Malformed,
                    format!("its call does not parse: {error}: {}", told(text)),
                );
            }
            Arguments::Json(_) => {
                format!("it called {}, which it was not offered", told(&call.name))
            }
        };
        return (ToolOutcome::CalledWrongly, found);
    }
    if answer.stop == StopReason::ProseCall {
        let found = format!("it wrote the call as text, which calls nothing: {said}");
        return (ToolOutcome::WroteIt, found);
    }
    (ToolOutcome::OnlyWords, format!("it called nothing and said: {said}"))
}

fn at(answer: &Completion, did: &str) -> String {
    format!("{did} in {} ms, at {}", answer.elapsed.as_millis(), answer.served_by.endpoint)
}

/// Returns the beginning of a text, in a line.
fn told(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{:?}", text::head(&line, TOLD))
}

/// Says what to do about it.
fn advice(
    outcome: ToolOutcome,
    model: &Model,
    kind: ProviderKind,
    error: Option<&ProviderError>,
) -> Option<String> {
    let name = &model.info.model;
    let by_text = format!(
        "set tool_calls = \"text\" below [models.\"{name}\"], so that what it writes is read"
    );
    Some(match outcome {
        ToolOutcome::Called | ToolOutcome::Answered => return None,
        ToolOutcome::WroteIt => by_text,
        ToolOutcome::OnlyWords => {
            let first = match kind {
                ProviderKind::LlamaCpp => {
                    "start the server with a chat template that knows tools (--jinja)"
                }
                ProviderKind::Vllm => {
                    "start the server with --enable-auto-tool-choice and the --tool-call-parser of the model"
                }
                ProviderKind::Ollama => "choose a model whose capabilities name tools",
                _ => "choose a model that takes tools",
            };
            format!("{first}, or {by_text}")
        }
        ToolOutcome::CalledWrongly | ToolOutcome::Malformed => {
            "a model that cannot make one small call will not work as an agent: choose a larger one"
                .to_owned()
        }
        ToolOutcome::Cut => format!(
            "raise max_output_tokens below [models.\"{name}\"], or choose a model that thinks less"
        ),
        ToolOutcome::Failed => error.map(|error| refused(error.fault, name, kind))?,
    })
}

/// Says what to do about a call that failed so.
pub(crate) fn refused(fault: ProviderFault, model: &ModelRef, kind: ProviderKind) -> String {
    match fault {
        ProviderFault::Auth => "check where its api_key comes from".to_owned(),
        ProviderFault::Quota => "the account has no money or quota left".to_owned(),
        ProviderFault::ModelNotFound if kind == ProviderKind::Ollama => {
            format!("`formwork models pull {model}` fetches it")
        }
        ProviderFault::ModelNotFound => "`formwork models` lists what is there".to_owned(),
        ProviderFault::Invalid => {
            "the server does not take such a request: check that kind says what it is".to_owned()
        }
        ProviderFault::Throttled | ProviderFault::Overloaded => "try again later".to_owned(),
        _ => "check that the server runs and that base_url is right".to_owned(),
    }
}
