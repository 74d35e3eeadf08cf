//! Whether a log is what was written.
//!
//! The chain of hashes and the remembered head find what was edited, moved, removed in the middle
//! or cut at the end. Nothing here is signed: whoever can write the whole database, the heads
//! included, can make another history that agrees with itself.

use std::collections::BTreeSet;

use formwork_protocols::{
    BlobHash, EventBody, Position, RunId, StoreError, TaskId, Timestamp,
    event::{GENESIS, Link},
    store::{Audit, AuditFault},
};
use uuid::Uuid;

use crate::{
    database::{Arg, Database},
    read::{self, Stored},
};

/// How many events are held at once.
const PAGE: i64 = 500;

pub(crate) const HEAD: &str = "SELECT seq, hash FROM heads WHERE run = $1";
/// Runs of the log and runs that are only remembered: of either, the other may have been removed.
pub(crate) const RUNS: &str = "SELECT run FROM heads WHERE run >= $1 AND seq > 0 \
    UNION SELECT run FROM events WHERE run >= $1 AND seq = 1 ORDER BY run LIMIT $2";

/// Audits one run.
pub(crate) async fn run(database: &Database, run: RunId) -> Result<Audit, StoreError> {
    let mut check = Check {
        run,
        events: 0,
        last_seq: 0,
        last_position: 0,
        previous: GENESIS,
        faults: Vec::new(),
    };
    let head = loop {
        check.read_on(database).await?;
        // The head moves with each commit, so it is read after the events that it covers; where
        // it is ahead there may be more to read by now.
        let head = head(database, run).await?;
        let seen = check.last_seq;
        match &head {
            Some((seq, _)) if *seq > seen => {
                check.read_on(database).await?;
                if check.last_seq == seen {
                    break head;
                }
            }
            _ => break head,
        }
    };
    check.compare(head)?;
    Ok(Audit { run, events: check.events, head: check.previous, faults: check.faults })
}

/// Audits every run of the store.
pub(crate) async fn all(database: &Database) -> Result<Vec<Audit>, StoreError> {
    let mut audits: Vec<Audit> = Vec::new();
    loop {
        // Begins with the last run that was seen: no id is so small that one could begin after it.
        let last = audits.last().map(|audit| audit.run);
        let from = last.map_or(Uuid::nil(), |run| run.as_uuid());
        let args: Vec<Arg> = vec![from.into(), PAGE.into()];
        let before = audits.len();
        for row in database.fetch(RUNS, args).await? {
            let id = RunId::from_uuid(row.id(0).map_err(|error| database.failed(&error))?);
            if Some(id) != last {
                audits.push(run(database, id).await?);
            }
        }
        if audits.len() == before {
            return Ok(audits);
        }
    }
}

async fn head(database: &Database, run: RunId) -> Result<Option<(u64, BlobHash)>, StoreError> {
    let rows = database.fetch(HEAD, vec![run.as_uuid().into()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = (|| Ok((row.int(0)?, row.bytes(1)?)))();
    let (seq, hash) = read.map_err(|error| database.failed(&error))?;
    let hash = read::hash(&hash)
        .ok_or_else(|| database.corrupt(format!("the head of run {run} has no whole hash")))?;
    Ok(Some((read::unsigned(seq).unwrap_or(0), hash)))
}

struct Check {
    run: RunId,
    events: u64,
    last_seq: u64,
    last_position: i64,
    previous: BlobHash,
    faults: Vec<AuditFault>,
}

impl Check {
    /// Checks the events that follow, page by page, to the end of the run.
    async fn read_on(&mut self, database: &Database) -> Result<(), StoreError> {
        loop {
            let args = vec![
                self.run.as_uuid().into(),
                crate::changes::count(self.last_seq).into(),
                PAGE.into(),
            ];
            let rows = database.fetch(read::PAGE_OF_RUN, args).await?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut blobs = BTreeSet::new();
            for row in &rows {
                let stored = Stored::of(row).map_err(|error| database.failed(&error))?;
                self.take(&stored, &mut blobs);
            }
            for (hash, seq) in blobs {
                self.blob(database, hash, seq).await?;
            }
        }
    }

    fn take(&mut self, stored: &Stored, blobs: &mut BTreeSet<(BlobHash, u64)>) {
        let seq = read::unsigned(stored.seq).unwrap_or(0);
        let position = Position(read::unsigned(stored.position).unwrap_or(0));
        if seq != self.last_seq + 1 {
            self.faults.push(AuditFault::Gap { after: self.last_seq, found: seq });
        }
        if stored.position <= self.last_position {
            self.faults.push(AuditFault::Reordered { seq, position });
        }
        let link = Link {
            run: self.run,
            seq,
            task: stored.task.map(TaskId::from_uuid),
            principal: &stored.principal,
            at: Timestamp::from_micros(stored.at),
            kind: &stored.kind,
            data: &stored.data,
            idempotency_key: stored.key.as_deref(),
        };
        let found = read::hash(&stored.hash);
        if found != Some(link.hash(&self.previous)) {
            self.faults.push(AuditFault::HashMismatch { seq, position });
        }
        match EventBody::parse(&stored.kind, &stored.data) {
            Ok(body) => blobs.extend(refers_to(&body).map(|hash| (hash, seq))),
            Err(error) => {
                self.faults.push(AuditFault::Unreadable { seq, reason: error.to_string() });
            }
        }
        self.events += 1;
        self.last_seq = seq;
        self.last_position = stored.position;
        // What follows is judged by what is stored, so that one edited event is one fault.
        self.previous = found.unwrap_or(GENESIS);
    }

    async fn blob(
        &mut self,
        database: &Database,
        hash: BlobHash,
        seq: u64,
    ) -> Result<(), StoreError> {
        match read::blob(database, &hash).await? {
            None => self.faults.push(AuditFault::MissingBlob { seq, hash }),
            Some(bytes) if BlobHash::of(&bytes) != hash => {
                let fault = AuditFault::BlobMismatch { hash };
                // One blob may be referred to many times.
                if !self.faults.contains(&fault) {
                    self.faults.push(fault);
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Compares the end of the log with what the store remembers of it.
    fn compare(&mut self, head: Option<(u64, BlobHash)>) -> Result<(), StoreError> {
        let (seq, hash) = match head {
            None | Some((0, _)) if self.events == 0 => {
                return Err(StoreError::NoSuchRun { run: self.run });
            }
            None => (0, GENESIS),
            Some(head) => head,
        };
        if seq > self.last_seq {
            self.faults.push(AuditFault::Truncated { expected: seq, found: self.last_seq });
        } else if seq < self.last_seq || hash != self.previous {
            self.faults.push(AuditFault::HeadMismatch { expected: hash, found: self.previous });
        }
        Ok(())
    }
}

/// Lists the blobs that an event cannot do without.
fn refers_to(body: &EventBody) -> impl Iterator<Item = BlobHash> {
    let hash = match body {
        EventBody::SessionMessage(data) => Some(data.message),
        EventBody::ToolCompleted(data) => Some(data.output),
        EventBody::CheckFinished(data) => data.verdict.evidence.output,
        _ => None,
    };
    hash.into_iter()
}
