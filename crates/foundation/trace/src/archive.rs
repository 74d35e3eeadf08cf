//! What leaves the store, and what is remembered of it.

use formwork_protocols::{BlobHash, Position, RunId, StoreError, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    checkpoint::{Checkpoint, PublicKey, hex},
    database::{Arg, Connection, Database, Row},
    read,
    transfer::Written,
};

/// How many runs one archive looks for at a time.
const PAGE: i64 = 500;

pub(crate) const OF_RUN: &str = "SELECT run, first_position, last_position, events, hash, at, file, \
    digest, marks FROM archived WHERE run = $1 ORDER BY first_position";
pub(crate) const COUNT: &str = "SELECT COUNT(*) FROM archived";
pub(crate) const CHECKPOINTS: &str =
    "SELECT position, signer, at, runs, root, signature FROM checkpoints ORDER BY position, signer";
pub(crate) const KEEP_CHECKPOINT: &str = "INSERT INTO checkpoints (position, signer, at, runs, root, \
    signature) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (position, signer) DO NOTHING";
/// The run of the last event stays: its position must not be given out again.
pub(crate) const ENDED: &str = "SELECT r.run FROM runs r JOIN heads h ON h.run = r.run \
    WHERE r.run > $1 AND r.updated < $2 AND r.code IS NOT NULL \
    AND r.state IN ('completed', 'failed', 'aborted') \
    AND (h.owner IS NULL OR h.held_until <= $3) \
    AND r.run <> (SELECT run FROM events ORDER BY position DESC LIMIT 1) \
    AND EXISTS (SELECT 1 FROM events e WHERE e.run = r.run AND e.seq = 1) ORDER BY r.run LIMIT $4";
pub(crate) const MAY_LEAVE: &str = "SELECT seq, hash, (SELECT run FROM events ORDER BY position DESC \
    LIMIT 1) FROM heads WHERE run = $1 AND (owner IS NULL OR held_until <= $2)";
pub(crate) const MARK: &str =
    "SELECT seq, hash FROM events WHERE run = $1 AND position <= $2 ORDER BY seq DESC LIMIT 1";
pub(crate) const REMEMBER: &str = "INSERT INTO archived (run, first_position, last_position, events, \
    hash, at, file, digest, marks) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
/// In this order: what tells which attempts are the run's goes after them.
pub(crate) const LEAVE: [&str; 9] = [
    "INSERT INTO leaving_runs (run) VALUES ($1)",
    "DELETE FROM attempts WHERE task IN (SELECT task FROM tasks WHERE run = $1)",
    "DELETE FROM tasks WHERE run = $1",
    "DELETE FROM checks WHERE run = $1",
    "DELETE FROM calls WHERE run = $1",
    "DELETE FROM files WHERE run = $1",
    "DELETE FROM runs WHERE run = $1",
    "DELETE FROM events WHERE run = $1",
    "DELETE FROM leaving_runs WHERE run = $1",
];

/// A run that was taken out into an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archived {
    /// The run.
    pub run: RunId,
    /// How many events it had.
    pub events: u64,
    /// The hash of the last.
    pub hash: BlobHash,
    /// When it was taken out.
    pub at: Timestamp,
    /// The file, as it was named then.
    pub file: String,
    /// The BLAKE3 hash of the file.
    pub digest: BlobHash,
    first_position: i64,
    last_position: i64,
    marks: Vec<Mark>,
}

/// Where a run stood at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) position: i64,
    pub(crate) seq: u64,
    pub(crate) hash: BlobHash,
}

impl Archived {
    pub(crate) const fn seq(&self) -> u64 {
        self.events
    }

    /// Tells where the run stood at the position of a checkpoint; nothing before it began.
    pub(crate) fn at(&self, position: i64) -> Option<Mark> {
        if position < self.first_position {
            None
        } else if position >= self.last_position {
            Some(Mark { position, seq: self.events, hash: self.hash })
        } else {
            self.marks.iter().copied().find(|mark| mark.position == position)
        }
    }

    fn of(row: &Row) -> Result<Option<Self>, sqlx::Error> {
        let (hash, digest) = (read::hash(&row.bytes(4)?), read::hash(&row.bytes(7)?));
        let marks = serde_json::from_str(&row.text(8)?);
        let (Some(hash), Some(digest), Ok(marks)) = (hash, digest, marks) else { return Ok(None) };
        Ok(Some(Self {
            run: RunId::from_uuid(row.id(0)?),
            first_position: row.int(1)?,
            last_position: row.int(2)?,
            events: read::unsigned(row.int(3)?).unwrap_or(0),
            hash,
            at: Timestamp::from_micros(row.int(5)?),
            file: row.text(6)?,
            digest,
            marks,
        }))
    }
}

/// Returns what is remembered of a run that was taken out, oldest first: it may have come back and left again.
pub(crate) async fn of(database: &Database, run: RunId) -> Result<Vec<Archived>, StoreError> {
    let rows = database.fetch(OF_RUN, vec![run.as_uuid().into()]).await?;
    all(database, run, &rows)
}

/// Returns the same, as a transaction sees it.
pub(crate) async fn of_in(
    connection: &mut Connection,
    database: &Database,
    run: RunId,
) -> Result<Vec<Archived>, StoreError> {
    let rows = connection.fetch(OF_RUN, vec![run.as_uuid().into()]).await;
    all(database, run, &rows.map_err(|error| database.failed(&error))?)
}

fn all(database: &Database, run: RunId, rows: &[Row]) -> Result<Vec<Archived>, StoreError> {
    let damaged =
        || database.corrupt(format!("what is remembered of archived run {run} cannot be read"));
    rows.iter()
        .map(|row| {
            let archived = Archived::of(row).map_err(|error| database.failed(&error))?;
            archived.ok_or_else(damaged)
        })
        .collect()
}

/// Counts how often a run was taken out.
pub(crate) async fn count(database: &Database) -> Result<i64, StoreError> {
    let rows = database.fetch(COUNT, vec![]).await?;
    rows.first().map_or(Ok(0), |row| row.int(0)).map_err(|error| database.failed(&error))
}

/// Returns the checkpoints that the store keeps, oldest first.
pub(crate) async fn checkpoints(database: &Database) -> Result<Vec<Checkpoint>, StoreError> {
    let rows = database.fetch(CHECKPOINTS, vec![]).await?;
    let read = |row: &Row| {
        let (signer, root) = (row.bytes(1)?, row.bytes(4)?);
        let (Ok(signer), Some(root)) = (signer.try_into(), read::hash(&root)) else {
            return Ok(None);
        };
        Ok::<_, sqlx::Error>(Some(Checkpoint {
            position: Position(read::unsigned(row.int(0)?).unwrap_or(0)),
            at: Timestamp::from_micros(row.int(2)?),
            runs: read::unsigned(row.int(3)?).unwrap_or(0),
            root,
            signer: PublicKey::from_bytes(signer),
            signature: hex(&row.bytes(5)?),
        }))
    };
    rows.iter()
        .map(|row| {
            let checkpoint = read(row).map_err(|error| database.failed(&error))?;
            checkpoint.ok_or_else(|| database.corrupt("a checkpoint has no whole key or hash"))
        })
        .collect()
}

/// Keeps a checkpoint. One of the same position and key is there already where nothing was written since.
pub(crate) async fn keep(
    connection: &mut Connection,
    database: &Database,
    checkpoint: &Checkpoint,
) -> Result<(), StoreError> {
    let args: Vec<Arg> = vec![
        crate::changes::count(checkpoint.position.0).into(),
        checkpoint.signer.as_bytes().to_vec().into(),
        checkpoint.at.as_micros().into(),
        crate::changes::count(checkpoint.runs).into(),
        checkpoint.root.as_bytes().to_vec().into(),
        checkpoint.signature_bytes().into(),
    ];
    let kept = connection.execute(KEEP_CHECKPOINT, args).await;
    kept.map(drop).map_err(|error| database.failed(&error))
}

/// Lists the runs that have ended, were last written before `before` and are nobody's, in the order of their ids.
pub(crate) async fn ended(
    database: &Database,
    before: Timestamp,
    now: Timestamp,
) -> Result<Vec<RunId>, StoreError> {
    let mut runs: Vec<RunId> = Vec::new();
    loop {
        let after = runs.last().map_or(Uuid::nil(), |run| run.as_uuid());
        let args: Vec<Arg> =
            vec![after.into(), before.as_micros().into(), now.as_micros().into(), PAGE.into()];
        let rows = database.fetch(ENDED, args).await?;
        if rows.is_empty() {
            return Ok(runs);
        }
        for row in rows {
            runs.push(RunId::from_uuid(row.id(0).map_err(|error| database.failed(&error))?));
        }
    }
}

/// Takes a run out of the store that is whole in the archive `file`. Returns false, and leaves it, where it has gone
/// on since, is somebody's or has the last event.
pub(crate) async fn leave(
    connection: &mut Connection,
    database: &Database,
    written: Written,
    (file, digest): (&str, BlobHash),
    now: Timestamp,
) -> Result<bool, StoreError> {
    let run = written.run.as_uuid();
    let left = async {
        let rows = connection.fetch(MAY_LEAVE, vec![run.into(), now.as_micros().into()]).await?;
        let Some(row) = rows.first() else { return Ok(false) };
        let here = (read::unsigned(row.int(0)?), read::hash(&row.bytes(1)?), row.maybe_id(2)?);
        if here.0 != Some(written.seq) || here.1 != Some(written.hash) || here.2 == Some(run) {
            return Ok(false);
        }
        let mut marks = Vec::new();
        for row in connection.fetch(CHECKPOINTS, vec![]).await? {
            let position = row.int(0)?;
            if (written.first_position..written.last_position).contains(&position) {
                let rows = connection.fetch(MARK, vec![run.into(), position.into()]).await?;
                if let Some(row) = rows.first()
                    && let Some(hash) = read::hash(&row.bytes(1)?)
                {
                    let seq = read::unsigned(row.int(0)?).unwrap_or(0);
                    marks.push(Mark { position, seq, hash });
                }
            }
        }
        let marks = serde_json::to_string(&marks).unwrap_or_default();
        let args: Vec<Arg> = vec![
            run.into(),
            written.first_position.into(),
            written.last_position.into(),
            crate::changes::count(written.seq).into(),
            written.hash.as_bytes().to_vec().into(),
            now.as_micros().into(),
            file.into(),
            digest.as_bytes().to_vec().into(),
            marks.into(),
        ];
        connection.execute(REMEMBER, args).await?;
        for sql in LEAVE {
            connection.execute(sql, vec![run.into()]).await?;
        }
        Ok(true)
    };
    left.await.map_err(|error| database.failed(&error))
}
