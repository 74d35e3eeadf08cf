//! Numbers and the words they count, as in `3 passed, 1 failed`.

/// Yields each number of a line with the word after it, in lower case where the line has it so.
pub(crate) fn pairs(line: &str) -> impl Iterator<Item = (u64, &str)> {
    let breaks = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|' | '(' | ')');
    let words = line.split(breaks).filter(|word| !word.is_empty());
    let next = words.clone().skip(1);
    words.zip(next).filter_map(|(number, word)| Some((number.parse().ok()?, word)))
}

/// Returns the sum of the numbers that count one of these words.
pub(crate) fn sum(line: &str, wanted: &[&str]) -> u64 {
    let counted = pairs(line).filter(|(_, word)| wanted.contains(word));
    counted.map(|(number, _)| number).fold(0, u64::saturating_add)
}

/// Returns the lines from the first that `begins`, to the end or before the first after it that `ends`.
pub(crate) fn between(
    text: &str,
    begins: impl Fn(&str) -> bool,
    ends: impl Fn(&str) -> bool,
) -> Option<&str> {
    let mut from = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        match from {
            None if begins(line) => from = Some(at),
            Some(from) if ends(line) => return text.get(from..at),
            _ => {}
        }
        at += line.len();
    }
    text.get(from?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_the_word_after_it() {
        let line = "Tests: 1 failed | 2 passed (1 slow), 3 skipped; 99999999999999999999 odd";

        let counted: Vec<_> = pairs(line).collect();

        assert_eq!(counted, [(1, "failed"), (2, "passed"), (1, "slow"), (3, "skipped")]);
        assert_eq!(sum(line, &["failed", "skipped"]), 4);
    }
}
