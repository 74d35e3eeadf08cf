//! The terminal of a command, at which nobody sits.

use std::{collections::BTreeMap, ffi::OsString, io, os::fd::OwnedFd, process::ChildStdout};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{
        LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize,
    },
};

use crate::Terminal;

/// What ends a line that is read before anything was typed, and so an input.
const END: u8 = 4; // Control-D, as terminals are set when they are made.

/// How often a command finds its input at its end. Each program that it starts may look.
const ENDS: usize = 256;

/// The terminal that most programs know to speak to, where nobody says which it is.
const TERM: (&str, &str) = ("TERM", "xterm-256color");

/// Both ends of a terminal.
pub(crate) struct Pair {
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Pair {
    /// Makes a terminal which writes what it is given as it is, and whose input is at its end.
    pub(crate) fn open(size: Terminal) -> io::Result<Self> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        // Not every system can be told so when it is opened.
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs =
            rustix::fs::open(ptsname(&ours, Vec::new())?.as_c_str(), flags, Mode::empty())?;
        let mut modes = tcgetattr(&theirs)?;
        modes.output_modes -= OutputModes::OPOST;
        modes.local_modes -= LocalModes::ECHO;
        tcsetattr(&theirs, OptionalActions::Now, &modes)?;
        let Terminal { columns: ws_col, rows: ws_row } = size;
        tcsetwinsize(&theirs, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 })?;
        rustix::io::write(&ours, &[END; ENDS])?;
        Ok(Self { ours, theirs })
    }

    /// Returns the end that a command is given.
    pub(crate) fn theirs(&self) -> io::Result<OwnedFd> {
        self.theirs.try_clone()
    }

    /// Keeps the end at which what it writes is read. It closes once no process of the command has the other one.
    pub(crate) fn into_output(self) -> io::Result<tokio::process::ChildStdout> {
        tokio::process::ChildStdout::from_std(ChildStdout::from(self.ours))
    }
}

/// Says which kind of terminal it is, where nothing says so.
pub(crate) fn name(environment: &mut BTreeMap<OsString, OsString>) {
    let (name, value) = TERM;
    environment.entry(name.into()).or_insert_with(|| value.into());
}
