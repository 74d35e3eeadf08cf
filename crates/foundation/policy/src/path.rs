//! Which paths are protected.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::Error;

/// Paths that may not be changed: globs from the root of the workspace, and git's own folder always.
///
/// A glob that names a folder covers what is below it; `*` does not cross a `/`, `**` does. Letter
/// case is ignored, since some file systems ignore it too. The rule reads paths as they are written;
/// where links lead is the business of whoever opens them.
#[derive(Debug, Clone, Default)]
pub struct PathPatterns {
    written: Vec<String>,
    globs: GlobSet,
}

impl PartialEq for PathPatterns {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl PathPatterns {
    /// Parses globs.
    ///
    /// # Errors
    /// [`Error::PathPattern`] names the first that cannot be read.
    pub fn parse<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let mut written = Vec::new();
        let mut globs = GlobSetBuilder::new();
        for pattern in patterns {
            let pattern = pattern.as_ref();
            let failed = |source| Error::PathPattern { pattern: pattern.to_owned(), source };
            let glob = GlobBuilder::new(pattern.trim_end_matches('/'))
                .literal_separator(true)
                .case_insensitive(true)
                .build()
                .map_err(failed)?;
            globs.add(glob);
            written.push(pattern.to_owned());
        }
        let globs = globs
            .build()
            .map_err(|source| Error::PathPattern { pattern: written.join(" "), source })?;
        Ok(Self { written, globs })
    }

    /// Returns why `path` may not be changed, or nothing where it may.
    pub(crate) fn refuses(&self, path: &str) -> Option<String> {
        let Some(parts) = normal(path) else {
            return Some(format!("path {path:?} does not stay below the root of the workspace"));
        };
        if parts.iter().any(|part| part.eq_ignore_ascii_case(".git")) {
            return Some(format!("path {path:?} is in git's own folder, which is protected"));
        }
        // Each folder on the way counts, so that a protected one covers what is below it.
        (1..=parts.len()).find_map(|length| {
            let ancestor = parts.get(..length)?.join("/");
            let at = *self.globs.matches(ancestor).first()?;
            let pattern = self.written.get(at)?;
            Some(format!("path {path:?} is protected by {pattern:?}"))
        })
    }
}

/// Returns the parts of `path` without `.` and `..`, unless it leads above the root.
fn normal(path: &str) -> Option<Vec<&str>> {
    if path.starts_with('/') {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str) -> bool {
        let patterns = PathPatterns::parse(["tests/**", ".github/", "*.lock"]).unwrap();
        patterns.refuses(path).is_some()
    }

    #[test]
    fn protected_paths_are_refused_however_they_are_written() {
        for path in [
            "tests/a.rs",
            "tests/a/b.rs",
            "./tests//a.rs",
            "src/../tests/a.rs",
            "TESTS/a.rs",
            ".github",
            ".github/workflows/ci.yml",
            "Cargo.lock",
            ".git/config",
            ".GIT/hooks/pre-commit",
            "sub/.git/config",
            "src/../.git/HEAD",
            "../outside",
            "src/../../outside",
            "/etc/passwd",
        ] {
            assert!(refused(path), "{path}");
        }
    }

    #[test]
    fn other_paths_are_not() {
        for path in
            ["src/lib.rs", "src/tests.rs", "sub/Cargo.lock", ".gitignore", "a..b", "tests2/x"]
        {
            assert!(!refused(path), "{path}");
        }
    }

    #[test]
    fn a_glob_that_cannot_be_read_is_named() {
        let error = PathPatterns::parse(["ok", "a["]).unwrap_err();

        assert_eq!(error.to_string(), r#"path pattern "a[" cannot be read"#);
    }
}
