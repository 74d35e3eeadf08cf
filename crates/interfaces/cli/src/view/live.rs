//! Draws a run: a live tree below what has happened on a terminal, plain lines elsewhere.

use std::io::{self, Write};

use crossterm::{
    cursor::MoveUp,
    style::{Attribute, Color, ResetColor, SetAttribute, SetForegroundColor},
    terminal::{Clear, ClearType},
};
use formwork_protocols::{
    Approval, Cancellation, Ending, Event, EventBody, SessionId, TaskState, Timestamp,
    event::{Decided, Delta, DeltaKind, GateAnswer},
    text,
};

use super::tree::{Node, Tree};

/// How things are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether the tree is kept at the bottom and drawn anew; needs a terminal.
    pub live: bool,
    /// Whether to use colours.
    pub color: bool,
    /// How many columns there are.
    pub width: usize,
    /// How many lines the live tree may take.
    pub height: usize,
}

/// A run as it is shown while it goes on.
pub(crate) struct Live<W: Write> {
    out: W,
    style: Style,
    tree: Tree,
    /// How many lines of the live tree stand on the screen now.
    drawn: usize,
    /// Whose words are being printed, and the part of a line that is not whole yet.
    speaking: Option<SessionId>,
    line: String,
}

impl<W: Write> Live<W> {
    /// Returns a view that has drawn nothing yet.
    pub(crate) fn new(out: W, style: Style) -> Self {
        Self { out, style, tree: Tree::default(), drawn: 0, speaking: None, line: String::new() }
    }

    /// Takes in what happened before anybody watched, without showing it.
    pub(crate) fn absorb(&mut self, event: &Event) {
        self.tree.apply(event);
    }

    /// Shows that something happened.
    ///
    /// # Errors
    /// What the terminal or pipe says.
    pub(crate) fn event(&mut self, event: &Event) -> io::Result<()> {
        self.tree.apply(event);
        if let Some((mark, text)) = self.told(event) {
            self.finish_line()?;
            self.erase()?;
            self.print(mark, &text)?;
        }
        self.draw(event.at)
    }

    /// Shows more of what a model says.
    ///
    /// # Errors
    /// What the terminal or pipe says.
    pub(crate) fn delta(&mut self, delta: &Delta, now: Timestamp) -> io::Result<()> {
        if delta.kind != DeltaKind::Text {
            return Ok(());
        }
        if self.speaking != Some(delta.session) {
            self.finish_line()?;
            self.speaking = Some(delta.session);
        }
        self.line.push_str(&delta.text);
        let mut whole: Vec<String> = Vec::new();
        while let Some(end) = self.line.find('\n') {
            let rest = self.line.split_off(end + 1);
            whole.push(std::mem::replace(&mut self.line, rest));
        }
        if whole.is_empty() && !self.style.live {
            return Ok(());
        }
        self.erase()?;
        for line in whole {
            self.say(line.trim_end())?;
        }
        self.draw(now)
    }

    /// Draws the tree anew, so that its times go on.
    ///
    /// # Errors
    /// What the terminal or pipe says.
    pub(crate) fn tick(&mut self, now: Timestamp) -> io::Result<()> {
        if self.style.live {
            self.erase()?;
            self.draw(now)?;
        }
        Ok(())
    }

    /// Clears the live part, so that somebody else can write; what happens next draws it again.
    ///
    /// # Errors
    /// What the terminal or pipe says.
    pub(crate) fn hold(&mut self) -> io::Result<()> {
        self.finish_line()?;
        self.erase()?;
        self.out.flush()
    }

    /// Ends the live part and leaves the tree as it is now.
    ///
    /// # Errors
    /// What the terminal or pipe says.
    pub(crate) fn finish(&mut self, now: Timestamp) -> io::Result<()> {
        self.finish_line()?;
        self.erase()?;
        let lines: Vec<String> = self.tree.nodes().map(|node| self.node(node, now)).collect();
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }

    /// Says in a line what happened, where a person wants to know.
    fn told(&self, event: &Event) -> Option<(Mark, String)> {
        let task = event.task.map(|task| self.tree.name(task));
        // What is told of the run itself, as what a merge changes, is no task's.
        let line = |text: String| match task {
            Some(task) => format!("{task}: {text}"),
            None => text,
        };
        Some(match &event.body {
            EventBody::TaskMoved(moved) => match (moved.to, &moved.ending) {
                (TaskState::Completed, _) => (Mark::Good, line("completed".into())),
                (TaskState::PostcheckFailed, _) => {
                    (Mark::Bad, line("not done: an exit check failed".into()))
                }
                (TaskState::Cancelled, Some(ending)) => (Mark::Plain, line(ending.to_string())),
                (state, Some(ending)) if state.is_terminal() => {
                    (Mark::Bad, line(ending.to_string()))
                }
                _ => return None,
            },
            EventBody::AttemptStarted(started) if started.number > 1 => {
                (Mark::Plain, line(format!("attempt {}", started.number)))
            }
            EventBody::CheckFinished(check) => {
                let verdict = &check.verdict;
                let mark = if verdict.passed { Mark::Good } else { Mark::Bad };
                let phase = check.phase.as_str();
                (mark, line(format!("{phase} check {:?}: {}", verdict.check, verdict.reason)))
            }
            EventBody::ToolRequested(asked) => match &asked.decision {
                Decided::Allowed => {
                    (Mark::Step, line(super::tree::describe(&asked.tool, &asked.arguments)))
                }
                Decided::Refused { reason } => {
                    let what = super::tree::describe(&asked.tool, &asked.arguments);
                    (Mark::Bad, line(format!("{what}: {reason}")))
                }
            },
            EventBody::ToolGated(gated) => {
                let (mark, answer) = match &gated.answer {
                    // A refusal and a question are told where they are made.
                    GateAnswer::Allow | GateAnswer::Deny { .. } | GateAnswer::Ask { .. } => {
                        return None;
                    }
                    GateAnswer::Replace { .. } => (Mark::Step, "replaces the arguments of"),
                    _ => return None,
                };
                (mark, line(format!("gate {} {answer} {}", gated.gate, gated.tool)))
            }
            EventBody::NoteAdded(note) => {
                let first = note.text.lines().next().unwrap_or_default();
                (Mark::Plain, line(format!("notes: {first}")))
            }
            EventBody::HookFailed(failed) => {
                let what = format!("hook {} did not take {}", failed.hook, failed.event);
                (Mark::Bad, format!("{what}: {}", failed.reason))
            }
            EventBody::NetworkRefused(refused) => (Mark::Bad, line(refused.to_string())),
            EventBody::ToolDecided(decided) => {
                let what = match &decided.approval {
                    Approval::Once => "once".to_owned(),
                    Approval::Session { covers } => {
                        format!("{} in this session", crate::asking::told(covers))
                    }
                    Approval::Rule { covers } => {
                        format!("{} always, in this workspace", crate::asking::told(covers))
                    }
                    // The refusal is told with its request.
                    _ => return None,
                };
                (Mark::Plain, line(format!("{} allows {what}", event.principal)))
            }
            EventBody::ToolFailed(failed) => {
                // A refusal was told with its request.
                if failed.elapsed == formwork_protocols::Span::ZERO {
                    return None;
                }
                let first = failed.message.lines().next().unwrap_or_default();
                (Mark::Bad, line(format!("{}: {first}", self.tree.call(failed.call))))
            }
            EventBody::FileChanged(change) => (
                Mark::Plain,
                line(format!("{} +{} -{}", change.path, change.added, change.removed)),
            ),
            EventBody::ModelRetried(retried) => {
                (Mark::Plain, line(format!("{}; tries again in {}", retried.error, retried.wait)))
            }
            // Whom the conversation has given up on already is not told at each of its turns.
            EventBody::ModelFellBack(fell) if fell.error.tries == 0 => return None,
            EventBody::ModelFellBack(fell) => {
                (Mark::Plain, line(format!("{}; asks {} in its place", fell.error, fell.to)))
            }
            EventBody::ModelFailed(failed) => (Mark::Bad, line(failed.error.to_string())),
            EventBody::WorkerAwaited(it) => (Mark::Plain, line(it.to_string())),
            EventBody::WorkerConnected(it) => (Mark::Plain, line(it.to_string())),
            EventBody::WorkerLost(it) => (Mark::Bad, line(it.to_string())),
            EventBody::WorkerRefused(it) => (Mark::Bad, line(it.to_string())),
            EventBody::ServiceStarted(it) => (Mark::Plain, it.to_string()),
            EventBody::ServiceReady(it) => (Mark::Plain, it.to_string()),
            EventBody::ServiceFailed(it) => (Mark::Bad, it.to_string()),
            EventBody::ServiceStopped(it) => (Mark::Plain, it.to_string()),
            EventBody::BudgetWarned(crossing) => (Mark::Plain, line(crossing.to_string())),
            EventBody::BudgetExhausted(exhausted) => (Mark::Bad, line(exhausted.detail.clone())),
            EventBody::InstructionsLoaded(loaded) => {
                let cut = if loaded.cut { ", in part" } else { "" };
                (Mark::Plain, line(format!("follows {}{cut}", loaded.path)))
            }
            EventBody::RunSteered(steered) => {
                let first = steered.text.lines().next().unwrap_or_default();
                (Mark::Plain, format!("{} says: {first}", event.principal))
            }
            EventBody::SessionSteered(_) => (Mark::Plain, line("has heard it".to_owned())),
            EventBody::SessionReprompted(told) => (Mark::Plain, line(told.to_string())),
            EventBody::ContextCompacted(done) => (Mark::Plain, line(done.to_string())),
            EventBody::InboxAsked(asked) => {
                let options = asked.options.join(" | ");
                let item = event.task.map_or(String::new(), |task| task.to_string());
                let how = match (&asked.assume, asked.escalation) {
                    (Some(assume), true) => {
                        format!(
                            "{assume:?} is assumed; `formwork inbox answer {item} …` says otherwise"
                        )
                    }
                    _ => format!("answer it by `formwork inbox answer {item} …`"),
                };
                (Mark::Step, line(format!("asks: {} ({options}); {how}", asked.question)))
            }
            EventBody::InboxAnswered(said) => {
                (Mark::Plain, line(format!("{} answers {}", event.principal, said.answer)))
            }
            EventBody::InboxExpired(expired) => {
                let then = expired.assumed.as_ref().map_or_else(
                    || "nobody has answered".to_owned(),
                    |assumed| format!("nobody has answered; {assumed} is assumed"),
                );
                (Mark::Plain, line(then))
            }
            EventBody::InboxContradicted(said) => {
                (Mark::Bad, line(format!("{} says otherwise: {said}", event.principal)))
            }
            EventBody::OverseerAnswered(answered) => {
                (Mark::Plain, line(format!("{} {}", event.principal, answered.action)))
            }
            EventBody::RunPaused(paused) => (Mark::Plain, format!("paused: {}", paused.reason)),
            EventBody::RunResumed(_) => (Mark::Plain, "resumed".to_owned()),
            _ => return None,
        })
    }

    /// Prints a line of what happened.
    fn print(&mut self, mark: Mark, text: &str) -> io::Result<()> {
        let text = visible(text.lines().next().unwrap_or_default());
        let cut = if self.style.live {
            columns(&text, self.style.width.saturating_sub(3)).to_owned()
        } else {
            text
        };
        if !self.style.color {
            return writeln!(self.out, "{} {cut}", mark.sign());
        }
        let (color, sign) = (mark.color(), mark.sign());
        writeln!(self.out, "{}{sign}{} {cut}", SetForegroundColor(color), ResetColor)
    }

    /// Prints a line of what a model said; on a terminal it is broken between words.
    fn say(&mut self, line: &str) -> io::Result<()> {
        let line = visible(line);
        if !self.style.live {
            return writeln!(self.out, "| {line}");
        }
        let (dim, reset) = match self.style.color {
            true => (
                SetAttribute(Attribute::Dim).to_string(),
                SetAttribute(Attribute::Reset).to_string(),
            ),
            false => (String::new(), String::new()),
        };
        for part in wrapped(&line, self.style.width.saturating_sub(3).max(10)) {
            writeln!(self.out, "{dim}│{reset} {part}")?;
        }
        Ok(())
    }

    /// Prints what is left of a line that a model did not end.
    fn finish_line(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.line);
        if !rest.trim().is_empty() {
            self.erase()?;
            self.say(rest.trim_end())?;
        }
        self.speaking = None;
        Ok(())
    }

    fn erase(&mut self) -> io::Result<()> {
        if self.drawn > 0 {
            let lines = u16::try_from(self.drawn).unwrap_or(u16::MAX);
            write!(self.out, "{}\r{}", MoveUp(lines), Clear(ClearType::FromCursorDown))?;
            self.drawn = 0;
        }
        Ok(())
    }

    /// Draws the tree, those tasks first that are at work where not all fit.
    fn draw(&mut self, now: Timestamp) -> io::Result<()> {
        if !self.style.live {
            return self.out.flush();
        }
        self.erase()?;
        let nodes: Vec<&Node> = self.tree.nodes().collect();
        let room = self.style.height.max(3);
        let fits = nodes.len() <= room;
        let shown: Vec<&Node> = nodes
            .iter()
            .copied()
            .filter(|node| fits || !(node.state.is_terminal() || node.state == TaskState::Created))
            .take(room)
            .collect();
        let left_out = nodes.len() - shown.len();
        let mut lines: Vec<String> = shown.into_iter().map(|node| self.node(node, now)).collect();
        if left_out > 0 {
            lines.push(format!("  … {left_out} more tasks"));
        }
        if !self.line.trim().is_empty() {
            lines.insert(
                0,
                format!("│ {}", columns(&visible(&self.line), self.style.width.saturating_sub(2))),
            );
        }
        for line in &lines {
            writeln!(self.out, "{line}")?;
        }
        self.drawn = lines.len();
        self.out.flush()
    }

    /// Draws one task.
    fn node(&self, node: &Node, now: Timestamp) -> String {
        let indent = "  ".repeat(node.depth);
        let mark = Mark::of(node);
        let elapsed = node.elapsed(now).map_or(String::new(), |span| short(span.as_millis()));
        let tries = if node.attempts > 1 { format!(" ×{}", node.attempts) } else { String::new() };
        let facts = format!("{:<9} {elapsed:>6}  ${}{tries}", word(node), node.cost);
        let doing = if node.doing.is_empty() { String::new() } else { format!("  {}", node.doing) };
        let plain = format!("{indent}{} {}  {facts}{}", mark.sign(), node.name, visible(&doing));
        let cut = if self.style.live {
            columns(&plain, self.style.width.saturating_sub(1))
        } else {
            &plain
        };
        if !self.style.color {
            return cut.to_owned();
        }
        let sign = mark.sign();
        let colored = format!("{}{sign}{}", SetForegroundColor(mark.color()), ResetColor);
        cut.replacen(sign, &colored, 1)
    }
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Good,
    Bad,
    Step,
    Plain,
    Busy,
}

impl Mark {
    fn of(node: &Node) -> Self {
        match node.state {
            TaskState::Completed => Self::Good,
            TaskState::PrecheckFailed | TaskState::Escalated | TaskState::PostcheckFailed => {
                Self::Bad
            }
            TaskState::Created | TaskState::Cancelled | TaskState::Suspended => Self::Plain,
            TaskState::Prechecking | TaskState::Active | TaskState::Postchecking => Self::Busy,
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Bad => "✗",
            Self::Step => "›",
            Self::Plain => "·",
            Self::Busy => "●",
        }
    }

    const fn color(self) -> Color {
        match self {
            Self::Good => Color::Green,
            Self::Bad => Color::Red,
            Self::Step => Color::Cyan,
            Self::Plain => Color::DarkGrey,
            Self::Busy => Color::Yellow,
        }
    }
}

/// Says in a word where a task stands.
const fn word(node: &Node) -> &'static str {
    match node.state {
        TaskState::Created => "waits",
        TaskState::Prechecking => "entry",
        TaskState::Active => "works",
        TaskState::Suspended => "suspended",
        TaskState::Postchecking => "exit",
        TaskState::PostcheckFailed => "failed",
        TaskState::Completed => "done",
        TaskState::PrecheckFailed => "refused",
        TaskState::Escalated => "gave up",
        TaskState::Cancelled => match &node.ending {
            Some(Ending::Cancelled { why: Cancellation::Skipped { .. } }) => "skipped",
            _ => "cancelled",
        },
    }
}

/// Writes a time as people read a clock at a glance: `0.4s`, `12s`, `3m07s`, `2h05m`.
fn short(millis: u64) -> String {
    let secs = millis / 1_000;
    match secs {
        0..10 => format!("{secs}.{}s", millis % 1_000 / 100),
        10..60 => format!("{secs}s"),
        60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3_600, secs % 3_600 / 60),
    }
}

/// Makes what could move the cursor or hide itself visible: control characters and those that turn
/// the direction of writing. What a model or a file says must not be able to redraw the screen.
pub(crate) fn visible(line: &str) -> String {
    line.chars()
        .map(|character| match character {
            '\t' => ' ',
            c if c.is_control() => '\u{FFFD}',
            '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}'
            | '\u{2060}'..='\u{2069}'
            | '\u{FEFF}' => '\u{FFFD}',
            c => c,
        })
        .collect()
}

/// Returns as much of a line as fits so many columns; wide characters count as two.
pub(crate) fn columns(line: &str, width: usize) -> &str {
    let mut used = 0;
    for (at, character) in line.char_indices() {
        used += if wide(character) { 2 } else { 1 };
        if used > width {
            return text::head(line, at);
        }
    }
    line
}

/// Breaks a line between words so that each part fits so many columns; a longer word is cut.
fn wrapped(line: &str, width: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = line;
    loop {
        let fitting = columns(rest, width);
        if fitting.len() == rest.len() || fitting.is_empty() {
            parts.push(rest);
            return parts;
        }
        let (_, beyond) = rest.split_at(fitting.len());
        let end = match beyond.starts_with(' ') {
            true => fitting.len(),
            false => fitting.rfind(' ').filter(|at| *at > 0).unwrap_or(fitting.len()),
        };
        let (part, after) = rest.split_at(end);
        parts.push(part);
        rest = after.trim_start();
    }
}

/// Tells whether a character takes two columns: East Asian wide and full-width forms, and emoji.
///
/// Source: Unicode Standard Annex 11, the blocks that are wide throughout.
pub(crate) const fn wide(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{115F}' | '\u{2E80}'..='\u{303E}' | '\u{3041}'..='\u{A4CF}'
        | '\u{AC00}'..='\u{D7A3}' | '\u{F900}'..='\u{FAFF}' | '\u{FE30}'..='\u{FE6F}'
        | '\u{FF00}'..='\u{FF60}' | '\u{FFE0}'..='\u{FFE6}' | '\u{1F300}'..='\u{1FAFF}'
        | '\u{20000}'..='\u{3FFFD}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_says_cannot_move_the_cursor() {
        assert_eq!(visible("a\x1b[2Jb\u{202E}c\td"), "a\u{FFFD}[2Jb\u{FFFD}c d");
    }

    #[test]
    fn a_line_is_cut_by_columns_and_not_in_a_character() {
        assert_eq!(columns("日本語", 4), "日本");
        assert_eq!(columns("日本語", 5), "日本");
        assert_eq!(columns("abc", 2), "ab");
    }

    #[test]
    fn a_long_line_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh i", 4), ["abcd", "efgh", "i"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn times_are_read_at_a_glance() {
        assert_eq!([400, 12_000, 187_000, 7_500_000].map(short), ["0.4s", "12s", "3m07s", "2h05m"]);
    }
}
