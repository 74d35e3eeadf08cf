//! What a command asks of its proxy: the head of one request, read strictly.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The longest head. Servers take 8 to 16 KiB.
const MOST: usize = 16 << 10;

/// The longest `host:port`: what the domain name system knows, and five digits.
const LONGEST: usize = 253 + 1 + 5;

/// The headers that are between a client and its proxy, or make up their connection.
const OURS: [&str; 9] = [
    "connection",
    "host", // Where a proxy is asked is told by the address, whatever this says.
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Where it leads, as `host:port`.
    pub(super) to: String,
    /// What `Proxy-Authorization` says by the scheme `Basic`.
    pub(super) credentials: Option<String>,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A connection.
    Tunnel,
    /// One request: its head as the server is to see it, and how many bytes follow.
    Plain { head: Vec<u8>, body: u64 },
}

/// Why a request is not one that is passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) to: String,
    pub(super) why: &'static str,
}

/// Reads up to the end of a head; returns it, and what was read behind it.
///
/// # Errors
/// When the client is gone before that, or says too much.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(Bytes, Bytes)> {
    let mut bytes = BytesMut::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = bytes.split_to(end + 4).freeze();
            return Ok((head, bytes.freeze()));
        }
        if bytes.len() > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if from.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Understands a head.
///
/// # Errors
/// [`Wrong`] for what is not exactly what a proxy is asked, so that nobody reads anything else in it than this does.
pub(super) fn parse(head: &[u8]) -> Result<Asked, Wrong> {
    let wrong = |why| Wrong { to: String::new(), why };
    let text = std::str::from_utf8(head).map_err(|_| wrong("its head is no text"))?;
    let text = text.strip_suffix("\r\n\r\n").ok_or_else(|| wrong("its head has no end"))?;
    if text.replace("\r\n", "").contains(|c: char| c.is_control() && c != '\t') {
        return Err(wrong("its head has control characters"));
    }
    let mut lines = text.split("\r\n");
    let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = first.as_slice() else {
        return Err(wrong("it is no request of HTTP/1"));
    };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(wrong("its method is none"));
    }
    let headers = lines.map(header).collect::<Option<Vec<_>>>();
    let headers = headers.ok_or_else(|| wrong("a header of it is none"))?;
    let all = |name: &'static str| {
        let named = headers.iter().filter(move |(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| *value)
    };
    let credentials = match all("proxy-authorization").collect::<Vec<_>>().as_slice() {
        [] => None,
        [one] => {
            let (scheme, given) = one.split_once(' ').unwrap_or((one, ""));
            Some(if scheme.eq_ignore_ascii_case("basic") { given.trim() } else { "" }.to_owned())
        }
        _ => return Err(wrong("it has credentials twice")),
    };
    if method == "CONNECT" {
        let to = authority(target, None).map_err(wrong)?;
        return Ok(Asked { to, credentials, kind: Kind::Tunnel });
    }
    let (scheme, rest) = target.split_once("://").unwrap_or(("", target));
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(wrong(
            "it is neither CONNECT nor a request for an address that begins with http://",
        ));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let to = authority(host, Some("80")).map_err(wrong)?;
    let wrong = |why| Wrong { to: to.clone(), why };
    if all("transfer-encoding").next().is_some() {
        return Err(wrong(
            "what it sends has no length beforehand, which plain HTTP is not passed on with",
        ));
    }
    let body = match all("content-length").collect::<Vec<_>>().as_slice() {
        [] => 0,
        [one] if one.bytes().all(|byte| byte.is_ascii_digit()) => {
            one.parse().map_err(|_| wrong("its length is none"))?
        }
        _ => return Err(wrong("its length is none")),
    };
    let dropped: Vec<&str> =
        all("connection").flat_map(|value| value.split(',')).map(str::trim).collect();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} {version}\r\nHost: {host}\r\n");
    for (name, value) in &headers {
        let is = |other: &&str| other.eq_ignore_ascii_case(name);
        if !OURS.iter().any(is) && !dropped.iter().any(is) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("Connection: close\r\n\r\n");
    let kind = Kind::Plain { head: head.into_bytes(), body };
    Ok(Asked { to, credentials, kind })
}

/// Parts a line into the name of a header and its value.
fn header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (!name.is_empty() && name.bytes().all(is_name)).then(|| (name, value.trim()))
}

/// Returns where something leads, as `host:port`, with the port that is meant where none is written.
fn authority(text: &str, port: Option<&str>) -> Result<String, &'static str> {
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if text.is_empty() || text.len() > LONGEST || !text.bytes().all(is_host) {
        return Err("the place that it asks for is no host with a port");
    }
    // An address of IPv6 has colons within its brackets.
    let behind = text.rsplit_once(']').map_or(text, |(_, behind)| behind);
    match (behind.split_once(':'), port) {
        (Some((_, own)), _) if !own.is_empty() && own.bytes().all(|it| it.is_ascii_digit()) => {
            Ok(text.to_owned())
        }
        (None, Some(port)) => Ok(format!("{text}:{port}")),
        _ => Err("the place that it asks for has no port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> (String, String, u64) {
        let asked = parse(text.as_bytes()).unwrap();
        let Kind::Plain { head, body } = asked.kind else { panic!("{text}") };
        (asked.to, String::from_utf8(head).unwrap(), body)
    }

    #[test]
    fn a_tunnel_leads_to_a_host_and_a_port() {
        for to in ["docs.rs:443", "[::1]:8080", "127.0.0.1:80"] {
            let asked = parse(format!("CONNECT {to} HTTP/1.1\r\nHost: other\r\n\r\n").as_bytes());

            let wanted = Asked { to: to.to_owned(), credentials: None, kind: Kind::Tunnel };
            assert_eq!(asked, Ok(wanted));
        }
    }

    #[test]
    fn a_plain_request_goes_to_whom_its_address_names_without_what_is_meant_for_the_proxy() {
        let (to, head, body) = plain(
            "POST http://Docs.rs/a?b=http://c HTTP/1.1\r\nHost: other.example\r\nAccept: */*\r\n\
             Proxy-Authorization: Basic eDp5\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\
             Content-Length: 5\r\n\r\n",
        );

        assert_eq!((to.as_str(), body), ("Docs.rs:80", 5));
        let wanted = "POST /a?b=http://c HTTP/1.1\r\nHost: Docs.rs\r\nAccept: */*\r\nContent-Length: 5\r\n\
                      Connection: close\r\n\r\n";
        assert_eq!(head, wanted);
        let (to, head, _) = plain("GET http://[::1]:8080?q HTTP/1.0\r\n\r\n");
        assert_eq!(to, "[::1]:8080");
        assert!(head.starts_with("GET /?q HTTP/1.0\r\nHost: [::1]:8080\r\n"), "{head}");
    }

    #[test]
    fn credentials_are_those_of_the_scheme_basic() {
        let credentials = |value: &str| {
            let head = format!("CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: {value}\r\n\r\n");
            parse(head.as_bytes()).unwrap().credentials
        };

        assert_eq!(credentials("basic  eDp5"), Some("eDp5".to_owned()));
        assert_eq!(credentials("Bearer eDp5"), Some(String::new()));
        assert_eq!(credentials(""), Some(String::new()));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_read_in_none() {
        for wrong in [
            "CONNECT docs.rs HTTP/1.1\r\n\r\n",
            "CONNECT docs.rs: HTTP/1.1\r\n\r\n",
            "CONNECT user@docs.rs:443 HTTP/1.1\r\n\r\n",
            "CONNECT docs.rs:443/ HTTP/1.1\r\n\r\n",
            "CONNECT docs.rs:443 HTTP/2\r\n\r\n",
            "CONNECT  docs.rs:443 HTTP/1.1\r\n\r\n",
            "CONNECT docs.rs:4a HTTP/1.1\r\n\r\n",
            "CONNECT d%6fcs.rs:443 HTTP/1.1\r\n\r\n",
            "CONNECT docs.rs:443 HTTP/1.1\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: docs.rs\r\n\r\n",
            "GET https://docs.rs/ HTTP/1.1\r\n\r\n",
            "GET ftp://docs.rs/ HTTP/1.1\r\n\r\n",
            "GET http://user:word@docs.rs/ HTTP/1.1\r\n\r\n",
            "GET http://docs.rs\\.evil/ HTTP/1.1\r\n\r\n",
            "GET http://docs.rs#.evil/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA : b\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nA: b\rHost: c\r\n\r\n",
            "get http://a/ HTTP/1.1\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
