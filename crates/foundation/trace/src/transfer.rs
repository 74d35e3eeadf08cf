//! Runs out of a store into a bundle, and in from one.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    path::Path,
};

use formwork_protocols::{
    BlobHash, EventBody, RunId, Scrub, StoreError, TaskId, Timestamp,
    event::{GENESIS, Link},
};
use serde_json::value::RawValue;

use crate::{
    archive, audit,
    bundle::{BundleError, EventLine, Item, Line, MOST, Reader, Writer},
    changes::count,
    database::Database,
    names::hashes_in,
    read::{self, Stored},
};

/// How many events are held at once.
const PAGE: i64 = 500;

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
                Some(Ok(bytes)) if bytes.len() > MOST => {
                    let bytes = bytes.len();
                    return Err(BundleError::TooLarge { run, seq, blob: name, bytes });
                }
                Some(Ok(bytes)) => {
                    if let Ok(text) = std::str::from_utf8(&bytes) {
                        self.holds_no_secret(run, text, || format!("blob {name}"))?;
                    }
                    self.writer.blob(name, &bytes)?;
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
    let mut reader = Reader::to_check(opened(path)?)?;
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
