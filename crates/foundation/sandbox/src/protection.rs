//! What a command may reach, and what of that this machine can hold it to.

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Gateway;

/// Whether a command is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// It may do all that this process may. Its whole tree still ends with it.
    None,
    /// It is held to these limits, or not run.
    Restricted(Limits),
}

/// What a confined command may reach.
///
/// Paths are enforced by Landlock, which judges opening, making, moving and deleting files by where
/// they really are. It does not judge the change of a file's mode, owner, times or attributes: see [`Beyond`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Folders and files that may be read and run.
    #[serde(with = "crate::wire::paths")]
    pub read_roots: Vec<PathBuf>,
    /// Folders and files that may also be written.
    #[serde(with = "crate::wire::paths")]
    pub write_roots: Vec<PathBuf>,
    /// Folders and files below those that may be read and run all the same, and not written, moved or deleted, but for
    /// write roots that lie below them. They exist and are no links.
    #[serde(default, with = "crate::wire::paths")]
    pub sealed: Vec<PathBuf>,
    /// Folders in whose place it sees an empty one of its own, in memory, which goes with it: for what programs keep
    /// where all of a user's programs do. They exist, and are read and written as the roots say.
    #[serde(default, with = "crate::wire::paths")]
    pub private: Vec<PathBuf>,
    /// What of files beyond the write roots it may change.
    #[serde(default)]
    pub beyond: Beyond,
    /// Which sockets it may open.
    pub network: Network,
    /// Bytes of memory of the whole tree, by what is resident for each of its processes alone. What is only reserved
    /// does not count.
    pub memory: Option<u64>,
    /// Processes at once in the whole tree.
    pub processes: Option<u32>,
    /// Processor time of each process, in whole seconds, rounded up.
    pub cpu: Option<Duration>,
    /// Bytes of each file it writes.
    pub file_size: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
}

impl Limits {
    /// Confines to `read_roots` and `write_roots`, without network, with no other limit.
    pub fn new<R: Into<PathBuf>, W: Into<PathBuf>>(
        read_roots: impl IntoIterator<Item = R>,
        write_roots: impl IntoIterator<Item = W>,
    ) -> Self {
        Self {
            read_roots: read_roots.into_iter().map(Into::into).collect(),
            write_roots: write_roots.into_iter().map(Into::into).collect(),
            sealed: Vec::new(),
            private: Vec::new(),
            beyond: Beyond::Described,
            network: Network::Off,
            memory: None,
            processes: None,
            cpu: None,
            file_size: None,
            open_files: None,
        }
    }

    /// Returns what nearly every program reads, as far as this machine has it: programs, libraries,
    /// settings and some of the kernel's tables.
    ///
    /// `/proc` is not among them as a whole, since a process may read there with which variables
    /// another one of the same user was started, and keys are often among those.
    pub fn system_roots() -> Vec<PathBuf> {
        const ROOTS: &[&str] = &[
            "/bin",
            "/etc",
            "/lib",
            "/lib32",
            "/lib64",
            "/opt",
            "/proc/cpuinfo",
            "/proc/filesystems",
            "/proc/loadavg",
            "/proc/meminfo",
            "/proc/stat",
            "/proc/sys",
            "/proc/uptime",
            "/proc/version",
            "/sbin",
            "/sys/devices/system/cpu",
            "/sys/fs/cgroup",
            "/usr",
        ];
        ROOTS.iter().map(PathBuf::from).filter(|root| root.exists()).collect()
    }
}

/// What a confined command may change of files that it may not write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Beyond {
    /// What describes them, as far as its user may: mode, owner, times, attributes.
    #[default]
    Described,
    /// Nothing: all but the write roots is mounted read-only for it. On macOS this is so anyway.
    Nothing,
}

/// Which sockets a confined command may open. Pairs of connected sockets are always allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Network {
    /// None.
    Off,
    /// Those of TCP, in a network of its own that holds nothing but a proxy. `HTTP_PROXY` and its like name it, with a token
    /// for this run alone, and it connects where these routes lead. Only on Linux.
    #[serde(skip)] // What decides stays in the process that decides.
    Through(Gateway),
    /// Unix sockets, which reach services of this machine, and nothing else.
    Unix,
    /// Internet and Unix sockets, but no raw ones.
    Allowed,
}

/// Which protections are active on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Protections {
    /// Reading and writing only below the roots.
    pub files: Status,
    /// Signals and abstract Unix sockets only within the command's own tree.
    pub scopes: Status,
    /// No sockets beyond the network rule, no tracing, mounting, keyrings, namespaces and the like.
    pub system_calls: Status,
    /// The whole tree ends, even what left its session.
    pub whole_tree: Status,
    /// No more processes at once than its limit.
    pub processes: Status,
    /// No more memory than its limit.
    pub memory: Status,
}

/// Whether a protection can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Yes, by the mechanism named.
    Active(String),
    /// In part, as told.
    Weak(String),
    /// No, for the reason given.
    Missing(String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active(by) => write!(f, "active ({by})"),
            Self::Weak(what) => write!(f, "weak ({what})"),
            Self::Missing(reason) => write!(f, "missing ({reason})"),
        }
    }
}

/// Says which protections are active on this machine, assuming that there is a launcher.
pub fn probe() -> Protections {
    #[cfg(target_os = "linux")]
    return crate::launcher::restrict::probe();

    #[cfg(target_os = "macos")]
    return {
        let seatbelt = || match crate::seatbelt::PROGRAM {
            program if std::path::Path::new(program).exists() => Status::Active("Seatbelt".into()),
            program => Status::Missing(format!("{program} is not there")),
        };
        Protections {
            files: seatbelt(),
            scopes: seatbelt(),
            system_calls: seatbelt(),
            whole_tree: Status::Missing("this system has no subreaper: process group only".into()),
            processes: Status::Missing("a Seatbelt profile cannot limit processes".into()),
            memory: Status::Missing("a Seatbelt profile cannot limit memory".into()),
        }
    };

    #[cfg(not(any(target_os = "linux", target_os = "macos")))]
    return {
        let missing = || Status::Missing(format!("not supported on {}", std::env::consts::OS));
        Protections {
            files: missing(),
            scopes: missing(),
            system_calls: missing(),
            whole_tree: missing(),
            processes: missing(),
            memory: missing(),
        }
    };
}
