//! What is answered, whoever asks: a call of a tool is a call of a capability.

use std::sync::Arc;

use formwork_protocols::document::nearest_hint;
use formwork_services::{
    Error, Formwork,
    capability::{CAPABILITIES, Caller, Capability, Effect},
};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    message::{self, Fault, short},
    revision::{self, Manner},
    tools,
};

/// How many calls go on at once: as many as a person's programs make together. Others wait.
const CALLS: usize = 32;

/// The longest answer of a tool, in bytes: more is no use to a model, and whoever wants it asks for less of it at a time.
const LONGEST: usize = 8 * 1024 * 1024;

/// Offers the capabilities of a Formwork as tools. Clones share how many calls go on at once.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    formwork: Formwork,
    calls: Arc<Semaphore>,
    /// What has begun to change something, and is done to its end whoever still waits for it.
    writing: TaskTracker,
}

impl Server {
    pub(crate) fn new(formwork: &Formwork) -> Self {
        let (calls, writing) = (Arc::new(Semaphore::new(CALLS)), TaskTracker::new());
        Self { formwork: formwork.clone(), calls, writing }
    }

    /// Waits until all is done that has begun to change something.
    pub(crate) async fn close(&self) {
        self.writing.close();
        self.writing.wait().await;
    }

    /// Answers a request. Nothing where `cancel` was raised before there was an answer.
    pub(crate) async fn answer(
        &self,
        caller: &Caller,
        (id, method, params): (Value, &str, Map<String, Value>),
        cancel: &CancellationToken,
    ) -> Option<Value> {
        let done = match revision::of(method, &params) {
            Ok(manner) => self.carry_out(caller, method, params, manner, cancel).await?,
            Err(fault) => Err(fault),
        };
        Some(match done {
            Ok(result) => message::answer(id, result),
            Err(fault) => fault.answer(id),
        })
    }

    async fn carry_out(
        &self,
        caller: &Caller,
        method: &str,
        mut params: Map<String, Value>,
        manner: Manner,
        cancel: &CancellationToken,
    ) -> Option<Result<Value, Fault>> {
        let mut result = match (method, manner) {
            ("initialize", Manner::Greeted) => {
                let wanted = params.get("protocolVersion").and_then(Value::as_str);
                let Some(wanted) = wanted else {
                    return Some(Err(Fault::params("a greeting says its protocolVersion")));
                };
                json!({
                    "protocolVersion": revision::greeted(wanted),
                    "capabilities": { "tools": {} },
                    "serverInfo": own(),
                    "instructions": self.instructions(),
                })
            }
            ("server/discover", _) => json!({
                "supportedVersions": revision::ALL,
                "capabilities": { "tools": {} },
                "instructions": self.instructions(),
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": { "io.modelcontextprotocol/serverInfo": own() },
            }),
            ("ping", Manner::Greeted) => json!({}),
            ("tools/list", _) if params.contains_key("cursor") => {
                return Some(Err(Fault::params(
                    "all tools are on one page, and no cursor leads on",
                )));
            }
            ("tools/list", Manner::Greeted) => json!({ "tools": tools::list(caller) }),
            ("tools/list", Manner::Alone) => {
                json!({ "tools": tools::list(caller), "ttlMs": 0, "cacheScope": "private" })
            }
            ("tools/call", _) => {
                let Some(Value::String(name)) = params.remove("name") else {
                    return Some(Err(Fault::params("a call names a tool")));
                };
                let arguments = match params.remove("arguments") {
                    None => Map::new(),
                    Some(Value::Object(arguments)) => arguments,
                    Some(_) => return Some(Err(Fault::params("arguments are an object"))),
                };
                let Some(capability) = tools::find(&name) else {
                    return Some(Err(unknown(&name, caller)));
                };
                match self.call(caller, capability, arguments.into(), cancel).await? {
                    Ok(value) => answered(value),
                    Err(error) => failed(&told(&error)),
                }
            }
            _ => return Some(Err(Fault::method(method))),
        };
        if manner == Manner::Alone
            && let Some(fields) = result.as_object_mut()
        {
            fields.insert("resultType".to_owned(), "complete".into());
        }
        Some(Ok(result))
    }

    /// Carries a call out. What only reads ends once `cancel` is raised; what writes is done to its end, and not told of.
    async fn call(
        &self,
        caller: &Caller,
        capability: &'static Capability,
        params: Value,
        cancel: &CancellationToken,
    ) -> Option<Result<Value, Error>> {
        let place = tokio::select! {
            place = Arc::clone(&self.calls).acquire_owned() => place.ok()?,
            () = cancel.cancelled() => return None,
        };
        let (formwork, caller) = (self.formwork.clone(), caller.clone());
        let work = async move {
            let done = formwork.invoke(&caller, capability.name, params).await;
            drop(place);
            done
        };
        match capability.effect {
            Effect::Read => tokio::select! {
                done = work => Some(done),
                () = cancel.cancelled() => None,
            },
            // Broken off anywhere, it might leave half of what it does.
            Effect::Write => {
                let work = self.writing.spawn(work);
                tokio::select! {
                    // One that panics is told of by the program.
                    done = work => done.ok(),
                    () = cancel.cancelled() => None,
                }
            }
        }
    }

    fn instructions(&self) -> String {
        let workspace = self.formwork.workspace().display();
        format!(
            "Tasks with checks, budgets and a record, in the workspace {workspace}. runs_start begins a run and answers at once with \
             its id: runs_get tells how it stands, events_list what happens, page by page from `next`, inbox_list what it asks, and \
             runs_abort ends it."
        )
    }
}

fn own() -> Value {
    json!({ "name": "formwork", "version": env!("CARGO_PKG_VERSION") })
}

/// Says that there is no such tool, and which is meant where that can be told of what the caller may call.
fn unknown(name: &str, caller: &Caller) -> Fault {
    let names = CAPABILITIES.iter().filter(|it| it.may(caller).is_ok()).map(tools::name);
    let names: Vec<String> = names.collect();
    let hint = nearest_hint(short(name), names.iter().map(String::as_str));
    let hint = hint.map_or(String::new(), |hint| format!("; {hint}"));
    Fault::params(format!("there is no tool {:?}{hint}", short(name)))
}

/// Returns what a call has come to, as a value and as its text.
fn answered(value: Value) -> Value {
    let text = value.to_string();
    if text.len() > LONGEST {
        let (found, hint) =
            (text.len(), "ask for less at a time, as by `limit` where there is one");
        return failed(&format!(
            "the answer has {found} bytes, and at most {LONGEST} are sent\nhint: {hint}"
        ));
    }
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "content": content, "structuredContent": value, "isError": false })
}

fn failed(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

/// Says why a call has failed, with its causes and what can be done about it.
fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(&format!(": {told}"));
        }
        cause = error.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
}
