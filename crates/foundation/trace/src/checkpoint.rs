//! What the whole log was at a position: one hash over where each run stood, and who signed it.
//!
//! The chains of runs find what was changed within a run. That a whole run is gone, with all that remembers it, is
//! found by what was said of the log before, and kept where whoever changes the log cannot reach it.

use std::fmt;

use formwork_protocols::{BlobHash, Position, RunId, Timestamp};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What stands before all that is hashed or signed here, so that it is never taken for something else.
const TREE: &[u8] = b"formwork tree head 1\0";
const SIGNED: &str = "formwork checkpoint 1";

/// What the whole log was at a position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// The last event that it covers.
    pub position: Position,
    /// When it was made.
    pub at: Timestamp,
    /// How many runs had begun.
    pub runs: u64,
    /// The hash over where each of them stood.
    pub root: BlobHash,
    /// The public key of who signed it: 64 hexadecimal digits.
    pub signer: PublicKey,
    /// The signature by Ed25519: 128 hexadecimal digits.
    pub signature: String,
}

/// A public key of Ed25519.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl std::str::FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = unhex(text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(KeyError::NotPublic)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyError;

    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl JsonSchema for PublicKey {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PublicKey".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

/// Why a key is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It is no public key.
    #[error("a public key has 64 hexadecimal digits")]
    NotPublic,
    /// It is no key to sign with.
    #[error("it is no Ed25519 key in the form PKCS #8")]
    NotPrivate,
    /// The machine gives no random numbers.
    #[error("the machine gives no random numbers to make a key of")]
    NoRandomness,
}

/// A key to sign with. It is never printed.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Makes a new key and returns the bytes to keep, of which [`SigningKey::parse`] makes it again.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`] when the machine gives none.
    pub fn generate() -> Result<Vec<u8>, KeyError> {
        Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new())
            .map(|document| document.as_ref().to_vec())
            .map_err(|_| KeyError::NoRandomness)
    }

    /// Reads a key.
    ///
    /// # Errors
    /// [`KeyError::NotPrivate`] when the bytes are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyError> {
        Ed25519KeyPair::from_pkcs8(bytes).map(Self).map_err(|_| KeyError::NotPrivate)
    }

    /// Returns the key by which its signatures are checked.
    pub fn public(&self) -> PublicKey {
        // Source: RFC 8032, section 5.1.5: 32 bytes.
        let bytes = self.0.public_key().as_ref().try_into();
        PublicKey(bytes.expect("a public key of Ed25519 has 32 bytes"))
    }

    pub(crate) fn sign(&self, tree: TreeHead, at: Timestamp) -> Checkpoint {
        let TreeHead { position, runs, root } = tree;
        let mut checkpoint = Checkpoint {
            position,
            at,
            runs,
            root,
            signer: self.public(),
            signature: String::new(),
        };
        checkpoint.signature = hex(self.0.sign(checkpoint.text().as_bytes()).as_ref());
        checkpoint
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public()).finish()
    }
}

impl Checkpoint {
    /// Returns what is signed.
    fn text(&self) -> String {
        format!(
            "{SIGNED}\n{}\n{}\n{}\n{}\n{}\n",
            self.position,
            self.at.as_micros(),
            self.runs,
            self.root,
            self.signer
        )
    }

    /// Tells whether the signature is its signer's.
    pub fn is_signed(&self) -> bool {
        let Some(signature) = unhex(&self.signature) else { return false };
        UnparsedPublicKey::new(&ED25519, self.signer.as_bytes())
            .verify(self.text().as_bytes(), &signature)
            .is_ok()
    }

    pub(crate) fn signature_bytes(&self) -> Vec<u8> {
        unhex(&self.signature).unwrap_or_default()
    }
}

/// One hash over where each run stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeHead {
    pub(crate) position: Position,
    pub(crate) runs: u64,
    pub(crate) root: BlobHash,
}

/// Gathers a tree head from where each run stood, in the order of their ids.
pub(crate) struct Tree {
    hasher: blake3::Hasher,
    runs: u64,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(TREE);
        Self { hasher, runs: 0 }
    }

    /// Takes up a run: how many events it had, and the hash of the last.
    pub(crate) fn take(&mut self, run: RunId, seq: u64, hash: &BlobHash) {
        self.hasher.update(run.as_bytes()).update(&seq.to_le_bytes()).update(hash.as_bytes());
        self.runs += 1;
    }

    pub(crate) fn head(&self, position: Position) -> TreeHead {
        let root = BlobHash::from_bytes(*self.hasher.finalize().as_bytes());
        TreeHead { position, runs: self.runs, root }
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed() -> (SigningKey, Checkpoint) {
        let key = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();
        let mut tree = Tree::new();
        tree.take(RunId::from_uuid(uuid::Uuid::from_u128(1)), 3, &BlobHash::of(b"end"));
        let checkpoint = key.sign(tree.head(Position(3)), Timestamp::from_micros(7));
        (key, checkpoint)
    }

    #[test]
    fn a_checkpoint_is_its_signers_until_anything_of_it_is_changed() {
        let (key, checkpoint) = signed();
        let other = SigningKey::parse(&SigningKey::generate().unwrap()).unwrap();

        let changed = [
            Checkpoint { position: Position(4), ..checkpoint.clone() },
            Checkpoint { at: Timestamp::from_micros(8), ..checkpoint.clone() },
            Checkpoint { runs: 2, ..checkpoint.clone() },
            Checkpoint { root: BlobHash::of(b"other"), ..checkpoint.clone() },
            Checkpoint { signer: other.public(), ..checkpoint.clone() },
            Checkpoint { signature: "00".repeat(64), ..checkpoint },
            Checkpoint { signature: "é".to_owned(), ..checkpoint },
        ];

        assert!(checkpoint.is_signed());
        assert_eq!(checkpoint.signer, key.public());
        for changed in changed {
            assert!(!changed.is_signed(), "{changed:?}");
        }
    }

    #[test]
    fn a_checkpoint_survives_a_round_trip_and_a_key_is_not_shown() {
        let (key, checkpoint) = signed();
        let text = serde_json::to_string(&checkpoint).unwrap();

        let again: Checkpoint = serde_json::from_str(&text).unwrap();

        assert_eq!(again, checkpoint);
        assert_eq!(format!("{key:?}"), format!("SigningKey({:?})", key.public()));
        assert_eq!(SigningKey::parse(b"no key").unwrap_err(), KeyError::NotPrivate);
    }

    #[test]
    fn runs_in_another_place_give_another_tree() {
        let run = |n| RunId::from_uuid(uuid::Uuid::from_u128(n));
        let head = |leaves: &[(u128, u64, &[u8])]| {
            let mut tree = Tree::new();
            for (n, seq, end) in leaves {
                tree.take(run(*n), *seq, &BlobHash::of(end));
            }
            tree.head(Position(1)).root
        };

        let all = [
            head(&[]),
            head(&[(1, 1, b"a")]),
            head(&[(1, 1, b"b")]),
            head(&[(1, 2, b"a")]),
            head(&[(2, 1, b"a")]),
            head(&[(1, 1, b"a"), (2, 1, b"a")]),
        ];

        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }
}
