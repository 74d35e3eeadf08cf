//! Secrets that programs broke over lines: `base64` breaks after 76 characters, `openssl` after 64, `xxd -p` after 60.

/// Shorter ends of lines are ordinary words. Whoever breaks so short has more to hide than this finds.
const MIN_LINE: usize = 16;

/// Text that goes on over line ends, as if there were none.
pub(crate) struct Joined {
    pub(crate) bytes: Vec<u8>,
    /// Where each line begins, here and in the text.
    lines: Vec<(usize, usize)>,
}

impl Joined {
    /// Returns where in the text a part of this begins and ends.
    pub(crate) fn place(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        Some((self.place_of(start)?, self.place_of(end.checked_sub(1)?)? + 1))
    }

    fn place_of(&self, at: usize) -> Option<usize> {
        let behind = self.lines.partition_point(|(here, _)| *here <= at);
        let (here, there) = self.lines.get(behind.checked_sub(1)?)?;
        Some(there + (at - here))
    }

    fn extend(&mut self, text: &[u8], from: usize, to: usize) {
        self.lines.push((self.bytes.len(), from));
        self.bytes.extend_from_slice(text.get(from..to).unwrap_or_default());
    }
}

/// Returns every part of `text` in which encoded text goes on over the end of a line, without those ends.
pub(crate) fn joined(text: &[u8]) -> Vec<Joined> {
    let mut all: Vec<Joined> = Vec::new();
    // Up to where the last part goes, while it goes on.
    let mut open: Option<usize> = None;
    for newline in memchr::memchr_iter(b'\n', text) {
        let end = match newline.checked_sub(1) {
            Some(before) if text.get(before) == Some(&b'\r') => before,
            _ => newline,
        };
        let start = before(text, end);
        let next = newline + 1 + indent(text, newline + 1);
        let next_end = after(text, next);
        let goes_on = end - start >= MIN_LINE && next_end > next;
        match (open, all.last_mut()) {
            // The whole line belongs to what goes on.
            (Some(to), Some(part)) if goes_on && to == end => {
                part.extend(text, next, next_end);
                open = Some(next_end);
            }
            _ if goes_on => {
                let mut part = Joined { bytes: Vec::new(), lines: Vec::new() };
                part.extend(text, start, end);
                part.extend(text, next, next_end);
                all.push(part);
                open = Some(next_end);
            }
            _ => open = None,
        }
    }
    all
}

fn before(text: &[u8], end: usize) -> usize {
    let line = text.get(..end).unwrap_or_default();
    end - line.iter().rev().take_while(|byte| is_encoded(**byte)).count()
}

fn after(text: &[u8], start: usize) -> usize {
    let line = text.get(start..).unwrap_or_default();
    start + line.iter().take_while(|byte| is_encoded(**byte)).count()
}

fn indent(text: &[u8], start: usize) -> usize {
    let line = text.get(start..).unwrap_or_default();
    line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

/// Says whether a byte may stand in base64 of any alphabet, in hexadecimal or in percent escapes.
fn is_encoded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'.' | b'~' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        joined(text.as_bytes())
            .into_iter()
            .map(|part| String::from_utf8(part.bytes).unwrap())
            .collect()
    }

    #[test]
    fn long_lines_go_on_and_words_do_not() {
        let wrapped =
            "key: AAAAAAAAAAAAAAAAAAAA\r\n  BBBBBBBBBBBBBBBBBBBB\nCC==\nand so on\nshort\nwords\n";

        assert_eq!(texts(wrapped), ["AAAAAAAAAAAAAAAAAAAABBBBBBBBBBBBBBBBBBBBCC=="]);
        assert_eq!(texts("fn main() {\n    println!();\n}\n"), [] as [&str; 0]);
        assert_eq!(texts("AAAAAAAAAAAAAAAAAAAA\n\nB"), [] as [&str; 0]);
    }

    #[test]
    fn a_part_is_found_again_in_the_text() {
        let text = "x AAAAAAAAAAAAAAAAAA\nBBB y";
        let parts = joined(text.as_bytes());

        let (start, end) = parts[0].place(10, 20).unwrap();
        assert_eq!(&text[start..end], "AAAAAAAA\nBB");
    }
}
