//! Takes secrets out of everything that is recorded, shown or sent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use formwork_protocols::Scrub;
use serde_json::{Map, Value};

use crate::forms::forms;
use crate::wrapped::joined;
use crate::{SecretName, Stream};

/// Each round consumes bytes that are not of a replacement, because the registry takes no secret that a replacement
/// holds. An encoded form could still be one by a wild chance, and must not keep the scrubber busy for ever.
const MAX_ROUNDS: usize = 16;

/// Replaces secrets, in every form they come back in, by `[secret:NAME]`. Cheap to clone; the same text gives the same.
///
/// Where several forms begin at one place the longest is taken. What it knows of the secrets stays in memory as long
/// as it lives.
#[derive(Clone)]
pub struct Scrubber {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Nothing when there is no secret.
    finder: Option<AhoCorasick>,
    /// What replaces the form of the same index.
    markers: Vec<String>,
    /// All forms, sorted.
    pub(crate) forms: BTreeSet<Vec<u8>>,
    /// Bytes of the longest form.
    pub(crate) longest: usize,
}

impl Scrubber {
    pub(crate) fn new<'a>(secrets: impl Iterator<Item = (&'a SecretName, &'a str)>) -> Self {
        let mut known: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        for (name, secret) in secrets {
            for form in forms(secret) {
                known.entry(form).or_insert_with(|| format!("[secret:{name}]"));
            }
        }
        Self::of(known)
    }

    /// Makes one of every form and what replaces it.
    fn of(known: BTreeMap<Vec<u8>, String>) -> Self {
        let longest = known.keys().map(Vec::len).max().unwrap_or_default();
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(known.keys())
            .ok()
            .filter(|_| !known.is_empty());
        let (forms, markers): (BTreeSet<_>, Vec<_>) = known.into_iter().unzip();
        Self { inner: Arc::new(Inner { finder, markers, forms, longest }) }
    }

    /// Returns one that takes out what either does; where both know a form it is named as here.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        if other.inner.forms.is_subset(&self.inner.forms) {
            return self.clone();
        }
        let all = |it: &Self| {
            let forms = it.inner.forms.iter().cloned();
            forms.zip(it.inner.markers.iter().cloned()).collect::<Vec<_>>()
        };
        let mut known: BTreeMap<Vec<u8>, String> = all(other).into_iter().collect();
        known.extend(all(self));
        Self::of(known)
    }

    /// Scrubs text or anything else; what holds no secret is returned as it is.
    #[must_use]
    pub fn scrub_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut scrubbed = Cow::Borrowed(bytes);
        // A replacement and its neighbours may happen to spell a secret, so it is looked at again.
        for _ in 0..MAX_ROUNDS {
            let Some(next) = self.pass(&scrubbed) else { break };
            scrubbed = Cow::Owned(next);
        }
        match self.unwrapped(&scrubbed) {
            Some(next) => Cow::Owned(next),
            None => scrubbed,
        }
    }

    /// Replaces what is a secret once the ends of lines within it are taken away, or returns nothing.
    fn unwrapped(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.inner.finder.as_ref()?;
        let parts = joined(bytes);
        let places = parts.iter().flat_map(|part| {
            self.matches(&part.bytes)
                .filter_map(|(start, end, marker)| Some((part.place(start, end)?, marker)))
        });
        let mut scrubbed = Vec::new();
        let mut done = 0;
        for ((start, end), marker) in places.filter(|((start, end), _)| start < end) {
            // A part may begin on the line that the one before it ends on.
            if start < done {
                continue;
            }
            scrubbed.extend_from_slice(bytes.get(done..start).unwrap_or_default());
            scrubbed.extend_from_slice(marker.as_bytes());
            done = end;
        }
        if done == 0 {
            return None;
        }
        scrubbed.extend_from_slice(bytes.get(done..).unwrap_or_default());
        Some(scrubbed)
    }

    /// Begins to scrub what comes piece by piece.
    #[must_use]
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// Replaces every match, or returns nothing when there is none.
    fn pass(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut matches = self.matches(bytes).peekable();
        matches.peek()?;
        let mut scrubbed = Vec::with_capacity(bytes.len());
        let mut end = 0;
        for (start, next, marker) in matches {
            scrubbed.extend_from_slice(bytes.get(end..start).unwrap_or_default());
            scrubbed.extend_from_slice(marker.as_bytes());
            end = next;
        }
        scrubbed.extend_from_slice(bytes.get(end..).unwrap_or_default());
        Some(scrubbed)
    }

    /// Returns the place of each secret within `bytes` and what replaces it.
    pub(crate) fn matches<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (usize, usize, &'a str)> {
        let found = self.inner.finder.iter().flat_map(move |finder| finder.find_iter(bytes));
        found.map(|found| {
            let marker = self.inner.markers.get(found.pattern().as_usize());
            (found.start(), found.end(), marker.map_or("[secret]", String::as_str))
        })
    }

    /// Returns where in `bytes` a secret may have begun that is not yet whole.
    pub(crate) fn unfinished(&self, bytes: &[u8], from: usize) -> usize {
        let earliest = bytes.len().saturating_sub(self.inner.longest.saturating_sub(1)).max(from);
        (earliest..bytes.len())
            .find(|start| {
                let suffix = bytes.get(*start..).unwrap_or_default();
                let mut following =
                    self.inner.forms.range::<[u8], _>((Bound::Included(suffix), Bound::Unbounded));
                following.next().is_some_and(|form| form.starts_with(suffix))
            })
            .unwrap_or(bytes.len())
    }
}

impl Scrub for Scrubber {
    fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.scrub_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Forms are whole texts, so that nothing else than whole characters is replaced.
            Cow::Owned(bytes) => Cow::Owned(
                String::from_utf8(bytes)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            ),
        }
    }

    fn scrub_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(scrubbed) = self.scrub_text(text) {
                    *text = scrubbed;
                }
            }
            // A secret of digits comes back as a number.
            Value::Number(number) => {
                let text = number.to_string();
                if let Cow::Owned(scrubbed) = self.scrub_text(&text) {
                    *value = Value::String(scrubbed);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub_value(item)),
            Value::Object(entries) => {
                entries.values_mut().for_each(|value| self.scrub_value(value));
                let is_secret = |key: &String| matches!(self.scrub_text(key), Cow::Owned(_));
                if entries.keys().any(is_secret) {
                    *entries = self.scrub_keys(std::mem::take(entries));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

impl Scrubber {
    /// Scrubs the keys; of two that become the same the later gets a number, so that no value is lost.
    fn scrub_keys(&self, entries: Map<String, Value>) -> Map<String, Value> {
        let mut scrubbed = Map::new();
        for (key, value) in entries {
            let key = self.scrub_text(&key).into_owned();
            let mut unique = key.clone();
            let mut count = 1;
            while scrubbed.contains_key(&unique) {
                count += 1;
                unique = format!("{key} {count}");
            }
            scrubbed.insert(unique, value);
        }
        scrubbed
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrubber").field("forms", &self.inner.forms.len()).finish_non_exhaustive()
    }
}
