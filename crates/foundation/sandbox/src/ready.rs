//! Launchers: how one is started, and the one that waits for the next command.
//!
//! To start a launcher takes longer than all else that a short command needs. So while one command runs, the launcher of
//! the next is started, and waits for its order; an agent that ran one command mostly runs another. It has read nothing
//! yet, holds no rights that this process lacks, and ends with this process, whose end closes its socket.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{process::Child, runtime};
use uuid::Uuid;

use crate::{Launcher, Terminal, group::MARK, launcher::MARKER, sandbox::Outputs, terminal};

/// A launcher that was started and given no order yet.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) outputs: Outputs,
    /// This process's end of the socket that is the launcher's standard input.
    control: UnixStream,
    /// By which its whole tree can be found.
    pub(crate) mark: String,
    /// The runtime that watches over it.
    runtime: runtime::Id,
}

impl Started {
    /// Starts a launcher, whose output is `terminal` where there is one.
    pub(crate) fn start(launcher: &Launcher, terminal: Option<Terminal>) -> io::Result<Self> {
        let terminal = terminal.map(terminal::Pair::open).transpose()?;
        let mark = Uuid::new_v4().to_string();
        let (control, theirs) = UnixStream::pair()?;
        control.set_nonblocking(true)?;
        // Its end of the socket must be open nowhere but in it, so that its death closes it.
        let mut child = {
            let mut process = tokio::process::Command::new(&launcher.path);
            process.arg(MARKER).env_clear().env(MARK, &mark);
            process.stdin(OwnedFd::from(theirs));
            Outputs::give(&mut process, terminal.as_ref())?;
            process.spawn()?
        };
        let outputs = Outputs::take(&mut child, terminal)?;
        let runtime = runtime::Handle::current().id();
        Ok(Self { child, outputs, control, mark, runtime })
    }

    /// Returns its parts, to give it an order.
    pub(crate) fn into_parts(self) -> io::Result<(Child, Outputs, tokio::net::UnixStream, String)> {
        Ok((self.child, self.outputs, tokio::net::UnixStream::from_std(self.control)?, self.mark))
    }

    /// Says whether it can be given an order from here.
    fn is_of_use(&mut self) -> bool {
        self.runtime == runtime::Handle::current().id() && matches!(self.child.try_wait(), Ok(None))
    }
}

/// The launcher of the next command.
#[derive(Debug, Default)]
pub(crate) struct Ready(Mutex<Next>);

#[derive(Debug, Default)]
enum Next {
    #[default]
    None,
    Coming,
    Waiting(Box<Started>),
}

impl Ready {
    /// Takes the launcher that waits, if one does.
    pub(crate) fn take(&self) -> Option<Started> {
        let mut next = self.next();
        match std::mem::take(&mut *next) {
            Next::Waiting(mut started) => started.is_of_use().then_some(*started),
            other => {
                *next = other;
                None
            }
        }
    }

    /// Has a launcher started that waits for the next command, unless there is one.
    pub(crate) fn prepare(self: &Arc<Self>, launcher: &Launcher) {
        {
            let mut next = self.next();
            if !matches!(*next, Next::None) {
                return;
            }
            *next = Next::Coming;
        }
        let (ready, launcher) = (Arc::clone(self), launcher.clone());
        // A thread waits until the new process has become another program.
        tokio::task::spawn_blocking(move || {
            let started = Started::start(&launcher, None);
            // One that cannot be started is missed by nobody: the next command says why.
            *ready.next() = started.map_or(Next::None, |started| Next::Waiting(Box::new(started)));
        });
    }

    fn next(&self) -> MutexGuard<'_, Next> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
