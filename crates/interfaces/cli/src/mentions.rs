//! Files that a text names by `@path`: those that are shown with it, and what a person has to know of those that are not.

use std::{
    collections::VecDeque,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use formwork_protocols::document::nearest;

/// What a text names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mentions {
    /// The files of the workspace, each once.
    pub(crate) files: Vec<String>,
    /// A line for each that seems to be meant as a file and is not shown.
    pub(crate) missed: Vec<String>,
}

/// Looks for the files that a text names. `@ada` may be a name, and `@dataclass` is no file: of those nothing is said.
pub(crate) fn mentions(text: &str, workspace: &Path) -> Mentions {
    let mut found = Mentions::default();
    for path in named(text) {
        match fs::metadata(workspace.join(path)) {
            Ok(about) if about.is_file() => found.files.push(path.to_owned()),
            Ok(about) if about.is_dir() => found.missed.push(format!(
                "@{path} is a folder, which is not attached: name its files, or say which folder is meant"
            )),
            Ok(_) => found.missed.push(format!("@{path} is no file, and is not attached")),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                found.missed.extend(missing(path, workspace));
            }
            Err(error) if is_file(path, workspace) => {
                found.missed.push(format!("@{path} is not attached: {error}"));
            }
            // What cannot even be looked for is no name of a file.
            Err(_) => {}
        }
    }
    found
}

/// Returns what a text names by `@path`, each once.
fn named(text: &str) -> Vec<&str> {
    let mut paths = Vec::new();
    for word in text.split_whitespace() {
        let Some(path) = word.strip_prefix('@') else { continue };
        let path = path.trim_end_matches([',', '.', ':', ';', ')', '?', '!']);
        if !path.is_empty() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

/// Says that a file is not there, where one seems to be meant.
fn missing(path: &str, workspace: &Path) -> Option<String> {
    let near = near(path, workspace);
    // A word is a file that is written wrong only where one of nearly that name is there.
    let is_near = |near: &String| {
        let lengths = (near.chars().count(), path.chars().count());
        lengths.1 >= SHORTEST
            && lengths.0.abs_diff(lengths.1) <= 1
            && workspace.join(near).is_file()
    };
    let is_meant =
        is_file(path, workspace) || (is_word(path) && near.as_ref().is_some_and(is_near));
    if !is_meant {
        return None;
    }
    let hint = near.map_or_else(String::new, |near| format!("; did you mean @{near}?"));
    Some(format!("there is no file {path}, and nothing is attached for it{hint}"))
}

/// The fewest letters of a word that may be a file written wrong: shorter ones are near to everything.
const SHORTEST: usize = 5;

fn is_word(path: &str) -> bool {
    path.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '.' | '_' | '-'))
}

/// Tells whether a word can only be a file: it has an extension that files have, it says from where it goes (`./x`, `../x`, `/x`,
/// `~/x`), or the folder that it begins with is there. `@app.route("/x")` is a decorator, and `@types/node` a package.
fn is_file(path: &str, workspace: &Path) -> bool {
    let odd = ['(', ')', '=', '"', '\'', '@', '{', '}', '<', '>', '|', '*', '\\'];
    if path.contains(odd) || path.contains("://") {
        return false;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty());
    let is_known =
        extension.is_some_and(|(_, end)| EXTENSIONS.contains(&end.to_lowercase().as_str()));
    let (first, below) = path.split_once('/').unwrap_or(("", ""));
    let is_placed = path.starts_with('/') || matches!(first, "." | ".." | "~");
    let is_below = !first.is_empty() && !below.is_empty() && workspace.join(first).is_dir();
    is_known || is_placed || is_below
}

/// Endings of files that a person shows a model. The attributes of a decorator (`@app.get`, `@x.setter`) are none of them.
const EXTENSIONS: &[&str] = &[
    "adoc", "avif", "bash", "bat", "bib", "bmp", "c", "cc", "cfg", "cjs", "clj", "cmake", "conf",
    "cpp", "cs", "css", "csv", "dart", "diff", "doc", "docx", "erl", "ex", "exs", "fish", "gif",
    "go", "gradle", "graphql", "h", "hpp", "hs", "htm", "html", "ini", "ipynb", "java", "jl",
    "jpeg", "jpg", "js", "json", "jsonl", "jsx", "kt", "lock", "log", "lua", "md", "mjs", "ml",
    "nix", "patch", "pdf", "php", "pl", "png", "proto", "ps1", "py", "pyi", "rb", "rs", "rst",
    "scala", "scss", "sh", "sql", "svelte", "svg", "swift", "tex", "tf", "toml", "ts", "tsv",
    "tsx", "txt", "vue", "webp", "xml", "yaml", "yml", "zig", "zsh",
];

/// How many entries of a workspace are looked at for a name that may be meant.
const LOOKED_AT: usize = 5_000;

/// Returns the path of the workspace that may be meant: one beside it, else one of that name elsewhere, else one that is spelled
/// nearly so.
fn near(path: &str, workspace: &Path) -> Option<String> {
    if path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..") {
        return None;
    }
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let beside = names(&workspace.join(folder));
    if let Some(found) = nearest(name, beside.iter().map(|(name, _)| name.as_str())) {
        let above = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        return Some(format!("{above}{found}"));
    }
    let all = files(workspace);
    let same = all.iter().find(|found| {
        let own = found.rsplit('/').next().unwrap_or(found);
        own.eq_ignore_ascii_case(name)
    });
    let found = same.map(String::as_str).or_else(|| nearest(path, all.iter().map(String::as_str)));
    found.map(str::to_owned)
}

/// Lists what is in a folder, and whether each is a folder itself.
fn names(folder: &Path) -> Vec<(String, bool)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(LOOKED_AT);
    let named = entries.filter_map(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        Some((entry.file_name().into_string().ok()?, is_folder))
    });
    let mut names: Vec<_> = named.collect();
    names.sort();
    names
}

/// Lists files of a workspace, those that lie highest first, without what is hidden and what is built.
fn files(workspace: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([PathBuf::new()]);
    let mut looked = 0;
    while let Some(folder) = folders.pop_front() {
        for (name, is_folder) in names(&workspace.join(&folder)) {
            looked += 1;
            if looked > LOOKED_AT {
                return found;
            }
            let is_built = is_folder && (name == "target" || name == "node_modules");
            if name.starts_with('.') || is_built {
                continue;
            }
            let path = folder.join(&name);
            match is_folder {
                true => folders.push_back(path),
                false => found.extend(path.into_os_string().into_string()),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("src/deep")).unwrap();
        for file in ["missing.txt", "Makefile", "src/lib.rs", "src/deep/other.rs", "dataclasses.py"]
        {
            fs::write(folder.path().join(file), "").unwrap();
        }
        folder
    }

    #[test]
    fn files_are_attached_once_each() {
        let folder = workspace();

        let found = mentions("See @src/lib.rs, and @src/lib.rs. Mail a@b.c", folder.path());

        assert_eq!(found, Mentions { files: vec!["src/lib.rs".to_owned()], missed: Vec::new() });
    }

    #[test]
    fn a_file_that_is_not_there_is_told_with_the_nearest_name() {
        let folder = workspace();
        let missed = |text: &str| mentions(text, folder.path()).missed;
        let told = |path: &str, near: &str| {
            vec![format!(
                "there is no file {path}, and nothing is attached for it; did you mean @{near}?"
            )]
        };

        assert_eq!(missed("what does @mising.txt do"), told("mising.txt", "missing.txt"));
        assert_eq!(missed("@src/lob.rs?"), told("src/lob.rs", "src/lib.rs"));
        assert_eq!(missed("@other.rs"), told("other.rs", "src/deep/other.rs"));
        assert_eq!(missed("@Makefil"), told("Makefil", "Makefile"));
        for path in ["/no/such/place", "./nowhere", "../nowhere/at/all", "~/nowhere"] {
            let told = format!("there is no file {path}, and nothing is attached for it");
            let found = missed(&format!("@{path}"));
            assert!(found.len() == 1 && found[0].starts_with(&told), "{found:?}");
        }
        // A folder that is there has no such file; without it, the word may be anything.
        assert_eq!(missed("@src/deep/nowhere").len(), 1);
        assert_eq!(missed("@scope/package.json").len(), 1);
        assert_eq!(missed("@scope/package"), [""; 0]);
    }

    #[test]
    fn a_folder_and_what_is_no_file_are_told() {
        let folder = workspace();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
        assert!(made.unwrap().success());

        let found = mentions("read @src/ and @pipe", folder.path());

        assert_eq!(found.files, [""; 0]);
        assert_eq!(
            found.missed,
            [
                "@src/ is a folder, which is not attached: name its files, or say which folder is meant",
                "@pipe is no file, and is not attached"
            ]
        );
    }

    #[test]
    fn addresses_names_and_decorators_are_not_told_of() {
        let folder = workspace();
        let text = "Mail user@example.com, ask @ada and @example.com why @dataclass, @Override, @app.get, @pytest.fixture, \
                    @app.route(\"/x.txt\"), @x.setter, @media, @functools.wraps(f), @v1.2, @types/node@20, @types/node, \
                    @angular/core and @acme/web/client stand there @ all @@";

        assert_eq!(mentions(text, folder.path()), Mentions::default());
    }
}
