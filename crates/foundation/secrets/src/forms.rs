//! The forms in which a secret comes back: as it is, and in the encodings that programs put text in.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::registry::MIN_BYTES;

/// Shorter lines of a secret of several lines would be found in ordinary text.
const MIN_LINE: usize = 16;

/// What RFC 3986 leaves as it is.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What JavaScript's `encodeURIComponent` leaves as it is.
const COMPONENT: &AsciiSet =
    &UNRESERVED.remove(b'!').remove(b'\'').remove(b'(').remove(b')').remove(b'*');

/// What HTML forms leave as it is; a space becomes `+` besides.
const FORM: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*').remove(b' ');

/// Returns the forms of `secret`: raw and by line, as JSON writes it (also within JSON), as HTML does, in base64 of both alphabets
/// wherever it begins within the encoded text, percent-encoded, in hexadecimal, and raw and as JSON in letters of two and
/// of four bytes.
pub(crate) fn forms(secret: &str) -> BTreeSet<Vec<u8>> {
    let mut texts: Vec<String> = vec![secret.to_owned(), secret.replace('\n', "\r\n")];
    // A key of several lines is often printed with each line moved in.
    texts.extend(
        secret
            .lines()
            .map(str::trim)
            .filter(|l| l.len() >= MIN_LINE && !l.starts_with("-----"))
            .map(str::to_owned),
    );

    let mut forms = BTreeSet::new();
    for text in &texts {
        let json = json(text);
        for written in [&json, &json_ascii(text)] {
            forms.insert(written.clone().into_bytes());
            for marks in [MARKS_LOWER, MARKS_UPPER] {
                // Some leave the quote as it is, which is the last of them.
                for marks in [marks, marks.get(..3).unwrap_or(marks)] {
                    forms.insert(replaced(written, marks).into_bytes());
                }
            }
        }
        forms.extend(HTML.map(|marks| replaced(text, marks).into_bytes()));
        forms.insert(self::json(&json).into_bytes());
        forms.extend([text, &json].into_iter().flat_map(|text| wide(text)));
        forms.insert(json.replace('/', "\\/").into_bytes());
        forms.insert(json.into_bytes());
        for set in [NON_ALPHANUMERIC, UNRESERVED, COMPONENT, FORM] {
            let encoded = utf8_percent_encode(text, set).to_string();
            let encoded = if std::ptr::eq(set, FORM) { encoded.replace(' ', "+") } else { encoded };
            forms.insert(lower_escapes(&encoded).into_bytes());
            forms.insert(encoded.into_bytes());
        }
        for alphabet in [&STANDARD, &URL_SAFE] {
            forms.extend((0..3).map(|shift| base64(text.as_bytes(), alphabet, shift)));
        }
        forms.insert(hex(text, |byte| format!("{byte:02x}")).into_bytes());
        forms.insert(hex(text, |byte| format!("{byte:02X}")).into_bytes());
    }
    forms.extend(texts.into_iter().map(String::into_bytes));
    forms
}

/// What Go, Rails and others write in JSON in the place of what HTML would take for marks.
const MARKS_LOWER: &[(char, &str)] =
    &[('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\'', "\\u0027")];
const MARKS_UPPER: &[(char, &str)] =
    &[('<', "\\u003C"), ('>', "\\u003E"), ('&', "\\u0026"), ('\'', "\\u0027")];

/// The ways in which HTML is written.
const HTML: [&[(char, &str)]; 5] = [
    &[('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;")],
    &[('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;"), ('"', "&quot;")],
    &[('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;"), ('"', "&quot;"), ('\'', "&#39;")],
    &[('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;"), ('"', "&#34;"), ('\'', "&#39;")],
    &[('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;"), ('"', "&quot;"), ('\'', "&#x27;")],
];

/// Returns `text` with some characters written otherwise.
fn replaced(text: &str, marks: &[(char, &str)]) -> String {
    let mut written = String::with_capacity(text.len());
    for letter in text.chars() {
        match marks.iter().find(|(mark, _)| *mark == letter) {
            Some((_, instead)) => written.push_str(instead),
            None => written.push(letter),
        }
    }
    written
}

/// Returns `text` in UTF-16 and UTF-32 of both byte orders, as bytes and as what is left of them where they are shown as text.
///
/// The zeros around it are left away: of ASCII both orders are then one form, which begins as the raw one does.
fn wide(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let zero = |byte: &u8| *byte == 0;
    let little = |bytes: Vec<u8>| {
        let end = bytes.iter().rposition(|byte| !zero(byte)).map_or(0, |last| last + 1);
        bytes.get(..end).unwrap_or_default().to_vec()
    };
    let big = |bytes: Vec<u8>| bytes.into_iter().skip_while(zero).collect::<Vec<u8>>();
    let units = || text.encode_utf16();
    let letters = || text.chars().map(u32::from);
    let forms = [
        little(units().flat_map(u16::to_le_bytes).collect()),
        big(units().flat_map(u16::to_be_bytes).collect()),
        little(letters().flat_map(u32::to_le_bytes).collect()),
        big(letters().flat_map(u32::to_be_bytes).collect()),
    ];
    forms.into_iter().flat_map(|form| {
        let shown = String::from_utf8_lossy(&form).into_owned();
        let shown = Some(shown).filter(|shown| is_telling(shown)).map(String::into_bytes);
        shown.into_iter().chain([form])
    })
}

/// Tells whether what is left of letters that were shown as text would be found in no ordinary text: of what is none, nothing
/// is left but that it was there, and a row of that stands for any bytes.
fn is_telling(shown: &str) -> bool {
    let is_left = |letter: &char| !matches!(*letter, '\0' | char::REPLACEMENT_CHARACTER);
    shown.chars().filter(is_left).count() >= MIN_BYTES
}

fn hex(text: &str, digit: impl Fn(u8) -> String) -> String {
    text.bytes().map(digit).collect()
}

/// Returns `text` as it stands between the quotes of a JSON text.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or(&quoted).to_owned()
}

/// Returns `text` as JSON that keeps to ASCII writes it.
fn json_ascii(text: &str) -> String {
    let mut ascii = String::new();
    for character in json(text).chars() {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii
}

/// Writes the digits of each percent escape in lower case.
fn lower_escapes(encoded: &str) -> String {
    let mut left = 0;
    encoded
        .chars()
        .map(|character| {
            if character == '%' {
                left = 2;
                return character;
            }
            let is_digit = left > 0;
            left = usize::saturating_sub(left, 1);
            if is_digit { character.to_ascii_lowercase() } else { character }
        })
        .collect()
}

/// Returns those characters of an encoded text that `secret` alone decides when it begins `shift` bytes into a group.
fn base64(secret: &[u8], alphabet: &Alphabet, shift: usize) -> Vec<u8> {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(secret);
    let encoded = GeneralPurpose::new(alphabet, NO_PAD).encode(&bytes);
    // The first characters and the last one also hold bits of the neighbours.
    let first = [0, 2, 3].get(shift).copied().unwrap_or_default();
    let last = encoded.len() - usize::from(!bytes.len().is_multiple_of(3));
    encoded.get(first..last).unwrap_or_default().as_bytes().to_vec()
}
