//! Launchers: where they come from, and the one that waits for the next command.
//!
//! All come from one process, a broker, which takes longer to start than all else that a short command needs. To begin a
//! launcher there takes a tenth of that, and not even this is waited for: while one command runs, the launcher of the next is
//! begun, and waits for its order; an agent that ran one command mostly runs another. It has read nothing yet, holds no
//! rights that this process lacks, and ends with this process, whose end closes its socket. So does the broker.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use tokio::{process::Child, runtime};
use uuid::Uuid;

use crate::{Launcher, Terminal, launcher::MARKER, sandbox::Outputs, terminal::Pair, wire::BEGIN};

/// A launcher that was begun and given no order yet.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) outputs: Outputs,
    /// This process's end of the socket that is the launcher's standard input.
    control: UnixStream,
    /// By which its whole tree can be found.
    pub(crate) mark: String,
    /// The runtime that watches over it.
    runtime: runtime::Id,
}

impl Started {
    /// Returns its parts, to give it an order.
    pub(crate) fn into_parts(self) -> io::Result<(Outputs, tokio::net::UnixStream, String)> {
        Ok((self.outputs, tokio::net::UnixStream::from_std(self.control)?, self.mark))
    }

    /// Says whether it can be given an order from here.
    fn is_of_use(&self) -> bool {
        self.runtime == runtime::Handle::current().id() && !is_closed(&self.control)
    }
}

/// The process that launchers come from.
#[derive(Debug)]
struct Broker {
    process: Child,
    /// This process's end of the socket that is the broker's standard input.
    control: UnixStream,
}

impl Broker {
    fn start(launcher: &Launcher) -> io::Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let mut process = tokio::process::Command::new(&launcher.path);
        process.arg(MARKER).env_clear().stdin(OwnedFd::from(theirs));
        process.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { process: process.spawn()?, control })
    }

    /// Asks for a launcher with these files.
    fn ask(&self, files: &[OwnedFd; 3]) -> io::Result<()> {
        let files = files.each_ref().map(|file| file.as_fd());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        // There is space for exactly this.
        let _ = beside.push(SendAncillaryMessage::ScmRights(&files));
        // One that was stopped takes nothing, and is not waited for.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.control, &[IoSlice::new(&[BEGIN])], &mut beside, flags)?;
        Ok(())
    }
}

/// Where launchers come from, and the one of the next command.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<Parts>);

#[derive(Debug, Default)]
struct Parts {
    broker: Option<Broker>,
    next: Option<Started>,
}

impl Ready {
    /// Takes the launcher that waits, if one does.
    pub(crate) fn take(&self) -> Option<Started> {
        self.parts().next.take().filter(Started::is_of_use)
    }

    /// Begins a launcher, whose output is `terminal` where there is one.
    pub(crate) fn start(
        &self,
        launcher: &Launcher,
        terminal: Option<Terminal>,
    ) -> io::Result<Started> {
        let (started, files) = begin(terminal)?;
        let mut parts = self.parts();
        if let Some(broker) = &parts.broker
            && broker.ask(&files).is_ok()
        {
            return Ok(started);
        }
        // There is none, or it was killed.
        parts.broker = Some(ask_anew(launcher, &files)?);
        Ok(started)
    }

    /// Begins a launcher where this process is now, which no other one comes from.
    pub(crate) fn start_here(
        launcher: &Launcher,
        terminal: Option<Terminal>,
    ) -> io::Result<Started> {
        let (started, files) = begin(terminal)?;
        // Once its socket is closed, the broker ends by itself.
        ask_anew(launcher, &files).map(|_| started)
    }

    /// Has a launcher begun that waits for the next command, unless there is one.
    pub(crate) fn prepare(&self, launcher: &Launcher) {
        if self.parts().next.is_some() {
            return;
        }
        // One that cannot be begun is missed by nobody: the next command says why.
        let started = self.start(launcher, None).ok();
        self.parts().next = started;
    }

    /// Does without the broker from now on: a launcher of it was lost, and it may be as stuck.
    pub(crate) fn forget(&self) {
        let mut parts = self.parts();
        if let Some(mut broker) = parts.broker.take() {
            // It has ended by itself otherwise.
            let _ = broker.process.start_kill();
        }
        parts.next = None;
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes both ends of a launcher's files.
fn begin(terminal: Option<Terminal>) -> io::Result<(Started, [OwnedFd; 3])> {
    let (control, theirs) = UnixStream::pair()?;
    control.set_nonblocking(true)?;
    let (outputs, [stdout, stderr]) = match terminal {
        Some(size) => Outputs::at_terminal(Pair::open(size)?)?,
        None => Outputs::by_pipes()?,
    };
    let mark = Uuid::new_v4().to_string();
    let runtime = runtime::Handle::current().id();
    Ok((Started { outputs, control, mark, runtime }, [theirs.into(), stdout, stderr]))
}

fn ask_anew(launcher: &Launcher, files: &[OwnedFd; 3]) -> io::Result<Broker> {
    let broker = Broker::start(launcher)?;
    // A program that is no launcher closes its socket, and so those of the launcher that is waited for.
    let _ = broker.ask(files);
    Ok(broker)
}

/// Says whether nobody is at the other end.
fn is_closed(control: &UnixStream) -> bool {
    let mut fds = [PollFd::new(control, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_err() || fds[0].revents().contains(PollFlags::HUP)
}
