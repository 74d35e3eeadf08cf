//! What git runs unasked when a person next uses it: its hooks, and what its config names.
//!
//! A program that an agent started may write anywhere in the workspace, git's own folder included. What
//! it left there would run later, as the person and without any confinement.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Where such things stand, below git's own folder.
const PLACES: [&str; 4] = ["config", "config.worktree", "hooks", "info/attributes"];

/// What git would run, by content, at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unasked(BTreeMap<PathBuf, blake3::Hash>);

impl Unasked {
    /// Looks at the repository of a workspace. One that has none, or whose git folder is elsewhere and so
    /// out of reach, has nothing to look at.
    pub(crate) fn take(root: &Path) -> Self {
        let mut found = BTreeMap::new();
        let git = root.join(".git");
        if git.symlink_metadata().is_ok_and(|git| git.is_dir()) {
            for place in PLACES {
                look(&git.join(place), &mut found);
            }
        }
        Self(found)
    }

    /// Returns the first file that is not what it was when this was taken. A repository that was made
    /// since is the doing of whoever had none.
    pub(crate) fn changed(&self, root: &Path) -> Option<PathBuf> {
        if self.0.is_empty() {
            return None;
        }
        let now = Self::take(root);
        let paths = self.0.keys().chain(now.0.keys());
        let differs = paths.into_iter().find(|path| self.0.get(*path) != now.0.get(*path))?;
        Some(differs.strip_prefix(root).unwrap_or(differs).to_owned())
    }
}

/// Adds what is at a path and below it; links count as where they lead to, and are not followed.
fn look(path: &Path, found: &mut BTreeMap<PathBuf, blake3::Hash>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    if metadata.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            look(&entry.path(), found);
        }
        return;
    }
    let mut hash = blake3::Hasher::new();
    // By its mode a hook that slept becomes one that runs.
    hash.update(&metadata.permissions().mode().to_le_bytes());
    if metadata.is_symlink() {
        hash.update(fs::read_link(path).unwrap_or_default().as_os_str().as_bytes());
    } else if metadata.is_file() {
        hash.update(&crate::reading::bytes(path, u64::MAX - 1).unwrap_or_default());
    }
    found.insert(path.to_owned(), hash.finalize());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_is_added_woken_or_rewritten_is_named_and_a_commit_is_not() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join(".git");
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::write(git.join("config"), "[core]\n").unwrap();
        fs::write(git.join("hooks/pre-push"), "true\n").unwrap();
        let before = Unasked::take(root.path());

        fs::write(git.join("HEAD"), "ref: refs/heads/other\n").unwrap();
        let committed = before.changed(root.path());
        fs::write(git.join("hooks/pre-commit"), "evil\n").unwrap();
        let added = before.changed(root.path());
        fs::remove_file(git.join("hooks/pre-commit")).unwrap();
        let hook = git.join("hooks/pre-push");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let woken = before.changed(root.path());
        fs::write(git.join("config"), "[core]\nfsmonitor = evil\n").unwrap();
        let rewritten = before.changed(root.path());

        let named = |path: &str| Some(PathBuf::from(path));
        assert_eq!(committed, None);
        assert_eq!(added, named(".git/hooks/pre-commit"));
        assert_eq!(woken, named(".git/hooks/pre-push"));
        assert_eq!(rewritten, named(".git/config"));
    }

    #[test]
    fn a_repository_that_is_new_is_whose_doing_it_was() {
        let root = tempfile::tempdir().unwrap();
        let before = Unasked::take(root.path());

        fs::create_dir(root.path().join(".git")).unwrap();
        fs::write(root.path().join(".git/config"), "").unwrap();

        assert_eq!(before.changed(root.path()), None);
    }
}
