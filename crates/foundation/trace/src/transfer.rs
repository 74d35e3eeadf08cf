//! Runs out of a store into a bundle, and in from one.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    path::Path,
    sync::Arc,
};

use formwork_protocols::{
    Blob, BlobHash, EventBody, RunId, Scrub, StoreError, TaskId, Timestamp,
    event::{GENESIS, Link},
};
use serde_json::value::RawValue;

use crate::{
    archive, audit,
    bundle::{BlobLine, BundleError, EventLine, Item, LARGEST, Line, Reader, Writer},
    changes::{Changes, count},
    database::{Arg, Connection, Database},
    names::hashes_in,
    origin,
    pack::Packer,
    read::{self, Stored},
    tables::{BLOBS, EVENTS, HEADS, Statements},
    writer,
};

/// How many events are held at once.
const PAGE: i64 = 500;

/// How many bytes of blobs are held at once while a run is taken in.
const BLOB_BYTES: usize = 8 * 1024 * 1024;

/// Where a run stands that was written into a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) run: RunId,
    pub(crate) seq: u64,
    pub(crate) hash: BlobHash,
    pub(crate) first_position: i64,
    pub(crate) last_position: i64,
}

/// Writes runs into a bundle, each blob once.
pub(crate) struct Export<'a, W: Write> {
    pub(crate) database: &'a Database,
    pub(crate) scrub: &'a dyn Scrub,
    pub(crate) writer: Writer<W>,
    pub(crate) blobs: HashSet<BlobHash>,
}

impl<W: Write> Export<'_, W> {
    /// Writes a run as it stands now.
    ///
    /// # Errors
    /// [`BundleError::Unsound`], [`BundleError::TooLarge`] or [`BundleError::Secret`] when it may not leave as it is.
    pub(crate) async fn run(&mut self, run: RunId) -> Result<Written, BundleError> {
        let unsound = |reason: String| BundleError::Unsound { run, reason };
        let (seq, head) = match audit::head(self.database, run).await? {
            Some((seq, head)) if seq > 0 => (seq, head),
            _ => return Err(StoreError::NoSuchRun { run }.into()),
        };
        self.writer.write(&Line::Run { run, events: seq, head })?;
        let (mut last, mut previous) = (0, GENESIS);
        let (mut first_position, mut last_position) = (None, 0);
        while last < seq {
            let args = vec![run.as_uuid().into(), count(last).into(), PAGE.into()];
            let rows = self.database.fetch(read::PAGE_OF_RUN, args).await?;
            if rows.is_empty() {
                return Err(unsound(match archive::of(self.database, run).await?.last() {
                    Some(archived) => format!("its events are in the archive {}", archived.file),
                    None => format!("event {} is missing", last + 1),
                }));
            }
            for row in rows {
                let stored = Stored::of(&row).map_err(|error| self.database.failed(&error))?;
                if last == seq {
                    break; // It goes on, and what came since is not asked for.
                }
                if read::unsigned(stored.seq) != Some(last + 1) {
                    return Err(unsound(format!("event {} is missing", last + 1)));
                }
                first_position.get_or_insert(stored.position);
                last_position = stored.position;
                last += 1;
                previous = self.event(run, last, &previous, stored).await?;
            }
        }
        if previous != head {
            return Err(unsound("its end is not the one that the store remembers".to_owned()));
        }
        let first_position = first_position.unwrap_or(0);
        Ok(Written { run, seq, hash: head, first_position, last_position })
    }

    async fn event(
        &mut self,
        run: RunId,
        seq: u64,
        previous: &BlobHash,
        stored: Stored,
    ) -> Result<BlobHash, BundleError> {
        let unsound = |reason: String| BundleError::Unsound { run, reason };
        let Stored { task, principal, at, kind, data, key, hash, .. } = stored;
        let (task, at) = (task.map(TaskId::from_uuid), Timestamp::from_micros(at));
        let link = Link {
            run,
            seq,
            task,
            principal: &principal,
            at,
            kind: &kind,
            data: &data,
            idempotency_key: key.as_deref(),
        };
        let hash = read::hash(&hash)
            .filter(|hash| link.hash(previous) == *hash)
            .ok_or_else(|| unsound(format!("event {seq} is not what was written there")))?;
        let unreadable =
            |error: serde_json::Error| unsound(format!("event {seq} cannot be read: {error}"));
        let body = EventBody::parse(&kind, &data).map_err(unreadable)?;
        self.holds_no_secret(run, &data, || format!("event {seq}"))?;
        let needed: HashSet<BlobHash> = body.blobs().into_iter().collect();
        // What else is named is sent along where it is there: a hash need not be that of a blob.
        for name in needed.iter().copied().chain(hashes_in(&data)) {
            if self.blobs.contains(&name) {
                continue;
            }
            match read::blob(self.database, &name).await? {
                Some(Ok(bytes)) if bytes.len() > LARGEST => {
                    let bytes = bytes.len();
                    return Err(BundleError::TooLarge { run, seq, blob: name, bytes });
                }
                Some(Ok(bytes)) => {
                    if let Ok(text) = std::str::from_utf8(&bytes) {
                        self.holds_no_secret(run, text, || format!("blob {name}"))?;
                    }
                    self.writer.write(&Line::Blob(BlobLine::new(name, &bytes)))?;
                    self.blobs.insert(name);
                }
                Some(Err(reason)) => return Err(unsound(format!("blob {name}: {reason}"))),
                None if needed.contains(&name) => {
                    return Err(unsound(format!("event {seq} refers to {name}, which is gone")));
                }
                None => {}
            }
        }
        let data: &RawValue = serde_json::from_str(&data).map_err(unreadable)?;
        let line = EventLine { seq, task, principal, at, kind, data, key, hash };
        self.writer.write(&Line::Event(Box::new(line)))?;
        Ok(hash)
    }

    fn holds_no_secret(
        &self,
        run: RunId,
        text: &str,
        place: impl FnOnce() -> String,
    ) -> Result<(), BundleError> {
        match self.scrub.scrub_text(text) {
            std::borrow::Cow::Owned(clean) if clean != text => {
                Err(BundleError::Secret { run, place: place() })
            }
            _ => Ok(()),
        }
    }
}

/// What became of a run of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is here now.
    Imported,
    /// It is back: it was taken out of this store into an archive, and is the same to the last event.
    Restored,
    /// It was here already, the same to the last event.
    Identical,
}

/// Opens a bundle, which is a regular file: it is read twice, and a pipe would be waited for.
pub(crate) fn opened(path: &Path) -> std::io::Result<std::fs::File> {
    let is_file = |found: std::fs::Metadata| match found.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::other(format!("{} is no file", path.display()))),
    };
    is_file(std::fs::metadata(path)?)?;
    let file = std::fs::File::open(path)?;
    is_file(file.metadata()?)?;
    Ok(file)
}

/// Reads a whole bundle and tells which runs it holds. Nothing of it is kept.
pub(crate) fn verified(path: &Path) -> Result<Vec<(RunId, u64, BlobHash)>, BundleError> {
    let mut reader = Reader::new(opened(path)?)?;
    let mut runs = Vec::new();
    while let Some(item) = reader.next()? {
        if let Item::Run { run, events, head } = item {
            runs.push((run, events, head));
        }
    }
    Ok(runs)
}

/// Tells what has to be done with each run.
pub(crate) async fn fates(
    database: &Database,
    runs: &[(RunId, u64, BlobHash)],
) -> Result<HashMap<RunId, Fate>, BundleError> {
    let mut fates = HashMap::new();
    for (run, events, head) in runs {
        let fate = match audit::head(database, *run).await? {
            None | Some((0, _)) => Fate::Imported,
            Some(here) if here == (*events, *head) => {
                match database.fetch(HAS_EVENTS, vec![run.as_uuid().into()]).await?.is_empty() {
                    // It was archived, and comes back.
                    true => Fate::Restored,
                    false => Fate::Identical,
                }
            }
            Some((here, _)) => {
                return Err(BundleError::Differs { run: *run, here, there: *events });
            }
        };
        fates.insert(*run, fate);
    }
    Ok(fates)
}

pub(crate) const HAS_EVENTS: &str = "SELECT seq FROM events WHERE run = $1 AND seq = 1";

/// Takes in the run whose line the reader has just returned, to its last event.
///
/// # Errors
/// [`BundleError::Forged`] when the bundle is not what it was when it was verified.
pub(crate) async fn take_in(
    connection: &mut Connection,
    database: &Database,
    packer: &Packer,
    reader: &mut Reader<'static>,
    (run, events, head): (RunId, u64, BlobHash),
) -> Result<(), BundleError> {
    let failed = |error: sqlx::Error| BundleError::from(database.failed(&error));
    let known = connection.fetch(audit::HEAD, vec![run.as_uuid().into()]).await.map_err(failed)?;
    let here = known.first().map_or(Ok(0), |row| row.int(0)).map_err(failed)?;
    let remembered = known.first().map(|row| row.bytes(1)).transpose().map_err(failed)?;
    let is_own = here != 0 && remembered.as_deref() == Some(head.as_bytes().as_slice());
    if here != 0 && (here != count(events) || !is_own) {
        // It began while the bundle was verified.
        let here = read::unsigned(here).unwrap_or(0);
        return Err(BundleError::Differs { run, here, there: events });
    }
    let rows = connection.fetch(read::HEAD, vec![]).await.map_err(failed)?;
    let mut top = rows.first().map_or(Ok(0), |row| row.int(0)).map_err(failed)?;
    let statements = Arc::new(Statements::default());
    let mut page = Page::default();
    let mut seq = 0;
    while seq < events {
        match reader.next()? {
            Some(Item::Blob(bytes)) => {
                page.bytes += bytes.len();
                page.blobs.push(packer.pack(&Blob::new(bytes)).row());
            }
            Some(Item::Event(checked)) => {
                let mut event = checked.event;
                seq = event.seq;
                page.bytes += checked.data.len();
                top += 1;
                event.position =
                    formwork_protocols::Position(read::unsigned(top).unwrap_or(u64::MAX));
                page.rows.push(writer::row(&event, &checked.data));
                page.changes.take(&event).map_err(|error| {
                    database.corrupt(format!("a view cannot hold an event: {error}"))
                })?;
            }
            // The reader refuses a run that ends early.
            Some(Item::Run { .. } | Item::End) | None => break,
        }
        if seq == events || page.rows.len() >= 500 || page.bytes >= BLOB_BYTES {
            std::mem::take(&mut page).write(connection, &statements).await.map_err(failed)?;
        }
    }
    let row = vec![run.as_uuid().into(), count(events).into(), head.as_bytes().to_vec().into()];
    statements.insert(connection, &HEADS, vec![row]).await.map_err(failed)?;
    if is_own {
        // The store remembers how it ended, and by the chain all that it held: nobody chose it but who ran it here. One that
        // came from elsewhere before it was archived is still marked.
        return Ok(());
    }
    origin::mark(connection, run).await.map_err(failed)
}

/// What is written at once.
#[derive(Default)]
struct Page {
    blobs: Vec<Vec<Arg>>,
    bytes: usize,
    rows: Vec<Vec<Arg>>,
    changes: Changes,
}

impl Page {
    async fn write(
        self,
        connection: &mut Connection,
        statements: &Statements,
    ) -> Result<(), sqlx::Error> {
        statements.insert(connection, &BLOBS, self.blobs).await?;
        statements.insert(connection, &EVENTS, self.rows).await?;
        self.changes.apply(connection, statements).await
    }
}
