//! Folders in which one process at a time puts files in place.
//!
//! Whether a file is still what it was when it was read, and putting another in its place, are two steps; between them
//! another process could do the same, and its change would be lost. So whoever puts files in place holds their folders
//! by `flock(2)`, which needs no file of its own and ends with the process. It binds those alone who ask for it.

use crate::error::Error;
use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::{self, FlockOperation, Mode, OFlags},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

/// Nobody holds a folder for longer who works: a disk that syncs sixteen files may take seconds.
const LONGEST: Duration = Duration::from_secs(30);

/// Between two looks whether a folder is free.
const PAUSE: Duration = Duration::from_millis(2);

/// Names a folder on this machine.
type Id = (u64, u64);

/// Folders that this process holds, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    held: BTreeMap<Id, Option<OwnedFd>>,
}

impl Folders {
    /// Holds `folders`, each with the path that is told where it is not to be had.
    ///
    /// They are taken in one order, so that two who want the same do not wait for each other.
    ///
    /// # Errors
    /// [`Error::Busy`] names a path whose folder somebody else keeps.
    pub(crate) fn hold<'a>(
        &mut self,
        folders: impl IntoIterator<Item = (BorrowedFd<'a>, &'a str)>,
    ) -> Result<(), Error> {
        let mut wanted = BTreeMap::new();
        for (folder, written) in folders {
            let stat =
                fs::fstat(folder).map_err(|e| Error::io(written, "stat the folder of", e))?;
            #[allow(clippy::useless_conversion, reason = "the types differ from system to system")]
            let id = (u64::try_from(stat.st_dev).unwrap_or(0), u64::from(stat.st_ino));
            wanted.entry(id).or_insert((folder, written));
        }
        let held: BTreeSet<Id> = self.held.keys().copied().collect();
        for (id, (folder, written)) in wanted.into_iter().filter(|(id, _)| !held.contains(id)) {
            self.held.insert(id, one(folder, written)?);
        }
        Ok(())
    }
}

/// Holds one folder; nothing where the system has no such locks there.
fn one(folder: BorrowedFd<'_>, written: &str) -> Result<Option<OwnedFd>, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A folder that may be written but not listed cannot be held.
    let Ok(opened) = fs::openat(folder, ".", flags, Mode::empty()) else { return Ok(None) };
    let since = Instant::now();
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "a lock that could be waited for has no time limit"
        )]
        let pause = || thread::sleep(PAUSE);
        match fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(opened)),
            Err(Errno::WOULDBLOCK) if since.elapsed() < LONGEST => pause(),
            Err(Errno::WOULDBLOCK) => return Err(Error::Busy { path: written.to_owned() }),
            Err(Errno::INTR) => {}
            Err(_) => return Ok(None),
        }
    }
}
