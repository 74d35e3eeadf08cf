//! Deleted files, kept with who deleted them and why.

use crate::{
    error::{Error, Refusal},
    replace::{rename_new, sync_folder},
    root::{Kind, Spot},
    tree::{self, Node},
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, Mode, OFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::{OsStr, OsString},
    io::Write,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

const RECORD: &str = "record.json";
const CONTENT: &str = "content";
const PARTIAL: &str = "partial";

/// A folder outside the workspace that takes what is deleted, each with its record.
#[derive(Debug)]
pub struct Trash {
    /// None where it is only read, and not there.
    dir: Option<OwnedFd>,
    path: PathBuf,
}

/// Why something is deleted, for whom and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// In words; not empty.
    pub reason: String,
    /// The run that deletes.
    pub run: String,
    /// The task that deletes.
    pub task: String,
    /// Milliseconds since 1970, from the caller's clock.
    pub at_ms: u64,
}

/// What is in the trash and how it came there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trashed {
    /// Names the entry, in order of time.
    pub id: String,
    /// The workspace it was deleted from.
    pub root: String,
    /// Where it was, below that workspace.
    pub path: String,
    /// The same byte for byte, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// `file`, `folder` or `link`.
    pub kind: String,
    /// BLAKE3 of the file's bytes, the link's target, or the folder's names and hashes.
    pub blake3: String,
    /// Size of all files in it.
    pub bytes: u64,
    /// Why it was deleted.
    pub reason: String,
    /// The run that deleted it.
    pub run: String,
    /// The task that deleted it.
    pub task: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl Trashed {
    /// Returns where it was, below its workspace.
    pub fn original(&self) -> PathBuf {
        match &self.path_bytes {
            Some(bytes) => OsString::from_vec(bytes.clone()).into(),
            None => PathBuf::from(&self.path),
        }
    }
}

impl Trash {
    /// Opens the trash, making its folder if it is not there; only its owner may enter.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be made or opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let path = path.as_ref();
        let io = |e: std::io::Error| Error::io(&path.to_string_lossy(), "open", e);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::open(path, flags, Mode::empty()).map_err(|e| io(e.into()))?;
        Ok(Self { dir: Some(dir), path: path.to_owned() })
    }

    /// Opens the trash for somebody who only looks at it. A folder that is not there is not made, and holds nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder is there and cannot be opened.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match fs::open(path, flags, Mode::empty()) {
            Ok(dir) => Some(dir),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(Error::io(&path.to_string_lossy(), "open", error)),
        };
        Ok(Self { dir, path: path.to_owned() })
    }

    fn dir(&self) -> Result<BorrowedFd<'_>, Error> {
        let dir = self.dir.as_ref().map(OwnedFd::as_fd);
        dir.ok_or_else(|| Error::Missing { path: self.path.to_string_lossy().into_owned() })
    }

    /// Lists what is there, oldest first.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a record cannot be read, [`Error::Io`].
    pub fn list(&self) -> Result<Vec<Trashed>, Error> {
        let written = self.path.to_string_lossy();
        let mut found = Vec::new();
        let Some(dir) = &self.dir else { return Ok(found) };
        for entry in crate::root::list_at(dir.as_fd(), OsStr::new("."), &written)? {
            let Some(id) = entry.name.to_str().filter(|id| is_id(id)) else { continue };
            // Without content the move into the trash did not happen, or is being undone.
            if self.path.join(id).join(CONTENT).symlink_metadata().is_ok() {
                found.push(self.get(id)?);
            }
        }
        Ok(found)
    }

    /// Returns one entry's record.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none, [`Error::Damaged`] if it cannot be read.
    pub fn get(&self, id: &str) -> Result<Trashed, Error> {
        let unknown = || Error::Unknown { what: "trash entry", id: id.to_owned() };
        if !is_id(id) {
            return Err(unknown());
        }
        let text = match std::fs::read(self.path.join(id).join(RECORD)) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
            Err(e) => return Err(Error::io(id, "read the record of", e)),
        };
        let damaged = |problem| Error::Damaged { what: "trash entry", id: id.to_owned(), problem };
        let record: Trashed = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if record.id == id { Ok(record) } else { Err(damaged(format!("it names {:?}", record.id))) }
    }

    /// Removes an entry for good.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is none, [`Error::Io`].
    pub fn purge(&self, id: &str) -> Result<(), Error> {
        if !is_id(id) || self.path.join(id).symlink_metadata().is_err() {
            return Err(Error::Unknown { what: "trash entry", id: id.to_owned() });
        }
        tree::remove(Node { folder: self.dir()?, name: OsStr::new(id), written: id })
    }

    /// Removes for good what was deleted before a time, and returns how many entries that were.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a record cannot be read, [`Error::Io`].
    pub fn purge_before(&self, at_ms: u64) -> Result<usize, Error> {
        let old: Vec<_> = self.list()?.into_iter().filter(|entry| entry.at_ms < at_ms).collect();
        for entry in &old {
            self.purge(&entry.id)?;
        }
        Ok(old.len())
    }

    /// Moves what is at `spot` into the trash. Its record is on the disk before it moves.
    pub(crate) fn put(
        &self,
        spot: &Spot,
        root: &Path,
        removal: &Removal,
    ) -> Result<Trashed, Error> {
        let stat = spot.found()?;
        let (record, folder) = self.begin(spot, root, removal)?;
        let source = Node { folder: spot.folder.as_fd(), name: &spot.name, written: &spot.written };
        let moved = self.write_record(&folder, &record).and_then(|()| {
            let target =
                Node { folder: folder.as_fd(), name: OsStr::new(CONTENT), written: &spot.written };
            relocate(source, target, stat.kind)
        });
        let Err(error) = moved else { return Ok(record) };
        // What has its name in the trash may be all that is left of it.
        if !matches!(crate::root::stat_at(folder.as_fd(), OsStr::new(CONTENT)), Ok(None)) {
            let path = spot.written.clone();
            return Err(Error::InTrash { path, id: record.id, source: Box::new(error) });
        }
        let _ = tree::remove(Node {
            folder: self.dir()?,
            name: OsStr::new(&record.id),
            written: &spot.written,
        });
        Err(error)
    }

    /// Puts a copy of what is at `spot` into the trash, which is on the disk once this returns. What is there stays.
    pub(crate) fn put_copy(
        &self,
        spot: &Spot,
        root: &Path,
        removal: &Removal,
    ) -> Result<Trashed, Error> {
        let (record, folder) = self.begin(spot, root, removal)?;
        let written = spot.written.as_str();
        let source = Node { folder: spot.folder.as_fd(), name: &spot.name, written };
        // Without content there is no entry, so that the content comes last.
        let partial = Node { folder: folder.as_fd(), name: OsStr::new(PARTIAL), written };
        let content = Node { name: OsStr::new(CONTENT), ..partial };
        let copied = self.write_record(&folder, &record).and_then(|()| {
            tree::copy(source, partial)?;
            rename_new(folder.as_fd(), partial.name, folder.as_fd(), content.name)
                .and_then(|()| sync_folder(folder.as_fd()))
                .map_err(|e| Error::io(written, "copy", e))
        });
        if let Err(error) = copied {
            let name = OsStr::new(&record.id);
            let _ = tree::remove(Node { folder: self.dir()?, name, written });
            return Err(error);
        }
        Ok(record)
    }

    /// Makes an entry for what is at `spot`, without its record and its content.
    fn begin(
        &self,
        spot: &Spot,
        root: &Path,
        removal: &Removal,
    ) -> Result<(Trashed, OwnedFd), Error> {
        if removal.reason.trim().is_empty() {
            return Err(Error::refused(&spot.written, Refusal::NoTrash));
        }
        let stat = spot.found()?;
        let source = Node { folder: spot.folder.as_fd(), name: &spot.name, written: &spot.written };
        let (hash, bytes) = tree::hash(source)?;
        let (id, folder) = self.new_entry(removal.at_ms, &spot.written)?;
        let path = spot.real.as_path();
        let record = Trashed {
            id,
            root: root.to_string_lossy().into_owned(),
            path: path.to_string_lossy().into_owned(),
            path_bytes: path.to_str().is_none().then(|| path.as_os_str().as_bytes().to_vec()),
            kind: stat.kind.label().to_owned(),
            blake3: hash.to_string(),
            bytes,
            reason: removal.reason.clone(),
            run: removal.run.clone(),
            task: removal.task.clone(),
            at_ms: removal.at_ms,
        };
        Ok((record, folder))
    }

    /// Moves an entry's content to `spot`, where nothing may be, and drops the entry.
    pub(crate) fn take(&self, record: &Trashed, spot: &Spot) -> Result<(), Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = fs::openat(self.dir()?, &record.id, flags, Mode::empty())
            .map_err(|e| Error::io(&record.id, "open", e))?;
        let source =
            Node { folder: folder.as_fd(), name: OsStr::new(CONTENT), written: &record.id };
        let (hash, _) = tree::hash(source)?;
        if hash.to_string() != record.blake3 {
            let problem = format!("its content has hash {hash}, wanted {}", record.blake3);
            return Err(Error::Damaged { what: "trash entry", id: record.id.clone(), problem });
        }
        let kind = match record.kind.as_str() {
            "folder" => Kind::Folder,
            "link" => Kind::Link,
            _ => Kind::File,
        };
        let target = Node { folder: spot.folder.as_fd(), name: &spot.name, written: &spot.written };
        relocate(source, target, kind)?;
        self.purge(&record.id)
    }

    fn new_entry(&self, at_ms: u64, written: &str) -> Result<(String, OwnedFd), Error> {
        let io = |e: Errno| Error::io(written, "make a trash entry for", e);
        for number in 0_u32.. {
            let id = format!("{at_ms:013}-{number:04}");
            match fs::mkdirat(self.dir()?, &id, Mode::RWXU) {
                Ok(()) => {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                    let folder = fs::openat(self.dir()?, &id, flags, Mode::empty()).map_err(io)?;
                    return Ok((id, folder));
                }
                Err(Errno::EXIST) => {}
                Err(e) => return Err(io(e)),
            }
        }
        Err(io(Errno::EXIST))
    }

    fn write_record(&self, folder: &OwnedFd, record: &Trashed) -> Result<(), Error> {
        let io = |e: std::io::Error| Error::io(&record.path, "record the removal of", e);
        let text = serde_json::to_vec_pretty(record).map_err(|e| io(e.into()))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file =
            fs::openat(folder, RECORD, flags, Mode::RUSR | Mode::WUSR).map_err(|e| io(e.into()))?;
        let mut file = std::fs::File::from(file);
        file.write_all(&text).and_then(|()| file.sync_data()).map_err(io)?;
        let dir = self.dir()?;
        fs::fsync(folder).and_then(|()| fs::fsync(dir)).map_err(|e| io(e.into()))
    }
}

/// Moves to a name that must not exist, also to another file system: there the copy is on the disk
/// and under its name before the original goes.
fn relocate(from: Node<'_>, to: Node<'_>, kind: Kind) -> Result<(), Error> {
    let io = |e: Errno| Error::io(to.written, "move", e);
    let renamed = match rename_new(from.folder, from.name, to.folder, to.name) {
        // A folder cannot have a second name, so where the system has no exclusive rename
        // it is checked and then moved.
        Err(Errno::PERM | Errno::ISDIR) if kind == Kind::Folder => {
            match crate::root::stat_at(to.folder, to.name).map_err(io)? {
                Some(_) => Err(Errno::EXIST),
                None => fs::renameat(from.folder, from.name, to.folder, to.name),
            }
        }
        renamed => renamed,
    };
    match renamed {
        Ok(()) => {}
        Err(Errno::XDEV) => move_by_copy(from, to)?,
        Err(e) => return Err(io(e)),
    }
    sync_folder(to.folder).and_then(|()| sync_folder(from.folder)).map_err(io)
}

fn move_by_copy(from: Node<'_>, to: Node<'_>) -> Result<(), Error> {
    let partial = format!("{}{PARTIAL}-{}", crate::replace::TEMP_PREFIX, std::process::id());
    let partial = Node { name: OsStr::new(&partial), ..to };
    tree::remove(partial)?;
    let copied = tree::copy(from, partial).and_then(|()| {
        rename_new(to.folder, partial.name, to.folder, to.name)
            .and_then(|()| sync_folder(to.folder))
            .map_err(|e| Error::io(to.written, "move", e))
    });
    if let Err(e) = copied {
        let _ = tree::remove(partial);
        return Err(e);
    }
    tree::remove(from)
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node<'a>(folder: &'a OwnedFd, name: &'a str) -> Node<'a> {
        Node { folder: folder.as_fd(), name: OsStr::new(name), written: name }
    }

    #[test]
    fn a_move_by_copy_keeps_modes_and_links_and_refuses_to_clobber() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path();
        std::fs::create_dir_all(base.join("from/tree/sub")).unwrap();
        std::fs::create_dir(base.join("to")).unwrap();
        std::fs::write(base.join("from/tree/run"), "#!").unwrap();
        std::fs::set_permissions(base.join("from/tree/run"), PermissionsExt::from_mode(0o750))
            .unwrap();
        symlink("/nowhere", base.join("from/tree/sub/link")).unwrap();
        let open = |dir: &str| {
            fs::open(base.join(dir), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
        };
        let (from, to) = (open("from"), open("to"));
        let before = tree::hash(node(&from, "tree")).unwrap();

        move_by_copy(node(&from, "tree"), node(&to, "tree")).unwrap();

        assert_eq!(tree::hash(node(&to, "tree")).unwrap(), before);
        let mode = std::fs::metadata(base.join("to/tree/run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        assert!(!base.join("from/tree").exists());
        std::fs::write(base.join("from/tree"), "new").unwrap();
        let clobber = move_by_copy(node(&from, "tree"), node(&to, "tree"));
        assert!(matches!(clobber, Err(Error::Exists { .. })));
        assert!(base.join("from/tree").exists());
        assert_eq!(std::fs::read_dir(base.join("to")).unwrap().count(), 1);
    }

    /// Takes from this thread what lets root write where nobody may.
    #[cfg(target_os = "linux")]
    fn as_a_person() {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut held = capabilities(None).unwrap();
        held.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        set_capabilities(None, held).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_has_come_into_the_trash_stays_there_whatever_fails_then() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
        as_a_person();
        let (temp, other) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let device = |folder: &Path| folder.metadata().unwrap().dev();
        assert_ne!(device(temp.path()), device(other.path()), "one file system is too few");
        let base = temp.path().canonicalize().unwrap();
        let shut = base.join("tree/shut");
        std::fs::create_dir_all(&shut).unwrap();
        std::fs::write(base.join("tree/a"), "only copy").unwrap();
        std::fs::write(shut.join("b"), "kept").unwrap();
        std::fs::set_permissions(&shut, PermissionsExt::from_mode(0o555)).unwrap();
        let root = crate::Root::open(&base).unwrap();
        let spot = root
            .locate(Path::new("tree"), crate::root::Access::Write, crate::root::Last::Keep)
            .unwrap();
        let trash = Trash::open(other.path().join("trash")).unwrap();
        let removal =
            Removal { reason: "unused".into(), run: "r".into(), task: "t".into(), at_ms: 1 };

        let failed = trash.put(&spot, &base, &removal);

        std::fs::set_permissions(&shut, PermissionsExt::from_mode(0o755)).unwrap();
        let Err(Error::InTrash { path, id, .. }) = failed else { panic!("{failed:?}") };
        let content = other.path().join("trash").join(&id).join(CONTENT);
        assert_eq!(path, "tree");
        assert_eq!(trash.list().unwrap()[0].id, id);
        assert_eq!(std::fs::read_to_string(content.join("a")).unwrap(), "only copy");
        let kept = content.join("shut");
        assert_eq!(std::fs::read_to_string(kept.join("b")).unwrap(), "kept");
        std::fs::set_permissions(&kept, PermissionsExt::from_mode(0o755)).unwrap();
    }
}
