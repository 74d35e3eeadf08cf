//! Text without the colours and moves of a terminal.

use std::borrow::Cow;

/// Returns a text without its escape sequences (ECMA-48) and carriage returns.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(['\u{1b}', '\r']) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip(&mut chars),
            '\r' => {}
            c => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// Skips what follows an escape character.
fn skip(chars: &mut std::str::Chars<'_>) {
    match chars.next() {
        // A control sequence ends with a byte from @ to ~.
        Some('[') => {
            chars.find(|c| ('@'..='~').contains(c));
        }
        // A command to the terminal ends with a bell, or an escape and a backslash.
        Some(']') => {
            let end = chars.find(|c| matches!(c, '\u{7}' | '\u{1b}'));
            if end == Some('\u{1b}') {
                chars.next();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_links_are_taken_out_and_words_stay() {
        assert_eq!(plain("\u{1b}[1m\u{1b}[32m1 passed\u{1b}[39m\u{1b}[22m (1)"), "1 passed (1)");
        assert_eq!(plain("\u{1b}]8;;file:///a\u{1b}\\a\u{1b}]8;;\u{7}b\r\n"), "ab\n");
        assert_eq!(plain("cut \u{1b}["), "cut ");
    }
}
