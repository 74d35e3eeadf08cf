//! Whether a request comes from who it says: HMAC over the raw bytes, by any of a source's secrets, compared in constant time.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use formwork_protocols::{Span, Timestamp};
use ring::hmac;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The headers of a request: their names, of whatever case, and what they say, as it came.
pub type Headers<'a> = &'a [(&'a str, &'a [u8])];

/// The most signatures of one header that are looked at. A source that changes its secret sends two.
const MOST_SIGNATURES: usize = 16;

/// What stands before a secret of Standard Webhooks.
const WHSEC: &str = "whsec_";

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Two hexadecimal digits a byte.
    #[default]
    Hex,
    /// The standard alphabet, padded.
    Base64,
}

impl Encoding {
    fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Base64 => STANDARD.decode(text).ok(),
            Self::Hex => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                let byte = |pair: &[u8]| match pair {
                    [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
                    _ => None,
                };
                text.chunks(2).map(byte).collect()
            }
        }
    }
}

/// How a source signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// A header with the signature over the body.
    Hmac { header: String, encoding: Encoding, prefix: String },
    /// A header with the secret itself.
    Token { header: String },
    /// `Stripe-Signature: t=TIME,v1=HEX`, over `TIME.BODY`.
    Stripe { tolerance: Span },
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,BASE64`, over `ID.TIME.BODY`.
    Standard { tolerance: Span },
}

/// Why a request does not count as its source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unverified {
    /// It has no signature.
    Unsigned,
    /// It has another one.
    Wrong,
    /// It was signed at another time than now.
    Stale,
}

/// One of the secrets that a source signs with.
pub(crate) enum Key {
    Hmac(hmac::Key),
    /// The hash of a token: hashes of the same length are compared, whatever the token's.
    Token(blake3::Hash),
}

impl Scheme {
    /// Takes a secret for this scheme.
    ///
    /// # Errors
    /// What is wrong with it, without a word of it.
    pub(crate) fn key(&self, secret: &str) -> Result<Key, &'static str> {
        let hmac = |bytes: &[u8]| Key::Hmac(hmac::Key::new(hmac::HMAC_SHA256, bytes));
        match self {
            Self::Token { .. } => Ok(Key::Token(blake3::hash(secret.as_bytes()))),
            Self::Hmac { .. } | Self::Stripe { .. } => Ok(hmac(secret.as_bytes())),
            Self::Standard { .. } => {
                let encoded = secret.strip_prefix(WHSEC).unwrap_or(secret);
                let bytes = STANDARD.decode(encoded);
                bytes
                    .map(|bytes| hmac(&bytes))
                    .map_err(|_| "it is not written in base64, as whsec_…")
            }
        }
    }

    /// Checks that a request was signed by one of the keys, and lately where the scheme signs a time.
    ///
    /// # Errors
    /// [`Unverified`] says why it does not count.
    pub(crate) fn verify(
        &self,
        keys: &[Key],
        headers: Headers<'_>,
        body: &[u8],
        at: Timestamp,
    ) -> Result<(), Unverified> {
        let one = |name: &str| match header(headers, name) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(Unverified::Unsigned),
            // Of two that say different things, two readers would believe one each.
            Err(Twice) => Err(Unverified::Wrong),
        };
        match self {
            Self::Token { header } => {
                let given = blake3::hash(one(header)?);
                // This comparison takes the same time wherever they differ, and so does the loop.
                let is_one = |key: &Key| matches!(key, Key::Token(token) if *token == given);
                when(keys.iter().fold(false, |found, key| found | is_one(key)), Unverified::Wrong)
            }
            Self::Hmac { header, encoding, prefix } => {
                let given = one(header)?.strip_prefix(prefix.as_bytes());
                let given = given.and_then(|given| encoding.decode(given));
                is_signed(keys, &[body], given.as_slice())
            }
            Self::Stripe { tolerance } => {
                let written = one("stripe-signature")?;
                let parts = written.split(|byte| *byte == b',').take(MOST_SIGNATURES + 1);
                let (mut time, mut given) = (None, Vec::new());
                for part in parts.map(<[u8]>::trim_ascii) {
                    if let Some(said) = part.strip_prefix(b"t=")
                        && time.replace(said).is_some()
                    {
                        return Err(Unverified::Wrong);
                    }
                    given.extend(part.strip_prefix(b"v1=").and_then(|it| Encoding::Hex.decode(it)));
                }
                let time = time.ok_or(Unverified::Wrong)?;
                is_signed(keys, &[time, b".", body], &given)?;
                is_recent(time, at, *tolerance)
            }
            Self::Standard { tolerance } => {
                let written = one("webhook-signature")?;
                let (id, time) = (one("webhook-id")?, one("webhook-timestamp")?);
                // The parts are joined by a dot, and so an id that holds one could be read as another id and time.
                if id.is_empty() || id.contains(&b'.') {
                    return Err(Unverified::Wrong);
                }
                let parts = written.split(|byte| *byte == b' ').take(MOST_SIGNATURES);
                let given: Vec<Vec<u8>> = parts
                    .filter_map(|part| Encoding::Base64.decode(part.strip_prefix(b"v1,")?))
                    .collect();
                is_signed(keys, &[id, b".", time, b".", body], &given)?;
                is_recent(time, at, *tolerance)
            }
        }
    }
}

/// Does the work of one signature over a body, so that whoever sends where nothing is waits as where something is.
pub(crate) fn as_if_signed(body: &[u8]) {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"nobody");
    std::hint::black_box(hmac::sign(&key, body));
}

/// That a header is there twice.
#[derive(Debug)]
pub(crate) struct Twice;

/// Returns what a header says, if it is there.
///
/// # Errors
/// [`Twice`] when it is there more than once.
pub(crate) fn header<'a>(headers: Headers<'a>, name: &str) -> Result<Option<&'a [u8]>, Twice> {
    let mut found = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
    let first = found.next().map(|(_, said)| said.trim_ascii());
    if found.next().is_some() { Err(Twice) } else { Ok(first) }
}

/// Checks that one of the signatures is that of the parts, one after the other, by one of the keys.
fn is_signed(keys: &[Key], parts: &[&[u8]], given: &[Vec<u8>]) -> Result<(), Unverified> {
    let mut is_signed = false;
    for key in keys {
        let Key::Hmac(key) = key else { continue };
        let mut context = hmac::Context::with_key(key);
        parts.iter().for_each(|part| context.update(part));
        let tag = blake3::hash(context.sign().as_ref());
        // Hashes are compared in the same time wherever they differ.
        is_signed |= given.iter().fold(false, |found, given| found | (tag == blake3::hash(given)));
    }
    when(is_signed, Unverified::Wrong)
}

/// Checks that a time in seconds, which is signed, is about now.
fn is_recent(time: &[u8], at: Timestamp, tolerance: Span) -> Result<(), Unverified> {
    let is_written = !time.is_empty() && time.len() <= 12 && time.iter().all(u8::is_ascii_digit);
    let seconds = std::str::from_utf8(time).ok().filter(|_| is_written);
    let seconds: i64 = seconds.and_then(|it| it.parse().ok()).ok_or(Unverified::Wrong)?;
    let apart = at.as_micros().abs_diff(seconds.saturating_mul(1_000_000));
    when(apart <= tolerance.as_micros(), Unverified::Stale)
}

fn when(holds: bool, otherwise: Unverified) -> Result<(), Unverified> {
    if holds { Ok(()) } else { Err(otherwise) }
}

#[cfg(test)]
mod tests;
