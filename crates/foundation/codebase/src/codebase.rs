//! A text to its symbols, within bounds.

use std::{borrow::Cow, cell::Cell, iter, ops::ControlFlow};

use formwork_protocols::source::{Language, Place, Symbol, Symbols, Unreadable};
use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

use crate::{
    grammar::Grammar,
    languages,
    reader::Reader,
    signature::{Source, Unseen},
};

/// Of a longer text nothing is told: what people write by hand is a fifth of it.
pub const MAX_BYTES: usize = 512 * 1024;

/// How often the parser may report before it is stopped, which it does every hundred steps: the largest text of Rust takes
/// 4,200 reports. A count, unlike a time, gives the same answer on every machine. Each may cost 30 KB of memory, where a text is
/// made so that it can be read in many ways.
const MAX_REPORTS: usize = 12_000;

/// How many bytes the parser is handed at once.
const PIECE: usize = 4 * 1024;

/// How many pieces it is handed, where the largest text of Rust takes 200: a text may be made so that each of its words is looked
/// for up to the end.
const MAX_PIECES: usize = 16 * 1024;

/// What files declare, by grammars that are built in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Codebase;

impl Symbols for Codebase {
    fn language(&self, path: &str) -> Option<Language> {
        Grammar::of(path).first().map(|grammar| grammar.language())
    }

    fn place(&self, path: &str) -> Option<Place> {
        languages::place(self.language(path)?, path)
    }

    fn symbols(&self, path: &str, text: &[u8]) -> Result<Vec<Symbol>, Unreadable> {
        let grammars = Grammar::of(path);
        let [first, others @ ..] = grammars.as_slice() else {
            return Err(Unreadable::UnknownLanguage);
        };
        if text.len() > MAX_BYTES {
            let (bytes, limit) = (text.len() as u64, MAX_BYTES as u64);
            return Err(Unreadable::TooLarge { bytes, limit });
        }
        if text.contains(&0) {
            return Err(Unreadable::Binary);
        }
        let readable = readable(text);
        let text = readable.strip_prefix('\u{feff}').unwrap_or(&readable);
        let found = read(*first, path, text, text, &[]);
        let is_over = !matches!(found, Err(Unreadable::Syntax { .. }));
        let found =
            if is_over { found } else { otherwise(path, text, *first, others).unwrap_or(found) };
        match (&readable, found) {
            (Cow::Borrowed(_), found) => found,
            (Cow::Owned(_), Err(Unreadable::Syntax { .. })) => Err(Unreadable::Binary),
            (Cow::Owned(_), Ok(found)) if found.iter().any(is_unsure) => Err(Unreadable::Binary),
            (Cow::Owned(_), found) => found,
        }
    }
}

/// Reads what its first grammar does not take, if anything does.
fn otherwise(
    path: &str,
    text: &str,
    first: Grammar,
    others: &[Grammar],
) -> Option<Result<Vec<Symbol>, Unreadable>> {
    let whole = others.iter().map(|grammar| read(*grammar, path, text, text, &[]));
    let less = iter::once(&first).chain(others).filter_map(|grammar| {
        let (seen, unseen) = languages::without_macros(*grammar, text)?;
        Some(read(*grammar, path, text, &seen, &unseen))
    });
    whole.chain(less).find(Result::is_ok)
}

/// Stands for a byte that is no text. It is one byte as well, so that whatever is found stays where it is.
const SUBSTITUTE: char = '\u{1a}';

/// Returns a text with what is none of UTF-8 marked: in a comment it matters to nobody.
fn readable(text: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(text) {
        return Cow::Borrowed(text);
    }
    let mut readable = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        readable.push_str(chunk.valid());
        readable.extend(chunk.invalid().iter().map(|_| SUBSTITUTE));
    }
    Cow::Owned(readable)
}

/// Tells whether something is said with what is no text.
fn is_unsure(symbol: &Symbol) -> bool {
    symbol.name.contains(SUBSTITUTE) || symbol.signature.contains(SUBSTITUTE)
}

/// Reads what a grammar sees of a text.
fn read(
    grammar: Grammar,
    path: &str,
    text: &str,
    seen: &str,
    unseen: &[Unseen],
) -> Result<Vec<Symbol>, Unreadable> {
    let tree = parse(grammar, seen)?;
    if let Some(line) = first_fault(&tree) {
        return Err(Unreadable::Syntax { language: grammar.language(), line });
    }
    let mut reader = Reader::new(path, Source { text, grammar, unseen });
    languages::read(&mut reader, tree.root_node());
    reader.end()
}

fn parse(grammar: Grammar, text: &str) -> Result<Tree, Unreadable> {
    let mut parser = Parser::new();
    // A grammar of a version that the library does not speak reads nothing.
    let language = grammar.parser().ok_or(Unreadable::UnknownLanguage)?;
    parser.set_language(&language).map_err(|_| Unreadable::UnknownLanguage)?;
    let (mut reports, pieces) = (0, Cell::new(0));
    let mut report = |_: &ParseState| {
        reports += 1;
        let is_over = reports > MAX_REPORTS || pieces.get() > MAX_PIECES;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut report);
    let bytes = text.as_bytes();
    let mut from = |at: usize, _| {
        pieces.set(pieces.get() + 1);
        // To the parser that is where the text ends.
        let end = if pieces.get() > MAX_PIECES { at } else { (at + PIECE).min(bytes.len()) };
        bytes.get(at..end).unwrap_or_default()
    };
    let tree = parser.parse_with_options(&mut from, None, Some(options));
    tree.filter(|_| pieces.get() <= MAX_PIECES).ok_or(Unreadable::TooIntricate)
}

/// Returns the line of the first place that the grammar does not take.
fn first_fault(tree: &Tree) -> Option<u64> {
    if !tree.root_node().has_error() {
        return None;
    }
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let line = node.start_position().row as u64 + 1;
        if node.is_error() || node.is_missing() {
            return Some(line);
        }
        if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return Some(1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
