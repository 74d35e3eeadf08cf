//! The key that checkpoints are signed with, and what is remembered of them beside the log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use formwork_trace::{Checkpoint, SigningKey, Trace};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The file that holds the key, in the form PKCS #8.
const KEY: &str = "audit.key";

/// The file that holds a checkpoint a line. Who can write the log need not be able to write this.
const CHECKPOINTS: &str = "checkpoints.jsonl";

/// The folder of state, as far as it is about checkpoints.
pub(crate) struct Seals<'a> {
    pub(crate) state: &'a Path,
}

/// A log, as the lines of the file of checkpoints name it: the address may be spelt otherwise or the file be moved, and
/// the name within may be changed by whoever can write it. What agrees in either is of this log.
pub(crate) struct Log {
    at: String,
    id: String,
}

impl Log {
    /// # Errors
    /// [`Error::Store`] where the log does not tell its name.
    pub(crate) async fn of(trace: &Trace) -> Result<Self, Error> {
        Ok(Self { at: canonical(trace.at()), id: trace.identity().await? })
    }
}

/// Returns where the file of a log really is; what names no file stays as it is.
fn canonical(at: &str) -> String {
    fs::canonicalize(at).map_or_else(|_| at.to_owned(), |path| path.display().to_string())
}

/// A line of the file of checkpoints. One folder of state may serve several logs.
#[derive(Serialize, Deserialize)]
struct Kept {
    store: String,
    /// None in lines of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    checkpoint: Checkpoint,
}

impl Seals<'_> {
    pub(crate) fn key_file(&self) -> PathBuf {
        self.state.join(KEY)
    }

    pub(crate) fn checkpoints_file(&self) -> PathBuf {
        self.state.join(CHECKPOINTS)
    }

    /// Returns the key, where there is one.
    ///
    /// # Errors
    /// [`Error::State`] and [`Error::SigningKey`] name the file, also where others than its owner can read it.
    pub(crate) fn key(&self) -> Result<Option<SigningKey>, Error> {
        let path = self.key_file();
        let read = |action| {
            let path = path.clone();
            move |source| Error::State { action, path, source }
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(read("read")(error)),
        };
        is_private(&path).map_err(read("trust"))?;
        let key = SigningKey::parse(&bytes).map_err(|error| Error::SigningKey {
            what: format!("the key in {}", path.display()),
            reason: error.to_string(),
        })?;
        Ok(Some(key))
    }

    /// Returns the key, made if there is none, and whether it was made.
    ///
    /// # Errors
    /// As [`Seals::key`], and when it cannot be written.
    pub(crate) fn key_or_new(&self) -> Result<(SigningKey, bool), Error> {
        if let Some(key) = self.key()? {
            return Ok((key, false));
        }
        let path = self.key_file();
        let bytes = SigningKey::generate().map_err(|error| Error::SigningKey {
            what: "a key to sign with".to_owned(),
            reason: error.to_string(),
        })?;
        let written = private().create_new(true).open(&path).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        });
        written.map_err(|source| Error::State { action: "write", path: path.clone(), source })?;
        let key = self.key()?.ok_or_else(|| Error::State {
            action: "read",
            path,
            source: io::ErrorKind::NotFound.into(),
        })?;
        Ok((key, true))
    }

    /// Returns the checkpoints of a log that were remembered, and how many are of others.
    ///
    /// # Errors
    /// [`Error::State`] names the file, also where a line of it cannot be read.
    pub(crate) fn remembered(&self, log: &Log) -> Result<(Vec<Checkpoint>, usize), Error> {
        let path = self.checkpoints_file();
        let failed = |source| Error::State { action: "read", path: path.clone(), source };
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(failed(error)),
        };
        let (mut checkpoints, mut others) = (Vec::new(), 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let kept: Kept = serde_json::from_str(line).map_err(|error| failed(error.into()))?;
            let is_here = kept.id.as_deref() == Some(&log.id) || canonical(&kept.store) == log.at;
            match is_here {
                true => checkpoints.push(kept.checkpoint),
                false => others += 1,
            }
        }
        Ok((checkpoints, others))
    }

    /// Remembers a checkpoint, durably.
    ///
    /// # Errors
    /// [`Error::State`] names the file.
    pub(crate) fn remember(&self, log: &Log, checkpoint: &Checkpoint) -> Result<(), Error> {
        let path = self.checkpoints_file();
        let kept = Kept {
            store: log.at.clone(),
            id: Some(log.id.clone()),
            checkpoint: checkpoint.clone(),
        };
        let written = serde_json::to_string(&kept).map_err(io::Error::from).and_then(|line| {
            let mut file = private().create(true).append(true).open(&path)?;
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_all()
        });
        written.map_err(|source| Error::State { action: "write", path, source })
    }
}

/// Opens files that only their owner can read.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

#[cfg(unix)]
fn is_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path)?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("others can read or write it: its mode is {mode:o}"))),
    }
}

#[cfg(not(unix))]
fn is_private(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let state = tempfile::tempdir().unwrap();
        let seals = Seals { state: state.path() };

        let none = seals.key().unwrap().is_none();
        let (first, made) = seals.key_or_new().unwrap();
        let (second, again) = seals.key_or_new().unwrap();

        assert!(none && made && !again);
        assert_eq!(first.public(), second.public());
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let state = tempfile::tempdir().unwrap();
        let seals = Seals { state: state.path() };
        seals.key_or_new().unwrap();
        fs::set_permissions(seals.key_file(), fs::Permissions::from_mode(0o640)).unwrap();

        let refused = seals.key_or_new().map(drop).unwrap_err();

        let told = crate::error::chain(&refused);
        assert!(told.ends_with("others can read or write it: its mode is 100640"), "{told}");
    }
}
