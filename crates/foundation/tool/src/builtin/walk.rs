//! Looks at what is below a folder as git sees it, many at once and as if it were one after the other in the order of their
//! paths: one question has one answer.
//!
//! What is left to do is kept in order. Whoever is free takes the first of it: a folder, in the place of which comes what it
//! holds, or some files, which are looked at. Once those up to some place hold as much as is wanted, what lies beyond is
//! given up, so that who wants one line does not wait for the whole tree.

mod rules; // What git leaves out.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    ops::Range,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use formwork_write_safety::{Folder, Kind, Names, Root};

use rules::Rules;

/// How many look at once at most: more do not make a disk faster.
const MOST: usize = 8;

/// How many files one takes together, since each time others may wait for a lock.
const TOGETHER: usize = 16;

/// What is looked at, and for how much.
pub(super) struct Walk<'a> {
    pub(super) root: &'a Root,
    /// The folder or file that it begins at, as the system names it.
    pub(super) from: &'a Path,
    /// Which of what is no folder is looked at.
    pub(super) chosen: &'a (dyn Fn(&Path, Kind) -> bool + Sync),
    /// How much is wanted. What lies beyond it in order is not looked at.
    pub(super) wanted: usize,
    pub(super) beyond: Beyond,
    pub(super) is_over: &'a (dyn Fn() -> bool + Sync),
}

/// What becomes of files that lie beyond all that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// They are not even met.
    GivenUp,
    /// They are counted among those that were met.
    Counted,
}

/// A file that a walk has met.
pub(super) struct Met<'a> {
    pub(super) folder: &'a Folder,
    pub(super) name: &'a OsStr,
    /// The path of the folder.
    path: &'a Path,
}

impl Met<'_> {
    pub(super) fn path(&self) -> PathBuf {
        self.path.join(self.name)
    }
}

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Find<T> {
    pub(super) what: T,
    /// How much it is of what is wanted.
    pub(super) counts: usize,
}

/// What was found in all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<T> {
    /// In the order of the files.
    pub(super) all: Vec<T>,
    /// How many files were chosen.
    pub(super) met: usize,
}

/// Where something stands in the order of all: its place among the names of its folder, behind that of the folder.
type Place = Vec<u32>;

/// A folder that was listed.
struct Listed {
    folder: Folder,
    path: PathBuf,
    names: Names,
    rules: Rules,
    place: Place,
}

/// What is left to do.
enum Task {
    /// The folder with this number in another.
    Enter(Arc<Listed>, usize),
    /// The files with these numbers.
    Look(Arc<Listed>, Range<usize>),
}

impl Task {
    fn place(&self) -> impl Iterator<Item = u32> {
        let (listed, index) = match self {
            Self::Enter(listed, index) => (listed, *index),
            Self::Look(listed, range) => (listed, range.start),
        };
        listed.place.iter().copied().chain([number(index)])
    }
}

impl Walk<'_> {
    /// Looks at files by what `looks` makes for each thread.
    pub(super) fn look<T: Send, L: FnMut(&Met<'_>) -> Option<Find<T>>>(
        &self,
        looks: impl Fn() -> L + Sync,
    ) -> Found<T> {
        let shared = Shared {
            walk: self,
            left: Mutex::new(Left { tasks: Vec::new(), working: 0, waiting: 0 }),
            more: Condvar::new(),
            met: AtomicUsize::new(0),
            kept: Mutex::new(Kept { finds: BTreeMap::new(), count: 0 }),
            is_enough: AtomicBool::new(false),
        };
        let parts = shared.begin();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(2, MOST);
        std::thread::scope(|scope| {
            for _ in 1..threads.min(parts) {
                scope.spawn(|| shared.work(&mut looks()));
            }
            shared.work(&mut looks());
        });
        let finds = std::mem::take(&mut lock(&shared.kept).finds);
        let all = finds.into_values().map(|find| find.what).collect();
        Found { all, met: shared.met.load(Ordering::Relaxed) }
    }

    /// Lists a folder as far as it is looked at.
    fn listed(
        &self,
        (folder, mut names): (Folder, Names),
        path: PathBuf,
        rules: Rules,
        place: Place,
    ) -> Listed {
        let mut whole = path.as_os_str().as_bytes().to_vec();
        if whole.last() != Some(&b'/') {
            whole.push(b'/');
        }
        let base = whole.len();
        names.retain(|name, kind| {
            whole.truncate(base);
            whole.extend_from_slice(name.as_bytes());
            let path = Path::new(OsStr::from_bytes(&whole));
            let is_folder = kind == Kind::Folder;
            name != ".git"
                && !rules.leave_out(path, is_folder)
                && (is_folder || (self.chosen)(path, kind))
        });
        Listed { folder, path, names, rules, place }
    }
}

struct Shared<'a, T> {
    walk: &'a Walk<'a>,
    left: Mutex<Left>,
    more: Condvar,
    met: AtomicUsize,
    kept: Mutex<Kept<T>>,
    is_enough: AtomicBool,
}

struct Left {
    /// What comes first is last here.
    tasks: Vec<Task>,
    /// How many do something that may leave more to do.
    working: usize,
    waiting: usize,
}

/// What was found so far, up to the place where it is enough.
struct Kept<T> {
    finds: BTreeMap<Place, Find<T>>,
    count: usize,
}

/// Ends what somebody does, also where it panics: the others would wait for it.
struct Working<'a, T>(&'a Shared<'a, T>);

impl<T> Drop for Working<'_, T> {
    fn drop(&mut self) {
        let mut left = lock(&self.0.left);
        left.working -= 1;
        if left.working == 0 && left.waiting > 0 {
            self.0.more.notify_all();
        }
    }
}

impl<T> Shared<'_, T> {
    /// Opens what the walk begins at, and says how many could share in it.
    fn begin(&self) -> usize {
        let Walk { root, from, chosen, .. } = self.walk;
        if let Ok(opened) = root.folder(from) {
            let rules = Rules::above(from).at_the_start(from, &opened.1);
            let listed = self.walk.listed(opened, from.to_path_buf(), rules, Place::new());
            return self.add(listed);
        }
        // One file is looked at whatever is ignored.
        let (Some(above), Some(name)) = (from.parent(), from.file_name()) else { return 0 };
        let Ok((folder, mut names)) = root.folder(above) else { return 0 };
        names.retain(|found, kind| found == name && kind != Kind::Folder && chosen(from, kind));
        let (path, rules, place) = (above.to_path_buf(), Rules::default(), Place::new());
        self.add(Listed { folder, path, names, rules, place })
    }

    /// Works until nothing is left to do.
    fn work(&self, look: &mut impl FnMut(&Met<'_>) -> Option<Find<T>>) {
        while let Some((task, _working)) = self.take() {
            if (self.walk.is_over)() {
                lock(&self.left).tasks.clear();
                continue;
            }
            if self.walk.beyond == Beyond::GivenUp && self.is_beyond(|| task.place()) {
                // And so is what lies further on; what lies before it may have come since it was taken.
                let mut left = lock(&self.left);
                let further = left.tasks.partition_point(|it| it.place().gt(task.place()));
                left.tasks.drain(..further);
                continue;
            }
            match task {
                Task::Enter(listed, index) => self.enter(&listed, index),
                Task::Look(listed, range) => self.look(&listed, range, look),
            }
        }
    }

    /// Takes what comes first; none once nothing is left and nobody does what may leave more.
    fn take(&self) -> Option<(Task, Working<'_, T>)> {
        let mut left = lock(&self.left);
        loop {
            if let Some(task) = left.tasks.pop() {
                left.working += 1;
                return Some((task, Working(self)));
            }
            if left.working == 0 {
                return None;
            }
            left.waiting += 1;
            left = self.more.wait(left).unwrap_or_else(PoisonError::into_inner);
            left.waiting -= 1;
        }
    }

    fn enter(&self, above: &Listed, index: usize) {
        let Some((name, _)) = above.names.get(index) else { return };
        // What cannot be opened or listed is passed over.
        let Ok(opened) = above.folder.enter(name) else { return };
        let path = above.path.join(name);
        let Some(rules) = above.rules.within(&path, &opened.1) else { return };
        let place = above.place.iter().copied().chain([number(index)]).collect();
        self.add(self.walk.listed(opened, path, rules, place));
    }

    /// Puts what a folder holds in its place, and says how many could share in it.
    fn add(&self, listed: Listed) -> usize {
        let listed = Arc::new(listed);
        let (mut tasks, mut first, mut files) = (Vec::new(), 0, 0);
        for (index, (_, kind)) in listed.names.iter().enumerate() {
            if kind == Kind::Folder {
                if first < index {
                    tasks.push(Task::Look(Arc::clone(&listed), first..index));
                }
                tasks.push(Task::Enter(Arc::clone(&listed), index));
                first = index + 1;
                continue;
            }
            files += 1;
            if index + 1 - first == TOGETHER {
                tasks.push(Task::Look(Arc::clone(&listed), first..index + 1));
                first = index + 1;
            }
        }
        if first < listed.names.len() {
            tasks.push(Task::Look(Arc::clone(&listed), first..listed.names.len()));
        }
        self.met.fetch_add(files, Ordering::Relaxed);
        let count = tasks.len();
        let Some(start) = tasks.first() else { return 0 };
        let mut left = lock(&self.left);
        // Nothing that is left lies between them, since they all come from one folder.
        let at = left.tasks.partition_point(|task| task.place().gt(start.place()));
        left.tasks.splice(at..at, tasks.into_iter().rev());
        match (left.waiting, count) {
            (0, _) => {}
            (_, 1) => self.more.notify_one(),
            _ => self.more.notify_all(),
        }
        // How much a folder holds nobody knows yet.
        if files < listed.names.len() { usize::MAX } else { count }
    }

    fn look(
        &self,
        listed: &Listed,
        range: Range<usize>,
        look: &mut impl FnMut(&Met<'_>) -> Option<Find<T>>,
    ) {
        for index in range {
            let place = || listed.place.iter().copied().chain([number(index)]);
            if (self.walk.is_over)() || self.is_beyond(place) {
                return;
            }
            let Some((name, _)) = listed.names.get(index) else { return };
            if let Some(find) = look(&Met { folder: &listed.folder, name, path: &listed.path }) {
                self.keep(place().collect(), find);
            }
        }
    }

    /// Says whether enough was found before a place.
    fn is_beyond<P: Iterator<Item = u32>>(&self, place: impl FnOnce() -> P) -> bool {
        self.is_enough.load(Ordering::Relaxed)
            && lock(&self.kept)
                .finds
                .last_key_value()
                .is_some_and(|(last, _)| place().gt(last.iter().copied()))
    }

    /// Keeps what was found, and gives up what lies beyond enough.
    fn keep(&self, place: Place, find: Find<T>) {
        let mut kept = lock(&self.kept);
        let Kept { finds, count } = &mut *kept;
        *count += find.counts;
        finds.insert(place, find);
        while let Some(last) = finds.last_entry() {
            let without = *count - last.get().counts;
            if without < self.walk.wanted {
                break;
            }
            last.remove();
            *count = without;
        }
        if *count >= self.walk.wanted {
            self.is_enough.store(true, Ordering::Relaxed);
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
