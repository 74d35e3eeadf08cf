//! Who still works: an owner of runs holds a lock that the kernel gives back however its process ends.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::Error;

/// After how long the lock of a process that died is swept away: its lease has lapsed by then, and
/// nobody has to be told any more that it is gone.
const STALE: Duration = Duration::from_secs(60);

/// The mark of an owner that lives. It goes when the value is dropped.
#[derive(Debug)]
pub(crate) struct Presence {
    path: PathBuf,
    stays: bool,
    _lock: File, // Not inherited by the programs that are started, so it ends with this process.
}

impl Presence {
    /// Marks `owner`, a name that no other has, as living.
    ///
    /// # Errors
    /// [`Error::State`] names the file.
    pub(crate) fn of(owner: &str, state: &Path) -> Result<Self, Error> {
        let folder = folder(state);
        let path = folder.join(owner);
        let mark = || {
            crate::private::folder(&folder)?;
            let lock = File::create_new(&path)?;
            lock.lock()?;
            Ok(lock)
        };
        let failed = |source| Error::State { action: "lock", path: path.clone(), source };
        let lock = mark().map_err(failed)?;
        sweep(&folder);
        Ok(Self { path, stays: false, _lock: lock })
    }

    /// Ends the owner and leaves its mark behind, by which others are told that it is gone: it could not
    /// give back what it owned, as when the log cannot be written.
    pub(crate) fn end_without_giving_back(mut self) {
        self.stays = true;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // What is left behind is swept away later.
        if !self.stays {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// How much is written to see whether there is room: as much as a short run leaves.
const ROOM: usize = 1 << 20;

/// Tries what a run does first in the folder of state: locks a file there, and writes. Nothing is made for that: the file has no
/// name, so that nothing of it stays even where this process is killed, and a folder that is not there yet is tried by the
/// one that it would be made in.
///
/// # Errors
/// As [`Presence::of`], and [`Error::State`] where there is no room.
pub(crate) fn could_work(state: &Path) -> Result<(), Error> {
    let wanted = folder(state);
    let there = wanted.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    let there = there.unwrap_or(&wanted);
    let failed = |action| move |source| Error::State { action, path: there.to_owned(), source };
    let mut file = tempfile::tempfile_in(there).map_err(failed("lock a file in"))?;
    file.lock().map_err(failed("lock a file in"))?;
    let written = file.write_all(&vec![0; ROOM]).and_then(|()| file.sync_all());
    written.map_err(failed("write in"))
}

/// Tells whether an owner has ended for sure. Of one that worked with another state folder, as on
/// another machine, nothing is known.
pub(crate) fn is_gone(owner: &str, state: &Path) -> bool {
    let is_name = owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_name && is_unlocked(&folder(state).join(owner)).unwrap_or(false)
}

fn folder(state: &Path) -> PathBuf {
    state.join("owners")
}

fn is_unlocked(path: &Path) -> io::Result<bool> {
    match File::open(path)?.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes what processes have left behind that died long ago.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified());
        let is_stale = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STALE));
        if is_stale && is_unlocked(&entry.path()).unwrap_or(false) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_gone_once_its_lock_is_and_only_if_it_was_here() {
        let state = tempfile::tempdir().unwrap();
        let present = Presence::of("process-1", state.path()).unwrap();

        let while_it_lives = is_gone("process-1", state.path());
        let Presence { path, _lock: lock, .. } = &present;
        lock.unlock().unwrap(); // As the kernel does when a process dies.
        let after = is_gone("process-1", state.path());

        assert!(path.exists());
        assert_eq!((while_it_lives, after), (false, true));
        assert!(!is_gone("process-2", state.path()));
        assert!(!is_gone("../owners/process-1", state.path()));
    }

    #[test]
    fn an_owner_that_could_not_give_back_what_it_had_is_gone() {
        let state = tempfile::tempdir().unwrap();

        Presence::of("process-1", state.path()).unwrap().end_without_giving_back();

        assert!(is_gone("process-1", state.path()));
    }

    #[test]
    fn who_looks_whether_work_is_possible_makes_nothing() {
        let above = tempfile::tempdir().unwrap();
        let state = above.path().join("state");
        could_work(&state).unwrap();
        let made = fs::read_dir(above.path()).unwrap().count();
        fs::create_dir(&state).unwrap();
        could_work(&state).unwrap();
        let made_below = fs::read_dir(&state).unwrap().count();
        fs::write(folder(&state), "in the way").unwrap();

        let refused = could_work(&state).unwrap_err();

        assert_eq!((made, made_below), (0, 0));
        let told = format!("cannot lock a file in {}", folder(&state).display());
        assert_eq!(refused.to_string(), told);
    }

    #[test]
    fn a_mark_goes_with_its_value() {
        let state = tempfile::tempdir().unwrap();

        drop(Presence::of("process-1", state.path()).unwrap());

        assert!(fs::read_dir(folder(state.path())).unwrap().next().is_none());
    }
}
