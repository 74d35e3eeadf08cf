//! Runs as a file that stands for itself: their events, the blobs that these refer to, and the chain.
//!
//! A bundle is lines of JSON, compressed by zstd or not. Of each run there is a line that says how it ends, then
//! its events in order, each blob before the first event that names it. The last line counts what was before, so
//! that a bundle that was cut is found out. The data of an event stands there byte for byte as it was hashed.

use std::io::{self, Write};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use formwork_protocols::{BlobHash, RunId, StoreError, TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

mod check; // What is believed of a bundle: nothing that was not counted.

pub(crate) use check::{Item, Reader};

/// The version of the format that is written, and the newest that is read.
///
/// Of format 1 no blob comes in parts.
pub(crate) const FORMAT: u32 = 2;

/// Why runs could not be taken out into a bundle, or in from one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum BundleError {
    /// The bundle is not what was written, or none at all. Nothing of it was recorded.
    #[error("line {line} of the bundle: {reason}")]
    Forged { line: u64, reason: String },
    /// A later version wrote it.
    #[error("the bundle has format {found}, this program knows up to {FORMAT}")]
    TooNew { found: u32 },
    /// A run of its id is here, and it is another. What is here stays.
    #[error("run {run} is here already and is another: {here} events here, {there} in the bundle")]
    Differs { run: RunId, here: u64, there: u64 },
    /// The run is not sound, so that a bundle of it would be refused.
    #[error("run {run} cannot be taken out: {reason}")]
    Unsound { run: RunId, reason: String },
    /// It refers to more than a bundle holds of one blob, and most stores.
    #[error(
        "run {run} cannot be taken out: blob {blob}, of event {seq}, has {bytes} bytes, and a bundle holds at most {MOST} of one"
    )]
    TooLarge { run: RunId, seq: u64, blob: BlobHash, bytes: usize },
    /// A secret has become known since it was recorded, and the bundle would carry it.
    #[error("run {run} cannot be taken out: {place} holds what is known to be a secret by now")]
    Secret { run: RunId, place: String },
    /// The file cannot be read or written.
    #[error("the bundle cannot be read or written")]
    Io(#[from] io::Error),
    /// The store failed, as it says.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A line of a bundle.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// The first.
    Bundle { format: u32, program: String },
    /// A run begins.
    Run { run: RunId, events: u64, head: BlobHash },
    /// Bytes that events name.
    #[serde(borrow)]
    Blob(BlobLine<'a>),
    /// The next bytes of a blob that one line does not hold.
    #[serde(borrow)]
    Part(PartLine<'a>),
    /// An event of the run that began last.
    #[serde(borrow)]
    Event(Box<EventLine<'a>>),
    /// The last.
    End { runs: u64, events: u64, blobs: u64 },
}

/// The longest line. A file of a few bytes may say that it holds more than there is memory.
pub(crate) const LONGEST: usize = 64 * 1024 * 1024;

/// The largest blob that is one line, and how much of a larger one a line holds: in base64 a third more. What tools and programs
/// leave is about as much at the most.
pub(crate) const PART: usize = 12 * 1024 * 1024;

/// The largest blob that a bundle holds: what SQLite keeps in a row. Source: its documentation of limits, SQLITE_MAX_LENGTH.
pub(crate) const MOST: usize = 1_000_000_000;

/// A part of a blob. Its parts stand one after another, and end where there are as many bytes as each says.
#[derive(Serialize, Deserialize)]
pub(crate) struct PartLine<'a> {
    pub(crate) hash: BlobHash,
    /// How many bytes the blob has.
    pub(crate) bytes: u64,
    #[serde(borrow)]
    pub(crate) base64: std::borrow::Cow<'a, str>,
}

/// A blob: as text where it is one.
#[derive(Serialize, Deserialize)]
pub(crate) struct BlobLine<'a> {
    pub(crate) hash: BlobHash,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    base64: Option<std::borrow::Cow<'a, str>>,
}

impl<'a> BlobLine<'a> {
    pub(crate) fn new(hash: BlobHash, bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            // Escapes make more of some texts than base64 does.
            Ok(text) if escaped(text) <= bytes.len() / 3 * 4 => {
                Self { hash, text: Some(text.into()), base64: None }
            }
            _ => Self { hash, text: None, base64: Some(BASE64_STANDARD.encode(bytes).into()) },
        }
    }

    fn into_bytes(self) -> Option<Vec<u8>> {
        match (self.text, self.base64) {
            (Some(text), None) => Some(text.into_owned().into_bytes()),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64.as_bytes()).ok(),
            _ => None,
        }
    }
}

/// Returns how many bytes JSON makes of a text.
fn escaped(text: &str) -> usize {
    let each = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 8 | 12 => 2,
        0..0x20 => 6,
        _ => 1,
    });
    each.sum()
}

/// An event, without what the run's own line says.
#[derive(Serialize, Deserialize)]
pub(crate) struct EventLine<'a> {
    pub(crate) seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<TaskId>,
    pub(crate) principal: String,
    /// In microseconds since the epoch.
    pub(crate) at: Timestamp,
    pub(crate) kind: String,
    #[serde(borrow)]
    pub(crate) data: &'a RawValue,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    pub(crate) hash: BlobHash,
}

/// How a bundle is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Lines that anyone can read.
    Plain,
    /// The same, compressed by zstd.
    Compressed,
}

/// Writes lines, counting what it writes.
pub(crate) struct Writer<W: Write> {
    out: Out<W>,
    runs: u64,
    events: u64,
    blobs: u64,
}

enum Out<W: Write> {
    Plain(io::BufWriter<W>),
    Compressed(Box<zstd::stream::write::Encoder<'static, W>>),
}

/// What a bundle holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the fields' names say it")]
pub struct Counts {
    pub runs: u64,
    pub events: u64,
    pub blobs: u64,
}

/// How hard an archive is compressed: it is written once, and nobody waits for it.
const LEVEL: i32 = 9;

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W, form: Form) -> io::Result<Self> {
        let out = match form {
            Form::Plain => Out::Plain(io::BufWriter::new(out)),
            Form::Compressed => {
                let mut encoder = zstd::stream::write::Encoder::new(out, LEVEL)?;
                encoder.include_checksum(true)?;
                Out::Compressed(Box::new(encoder))
            }
        };
        let mut writer = Self { out, runs: 0, events: 0, blobs: 0 };
        let program = env!("CARGO_PKG_VERSION").to_owned();
        writer.line(&Line::Bundle { format: FORMAT, program })?;
        Ok(writer)
    }

    pub(crate) fn write(&mut self, line: &Line<'_>) -> io::Result<()> {
        match line {
            Line::Run { .. } => self.runs += 1,
            Line::Event(_) => self.events += 1,
            Line::Blob(_) => self.blobs += 1,
            Line::Bundle { .. } | Line::Part(_) | Line::End { .. } => {}
        }
        self.line(line)
    }

    /// Writes a blob, in parts where a line does not hold it.
    pub(crate) fn blob(&mut self, hash: BlobHash, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() <= PART {
            return self.write(&Line::Blob(BlobLine::new(hash, bytes)));
        }
        let all = bytes.len() as u64;
        for part in bytes.chunks(PART) {
            let base64 = BASE64_STANDARD.encode(part).into();
            self.line(&Line::Part(PartLine { hash, bytes: all, base64 }))?;
        }
        self.blobs += 1;
        Ok(())
    }

    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        match &mut self.out {
            Out::Plain(out) => out.write_all(&bytes),
            Out::Compressed(out) => out.write_all(&bytes),
        }
    }

    /// Writes the last line and hands back what was written to.
    pub(crate) fn finish(mut self) -> io::Result<(W, Counts)> {
        let Self { runs, events, blobs, .. } = self;
        self.line(&Line::End { runs, events, blobs })?;
        let out = match self.out {
            Out::Plain(out) => out.into_inner().map_err(io::IntoInnerError::into_error)?,
            Out::Compressed(out) => out.finish()?,
        };
        Ok((out, Counts { runs, events, blobs }))
    }
}
