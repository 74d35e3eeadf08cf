//! Blobs that no run refers to.

use std::collections::HashSet;

use formwork_protocols::{BlobHash, StoreError, Timestamp};

use crate::{
    database::{Arg, Connection, Database},
    names::{hash_of, named_since},
};

/// How many blobs are looked at at once.
const PAGE: i64 = 500;

pub(crate) const AT_WORK: &str =
    "SELECT COUNT(*) FROM heads WHERE owner IS NOT NULL AND held_until > $1";
pub(crate) const HASHES: &str = "SELECT hash, CAST(LENGTH(bytes) AS BIGINT) FROM blobs WHERE hash > $1 \
    ORDER BY hash LIMIT $2";
pub(crate) const LEAVING: &str = "INSERT INTO leaving_blobs (hash) VALUES ($1)";
pub(crate) const PRUNE: [&str; 2] = [
    "DELETE FROM blobs WHERE hash IN (SELECT hash FROM leaving_blobs)",
    "DELETE FROM leaving_blobs",
];

/// Blobs that no event names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the fields' names say it")]
pub struct Orphans {
    pub blobs: u64,
    /// As they are kept.
    pub bytes: u64,
}

/// Tells what the log names: 32 bytes for each name are held.
pub(crate) async fn named(database: &Database) -> Result<(HashSet<BlobHash>, i64), StoreError> {
    let mut connection = database.read.acquire().await.map_err(|error| database.failed(&error))?;
    let mut names = HashSet::new();
    let read = named_since(database, &mut connection, 0, &mut names).await?;
    Ok((names, read))
}

/// Counts the orphans. One that has just been written may still be named by an event that comes.
pub(crate) async fn orphans(database: &Database) -> Result<Orphans, StoreError> {
    let (names, _) = named(database).await?;
    let mut connection = database.read.acquire().await.map_err(|error| database.failed(&error))?;
    let mut found = Orphans::default();
    let mut after = Vec::new();
    loop {
        let page = page(database, &mut connection, &after).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = last.as_bytes().to_vec();
        for (_, bytes) in page.iter().filter(|(hash, _)| !names.contains(hash)) {
            found.blobs += 1;
            found.bytes += bytes;
        }
    }
}

/// What the log names, up to a position.
pub(crate) type Named = (HashSet<BlobHash>, i64);

/// Tells whether somebody works on a run.
pub(crate) async fn is_at_work(
    connection: &mut Connection,
    database: &Database,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let rows = connection.fetch(AT_WORK, vec![now.as_micros().into()]).await;
    let rows = rows.map_err(|error| database.failed(&error))?;
    let many = rows.first().map_or(Ok(0), |row| row.int(0));
    Ok(many.map_err(|error| database.failed(&error))? > 0)
}

/// Returns the next blobs that nothing of what was read names, after one, and the last that was looked at.
pub(crate) async fn next(
    database: &Database,
    named: &Named,
    after: &[u8],
) -> Result<Option<(Vec<(BlobHash, u64)>, Vec<u8>)>, StoreError> {
    let mut connection = database.read.acquire().await.map_err(|error| database.failed(&error))?;
    let mut after = after.to_vec();
    loop {
        let page = page(database, &mut connection, &after).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        after = last.as_bytes().to_vec();
        let orphans: Vec<_> =
            page.into_iter().filter(|(hash, _)| !named.0.contains(hash)).collect();
        if !orphans.is_empty() {
            return Ok(Some((orphans, after)));
        }
    }
}

/// Removes orphans that are still none's, or nothing while somebody works: whoever works may have written a blob that the next
/// event names.
pub(crate) async fn remove(
    connection: &mut Connection,
    database: &Database,
    named: &mut Named,
    orphans: Vec<(BlobHash, u64)>,
    now: Timestamp,
) -> Result<Option<Orphans>, StoreError> {
    if is_at_work(connection, database, now).await? {
        return Ok(None);
    }
    let (names, read) = named;
    *read = named_since(database, connection, *read, names).await?;
    let failed = |error: sqlx::Error| database.failed(&error);
    let mut gone = Orphans::default();
    for (hash, bytes) in orphans.into_iter().filter(|(hash, _)| !names.contains(hash)) {
        let args: Vec<Arg> = vec![hash.as_bytes().to_vec().into()];
        connection.execute(LEAVING, args).await.map_err(failed)?;
        gone.blobs += 1;
        gone.bytes += bytes;
    }
    for sql in PRUNE {
        connection.execute(sql, vec![]).await.map_err(failed)?;
    }
    Ok(Some(gone))
}

async fn page(
    database: &Database,
    connection: &mut Connection,
    after: &[u8],
) -> Result<Vec<(BlobHash, u64)>, StoreError> {
    let failed = |error: sqlx::Error| database.failed(&error);
    let args: Vec<Arg> = vec![after.to_vec().into(), PAGE.into()];
    let rows = connection.fetch(HASHES, args).await.map_err(failed)?;
    rows.iter()
        .map(|row| {
            let bytes = crate::read::unsigned(row.int(1).map_err(failed)?).unwrap_or(0);
            Ok((hash_of(database, row, 0)?, bytes))
        })
        .collect()
}
