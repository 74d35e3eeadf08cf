//! Whoever listens on this machine, in place of the rest of the world.

use std::{
    io::{self, Read as _, Write as _},
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

/// Asks the proxy that it was given for a connection.
pub(crate) fn proxy(place: &str) -> Tried {
    let (credentials, _) = given()?;
    // By what is behind the `@` alone nobody is let through.
    proxy_with(place, &base64(credentials.as_bytes()))
}

/// Does so with these credentials.
pub(crate) fn proxy_with(place: &str, credentials: &str) -> Tried {
    let (_, proxy) = given()?;
    let mut socket = TcpStream::connect(proxy)?;
    let asked = format!(
        "CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
    );
    socket.write_all(asked.as_bytes())?;
    let mut answer = [0; 12];
    socket.read_exact(&mut answer)?;
    if answer.ends_with(b" 200") {
        socket.write_all(b"escaped\n")?;
        return Ok(format!("was connected to {place}"));
    }
    let mut rest = String::new();
    let _ = socket.read_to_string(&mut rest);
    Err(io::Error::other(rest.lines().last().unwrap_or_default().to_owned()))
}

/// Connects to the port of its proxy, somewhere else.
pub(crate) fn beside_the_proxy(place: &str) -> Tried {
    let (_, proxy) = given()?;
    let port = proxy.rsplit_once(':').map(|(_, port)| port).unwrap_or_default();
    tcp(&format!("{place}:{port}"))
}

/// Returns the credentials and the place of the proxy that it was given.
#[expect(clippy::disallowed_methods, reason = "programs are told of their proxy by a variable")]
fn given() -> io::Result<(String, String)> {
    let url = std::env::var("HTTPS_PROXY").map_err(io::Error::other)?;
    let parts = url.strip_prefix("http://").and_then(|rest| rest.split_once('@'));
    let parts = parts.map(|(credentials, proxy)| (credentials.to_owned(), proxy.to_owned()));
    parts.ok_or_else(|| io::Error::other(format!("no proxy: {url}")))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let number = part.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        let number = number << (8 * (3 - part.len()));
        for at in 0..4 {
            let digit = DIGITS[(number >> (18 - 6 * at) & 63) as usize];
            text.push(if at > part.len() { '=' } else { char::from(digit) });
        }
    }
    text
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
