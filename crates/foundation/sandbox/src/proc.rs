//! Processes as `/proc` shows them.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::PathBuf,
};

use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};

/// Returns the children of `parent` that are there now, in no order.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let tasks = PathBuf::from(format!("/proc/{parent}/task"));
    let Ok(entries) = fs::read_dir(&tasks) else { return Vec::new() };
    let mut found = Vec::new();
    for task in entries.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => found.extend(list.split_ascii_whitespace().filter_map(parse)),
            // Kernels built without `CONFIG_PROC_CHILDREN` have no such file.
            Err(_) if task.path().exists() => return children_by_scan(parent),
            Err(_) => {}
        }
    }
    found
}

/// Returns all that live below `root`, parents before their children.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    at_most(usize::MAX, root)
}

/// Returns what lives below `root`, parents before their children, and no more than `most` of it,
/// so that a tree that grows without bound is not walked without bound.
pub(crate) fn at_most(most: usize, root: Pid) -> Vec<Pid> {
    with_descendants(most, children(root))
}

/// Returns `found` with what lives below it, in the same way.
fn with_descendants(most: usize, mut found: Vec<Pid>) -> Vec<Pid> {
    let mut next = 0;
    while let Some(&parent) = found.get(next).filter(|_| found.len() < most) {
        found.extend(children(parent));
        next += 1;
    }
    found.truncate(most);
    found
}

/// Returns the bytes that `processes` hold together: what belongs to each alone, swapped out or not, and the most that
/// any of them shares with others, or all that they have open as files in memory, whichever is more: what is in such a
/// file may be mapped as well, or not.
pub(crate) fn memory(processes: &[Pid]) -> u64 {
    let (mut own, mut shared) = (0_u64, 0_u64);
    let mut files = BTreeMap::new();
    for process in processes {
        files.extend(files_in_memory(*process));
        let Ok(text) = fs::read_to_string(format!("/proc/{process}/status")) else { continue };
        for line in text.lines() {
            let Some((name, rest)) = line.split_once(':') else { continue };
            let kib = || rest.split_ascii_whitespace().next().and_then(|it| it.parse().ok());
            match name {
                "RssAnon" | "VmSwap" => own = own.saturating_add(kib().unwrap_or(0)),
                "RssShmem" => shared = shared.max(kib().unwrap_or(0)),
                _ => {}
            }
        }
    }
    let files: u64 = files.into_values().sum();
    own.saturating_mul(1024).saturating_add(shared.saturating_mul(1024).max(files))
}

/// Returns the files without a name that a process has open in memory, each with the bytes that it takes.
fn files_in_memory(process: Pid) -> Vec<((u64, u64), u64)> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let is_in_memory = |entry: &fs::DirEntry| {
        let target = fs::read_link(entry.path());
        target.is_ok_and(|target| target.as_os_str().as_bytes().starts_with(b"/memfd:"))
    };
    let found = entries.filter(is_in_memory).filter_map(|entry| {
        let file = fs::metadata(entry.path()).ok()?;
        Some(((file.dev(), file.ino()), file.blocks().saturating_mul(512)))
    });
    found.collect()
}

/// Returns how many threads there are on the whole machine, whoever they belong to.
pub(crate) fn threads() -> u64 {
    // As in `0.20 0.18 0.12 1/80 11206`: the fourth field is what runs and what there is.
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let fields = text.split_ascii_whitespace().nth(3).and_then(|field| field.split_once('/'));
    fields.and_then(|(_, all)| all.parse().ok()).unwrap_or_default()
}

/// Says whether `process` has ended and only waits for its parent to notice.
pub(crate) fn is_zombie(process: Pid) -> bool {
    stat(process).is_none_or(|it| matches!(it.state, 'Z' | 'X'))
}

/// Returns every process, but this one, whose variables at its start hold `variable`.
pub(crate) fn marked(variable: &[u8]) -> Vec<Pid> {
    let me = rustix::process::getpid();
    all()
        .filter(|process| *process != me)
        .filter(|process| {
            fs::read(format!("/proc/{process}/environ"))
                .is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == variable))
        })
        .collect()
}

/// A tree of so many may fork faster than it is walked.
const MANY: usize = 64;

/// Kills all that live below `roots`. Returns how many were still alive, or of a large tree how many of its first.
///
/// One pass may miss what was forked or orphaned meanwhile: repeat until nobody is left.
pub(crate) fn kill_below(roots: Vec<Pid>) -> u32 {
    let first = with_descendants(MANY, roots.clone());
    if first.len() >= MANY {
        // A group ends by one call, which nothing in it can outrun by forking: the kernel starts no process for one
        // that is to end. Most trees that are large are one group, or some, and what is left is walked the next time.
        let alive = first.iter().filter(|process| !is_zombie(**process)).count();
        kill_groups(&first);
        return u32::try_from(alive).unwrap_or(u32::MAX);
    }
    let mut found = Vec::new();
    let mut open = roots;
    while let Some(process) = open.pop() {
        // Stopped, it cannot fork. What has ended meanwhile cannot be signalled, and need not be.
        let _ = kill_process(process, Signal::STOP);
        open.extend(children(process));
        found.push(process);
    }
    let mut killed = 0;
    for process in found.into_iter().filter(|process| !is_zombie(*process)) {
        killed += u32::from(kill_process(process, Signal::KILL).is_ok());
    }
    killed
}

/// Kills `processes` with the whole groups that they are in, but for the group of this process.
///
/// A group is made by one of its own session and joined by nobody else, so all in it descend from whom its members
/// descend from.
fn kill_groups(processes: &[Pid]) {
    let own = getpgrp();
    let groups = processes.iter().filter_map(|process| stat(*process)?.group);
    for group in groups.filter(|group| *group != own).collect::<HashSet<_>>() {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for process in processes {
        let _ = kill_process(*process, Signal::KILL);
    }
}

fn children_by_scan(parent: Pid) -> Vec<Pid> {
    all().filter(|process| stat(*process).is_some_and(|it| Some(parent) == it.parent)).collect()
}

fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| std::str::from_utf8(entry.file_name().as_bytes()).ok().and_then(parse))
}

/// What proc(5) says of a process.
struct Stat {
    state: char,
    parent: Option<Pid>,
    group: Option<Pid>,
}

fn stat(process: Pid) -> Option<Stat> {
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name before the fields is in parentheses and may itself hold any byte.
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(text.get(end + 1..)?).ok()?.split_ascii_whitespace();
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: fields.next().and_then(parse),
        group: fields.next().and_then(parse),
    })
}

fn parse(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_counts_once_however_often_it_is_open() {
        use std::io::Write as _;
        const BYTES: u64 = 64 << 20;
        let me = rustix::process::getpid();
        let before = files_in_memory(me).len();

        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = fs::File::from(rustix::fs::memfd_create("x", flags).unwrap());
        for _ in 0..BYTES >> 20 {
            file.write_all(&[1; 1 << 20]).unwrap();
        }
        let _again = file.try_clone().unwrap();

        let counted = memory(&[me, me]);
        assert_eq!(files_in_memory(me).len() - before, 2);
        assert!((BYTES..BYTES * 3 / 2).contains(&counted), "{counted}");
    }
}
