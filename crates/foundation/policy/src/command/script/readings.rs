//! Where a shell might read something else than the grammar does: such a text is not judged at all.
//!
//! The grammar guesses where a shell has rules: which blanks part words, where a comment begins, where a quote, a
//! here-document or an expansion ends. What is held against those rules here ends for both at the same byte.

use std::ops::Range;

use tree_sitter::Node;

/// Refuses a text that a shell might read otherwise.
pub(super) fn agree(root: Node<'_>, text: &str) -> Result<(), String> {
    // A shell knows no other blanks; the grammar does.
    let is_odd =
        |c: &char| (c.is_control() || c.is_whitespace()) && !matches!(c, ' ' | '\t' | '\n');
    if let Some(odd) = text.chars().find(is_odd) {
        return Err(format!("the shell text holds {odd:?}, which is no blank to a shell"));
    }
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut children = node.walk();
        let children: Vec<Node<'_>> = node.children(&mut children).collect();
        if !matches!(node.kind(), "string" | "heredoc_body") {
            parted(node, &children, text)?;
        }
        judge(node, text)?;
        open.extend(children);
    }
    seen(root, text)
}

/// Refuses what only bash knows.
pub(super) fn plain(node: Node<'_>, text: &str) -> Result<(), String> {
    let written = source(node, text);
    let is_of_bash = match node.kind() {
        "test_command" => written.starts_with("[["),
        "compound_statement" => written.starts_with("(("),
        "function_definition" => written.starts_with("function"),
        "file_redirect" => written.starts_with("&>"),
        "ansi_c_string"
        | "string_expansion"
        | "translated_string"
        | "array"
        | "subscript"
        | "process_substitution"
        | "herestring_redirect"
        | "c_style_for_statement"
        | "|&"
        | ";&"
        | ";;&" => true,
        _ => false,
    };
    match is_of_bash {
        true => Err(format!("{written} is known to bash alone: give the text to bash")),
        false => Ok(()),
    }
}

fn source<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    text.get(node.byte_range()).unwrap_or_default()
}

fn is_blank(byte: Option<&u8>) -> bool {
    matches!(byte, None | Some(b' ' | b'\t' | b'\n'))
}

/// Refuses a node with something else than blanks between its parts.
fn parted(node: Node<'_>, parts: &[Node<'_>], text: &str) -> Result<(), String> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(()) };
    // What stands before and behind the whole text belongs to nothing in it.
    let whole = match node.parent() {
        None => 0..text.len(),
        Some(_) => node.byte_range(),
    };
    blank(whole.start..first.start_byte(), text)?;
    blank(last.end_byte()..whole.end, text)?;
    parts.windows(2).try_for_each(|pair| match pair {
        [one, two] => blank(one.end_byte()..two.start_byte(), text),
        _ => Ok(()),
    })
}

/// Refuses what is no blank. A line that goes on in the next one does so with a blank before or behind.
fn blank(between: Range<usize>, text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut at = between.start;
    while at < between.end {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b' ' | b'\t' | b'\n'), _) => at += 1,
            (Some(b'\\'), Some(b'\n')) => {
                let before = at.checked_sub(1).and_then(|before| bytes.get(before));
                if !is_blank(before) && !is_blank(bytes.get(at + 2)) {
                    return Err(
                        "a line of the shell text goes on in the next one without a blank".into()
                    );
                }
                at += 2;
            }
            _ => {
                let between = text.get(at..between.end).unwrap_or_default();
                return Err(format!("{between:?} in the shell text may be a part of a word"));
            }
        }
    }
    Ok(())
}

fn judge(node: Node<'_>, text: &str) -> Result<(), String> {
    let written = source(node, text);
    let unclear = |why: &str| Err(format!("{written:?} in the shell text {why}"));
    match node.kind() {
        "comment" => {
            let before = node.start_byte().checked_sub(1).and_then(|at| text.as_bytes().get(at));
            match before {
                None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(') => Ok(()),
                Some(_) => unclear("may be a part of a word and no comment"),
            }
        }
        // Bash ends it at the first backtick, whatever quotes are open, and takes backslashes out before it reads it.
        "command_substitution" if !written.starts_with("$(") => {
            let inner = written.trim_start_matches('$').strip_prefix('`');
            match inner.and_then(|inner| inner.strip_suffix('`')) {
                Some(inner) if !inner.contains(['\\', '`']) && !written.starts_with('$') => Ok(()),
                _ => unclear("may be another command to a shell: write it as $(…)"),
            }
        }
        // The text that is found for it in a file, which the text may name, is read as shell text.
        "translated_string" => {
            unclear("is translated, and then read again: write it without the $")
        }
        "ansi_c_string" => match written.get(2..).and_then(|rest| unescaped(rest, "'")) {
            Some(end) if end + 3 == written.len() => Ok(()),
            _ => unclear("may end elsewhere to a shell"),
        },
        "expansion" => {
            let is_quoted = std::iter::successors(node.parent(), Node::parent)
                .take_while(|it| {
                    !matches!(it.kind(), "command_substitution" | "process_substitution")
                })
                .any(|it| matches!(it.kind(), "string" | "heredoc_body"));
            match end_of(written, is_quoted) == Some(written.len()) {
                true => Ok(()),
                false => unclear("may end elsewhere to a shell"),
            }
        }
        "heredoc_redirect" => heredoc(node, text),
        // The grammar lets one go on up to wherever it likes; to a command, it is a word like any other.
        "regex" | "extglob_pattern" => {
            let is_word = node.parent().is_none_or(|it| it.kind() == "command");
            match is_word || written.contains(['\n', ';', '&', '`', '<', '>']) {
                true => unclear("may end elsewhere to a shell"),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Finds the first of some characters that no backslash stands before.
fn unescaped(text: &str, wanted: &str) -> Option<usize> {
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            it if wanted.contains(it) => return Some(at),
            _ => {}
        }
    }
    None
}

/// Finds where `${…}` ends. What is in quotes there, and may be in others without, is not told.
fn end_of(written: &str, is_quoted: bool) -> Option<usize> {
    let mut letters = written.char_indices();
    let (mut depth, mut in_quotes) = (0_usize, false);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            // Within double quotes some forms take it for a quote, and others for a letter.
            '\'' if is_quoted || in_quotes => return None,
            '\'' => drop(letters.by_ref().find(|(_, letter)| *letter == '\'')?),
            '"' if is_quoted => return None,
            '"' => in_quotes = !in_quotes,
            '{' if written.get(..at).is_some_and(|before| before.ends_with('$')) => depth += 1,
            // To the one it ends what is open, to the other nothing.
            '{' => return None,
            '}' if in_quotes && depth <= 1 => return None,
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Holds a here-document against the lines that a shell reads for it.
fn heredoc(node: Node<'_>, text: &str) -> Result<(), String> {
    let unclear = |why: &str| Err(format!("a here-document of the shell text {why}"));
    let mut children = node.walk();
    let children: Vec<Node<'_>> = node.children(&mut children).collect();
    let find = |kind: &str| children.iter().copied().find(|child| child.kind() == kind);
    let (Some(start), Some(body), Some(end)) =
        (find("heredoc_start"), find("heredoc_body"), find("heredoc_end"))
    else {
        return unclear("has no end");
    };
    let (is_raw, word) = match source(start, text) {
        it if it.len() > 1 && it.starts_with('\'') && it.ends_with('\'') => {
            (true, it.trim_matches('\''))
        }
        it if it.len() > 1 && it.starts_with('"') && it.ends_with('"') => {
            (true, it.trim_matches('"'))
        }
        it => match it.strip_prefix('\\') {
            Some(rest) => (true, rest),
            None => (false, it),
        },
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if word.is_empty() || !word.bytes().all(is_plain) {
        return unclear("ends with a word that is not made of letters and numbers alone");
    }
    let strips = find("<<-").is_some();
    let Some(line) = text.get(start.end_byte()..).and_then(|rest| rest.find('\n')) else {
        return unclear("has no lines");
    };
    let rest = text.get(start.end_byte()..start.end_byte() + line).unwrap_or_default();
    if rest.contains("<<") || rest.ends_with('\\') {
        return unclear("begins in a line with another one, or in one that goes on");
    }
    let first = start.end_byte() + line + 1;
    let skipped = text.get(first..body.start_byte());
    if !skipped.is_some_and(|skipped| skipped.trim().is_empty()) {
        return unclear("may begin elsewhere to a shell");
    }
    let Some(lines) = lines_of(text, first, word, strips, is_raw) else {
        return unclear(
            "ends with no line that is its word alone, or with one that may belong to the line before",
        );
    };
    if end.end_byte() != lines.end + word.len() {
        return unclear("may end elsewhere to a shell");
    }
    let inner = text.get(lines).unwrap_or_default();
    if !is_raw && unescaped(inner, "`").is_some() {
        return unclear(
            "holds a backtick, by which a shell runs what follows: put its word in quotes",
        );
    }
    Ok(())
}

/// Returns the range from the first line of a here-document up to the word that ends it.
fn lines_of(
    text: &str,
    first: usize,
    word: &str,
    strips: bool,
    is_raw: bool,
) -> Option<Range<usize>> {
    let mut at = first;
    // What the lines before this one make of it, since they go on in it.
    let mut going: Option<String> = None;
    for line in text.get(first..)?.split_inclusive('\n') {
        let end = at + line.len();
        let line = line.strip_suffix('\n').unwrap_or(line);
        let bare = if strips { line.trim_start_matches('\t') } else { line };
        let slashes = bare.len() - bare.trim_end_matches('\\').len();
        let goes_on = !is_raw && slashes % 2 == 1;
        let whole = going.as_ref().map(|before| format!("{before}{bare}"));
        let is_end = bare == word;
        match &whole {
            None if is_end => return Some(first..at + line.len() - bare.len()),
            // Alone or with what was before, and shells differ.
            Some(whole) if is_end || whole == word => return None,
            _ => {}
        }
        going = goes_on.then(|| {
            let whole = whole.as_deref().unwrap_or(bare);
            whole.strip_suffix('\\').unwrap_or(whole).to_owned()
        });
        at = end;
    }
    None
}

/// Refuses an expansion that the grammar takes for letters.
fn seen(root: Node<'_>, text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let begins = matches!(
            (byte, bytes.get(at + 1)),
            (b'`', _) | (b'$', Some(b'(' | b'{' | b'[' | b'"')) | (b'<' | b'>', Some(b'('))
        );
        let slashes =
            bytes.get(..at).unwrap_or_default().iter().rev().take_while(|it| **it == b'\\').count();
        if !begins || slashes % 2 == 1 {
            continue;
        }
        let Some(node) = root.descendant_for_byte_range(at, at + 1) else { continue };
        let is_letter = match node.kind() {
            "raw_string" | "comment" | "ansi_c_string" => true,
            "heredoc_body" | "heredoc_content" => {
                is_raw(node, text) || (matches!(byte, b'<' | b'>'))
            }
            "string_content" | "string" => matches!(byte, b'<' | b'>'),
            "heredoc_start" => true,
            _ => false,
        };
        // A string may end with one.
        let is_last = bytes.get(at + 1) == Some(&b'"')
            && (node.kind() == "string" || node.parent().is_some_and(|it| it.kind() == "string"))
            && std::iter::successors(Some(node), Node::parent)
                .find(|it| it.kind() == "string")
                .is_some_and(|it| it.end_byte() == at + 2);
        let is_letter = is_letter || is_last;
        let is_seen = node.start_byte() == at
            && node.child_count() == 0
            && matches!(node.kind(), "$(" | "`" | "${" | "$((" | "<(" | ">(");
        if !is_letter && !is_seen {
            let shown = formwork_protocols::text::head(text.get(at..).unwrap_or_default(), 20);
            return Err(format!("{shown:?} in the shell text may be more than letters"));
        }
    }
    Ok(())
}

/// Says whether nothing is put into the here-document that a node belongs to.
fn is_raw(node: Node<'_>, text: &str) -> bool {
    let mut above = std::iter::successors(Some(node), Node::parent);
    let Some(redirect) = above.find(|it| it.kind() == "heredoc_redirect") else { return false };
    let mut children = redirect.walk();
    let start = redirect.children(&mut children).find(|it| it.kind() == "heredoc_start");
    start.is_some_and(|start| source(start, text).starts_with(['\'', '"', '\\']))
}
