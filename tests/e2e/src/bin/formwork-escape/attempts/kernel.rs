//! System calls, other processes, and too much of everything.

use std::{fs, time::Duration};

use anyhow::Result;

use super::{attempt, by, escapee, exec, owned};
use crate::trial::{Attempt, Scene};

/// How long a process that was killed may take to be gone.
const GONE: Duration = Duration::from_secs(5);

pub(super) fn all() -> Vec<Attempt> {
    let mut all = sockets();
    all.extend(processes());
    all.extend(calls());
    all.extend([environment(), fork_bomb(), memory_bomb(), grandchild()]);
    all
}

fn sockets() -> Vec<Attempt> {
    vec![
        exec("DNS", by::FILTER, |it| Ok(owned(&["name", &it.names()?]))),
        exec("a Unix socket", by::FILTER, |it| Ok(owned(&["unix", &it.outside("socket")]))),
        exec("an abstract Unix socket", by::FILTER, |it| {
            Ok(owned(&["abstract", it.abstract_name()]))
        }),
        exec("open files of the parent", "closed on exec", |_| Ok(owned(&["descriptors"]))),
    ]
}

fn processes() -> Vec<Attempt> {
    vec![
        exec("ptrace", by::FILTER, |it| Ok(owned(&["trace", &it.victim().to_string()]))),
        Attempt {
            needs: "signals active",
            ..exec("a signal to another process", by::SCOPE, |it| {
                Ok(owned(&["kill", &it.victim().to_string()]))
            })
        },
        exec("the memory of another process", by::KERNEL, |it| {
            Ok(owned(&["memory-of", &it.victim().to_string()]))
        }),
    ]
}

fn calls() -> Vec<Attempt> {
    let mut names = vec![
        "io_uring",
        "process_vm_readv",
        "mount",
        "unshare",
        "clone into a namespace",
        "clone3",
        "setns",
        "chroot",
        "keyctl",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "open_by_handle_at",
        "raw socket",
        "packet socket",
        "netlink socket",
        "typing",
    ];
    if cfg!(target_arch = "x86_64") {
        names.push("io_uring by its x32 number");
    }
    names
        .into_iter()
        .map(|name| exec(name, by::FILTER, move |_| Ok(owned(&["call", name]))))
        .collect()
}

fn environment() -> Attempt {
    attempt("variables with keys in them", "exec", by::ALLOW_LIST, |_| {
        let scene = Scene::new(vec![vec![escapee(&owned(&["environment"]))]], &["refused: "]);
        Ok(scene.looking(|_, record| {
            let named = ["ESCAPE_KEY=", "ESCAPE_TOKEN=", "sk-escape"];
            Ok(named
                .into_iter()
                .find_map(|name| record.tells(name).map(|place| format!("{name} is in {place}"))))
        }))
    })
}

fn fork_bomb() -> Attempt {
    attempt("fork bomb", "exec", by::LIMITS, |_| {
        let signs = ["over its limit of processes"];
        let mut scene = Scene::new(vec![vec![escapee(&owned(&["fork-bomb"]))]], &signs);
        scene.config += "[programs]\nmax_processes = 64\n";
        Ok(scene)
    })
}

fn memory_bomb() -> Attempt {
    attempt("memory bomb", "exec", by::LIMITS, |_| {
        let signs = ["over its limit of memory"];
        let mut scene = Scene::new(vec![vec![escapee(&owned(&["memory-bomb"]))]], &signs);
        scene.config += "[programs]\nmax_memory_mib = 256\n";
        Ok(scene)
    })
}

/// A process that left its session and keeps the output open is ended with the call, which returns.
fn grandchild() -> Attempt {
    attempt("a setsid grandchild that holds the pipe", "exec", by::SUPERVISOR, |_| {
        let signs = ["a process that it left running was ended"];
        let scene = Scene::new(vec![vec![escapee(&owned(&["hold", "left.pid"]))]], &signs);
        Ok(scene.looking(|place, _| {
            let process = fs::read_to_string(place.path("left.pid"))?;
            Ok(runs(process.trim())?.then(|| format!("process {} runs on", process.trim())))
        }))
    })
}

/// Says whether a process is still there after it should be gone.
fn runs(process: &str) -> Result<bool> {
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        process::{Pid, PidfdFlags, pidfd_open},
    };
    let Some(pid) = process.parse().ok().and_then(Pid::from_raw) else { return Ok(false) };
    let Ok(file) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
    let limit = Timespec::try_from(GONE)?;
    Ok(poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&limit))? == 0)
}
