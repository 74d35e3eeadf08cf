//! What git runs unasked when a person next uses it: its hooks, and what its config names.
//!
//! A program that an agent started may write anywhere in the workspace. What it left in git's own folder, or in a
//! repository that it made, would run later, as the person and without any confinement.

mod config; // Which settings start nothing.

use config::Setting;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt, fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

/// Where such things stand, below git's own folder.
const PLACES: [&str; 2] = ["hooks", "info/attributes"];

/// Where its settings stand. Most start nothing, and people and their tools write them all the time, as `git push -u` does.
const CONFIGS: [&str; 2] = ["config", "config.worktree"];

/// How many entries may have come since the first look. A folder with more is not granted to programs either.
const MOST: usize = 500_000;

/// How much is read of a file that names a folder. Git itself reads as much of a `.git`.
const LONGEST_NAME: u64 = 1 << 20;

/// How much is read of a config, to know what it would start.
const LONGEST_CONFIG: u64 = 1 << 20;

/// How much is read of a hook or a config, to know it again.
const LONGEST: u64 = 64 << 20;

type Hashes = BTreeMap<PathBuf, blake3::Hash>;

/// What git would run, by content, at one point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unasked {
    /// What stands in the workspace's own repository, where it has one.
    top: Option<Top>,
    /// What would start something in any other repository of the workspace.
    others: Hashes,
    /// How many entries were looked at.
    entries: usize,
    /// What could not be looked at first of all, and why.
    unseen: Option<(PathBuf, String)>,
    /// One's own folders that nobody is let into, as they are.
    shut: BTreeMap<PathBuf, Shut>,
}

/// A folder that nobody is let into: to open it, to put another in its place or to shut one that was open changes this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shut {
    device: u64,
    inode: u64,
    /// When anything of it was changed last, in seconds and nanoseconds.
    changed: (i64, i64),
}

/// What git would run by the workspace's own repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Top {
    /// All that stands in the places of such things.
    files: Hashes,
    /// The settings that may start something, by their file.
    settings: BTreeMap<PathBuf, Vec<Setting>>,
}

/// Who can have changed the settings of the workspace's own repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// People alone: the programs of the run are kept from it.
    People,
    /// The programs of the run as well.
    Programs,
}

/// Why what is there now is not to be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Planted {
    /// Git would run this file, which is not what it was.
    Changed(PathBuf),
    /// What is there could not be looked at, for this reason.
    Unseen(PathBuf, String),
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(path) => write!(
                f,
                "{} was changed while it worked, and git would run it unasked",
                path.display()
            ),
            Self::Unseen(path, why) => write!(
                f,
                "{} cannot be looked through, so that what git would run unasked is not known: {why}",
                path.display()
            ),
        }
    }
}

impl Top {
    /// Returns the first file by which git would run something else by now.
    fn differing(&self, now: &Self, writers: Writers) -> Option<PathBuf> {
        let counts = |setting: &&Setting| writers == Writers::Programs || !setting.is_editor;
        // Not to be there, and to start nothing, come to the same.
        let starts = |top: &'_ Self, path: &Path| -> Vec<Setting> {
            top.settings.get(path).into_iter().flatten().filter(counts).cloned().collect()
        };
        let mut files = self.files.keys().chain(now.files.keys());
        let mut settings = self.settings.keys().chain(now.settings.keys());
        let setting = settings.find(|path| starts(self, path) != starts(now, path));
        let file = || files.find(|path| self.files.get(*path) != now.files.get(*path));
        setting.or_else(file).cloned()
    }
}

impl Unasked {
    /// Looks at the repositories of a workspace. One whose git folder is elsewhere, and so out of reach, has nothing
    /// to look at.
    pub(crate) fn take(root: &Path) -> Self {
        Self::within(root, usize::MAX)
    }

    /// Looks at no more than `most` entries.
    fn within(root: &Path, most: usize) -> Self {
        let mut found = Self {
            top: None,
            others: Hashes::new(),
            entries: 0,
            unseen: None,
            shut: <_>::default(),
        };
        let git = root.join(".git");
        if git.symlink_metadata().is_ok_and(|git| git.is_dir()) {
            let mut top = Top::default();
            for place in PLACES {
                found.look(&git.join(place), &mut top.files);
            }
            for place in CONFIGS {
                found.settings(&git.join(place), &mut top);
            }
            found.top = Some(top);
        }
        let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let mut todo = vec![root.to_owned()];
        let mut others = Hashes::new();
        while let Some(folder) = todo.pop() {
            let is_known = folder == root && found.top.is_some();
            for repository in found.repositories(&folder, &real) {
                if !(is_known && repository == git) {
                    found.starts(&repository, &mut others);
                }
            }
            for entry in found.entries_of(&folder) {
                if found.entries > most {
                    let why = format!("{MOST} files and folders have come since the work began");
                    found.miss(root, &io::Error::other(why));
                    todo.clear();
                    break;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && !is_git(&entry.file_name()) => {
                        todo.push(entry.path());
                    }
                    Ok(_) => {}
                    Err(error) => found.miss(&entry.path(), &error),
                }
            }
        }
        found.others = others;
        found
    }

    /// Returns the first file that is not what it was when this was taken, or that has come since. What starts
    /// nothing in a repository that has come since is the doing of whoever made it. What cannot be looked at any more, or
    /// could not at first, might be anything; but not a folder that was shut at first and has not been opened since.
    pub(crate) fn changed(&self, root: &Path, writers: Writers) -> Option<Planted> {
        let mut now = Self::within(root, self.entries.saturating_add(MOST));
        let has_come = |(path, hash): &(&PathBuf, &blake3::Hash)| {
            let known = self.top.as_ref().and_then(|top| top.files.get(*path));
            self.others.get(*path) != Some(*hash) && known != Some(*hash)
        };
        // A repository that was not there has come with all that it starts.
        let mut own = Hashes::new();
        if self.top.is_none() && now.top.is_some() {
            now.starts(&root.join(".git"), &mut own);
        }
        let none = Top::default();
        let differs = match &self.top {
            // What stands in it was looked at as in any other.
            None => None,
            Some(top) => top.differing(now.top.as_ref().unwrap_or(&none), writers),
        };
        let mut shut = now.shut.iter().filter(|(path, it)| self.shut.get(*path) != Some(*it));
        if let (None, Some((path, _))) = (&now.unseen, shut.next()) {
            now.unseen = Some((path.clone(), "nobody is let into it".to_owned()));
        }
        let below = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();
        let come = || now.others.iter().chain(&own).find(has_come).map(|(path, _)| path);
        match (differs.as_deref().or_else(|| come().map(PathBuf::as_path)), now.unseen.as_ref()) {
            (Some(path), _) => Some(Planted::Changed(below(path))),
            (None, Some((path, why))) => Some(Planted::Unseen(below(path), why.clone())),
            (None, None) => None,
        }
    }

    /// Takes note of what cannot be looked at. What is gone meanwhile is nothing.
    fn miss(&mut self, path: &Path, error: &io::Error) {
        let is_gone =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        if !is_gone && self.unseen.is_none() {
            self.unseen = Some((path.to_owned(), error.to_string()));
        }
    }

    /// Lists a folder.
    fn entries_of(&mut self, folder: &Path) -> Vec<fs::DirEntry> {
        let mut entries = Vec::new();
        match fs::read_dir(folder) {
            Ok(listed) => {
                for entry in listed {
                    match entry {
                        Ok(entry) => entries.push(entry),
                        Err(error) => self.miss(folder, &error),
                    }
                }
            }
            // Whoever is not let into it reaches nothing there, by git or otherwise; one's own may be opened.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match shut(folder) {
                Some((_, Owner::Other)) => {}
                Some((shut, Owner::Own)) => drop(self.shut.insert(folder.to_owned(), shut)),
                None => self.miss(folder, &error),
            },
            Err(error) => self.miss(folder, &error),
        }
        self.entries = self.entries.saturating_add(entries.len());
        entries
    }

    /// Finds the folders that git would take for the repository of somebody who works in `folder`: by its `.git`, be it a
    /// folder, a link or a file that names one, or since it is a repository itself. One that is not within `root`
    /// is somebody else's, and nobody writes there from here.
    fn repositories(&mut self, folder: &Path, root: &Path) -> Vec<PathBuf> {
        let git = folder.join(".git");
        let mut found = match git.symlink_metadata() {
            Err(_) => Vec::new(),
            Ok(_) if git.is_file() => self.named_in(&git, Some(b"gitdir:"), folder),
            Ok(_) => vec![git],
        };
        let has = |name: &str| folder.join(name).symlink_metadata().is_ok();
        // What a repository has to have may be where its commondir says.
        if has("HEAD") && (has("commondir") || (has("objects") && has("refs"))) {
            found.push(folder.to_owned());
        }
        found.retain(|path| path.canonicalize().is_ok_and(|real| real.starts_with(root)));
        found
    }

    /// Reads the folders that a file may name: git takes off the ends of lines alone, and others the blanks as well.
    fn named_in(&mut self, file: &Path, key: Option<&[u8]>, folder: &Path) -> Vec<PathBuf> {
        let text = match crate::reading::bytes(file, LONGEST_NAME) {
            Ok(text) => text,
            Err(error) => {
                self.miss(file, &error);
                return Vec::new();
            }
        };
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
        let text = text.get(..end.map_or(0, |end| end + 1)).unwrap_or_default();
        let Some(path) = text.strip_prefix(key.unwrap_or_default()) else { return Vec::new() };
        let exact = path.strip_prefix(b" ").filter(|_| key.is_some()).unwrap_or(path);
        let mut paths = vec![exact];
        paths.extend([path.trim_ascii()].into_iter().filter(|path| *path != exact));
        paths.into_iter().map(|path| folder.join(OsStr::from_bytes(path))).collect()
    }

    /// Adds what in a repository would start something, and in the folder that it shares with others.
    fn starts(&mut self, git: &Path, found: &mut Hashes) {
        self.starts_at(git, found);
        let common = git.join("commondir");
        if common.symlink_metadata().is_ok() {
            // Git looks no further than that, and neither at what else is there.
            for shared in self.named_in(&common, None, git) {
                self.starts_at(&shared, found);
            }
        }
    }

    fn starts_at(&mut self, git: &Path, found: &mut Hashes) {
        for name in CONFIGS {
            let path = git.join(name);
            let text = crate::reading::bytes(&path, LONGEST_CONFIG);
            // One that cannot be read, or is no file, might say anything.
            let is_harmless = match &text {
                Ok(text) => config::starts_nothing(&String::from_utf8_lossy(text)),
                Err(_) => path.symlink_metadata().is_err(),
            };
            if !is_harmless {
                self.look(&path, found);
            }
        }
        // What else a worktree or a submodule of it would run stands where it says.
        for entry in self.entries_of(&git.join("hooks")) {
            let path = entry.path();
            let is_sample = path.extension().is_some_and(|end| end == "sample");
            let runs = path.metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
            if !is_sample && runs && !path.is_dir() {
                self.look(&path, found);
            }
        }
    }

    /// Adds the settings of a file that may start something; all of it where it cannot be read.
    fn settings(&mut self, path: &Path, found: &mut Top) {
        let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
        match crate::reading::bytes(path, LONGEST_CONFIG) {
            Ok(text) if is_file => {
                let starting = config::starting(&String::from_utf8_lossy(&text));
                found.settings.insert(path.to_owned(), starting);
            }
            _ => self.look(path, &mut found.files),
        }
    }

    /// Adds what is at a path and below it; links count as where they lead to, and are not followed.
    fn look(&mut self, path: &Path, found: &mut Hashes) {
        let mut todo = vec![path.to_owned()];
        while let Some(path) = todo.pop() {
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_dir() {
                todo.extend(self.entries_of(&path).into_iter().map(|entry| entry.path()));
                continue;
            }
            let mut hash = blake3::Hasher::new();
            // By its mode a hook that slept becomes one that runs.
            hash.update(&metadata.permissions().mode().to_le_bytes());
            if metadata.is_symlink() {
                hash.update(fs::read_link(&path).unwrap_or_default().as_os_str().as_bytes());
            } else if metadata.is_file() {
                let bytes = crate::reading::bytes(&path, LONGEST);
                hash.update(bytes.as_deref().unwrap_or_default());
                if let Err(error) = bytes {
                    self.miss(&path, &error);
                }
            }
            found.insert(path, hash.finalize());
        }
    }
}

fn is_git(name: &OsStr) -> bool {
    name.as_bytes().eq_ignore_ascii_case(b".git")
}

/// Whose a folder is.
enum Owner {
    Own,
    Other,
}

/// Returns what a folder is that cannot be listed, and whose, where nothing in it can be reached either.
fn shut(folder: &Path) -> Option<(Shut, Owner)> {
    let reach = folder.join("x").symlink_metadata();
    if !reach.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        return None;
    }
    let found = folder.symlink_metadata().ok()?;
    let owner = match found.uid() == rustix::process::geteuid().as_raw() {
        true => Owner::Own,
        false => Owner::Other,
    };
    let changed = (found.ctime(), found.ctime_nsec());
    Some((Shut { device: found.dev(), inode: found.ino(), changed }, owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does something as a user who may not read everything, whoever runs the tests.
    fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        use rustix::{process::Uid, thread::set_thread_res_uid};
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    // Of this thread alone.
                    let nobody = Uid::from_raw(65_534);
                    set_thread_res_uid(nobody, nobody, nobody).unwrap();
                }
                work()
            });
            working.join().unwrap()
        })
    }

    #[test]
    fn ones_own_folder_that_was_shut_before_and_stays_so_is_no_doing_of_the_work() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap();
        let mode = |name: &str, mode| {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };

        let (stays, opened, moved, new, entered) = as_nobody(|| {
            for name in ["stays", "opened"] {
                fs::create_dir(root.join(name)).unwrap();
                mode(name, 0);
            }
            let before = Unasked::take(root);
            let look = || before.changed(root, Writers::Programs);
            let stays = look();
            mode("opened", 0o755);
            fs::create_dir(root.join("opened/.git")).unwrap();
            mode("opened", 0);
            let opened = look();
            mode("opened", 0o755);
            fs::remove_dir_all(root.join("opened")).unwrap();
            fs::rename(root.join("stays"), root.join("moved")).unwrap();
            let moved = look();
            fs::remove_dir(root.join("moved")).unwrap();
            fs::create_dir(root.join("new")).unwrap();
            mode("new", 0);
            let new = look();
            mode("new", 0o311); // Its names are not told, and all in it can be reached.
            (stays, opened, moved, new, look())
        });

        let unseen = |name: &str, why: &str| Some(Planted::Unseen(name.into(), why.to_owned()));
        let shut = "nobody is let into it";
        assert_eq!(stays, None);
        assert_eq!(opened, unseen("opened", shut));
        assert_eq!(moved, unseen("moved", shut));
        assert_eq!(new, unseen("new", shut));
        assert_eq!(entered, unseen("new", "Permission denied (os error 13)"));
    }

    #[test]
    fn a_hook_that_is_added_woken_or_rewritten_is_named_and_a_commit_is_not() {
        let root = tempfile::tempdir().unwrap();
        let git = root.path().join(".git");
        fs::create_dir_all(git.join("hooks")).unwrap();
        fs::write(git.join("config"), "[core]\n").unwrap();
        fs::write(git.join("hooks/pre-push"), "true\n").unwrap();
        let before = Unasked::take(root.path());

        fs::write(git.join("HEAD"), "ref: refs/heads/other\n").unwrap();
        let committed = before.changed(root.path(), Writers::Programs);
        fs::write(git.join("hooks/pre-commit"), "evil\n").unwrap();
        let added = before.changed(root.path(), Writers::Programs);
        fs::remove_file(git.join("hooks/pre-commit")).unwrap();
        let hook = git.join("hooks/pre-push");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let woken = before.changed(root.path(), Writers::Programs);
        fs::write(git.join("config"), "[core]\nfsmonitor = evil\n").unwrap();
        let rewritten = before.changed(root.path(), Writers::Programs);

        let named = |path: &str| Some(Planted::Changed(PathBuf::from(path)));
        assert_eq!(committed, None);
        assert_eq!(added, named(".git/hooks/pre-commit"));
        assert_eq!(woken, named(".git/hooks/pre-push"));
        assert_eq!(rewritten, named(".git/config"));
    }

    #[test]
    fn settings_of_its_own_repository_that_start_nothing_are_anybodys_to_change() {
        let root = tempfile::tempdir().unwrap();
        let config = root.path().join(".git/config");
        repository(&root.path().join(".git"));
        let began = fs::read_to_string(&config).unwrap();
        let before = Unasked::take(root.path());
        let changed = |more: &str, writers| {
            fs::write(&config, format!("{began}{more}")).unwrap();
            before.changed(root.path(), writers)
        };

        let named = Some(Planted::Changed(".git/config".into()));
        for harmless in [
            "[user]\n\temail = zoe@example.com\n",
            "[remote \"o\"]\n\turl = ../o\n\tfetch = +refs/heads/*:refs/remotes/o/*\n",
            "[branch \"main\"]\n\tremote = o\n\tmerge = refs/heads/main\n",
        ] {
            assert_eq!(changed(harmless, Writers::Programs), None, "{harmless}");
        }
        for evil in [
            "[core]\n\tfsmonitor = ./evil\n",
            "[core]\n\thooksPath = ./evil\n",
            "[core]\n\tsshCommand = ./evil\n",
            "[filter \"x\"]\n\tclean = ./evil\n",
            "[alias]\n\tst = !./evil\n",
            "[include]\n\tpath = ./evil\n",
            "[remote \"o\"]\n\tuploadpack = ./evil\n",
            "[gpg]\n\tprogram = ./evil\n",
        ] {
            assert_eq!(changed(evil, Writers::People), named, "{evil}");
        }
        // Git runs an editor for whoever asks for one, which is whoever chose it where programs cannot.
        let editor = "[core]\n\teditor = vim\n";
        assert_eq!(changed(editor, Writers::People), None);
        assert_eq!(changed(editor, Writers::Programs), named);
        fs::remove_file(&config).unwrap();
        assert_eq!(before.changed(root.path(), Writers::Programs), None);
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
        let harmless = before.changed(root.path(), Writers::Programs);
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
            named.push(before.changed(root.path(), Writers::Programs));
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
        assert_eq!(named, wanted.map(|path| Some(Planted::Changed(path.into()))));
    }

    #[test]
    fn a_repository_that_is_new_at_the_top_is_held_to_the_same() {
        let root = tempfile::tempdir().unwrap();
        let before = Unasked::take(root.path());

        repository(&root.path().join(".git"));
        let made = before.changed(root.path(), Writers::Programs);
        hook(&root.path().join(".git/hooks/pre-commit"));
        let hooked = before.changed(root.path(), Writers::Programs);

        let named = Planted::Changed(".git/hooks/pre-commit".into());
        assert_eq!((made, hooked), (None, Some(named)));
    }

    #[test]
    fn a_repository_that_is_new_is_whose_doing_it_was() {
        let root = tempfile::tempdir().unwrap();
        let before = Unasked::take(root.path());

        fs::create_dir(root.path().join(".git")).unwrap();
        fs::write(root.path().join(".git/config"), "").unwrap();

        assert_eq!(before.changed(root.path(), Writers::Programs), None);
    }

    /// What git itself says of a folder: the setting that it would go by there.
    fn fsmonitor(folder: &Path) -> String {
        let git = std::process::Command::new("git")
            .args(["config", "core.fsmonitor"])
            .current_dir(folder)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", folder)
            .output()
            .unwrap();
        String::from_utf8(git.stdout).unwrap()
    }

    #[test]
    fn a_repository_is_one_by_what_git_goes_by_and_not_by_how_it_looks() {
        const EVIL: &str = "[core]\n\tfsmonitor = ./evil\n";
        let shared = |root: &Path, name: &str| {
            let shared = root.join(name);
            fs::create_dir_all(shared.join("objects")).unwrap();
            fs::create_dir_all(shared.join("refs")).unwrap();
            fs::write(shared.join("config"), EVIL).unwrap();
        };
        let whole = |git: &Path| {
            repository(git);
            fs::write(git.join("config"), EVIL).unwrap();
        };
        type Plant<'a> = (&'a str, &'a dyn Fn(&Path));
        let plants: [Plant<'_>; 5] = [
            ("b", &|root| {
                fs::create_dir_all(root.join("b/.git")).unwrap();
                fs::write(root.join("b/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
                fs::write(root.join("b/.git/commondir"), "../../y\n").unwrap();
                shared(root, "y");
                fs::write(root.join("y/commondir"), "junk").unwrap();
            }),
            ("b", &|root| {
                fs::create_dir_all(root.join("b/.git")).unwrap();
                fs::write(root.join("b/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
                fs::write(root.join("b/.git/commondir"), "../../y ").unwrap();
                shared(root, "y ");
            }),
            ("b", &|root| {
                fs::create_dir(root.join("b")).unwrap();
                whole(&root.join("b/r"));
                fs::write(root.join("b/.git"), format!("gitdir: r{}", "\n".repeat(70_000)))
                    .unwrap();
            }),
            ("b", &|root| {
                fs::create_dir(root.join("b")).unwrap();
                whole(&root.join("b/r "));
                fs::write(root.join("b/named"), "gitdir: r \n").unwrap();
                std::os::unix::fs::symlink("named", root.join("b/.git")).unwrap();
            }),
            ("b", &|root| {
                fs::create_dir(root.join("b")).unwrap();
                fs::write(root.join("b/HEAD"), "ref: refs/heads/main\n").unwrap();
                fs::write(root.join("b/commondir"), "../y").unwrap();
                shared(root, "y");
            }),
        ];

        for (number, (folder, plant)) in plants.iter().enumerate() {
            let root = tempfile::tempdir().unwrap();
            let before = Unasked::take(root.path());
            plant(root.path());

            let found = before.changed(root.path(), Writers::Programs);

            assert_eq!(
                fsmonitor(&root.path().join(folder)),
                "./evil\n",
                "{number} is no repository"
            );
            assert!(
                matches!(&found, Some(Planted::Changed(path)) if path.ends_with("config")),
                "{number}: {found:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_taken_for_harmless() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("a")).unwrap();
        let before = Unasked::take(root.path());
        let unseen = |planted: Option<Planted>| match planted {
            Some(Planted::Unseen(path, _)) => path.display().to_string(),
            other => format!("{other:?}"),
        };

        let named = root.path().join("a/.git");
        fs::write(&named, format!("gitdir: r{}", "\n".repeat(2 << 20))).unwrap();
        let long = unseen(before.changed(root.path(), Writers::Programs));
        fs::remove_file(&named).unwrap();
        repository(&named);
        hook(&named.join("hooks/pre-commit"));
        let known = Unasked::take(root.path());
        let grown = fs::File::options().write(true).open(named.join("hooks/pre-commit")).unwrap();
        grown.set_len(1 << 40).unwrap();
        let large = known.changed(root.path(), Writers::Programs);
        fs::remove_dir_all(&named).unwrap();
        let deep = root.path().join("a");
        let crowded = Unasked { entries: 0, ..before };
        let few = Unasked::within(&deep, 0);
        fs::write(deep.join("x"), "").unwrap();
        let many = Unasked::within(&deep, 0).unseen;

        assert_eq!(long, "a/.git");
        assert!(
            matches!(&large, Some(Planted::Changed(path)) if path.ends_with("pre-commit")),
            "{large:?}"
        );
        assert_eq!((few.unseen, crowded.changed(root.path(), Writers::Programs)), (None, None));
        assert!(many.unwrap().1.starts_with("500000 files"));
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_named() {
        let root = tempfile::tempdir().unwrap();
        let before = Unasked::take(root.path());
        // Longer than any path that the system takes, which stops whoever may read everything as well.
        let mut at = fs::File::open(root.path()).unwrap();
        let name = "d".repeat(255);
        for _ in 0..17 {
            rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
            at = rustix::fs::openat(&at, &name, flags, rustix::fs::Mode::empty()).unwrap().into();
        }

        let found = before.changed(root.path(), Writers::Programs);

        assert!(matches!(found, Some(Planted::Unseen(..))), "{found:?}");
    }
}
