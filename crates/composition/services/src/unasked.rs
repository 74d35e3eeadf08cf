//! What git runs unasked when a person next uses it: its hooks, and what its config names.
//!
//! A program that an agent started may write anywhere in the workspace. What it left in git's own folder, or in a
//! repository that it made, would run later, as the person and without any confinement.

mod config; // Which settings start nothing.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Where such things stand, below git's own folder.
const PLACES: [&str; 4] = ["config", "config.worktree", "hooks", "info/attributes"];

/// How many entries of a workspace are looked at. A folder with more is not granted to programs either.
const MOST: usize = 500_000;

/// How deep a workspace is looked into.
const DEEPEST: usize = 200;

type Hashes = BTreeMap<PathBuf, blake3::Hash>;

/// What git would run, by content, at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unasked {
    /// All that stands in these places of the workspace's own repository.
    top: Hashes,
    /// What would start something in any other repository of the workspace.
    others: Hashes,
}

impl Unasked {
    /// Looks at the repositories of a workspace. One whose git folder is elsewhere, and so out of reach, has nothing
    /// to look at.
    pub(crate) fn take(root: &Path) -> Self {
        let mut found = Self { top: Hashes::new(), others: Hashes::new() };
        let git = root.join(".git");
        if git.symlink_metadata().is_ok_and(|git| git.is_dir()) {
            for place in PLACES {
                look(&git.join(place), &mut found.top);
            }
        }
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let mut left = MOST;
        let mut todo = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = todo.pop() {
            let is_known = folder == root && !found.top.is_empty();
            for repository in repositories(&folder, &real).filter(|it| !(is_known && *it == git)) {
                starts(&repository, &mut found.others);
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten().take(left) {
                left = left.saturating_sub(1);
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder && depth < DEEPEST && !is_git(&entry.file_name()) {
                    todo.push((entry.path(), depth + 1));
                }
            }
        }
        found
    }

    /// Returns the first file that is not what it was when this was taken, or that has come since. What starts
    /// nothing in a repository that has come since is the doing of whoever made it.
    pub(crate) fn changed(&self, root: &Path) -> Option<PathBuf> {
        let now = Self::take(root);
        let has_come = |(path, hash): &(&PathBuf, &blake3::Hash)| {
            self.others.get(*path) != Some(*hash) && self.top.get(*path) != Some(*hash)
        };
        let mut paths = self.top.keys().chain(now.top.keys());
        let differs = match self.top.is_empty() {
            // What stands in it was looked at as in any other.
            true => None,
            false => paths.find(|path| self.top.get(*path) != now.top.get(*path)),
        };
        // A repository that was not there has come with all that it starts.
        let mut own = Hashes::new();
        if self.top.is_empty() && !now.top.is_empty() {
            starts(&root.join(".git"), &mut own);
        }
        let come = || now.others.iter().chain(&own).find(has_come).map(|(path, _)| path);
        let path = differs.or_else(come)?;
        Some(path.strip_prefix(root).unwrap_or(path).to_owned())
    }
}

fn is_git(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(b".git")
}

/// Finds the folders that git would take for the repository of somebody who works in `folder`: by its `.git`, be it a
/// folder, a link or a file that names one, or since it is a repository itself. One that is not within `root`
/// is somebody else's, and nobody writes there from here.
fn repositories(folder: &Path, root: &Path) -> impl Iterator<Item = PathBuf> {
    let git = folder.join(".git");
    let by_name = match git.symlink_metadata() {
        Ok(found) if found.is_file() => named_in(&git, folder),
        Ok(_) => Some(git),
        Err(_) => None,
    };
    let is_bare = ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists());
    let itself = is_bare.then(|| folder.to_owned());
    let root = root.to_owned();
    let is_within =
        move |path: &PathBuf| path.canonicalize().is_ok_and(|real| real.starts_with(&root));
    by_name.into_iter().chain(itself).filter(is_within)
}

/// Reads the folder that a `.git` file names.
fn named_in(file: &Path, folder: &Path) -> Option<PathBuf> {
    let text = crate::reading::bytes(file, 1 << 16).ok()?;
    let path = text.trim_ascii().strip_prefix(b"gitdir:")?.trim_ascii();
    Some(folder.join(OsStr::from_bytes(path)))
}

/// Adds what in a repository would start something.
fn starts(git: &Path, found: &mut Hashes) {
    for name in ["config", "config.worktree"] {
        let path = git.join(name);
        let text = crate::reading::bytes(&path, 1 << 20);
        // One that cannot be read, or is no file, might say anything.
        let is_harmless = match &text {
            Ok(text) => config::starts_nothing(&String::from_utf8_lossy(text)),
            Err(_) => path.symlink_metadata().is_err(),
        };
        if !is_harmless {
            look(&path, found);
        }
    }
    // What else a worktree or a submodule of it would run stands where it says.
    let hooks = git.join("hooks");
    for entry in fs::read_dir(&hooks).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_sample = path.extension().is_some_and(|end| end == "sample");
        let runs = path.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
        if !is_sample && runs && !path.is_dir() {
            look(&path, found);
        }
    }
    if let Ok(common) = crate::reading::bytes(&git.join("commondir"), 1 << 16)
        && found.len() < MOST
    {
        let common = git.join(OsStr::from_bytes(common.trim_ascii()));
        if common.canonicalize().ok() != git.canonicalize().ok()
            && !common.join("commondir").exists()
        {
            starts(&common, found);
        }
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

    /// Makes a repository as git does, by hand.
    fn repository(git: &Path) {
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::create_dir_all(git.join("objects")).unwrap();
        fs::create_dir_all(git.join("refs")).unwrap();
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
            [user]\n\tname = a\n[remote \"origin\"]\n\turl = ../b\n";
        fs::write(git.join("config"), config).unwrap();
        hook(&git.join("hooks/pre-commit.sample"));
    }

    fn hook(path: &Path) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_repository_within_that_starts_something_is_named_however_it_is_one() {
        let root = tempfile::tempdir().unwrap();
        let place = |path: &str| root.path().join(path);
        repository(&place(".git"));
        repository(&place("kept/.git"));
        hook(&place("kept/.git/hooks/pre-push"));
        let before = Unasked::take(root.path());

        for harmless in ["a/.git", "b/bare", "c/real"] {
            repository(&place(harmless));
        }
        fs::write(place("c/.git"), "gitdir: real\n").unwrap();
        let harmless = before.changed(root.path());
        let mut named = Vec::new();
        for (file, text) in [
            ("a/.git/hooks/post-checkout", ""),
            ("a/.git/config", "[core]\n\tfsmonitor = ./evil\n"),
            ("b/bare/config", "[alias]\n\tst = !evil\n"),
            ("c/real/config", "[filter \"x\"]\n\tclean = evil\n"),
            ("kept/.git/config", "[include]\n\tpath = evil\n"),
        ] {
            let was = fs::read(place(file)).ok();
            fs::write(place(file), text).unwrap();
            fs::set_permissions(place(file), fs::Permissions::from_mode(0o755)).unwrap();
            named.push(before.changed(root.path()).map(|path| path.display().to_string()));
            match was {
                Some(was) => fs::write(place(file), was).unwrap(),
                None => fs::remove_file(place(file)).unwrap(),
            }
        }

        assert_eq!(harmless, None);
        let wanted = [
            "a/.git/hooks/post-checkout",
            "a/.git/config",
            "b/bare/config",
            "c/real/config",
            "kept/.git/config",
        ];
        assert_eq!(named, wanted.map(|path| Some(path.to_owned())));
    }

    #[test]
    fn a_repository_that_is_new_at_the_top_is_held_to_the_same() {
        let root = tempfile::tempdir().unwrap();
        let before = Unasked::take(root.path());

        repository(&root.path().join(".git"));
        let made = before.changed(root.path());
        hook(&root.path().join(".git/hooks/pre-commit"));
        let hooked = before.changed(root.path());

        assert_eq!((made, hooked), (None, Some(PathBuf::from(".git/hooks/pre-commit"))));
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
