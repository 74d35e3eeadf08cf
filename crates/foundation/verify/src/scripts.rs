//! Scripts of a package that checks run: what they say is part of the check, and no business of the work.

use std::{collections::BTreeMap, fs::File, io::Read as _, path::Path};

use formwork_protocols::{
    BlobHash,
    check::{CheckKind, CommandCheck, SuiteCheck},
};

/// The largest manifest that is looked into.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The settings of npm that a project brings: they name the shell that scripts run in.
const SETTINGS: &str = ".npmrc";

/// Returns the script that a check runs in the form in which ready-made checks do: by name, out of `package.json`.
pub fn script_of(check: &CheckKind) -> Option<&str> {
    let (CheckKind::Command(CommandCheck { argv, .. }) | CheckKind::Suite(SuiteCheck { argv, .. })) =
        check
    else {
        return None;
    };
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    match words[..] {
        ["npm", "run", "--silent", name] => Some(name),
        _ => None,
    }
}

/// Reads the scripts of the package at a root, and what decides how they run.
pub(crate) fn read(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if let Some(bytes) = bytes(&root.join(SETTINGS)) {
        found.insert(SETTINGS.to_owned(), BlobHash::of(&bytes).to_string());
    }
    let manifest = bytes(&root.join("package.json"));
    let manifest: Option<serde_json::Value> =
        manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let scripts = manifest.as_ref().and_then(|manifest| manifest.get("scripts")?.as_object());
    for (name, line) in scripts.into_iter().flatten() {
        found.insert(format!("script {name}"), line.to_string());
    }
    found
}

/// Says what of a script, or of those that npm runs around it, is other than it was.
pub(crate) fn changed(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    name: &str,
) -> Option<String> {
    if before.get(SETTINGS) != now.get(SETTINGS) {
        return Some(format!(
            "{SETTINGS} is other than it was when the task began, and says how the scripts run"
        ));
    }
    let around = [name.to_owned(), format!("pre{name}"), format!("post{name}")];
    around.into_iter().find(|it| {
        let key = format!("script {it}");
        before.get(&key) != now.get(&key)
    })
    .map(|it| {
        format!("the script {it:?} of package.json is other than it was when the task began, and it is the check")
    })
}

/// Reads a file that is none other, as far as it is not too large.
fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    // A pipe would be waited for.
    let about = std::fs::metadata(path).ok()?;
    let file = (about.is_file() && about.len() <= MAX_BYTES).then(|| File::open(path).ok())??;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_was_rewritten_is_named_with_those_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("package.json", r#"{"scripts": {"test": "jest", "lint": "eslint ."}}"#);
        let before = read(folder.path());
        let changed = |name: &str| changed(&before, &read(folder.path()), name);

        write(
            "package.json",
            r#"{"scripts": {"test": "jest", "lint": "true"}, "dependencies": {}}"#,
        );
        assert_eq!(changed("test"), None);
        assert!(changed("lint").unwrap().contains("\"lint\""));
        write("package.json", r#"{"scripts": {"test": "jest", "posttest": "true"}}"#);
        assert!(changed("test").unwrap().contains("\"posttest\""));
        write("package.json", "{");
        assert!(changed("test").unwrap().contains("\"test\""));
        write("package.json", r#"{"scripts": {"test": "jest"}}"#);
        write(".npmrc", "script-shell=true");
        assert!(changed("test").unwrap().starts_with(".npmrc"));
    }
}
