//! Messages out of a stream, one a line, of which none is longer than a bound.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Whole(Vec<u8>),
    /// One that was longer than the bound, and is passed over.
    TooLong,
    /// Nothing more; what was begun is no line.
    End,
}

/// Lines of a stream.
pub(crate) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    most: usize,
    /// Whether what is read now belongs to a line that is too long.
    passing: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(read: R, most: usize) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), most, passing: false }
    }

    /// Returns what comes next.
    ///
    /// Cancel safe: what was read of a line is kept for the next call.
    ///
    /// # Errors
    /// What the stream says.
    pub(crate) async fn next(&mut self) -> io::Result<Line> {
        loop {
            let found = self.read.fill_buf().await?;
            if found.is_empty() {
                return Ok(Line::End);
            }
            let end = found.iter().position(|byte| *byte == b'\n');
            let part = &found[..end.unwrap_or(found.len())];
            self.passing = self.passing || self.line.len() + part.len() > self.most;
            if !self.passing {
                self.line.extend_from_slice(part);
            }
            let taken = part.len() + usize::from(end.is_some());
            self.read.consume(taken);
            if end.is_none() {
                continue;
            }
            let mut line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.passing) {
                return Ok(Line::TooLong);
            }
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Line::Whole(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_once_and_the_next_is_whole() {
        let text = format!("one\r\n\n{}\ntwo\nthe rest", "x".repeat(50_000));
        let mut lines = Lines::new(text.as_bytes(), 10);
        let mut found = Vec::new();
        loop {
            match lines.next().await.unwrap() {
                Line::End => break,
                line => found.push(line),
            }
        }

        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(found, [whole("one"), Line::TooLong, whole("two")]);
    }
}
