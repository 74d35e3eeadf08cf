//! Contents by their hash.

use crate::{error::Error, ledger::Hash, replace::TEMP_PREFIX};
use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
}

/// Whether a file must outlast a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Synced,
    Written,
}

impl Blobs {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(super) fn put(&self, bytes: &[u8]) -> Result<Hash, Error> {
        let hash = blake3::hash(bytes);
        let place = self.place(hash);
        if let Some(folder) = place.parent() {
            make_private(folder)?;
        }
        // One that a power cut left short is written again.
        let whole = place.metadata().is_ok_and(|found| found.len() == bytes.len() as u64);
        if !whole {
            put_file(&place, bytes, Durability::Written)?;
        }
        Ok(hash)
    }

    pub(super) fn holds(&self, hash: Hash) -> bool {
        self.place(hash).is_file()
    }

    pub(super) fn get(&self, hash: Hash) -> Result<Vec<u8>, Error> {
        let damaged =
            |problem: String| Error::Damaged { what: "content", id: hash.to_string(), problem };
        let bytes = fs::read(self.place(hash)).map_err(|e| damaged(e.to_string()))?;
        if blake3::hash(&bytes) == hash {
            Ok(bytes)
        } else {
            Err(damaged("its hash is another".into()))
        }
    }

    fn place(&self, hash: Hash) -> PathBuf {
        let hex = hash.to_hex();
        self.dir.join(&hex[..2]).join(&hex[2..])
    }
}

/// Makes a folder that only its owner may enter, and those above it.
pub(crate) fn make_private(path: &Path) -> Result<(), Error> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| Error::io(&path.to_string_lossy(), "make", e))
}

/// Writes a whole file at once, readable by its owner alone.
pub(crate) fn put_file(place: &Path, bytes: &[u8], durability: Durability) -> Result<(), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let temp = place.with_file_name(format!("{TEMP_PREFIX}{}-{number}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut open = fs::OpenOptions::new();
        let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
        file.write_all(bytes)?;
        if durability == Durability::Synced {
            file.sync_data()?;
        }
        fs::rename(&temp, place)?;
        if durability == Durability::Synced
            && let Some(folder) = place.parent()
        {
            fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&temp);
        Error::io(&place.to_string_lossy(), "write", e)
    })
}
