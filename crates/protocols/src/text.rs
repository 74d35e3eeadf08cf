//! Cutting text without cutting a character.

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_preview_says_how_much_it_leaves_out() {
        assert_eq!(preview("0123456789", 10), "0123456789");
        assert_eq!(preview("0123456789", 4), "01\n[… 6 bytes left out …]\n89");
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
