//! Text as it may be shown: cut between characters, and addresses without what is secret in them.

/// Returns the first `max` bytes of a text, or a few less where that would cut a character.
pub fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// Returns the last `max` bytes of a text, or a few less where that would cut a character.
pub fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// Returns a text of about `max` bytes: all of it, or its head and tail and how much lies between.
pub fn preview(text: &str, max: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let (first, last) = (head(text, max / 2), tail(text, max / 2));
    let left_out = text.len() - first.len() - last.len();
    format!("{first}\n[… {left_out} bytes left out …]\n{last}").into()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_preview_says_how_much_it_leaves_out() {
        assert_eq!(preview("0123456789", 10), "0123456789");
        assert_eq!(preview("0123456789", 4), "01\n[… 6 bytes left out …]\n89");
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

    proptest! {
        #[test]
        fn no_cut_panics_or_exceeds(text in ".*", max in 0_usize..64) {
            prop_assert!(head(&text, max).len() <= max);
            prop_assert!(tail(&text, max).len() <= max);
            let _ = preview(&text, max);
        }
    }
}
