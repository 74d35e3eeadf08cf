//! What shapes runs and was made while a run worked.
//!
//! What is there already is kept from being written by the sandbox. What is not there yet cannot be: a folder that a
//! program may write in takes whatever name it gives. So what has come since is looked for once the work is done.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use formwork_write_safety::{RelPath, WriteRules};

/// A folder of which every file shapes runs.
const FOLDER: &str = ".formwork";
/// A file that does, at the top.
const FILE: &str = "formwork.toml";
/// A file that does, wherever it is.
const ANYWHERE: &str = "AGENTS.md";

/// What of a workspace shapes runs, by its paths from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shapes(BTreeSet<PathBuf>);

impl Shapes {
    /// Looks through a workspace. Git's own folders are passed over, and folders that cannot be listed, where no run
    /// reads anything either.
    pub(crate) fn take(root: &Path) -> Self {
        let mut found = BTreeSet::new();
        let mut todo = vec![PathBuf::new()];
        while let Some(folder) = todo.pop() {
            let shapes = folder.starts_with(FOLDER);
            for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
                let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_top = folder.as_os_str().is_empty();
                if !is_folder && (shapes || name == ANYWHERE || (is_top && name == FILE)) {
                    found.insert(path);
                } else if is_folder && name != ".git" {
                    todo.push(path);
                }
            }
        }
        Self(found)
    }

    /// Returns the first file that has come since, that `rules` let nobody write and that does not lie in `own`, a folder
    /// of Formwork itself.
    pub(crate) fn made(&self, root: &Path, rules: &WriteRules, own: &Path) -> Option<PathBuf> {
        let now = Self::take(root);
        let is_made = |path: &&PathBuf| {
            !root.join(path).starts_with(own)
                && RelPath::parse(path.as_os_str()).is_ok_and(|path| rules.check(&path).is_err())
        };
        now.0.difference(&self.0).find(is_made).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_since_is_found_unless_a_scope_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        put("AGENTS.md");
        put("src/formwork.toml");
        let before = Shapes::take(root);
        let all = ["**".to_owned()];
        let shapes = super::super::SHAPES.map(str::to_owned);
        let rules = WriteRules::parse(&all, &shapes).unwrap();
        let open = WriteRules::parse(&all, &[]).unwrap();
        let own = root.join(".formwork/state");
        let made = || before.made(root, &rules, &own);

        fs::write(root.join("AGENTS.md"), "another").unwrap();
        put("sub/formwork.toml");
        put(".git/AGENTS.md");
        put(".formwork/state/formwork.db");
        assert_eq!(made(), None);

        for path in ["a/b/AGENTS.md", "formwork.toml", ".formwork/skills/s/SKILL.md"] {
            put(path);
            assert_eq!(made(), Some(path.into()));
            assert_eq!(before.made(root, &open, &own), None);
            fs::remove_file(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink("/nowhere", root.join("a/AGENTS.md")).unwrap();
        assert_eq!(made(), Some("a/AGENTS.md".into()));
    }
}
