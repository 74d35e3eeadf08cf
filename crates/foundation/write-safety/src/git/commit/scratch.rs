//! A folder of one commit's own within the repository. What is to follow once the branch has moved stands in it before it
//! moves, so that it follows also where the process dies in between.

use super::{Entry, Line};
use crate::{RelPath, error::Error, sweep};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{ErrorKind, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

const PREFIX: &str = "formwork-commit-";
const INTENT: &str = "intent";
/// Says that the index was brought along.
const FINISHED: &str = "finished";

/// What is to follow once a branch has moved.
pub(super) struct Intent<'a> {
    /// The commit that it moves to.
    pub(super) id: &'a str,
    pub(super) trailers: &'a [(String, String)],
    /// What it changes.
    pub(super) lines: &'a [Line],
}

/// What was intended: the commit, its trailers, and what it changes.
pub(super) type Intended = (String, Vec<(String, String)>, Vec<Line>);

/// The folder, gone with the value.
#[derive(Debug)]
pub(super) struct Scratch {
    pub(super) dir: PathBuf,
    /// Held as long as its process lives.
    _lock: File,
    stays: bool,
}

impl Scratch {
    pub(super) fn new(git_dir: &Path) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = git_dir.join(format!("{PREFIX}{}-{number}", std::process::id()));
            let io = |e| Error::io(&dir.to_string_lossy(), "make", e);
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {}
                // Left by a killed process that had our number.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(io(e)),
            }
            let lock = File::open(&dir).map_err(io)?;
            lock.try_lock().map_err(|e| io(e.into()))?;
            return Ok(Self { dir, _lock: lock, stays: false });
        }
    }

    /// Finds those of processes that have died. One that holds nothing to follow goes at once.
    pub(super) fn left(git_dir: &Path) -> Vec<Self> {
        let mut left = Vec::new();
        for entry in fs::read_dir(git_dir).into_iter().flatten().flatten() {
            let Some(writer) = sweep::writer(&entry.file_name(), PREFIX) else { continue };
            let dir = entry.path();
            // One without may be about to be locked by whoever has made it.
            if !dir.join(INTENT).is_file() && !sweep::is_gone(writer) {
                continue;
            }
            let Ok(lock) = File::open(&dir) else { continue };
            if lock.try_lock().is_ok() {
                left.push(Self { dir, _lock: lock, stays: false });
            }
        }
        left
    }

    /// Writes down what is to follow.
    pub(super) fn intend(&self, intent: &Intent<'_>) -> Result<(), Error> {
        let path = self.dir.join(INTENT);
        let temporary = self.dir.join("intent.new");
        let write = || {
            let mut options = fs::OpenOptions::new();
            let options = options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&temporary)?;
            file.write_all(&written(intent))?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|e| Error::io(&path.to_string_lossy(), "write", e))
    }

    /// Reads what was to follow; none where it never came so far.
    pub(super) fn intended(&self) -> Option<Intended> {
        read(&fs::read(self.dir.join(INTENT)).ok()?)
    }

    /// Tells whether the index was brought along by somebody who asked for other commits.
    pub(super) fn is_finished(&self) -> bool {
        self.dir.join(FINISHED).exists()
    }

    /// Remembers that the index was brought along, for whoever asks for this commit.
    pub(super) fn finished(&mut self) -> Result<(), Error> {
        let path = self.dir.join(FINISHED);
        fs::write(&path, b"").map_err(|e| Error::io(&path.to_string_lossy(), "write", e))?;
        self.stays = true;
        Ok(())
    }
}

#[cfg(test)]
impl Scratch {
    /// Leaves it as a process does that dies: unlocked, and there.
    pub(super) fn stays_behind(mut self) {
        self.stays = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.stays {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Records that end with a zero each: the commit, the trailers, an empty one, and the changes.
fn written(intent: &Intent<'_>) -> Vec<u8> {
    let mut text = format!("{}\0", intent.id).into_bytes();
    for (name, value) in intent.trailers {
        text.extend_from_slice(format!("{name}: {value}\0").as_bytes());
    }
    text.push(0);
    for (path, old, new) in intent.lines {
        for entry in [old, new] {
            let told = entry.as_ref().map(|entry| format!("{} {}", entry.mode, entry.oid));
            text.extend_from_slice(told.unwrap_or_default().as_bytes());
            text.push(b'\t');
        }
        text.extend_from_slice(path.as_path().as_os_str().as_bytes());
        text.push(0);
    }
    text
}

fn read(text: &[u8]) -> Option<Intended> {
    let mut records = text.split(|&byte| byte == 0);
    let words = |record: &[u8]| Some(std::str::from_utf8(record).ok()?.to_owned());
    let id = words(records.next()?)?;
    let mut trailers = Vec::new();
    loop {
        let record = records.next()?;
        if record.is_empty() {
            break;
        }
        let record = words(record)?;
        let (name, value) = record.split_once(": ")?;
        trailers.push((name.to_owned(), value.to_owned()));
    }
    let entry = |told: &[u8]| {
        let (mode, oid) = std::str::from_utf8(told).ok()?.split_once(' ')?;
        Some(Entry { mode: mode.to_owned(), oid: oid.to_owned() })
    };
    let mut lines = Vec::new();
    for record in records.filter(|record| !record.is_empty()) {
        let mut fields = record.splitn(3, |&byte| byte == b'\t');
        let (old, new) = (entry(fields.next()?), entry(fields.next()?));
        lines.push((RelPath::parse(OsStr::from_bytes(fields.next()?)).ok()?, old, new));
    }
    Some((id, trailers, lines))
}
