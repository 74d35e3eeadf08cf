//! Shell text, taken apart: each command in it with its words, and each file that it writes.
//!
//! What is said here of a text holds for every way in which a shell could run it: a word that the shell would make
//! something else of is not known, and a text that does not parse whole is not judged at all.

use tree_sitter::{Node, Parser, TreeCursor};

/// The longest text that is looked at: more is a program, and belongs into a file.
const MAX_BYTES: usize = 64 * 1024;

/// The most commands of one text.
const MAX_COMMANDS: usize = 1_000;

/// What stands for what a shell puts in place of an expansion. No argument of a process can hold it.
const UNKNOWN: char = '\0';

/// A text, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Each command, as its words. One that holds what is not known beforehand is told by [`is_unknown`].
    pub(super) commands: Vec<Vec<String>>,
    /// The files that redirections write, where they are known.
    pub(super) writes: Vec<String>,
    /// The variables that are set, with or without a command.
    pub(super) sets: Vec<String>,
    /// The functions that it defines, whose bodies are among the commands.
    pub(super) functions: Vec<String>,
}

/// Says whether a word holds what is not known beforehand.
pub(super) fn is_unknown(word: &str) -> bool {
    word.contains(UNKNOWN)
}

/// Takes a text apart.
///
/// # Errors
/// Why it cannot be judged.
pub(super) fn parse(text: &str) -> Result<Script, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("the shell text has {} bytes, more than {MAX_BYTES}", text.len()));
    }
    if text.contains(UNKNOWN) {
        return Err("the shell text holds a NUL".into());
    }
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .map_err(|error| format!("shell text cannot be read here: {error}"))?;
    let tree = parser.parse(text, None).ok_or("the shell text cannot be read")?;
    if tree.root_node().has_error() {
        return Err(
            "the shell text cannot be taken apart, so that its parts cannot be judged".into()
        );
    }
    let mut script = Script::default();
    let mut cursor = tree.walk();
    loop {
        script.take(cursor.node(), text)?;
        if cursor.goto_first_child() || cursor.goto_next_sibling() {
            continue;
        }
        if !climb(&mut cursor) {
            return Ok(script);
        }
    }
}

/// Goes on to what follows the parents of a node. Returns whether there is any.
fn climb(cursor: &mut TreeCursor<'_>) -> bool {
    while cursor.goto_parent() {
        if cursor.goto_next_sibling() {
            return true;
        }
    }
    false
}

impl Script {
    fn take(&mut self, node: Node<'_>, text: &str) -> Result<(), String> {
        if self.commands.len() > MAX_COMMANDS {
            return Err(format!("the shell text has more than {MAX_COMMANDS} commands"));
        }
        match node.kind() {
            "command" => self.commands.push(words(node, text)?),
            "variable_assignment" => {
                let name = node.child_by_field_name("name");
                let name = name.map(|name| source(name, text)).unwrap_or_default();
                self.sets.push(name.split('[').next().unwrap_or_default().to_owned());
            }
            "function_definition" => {
                let name = node.child_by_field_name("name");
                self.functions.extend(name.map(|name| source(name, text).to_owned()));
            }
            "for_statement" => {
                let name = node.child_by_field_name("variable");
                self.sets.extend(name.map(|name| source(name, text).to_owned()));
            }
            // Such as ${NAME:=value}.
            "expansion" => {
                let inner = source(node, text).trim_start_matches("${");
                let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                if let Some((name, rest)) = end.and_then(|end| inner.split_at_checked(end))
                    && (rest.starts_with('=') || rest.starts_with(":="))
                {
                    self.sets.push(name.to_owned());
                }
            }
            "file_redirect" => self.redirect(node, text),
            _ => {}
        }
        Ok(())
    }

    fn redirect(&mut self, node: Node<'_>, text: &str) {
        let mut children = node.walk();
        let writes = node
            .children(&mut children)
            .any(|child| matches!(child.kind(), ">" | ">>" | ">|" | "&>" | "&>>" | "<>" | ">&"));
        let mut children = node.walk();
        let places = node.children_by_field_name("destination", &mut children);
        for place in places.filter(|_| writes) {
            let place = word(place, text);
            // A descriptor is no file.
            if !place.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
                self.writes.push(place);
            }
        }
    }
}

/// Returns the words of a command: its program and its arguments.
fn words(node: Node<'_>, text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut children = node.walk();
    for child in node.children(&mut children) {
        match child.kind() {
            "command_name" => {
                let name = child.child(0).map(|name| word(name, text)).unwrap_or_default();
                if is_unknown(&name) || name.is_empty() || name.starts_with('~') {
                    return Err(format!(
                        "{:?} is a program that is known only once the shell runs",
                        source(child, text)
                    ));
                }
                words.push(name);
            }
            // Before or beside the words, and looked at for themselves.
            "variable_assignment" | "file_redirect" | "heredoc_redirect" => {}
            "herestring_redirect" | "<<<" | "comment" => {}
            _ => words.push(word(child, text)),
        }
    }
    match words.is_empty() {
        true => Err("a command without a program".into()),
        false => Ok(words),
    }
}

fn source<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    text.get(node.byte_range()).unwrap_or_default()
}

/// Returns what a shell makes of a word, as far as it is known; [`UNKNOWN`] for what is not.
fn word(node: Node<'_>, text: &str) -> String {
    let written = source(node, text);
    match node.kind() {
        "word" | "number" | "test_operator" | "regex" | "special_character" => bare(written),
        "raw_string" => written.trim_matches('\'').to_owned(),
        "string" => {
            let inner = written.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            let mut children = node.walk();
            let is_plain =
                node.named_children(&mut children).all(|it| it.kind() == "string_content");
            match inner {
                Some(inner) if is_plain && !inner.contains(['$', '`']) => quoted(inner),
                _ => unknown(written),
            }
        }
        "concatenation" => {
            let mut children = node.walk();
            let parts: Vec<_> = node.children(&mut children).collect();
            // What lies between the parts would be something that is not looked at.
            let whole: usize = parts.iter().map(|part| part.byte_range().len()).sum();
            match whole == written.len() {
                true => parts.into_iter().map(|part| word(part, text)).collect(),
                false => unknown(written),
            }
        }
        _ => unknown(written),
    }
}

fn unknown(written: &str) -> String {
    format!("{UNKNOWN}{}", written.replace(UNKNOWN, ""))
}

/// Takes the backslashes out of a word without quotes. What a shell would look for files by is not known.
fn bare(written: &str) -> String {
    // What `find` puts a path in the place of is nothing to a shell.
    if written == "{}" {
        return written.to_owned();
    }
    if written.starts_with('~') || written.contains(":~") || written.contains("=~") {
        return unknown(written);
    }
    let mut word = String::with_capacity(written.len());
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(letter) => word.push(letter),
            },
            '*' | '?' | '[' | '{' | '}' | '$' | '`' => return unknown(written),
            letter => word.push(letter),
        }
    }
    word
}

/// Takes the backslashes out of a word in double quotes.
fn quoted(written: &str) -> String {
    let mut word = String::with_capacity(written.len());
    let mut letters = written.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('\\', Some('$' | '`' | '"' | '\\')) => word.extend(letters.next()),
            ('\\', Some('\n')) => drop(letters.next()),
            (letter, _) => word.push(letter),
        }
    }
    word
}
