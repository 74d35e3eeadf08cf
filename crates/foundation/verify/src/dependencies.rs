//! The dependencies that the manifests of a workspace name.

use std::{collections::BTreeSet, fs, io, path::Path};

use formwork_protocols::check::Evidence;
use serde_json::Value;

use crate::{Error, verifier::Decision};

/// The largest manifest that is read: ones written by hand are a thousandth of it.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Folders that hold the code of others, with manifests of their own.
const OTHERS: [&str; 6] = [".git", "node_modules", "target", "vendor", ".venv", "venv"];

/// What is told in the place of a name where a manifest cannot be read.
const UNREADABLE: &str = "(cannot be read)";

/// What is told of each manifest that was found, so that none at all is not taken for none that names anything.
const MANIFEST: &str = "(a manifest)";

/// What is looked for, for messages.
const LOOKED_FOR: &str = "Cargo.toml, package.json, pyproject.toml, requirements*.txt or go.mod";

/// How many new dependencies the evidence names.
const NAMED: usize = 40;

/// Reads every manifest below `root`, and returns what each depends on, as `path: name`.
///
/// It knows `Cargo.toml`, `package.json`, `pyproject.toml`, `requirements*.txt` and `go.mod`. A manifest that
/// does not parse, or that is a link to wherever, is one that [cannot be read](UNREADABLE), so that breaking
/// one is no way around. That a manifest is there is told as `path: ` [`MANIFEST`].
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
        let Some(format) = entry.file_name().to_str().and_then(Format::of) else { continue };
        let kind = entry.file_type();
        if kind.is_some_and(|kind| kind.is_dir()) {
            continue;
        }
        let read = |source| Error::Read { path: entry.path().to_owned(), source };
        let at = entry.path().strip_prefix(root).unwrap_or(entry.path()).display().to_string();
        // What is read through a link is somebody else's, and may be another one the next time.
        let is_file = kind.is_some_and(|kind| kind.is_file());
        let names = match entry.metadata().map(|about| about.len()) {
            Ok(bytes) if !is_file || bytes > MAX_BYTES => None,
            Ok(_) => format.names(&String::from_utf8_lossy(&fs::read(entry.path()).map_err(read)?)),
            Err(_) => None,
        };
        found.insert(format!("{at}: {MANIFEST}"));
        match names {
            Some(names) => found.extend(names.into_iter().map(|name| format!("{at}: {name}"))),
            None => drop(found.insert(format!("{at}: {UNREADABLE}"))),
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
    let is_manifest = |name: &&String| name.ends_with(&format!(": {MANIFEST}"));
    if !now.iter().chain(before).any(|name| is_manifest(&name)) {
        return Decision::fail(format!("no manifest was found: it looks for {LOOKED_FOR}"));
    }
    // What it names now nobody knows, whatever it was before.
    if let Some(unreadable) = now.iter().find(|name| name.ends_with(&format!(": {UNREADABLE}"))) {
        return Decision::fail(format!(
            "{unreadable}: a manifest has to be a file of its own, whole and at most {MAX_BYTES} bytes long"
        ));
    }
    let new: Vec<&String> = now.difference(before).filter(|name| !is_manifest(name)).collect();
    let Some(first) = new.first() else {
        let count = now.iter().filter(|name| !is_manifest(name)).count();
        return Decision::pass(format!("no dependency is new, of {count}"));
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
                    names.extend(table.iter().map(|(name, asked)| crate_of(name, asked)));
                } else if key == "patch" || key == "replace" {
                    names.extend(replaced(key, table));
                }
            }),
            Self::Npm => {
                let value: Value = serde_json::from_str(text).ok()?;
                for key in
                    ["dependencies", "devDependencies", "peerDependencies", "optionalDependencies"]
                {
                    let table = value.get(key).and_then(Value::as_object);
                    names.extend(table.into_iter().flatten().map(|(name, asked)| {
                        // An alias or an address is another package under the same name.
                        match asked.as_str().filter(|asked| asked.contains([':', '/'])) {
                            Some(place) => format!("{name} ({place})"),
                            None => name.clone(),
                        }
                    }));
                }
            }
            Self::Pyproject => pyproject(&toml(text)?, &mut names),
            Self::Requirements => names.extend(text.lines().filter_map(requirement)),
            Self::Go => names.extend(go(text)),
        }
        Some(names)
    }
}

/// Names what a Cargo dependency is: the crate, by whatever name it goes here, and where it is from unless
/// that is a registry by its version.
fn crate_of(name: &str, asked: &Value) -> String {
    let text = |key: &str| asked.get(key).and_then(Value::as_str);
    let mut told = text("package").unwrap_or(name).to_owned();
    for source in ["git", "path", "registry", "registry-index"] {
        if let Some(place) = text(source) {
            told.push_str(&format!(" ({source} {place})"));
        }
    }
    told
}

/// Names what takes the place of other crates: directly below `replace`, below each source under `patch`.
fn replaced(key: &str, table: &serde_json::Map<String, Value>) -> Vec<String> {
    let told = |(name, asked): (&String, &Value)| format!("{key} {}", crate_of(name, asked));
    if key == "replace" {
        return table.iter().map(told).collect();
    }
    table.values().filter_map(Value::as_object).flatten().map(told).collect()
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
                "Cargo.toml: (a manifest)",
                "Cargo.toml: insta",
                "Cargo.toml: libc",
                "Cargo.toml: serde",
                "Cargo.toml: tokio",
                "go.mod: (a manifest)",
                "go.mod: a.b/c",
                "go.mod: d.e/f",
                "py/pyproject.toml: (a manifest)",
                "py/pyproject.toml: pytest",
                "py/pyproject.toml: requests",
                "py/pyproject.toml: ruff",
                "requirements-dev.txt: (a manifest)",
                "requirements-dev.txt: -r other.txt",
                "requirements-dev.txt: black",
                "web/package.json: (a manifest)",
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
        assert!(!broken.0 && broken.1.starts_with("Cargo.toml: (cannot be read): "), "{broken:?}");
    }

    #[test]
    fn a_manifest_that_nobody_can_read_and_none_at_all_prove_nothing() {
        let root = tempfile::tempdir().unwrap();
        let none = read(root.path()).unwrap();
        let judged = |before: &BTreeSet<String>| {
            let Decision { passed, reason, .. } = judge(root.path(), Some(before));
            (passed, reason)
        };
        let nothing = judged(&none);
        // It was as broken when the task began.
        write(root.path(), "Cargo.toml", "[dependencies\n");
        let broken = judged(&read(root.path()).unwrap());
        fs::remove_file(root.path().join("Cargo.toml")).unwrap();
        write(root.path(), "elsewhere", "[dependencies]\nleft-pad = \"1\"\n");
        std::os::unix::fs::symlink("elsewhere", root.path().join("Cargo.toml")).unwrap();
        let linked = judged(&none);

        let looked = "no manifest was found: it looks for Cargo.toml, package.json, pyproject.toml, requirements*.txt or go.mod";
        assert_eq!(nothing, (false, looked.to_owned()));
        for (passed, reason) in [broken, linked] {
            assert!(!passed && reason.starts_with("Cargo.toml: (cannot be read): "), "{reason}");
        }
    }

    #[test]
    fn a_crate_is_new_under_an_old_name_and_from_another_place() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "Cargo.toml", "[dependencies]\nserde = \"1\"\n");
        let before = read(root.path()).unwrap();
        let judged = |text: &str| {
            write(root.path(), "Cargo.toml", text);
            judge(root.path(), Some(&before)).reason
        };

        let renamed =
            judged("[dependencies]\nserde = { package = \"left-pad\", version = \"1\" }\n");
        write(root.path(), "package.json", r#"{"dependencies":{"a":"npm:evil@1"}}"#);
        let aliased = judged("[dependencies]\nserde = \"1\"\n");
        fs::remove_file(root.path().join("package.json")).unwrap();
        let fetched = judged("[dependencies]\nserde = { git = \"https://a.b/c\" }\n");
        let patched = judged(
            "[dependencies]\nserde = \"1\"\n[patch.crates-io]\nserde = { path = \"../evil\" }\n",
        );

        assert_eq!(renamed, "a new dependency: Cargo.toml: left-pad");
        assert_eq!(aliased, "a new dependency: package.json: a (npm:evil@1)");
        assert_eq!(fetched, "a new dependency: Cargo.toml: serde (git https://a.b/c)");
        assert_eq!(patched, "a new dependency: Cargo.toml: patch serde (path ../evil)");
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
