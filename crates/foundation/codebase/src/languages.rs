//! What each language declares, and to whom.

mod c; // And C++.
mod go;
mod java;
mod javascript; // And TypeScript.
mod python;
mod ruby;
mod rust;

use formwork_protocols::source::{Language, Place};
use tree_sitter::Node;

use crate::{grammar::Grammar, reader::Reader, signature::Unseen};

/// Returns what has to declare a file for others to reach it, where its language asks for that.
pub(crate) fn place(language: Language, path: &str) -> Option<Place> {
    (language == Language::Rust).then(|| rust::place(path)).flatten()
}

/// Returns a text as its grammar takes it where it does not take it as it is, and what is left out of it then; nothing where there
/// is no other way to read it.
pub(crate) fn without_macros(grammar: Grammar, text: &str) -> Option<(String, Vec<Unseen>)> {
    matches!(grammar, Grammar::C | Grammar::Cpp).then(|| c::without(grammar, text)).flatten()
}

/// Reads a whole file.
pub(crate) fn read(reader: &mut Reader<'_>, root: Node<'_>) {
    match reader.grammar {
        Grammar::C | Grammar::Cpp => c::read(reader, root),
        Grammar::Go => go::read(reader, root),
        Grammar::Java => java::read(reader, root),
        Grammar::JavaScript | Grammar::Tsx | Grammar::TypeScript => javascript::read(reader, root),
        Grammar::Python => python::read(reader, root),
        Grammar::Ruby => ruby::read(reader, root),
        Grammar::Rust => rust::read(reader, root),
    }
}
