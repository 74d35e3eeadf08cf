//! A path that stays below its root by its text alone.

use crate::error::{Error, Refusal};
use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

/// How many folders deep a path may be, and how deep a tree is looked at.
///
/// Trees that people make are a few dozen folders deep; each level costs stack, and an open folder where trees are copied.
pub(crate) const DEEPEST: usize = 200;

/// A path below a root: no `..`, no leading slash; the root itself is the empty path.
///
/// `.` and `..` are folded by text when parsed, so `a/../b` is `b` whatever `a` is.
/// Links are another matter: [`Root`](crate::Root) follows them at the time of use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(PathBuf);

impl RelPath {
    /// Parses a relative path.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is empty, absolute, holds a NUL, climbs above its start, or is more than 200 folders deep.
    pub fn parse(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let refused = |why| Error::refused(&path.to_string_lossy(), why);
        if path.as_os_str().is_empty() {
            return Err(refused(Refusal::Empty));
        }
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(refused(Refusal::Nul));
        }
        let mut folded = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => folded.push(name),
                Component::CurDir => {}
                Component::ParentDir if folded.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(refused(Refusal::Outside));
                }
            }
        }
        if folded.iter().count() > DEEPEST {
            return Err(refused(Refusal::TooDeep { limit: DEEPEST }));
        }
        Ok(Self(folded))
    }

    /// Says whether it is so deep that nothing below it is looked at.
    pub(crate) fn is_deepest(&self) -> bool {
        self.names().count() >= DEEPEST
    }

    /// Names the root itself.
    pub fn root() -> Self {
        Self(PathBuf::new())
    }

    /// Builds a path from names that came from a directory or a parsed path.
    pub(crate) fn from_names<'a>(names: impl IntoIterator<Item = &'a OsStr>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Says whether this is the root itself.
    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Borrows it as a plain path, empty for the root.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Returns the last name; none for the root.
    pub fn name(&self) -> Option<&OsStr> {
        self.0.file_name()
    }

    /// Returns the folder that holds it; none for the root.
    pub fn parent(&self) -> Option<Self> {
        self.0.parent().map(|parent| Self(parent.to_owned()))
    }

    /// Appends one name, as a directory listed it.
    pub(crate) fn join(&self, name: &OsStr) -> Self {
        Self(self.0.join(name))
    }

    /// Lists its names from the top.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.0.iter()
    }

    pub(crate) fn to_names(&self) -> Vec<OsString> {
        self.names().map(OsStr::to_owned).collect()
    }
}

impl AsRef<Path> for RelPath {
    /// Shows the root as `.`, so that the result can be parsed again.
    fn as_ref(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AsRef::<Path>::as_ref(self).display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dots_fold_by_text() {
        let parsed = RelPath::parse("./a//b/../c/").unwrap();

        assert_eq!(parsed.to_string(), "a/c");
        assert!(RelPath::parse(".").unwrap().is_root());
    }

    #[test]
    fn what_climbs_is_absolute_or_empty_is_refused_with_its_reason() {
        for (path, why) in [
            ("", Refusal::Empty),
            ("a\0b", Refusal::Nul),
            ("..", Refusal::Outside),
            ("a/../../a", Refusal::Outside),
            ("/etc/passwd", Refusal::Outside),
        ] {
            let error = RelPath::parse(path).unwrap_err();

            assert!(
                matches!(&error, Error::Refused { path: p, why: w } if p == path && *w == why),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_parsed_path_never_climbs_and_parses_to_itself(text in "[a./]{0,12}") {
            if let Ok(path) = RelPath::parse(&text) {
                prop_assert!(path.names().all(|name| name != ".." && name != "."));
                prop_assert!(path.as_path().is_relative());
                prop_assert_eq!(RelPath::parse(&path).unwrap(), path);
            }
        }
    }
}
