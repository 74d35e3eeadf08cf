//! How a verb fails: with which code, and what the reader is told.

use std::{error::Error as StdError, io};

use formwork_protocols::{OutcomeCode, document::Diagnostics, text};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Report, miette};
use serde_json::{Value, json};

use crate::terminal::harmless;

/// Why a verb did not do what it was asked, and what to do about it.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The code that the program ends with.
    pub code: OutcomeCode,
    /// What is wrong.
    pub what: What,
    /// What to do, where something can be said.
    pub hint: Option<String>,
}

/// What is wrong.
#[derive(Debug)]
pub(crate) enum What {
    /// Documents have faults, each with its place.
    Documents(Diagnostics),
    /// Something else, with its causes.
    Other(anyhow::Error),
}

impl Fault {
    /// Something that the verb needs is missing or wrong.
    pub(crate) fn setup(error: impl Into<anyhow::Error>) -> Self {
        Self { code: OutcomeCode::Setup, what: What::Other(error.into()), hint: None }
    }

    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            code: OutcomeCode::Usage,
            what: What::Other(anyhow::Error::msg(message.into())),
            hint: None,
        }
    }

    /// It failed in another way.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { code: OutcomeCode::Failed, what: What::Other(error.into()), hint: None }
    }

    /// Documents have faults.
    pub(crate) const fn documents(faults: Diagnostics) -> Self {
        Self { code: OutcomeCode::Setup, what: What::Documents(faults), hint: None }
    }

    /// Adds what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Tells whether it is only that nobody reads the output any more, as behind `| head`.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let What::Other(error) = &self.what else { return false };
        error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Renders it for a person: every fault at its place, or the chain of causes in a line.
    pub(crate) fn render(&self, color: bool) -> String {
        let mut text = String::new();
        match &self.what {
            What::Documents(faults) => {
                for fault in faults {
                    text.push_str(&place(fault, color));
                }
                let files: std::collections::BTreeSet<_> =
                    faults.iter().map(|fault| fault.source.clone()).collect();
                let (faults, files) = (faults.len(), files.len());
                text.push_str(&format!(
                    "{faults} {} in {files} {}; nothing was run\n",
                    if faults == 1 { "fault" } else { "faults" },
                    if files == 1 { "file" } else { "files" },
                ));
            }
            What::Other(error) => {
                text.push_str(&format!("formwork: {}\n", harmless(&chain(error.as_ref()))));
            }
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {}\n", harmless(hint)));
        }
        text
    }

    /// Returns it for a machine: the code, what is wrong as texts, and what to do. Faults of documents are there once more, each
    /// with its place.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({
            "outcome": { "code": self.code },
            "errors": self.messages(),
            "hint": self.hint,
        });
        if let What::Documents(faults) = &self.what {
            document["diagnostics"] = json!(faults.iter().collect::<Vec<_>>());
        }
        document
    }

    /// Returns what is wrong as lines of plain text.
    pub(crate) fn messages(&self) -> Vec<String> {
        match &self.what {
            What::Documents(faults) => faults.iter().map(ToString::to_string).collect(),
            What::Other(error) => vec![chain(error.as_ref())],
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::failed(error)
    }
}

impl From<Diagnostics> for Fault {
    fn from(faults: Diagnostics) -> Self {
        Self::documents(faults)
    }
}

/// Joins an error and its causes; a cause that its effect already tells is left out.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}

/// How long a line may be that is shown with its fault marked below it, in bytes, and how much of a fault is told. Faults of
/// minified documents are told by their place alone.
const MAX_LINE: usize = 2_000;

/// Renders one fault with the line of its file.
fn place(fault: &formwork_protocols::document::Diagnostic, color: bool) -> String {
    if longest_line(&fault.text, &fault.span) > MAX_LINE {
        return plain(fault);
    }
    let label = LabeledSpan::at(fault.span.clone(), "here");
    let source = NamedSource::new(harmless(&fault.source), harmless(&fault.text).into_owned());
    let message = if fault.key.is_empty() {
        fault.message.clone()
    } else {
        format!("{}: {}", fault.key, fault.message)
    };
    let message = harmless(&message);
    let message = text::head(&message, MAX_LINE);
    let report: Report = match &fault.hint {
        Some(hint) => {
            miette!(labels = vec![label], help = harmless(hint).into_owned(), "{message}")
        }
        None => miette!(labels = vec![label], "{message}"),
    }
    .with_source_code(source);
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut text = String::new();
    match GraphicalReportHandler::new_themed(theme).render_report(&mut text, report.as_ref()) {
        Ok(()) => text,
        Err(_) => plain(fault),
    }
}

/// Renders one fault as a line of plain text.
fn plain(fault: &formwork_protocols::document::Diagnostic) -> String {
    format!("{}\n", text::head(&harmless(&fault.to_string()), MAX_LINE))
}

/// Returns how long the longest line is, in bytes, of those that a place is shown with: its own, one before and one behind.
fn longest_line(text: &str, place: &std::ops::Range<usize>) -> usize {
    let (before, behind) = (text.get(..place.start), text.get(place.end..));
    let from = before.and_then(|text| text.rmatch_indices('\n').nth(1)).map_or(0, |(at, _)| at + 1);
    let to = behind.and_then(|text| text.match_indices('\n').nth(1));
    let to = to.map_or(text.len(), |(at, _)| place.end + at);
    text.get(from..to).unwrap_or(text).lines().map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let inner = io::Error::other("no space left on device");
        let fault = Fault::failed(anyhow::Error::from(inner).context("cannot write the log"));

        assert_eq!(
            fault.render(false),
            "formwork: cannot write the log: no space left on device\n"
        );
    }

    #[test]
    fn neither_a_path_nor_a_document_can_redraw_the_screen() {
        let fault = Fault::failed(anyhow::anyhow!("there is no \u{1b}[2Jx")).hint("\u{1b}c");
        let text = "format_version = 1\nname = \"w\"\n# \u{1b}[2J\ntasks = 1\n";
        let faults = formwork_services::documents::validate(
            formwork_services::documents::Kind::Workflow,
            "a\u{1b}[2J.toml",
            text,
            std::path::Path::new("."),
        );

        let told = fault.render(false) + &Fault::documents(faults.unwrap_err()).render(false);

        assert!(!told.contains('\u{1b}') && told.contains("there is no ?[2Jx"), "{told}");
    }

    #[test]
    fn a_fault_far_along_its_line_is_told_by_its_place() {
        let long = "a".repeat(70_000);
        let text = format!("format_version = 1\nname = \"w\"\ntasks = {{ {long} = 1 }}\n");
        let faults = formwork_services::documents::validate(
            formwork_services::documents::Kind::Workflow,
            "minified.toml",
            &text,
            std::path::Path::new("."),
        );

        let told = Fault::documents(faults.unwrap_err()).render(false);

        assert!(told.contains("minified.toml:3:"), "{}", text::head(&told, 300));
        assert!(told.len() < 10_000, "{}", told.len());
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let inner = io::Error::from(io::ErrorKind::BrokenPipe);

        assert!(Fault::from(inner).is_broken_pipe());
    }
}
