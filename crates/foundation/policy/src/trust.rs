//! Which of a repository's own files may have an effect: those whose content a person has trusted.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Error, kept::Kept};

/// Remembers the content of files that a person has trusted, in a file of the user's own.
///
/// A repository can bring settings, hooks and servers that start programs. Until their content is
/// trusted they have no effect, and one changed byte makes them untrusted again.
#[derive(Debug, Clone)]
pub struct TrustStore {
    store: Kept<Content>,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Exactly this content was trusted.
    Trusted,
    /// Other content was trusted at this place.
    Changed,
    /// Nothing was.
    Unknown,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// The hash of each file's trusted content, by the file's path.
    files: BTreeMap<String, String>,
}

impl TrustStore {
    /// Keeps trust in the file `store`, which need not exist, about files in `tree`.
    ///
    /// # Errors
    /// [`Error::StoreInside`] when `store` lies within `tree`, where what it judges could change it.
    pub fn new(store: impl Into<PathBuf>, tree: &Path) -> Result<Self, Error> {
        Ok(Self { store: Kept::new(store, "trust store", tree)? })
    }

    /// Says whether `content`, read from `file`, is trusted.
    ///
    /// What is then used must be that same content, not the file read again.
    ///
    /// # Errors
    /// When the store cannot be read: then nothing is trusted.
    pub fn judge(&self, file: &Path, content: &[u8]) -> Result<Trust, Error> {
        self.judge_hash(file, &Self::hash(content))
    }

    /// The same of content of which only the hash is known.
    ///
    /// # Errors
    /// As [`TrustStore::judge`].
    pub fn judge_hash(&self, file: &Path, hash: &str) -> Result<Trust, Error> {
        Ok(match self.store.read()?.files.get(&key(file)) {
            None => Trust::Unknown,
            Some(trusted) if trusted == hash => Trust::Trusted,
            Some(_) => Trust::Changed,
        })
    }

    /// Returns the hash that content is known by.
    #[must_use]
    pub fn hash(content: &[u8]) -> String {
        blake3::hash(content).to_hex().to_string()
    }

    /// Trusts `content` at the place of `file`, and no longer what was trusted there before.
    ///
    /// # Errors
    /// When the store cannot be read or written: then it is as it was.
    pub fn trust(&self, file: &Path, content: &[u8]) -> Result<(), Error> {
        self.store.change(|store| {
            store.files.insert(key(file), Self::hash(content));
        })
    }

    /// Trusts nothing at the place of `file` any more.
    ///
    /// # Errors
    /// When the store cannot be read or written: then it is as it was.
    pub fn revoke(&self, file: &Path) -> Result<(), Error> {
        self.store.change(|store| {
            store.files.remove(&key(file));
        })
    }

    /// Trusts nothing below a folder any more, what is gone meanwhile among it, and returns what was trusted there.
    ///
    /// # Errors
    /// When the store cannot be read or written: then it is as it was.
    pub fn revoke_below(&self, folder: &Path) -> Result<Vec<String>, Error> {
        self.store.change(|store| {
            let (below, others) = std::mem::take(&mut store.files)
                .into_iter()
                .partition(|(file, _)| Path::new(file).starts_with(folder));
            store.files = others;
            BTreeMap::into_keys(below).collect()
        })
    }
}

fn key(file: &Path) -> String {
    // Two paths may read the same once what is no text is replaced: their content is told apart.
    file.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let store = dir.path().join("config/trust.json");
        (dir, store, tree)
    }

    #[test]
    fn only_the_very_content_that_was_trusted_is_trusted() {
        let (_dir, store, tree) = folders();
        let store = TrustStore::new(store, &tree).unwrap();
        let (file, other) = (tree.join("formwork.toml"), tree.join("other.toml"));
        let judge = |file: &Path, content: &[u8]| store.judge(file, content).unwrap();

        assert_eq!(judge(&file, b"a"), Trust::Unknown);
        store.trust(&file, b"a").unwrap();

        assert_eq!(judge(&file, b"a"), Trust::Trusted);
        assert_eq!(judge(&file, b"b"), Trust::Changed);
        assert_eq!(judge(&other, b"a"), Trust::Unknown);
        assert_eq!(store.judge_hash(&file, &TrustStore::hash(b"a")).unwrap(), Trust::Trusted);
        store.revoke(&file).unwrap();
        assert_eq!(judge(&file, b"a"), Trust::Unknown);
    }

    #[test]
    fn what_is_below_a_folder_is_taken_back_together() {
        let (_dir, store, tree) = folders();
        let store = TrustStore::new(store, &tree).unwrap();
        let beside = tree.with_file_name("tree-2").join("x");
        for file in [tree.join("x"), tree.join("a/y"), beside.clone()] {
            store.trust(&file, b"a").unwrap();
        }

        let revoked = store.revoke_below(&tree).unwrap();

        assert_eq!(revoked, [key(&tree.join("a/y")), key(&tree.join("x"))]);
        assert_eq!(store.judge(&tree.join("x"), b"a").unwrap(), Trust::Unknown);
        assert_eq!(store.judge(&beside, b"a").unwrap(), Trust::Trusted);
    }

    #[test]
    fn a_store_within_the_tree_is_refused_also_through_a_link() {
        let (dir, _, tree) = folders();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&tree, &link).unwrap();

        for store in [tree.join("trust.json"), tree.join("a/b/trust.json"), link.join("trust.json")]
        {
            let error = TrustStore::new(&store, &tree).unwrap_err();
            assert!(matches!(error, Error::StoreInside { .. }), "{error}");
        }
    }

    #[test]
    fn a_store_that_cannot_be_read_trusts_nothing_and_is_not_overwritten() {
        let (dir, store, tree) = folders();
        fs::create_dir(dir.path().join("config")).unwrap();
        for text in ["", "{}", "[]", r#"{"format_version":2,"files":[]}"#] {
            fs::write(&store, text).unwrap();
            let trust = TrustStore::new(&store, &tree).unwrap();

            assert!(trust.judge(&tree.join("x"), b"a").is_err(), "{text}");
            assert!(trust.trust(&tree.join("x"), b"a").is_err(), "{text}");
            assert_eq!(fs::read_to_string(&store).unwrap(), text);
        }
    }

    #[test]
    fn the_store_is_its_owners_alone() {
        let (_dir, store, tree) = folders();
        TrustStore::new(&store, &tree).unwrap().trust(&tree.join("x"), b"a").unwrap();

        assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let (_dir, store, tree) = folders();
        let store = TrustStore::new(store, &tree).unwrap();

        std::thread::scope(|scope| {
            for number in 0..16 {
                let (store, file) = (&store, tree.join(number.to_string()));
                scope.spawn(move || store.trust(&file, b"a").unwrap());
            }
        });

        for number in 0..16 {
            let judged = store.judge(&tree.join(number.to_string()), b"a").unwrap();
            assert_eq!(judged, Trust::Trusted, "{number}");
        }
    }
}
