//! The small process between this one and a command.
//!
//! It leads a session of its own and adopts every orphan below it, so that it knows the whole tree
//! and can wait for its end. It confines the command, holds it to its time, and ends the tree when
//! this process does. It is never forked off this process, whose size it would then cost, but off a broker: the same
//! program, started once, which does nothing else.

use std::{ffi::OsStr, path::PathBuf};

#[cfg(target_os = "linux")]
mod broker;
#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
pub(crate) mod restrict;
#[cfg(target_os = "linux")]
mod seal;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(target_os = "linux")]
mod supervisor;

/// The argument that makes a program a broker of launchers.
pub(crate) const MARKER: &str = "formwork-sandbox-launcher";

/// A program that calls [`intercept`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    pub(crate) path: PathBuf,
}

impl Launcher {
    /// Takes the program at `path`, for instance an installed `formwork-launcher`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Takes the running program, whose `main` must begin with [`intercept`].
    ///
    /// # Errors
    /// When the system does not say which file is running.
    pub fn current_exe() -> std::io::Result<Self> {
        std::env::current_exe().map(Self::new)
    }
}

/// Becomes a broker of launchers, and never returns, when this program was started as one; else does nothing.
///
/// Call it first thing in `main`, before arguments are parsed, threads started or settings read.
pub fn intercept() {
    if std::env::args_os().nth(1).as_deref() != Some(OsStr::new(MARKER)) {
        return;
    }
    #[cfg(target_os = "linux")]
    let ended = broker::run();
    #[cfg(not(target_os = "linux"))]
    let ended: std::io::Result<()> = Err(std::io::ErrorKind::Unsupported.into());
    // Whoever started it reads its report, and takes a missing one for a failure.
    std::process::exit(i32::from(ended.is_err()));
}
