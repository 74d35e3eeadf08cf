//! How a project is tested and linted, as far as the manifests at its root tell.

use std::path::Path;

use formwork_protocols::check::{CommandCheck, Expect, Parser};
use formwork_scheduler::workflow::ProjectCommands;
use serde_json::Value;

/// The largest manifest that is looked into.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Finds the commands of the project in a folder. The first manifest counts, in the order Cargo, npm, Python, Go.
pub fn commands(folder: &Path) -> ProjectCommands {
    let has = |name: &str| folder.join(name).is_file();
    let check = |argv: &[&str], parse| {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Some(CommandCheck { argv, parse, expect: Expect::Pass })
    };
    if has("Cargo.toml") {
        let lint = ["cargo", "clippy", "--all-targets", "--", "-D", "warnings"];
        return ProjectCommands {
            tests: check(&["cargo", "test"], Some(Parser::CargoTest)),
            lint: check(&lint, None),
        };
    }
    if let Some(manifest) = read(&folder.join("package.json")) {
        return npm(&manifest);
    }
    if ["pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini"].iter().any(|it| has(it))
    {
        return ProjectCommands {
            tests: check(&["python3", "-m", "pytest"], Some(Parser::Pytest)),
            lint: check(&["ruff", "check", "."], None),
        };
    }
    if has("go.mod") {
        return ProjectCommands {
            tests: check(&["go", "test", "./..."], Some(Parser::GoTest)),
            lint: check(&["go", "vet", "./..."], None),
        };
    }
    ProjectCommands::default()
}

/// Reads the scripts that a package names. A suite that is none of the known ones is believed by its exit code.
fn npm(manifest: &Value) -> ProjectCommands {
    let script = |name: &str| manifest["scripts"][name].as_str();
    let run = |name: &str, parse| {
        let argv = ["npm", "run", "--silent", name].map(str::to_owned).to_vec();
        CommandCheck { argv, parse, expect: Expect::Pass }
    };
    let parse = script("test").and_then(|line| {
        let known = ["jest", "vitest"].iter().any(|known| line.contains(known));
        known.then_some(Parser::Jest)
    });
    // What npm writes into a new package tests nothing.
    let tests = script("test").filter(|line| !line.contains("no test specified"));
    ProjectCommands {
        tests: tests.map(|_| run("test", parse)),
        lint: script("lint").map(|_| run("lint", None)),
    }
}

fn read(path: &Path) -> Option<Value> {
    let about = std::fs::metadata(path).ok().filter(|about| about.is_file())?;
    if about.len() > MAX_BYTES {
        return None;
    }
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> [Option<String>; 2] {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let ProjectCommands { tests, lint } = commands(folder.path());
        [tests, lint].map(|command| command.map(|command| command.argv.join(" ")))
    }

    #[test]
    fn the_manifest_at_the_root_names_the_commands() {
        let some = |text: &str| Some(text.to_owned());
        let npm = r#"{"scripts": {"test": "vitest run", "lint": "eslint ."}}"#;
        let fresh = r#"{"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;

        let cargo = some("cargo clippy --all-targets -- -D warnings");
        assert_eq!(found(&[("Cargo.toml", ""), ("go.mod", "")]), [some("cargo test"), cargo]);
        let scripts = [some("npm run --silent test"), some("npm run --silent lint")];
        assert_eq!(found(&[("package.json", npm)]), scripts);
        assert_eq!(found(&[("package.json", fresh)]), [None, None]);
        assert_eq!(found(&[("package.json", "{")]), [None, None]);
        assert_eq!(found(&[("go.mod", "")]), [some("go test ./..."), some("go vet ./...")]);
        assert_eq!(found(&[]), [None, None]);
    }
}
