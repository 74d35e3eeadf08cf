//! What need not be read again: hashes of files by their size, times and inode.

use super::{
    MAX_KEPT, Node, Snapshot,
    blobs::{Blobs, Durability, put_file},
};
use crate::{
    error::Error,
    ledger::Hash,
    path::RelPath,
    root::{Kind, Stat},
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

const HEADER: &[u8] = b"formwork stat cache 1\n";
/// A file changed this shortly before may change again without a new time; clocks tick in steps.
const UNSURE: i128 = 100_000_000;

/// One in how many files must be new before all are written down again. What is lost is only read once more.
const WORTH_WRITING: usize = 64;

type Stats = HashMap<RelPath, (Stat, Hash)>;

#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
    /// What this process has found, by workspace.
    found: Mutex<HashMap<PathBuf, Arc<Known>>>,
}

/// What is known of a workspace.
#[derive(Debug, Default)]
pub(super) struct Known {
    stats: Stats,
    /// Whether this process has seen that each content is kept.
    is_kept: bool,
    /// How many files of `stats` are not written down yet.
    unwritten: usize,
    /// The last snapshot, which the next one often is again.
    pub(super) last: Option<Snapshot>,
}

impl Known {
    /// Returns the hash of a file that is as it was when it was read.
    pub(super) fn hash(&self, path: &RelPath, stat: &Stat, blobs: &Blobs) -> Option<Hash> {
        let (before, hash) = self.stats.get(path)?;
        let is_there = || self.is_kept || stat.len > MAX_KEPT || blobs.holds(*hash);
        (before == stat && is_there()).then_some(*hash)
    }
}

impl Cache {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, found: Mutex::default() }
    }

    /// Reads the clock that gives files their times, in nanoseconds since 1970.
    pub(super) fn clock(&self) -> Result<i128, Error> {
        let probe = self.dir.join(format!("clock-{}", std::process::id()));
        put_file(&probe, b"", Durability::Written)?;
        let stat = File::open(&probe).and_then(|file| Ok(rustix::fs::fstat(&file)?));
        let stat = stat.map_err(|e| Error::io(&probe.to_string_lossy(), "stat", e))?;
        Ok(Stat::of(&stat).modified)
    }

    /// Returns what is known of a workspace; what cannot be read is not known.
    pub(super) fn load(&self, root: &Path) -> Arc<Known> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.get(root) {
            return Arc::clone(known);
        }
        let stats = std::fs::read(self.place(root)).ok().and_then(|bytes| parse(&bytes));
        Arc::new(Known { stats: stats.unwrap_or_default(), ..Known::default() })
    }

    /// Keeps what was found, except files that changed shortly before they were read.
    pub(super) fn store(
        &self,
        root: &Path,
        known: &Known,
        (read, clock): (&[(RelPath, Stat, Hash)], Option<i128>),
        last: &Snapshot,
    ) -> Result<(), Error> {
        let is_file = |path: &RelPath| matches!(last.entries.get(path), Some(Node::File { .. }));
        let mut stats = known.stats.clone();
        stats.retain(|path, _| is_file(path));
        let mut unwritten = known.unwritten;
        for (path, stat, hash) in read {
            let is_old =
                clock.is_some_and(|clock| stat.modified.max(stat.changed) + UNSURE < clock);
            if is_old {
                stats.insert(path.clone(), (*stat, *hash));
                unwritten += 1;
            } else {
                stats.remove(path);
            }
        }
        if unwritten > stats.len() / WORTH_WRITING {
            put_file(&self.place(root), &write(&stats), Durability::Written)?;
            unwritten = 0;
        }
        let known = Known { stats, is_kept: true, unwritten, last: Some(last.clone()) };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(root.to_owned(), Arc::new(known));
        Ok(())
    }

    fn place(&self, root: &Path) -> PathBuf {
        self.dir.join(blake3::hash(root.as_os_str().as_bytes()).to_string())
    }
}

fn write(stats: &Stats) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for (path, (stat, hash)) in stats {
        let (device, inode) = stat.inode;
        let fields = format!(
            "{} {} {} {} {device} {inode} {} {hash} ",
            stat.len, stat.mode, stat.modified, stat.changed, stat.links
        );
        bytes.extend_from_slice(fields.as_bytes());
        bytes.extend_from_slice(path.as_path().as_os_str().as_bytes());
        bytes.push(0);
    }
    let seal = blake3::hash(&bytes);
    bytes.extend_from_slice(seal.as_bytes());
    bytes
}

fn parse(bytes: &[u8]) -> Option<Stats> {
    let (body, seal) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(body).as_bytes() != seal {
        return None;
    }
    let records = body.strip_prefix(HEADER)?.split(|&byte| byte == 0);
    let records = records.filter(|record| !record.is_empty());
    records.map(parse_one).collect()
}

fn parse_one(record: &[u8]) -> Option<(RelPath, (Stat, Hash))> {
    let mut fields = record.splitn(9, |&byte| byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let stat = Stat {
        kind: Kind::File,
        len: text()?.parse().ok()?,
        mode: text()?.parse().ok()?,
        modified: text()?.parse().ok()?,
        changed: text()?.parse().ok()?,
        inode: (text()?.parse().ok()?, text()?.parse().ok()?),
        links: text()?.parse().ok()?,
    };
    let hash = Hash::from_hex(text()?).ok()?;
    let path = RelPath::parse(OsStr::from_bytes(fields.next()?)).ok()?;
    Some((path, (stat, hash)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(files: &[(&str, Hash)]) -> Snapshot {
        let node = |hash| Node::File { hash, mode: 0o644, len: 1 };
        let entries = files.iter().map(|(name, hash)| (path(name), node(*hash)));
        Snapshot {
            id: blake3::hash(b"any"),
            which: super::super::Which::All,
            exclude: None,
            entries: Arc::new(entries.collect()),
            skipped: Vec::new(),
        }
    }

    fn path(name: &str) -> RelPath {
        RelPath::parse(name).unwrap()
    }

    #[test]
    fn only_a_file_that_has_long_been_the_same_is_known_here_and_to_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, root) = (Cache::new(dir.path().to_owned()), Path::new("/ws"));
        let stat = |changed| Stat {
            kind: Kind::File,
            len: 1,
            mode: 0o644,
            modified: 0,
            changed,
            links: 1,
            inode: (1, 2),
        };
        let (now, hash) = (10 * UNSURE, blake3::hash(b"x"));
        let read = [(path("old file\n"), stat(0), hash), (path("fresh"), stat(now - UNSURE), hash)];
        let last = snapshot(&[("old file\n", hash), ("fresh", hash)]);
        let wanted = Stats::from([(path("old file\n"), (stat(0), hash))]);

        cache.store(root, &cache.load(root), (&read, Some(now)), &last).unwrap();

        assert_eq!(cache.load(root).stats, wanted);
        assert_eq!(Cache::new(dir.path().to_owned()).load(root).stats, wanted);
        // What is gone is forgotten.
        cache.store(root, &cache.load(root), (&[], None), &snapshot(&[("fresh", hash)])).unwrap();
        assert_eq!(cache.load(root).stats, Stats::new());

        let place = cache.place(root);
        let mut bytes = std::fs::read(&place).unwrap();
        bytes[HEADER.len()] ^= 1;
        std::fs::write(&place, bytes).unwrap();
        assert_eq!(Cache::new(dir.path().to_owned()).load(root).stats, Stats::new());
    }
}
