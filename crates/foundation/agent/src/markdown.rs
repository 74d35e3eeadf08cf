//! The prompts of a folder as templates, and their faults at the lines of their files.

use std::collections::BTreeMap;
use std::ops::Range;

use formwork_compose::{Error, Fault, Library, Problem, Template};
use formwork_protocols::document::{Diagnostic, nearest_hint};
use serde_json::Map;

use crate::folder::{Content, Folder};

/// The prompts of a folder, parsed once.
pub(crate) struct Prompts<'f> {
    folder: &'f Folder,
    library: Library,
    broken: BTreeMap<&'f str, Error>,
}

impl<'f> Prompts<'f> {
    pub(crate) fn of(folder: &'f Folder) -> Self {
        let mut library = Library::default();
        let mut broken = BTreeMap::new();
        for (stem, text) in
            folder.prompts.iter().filter_map(|(stem, it)| Some((stem, it.as_ref().ok()?)))
        {
            let inserted = Template::parse(stem, text).and_then(|it| library.insert(it));
            if let Err(error) = inserted {
                broken.insert(stem.as_str(), error);
            }
        }
        Self { folder, library, broken }
    }

    /// Returns the faults of a prompt and of all that it includes; `variables` are those that will be supplied.
    pub(crate) fn faults(&self, stem: &str, variables: &[&str]) -> Vec<Diagnostic> {
        if let Some(error) = self.broken.get(stem) {
            return self.of_error(stem, error, variables);
        }
        let Some(template) = self.library.get(stem) else { return Vec::new() };
        // Without variables it names every one that it wants, and its other faults in the same pass.
        match self.library.render(template, &Map::new()) {
            Ok(text) if text.trim().is_empty() => {
                vec![self.at(stem, None, "the prompt is empty".to_owned(), None)]
            }
            Ok(_) => Vec::new(),
            Err(error) => self.of_error(stem, &error, variables),
        }
    }

    fn of_error(&self, stem: &str, error: &Error, variables: &[&str]) -> Vec<Diagnostic> {
        match error {
            Error::Faults { faults } => {
                faults.iter().filter_map(|fault| self.of_fault(fault, variables)).collect()
            }
            Error::Syntax { template, line, column, reason } => {
                vec![self.at(template, Some((*line, *column)), reason.clone(), None)]
            }
            Error::Cycle { circle } => {
                let first = circle.first().map_or(stem, String::as_str);
                let place = circle.get(1).and_then(|next| self.include(first, next));
                vec![self.at(first, place, error.to_string(), None)]
            }
            Error::TooLarge { template, .. } | Error::TooManySteps { template, .. } => {
                vec![self.at(template, None, error.to_string(), None)]
            }
            _ => vec![self.at(stem, None, error.to_string(), None)],
        }
    }

    fn of_fault(&self, fault: &Fault, variables: &[&str]) -> Option<Diagnostic> {
        let place = fault.line.zip(fault.column);
        let (message, hint) = match &fault.problem {
            Problem::Unresolved { name, .. } if variables.contains(&name.as_str()) => return None,
            Problem::Unresolved { name, .. } => (
                format!("unresolved variable {name:?}"),
                nearest_hint(name, variables.iter().copied()),
            ),
            Problem::UnknownInclude { name, hint } => {
                if let Some(error) = self.broken.get(name.as_str()) {
                    // The file is there and is itself at fault, so that is what has to be mended.
                    return self.of_error(name, error, variables).into_iter().next();
                }
                match self.folder.prompts.get(name) {
                    Some(Err(reason)) => (format!("\"{name}.md\" {reason}"), None),
                    _ => (format!("no file \"{name}.md\" to include"), hint.clone()),
                }
            }
            other => (other.to_string(), None),
        };
        Some(self.at(&fault.template, place, message, hint))
    }

    /// Returns where `stem` includes `wanted`, if it does so plainly.
    fn include(&self, stem: &str, wanted: &str) -> Option<(usize, usize)> {
        let text = self.text(stem);
        let (at, _) = text.match_indices("{{").find(|(at, _)| {
            let tag = text.get(at + 2..).unwrap_or_default().trim_start_matches('~');
            let name = tag.strip_prefix('>').and_then(|rest| rest.split("}}").next());
            name.is_some_and(|name| name.trim_matches(['~', ' ', '\'', '"']) == wanted)
        })?;
        let before = text.get(..at)?;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before.get(line_start..)?.chars().count() + 1;
        Some((before.matches('\n').count() + 1, column))
    }

    fn text(&self, stem: &str) -> &str {
        self.folder.prompts.get(stem).and_then(|it: &Content| it.as_deref().ok()).unwrap_or("")
    }

    fn at(
        &self,
        stem: &str,
        place: Option<(usize, usize)>,
        message: String,
        hint: Option<String>,
    ) -> Diagnostic {
        let text = self.text(stem);
        let (line, column) = place.unwrap_or((1, 1));
        Diagnostic {
            source: self.folder.shown(&format!("{stem}.md")).into(),
            line,
            column,
            span: place.map_or(0..0, |_| span(text, line, column)),
            key: String::new(),
            message,
            hint,
            text: text.into(),
        }
    }
}

/// Returns the bytes of the tag that begins at a line and a column, or else of the one character there.
fn span(text: &str, line: usize, column: usize) -> Range<usize> {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = text.get(start..).unwrap_or_default();
    let row = rest.split('\n').next().unwrap_or_default();
    let before = row.char_indices().nth(column.saturating_sub(1)).map_or(row.len(), |(at, _)| at);
    let tail = row.get(before..).unwrap_or_default();
    let length = match tail.find("}}") {
        Some(end) if tail.starts_with("{{") => end + 2,
        _ => tail.chars().next().map_or(0, char::len_utf8),
    };
    start + before..start + before + length
}
