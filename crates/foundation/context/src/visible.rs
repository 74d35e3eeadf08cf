//! Characters that nobody sees, made visible.

use std::borrow::Cow;

/// Writes what cannot be seen, or turns the direction of writing, as `[U+XXXX]`: a text from elsewhere must not say to
/// a model what it does not say to a person. Joiners and variation selectors stay where scripts and emoji need them.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.is_ascii()
        && !text.bytes().any(|byte| byte.is_ascii_control() && !is_space(char::from(byte)))
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut before: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied();
        if hides(character, before, next) {
            // A run of one is told once, with its length: each would cost as much as a word.
            let mut length = 1_usize;
            // The last of several returns may end its line.
            while character != '\r' && characters.next_if_eq(&character).is_some() {
                length += 1;
            }
            shown.push_str(&match length {
                1 => format!("[U+{:04X}]", u32::from(character)),
                _ => format!("[U+{:04X} {length} times]", u32::from(character)),
            });
        } else {
            shown.push(character);
        }
        before = Some(character);
    }
    if shown == text { Cow::Borrowed(text) } else { Cow::Owned(shown) }
}

const fn is_space(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\t')
}

/// Tells whether a character is not seen where it stands.
fn hides(character: char, before: Option<char>, next: Option<char>) -> bool {
    // What is written here as its number is no neighbour any more.
    let is_seen =
        |it: char| !it.is_ascii() && !is_never_seen(it) && !is_joiner(it) && !is_selector(it);
    let seen = |other: Option<char>| other.is_some_and(is_seen);
    match character {
        '\n' | '\t' => false,
        '\r' => next != Some('\n'),
        // A joiner joins two letters or emoji, and nothing else; an emoji may have chosen its looks first.
        it if is_joiner(it) => !((seen(before) || before.is_some_and(is_selector)) && seen(next)),
        // One selector chooses how the character before it looks; a row of them spells something out.
        it if is_selector(it) => {
            let keycap = before.is_some_and(|it| it.is_ascii_digit() || matches!(it, '#' | '*'));
            !(seen(before) || keycap)
        }
        it => is_never_seen(it),
    }
}

const fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200C}' | '\u{200D}')
}

const fn is_selector(character: char) -> bool {
    matches!(character, '\u{FE00}'..='\u{FE0F}')
}

/// Tells whether a character is seen nowhere.
fn is_never_seen(character: char) -> bool {
    matches!(
        character,
        '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'
            | '\u{200E}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFFB}'
            | '\u{1BCA0}'..='\u{1BCA3}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    ) || character.is_control()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_hidden_is_shown_and_what_scripts_need_stays() {
        let hidden = "a\u{200B}b\u{202E}c\u{E0041}\u{FEFF} x\u{200D}y \u{7}";
        let shown = "a[U+200B]b[U+202E]c[U+E0041][U+FEFF] x[U+200D]y [U+0007]";
        assert_eq!(visible(hidden), shown);
        assert_eq!(visible("a\0\0\0b\0\r\r\n"), "a[U+0000 3 times]b[U+0000][U+000D]\r\n");
        // A message in variation selectors behind one emoji.
        assert_eq!(
            visible("\u{1F600}\u{FE0F}\u{FE01}\u{FE02}"),
            "\u{1F600}\u{FE0F}[U+FE01][U+FE02]"
        );
        for needed in [
            "\u{1F469}\u{200D}\u{1F680}",
            "\u{2764}\u{FE0F}",
            "1\u{FE0F}\u{20E3}",
            "\u{645}\u{6CC}\u{200C}\u{62E}",
            "a\tb\r\nc",
        ] {
            assert!(matches!(visible(needed), Cow::Borrowed(_)), "{needed:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_stays_hidden_that_turns_the_direction_of_writing(text in "\\PC{0,20}[\u{200B}-\u{202E}\u{E0020}-\u{E007F}]{0,6}\\PC{0,20}") {
            let shown = visible(&text);
            let turns = |it| matches!(it, '\u{202A}'..='\u{202E}' | '\u{E0000}'..='\u{E007F}');
            let is_left = shown.chars().any(turns);
            prop_assert!(!is_left);
            prop_assert!(visible(&shown).len() >= shown.len());
        }
    }
}
