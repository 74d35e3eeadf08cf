//! Whether the file of a database is still the one that was opened.
//!
//! A file that is removed lives on for those who have it open: they write and read as before, and all is gone when
//! they end. So each commit looks whether what it wrote into is still at its place.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// The file of a SQLite database.
#[derive(Debug)]
pub(crate) struct Place {
    file: PathBuf,
    log: PathBuf,
    identity: Identity,
    /// Whether there is a write-ahead log beside it, as far as is known: not on every file system.
    has_log: OnceLock<bool>,
}

#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = ();

impl Place {
    /// Remembers which file is there now.
    pub(crate) fn of(file: &Path) -> io::Result<Self> {
        let mut log = OsString::from(file);
        log.push("-wal");
        Ok(Self {
            file: file.to_owned(),
            log: log.into(),
            identity: identity(&fs::metadata(file)?),
            has_log: OnceLock::new(),
        })
    }

    /// Looks, after something was written, whether it is still there. Costs two microseconds.
    ///
    /// # Errors
    /// In words, what is no more there.
    pub(crate) fn look(&self) -> Result<(), String> {
        match fs::metadata(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("its file was removed while it was open".to_owned());
            }
            Err(error) => return Err(format!("its file cannot be looked at: {error}")),
            Ok(found) if identity(&found) != self.identity => {
                return Err("its file was replaced by another while it was open".to_owned());
            }
            Ok(_) => {}
        }
        let has_log = self.log.exists();
        if *self.has_log.get_or_init(|| has_log) && !has_log {
            let log = self.log.display();
            return Err(format!(
                "{log}, which holds its last events, was removed while it was open"
            ));
        }
        Ok(())
    }
}

#[cfg(unix)]
fn identity(found: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Identity {}
