//! What a command wrote: counted, hashed, shortened, and kept whole.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

use crate::Caps;

/// Bytes per read: what a Linux pipe holds.
const READ: usize = 64 << 10;

/// One stream of output.
#[derive(Debug)]
pub struct Captured {
    /// The first bytes; all of them when nothing was left out.
    pub head: Bytes,
    /// The last bytes, after what was left out; empty when nothing was.
    pub tail: Bytes,
    /// How many bytes were written.
    pub total_bytes: u64,
    /// The hash of all of them, of those too that were not kept.
    pub blake3: blake3::Hash,
    /// All of them.
    pub whole: Whole,
}

/// Where the whole of a stream is.
#[derive(Debug)]
pub enum Whole {
    /// In memory, since it was short.
    Memory(Bytes),
    /// In a temporary file without a name, which is gone once this is dropped.
    File(File),
    /// Nowhere, for the reason given: it was more than [`Caps::whole`], or the disk refused it.
    Missing(String),
}

impl Captured {
    /// Returns how many bytes lie between head and tail.
    pub fn left_out(&self) -> u64 {
        self.total_bytes.saturating_sub((self.head.len() + self.tail.len()) as u64)
    }

    /// Returns the output as text: head and tail, with a line between them that says how much was
    /// left out. Bytes that are not UTF-8 become U+FFFD; no character is cut.
    pub fn preview(&self) -> String {
        if self.left_out() == 0 {
            return String::from_utf8_lossy(&[&self.head[..], &self.tail[..]].concat())
                .into_owned();
        }
        let head = without_cut_end(&self.head);
        let tail = without_cut_start(&self.tail);
        let left_out = self.total_bytes.saturating_sub((head.len() + tail.len()) as u64);
        format!(
            "{}\n[{left_out} bytes left out]\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        )
    }
}

impl Whole {
    /// Reads all of it from the start.
    ///
    /// # Errors
    /// When the file cannot be read, or when there is none.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => Ok(bytes.to_vec()),
            Self::File(file) => {
                let mut bytes = Vec::new();
                file.seek(SeekFrom::Start(0))?;
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Self::Missing(reason) => Err(io::Error::other(reason.clone())),
        }
    }
}

/// Which stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output for whoever watches live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where it was written.
    pub stream: Stream,
    /// What was written. A character may be split over two chunks.
    pub bytes: Bytes,
    /// How many bytes, of either stream, were written before it and not sent, because the watcher was behind.
    pub missed: u64,
}

/// Records both streams of one run.
pub(crate) struct Recorder<'a> {
    stdout: Capture<'a>,
    stderr: Capture<'a>,
    combined: Capture<'a>,
    watcher: Option<mpsc::Sender<Chunk>>,
    missed: u64,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(caps: Caps, spool: &'a Path, watcher: Option<mpsc::Sender<Chunk>>) -> Self {
        let capture = || Capture::new(caps, spool);
        Self { stdout: capture(), stderr: capture(), combined: capture(), watcher, missed: 0 }
    }

    /// Reads both streams until nobody can write to them any more.
    ///
    /// Cancel safe: what was read is recorded.
    pub(crate) async fn pump(
        &mut self,
        mut stdout: impl AsyncRead + Unpin,
        mut stderr: impl AsyncRead + Unpin,
    ) {
        let (mut out, mut err) = (BytesMut::new(), BytesMut::new());
        let (mut out_open, mut err_open) = (true, true);
        while out_open || err_open {
            out.reserve(READ);
            err.reserve(READ);
            // A pipe that cannot be read is one that is closed.
            let stream = tokio::select! {
                read = stdout.read_buf(&mut out), if out_open => {
                    out_open = read.is_ok_and(|count| count > 0);
                    Stream::Stdout
                }
                read = stderr.read_buf(&mut err), if err_open => {
                    err_open = read.is_ok_and(|count| count > 0);
                    Stream::Stderr
                }
            };
            let bytes = match stream {
                Stream::Stdout => out.split(),
                Stream::Stderr => err.split(),
            };
            self.record(stream, bytes.freeze()).await;
        }
    }

    async fn record(&mut self, stream: Stream, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        match stream {
            Stream::Stdout => self.stdout.push(&bytes).await,
            Stream::Stderr => self.stderr.push(&bytes).await,
        }
        self.combined.push(&bytes).await;
        let Some(watcher) = &self.watcher else { return };
        // Waiting for a slow watcher would stop the command, so it misses some instead.
        let length = bytes.len() as u64;
        match watcher.try_send(Chunk { stream, bytes, missed: self.missed }) {
            Ok(()) => self.missed = 0,
            Err(mpsc::error::TrySendError::Full(_)) => self.missed += length,
            Err(mpsc::error::TrySendError::Closed(_)) => self.watcher = None,
        }
    }

    /// Returns standard output, standard error and both combined.
    pub(crate) async fn finish(self) -> [Captured; 3] {
        [self.stdout.finish().await, self.stderr.finish().await, self.combined.finish().await]
    }
}

/// Records one stream in memory that its caps bound, whatever its length.
struct Capture<'a> {
    caps: Caps,
    spool: &'a Path,
    total: u64,
    hasher: blake3::Hasher,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    whole: Spooled,
}

enum Spooled {
    /// Nothing was left out yet, so that head and tail are the whole.
    NotYet,
    File(tokio::fs::File),
    Missing(String),
}

impl<'a> Capture<'a> {
    fn new(caps: Caps, spool: &'a Path) -> Self {
        Self {
            caps,
            spool,
            total: 0,
            hasher: blake3::Hasher::new(),
            head: Vec::new(),
            tail: VecDeque::new(),
            whole: Spooled::NotYet,
        }
    }

    async fn push(&mut self, bytes: &[u8]) {
        self.spool(bytes).await;
        self.hasher.update(bytes);
        self.total += bytes.len() as u64;
        let room = self.caps.head.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        // Only the last bytes can stay, so no more than those go in.
        let rest = &rest[rest.len().saturating_sub(self.caps.tail)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.caps.tail);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Keeps `bytes` for the whole, in a file once they no longer fit head and tail.
    async fn spool(&mut self, bytes: &[u8]) {
        let after = self.total + bytes.len() as u64;
        let fits = (self.caps.head as u64).saturating_add(self.caps.tail as u64);
        if after > self.caps.whole {
            let cap = self.caps.whole;
            self.whole = Spooled::Missing(format!("more than {cap} bytes were written"));
        } else if matches!(self.whole, Spooled::NotYet) && after > fits {
            self.whole = match self.open().await {
                Ok(file) => Spooled::File(file),
                Err(error) => Spooled::Missing(format!("no temporary file: {error}")),
            };
        }
        if let Spooled::File(file) = &mut self.whole
            && let Err(error) = file.write_all(bytes).await
        {
            self.whole = Spooled::Missing(format!("the temporary file was not written: {error}"));
        }
    }

    async fn open(&self) -> io::Result<tokio::fs::File> {
        let mut file = tokio::fs::File::from_std(tempfile::tempfile_in(self.spool)?);
        let (front, back) = self.tail.as_slices();
        for part in [&self.head[..], front, back] {
            file.write_all(part).await?;
        }
        Ok(file)
    }

    async fn finish(mut self) -> Captured {
        if let Spooled::File(file) = &mut self.whole
            && let Err(error) = file.flush().await
        {
            self.whole = Spooled::Missing(format!("the temporary file was not written: {error}"));
        }
        let whole = match self.whole {
            Spooled::File(file) => Whole::File(file.into_std().await),
            Spooled::Missing(reason) => Whole::Missing(reason),
            Spooled::NotYet => {
                self.head.extend(self.tail.drain(..));
                Whole::Memory(Bytes::from(std::mem::take(&mut self.head)))
            }
        };
        let head = match &whole {
            Whole::Memory(bytes) => bytes.clone(),
            Whole::File(_) | Whole::Missing(_) => Bytes::from(self.head),
        };
        Captured {
            head,
            tail: Bytes::from(Vec::from(self.tail)),
            total_bytes: self.total,
            blake3: self.hasher.finalize(),
            whole,
        }
    }
}

/// Returns `bytes` without the beginning of a character whose end is missing.
fn without_cut_end(bytes: &[u8]) -> &[u8] {
    let last = bytes.len().saturating_sub(3);
    let start = bytes.iter().skip(last).rposition(|byte| byte & 0xC0 != 0x80).map(|at| last + at);
    match start {
        Some(start) if bytes.len() - start < width(bytes[start]) => &bytes[..start],
        _ => bytes,
    }
}

/// Returns `bytes` without the end of a character whose beginning is missing.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.iter().take(3).take_while(|byte| *byte & 0xC0 == 0x80).count();
    &bytes[cut..]
}

/// Returns how many bytes a character has that begins with `first`.
fn width(first: u8) -> usize {
    match first {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(chunks: &[Vec<u8>], caps: Caps) -> Captured {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let spool = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let mut capture = Capture::new(caps, spool.path());
            for chunk in chunks {
                capture.push(chunk).await;
            }
            capture.finish().await
        })
    }

    proptest! {
        #[test]
        fn a_record_holds_head_tail_hash_and_whole(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            head in 0_usize..50,
            tail in 0_usize..50,
        ) {
            let written = chunks.concat();

            let mut captured = record(&chunks, Caps { head, tail, whole: 1 << 20 });

            prop_assert_eq!(captured.total_bytes, written.len() as u64);
            prop_assert_eq!(captured.blake3, blake3::hash(&written));
            prop_assert_eq!(captured.whole.read().unwrap(), &written[..]);
            if written.len() <= head + tail {
                prop_assert_eq!(&captured.head[..], &written[..]);
            } else {
                prop_assert_eq!(&captured.head[..], &written[..head]);
                prop_assert_eq!(&captured.tail[..], &written[written.len() - tail..]);
            }
        }

        #[test]
        fn a_preview_cuts_no_character(text in "\\PC{0,60}", head in 0_usize..30, tail in 0_usize..30) {
            prop_assume!(!text.contains('\u{FFFD}'));
            let captured = record(&[text.into_bytes()], Caps { head, tail, whole: 1 << 20 });

            let preview = captured.preview();

            prop_assert!(!preview.contains('\u{FFFD}'), "{:?}", preview);
        }
    }

    #[test]
    fn what_is_more_than_the_cap_is_counted_and_hashed_but_not_kept() {
        let captured = record(&[vec![7; 10], vec![8; 10]], Caps { head: 2, tail: 3, whole: 15 });

        assert_eq!((&captured.head[..], &captured.tail[..]), (&[7, 7][..], &[8, 8, 8][..]));
        assert_eq!(captured.total_bytes, 20);
        assert_eq!(captured.blake3, blake3::hash(&[[7; 10], [8; 10]].concat()));
        assert!(matches!(captured.whole, Whole::Missing(_)));
    }

    #[test]
    fn a_preview_says_how_much_was_left_out() {
        let captured = record(&[b"abcdefghij".to_vec()], Caps { head: 2, tail: 3, whole: 15 });

        assert_eq!(captured.preview(), "ab\n[5 bytes left out]\nhij");
    }
}
