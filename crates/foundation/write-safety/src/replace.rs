//! Puts whole files in place: at any moment the old one is there or the new one.

use crate::{
    error::Error,
    root::{Spot, Stat, read_small, read_whole, stat_at},
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags},
    io::Errno,
};
use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    io::Write,
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicU64, Ordering},
};

/// Begins the names of files that are not in place yet; a kill may leave one behind.
pub(crate) const TEMP_PREFIX: &str = ".formwork-tmp-";

/// Whether something may be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    Replace,
    New,
}

/// The content that stands in a place, as it is to be replaced.
#[derive(Debug)]
pub(crate) struct Old {
    pub(crate) file: File,
    /// Taken before the content was read, so that a later change shows.
    pub(crate) stat: Stat,
    pub(crate) bytes: Vec<u8>,
}

impl Old {
    /// Reads what a session may work with.
    pub(crate) fn read(spot: &Spot) -> Result<Self, Error> {
        Self::read_by(spot, read_small)
    }

    /// Reads what was written just now, however large it is.
    pub(crate) fn read_whole(spot: &Spot) -> Result<Self, Error> {
        Self::read_by(spot, read_whole)
    }

    fn read_by(
        spot: &Spot,
        read: fn(&File, u64, &str) -> Result<Vec<u8>, Error>,
    ) -> Result<Self, Error> {
        let (file, stat) = spot.open_known()?;
        let bytes = read(&file, stat.len, &spot.written)?;
        Ok(Self { file, stat, bytes })
    }
}

/// A new content, written beside its place under another name.
#[derive(Debug)]
pub(crate) struct Staged {
    folder: OwnedFd,
    temp: String,
    name: std::ffi::OsString,
    written: String,
    file: File,
    put: Put,
    /// What stands in the place now, as it was when it was read.
    expects: Option<Stat>,
    in_place: bool,
}

impl Staged {
    /// Writes `bytes` beside the place of `spot`; mode, owner and attributes are those of `old`.
    ///
    /// The bits that lend the owner's rights are not kept, as the system drops them on any write.
    pub(crate) fn write(
        spot: Spot,
        bytes: &[u8],
        old: Option<&Old>,
        mode: Option<u32>,
    ) -> Result<Self, Error> {
        let Spot { folder, name, written, .. } = spot;
        let action = "write beside";
        let new_mode = if old.is_some() { 0o600 } else { 0o666 };
        let (temp, file) =
            create_temp(folder.as_fd(), new_mode).map_err(|e| Error::io(&written, action, e))?;
        let mut staged = Self {
            folder,
            temp,
            name,
            written,
            file,
            put: if old.is_some() { Put::Replace } else { Put::New },
            expects: old.map(|old| old.stat),
            in_place: false,
        };
        let done = staged.file.write_all(bytes).map_err(|e| Error::io(&staged.written, action, e));
        done?;
        let kept = old.map_or(Ok(()), |old| staged.keep_metadata(&old.file)).and_then(|()| {
            mode.map_or(Ok(()), |mode| {
                fs::fchmod(&staged.file, Mode::from_raw_mode(mode_bits(mode & 0o1777)))
            })
        });
        kept.map_err(|e| Error::io(&staged.written, action, e))?;
        Ok(staged)
    }

    /// Lets those run it who may read it.
    pub(crate) fn make_runnable(&self) -> Result<(), Error> {
        let made = fs::fstat(&self.file).and_then(|stat| {
            let mode = runnable(Stat::of(&stat).mode);
            fs::fchmod(&self.file, Mode::from_raw_mode(mode_bits(mode)))
        });
        made.map_err(|e| Error::io(&self.written, "set the mode of", e))
    }

    /// Returns the permission bits that the file has by now.
    pub(crate) fn mode(&self) -> Option<u32> {
        fs::fstat(&self.file).ok().map(|stat| Stat::of(&stat).mode)
    }

    fn keep_metadata(&self, old: &File) -> Result<(), Errno> {
        let (before, now) = (fs::fstat(old)?, fs::fstat(&self.file)?);
        if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid) {
            let (uid, gid) = (Uid::from_raw(before.st_uid), Gid::from_raw(before.st_gid));
            // Only the superuser gives files away; the group often works.
            let owned = fs::fchown(&self.file, Some(uid), Some(gid));
            if owned.is_err() {
                let _ = fs::fchown(&self.file, None, Some(gid));
            }
        }
        // Attributes go before the mode: an access list would change it.
        for name in attribute_names(old) {
            // It would lend rights to the new content.
            if name == b"security.capability" {
                continue;
            }
            let name = OsStr::from_bytes(&name);
            let Ok(value) = attribute(old, name) else { continue };
            // Not every attribute is ours to set.
            let _ = fs::fsetxattr(&self.file, name, &value, XattrFlags::empty());
        }
        fs::fchmod(&self.file, Mode::from_raw_mode(mode_bits(Stat::of(&before).mode & 0o1777)))
    }

    /// Brings the content to the disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        // The inode is new, so its size, mode and place go with the data.
        self.file.sync_data().map_err(|e| Error::io(&self.written, "sync", e))
    }

    /// Returns the folder that it is put into, with the path as it was written.
    pub(crate) fn place(&self) -> (BorrowedFd<'_>, &str) {
        (self.folder.as_fd(), &self.written)
    }

    /// Checks that what stands in the place is still what it was when it was read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let io = |e: Errno| Error::io(&self.written, "replace", e);
        let now = stat_at(self.folder.as_fd(), &self.name).map_err(io)?;
        match self.put {
            Put::Replace if now != self.expects => Err(Error::Raced { path: self.written.clone() }),
            Put::New if now.is_some() => Err(Error::Exists { path: self.written.clone() }),
            Put::Replace | Put::New => Ok(()),
        }
    }

    /// Puts the file in its place. It lasts once the folder is synced.
    pub(crate) fn rename(&mut self) -> Result<(), Error> {
        let io = |e: Errno| Error::io(&self.written, "replace", e);
        let folder = self.folder.as_fd();
        if self.put == Put::Replace {
            // Who holds the folder as well cannot have changed it since; for others this narrows the moment.
            self.check()?;
            fs::renameat(folder, &self.temp, folder, &self.name).map_err(io)?;
        } else {
            rename_new(folder, OsStr::new(&self.temp), folder, &self.name).map_err(io)?;
        }
        self.in_place = true;
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.in_place {
            let _ = fs::unlinkat(&self.folder, &self.temp, AtFlags::empty());
        }
    }
}

fn create_temp(folder: BorrowedFd<'_>, mode: u32) -> Result<(String, File), Errno> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temp = format!("{TEMP_PREFIX}{}-{number}", std::process::id());
        match fs::openat(folder, &temp, flags, Mode::from_raw_mode(mode_bits(mode))) {
            Ok(file) => return Ok((temp, File::from(file))),
            // Left by a killed process that had our number.
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Moves a name to one that must not exist.
pub(crate) fn rename_new(
    from: BorrowedFd<'_>,
    old: &OsStr,
    to: BorrowedFd<'_>,
    new: &OsStr,
) -> Result<(), Errno> {
    match fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        // Some file systems cannot; a second name for the file can be made only where none is.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::linkat(from, old, to, new, AtFlags::empty())?;
            fs::unlinkat(from, old, AtFlags::empty())
        }
        done => done,
    }
}

/// Returns permission bits with which those may run a file who may read it.
pub(crate) const fn runnable(mode: u32) -> u32 {
    let mode = mode & 0o666;
    mode | (mode & 0o444) >> 2
}

#[allow(clippy::useless_conversion, reason = "the type differs from system to system")]
pub(crate) fn mode_bits(mode: u32) -> fs::RawMode {
    fs::RawMode::try_from(mode & 0o7777).unwrap_or(0)
}

fn attribute_names(file: &File) -> Vec<Vec<u8>> {
    let len = match fs::flistxattr_query(file) {
        Ok(len) if len > 0 => len,
        _ => return Vec::new(),
    };
    let mut names = vec![0; len];
    let len = fs::flistxattr(file, names.as_mut_slice()).unwrap_or(0);
    let names = names.get(..len).unwrap_or_default().split(|&byte| byte == 0);
    names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

fn attribute(file: &File, name: &OsStr) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; fs::fgetxattr_query(file, name)?];
    if !value.is_empty() {
        let len = fs::fgetxattr(file, name, value.as_mut_slice())?;
        value.truncate(len);
    }
    Ok(value)
}

/// Brings a folder's names to the disk.
pub(crate) fn sync_folder(folder: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::openat(folder, ".", flags, Mode::empty()) {
        Ok(folder) => fs::fsync(folder),
        // A folder that may be written but not listed cannot be synced either.
        Err(Errno::ACCESS) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Brings many files to the disk.
///
/// All are on their way before the first is waited for: that one brings the places of all, since a journal commits what it
/// knows together, and the others find most of it done. A thread for each, which wait for each other and for a processor,
/// took longer.
pub(crate) fn sync_all(files: &[Staged]) -> Result<(), Error> {
    #[cfg(target_os = "linux")]
    if files.len() > 1 {
        for file in files {
            // That they are not needed is how to have pages written now. It is a hint; waiting for them is what counts.
            let _ = fs::fadvise(&file.file, 0, None, fs::Advice::DontNeed);
        }
    }
    files.iter().try_for_each(Staged::sync)
}

/// Syncs each folder of `files` once.
pub(crate) fn sync_folders(files: &[Staged]) -> Result<(), Error> {
    let mut done = HashSet::new();
    for file in files {
        let io = |e: Errno| Error::io(&file.written, "sync the folder of", e);
        let inode = Stat::of(&fs::fstat(&file.folder).map_err(io)?).inode;
        if done.insert(inode) {
            sync_folder(file.folder.as_fd()).map_err(io)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{Access, Last, Root};
    use std::path::Path;

    #[test]
    fn what_another_process_wrote_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "one").unwrap();
        let root = Root::open(folder.path()).unwrap();
        let spot = root.locate(Path::new("f"), Access::Write, Last::Keep).unwrap();
        let old = Old::read(&spot).unwrap();
        let mut staged = Staged::write(spot, b"ours", Some(&old), None).unwrap();

        std::fs::write(&file, "theirs").unwrap();
        let raced = staged.rename();

        assert!(matches!(raced, Err(Error::Raced { path }) if path == "f"));
        drop(staged);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_never_replaces_one_that_came_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let spot = root.locate(Path::new("f"), Access::Write, Last::Keep).unwrap();
        let mut staged = Staged::write(spot, b"ours", None, None).unwrap();

        std::fs::write(folder.path().join("f"), "theirs").unwrap();
        let exists = staged.rename();

        assert!(matches!(exists, Err(Error::Exists { path }) if path == "f"));
        assert_eq!(std::fs::read_to_string(folder.path().join("f")).unwrap(), "theirs");
    }
}
