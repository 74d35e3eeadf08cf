//! What is found in a tree.

use formwork_protocols::source::{Symbol, SymbolKind, Unreadable};
use tree_sitter::Node;

use crate::{
    grammar::Grammar,
    signature::{self, Source, Words},
};

/// How deep declarations may stand in each other.
pub(crate) const MAX_DEPTH: usize = 64;

/// How many bytes of names and signatures are told of one file: each may repeat what stands around it.
const MAX_TOLD: usize = 8 * 1024 * 1024;

/// Collects what a text declares.
pub(crate) struct Reader<'t> {
    pub(crate) grammar: Grammar,
    pub(crate) path: &'t str,
    source: Source<'t>,
    found: Vec<Symbol>,
    told: usize,
    depth: usize,
    is_over: bool,
}

/// A child of a node, and what it is to it.
pub(crate) type Child<'n> = (&'n str, Node<'n>);

impl<'t> Reader<'t> {
    pub(crate) fn new(path: &'t str, source: Source<'t>) -> Self {
        let grammar = source.grammar;
        let (found, told, depth, is_over) = (Vec::new(), 0, 0, false);
        Self { grammar, path, source, found, told, depth, is_over }
    }

    /// Returns what was found, in the order of the text.
    pub(crate) fn end(mut self) -> Result<Vec<Symbol>, Unreadable> {
        if self.is_over {
            return Err(Unreadable::TooIntricate);
        }
        self.found.sort_by_key(|symbol| symbol.line);
        Ok(self.found)
    }

    pub(crate) fn text(&self, node: Node<'_>) -> &'t str {
        self.source.text.get(node.byte_range()).unwrap_or_default()
    }

    pub(crate) fn line(&self, node: Node<'_>) -> u64 {
        node.start_position().row as u64 + 1
    }

    pub(crate) const fn source(&self) -> Source<'t> {
        self.source
    }

    /// Returns the text of what a node has under a name.
    pub(crate) fn named(&self, node: Node<'_>, field: &str) -> &'t str {
        node.child_by_field_name(field).map(|it| self.text(it)).unwrap_or_default()
    }

    /// Returns what stands directly in a node, comments left out.
    pub(crate) fn children<'n>(&self, node: Node<'n>) -> Vec<Child<'n>> {
        let mut cursor = node.walk();
        let mut children = Vec::new();
        let mut is_there = cursor.goto_first_child();
        while is_there {
            let child = cursor.node();
            if !child.kind().contains("comment") {
                children.push((cursor.field_name().unwrap_or_default(), child));
            }
            is_there = cursor.goto_next_sibling();
        }
        children
    }

    /// Tells whether a node of some kind stands directly in another one.
    pub(crate) fn has(&self, node: Node<'_>, kind: &str) -> bool {
        self.children(node).iter().any(|(_, child)| child.kind() == kind)
    }

    /// Returns a node as it matters, but for what it has under these names.
    pub(crate) fn header(&self, node: Node<'_>, without: &[&str]) -> String {
        let mut words = Words::new(self.grammar);
        self.write(node, without, &mut words);
        words.end()
    }

    /// Adds a node to words, but for what it has under these names or of these kinds.
    pub(crate) fn write(&self, node: Node<'_>, without: &[&str], words: &mut Words) {
        if node.child_count() == 0 {
            return signature::write(node, self.source, words);
        }
        for (field, child) in self.children(node) {
            if !without.contains(&field) && !without.contains(&child.kind()) {
                signature::write(child, self.source, words);
            }
        }
    }

    /// Returns the whole of a node as it matters.
    pub(crate) fn whole(&self, node: Node<'_>) -> String {
        let mut words = Words::new(self.grammar);
        signature::write(node, self.source, &mut words);
        words.end()
    }

    /// Returns what a node has under a name as it matters.
    pub(crate) fn named_whole(&self, node: Node<'_>, field: &str) -> String {
        node.child_by_field_name(field).map(|it| self.whole(it)).unwrap_or_default()
    }

    pub(crate) fn add(
        &mut self,
        kind: SymbolKind,
        name: impl Into<String>,
        signature: impl Into<String>,
        exported: bool,
        node: Node<'_>,
    ) {
        let line = self.line(node);
        let (name, signature) = (name.into(), signature.into());
        self.keep(Symbol { kind, name, signature, exported, line });
    }

    /// Keeps a symbol. Returns whether there was room for it.
    pub(crate) fn keep(&mut self, symbol: Symbol) -> bool {
        self.told = self.told.saturating_add(symbol.name.len() + symbol.signature.len());
        self.is_over |= self.told > MAX_TOLD;
        if !self.is_over {
            self.found.push(symbol);
        }
        !self.is_over
    }

    /// Gives up: it is more than is looked at.
    pub(crate) fn give_up(&mut self) {
        self.is_over = true;
    }

    /// Returns what was found so far, to say who may use it.
    pub(crate) fn found(&mut self) -> &mut Vec<Symbol> {
        &mut self.found
    }

    /// Reads what stands in something, unless that is too deep.
    pub(crate) fn within(&mut self, read: impl FnOnce(&mut Self)) {
        if self.depth >= MAX_DEPTH {
            self.is_over = true;
            return;
        }
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }
}

/// Puts a name behind what it stands in.
pub(crate) fn join(within: &str, between: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}{between}{name}") }
}
