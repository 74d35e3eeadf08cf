//! Looks into many files at once and keeps what is found in the order of their paths, so that one question has one answer.
//!
//! One thread walks, in order, and looks into files too once it is through; the others look into what it has found so far.
//! All stop once the files up to some place hold as much as is wanted: who wants one line does not wait for the whole tree.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// How many look into files at once at most: more do not make a disk faster.
const MOST: usize = 8;

/// How many files the walk hands over together, since each hand-over wakes somebody.
const BATCH: usize = 32;

/// How many files one looks into before it tells of them and takes more: a file takes some microseconds, and whoever has to
/// wait for a lock loses as many.
const TAKEN: usize = 8;

/// What was found in one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InFile {
    pub(super) text: String,
    pub(super) lines: usize,
    /// Whether it could not be read to its end.
    pub(super) unread: bool,
}

/// What was found in all.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// What was found, in the order of the files.
    pub(super) files: Vec<InFile>,
    /// How many files were looked into or would have been.
    pub(super) searched: usize,
}

/// Looks into `files`, which come in order, by `look` until they hold `wanted` lines or `is_over`.
pub(super) fn search<L: FnMut(&Path) -> InFile>(
    files: impl Iterator<Item = PathBuf>,
    looks: impl Fn() -> L + Sync,
    (wanted, is_over): (usize, &(dyn Fn() -> bool + Sync)),
) -> Found {
    let shared = Shared {
        queue: Mutex::new(Queue { files: Vec::new(), next: 0, is_whole: false }),
        more: Condvar::new(),
        progress: Mutex::new(Progress::default()),
        is_enough: AtomicBool::new(false),
        wanted,
    };
    let others = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, MOST) - 1;
    std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| shared.work(&mut looks(), is_over));
        }
        let mut batch = Vec::with_capacity(BATCH);
        for file in files {
            if shared.is_enough.load(Ordering::Relaxed) || is_over() {
                break;
            }
            batch.push(file);
            if batch.len() == BATCH {
                shared.hand_over(&mut batch);
            }
        }
        shared.hand_over(&mut batch);
        lock(&shared.queue).is_whole = true;
        shared.more.notify_all();
        shared.work(&mut looks(), is_over);
    });
    let searched = lock(&shared.queue).files.len();
    let found = std::mem::take(&mut lock(&shared.progress).found);
    Found { files: found.into_values().collect(), searched }
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    progress: Mutex<Progress>,
    is_enough: AtomicBool,
    wanted: usize,
}

/// The files that the walk has met, and the next that nobody looks into yet.
struct Queue {
    files: Vec<PathBuf>,
    next: usize,
    is_whole: bool,
}

/// What has been looked into.
#[derive(Default)]
struct Progress {
    /// All files before this one have been.
    before: usize,
    /// How many lines those hold.
    lines: usize,
    /// Files behind it that have been too, with how many lines they hold.
    beyond: BTreeMap<usize, usize>,
    found: BTreeMap<usize, InFile>,
}

impl Shared {
    fn hand_over(&self, batch: &mut Vec<PathBuf>) {
        lock(&self.queue).files.append(batch);
        self.more.notify_one();
    }

    /// Looks into files until there are no more.
    fn work(&self, look: &mut impl FnMut(&Path) -> InFile, is_over: &dyn Fn() -> bool) {
        let (mut files, mut looked) = (Vec::with_capacity(TAKEN), Vec::with_capacity(TAKEN));
        while let Some(first) = self.take(&mut files) {
            for file in files.drain(..) {
                if self.is_enough.load(Ordering::Relaxed) || is_over() {
                    return;
                }
                looked.push(look(&file));
            }
            self.done(first, &mut looked);
        }
    }

    /// Takes the next files, and returns the place of the first of them.
    fn take(&self, files: &mut Vec<PathBuf>) -> Option<usize> {
        let mut queue = lock(&self.queue);
        loop {
            let first = queue.next;
            let left = queue.files.len() - first;
            if left > 0 {
                // Where few are left, the others get some too.
                let end = first + (left / 4).clamp(1, TAKEN);
                files.extend(queue.files[first..end].iter_mut().map(std::mem::take));
                queue.next = end;
                return Some(first);
            }
            if queue.is_whole || self.is_enough.load(Ordering::Relaxed) {
                return None;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, first: usize, looked: &mut Vec<InFile>) {
        let mut progress = lock(&self.progress);
        for (index, in_file) in (first..).zip(looked.drain(..)) {
            progress.beyond.insert(index, in_file.lines);
            if in_file != InFile::default() {
                progress.found.insert(index, in_file);
            }
        }
        let mut before = progress.before;
        while let Some(lines) = progress.beyond.remove(&before) {
            progress.lines += lines;
            before += 1;
        }
        progress.before = before;
        if progress.lines >= self.wanted {
            self.is_enough.store(true, Ordering::Relaxed);
            drop(progress);
            // Whoever waits for more files need not.
            self.more.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(count: usize) -> Vec<PathBuf> {
        (0..count).map(|number| PathBuf::from(format!("{number:04}"))).collect()
    }

    /// Finds a line in each file whose number is a multiple of three.
    fn third(file: &Path) -> InFile {
        let text = file.display().to_string();
        match text.parse::<usize>() {
            Ok(number) if number.is_multiple_of(3) => InFile { text, lines: 1, unread: false },
            _ => InFile::default(),
        }
    }

    #[test]
    fn what_is_found_comes_in_the_order_of_the_files_however_many_look() {
        for _ in 0..50 {
            let found = search(named(301).into_iter(), || third, (usize::MAX, &|| false));

            let texts: Vec<_> = found.files.iter().map(|it| it.text.as_str()).collect();
            let wanted: Vec<_> = (0..301).step_by(3).map(|it| format!("{it:04}")).collect();
            assert_eq!((found.searched, texts), (301, wanted.iter().map(String::as_str).collect()));
        }
    }

    #[test]
    fn enough_is_the_first_of_them_and_ends_the_walk() {
        let files = named(3_000_000);
        let found = search(files.into_iter(), || third, (4, &|| false));

        let first: Vec<_> = found.files.iter().take(4).map(|it| it.text.as_str()).collect();
        assert_eq!(first, ["0000", "0003", "0006", "0009"]);
        assert!(found.searched < 3_000_000, "{}", found.searched);
    }

    #[test]
    fn nothing_is_looked_into_once_it_is_over() {
        let found = search(named(99).into_iter(), || third, (1, &|| true));

        assert_eq!(found.files, []);
    }
}
