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
};

use rustix::process::Pid;

/// Forks that come between two counts still go through, so that the count sees them.
const SLACK: u32 = 64;

/// How often a tree is looked at anew for what was forked while it was moved.
const PASSES: usize = 8;

/// A control group that a tree is in, which is removed when this is dropped, after the tree.
pub(super) struct Cgroup {
    own: PathBuf,
}

impl Cgroup {
    /// Puts what `tree` returns into a new control group for `processes` and some more, if there can be one.
    pub(super) fn hold(processes: u32, tree: impl Fn() -> Vec<Pid>) -> Option<Self> {
        let own = parent()?.join(format!("formwork-{}", std::process::id()));
        // One of a launcher that was killed is empty by now.
        match fs::create_dir(&own) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_dir(&own).and_then(|()| fs::create_dir(&own)).ok()?;
            }
            made => made.ok()?,
        }
        let group = Self { own };
        let most = processes.saturating_mul(2).saturating_add(SLACK);
        // Dropping the group removes it again.
        fs::write(group.own.join("pids.max"), most.to_string()).ok()?;
        let mut moved = HashSet::new();
        for _ in 0..PASSES {
            let new: Vec<Pid> = tree().into_iter().filter(|it| moved.insert(*it)).collect();
            if new.is_empty() {
                break; // What is forked from here on is born in the group.
            }
            for process in new {
                match enter(&group.own, process) {
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
                    // What has ended meanwhile need not be moved.
                    _ => {}
                }
            }
        }
        Some(group)
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
