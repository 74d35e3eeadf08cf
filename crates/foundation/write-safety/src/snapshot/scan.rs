//! Going through a workspace: what belongs to a snapshot, and what it contains.

use super::{
    MAX_KEPT, Node, Snapshot, Which,
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
};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::{self, Read as _},
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

/// Goes through a workspace, sorted.
///
/// The ignore rules are those on the disk, or those of the snapshot `rules`: rules that came later
/// must neither hide what is new nor give away what was ignored.
pub(super) fn scan(
    root: &Root,
    which: Which,
    blobs: &Blobs,
    rules: Option<&Snapshot>,
) -> Result<Scan, Error> {
    let mut scan = Scan { found: Vec::new(), exclude: None, skipped: Vec::new() };
    let mut ignores = Ignores { root, which, blobs, rules, stack: Vec::new() };
    scan.exclude = ignores.enter_top()?;
    visit(root, &RelPath::root(), &mut ignores, &mut scan)?;
    Ok(scan)
}

fn visit(
    root: &Root,
    folder: &RelPath,
    ignores: &mut Ignores<'_>,
    scan: &mut Scan,
) -> Result<(), Error> {
    if folder.is_deepest() {
        scan.skipped.push(folder.clone());
        return Ok(());
    }
    let depth = ignores.stack.len();
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
    if ignores.rules.is_some() || opened.entries.iter().any(has_rules) {
        ignores.enter(folder)?;
    }
    let mut folders = Vec::new();
    for entry in &opened.entries {
        if is_git(&entry.name) || entry.name.as_bytes().starts_with(TEMP_PREFIX.as_bytes()) {
            continue;
        }
        let path = folder.join(&entry.name);
        if ignores.hide(&path, entry.kind) {
            continue;
        }
        // A name that is gone by now was never there.
        let Some(stat) = opened.stat(&entry.name) else { continue };
        match stat.kind {
            Kind::Special => scan.skipped.push(path),
            Kind::Folder => {
                folders.push(path.clone());
                scan.found.push((path, stat));
            }
            Kind::File | Kind::Link => scan.found.push((path, stat)),
        }
    }
    drop(opened); // However deep a workspace is, one folder is open at a time.
    for folder in folders {
        visit(root, &folder, ignores, scan)?;
    }
    ignores.stack.truncate(depth);
    Ok(())
}

/// The ignore files on the way from the top to where we are.
struct Ignores<'a> {
    root: &'a Root,
    which: Which,
    blobs: &'a Blobs,
    rules: Option<&'a Snapshot>,
    stack: Vec<Gitignore>,
}

impl Ignores<'_> {
    /// Reads `.git/info/exclude` and keeps its content.
    fn enter_top(&mut self) -> Result<Option<Hash>, Error> {
        if self.which == Which::All {
            return Ok(None);
        }
        let exclude = match self.rules {
            Some(rules) => rules.exclude,
            None => match self.root.read(".git/info/exclude") {
                Ok(text) => Some(self.blobs.put(&text)?),
                Err(_) => None,
            },
        };
        if let Some(hash) = exclude {
            let text = self.blobs.get(hash)?;
            self.push(&RelPath::root(), &text);
        }
        Ok(exclude)
    }

    fn enter(&mut self, folder: &RelPath) -> Result<(), Error> {
        if self.which == Which::All {
            return Ok(());
        }
        let file = folder.join(IGNORE_FILE.as_ref());
        let text = match self.rules {
            Some(rules) => match rules.entries.get(&file) {
                Some(Node::File { hash, .. }) => Some(self.blobs.get(*hash)?),
                Some(Node::Link { .. } | Node::Folder { .. }) | None => None,
            },
            // As git does, a link is not followed.
            None => match self.root.locate(file.as_ref(), Access::Read, Last::Keep) {
                Ok(spot) => spot.read().ok(),
                Err(_) => None,
            },
        };
        if let Some(text) = text {
            self.push(folder, &text);
        }
        Ok(())
    }

    fn push(&mut self, folder: &RelPath, text: &[u8]) {
        let mut builder = GitignoreBuilder::new(self.root.path().join(folder.as_path()));
        for line in String::from_utf8_lossy(text).lines() {
            // As git does, a line that does not parse ignores nothing.
            let _ = builder.add_line(None, line);
        }
        if let Ok(ignore) = builder.build() {
            self.stack.push(ignore);
        }
    }

    fn hide(&self, path: &RelPath, kind: Kind) -> bool {
        // What the snapshot holds was not ignored then.
        if self.rules.is_some_and(|rules| rules.entries.contains_key(path)) {
            return false;
        }
        if self.stack.is_empty() {
            return false;
        }
        let absolute = self.root.path().join(path.as_path());
        for ignore in self.stack.iter().rev() {
            match ignore.matched(&absolute, kind == Kind::Folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
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
                    if let Node::File { hash, .. } = node {
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
            let read = spot.and_then(|spot| match spot.found()?.len {
                len if len > MAX_KEPT => large(&spot).map(Err),
                _ => Old::read(&spot).map(Ok),
            });
            let old = match read {
                Ok(Ok(old)) => old,
                Ok(Err(large)) => return Ok(Some(large)),
                Err(e) => return gone(e),
            };
            let hash = blobs.put(&old.bytes)?;
            let len = old.bytes.len() as u64;
            Ok(Some((Node::File { hash, mode: old.stat.mode, len }, old.stat)))
        }
    }
}
