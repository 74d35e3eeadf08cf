//! The files that a check holds to what they were when the task began.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use formwork_protocols::{
    BlobHash,
    check::{CheckKind, CheckSpec, Evidence, UnchangedCheck},
    text,
};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use crate::{Error, dependencies, scripts, verifier::Decision};

/// How many differing files the evidence names.
const NAMED_FILES: usize = 40;

/// The content of some files, by hash, at one point in time.
///
/// Taken when a task begins and kept with it: a value that survives a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// The patterns that were looked for.
    patterns: BTreeSet<String>,
    /// The files that matched, by their path from the root of the workspace.
    files: BTreeMap<String, BlobHash>,
    /// What the manifests depended on, where a check compares that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dependencies: Option<BTreeSet<String>>,
    /// What the scripts of the project's package were, where a check runs one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scripts: Option<BTreeMap<String, String>>,
}

impl Baseline {
    /// Hashes the files below `root` that the checks hold to what they are now, and reads what the manifests
    /// depend on where a check compares that.
    ///
    /// A pattern that names a folder covers what is below it; `*` does not cross a `/`, `**` does. A
    /// symbolic link counts as where it leads to and is not followed; git's own folder is left out.
    ///
    /// # Errors
    /// [`Error::Pattern`] names a pattern that is none, [`Error::Read`] what cannot be read.
    pub fn take(root: &Path, checks: &[CheckSpec]) -> Result<Self, Error> {
        let patterns = checks.iter().filter_map(|check| match &check.kind {
            CheckKind::Unchanged(UnchangedCheck { paths }) => Some(paths),
            _ => None,
        });
        let patterns: BTreeSet<_> = patterns.flatten().cloned().collect();
        let files = if patterns.is_empty() { BTreeMap::new() } else { hash(root, &patterns)? };
        let compares = checks.iter().any(|check| check.kind == CheckKind::NoNewDependencies);
        let dependencies = if compares { Some(dependencies::read(root)?) } else { None };
        let runs = checks.iter().any(|check| scripts::script_of(&check.kind).is_some());
        let scripts = runs.then(|| scripts::read(root));
        Ok(Self { patterns, files, dependencies, scripts })
    }

    /// Tells what of the script that a check runs is other than it was; nothing where nobody looked.
    pub(crate) fn changed_script(&self, root: &Path, check: &CheckKind) -> Option<String> {
        let (name, before) = (scripts::script_of(check)?, self.scripts.as_ref()?);
        scripts::changed(before, &scripts::read(root), name)
    }

    /// Judges whether the workspace depends on nothing that it did not depend on.
    pub(crate) fn judge_dependencies(&self, root: &Path) -> Decision {
        dependencies::judge(root, self.dependencies.as_ref())
    }

    /// Judges whether the files that match are what they were.
    pub(crate) fn judge(&self, root: &Path, check: &UnchangedCheck) -> Decision {
        match self.compare(root, &check.paths) {
            Ok(decision) => decision,
            Err(Error::Read { path, source }) => {
                Decision::fail(format!("cannot read {}: {source}", path.display()))
            }
            Err(error) => Decision::fail(error.to_string()),
        }
    }

    fn compare(&self, root: &Path, paths: &[String]) -> Result<Decision, Error> {
        if let Some(missing) = paths.iter().find(|pattern| !self.patterns.contains(*pattern)) {
            let reason = format!("no baseline of {missing} was taken when the task began");
            return Ok(Decision::fail(reason));
        }
        let patterns: BTreeSet<_> = paths.iter().cloned().collect();
        let matches = compile(&patterns)?;
        let now = hash(root, &patterns)?;
        let then = |path: &String| self.files.get(path);
        let before: BTreeSet<_> =
            self.files.keys().filter(|path| matches.is_match(path.as_str())).collect();

        let mut differs = Vec::new();
        for path in before.iter().copied().chain(now.keys()).collect::<BTreeSet<_>>() {
            match (then(path), now.get(path)) {
                (Some(then), Some(now)) if then == now => {}
                (Some(_), Some(_)) => differs.push(format!("changed {path}")),
                (Some(_), None) => differs.push(format!("deleted {path}")),
                (None, _) => differs.push(format!("new {path}")),
            }
        }
        let Some(first) = differs.first() else {
            let reason = match before.len() {
                0 => format!("no file matches {}, so none was changed", paths.join(", ")),
                1 => "1 file is unchanged".to_owned(),
                files => format!("{files} files are unchanged"),
            };
            return Ok(Decision::pass(reason));
        };
        let reason = match differs.len() {
            1 => format!("{first}, which had to stay as it was"),
            count => format!("{first} and {} more, which had to stay as they were", count - 1),
        };
        let mut excerpt =
            differs.iter().take(NAMED_FILES).fold(String::new(), |all, one| all + one + "\n");
        if let Some(more) = differs.len().checked_sub(NAMED_FILES).filter(|more| *more > 0) {
            excerpt.push_str(&format!("and {more} more\n"));
        }
        Ok(Decision {
            evidence: Evidence { excerpt, ..Evidence::default() },
            ..Decision::fail(reason)
        })
    }
}

/// Patterns of paths, as checks understand them: one that names a folder covers what is below it, and `*` does
/// not cross a `/`.
#[derive(Debug, Clone)]
pub struct Paths(GlobSet);

impl Paths {
    /// Reads patterns. None at all match nothing.
    ///
    /// # Errors
    /// [`Error::Pattern`] names one that is none.
    pub fn parse(patterns: &[String]) -> Result<Self, Error> {
        compile(&patterns.iter().cloned().collect()).map(Self)
    }

    /// Tells whether one of them matches a path from the root of the workspace.
    pub fn contains(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

/// Compiles patterns: each as it is, and as a folder with what is below it.
pub(crate) fn compile(patterns: &BTreeSet<String>) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let error = |reason: globset::Error| Error::Pattern {
            pattern: pattern.clone(),
            reason: reason.kind().to_string(),
        };
        if text::leads_out(pattern) {
            let reason = "it leads out of the workspace: globs begin at its root".to_owned();
            return Err(Error::Pattern { pattern: pattern.clone(), reason });
        }
        let trimmed = trim(pattern);
        for glob in [trimmed.to_owned(), format!("{trimmed}/**")] {
            let glob = GlobBuilder::new(&glob).literal_separator(true).build().map_err(error)?;
            set.add(glob);
        }
    }
    let all = || patterns.iter().cloned().collect::<Vec<_>>().join(", ");
    set.build()
        .map_err(|reason| Error::Pattern { pattern: all(), reason: reason.kind().to_string() })
}

/// Returns a pattern without what adds nothing to it.
fn trim(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern).trim_end_matches('/');
    match pattern.strip_suffix("/**").unwrap_or(pattern) {
        "" | "." => "**",
        pattern => pattern,
    }
}

/// Returns the folder in which all that a pattern can match lies.
fn folder(pattern: &str) -> PathBuf {
    let literal = |part: &&str| {
        !part.contains(['*', '?', '[', '{', '\\']) && !matches!(*part, "" | "." | "..")
    };
    trim(pattern).split('/').take_while(literal).collect()
}

/// Returns where to begin to look: the folder, or the first link on the way to it, which is not
/// followed. Nothing where there is nothing.
fn begin(root: &Path, folder: &Path) -> Option<PathBuf> {
    let mut from = root.to_owned();
    for part in folder {
        from.push(part);
        if is_link(&from) {
            break;
        }
    }
    std::fs::symlink_metadata(&from).is_ok().then_some(from)
}

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// Hashes the files below `root` that match.
fn hash(root: &Path, patterns: &BTreeSet<String>) -> Result<BTreeMap<String, BlobHash>, Error> {
    let matches = compile(patterns)?;
    let mut files = BTreeMap::new();
    let begins = patterns.iter().filter_map(|pattern| begin(root, &folder(pattern)));
    for from in begins.collect::<BTreeSet<_>>() {
        let walk = ignore::WalkBuilder::new(&from)
            .standard_filters(false)
            .follow_links(false)
            .max_depth(is_link(&from).then_some(0))
            .filter_entry(|entry| entry.file_name() != ".git")
            .build();
        for entry in walk {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let reason = error.to_string();
                    let source = error.into_io_error().unwrap_or_else(|| io::Error::other(reason));
                    return Err(Error::Read { path: from, source });
                }
            };
            let Ok(path) = entry.path().strip_prefix(root) else { continue };
            if !matches.is_match(path) {
                continue;
            }
            let read = |source| Error::Read { path: entry.path().to_owned(), source };
            if let Some(hash) = hash_entry(entry.path()).map_err(read)? {
                files.insert(path.to_string_lossy().into_owned(), hash);
            }
        }
    }
    Ok(files)
}

/// Hashes a file, or where a link leads; a folder and what is neither has no content to hold.
fn hash_entry(path: &Path) -> io::Result<Option<BlobHash>> {
    let kind = std::fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        let target = std::fs::read_link(path)?;
        return Ok(Some(BlobHash::of(format!("link to {}", target.display()).as_bytes())));
    }
    if !kind.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(Some(BlobHash::of(&bytes)))
}

#[cfg(test)]
mod tests {
    use formwork_protocols::Span;

    use super::*;

    fn unchanged(paths: &[&str]) -> CheckSpec {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        CheckSpec::new(
            "unchanged",
            CheckKind::Unchanged(UnchangedCheck { paths }),
            Span::from_secs(60),
        )
    }

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn judge(baseline: &Baseline, root: &Path, paths: &[&str]) -> (bool, String, String) {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let decision = baseline.judge(root, &UnchangedCheck { paths });
        (decision.passed, decision.reason, decision.evidence.excerpt)
    }

    #[test]
    fn a_changed_a_new_and_a_deleted_file_are_each_named() {
        let root = tempfile::tempdir().unwrap();
        for path in ["tests/a.rs", "tests/deep/b.rs", "tests/c.rs", "src/lib.rs"] {
            write(root.path(), path, "before");
        }
        let baseline = Baseline::take(root.path(), &[unchanged(&["tests"])]).unwrap();
        let untouched = judge(&baseline, root.path(), &["tests"]);

        write(root.path(), "tests/a.rs", "after");
        write(root.path(), "tests/deep/d.rs", "");
        std::fs::remove_file(root.path().join("tests/c.rs")).unwrap();
        write(root.path(), "src/lib.rs", "after");

        assert_eq!(untouched, (true, "3 files are unchanged".to_owned(), String::new()));
        assert_eq!(
            judge(&baseline, root.path(), &["tests"]),
            (
                false,
                "changed tests/a.rs and 2 more, which had to stay as they were".to_owned(),
                "changed tests/a.rs\ndeleted tests/c.rs\nnew tests/deep/d.rs\n".to_owned()
            )
        );
    }

    #[test]
    fn a_file_that_becomes_a_link_to_the_same_content_is_changed() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "tests/a.rs", "same");
        write(root.path(), "src/copy.rs", "same");
        let baseline = Baseline::take(root.path(), &[unchanged(&["tests/**"])]).unwrap();

        std::fs::remove_file(root.path().join("tests/a.rs")).unwrap();
        std::os::unix::fs::symlink("../src/copy.rs", root.path().join("tests/a.rs")).unwrap();

        let (passed, reason, _) = judge(&baseline, root.path(), &["tests/**"]);
        assert!(!passed);
        assert_eq!(reason, "changed tests/a.rs, which had to stay as it was");
    }

    #[test]
    fn a_folder_that_a_link_leads_to_is_not_walked() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(outside.path(), "secret.rs", "outside");
        std::os::unix::fs::symlink(outside.path(), root.path().join("tests")).unwrap();

        let baseline = Baseline::take(root.path(), &[unchanged(&["tests"])]).unwrap();

        assert_eq!(baseline.files.keys().collect::<Vec<_>>(), ["tests"]);
    }

    #[test]
    fn a_pattern_without_a_baseline_does_not_pass() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "tests/a.rs", "");
        let baseline = Baseline::take(root.path(), &[unchanged(&["tests"])]).unwrap();

        let (passed, reason, _) = judge(&baseline, root.path(), &["tests", "ci"]);

        assert!(!passed);
        assert_eq!(reason, "no baseline of ci was taken when the task began");
    }

    #[test]
    fn a_star_does_not_cross_folders_and_the_rest_is_not_hashed() {
        let root = tempfile::tempdir().unwrap();
        for path in
            ["tests/a.rs", "tests/deep/b.rs", "tests/a.txt", ".git/tests/a.rs", "Cargo.lock"]
        {
            write(root.path(), path, "");
        }

        let files = |pattern| -> Vec<String> {
            let baseline = Baseline::take(root.path(), &[unchanged(&[pattern])]).unwrap();
            baseline.files.into_keys().collect()
        };

        assert_eq!(files("tests/*.rs"), ["tests/a.rs"]);
        assert_eq!(files("**/*.rs"), ["tests/a.rs", "tests/deep/b.rs"]);
        assert_eq!(files("./Cargo.lock"), ["Cargo.lock"]);
        assert_eq!(files("nothing/**"), Vec::<String>::new());
    }

    #[test]
    fn a_baseline_survives_its_text() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "tests/a.rs", "x");
        let baseline = Baseline::take(root.path(), &[unchanged(&["tests"])]).unwrap();

        let text = serde_json::to_string(&baseline).unwrap();

        assert_eq!(serde_json::from_str::<Baseline>(&text).unwrap(), baseline);
    }

    #[test]
    fn a_pattern_that_is_none_is_named() {
        let root = tempfile::tempdir().unwrap();

        let error = Baseline::take(root.path(), &[unchanged(&["tests/[a"])]).unwrap_err();

        assert!(
            error.to_string().starts_with("\"tests/[a\" is not a pattern of paths: "),
            "{error}"
        );
    }
}
