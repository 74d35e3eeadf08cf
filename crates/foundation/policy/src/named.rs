//! Which files of a workspace a command is known to run.
//!
//! Known is what its words name. What a script reads by itself is not.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Programs that run the file which their first word that is one names.
const INTERPRETERS: [&str; 20] = [
    "ash", "bash", "bun", "dash", "deno", "fish", "ksh", "lua", "node", "nodejs", "perl", "php",
    "pwsh", "pypy", "pypy3", "Rscript", "ruby", "sh", "tclsh", "zsh",
];

/// The most files of one module: a larger one is a library, and no gate.
const MOST: usize = 1_000;

/// The hashes of files by their paths from the root of a workspace; of one that is not among them nothing was there.
pub type Hashes = BTreeMap<String, String>;

/// Returns the files below `folder` that any word of a command names, and those of the module that it names by `-m`.
#[must_use]
pub fn named_files(folder: &Path, command: &[String]) -> Vec<PathBuf> {
    let words = command.iter().map(|word| folder.join(word));
    let files = words.filter(|path| path.starts_with(folder) && path.is_file());
    files.chain(modules(folder, command)).collect()
}

/// Returns the files below `folder` that a command runs: its program, where that is named by a path; the script, where the
/// program runs one; and those of the module that it names by `-m`. Its other words are data.
#[must_use]
pub fn run_files(folder: &Path, command: &[String]) -> Vec<PathBuf> {
    let Some((program, words)) = command.split_first() else { return Vec::new() };
    let own =
        Some(folder.join(program)).filter(|path| program.contains('/') && path.starts_with(folder));
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let runs = name.starts_with("python") || INTERPRETERS.contains(&name);
    let script = words.iter().filter(|_| runs).map(|word| folder.join(word));
    let script = script.filter(|path| path.starts_with(folder)).find(|path| path.is_file());
    own.into_iter().chain(script).chain(modules(folder, command)).collect()
}

/// Returns the modules that a command names by `-m`, each by the name of the package that it belongs to: `a` of `a.b`.
#[must_use]
pub fn named_modules(command: &[String]) -> Vec<&str> {
    let behind = command.windows(2).filter(|pair| pair[0] == "-m").map(|pair| pair[1].as_str());
    let within =
        command.iter().filter_map(|word| word.strip_prefix("-m")).filter(|name| !name.is_empty());
    let tops = behind.chain(within).filter_map(|name| name.split('.').next());
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    tops.filter(is_name).collect()
}

/// Returns what a command that runs Python of the workspace is told in its environment: that what Python keeps of a module
/// beside it is read nowhere. It would be run in place of the file that was looked at.
#[must_use]
pub fn uncached(files: &[PathBuf]) -> Option<(&'static str, &'static str)> {
    let is_python = |path: &PathBuf| path.extension().is_some_and(|it| it == "py");
    files.iter().any(is_python).then_some(("PYTHONPYCACHEPREFIX", "/dev/null"))
}

/// Returns the files that would be run in place of the modules that a command names, where they came to be.
#[must_use]
pub fn instead_of_modules(folder: &Path, command: &[String]) -> Vec<PathBuf> {
    let of = |module: &str| {
        [format!("{module}.py"), format!("{module}/__init__.py"), format!("{module}/__main__.py")]
    };
    let files = named_modules(command).into_iter().flat_map(of).map(|file| folder.join(file));
    files.filter(|path| path.symlink_metadata().is_err()).collect()
}

/// Returns the hash of what a file holds; none where it is no file, or too large. It blocks, but waits for nobody.
#[must_use]
pub fn hash_of_file(path: &Path) -> Option<String> {
    formwork_sandbox::own(path).ok().map(|bytes| crate::TrustStore::hash(&bytes))
}

/// Returns the files of modules that stand beside where a command is run.
fn modules(folder: &Path, command: &[String]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for module in named_modules(command) {
        let single = folder.join(format!("{module}.py"));
        found.extend(single.is_file().then_some(single));
        let mut open = vec![folder.join(module)];
        while let Some(package) = open.pop() {
            let entries = fs::read_dir(package).into_iter().flatten().flatten();
            for entry in entries {
                let (path, kind) = (entry.path(), entry.file_type());
                match kind {
                    Ok(kind) if kind.is_dir() => open.push(path),
                    _ if path.extension().is_some_and(|it| it == "py") && found.len() < MOST => {
                        found.push(path);
                    }
                    _ => {}
                }
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn scripts_and_modules_are_found_by_the_words_of_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::create_dir_all(at.join("pack/deep")).unwrap();
        for file in [
            "gate.sh",
            "gatemod.py",
            "pack/__init__.py",
            "pack/deep/a.py",
            "pack/data.txt",
            "data.json",
        ] {
            fs::write(at.join(file), "").unwrap();
        }
        let below = |found: Vec<PathBuf>| -> Vec<String> {
            found.iter().map(|it| it.strip_prefix(at).unwrap().display().to_string()).collect()
        };
        let named = |command: &[&str]| below(named_files(at, &words(command)));
        let run = |command: &[&str]| below(run_files(at, &words(command)));

        assert_eq!(named(&["sh", "./gate.sh", "data.json", "gone"]), ["gate.sh", "data.json"]);
        assert_eq!(named(&["python3", "-m", "gatemod"]), ["gatemod.py"]);
        assert_eq!(named(&["python3", "-mpack.deep.a"]), ["pack/__init__.py", "pack/deep/a.py"]);
        assert_eq!(run(&["sh", "gate.sh", "data.json"]), ["gate.sh"]);
        assert_eq!(run(&["python3.12", "-W", "ignore", "gatemod.py", "data.json"]), ["gatemod.py"]);
        assert_eq!(run(&["wc", "data.json"]), [""; 0]);
        assert_eq!(run(&["./gate.sh", "data.json"]), ["gate.sh"]);
        assert_eq!(run(&["python3", "-m", "gatemod", "data.json"]), ["data.json", "gatemod.py"]);
    }
}
