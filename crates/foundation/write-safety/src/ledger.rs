//! Who has read what, and who is writing it now.

use crate::{
    edit,
    error::{Error, Writer},
    path::RelPath,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// Content kept to show what changed; of a larger file only the hash is kept.
const KEPT_FILE: usize = 512 << 10;
/// Content kept per session; the oldest goes first.
const KEPT_TOTAL: usize = 32 << 20;

/// The BLAKE3 hash of a file's bytes.
pub type Hash = blake3::Hash;

/// What the sessions of one run have read and written, and the locks on what they are writing.
///
/// One per run, shared by its sessions: they wait for each other's writes, and learn of them.
#[derive(Debug, Clone, Default)]
pub struct Reads(Arc<Run>);

#[derive(Debug, Default)]
struct Run {
    writing: Mutex<HashSet<RelPath>>,
    freed: Condvar,
    /// What this run last wrote to a path.
    written: Mutex<HashMap<RelPath, Hash>>,
}

/// What one session has read.
#[derive(Debug, Clone)]
pub struct Session {
    run: Reads,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    hashes: HashMap<RelPath, Hash>,
    contents: HashMap<RelPath, Arc<[u8]>>,
    oldest: VecDeque<RelPath>,
    total: usize,
}

impl Reads {
    /// Starts a run in which nothing has been read.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a session of the run.
    pub fn session(&self) -> Session {
        Session { run: self.clone(), seen: Arc::default() }
    }

    /// Waits until nobody writes any of `paths`, or above or below them, and holds them.
    ///
    /// All at once, so that two who want the same paths in another order do not wait for ever.
    /// Waits until nobody else writes these paths or what is below or above them, and says whether it had to.
    pub(crate) fn lock(&self, paths: &[RelPath]) -> (Held, Waited) {
        let paths: HashSet<RelPath> = paths.iter().cloned().collect();
        let overlaps = |a: &RelPath, b: &RelPath| {
            a.as_path().starts_with(b.as_path()) || b.as_path().starts_with(a.as_path())
        };
        let (mut writing, mut waited) = (lock(&self.0.writing), Waited::No);
        while writing.iter().any(|held| paths.iter().any(|path| overlaps(held, path))) {
            waited = Waited::Yes;
            writing = self.0.freed.wait(writing).unwrap_or_else(PoisonError::into_inner);
        }
        writing.extend(paths.iter().cloned());
        drop(writing);
        (Held { run: self.clone(), paths }, waited)
    }
}

/// Whether somebody else wrote first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    Yes,
    No,
}

/// Paths that only the holder writes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    run: Reads,
    paths: HashSet<RelPath>,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.run.0.writing).retain(|path| !self.paths.contains(path));
        self.run.0.freed.notify_all();
    }
}

impl Session {
    /// Returns the run's ledger.
    pub fn run(&self) -> &Reads {
        &self.run
    }

    /// Notes that the session knows this content of a file.
    pub(crate) fn saw(&self, path: &RelPath, bytes: &[u8]) -> Hash {
        let hash = blake3::hash(bytes);
        lock(&self.seen).put(path, hash, bytes);
        hash
    }

    /// Notes that the session wrote a file whose content before it knew, or not.
    pub(crate) fn wrote(&self, path: &RelPath, before: Option<Hash>, (hash, after): (Hash, &[u8])) {
        let mut seen = lock(&self.seen);
        // A splice proves that the session knew the span, not that it knew the rest.
        if before.is_none_or(|before| seen.hashes.get(path) == Some(&before)) {
            seen.put(path, hash, after);
        }
        drop(seen);
        lock(&self.run.0.written).insert(path.clone(), hash);
    }

    /// Notes that a path is gone, with all below it.
    pub(crate) fn removed(&self, path: &RelPath) {
        let below = |other: &RelPath| other.as_path().starts_with(path.as_path());
        let mut seen = lock(&self.seen);
        let gone: Vec<_> = seen.hashes.keys().filter(|other| below(other)).cloned().collect();
        for path in gone {
            seen.hashes.remove(&path);
            seen.drop_content(&path);
        }
        drop(seen);
        lock(&self.run.0.written).retain(|other, _| !below(other));
    }

    /// Notes that a path, with all below it, has another name.
    pub(crate) fn moved(&self, from: &RelPath, to: &RelPath) {
        let renamed = |path: &RelPath| {
            let below = path.as_path().strip_prefix(from.as_path()).ok()?;
            Some(below.iter().fold(to.clone(), |path, name| path.join(name)))
        };
        let mut seen = lock(&self.seen);
        let known: Vec<_> = seen
            .hashes
            .iter()
            .filter_map(|(path, hash)| Some((path.clone(), renamed(path)?, *hash)))
            .collect();
        for (old, new, hash) in known {
            seen.hashes.remove(&old);
            let content = seen.contents.get(&old).cloned();
            seen.drop_content(&old);
            match content {
                Some(content) => seen.put(&new, hash, &content),
                None => drop(seen.hashes.insert(new, hash)),
            }
        }
        drop(seen);
        self.removed(from);
    }

    /// Notes that what the session knows of a path, and of all below it, holds of another as well.
    pub(crate) fn copied(&self, from: &RelPath, to: &RelPath) {
        let mut seen = lock(&self.seen);
        let known: Vec<_> = seen
            .hashes
            .iter()
            .filter_map(|(path, hash)| {
                let below = path.as_path().strip_prefix(from.as_path()).ok()?;
                let new = below.iter().fold(to.clone(), |path, name| path.join(name));
                Some((new, *hash, seen.contents.get(path).cloned()))
            })
            .collect();
        for (path, hash, content) in known {
            match content {
                Some(content) => seen.put(&path, hash, &content),
                None => drop(seen.hashes.insert(path, hash)),
            }
        }
    }

    /// Checks that the session has read the content that is there now.
    pub(crate) fn check(&self, written: &str, path: &RelPath, now: &[u8]) -> Result<(), Error> {
        let hash = blake3::hash(now);
        let seen = lock(&self.seen);
        match seen.hashes.get(path) {
            None => Err(Error::Unread { path: written.to_owned() }),
            Some(known) if *known == hash => Ok(()),
            Some(_) => {
                let then = seen.contents.get(path).cloned();
                drop(seen);
                let diff = match then {
                    Some(then) => edit::diff(&path.to_string(), Some(&then), Some(now)),
                    None => {
                        format!("(now {} bytes; the content read is no longer held)", now.len())
                    }
                };
                let by = match lock(&self.run.0.written).get(path) {
                    Some(ours) if *ours == hash => Writer::ThisRun,
                    Some(_) | None => Writer::Outside,
                };
                Err(Error::Stale { path: written.to_owned(), by, diff })
            }
        }
    }
}

impl Seen {
    fn put(&mut self, path: &RelPath, hash: Hash, bytes: &[u8]) {
        self.drop_content(path);
        self.hashes.insert(path.clone(), hash);
        if bytes.len() > KEPT_FILE {
            return;
        }
        while self.total + bytes.len() > KEPT_TOTAL
            && let Some(oldest) = self.oldest.front().cloned()
        {
            self.drop_content(&oldest);
        }
        self.total += bytes.len();
        self.contents.insert(path.clone(), bytes.into());
        self.oldest.push_back(path.clone());
    }

    fn drop_content(&mut self, path: &RelPath) {
        if let Some(content) = self.contents.remove(path) {
            self.total -= content.len();
            self.oldest.retain(|other| other != path);
        }
    }
}

/// A panic elsewhere leaves these maps whole, so the poison says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn content_that_was_not_read_or_changed_since_is_refused() {
        let run = Reads::new();
        let (one, two) = (run.session(), run.session());
        let file = path("f");

        assert!(matches!(one.check("f", &file, b"a\n"), Err(Error::Unread { .. })));
        one.saw(&file, b"a\n");
        assert!(one.check("f", &file, b"a\n").is_ok());
        two.saw(&file, b"a\n");
        let hash = |bytes: &[u8]| blake3::hash(bytes);
        two.wrote(&file, Some(hash(b"a\n")), (hash(b"b\n"), b"b\n"));
        assert!(two.check("f", &file, b"b\n").is_ok());
        let stale = one.check("f", &file, b"b\n").unwrap_err();
        assert!(
            matches!(&stale, Error::Stale { by: Writer::ThisRun, diff, .. } if diff.contains("-a\n+b\n")),
            "{stale}"
        );
        let outside = two.check("f", &file, b"c\n").unwrap_err();
        assert!(matches!(outside, Error::Stale { by: Writer::Outside, .. }));
    }

    #[test]
    fn kept_content_is_bounded_and_the_hash_stays() {
        let session = Reads::new().session();
        let content = vec![b'x'; KEPT_FILE];
        for index in 0..KEPT_TOTAL / KEPT_FILE + 3 {
            session.saw(&path(&format!("f{index}")), &content);
        }

        assert!(lock(&session.seen).total <= KEPT_TOTAL);
        assert!(session.check("f0", &path("f0"), &content).is_ok());
        assert!(matches!(session.check("f0", &path("f0"), b"y"), Err(Error::Stale { .. })));
    }

    #[test]
    fn a_folder_is_not_taken_while_a_file_in_it_is_written() {
        let run = Reads::new();
        let file = run.lock(&[path("a/b")]);
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _folder = run.lock(&[path("a")]);
                send.send("folder").unwrap();
            });
            drop(run.lock(&[path("ab")])); // Only the name is alike.
            assert!(receive.try_recv().is_err());
            drop(file);
            assert_eq!(receive.recv(), Ok("folder"));
        });
    }
}
