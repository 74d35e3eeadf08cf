//! What a workspace held at one moment, to compare with and to go back to.

mod blobs; // Contents by their hash.
mod cache; // What need not be read again.
mod manifest; // A snapshot as bytes.
mod merge; // Bringing what became of it in one place into another.
mod restore; // Going back.
mod revert; // Going back on some paths.
mod scan; // Going through a workspace.

use crate::{edit, error::Error, ledger::Hash, path::RelPath, root::Root};
use blobs::Blobs;
pub(crate) use blobs::{Durability, make_private, put_file};
use cache::Cache;
pub use merge::{Clash, Conflict, Merged};
pub(crate) use merge::{check, part};
pub use revert::{Differing, State};
use scan::Rules;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Contents of more bytes are not kept, only known by their hash: what is so large is data that nobody edits, and
/// every workspace would be held twice. A change of one is told and cannot be taken back.
pub const MAX_KEPT: u64 = 256 << 20;

/// The size of a file in a snapshot whose content could not be read.
const UNREAD: u64 = u64::MAX;

/// A folder outside the workspace that keeps snapshots and the contents they name.
///
/// A content is kept once, by its BLAKE3 hash. It is written but not synced, so a power cut may
/// take the newest; what is damaged is noticed when it is read.
#[derive(Debug)]
pub struct Snapshots {
    blobs: Blobs,
    trees: PathBuf,
    cache: Cache,
}

/// Which files a snapshot takes; git's own folders never belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All files.
    All,
    /// Those that neither a `.gitignore` nor `.git/info/exclude` of the workspace ignores.
    NotIgnored,
}

/// What a workspace held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    id: Hash,
    which: Which,
    /// The content of `.git/info/exclude`.
    exclude: Option<Hash>,
    entries: Arc<BTreeMap<RelPath, Node>>,
    skipped: Vec<RelPath>,
}

/// A file, link or folder of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File {
        /// BLAKE3 of its bytes; of what the system says of it where it may not be read.
        hash: Hash,
        /// Permission bits.
        mode: u32,
        /// Size in bytes; the largest number where it may not be read.
        len: u64,
    },
    /// A symbolic link.
    Link {
        /// Where it points, as it is written.
        target: PathBuf,
    },
    /// A folder.
    Folder {
        /// Permission bits.
        mode: u32,
    },
}

/// How one path differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathChange {
    /// The file, link or folder.
    pub path: RelPath,
    /// What it was; none if it is new.
    pub before: Option<Node>,
    /// What it is; none if it is gone.
    pub after: Option<Node>,
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
    /// The change as a unified diff, with mode lines as git writes them.
    pub diff: String,
}

/// What going back did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The workspace as it was found, so that going back can be undone.
    pub before: Snapshot,
    /// Paths that were written or removed.
    pub paths: Vec<RelPath>,
    /// What was left: new folders that hold ignored files, and what is or was too large to be kept.
    pub left: Vec<RelPath>,
}

impl Snapshot {
    /// Names it: the BLAKE3 hash of all it says.
    pub fn id(&self) -> Hash {
        self.id
    }

    /// Returns which files it took.
    pub fn which(&self) -> Which {
        self.which
    }

    /// Lists what it holds, by path.
    pub fn entries(&self) -> &BTreeMap<RelPath, Node> {
        &self.entries
    }

    /// Lists what could not be read when it was taken, such as pipes and closed folders.
    pub fn skipped(&self) -> &[RelPath] {
        &self.skipped
    }
}

impl Snapshots {
    /// Opens a folder of snapshots, making it if it is not there; only its owner may enter.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let dir = dir.as_ref();
        for folder in [dir.to_owned(), dir.join("trees"), dir.join("blobs"), dir.join("stat-cache")]
        {
            blobs::make_private(&folder)?;
        }
        Ok(Self::at(dir))
    }

    /// Names a folder of snapshots for somebody who only reads what is in it. Nothing is made.
    pub fn at(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        Self {
            blobs: Blobs::new(dir.join("blobs")),
            trees: dir.join("trees"),
            cache: Cache::new(dir.join("stat-cache")),
        }
    }

    /// Takes a snapshot of a workspace. A file whose size, times and inode are as before is not read.
    ///
    /// # Errors
    /// [`Error::Io`] if the store cannot be written or a file that is there cannot be read.
    pub fn take(&self, root: &Root, which: Which) -> Result<Snapshot, Error> {
        self.record(root, which, Rules::Disk)
    }

    /// Takes a snapshot of what the ignore rules of another one do not hide, whatever the rules say by now. It
    /// takes what `rules` took: the same kinds of files.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub fn take_by(&self, root: &Root, rules: &Snapshot) -> Result<Snapshot, Error> {
        self.record(root, rules.which, Rules::Of(rules))
    }

    /// Takes a snapshot of what became of another one. What `before` holds is not hidden by rules that came since;
    /// else what either its rules or those on the disk hide is left out.
    ///
    /// # Errors
    /// As [`Snapshots::take`].
    pub fn take_since(&self, root: &Root, before: &Snapshot) -> Result<Snapshot, Error> {
        self.record(root, before.which, Rules::Since(before))
    }

    /// Takes a snapshot of what the rules do not hide.
    fn record(&self, root: &Root, which: Which, rules: Rules<'_>) -> Result<Snapshot, Error> {
        let known = self.cache.load(root.path());
        let scan = scan::scan(root, which, &self.blobs, rules)?;
        let found = scan::read(root, &scan, &known, (&self.blobs, &self.cache))?;
        let (exclude, skipped) = (scan.exclude, scan.skipped);
        // Most looks find what the one before has found.
        if let Some(last) = known.last.as_ref().filter(|last| {
            found.read.is_empty()
                && last.which == which
                && last.exclude == exclude
                && *last.entries == found.entries
        }) && self.has_tree(last.id)
        {
            return Ok(Snapshot { skipped, ..last.clone() });
        }
        let entries = Arc::new(found.entries);
        let mut snapshot = Snapshot { id: blake3::hash(&[]), which, exclude, entries, skipped };
        let bytes = manifest::write(&snapshot);
        snapshot.id = blake3::hash(&bytes);
        let place = self.trees.join(snapshot.id.to_string());
        // One that a power cut left short is written again.
        if !place.metadata().is_ok_and(|found| found.len() == bytes.len() as u64) {
            blobs::put_file(&place, &bytes, blobs::Durability::Synced)?;
        }
        self.cache.store(root.path(), &known, (&found.read, found.clock), &snapshot)?;
        Ok(snapshot)
    }

    /// Keeps what was there before, but for `paths`, which are as they came to be, with the folders that those lie in.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep_changes<'a>(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        paths: impl IntoIterator<Item = &'a RelPath>,
    ) -> Result<Snapshot, Error> {
        let mut changed = BTreeMap::new();
        for path in paths {
            let node = after.entries.get(path).cloned();
            let above = std::iter::successors(path.parent(), RelPath::parent);
            for above in above.filter(|above| node.is_some() && !before.entries.contains_key(above))
            {
                if let Some(folder) = after.entries.get(&above) {
                    changed.insert(above, Some(folder.clone()));
                }
            }
            changed.insert(path.clone(), node);
        }
        let mut kept = before.with(changed.into_iter());
        (kept.which, kept.exclude) = (after.which, after.exclude);
        kept.id = self.keep_part(&kept)?;
        Ok(kept)
    }

    /// Tells whether a snapshot is still kept.
    fn has_tree(&self, id: Hash) -> bool {
        self.trees.join(id.to_string()).is_file()
    }

    /// Tells whether a snapshot is kept here.
    pub fn has(&self, id: &str) -> bool {
        Hash::from_hex(id).is_ok_and(|id| self.has_tree(id))
    }

    /// Loads a snapshot by its id.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Damaged`], [`Error::Io`].
    pub fn load(&self, id: &str) -> Result<Snapshot, Error> {
        let unknown = || Error::Unknown { what: "snapshot", id: id.to_owned() };
        let hash = Hash::from_hex(id).map_err(|_| unknown())?;
        let bytes = match std::fs::read(self.trees.join(hash.to_string())) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(unknown()),
            Err(e) => return Err(Error::io(id, "read the snapshot", e)),
        };
        let damaged = |problem| Error::Damaged { what: "snapshot", id: id.to_owned(), problem };
        if blake3::hash(&bytes) != hash {
            return Err(damaged("its hash is another".to_owned()));
        }
        manifest::read(&bytes, hash).map_err(damaged)
    }

    /// Compares two snapshots, path by path.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a content is not there as it was, [`Error::Io`].
    pub fn diff(&self, before: &Snapshot, after: &Snapshot) -> Result<Vec<PathChange>, Error> {
        self.diff_of(before, after, &|_| true)
    }

    /// The same of those paths alone that `is_meant` says; no content of another is read.
    ///
    /// # Errors
    /// As [`Snapshots::diff`].
    pub fn diff_of(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        is_meant: &dyn Fn(&RelPath) -> bool,
    ) -> Result<Vec<PathChange>, Error> {
        let paths: BTreeSet<_> = before.entries.keys().chain(after.entries.keys()).collect();
        let mut changes = Vec::new();
        for path in paths.into_iter().filter(|path| is_meant(path)) {
            let (old, new) = (before.entries.get(path), after.entries.get(path));
            if old != new {
                changes.push(self.change(path, old, new)?);
            }
        }
        Ok(changes)
    }

    /// Keeps a content beside those of the snapshots, and returns the hash to ask for it by.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep(&self, bytes: &[u8]) -> Result<Hash, Error> {
        self.blobs.put(bytes)
    }

    /// Returns a content that was kept or that a snapshot holds.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not there as it was.
    pub fn kept(&self, hash: Hash) -> Result<Vec<u8>, Error> {
        self.blobs.get(hash)
    }

    /// Says whether what a path was can be brought back: the content of a file or link is kept, a folder has none.
    pub fn keeps(&self, state: &State) -> bool {
        state.hash.is_none_or(|hash| self.blobs.holds(hash))
    }

    /// Returns the content of a file of a snapshot.
    ///
    /// # Errors
    /// [`Error::Missing`] if it holds no such file, [`Error::TooLarge`] if its content is not kept,
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn content(&self, snapshot: &Snapshot, path: &RelPath) -> Result<Vec<u8>, Error> {
        match snapshot.entries.get(path) {
            Some(node) if node.is_unread() => {
                Err(Error::io(&path.to_string(), "open", rustix::io::Errno::ACCESS))
            }
            Some(Node::File { len, .. }) if *len > MAX_KEPT => {
                Err(Error::TooLarge { path: path.to_string(), found: *len, limit: MAX_KEPT })
            }
            Some(Node::File { hash, .. }) => self.blobs.get(*hash),
            Some(Node::Link { .. } | Node::Folder { .. }) | None => {
                Err(Error::Missing { path: path.to_string() })
            }
        }
    }

    /// Makes a workspace what it was: contents, modes, links and folders; what is new is removed.
    ///
    /// What the snapshot's own ignore rules hide is left alone, and so are git's own folders, and a file that is
    /// or was too large to be kept.
    ///
    /// # Errors
    /// [`Error::Damaged`] before anything changes if a content is missing; [`Error::Raced`];
    /// [`Error::Io`]. After a failure it can be called again.
    pub fn restore(&self, root: &Root, snapshot: &Snapshot) -> Result<Restored, Error> {
        let before = self.take_by(root, snapshot)?;
        restore::restore(root, &self.blobs, before, snapshot)
    }

    fn change(
        &self,
        path: &RelPath,
        old: Option<&Node>,
        new: Option<&Node>,
    ) -> Result<PathChange, Error> {
        let content = |node: Option<&Node>| match node {
            Some(Node::File { hash, .. }) => self.blobs.get(*hash).map(Some),
            Some(Node::Link { target }) => {
                use std::os::unix::ffi::OsStrExt;
                Ok(Some(target.as_os_str().as_bytes().to_vec()))
            }
            Some(Node::Folder { .. }) | None => Ok(None),
        };
        let mut diff = match (old.map(Node::git_mode), new.map(Node::git_mode)) {
            (None, Some(mode)) => format!("new file mode {mode:06o}\n"),
            (Some(mode), None) => format!("deleted file mode {mode:06o}\n"),
            (Some(old), Some(new)) if old != new => {
                format!("old mode {old:06o}\nnew mode {new:06o}\n")
            }
            (Some(_), Some(_)) | (None, None) => String::new(),
        };
        let text = match [old, new].into_iter().flatten().all(Node::is_kept) {
            true => {
                let (before, after) = (content(old)?, content(new)?);
                edit::diff(&path.to_string(), before.as_deref(), after.as_deref())
            }
            false if [old, new].into_iter().flatten().any(Node::is_unread) => {
                format!("File {path} differs, and could not be read\n")
            }
            false => {
                let [before, after] = [old, new].map(|node| node.map_or(0, Node::len));
                format!("Large file {path} differs: {before} bytes, then {after}\n")
            }
        };
        let count = |sign| text.lines().skip(2).filter(|line| line.starts_with(sign)).count();
        let (added, removed) = (count('+'), count('-'));
        diff.push_str(&text);
        let (before, after) = (old.cloned(), new.cloned());
        Ok(PathChange { path: path.clone(), before, after, added, removed, diff })
    }
}

impl Node {
    /// Says whether its content is kept; a file of more than [`MAX_KEPT`] bytes is known by its hash alone, and one
    /// that may not be read by what the system says of it.
    pub fn is_kept(&self) -> bool {
        self.len() <= MAX_KEPT
    }

    /// Says whether it is a file that could not be read.
    pub fn is_unread(&self) -> bool {
        self.len() == UNREAD
    }

    /// Returns the size of a file, nothing for all else.
    fn len(&self) -> u64 {
        match self {
            Self::File { len, .. } => *len,
            Self::Link { .. } | Self::Folder { .. } => 0,
        }
    }

    /// Returns what it is and its permission bits, as git writes them.
    pub fn git_mode(&self) -> u32 {
        match self {
            Self::File { mode, .. } => 0o100_000 | mode,
            Self::Link { .. } => 0o120_000,
            Self::Folder { mode } => 0o040_000 | mode,
        }
    }
}

#[cfg(test)]
mod tests;
