//! What each language declares, and to whom.

mod c; // And C++.
mod go;
mod java;
mod javascript; // And TypeScript.
mod python;
mod ruby;
mod rust;

use tree_sitter::Node;

use crate::{grammar::Grammar, reader::Reader};

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
