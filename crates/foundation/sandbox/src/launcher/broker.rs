//! Begins launchers, each a fork of this process, for the process at the other end of the standard input.
//!
//! To start a program takes most of what a short command costs: it is read, linked and set up each time. This process was
//! started once, has one thread and a few megabytes, and reads nothing of any command, so that a copy of it begins with
//! nothing of another command's. It ends when whoever asks is gone; launchers that have begun end with their own sockets.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    process::{PidfdFlags, WaitOptions, pidfd_open},
};

use super::{restrict, spawn, supervisor};
use crate::wire::{BEGUN, NotRun, Report};

/// What a launcher begins with: its standard input, output and error output.
type Files = [OwnedFd; 3];

/// Begins a launcher for each request until whoever asks is gone.
pub(super) fn run() -> io::Result<()> {
    // Ctrl-C at a terminal is none of its business. Fails only where it leads a session already, which serves as well.
    let _ = rustix::process::setsid();
    spawn::keep_memory_joined();
    let requests = io::stdin();
    let mut begun: Vec<OwnedFd> = Vec::new();
    loop {
        let is_asked = wait(requests.as_fd(), &mut begun)?;
        // Where there are no handles, they are collected at the next request.
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if !is_asked {
            continue;
        }
        let Some(files) = take(requests.as_fd())? else { return Ok(()) };
        match spawn::fork() {
            Ok(None) => spawn::leave(i32::from(launch(files).is_err())),
            // It was not collected yet, so that its number is its own.
            Ok(Some(launcher)) => begun.extend(pidfd_open(launcher, PidfdFlags::empty())),
            Err(error) => refuse(&error, &files),
        }
        drop(files); // Only the launcher's death is to close them.
        // Whoever waits has what was asked for: the next ones find this done.
        restrict::prepare();
    }
}

/// Waits for a request or the end of a launcher, whose handle is then forgotten, and says whether there is a request.
fn wait(requests: BorrowedFd<'_>, begun: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut fds = vec![PollFd::from_borrowed_fd(requests, PollFlags::IN)];
    fds.extend(begun.iter().map(|launcher| PollFd::new(launcher, PollFlags::IN)));
    match poll(&mut fds, None) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    }
    let mut heard = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
    let is_asked = heard.next().unwrap_or_default();
    begun.retain(|_| !heard.next().unwrap_or_default());
    Ok(is_asked)
}

/// Takes the files of the next launcher, or nothing where whoever asks is gone.
fn take(requests: BorrowedFd<'_>) -> io::Result<Option<Files>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let request =
        recvmsg(requests, &mut [IoSliceMut::new(&mut byte)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    if request.bytes == 0 {
        return Ok(None);
    }
    let files = beside.drain().find_map(|beside| match beside {
        RecvAncillaryMessage::ScmRights(files) => Some(files.collect::<Vec<_>>()),
        _ => None,
    });
    let files = files.and_then(|files| Files::try_from(files).ok());
    files.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Makes this process the launcher that was asked for.
fn launch([control, stdout, stderr]: Files) -> io::Result<()> {
    // The first takes the place of the socket over which the next launcher is asked for.
    rustix::stdio::dup2_stdin(&control)?;
    rustix::stdio::dup2_stdout(&stdout)?;
    rustix::stdio::dup2_stderr(&stderr)?;
    tell(&control);
    drop((control, stdout, stderr));
    supervisor::run()
}

/// Tells whoever asked by which handle this process can be killed.
fn tell(control: &OwnedFd) {
    let Ok(own) = pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) else { return };
    let handles = [own.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    // There is space for exactly this.
    let _ = beside.push(SendAncillaryMessage::ScmRights(&handles));
    // Where nobody is there to be told, the next read says so.
    let _ = sendmsg(control, &[IoSlice::new(&[BEGUN])], &mut beside, SendFlags::NOSIGNAL);
}

/// Tells whoever asked why there is no launcher.
fn refuse(error: &io::Error, [control, ..]: &Files) {
    let errno = error.raw_os_error().unwrap_or_default();
    let report = serde_json::to_vec(&Report::NotRun(NotRun::NotStarted { errno }));
    // Where nobody is there to be told, nobody waits for it.
    let _ = rustix::net::send(control, &report.unwrap_or_default(), SendFlags::NOSIGNAL);
}
