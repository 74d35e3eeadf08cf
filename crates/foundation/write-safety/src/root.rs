//! A folder opened once, below which every path is resolved at the time of use.

use crate::{
    error::{Error, Refusal},
    folder::{Folder, Names, open_folder},
    path::RelPath,
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs::File,
    io::Read,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Component, Path, PathBuf},
};

/// As many links as the Linux kernel follows in one path.
const MAX_LINKS: usize = 40;
/// How often a name may change its kind under us before we give up.
const MAX_RACES: usize = 16;
/// Files are read whole, so one that would fill the memory is refused.
const MAX_FILE: u64 = 1 << 30;
/// What a session reads it may hold several times over, as bytes and as text, and many sessions read at once.
const MAX_READ: u64 = 32 << 20;

/// A workspace folder, held open, and the folders that may be read besides it.
///
/// Whatever a path says (`..`, absolute, links, links to links, links swapped meanwhile), what is
/// opened lies below one of these folders. An absolute path is fine if it lies below one.
/// A hard link cannot be told from a file; so files are only ever replaced, never written in place.
#[derive(Debug)]
pub struct Root {
    /// The workspace first, then the trusted roots.
    anchors: Vec<Anchor>,
    resolver: Resolver,
}

#[derive(Debug)]
struct Anchor {
    dir: OwnedFd,
    /// As the system names it, without links.
    path: PathBuf,
    /// As the caller named it.
    given: PathBuf,
}

/// How folders are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolver {
    /// One `openat2` for a path without links, else as `Walk`.
    Kernel,
    /// Name by name, each opened without following, links read and resolved here.
    Walk,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, socket or device, which is never opened.
    Special,
}

impl Kind {
    pub(crate) fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            _ => Self::Special,
        }
    }

    /// Names the kind in a message.
    pub fn label(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Link => "link",
            Self::Special => "special file",
        }
    }
}

/// What the system says of a file, folder or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// File, folder, link or special.
    pub kind: Kind,
    /// Size in bytes.
    pub len: u64,
    /// Permission bits, at most `0o7777`.
    pub mode: u32,
    /// Last change of the content, in nanoseconds since 1970.
    pub modified: i128,
    /// Last change of content, name or mode, in nanoseconds since 1970.
    pub changed: i128,
    /// How many names the file has.
    pub links: u64,
    /// Device and number of the inode.
    pub inode: (u64, u64),
}

impl Stat {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the fields' types differ from system to system"
    )]
    pub(crate) fn of(stat: &fs::Stat) -> Self {
        let nanos = |secs: i64, nanos: i64| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        Self {
            kind: Kind::of(FileType::from_raw_mode(stat.st_mode)),
            len: u64::try_from(stat.st_size).unwrap_or(0),
            mode: u32::from(stat.st_mode) & 0o7777,
            modified: nanos(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: nanos(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            links: stat.st_nlink as u64,
            inode: (stat.st_dev as u64, stat.st_ino as u64),
        }
    }
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name alone.
    pub name: OsString,
    /// What it is; a link is not followed.
    pub kind: Kind,
}

/// Whether the last name of a path is followed if it is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// What a path is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Where a path really leads: a folder held open and a name within it.
#[derive(Debug)]
pub(crate) struct Spot {
    /// The path as the caller wrote it.
    pub(crate) written: String,
    /// Without links, below its anchor.
    pub(crate) real: RelPath,
    /// The folder that holds the name; the anchor itself for the anchor.
    pub(crate) folder: OwnedFd,
    /// `.` for the anchor.
    pub(crate) name: OsString,
    /// What is there, not following; none if nothing is.
    pub(crate) stat: Option<Stat>,
    /// Index of the anchor; 0 is the workspace.
    anchor: usize,
}

enum Step {
    Name(OsString),
    Up,
}

impl Root {
    /// Opens a workspace folder.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Kind`] or [`Error::Io`] if it is not there, no folder or closed to us.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let anchor = Anchor::open(path.as_ref())?;
        let resolver = Resolver::probe(anchor.dir.as_fd());
        Ok(Self { anchors: vec![anchor], resolver })
    }

    /// Adds a folder that may be read, never written.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn trust(mut self, path: impl AsRef<Path>) -> Result<Self, Error> {
        self.anchors.push(Anchor::open(path.as_ref())?);
        Ok(self)
    }

    /// Resolves name by name also where the kernel could do it; slower, otherwise the same.
    #[cfg(test)]
    pub(crate) fn walking(mut self) -> Self {
        self.resolver = Resolver::Walk;
        self
    }

    /// Returns the workspace folder's absolute path, without links.
    pub fn path(&self) -> &Path {
        &self.workspace().path
    }

    /// Parses a path into the workspace: relative, or absolute and below it.
    ///
    /// # Errors
    /// [`Error::Refused`] if by its text it leads elsewhere.
    pub fn rel(&self, path: impl AsRef<Path>) -> Result<RelPath, Error> {
        let path = path.as_ref();
        match self.place(path)? {
            (0, rel) => Ok(rel),
            (index, _) => Err(Error::refused(&path.to_string_lossy(), self.read_only(index))),
        }
    }

    /// Reads a whole regular file.
    ///
    /// # Errors
    /// [`Error::Refused`] if it leads out or is no file; [`Error::Missing`], [`Error::Kind`],
    /// [`Error::TooLarge`], [`Error::Io`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        self.locate(path.as_ref(), Access::Read, Last::Follow)?.read()
    }

    /// Reads a whole regular file that is small enough for a session to work with.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::TooLarge`] from 32 MiB on.
    pub fn read_small(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
        self.locate(path.as_ref(), Access::Read, Last::Follow)?.read_small()
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        if let Some(file) = self.open_straight_file(path.as_ref()) {
            return Ok(file);
        }
        self.locate(path.as_ref(), Access::Read, Last::Follow)?.open()
    }

    /// Says what a path leads to, following links.
    ///
    /// # Errors
    /// [`Error::Refused`] if it leads out, [`Error::Missing`] if nothing is there.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Stat, Error> {
        self.locate(path.as_ref(), Access::Read, Last::Follow)?.found()
    }

    /// Says what a name is, not following it if it is a link.
    ///
    /// # Errors
    /// As [`stat`](Self::stat).
    pub fn stat_link(&self, path: impl AsRef<Path>) -> Result<Stat, Error> {
        self.locate(path.as_ref(), Access::Read, Last::Keep)?.found()
    }

    /// Returns the path without links, below the root that holds it.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); the last name need not exist.
    pub fn real(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let spot = self.locate(path.as_ref(), Access::Read, Last::Follow)?;
        Ok(self.anchors.get(spot.anchor).unwrap_or(self.workspace()).path.join(spot.real.as_path()))
    }

    /// Lists a folder, sorted by name.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); [`Error::Kind`] if it is no folder.
    pub fn list(&self, path: impl AsRef<Path>) -> Result<Vec<Entry>, Error> {
        self.locate(path.as_ref(), Access::Read, Last::Follow)?.list()
    }

    /// Opens a folder and lists it, for whoever looks at many files below it.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn folder(&self, path: impl AsRef<Path>) -> Result<(Folder, Names), Error> {
        let spot = self.locate(path.as_ref(), Access::Read, Last::Follow)?;
        let written = &spot.written;
        let kind = spot.found()?.kind;
        if kind != Kind::Folder {
            let path = written.clone();
            return Err(Error::Kind { path, wanted: "folder", found: kind.label() });
        }
        let opened = open_folder(spot.folder.as_fd(), &spot.name).map_err(|e| match e {
            // It was a folder a moment ago.
            Errno::NOTDIR | Errno::LOOP => Error::refused(written, Refusal::Unsteady),
            e => Error::io(written, "open", e),
        })?;
        Folder::list(opened).map_err(|e| Error::io(written, "list", e))
    }

    /// Opens a folder to look at what stands in it.
    pub(crate) fn enter(&self, path: &RelPath) -> Result<Opened, Error> {
        self.locate(path.as_ref(), Access::Read, Last::Follow)?.enter()
    }

    fn workspace(&self) -> &Anchor {
        &self.anchors[0] // `open` puts it there and nothing takes it away.
    }

    fn read_only(&self, index: usize) -> Refusal {
        let root =
            self.anchors.get(index).map(|anchor| anchor.given.to_string_lossy().into_owned());
        Refusal::ReadOnly { root: root.unwrap_or_default() }
    }

    /// Finds the anchor that a path lies below by its text.
    fn place(&self, path: &Path) -> Result<(usize, RelPath), Error> {
        if path.is_relative() {
            return Ok((0, RelPath::parse(path)?));
        }
        let refused = |why| Error::refused(&path.to_string_lossy(), why);
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(refused(Refusal::Nul));
        }
        let mut folded = PathBuf::from("/");
        for component in path.components() {
            match component {
                Component::Normal(name) => folded.push(name),
                Component::ParentDir => drop(folded.pop()), // The parent of `/` is `/`.
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        let (index, rest) = self.anchor_of(&folded).ok_or_else(|| refused(Refusal::Outside))?;
        Ok((index, RelPath::from_names(rest.iter())))
    }

    fn anchor_of<'p>(&self, absolute: &'p Path) -> Option<(usize, &'p Path)> {
        self.anchors.iter().enumerate().find_map(|(index, anchor)| {
            let below = absolute.strip_prefix(&anchor.path);
            let rest = below.or_else(|_| absolute.strip_prefix(&anchor.given)).ok()?;
            Some((index, rest))
        })
    }

    /// Resolves a path to an open folder and a name within it.
    pub(crate) fn locate(&self, path: &Path, access: Access, last: Last) -> Result<Spot, Error> {
        let written = path.to_string_lossy().into_owned();
        let (anchor, rel) = self.place(path)?;
        if access == Access::Write && anchor != 0 {
            return Err(Error::refused(&written, self.read_only(anchor)));
        }
        if let Some(spot) = self.locate_straight(&written, anchor, &rel, last)? {
            return Ok(spot);
        }
        self.walk(written, anchor, &rel, access, last)
    }

    /// Opens a file in one step; none if a link or anything else is in the way.
    fn open_straight_file(&self, path: &Path) -> Option<File> {
        let Resolver::Kernel = self.resolver else { return None };
        let (anchor, rel) = self.place(path).ok()?;
        let top = self.anchors.get(anchor).filter(|_| !rel.is_root())?;
        // Without waiting for whoever writes to a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(open_beneath(top.dir.as_fd(), rel.as_path(), flags).ok()?);
        file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
    }

    /// Opens the folder in one step; none if a link or anything else is in the way.
    fn locate_straight(
        &self,
        written: &str,
        anchor: usize,
        rel: &RelPath,
        last: Last,
    ) -> Result<Option<Spot>, Error> {
        let (Resolver::Kernel, Some(top)) = (self.resolver, self.anchors.get(anchor)) else {
            return Ok(None);
        };
        let (Some(parent), Some(name)) = (rel.parent(), rel.name()) else { return Ok(None) };
        let folder = if parent.is_root() {
            top.dir.try_clone().map_err(|e| Error::io(written, "open", e))?
        } else {
            match open_straight(top.dir.as_fd(), parent.as_path()) {
                Ok(folder) => folder,
                Err(_) => return Ok(None), // The walk finds out what is wrong.
            }
        };
        let stat = stat_at(folder.as_fd(), name).map_err(|e| Error::io(written, "stat", e))?;
        if last == Last::Follow && stat.is_some_and(|stat| stat.kind == Kind::Link) {
            return Ok(None);
        }
        let (written, name) = (written.to_owned(), name.to_owned());
        Ok(Some(Spot { written, real: rel.clone(), folder, name, stat, anchor }))
    }

    /// Goes name by name from the anchor. A folder is opened without following, a link is read and
    /// its target put in its place, `..` goes back to the folder we came from, which is still open.
    fn walk(
        &self,
        written: String,
        mut anchor: usize,
        rel: &RelPath,
        access: Access,
        last: Last,
    ) -> Result<Spot, Error> {
        let mut todo: VecDeque<Step> = rel.to_names().into_iter().map(Step::Name).collect();
        let mut trail: Vec<(OsString, OwnedFd)> = Vec::new();
        let (mut links, mut races) = (0, 0);
        let mut link = String::new();
        loop {
            let top = self.anchors.get(anchor).unwrap_or(self.workspace());
            let here = trail.last().map_or(top.dir.as_fd(), |(_, dir)| dir.as_fd());
            let io = |action, e: Errno| match e {
                Errno::NOTDIR => {
                    Error::Kind { path: written.clone(), wanted: "folder", found: "file" }
                }
                e => Error::io(&written, action, e),
            };
            let name = match todo.pop_front() {
                Some(Step::Name(name)) => name,
                Some(Step::Up) => {
                    if trail.pop().is_none() {
                        // Only a link's target can climb; it may climb into another anchor.
                        let mut above = top.path.clone();
                        above.pop();
                        (anchor, todo) = self.elsewhere(&written, &link, above, todo, access)?;
                    }
                    continue;
                }
                None => {
                    // The path ended in a folder that is open already.
                    let folder =
                        here.try_clone_to_owned().map_err(|e| Error::io(&written, "open", e))?;
                    let real = RelPath::from_names(trail.iter().map(|(name, _)| name.as_os_str()));
                    let stat =
                        stat_at(folder.as_fd(), OsStr::new(".")).map_err(|e| io("stat", e))?;
                    let Some((name, _)) = trail.pop() else {
                        return Ok(Spot { written, real, folder, name: ".".into(), stat, anchor });
                    };
                    let above = trail.last().map_or(top.dir.as_fd(), |(_, dir)| dir.as_fd());
                    let folder =
                        above.try_clone_to_owned().map_err(|e| Error::io(&written, "open", e))?;
                    return Ok(Spot { written, real, folder, name, stat, anchor });
                }
            };
            let stat = stat_at(here, &name).map_err(|e| io("stat", e))?;
            let is_last = todo.is_empty();
            match stat.map(|stat| stat.kind) {
                Some(Kind::Link) if !(is_last && last == Last::Keep) => {
                    links += 1;
                    if links > MAX_LINKS {
                        let why = Refusal::TooManyLinks { limit: MAX_LINKS };
                        return Err(Error::refused(&written, why));
                    }
                    let target = match fs::readlinkat(here, &name, Vec::new()) {
                        Ok(target) => PathBuf::from(OsString::from_vec(target.into_bytes())),
                        // No longer a link: look again.
                        Err(Errno::INVAL | Errno::NOENT) if races < MAX_RACES => {
                            races += 1;
                            todo.push_front(Step::Name(name));
                            continue;
                        }
                        Err(Errno::INVAL) => {
                            return Err(Error::refused(&written, Refusal::Unsteady));
                        }
                        Err(e) => return Err(io("read the link", e)),
                    };
                    link = target.to_string_lossy().into_owned();
                    for component in target.components().rev() {
                        match component {
                            Component::Normal(name) => todo.push_front(Step::Name(name.to_owned())),
                            Component::ParentDir => todo.push_front(Step::Up),
                            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
                        }
                    }
                    if target.is_absolute() {
                        trail.clear();
                        (anchor, todo) =
                            self.elsewhere(&written, &link, PathBuf::from("/"), todo, access)?;
                    }
                }
                Some(Kind::Folder) if !is_last => {
                    let flags =
                        OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | path_flag();
                    match fs::openat(here, &name, flags, Mode::empty()) {
                        Ok(folder) => trail.push((name, folder)),
                        // No longer a folder: look again.
                        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) if races < MAX_RACES => {
                            races += 1;
                            todo.push_front(Step::Name(name));
                        }
                        Err(Errno::NOTDIR | Errno::LOOP) => {
                            return Err(Error::refused(&written, Refusal::Unsteady));
                        }
                        Err(e) => return Err(io("open", e)),
                    }
                }
                None if !is_last => {
                    // A missing folder followed by `..` names nothing either.
                    return Err(Error::Missing { path: written });
                }
                Some(kind @ (Kind::File | Kind::Special)) if !is_last => {
                    return Err(Error::Kind {
                        path: written,
                        wanted: "folder",
                        found: kind.label(),
                    });
                }
                Some(Kind::File | Kind::Folder | Kind::Link | Kind::Special) | None => {
                    let names = trail.iter().map(|(name, _)| name.as_os_str());
                    let real = RelPath::from_names(names.chain([name.as_os_str()]));
                    let folder =
                        here.try_clone_to_owned().map_err(|e| Error::io(&written, "open", e))?;
                    return Ok(Spot { written, real, folder, name, stat, anchor });
                }
            }
        }
    }

    /// Finds the anchor below which a link's absolute target lies, and the steps left from there.
    fn elsewhere(
        &self,
        written: &str,
        link: &str,
        mut from: PathBuf,
        mut steps: VecDeque<Step>,
        access: Access,
    ) -> Result<(usize, VecDeque<Step>), Error> {
        // `from` holds no links, so climbing by text is exact; further on the anchor decides.
        while let Some(Step::Up) = steps.front() {
            steps.pop_front();
            from.pop();
        }
        loop {
            if let Some((anchor, rest)) = self.anchor_of(&from) {
                if access == Access::Write && anchor != 0 {
                    return Err(Error::refused(written, self.read_only(anchor)));
                }
                for name in rest.iter().rev() {
                    steps.push_front(Step::Name(name.to_owned()));
                }
                return Ok((anchor, steps));
            }
            let Some(Step::Name(name)) = steps.pop_front() else {
                let target = link.to_owned();
                return Err(Error::refused(written, Refusal::LinkOutside { target }));
            };
            from.push(name);
        }
    }
}

impl Anchor {
    fn open(path: &Path) -> Result<Self, Error> {
        let written = path.to_string_lossy().into_owned();
        let given = std::path::absolute(path).map_err(|e| Error::io(&written, "open", e))?;
        let path = given.canonicalize().map_err(|e| Error::io(&written, "open", e))?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | path_flag();
        let dir = fs::open(&path, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOTDIR => Error::Kind { path: written.clone(), wanted: "folder", found: "file" },
            e => Error::io(&written, "open", e),
        })?;
        Ok(Self { dir, path, given })
    }
}

impl Resolver {
    fn probe(dir: BorrowedFd<'_>) -> Self {
        // Old kernels do not know the call, some containers forbid it.
        match open_straight(dir, Path::new(".")) {
            Ok(_) => Self::Kernel,
            Err(_) => Self::Walk,
        }
    }
}

fn open_straight(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    open_beneath(dir, path, path_flag() | OFlags::DIRECTORY | OFlags::CLOEXEC)
}

/// Opens what is below a folder, without passing a link.
#[cfg(target_os = "linux")]
fn open_beneath(dir: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    fs::openat2(dir, path, flags, Mode::empty(), resolve)
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_: BorrowedFd<'_>, _: &Path, _: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Opens a folder as a place only, where the system can.
fn path_flag() -> OFlags {
    #[cfg(target_os = "linux")]
    {
        OFlags::PATH
    }
    #[cfg(not(target_os = "linux"))]
    {
        OFlags::RDONLY
    }
}

/// Says what a name in a folder is, not following it; none if it is not there.
pub(crate) fn stat_at(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Stat::of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens a regular file in a folder without following it and without waiting for a pipe's writer, and says what it is.
pub(crate) fn open_at(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    written: &str,
) -> Result<(File, Stat), Error> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(Error::refused(written, Refusal::Unsteady)),
        Err(Errno::NXIO) => {
            return Err(Error::refused(written, Refusal::Special { kind: "special file" }));
        }
        Err(e) => return Err(Error::io(written, "open", e)),
    };
    let stat = Stat::of(&fs::fstat(&file).map_err(|e| Error::io(written, "stat", e))?);
    match stat.kind {
        Kind::File => Ok((File::from(file), stat)),
        Kind::Folder => {
            Err(Error::Kind { path: written.to_owned(), wanted: "file", found: "folder" })
        }
        kind => Err(Error::refused(written, Refusal::Special { kind: kind.label() })),
    }
}

/// Reads a file of this length to its end, refusing one that is too large for a session to work with.
pub(crate) fn read_small(file: &File, len: u64, written: &str) -> Result<Vec<u8>, Error> {
    read_within(file, len, written, MAX_READ)
}

/// Reads a file of this length to its end, refusing one that is too large to hold.
pub(crate) fn read_whole(file: &File, len: u64, written: &str) -> Result<Vec<u8>, Error> {
    read_within(file, len, written, MAX_FILE)
}

fn read_within(file: &File, len: u64, written: &str, limit: u64) -> Result<Vec<u8>, Error> {
    let too_large = |found| Err(Error::TooLarge { path: written.to_owned(), found, limit });
    if len > limit {
        return too_large(len);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    // A file may grow while it is read.
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| Error::io(written, "read", e))?;
    match bytes.len() as u64 {
        found if found > limit => too_large(found),
        _ => Ok(bytes),
    }
}

/// Lists a folder within another, sorted by name.
pub(crate) fn list_at(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    written: &str,
) -> Result<Vec<Entry>, Error> {
    Opened::at(folder, name, written).map(|opened| opened.entries)
}

/// An open folder and what stands in it.
#[derive(Debug)]
pub(crate) struct Opened {
    dir: OwnedFd,
    /// Sorted by name.
    pub(crate) entries: Vec<Entry>,
}

impl Opened {
    fn at(folder: BorrowedFd<'_>, name: &OsStr, written: &str) -> Result<Self, Error> {
        let io = |e: Errno| Error::io(written, "list", e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = fs::openat(folder, name, flags, Mode::empty()).map_err(|e| match e {
            // Whoever asks has seen a folder there.
            Errno::NOTDIR | Errno::LOOP => Error::refused(written, Refusal::Unsteady),
            e => io(e),
        })?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => match stat_at(dir.as_fd(), name).map_err(io)? {
                    Some(stat) => stat.kind,
                    None => continue,
                },
                kind => Kind::of(kind),
            };
            entries.push(Entry { name: name.to_owned(), kind });
        }
        entries.sort();
        Ok(Self { dir, entries })
    }

    /// Returns what a name in it is by now, not following; none if nothing is there.
    pub(crate) fn stat(&self, name: &OsStr) -> Option<Stat> {
        stat_at(self.dir.as_fd(), name).ok().flatten()
    }
}

impl Spot {
    /// Says whether it lies in the workspace, not in a trusted root.
    pub(crate) fn in_workspace(&self) -> bool {
        self.anchor == 0
    }

    /// Returns what is there.
    pub(crate) fn found(&self) -> Result<Stat, Error> {
        self.stat.ok_or_else(|| Error::Missing { path: self.written.clone() })
    }

    /// Opens the regular file that is there.
    pub(crate) fn open(&self) -> Result<File, Error> {
        self.open_known().map(|(file, _)| file)
    }

    /// Opens it, and says what was opened.
    pub(crate) fn open_known(&self) -> Result<(File, Stat), Error> {
        open_at(self.folder.as_fd(), &self.name, &self.written)
    }

    pub(crate) fn read(&self) -> Result<Vec<u8>, Error> {
        let (file, stat) = self.open_known()?;
        read_whole(&file, stat.len, &self.written)
    }

    /// Reads the file if it is small enough for a session to work with.
    pub(crate) fn read_small(&self) -> Result<Vec<u8>, Error> {
        let (file, stat) = self.open_known()?;
        read_small(&file, stat.len, &self.written)
    }

    pub(crate) fn list(&self) -> Result<Vec<Entry>, Error> {
        self.enter().map(|opened| opened.entries)
    }

    /// Opens the folder that is there.
    pub(crate) fn enter(&self) -> Result<Opened, Error> {
        match self.found()?.kind {
            Kind::Folder => Opened::at(self.folder.as_fd(), &self.name, &self.written),
            kind => {
                let path = self.written.clone();
                Err(Error::Kind { path, wanted: "folder", found: kind.label() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
