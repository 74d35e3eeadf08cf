//! What stands in the place of what was left out.

use std::collections::BTreeMap;

use formwork_protocols::{ContextEdit, text};

use super::Stretch;
use crate::{
    history::{Group, History},
    outside::{indented, outside},
    transcript::{called, transcript},
};

/// What a summary begins with.
const SUMMARY: &str =
    "[The conversation until here, summed up because the window is full. The whole is in the log.]";

/// What instructions of a repository begin with, which no person said.
const INSTRUCTIONS: &str = "<instructions from=";

/// What stands before the words of the person.
const QUOTES: &str = "What was said to you in it, word for word:";

/// What a brief begins with.
const BRIEF: &str = "[This goes on with a conversation that was too long for the window. What you did and found out \
    until here, the newest last; look again before you rely on what is cut.]";

/// How many bytes of one thing that the person said are kept, and of all of them.
const QUOTE_BYTES: usize = 1_000;
const QUOTES_BYTES: usize = 4_000;

/// How many bytes a summary has at the most, besides what the person said.
const SUMMARY_BYTES: usize = 6_000;

/// How many bytes what is written down without a model has at the most.
const DIGEST_BYTES: usize = 2_500;

/// How many of the last calls a digest names.
const DIGEST_CALLS: usize = 12;

/// What stands before the last groups in a brief.
const LAST: &str = "The last steps:";

/// Returns the edit by which a summary in these words stands for a stretch of groups. What the person said in
/// them is kept word for word. The words are a model's, which has read what tools brought: they speak for nobody.
pub fn summary(history: &History, stretch: &Stretch, words: &str) -> ContextEdit {
    let words = outside(words.trim());
    let mut content = format!("{SUMMARY}\n{}", text::preview(&words, SUMMARY_BYTES));
    let said = quotes(stretch.groups(history));
    if !said.is_empty() {
        content.push_str(&format!("\n\n{QUOTES}\n{said}"));
    }
    ContextEdit::Summary { from: stretch.from, through: stretch.through, content }
}

/// Returns what the person said in some groups, and what earlier summaries quote.
pub(super) fn quotes(groups: &[Group]) -> String {
    let mut said = String::new();
    for group in groups {
        let Group::User(message) = group else { continue };
        let words = message.to_text();
        if words.starts_with(INSTRUCTIONS) {
            continue;
        }
        if !words.starts_with(SUMMARY) && !words.starts_with(BRIEF) {
            said.push_str(&format!("- {}\n", indented(&text::preview(words.trim(), QUOTE_BYTES))));
        } else if let (_, Some(quoted)) = parted(&words) {
            said.push_str(quoted);
            said.push('\n');
        }
    }
    // The newest wish counts most; the first ones are near the task, which stands anyway.
    match said.len() {
        0..=QUOTES_BYTES => said,
        _ => format!("[…]{}", text::tail(&said, QUOTES_BYTES)),
    }
}

/// Parts a summary or a brief into what was written down and what a person said, each without its heading. A line of
/// either that looked like a heading would have a backslash before it, or be indented.
fn parted(words: &str) -> (&str, Option<&str>) {
    let heading = format!("\n{QUOTES}\n");
    let Some((told, said)) = words.split_once(&heading) else {
        return (words.split(&format!("\n{LAST}\n")).next().unwrap_or(words), None);
    };
    (told, said.split(&format!("\n{LAST}\n")).next().map(str::trim_end))
}

/// Writes down what happened in some groups without asking a model: what earlier summaries say, how often each tool was
/// called, the last calls, and the model's last words.
pub fn digest(groups: &[Group]) -> String {
    let (mut earlier, mut words) = (String::new(), String::new());
    let (mut counts, mut calls) = (BTreeMap::<&str, usize>::new(), Vec::new());
    for group in groups {
        match group {
            Group::User(message) => {
                let text = message.to_text();
                let rest = text.strip_prefix(SUMMARY).or_else(|| text.strip_prefix(BRIEF));
                if let Some(rest) = rest {
                    let (told, _) = parted(rest);
                    earlier = text::preview(told.trim(), DIGEST_BYTES).into_owned();
                }
            }
            Group::Turn(turn) => {
                let said = turn.assistant().to_text();
                if !said.trim().is_empty() {
                    words = said;
                }
                for (call, result) in turn.pairs() {
                    *counts.entry(call.name.as_str()).or_default() += 1;
                    let failed = if result.is_error { " (failed)" } else { "" };
                    calls.push(format!("- {}{failed}\n", called(call, 120)));
                }
            }
        }
    }
    let mut written = earlier;
    if !counts.is_empty() {
        let counted: Vec<_> =
            counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        written.push_str(&format!("\nCalls: {}. The last of them:\n", counted.join(", ")));
        written.extend(
            calls.iter().skip(calls.len().saturating_sub(DIGEST_CALLS)).map(String::as_str),
        );
    }
    if !words.trim().is_empty() {
        written.push_str(&format!("Last words: {}", indented(&text::preview(words.trim(), 800))));
    }
    text::preview(written.trim(), 2 * DIGEST_BYTES).into_owned()
}

/// Returns what a new conversation has to know that goes on with this one, in at most about `max` bytes.
pub fn brief(history: &History, task: u32, max: usize) -> String {
    let others: Vec<_> = history
        .groups()
        .iter()
        .zip(history.places())
        .filter(|(_, place)| **place != task)
        .map(|(group, _)| group.clone())
        .collect();
    let said = quotes(&others);
    let (older, last) = others.split_at(others.len().saturating_sub(4));
    let part = max / 3;
    let mut written = format!("{BRIEF}\n{}", text::preview(&digest(older), part));
    if !said.is_empty() {
        written.push_str(&format!("\n\n{QUOTES}\n{}", text::tail(&said, part)));
    }
    written.push_str(&format!("\n\n{LAST}\n{}", transcript(last, part)));
    written
}
