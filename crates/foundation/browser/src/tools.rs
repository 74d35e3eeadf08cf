//! The tools of one conversation.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use formwork_protocols::{
    Cancel, Replay, SessionId, Tool, ToolClass, ToolError, ToolErrorKind, ToolName, ToolOutput,
    ToolSpec,
    message::ToolDefinition,
    tool::{CallContext, Kept},
};
use formwork_tool::HttpRules;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use url::Url;

use crate::{
    Browsers, Error,
    browser::{Act, Came, Seen},
};

/// The longest text that is typed at once.
const MAX_TEXT: usize = 64 * 1024;

/// Describes the tools, in the order of what is done first.
pub fn specs() -> Vec<ToolSpec> {
    Verb::ALL.map(Verb::spec).to_vec()
}

/// Returns the tools of one conversation, whose browser is started at the first call.
pub fn tools(browsers: &Arc<Browsers>, rules: HttpRules) -> Vec<Arc<dyn Tool>> {
    let place = Arc::default();
    let tool = |verb: Verb| -> Arc<dyn Tool> {
        Arc::new(Browse {
            spec: verb.spec(),
            verb,
            browsers: Arc::clone(browsers),
            rules: rules.clone(),
            session: Arc::clone(&place),
        })
    };
    Verb::ALL.map(tool).to_vec()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Open,
    Read,
    Click,
    Type,
    Screenshot,
}

impl Verb {
    const ALL: [Self; 5] = [Self::Open, Self::Read, Self::Click, Self::Type, Self::Screenshot];

    fn spec(self) -> ToolSpec {
        let number = json!({ "type": "integer", "minimum": 1, "description": "Its number, as the page was read last." });
        let (name, description, properties, required) = match self {
            Self::Open => (
                "browser.open",
                "Open a page in a browser and return its text, with numbered links and fields.",
                json!({ "url": { "type": "string", "description": "The whole address, with https:// or http://." } }),
                json!(["url"]),
            ),
            Self::Read => (
                "browser.read",
                "Return the text of the open page as it is now.",
                json!({}),
                json!([]),
            ),
            Self::Click => (
                "browser.click",
                "Click a numbered link, button or box of the open page and return its text.",
                json!({ "number": number }),
                json!(["number"]),
            ),
            Self::Type => (
                "browser.type",
                "Fill in a numbered field of the open page, or choose an option, and return its text.",
                json!({
                    "number": number,
                    "text": { "type": "string", "maxLength": MAX_TEXT, "description": "What stands there then." },
                    "enter": { "type": "boolean", "description": "Press Enter behind it." },
                }),
                json!(["number", "text"]),
            ),
            Self::Screenshot => (
                "browser.screenshot",
                "Look at a picture of the open page; it is kept for people, as a PNG by its hash.",
                json!({}),
                json!([]),
            ),
        };
        ToolSpec {
            definition: ToolDefinition {
                name: ToolName::parse(name).expect("the names follow the rule"),
                description: description.to_owned(),
                parameters: json!({
                    "type": "object", "properties": properties, "required": required,
                    "additionalProperties": false,
                }),
            },
            class: ToolClass::Network,
            replay: match self {
                Self::Read | Self::Screenshot => Replay::Pure,
                // A click may have ordered something, and to open a page may have as well.
                Self::Open | Self::Click | Self::Type => Replay::Once,
            },
            tags: vec!["browser".to_owned(), "network".to_owned()],
        }
    }
}

#[derive(Deserialize)]
struct OpenArguments {
    url: String,
}

#[derive(Deserialize)]
struct ClickArguments {
    number: u32,
}

#[derive(Deserialize)]
struct TypeArguments {
    number: u32,
    text: String,
    #[serde(default)]
    enter: bool,
}

struct Browse {
    spec: ToolSpec,
    verb: Verb,
    browsers: Arc<Browsers>,
    rules: HttpRules,
    /// The conversation whose tools these are, once one of them was called.
    session: Arc<Mutex<Option<SessionId>>>,
}

#[async_trait]
impl Tool for Browse {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Where it leads, or where the open page is: what is clicked there may ask that host.
    fn hosts(&self, arguments: &Value) -> Vec<String> {
        if self.verb == Verb::Open {
            let url = arguments.get("url").and_then(Value::as_str).unwrap_or_default();
            let found = address(url).ok().and_then(|url| authority(&url));
            return vec![
                found.unwrap_or_else(|| formwork_protocols::text::head(url, 200).to_owned()),
            ];
        }
        let session = *self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.and_then(|session| self.browsers.place(session)).into_iter().collect()
    }

    async fn call(
        &self,
        context: &CallContext,
        arguments: Value,
        cancel: &Cancel,
    ) -> Result<ToolOutput, ToolError> {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.session);
        tokio::select! {
            biased;
            // Its browser goes with it: nobody knows what it was at.
            () = cancel.cancelled() => Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled")),
            done = self.done(context, arguments) => done,
        }
    }
}

impl Browse {
    async fn done(&self, context: &CallContext, arguments: Value) -> Result<ToolOutput, ToolError> {
        let session = context.session;
        let act = match self.verb {
            Verb::Open => {
                let OpenArguments { url } = read(arguments)?;
                Act::Open(address(&url)?)
            }
            Verb::Read => Act::Read,
            Verb::Click => {
                let ClickArguments { number } = read(arguments)?;
                Act::Click(number)
            }
            Verb::Type => {
                let TypeArguments { number, text, enter } = read(arguments)?;
                Act::Fill { number, text, enter }
            }
            Verb::Screenshot => Act::Photograph,
        };
        let judged = self.browsers.place(session);
        let came = self.browsers.act(session, (&self.rules, judged.as_deref()), &act).await;
        let outside = self.browsers.place(session);
        match came.map_err(told)? {
            Came::Page(seen) => Ok(ToolOutput { outside, ..ToolOutput::text(shown(&seen)) }),
            Came::Picture(bytes) => {
                let name = "the page".to_owned();
                let kept = vec![Kept { media_type: "image/png".to_owned(), name, bytes }];
                Ok(ToolOutput { kept, outside, ..ToolOutput::text("a picture of the page") })
            }
        }
    }
}

/// Tells of a page as a model reads it.
fn shown(seen: &Seen) -> String {
    let mut told = format!("{}\n{}\n", seen.url, seen.title.trim());
    for (host, why) in &seen.refused {
        told.push_str(&format!("[nothing was loaded from {host}: {why}]\n"));
    }
    for said in &seen.dialogs {
        told.push_str(&format!("[a box was closed that said: {said}]\n"));
    }
    told.push_str(&format!("\n{}\n", seen.text));
    if seen.cut {
        told.push_str("[the page is longer; the rest was not read]\n");
    }
    told
}

fn told(error: Error) -> ToolError {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    ToolError::new(ToolErrorKind::Failed, message)
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments)
        .map_err(|error| ToolError::new(ToolErrorKind::InvalidArguments, error.to_string()))
}

/// Reads an address that a browser may be sent to: nothing of this machine's files, nothing of the browser itself.
fn address(text: &str) -> Result<Url, ToolError> {
    let invalid = |why: String| ToolError::new(ToolErrorKind::InvalidArguments, why);
    let url = Url::parse(text).map_err(|error| invalid(format!("the url is none: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid(format!("only http and https are opened, and not {}", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("the url holds a user or password".to_owned()));
    }
    match authority(&url) {
        Some(_) => Ok(url),
        None => Err(invalid("the url names no host and port to connect to".to_owned())),
    }
}

fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let port = url.port_or_known_default().filter(|port| *port > 0)?;
    (!host.is_empty()).then(|| format!("{host}:{port}"))
}
