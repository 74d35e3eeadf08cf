//! A folder held open, and what stands in it, reached by its name alone.

use crate::root::{Kind, stat_at};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    io,
    ops::Range,
    os::unix::ffi::OsStrExt,
    sync::Arc,
};

/// How many folders of one way are held open. Those further down are reached from the last of them, name by name, so that
/// a deep tree does not take all that a process may have open.
const HELD: usize = 32;

/// A folder below a root, for whoever looks at many files of it.
///
/// What stands in it is opened by its name alone and without following a link: nothing that is swapped meanwhile leads out.
#[derive(Debug, Clone)]
pub struct Folder {
    held: Arc<OwnedFd>,
    /// The names from there; none where the folder itself is held.
    below: Vec<OsString>,
    depth: usize,
}

impl Folder {
    /// Takes an open folder that nobody has listed yet.
    pub(crate) fn list(dir: OwnedFd) -> io::Result<(Self, Names)> {
        let names = Names::read(dir.as_fd())?;
        Ok((Self { held: Arc::new(dir), below: Vec::new(), depth: 0 }, names))
    }

    /// Opens a folder in it, and lists what that holds.
    ///
    /// # Errors
    /// What the system says, also of a link and of what is no folder.
    pub fn enter(&self, name: &OsStr) -> io::Result<(Self, Names)> {
        let dir = self.with(|folder| open_folder(folder, name))?;
        let names = Names::read(dir.as_fd())?;
        let depth = self.depth + 1;
        let entered = if depth < HELD {
            Self { held: Arc::new(dir), below: Vec::new(), depth }
        } else {
            let below = self.below.iter().cloned().chain([name.to_owned()]).collect();
            Self { held: Arc::clone(&self.held), below, depth }
        };
        Ok((entered, names))
    }

    /// Opens a file in it for reading.
    ///
    /// # Errors
    /// What the system says, also of a link. What is no regular file says so once it is read.
    pub fn open(&self, name: &OsStr) -> io::Result<Readable> {
        // Without waiting for whoever writes to a pipe.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = self.with(|folder| fs::openat(folder, name, flags, Mode::empty()))?;
        Ok(Readable(file))
    }

    fn with<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> io::Result<T> {
        let mut here: Option<OwnedFd> = None;
        for name in &self.below {
            let above = here.as_ref().map_or(self.held.as_fd(), AsFd::as_fd);
            here = Some(open_folder(above, name)?);
        }
        Ok(work(here.as_ref().map_or(self.held.as_fd(), AsFd::as_fd))?)
    }
}

pub(crate) fn open_folder(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(folder, name, flags, Mode::empty())
}

/// An open file that is read at given places: a pipe or a terminal refuses that, and loses nothing.
#[derive(Debug)]
pub struct Readable(OwnedFd);

impl Readable {
    /// Reads at a place until `bytes` are full or the file ends, and says how many were read.
    ///
    /// # Errors
    /// What the system says.
    pub fn read_at(&self, bytes: &mut [u8], place: u64) -> io::Result<usize> {
        let mut read = 0;
        while let Some(room) = bytes.get_mut(read..).filter(|room| !room.is_empty()) {
            match rustix::io::pread(&self.0, room, place + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }
}

/// What stands in a folder, sorted by name.
#[derive(Debug, Default)]
pub struct Names {
    /// All names, one after the other.
    text: Vec<u8>,
    entries: Vec<(Range<u32>, Kind)>,
}

impl Names {
    fn read(dir: BorrowedFd<'_>) -> io::Result<Self> {
        let mut names = Self::default();
        read_folder(dir, |name, kind| {
            let kind = match kind {
                // Some file systems do not say.
                FileType::Unknown => match stat_at(dir, OsStr::from_bytes(name))? {
                    Some(stat) => stat.kind,
                    None => return Ok(()),
                },
                kind => Kind::of(kind),
            };
            let start = names.text.len();
            names.text.extend_from_slice(name);
            let place = |at| u32::try_from(at).map_err(|_| Errno::OVERFLOW);
            names.entries.push((place(start)?..place(names.text.len())?, kind));
            Ok(())
        })?;
        let Self { text, entries } = &mut names;
        entries.sort_unstable_by(|a, b| slice(text, &a.0).cmp(slice(text, &b.0)));
        Ok(names)
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a name by its place.
    pub fn get(&self, index: usize) -> Option<(&OsStr, Kind)> {
        let (place, kind) = self.entries.get(index)?;
        Some((OsStr::from_bytes(slice(&self.text, place)), *kind))
    }

    /// Returns all names in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, Kind)> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Keeps those of which `is_kept` says so.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&OsStr, Kind) -> bool) {
        let text = &self.text;
        self.entries.retain(|(place, kind)| is_kept(OsStr::from_bytes(slice(text, place)), *kind));
    }
}

fn slice<'a>(text: &'a [u8], place: &Range<u32>) -> &'a [u8] {
    text.get(place.start as usize..place.end as usize).unwrap_or_default()
}

/// Reads what stands in a folder but for itself and the one above.
#[cfg(target_os = "linux")]
fn read_folder(
    dir: BorrowedFd<'_>,
    mut each: impl FnMut(&[u8], FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    /// As much as the system tells of at once at most.
    const BUFFER: usize = 32 << 10;
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut raw = fs::RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => each(name, entry.file_type())?,
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn read_folder(
    dir: BorrowedFd<'_>,
    mut each: impl FnMut(&[u8], FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    for entry in fs::Dir::read_from(dir)? {
        let entry = entry?;
        match entry.file_name().to_bytes() {
            b"." | b".." => {}
            name => each(name, entry.file_type())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Root;
    use std::{fs as files, os::unix::fs::symlink, path::PathBuf};

    fn told(names: &Names) -> Vec<(&str, Kind)> {
        names.iter().map(|(name, kind)| (name.to_str().unwrap(), kind)).collect()
    }

    #[test]
    fn names_are_sorted_by_their_bytes_and_tell_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a.c", "B"] {
            files::write(folder.path().join(name), "").unwrap();
        }
        files::create_dir(folder.path().join("a")).unwrap();
        symlink("b", folder.path().join("c")).unwrap();

        let (_, mut names) = Root::open(folder.path()).unwrap().folder(".").unwrap();

        let all = [
            ("B", Kind::File),
            ("a", Kind::Folder),
            ("a.c", Kind::File),
            ("b", Kind::File),
            ("c", Kind::Link),
        ];
        assert_eq!(told(&names), all);
        names.retain(|name, kind| kind == Kind::File && name != "b");
        assert_eq!(told(&names), [all[0], all[2]]);
        assert_eq!((names.len(), names.get(2)), (2, None));
    }

    #[test]
    fn a_folder_of_many_names_is_listed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut wanted: Vec<_> = (0..500).map(|it| format!("{it:0>200}")).collect();
        for name in &wanted {
            files::write(folder.path().join(name), "").unwrap();
        }

        let (_, names) = Root::open(folder.path()).unwrap().folder(".").unwrap();

        wanted.sort();
        assert!(names.iter().map(|(name, _)| name).eq(wanted.iter().map(OsStr::new)));
    }

    #[test]
    fn nothing_is_reached_through_a_link_that_came_meanwhile() {
        let outside = tempfile::tempdir().unwrap();
        files::write(outside.path().join("f"), "theirs").unwrap();
        let folder = tempfile::tempdir().unwrap();
        files::create_dir(folder.path().join("a")).unwrap();
        files::write(folder.path().join("a/f"), "ours").unwrap();
        let root = Root::open(folder.path()).unwrap();
        let (top, _) = root.folder(".").unwrap();
        let (within, _) = top.enter(OsStr::new("a")).unwrap();

        files::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
        symlink(outside.path(), folder.path().join("a")).unwrap();
        symlink(outside.path().join("f"), folder.path().join("f")).unwrap();

        let mut bytes = [0; 8];
        let read = within.open(OsStr::new("f")).unwrap().read_at(&mut bytes, 1).unwrap();
        assert_eq!(&bytes[..read], b"urs");
        assert!(top.enter(OsStr::new("a")).is_err());
        assert!(top.open(OsStr::new("f")).is_err());
        assert!(root.folder("a").is_err());
    }

    #[test]
    fn a_pipe_is_not_read_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (top, names) = Root::open(folder.path()).unwrap().folder(".").unwrap();
        assert_eq!(told(&names), [("pipe", Kind::Special)]);

        let read = top.open(OsStr::new("pipe")).unwrap().read_at(&mut [0; 8], 0);

        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::NotSeekable);
    }

    #[test]
    fn a_deep_tree_is_looked_into_with_a_few_folders_open() {
        let folder = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", 2 * HELD).collect();
        files::create_dir_all(folder.path().join(&deep)).unwrap();
        files::write(folder.path().join(deep).join("f"), "deep").unwrap();
        let (mut here, _) = Root::open(folder.path()).unwrap().folder(".").unwrap();
        let mut all = vec![here.clone()];

        for _ in 0..2 * HELD {
            here = here.enter(OsStr::new("d")).unwrap().0;
            all.push(here.clone());
        }

        let mut bytes = [0; 8];
        let read = here.open(OsStr::new("f")).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..read], b"deep");
        all.dedup_by_key(|it| Arc::as_ptr(&it.held));
        assert_eq!(all.len(), HELD);
    }
}
