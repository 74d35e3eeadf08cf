//! What of a workspace a piece of work could write, as the sandbox was told: what differs beyond is not its doing.

use std::{
    borrow::Cow, collections::BTreeSet, ffi::OsString, os::unix::ffi::OsStringExt as _, path::Path,
};

use formwork_protocols::{Blob, BlobHash, Scrub, Store, canonical};
use formwork_sandbox::Protection;
use formwork_write_safety::RelPath;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Where a piece of work could write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Wherever its user may: nothing holds it.
    #[default]
    Anywhere,
    /// Below these folders.
    Within(Folders),
}

/// Folders and files of a workspace, from its root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Folders {
    roots: BTreeSet<Name>,
    sealed: BTreeSet<Name>,
}

/// A path, also one that is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Bytes(Vec<u8>),
}

impl Name {
    fn of(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(OsString::from(path).into_vec()),
        }
    }

    /// Takes secrets out of it.
    fn told(&self, scrub: &dyn Scrub) -> Self {
        let text = match self {
            Self::Text(text) => Cow::Borrowed(text.as_str()),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes),
        };
        match scrub.scrub_text(&text) {
            told if told == text => self.clone(),
            told => Self::Text(told.into_owned()),
        }
    }
}

impl Reach {
    /// Says what a program can write of the workspace `root` that is held to `protection`.
    pub(crate) fn of(protection: &Protection, root: &Path) -> Self {
        let Protection::Restricted(limits) = protection else { return Self::Anywhere };
        let within = |path: &Path| match root.starts_with(path) {
            true => Some(Name::Text(String::new())),
            false => path.strip_prefix(root).ok().map(Name::of),
        };
        let names =
            |paths: &[std::path::PathBuf]| paths.iter().filter_map(|it| within(it)).collect();
        Self::Within(Folders { roots: names(&limits.write_roots), sealed: names(&limits.sealed) })
    }

    /// Says whether the work could write there: the nearest folder above that is granted or sealed decides.
    pub(crate) fn covers(&self, path: &RelPath) -> bool {
        let Self::Within(folders) = self else { return true };
        let above = path.as_path().ancestors().map(Name::of);
        for name in above {
            if folders.sealed.contains(&name) {
                return false;
            }
            if folders.roots.contains(&name) {
                return true;
            }
        }
        false
    }

    /// Says whether what came to be there may have been made by the work, also where it is sealed since it came.
    pub(crate) fn reaches(&self, path: &RelPath) -> bool {
        let Self::Within(Folders { roots, .. }) = self else { return true };
        path.as_path().ancestors().any(|above| roots.contains(&Name::of(above)))
    }

    /// Returns it as the log keeps it, if anything holds the work. A folder whose name holds a secret is not found again.
    ///
    /// # Errors
    /// [`Error::Checks`].
    pub(crate) fn blob(&self, scrub: &dyn Scrub) -> Result<Option<Blob>, Error> {
        let Self::Within(folders) = self else { return Ok(None) };
        let told = |names: &BTreeSet<Name>| names.iter().map(|name| name.told(scrub)).collect();
        let folders = Folders { roots: told(&folders.roots), sealed: told(&folders.sealed) };
        let text = canonical::to_string(&folders)
            .map_err(|error| Error::Checks { reason: error.to_string() })?;
        Ok(Some(Blob::new(text.as_bytes())))
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Checks`] where the log has lost it.
    pub(crate) async fn load(store: &dyn Store, hash: &BlobHash) -> Result<Self, Error> {
        let bytes = store.blob(hash).await?.unwrap_or_default();
        let folders = serde_json::from_slice(&bytes)
            .map_err(|error| Error::Checks { reason: format!("blob {hash}: {error}") })?;
        Ok(Self::Within(folders))
    }
}

#[cfg(test)]
mod tests {
    use formwork_sandbox::Limits;

    use super::*;

    /// Takes one secret out.
    fn scrubber() -> impl Scrub {
        let mut registry = formwork_secrets::Registry::default();
        let name = formwork_secrets::SecretName::parse("KEY").unwrap();
        registry.insert(name, "tok-plain-4711".to_owned().into()).unwrap();
        registry.scrubber()
    }

    #[test]
    fn no_secret_in_the_name_of_a_folder_is_kept() {
        let limits = Limits::new([""; 0], ["/w/tok-plain-4711/x"]);
        let reach = Reach::of(&Protection::Restricted(limits), Path::new("/w"));

        let blob = reach.blob(&scrubber()).unwrap().unwrap();

        assert!(reach.covers(&path("tok-plain-4711/x/y")));
        let text = String::from_utf8(blob.bytes().to_vec()).unwrap();
        assert!(text.contains("[secret:KEY]/x") && !text.contains("4711"), "{text}");
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn the_nearest_folder_that_is_granted_or_sealed_decides() {
        let mut limits =
            Limits::new([""; 0], ["/w/src", "/w/a.txt", "/w/src/gen/out", "/dev/null"]);
        limits.sealed = vec!["/w/src/gen".into(), "/elsewhere".into()];

        let reach = Reach::of(&Protection::Restricted(limits), Path::new("/w"));

        let covered = ["src", "src/b", "a.txt", "src/gen/out", "src/gen/out/x"];
        let beyond = ["a.txt.orig", "b", "src/gen", "src/gen/x", "srcs/x", "dev/null"];
        assert!(covered.iter().all(|it| reach.covers(&path(it))));
        assert!(!beyond.iter().any(|it| reach.covers(&path(it))));
    }

    #[test]
    fn a_root_above_the_workspace_covers_it_and_nothing_holds_what_is_not_confined() {
        let mut limits = Limits::new([""; 0], ["/home"]);
        limits.sealed = vec!["/home/me/w/.git".into()];
        let root = Path::new("/home/me/w");

        let above = Reach::of(&Protection::Restricted(limits), root);

        assert!(above.covers(&path("x/y")) && !above.covers(&path(".git/config")));
        assert!(Reach::of(&Protection::None, root).covers(&path(".git/config")));
        let nothing = Limits::new([""; 0], ["/tmp/own"]);
        assert!(!Reach::of(&Protection::Restricted(nothing), root).covers(&path("x")));
    }

    #[test]
    fn what_is_kept_is_read_back_whatever_names_it_holds() {
        use std::os::unix::ffi::OsStrExt as _;
        let odd = Path::new("/w").join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
        let limits = Limits::new([""; 0], [odd.clone(), "/w/plain".into()]);
        let reach = Reach::of(&Protection::Restricted(limits), Path::new("/w"));

        let blob = reach.blob(&scrubber()).unwrap().unwrap();
        let Reach::Within(folders) = &reach else { unreachable!("it is held") };
        let read: Folders = serde_json::from_slice(blob.bytes()).unwrap();

        assert_eq!(&read, folders);
        assert!(reach.covers(&RelPath::parse(odd.strip_prefix("/w").unwrap()).unwrap()));
        assert!(Reach::Anywhere.blob(&scrubber()).unwrap().is_none());
    }
}
