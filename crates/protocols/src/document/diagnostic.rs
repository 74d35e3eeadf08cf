//! What is wrong with a document, and where.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;

/// One fault of a document.
///
/// Displayed as `workflow.toml:12:1: tasks[0]: unknown key "retires"; nearest is "retries"`.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file name shown to people.
    pub source: Arc<str>,
    /// The line, counted from one.
    pub line: usize,
    /// The column in characters, counted from one.
    pub column: usize,
    /// The bytes of the text that are at fault.
    pub span: Range<usize>,
    /// The path of the value or of the table at fault, such as `tasks[1].agent`; empty for the document itself.
    pub key: String,
    /// What was wanted and what was found.
    pub message: String,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The whole text of the document, for rendering the place.
    #[serde(skip)]
    pub text: Arc<str>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.source, self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text would be repeated for each fault; the line says all.
        write!(f, "Diagnostic({self})")
    }
}

/// All faults of one or several documents, sorted by file and position; displayed one a line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Returns the faults in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Returns how many faults there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether there is no fault.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `other` faults, which may be of other documents, and keeps the order.
    pub fn merge(&mut self, other: impl IntoIterator<Item = Diagnostic>) {
        self.0.extend(other);
        self.0.sort_by(|a, b| {
            let place = |d: &Diagnostic| (d.span.start, d.span.end);
            (&a.source, place(a), &a.message).cmp(&(&b.source, place(b), &b.message))
        });
        self.0.dedup();
    }

    /// Returns `value` if there is no fault.
    ///
    /// # Errors
    /// The faults, if there are any.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, diagnostic) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl FromIterator<Diagnostic> for Diagnostics {
    fn from_iter<I: IntoIterator<Item = Diagnostic>>(faults: I) -> Self {
        let mut diagnostics = Self::default();
        diagnostics.merge(faults);
        diagnostics
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Diagnostics {
    type Item = &'a Diagnostic;
    type IntoIter = std::slice::Iter<'a, Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
