//! The dependencies that the manifests of a workspace name.

use std::{collections::BTreeSet, fs, io, path::Path};

use formwork_protocols::check::Evidence;
use serde_json::Value;

use crate::{Error, verifier::Decision};

/// The largest manifest that is read: ones written by hand are a thousandth of it.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Folders that hold the code of others, with manifests of their own.
const OTHERS: [&str; 6] = [".git", "node_modules", "target", "vendor", ".venv", "venv"];

/// How many new dependencies the evidence names.
const NAMED: usize = 40;

/// Reads every manifest below `root`, and returns what each depends on, as `path: name`.
///
/// It knows `Cargo.toml`, `package.json`, `pyproject.toml`, `requirements*.txt` and `go.mod`. A manifest that
/// does not parse depends on itself being unreadable, so that breaking one is no way around.
///
/// # Errors
/// [`Error::Read`] what cannot be read.
pub(crate) fn read(root: &Path) -> Result<BTreeSet<String>, Error> {
    let mut found = BTreeSet::new();
    let walk = ignore::WalkBuilder::new(root)
        .standard_filters(false)
        .follow_links(false)
        .filter_entry(|entry| {
            !entry.file_name().to_str().is_some_and(|name| OTHERS.contains(&name))
        })
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| {
            let reason = error.to_string();
            let source = error.into_io_error().unwrap_or_else(|| io::Error::other(reason));
            Error::Read { path: root.to_owned(), source }
        })?;
        let (Some(name), true) =
            (entry.file_name().to_str(), entry.file_type().is_some_and(|kind| kind.is_file()))
        else {
            continue;
        };
        let Some(format) = Format::of(name) else { continue };
        let read = |source| Error::Read { path: entry.path().to_owned(), source };
        let at = entry.path().strip_prefix(root).unwrap_or(entry.path()).display().to_string();
        let names = match entry.metadata().map(|about| about.len()) {
            Ok(bytes) if bytes > MAX_BYTES => None,
            _ => format.names(&String::from_utf8_lossy(&fs::read(entry.path()).map_err(read)?)),
        };
        match names {
            Some(names) => found.extend(names.into_iter().map(|name| format!("{at}: {name}"))),
            None => drop(found.insert(format!("{at}: (cannot be read)"))),
        }
    }
    Ok(found)
}

/// Judges whether a workspace depends on more than it did.
pub(crate) fn judge(root: &Path, before: Option<&BTreeSet<String>>) -> Decision {
    let Some(before) = before else {
        return Decision::fail("what it depended on when the task began was not written down");
    };
    let now = match read(root) {
        Ok(now) => now,
        Err(Error::Read { path, source }) => {
            return Decision::fail(format!("cannot read {}: {source}", path.display()));
        }
        Err(error) => return Decision::fail(error.to_string()),
    };
    let new: Vec<&String> = now.difference(before).collect();
    let Some(first) = new.first() else {
        return Decision::pass(format!("no dependency is new, of {}", now.len()));
    };
    let reason = match new.len() {
        1 => format!("a new dependency: {first}"),
        count => format!("{count} new dependencies, the first of them {first}"),
    };
    let mut excerpt: String = new.iter().take(NAMED).map(|name| format!("{name}\n")).collect();
    if new.len() > NAMED {
        excerpt.push_str(&format!("and {} more\n", new.len() - NAMED));
    }
    let evidence = Evidence { excerpt, ..Evidence::default() };
    Decision { evidence, ..Decision::fail(reason) }
}

enum Format {
    Cargo,
    Npm,
    Pyproject,
    Requirements,
    Go,
}

impl Format {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "Cargo.toml" => Self::Cargo,
            "package.json" => Self::Npm,
            "pyproject.toml" => Self::Pyproject,
            "go.mod" => Self::Go,
            name if name.starts_with("requirements") && name.ends_with(".txt") => {
                Self::Requirements
            }
            _ => return None,
        })
    }

    /// Returns what a manifest names; nothing where it is none.
    fn names(&self, text: &str) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        match self {
            Self::Cargo => tables(&toml(text)?, &mut |key, table| {
                if key.ends_with("dependencies") {
                    names.extend(table.keys().cloned());
                }
            }),
            Self::Npm => {
                let value: Value = serde_json::from_str(text).ok()?;
                for key in
                    ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"]
                {
                    let table = value.get(key).and_then(Value::as_object);
                    names.extend(table.into_iter().flat_map(|table| table.keys().cloned()));
                }
            }
            Self::Pyproject => pyproject(&toml(text)?, &mut names),
            Self::Requirements => names.extend(text.lines().filter_map(requirement)),
            Self::Go => names.extend(go(text)),
        }
        Some(names)
    }
}

fn toml(text: &str) -> Option<Value> {
    toml::from_str::<Value>(text).ok()
}

/// Visits every table of a document with its key. What is within a table of dependencies is not one.
fn tables(value: &Value, visit: &mut impl FnMut(&str, &serde_json::Map<String, Value>)) {
    let mut open = vec![value];
    while let Some(next) = open.pop() {
        let Value::Object(table) = next else { continue };
        for (key, value) in table {
            if let Value::Object(inner) = value {
                visit(key, inner);
                if !key.ends_with("dependencies") {
                    open.push(value);
                }
            }
        }
    }
}

fn pyproject(value: &Value, names: &mut BTreeSet<String>) {
    let mut list = |value: Option<&Value>| {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        names.extend(items.filter_map(Value::as_str).filter_map(requirement));
    };
    list(value.pointer("/project/dependencies"));
    list(value.pointer("/build-system/requires"));
    for groups in ["/project/optional-dependencies", "/dependency-groups"] {
        let groups = value.pointer(groups).and_then(Value::as_object);
        for group in groups.into_iter().flat_map(|groups| groups.values()) {
            list(Some(group));
        }
    }
    tables(value.pointer("/tool/poetry").unwrap_or(&Value::Null), &mut |key, table| {
        if key.ends_with("dependencies") {
            names.extend(table.keys().cloned());
        }
    });
}

/// Returns the name of a requirement of Python: what stands before its version, extras and markers.
fn requirement(line: &str) -> Option<String> {
    let line = line.split('#').next().unwrap_or_default().trim();
    // Another file or an address is a dependency as it stands.
    if line.starts_with('-') || line.contains("://") {
        return Some(line.to_owned());
    }
    let end = line.find(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '_' | '-')));
    let name = line.get(..end.unwrap_or(line.len())).unwrap_or_default();
    (!name.is_empty()).then(|| name.to_lowercase().replace(['_', '.'], "-"))
}

/// Yields the modules that a `go.mod` requires or puts in another's place.
fn go(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut within = false;
    text.lines().filter_map(move |line| {
        let line = line.split("//").next().unwrap_or_default().trim();
        let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_verb = matches!(verb, "require" | "replace" | "tool");
        let name = match (within, is_verb) {
            (true, _) if line == ")" => {
                within = false;
                return None;
            }
            (true, _) => verb,
            (false, true) if rest.trim() == "(" => {
                within = true;
                return None;
            }
            (false, true) => rest.split_whitespace().next()?,
            // Lines of other lists in brackets, such as of what is excluded, begin with none of the verbs.
            (false, false) => return None,
        };
        (!name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn every_kind_of_manifest_is_read() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            (
                "Cargo.toml",
                "[dependencies]\nserde = { version = \"1\", features = [\"derive\"] }\n\
                 [dev-dependencies.insta]\nversion = \"1\"\n\
                 [target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n\
                 [workspace.dependencies]\ntokio = \"1\"\n",
            ),
            (
                "web/package.json",
                r#"{"dependencies":{"react":"1"},"devDependencies":{"vite":"2"}}"#,
            ),
            (
                "py/pyproject.toml",
                "[project]\ndependencies = [\"Requests[socks]>=2 ; python_version > '3'\"]\n\
                 [project.optional-dependencies]\ntest = [\"pytest\"]\n\
                 [tool.poetry.group.dev.dependencies]\nruff = \"*\"\n",
            ),
            ("requirements-dev.txt", "# why\nblack==1.0\n-r other.txt\n\n"),
            (
                "go.mod",
                "module x\n\ngo 1.22\n\nrequire (\n\ta.b/c v1 // indirect\n)\nrequire d.e/f v2\n",
            ),
            ("node_modules/left/package.json", r#"{"dependencies":{"hidden":"1"}}"#),
        ];
        for (path, text) in files {
            write(root.path(), path, text);
        }

        let found: Vec<String> = read(root.path()).unwrap().into_iter().collect();

        assert_eq!(
            found,
            [
                "Cargo.toml: insta",
                "Cargo.toml: libc",
                "Cargo.toml: serde",
                "Cargo.toml: tokio",
                "go.mod: a.b/c",
                "go.mod: d.e/f",
                "py/pyproject.toml: pytest",
                "py/pyproject.toml: requests",
                "py/pyproject.toml: ruff",
                "requirements-dev.txt: -r other.txt",
                "requirements-dev.txt: black",
                "web/package.json: react",
                "web/package.json: vite",
            ]
        );
    }

    #[test]
    fn a_new_dependency_and_a_broken_manifest_fail_and_a_new_version_does_not() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "Cargo.toml", "[dependencies]\nserde = \"1\"\n");
        let before = read(root.path()).unwrap();
        let judged = |text: &str| {
            write(root.path(), "Cargo.toml", text);
            let Decision { passed, reason, .. } = judge(root.path(), Some(&before));
            (passed, reason)
        };

        let newer = judged("[dependencies]\nserde = \"2\"\n");
        let more = judged("[dependencies]\nserde = \"1\"\nleft-pad = \"1\"\n");
        let broken = judged("[dependencies\nserde");

        assert_eq!(newer, (true, "no dependency is new, of 1".to_owned()));
        assert_eq!(more, (false, "a new dependency: Cargo.toml: left-pad".to_owned()));
        assert_eq!(broken, (false, "a new dependency: Cargo.toml: (cannot be read)".to_owned()));
    }

    proptest! {
        #[test]
        fn no_manifest_panics(text in "\\PC{0,300}", lines in "[a-z(){}\\[\\]=\"\n -]{0,200}") {
            for format in
                [Format::Cargo, Format::Npm, Format::Pyproject, Format::Requirements, Format::Go]
            {
                let _ = format.names(&text);
                let _ = format.names(&lines);
            }
        }
    }
}
