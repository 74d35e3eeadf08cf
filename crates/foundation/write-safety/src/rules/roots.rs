//! What may be written, as folders and files that a program can be held to.
//!
//! A program cannot be asked about each path, and the kernel knows no globs. What is granted to it is less than the
//! rules allow where they cannot be said in folders: a new file may come to be where a glob covers all that is below its
//! folder, and what a glob names one by one may be changed where it is there. It is more in one way: of what is
//! protected, only what is there can be kept from writing, so that a program can make what is not there yet.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    ops::Bound,
    path::{Path, PathBuf},
};

use super::{Globs, WriteRules, is_git};
use crate::path::RelPath;

/// How many entries of a tree are looked at, which takes some half a second. A folder that is not listed to its end is
/// not granted, nor is anything below it.
const MAX_ENTRIES: usize = 500_000;

/// How many parts are granted one by one, each of which the kernel keeps a rule for.
const MAX_PARTS: usize = 100_000;

/// How many parts are kept from writing below folders that are granted, each by a mount: a hundredth of what the kernel
/// has by default. Beyond, folders are granted by their parts.
const MAX_SEALED: usize = 1_000;

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
    /// Returns what these rules let a program write below `root`, a folder without links on its way, and below those
    /// of its folders that are named in `besides`. What is protected and there is never granted, wherever it lies.
    pub fn writable(&self, root: &Path, sealing: Sealing, besides: &[&str]) -> Writable {
        self.writable_within(root, sealing, besides, MAX_ENTRIES)
    }

    /// Says whether all that could come to be below the root may be written, but for what is protected.
    pub fn cover_all(&self) -> bool {
        self.layers.iter().all(|layer| layer.write.covers(&RelPath::root()))
    }

    fn writable_within(
        &self,
        root: &Path,
        mut sealing: Sealing,
        besides: &[&str],
        left: usize,
    ) -> Writable {
        let mut found = Found { left, ..Found::default() };
        self.look(root, &RelPath::root(), besides, &mut found);
        if found.sealed.len() > MAX_SEALED {
            sealing = Sealing::Missing;
        }
        let mut walk =
            Walk { rules: self, root, found: &found, sealing, besides, left: MAX_ENTRIES };
        let mut roots = Vec::new();
        walk.grant(&RelPath::root(), &mut roots);
        let is_below = |path: &PathBuf| roots.iter().any(|root| path.starts_with(root));
        let sealed = match sealing {
            Sealing::Had => found.sealed.iter().filter(|path| is_below(path)).cloned().collect(),
            Sealing::Missing => Vec::new(),
        };
        Writable { roots, sealed }
    }

    /// Finds what is protected and there: every folder of git, and the outermost of what globs name.
    fn look(&self, root: &Path, folder: &RelPath, besides: &[&str], found: &mut Found) {
        let place = root.join(folder.as_path());
        if folder.is_deepest() {
            found.unseen.insert(place);
            return;
        }
        let mut entries = match entries(&place, found.left) {
            Ok(Some(entries)) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            // What lies in there cannot be told, and need not be written by whoever cannot look.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !folder.is_root() => {
                found.sealed.insert(place);
                return;
            }
            cut => {
                if cut.is_ok() {
                    found.left = 0;
                }
                found.unseen.insert(place);
                return;
            }
        };
        found.left = found.left.saturating_sub(entries.len());
        if folder.is_root() {
            // They may be huge, and what is left out beyond the limit should not be what people wrote.
            entries.sort_by_key(|(name, _)| besides.iter().any(|besides| name == besides));
        }
        for (name, kind) in entries {
            let path = folder.join(&name);
            if is_git(&name) || self.layers.iter().any(|layer| layer.keeps(&path)) {
                // A link's target would be sealed in its place, and the link could be replaced.
                let kept = if kind.is_symlink() { &mut found.links } else { &mut found.sealed };
                kept.insert(root.join(path.as_path()));
            } else if kind.is_dir() {
                self.look(root, &path, besides, found);
            }
        }
    }
}

/// What there is in a tree that must not be written.
#[derive(Default)]
struct Found {
    /// Can be sealed.
    sealed: BTreeSet<PathBuf>,
    /// Protected links, which cannot: the folder that holds one is granted by its parts.
    links: BTreeSet<PathBuf>,
    /// Folders of which it is not known what lies in them.
    unseen: BTreeSet<PathBuf>,
    /// How many more entries are looked at.
    left: usize,
}

impl Found {
    /// Says whether a folder can be granted with all that is below it.
    fn lets_whole(&self, folder: &Path, sealing: Sealing) -> bool {
        // Paths are ordered by their names, so that what is below a folder comes right behind it.
        let is_free = |paths: &BTreeSet<PathBuf>| {
            let next = paths.range::<Path, _>((Bound::Included(folder), Bound::Unbounded)).next();
            next.is_none_or(|path| !path.starts_with(folder))
        };
        let can_seal = sealing == Sealing::Had;
        is_free(&self.links) && is_free(&self.unseen) && (can_seal || is_free(&self.sealed))
    }
}

struct Walk<'a> {
    rules: &'a WriteRules,
    root: &'a Path,
    found: &'a Found,
    sealing: Sealing,
    besides: &'a [&'a str],
    left: usize,
}

impl Walk<'_> {
    fn grant(&mut self, folder: &RelPath, roots: &mut Vec<PathBuf>) {
        let place = self.root.join(folder.as_path());
        if self.found.unseen.contains(&place) {
            return;
        }
        let layers = &self.rules.layers;
        let top = folder.names().next();
        let is_besides = top.is_some_and(|top| self.besides.iter().any(|name| top == *name));
        let is_covered = is_besides || layers.iter().all(|layer| layer.write.covers(folder));
        if is_covered && self.found.lets_whole(&place, self.sealing) {
            roots.push(place);
            return;
        }
        let is_on_the_way = folder.is_root() && !self.besides.is_empty();
        let reaches = || layers.iter().all(|layer| layer.write.reaches(folder));
        if !is_besides && !is_on_the_way && !reaches() {
            return;
        }
        for (name, kind) in entries(&place, self.left).ok().flatten().unwrap_or_default() {
            self.left = self.left.saturating_sub(1);
            let path = folder.join(&name);
            let place = self.root.join(path.as_path());
            if self.found.sealed.contains(&place) || is_git(&name) || roots.len() >= MAX_PARTS {
                continue;
            }
            let check = if is_besides { WriteRules::check_protected } else { WriteRules::check };
            if kind.is_dir() {
                self.grant(&path, roots);
            } else if kind.is_file() && check(self.rules, &path).is_ok() {
                roots.push(place);
            }
        }
    }
}

/// Lists a folder by name; returns nothing where it has more than `most` entries.
///
/// # Errors
/// When it cannot be listed to its end.
fn entries(folder: &Path, most: usize) -> io::Result<Option<Vec<(OsString, fs::FileType)>>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        if entries.len() >= most {
            return Ok(None);
        }
        let entry = entry?;
        entries.push((entry.file_name(), entry.file_type()?));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Some(entries))
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
    pub(super) fn reaches(&self, folder: &RelPath) -> bool {
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
        let writable = rules.writable(&root, sealing, &[]);
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
        assert!(rules(&["**"], &["tests"]).cover_all() && !both.cover_all());
    }

    #[test]
    fn a_glob_over_odd_names_covers_no_folder() {
        let odd = rules(&["src/[!a]*", "??????"], &[]);

        assert_eq!(granted(&odd, Sealing::Had).0, ["src/gen/b.rs"]);
    }

    /// Makes empty files below a new folder, and a link where a path ends in ` -> TARGET`.
    fn made(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for file in files {
            let (file, target) =
                file.split_once(" -> ").map_or((*file, None), |(a, b)| (a, Some(b)));
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            match target {
                Some(target) => std::os::unix::fs::symlink(target, root.join(file)).unwrap(),
                None => fs::write(root.join(file), "").unwrap(),
            }
        }
        (dir, root)
    }

    fn below(root: &Path, paths: &[PathBuf]) -> Vec<String> {
        paths.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn every_folder_of_git_is_sealed_however_deep() {
        let (_dir, root) = made(&["src/a.rs", "vendor/x/.git/hooks/h", "vendor/x/y", "sub/.git"]);
        let everything = WriteRules::everything();

        let had = everything.writable(&root, Sealing::Had, &[]);
        assert_eq!(below(&root, &had.roots), [""]);
        assert_eq!(below(&root, &had.sealed), ["sub/.git", "vendor/x/.git"]);
        let missing = everything.writable(&root, Sealing::Missing, &[]);
        assert_eq!(below(&root, &missing.roots), ["src", "vendor/x/y"]);
    }

    #[test]
    fn a_folder_that_is_not_looked_through_to_its_end_is_not_granted() {
        let (_dir, root) = made(&["a/one", "b/one", "b/two", "b/three", "c/deep/Cargo.lock", "d"]);
        let rules = rules(&["**"], &["**/Cargo.lock"]);

        // The top has four entries and `a` has one.
        let writable = rules.writable_within(&root, Sealing::Had, &[], 7);
        assert_eq!(below(&root, &writable.roots), ["a", "d"]);
        let writable = rules.writable_within(&root, Sealing::Had, &["a"], 8);
        assert_eq!(below(&root, &writable.roots), ["b", "d"]);
        let writable = rules.writable_within(&root, Sealing::Had, &[], 3);
        assert_eq!(below(&root, &writable.roots), [] as [&str; 0]);
        let writable = rules.writable_within(&root, Sealing::Had, &[], 10);
        assert_eq!(below(&root, &writable.roots), [""]);
        assert_eq!(below(&root, &writable.sealed), ["c/deep/Cargo.lock"]);
    }

    #[test]
    fn what_is_granted_besides_the_rules_is_sealed_as_well() {
        let (_dir, root) = made(&[
            "src/a",
            "target/kept/x",
            "target/new",
            "node_modules/p/.git/config",
            "node_modules/p/index.js",
            ".tox/x",
        ]);
        let rules = rules(&["src"], &["target/kept", ".tox"]);
        let besides = ["target", "node_modules", ".tox"];

        let had = rules.writable(&root, Sealing::Had, &besides);
        assert_eq!(below(&root, &had.roots), ["node_modules", "src", "target"]);
        assert_eq!(below(&root, &had.sealed), ["node_modules/p/.git", "target/kept"]);
        let missing = rules.writable(&root, Sealing::Missing, &besides);
        assert_eq!(below(&root, &missing.roots), ["node_modules/p/index.js", "src", "target/new"]);
    }

    #[test]
    fn a_protected_link_keeps_its_folder_from_being_granted_whole() {
        let (_dir, root) = made(&[".git -> elsewhere", "a/lock -> ../b/x", "a/file", "b/x"]);

        let writable = rules(&["**"], &["a/lock"]).writable(&root, Sealing::Had, &[]);

        assert_eq!(below(&root, &writable.roots), ["a/file", "b"]);
    }

    #[test]
    fn a_tree_with_more_to_seal_than_is_mounted_is_granted_by_its_parts() {
        let (_dir, root) = made(&["src/a"]);
        fs::create_dir(root.join("locks")).unwrap();
        for number in 0..=MAX_SEALED {
            fs::write(root.join(format!("locks/{number}.lock")), "").unwrap();
        }

        let writable = rules(&["**"], &["**/*.lock"]).writable(&root, Sealing::Had, &[]);

        assert_eq!(below(&root, &writable.roots), ["src"]);
        assert_eq!(writable.sealed, [] as [PathBuf; 0]);
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_is_protected_and_there_can_be_written(
            files in proptest::collection::btree_set("[ab](/[ab]|/[.]git){0,3}/[xy]", 1..8),
            protected in proptest::collection::vec("([ab]|[*]{1,2})/?([abxy]|[*])?", 0..3),
            (can_seal, left) in (proptest::bool::ANY, 0_usize..30),
        ) {
            let (_dir, root) = made(&files.iter().map(String::as_str).collect::<Vec<_>>());
            let Ok(rules) = WriteRules::parse(&["a".to_owned()], &protected) else { return Ok(()) };
            let sealing = if can_seal { Sealing::Had } else { Sealing::Missing };

            let writable = rules.writable_within(&root, sealing, &["b"], left);

            for file in &files {
                let place = root.join(file);
                let is_below = |paths: &[PathBuf]| paths.iter().any(|it| place.starts_with(it));
                if is_below(&writable.roots) && !is_below(&writable.sealed) {
                    let path = RelPath::parse(file).unwrap();
                    proptest::prop_assert!(rules.check_protected(&path).is_ok(), "{}", file);
                }
            }
        }
    }
}
