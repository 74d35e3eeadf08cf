//! Every way to change a file of a workspace, under one set of rules.

use crate::{
    edit::{
        self, Change, Edit, Patch,
        patch::{Action, Runs},
    },
    error::{Error, Refusal},
    ledger::{Hash, Held, Session, Waited},
    lock::Folders,
    path::RelPath,
    replace::{self, Old, Staged, TEMP_PREFIX, rename_new, sync_folder},
    root::{Access, Kind, Last, Root, Spot},
    rules::WriteRules,
    snapshot::{MAX_KEPT, Snapshots},
    text::{Encoding, Text},
    trash::{Removal, Trash, Trashed},
    tree::{self, Node},
    wanted::Wanted,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{self, AtFlags, Mode},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// How often a write starts anew because another process wrote meanwhile.
const RACES: usize = 8;

/// A workspace as one session sees it: what it may write, and what it has read.
///
/// All calls block; writes to one path wait for each other across the sessions of a run.
#[derive(Debug, Clone)]
pub struct Workspace {
    root: Arc<Root>,
    rules: WriteRules,
    session: Session,
    /// Where contents are kept that are replaced or written.
    keeps: Option<Arc<Snapshots>>,
    wanted: Wanted,
}

/// Whether a change is made or only shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// It is made.
    Write,
    /// Everything is checked and the diff shown, nothing changes.
    DryRun,
}

/// A file's content as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their BLAKE3 hash.
    pub hash: Hash,
}

/// What a write did to one file, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The file that changed, without links.
    pub path: RelPath,
    /// Hash of the content before; none if the file is new.
    pub before: Option<Hash>,
    /// Hash of the content after; none if the file is gone.
    pub after: Option<Hash>,
    /// What it was and its permission bits, as git writes them; none if it is new.
    pub before_mode: Option<u32>,
    /// What it is and its permission bits; none if it is gone, or new and only shown.
    pub after_mode: Option<u32>,
    /// The change as a unified diff; empty where only the name or the mode differs.
    pub diff: String,
}

/// How many folders are brought to the disk at once.
const SYNCS: usize = 16;

/// A regular file to git.
const FILE: u32 = 0o100_000;
/// A symbolic link to git, which has no permission bits there.
const LINK: u32 = 0o120_000;
/// A folder to git.
const FOLDER: u32 = 0o040_000;

impl Content {
    /// Returns it as text with the endings it has; none if it is not text.
    pub fn text(&self) -> Option<String> {
        Text::new(self.bytes.clone()).ok().map(|text| text.with_endings())
    }

    /// Returns how its characters are encoded; none if it is not text.
    pub fn encoding(&self) -> Option<Encoding> {
        Encoding::of(&self.bytes).ok()
    }
}

/// What is to become of one file.
struct Job<'a> {
    path: PathBuf,
    what: What<'a>,
    /// What is said of its mode, before and after.
    was: Runs,
    runs: Runs,
}

impl<'a> Job<'a> {
    const fn new(path: PathBuf, what: What<'a>) -> Self {
        Self { path, what, was: Runs::AsIs, runs: Runs::AsIs }
    }
}

enum What<'a> {
    /// These bytes; what is there must have been read.
    Bytes(&'a [u8]),
    /// This text in the file's own encoding and endings; what is there must have been read.
    Text(&'a str),
    /// This text in a file that must not exist.
    Create(&'a str),
    /// A splice of what is there.
    Splice(Change<'a>),
    /// The content of another file with these hunks applied, at a path where nothing is.
    MoveHere { from: PathBuf, hunks: &'a [edit::Hunk] },
    /// The same content with this mode.
    Mode(u32),
    /// The same content.
    Same,
}

/// From when on the folders of a change are kept from other processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// From the moment that all is on the disk: a change meanwhile is seen, and the whole begins anew.
    FromPutting,
    /// From before the contents are read: nobody can change them meanwhile.
    FromReading,
}

/// A job whose result is known but not written.
struct Plan {
    target: Target,
    /// Where it was found; none where nothing was.
    spot: Option<Spot>,
    old: Option<Old>,
    new: Vec<u8>,
    mode: Option<u32>,
    /// Whether it may be run by whoever may read it, where its mode is for the system to say.
    is_program: bool,
    /// The file it is moved from, which goes once the new one is in place.
    source: Option<(Target, Old)>,
}

/// A path that may be written and where it really leads; folders above it may be missing.
#[derive(Debug, Clone)]
struct Target {
    written: String,
    real: RelPath,
}

impl Workspace {
    /// Joins a root, rules and a session.
    pub fn new(root: Arc<Root>, rules: WriteRules, session: Session) -> Self {
        Self { root, rules, session, keeps: None, wanted: Wanted::default() }
    }

    /// Keeps every content that is replaced, removed or written, so that it can be gone back to whether
    /// or not a snapshot was taken. What is deleted as a folder is kept by the trash alone.
    #[must_use]
    pub fn keeping(self, snapshots: Arc<Snapshots>) -> Self {
        Self { keeps: Some(snapshots), ..self }
    }

    /// Changes something only while `wanted` says so.
    #[must_use]
    pub fn while_wanted(self, wanted: Wanted) -> Self {
        Self { wanted, ..self }
    }

    /// Returns the root, for listing and reading what need not be remembered as read.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Returns what may be written.
    pub fn rules(&self) -> &WriteRules {
        &self.rules
    }

    /// Reads a file and remembers that this session knows its content.
    ///
    /// # Errors
    /// As [`Root::read`]; [`Error::TooLarge`] from 32 MiB on.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Content, Error> {
        let spot = self.root.locate(path.as_ref(), Access::Read, Last::Follow)?;
        let bytes = spot.read_small()?;
        let hash = if spot.in_workspace() {
            self.session.saw(&spot.real, &bytes)
        } else {
            blake3::hash(&bytes)
        };
        Ok(Content { bytes, hash })
    }

    /// Says whether a path may be written, without touching it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the rule.
    pub fn check_write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.target(path.as_ref(), Last::Follow).map(drop)
    }

    /// Writes a whole file byte for byte. One that exists must have been read by this session.
    ///
    /// Missing folders above it are made. A link to a file stays a link; its target is replaced.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unread`], [`Error::Stale`] with what changed, [`Error::Io`].
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        bytes: &[u8],
        apply: Apply,
    ) -> Result<Changed, Error> {
        self.one(path.as_ref(), What::Bytes(bytes), apply)
    }

    /// Writes a whole file as text: one that exists keeps its encoding, and each line its ending.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`Error::Binary`], [`Error::Unencodable`].
    pub fn write_text(
        &self,
        path: impl AsRef<Path>,
        text: &str,
        apply: Apply,
    ) -> Result<Changed, Error> {
        self.one(path.as_ref(), What::Text(text), apply)
    }

    /// Writes a new file; what is there already is left as it is.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Refused`], [`Error::Io`].
    pub fn create(
        &self,
        path: impl AsRef<Path>,
        text: &str,
        apply: Apply,
    ) -> Result<Changed, Error> {
        self.one(path.as_ref(), What::Create(text), apply)
    }

    /// Applies edits to one file, each to the result of the one before; all or nothing.
    ///
    /// It need not have been read: an edit names what it replaces.
    ///
    /// # Errors
    /// [`Error::Miss`] with the edit's number and why; [`Error::Refused`], [`Error::Missing`],
    /// [`Error::Binary`], [`Error::Unencodable`], [`Error::Io`].
    pub fn edit(
        &self,
        path: impl AsRef<Path>,
        edits: &[Edit],
        apply: Apply,
    ) -> Result<Changed, Error> {
        self.one(path.as_ref(), What::Splice(Change::Edits(edits)), apply)
    }

    /// Applies edits to several files; all or nothing.
    ///
    /// # Errors
    /// As [`edit`](Self::edit); [`Error::HalfDone`] if a file failed to be put in place and
    /// others could not be put back.
    pub fn edit_many(
        &self,
        edits: &[(&Path, &[Edit])],
        apply: Apply,
    ) -> Result<Vec<Changed>, Error> {
        let job = |(path, edits): &(&Path, &'_ [Edit])| (path.to_path_buf(), edits.to_vec());
        let owned: Vec<_> = edits.iter().map(job).collect();
        let jobs = owned
            .iter()
            .map(|(path, edits)| Job::new(path.clone(), What::Splice(Change::Edits(edits))));
        self.transact(&jobs.collect::<Vec<_>>(), apply)
    }

    /// Applies a patch to all its files; all or nothing. What it deletes goes to `deletions`.
    ///
    /// Deletions come last: one that the system refuses leaves the other files changed.
    ///
    /// # Errors
    /// As [`edit_many`](Self::edit_many); [`Error::Refused`] if it deletes and `deletions` is none.
    pub fn patch(
        &self,
        patch: &Patch,
        deletions: Option<(&Trash, &Removal)>,
        apply: Apply,
    ) -> Result<Vec<Changed>, Error> {
        let (mut jobs, mut deleted) = (Vec::new(), Vec::new());
        for file in patch.files() {
            let path = PathBuf::from(&file.path);
            match &file.action {
                Action::Create { text, runs } => {
                    jobs.push(Job { runs: *runs, ..Job::new(path, What::Create(text)) });
                }
                // A change of the mode alone is one to what is no text as well.
                Action::Update { to: None, hunks, was, runs } if hunks.is_empty() => {
                    jobs.push(Job { path, what: What::Same, was: *was, runs: *runs });
                }
                Action::Update { to: None, hunks, was, runs } => {
                    let what = What::Splice(Change::Hunks(hunks));
                    jobs.push(Job { path, what, was: *was, runs: *runs });
                }
                Action::Update { to: Some(to), hunks, was, runs } => {
                    let what = What::MoveHere { from: path, hunks };
                    jobs.push(Job { path: to.into(), what, was: *was, runs: *runs });
                }
                Action::Delete => deleted.push(path),
            }
        }
        if let (Some(path), None) = (deleted.first(), deletions) {
            return Err(Error::refused(&path.to_string_lossy(), Refusal::NoTrash));
        }
        // Everything is checked before anything changes.
        for path in &deleted {
            let target = self.target(path, Last::Keep)?;
            self.check_tree(&target)?;
            if self.locate(&target)?.found()?.kind == Kind::Folder {
                let path = target.written;
                return Err(Error::Kind { path, wanted: "file", found: Kind::Folder.label() });
            }
        }
        let mut changed = self.transact(&jobs, apply)?;
        for path in deleted {
            let Some((trash, removal)) = deletions else { continue };
            let target = self.target(&path, Last::Keep)?;
            for (path, before, mode) in self.held_at(&target.real)? {
                let spot = self.root.locate(path.as_ref(), Access::Read, Last::Keep)?;
                let old = if mode == LINK { read_link(&spot)? } else { spot.read()? };
                let diff = edit::diff(&path.to_string(), Some(&old), None);
                let (before_mode, after_mode) = (Some(mode), None);
                changed.push(Changed { path, before, after: None, before_mode, after_mode, diff });
            }
            if apply == Apply::Write {
                self.delete(&path, trash, removal)?;
            }
        }
        Ok(changed)
    }

    /// Moves a file, link or folder into the trash.
    ///
    /// # Errors
    /// [`Error::Refused`] also if anything within a folder is protected; [`Error::Missing`], [`Error::Io`].
    pub fn delete(
        &self,
        path: impl AsRef<Path>,
        trash: &Trash,
        removal: &Removal,
    ) -> Result<Trashed, Error> {
        let target = self.target(path.as_ref(), Last::Keep)?;
        let _held = self.hold(std::slice::from_ref(&target));
        self.check_tree(&target)?;
        let spot = self.locate(&target)?;
        self.keep_spot(&spot)?;
        let _wanted = self.wanted.begin(&target.written)?;
        let trashed = trash.put(&spot, self.root.path(), removal)?;
        self.session.removed(&target.real);
        Ok(trashed)
    }

    /// Puts a copy of a file or link into the trash, before something else takes its place.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub fn copy_to_trash(
        &self,
        path: impl AsRef<Path>,
        trash: &Trash,
        removal: &Removal,
    ) -> Result<Trashed, Error> {
        let target = self.target(path.as_ref(), Last::Keep)?;
        trash.put_copy(&self.locate(&target)?, self.root.path(), removal)
    }

    /// Brings back what was deleted, where nothing may be by now.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Unknown`], [`Error::Damaged`], [`Error::Refused`], [`Error::Io`].
    pub fn restore(&self, trash: &Trash, id: &str) -> Result<Trashed, Error> {
        let record = trash.get(id)?;
        let target = self.target(&record.original(), Last::Keep)?;
        let _held = self.hold(std::slice::from_ref(&target));
        let _wanted = self.wanted.begin(&target.written)?;
        self.make_parents(&target)?;
        let spot = self.locate(&target)?;
        if spot.stat.is_some() {
            return Err(Error::Exists { path: record.path });
        }
        trash.take(&record, &spot)?;
        Ok(record)
    }

    /// Moves a file, link or folder to a path where nothing is, and says what that did to each file.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Missing`], [`Error::Refused`] also if anything within is protected.
    pub fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Vec<Changed>, Error> {
        let source = self.target(from.as_ref(), Last::Keep)?;
        let target = self.target(to.as_ref(), Last::Keep)?;
        if target.real.as_path().starts_with(source.real.as_path()) {
            let why = Refusal::IntoItself { target: target.written };
            return Err(Error::refused(&source.written, why));
        }
        let _held = self.hold(&[source.clone(), target.clone()]);
        self.check_moved_tree(&source, &target)?;
        let from = self.locate(&source)?;
        from.found()?;
        let held = self.held_at(&source.real)?;
        let _wanted = self.wanted.begin(&source.written)?;
        self.make_parents(&target)?;
        let to = self.locate(&target)?;
        let io = |e: Errno| Error::io(&target.written, "move to", e);
        match rename_new(from.folder.as_fd(), &from.name, to.folder.as_fd(), &to.name) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Error::Missing { path: source.written }),
            Err(e) => return Err(io(e)),
        }
        let synced = sync_folder(to.folder.as_fd()).and_then(|()| sync_folder(from.folder.as_fd()));
        if let Err(error) = synced {
            let back = rename_new(to.folder.as_fd(), &to.name, from.folder.as_fd(), &from.name);
            return Err(match back {
                Ok(()) => io(error),
                Err(_) => {
                    let (path, left) = (source.written, vec![target.written]);
                    Error::HalfDone { path, left, source: error.into() }
                }
            });
        }
        self.session.moved(&source.real, &target.real);
        let gone = held.iter().map(|(path, hash, mode)| Changed {
            path: path.clone(),
            before: *hash,
            after: None,
            before_mode: Some(*mode),
            after_mode: None,
            diff: String::new(),
        });
        let come = held.iter().map(|(path, hash, mode)| new(&source, &target, path, *hash, *mode));
        Ok(gone.chain(come).collect())
    }

    /// Copies a file, link or folder to a path where nothing is, all or nothing, and says what is new.
    ///
    /// What is copied may lie in a trusted root. A link is copied as the link that it is. All files together may have
    /// [`MAX_KEPT`] bytes, holes counted.
    ///
    /// # Errors
    /// [`Error::TooLarge`], before anything is written;
    /// [`Error::Exists`], [`Error::Missing`], [`Error::Refused`] also if the rules stand against anything
    /// within at its new place; [`Error::Io`].
    pub fn copy(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Vec<Changed>, Error> {
        let from = from.as_ref();
        let target = self.target(to.as_ref(), Last::Keep)?;
        let source = self.root.locate(from, Access::Read, Last::Keep)?;
        source.found()?;
        let source_node =
            Node { folder: source.folder.as_fd(), name: &source.name, written: &source.written };
        // Before anything is made: what is sparse would have its holes filled, and a disk is soon full.
        tree::within(source_node, MAX_KEPT)?;
        if source.in_workspace() && target.real.as_path().starts_with(source.real.as_path()) {
            let why = Refusal::IntoItself { target: target.written };
            return Err(Error::refused(&source.written, why));
        }
        let _held = self.hold(std::slice::from_ref(&target));
        self.make_parents(&target)?;
        let spot = self.locate(&target)?;
        if spot.stat.is_some() {
            return Err(Error::Exists { path: target.written });
        }
        let partial = format!("{TEMP_PREFIX}{}-copy-{}", std::process::id(), next_copy());
        let (partial, written) = (std::ffi::OsStr::new(&partial), target.written.as_str());
        let node = |name| Node { folder: spot.folder.as_fd(), name, written };
        let copied = tree::copy_within(source_node, node(partial), MAX_KEPT).and_then(|()| {
            let beside = target.real.parent().unwrap_or_else(RelPath::root).join(partial);
            let held = self.held_at(&beside)?;
            let beside = Target { written: target.written.clone(), real: beside };
            let come: Vec<Changed> = held
                .iter()
                .map(|(path, hash, mode)| new(&beside, &target, path, *hash, *mode))
                .collect();
            for changed in &come {
                let checked = self.rules.check(&changed.path);
                checked.map_err(|why| Error::refused(written, why))?;
            }
            let _wanted = self.wanted.begin(written)?;
            let io = |e| Error::io(written, "copy to", e);
            let folder = spot.folder.as_fd();
            rename_new(folder, partial, folder, &spot.name).map_err(io)?;
            if let Err(e) = sync_folder(folder) {
                // What failed is not to be there.
                let _ = rename_new(folder, &spot.name, folder, partial);
                return Err(io(e));
            }
            Ok(come)
        });
        if copied.is_err() {
            // What was copied is ours alone until it has its name.
            let _ = tree::remove(node(partial));
        } else if source.in_workspace() {
            self.session.copied(&source.real, &target.real);
        }
        copied
    }

    /// Makes a folder and the missing ones above it, and says which were made; one that is there already
    /// is fine.
    ///
    /// # Errors
    /// [`Error::Refused`]; [`Error::Kind`] if something else is there; [`Error::Io`].
    pub fn create_folder(&self, path: impl AsRef<Path>) -> Result<Vec<Changed>, Error> {
        let target = self.target(path.as_ref(), Last::Follow)?;
        let _held = self.hold(std::slice::from_ref(&target));
        let mut missing = Vec::new();
        let mut above = Some(target.real.clone());
        while let Some(folder) = above.filter(|folder| self.root.stat_link(folder).is_err()) {
            above = folder.parent().filter(|parent| !parent.is_root());
            missing.push(folder);
        }
        let _wanted = self.wanted.begin(&target.written)?;
        self.make_parents(&target)?;
        if let Some(above) = self.make_folder(&target.written, &target.real)? {
            sync_made(&target.written, &[above])?;
        }
        let made = missing.into_iter().rev().map(|path| Changed {
            after_mode: self.root.stat_link(&path).ok().map(|stat| FOLDER | stat.mode),
            path,
            before: None,
            after: None,
            before_mode: None,
            diff: String::new(),
        });
        Ok(made.collect())
    }

    /// Sets a file's permission bits, at most `0o777`.
    ///
    /// A file with several names is replaced, so that the others keep their mode.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Missing`], [`Error::Kind`] if it is no file, [`Error::Io`].
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<Changed, Error> {
        let target = self.target(path.as_ref(), Last::Follow)?;
        let held = self.hold(std::slice::from_ref(&target));
        let old = Old::read(&self.locate(&target)?)?;
        if old.stat.links > 1 {
            drop(held);
            return self.one(path.as_ref(), What::Mode(mode & 0o777), Apply::Write);
        }
        let bits = Mode::from_raw_mode(replace::mode_bits(mode & 0o777));
        let io = |e: Errno| Error::io(&target.written, "set the mode of", e);
        let _wanted = self.wanted.begin(&target.written)?;
        fs::fchmod(&old.file, bits).and_then(|()| fs::fsync(&old.file)).map_err(io)?;
        let hash = Some(blake3::hash(&old.bytes));
        Ok(Changed {
            path: target.real,
            before: hash,
            after: hash,
            before_mode: Some(FILE | old.stat.mode),
            after_mode: Some(FILE | (mode & 0o777)),
            diff: String::new(),
        })
    }

    /// Sets or takes the right to execute a file, for those who may read it.
    ///
    /// # Errors
    /// As [`set_mode`](Self::set_mode).
    pub fn set_executable(
        &self,
        path: impl AsRef<Path>,
        executable: bool,
    ) -> Result<Changed, Error> {
        let mode = self.root.stat(path.as_ref())?.mode;
        self.set_mode(path, if executable { replace::runnable(mode) } else { mode & 0o666 })
    }

    fn one(&self, path: &Path, what: What<'_>, apply: Apply) -> Result<Changed, Error> {
        let mut changed = self.transact(&[Job::new(path.to_owned(), what)], apply)?;
        changed.pop().ok_or_else(|| Error::Missing { path: path.to_string_lossy().into_owned() })
    }

    /// Resolves a path for writing and asks the rules, of the path as written and as it really is.
    fn target(&self, path: &Path, last: Last) -> Result<Target, Error> {
        let written = path.to_string_lossy().into_owned();
        let rel = self.root.rel(path)?;
        let refused = |why| Error::refused(&written, why);
        self.rules.check(&rel).map_err(refused)?;
        let (mut above, mut missing) = (rel, Vec::new());
        let spot = loop {
            let last = if missing.is_empty() { last } else { Last::Follow };
            match self.root.locate(above.as_ref(), Access::Write, last) {
                Ok(spot) => break spot,
                // Folders above the file may be missing too.
                Err(Error::Missing { .. }) if !above.is_root() => {
                    missing.extend(above.name().map(ToOwned::to_owned));
                    above = above.parent().unwrap_or_else(RelPath::root);
                }
                Err(Error::Refused { why, .. }) => return Err(refused(why)),
                Err(Error::Kind { wanted, found, .. }) => {
                    return Err(Error::Kind { path: written, wanted, found });
                }
                Err(e) => return Err(e),
            }
        };
        if !missing.is_empty()
            && let Some(stat) = spot.stat.filter(|stat| stat.kind != Kind::Folder)
        {
            return Err(Error::Kind { path: written, wanted: "folder", found: stat.kind.label() });
        }
        let real = missing.iter().rev().fold(spot.real, |real, name| real.join(name));
        self.rules.check(&real).map_err(refused)?;
        Ok(Target { written, real })
    }

    /// Opens the folder of a target, whose path holds no links any more.
    fn locate(&self, target: &Target) -> Result<Spot, Error> {
        let spot = self.root.locate(target.real.as_ref(), Access::Write, Last::Keep);
        let mut spot = spot.map_err(|e| match e {
            Error::Missing { .. } => Error::Missing { path: target.written.clone() },
            e => e,
        })?;
        if spot.real != target.real {
            return Err(Error::refused(&target.written, Refusal::Unsteady));
        }
        spot.written.clone_from(&target.written);
        Ok(spot)
    }

    fn hold(&self, targets: &[Target]) -> (Held, Waited) {
        let paths: Vec<_> = targets.iter().map(|target| target.real.clone()).collect();
        self.session.run().lock(&paths)
    }

    /// Asks the rules for everything in a folder.
    fn check_tree(&self, target: &Target) -> Result<(), Error> {
        self.check_moved_tree(target, target)
    }

    /// Asks the rules for everything in a folder, where it is and where it shall be.
    fn check_moved_tree(&self, from: &Target, to: &Target) -> Result<(), Error> {
        let mut todo = vec![(from.real.clone(), to.real.clone())];
        while let Some((real, moved)) = todo.pop() {
            let checked = self.rules.check(&real).and_then(|()| self.rules.check(&moved));
            checked.map_err(|why| Error::refused(&from.written, why))?;
            if self.root.stat_link(&real).is_ok_and(|stat| stat.kind == Kind::Folder) {
                for entry in self.root.list(&real)? {
                    todo.push((real.join(&entry.name), moved.join(&entry.name)));
                }
            }
        }
        Ok(())
    }

    fn make_parents(&self, target: &Target) -> Result<(), Error> {
        let Some(parent) = target.real.parent().filter(|parent| !parent.is_root()) else {
            return Ok(());
        };
        if self.root.stat_link(&parent).is_ok_and(|stat| stat.kind == Kind::Folder) {
            return Ok(());
        }
        let (mut folder, mut changed) = (RelPath::root(), Vec::new());
        for name in parent.names() {
            folder = folder.join(name);
            self.rules
                .check_protected(&folder)
                .map_err(|why| Error::refused(&target.written, why))?;
            changed.extend(self.make_folder(&target.written, &folder)?);
        }
        sync_made(&target.written, &changed)
    }

    /// Makes a folder, and returns the one that holds it if it has to be brought to the disk.
    fn make_folder(&self, written: &str, real: &RelPath) -> Result<Option<OwnedFd>, Error> {
        let spot = self.locate(&Target { written: written.to_owned(), real: real.clone() })?;
        match spot.stat.map(|stat| stat.kind) {
            Some(Kind::Folder) => return Ok(None),
            Some(kind) => {
                let path = written.to_owned();
                return Err(Error::Kind { path, wanted: "folder", found: kind.label() });
            }
            None => {}
        }
        match fs::mkdirat(&spot.folder, &spot.name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.make_folder(written, real),
            Err(e) => return Err(Error::io(written, "make the folder of", e)),
        }
        Ok(Some(spot.folder))
    }

    /// Does all jobs or none.
    fn transact(&self, jobs: &[Job<'_>], apply: Apply) -> Result<Vec<Changed>, Error> {
        let mut races = 0;
        loop {
            // Most write alone. Who met another process once holds the folders from the reading on.
            let from = if races == 0 { Holding::FromPutting } else { Holding::FromReading };
            match self.try_transact(jobs, (apply, from)) {
                Err(Error::Raced { .. }) if races < RACES => races += 1,
                done => return done,
            }
        }
    }

    fn try_transact(
        &self,
        jobs: &[Job<'_>],
        (apply, from): (Apply, Holding),
    ) -> Result<Vec<Changed>, Error> {
        let resolve = || -> Result<Vec<Target>, Error> {
            jobs.iter().map(|job| self.target(&job.path, Last::Follow)).collect()
        };
        let sources = jobs.iter().filter_map(|job| match &job.what {
            What::MoveHere { from, .. } => Some(self.target(from, Last::Keep)),
            _ => None,
        });
        let sources = sources.collect::<Result<Vec<_>, Error>>()?;
        let mut targets = resolve()?;
        let _held = loop {
            let (held, waited) = self.hold(&[targets.as_slice(), &sources].concat());
            if waited == Waited::No {
                break held;
            }
            let now = resolve()?;
            if now.iter().map(|t| &t.real).eq(targets.iter().map(|t| &t.real)) {
                break held;
            }
            // A link changed while we waited.
            targets = now;
        };
        let mut folders = Folders::default();
        if from == Holding::FromReading {
            let spots = targets.iter().filter_map(|target| self.locate(target).ok());
            let spots: Vec<Spot> = spots.collect();
            folders.hold(spots.iter().map(|spot| (spot.folder.as_fd(), spot.written.as_str())))?;
        }
        let mut plans: Vec<Plan> = Vec::new();
        for (job, target) in jobs.iter().zip(targets) {
            match plans.iter_mut().find(|plan| plan.target.real == target.real) {
                // Two changes of one file follow each other.
                Some(plan) => self.plan_again(job, plan)?,
                None => plans.push(self.plan(job, target)?),
            }
        }
        let mut changed: Vec<Changed> = plans.iter().flat_map(Plan::shown).collect();
        if apply == Apply::Write {
            self.keep_plans(&plans)?;
            let modes = self.put(&mut plans, &mut folders)?;
            // The system has its say in the mode of a new file.
            for file in changed.iter_mut().filter(|file| file.after.is_some()) {
                let put = modes.iter().find(|(path, _)| *path == file.path).map(|(_, mode)| *mode);
                let mode = put.or_else(|| Some(self.root.stat_link(&file.path).ok()?.mode));
                file.after_mode = mode.map(|mode| FILE | mode).or(file.after_mode);
            }
            let hash = |bytes: &Vec<u8>| blake3::hash(bytes);
            for plan in plans.iter().filter(|plan| plan.changes()) {
                let known = changed.iter().find(|file| file.path == plan.target.real);
                let after = known.and_then(|file| file.after).unwrap_or_else(|| hash(&plan.new));
                let before = plan.old.as_ref().map(|old| {
                    known.and_then(|file| file.before).unwrap_or_else(|| hash(&old.bytes))
                });
                self.session.wrote(&plan.target.real, before, (after, &plan.new));
            }
        }
        Ok(changed)
    }

    fn plan(&self, job: &Job<'_>, target: Target) -> Result<Plan, Error> {
        let (spot, old) = match self.locate(&target) {
            Ok(spot) if spot.stat.is_some() => {
                let old = Old::read(&spot)?;
                (Some(spot), Some(old))
            }
            Ok(_) | Err(Error::Missing { .. }) => (None, None),
            Err(e) => return Err(e),
        };
        let path = target.written.as_str();
        let missing = || Error::Missing { path: path.to_owned() };
        let exists = || Error::Exists { path: path.to_owned() };
        let (mut mode, mut source) = (None, None);
        let new = match (&job.what, &old) {
            (What::Bytes(bytes), None) => bytes.to_vec(),
            (What::Text(text) | What::Create(text), None) => text.as_bytes().to_vec(),
            (What::Bytes(bytes), Some(old)) => {
                self.session.check(path, &target.real, &old.bytes)?;
                bytes.to_vec()
            }
            (What::Text(text), Some(old)) => {
                self.session.check(path, &target.real, &old.bytes)?;
                edit::change(path, &old.bytes, Change::Whole(text))?
            }
            (What::Create(_) | What::MoveHere { .. }, Some(_)) => return Err(exists()),
            (What::Splice(change), Some(old)) => edit::change(path, &old.bytes, *change)?,
            // An edit of nothing into something makes the file.
            (What::Splice(Change::Edits([edit, ..])), None) if edit.old.is_empty() => {
                let What::Splice(change) = job.what else { return Err(missing()) };
                edit::change(path, &[], change)?
            }
            (What::Splice(_) | What::Mode(_) | What::Same, None) => return Err(missing()),
            (What::Same, Some(old)) => old.bytes.clone(),
            (What::MoveHere { from, hunks }, None) => {
                let moved = self.target(from, Last::Keep)?;
                let before = Old::read(&self.locate(&moved)?)?;
                mode = Some(before.stat.mode & 0o777);
                let new = match hunks.is_empty() {
                    true => before.bytes.clone(),
                    false => edit::change(&moved.written, &before.bytes, Change::Hunks(hunks))?,
                };
                source = Some((moved, before));
                new
            }
            (What::Mode(bits), Some(old)) => {
                mode = Some(*bits);
                old.bytes.clone()
            }
        };
        let mut plan = Plan { target, spot, old, new, mode, is_program: false, source };
        plan.set_runs((job.was, job.runs))?;
        Ok(plan)
    }

    fn plan_again(&self, job: &Job<'_>, plan: &mut Plan) -> Result<(), Error> {
        let path = plan.target.written.as_str();
        plan.new = match job.what {
            What::Splice(change) => edit::change(path, &plan.new, change)?,
            What::Same => std::mem::take(&mut plan.new),
            What::Bytes(_)
            | What::Text(_)
            | What::Create(_)
            | What::MoveHere { .. }
            | What::Mode(_) => {
                return Err(Error::Exists { path: path.to_owned() });
            }
        };
        plan.set_runs((job.was, job.runs))?;
        Ok(())
    }

    /// Writes all plans beside their places, brings them to the disk at once, then puts them in, unless another process
    /// has changed one of them meanwhile. Returns the modes that they have.
    fn put(&self, plans: &mut [Plan], folders: &mut Folders) -> Result<Vec<(RelPath, u32)>, Error> {
        let (mut spots, mut changing) = (Vec::with_capacity(plans.len()), Vec::new());
        for plan in plans.iter_mut().filter(|plan| plan.changes()) {
            spots.push(plan.spot.take());
            changing.push(&*plan);
        }
        let plans: Vec<&Plan> = changing;
        let mut staged = Vec::with_capacity(plans.len());
        let written = plans.first().map_or("", |plan| plan.target.written.as_str());
        for (plan, spot) in plans.iter().zip(spots) {
            let wanted = self.wanted.begin(written)?;
            let spot = match spot {
                // What is there stands in a folder that was opened with it.
                Some(spot) => spot,
                None => {
                    self.make_parents(&plan.target)?;
                    self.locate(&plan.target)?
                }
            };
            drop(wanted);
            let new = Staged::write(spot, &plan.new, plan.old.as_ref(), plan.mode)?;
            if plan.is_program {
                new.make_runnable()?;
            }
            staged.push(new);
        }
        replace::sync_all(&staged)?;
        folders.hold(staged.iter().map(Staged::place))?;
        staged.iter().try_for_each(Staged::check)?;
        let _wanted = self.wanted.begin(written)?;
        for index in 0..staged.len() {
            if let Err(error) = staged.get_mut(index).map_or(Ok(()), Staged::rename) {
                return Err(self.put_back(plans.get(..index).unwrap_or_default(), error));
            }
        }
        // Told as failed, it has to be as it was.
        if let Err(error) = replace::sync_folders(&staged) {
            return Err(self.put_back(&plans, error));
        }
        for plan in &plans {
            if let Some((source, old)) = &plan.source
                && let Err(error) = self.remove_source(source, old)
            {
                return Err(self.put_back(&plans, error));
            }
        }
        let mode =
            |(plan, staged): (&&Plan, &Staged)| Some((plan.target.real.clone(), staged.mode()?));
        Ok(plans.iter().zip(&staged).filter_map(mode).collect())
    }

    /// Keeps the contents that a transaction replaces and writes, before it does.
    fn keep_plans(&self, plans: &[Plan]) -> Result<(), Error> {
        let Some(keeps) = &self.keeps else { return Ok(()) };
        for plan in plans {
            let sources = plan.source.iter().map(|(_, old)| old);
            for old in plan.old.iter().chain(sources) {
                keeps.keep(&old.bytes)?;
            }
            keeps.keep(&plan.new)?;
        }
        Ok(())
    }

    /// Keeps the content of a file or link that goes.
    fn keep_spot(&self, spot: &Spot) -> Result<(), Error> {
        let Some(keeps) = &self.keeps else { return Ok(()) };
        match spot.stat.map(|stat| stat.kind) {
            // As in a snapshot: what is larger is known by its hash alone.
            Some(Kind::File) if spot.stat.is_some_and(|stat| stat.len > MAX_KEPT) => Ok(()),
            Some(Kind::File) => keeps.keep(&spot.read()?).map(drop),
            Some(Kind::Link) => keeps.keep(&read_link(spot)?).map(drop),
            _ => Ok(()),
        }
    }

    /// Lists the files and links at a path and below it, and the folders that hold none, each with the
    /// hash of its content and its mode to git.
    fn held_at(&self, path: &RelPath) -> Result<Vec<(RelPath, Option<Hash>, u32)>, Error> {
        let (mut held, mut todo) = (Vec::new(), vec![path.clone()]);
        while let Some(path) = todo.pop() {
            let spot = self.root.locate(path.as_ref(), Access::Read, Last::Keep)?;
            let stat = spot.found()?;
            match stat.kind {
                Kind::File => {
                    let mut hasher = blake3::Hasher::new();
                    let read = hasher.update_reader(spot.open()?);
                    read.map_err(|e| Error::io(&spot.written, "read", e))?;
                    held.push((path, Some(hasher.finalize()), FILE | stat.mode));
                }
                Kind::Link => held.push((path, Some(blake3::hash(&read_link(&spot)?)), LINK)),
                Kind::Folder => {
                    let entries = spot.list()?;
                    if entries.is_empty() {
                        held.push((path, None, FOLDER | stat.mode));
                    } else {
                        todo.extend(entries.iter().rev().map(|entry| path.join(&entry.name)));
                    }
                }
                Kind::Special => {
                    let kind = stat.kind.label();
                    return Err(Error::refused(&spot.written, Refusal::Special { kind }));
                }
            }
        }
        Ok(held)
    }

    /// Removes a file that is elsewhere by now, if it is still the one that was moved.
    fn remove_source(&self, source: &Target, old: &Old) -> Result<(), Error> {
        let spot = self.locate(source)?;
        if spot.stat != Some(old.stat) {
            return Err(Error::Raced { path: source.written.clone() });
        }
        fs::unlinkat(&spot.folder, &spot.name, AtFlags::empty())
            .and_then(|()| sync_folder(spot.folder.as_fd()))
            .map_err(|e| Error::io(&source.written, "remove", e))?;
        self.session.removed(&source.real);
        Ok(())
    }

    /// Puts the old contents back after a later file failed.
    fn put_back(&self, done: &[&Plan], error: Error) -> Error {
        let mut left = BTreeSet::new();
        for plan in done {
            let back = || -> Result<(), Error> {
                let spot = self.locate(&plan.target)?;
                let ours = Old::read_whole(&spot)?;
                if ours.bytes != plan.new {
                    return Err(Error::Raced { path: plan.target.written.clone() });
                }
                let Some(old) = &plan.old else {
                    return fs::unlinkat(&spot.folder, &spot.name, AtFlags::empty())
                        .map_err(|e| Error::io(&plan.target.written, "remove", e));
                };
                let mut staged = Staged::write(spot, &old.bytes, Some(&ours), Some(old.stat.mode))?;
                staged.sync()?;
                staged.rename()
            };
            if back().is_err() {
                left.insert(plan.target.written.clone());
            }
        }
        if left.is_empty() {
            return error;
        }
        let source = std::io::Error::other(error.to_string());
        let path = left.first().cloned().unwrap_or_default();
        Error::HalfDone { path, left: left.into_iter().collect(), source }
    }
}

impl Plan {
    /// Gives or takes the right to run the file, where it has the one that was said of it before.
    fn set_runs(&mut self, (was, runs): (Runs, Runs)) -> Result<(), Error> {
        let now = self.mode.or_else(|| self.old.as_ref().map(|old| old.stat.mode & 0o777));
        if let Some(found) = now.map(Runs::of).filter(|now| was != Runs::AsIs && *now != was) {
            let path = self.source.as_ref().map_or(&self.target, |(from, _)| from).written.clone();
            let (wanted, found) = (was.as_str(), found.as_str());
            return Err(Error::Mode { path, wanted, found });
        }
        match (runs, now) {
            (Runs::AsIs, _) => {}
            (runs, None) => self.is_program = runs == Runs::Yes,
            (Runs::Yes, Some(mode)) if replace::runnable(mode) != mode => {
                self.mode = Some(replace::runnable(mode));
            }
            (Runs::No, Some(mode)) if mode & 0o111 != 0 => self.mode = Some(mode & 0o666),
            (Runs::Yes | Runs::No, Some(_)) => {}
        }
        Ok(())
    }

    /// Says whether there is anything to write.
    fn changes(&self) -> bool {
        self.mode.is_some() || self.old.as_ref().is_none_or(|old| old.bytes != self.new)
    }

    /// Shows what becomes of the file, and of the one it is moved from.
    fn shown(&self) -> impl Iterator<Item = Changed> {
        let before = self.old.as_ref().map(|old| old.bytes.as_slice());
        let changed = |target: &Target, before: Option<&[u8]>, after: Option<&[u8]>| Changed {
            path: target.real.clone(),
            before: before.map(blake3::hash),
            after: after.map(blake3::hash),
            before_mode: None,
            after_mode: None,
            diff: edit::diff(&target.real.to_string(), before, after),
        };
        let gone = self.source.as_ref().map(|(from, old)| Changed {
            before_mode: Some(FILE | old.stat.mode),
            ..changed(from, Some(&old.bytes), None)
        });
        let old = self.old.as_ref().map(|old| FILE | (old.stat.mode & 0o1777));
        let here = Changed {
            before_mode: old,
            after_mode: self.mode.map(|mode| FILE | mode).or(old),
            ..changed(&self.target, before, Some(&self.new))
        };
        [here].into_iter().chain(gone)
    }
}

/// Describes what came to `to` or below it from what is at `from` or below it.
fn new(from: &Target, to: &Target, path: &RelPath, hash: Option<Hash>, mode: u32) -> Changed {
    let below = path.as_path().strip_prefix(from.real.as_path()).unwrap_or(Path::new(""));
    Changed {
        path: below.iter().fold(to.real.clone(), |path, name| path.join(name)),
        before: None,
        after: hash,
        before_mode: None,
        after_mode: Some(mode),
        diff: String::new(),
    }
}

/// Brings folders to the disk that hold new ones; many at once, as each waits for it.
fn sync_made(written: &str, folders: &[OwnedFd]) -> Result<(), Error> {
    let io = |e: Errno| Error::io(written, "sync the folder of", e);
    if let [one] = folders {
        return sync_folder(one.as_fd()).map_err(io);
    }
    let each = folders.len().div_ceil(SYNCS).max(1);
    std::thread::scope(|scope| {
        let sync =
            |part: &[OwnedFd]| part.iter().try_for_each(|folder| sync_folder(folder.as_fd()));
        let parts: Vec<_> =
            folders.chunks(each).map(|part| scope.spawn(move || sync(part))).collect();
        parts.into_iter().try_for_each(|part| part.join().unwrap_or(Err(Errno::IO))).map_err(io)
    })
}

/// Returns a number that no other copy of this process has.
fn next_copy() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Reads where a link points, as it is written.
fn read_link(spot: &Spot) -> Result<Vec<u8>, Error> {
    let target = fs::readlinkat(&spot.folder, &spot.name, Vec::new());
    let target = target.map_err(|e| Error::io(&spot.written, "read the link", e))?;
    Ok(target.into_bytes())
}

#[cfg(test)]
mod tests;
