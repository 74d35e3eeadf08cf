//! What was done for an answer, in a line each.

use std::collections::HashMap;

use crossterm::style::Color;
use formwork_protocols::{CallId, Event, EventBody, event::Decided};

use super::markdown::{dim, painted};
use crate::view::{describe, visible};

/// The calls of a turn, by what they are shown as.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    calls: HashMap<CallId, String>,
    /// Whether the turn goes on with others.
    goes_on: bool,
    /// How many calls were made.
    pub(super) made: usize,
    /// What goes on now.
    pub(super) doing: String,
}

impl Receipts {
    /// Takes an event and returns the line that tells of it, if it is worth one.
    pub(super) fn take(&mut self, event: &Event, color: bool) -> Option<String> {
        let good = |text: String| format!("{} {text}", painted("✓", Color::Green, color));
        let bad = |text: String| format!("{} {}", painted("✗", Color::Red, color), visible(&text));
        let plain = |text: String| dim(&format!("· {}", visible(&text)), color);
        Some(match &event.body {
            EventBody::ModelRequested(asked) => {
                self.doing = match asked.purpose.is_turn() {
                    true => format!("asks {}", asked.model),
                    false => "sums up".to_owned(),
                };
                return None;
            }
            EventBody::ToolRequested(asked) => {
                let what = visible(&describe(&asked.tool, &asked.arguments));
                self.made += 1;
                match &asked.decision {
                    Decided::Refused { reason } => bad(format!("{what}: {reason}")),
                    _ => {
                        self.doing.clone_from(&what);
                        self.calls.insert(asked.call, what);
                        return None;
                    }
                }
            }
            EventBody::ToolCompleted(done) => {
                let what = self.calls.remove(&done.call)?;
                let lines = done.preview.lines().count();
                let size = if lines == 1 { "1 line".to_owned() } else { format!("{lines} lines") };
                good(format!(
                    "{what} {}",
                    dim(&format!("({size}, {} ms)", done.elapsed.as_millis()), color)
                ))
            }
            EventBody::ToolFailed(failed) => {
                let what = self.calls.remove(&failed.call)?;
                bad(format!("{what}: {}", failed.message.lines().next().unwrap_or_default()))
            }
            EventBody::FileChanged(change) => {
                let (added, removed) =
                    (format!("+{}", change.added), format!("-{}", change.removed));
                let (added, removed) =
                    (painted(&added, Color::Green, color), painted(&removed, Color::Red, color));
                format!("  {} {added} {removed}", visible(&change.path))
            }
            EventBody::ModelRetried(retried) => {
                plain(format!("{}; tries again in {}", retried.error, retried.wait))
            }
            EventBody::ModelFellBack(fell) if fell.error.tries > 0 => {
                plain(format!("{}; asks {} in its place", fell.error, fell.to))
            }
            EventBody::SessionStarted(started) if started.call.is_none() => {
                self.goes_on = started.carried > 0;
                return None;
            }
            // They were told of at the first turn.
            EventBody::InstructionsLoaded(loaded) if self.goes_on && !loaded.path.contains('/') => {
                return None;
            }
            EventBody::InstructionsLoaded(loaded) => plain(format!("follows {}", loaded.path)),
            EventBody::SessionSteered(_) => plain("has heard you".to_owned()),
            EventBody::SessionReprompted(told) => plain(told.to_string()),
            EventBody::ContextCompacted(done) => plain(done.to_string()),
            EventBody::BudgetWarned(crossing) => plain(crossing.to_string()),
            EventBody::BudgetExhausted(exhausted) => bad(exhausted.detail.clone()),
            _ => return None,
        })
    }
}
