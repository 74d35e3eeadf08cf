//! Until when somebody lived who worked: a file for each run, touched while a piece of work of it goes on.
//!
//! Who is killed tells nobody when. What changed in the workspace after that is not the run's, and a lease, which is held
//! for half a minute without a word and is given to whoever looks, tells it neither closely nor for long.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use formwork_protocols::RunId;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use tokio::task::JoinSet;

/// How often the file is touched.
const EVERY: Duration = Duration::from_secs(1);

/// How long after the last touch something may still have been written: until the next one, and until the launcher has
/// ended what its dead owner had started.
const AFTER: Duration = Duration::from_secs(3);

/// The marks of those who work, or did, within a folder of state.
#[derive(Debug, Clone)]
pub(crate) struct Alive {
    folder: Arc<Path>,
    /// How many pieces of work of this process have come to no end.
    open: Arc<AtomicUsize>,
}

/// A piece of work that goes on. Where it is dropped without an end, its mark stays as it was touched last.
#[derive(Debug)]
pub(crate) struct Working {
    open: Arc<AtomicUsize>,
    _touching: JoinSet<()>, // Dropping it stops it.
}

impl Alive {
    /// Looks at the marks below a folder of state.
    pub(crate) fn new(state: &Path) -> Self {
        Self { folder: state.join("working").into(), open: Arc::default() }
    }

    /// Marks a piece of work of a run as going on. Where that cannot be written, less is taken for the run's after a kill.
    pub(crate) fn begin(&self, run: RunId) -> Working {
        let place = self.place(run);
        let _ = crate::private::folder(&self.folder);
        touch(&place);
        self.open.fetch_add(1, Ordering::SeqCst);
        let mut touching = JoinSet::new();
        touching.spawn(async move {
            loop {
                tokio::time::sleep(EVERY).await;
                touch(&place);
            }
        });
        Working { open: Arc::clone(&self.open), _touching: touching }
    }

    /// Returns until when a run may have written what its work left open, in nanoseconds since 1970; nothing where nobody
    /// has left a mark.
    pub(crate) fn until(&self, run: RunId) -> Option<i128> {
        let touched = self.place(run).metadata().and_then(|found| found.modified()).ok()?;
        let since = touched.duration_since(UNIX_EPOCH).ok()?;
        i128::try_from((since + AFTER).as_nanos()).ok()
    }

    /// Removes the mark of a run whose work has come to an end.
    pub(crate) fn forget(&self, run: RunId) {
        if self.open.load(Ordering::SeqCst) == 0 {
            let _ = std::fs::remove_file(self.place(run));
        }
    }

    fn place(&self, run: RunId) -> PathBuf {
        self.folder.join(run.to_string())
    }
}

impl Working {
    /// Ends it: what it has changed is told.
    pub(crate) fn end(self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the same bound for work of which only is known when it began.
pub(crate) fn shortly_after(at: formwork_protocols::Timestamp) -> i128 {
    i128::from(at.as_micros()) * 1_000 + i128::try_from(AFTER.as_nanos()).unwrap_or(i128::MAX)
}

fn touch(place: &Path) {
    let file = File::options().create(true).append(true).open(place);
    let at = |nsec| Timespec { tv_sec: 0, tv_nsec: nsec };
    let times = Timestamps { last_access: at(UTIME_OMIT), last_modification: at(UTIME_NOW) };
    let _ = file.map(|file| futimens(file, &times));
}

#[cfg(test)]
mod tests {
    use formwork_protocols::{Clock as _, SeededRng, SystemClock};

    use super::*;

    #[tokio::test]
    async fn a_mark_goes_with_the_last_piece_of_work_and_stays_where_one_came_to_no_end() {
        let state = tempfile::tempdir().unwrap();
        let alive = Alive::new(state.path());
        let run = RunId::generate(&SystemClock, &SeededRng::new(1));
        let before = i128::from(SystemClock.now().as_micros()) * 1_000;

        let (one, other) = (alive.begin(run), alive.begin(run));
        one.end();
        alive.forget(run);
        let under_way = alive.until(run);
        other.end();
        alive.forget(run);
        let ended = alive.until(run);
        drop(alive.begin(run));
        alive.forget(run);
        let dropped = alive.until(run);

        assert!(under_way.is_some_and(|at| at > before), "{under_way:?}");
        assert_eq!(ended, None);
        assert!(dropped.is_some());
    }
}
