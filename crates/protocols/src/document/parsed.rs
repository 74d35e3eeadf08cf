//! A document that was read, with the places of its values.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::check::{self, Checker};
use super::decode::{self, Decoded};
use super::diagnostic::{Diagnostic, Diagnostics};
use super::path::KeyPath;
use super::tree::{self, Place};
use super::{DocumentType, FORMAT_VERSION, VERSION_KEY, type_schema};

/// Longer documents are refused: no person writes them, and each fault may cost another pass over the text.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// As many faults of one document are reported; the rest follow once these are mended.
const MAX_FAULTS: usize = 500;

/// A value together with the text it was read from.
#[derive(Debug, Clone)]
pub struct Parsed<T> {
    /// What the document says.
    pub value: T,
    /// Where it says it.
    pub document: Document,
}

impl<T> Parsed<T> {
    /// Returns the bytes of the value at a JSON pointer such as `/tasks/0/agent`; see [`Document::span`].
    #[must_use]
    pub fn span(&self, pointer: &str) -> Option<Range<usize>> {
        self.document.span(pointer)
    }

    /// Makes a fault of the value at a JSON pointer; see [`Document::diagnostic`].
    #[must_use]
    pub fn diagnostic(&self, pointer: &str, message: impl Into<String>) -> Diagnostic {
        self.document.diagnostic(pointer, message)
    }
}

/// The text of a document and the places of its keys and values.
///
/// What checks the meaning of a document (a dangling name, a cycle) points at the place with it.
#[derive(Debug, Clone)]
pub struct Document {
    source: Arc<str>,
    text: Arc<str>,
    lines: Vec<usize>,
    root: Place,
}

impl Document {
    fn new(source: &str, text: &str, root: Place) -> Self {
        let starts =
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        Self { source: source.into(), text: text.into(), lines, root }
    }

    /// Returns the file name shown to people.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the bytes of the value at a JSON pointer; a table's are those of its header.
    #[must_use]
    pub fn span(&self, pointer: &str) -> Option<Range<usize>> {
        let (_, place, found) = self.root.follow(pointer);
        found.then(|| place.value.clone())
    }

    /// Returns the bytes of the key at a JSON pointer; the items of an array have none.
    #[must_use]
    pub fn key_span(&self, pointer: &str) -> Option<Range<usize>> {
        let (_, place, found) = self.root.follow(pointer);
        if found { place.key.clone() } else { None }
    }

    /// Makes a fault of the value at a JSON pointer, or of the innermost table around it that exists.
    #[must_use]
    pub fn diagnostic(&self, pointer: &str, message: impl Into<String>) -> Diagnostic {
        let (path, place, _) = self.root.follow(pointer);
        self.fault(&path, place.value.clone(), message.into(), None)
    }

    pub(crate) fn fault(
        &self,
        path: &KeyPath,
        span: Range<usize>,
        message: String,
        hint: Option<String>,
    ) -> Diagnostic {
        let (line, column) = self.position(span.start);
        Diagnostic {
            source: Arc::clone(&self.source),
            line,
            column,
            span,
            key: path.to_string(),
            message,
            hint,
            text: Arc::clone(&self.text),
        }
    }

    /// Returns the line and the column of a byte, both counted from one, the column in characters.
    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset.min(self.text.len())).unwrap_or_default();
        // An editor does not count a byte order mark as a column.
        let column = before.strip_prefix('\u{feff}').unwrap_or(before).chars().count() + 1;
        (line, column)
    }
}

pub(crate) fn parse<T: DocumentType>(source: &str, text: &str) -> Result<Parsed<T>, Diagnostics> {
    read(source, text).map_err(|refused| refused.faults)
}

/// Returns what a text says besides its faults, unless they leave a table out.
pub(crate) fn salvage<T: DocumentType>(source: &str, text: &str) -> Option<Parsed<T>> {
    read(source, text).map_or_else(|refused| refused.rest, Some)
}

/// What is wrong with a text, and what it says besides, where that can be told.
struct Refused<T> {
    faults: Diagnostics,
    rest: Option<Parsed<T>>,
}

impl<T> From<Diagnostics> for Refused<T> {
    fn from(faults: Diagnostics) -> Self {
        Self { faults, rest: None }
    }
}

fn read<T: DocumentType>(source: &str, text: &str) -> Result<Parsed<T>, Refused<T>> {
    if text.len() > MAX_BYTES {
        let found = text.len();
        let message = format!("wanted at most {MAX_BYTES} bytes, found {found}");
        return Err(refuse(source, text, message).into());
    }

    let (spanned, syntax) = DeTable::parse_recoverable(text);
    let root_span = spanned.span();
    let mut table = spanned.into_inner();
    if let Some(span) = tree::too_deep(&table) {
        tree::dismantle(table);
        let document = Document::new(source, text, Place::of_table(&DeTable::new(), root_span));
        let message = format!("wanted at most {} tables within each other", tree::MAX_DEPTH);
        return Err(
            Diagnostics::from(document.fault(&KeyPath::default(), span, message, None)).into()
        );
    }

    let document = Document::new(source, text, Place::of_table(&table, root_span.clone()));
    let schema = type_schema::<T>();
    let mut faults = Vec::new();
    if syntax.is_empty() {
        check_version::<T>(&document, &table, &mut faults);
    }
    if !declares_version(&schema) {
        table.remove(VERSION_KEY);
    }

    let mut checker = Checker::new(&schema, T::reserved());
    checker.root(&table, root_span);
    let found = checker.finish();
    let first_error = syntax.iter().filter_map(|e| e.span()).map(|s| s.start).min();
    faults.extend(
        found
            .iter()
            .filter(|f| certain(f, first_error, text))
            .map(|f| document.fault(&f.path, f.span.clone(), f.message.clone(), f.hint.clone())),
    );

    if !syntax.is_empty() {
        faults.extend(syntax.iter().map(|error| syntax_fault(&document, error)));
        return Err(bounded(&document, faults).into());
    }
    if faults.len() >= MAX_FAULTS {
        return Err(bounded(&document, faults).into());
    }
    match decode::decode::<T>(&document, &table, &document.root, &found) {
        Ok(Decoded { value, .. }) if faults.is_empty() => Ok(Parsed { value, document }),
        Ok(Decoded { value, has_all_tables }) => {
            let faults = bounded(&document, faults);
            Err(Refused { faults, rest: has_all_tables.then_some(Parsed { value, document }) })
        }
        Err(more) => {
            faults.extend(more);
            Err(bounded(&document, faults).into())
        }
    }
}

/// Reports whether `fault` stands on a line before the first syntax error, where the structure is certain.
fn certain(fault: &check::Fault, first_error: Option<usize>, text: &str) -> bool {
    let Some(error) = first_error else { return true };
    let line_start =
        text.get(..error).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    !fault.is_absence && fault.span.end <= line_start && !fault.span.is_empty()
}

fn syntax_fault(document: &Document, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    document.fault(&KeyPath::default(), span, error.message().to_owned(), None)
}

fn check_version<T: DocumentType>(
    document: &Document,
    table: &DeTable<'_>,
    faults: &mut Vec<Diagnostic>,
) {
    let wanted = format!("wanted \"{VERSION_KEY} = {FORMAT_VERSION}\"");
    let path = KeyPath::default();
    let Some(found) = table.get(VERSION_KEY) else {
        let hint = format!("a {} begins with \"{VERSION_KEY} = {FORMAT_VERSION}\"", T::NAME);
        let message = format!("missing key \"{VERSION_KEY}\"");
        faults.push(document.fault(&path, 0..0, message, Some(hint)));
        return;
    };
    let message = match found.get_ref() {
        DeValue::Integer(number)
            if i64::from_str_radix(number.as_str(), number.radix()) == Ok(FORMAT_VERSION) =>
        {
            return;
        }
        DeValue::Integer(number) => format!("{wanted}, found version {number}"),
        other => format!("{wanted}, found {}", super::path::type_name(other)),
    };
    faults.push(document.fault(&path, found.span(), message, None));
}

fn declares_version(schema: &Value) -> bool {
    schema.get("properties").and_then(|properties| properties.get(VERSION_KEY)).is_some()
}

fn refuse(source: &str, text: &str, message: String) -> Diagnostics {
    let root = Place::of_table(&DeTable::new(), 0..0);
    // The text is left out: it is refused for its size, and nothing in it is pointed at.
    let document = Document::new(source, text.get(..0).unwrap_or_default(), root);
    document.fault(&KeyPath::default(), 0..0, message, None).into()
}

/// Sorts `faults`, drops repetitions, and cuts what is too much to read.
fn bounded(document: &Document, faults: Vec<Diagnostic>) -> Diagnostics {
    let total = faults.len();
    let mut seen = HashSet::new();
    let mut kept: Vec<Diagnostic> = faults
        .into_iter()
        .filter(|fault| seen.insert((fault.span.clone(), fault.message.clone())))
        .collect();
    kept.sort_by_key(|fault| (fault.span.start, fault.span.end));
    if kept.len() > MAX_FAULTS {
        kept.truncate(MAX_FAULTS);
        let last = kept.last().map_or(0..0, |fault| fault.span.clone());
        let message = format!("{} more faults are not shown", total - MAX_FAULTS);
        kept.push(document.fault(&KeyPath::default(), last.end..last.end, message, None));
    }
    kept.into_iter().collect()
}
