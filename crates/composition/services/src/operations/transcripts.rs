//! `transcripts.*`: what was said in the conversations of runs.

use std::collections::HashMap;

use async_trait::async_trait;
use formwork_protocols::{
    AgentName, BlobHash, EventBody, Message, Part, Position, Role, RunId, SessionId, Store, TaskId,
    Timestamp, event::SessionMessage, message::Arguments, store::Selection, text,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::runs::named;
use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// How many runs of the workspace are searched, the newest first.
const SEARCHED_RUNS: usize = 500;

/// How many messages are read in one search.
const SEARCHED_MESSAGES: usize = 50_000;

/// How many bytes of a line that was found are shown.
const LINE_BYTES: usize = 240;

/// How many bytes of one message are told.
const MESSAGE_BYTES: usize = 64 * 1024;

/// Which run is meant.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The run.
    pub run: RunId,
}

/// What was said in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transcript {
    /// The run.
    pub run: RunId,
    /// Its conversations, in the order in which they began.
    pub conversations: Vec<Conversation>,
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Conversation {
    pub session: SessionId,
    pub task: Option<TaskId>,
    pub agent: AgentName,
    /// How many messages it took over from the one that it goes on with; they are not told again.
    pub carried: u32,
    pub messages: Vec<Said>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Said {
    /// Its place in the conversation.
    pub index: u32,
    pub role: Role,
    /// Its words, or the results that it carries; cut where it is long.
    pub text: String,
    /// The tools that it calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
}

/// `transcripts.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "transcripts.get";
    const DOC: &'static str = "Returns what was said in the conversations of a run.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Transcript;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Transcript, Error> {
        let store = &*formwork.inner.store;
        let run = named(store, params.run).await?.run;
        let mut conversations: Vec<Conversation> = Vec::new();
        for (task, body) in events(store, run).await? {
            match body {
                EventBody::SessionStarted(started) => conversations.push(Conversation {
                    session: started.session,
                    task,
                    agent: started.agent,
                    carried: started.carried,
                    messages: Vec::new(),
                }),
                EventBody::SessionMessage(said) => {
                    let of = conversations.iter_mut().find(|it| it.session == said.session);
                    let Some(of) = of.filter(|of| is_own(&said, of.carried)) else { continue };
                    let Some(message) = message(store, &said.message).await? else { continue };
                    let calls = message.tool_calls().map(|call| call.name.clone()).collect();
                    let text = text::preview(&words(&message), MESSAGE_BYTES).into_owned();
                    of.messages.push(Said { index: said.index, role: said.role, text, calls });
                }
                _ => {}
            }
        }
        Ok(Transcript { run, conversations })
    }
}

/// What is looked for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchParams {
    /// A text, in whatever letters.
    pub text: String,
    /// How many finds at the most.
    pub limit: usize,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Searched {
    /// The newest runs first, and within one in the order in which it was said.
    pub found: Vec<Found>,
    /// Whether there may be more, in what was not looked at.
    pub more: bool,
}

/// A message that holds the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Found {
    pub run: RunId,
    /// When the run began.
    pub at: Timestamp,
    pub session: SessionId,
    pub index: u32,
    pub role: Role,
    /// The first line of it that holds the text, cut where it is long.
    pub line: String,
}

/// `transcripts.search`
pub struct Search;

#[async_trait]
impl Operation for Search {
    const NAME: &'static str = "transcripts.search";
    const DOC: &'static str = "Finds a text in what was said in the runs of the workspace.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = SearchParams;
    type Output = Searched;

    async fn run(formwork: &Formwork, _: &Caller, params: SearchParams) -> Result<Searched, Error> {
        let SearchParams { text: wanted, limit } = params;
        let wanted = wanted.trim().to_lowercase();
        if wanted.is_empty() {
            return Ok(Searched { found: Vec::new(), more: false });
        }
        let store = &*formwork.inner.store;
        let own = formwork.workspace().display().to_string();
        let rows = store.runs(None, SEARCHED_RUNS).await?;
        let (mut found, mut read, mut more) = (Vec::new(), 0_usize, rows.len() >= SEARCHED_RUNS);
        'runs: for row in rows.iter().filter(|row| row.workspace == own) {
            let mut carried: HashMap<SessionId, u32> = HashMap::new();
            for (_, body) in events(store, row.run).await? {
                let said = match body {
                    EventBody::SessionStarted(started) => {
                        carried.insert(started.session, started.carried);
                        continue;
                    }
                    // What every agent is told is no find.
                    EventBody::SessionMessage(said) if said.role != Role::System => said,
                    _ => continue,
                };
                if !is_own(&said, carried.get(&said.session).copied().unwrap_or_default()) {
                    continue;
                }
                if found.len() >= limit || read >= SEARCHED_MESSAGES {
                    more = true;
                    break 'runs;
                }
                read += 1;
                let Some(message) = message(store, &said.message).await? else { continue };
                let words = words(&message);
                if let Some(line) = line_with(&words, &wanted) {
                    let (run, at) = (row.run, row.created);
                    let SessionMessage { session, index, role, .. } = said;
                    found.push(Found { run, at, session, index, role, line });
                }
            }
        }
        Ok(Searched { found, more })
    }
}

/// Tells whether a message was said in its conversation, and not in the one that it goes on with.
const fn is_own(said: &SessionMessage, carried: u32) -> bool {
    carried == 0 || said.index == 0 || said.index >= carried
}

/// Reads the conversations of a run from its log.
async fn events(store: &dyn Store, run: RunId) -> Result<Vec<(Option<TaskId>, EventBody)>, Error> {
    let kinds = ["session.started", "session.message"].map(str::to_owned).to_vec();
    let selection = Selection { run: Some(run), task: None, kinds };
    let (mut all, mut after) = (Vec::new(), Position::default());
    loop {
        let events = store.read(after, &selection, 1_000).await?;
        let Some(last) = events.last() else { return Ok(all) };
        after = last.position;
        all.extend(events.into_iter().map(|event| (event.task, event.body)));
    }
}

async fn message(store: &dyn Store, hash: &BlobHash) -> Result<Option<Message>, Error> {
    let bytes = store.blob(hash).await?.unwrap_or_default();
    Ok(serde_json::from_slice(&bytes).ok())
}

/// Returns the words of a message: its text, what it calls with which arguments, and the results that it carries.
fn words(message: &Message) -> String {
    let mut words = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text } => words.push(text.clone()),
            Part::ToolCall(call) => words.push(match &call.arguments {
                Arguments::Json(value) => format!("{} {value}", call.name),
                Arguments::Malformed { text, .. } => format!("{} {text}", call.name),
            }),
            Part::ToolResult(result) => words.push(result.content.clone()),
            Part::Image { media_type, .. } => words.push(format!("[{media_type}]")),
            // The line ahead of it says what it is.
            Part::Attached(_) => {}
            _ => {}
        }
    }
    words.join("\n")
}

/// Returns the part of the first line with a text that surrounds it. `wanted` has small letters.
fn line_with(words: &str, wanted: &str) -> Option<String> {
    let line = match wanted.contains('\n') {
        false => words.lines().find(|line| line.to_lowercase().contains(wanted))?,
        true => {
            words.to_lowercase().contains(wanted).then_some(())?;
            let first = wanted.lines().next().unwrap_or_default();
            words.lines().find(|line| line.to_lowercase().contains(first))?
        }
    };
    let line = line.trim();
    if line.len() <= LINE_BYTES {
        return Some(line.to_owned());
    }
    // Letters may change their length when they are made small: the place is near enough.
    let at = line.to_lowercase().find(wanted).unwrap_or_default().min(line.len());
    let start = (at.saturating_sub(LINE_BYTES / 3)..=at).find(|at| line.is_char_boundary(*at));
    let rest = line.get(start.unwrap_or_default()..).unwrap_or_default();
    let before = if start > Some(0) { "…" } else { "" };
    let kept = text::head(rest, LINE_BYTES);
    let behind = if kept.len() < rest.len() { "…" } else { "" };
    Some(format!("{before}{kept}{behind}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_found_in_whatever_letters_and_cut_around_what_was_looked_for() {
        let long = format!("{} The NEEDLE is here {}", "hay ".repeat(200), "straw ".repeat(200));

        assert_eq!(line_with("one\n  Two Ways \nthree", "two ways").as_deref(), Some("Two Ways"));
        assert_eq!(line_with("one", "two"), None);
        let cut = line_with(&long, "needle").unwrap();
        assert!(cut.contains("NEEDLE") && cut.len() < 300, "{cut}");
        assert!(cut.starts_with('…') && cut.ends_with('…'), "{cut}");
    }

    proptest! {
        #[test]
        fn no_text_panics(words in "\\PC{0,400}", wanted in "\\PC{1,5}") {
            let _ = line_with(&words, &wanted.to_lowercase());
        }
    }
}
