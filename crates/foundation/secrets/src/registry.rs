//! The secrets of a program, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use formwork_protocols::document::nearest_hint;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::placeholder::{Piece, pieces};
use crate::{Environment, Error, Scrubber, SecretName, Source};

/// Shorter secrets are refused: ordinary text would hold them by chance, and be scrubbed.
pub(crate) const MIN_BYTES: usize = 8;

/// Longer secrets are refused: a certificate chain has less.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// What every replacement holds, and a secret therefore must not.
pub(crate) const MARKER: &str = "secret:";

/// The secrets of a program, by name. Shows names only, and clears the values when it is dropped.
#[derive(Default)]
pub struct Registry {
    secrets: BTreeMap<SecretName, SecretString>,
    /// Those that are scrubbed and never put in.
    apart: BTreeSet<SecretName>,
}

impl Registry {
    /// Reads every secret from its source; relative paths begin at `base`.
    ///
    /// # Errors
    /// Why each of those failed that did, all at once; see [`Source::resolve`], and [`Registry::insert`] within
    /// [`Error::Unusable`].
    pub fn resolve<'a>(
        sources: impl IntoIterator<Item = (&'a SecretName, &'a Source)>,
        environment: &dyn Environment,
        base: &Path,
    ) -> Result<Self, Vec<Error>> {
        let mut registry = Self::default();
        let mut errors = Vec::new();
        for (name, source) in sources {
            let done = source.resolve(name, environment, base).and_then(|value| {
                let taken = registry.insert(name.clone(), value);
                taken.map_err(|why| source.unusable(why))
            });
            errors.extend(done.err());
        }
        if errors.is_empty() { Ok(registry) } else { Err(errors) }
    }

    /// Adds a secret.
    ///
    /// # Errors
    /// [`Error::TooShort`], [`Error::TooLong`], [`Error::LooksScrubbed`] and [`Error::PartOfName`] for values
    /// that could not be scrubbed;
    /// [`Error::Duplicate`] when one of that name is there.
    pub fn insert(&mut self, name: SecretName, value: SecretString) -> Result<(), Error> {
        let text = value.expose_secret();
        if self.secrets.contains_key(&name) {
            return Err(Error::Duplicate { name });
        }
        if text.len() < MIN_BYTES {
            return Err(Error::TooShort { name, found: text.len(), least: MIN_BYTES });
        }
        if text.len() > MAX_BYTES {
            return Err(Error::TooLong { name, limit: MAX_BYTES });
        }
        for marker in [MARKER, "]["] {
            if text.contains(marker) {
                return Err(Error::LooksScrubbed { name, marker });
            }
        }
        let inside = |name: &SecretName, value: &str| name.as_str().contains(value);
        let held = self.secrets.keys().chain([&name]).find(|other| inside(other, text)).cloned();
        if let Some(other) = held {
            return Err(Error::PartOfName { name, other });
        }
        let mut known = self.secrets.iter();
        if let Some((known, _)) = known.find(|(_, value)| inside(&name, value.expose_secret())) {
            return Err(Error::PartOfName { name: known.clone(), other: name });
        }
        self.secrets.insert(name, value);
        Ok(())
    }

    /// Adds a secret that is scrubbed wherever it turns up and that no placeholder stands for: it is the program's own.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_apart(&mut self, name: SecretName, value: SecretString) -> Result<(), Error> {
        self.insert(name.clone(), value)?;
        self.apart.insert(name);
        Ok(())
    }

    /// Returns the names that a placeholder may have, in order.
    pub fn names(&self) -> impl Iterator<Item = &SecretName> {
        self.secrets.keys().filter(|name| !self.apart.contains(*name))
    }

    /// Returns the secret that a placeholder of that name stands for, still wrapped.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&SecretString> {
        self.secrets.get(name).filter(|_| !self.apart.contains(name))
    }

    /// Puts the secrets where `{{secret:NAME}}` stands in any text within `arguments`; keys are left alone.
    ///
    /// A secret is inserted into the text and never into JSON, so that quotes in it change nothing but the text. What
    /// was inserted is not read again. From here on `arguments` must not be recorded or shown.
    ///
    /// # Errors
    /// [`Error::Unknown`] for the first name that is not there; `arguments` is then unchanged.
    pub fn substitute(&self, arguments: &mut Value) -> Result<(), Error> {
        self.check(arguments)?;
        self.replace(arguments);
        Ok(())
    }

    /// Checks that every placeholder within `arguments` names a secret that is there.
    ///
    /// # Errors
    /// [`Error::Unknown`] for the first that does not.
    pub fn check(&self, arguments: &Value) -> Result<(), Error> {
        match arguments {
            Value::String(text) => {
                for piece in pieces(text) {
                    if let Piece::Secret(name) = piece
                        && self.get(name).is_none()
                    {
                        let hint = nearest_hint(name, self.names().map(SecretName::as_str));
                        return Err(Error::Unknown { name: name.to_owned(), hint });
                    }
                }
                Ok(())
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.check(item)),
            Value::Object(entries) => entries.values().try_for_each(|value| self.check(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn replace(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let pieces = pieces(text);
                if pieces.len() == 1 {
                    return;
                }
                let replaced = pieces.iter().map(|piece| match piece {
                    Piece::Text(text) => *text,
                    Piece::Secret(name) => {
                        self.get(name).map_or("", |secret| secret.expose_secret())
                    }
                });
                *text = replaced.collect();
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::Object(entries) => entries.values_mut().for_each(|value| self.replace(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Makes the scrubber that takes these secrets out.
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        Scrubber::new(self.secrets.iter().map(|(name, secret)| (name, secret.expose_secret())))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.secrets.keys().collect::<Vec<_>>()).finish()
    }
}
