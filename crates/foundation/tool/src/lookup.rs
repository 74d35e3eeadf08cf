//! Which file a program's name means, as far as the workspace has a say in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Where programs are looked for by their name.
#[derive(Debug, Clone, Default)]
pub struct Lookup {
    /// The value of `PATH`, as programs will see it.
    pub path: OsString,
    /// The workspace, without links; two folders where a task works beside the run's.
    pub roots: BTreeSet<PathBuf>,
}

impl Lookup {
    /// Lists the programs that are found by their name alone and lie in the workspace, each with where it lies.
    ///
    /// It looks at the folders anew each time, since whoever works there may put one in.
    pub fn within(&self) -> BTreeMap<String, String> {
        let folders: Vec<PathBuf> =
            std::env::split_paths(&self.path).filter(|folder| folder.is_absolute()).collect();
        let mut found = BTreeMap::new();
        for (index, folder) in folders.iter().enumerate() {
            let is_ours = self.lies_within(folder);
            // What is linked from outside into the workspace is written there as well; of the system's own folders
            // nobody who works here can change the links.
            if !is_ours {
                continue;
            }
            let before = folders.get(..index).unwrap_or_default();
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let is_first = !before.iter().any(|earlier| is_program(&earlier.join(&name)));
                if let (Some(text), true, true) =
                    (name.to_str(), is_first, is_program(&entry.path()))
                {
                    let place = entry.path();
                    let below = self.roots.iter().find_map(|root| place.strip_prefix(root).ok());
                    let below = below.unwrap_or(&place);
                    found.entry(text.to_owned()).or_insert_with(|| below.display().to_string());
                }
            }
        }
        found
    }

    fn lies_within(&self, folder: &Path) -> bool {
        let real = folder.canonicalize();
        self.roots.iter().any(|root| {
            folder.starts_with(root) || real.as_ref().is_ok_and(|real| real.starts_with(root))
        })
    }
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_workspace_is_found_where_none_of_the_system_comes_first() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (root, system) = (base.join("ws"), base.join("bin"));
        for file in [root.join("bin/cargo"), root.join("bin/ls"), system.join("ls")] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(root.join("bin/notes"), "").unwrap();
        std::os::unix::fs::symlink(root.join("bin"), base.join("linked")).unwrap();
        let within = |folders: &[&Path]| {
            let path = std::env::join_paths(folders).unwrap();
            Lookup { path, roots: BTreeSet::from([root.clone()]) }
                .within()
                .into_keys()
                .collect::<Vec<_>>()
        };

        assert_eq!(within(&[&system, &root.join("bin")]), ["cargo"]);
        assert_eq!(within(&[&root.join("bin"), &system]), ["cargo", "ls"]);
        assert_eq!(within(&[&base.join("linked")]), ["cargo", "ls"]);
        assert_eq!(within(&[&system, Path::new("bin")]), [] as [&str; 0]);
        assert!(Lookup::default().within().is_empty());
    }
}
