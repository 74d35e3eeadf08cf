//! A file's bytes seen as text with `\n` endings, and splices that go back to the bytes.

use encoding_rs::WINDOWS_1252;
use memchr::memmem;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};
use std::{
    borrow::Cow,
    fmt,
    ops::Range,
    time::{Duration, Instant},
};

/// Comparing lines stops looking for the smallest change after this long; the result is still exact.
const DIFF_TIME: Duration = Duration::from_millis(500);

/// How a file's characters are written as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    form: Form,
    bom: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Utf8,
    /// Mostly UTF-8; the bytes that are not are kept and cannot be written anew.
    Utf8Damaged,
    Utf16Le,
    Utf16Be,
    /// Latin-1 as the web means it; every byte is one character.
    Windows1252,
}

/// Why bytes are not text: a NUL at this offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Binary(pub(crate) usize);

/// A character that the encoding does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unencodable(pub(crate) char);

/// A file's bytes and the same as text, each `\r\n` shown as `\n`.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    raw: Vec<u8>,
    encoding: Encoding,
    lf: String,
    /// Offsets in `lf` of each `\n` that is `\r\n` in the file.
    crlf: Vec<usize>,
}

impl Encoding {
    /// UTF-8 without a mark, as new files are written.
    pub const UTF_8: Self = Self { form: Form::Utf8, bom: false };

    /// Finds the encoding of a file: by its mark, else by what its bytes can be.
    ///
    /// Returns the offset of a NUL byte if they are no text.
    pub(crate) fn of(raw: &[u8]) -> Result<Self, Binary> {
        let (form, bom) = match raw {
            [0xef, 0xbb, 0xbf, rest @ ..] => (utf8_form(rest, Form::Utf8Damaged), true),
            [0xff, 0xfe, ..] => (Form::Utf16Le, true),
            [0xfe, 0xff, ..] => (Form::Utf16Be, true),
            _ if raw.contains(&0) => (bare_utf16(raw)?, false),
            _ => (utf8_form(raw, Form::Windows1252), false),
        };
        let encoding = Self { form, bom };
        let body = raw.get(encoding.bom_len()..).unwrap_or_default();
        let has_nul = match form {
            Form::Utf16Le | Form::Utf16Be => encoding.decode(body).contains('\0'),
            Form::Utf8 | Form::Utf8Damaged | Form::Windows1252 => body.contains(&0),
        };
        if has_nul {
            return Err(Binary(raw.iter().position(|&byte| byte == 0).unwrap_or(0)));
        }
        Ok(encoding)
    }

    /// Names it for people.
    pub fn label(self) -> &'static str {
        match (self.form, self.bom) {
            (Form::Utf8, false) => "UTF-8",
            (Form::Utf8, true) => "UTF-8 with a byte order mark",
            (Form::Utf8Damaged, _) => "damaged UTF-8",
            (Form::Utf16Le, _) => "UTF-16LE",
            (Form::Utf16Be, _) => "UTF-16BE",
            (Form::Windows1252, _) => "Latin-1 (Windows-1252)",
        }
    }

    fn bom_len(self) -> usize {
        match (self.form, self.bom) {
            (_, false) => 0,
            (Form::Utf8 | Form::Utf8Damaged | Form::Windows1252, true) => 3,
            (Form::Utf16Le | Form::Utf16Be, true) => 2,
        }
    }

    fn decode(self, body: &[u8]) -> Cow<'_, str> {
        match self.form {
            // Whole text is checked many bytes at a time, damaged text one by one.
            Form::Utf8 | Form::Utf8Damaged => std::str::from_utf8(body)
                .map_or_else(|_| String::from_utf8_lossy(body), Cow::Borrowed),
            Form::Utf16Le => decode_utf16(body, u16::from_le_bytes),
            Form::Utf16Be => decode_utf16(body, u16::from_be_bytes),
            Form::Windows1252 => WINDOWS_1252.decode_without_bom_handling(body).0,
        }
    }

    fn encode(self, text: &str) -> Result<Vec<u8>, Unencodable> {
        match self.form {
            Form::Utf8 => Ok(text.as_bytes().to_vec()),
            // It stands for bytes that nobody can name.
            Form::Utf8Damaged if text.contains('\u{fffd}') => Err(Unencodable('\u{fffd}')),
            Form::Utf8Damaged => Ok(text.as_bytes().to_vec()),
            Form::Utf16Le => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Form::Utf16Be => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Form::Windows1252 => {
                let (bytes, _, lost) = WINDOWS_1252.encode(text);
                if !lost {
                    return Ok(bytes.into_owned());
                }
                let lost = |c: &char| WINDOWS_1252.encode(c.encode_utf8(&mut [0; 4])).2;
                Err(Unencodable(text.chars().find(lost).unwrap_or('\u{fffd}')))
            }
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Valid UTF-8, or UTF-8 with some bytes damaged, or `otherwise`.
fn utf8_form(body: &[u8], otherwise: Form) -> Form {
    if std::str::from_utf8(body).is_ok() {
        return Form::Utf8;
    }
    let (mut wide, mut bad) = (0_usize, 0_usize);
    for chunk in body.utf8_chunks() {
        wide += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        bad += usize::from(!chunk.invalid().is_empty());
    }
    // Latin-1 text makes a valid UTF-8 pair by chance only rarely.
    if wide > bad { Form::Utf8Damaged } else { otherwise }
}

/// Takes bytes with NULs for UTF-16 if they all stand on one side of pairs that decode well.
fn bare_utf16(raw: &[u8]) -> Result<Form, Binary> {
    let first_nul = raw.iter().position(|&byte| byte == 0).unwrap_or(0);
    let form = if first_nul % 2 == 1 { Form::Utf16Le } else { Form::Utf16Be };
    let high = if form == Form::Utf16Le { 1 } else { 0 };
    let nuls = raw.iter().skip(high).step_by(2).filter(|&&byte| byte == 0).count();
    let text = Encoding { form, bom: false }.decode(raw);
    let mostly_ascii = nuls * 2 >= raw.len() / 2;
    let well = raw.len().is_multiple_of(2) && !text.contains(['\0', '\u{fffd}']);
    if well && mostly_ascii { Ok(form) } else { Err(Binary(first_nul)) }
}

fn decode_utf16(body: &[u8], unit: fn([u8; 2]) -> u16) -> Cow<'static, str> {
    let units = body.as_chunks::<2>().0.iter().map(|&pair| unit(pair));
    let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
    Cow::Owned(chars.collect())
}

/// Shows `\r\n` as `\n`, as all texts are compared.
pub(crate) fn fold_endings(text: &str) -> Cow<'_, str> {
    let has_carriages = memmem::find(text.as_bytes(), b"\r\n").is_some();
    if has_carriages { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

impl Text {
    pub(crate) fn new(raw: Vec<u8>) -> Result<Self, Binary> {
        let encoding = Encoding::of(&raw)?;
        Ok(Self::decode(raw, encoding))
    }

    fn decode(raw: Vec<u8>, encoding: Encoding) -> Self {
        let decoded = encoding.decode(raw.get(encoding.bom_len()..).unwrap_or_default());
        let mut lf = String::with_capacity(decoded.len());
        let mut crlf = Vec::new();
        let mut from = 0;
        for at in memmem::find_iter(decoded.as_bytes(), "\r\n") {
            lf.push_str(&decoded[from..at]);
            crlf.push(lf.len());
            from = at + 1; // Its `\n` begins what follows.
        }
        lf.push_str(&decoded[from..]);
        Self { raw, encoding, lf, crlf }
    }

    /// The text with `\n` endings and without its mark.
    pub(crate) fn lf(&self) -> &str {
        &self.lf
    }

    pub(crate) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(crate) fn into_raw(self) -> Vec<u8> {
        self.raw
    }

    /// The text with the endings that the file has.
    pub(crate) fn with_endings(&self) -> String {
        let mut out = String::with_capacity(self.lf.len() + self.crlf.len());
        let mut from = 0;
        for &at in &self.crlf {
            out.push_str(&self.lf[from..at]);
            out.push('\r');
            from = at;
        }
        out.push_str(&self.lf[from..]);
        out
    }

    /// Replaces a range of [`lf`](Self::lf), leaving every byte of lines that do not change.
    ///
    /// A changed line keeps the ending of the line it replaces, a new one takes its neighbour's.
    pub(crate) fn replace(&mut self, range: Range<usize>, new: &str) -> Result<(), Unencodable> {
        self.replace_all(&[(range, new)])
    }

    /// The same for many ranges, in their order and apart from each other, in one pass over the text.
    pub(crate) fn replace_all(
        &mut self,
        changes: &[(Range<usize>, &str)],
    ) -> Result<(), Unencodable> {
        let mut places = Places::new(self);
        let mut raw = Vec::with_capacity(self.raw.len());
        let mut from = 0;
        for (range, new) in changes {
            let new = fold_endings(new);
            for (span, inserted) in differences(&self.lf, range, &new) {
                let bytes = self.encode(&span, inserted, &mut places)?;
                let (start, end) = (places.raw(span.start), places.raw(span.end));
                raw.extend_from_slice(self.raw.get(from..start).unwrap_or_default());
                raw.extend_from_slice(&bytes);
                from = end;
            }
        }
        raw.extend_from_slice(self.raw.get(from..).unwrap_or_default());
        *self = Self::decode(raw, self.encoding);
        Ok(())
    }

    /// Encodes text for a place of the file, with the endings that belong there.
    fn encode(
        &self,
        span: &Range<usize>,
        text: &str,
        places: &mut Places<'_>,
    ) -> Result<Vec<u8>, Unencodable> {
        let mut old = self.lf[span.clone()].match_indices('\n').map(|(at, _)| span.start + at);
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) => {
                    let own = old.next().map(|at| self.is_crlf(at));
                    let carriage = own.unwrap_or_else(|| places.is_near_crlf(span.end));
                    out.push_str(line);
                    out.push_str(if carriage { "\r\n" } else { "\n" });
                }
                None => out.push_str(line),
            }
        }
        self.encoding.encode(&out)
    }

    fn is_crlf(&self, at: usize) -> bool {
        self.crlf.binary_search(&at).is_ok()
    }
}

/// Finds where to put what differs between a range of a text and what shall stand there, line by line.
fn differences<'a>(text: &str, range: &Range<usize>, new: &'a str) -> Vec<(Range<usize>, &'a str)> {
    let old = &text[range.clone()];
    let old_lines: Vec<&str> = old.split_inclusive('\n').collect();
    let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
    let deadline = Some(Instant::now() + DIFF_TIME);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old_lines, &new_lines, deadline);
    let offsets = |lines: &[&str]| -> Vec<usize> {
        let ends = lines.iter().scan(0, |at, line| {
            *at += line.len();
            Some(*at)
        });
        [0].into_iter().chain(ends).collect()
    };
    let (old_at, new_at) = (offsets(&old_lines), offsets(&new_lines));
    let changed = ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let splices = changed.map(|op| {
        let (old_hunk, new_hunk) = (op.old_range(), op.new_range());
        let before = old_at[old_hunk.start]..old_at[old_hunk.end];
        let after = &new[new_at[new_hunk.start]..new_at[new_hunk.end]];
        let (head, tail) = common_ends(&old[before.clone()], after);
        let span = range.start + before.start + head..range.start + before.end - tail;
        (span, &after[head..after.len() - tail])
    });
    splices.collect()
}

/// Places of a text in its file, asked for from the top down, so that all of them cost one pass.
struct Places<'a> {
    text: &'a Text,
    /// Up to where characters were counted, and how many: units of UTF-16, or characters.
    counted: (usize, usize),
    /// For a damaged file: what is shown, what the file has, and how long it is whole, piece by piece.
    pieces: Vec<(usize, usize, usize)>,
    /// Up to where line feeds were looked for, the last of them, and the first of all.
    seen: usize,
    newline: Option<usize>,
    first_newline: Option<Option<usize>>,
}

impl<'a> Places<'a> {
    fn new(text: &'a Text) -> Self {
        let mut pieces = Vec::new();
        if text.encoding.form == Form::Utf8Damaged {
            let (mut shown, mut raw) = (0, 0);
            let body = text.raw.get(text.encoding.bom_len()..).unwrap_or_default();
            for chunk in body.utf8_chunks() {
                let valid = chunk.valid().len();
                pieces.push((shown, raw, valid));
                shown += valid + char::REPLACEMENT_CHARACTER.len_utf8();
                raw += valid + chunk.invalid().len();
            }
            pieces.push((shown, raw, 0));
        }
        Self { text, counted: (0, 0), pieces, seen: 0, newline: None, first_newline: None }
    }

    /// Finds the byte of the file at which a character of the text begins.
    fn raw(&mut self, at: usize) -> usize {
        let text = self.text;
        let carriages = text.crlf.partition_point(|&crlf| crlf < at);
        let count: fn(&str) -> usize = match text.encoding.form {
            Form::Utf16Le | Form::Utf16Be => |text| text.encode_utf16().count(),
            _ => |text| text.chars().count(),
        };
        let mut counted = || {
            let (from, before) = self.counted;
            self.counted = (at, before + count(text.lf.get(from..at).unwrap_or_default()));
            self.counted.1
        };
        text.encoding.bom_len()
            + match text.encoding.form {
                Form::Utf8 => at + carriages,
                Form::Utf8Damaged => self.damaged(at + carriages),
                Form::Utf16Le | Form::Utf16Be => 2 * (counted() + carriages),
                Form::Windows1252 => counted() + carriages,
            }
    }

    fn damaged(&self, target: usize) -> usize {
        let at = self.pieces.partition_point(|(shown, _, valid)| shown + valid < target);
        let Some((shown, raw, _)) = self.pieces.get(at).or(self.pieces.last()) else { return 0 };
        raw + target.saturating_sub(*shown)
    }

    /// Says whether lines about a place end with `\r\n`: the line above, else the first one below.
    fn is_near_crlf(&mut self, end: usize) -> bool {
        let lf = &self.text.lf;
        if let Some(at) = lf.get(self.seen..end).and_then(|more| more.rfind('\n')) {
            self.newline = Some(self.seen + at);
        }
        self.seen = self.seen.max(end);
        // With none above, the first of all is the first below.
        let near =
            self.newline.or_else(|| *self.first_newline.get_or_insert_with(|| lf.find('\n')));
        near.is_some_and(|at| self.text.is_crlf(at))
    }
}

/// Counts the bytes of whole characters that two texts share at their starts and ends.
fn common_ends(a: &str, b: &str) -> (usize, usize) {
    let same = |(x, y): &(char, char)| x == y;
    let head: usize = a.chars().zip(b.chars()).take_while(same).map(|(c, _)| c.len_utf8()).sum();
    let (a, b) = (&a[head..], &b[head..]);
    // With more lines than before, the first new line pairs with the first old one, not the last.
    let paired = a.matches('\n').count() == b.matches('\n').count();
    let tail = a
        .chars()
        .rev()
        .zip(b.chars().rev())
        .take_while(|(x, y)| x == y && (paired || *x != '\n'))
        .map(|(c, _)| c.len_utf8())
        .sum();
    (head, tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(raw: &[u8], old: &str, new: &str) -> Vec<u8> {
        let mut text = Text::new(raw.to_vec()).unwrap();
        let at = text.lf().find(old).unwrap();
        text.replace(at..at + old.len(), new).unwrap();
        text.into_raw()
    }

    #[test]
    fn encodings_are_told_apart() {
        let utf16 = |text: &str, unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(unit).collect()
        };
        for (raw, label) in [
            (b"".to_vec(), "UTF-8"),
            ("naïve".into(), "UTF-8"),
            ("\u{feff}x".into(), "UTF-8 with a byte order mark"),
            (utf16("\u{feff}x", u16::to_le_bytes), "UTF-16LE"),
            (utf16("\u{feff}x", u16::to_be_bytes), "UTF-16BE"),
            (utf16("plain\n", u16::to_le_bytes), "UTF-16LE"),
            (utf16("plain\n", u16::to_be_bytes), "UTF-16BE"),
            (b"na\xefve".to_vec(), "Latin-1 (Windows-1252)"),
            (b"\xc3\xa9t\xc3\xa9 \xff".to_vec(), "damaged UTF-8"),
        ] {
            assert_eq!(Encoding::of(&raw).unwrap().label(), label, "{raw:?}");
        }
        assert_eq!(Encoding::of(b"\x7fELF\0\0\x01"), Err(Binary(4)));
        assert_eq!(Encoding::of(b"ab\0cdefgh"), Err(Binary(2)));
    }

    #[test]
    fn each_line_keeps_its_own_ending_and_new_lines_take_their_neighbours() {
        assert_eq!(edited(b"a\r\nb\nc\r\n", "a\nb\nc\n", "a\nB\nC\n"), b"a\r\nB\nC\r\n");
        assert_eq!(
            edited(b"a\r\nb\r\nz\n", "b\n", "b\nnew\nnew2\n"),
            b"a\r\nb\r\nnew\r\nnew2\r\nz\n"
        );
        assert_eq!(edited(b"a\nb\r\n", "a", "0\na"), b"0\na\nb\r\n");
        assert_eq!(edited(b"a\r\nb", "b", "b\nc"), b"a\r\nb\r\nc");
    }

    #[test]
    fn many_places_changed_at_once_are_as_changed_one_by_one() {
        let plain = "\u{e9}a\r\nb a\na\u{e9}\r\n\r\na";
        let utf16 = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            format!("\u{feff}{plain}").encode_utf16().flat_map(unit).collect()
        };
        for raw in [
            plain.as_bytes().to_vec(),
            format!("\u{feff}{plain}").into_bytes(),
            utf16(u16::to_le_bytes),
            utf16(u16::to_be_bytes),
            b"\xe9a\r\nb a\na\xe9\r\n\r\na".to_vec(),
            b"\xc3\xa9\xffa\r\nb a\n\xc3\xa9a\xfe\r\n\r\na\xff".to_vec(),
        ] {
            for new in ["", "x", "x\ny\n", "\na\n", "aa"] {
                let text = Text::new(raw.clone()).unwrap();
                let places: Vec<_> =
                    text.lf().match_indices('a').map(|(at, _)| (at..at + 1, new)).collect();
                let mut one_by_one = text.clone();
                for (place, new) in places.iter().rev() {
                    one_by_one.replace(place.clone(), new).unwrap();
                }
                let mut at_once = text;
                at_once.replace_all(&places).unwrap();

                assert_eq!(at_once.into_raw(), one_by_one.into_raw(), "{raw:?} {new:?}");
            }
        }
    }

    #[test]
    fn damaged_bytes_around_an_edit_stay() {
        assert_eq!(
            edited(b"\xc3\xa9\xff x \xff\n\xfe y", "x", "zz"),
            b"\xc3\xa9\xff zz \xff\n\xfe y"
        );
        assert_eq!(edited(b"caf\xe9 x\x93", "x", "\u{201c}y"), b"caf\xe9 \x93y\x93");
    }

    #[test]
    fn a_character_that_the_encoding_lacks_is_named() {
        let mut text = Text::new(b"caf\xe9".to_vec()).unwrap();

        assert_eq!(text.replace(0..1, "→"), Err(Unencodable('→')));
        assert_eq!(text.into_raw(), b"caf\xe9");
    }
}
