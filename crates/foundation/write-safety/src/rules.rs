//! Which paths may be written.

mod roots; // The same as folders that a program is held to.

pub use roots::{Sealing, Writable};

use crate::{
    error::{Error, Refusal},
    path::RelPath,
};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::{ffi::OsStr, fmt, sync::Arc};

/// Says what may be written: `write_paths` without `protected_paths`, and never git's own folder.
///
/// A glob that names a folder covers what is below it. `*` does not cross a `/`, `**` does.
/// The rules bind the path as written and the path it really leads to.
#[derive(Debug, Clone, Default)]
pub struct WriteRules {
    // Every layer must agree, so that a child's rules can only narrow.
    layers: Vec<Arc<Layer>>,
}

#[derive(Debug)]
struct Layer {
    write: Globs,
    protected: Globs,
    /// What is not protected all the same.
    except: Globs,
}

#[derive(Debug)]
struct Globs {
    set: GlobSet,
    /// The glob each entry of `set` came from, in order.
    sources: Vec<usize>,
    written: Vec<String>,
}

impl WriteRules {
    /// Allows everything but git's own folder.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Allows nothing.
    pub fn nothing() -> Self {
        let (write, protected, except) = (Globs::none(), Globs::none(), Globs::none());
        Self { layers: vec![Arc::new(Layer { write, protected, except })] }
    }

    /// Parses the globs of what may be written and of what may not.
    ///
    /// # Errors
    /// [`Error::Glob`] and [`Error::GlobOutside`] name the first glob that does not parse or leads out of the workspace.
    pub fn parse<S: AsRef<str>>(write_paths: &[S], protected_paths: &[S]) -> Result<Self, Error> {
        Self::parse_except(write_paths, protected_paths, &[])
    }

    /// Parses the globs of what may be written, of what may not, and of what may be written all the same. A program is
    /// kept from the whole of a protected folder nonetheless, unless that folder itself is among the last.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_except<S: AsRef<str>>(
        write_paths: &[S],
        protected_paths: &[S],
        except: &[S],
    ) -> Result<Self, Error> {
        let layer = Layer {
            write: Globs::parse("write_paths", write_paths)?,
            protected: Globs::parse("protected_paths", protected_paths)?,
            except: Globs::parse("scope", except)?,
        };
        Ok(Self { layers: vec![Arc::new(layer)] })
    }

    /// Returns rules that allow only what both these and `other` allow.
    #[must_use]
    pub fn narrowed(&self, other: &Self) -> Self {
        Self { layers: self.layers.iter().chain(&other.layers).cloned().collect() }
    }

    /// Says whether a file at `path` may be written.
    ///
    /// # Errors
    /// Which rule stands against it.
    pub fn check(&self, path: &RelPath) -> Result<(), Refusal> {
        self.check_kept(path, |layer| layer.except.matching(path).is_some())?;
        for layer in &self.layers {
            if layer.write.matching(path).is_none() {
                let globs = layer.write.written.clone();
                return Err(Refusal::NotWritable { found: path.to_string(), globs });
            }
        }
        Ok(())
    }

    /// Says whether what lies at `path`, below the folder `root`, is protected.
    pub fn protects(&self, root: &std::path::Path, path: &std::path::Path) -> bool {
        let below = path.strip_prefix(root).ok().and_then(|below| RelPath::parse(below).ok());
        let is_kept = |path: &RelPath| self.check_kept(path, |layer| !layer.keeps(path)).is_err();
        below.is_none_or(|below| is_kept(&below))
    }

    /// Says whether a folder at `path` may come to be because something allowed lies within it.
    ///
    /// # Errors
    /// Which rule stands against it.
    pub fn check_protected(&self, path: &RelPath) -> Result<(), Refusal> {
        self.check_kept(path, |layer| {
            layer.except.matching(path).is_some() || layer.except.reaches(path)
        })
    }

    fn check_kept(
        &self,
        path: &RelPath,
        is_excepted: impl Fn(&Layer) -> bool,
    ) -> Result<(), Refusal> {
        if path.is_root() {
            return Err(Refusal::RootItself);
        }
        if path.names().any(is_git) {
            return Err(Refusal::Git { found: path.to_string() });
        }
        for layer in &self.layers {
            if let Some(glob) = layer.protected.matching(path)
                && !is_excepted(layer)
            {
                let glob = glob.to_owned();
                return Err(Refusal::Protected { found: path.to_string(), glob });
            }
        }
        Ok(())
    }
}

/// Says what may be written, in a line.
impl fmt::Display for WriteRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write: Vec<String> = self
            .layers
            .iter()
            .filter(|layer| layer.write.written.iter().all(|glob| glob != "**"))
            .map(|layer| match layer.write.written.is_empty() {
                true => "nothing".to_owned(),
                false => layer.write.written.join(", "),
            })
            .collect();
        match write.is_empty() {
            true => f.write_str("all of the workspace")?,
            false => f.write_str(&write.join(" within "))?,
        }
        let protected = self.layers.iter().flat_map(|layer| &layer.protected.written);
        let protected: Vec<&str> = protected.map(String::as_str).chain([".git"]).collect();
        write!(f, ", but not {}", protected.join(", "))
    }
}

impl Layer {
    /// Says whether a path is protected.
    fn keeps(&self, path: &RelPath) -> bool {
        self.protected.matching(path).is_some() && self.except.matching(path).is_none()
    }
}

impl Globs {
    fn none() -> Self {
        Self { set: GlobSet::empty(), sources: Vec::new(), written: Vec::new() }
    }

    fn parse<S: AsRef<str>>(list: &'static str, globs: &[S]) -> Result<Self, Error> {
        let mut set = GlobSetBuilder::new();
        let mut sources = Vec::new();
        for (index, written) in globs.iter().enumerate() {
            let written = written.as_ref();
            let error =
                |source| Error::Glob { list, glob: written.to_owned(), source: Box::new(source) };
            if leads_out(written) {
                return Err(Error::GlobOutside { list, glob: written.to_owned() });
            }
            let trimmed = written.strip_prefix("./").unwrap_or(written);
            let trimmed = trimmed.strip_suffix("/**").unwrap_or(trimmed).trim_end_matches('/');
            let trimmed = if matches!(trimmed, "" | ".") { "**" } else { trimmed };
            for pattern in [trimmed.to_owned(), format!("{trimmed}/**")] {
                let glob = GlobBuilder::new(&pattern)
                    .literal_separator(true)
                    // Where names differ by case only they are one file.
                    .case_insensitive(cfg!(target_os = "macos"))
                    .build()
                    .map_err(error)?;
                set.add(glob);
                sources.push(index);
            }
        }
        let error = |source| Error::Glob { list, glob: "*".to_owned(), source: Box::new(source) };
        Ok(Self {
            set: set.build().map_err(error)?,
            sources,
            written: globs.iter().map(|glob| glob.as_ref().to_owned()).collect(),
        })
    }

    fn matching(&self, path: &RelPath) -> Option<&str> {
        let first = *self.set.matches(path.as_path()).first()?;
        self.written.get(*self.sources.get(first)?).map(String::as_str)
    }
}

/// Says whether a glob leads out of the folder that it is meant for: it begins at the root of all files, or goes up.
fn leads_out(glob: &str) -> bool {
    glob.starts_with('/') || glob.split(['/', '{', '}', ',']).any(|name| name == "..")
}

/// Says whether some file system takes `name` for `.git`.
///
/// Case-blind everywhere; HFS+ ignores some characters, NTFS ignores trailing dots, spaces and
/// stream names and has the short name `GIT~1`. A tree written here may be checked out there.
pub(crate) fn is_git(name: &OsStr) -> bool {
    let name: String = name
        .to_string_lossy()
        .chars()
        .filter(|c| !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'))
        .collect();
    let name = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    name.eq_ignore_ascii_case(".git") || name.eq_ignore_ascii_case("git~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn write_paths_without_protected_paths_may_be_written() {
        let rules = WriteRules::parse(&["src/**", "*.md"], &["src/gen", "src/*.lock"]).unwrap();

        let allowed: Vec<_> = [
            "src/a.rs",
            "src/deep/er/a.rs",
            "README.md",
            "docs/README.md",
            "src/gen/x.rs",
            "src/a.lock",
            "src/deep/a.lock",
            "src2/a.rs",
        ]
        .into_iter()
        .filter(|p| rules.check(&path(p)).is_ok())
        .collect();

        assert_eq!(allowed, ["src/a.rs", "src/deep/er/a.rs", "README.md", "src/deep/a.lock"]);
    }

    #[test]
    fn a_refusal_names_the_rule() {
        let rules = WriteRules::parse(&["src"], &["src/gen/"]).unwrap();

        assert_eq!(
            rules.check(&path("src/gen/x")),
            Err(Refusal::Protected { found: "src/gen/x".into(), glob: "src/gen/".into() })
        );
        assert_eq!(
            rules.check(&path("lib/x")),
            Err(Refusal::NotWritable { found: "lib/x".into(), globs: vec!["src".into()] })
        );
    }

    #[test]
    fn no_spelling_of_the_git_folder_is_written() {
        let rules = WriteRules::everything();

        for name in [
            ".git",
            ".GIT/config",
            "a/.Git/hooks/x",
            ".git ",
            ".git.",
            ".git . .",
            "GIT~1/x",
            ".g\u{200c}it",
            ".git::$INDEX_ALLOCATION",
            "sub/.git",
        ] {
            let refused = rules.check(&path(name));

            assert_eq!(refused, Err(Refusal::Git { found: name.into() }), "{name}");
        }
        for name in [".gitignore", ".github/x", "git", "a.git"] {
            assert_eq!(rules.check(&path(name)), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_glob_that_does_not_parse_is_named() {
        let error = WriteRules::parse(&["a["], &[]).unwrap_err();

        assert_eq!(error.to_string(), r#"glob "a[" of write_paths does not parse"#);
    }

    proptest! {
        #[test]
        fn narrowing_never_allows_more(
            a in prop::collection::vec("[ab]/?\\*{0,2}", 0..3),
            b in prop::collection::vec("[ab]/?\\*{0,2}", 0..3),
            text in "[ab](/[ab]){0,3}",
        ) {
            let (Ok(outer), Ok(inner)) = (WriteRules::parse(&a, &[]), WriteRules::parse(&b, &a)) else {
                return Ok(());
            };
            let both = outer.narrowed(&inner);
            let path = path(&text);

            prop_assert_eq!(
                both.check(&path).is_ok(),
                outer.check(&path).is_ok() && inner.check(&path).is_ok()
            );
        }
    }
}
