//! What git and its like leave out: the files that say so, folder by folder, read and matched by the `ignore` crate.
//!
//! Which of them decides is what its own walk has: `.ignore` before `.gitignore` before `info/exclude`, and of each the one
//! that is nearest. That walk is one thread where it keeps an order, and looks for these files in every folder anew.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use formwork_write_safety::{Kind, Names};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// The names of the files that are read.
const IGNORE: &str = ".ignore";
const GIT_IGNORE: &str = ".gitignore";
const GIT: &str = ".git";

/// How much of a file that names a folder of git is read.
const MOST_OF_A_LINE: u64 = 16 << 10;

/// What is left out of some folder.
#[derive(Clone, Default)]
pub(super) struct Rules {
    nearest: Option<Arc<Level>>,
    /// Whether none but git's own folder is asked.
    is_held_up: bool,
}

/// What the files of one folder say. A folder without such files has none.
struct Level {
    ignore: Gitignore,
    git_ignore: Gitignore,
    exclude: Gitignore,
    above: Option<Arc<Level>>,
}

/// Which of the files a folder may have.
#[derive(Clone, Copy)]
struct Has {
    ignore: bool,
    git_ignore: bool,
    git: bool,
}

impl Rules {
    /// Reads what the folders above one say of it.
    pub(super) fn above(folder: &Path) -> Self {
        // A pipe would wait for whoever writes to it, so then nothing that stands in folders is read.
        if folder.ancestors().any(holds_up) {
            return Self { nearest: None, is_held_up: true };
        }
        let mut rules = Self::default();
        let above: Vec<&Path> = folder.ancestors().skip(1).collect();
        for folder in above.into_iter().rev() {
            rules = rules.with(folder, Has { ignore: true, git_ignore: true, git: true });
        }
        rules
    }

    /// Adds what a folder with these names says. None where it would hold whoever reads it up.
    pub(super) fn within(&self, folder: &Path, names: &Names) -> Option<Self> {
        let mut has = Has { ignore: false, git_ignore: false, git: false };
        for (name, kind) in names.iter() {
            let found = match name.to_str() {
                Some(IGNORE) => &mut has.ignore,
                Some(GIT_IGNORE) => &mut has.git_ignore,
                Some(GIT) => {
                    has.git = true;
                    continue;
                }
                _ => continue,
            };
            *found = true;
            if matches!(kind, Kind::Link | Kind::Special) && is_special(&folder.join(name)) {
                return None;
            }
        }
        Some(self.with(folder, has))
    }

    /// The same, where a walk begins: there nothing holds up that [`above`](Self::above) has not seen.
    pub(super) fn at_the_start(&self, folder: &Path, names: &Names) -> Self {
        self.within(folder, names).unwrap_or_else(|| self.clone())
    }

    fn with(&self, folder: &Path, has: Has) -> Self {
        let read = |is_there: bool, file: &str| match is_there && !self.is_held_up {
            true => matcher(folder, &folder.join(file)),
            false => Gitignore::empty(),
        };
        let ignore = read(has.ignore, IGNORE);
        let git_ignore = read(has.git_ignore, GIT_IGNORE);
        let exclude = match has.git.then(|| git_folder(folder)).flatten() {
            Some(git) => matcher(folder, &git.join("info/exclude")),
            None => Gitignore::empty(),
        };
        if ignore.is_empty() && git_ignore.is_empty() && exclude.is_empty() {
            return self.clone();
        }
        let level = Level { ignore, git_ignore, exclude, above: self.nearest.clone() };
        Self { nearest: Some(Arc::new(level)), ..self.clone() }
    }

    /// Says whether a file or folder is left out.
    pub(super) fn leave_out(&self, path: &Path, is_folder: bool) -> bool {
        let (mut git_ignore, mut exclude) = (Match::None, Match::None);
        let mut next = self.nearest.as_deref();
        while let Some(level) = next {
            let ignore = level.ignore.matched(path, is_folder);
            if !ignore.is_none() {
                return ignore.is_ignore();
            }
            if git_ignore.is_none() {
                git_ignore = level.git_ignore.matched(path, is_folder);
            }
            if exclude.is_none() {
                exclude = level.exclude.matched(path, is_folder);
            }
            next = level.above.as_deref();
        }
        git_ignore.or(exclude).is_ignore()
    }
}

/// Says whether in a folder, a pipe or the like stands in the place of what is read to know what is left out.
fn holds_up(folder: &Path) -> bool {
    [GIT_IGNORE, IGNORE].iter().any(|name| is_special(&folder.join(name)))
}

fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Reads a file that says what is left out below `folder`. What cannot be read or understood says nothing.
fn matcher(folder: &Path, file: &Path) -> Gitignore {
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Gitignore::empty();
    }
    let mut builder = GitignoreBuilder::new(folder);
    let _ = builder.add(file);
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Finds git's own folder of what is checked out in `folder`, which for a worktree is elsewhere.
fn git_folder(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(GIT);
    if !git.metadata().ok()?.is_file() {
        return Some(git);
    }
    let real = PathBuf::from(first_line(&git)?.strip_prefix("gitdir: ")?);
    let common = first_line(&real.join("commondir"))?;
    Some(if common.starts_with('.') { real.join(common) } else { PathBuf::from(common) })
}

fn first_line(file: &Path) -> Option<String> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    BufReader::new(File::open(file).ok()?.take(MOST_OF_A_LINE)).lines().next()?.ok()
}
