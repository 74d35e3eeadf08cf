//! An entry of the kernel's keyring, for as long as a test runs.

use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier};

use crate::require;

/// Why the kernel keeps no keys for a test.
#[derive(Debug, thiserror::Error)]
#[error("the kernel lets this process have no keyring: {source}")]
pub struct Error {
    source: KeyError,
}

/// An entry of the user's keyring, that goes when it is dropped.
#[derive(Debug)]
pub struct Entry {
    ring: KeyRing,
    key: Key,
    name: String,
}

impl Entry {
    /// Makes one that holds `value`, under a name of its own, or says `SKIP keyring` with the reason on standard error
    /// where the kernel allows none, as in most containers.
    ///
    /// # Panics
    /// When it cannot be had and `FORMWORK_REQUIRE` names `keyring`.
    pub fn holding(value: &[u8]) -> Option<Self> {
        require::present_or_skipped("keyring", Self::make(value))
    }

    fn make(value: &[u8]) -> Result<Self, Error> {
        let failed = |source| Error { source };
        let ring = KeyRing::from_special_id(KeyRingIdentifier::User, false).map_err(failed)?;
        let name = format!("formwork-test/{}", uuid::Uuid::new_v4());
        let key = ring.add_key(&name, value).map_err(failed)?;
        Ok(Self { ring, key, name })
    }

    /// Returns the name by which it is found.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts another value in its place.
    ///
    /// # Errors
    /// When the kernel refuses that.
    pub fn set(&self, value: &[u8]) -> Result<(), Error> {
        self.key.update(&value).map_err(|source| Error { source })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // One that is gone by now is as well.
        let _ = self.ring.unlink_key(self.key);
    }
}
