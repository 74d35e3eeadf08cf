//! Whether a log is what was written.
//!
//! The chain of hashes and the remembered head find what was edited, moved, removed in the middle
//! or cut at the end; the positions, which are given out without a gap, find that a whole run is gone. Whoever can
//! write the whole database, the heads included, can still make another history that agrees with itself: that is
//! found by a checkpoint that was kept elsewhere.

use std::collections::{BTreeSet, HashSet};

use formwork_protocols::{
    BlobHash, EventBody, Position, RunId, StoreError, TaskId, Timestamp,
    event::{GENESIS, Link},
    store::{Audit, AuditFault},
};
use uuid::Uuid;

use crate::{
    archive::{self, Archived, Mark},
    checkpoint::{Checkpoint, Tree},
    database::{Database, Engine},
    read::{self, Stored},
};

/// How many events are held at once.
const PAGE: i64 = 500;

pub(crate) const HEAD: &str = "SELECT seq, hash FROM heads WHERE run = $1";
/// Runs of the log and runs that are only remembered: of either, the other may have been removed.
pub(crate) const RUNS: &str = "SELECT run FROM heads WHERE run >= $1 AND seq > 0 \
    UNION SELECT run FROM events WHERE run >= $1 AND seq = 1 \
    UNION SELECT run FROM archived WHERE run >= $1 ORDER BY run LIMIT $2";

/// What an audit of the whole store found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreAudit {
    /// What was found of each run, in the order of their ids; those that were archived are not among them.
    pub audits: Vec<Audit>,
    /// The runs that are in an archive and not here.
    pub archived: Vec<Archived>,
    /// How many events are missing, going by the positions that were given out and by what was archived. Negative
    /// where there are more than there were positions.
    pub missing: i64,
    /// The checkpoints, oldest first.
    pub checkpoints: Vec<Compared>,
    /// What keeps rows from being changed and removed, and is gone: the names of triggers.
    pub unguarded: Vec<&'static str>,
}

/// A checkpoint, compared with the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    /// What was said of the log.
    pub checkpoint: Checkpoint,
    /// What of that does not hold.
    pub fault: Option<CheckpointFault>,
}

/// What is wrong with a checkpoint, or with the log that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFault {
    /// The signature is not its signer's: the checkpoint was changed.
    NotSigned,
    /// The log does not come as far.
    Ahead,
    /// There were more runs, or fewer.
    #[expect(missing_docs, reason = "the field's name says it")]
    Runs { found: u64 },
    /// A run does not stand where it stood.
    Root,
}

/// Audits one run.
pub(crate) async fn run(database: &Database, run: RunId) -> Result<Audit, StoreError> {
    let archived = archive::of(database, run).await?;
    Ok(checked(database, run, &archived, &[]).await?.0)
}

/// Audits one run, and tells where it stood at each of some positions.
async fn checked(
    database: &Database,
    run: RunId,
    archived: &[Archived],
    positions: &[i64],
) -> Result<(Audit, Vec<Mark>), StoreError> {
    let mut check = Check {
        positions,
        marks: Vec::with_capacity(positions.len()),
        run,
        events: 0,
        last_seq: 0,
        last_position: 0,
        previous: GENESIS,
        faults: Vec::new(),
    };
    let head = loop {
        // What a damaged page hides is a fault of the runs that it held, and hides no other run.
        if let Err(error) = check.read_on(database).await {
            let StoreError::Corrupt { detail: reason, .. } = error else { return Err(error) };
            check.faults.push(AuditFault::Unreadable { seq: check.last_seq + 1, reason });
            check.mark(i64::MAX);
            let Check { events, previous, faults, marks, .. } = check;
            return Ok((Audit { run, events, head: previous, faults }, marks));
        }
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
    check.mark(i64::MAX);
    check.compare(head, archived)?;
    let Check { events, previous, faults, marks, .. } = check;
    Ok((Audit { run, events, head: previous, faults }, marks))
}

/// Counts the events that are missing, by one statement so that it holds while others write.
pub(crate) const MISSING: &str = "SELECT COALESCE(MAX(position), 0) - COUNT(*) - \
    (SELECT CAST(COALESCE(SUM(events), 0) AS BIGINT) FROM archived) FROM events";

/// The triggers that refuse what nobody does, by the engine that has them, and how to ask which are there.
const GUARDS: [(Engine, [&str; 6], &str); 2] = [
    (
        Engine::Sqlite,
        [
            "blobs_are_not_changed",
            "blobs_are_not_deleted",
            "checkpoints_are_not_changed",
            "checkpoints_are_not_deleted",
            "events_are_not_changed",
            "events_are_not_deleted",
        ],
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '%RAISE(ABORT%'",
    ),
    (
        Engine::Postgres,
        [
            "blobs_are_not_changed",
            "blobs_are_not_emptied",
            "checkpoints_are_not_changed",
            "checkpoints_are_not_emptied",
            "events_are_not_changed",
            "events_are_not_emptied",
        ],
        "SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgrelid IN \
         ('events'::regclass, 'blobs'::regclass, 'checkpoints'::regclass)",
    ),
];

/// Returns the triggers that are not there.
async fn unguarded(database: &Database) -> Result<Vec<&'static str>, StoreError> {
    let engine = database.engine;
    let mut gone = Vec::new();
    for (_, names, ask) in GUARDS.into_iter().filter(|(of, ..)| *of == engine) {
        let rows = database.fetch(ask, vec![]).await?;
        let there: Result<HashSet<String>, _> = rows.iter().map(|row| row.text(0)).collect();
        let there = there.map_err(|error| database.failed(&error))?;
        gone.extend(names.into_iter().filter(|name| !there.contains(*name)));
    }
    Ok(gone)
}

/// Audits the whole store, with the checkpoints that it keeps and those that were kept elsewhere.
pub(crate) async fn store(
    database: &Database,
    kept: Vec<Checkpoint>,
) -> Result<StoreAudit, StoreError> {
    loop {
        let before = archive::count(database).await?;
        let audit = store_once(database, &kept).await?;
        // What was taken out while it was looked at would seem to be gone.
        if archive::count(database).await? == before {
            return Ok(audit);
        }
    }
}

async fn store_once(database: &Database, kept: &[Checkpoint]) -> Result<StoreAudit, StoreError> {
    let rows = database.fetch(MISSING, vec![]).await?;
    let missing = rows.first().map_or(Ok(0), |row| row.int(0));
    let missing = missing.map_err(|error| database.failed(&error))?;
    let last = crate::changes::count(read::head(database).await?);

    let mut checkpoints = archive::checkpoints(database).await?;
    checkpoints.extend(kept.iter().cloned());
    checkpoints.sort_by(|one, other| {
        (one.position, one.signer, &one.signature).cmp(&(
            other.position,
            other.signer,
            &other.signature,
        ))
    });
    checkpoints.dedup();
    let mut positions: Vec<i64> =
        checkpoints.iter().map(|made| crate::changes::count(made.position.0)).collect();
    positions.dedup();
    let mut trees: Vec<Tree> = positions.iter().map(|_| Tree::new()).collect();

    let (mut audits, mut gone) = (Vec::new(), Vec::new());
    let mut seen: Option<RunId> = None;
    loop {
        // Begins with the last run that was seen: no id is so small that one could begin after it.
        let from = seen.map_or(Uuid::nil(), |run| run.as_uuid());
        let before = seen;
        for row in database.fetch(RUNS, vec![from.into(), PAGE.into()]).await? {
            let run = RunId::from_uuid(row.id(0).map_err(|error| database.failed(&error))?);
            if Some(run) == before {
                continue;
            }
            seen = Some(run);
            let archived = archive::of(database, run).await?;
            let (audit, marks) = checked(database, run, &archived, &positions).await?;
            for (at, position) in positions.iter().enumerate() {
                let here = marks.get(at).copied().filter(|mark| mark.seq > 0);
                let there = archived.iter().filter_map(|archived| archived.at(*position));
                // A run that came back stands here again, with positions of its own.
                if let Some(mark) = here.into_iter().chain(there).max_by_key(|mark| mark.seq)
                    && let Some(tree) = trees.get_mut(at)
                {
                    tree.take(run, mark.seq, &mark.hash);
                }
            }
            match (audit.events, archived.into_iter().last()) {
                (0, Some(archived)) if audit.faults.is_empty() => gone.push(archived),
                _ => audits.push(audit),
            }
        }
        if seen == before {
            break;
        }
    }
    let compared = checkpoints.into_iter().map(|checkpoint| {
        let position = crate::changes::count(checkpoint.position.0);
        let tree = positions.binary_search(&position).ok().and_then(|at| trees.get(at));
        let found = tree.map(|tree| tree.head(checkpoint.position));
        let fault = match found {
            _ if !checkpoint.is_signed() => Some(CheckpointFault::NotSigned),
            _ if position > last => Some(CheckpointFault::Ahead),
            Some(found) if found.runs != checkpoint.runs => {
                Some(CheckpointFault::Runs { found: found.runs })
            }
            Some(found) if found.root != checkpoint.root => Some(CheckpointFault::Root),
            _ => None,
        };
        Compared { checkpoint, fault }
    });
    let checkpoints = compared.collect();
    let unguarded = unguarded(database).await?;
    Ok(StoreAudit { audits, archived: gone, missing, checkpoints, unguarded })
}

/// Returns what the store remembers of a run's end.
pub(crate) async fn head(
    database: &Database,
    run: RunId,
) -> Result<Option<(u64, BlobHash)>, StoreError> {
    let rows = database.fetch(HEAD, vec![run.as_uuid().into()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = (|| Ok((row.int(0)?, row.bytes(1)?)))();
    let (seq, hash) = read.map_err(|error| database.failed(&error))?;
    let hash = read::hash(&hash)
        .ok_or_else(|| database.corrupt(format!("the head of run {run} has no whole hash")))?;
    Ok(Some((read::unsigned(seq).unwrap_or(0), hash)))
}

struct Check<'a> {
    /// At which positions to tell where the run stood, in order.
    positions: &'a [i64],
    marks: Vec<Mark>,
    run: RunId,
    events: u64,
    last_seq: u64,
    last_position: i64,
    previous: BlobHash,
    faults: Vec<AuditFault>,
}

impl Check<'_> {
    /// Tells where the run stood at the positions before `position`, as far as that is not yet told.
    fn mark(&mut self, position: i64) {
        while self.positions.get(self.marks.len()).is_some_and(|at| *at < position) {
            let at = self.positions.get(self.marks.len()).copied().unwrap_or_default();
            self.marks.push(Mark { position: at, seq: self.last_seq, hash: self.previous });
        }
    }

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
        self.mark(stored.position);
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
            Ok(body) => blobs.extend(body.blobs().into_iter().map(|hash| (hash, seq))),
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
        match read::blob(database, &hash).await {
            Ok(None) => self.faults.push(AuditFault::MissingBlob { seq, hash }),
            // Whether they were changed, or stand on a page that is damaged.
            Ok(Some(Err(_))) | Err(StoreError::Corrupt { .. }) => {
                let fault = AuditFault::BlobMismatch { hash };
                // One blob may be referred to many times.
                if !self.faults.contains(&fault) {
                    self.faults.push(fault);
                }
            }
            Ok(Some(Ok(_))) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Compares the end of the log with what the store remembers of it.
    fn compare(
        &mut self,
        head: Option<(u64, BlobHash)>,
        archived: &[Archived],
    ) -> Result<(), StoreError> {
        if self.events == 0
            && let Some(archived) = archived.last()
        {
            self.previous = archived.hash;
            if head != Some((archived.seq(), archived.hash)) {
                let found = head.map_or(GENESIS, |(_, hash)| hash);
                self.faults.push(AuditFault::HeadMismatch { expected: archived.hash, found });
            }
            return Ok(());
        }
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
