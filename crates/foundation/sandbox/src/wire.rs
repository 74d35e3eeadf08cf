//! What this process says to a broker and to a launcher, and what they answer, over the standard input of each.
//!
//! To the broker this process writes [`BEGIN`] with the three standard files of the launcher that is to begin.
//!
//! To the launcher it writes a frame (a length, then a [`Spec`] in JSON, then the command's input), and later at
//! most one [`CANCEL`]. What it reads is [`BEGUN`] with a handle of the launcher and one [`Report`] in JSON
//! once the whole tree has ended. Where there is to be a proxy, [`LISTENS`] comes between them, with the socket to listen at.
//! Either side's end closes the socket, which the other one sees.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    path::PathBuf,
    time::Duration,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Command, Error, Exit, Limits, Network, program};

/// The byte that has a broker begin a launcher, with its standard input, output and error output.
pub(crate) const BEGIN: u8 = b'b';

/// The byte with which a handle of the launcher comes, by which it can be killed. A report begins with another one.
pub(crate) const BEGUN: u8 = b'p';

/// The byte that tells a launcher to end the tree.
pub(crate) const CANCEL: u8 = b'c';

/// The byte with which a socket comes that listens in a command's own network. A report begins with another one, too.
pub(crate) const LISTENS: u8 = b'l';

/// What a launcher is to run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) argv: Vec<OsString>,
    pub(crate) cwd: OsString,
    /// Pairs, since the keys of a JSON object can only be text.
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) limits: Option<Limits>,
    /// Whether it has a network of its own with a proxy in it. The limits then say that it has none besides.
    pub(crate) proxied: bool,
    /// Whether its output, and its input where none follows, is a terminal: the one that the launcher writes to.
    pub(crate) terminal: bool,
    /// Bytes of input that follow, or none for a closed input.
    pub(crate) stdin: Option<u64>,
}

/// What a launcher says once all is over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Ended { exit: Exit, duration: Duration, stragglers: u32, unkillable: u32 },
    NotRun(NotRun),
}

/// Why a launcher did not run the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NotRun {
    ProgramNotFound { searched: String },
    NotStarted { errno: i32 },
    DirectoryNotFound,
    TooLong,
    ProtectionMissing { protection: Protecting, reason: String },
    RootMissing { root: OsString, errno: i32 },
}

/// A mechanism that a launcher applies.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Protecting {
    Landlock,
    Seccomp,
    Rlimit,
    Subreaper,
    Seal,
    Network,
}

impl Protecting {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Landlock => "Landlock",
            Self::Seccomp => "the system call filter",
            Self::Rlimit => "a resource limit",
            Self::Subreaper => "the end of the whole tree",
            Self::Seal => "keeping a part of a writable folder from writing",
            Self::Network => "a network with nothing but a proxy",
        }
    }
}

impl Spec {
    /// Returns the bytes that go to the launcher ahead of the command's input.
    pub(crate) fn frame(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self).map_err(io::Error::other)?;
        let length = u64::try_from(json.len()).map_err(io::Error::other)?;
        Ok([&length.to_be_bytes()[..], &json].concat())
    }

    /// Reads a frame and the input after it.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(from: &mut impl io::Read) -> io::Result<(Self, Option<Vec<u8>>)> {
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let spec: Self = serde_json::from_slice(&exactly(from, u64::from_be_bytes(length))?)?;
        let stdin = spec.stdin.map(|length| exactly(from, length)).transpose()?;
        Ok((spec, stdin))
    }
}

/// Paths as they are, which need not be UTF-8.
pub(crate) mod paths {
    use std::{
        ffi::{OsStr, OsString},
        path::PathBuf,
    };

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(paths.iter().map(AsRef::<OsStr>::as_ref))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let paths = Vec::<OsString>::deserialize(deserializer)?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }
}

#[cfg(target_os = "linux")]
fn exactly(from: &mut impl io::Read, length: u64) -> io::Result<Vec<u8>> {
    // Most orders come whole at the first call; nobody has room made for what is only announced.
    let room = usize::try_from(length).unwrap_or(usize::MAX).min(64 * 1024);
    let mut bytes = Vec::with_capacity(room);
    let mut limited = io::Read::take(from, length);
    io::Read::read_to_end(&mut limited, &mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(read) if read == length => Ok(bytes),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl NotRun {
    /// Returns the error for the caller who asked to run `command`.
    pub(crate) fn into_error(self, command: &Command, spec: &Spec) -> Error {
        let program = command.program();
        match self {
            Self::ProgramNotFound { searched } => Error::ProgramNotFound { program, searched },
            Self::NotStarted { errno } => {
                Error::NotStarted { program, source: io::Error::from_raw_os_error(errno) }
            }
            Self::DirectoryNotFound => {
                Error::DirectoryNotFound { program, cwd: command.cwd.clone() }
            }
            Self::TooLong => Error::TooLong { program, bytes: spec.bytes() },
            Self::ProtectionMissing { protection, reason } => {
                Error::ProtectionMissing { program, protection: protection.name(), reason }
            }
            Self::RootMissing { root, errno } => Error::RootMissing {
                program,
                root: root.into(),
                source: io::Error::from_raw_os_error(errno),
            },
        }
    }
}

impl Spec {
    /// Describes `command` with the variables it is to see.
    pub(crate) fn new(
        command: &Command,
        environment: BTreeMap<OsString, OsString>,
        mut limits: Option<Limits>,
    ) -> Self {
        let mut proxied = false;
        if let Some(limits) = &mut limits
            && matches!(limits.network, Network::Through(_))
        {
            (limits.network, proxied) = (Network::Off, true);
        }
        Self {
            argv: command.argv.clone(),
            cwd: command.cwd.clone().into(),
            environment: environment.into_iter().collect(),
            timeout: command.timeout,
            grace: command.grace,
            limits,
            proxied,
            terminal: command.terminal.is_some(),
            stdin: command.stdin.as_ref().map(Bytes::len).map(|length| length as u64),
        }
    }

    /// Returns the program as it was named.
    pub(crate) fn program(&self) -> &OsStr {
        self.argv.first().map(OsString::as_os_str).unwrap_or_default()
    }

    /// Returns the file to run.
    pub(crate) fn find(&self) -> Result<PathBuf, NotRun> {
        let path = self.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, value)| value.as_os_str()).unwrap_or_default();
        program::find(self.program(), self.cwd.as_ref(), path)
    }

    /// Looks whether there is a file that may be run.
    pub(crate) fn look(&self) -> Result<(), NotRun> {
        match program::is_program(&self.find()?) {
            true => Ok(()),
            false => Err(NotRun::NotStarted { errno: rustix::io::Errno::ACCESS.raw_os_error() }),
        }
    }

    fn bytes(&self) -> usize {
        let arguments = self.argv.iter().map(|argument| argument.len() + 1).sum::<usize>();
        let variables = self.environment.iter().map(|(k, v)| k.len() + v.len() + 2).sum::<usize>();
        arguments + variables
    }
}
