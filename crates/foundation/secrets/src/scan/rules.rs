//! Rules, as they are written and as they are applied.

use std::{collections::BTreeSet, sync::OnceLock};

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use super::checksum;

/// The most memory that one compiled rule may take.
const REGEX_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format_version: u32,
    rules: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    description: String,
    keywords: Vec<String>,
    regex: String,
    #[serde(default)]
    entropy: f64,
    /// Whether the secret has to hold both letters and digits.
    #[serde(default)]
    mixed: bool,
    check: Option<Checksum>,
    #[serde(default)]
    allow: Vec<String>,
}

/// A checksum that a number has to bear out.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Checksum {
    Luhn,
    Iban,
}

/// What a word may begin behind, besides where the words of a language do: an escape as strings, addresses and terminals
/// write it ends with a letter or a digit, and is no part of the word.
const BEGIN: &str =
    r"(?:\b|\\[abefnrtv0]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]{0,20}m)";

/// A rule, ready to be applied.
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) description: String,
    pub(super) keywords: Vec<String>,
    written: String,
    /// Compiled when its first keyword is met: most files meet few.
    regex: OnceLock<Result<Regex, String>>,
    entropy: f64,
    mixed: bool,
    check: Option<Checksum>,
    allow: Vec<Regex>,
}

/// Reads a document of rules.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
    if document.format_version != 1 {
        return Err(format!("format_version is {}, wanted 1", document.format_version));
    }
    let mut names = BTreeSet::new();
    let mut rules = Vec::with_capacity(document.rules.len());
    for rule in document.rules {
        if rule.keywords.is_empty() || rule.keywords.iter().any(String::is_empty) {
            return Err(format!("rule {} has no keyword, or an empty one", rule.id));
        }
        if !names.insert(rule.id.clone()) {
            return Err(format!("there are two rules {}", rule.id));
        }
        let allow = rule.allow.iter().map(|pattern| compile(pattern));
        let allow = allow.collect::<Result<_, _>>().map_err(|why| format!("{}: {why}", rule.id))?;
        rules.push(Rule {
            id: rule.id,
            description: rule.description,
            keywords: rule.keywords,
            written: rule.regex,
            regex: OnceLock::new(),
            entropy: rule.entropy,
            mixed: rule.mixed,
            check: rule.check,
            allow,
        });
    }
    Ok(rules)
}

fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(REGEX_BYTES)
        .build()
        .map_err(|error| error.to_string())
}

/// Returns a pattern in which a word that begins with a `\b` also begins behind an escape.
fn behind_escapes(pattern: &str) -> Result<String, String> {
    let (flags, rest) = match pattern.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", pattern),
    };
    let inner = |rest: &str| rest.replace(r"\b(", &format!("{BEGIN}("));
    let Some(rest) = rest.strip_prefix(r"\b") else { return Ok(format!("{flags}{}", inner(rest))) };
    // The escape is no part of the secret, which is the whole match where there is no group.
    let is_whole = compile(pattern)?.captures_len() == 1;
    let rest = inner(rest);
    Ok(match is_whole {
        true => format!("{flags}{BEGIN}({rest})"),
        false => format!("{flags}{BEGIN}{rest}"),
    })
}

impl Rule {
    /// Returns the compiled pattern.
    pub(super) fn regex(&self) -> Result<&Regex, String> {
        let compiled =
            self.regex.get_or_init(|| behind_escapes(&self.written).and_then(|it| compile(&it)));
        compiled.as_ref().map_err(|why| format!("rule {}: {why}", self.id))
    }

    /// Says whether what was matched is a secret and no placeholder.
    pub(super) fn holds(&self, secret: &[u8]) -> bool {
        let mixed =
            || secret.iter().any(u8::is_ascii_digit) && secret.iter().any(u8::is_ascii_alphabetic);
        let sum = || match self.check {
            None => true,
            Some(Checksum::Luhn) => checksum::luhn(secret),
            Some(Checksum::Iban) => checksum::iban(secret),
        };
        checksum::entropy(secret) >= self.entropy
            && (!self.mixed || mixed())
            && sum()
            && !self.allow.iter().any(|allow| allow.is_match(secret))
    }
}
