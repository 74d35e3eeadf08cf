//! Going through a workspace: what belongs to a snapshot, and what it contains.

use super::{
    MAX_KEPT, Node, Snapshot, UNREAD, Which,
    blobs::Blobs,
    cache::{Cache, Known},
};
use crate::{
    error::Error,
    ledger::Hash,
    path::RelPath,
    replace::{Old, TEMP_PREFIX},
    root::{Access, Entry, Kind, Last, Root, Spot, Stat},
    rules::is_git,
    sweep,
};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, ErrorKind, Read as _},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How many files are read before another thread helps.
const FILES_A_THREAD: usize = 16;

const IGNORE_FILE: &str = ".gitignore";

/// What belongs to a snapshot, before its files are read.
pub(super) struct Scan {
    found: Vec<(RelPath, Stat)>,
    pub(super) exclude: Option<Hash>,
    pub(super) skipped: Vec<RelPath>,
}

/// Whose ignore rules say what belongs to a snapshot.
#[derive(Clone, Copy)]
pub(super) enum Rules<'a> {
    /// Those on the disk.
    Disk,
    /// Those of another snapshot: rules that came later neither hide what is new nor give away what was ignored.
    Of(&'a Snapshot),
    /// Those on the disk and those of the snapshot before. Neither hides what that one holds: it was there, and is
    /// not gone because a rule came.
    Since(&'a Snapshot),
}

impl<'a> Rules<'a> {
    /// Returns the snapshot whose rules count, where one's do.
    const fn of(self) -> Option<&'a Snapshot> {
        match self {
            Self::Disk => None,
            Self::Of(snapshot) | Self::Since(snapshot) => Some(snapshot),
        }
    }

    const fn reads_disk(self) -> bool {
        matches!(self, Self::Disk | Self::Since(_))
    }
}

/// Goes through a workspace, sorted.
pub(super) fn scan(
    root: &Root,
    which: Which,
    blobs: &Blobs,
    rules: Rules<'_>,
) -> Result<Scan, Error> {
    let mut scan = Scan { found: Vec::new(), exclude: None, skipped: Vec::new() };
    let mut ignores = Ignores { root, which, blobs, rules, disk: Vec::new(), kept: Vec::new() };
    scan.exclude = ignores.enter_top()?;
    visit(root, &RelPath::root(), Within::Shown, &mut ignores, &mut scan)?;
    Ok(scan)
}

/// What is said of a path, and of a folder's content unless something else is said of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Shown,
    /// Ignored by now: what the snapshot before holds is there, and nothing else.
    Held,
    Hidden,
}

fn visit(
    root: &Root,
    folder: &RelPath,
    within: Within,
    ignores: &mut Ignores<'_>,
    scan: &mut Scan,
) -> Result<(), Error> {
    if folder.is_deepest() {
        scan.skipped.push(folder.clone());
        return Ok(());
    }
    let depth = (ignores.disk.len(), ignores.kept.len());
    let opened = match root.enter(folder) {
        Ok(opened) => opened,
        // Gone or closed to us.
        Err(Error::Missing { .. } | Error::Kind { .. } | Error::Refused { .. }) => return Ok(()),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            scan.skipped.push(folder.clone());
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    let has_rules = |entry: &Entry| entry.name == IGNORE_FILE;
    if ignores.rules.of().is_some() || opened.entries.iter().any(has_rules) {
        ignores.enter(folder)?;
    }
    let mut folders = Vec::new();
    let mut is_littered = false;
    for entry in &opened.entries {
        if is_git(&entry.name) {
            continue;
        }
        if entry.name.as_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
            is_littered |= sweep::writer(&entry.name, TEMP_PREFIX).is_some_and(sweep::is_gone);
            continue;
        }
        let path = folder.join(&entry.name);
        let said = ignores.judge(&path, entry.kind, within);
        if said == Within::Hidden {
            continue;
        }
        // A name that is gone by now was never there.
        let Some(stat) = opened.stat(&entry.name) else { continue };
        match stat.kind {
            Kind::Special => scan.skipped.push(path),
            Kind::Folder => {
                folders.push((path.clone(), said));
                scan.found.push((path, stat));
            }
            Kind::File | Kind::Link => scan.found.push((path, stat)),
        }
    }
    drop(opened); // However deep a workspace is, one folder is open at a time.
    if is_littered {
        // What a process was killed over is nobody's any more. Where it cannot be removed, it is in nobody's way.
        let _ = root.sweep(folder);
    }
    for (folder, said) in folders {
        visit(root, &folder, said, ignores, scan)?;
    }
    ignores.disk.truncate(depth.0);
    ignores.kept.truncate(depth.1);
    Ok(())
}

/// The ignore files on the way from the top to where we are.
struct Ignores<'a> {
    root: &'a Root,
    which: Which,
    blobs: &'a Blobs,
    rules: Rules<'a>,
    /// Those on the disk.
    disk: Vec<Gitignore>,
    /// Those of the snapshot.
    kept: Vec<Gitignore>,
}

impl Ignores<'_> {
    /// Reads `.git/info/exclude` and keeps its content.
    fn enter_top(&mut self) -> Result<Option<Hash>, Error> {
        if self.which == Which::All {
            return Ok(None);
        }
        let mut exclude = None;
        if let Some(hash) = self.rules.of().and_then(|rules| rules.exclude) {
            exclude = Some(hash);
            let rules = self.parse(&RelPath::root(), &self.blobs.get(hash)?);
            self.kept.extend(rules);
        }
        if self.rules.reads_disk() {
            exclude = match self.root.read(".git/info/exclude") {
                Ok(text) => {
                    let rules = self.parse(&RelPath::root(), &text);
                    self.disk.extend(rules);
                    Some(self.blobs.put(&text)?)
                }
                Err(_) => None,
            };
        }
        Ok(exclude)
    }

    fn enter(&mut self, folder: &RelPath) -> Result<(), Error> {
        if self.which == Which::All {
            return Ok(());
        }
        let file = folder.join(IGNORE_FILE.as_ref());
        let kept = self.rules.of().and_then(|rules| rules.entries.get(&file));
        if let Some(Node::File { hash, .. }) = kept {
            let rules = self.parse(folder, &self.blobs.get(*hash)?);
            self.kept.extend(rules);
        }
        // As git does, a link is not followed.
        if self.rules.reads_disk()
            && let Ok(spot) = self.root.locate(file.as_ref(), Access::Read, Last::Keep)
            && let Ok(text) = spot.read()
        {
            let rules = self.parse(folder, &text);
            self.disk.extend(rules);
        }
        Ok(())
    }

    fn parse(&self, folder: &RelPath, text: &[u8]) -> Option<Gitignore> {
        let mut builder = GitignoreBuilder::new(self.root.path().join(folder.as_path()));
        for line in String::from_utf8_lossy(text).lines() {
            // As git does, a line that does not parse ignores nothing.
            let _ = builder.add_line(None, line);
        }
        builder.build().ok()
    }

    fn judge(&self, path: &RelPath, kind: Kind, within: Within) -> Within {
        // What the snapshot holds was not ignored then.
        let is_held = self.rules.of().is_some_and(|rules| rules.entries.contains_key(path));
        if is_held && !self.rules.reads_disk() {
            return Within::Shown;
        }
        let is_ignored = within == Within::Held || {
            let absolute = self.root.path().join(path.as_path());
            let ignores = |rules: &[Gitignore]| {
                let is_folder = kind == Kind::Folder;
                let mut said = rules.iter().rev().map(|rules| rules.matched(&absolute, is_folder));
                said.find(|said| !said.is_none()).is_some_and(|said| said.is_ignore())
            };
            ignores(&self.disk) || ignores(&self.kept)
        };
        match (is_ignored, is_held) {
            (false, _) => Within::Shown,
            (true, true) => Within::Held,
            (true, false) => Within::Hidden,
        }
    }
}

/// What was found to be in a workspace.
pub(super) struct Found {
    pub(super) entries: BTreeMap<RelPath, Node>,
    /// Files that had to be read, with what they are by now.
    pub(super) read: Vec<(RelPath, Stat, Hash)>,
    /// The time before the first of them was read, by the clock that gives files their times.
    pub(super) clock: Option<i128>,
}

/// Reads what is not known yet, several files at once, and keeps the contents.
pub(super) fn read(
    root: &Root,
    scan: &Scan,
    known: &Known,
    (blobs, cache): (&Blobs, &Cache),
) -> Result<Found, Error> {
    let (mut entries, mut unknown) = (Vec::with_capacity(scan.found.len()), Vec::new());
    for (path, stat) in &scan.found {
        match (stat.kind, known.hash(path, stat, blobs)) {
            (Kind::Folder, _) => entries.push((path.clone(), Node::Folder { mode: stat.mode })),
            (Kind::File, Some(hash)) => {
                let node = Node::File { hash, mode: stat.mode, len: stat.len };
                entries.push((path.clone(), node));
            }
            (Kind::File | Kind::Link | Kind::Special, _) => unknown.push((path, stat)),
        }
    }
    let has_files = unknown.iter().any(|(_, stat)| stat.kind == Kind::File);
    let clock = if has_files { Some(cache.clock()?) } else { None };
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Vec::new(), Vec::new()));
    let failed = Mutex::new(None);
    let lock = |e: PoisonError<_>| PoisonError::into_inner(e);
    let work = || {
        while let Some((path, stat)) = unknown.get(next.fetch_add(1, Ordering::Relaxed)) {
            match read_one(root, path, stat, blobs) {
                Ok(Some((node, stat))) => {
                    let (entries, read) = &mut *results.lock().unwrap_or_else(lock);
                    if let Node::File { hash, .. } = node
                        && !node.is_unread()
                    {
                        read.push(((*path).clone(), stat, hash));
                    }
                    entries.push(((*path).clone(), node));
                }
                Ok(None) => {}
                Err(e) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            }
        }
    };
    // The beginning of a thread takes longer than to read some files, and so does the question how many
    // processors there are, which reads the control groups.
    let threads = match unknown.len() / FILES_A_THREAD + 1 {
        1 => 1,
        wanted => wanted.min(std::thread::available_parallelism().map_or(1, usize::from)),
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    if let Some(e) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(e);
    }
    let (more, read) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    entries.extend(more);
    Ok(Found { entries: entries.into_iter().collect(), read, clock })
}

/// Hashes a file that is too large to be kept.
pub(super) fn large(spot: &Spot) -> Result<(Node, Stat), Error> {
    let file = spot.open()?;
    let stat = rustix::fs::fstat(&file).map_err(|e| Error::io(&spot.written, "stat", e))?;
    let (stat, mut hasher) = (Stat::of(&stat), blake3::Hasher::new());
    // One that grows is read as far as it reached.
    hasher.update_reader(file.take(stat.len)).map_err(|e| Error::io(&spot.written, "read", e))?;
    Ok((Node::File { hash: hasher.finalize(), mode: stat.mode, len: stat.len }, stat))
}

/// Reads one file, link or folder; none if it is gone by now.
fn read_one(
    root: &Root,
    path: &RelPath,
    stat: &Stat,
    blobs: &Blobs,
) -> Result<Option<(Node, Stat)>, Error> {
    let gone = |e: Error| match e {
        Error::Missing { .. } | Error::Kind { .. } | Error::Refused { .. } => Ok(None),
        e => Err(e),
    };
    match stat.kind {
        Kind::Folder => Ok(Some((Node::Folder { mode: stat.mode }, *stat))),
        Kind::Special => Ok(None),
        Kind::Link => {
            let spot = match root.locate(path.as_ref(), Access::Read, Last::Keep) {
                Ok(spot) => spot,
                Err(e) => return gone(e),
            };
            let Ok(target) = rustix::fs::readlinkat(&spot.folder, &spot.name, Vec::new()) else {
                return Ok(None);
            };
            let target = OsString::from_vec(target.into_bytes()).into();
            Ok(Some((Node::Link { target }, *stat)))
        }
        Kind::File => {
            let spot = root.locate(AsRef::<Path>::as_ref(path), Access::Read, Last::Keep);
            match spot.and_then(|spot| file(&spot, blobs)) {
                Ok(found) => Ok(Some(found)),
                Err(e) => gone(e),
            }
        }
    }
}

/// Reads a file and keeps its content, unless it is too large for that or not to be read: whatever a workspace holds,
/// it can be looked at.
pub(super) fn file(spot: &Spot, blobs: &Blobs) -> Result<(Node, Stat), Error> {
    let stat = spot.found()?;
    if stat.len > MAX_KEPT {
        return large(spot);
    }
    match Old::read_whole(spot) {
        Ok(old) => {
            let (hash, len) = (blobs.put(&old.bytes)?, old.bytes.len() as u64);
            Ok((Node::File { hash, mode: old.stat.mode, len }, old.stat))
        }
        // It grew meanwhile.
        Err(Error::TooLarge { .. }) => large(spot),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            Ok((unread(&stat), stat))
        }
        Err(e) => Err(e),
    }
}

/// Describes a file that may not be read by what the system says of it, which differs once it was written to.
fn unread(stat: &Stat) -> Node {
    let Stat { len, modified, changed, inode: (device, number), .. } = stat;
    let facts = format!("{device} {number} {len} {modified} {changed}");
    Node::File { hash: blake3::hash(facts.as_bytes()), mode: stat.mode, len: UNREAD }
}
