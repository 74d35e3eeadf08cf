//! What a question looks like, and how the answer to it is read.

use formwork_protocols::{Approval, ApprovalRequest, Cover, ToolClass};
use serde_json::Value;

use crate::view::visible;

/// How much of a hash is shown.
const HASH: usize = 12;

/// How many lines of a call are shown unasked.
const LINES: usize = 24;

/// Writes a question: who wants what, why it is asked, and what may be answered.
pub(crate) fn question(request: &ApprovalRequest) -> String {
    let mut text = format!("? {} wants to call {}\n", request.context.agent, request.tool);
    let call = whole(request);
    let all = call.lines().count();
    for line in call.lines().take(LINES) {
        text.push_str(&format!("    {line}\n"));
    }
    if all > LINES {
        text.push_str(&format!("    … {} lines more; v shows all\n", all - LINES));
    }
    text.push_str(&format!("  because {}\n", visible(&request.why)));
    text.push_str("  y once · s this call in this session");
    if let Some(alike) = &request.alike {
        text.push_str(&format!(" · a {} in this session", told(alike)));
    }
    let kept = request.alike.as_ref().unwrap_or(&request.exact);
    text.push_str(&format!(" · r {} always, in this workspace", told(kept)));
    text.push_str(" · n no · n WHY\n");
    text
}

/// Writes the call that is asked about, whole: what is approved is this and nothing else.
pub(crate) fn whole(request: &ApprovalRequest) -> String {
    let Value::Object(arguments) = &request.arguments else {
        return safe(&request.arguments.to_string());
    };
    let mut text = String::new();
    for (key, value) in arguments {
        match (request.class, key.as_str(), value) {
            (ToolClass::Exec, "command", Value::Array(words)) => {
                let words: Vec<String> = words.iter().map(word).collect();
                text.push_str(&format!("{}\n", words.join(" ")));
            }
            (_, _, Value::String(long)) if long.contains('\n') => {
                text.push_str(&format!("{}:\n", safe(key)));
                text.extend(long.lines().map(|line| format!("| {}\n", safe(line))));
            }
            (_, _, Value::String(short)) => {
                text.push_str(&format!("{}: {}\n", safe(key), safe(short)));
            }
            _ => text.push_str(&format!("{}: {}\n", safe(key), safe(&value.to_string()))),
        }
    }
    text
}

/// Names what an approval covers.
pub(crate) fn told(cover: &Cover) -> String {
    match cover {
        Cover::Commands { pattern } => format!("`{}`", visible(pattern)),
        Cover::Host { host } => format!("requests to {}", visible(host)),
        Cover::Call { tool, .. } => format!("this very call of {tool}"),
        _ => "what a later version knows".to_owned(),
    }
}

/// Tells what is not asked about any more. Of a call only the hash of its arguments is kept.
pub(crate) fn listed(cover: &Cover) -> String {
    match cover {
        Cover::Commands { pattern } => {
            format!("commands that match `{}`, at the top of the workspace", visible(pattern))
        }
        Cover::Call { tool, arguments } => {
            let hash = arguments.to_string();
            let hash = formwork_protocols::text::head(&hash, HASH);
            format!(
                "one call of {tool} and no other: the one whose arguments have the hash {hash}…"
            )
        }
        other => told(other),
    }
}

/// Writes a word of a command so that its ends can be seen.
fn word(value: &Value) -> String {
    let Value::String(word) = value else { return value.to_string() };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => safe(&format!("{word:?}")),
    }
}

fn safe(text: &str) -> String {
    visible(text)
}

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    /// An answer.
    Answer(Approval),
    /// The whole call is to be shown.
    Show,
    /// Nothing that could be understood.
    Unclear,
}

/// Reads what was typed; the end of the input is a refusal.
pub(crate) fn read(line: Option<&str>, request: &ApprovalRequest) -> Reading {
    let denied = |reason: &str| Reading::Answer(Approval::Denied { reason: reason.to_owned() });
    let Some(line) = line.map(str::trim) else { return denied("a person left without an answer") };
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (verb.to_ascii_lowercase().as_str(), rest.trim()) {
        ("y" | "yes" | "once", "") => Reading::Answer(Approval::Once),
        ("s" | "session", "") => {
            Reading::Answer(Approval::Session { covers: request.exact.clone() })
        }
        ("a" | "alike", "") => match &request.alike {
            Some(alike) => Reading::Answer(Approval::Session { covers: alike.clone() }),
            None => Reading::Unclear,
        },
        ("r" | "rule" | "always", "") => {
            let covers = request.alike.as_ref().unwrap_or(&request.exact).clone();
            Reading::Answer(Approval::Rule { covers })
        }
        ("n" | "no", "") => denied("a person refused it"),
        ("n" | "no", why) => denied(&format!("a person refused it: {why}")),
        ("v" | "view", "") => Reading::Show,
        _ => Reading::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{
        AgentName, BlobHash, CallId, RunId, SeededRng, SessionId, SystemClock, TaskId, ToolName,
        tool::CallContext,
    };
    use serde_json::json;

    use super::*;

    fn request(arguments: Value, alike: Option<&str>) -> ApprovalRequest {
        let rng = SeededRng::new(1);
        let tool = ToolName::parse("exec").unwrap();
        ApprovalRequest {
            context: CallContext {
                run: RunId::generate(&SystemClock, &rng),
                task: TaskId::generate(&SystemClock, &rng),
                session: SessionId::generate(&SystemClock, &rng),
                call: CallId::generate(&SystemClock, &rng),
                agent: AgentName::parse("coder").unwrap(),
            },
            exact: Cover::Call { tool: tool.clone(), arguments: BlobHash::of(b"x") },
            tool,
            class: ToolClass::Exec,
            arguments,
            why: "no list of commands was given, which mode edit does not allow by itself".into(),
            alike: alike.map(|pattern| Cover::Commands { pattern: pattern.into() }),
        }
    }

    #[test]
    fn a_question_shows_the_very_call_and_what_each_answer_covers() {
        let plain = request(json!({ "command": ["cargo", "test", "a b"] }), Some("cargo test *"));
        let sly = request(
            json!({ "command": ["echo", "x\n  y once"], "cwd": "\u{202e}src\u{1b}[2J" }),
            None,
        );
        let long = request(json!({ "command": ["tee"], "stdin": "line\n".repeat(40) }), None);

        let shown = [plain, sly, long].map(|request| question(&request)).join("\n");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn what_is_not_asked_about_is_told_so_that_each_can_be_told_from_the_others() {
        let call = request(json!({}), None).exact;
        let command = Cover::Commands { pattern: "cargo test *".into() };

        assert_eq!(
            listed(&command),
            "commands that match `cargo test *`, at the top of the workspace"
        );
        let hash = &BlobHash::of(b"x").to_string()[..HASH];
        let told =
            format!("one call of exec and no other: the one whose arguments have the hash {hash}…");
        assert_eq!(listed(&call), told);
    }

    #[test]
    fn an_answer_is_read_in_few_ways_and_all_else_is_unclear() {
        let asked = request(json!({ "command": ["cargo", "test"] }), Some("cargo test *"));
        let alone = request(json!({ "command": ["ls"] }), None);
        let alike = asked.alike.clone().unwrap();
        let read = |line: &str| read(Some(line), &asked);

        assert_eq!(read("y\n"), Reading::Answer(Approval::Once));
        assert_eq!(read(" S "), Reading::Answer(Approval::Session { covers: asked.exact.clone() }));
        assert_eq!(read("a"), Reading::Answer(Approval::Session { covers: alike.clone() }));
        assert_eq!(read("always"), Reading::Answer(Approval::Rule { covers: alike }));
        let refused = |reason: &str| Reading::Answer(Approval::Denied { reason: reason.into() });
        assert_eq!(read("n"), refused("a person refused it"));
        assert_eq!(read("no use npm"), refused("a person refused it: use npm"));
        assert_eq!(read("v"), Reading::Show);
        for line in ["", "\n", "yes please", "ja", "y s", "q"] {
            assert_eq!(read(line), Reading::Unclear, "{line:?}");
        }
        assert_eq!(super::read(Some("a"), &alone), Reading::Unclear);
        assert!(matches!(super::read(None, &alone), Reading::Answer(Approval::Denied { .. })));
    }
}
