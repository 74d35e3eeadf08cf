//! The write-ahead log of a SQLite file: it is copied into the file beside the writer, and not by it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

use crate::database::{Connection, Database};

/// After how many commits it is copied. A small commit writes some ten pages, so that is about as much as
/// SQLite's own 1,000 pages.
const COMMITS: usize = 128;

/// How many rows count as much as a small commit. They write some thirty pages more, mostly those of indexes that the
/// next commits write again: the longer they wait, the fewer are copied.
const ROWS: usize = 64;

/// How many pages it may have: 64 MB. It begins again from its start only when all of it was copied while
/// nobody wrote, and then the writer itself has to stop for what is left.
const PAGES: i64 = 16_384;

/// Copies what is committed, as far as nobody reads what was before, and waits for nobody.
pub(crate) const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";

/// When it is time to copy the write-ahead log.
#[derive(Default)]
pub(crate) struct Wal {
    /// Commits since the last time, where many rows count as more.
    commits: AtomicUsize,
    wake: Notify,
    is_behind: AtomicBool,
}

impl Wal {
    /// Takes note of a commit of so many rows.
    pub(crate) fn written(&self, rows: usize) {
        let more = 1 + rows / ROWS;
        if self.commits.fetch_add(more, Relaxed) + more >= COMMITS {
            self.wake.notify_one();
        }
    }

    /// Tells once whether the writer has to empty it.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Relaxed) && self.is_behind.swap(false, Relaxed)
    }

    /// Copies it whenever there is enough of it, for ever.
    pub(crate) async fn follow(self: Arc<Self>, database: Database) {
        loop {
            self.wake.notified().await;
            self.commits.store(0, Relaxed);
            let copied = async {
                let mut connection = database.read.acquire().await?;
                self.checkpoint(&mut connection).await
            };
            if let Err(error) = copied.await {
                tracing::debug!(%error, "the write-ahead log could not be copied; it is tried again");
            }
        }
    }

    /// Copies it now.
    pub(crate) async fn checkpoint(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        let rows = connection.fetch(CHECKPOINT, vec![]).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let (pages, copied) = (row.int(1)?, row.int(2)?);
        self.is_behind.store(pages > PAGES && copied < pages, Relaxed);
        Ok(())
    }
}
