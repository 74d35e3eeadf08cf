//! Finds the file that a program's name means.

use std::{
    ffi::OsStr,
    io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use crate::wire::NotRun;

/// Returns the file to run, searched for in `path`, as a path with a `/` in it, so that nothing searches for it again.
pub(crate) fn find(program: &OsStr, cwd: &Path, path: &OsStr) -> Result<PathBuf, NotRun> {
    if !cwd.is_dir() {
        return Err(NotRun::DirectoryNotFound);
    }
    if program.as_bytes().contains(&b'/') {
        let file = cwd.join(program);
        return match file.exists() {
            true => Ok(file),
            false => Err(not_found(file.as_os_str())),
        };
    }
    // A relative entry would make the same command mean another program in another folder.
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| !program.is_empty() && is_program(file))
        .ok_or_else(|| not_found(if path.is_empty() { OsStr::new("an empty PATH") } else { path }))
}

/// Says why the program at `file` did not start.
pub(crate) fn not_started(file: &Path, error: &io::Error) -> NotRun {
    match error.kind() {
        // The file was there a moment ago: what is missing is the interpreter that it names.
        io::ErrorKind::NotFound => {
            not_found(format!("{} (or its interpreter)", file.display()).as_ref())
        }
        io::ErrorKind::ArgumentListTooLong => NotRun::TooLong,
        _ => NotRun::NotStarted { errno: error.raw_os_error().unwrap_or_default() },
    }
}

fn not_found(searched: &OsStr) -> NotRun {
    NotRun::ProgramNotFound { searched: searched.to_string_lossy().into_owned() }
}

/// Says whether a file may be run.
pub(crate) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
