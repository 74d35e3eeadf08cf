//! What need not be read again: hashes of files by their size, times and inode.

use super::blobs::{Durability, put_file};
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
};

const HEADER: &[u8] = b"formwork stat cache 1\n";
/// A file changed this shortly before may change again without a new time; clocks tick in steps.
const UNSURE: i128 = 100_000_000;

pub(super) type Stats = HashMap<RelPath, (Stat, Hash)>;

#[derive(Debug)]
pub(super) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Reads the clock that gives files their times, in nanoseconds since 1970.
    pub(super) fn clock(&self) -> Result<i128, Error> {
        let probe = self.dir.join(format!("clock-{}", std::process::id()));
        put_file(&probe, b"", Durability::Written)?;
        let stat = File::open(&probe).and_then(|file| Ok(rustix::fs::fstat(&file)?));
        let stat = stat.map_err(|e| Error::io(&probe.to_string_lossy(), "stat", e))?;
        Ok(Stat::of(&stat).modified)
    }

    /// Loads what is known of a workspace; what cannot be read is not known.
    pub(super) fn load(&self, root: &Path) -> Stats {
        std::fs::read(self.place(root)).ok().and_then(|bytes| parse(&bytes)).unwrap_or_default()
    }

    /// Keeps what was found, except files that changed shortly before `clock`.
    pub(super) fn store(&self, root: &Path, stats: &Stats, clock: i128) -> Result<(), Error> {
        let mut bytes = HEADER.to_vec();
        for (path, (stat, hash)) in stats {
            if stat.modified.max(stat.changed) + UNSURE >= clock {
                continue;
            }
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
        put_file(&self.place(root), &bytes, Durability::Written)
    }

    fn place(&self, root: &Path) -> PathBuf {
        self.dir.join(blake3::hash(root.as_os_str().as_bytes()).to_string())
    }
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

    #[test]
    fn only_a_file_that_has_long_been_the_same_is_known() {
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
        let path = |name: &str| RelPath::parse(name).unwrap();
        let stats = Stats::from([
            (path("old file\n"), (stat(0), hash)),
            (path("fresh"), (stat(now - UNSURE), hash)),
        ]);

        cache.store(root, &stats, now).unwrap();

        assert_eq!(cache.load(root), Stats::from([(path("old file\n"), (stat(0), hash))]));
        let place = cache.place(root);
        let mut bytes = std::fs::read(&place).unwrap();
        bytes[HEADER.len()] ^= 1;
        std::fs::write(&place, bytes).unwrap();
        assert_eq!(cache.load(root), Stats::new());
    }
}
