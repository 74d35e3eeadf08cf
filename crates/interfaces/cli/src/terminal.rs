//! Where output goes, and how: the only place that prints.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use crossterm::style::{Color, ResetColor, SetForegroundColor};
use serde::Serialize;

use crate::{
    args::{Global, When},
    view::Style,
};

/// What is printed for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Text for a person.
    Text,
    /// Text for a person, the outcome only.
    Quiet,
    /// One JSON document.
    Json,
    /// A line of JSON for each event, the outcome last.
    Jsonl,
}

/// Standard output and standard error, as the command line asks for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// What is printed.
    pub format: Format,
    /// Whether standard output takes colours.
    pub color: bool,
    /// Whether standard error takes colours.
    pub color_errors: bool,
    /// Whether standard error is a terminal on which the cursor can move: that is where a run is shown.
    pub interactive: bool,
    /// Whether standard output is a terminal.
    stdout: bool,
}

/// The columns of a terminal that does not tell how many it has.
const COLUMNS: u16 = 80;
/// The lines of a terminal that does not tell how many it has.
const LINES: u16 = 24;

impl Terminal {
    /// Looks at the command line, the environment and what the streams are.
    #[expect(clippy::disallowed_methods, reason = "the cli reads the environment")]
    pub(crate) fn new(global: &Global) -> Self {
        let format = match (global.json, global.jsonl, global.quiet) {
            (true, _, _) => Format::Json,
            (_, true, _) => Format::Jsonl,
            (_, _, true) => Format::Quiet,
            _ => Format::Text,
        };
        // https://no-color.org: set and not empty means no colours.
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colored = |is_terminal: bool| match global.color {
            When::Always => true,
            When::Never => false,
            When::Auto => is_terminal && !plain,
        };
        let stdout = io::stdout().is_terminal();
        Self {
            format,
            color: colored(stdout),
            color_errors: colored(io::stderr().is_terminal()),
            interactive: io::stderr().is_terminal()
                && env::var_os("TERM").is_none_or(|term| term != "dumb"),
            stdout,
        }
    }

    /// Returns a unified diff as it is printed: with colours where standard output takes them.
    pub(crate) fn diff(&self, diff: &str) -> String {
        if !self.color {
            return diff.to_owned();
        }
        let paint = |line: &str| {
            let color = match line.as_bytes().first() {
                Some(b'+') => Color::Green,
                Some(b'-') => Color::Red,
                Some(b'@') => Color::Cyan,
                _ => return format!("{line}\n"),
            };
            format!("{}{line}{ResetColor}\n", SetForegroundColor(color))
        };
        diff.lines().map(paint).collect()
    }

    /// Tells whether what a model says is streamed to the terminal on which the result is printed.
    pub(crate) const fn streams(&self) -> bool {
        self.interactive && self.stdout
    }

    /// Returns how a run is drawn: on standard error, so that standard output holds the result alone.
    pub(crate) fn style(&self) -> Style {
        let (columns, lines) = crossterm::terminal::size().unwrap_or((COLUMNS, LINES));
        Style {
            live: self.interactive && self.format == Format::Text,
            color: self.color_errors,
            width: usize::from(columns),
            // Half of the screen for the tree, so that what happens has the other half.
            height: usize::from(lines / 2).max(3),
        }
    }

    /// Prints text for a person: nothing where a machine reads.
    ///
    /// # Errors
    /// What the stream says.
    pub(crate) fn text(&self, text: impl AsRef<str>) -> io::Result<()> {
        match self.format {
            Format::Text => print(text.as_ref()),
            Format::Quiet | Format::Json | Format::Jsonl => Ok(()),
        }
    }

    /// Prints the result of a verb: the document where a machine reads, else the text.
    ///
    /// # Errors
    /// What the stream says.
    pub(crate) fn result<T: Serialize>(
        &self,
        document: &T,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        match self.format {
            Format::Text | Format::Quiet => print(&text()),
            Format::Json => print(&format!("{}\n", serde_json::to_string_pretty(document)?)),
            Format::Jsonl => print(&format!("{}\n", serde_json::to_string(document)?)),
        }
    }

    /// Prints one line of JSON.
    ///
    /// # Errors
    /// What the stream says.
    pub(crate) fn line<T: Serialize>(&self, document: &T) -> io::Result<()> {
        print(&format!("{}\n", serde_json::to_string(document)?))
    }
}

/// Prints bytes as they are.
///
/// # Errors
/// What the stream says.
pub(crate) fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn print(text: &str) -> io::Result<()> {
    bytes(text.as_bytes())
}

/// Prints to standard error. What cannot be said there cannot be said at all.
pub(crate) fn complain(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}
