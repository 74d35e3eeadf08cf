//! One template, parsed once.

use std::sync::Arc;

use handlebars::template::Template as Parsed;

use crate::Error;

/// Longer templates are refused. What is long in a prompt comes in as a value, which has no such limit.
const MAX_BYTES: usize = 64 * 1024;

/// More tags are refused: the parser's time grows with their number times the length of the text.
const MAX_TAGS: usize = 1_000;

/// Blocks within each other; deeper ones are refused, because templates are walked by recursion.
pub(crate) const MAX_DEPTH: usize = 32;

/// A Handlebars template: `{{name}}`, `{{#if}}`, `{{#each}}`, `{{> include}}` and comments.
#[derive(Debug, Clone)]
pub struct Template {
    name: Arc<str>,
    parsed: Arc<Parsed>,
}

impl Template {
    /// Parses `text`; `name` is what others include it by and what errors call it.
    ///
    /// # Errors
    /// [`Error::Syntax`] with the place, [`Error::TooLarge`] when it is no prompt by its size.
    pub fn parse(name: impl AsRef<str>, text: &str) -> Result<Self, Error> {
        let name = name.as_ref();
        let bounded = |found: usize, limit: usize, unit: &'static str| {
            if found > limit {
                return Err(Error::TooLarge { template: name.to_owned(), found, limit, unit });
            }
            Ok(())
        };
        bounded(text.len(), MAX_BYTES, "bytes")?;
        bounded(text.matches("{{").count(), MAX_TAGS, "tags")?;
        bounded(depth(text), MAX_DEPTH, "levels of blocks")?;
        let parsed = Parsed::compile(text).map_err(|error| {
            let (line, column) = error.pos().unwrap_or((1, 1));
            let reason = error.reason().to_string();
            Error::Syntax { template: name.to_owned(), line, column, reason }
        })?;
        Ok(Self { name: name.into(), parsed: Arc::new(parsed) })
    }

    /// Returns the name that others include it by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn parsed(&self) -> &Parsed {
        &self.parsed
    }
}

/// Bounds from above how deep the blocks and parentheses of `text` nest, without parsing it.
fn depth(text: &str) -> usize {
    let mut deepest: usize = 0;
    // The levels that each open block takes: one, and one more for each `else if` of it.
    let mut open: Vec<usize> = Vec::new();
    for tag in text.split("{{").skip(1) {
        let tag = tag.trim_start_matches(['{', '~']).trim_start();
        if tag.starts_with('#') {
            open.push(1);
        } else if tag.starts_with('/') {
            open.pop();
        } else if tag.starts_with("else ") || tag.starts_with('^') {
            open.last_mut().into_iter().for_each(|levels| *levels += 1);
        }
        let inside = tag.split("}}").next().unwrap_or(tag);
        let nested = inside.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{')).count();
        deepest = deepest.max(open.iter().sum::<usize>() + nested);
    }
    deepest
}
