//! A network of a command's own, in which there is nothing but its proxy.
//!
//! Landlock judges the port of a connection and not its address: a command that may connect to a port of this machine may
//! connect to that port of every other one. In a network of its own there is no other one. The socket that listens in it is
//! made here, and whoever sent for the command accepts from it, in the network of everybody.

use std::{
    io::IoSlice,
    mem::MaybeUninit,
    net::{Ipv4Addr, TcpListener},
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::{
    proxy,
    wire::{LISTENS, NotRun, Protecting},
};

/// Makes the network of the calling process, which was just made, one in which a proxy listens, and sends the socket over
/// `control`.
pub(super) fn open(control: &OwnedFd) -> Result<(), NotRun> {
    let failed = |what: &str, error: std::io::Error| NotRun::ProtectionMissing {
        protection: Protecting::Network,
        reason: format!("{what}: {error}"),
    };
    super::spawn::bring_up_loopback().map_err(|error| failed("its loopback device", error))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, proxy::PORT))
        .map_err(|error| failed("its proxy's port", error))?;
    let sockets = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    // There is space for exactly this.
    let _ = beside.push(SendAncillaryMessage::ScmRights(&sockets));
    sendmsg(control, &[IoSlice::new(&[LISTENS])], &mut beside, SendFlags::empty())
        .map(drop)
        .map_err(|errno| failed("its proxy's socket", errno.into()))
}
