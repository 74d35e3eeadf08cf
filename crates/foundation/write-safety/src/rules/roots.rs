//! What may be written, as folders and files that a program can be held to.
//!
//! A program cannot be asked about each path, and the kernel knows no globs. What is granted to it is therefore
//! never more than the rules allow, and less where they cannot be said in folders: a new file may come to be where a
//! glob covers all that is below its folder, and what a glob names one by one may be changed where it is there.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use super::{Globs, WriteRules, is_git};
use crate::path::RelPath;

/// How many entries of a tree are looked at; what lies beyond is not granted.
const MAX_ENTRIES: usize = 100_000;

/// Folders and files below a root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writable {
    /// What may be written with all that is below it, as far as it is not sealed.
    pub roots: Vec<PathBuf>,
    /// What may not be written although it lies below one of the roots.
    pub sealed: Vec<PathBuf>,
}

/// Whether a part of a writable folder can be kept from writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealing {
    /// It can.
    Had,
    /// It cannot: such a folder is granted by its parts, and nothing new can come to be right within it.
    Missing,
}

impl WriteRules {
    /// Returns what these rules let a program write below `root`, a folder without links on its way.
    pub fn writable(&self, root: &Path, sealing: Sealing) -> Writable {
        let (mut sealed, mut left) = (Vec::new(), MAX_ENTRIES);
        self.seal(root, &RelPath::root(), &mut sealed, &mut left);
        let mut walk = Walk { rules: self, root, sealed: &sealed, sealing, left: MAX_ENTRIES };
        let mut roots = Vec::new();
        walk.grant(&RelPath::root(), &mut roots);
        if sealing == Sealing::Missing {
            sealed.clear();
        }
        sealed.retain(|path: &PathBuf| roots.iter().any(|root| path.starts_with(root)));
        Writable { roots, sealed }
    }

    /// Finds what is protected and there: git's own folder at the top, and the outermost of what globs name.
    fn seal(&self, root: &Path, folder: &RelPath, sealed: &mut Vec<PathBuf>, left: &mut usize) {
        let protects = || self.layers.iter().any(|layer| layer.protected.reaches(folder));
        if !folder.is_root() && !protects() {
            return;
        }
        for (name, kind) in entries(root, folder) {
            let Some(next) = left.checked_sub(1) else { return };
            *left = next;
            let path = folder.join(&name);
            let is_own = folder.is_root() && is_git(&name);
            let is_named = |it: &Globs| it.matching(&path).is_some();
            if is_own || self.layers.iter().any(|layer| is_named(&layer.protected)) {
                // A link is written where it leads, and that is judged by itself.
                if !kind.is_symlink() {
                    sealed.push(root.join(path.as_path()));
                }
            } else if kind.is_dir() {
                self.seal(root, &path, sealed, left);
            }
        }
    }
}

struct Walk<'a> {
    rules: &'a WriteRules,
    root: &'a Path,
    sealed: &'a [PathBuf],
    sealing: Sealing,
    left: usize,
}

impl Walk<'_> {
    fn grant(&mut self, folder: &RelPath, roots: &mut Vec<PathBuf>) {
        let place = self.root.join(folder.as_path());
        let layers = &self.rules.layers;
        let is_covered = layers.iter().all(|layer| layer.write.covers(folder));
        let is_whole = self.sealing == Sealing::Had
            || !self.sealed.iter().any(|sealed| sealed.starts_with(&place));
        if is_covered && is_whole {
            roots.push(place);
            return;
        }
        if !layers.iter().all(|layer| layer.write.reaches(folder)) {
            return;
        }
        for (name, kind) in entries(self.root, folder) {
            let Some(left) = self.left.checked_sub(1) else { return };
            self.left = left;
            let path = folder.join(&name);
            let place = self.root.join(path.as_path());
            if self.sealed.contains(&place) || is_git(&name) {
                continue;
            }
            if kind.is_dir() {
                self.grant(&path, roots);
            } else if kind.is_file() && self.rules.check(&path).is_ok() {
                roots.push(place);
            }
        }
    }
}

fn entries(root: &Path, folder: &RelPath) -> Vec<(OsString, fs::FileType)> {
    let found = fs::read_dir(root.join(folder.as_path())).into_iter().flatten().flatten();
    let mut entries: Vec<_> =
        found.filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?))).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    entries
}

/// Says whether a part of a glob stands for more than itself.
fn is_meta(part: &str) -> bool {
    part.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

impl Globs {
    /// Says whether all that could come to be below a folder is named, whatever it is called.
    fn covers(&self, folder: &RelPath) -> bool {
        self.written.iter().any(|written| {
            let glob = written.strip_prefix("./").unwrap_or(written).trim_end_matches('/');
            let whole = glob.strip_suffix("/**").or_else(|| glob.strip_suffix("/*"));
            match whole.unwrap_or(glob) {
                "" | "." | "**" | "*" => true,
                named => !is_meta(named) && folder.as_path().starts_with(named),
            }
        })
    }

    /// Says whether something below a folder may be named.
    fn reaches(&self, folder: &RelPath) -> bool {
        self.written.iter().any(|written| {
            let glob = written.strip_prefix("./").unwrap_or(written);
            let literal: PathBuf = glob.split('/').take_while(|part| !is_meta(part)).collect();
            folder.as_path().starts_with(&literal) || literal.starts_with(folder.as_path())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for file in
            ["src/a.rs", "src/gen/b.rs", "tests/t.rs", "docs/x.md", "README.md", ".git/HEAD"]
        {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        (dir, root)
    }

    fn granted(rules: &WriteRules, sealing: Sealing) -> (Vec<String>, Vec<String>) {
        let (_dir, root) = tree();
        let writable = rules.writable(&root, sealing);
        let below = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
        (writable.roots.iter().map(below).collect(), writable.sealed.iter().map(below).collect())
    }

    fn rules(write: &[&str], protected: &[&str]) -> WriteRules {
        WriteRules::parse(write, protected).unwrap()
    }

    #[test]
    fn everything_is_the_root_without_gits_own_folder() {
        let everything = WriteRules::everything();

        assert_eq!(granted(&everything, Sealing::Had), (vec!["".into()], vec![".git".into()]));
        let parts: Vec<String> = ["README.md", "docs", "src", "tests"].map(str::to_owned).into();
        assert_eq!(granted(&everything, Sealing::Missing), (parts, vec![]));
    }

    #[test]
    fn protected_paths_are_sealed_and_globs_grant_what_is_there() {
        let scope = rules(&["src/**", "*.md", "docs/*"], &["src/gen", "*.lock"]);

        let (roots, sealed) = granted(&scope, Sealing::Had);
        assert_eq!(roots, ["README.md", "docs", "src"]);
        assert_eq!(sealed, ["src/gen"]);
        let (roots, _) = granted(&scope, Sealing::Missing);
        assert_eq!(roots, ["README.md", "docs", "src/a.rs"]);
    }

    #[test]
    fn narrower_rules_grant_what_all_of_them_do() {
        let both = rules(&["src", "tests"], &[]).narrowed(&rules(&["**"], &["tests/**"]));

        assert_eq!(granted(&both, Sealing::Had), (vec!["src".into()], vec![]));
        assert_eq!(granted(&WriteRules::nothing(), Sealing::Had), (vec![], vec![]));
    }

    #[test]
    fn a_glob_over_odd_names_covers_no_folder() {
        let odd = rules(&["src/[!a]*", "??????"], &[]);

        assert_eq!(granted(&odd, Sealing::Had).0, ["src/gen/b.rs"]);
    }
}
