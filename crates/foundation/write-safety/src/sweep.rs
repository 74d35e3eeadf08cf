//! What a killed process leaves behind: the parts of files that it had not put in place yet.

use crate::{
    error::Error,
    path::RelPath,
    replace::TEMP_PREFIX,
    root::{Access, Last, Root},
};
use rustix::{
    fs::{self, AtFlags},
    io::Errno,
    process::{Pid, test_kill_process},
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

impl Root {
    /// Removes from a folder what processes of this machine left in it that ended while they wrote, and
    /// returns it. What a living process writes is left alone.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be read or changed, [`Error::Missing`] if it is not there.
    pub fn sweep(&self, folder: &RelPath) -> Result<Vec<RelPath>, Error> {
        let mut swept = Vec::new();
        for entry in self.list(folder)? {
            if !writer(&entry.name, TEMP_PREFIX).is_some_and(is_gone) {
                continue;
            }
            let path = folder.join(&entry.name);
            let spot = self.locate(path.as_ref(), Access::Write, Last::Keep)?;
            match fs::unlinkat(&spot.folder, &spot.name, AtFlags::empty()) {
                Ok(()) => swept.push(path),
                // Somebody else was faster, or it is a folder that is being copied.
                Err(Errno::NOENT | Errno::ISDIR | Errno::PERM) => {}
                Err(error) => return Err(Error::io(&spot.written, "remove", error)),
            }
        }
        Ok(swept)
    }
}

/// Returns the process that a temporary name tells of, behind its prefix.
pub(crate) fn writer(name: &OsStr, prefix: &str) -> Option<Pid> {
    let rest = name.as_bytes().strip_prefix(prefix.as_bytes())?;
    let digits = rest.split(|byte| *byte == b'-').next()?;
    Pid::from_raw(std::str::from_utf8(digits).ok()?.parse().ok()?)
}

pub(crate) fn is_gone(process: Pid) -> bool {
    test_kill_process(process) == Err(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_left_is_swept_away() {
        let temp = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let own = std::process::id();
        let left = format!("{TEMP_PREFIX}{}-0", dead.id());
        let names =
            [left.as_str(), &format!("{TEMP_PREFIX}{own}-0"), &format!("{TEMP_PREFIX}x-0"), "f"];
        for name in names {
            std::fs::write(temp.path().join(name), "x").unwrap();
        }

        let root = Root::open(temp.path()).unwrap();
        let swept = root.sweep(&RelPath::root()).unwrap();

        assert_eq!(swept, [RelPath::parse(&left).unwrap()]);
        assert!(names[1..].iter().all(|name| temp.path().join(name).exists()));
    }
}
