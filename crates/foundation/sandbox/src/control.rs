//! The socket between this process and a launcher, from this end.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    sync::OnceLock,
};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::{
    io::{AsyncWriteExt as _, Interest},
    net::{TcpListener, UnixStream},
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use crate::wire::{BEGUN, CANCEL, LISTENS};

/// What is received is open in no program that is started meanwhile.
#[cfg(target_os = "linux")]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Bytes per read: a report is shorter.
const READ: usize = 4 << 10;

/// A launcher's process, once it is known.
#[derive(Debug, Default)]
pub(crate) struct Handle(OnceLock<OwnedFd>);

impl Handle {
    /// Kills it, unless it has ended. What it runs is left.
    pub(crate) fn kill(&self) {
        #[cfg(target_os = "linux")]
        if let Some(process) = self.0.get() {
            let _ = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
        }
    }
}

/// Sends `frame`, and a word when cancelled, and returns all that the launcher says. A socket that comes with it goes to
/// `listens`, its process to `process`.
pub(crate) async fn converse(
    mut control: UnixStream,
    frame: &[u8],
    cancel: &CancellationToken,
    listens: oneshot::Sender<OwnedFd>,
    process: &Handle,
) -> Vec<u8> {
    let (from, mut to) = control.split();
    // A launcher that cannot be written to is gone, which reading shows.
    let _ = to.write_all(frame).await;
    let heard = hear(from.as_ref(), listens, process);
    tokio::pin!(heard);
    tokio::select! {
        said = &mut heard => return said,
        () = cancel.cancelled() => {}
    }
    let _ = to.write_all(&[CANCEL]).await;
    heard.await
}

/// Takes a socket that listens.
pub(crate) fn listening(socket: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Returns all that is said until the other end closes.
async fn hear(
    control: &UnixStream,
    listens: oneshot::Sender<OwnedFd>,
    process: &Handle,
) -> Vec<u8> {
    let (mut said, mut listens) = (Vec::new(), Some(listens));
    loop {
        let received = control.async_io(Interest::READABLE, || receive(control)).await;
        match received {
            Ok((bytes, _)) if bytes.is_empty() => return said,
            Ok((bytes, file)) => {
                // What comes with a file is the byte that says which; it comes before the report.
                let what = bytes.first().filter(|_| said.is_empty() && file.is_some()).copied();
                match (what, file, listens.take()) {
                    // Who does not want it closes it.
                    (Some(LISTENS), Some(socket), Some(listens)) => drop(listens.send(socket)),
                    (Some(BEGUN), Some(own), unheard) => {
                        listens = unheard;
                        drop(process.0.set(own));
                    }
                    (_, _, unheard) => listens = unheard,
                }
                let is_file = matches!(what, Some(LISTENS | BEGUN));
                said.extend_from_slice(&bytes[usize::from(is_file)..]);
            }
            Err(_) => return said,
        }
    }
}

fn receive(control: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; READ];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let message =
        recvmsg(control, &mut [IoSliceMut::new(&mut bytes)], &mut beside, CLOSED_ON_EXEC)?;
    let socket = beside.drain().find_map(|beside| match beside {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    bytes.truncate(message.bytes);
    Ok((bytes, socket))
}
