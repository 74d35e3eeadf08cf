//! Whoever listens on this machine, in place of the rest of the world.

use std::{
    io::Write as _,
    net::{TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
};

use crate::Tried;

pub(crate) fn tcp(address: &str) -> Tried {
    TcpStream::connect(address)?.write_all(b"escaped\n")?;
    Ok(format!("spoke to {address}"))
}

/// Asks a name server, as whatever looks up a name does.
pub(crate) fn name(address: &str) -> Tried {
    // A question for the address of `a.invalid`, by RFC 1035.
    let question = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x07invalid\0\0\x01\0\x01";
    UdpSocket::bind("127.0.0.1:0")?.send_to(question, address)?;
    Ok(format!("asked {address} for a name"))
}

pub(crate) fn unix(path: &str) -> Tried {
    UnixStream::connect(path)?.write_all(b"escaped\n")?;
    Ok(format!("spoke to {path}"))
}

pub(crate) fn abstract_name(name: &str) -> Tried {
    let address = SocketAddr::from_abstract_name(name)?;
    UnixStream::connect_addr(&address)?.write_all(b"escaped\n")?;
    Ok(format!("spoke to the abstract socket {name}"))
}
