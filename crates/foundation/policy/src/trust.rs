//! Which of a repository's own files may have an effect: those whose content a person has trusted.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// The format that is written and read.
const FORMAT: u32 = 1;

/// Remembers the content of files that a person has trusted, in a file of the user's own.
///
/// A repository can bring settings, hooks and servers that start programs. Until their content is
/// trusted they have no effect, and one changed byte makes them untrusted again.
#[derive(Debug, Clone)]
pub struct TrustStore {
    store: PathBuf,
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

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format_version: u32,
    /// The hash of each file's trusted content, by the file's path.
    files: BTreeMap<String, String>,
}

impl TrustStore {
    /// Keeps trust in the file `store`, which need not exist, about files in `tree`.
    ///
    /// # Errors
    /// [`Error::TrustInside`] when `store` lies within `tree`, where what it judges could change it.
    pub fn new(store: impl Into<PathBuf>, tree: &Path) -> Result<Self, Error> {
        let store = store.into();
        let failed = |source| Error::TrustIo { store: store.clone(), action: "found", source };
        let real = real(&store).map_err(failed)?;
        let real_tree = tree.canonicalize().map_err(failed)?;
        if real.starts_with(&real_tree) {
            return Err(Error::TrustInside { store, tree: tree.to_owned() });
        }
        Ok(Self { store })
    }

    /// Says whether `content`, read from `file`, is trusted.
    ///
    /// What is then used must be that same content, not the file read again.
    ///
    /// # Errors
    /// When the store cannot be read: then nothing is trusted.
    pub fn judge(&self, file: &Path, content: &[u8]) -> Result<Trust, Error> {
        Ok(match self.read()?.files.get(&key(file)) {
            None => Trust::Unknown,
            Some(hash) if *hash == hash_of(content) => Trust::Trusted,
            Some(_) => Trust::Changed,
        })
    }

    /// Trusts `content` at the place of `file`, and no longer what was trusted there before.
    ///
    /// # Errors
    /// When the store cannot be read or written: then it is as it was.
    pub fn trust(&self, file: &Path, content: &[u8]) -> Result<(), Error> {
        self.change(|files| {
            files.insert(key(file), hash_of(content));
        })
    }

    /// Trusts nothing at the place of `file` any more.
    ///
    /// # Errors
    /// When the store cannot be read or written: then it is as it was.
    pub fn revoke(&self, file: &Path) -> Result<(), Error> {
        self.change(|files| {
            files.remove(&key(file));
        })
    }

    fn read(&self) -> Result<Content, Error> {
        let bytes = match fs::read(&self.store) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Content { format_version: FORMAT, files: BTreeMap::new() });
            }
            Err(source) => return Err(self.failed("read")(source)),
        };
        let wrong = |source| Error::TrustFormat { store: self.store.clone(), source };
        // The version first: another one's fields are not this one's.
        let version: Version = serde_json::from_slice(&bytes).map_err(wrong)?;
        if version.format_version != FORMAT {
            return Err(Error::TrustVersion {
                store: self.store.clone(),
                found: version.format_version,
                wanted: FORMAT,
            });
        }
        serde_json::from_slice(&bytes).map_err(wrong)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, String>)) -> Result<(), Error> {
        let folder = self.store.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(self.failed("written"))?;
        // Another process may be changing it too; the lock ends with the file's handle.
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.store.with_added_extension("lock"))
            .map_err(self.failed("locked"))?;
        lock.lock().map_err(self.failed("locked"))?;
        let mut content = self.read()?;
        change(&mut content.files);
        self.replace(folder, &content).map_err(self.failed("written"))
    }

    /// Replaces the store at once, so that whatever happens it is either as before or as after.
    fn replace(&self, folder: &Path, content: &Content) -> io::Result<()> {
        // Readable by its owner alone, as temporary files are.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, content)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.store)?;
        File::open(folder)?.sync_all()
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let store = self.store.clone();
        move |source| Error::TrustIo { store, action, source }
    }
}

#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

fn key(file: &Path) -> String {
    // Two paths may read the same once what is no text is replaced: their content is told apart.
    file.to_string_lossy().into_owned()
}

fn hash_of(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

/// Returns where `path` really is, even if its last folders are not there yet.
fn real(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut missing = Vec::new();
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            return Ok(missing.into_iter().rev().fold(real, |real, name| real.join(name)));
        }
        missing.extend(ancestor.file_name());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        store.revoke(&file).unwrap();
        assert_eq!(judge(&file, b"a"), Trust::Unknown);
    }

    #[test]
    fn a_store_within_the_tree_is_refused_also_through_a_link() {
        let (dir, _, tree) = folders();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&tree, &link).unwrap();

        for store in [tree.join("trust.json"), tree.join("a/b/trust.json"), link.join("trust.json")]
        {
            let error = TrustStore::new(&store, &tree).unwrap_err();
            assert!(matches!(error, Error::TrustInside { .. }), "{error}");
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
