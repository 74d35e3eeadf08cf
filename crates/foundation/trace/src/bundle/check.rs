//! What is believed of a bundle: nothing that was not counted.

use std::{
    collections::HashSet,
    io::{self, BufRead, BufReader, Read},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use formwork_protocols::{
    BlobHash, Event, EventBody, Position, Principal, RunId, TaskId,
    event::{GENESIS, Link},
};

use super::{BlobLine, BundleError, Counts, EventLine, FORMAT, LONGEST, Line, MOST, PartLine};

/// The first bytes of a frame of zstd. Source: RFC 8878, section 3.1.1.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// How far back a compressed bundle may refer to, as a power of two: 8 MiB, which are set aside for it. What is written here
/// needs half of it, and whoever compresses by `zstd -19` all of it.
const WINDOW_LOG: u32 = 23;

/// What of a line is kept room for until the next one.
const KEPT: usize = 1024 * 1024;

/// What a bundle says, once it was checked as far as that.
pub(crate) enum Item {
    Run {
        run: RunId,
        events: u64,
        head: BlobHash,
    },
    /// Nothing of it where the bundle is only checked, and it came in parts.
    Blob(Vec<u8>),
    Event(Box<Checked>),
    End,
}

/// An event whose hash is that of its contents and of the one before. Its position is still to be given.
pub(crate) struct Checked {
    pub(crate) event: Event,
    /// The text that was hashed.
    pub(crate) data: String,
}

/// Reads a bundle from its beginning and refuses what is not as it was written.
pub(crate) struct Reader<'a> {
    input: Box<dyn BufRead + Send + 'a>,
    buffer: Vec<u8>,
    line: u64,
    state: State,
    counts: Counts,
    blobs: HashSet<BlobHash>,
    runs: HashSet<RunId>,
    /// Whether what comes in parts is kept, and what came of it.
    keeps: bool,
    parts: Option<Parts>,
}

/// A blob of which parts came.
struct Parts {
    hash: BlobHash,
    bytes: u64,
    came: u64,
    hasher: blake3::Hasher,
    kept: Vec<u8>,
}

enum State {
    Start,
    Between,
    Within(Progress),
    Done,
}

struct Progress {
    run: RunId,
    events: u64,
    head: BlobHash,
    seq: u64,
    previous: BlobHash,
    tasks: HashSet<TaskId>,
}

impl Progress {
    /// Says why an event cannot stand where it does in a run: it begins once, and each task is below an earlier one.
    fn misplaced(&mut self, seq: u64, task: Option<TaskId>, body: &EventBody) -> Option<String> {
        match body {
            EventBody::RunCreated(_) if seq != 1 => Some("the run begins again".to_owned()),
            EventBody::RunCreated(_) => None,
            _ if seq == 1 => Some("a run begins with run.created".to_owned()),
            // Whoever could bring their own would let themselves in.
            EventBody::CredentialIssued(_)
            | EventBody::CredentialRotated(_)
            | EventBody::CredentialRevoked(_) => Some("a run gives no credentials".to_owned()),
            EventBody::TaskCreated(created) => {
                let Some(task) = task else { return Some("it names no task".to_owned()) };
                let placed = match created.parent {
                    None if self.tasks.is_empty() => true,
                    None => return Some(format!("task {task} is a second root")),
                    Some(parent) => self.tasks.contains(&parent),
                };
                if !placed {
                    return Some(format!("task {task} is below one that is not there"));
                }
                (!self.tasks.insert(task)).then(|| format!("task {task} is there twice"))
            }
            _ => None,
        }
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(input: impl Read + Send + 'a) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(256 * 1024, input);
        let is_compressed = input.fill_buf()?.starts_with(&MAGIC);
        let input: Box<dyn BufRead + Send + 'a> = if is_compressed {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
            decoder.window_log_max(WINDOW_LOG)?;
            Box::new(BufReader::with_capacity(256 * 1024, decoder))
        } else {
            Box::new(input)
        };
        Ok(Self {
            input,
            buffer: Vec::new(),
            line: 0,
            state: State::Start,
            counts: Counts::default(),
            blobs: HashSet::new(),
            runs: HashSet::new(),
            keeps: true,
            parts: None,
        })
    }

    /// Reads a bundle of which nothing is kept.
    pub(crate) fn to_check(input: impl Read + Send + 'a) -> io::Result<Self> {
        Ok(Self { keeps: false, ..Self::new(input)? })
    }

    /// Returns what comes next; nothing after the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, BundleError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let read = self.input.by_ref().take(LONGEST as u64).read_until(b'\n', &mut buffer);
        self.line += 1;
        let item = match read {
            Ok(0) => self.at_end(),
            Ok(_) => self.item(&buffer),
            // The compressed form has its own checks, which an altered or a cut file fails.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Other
                        | io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::InvalidData
                ) =>
            {
                Err(self.forged(format!("it cannot be decompressed: {error}")))
            }
            Err(error) => Err(error.into()),
        };
        buffer.clear();
        buffer.shrink_to(KEPT);
        self.buffer = buffer;
        item
    }

    fn forged(&self, reason: impl Into<String>) -> BundleError {
        BundleError::Forged { line: self.line, reason: reason.into() }
    }

    fn at_end(&self) -> Result<Option<Item>, BundleError> {
        match &self.state {
            State::Done => Ok(None),
            State::Start => Err(self.forged("the file is empty")),
            State::Between | State::Within(_) => Err(self.forged("its end is missing")),
        }
    }

    fn item(&mut self, bytes: &[u8]) -> Result<Option<Item>, BundleError> {
        if bytes.len() >= LONGEST {
            return Err(self.forged(format!("it is longer than {LONGEST} bytes")));
        }
        if bytes.last() != Some(&b'\n') {
            return Err(self.forged("it is cut short"));
        }
        let line: Line<'_> = match serde_json::from_slice(bytes) {
            Ok(line) => line,
            Err(_) if self.line == 1 => return Err(self.forged("the file is no bundle of runs")),
            Err(error) => return Err(self.forged(format!("it cannot be read: {error}"))),
        };
        if let (Some(parts), false) = (&self.parts, matches!(line, Line::Part(_))) {
            let hash = parts.hash;
            return Err(self.forged(format!("blob {hash} is cut short")));
        }
        match (line, &self.state) {
            (Line::Bundle { format, .. }, State::Start) => {
                if format > FORMAT {
                    return Err(BundleError::TooNew { found: format });
                }
                self.state = State::Between;
                self.next()
            }
            (_, State::Start) => Err(self.forged("the file is no bundle of runs")),
            (_, State::Done) => Err(self.forged("something follows the end")),
            (Line::Bundle { .. }, _) => Err(self.forged("the bundle begins again")),
            (Line::Run { run, events, head }, _) => {
                self.run_is_whole()?;
                if events == 0 {
                    return Err(self.forged(format!("run {run} has no events")));
                }
                // Whoever could bring one would say what a source has sent, or where a subscription stands.
                if run.is_of_log() {
                    return Err(
                        self.forged(format!("{run} names a log of something else, and no run"))
                    );
                }
                if !self.runs.insert(run) {
                    return Err(self.forged(format!("run {run} is there twice")));
                }
                self.counts.runs += 1;
                let previous = GENESIS;
                self.state = State::Within(Progress {
                    run,
                    events,
                    head,
                    seq: 0,
                    previous,
                    tasks: HashSet::new(),
                });
                Ok(Some(Item::Run { run, events, head }))
            }
            (Line::Blob(blob), _) => self.blob(blob).map(Some),
            (Line::Part(part), _) => match self.part(&part)? {
                Some(item) => Ok(Some(item)),
                None => self.next(),
            },
            (Line::Event(event), _) => self.event(&event).map(Some),
            (Line::End { runs, events, blobs }, _) => {
                self.run_is_whole()?;
                let counted = Counts { runs, events, blobs };
                if counted != self.counts {
                    let found = self.counts;
                    return Err(self.forged(format!(
                        "it counts {runs} runs, {events} events and {blobs} blobs, but there were {}, {} and {}",
                        found.runs, found.events, found.blobs
                    )));
                }
                self.state = State::Done;
                Ok(Some(Item::End))
            }
        }
    }

    /// Checks that the run that came last, if one did, came to the end that was said of it.
    fn run_is_whole(&self) -> Result<(), BundleError> {
        let State::Within(at) = &self.state else { return Ok(()) };
        if at.seq != at.events {
            return Err(self.forged(format!(
                "run {} has {} events here and should have {}",
                at.run, at.seq, at.events
            )));
        }
        if at.previous != at.head {
            return Err(self.forged(format!("run {} does not end with {}", at.run, at.head)));
        }
        Ok(())
    }

    fn blob(&mut self, blob: BlobLine<'_>) -> Result<Item, BundleError> {
        let hash = blob.hash;
        let Some(bytes) = blob.into_bytes() else {
            return Err(self.forged(format!("blob {hash} has no bytes that can be read")));
        };
        if BlobHash::of(&bytes) != hash {
            return Err(self.forged(format!("the bytes of blob {hash} are not those of its hash")));
        }
        self.blobs.insert(hash);
        self.counts.blobs += 1;
        Ok(Item::Blob(bytes))
    }

    /// Takes the next part of a blob. Returns the blob with the last one.
    fn part(&mut self, part: &PartLine<'_>) -> Result<Option<Item>, BundleError> {
        let hash = part.hash;
        let mut parts = self.parts.take().unwrap_or_else(|| Parts {
            hash,
            bytes: part.bytes,
            came: 0,
            hasher: blake3::Hasher::new(),
            kept: Vec::new(),
        });
        if (parts.hash, parts.bytes) != (hash, part.bytes) {
            return Err(self.forged(format!("blob {} is cut short", parts.hash)));
        }
        let more = BASE64_STANDARD.decode(part.base64.as_bytes()).unwrap_or_default();
        parts.came = parts.came.saturating_add(more.len() as u64);
        if more.is_empty() || parts.came > parts.bytes || parts.bytes > MOST as u64 {
            return Err(self.forged(format!("blob {hash} has no bytes that can be read")));
        }
        parts.hasher.update(&more);
        if self.keeps {
            parts.kept.extend(more);
        }
        if parts.came < parts.bytes {
            self.parts = Some(parts);
            return Ok(None);
        }
        if BlobHash::from_bytes(*parts.hasher.finalize().as_bytes()) != hash {
            return Err(self.forged(format!("the bytes of blob {hash} are not those of its hash")));
        }
        self.blobs.insert(hash);
        self.counts.blobs += 1;
        Ok(Some(Item::Blob(parts.kept)))
    }

    fn event(&mut self, line: &EventLine<'_>) -> Result<Item, BundleError> {
        let forged = |reason: String| BundleError::Forged { line: self.line, reason };
        let State::Within(at) = &mut self.state else {
            return Err(forged("an event stands before its run".to_owned()));
        };
        let (run, seq) = (at.run, line.seq);
        if seq != at.seq + 1 {
            return Err(forged(format!("after event {} of run {run} comes {seq}", at.seq)));
        }
        let data = line.data.get();
        let link = Link {
            run,
            seq,
            task: line.task,
            principal: &line.principal,
            at: line.at,
            kind: &line.kind,
            data,
            idempotency_key: line.key.as_deref(),
        };
        let hash = link.hash(&at.previous);
        if hash != line.hash {
            return Err(forged(format!(
                "event {seq} of run {run} is not what was written: its hash is {hash}, not {}",
                line.hash
            )));
        }
        let unreadable =
            |reason: String| forged(format!("event {seq} of run {run} cannot be read: {reason}"));
        crate::prepare::named_well(&line.kind, line.key.as_deref()).map_err(unreadable)?;
        let body =
            EventBody::parse(&line.kind, data).map_err(|error| unreadable(error.to_string()))?;
        let principal =
            Principal::parse(&*line.principal).map_err(|error| unreadable(error.to_string()))?;
        if let Some(missing) = body.blobs().into_iter().find(|hash| !self.blobs.contains(hash)) {
            return Err(forged(format!(
                "event {seq} of run {run} refers to {missing}, which is not in the bundle"
            )));
        }
        if let Some(why) = at.misplaced(seq, line.task, &body) {
            return Err(forged(format!("event {seq} of run {run} cannot stand there: {why}")));
        }
        (at.seq, at.previous) = (seq, hash);
        self.counts.events += 1;
        let event = Event {
            position: Position::default(),
            run,
            seq,
            task: line.task,
            principal,
            at: line.at,
            body,
            idempotency_key: line.key.clone(),
            hash,
        };
        Ok(Item::Event(Box::new(Checked { event, data: data.to_owned() })))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use zstd::stream::write::Encoder;

    use super::{super::PART, *};

    fn refused(bytes: &[u8]) -> String {
        match Reader::new(bytes).unwrap().next() {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was read"),
        }
    }

    #[test]
    fn a_file_of_a_few_bytes_that_holds_a_line_without_end_is_not_read_on() {
        let mut encoder = Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(b"{\"bundle\":{\"format\":1,\"program\":\"").unwrap();
        let filler = vec![b'a'; 1024 * 1024];
        for _ in 0..LONGEST / filler.len() + 1 {
            encoder.write_all(&filler).unwrap();
        }
        let bytes = encoder.finish().unwrap();

        let told = refused(&bytes);

        assert!(bytes.len() < 64 * 1024, "{}", bytes.len());
        assert_eq!(told, format!("line 1 of the bundle: it is longer than {LONGEST} bytes"));
    }

    #[test]
    fn a_window_that_is_larger_than_what_is_written_needs_is_refused() {
        let of = |window: u32| {
            let mut encoder = Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(window).unwrap();
            encoder.write_all(b"{}\n").unwrap();
            // What is written so far goes out before it is known how much there is.
            encoder.flush().unwrap();
            encoder.finish().unwrap()
        };

        assert_eq!(refused(&of(WINDOW_LOG)), "line 1 of the bundle: the file is no bundle of runs");
        let told = refused(&of(WINDOW_LOG + 1));
        assert!(told.starts_with("line 1 of the bundle: it cannot be decompressed: "), "{told}");
    }

    #[test]
    fn a_blob_in_parts_is_the_one_that_its_hash_names_or_none() {
        let bytes = vec![7; 100];
        let hash = BlobHash::of(&bytes);
        let part = |hash: BlobHash, all: u64, part: &[u8]| {
            let base64 = BASE64_STANDARD.encode(part).into();
            serde_json::to_string(&Line::Part(PartLine { hash, bytes: all, base64 })).unwrap()
        };
        let read = |parts: &[String]| {
            let head = r#"{"bundle":{"format":2,"program":""}}"#;
            let text = format!(
                "{head}\n{}\n{{\"end\":{{\"runs\":0,\"events\":0,\"blobs\":1}}}}\n",
                parts.join("\n")
            );
            let mut reader = Reader::new(text.as_bytes()).unwrap();
            match (reader.next(), reader.next()) {
                (Ok(Some(Item::Blob(bytes))), Ok(Some(Item::End))) => Ok(bytes),
                (Err(error), _) => Err(error.to_string()),
                _ => Err("it is something else".to_owned()),
            }
        };

        let other = BlobHash::of(b"other");
        let (one, two) = (part(hash, 100, &bytes[..60]), part(hash, 100, &bytes[60..]));
        assert_eq!(read(&[one.clone(), two]), Ok(bytes.clone()));
        let cut = format!("line 3 of the bundle: blob {hash} is cut short");
        assert_eq!(read(std::slice::from_ref(&one)), Err(cut.clone()));
        assert_eq!(read(&[one.clone(), part(other, 100, &bytes)]), Err(cut));
        let unreadable = |line: u64, hash| {
            Err(format!("line {line} of the bundle: blob {hash} has no bytes that can be read"))
        };
        assert_eq!(read(&[one.clone(), one]), unreadable(3, hash));
        assert_eq!(read(&[part(hash, u64::MAX, &bytes)]), unreadable(2, hash));
        assert_eq!(read(&[part(hash, 100, b"")]), unreadable(2, hash));
        assert_eq!(
            read(&[part(other, 100, &bytes)]),
            Err(format!(
                "line 2 of the bundle: the bytes of blob {other} are not those of its hash"
            ))
        );
    }

    #[test]
    fn a_blob_is_a_third_more_as_a_line_whatever_it_holds_and_the_largest_one_fits() {
        const { assert!(PART / 3 * 4 + 4096 <= LONGEST) };
        for byte in [1, b'"', b'a', 0xff] {
            let bytes = vec![byte; 30_000];
            let hash = BlobHash::of(&bytes);

            let line = serde_json::to_vec(&Line::Blob(BlobLine::new(hash, &bytes))).unwrap();

            assert!(line.len() <= bytes.len() / 3 * 4 + 4096, "{byte}: {}", line.len());
            let Line::Blob(blob) = serde_json::from_slice(&line).unwrap() else {
                panic!("no blob")
            };
            assert!(blob.into_bytes() == Some(bytes), "{byte}");
        }
    }
}
