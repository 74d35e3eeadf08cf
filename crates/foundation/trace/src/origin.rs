//! What a store is, which of its runs were made elsewhere, and who works on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use formwork_protocols::{RunId, StoreError, Timestamp};

use crate::{
    database::{Connection, Database, Row},
    trace::Trace,
};

const MARK: &str = "INSERT INTO imported (run) VALUES ($1) ON CONFLICT DO NOTHING";
const IS_MARKED: &str = "SELECT 1 FROM imported WHERE run = $1";
pub(crate) const MARKED: &str = "SELECT run FROM imported WHERE run >= $1 AND run <= $2";
const OWNERS: &str = "SELECT run, owner FROM heads WHERE run >= $1 AND run <= $2 \
    AND owner IS NOT NULL AND held_until > $3";
const IDENTITY: &str = "SELECT id FROM identity";

/// Notes that a run came from a file.
pub(crate) async fn mark(connection: &mut Connection, run: RunId) -> Result<(), sqlx::Error> {
    connection.execute(MARK, vec![run.as_uuid().into()]).await.map(drop)
}

impl Trace {
    /// Tells whether a run came from a file: then somebody else may have chosen all that it says of itself, as what
    /// it was set up with.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn is_imported(&self, run: RunId) -> Result<bool, StoreError> {
        let rows = self.database().fetch(IS_MARKED, vec![run.as_uuid().into()]).await?;
        Ok(!rows.is_empty())
    }

    /// Returns the runs among these that came from a file, as [`Trace::is_imported`] tells of one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn imported(
        &self,
        runs: RangeInclusive<RunId>,
    ) -> Result<BTreeSet<RunId>, StoreError> {
        let database: &Database = self.database();
        let args = vec![runs.start().as_uuid().into(), runs.end().as_uuid().into()];
        let rows = database.fetch(MARKED, args).await?;
        let marked: Result<_, sqlx::Error> =
            rows.iter().map(|row| row.id(0).map(RunId::from_uuid)).collect();
        marked.map_err(|error| database.failed(&error))
    }

    /// Returns who works on the runs among these that somebody works on at `now`, by the owner's name.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn owners(
        &self,
        runs: RangeInclusive<RunId>,
        now: Timestamp,
    ) -> Result<BTreeMap<RunId, String>, StoreError> {
        let database: &Database = self.database();
        let (from, to) = (runs.start().as_uuid().into(), runs.end().as_uuid().into());
        let rows = database.fetch(OWNERS, vec![from, to, now.as_micros().into()]).await?;
        let owner = |row: &Row| Ok((RunId::from_uuid(row.id(0)?), row.text(1)?));
        let owners: Result<_, sqlx::Error> = rows.iter().map(owner).collect();
        owners.map_err(|error| database.failed(&error))
    }

    /// Returns what names this store, wherever it is kept and however its address is spelt.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the store has no such name, [`StoreError::Unavailable`] when it cannot be read.
    pub async fn identity(&self) -> Result<String, StoreError> {
        let database: &Database = self.database();
        let rows = database.fetch(IDENTITY, vec![]).await?;
        let row = rows.first().ok_or_else(|| database.corrupt("it has no identity"))?;
        let id = row.id(0).map_err(|error| database.failed(&error))?;
        Ok(id.simple().to_string())
    }
}
