//! Shell text, taken apart: each command in it with its words, and each file that it writes.
//!
//! What is said here of a text holds for every way in which a shell could run it: a word that the shell would make
//! something else of is not known, and a text that does not parse whole is not judged at all.

mod readings; // Where a shell might read something else than the grammar does.

use tree_sitter::{Node, Parser, TreeCursor};

use super::variable::Value;

/// The longest text that is looked at: more is a program, and belongs into a file.
const MAX_BYTES: usize = 64 * 1024;

/// The most commands of one text.
const MAX_COMMANDS: usize = 1_000;

/// What stands for what a shell puts in place of an expansion. No argument of a process can hold it.
const UNKNOWN: char = '\0';

/// What stands for the value of a variable that is not known beforehand, and is one word all the same. No text can hold it:
/// it is no blank to a shell.
const ANY_VALUE: char = '\u{1}';

/// Which shell a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// One whose grammar is the one that texts are read by.
    Bash,
    /// Any other, for which what only bash knows means something else: to `dash`, `[[` is a program and `((` two subshells.
    Plain,
}

/// A text, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Each command.
    pub(super) commands: Vec<Command>,
    /// The files that redirections write, where they are known.
    pub(super) writes: Vec<String>,
    /// The variables that are set, with or without a command.
    pub(super) sets: Vec<Set>,
    /// The variables that stand in sums, which may set them.
    pub(super) sums: Vec<String>,
    /// The folder below the present one that the text goes to before all else, and stays in: `cd FOLDER && …`.
    pub(super) goes_to: Option<String>,
    /// Words that stand behind a redirection and are a command's all the same, each with the command's node.
    behind: Vec<(usize, Vec<String>)>,
}

/// A command of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    /// Its words. One that holds what is not known beforehand is told by [`is_unknown`].
    pub(super) words: Vec<String>,
    /// The variables that are set for it alone, each as `NAME=VALUE`: one word, whatever the value is.
    pub(super) given: Vec<String>,
}

/// A variable that is set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) value: Value,
    pub(super) way: Way,
    /// Whether the command that declares it makes a list of it.
    pub(super) is_list: bool,
    /// How it is written, as `NAME=VALUE`.
    pub(super) written: String,
}

/// How a variable is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// For the shell.
    Plainly,
    /// For one command, with which it is looked at.
    Before,
    /// By a command such as `declare` or `local`, which reads a quoted list again.
    Declared,
    /// By such a command, for all programs that are started from then on.
    Exported,
}

/// Says whether a word holds what is not known beforehand.
pub(super) fn is_unknown(word: &str) -> bool {
    word.contains(UNKNOWN)
}

/// Takes a text apart.
///
/// # Errors
/// Why it cannot be judged.
pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Script, String> {
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
    readings::agree(tree.root_node(), text)?;
    let mut script = Script { goes_to: goes_to(tree.root_node(), text), ..Script::default() };
    let mut cursor = tree.walk();
    loop {
        if dialect == Dialect::Plain {
            readings::plain(cursor.node(), text)?;
        }
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

/// Returns the folder that a text goes to first, where nothing of it is run if that fails: one that is spelled out and lies
/// below the present one.
fn goes_to(root: Node<'_>, text: &str) -> Option<String> {
    let mut node = root.named_child(0).filter(|_| root.named_child_count() == 1)?;
    if node.kind() != "list" {
        return None;
    }
    while node.kind() == "list" {
        if node.child_count() != 3 || node.child(1)?.kind() != "&&" {
            return None;
        }
        node = node.child(0)?;
    }
    let has_words_alone = |node: Node<'_>| {
        let mut children = node.walk();
        node.named_children(&mut children)
            .all(|it| !it.kind().ends_with("redirect") && it.kind() != "variable_assignment")
    };
    let words =
        words(node, text).ok().filter(|_| node.kind() == "command" && has_words_alone(node))?;
    let [cd, folder] = words.as_slice() else { return None };
    let is_below = !folder.is_empty()
        && !is_unknown(folder)
        && !folder.starts_with(['/', '-', '~', '+'])
        && folder.split('/').all(|part| part != "..");
    (cd == "cd" && is_below).then(|| folder.clone())
}

impl Script {
    fn take(&mut self, node: Node<'_>, text: &str) -> Result<(), String> {
        if self.commands.len() > MAX_COMMANDS {
            return Err(format!("the shell text has more than {MAX_COMMANDS} commands"));
        }
        match node.kind() {
            "command" => {
                let mut words = words(node, text)?;
                let behind = self.behind.iter_mut().find(|(command, _)| *command == node.id());
                words.extend(behind.map(|(_, behind)| std::mem::take(behind)).unwrap_or_default());
                let mut children = node.walk();
                let given =
                    node.children(&mut children).filter(|it| it.kind() == "variable_assignment");
                let given = given.map(|it| assigned(it, text).1).collect();
                self.commands.push(Command { words, given });
            }
            // What stands behind a redirection is the command's as well: `find . >out -delete`.
            "redirected_statement" => {
                let behind = behind(node, text);
                if !behind.is_empty() {
                    let command = command_before(node).ok_or_else(|| {
                        format!("{:?} stands behind a redirection, where it is not clear whose word it is", behind.join(" ").replace(UNKNOWN, ""))
                    })?;
                    self.behind.push((command.id(), behind));
                }
            }
            // Such as `export A=b`, whose words name variables.
            "declaration_command" | "unset_command" => {
                let words = declared(node, text)?;
                self.declare(node, &words, text);
                self.commands.push(Command { words, given: Vec::new() });
            }
            "test_command" => {
                self.commands.push(Command { words: tested(node, text), given: Vec::new() });
            }
            "variable_assignment" => {
                let way = match node.parent().map(|parent| parent.kind()) {
                    // Looked at with the command.
                    Some("declaration_command") => return Ok(()),
                    Some("command") => Way::Before,
                    _ => Way::Plainly,
                };
                self.assign(node, (way, false), text);
            }
            "for_statement" => {
                if let Some(name) = node.child_by_field_name("variable") {
                    self.set(source(name, text), Value::Unknown);
                }
            }
            "arithmetic_expansion" => {
                let inner = source(node, text);
                let inner = inner.strip_prefix("$((").and_then(|it| it.strip_suffix("))"));
                self.sum(inner.ok_or("a sum in the shell text is not written as $((…))")?)?;
            }
            "compound_statement" => {
                if let Some(inner) = source(node, text).strip_prefix("((") {
                    self.sum(inner.strip_suffix("))").unwrap_or(inner))?;
                }
            }
            "c_style_for_statement" => {
                let body =
                    node.child_by_field_name("body").map_or(node.end_byte(), |it| it.start_byte());
                let head = text.get(node.start_byte()..body).unwrap_or_default();
                let head = head.split_once("((").and_then(|(_, rest)| rest.rsplit_once("))"));
                self.sum(
                    head.map(|(head, _)| head).ok_or("a loop of the shell text is not clear")?,
                )?;
            }
            "subscript" => {
                let index = node.child_by_field_name("index");
                let index = index.map(|index| source(index, text)).unwrap_or("$");
                if !matches!(index, "@" | "*") {
                    self.sum(index)?;
                }
            }
            "array" => {
                let mut children = node.walk();
                for child in node.named_children(&mut children) {
                    let element = source(child, text);
                    let index = element.strip_prefix('[').and_then(|rest| rest.split(']').next());
                    if index.is_some_and(|index| !index.bytes().all(|it| it.is_ascii_digit())) {
                        return Err(format!("{element} is known only once the shell runs"));
                    }
                }
            }
            "expansion" => self.expansion(source(node, text))?,
            "file_redirect" => {
                let before = text.get(..node.start_byte()).unwrap_or_default();
                if before.ends_with('}') || source(node, text).starts_with('{') {
                    return Err("a redirection of the shell text may set a variable".into());
                }
                let around = node.parent().map(|around| around.kind());
                let is_judged = matches!(around, Some("redirected_statement" | "heredoc_redirect"));
                if !is_judged && !destinations(node, text).1.is_empty() {
                    return Err("words stand behind a redirection before any program".into());
                }
                self.redirect(node, text);
            }
            _ => {}
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Value) {
        let (name, written) = (name.to_owned(), String::new());
        self.sets.push(Set { name, value, way: Way::Plainly, is_list: false, written });
    }

    fn assign(&mut self, node: Node<'_>, (way, is_list): (Way, bool), text: &str) {
        let (name, written, value) = assigned(node, text);
        self.sets.push(Set { name, value, way, is_list, written });
    }

    /// Takes what a command such as `declare` sets, of which `words` are the others.
    fn declare(&mut self, node: Node<'_>, words: &[String], text: &str) {
        let has =
            |letter: char| words.iter().any(|it| it.starts_with(['-', '+']) && it.contains(letter));
        let is_exported = words.first().is_some_and(|name| name == "export") || has('x');
        let way = if is_exported { Way::Exported } else { Way::Declared };
        let is_list = has('a') || has('A');
        let mut children = node.walk();
        for child in node.children(&mut children) {
            if child.kind() == "variable_assignment" {
                self.assign(child, (way, is_list), text);
            }
        }
    }

    /// Takes what a shell reckons: numbers, variables and signs, and nothing that is put in before.
    fn sum(&mut self, sum: &str) -> Result<(), String> {
        let is_sign = |c: char| {
            c.is_ascii_alphanumeric() || c.is_whitespace() || "_$+-*/%<>=!&|^~?:,;()#".contains(c)
        };
        let refused = || format!("{sum:?} is reckoned with, and known only once the shell runs");
        let mut rest = sum;
        if !sum.chars().all(is_sign) {
            return Err(refused());
        }
        while let Some(at) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$')
        {
            let word = rest.get(at..).unwrap_or_default();
            let is_put_in = word.starts_with('$');
            let word = word.strip_prefix('$').unwrap_or(word);
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = word.find(|c: char| !is_name(c) && c != '#').unwrap_or(word.len());
            let (name, after) = word.split_at_checked(end).unwrap_or((word, ""));
            rest = after;
            let is_digit = name.starts_with(|c: char| c.is_ascii_digit());
            match () {
                // Numbers, such as 0x1f and 16#ff.
                () if is_digit && !is_put_in && !after.starts_with('$') => {}
                () if is_digit || name.is_empty() || name.contains('#') => return Err(refused()),
                () => {
                    let after = after
                        .trim_start()
                        .trim_start_matches(['+', '-', '*', '/', '%', '&', '|', '^']);
                    if after.starts_with('=') && !after.starts_with("==") && !is_put_in {
                        self.set(name, Value::Number);
                    }
                    self.sums.push(name.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Takes `${…}`, of which some forms look into what a variable holds.
    fn expansion(&mut self, written: &str) -> Result<(), String> {
        let refused = || format!("{written} is known only once the shell runs");
        let inner =
            written.strip_prefix("${").and_then(|it| it.strip_suffix('}')).ok_or_else(refused)?;
        let inner = inner.strip_prefix('#').filter(|rest| !rest.is_empty()).unwrap_or(inner);
        if inner.starts_with('!') || inner.contains("$(") || inner.contains(['`', '\n']) {
            return Err(refused());
        }
        let end =
            inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        // Such as ${@}.
        let end = if end == 0 { inner.chars().next().map_or(0, char::len_utf8) } else { end };
        let (name, rest) = inner.split_at_checked(end).ok_or_else(refused)?;
        let rest = match rest.strip_prefix('[') {
            // The index is looked at for itself.
            Some(rest) => rest.split_once(']').map(|(_, rest)| rest).ok_or_else(refused)?,
            None => rest,
        };
        let after_colon = rest.strip_prefix(':');
        match (after_colon.unwrap_or(rest).chars().next(), after_colon) {
            (Some('@'), _) => return Err(refused()),
            (Some('='), _) => self.set(name, Value::Unknown),
            (Some('-' | '+' | '?'), _) | (_, None) => {}
            // A part of it, whose bounds are reckoned.
            (_, Some(bounds)) => self.sum(bounds)?,
        }
        Ok(())
    }

    fn redirect(&mut self, node: Node<'_>, text: &str) {
        let mut children = node.walk();
        let writes = node
            .children(&mut children)
            .any(|child| matches!(child.kind(), ">" | ">>" | ">|" | "&>" | "&>>" | "<>" | ">&"));
        let (place, _) = destinations(node, text);
        // A descriptor is no file.
        if let Some(place) = place.filter(|_| writes)
            && !place.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        {
            self.writes.push(place);
        }
    }
}

/// Returns what a redirection is from or to, and the words that the grammar takes for more of these.
fn destinations(node: Node<'_>, text: &str) -> (Option<String>, Vec<String>) {
    let mut children = node.walk();
    let closes = node.children(&mut children).any(|it| matches!(it.kind(), "<&-" | ">&-"));
    let mut children = node.walk();
    let mut words = joined(node.children_by_field_name("destination", &mut children), text);
    match closes || words.is_empty() {
        true => (None, words),
        false => (Some(words.remove(0)), words),
    }
}

/// Returns the words behind the redirections of a statement that are no part of these.
fn behind(statement: Node<'_>, text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut open: Vec<Node<'_>> = vec![statement];
    while let Some(node) = open.pop() {
        match node.kind() {
            "file_redirect" => words.extend(destinations(node, text).1),
            "redirected_statement" | "heredoc_redirect" => {
                let mut children = node.walk();
                words.extend(joined(node.children_by_field_name("argument", &mut children), text));
                let mut children = node.walk();
                let mut inner: Vec<_> =
                    node.children_by_field_name("redirect", &mut children).collect();
                inner.reverse();
                open.extend(inner);
            }
            _ => {}
        }
    }
    words
}

/// Returns the command that the words behind the redirections of a statement belong to.
fn command_before(statement: Node<'_>) -> Option<Node<'_>> {
    let mut node = statement.child_by_field_name("body")?;
    loop {
        match node.kind() {
            "command" => return Some(node),
            "list" | "pipeline" => {
                node = node.named_child(node.named_child_count().checked_sub(1)? as _)?;
            }
            _ => return None,
        }
    }
}

/// Returns words of which those that nothing parts are one.
fn joined<'a>(nodes: impl Iterator<Item = Node<'a>>, text: &str) -> Vec<String> {
    let (mut words, mut end): (Vec<String>, usize) = (Vec::new(), usize::MAX);
    for node in nodes {
        let word = word(node, text);
        match words.last_mut() {
            Some(last) if node.start_byte() == end => last.push_str(&word),
            _ => words.push(word),
        }
        end = node.end_byte();
    }
    words
}

/// Returns the words of a command: its program and its arguments.
fn words(node: Node<'_>, text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut children = node.walk();
    let mut arguments = Vec::new();
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
            _ => arguments.push(child),
        }
    }
    let Some(name) = node.child_by_field_name("name").filter(|_| !words.is_empty()) else {
        return Err("a command without a program".into());
    };
    // To a shell they are one word, whatever they are to the grammar.
    if arguments.first().is_some_and(|first| first.start_byte() == name.end_byte()) {
        return Err(format!("{:?} is not clear", source(node, text)));
    }
    words.extend(joined(arguments.into_iter(), text));
    Ok(words)
}

/// Returns the words of a command that names variables, without those that it sets to something: these are looked at for
/// themselves.
fn declared(node: Node<'_>, text: &str) -> Result<Vec<String>, String> {
    let mut children = node.walk();
    let (mut words, mut end) = (Vec::new(), usize::MAX);
    for child in node.children(&mut children) {
        // To a shell they are one word, whatever they are to the grammar.
        if child.start_byte() == end {
            return Err(format!("{:?} is not clear", source(node, text)));
        }
        end = child.end_byte();
        words.extend(match child.kind() {
            "variable_assignment" => None,
            "variable_name" => Some(source(child, text).to_owned()),
            _ if child.is_named() => Some(word(child, text)),
            _ => Some(source(child, text).to_owned()),
        });
    }
    Ok(words)
}

/// Returns the name of a variable that is set, how it is written as one word, and what to.
fn assigned(node: Node<'_>, text: &str) -> (String, String, Value) {
    let name = node.child_by_field_name("name").map(|name| source(name, text)).unwrap_or_default();
    let is_whole = !name.contains('[');
    let name = name.split('[').next().unwrap_or_default().to_owned();
    let value = node.child_by_field_name("value");
    let known = match value {
        None => Some(String::new()),
        Some(value) => Some(word(value, text)).filter(|it| !is_unknown(it)),
    };
    let kind = match (value.map(|value| value.kind()), &known) {
        (Some("array"), _) => Value::List,
        // One of a list is set, and so there is one.
        _ if !is_whole => Value::List,
        (Some("arithmetic_expansion"), _) => Value::Number,
        (_, Some(it)) if !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()) => {
            Value::Number
        }
        (_, Some(it)) if !it.starts_with('(') => Value::Text,
        _ => Value::Unknown,
    };
    let is_added = source(node, text).get(name.len()..).is_some_and(|rest| rest.starts_with("+="));
    let known = known.filter(|_| is_whole && !is_added);
    let written = format!("{name}={}", known.unwrap_or_else(|| ANY_VALUE.to_string()));
    (name, written, kind)
}

/// Returns the words and signs of `[ … ]` and `[[ … ]]`.
fn tested(node: Node<'_>, text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        match node.kind() {
            "test_command"
            | "binary_expression"
            | "unary_expression"
            | "parenthesized_expression"
            | "negated_expression"
            | "ternary_expression"
            | "postfix_expression" => {
                let mut children = node.walk();
                let mut children: Vec<_> = node.children(&mut children).collect();
                children.reverse();
                open.extend(children);
            }
            "test_operator" | "variable_name" => words.push(source(node, text).to_owned()),
            _ if !node.is_named() => words.push(source(node, text).to_owned()),
            _ => words.push(word(node, text)),
        }
    }
    words
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
