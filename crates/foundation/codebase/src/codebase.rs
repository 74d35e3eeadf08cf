//! A text to its symbols, within bounds.

use std::{cell::Cell, ops::ControlFlow};

use formwork_protocols::source::{Language, Symbol, Symbols, Unreadable};
use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

use crate::{grammar::Grammar, languages, reader::Reader};

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

    fn symbols(&self, path: &str, text: &[u8]) -> Result<Vec<Symbol>, Unreadable> {
        let grammars = Grammar::of(path);
        let [first, others @ ..] = grammars.as_slice() else {
            return Err(Unreadable::UnknownLanguage);
        };
        if text.len() > MAX_BYTES {
            let (bytes, limit) = (text.len() as u64, MAX_BYTES as u64);
            return Err(Unreadable::TooLarge { bytes, limit });
        }
        let text = std::str::from_utf8(text).map_err(|_| Unreadable::Binary)?;
        if text.contains('\0') {
            return Err(Unreadable::Binary);
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let found = read(*first, path, text);
        if !matches!(found, Err(Unreadable::Syntax { .. })) {
            return found;
        }
        // What no other grammar takes either is told as the first one sees it.
        others.iter().map(|other| read(*other, path, text)).find(Result::is_ok).unwrap_or(found)
    }
}

fn read(grammar: Grammar, path: &str, text: &str) -> Result<Vec<Symbol>, Unreadable> {
    let tree = parse(grammar, text)?;
    if let Some(line) = first_fault(&tree) {
        return Err(Unreadable::Syntax { language: grammar.language(), line });
    }
    let mut reader = Reader::new(grammar, path, text);
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
