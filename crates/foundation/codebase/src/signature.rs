//! A declaration without what does not matter: how it is laid out, its comments, its body.

use std::{collections::BTreeSet, ops::Range};

use tree_sitter::Node;

use crate::grammar::Grammar;

/// A text, and what of it the grammar is not shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'t> {
    pub(crate) text: &'t str,
    pub(crate) grammar: Grammar,
    /// By what they stand beside.
    pub(crate) unseen: &'t [Unseen],
}

/// Words that are a part of a declaration, though its grammar does not know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unseen {
    pub(crate) at: Range<usize>,
    /// Where the word begins that they stand beside.
    pub(crate) beside: usize,
    pub(crate) side: Side,
}

/// On which side of a word something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

impl Source<'_> {
    /// Adds what stands on one side of a word that begins here.
    fn write_unseen(&self, at: usize, side: Side, words: &mut Words) {
        let first = self.unseen.partition_point(|it| it.beside < at);
        let here = self.unseen.iter().skip(first).take_while(|it| it.beside == at);
        for unseen in here.filter(|it| it.side == side) {
            let text = self.text.get(unseen.at.clone()).unwrap_or_default();
            words.push(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

/// Words of a declaration, brought together the same way whatever stood between them.
#[derive(Debug, Default)]
pub(crate) struct Words {
    text: String,
    /// Whether the last one is a comma between parameters, which may stand behind the last of them as well.
    ends_in_comma: bool,
    /// Whether square brackets stand before what they belong to.
    leading_brackets: bool,
}

impl Words {
    pub(crate) fn new(grammar: Grammar) -> Self {
        Self { leading_brackets: grammar == Grammar::Go, ..Self::default() }
    }

    /// Adds a word, and what stands before it.
    pub(crate) fn push(&mut self, word: &str) {
        if std::mem::take(&mut self.ends_in_comma) && matches!(word, ")" | "]" | ">" | "}" | "|") {
            let len = self.text.trim_end().trim_end_matches(',').len();
            self.text.truncate(len);
        }
        if self.is_apart(word) {
            self.text.push(' ');
        }
        self.text.push_str(word);
    }

    fn is_apart(&self, word: &str) -> bool {
        const APART: [&str; 9] = ["->", "=>", "=", "{", "}", "|", "+", "==", "?"];
        let is_word =
            |c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | '\'' | '$' | '@' | '`');
        let Some(last) = self.text.chars().next_back() else { return false };
        let first = word.chars().next().unwrap_or(' ');
        if last == ' '
            || matches!(first, ',' | ';' | ')')
            || word == "?" && self.text.ends_with(|c| is_word(c) || c == ')')
        {
            return false;
        }
        let ends_apart = APART.iter().any(|it| self.text.ends_with(it) && *it != "?");
        let after = matches!(last, ',' | ';') || last == ':' && !self.text.ends_with("::");
        if ends_apart || after {
            return true;
        }
        if APART.contains(&word) && word != "?" {
            return true;
        }
        let brackets = self.leading_brackets;
        match first {
            first if is_word(first) => {
                is_word(last) || matches!(last, ')' | '>') || last == ']' && !brackets
            }
            '*' | '&' | '~' => is_word(last),
            '[' => brackets && is_word(last),
            _ => false,
        }
    }

    pub(crate) fn end(self) -> String {
        let text = self.text.trim_end_matches([';', ' ', ':', '=', ',']);
        // A Ruby method and a C++ operator may be called so.
        let is_cut = self.text.ends_with("==") || self.text.ends_with("operator=");
        if is_cut { self.text } else { text.to_owned() }
    }
}

/// Adds the words of a node, but for what does not matter.
pub(crate) fn write(node: Node<'_>, source: Source<'_>, words: &mut Words) {
    let grammar = source.grammar;
    let mut cursor = node.walk();
    let mut above: Vec<&str> = Vec::new();
    // The types of parameters that are the same as that of the next one.
    let mut repeated = BTreeSet::new();
    loop {
        let at = cursor.node();
        let kind = at.kind();
        let text = source.text.get(at.byte_range()).unwrap_or_default();
        let is_leaf = at.child_count() == 0;
        if is_leaf {
            source.write_unseen(at.start_byte(), Side::Before, words);
        }
        if grammar == Grammar::Go && kind.ends_with("parameter_list") {
            repeated.extend(repeated_types(at, source.text));
        }
        if !is_dropped(at, text, &above, grammar, words) && !repeated.contains(&at.id()) {
            if is_leaf || is_whole(kind) {
                push(text, kind, above.last().copied().unwrap_or_default(), grammar, words);
            } else if cursor.goto_first_child() {
                above.push(kind);
                continue;
            }
        }
        if is_leaf {
            source.write_unseen(at.start_byte(), Side::After, words);
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
            above.pop();
        }
    }
}

/// Finds the types in a list of Go that may be left out, as the next parameter has the same: `a int, b int` is `a, b int`.
fn repeated_types(list: Node<'_>, text: &str) -> Vec<usize> {
    let mut cursor = list.walk();
    let mut last: Option<(Node<'_>, &str)> = None;
    let mut found = Vec::new();
    let mut is_there = cursor.goto_first_child();
    while is_there {
        let declared = cursor.node();
        if matches!(declared.kind(), "parameter_declaration" | "type_parameter_declaration") {
            let of = declared.child_by_field_name("type");
            let of = of.filter(|_| declared.child_by_field_name("name").is_some());
            let of = of.and_then(|of| Some((of, text.get(of.byte_range())?)));
            if let (Some((before, one)), Some((_, other))) = (last, of)
                && is_same(one, other)
            {
                found.push(before.id());
            }
            last = of;
        } else if declared.is_named() && !declared.kind().contains("comment") {
            last = None;
        }
        is_there = cursor.goto_next_sibling();
    }
    found
}

/// Compares but for blanks, and no more than the shorter of both has.
fn is_same(one: &str, other: &str) -> bool {
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let (one, other) = (one.bytes(), other.bytes());
    one.filter(|byte| !is_blank(byte)).eq(other.filter(|byte| !is_blank(byte)))
}

fn push(text: &str, kind: &str, parent: &str, grammar: Grammar, words: &mut Words) {
    let quotes = matches!(grammar, Grammar::JavaScript | Grammar::TypeScript | Grammar::Tsx)
        || matches!(grammar, Grammar::Python | Grammar::Ruby);
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    match inner.filter(|inner| quotes && !inner.contains(['"', '\\', '\'']) && kind == "string") {
        // Which quotes stand around it is how it is laid out.
        Some(inner) => words.push(&format!("\"{inner}\"")),
        None => words.push(text),
    }
    words.ends_in_comma = text == "," && parent.contains("param");
}

/// Tells whether a node is taken as it is written, whatever it holds.
fn is_whole(kind: &str) -> bool {
    kind.contains("string")
        || ["char_literal", "character_literal", "rune_literal", "regex", "lifetime"]
            .contains(&kind)
        || matches!(kind, "template_literal_type" | "character" | "user_defined_literal")
}

fn is_dropped(at: Node<'_>, text: &str, above: &[&str], grammar: Grammar, words: &Words) -> bool {
    let kind = at.kind();
    let parent = above.last().copied().unwrap_or_default();
    if kind.contains("comment") {
        return true;
    }
    match grammar {
        // How a parameter may be used is the body's matter.
        Grammar::Rust => match (kind, parent) {
            ("attribute_item", _) | ("mutable_specifier", "parameter") => true,
            ("mutable_specifier", "self_parameter") => {
                !words.text.ends_with('&') && !words.text.ends_with(char::is_alphanumeric)
            }
            _ => false,
        },
        Grammar::Java => {
            // So is whether a parameter may be given another value.
            let is_parameter = matches!(above, [.., "formal_parameter" | "spread_parameter", _]);
            matches!(kind, "annotation" | "marker_annotation")
                || text == "final" && parent == "modifiers" && is_parameter
                || matches!(text, "synchronized" | "native" | "strictfp") && at.child_count() == 0
        }
        Grammar::C | Grammar::Cpp => matches!(text, "extern" | "inline") && at.child_count() == 0,
        Grammar::JavaScript | Grammar::TypeScript | Grammar::Tsx => kind == "decorator",
        Grammar::Ruby => matches!(text, "(" | ")") && parent == "method_parameters",
        Grammar::Go | Grammar::Python => false,
    }
}
