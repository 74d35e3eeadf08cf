//! What a client sent.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt};

/// The longest head, and the longest body, that a test has a reason to send, in bytes.
const HEAD_LIMIT: u64 = 64 * 1024;
const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// One request as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method, in capitals as it came.
    pub method: String,
    /// The path and the query, as they came.
    pub target: String,
    /// The headers in their order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, its transfer encoding undone.
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the path without the query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    /// Returns the first header of that name, which is compared without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the body as text, with U+FFFD for what is not UTF-8.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Reads one request, or `None` when the client has ended the connection between two.
pub(super) async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Request>> {
    let mut head = stream.take(HEAD_LIMIT);
    let first = line(&mut head).await?;
    if first.is_empty() {
        return Ok(None);
    }
    let (method, target) = first
        .strip_suffix(" HTTP/1.1")
        .and_then(|start| start.split_once(' '))
        .ok_or_else(|| unusable(&first))?;
    let mut request = Request {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    loop {
        let header = line(&mut head).await?;
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').ok_or_else(|| unusable(&header))?;
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let chunked = request.header("transfer-encoding").is_some_and(|coding| coding == "chunked");
    request.body = if chunked {
        read_chunks(stream).await?
    } else {
        let length = request.header("content-length").unwrap_or("0");
        read_exactly(stream, length.parse().map_err(|_| unusable(length))?).await?
    };
    Ok(Some(request))
}

async fn read_chunks(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(stream).await?;
        let length = usize::from_str_radix(&size, 16).map_err(|_| unusable(&size))?;
        body.extend(read_exactly(stream, length).await?);
        line(stream).await?;
        if length == 0 {
            return Ok(body);
        }
    }
}

async fn read_exactly(stream: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<Vec<u8>> {
    if length > BODY_LIMIT {
        return Err(unusable(&length.to_string()));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Reads up to the next line ending and returns the line without it.
async fn line(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn unusable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP/1.1 as expected: {what}"))
}
