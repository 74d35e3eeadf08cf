//! A folder of a command's own, for what it needs for a while.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tempfile::TempDir;

use crate::{Command, Protection};

/// Begins the names of such folders.
const PREFIX: &str = "program-";

/// The variables by which programs find it. The others are set only where the parent has them.
const VARIABLE: &str = "TMPDIR";
const OTHERS: [&str; 2] = ["TMP", "TEMP"];

/// A folder that only its owner may enter, gone with the value.
#[derive(Debug)]
pub(crate) struct OwnFolder(TempDir);

impl OwnFolder {
    /// Makes one, and removes what commands left whose parent was killed.
    pub(crate) fn make(within: &Path) -> io::Result<Self> {
        let within = within.canonicalize()?;
        sweep(&within);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        tempfile::Builder::new().prefix(&prefix).tempdir_in(within).map(Self)
    }

    /// Lets a command know of it, and write it.
    pub(crate) fn give(
        &self,
        command: &mut Command,
        environment: &mut BTreeMap<OsString, OsString>,
    ) {
        let folder = self.0.path();
        environment.insert(VARIABLE.into(), folder.into());
        for name in OTHERS {
            if let Some(value) = environment.get_mut(OsStr::new(name)) {
                *value = folder.into();
            }
        }
        if let Protection::Restricted(limits) = &mut command.protection {
            limits.write_roots.push(folder.to_owned());
        }
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // What is closed even to its owner would stay.
        open(self.0.path());
    }
}

/// Removes the folders of processes that are no more.
fn sweep(within: &Path) {
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let owner = rest.split('-').next().and_then(|digits| digits.parse().ok());
        let owner = owner.and_then(rustix::process::Pid::from_raw);
        let is_gone = owner.is_some_and(|owner| {
            rustix::process::test_kill_process(owner) == Err(rustix::io::Errno::SRCH)
        });
        if is_gone {
            open(&entry.path());
            // Another process may be doing the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Opens folders that are closed to their owner, as deep as they are.
fn open(top: &Path) {
    let mut todo = vec![top.to_owned()];
    while let Some(folder) = todo.pop() {
        let Ok(found) = folder.symlink_metadata() else { continue };
        if !found.is_dir() {
            continue;
        }
        if found.permissions().mode() & 0o700 != 0o700 {
            let _ = fs::set_permissions(&folder, Permissions::from_mode(0o700));
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        todo.extend(entries.map(|entry| entry.path()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_left_goes_with_it_and_what_dead_processes_left_goes_with_the_next() {
        let within = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        fs::create_dir(within.path().join(format!("{PREFIX}{}-x", dead.id()))).unwrap();
        fs::create_dir(within.path().join("program-of-somebody")).unwrap();

        let own = OwnFolder::make(within.path()).unwrap();
        let closed = own.0.path().join("closed/deep");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join("file"), "").unwrap();
        fs::set_permissions(closed.parent().unwrap(), Permissions::from_mode(0o000)).unwrap();
        drop(own);

        let left: Vec<_> =
            fs::read_dir(within.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["program-of-somebody"]);
    }
}
