//! Text as it may be shown: cut between characters, and addresses without what is secret in them.

/// Returns the first `max` bytes of a text, or a few less where that would cut a character.
pub fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Returns the last `max` bytes of a text, or a few less where that would cut a character.
pub fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// What stands between a head and a tail has no more bytes.
const BETWEEN: usize = 48;

/// Returns a text of about `max` bytes: all of it, or its head and tail and how much lies between. By a `max` of 1 KiB or
/// more, what it returns is not cut again.
pub fn preview(text: &str, max: usize) -> std::borrow::Cow<'_, str> {
    let room = if max >= 1024 { BETWEEN } else { 0 };
    if text.len() <= max.saturating_add(room) {
        return text.into();
    }
    let (first, last) = (head(text, max / 2), tail(text, max / 2));
    let left_out = text.len() - first.len() - last.len();
    format!("{first}\n[… {left_out} bytes left out …]\n{last}").into()
}

/// Says whether a glob of paths leads out of the folder that it is meant for: it begins at the root of all files, or goes up.
pub fn leads_out(glob: &str) -> bool {
    glob.starts_with('/') || glob.split(['/', '{', '}', ',']).any(|name| name == "..")
}

/// Returns an address as it may be shown: `…` in the place of a user with a password, and of what follows a question mark.
/// That of a SQLite file has neither.
///
/// ```
/// # use formwork_protocols::text::address;
/// assert_eq!(address("postgres://ada:s3cret@db/runs?sslkey=k"), "postgres://…@db/runs?…");
/// assert_eq!(address("http://127.0.0.1:11434"), "http://127.0.0.1:11434");
/// ```
pub fn address(url: &str) -> std::borrow::Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    if scheme.eq_ignore_ascii_case("sqlite") || !rest.contains(['@', '?', '#']) {
        return url.into();
    }
    // A password may hold a question mark, so that the user is looked for first.
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("…@", rest));
    let (place, asked) = rest.find(['?', '#']).map_or((rest, ""), |at| (head(rest, at), "?…"));
    format!("{scheme}://{user}{place}{asked}").into()
}

/// Returns a text without its escape sequences (ECMA-48) and carriage returns: without the colours and moves of a terminal.
pub fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    match text.contains(['\u{1b}', '\r']) {
        true => without_sequences(text).replace('\r', "").into(),
        false => text.into(),
    }
}

/// Returns what a program wrote to a terminal as it stands there in the end, line by line: [`plain`], and of what was written over
/// what came before in its line the last. Moves to other lines are none: what was written anew stands there anew.
pub fn screen(text: &str) -> String {
    let text = match text.contains('\u{1b}') {
        true => without_sequences(text),
        false => text.to_owned(),
    };
    let mut screen = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let mut passes = line.split('\r').rev();
        let last = passes.find(|pass| !pass.is_empty()).unwrap_or_default();
        let from = screen.len();
        for c in last.chars() {
            match c {
                // It takes the character before it back, and never one of another line.
                '\u{8}' if screen.len() > from => {
                    screen.pop();
                }
                '\u{7}' | '\u{8}' => {}
                c => screen.push(c),
            }
        }
        screen.push_str(end);
    }
    screen
}

/// Returns a text without its escape sequences.
fn without_sequences(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip(&mut chars),
            c => plain.push(c),
        }
    }
    plain
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
        // The choice of a set of characters, and the like.
        Some(' '..='/') => {
            chars.find(|c| ('0'..='~').contains(c));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_glob_leads_out_by_any_of_its_parts() {
        let out = ["../**", "/etc/*", "a/../b", "..", "{a,../b}", "{..}/x"];
        let within = ["**", "a..b/*", "...", "src/{a,b}/**", "./a"];

        assert!(out.iter().all(|glob| leads_out(glob)));
        assert!(!within.iter().any(|glob| leads_out(glob)));
    }

    #[test]
    fn a_preview_says_how_much_it_leaves_out() {
        assert_eq!(preview("0123456789", 10), "0123456789");
        assert_eq!(preview("0123456789", 4), "01\n[… 6 bytes left out …]\n89");

        let long = "é".repeat(600_000);
        for max in [1024, 1025, 8192] {
            let once = preview(&long, max).into_owned();
            assert!(once.len() <= max + BETWEEN);
            assert_eq!(preview(&once, max), once);
        }
    }

    #[test]
    fn an_address_is_shown_without_what_is_secret_in_it() {
        for (written, shown) in [
            ("http://u:p@h/v1?key=k", "http://…@h/v1?…"),
            ("postgres://u:p?w@h/x", "postgres://…@h/x"),
            ("postgres://u:p/w@h/x", "postgres://…@h/x"),
            ("https://h/v1#k", "https://h/v1?…"),
            ("sqlite:///home/a@b/x.db?mode=ro", "sqlite:///home/a@b/x.db?mode=ro"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(address(written), shown);
        }
    }

    #[test]
    fn colours_and_links_are_taken_out_and_words_stay() {
        assert_eq!(plain("\u{1b}[1m\u{1b}[32m1 passed\u{1b}[39m\u{1b}[22m (1)"), "1 passed (1)");
        assert_eq!(plain("\u{1b}]8;;file:///a\u{1b}\\a\u{1b}]8;;\u{7}b\r\n"), "ab\n");
        assert_eq!(plain("cut \u{1b}["), "cut ");
        assert_eq!(plain("\u{1b}(B\u{1b}[mreset\u{1b}="), "reset");
    }

    #[test]
    fn of_what_a_terminal_was_written_its_last_state_stays() {
        for (written, stands) in [
            ("10%\r20%\r\u{1b}[K100%\r\n", "100%\n"),
            ("a\r\nb\r\n", "a\nb\n"),
            ("\u{1b}[1m\u{1b}[31mred\u{1b}[0m\u{7}", "red"),
            ("|\u{8}/\u{8}-\u{8}done", "done"),
            ("\u{8}\u{8}x\n\u{8}y", "x\ny"),
            ("no end\r", "no end"),
            ("", ""),
        ] {
            assert_eq!(screen(written), stands, "{written:?}");
        }
    }

    proptest! {
        #[test]
        fn no_cut_panics_or_exceeds(text in ".*", max in 0_usize..64) {
            prop_assert!(head(&text, max).len() <= max);
            prop_assert!(tail(&text, max).len() <= max);
            let _ = preview(&text, max);
        }
    }
}
