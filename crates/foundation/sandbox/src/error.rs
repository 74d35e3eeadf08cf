//! Why a command was not run, or its end could not be learnt.

use std::{io, path::PathBuf};

/// Why a command was not run, or its end could not be learnt.
///
/// A command that ran and failed is no error: see [`Exit`](crate::Exit).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The argument vector is empty.
    #[error("the command is empty: it names no program")]
    EmptyCommand,
    /// An argument, the folder or a variable holds a NUL byte, which no process can be given.
    #[error("{what} of {program} holds a NUL byte")]
    NulByte { program: String, what: &'static str },
    /// No such program. `searched` is the path list, or the file that was named.
    #[error("program {program} was not found in {searched}")]
    ProgramNotFound { program: String, searched: String },
    /// The program is there and could not be started, as `source` says.
    #[error("program {program} could not be started")]
    NotStarted { program: String, source: io::Error },
    /// The folder to start in is not there or is not a folder.
    #[error("folder {cwd} to run {program} in is not there")]
    DirectoryNotFound { program: String, cwd: PathBuf },
    /// The kernel refused arguments and variables of this many bytes together.
    #[error("program {program} cannot be given {bytes} bytes of arguments and variables")]
    TooLong { program: String, bytes: usize },
    /// The variable makes programs run code that the argument vector does not name.
    #[error("variable {name:?} may not be set for a command")]
    ForbiddenVariable { name: String },
    /// The command asked for a protection that cannot be had here. Nothing was run.
    #[error("program {program} was not run: {protection} cannot be had: {reason}")]
    ProtectionMissing { program: String, protection: &'static str, reason: String },
    /// A folder or file in the limits is not there. Nothing was run.
    #[error("program {program} was not run: {root} in its limits cannot be opened")]
    RootMissing { program: String, root: PathBuf, source: io::Error },
    /// The command's own folder for what it needs for a while could not be made. Nothing was run.
    #[error("program {program} was not run: its temporary folder cannot be made")]
    Temporary { program: String, source: io::Error },
    /// The launcher could not be started.
    #[error("launcher {path} could not be started")]
    LauncherNotStarted { path: PathBuf, source: io::Error },
    /// The launcher ended without a report. What was left of the tree was killed.
    #[error("the launcher of {program} ended without saying how the command ended")]
    LauncherLost { program: String },
    /// The process could not be talked to or waited for.
    #[error("program {program} could not be watched")]
    Watch { program: String, source: io::Error },
}
