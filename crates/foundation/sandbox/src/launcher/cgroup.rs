//! A control group that bounds how many processes a tree can have at all.
//!
//! Counting sees a tree that is over its limit; where forks come faster than counts, only the kernel can refuse them.
//! It does so per user by a resource limit, which does not bind root, and per control group, which this process may
//! make only as root or where one was delegated to it. To be moved into a group takes some ten milliseconds once,
//! more than most commands run for: so a tree is put into one that has grown or grown old.

use std::{
    collections::HashSet,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::Pid;

/// Forks that come between two counts still go through, so that the count sees them.
const SLACK: u32 = 64;

/// How long processes are moved at a time. A tree that grows meanwhile is to be counted between.
const TURN: Duration = Duration::from_millis(20);

/// A control group that a tree is in, which is removed when this is dropped, after the tree.
pub(super) struct Cgroup {
    own: PathBuf,
    /// What is in it, unless it was born there.
    moved: HashSet<Pid>,
    /// Whether all that there was is in it, so that whatever comes is born there.
    is_whole: bool,
}

impl Cgroup {
    /// Makes a control group for `processes` and some more, if there can be one.
    pub(super) fn make(processes: u32) -> Option<Self> {
        let own = parent()?.join(format!("formwork-{}", std::process::id()));
        // One of a launcher that was killed is empty by now.
        match fs::create_dir(&own) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_dir(&own).and_then(|()| fs::create_dir(&own)).ok()?;
            }
            made => made.ok()?,
        }
        // Dropping the group removes it again.
        let group = Self { own, moved: HashSet::new(), is_whole: false };
        let most = processes.saturating_mul(2).saturating_add(SLACK);
        fs::write(group.own.join("pids.max"), most.to_string()).ok()?;
        Some(group)
    }

    /// Moves some of `tree` into the group.
    ///
    /// # Errors
    /// None of it can be moved here.
    pub(super) fn take(&mut self, tree: &[Pid]) -> io::Result<()> {
        let begun = Instant::now();
        let mut new = tree.iter().filter(|it| !self.moved.contains(it)).peekable();
        self.is_whole |= new.peek().is_none();
        if self.is_whole {
            return Ok(());
        }
        let mut moved = Vec::new();
        for process in new {
            match enter(&self.own, *process) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
                // What has ended meanwhile need not be moved.
                _ => moved.push(*process),
            }
            if begun.elapsed() > TURN {
                break;
            }
        }
        self.moved.extend(moved);
        Ok(())
    }

    /// Says whether some of the tree may still be outside.
    pub(super) fn is_filling(&self) -> bool {
        !self.is_whole
    }

    /// Says whether the kernel refused a fork because the group was full.
    pub(super) fn was_full(&self) -> bool {
        let events = fs::read_to_string(self.own.join("pids.events")).unwrap_or_default();
        events.lines().any(|line| line.strip_prefix("max ").is_some_and(|count| count != "0"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What cannot be removed is an empty folder in the kernel's memory.
        let _ = fs::remove_dir(&self.own);
    }
}

fn enter(group: &Path, process: Pid) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), process.to_string())
}

/// Says where a control group could be made, or why none can be.
pub(crate) fn probe() -> Result<String, String> {
    let parent = parent().ok_or("no group of this process counts processes")?;
    let own = parent.join(format!("formwork-probe-{}", std::process::id()));
    let failed = |error: io::Error| format!("{}: {error}", own.display());
    fs::create_dir(&own).map_err(failed)?;
    let bounded = fs::write(own.join("pids.max"), "1");
    fs::remove_dir(&own).and(bounded).map_err(failed)?;
    Ok(parent.display().to_string())
}

/// Returns the folder of the control group that this process is in and that counts processes.
fn parent() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let groups = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let at = |mount: &str, group: &str| PathBuf::from(format!("{mount}{group}"));
    groups
        .filter_map(|(controllers, group)| match controllers {
            // Version 1: a tree for each controller.
            "pids" => Some(at("/sys/fs/cgroup/pids", group)),
            // Version 2: one tree, in which the controller must have been handed down.
            "" => {
                let folder = at("/sys/fs/cgroup", group);
                let handed = fs::read_to_string(folder.join("cgroup.subtree_control")).ok()?;
                handed.split_ascii_whitespace().any(|it| it == "pids").then_some(folder)
            }
            _ => None,
        })
        .find(|folder| folder.join("cgroup.procs").exists())
}
