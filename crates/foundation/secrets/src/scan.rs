//! Finds what looks like a secret or like personal data, by rules that are data.

mod checksum;
mod rules;
mod window;

use std::{
    collections::BTreeSet,
    io::{self, Read},
    sync::OnceLock,
};

use aho_corasick::AhoCorasick;
use formwork_protocols::BlobHash;

use crate::Error;
use rules::Rule;
use window::{Window, Windows};

/// The rules, as they are published.
const BUILT_IN: &str = include_str!("../rules.toml");

/// The most findings of one content that are told; the rest are counted.
const MAX_FINDINGS: usize = 200;

/// How many bytes of a line are looked at on each side of a finding for a pragma.
const LINE_BYTES: usize = 4 * 1024;

/// What stands on a line that allows what is found on it, followed by nothing or by names of rules.
const PRAGMA: &str = "formwork:allow";

/// The same of others, whose rules have other names: what stands behind it is words, unless it looks like a rule.
const OTHERS: [&str; 2] = ["gitleaks:allow", "pragma: allowlist secret"];

/// Looks through contents by rules. Cheap to share; the same bytes give the same findings.
pub struct Scanner {
    rules: Vec<Rule>,
    keywords: AhoCorasick,
    /// The rule of each keyword.
    owners: Vec<usize>,
}

/// Something that looks like a secret. It holds nothing of the secret but a hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The line, from 1.
    pub line: u64,
    /// The byte within the line, from 1.
    pub column: u64,
    /// The rule's name.
    pub rule: String,
    /// What it is, in a few words.
    pub description: String,
    /// Whether a pragma on its line allows it.
    pub allowed: bool,
    /// What its line's pragma names in the place of a rule, and is none: it allows nothing.
    pub no_rule: Option<String>,
    /// Tells two secrets apart and brings none back.
    pub hash: BlobHash,
}

/// What was found in one content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// The findings, in the order of their places.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub more: u64,
    /// How many bytes were looked at: all of them.
    pub bytes: u64,
}

impl Scanner {
    /// Returns the scanner of the built-in rules.
    ///
    /// # Errors
    /// [`Error::Rules`] when they cannot be read: then nothing was scanned.
    pub fn built_in() -> Result<&'static Self, Error> {
        static SCANNER: OnceLock<Result<Scanner, String>> = OnceLock::new();
        let scanner = SCANNER.get_or_init(|| Self::parse(BUILT_IN).map_err(|it| it.to_string()));
        scanner.as_ref().map_err(|reason| Error::Rules { reason: reason.clone() })
    }

    /// Reads rules from TOML, as the built-in ones are written.
    ///
    /// # Errors
    /// [`Error::Rules`] names what is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |reason: String| Error::Rules { reason };
        let rules = rules::parse(text).map_err(wrong)?;
        let (mut words, mut owners) = (Vec::new(), Vec::new());
        for (at, rule) in rules.iter().enumerate() {
            for keyword in &rule.keywords {
                words.push(keyword.as_str());
                owners.push(at);
            }
        }
        let keywords = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(words)
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self { rules, keywords, owners })
    }

    /// Returns the name and the description of each rule.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rules.iter().map(|rule| (rule.id.as_str(), rule.description.as_str()))
    }

    /// Looks through bytes.
    ///
    /// # Errors
    /// [`Error::Rules`] when a rule cannot be applied.
    pub fn scan_bytes(&self, bytes: &[u8]) -> Result<Scanned, Error> {
        self.scan(bytes)
    }

    /// Looks through all that `from` holds, whatever its length, in bounded memory: text in any encoding whose
    /// letters are ASCII's, UTF-16, UTF-32, and whatever a binary file holds of these.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when it cannot be read to its end; [`Error::Rules`] when a rule cannot be applied.
    pub fn scan(&self, from: impl Read) -> Result<Scanned, Error> {
        self.scan_by(from, window::WINDOW)
    }

    fn scan_by(&self, from: impl Read, size: usize) -> Result<Scanned, Error> {
        let mut scanned = Scanned::default();
        let mut windows = Windows::new(from, size);
        // What the window before had; its overlap may be told again.
        let (mut told, mut places) = (BTreeSet::new(), BTreeSet::new());
        while let Some(window) = windows.next().map_err(unreadable)? {
            scanned.bytes += window.fresh;
            let mut found = Vec::new();
            self.look(&window, window.bytes, &mut found)?;
            if let Some(plain) = without_nulls(window.bytes) {
                // Wide letters: what is left of them are ASCII's own, at places of their own.
                self.look(&window.with(&plain), &plain, &mut found)?;
            }
            found.sort();
            let (before, there) = (std::mem::take(&mut told), std::mem::take(&mut places));
            for finding in found {
                let key = (finding.line, finding.rule.clone(), finding.hash);
                // At the end of a window, less of it may have been seen.
                let place = (finding.line, finding.column, finding.rule.clone());
                let is_told = before.contains(&key) || there.contains(&place);
                places.insert(place);
                if !told.insert(key) || is_told {
                    continue;
                }
                match scanned.findings.len() < MAX_FINDINGS {
                    true => scanned.findings.push(finding),
                    false => scanned.more += 1,
                }
            }
        }
        Ok(scanned)
    }

    fn look(
        &self,
        window: &Window<'_>,
        bytes: &[u8],
        found: &mut Vec<Finding>,
    ) -> Result<(), Error> {
        let mut wanted = vec![false; self.rules.len()];
        let mut left = self.rules.len();
        for hit in self.keywords.find_overlapping_iter(bytes) {
            let owner = self.owners.get(hit.pattern().as_usize()).copied().unwrap_or_default();
            if let Some(wanted) = wanted.get_mut(owner)
                && !std::mem::replace(wanted, true)
            {
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        for (rule, _) in self.rules.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            let regex = rule.regex().map_err(|reason| Error::Rules { reason })?;
            let mut place = window.begin();
            for captures in regex.captures_iter(bytes) {
                let Some(whole) = captures.get(0) else { continue };
                let secret = captures.iter().skip(1).flatten().next().unwrap_or(whole);
                // By the whole match: a secret alone, without what stands before it, is not known for one.
                let is_of_another = whole.start() >= window.own || secret.end() <= window.from;
                if is_of_another || !rule.holds(secret.as_bytes()) {
                    continue;
                }
                place.move_to(bytes, secret.start());
                let said = self.said(bytes, (whole.start(), whole.end()), &rule.id);
                found.push(Finding {
                    line: place.line + 1,
                    column: place.column + 1,
                    rule: rule.id.clone(),
                    description: rule.description.clone(),
                    allowed: said == Said::Allowed,
                    no_rule: match said {
                        Said::NoRule(name) => Some(name),
                        Said::Nothing | Said::Allowed => None,
                    },
                    hash: BlobHash::of(secret.as_bytes()),
                });
            }
        }
        Ok(())
    }
}

fn unreadable(source: io::Error) -> Error {
    Error::Unreadable { source }
}

/// Returns the bytes without zeros, where there are any.
fn without_nulls(bytes: &[u8]) -> Option<Vec<u8>> {
    bytes.contains(&0).then(|| bytes.iter().copied().filter(|byte| *byte != 0).collect())
}

/// What a line says of what is found on it.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Allowed,
    /// It would allow a rule that there is not.
    NoRule(String),
}

impl Scanner {
    /// Says what the pragmas on the line of a match say of what a rule finds there.
    fn said(&self, bytes: &[u8], (from, to): (usize, usize), rule: &str) -> Said {
        let before = bytes.get(from.saturating_sub(LINE_BYTES)..from).unwrap_or_default();
        let after =
            bytes.get(to..bytes.len().min(to.saturating_add(LINE_BYTES))).unwrap_or_default();
        let begin = from - before.iter().rev().take_while(|byte| **byte != b'\n').count();
        let end = to + after.iter().take_while(|byte| **byte != b'\n').count();
        let line = String::from_utf8_lossy(bytes.get(begin..end).unwrap_or_default());
        if OTHERS.iter().any(|pragma| others_allow(&line, pragma, rule)) {
            return Said::Allowed;
        }
        let mut said = Said::Nothing;
        for (at, _) in line.match_indices(PRAGMA) {
            match self.named(line.get(at + PRAGMA.len()..).unwrap_or_default(), rule) {
                Said::Allowed => return Said::Allowed,
                Said::NoRule(name) => said = Said::NoRule(name),
                Said::Nothing => {}
            }
        }
        said
    }

    /// Says what stands behind a pragma: nothing, the names of rules, and then whatever somebody wanted to say of them.
    fn named(&self, mut rest: &str, rule: &str) -> Said {
        let mut is_first = true;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let is_of_name = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_');
            let length = rest.find(|it| !is_of_name(it)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            // The end of the comment, a bracket, a dash before the reason.
            if !word.contains(char::is_alphanumeric) {
                return if is_first { Said::Allowed } else { Said::Nothing };
            }
            if word == rule {
                return Said::Allowed;
            }
            if !self.rules.iter().any(|it| it.id == word) {
                return if is_first { Said::NoRule(word.to_owned()) } else { Said::Nothing };
            }
            (rest, is_first) = (behind, false);
        }
    }
}

fn others_allow(line: &str, pragma: &str, rule: &str) -> bool {
    let Some((_, rest)) = line.split_once(pragma) else { return false };
    let named = |word: &&str| word.contains('-') && word.chars().any(char::is_alphabetic);
    let words =
        rest.split([' ', ',', '\t']).map(|word| word.trim_matches(['\r', '\n', '*', '/', '>']));
    let mut names = words.filter(named).peekable();
    names.peek().is_none() || names.any(|name| name == rule)
}

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
