//! A declaration without what does not matter: how it is laid out, its comments, its body.

use tree_sitter::Node;

use crate::grammar::Grammar;

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
pub(crate) fn write(node: Node<'_>, source: &str, grammar: Grammar, words: &mut Words) {
    let mut cursor = node.walk();
    let mut above: Vec<&str> = Vec::new();
    loop {
        let at = cursor.node();
        let (kind, parent) = (at.kind(), above.last().copied().unwrap_or_default());
        let text = source.get(at.byte_range()).unwrap_or_default();
        if !is_dropped(at, text, parent, grammar, words) {
            if at.child_count() == 0 || is_whole(kind) {
                push(text, kind, parent, grammar, words);
            } else if cursor.goto_first_child() {
                above.push(kind);
                continue;
            }
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return;
            }
            above.pop();
        }
    }
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

fn is_dropped(at: Node<'_>, text: &str, parent: &str, grammar: Grammar, words: &Words) -> bool {
    let kind = at.kind();
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
            matches!(kind, "annotation" | "marker_annotation")
                || matches!(text, "synchronized" | "native" | "strictfp") && at.child_count() == 0
        }
        Grammar::C | Grammar::Cpp => matches!(text, "extern" | "inline") && at.child_count() == 0,
        Grammar::JavaScript | Grammar::TypeScript | Grammar::Tsx => kind == "decorator",
        Grammar::Ruby => matches!(text, "(" | ")") && parent == "method_parameters",
        Grammar::Go | Grammar::Python => false,
    }
}
