//! A control group that bounds how many processes a tree can have at all.
//!
//! Counting sees a tree that is over its limit; where forks come faster than counts, only the kernel
//! can refuse them. It does so per user by a resource limit, which does not bind root, and per
//! control group, which this process may make only as root or where one was delegated to it.

use std::{fs, io, path::PathBuf};

/// Forks that come between two counts still go through, so that the count sees them.
const SLACK: u32 = 64;

/// A control group that this process is in, which is left and removed when this is dropped.
pub(super) struct Cgroup {
    parent: PathBuf,
    own: PathBuf,
}

impl Cgroup {
    /// Enters a new control group for `processes` and some more, if there can be one.
    pub(super) fn enter(processes: u32) -> Option<Self> {
        let parent = parent()?;
        let own = parent.join(format!("formwork-{}", std::process::id()));
        fs::create_dir(&own).ok()?;
        let group = Self { parent, own };
        let most = processes.saturating_mul(2).saturating_add(SLACK);
        // Dropping the group removes it again.
        fs::write(group.own.join("pids.max"), most.to_string()).ok()?;
        enter(&group.own).ok()?;
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
        let _ = enter(&self.parent).and_then(|()| fs::remove_dir(&self.own));
    }
}

fn enter(group: &std::path::Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
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
