//! What is to be run.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use bytes::Bytes;

use crate::Protection;

/// A program, its arguments and the bounds of its run.
///
/// [`Command::new`] fills everything but the arguments, the folder and the protection with defaults;
/// every field may be set afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The program and its arguments. A program without `/` is looked up in the `PATH` that the
    /// command will see, and only in that path's absolute entries.
    pub argv: Vec<OsString>,
    /// The folder it starts in.
    pub cwd: PathBuf,
    /// Variables that are set whatever the parent's environment holds.
    pub set: BTreeMap<OsString, OsString>,
    /// Names of variables that pass from the parent, beyond those of [`Environment`](crate::Environment).
    pub pass: Vec<OsString>,
    /// What it reads from its standard input, which is `/dev/null` when there is nothing and it has no terminal.
    pub stdin: Option<Bytes>,
    /// The terminal that is its standard output and error, and its input where it has no other. Below a launcher it is its
    /// controlling terminal as well. Nobody types: a line that it reads there is at its end.
    pub terminal: Option<Terminal>,
    /// After this long it is told to end. The default is [`Command::TIMEOUT`].
    pub timeout: Duration,
    /// Between being told to end and being killed. The default is [`Command::GRACE`].
    pub grace: Duration,
    /// How much of its output is kept.
    pub caps: Caps,
    /// What it may reach.
    pub protection: Protection,
}

impl Command {
    /// How long a command may run unless it says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(120);
    /// How long a command that was told to end has to do so, unless it says otherwise.
    pub const GRACE: Duration = Duration::from_secs(1);

    /// Describes a command with default bounds, no input and no variables of its own.
    pub fn new<A: Into<OsString>>(
        argv: impl IntoIterator<Item = A>,
        cwd: impl Into<PathBuf>,
        protection: Protection,
    ) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: cwd.into(),
            set: BTreeMap::new(),
            pass: Vec::new(),
            stdin: None,
            terminal: None,
            timeout: Self::TIMEOUT,
            grace: Self::GRACE,
            caps: Caps::default(),
            protection,
        }
    }

    /// Returns the program's name as it was given, for messages.
    pub(crate) fn program(&self) -> String {
        self.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// How many stand in a line.
    pub columns: u16,
    /// How many lines there are.
    pub rows: u16,
}

impl Default for Terminal {
    /// The size that programs take for granted.
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

/// How much output is kept, in bytes, of each stream and of both together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The first bytes of a stream.
    pub head: usize,
    /// The last bytes of a stream.
    pub tail: usize,
    /// The most that is kept whole. Beyond it the output is still counted and hashed.
    pub whole: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self { head: 16 << 10, tail: 48 << 10, whole: 256 << 20 }
    }
}
