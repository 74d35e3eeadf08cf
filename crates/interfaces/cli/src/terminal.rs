//! Where output goes, and how: the only place that prints.

use std::{
    borrow::Cow,
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
    pub stdout: bool,
}

/// The version of the form of what is printed for machines.
const VERSION: u32 = 1;

/// What is printed for a machine: an object with the version of its form, and what a verb has to say beside that.
#[derive(Serialize)]
struct Document<'a, T> {
    version: u32,
    #[serde(flatten)]
    document: &'a T,
}

impl<'a, T> Document<'a, T> {
    const fn new(document: &'a T) -> Self {
        Self { version: VERSION, document }
    }
}

/// The columns of a terminal that does not tell how many it has.
const COLUMNS: usize = 80;
/// The lines of a terminal that does not tell how many it has.
const LINES: usize = 24;

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
        painted_diff(diff, self.color)
    }

    /// Tells whether what a model says is streamed to the terminal on which the result is printed.
    pub(crate) const fn streams(&self) -> bool {
        self.interactive && self.stdout
    }

    /// Returns how a run is drawn: on standard error, so that standard output holds the result alone.
    pub(crate) fn style(&self) -> Style {
        let (columns, lines) = size();
        Style {
            live: self.interactive && self.format == Format::Text,
            color: self.color_errors,
            width: columns,
            // Half of the screen for the tree, so that what happens has the other half.
            height: (lines / 2).max(3),
        }
    }

    /// Prints text for a person: nothing where a machine reads.
    ///
    /// # Errors
    /// What the stream says.
    pub(crate) fn text(&self, text: impl AsRef<str>) -> io::Result<()> {
        match self.format {
            Format::Text => tell(text.as_ref()),
            Format::Quiet | Format::Json | Format::Jsonl => Ok(()),
        }
    }

    /// Prints the result of a verb: the document where a machine reads, else the text.
    ///
    /// # Errors
    /// What the stream says, but not that nobody reads it any more.
    pub(crate) fn result<T: Serialize>(
        &self,
        document: &T,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        match self.format {
            Format::Text | Format::Quiet => tell(&harmless(&text())),
            Format::Json => {
                let json = serde_json::to_string_pretty(&Document::new(document))?;
                tell(&format!("{}\n", inert(&json)))
            }
            Format::Jsonl => {
                let json = serde_json::to_string(&Document::new(document))?;
                tell(&format!("{}\n", inert(&json)))
            }
        }
    }
}

/// Prints the document of a verb in one line.
///
/// # Errors
/// What the stream says.
pub(crate) fn document<T: Serialize>(document: &T) -> io::Result<()> {
    line(&Document::new(document))
}

/// Prints one of many lines of JSON, such as an event.
///
/// # Errors
/// What the stream says.
pub(crate) fn line<T: Serialize>(line: &T) -> io::Result<()> {
    print(&format!("{}\n", inert(&serde_json::to_string(line)?)))
}

/// Returns how many columns and lines the terminal has.
pub(crate) fn size() -> (usize, usize) {
    // Not `size`, which asks a program of the name `tput` where there is no terminal.
    let told = crossterm::terminal::window_size().ok();
    known(told.map(|told| (told.columns, told.rows)))
}

/// Takes a terminal that says it has none, as one does that nobody has told, for one of the usual size.
pub(crate) fn known(told: Option<(u16, u16)>) -> (usize, usize) {
    let (columns, lines) = told.unwrap_or_default();
    let or = |told: u16, usual: usize| if told == 0 { usual } else { usize::from(told) };
    (or(columns, COLUMNS), or(lines, LINES))
}

/// Returns a unified diff, with colours where they are wanted.
pub(crate) fn painted_diff(diff: &str, color: bool) -> String {
    if !color {
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

/// Prints bytes as they are.
///
/// # Errors
/// What the stream says.
pub(crate) fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| unprinted(&error))
}

/// Says of an error of standard output what could not be done.
pub(crate) fn unprinted(error: &io::Error) -> io::Error {
    let told = error.to_string();
    let told = told.split(" (os error").next().unwrap_or_default();
    let mut letters = told.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    let told: String = first.into_iter().chain(letters).collect();
    io::Error::new(error.kind(), format!("cannot print: {told}"))
}

fn print(text: &str) -> io::Result<()> {
    bytes(text.as_bytes())
}

/// Prints what a verb found. Whoever closed the pipe does not read it, and its code is what it is: a gate behind
/// `| head` holds.
fn tell(text: &str) -> io::Result<()> {
    match print(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Where a run is shown: standard error, until nobody is there. That ends the showing and not the run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    gone: bool,
}

impl Write for Progress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.gone {
            self.gone = io::stderr().write_all(bytes).is_err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gone = self.gone || io::stderr().flush().is_err();
        Ok(())
    }
}

/// Puts something visible in place of what could move the cursor, hide itself or turn the direction of
/// writing: what a model, a file or a program says must not be able to redraw the screen. Lines and tabs
/// stay, and so does the length in bytes, by which places in a text are counted.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    let text = Cow::Borrowed(text);
    if !text.chars().any(is_harmful) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' if characters.peek() == Some(&'\n') => shown.push(character),
            character if !is_harmful(character) => shown.push(character),
            character if character.len_utf8() == 3 => shown.push(char::REPLACEMENT_CHARACTER),
            character => shown.extend(std::iter::repeat_n('?', character.len_utf8())),
        }
    }
    Cow::Owned(shown)
}

/// Writes JSON so that a terminal that shows it is not driven by it: what could move the cursor, hide itself, end a line
/// for some readers or turn the direction of writing is escaped. All of these stand in texts, where an escape means the
/// very character, so the JSON says the same.
fn inert(json: &str) -> Cow<'_, str> {
    let is_active = |character: char| match character {
        '\n' => false, // Between the lines of pretty JSON; those within texts are escaped.
        '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{FEFF}' => true,
        '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' => true,
        character => character.is_control(),
    };
    if !json.chars().any(is_active) {
        return Cow::Borrowed(json);
    }
    let mut written = String::with_capacity(json.len() + json.len() / 8);
    for character in json.chars() {
        match is_active(character) {
            true => written.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => written.push(character),
        }
    }
    Cow::Owned(written)
}

fn is_harmful(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => true,
        character => character.is_control(),
    }
}

/// Prints to standard error. What cannot be said there cannot be said at all.
pub(crate) fn complain(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_terminal_that_does_not_know_its_size_has_the_usual_one() {
        assert_eq!(known(None), (80, 24));
        assert_eq!(known(Some((0, 0))), (80, 24));
        assert_eq!(known(Some((132, 0))), (132, 24));
    }

    #[test]
    fn json_that_is_shown_drives_no_terminal_and_says_the_same() {
        let text: String = (0..=0x2_07FF).filter_map(char::from_u32).collect();
        let value = json!({ "text": text, "\u{9b}31m\u{202e}": ["日本語 \u{1F469}\u{1F680}", 1] });

        for written in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = inert(&written);

            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
            let active = |c: &char| {
                *c != '\n'
                    && (c.is_control() || "\u{202e}\u{2066}\u{2028}\u{200f}\u{feff}".contains(*c))
            };
            assert_eq!(shown.chars().find(active), None);
            assert!(
                shown.contains("\\u009b31m\\u202e") && shown.contains("日本語 \u{1F469}\u{1F680}")
            );
        }
        assert!(matches!(inert("{\"text\": \"日本語\"}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn what_cannot_be_printed_is_said_to_be_so_and_a_reader_that_left_is_still_known() {
        let full = unprinted(&io::Error::from_raw_os_error(28));
        let gone = unprinted(&io::Error::from_raw_os_error(32));

        assert_eq!(full.to_string(), "cannot print: no space left on device");
        assert_eq!(
            (full.kind(), gone.kind()),
            (io::ErrorKind::StorageFull, io::ErrorKind::BrokenPipe)
        );
    }

    #[test]
    fn what_is_printed_cannot_redraw_the_screen_and_keeps_its_length() {
        let text = "a\tb\r\nc \u{1b}[2J\u{9b}1m \u{202e}d\re";

        let shown = harmless(text);

        assert_eq!(shown, "a\tb\r\nc ?[2J??1m \u{FFFD}d?e");
        assert_eq!(shown.len(), text.len());
        assert!(matches!(harmless("日本語 \u{1F469}\u{200D}\u{1F680}\n"), Cow::Borrowed(_)));
    }
}
