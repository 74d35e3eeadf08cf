//! Operations on the log as a whole: out into files and in from them, checked, measured, made smaller.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use formwork_protocols::{
    Blob, BlobHash, EventStore as _, Position, RunId, Scrub, Span, StoreError, Timestamp,
    event::GENESIS, store::Lease,
};
use futures::{FutureExt as _, future::BoxFuture};

use crate::{
    archive::{self, Archived},
    arriving::{Arriving, Whole},
    audit::{self, StoreAudit},
    bundle::{BundleError, Counts, Form, Item, Reader, Writer},
    checkpoint::{Checkpoint, SigningKey, Tree, TreeHead},
    database::{Arg, Connection, Engine},
    mirror::{self, ViewFault},
    prune::{self, Orphans},
    read,
    schema::{self, Look},
    tables::{BLOBS, Statements},
    trace::Trace,
    transfer::{self, Export, Fate, Written},
    upkeep::{self, Size, Status},
    writer::{self, Command, Job},
};

/// Who holds a run that comes in, and for how long after each piece of it.
const IMPORTER: &str = "runs import";
const IMPORTED_WITHIN: Span = Span::from_secs(60);

/// How many events, and how many bytes of them and of blobs, are held at once while a run is taken in.
const HELD_EVENTS: usize = 500;
const HELD_BYTES: usize = 8 * 1024 * 1024;

/// How many runs a checkpoint reads at once.
const PAGE: i64 = 1000;

pub(crate) const ENDS: &str = "SELECT h.run, h.seq, h.hash, e.hash FROM heads h \
    LEFT JOIN events e ON e.run = h.run AND e.seq = h.seq \
    WHERE h.run > $1 AND h.seq > 0 ORDER BY h.run LIMIT $2";

/// What an archive took out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The file; none where nothing was old enough.
    pub file: Option<PathBuf>,
    /// The runs that are in it and no more here.
    pub runs: Vec<RunId>,
    /// The runs that are in it and still here: they went on, or one of them has the last event.
    pub stayed: Vec<RunId>,
    /// What the file holds.
    pub counts: Counts,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Why a checkpoint was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum CheckpointError {
    /// What would be signed is not what was written.
    #[error("run {run} does not end as the store remembers: nothing was signed")]
    Unsound { run: RunId },
    /// There is nothing to sign.
    #[error("the log is empty: nothing was signed")]
    Empty,
    /// The store failed, as it says.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Trace {
    /// Tells where the store is that a URL names, and which version it has. Makes and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Open`] with the reason when it cannot be reached, [`StoreError::Corrupt`] when it is no database.
    pub async fn look(url: &str, wait: Span) -> Result<Look, StoreError> {
        schema::look(url, wait.as_duration()).await
    }

    /// Asks SQLite what is wrong with the pages of a file that cannot be opened for it; of PostgreSQL nothing is told.
    ///
    /// # Errors
    /// [`StoreError::Open`] with the reason when it cannot be reached.
    pub async fn pages_at(url: &str, wait: Span) -> Result<Vec<String>, StoreError> {
        schema::pages(url, wait.as_duration()).await
    }

    /// Does something in a transaction of the writer's, between two commits.
    pub(crate) async fn maintain<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut Connection) -> BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        let made = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&made);
        let job: Job = Box::new(move |connection| {
            let done = work(connection);
            async move {
                let value = done.await?;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
                Ok(())
            }
            .boxed()
        });
        self.ask(|reply| Command::Maintain(job, reply)).await?;
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.ok_or(StoreError::Closed)
    }

    /// Writes a run as it stands now into `out`, with all that it refers to.
    ///
    /// Nothing leaves that is not what was written, or that holds what `scrub` knows for a secret. `out` may have been
    /// written to where it fails.
    ///
    /// # Errors
    /// [`BundleError`], by what stands in the way.
    pub async fn export<W: io::Write>(
        &self,
        run: RunId,
        out: W,
        form: Form,
        scrub: &dyn Scrub,
    ) -> Result<(W, Counts), BundleError> {
        let writer = Writer::new(out, form)?;
        let database = self.database();
        let mut export = Export { database, scrub, writer, blobs: HashSet::new() };
        export.run(run).await?;
        Ok(export.writer.finish()?)
    }

    /// Takes in the runs of a bundle: each whole, in a transaction of its own, and none before the whole bundle was
    /// found to be what was written. Blobs come before, some megabytes in a transaction, and nothing else is done while others
    /// have to wait; the run is held as if it was worked on.
    ///
    /// A run that is here already, the same to the last event, is left as it is. One that this store took out into an archive is
    /// as it was before: only a run that was never here counts as one from elsewhere.
    ///
    /// # Errors
    /// [`BundleError::Forged`] says what is wrong with it, [`BundleError::Differs`] names a run that is here and is
    /// another. Nothing was recorded then.
    pub async fn import(&self, file: &Path) -> Result<Vec<(RunId, Fate)>, BundleError> {
        let path = file.to_owned();
        let runs = tokio::task::spawn_blocking(move || transfer::verified(&path))
            .await
            .map_err(|error| io::Error::other(error.to_string()))??;
        let fates = transfer::fates(self.database(), &runs).await?;
        let mut reader = Reader::new(transfer::opened(file)?)?;
        let mut done = Vec::with_capacity(runs.len());
        while let Some(item) = reader.next()? {
            let Item::Run { run, events, head } = item else { continue };
            let fate = fates.get(&run).copied().unwrap_or(Fate::Identical);
            if matches!(fate, Fate::Imported | Fate::Restored) {
                self.take_in(&mut reader, (run, events, head)).await?;
            }
            done.push((run, fate));
        }
        // Those who watch are told by the writer.
        self.maintain(|_| async { Ok(()) }.boxed()).await?;
        Ok(done)
    }

    async fn take_in(&self, reader: &mut Reader<'static>, whole: Whole) -> Result<(), BundleError> {
        // While somebody works on a run, no blob goes that no event names yet.
        let lease = self.acquire(whole.0, IMPORTER, IMPORTED_WITHIN).await?;
        let done = self.take_in_held(reader, whole, &lease).await;
        let released = self.release(&lease).await;
        done?;
        Ok(released?)
    }

    async fn take_in_held(
        &self,
        reader: &mut Reader<'static>,
        whole: Whole,
        lease: &Lease,
    ) -> Result<(), BundleError> {
        let (database, packer) = (self.database(), self.packer());
        let mut arriving = Arriving::new(database).await?;
        let (mut blobs, mut rows): (Vec<Vec<Arg>>, Vec<Vec<Arg>>) = (Vec::new(), Vec::new());
        let (mut bytes, mut seq) = (0, 0);
        while seq < whole.1 {
            match reader.next()? {
                Some(Item::Blob(blob)) => {
                    bytes += blob.len();
                    blobs.push(packer.pack(&Blob::new(blob)).row());
                }
                Some(Item::Event(checked)) => {
                    let mut event = checked.event;
                    seq = event.seq;
                    // Where in the log it stands is known once it is there.
                    event.position = Position(seq);
                    bytes += checked.data.len();
                    rows.push(writer::row(&event, &checked.data));
                    arriving.changes().take(&event).map_err(|error| {
                        database.corrupt(format!("a view cannot hold an event: {error}"))
                    })?;
                }
                // The reader refuses a run that ends early.
                Some(Item::Run { .. } | Item::End) | None => break,
            }
            if seq == whole.1 || rows.len() >= HELD_EVENTS || bytes >= HELD_BYTES {
                bytes = 0;
                self.keep_blobs(std::mem::take(&mut blobs)).await?;
                arriving.put(std::mem::take(&mut rows)).await?;
                self.renew(lease, IMPORTED_WITHIN).await?;
            }
        }
        arriving.enter(self, whole).await
    }

    /// Keeps blobs that events to come will name.
    async fn keep_blobs(&self, blobs: Vec<Vec<Arg>>) -> Result<(), StoreError> {
        if blobs.is_empty() {
            return Ok(());
        }
        let database = self.database().clone();
        self.maintain(move |connection| {
            async move {
                let kept = Statements::default().insert(connection, &BLOBS, blobs).await;
                kept.map_err(|error| database.failed(&error))
            }
            .boxed()
        })
        .await
    }

    /// Takes the runs out that ended and were last written before `before`, into a new file in `folder`. The file is
    /// whole, durable and read again before the first of them goes.
    ///
    /// # Errors
    /// [`BundleError`]; every run is then still here or in the file, or both.
    pub async fn archive(
        &self,
        before: Timestamp,
        now: Timestamp,
        folder: &Path,
        scrub: &dyn Scrub,
    ) -> Result<Departure, BundleError> {
        let database = self.database();
        let ended = archive::ended(database, before, now).await?;
        if ended.is_empty() {
            return Ok(Departure {
                file: None,
                runs: Vec::new(),
                stayed: Vec::new(),
                counts: Counts::default(),
                bytes: 0,
            });
        }
        fs::create_dir_all(folder)?;
        let part = Part::new(folder)?;
        let writer = Writer::new(part.file.try_clone()?, Form::Compressed)?;
        let mut export = Export { database, scrub, writer, blobs: HashSet::new() };
        let mut written = Vec::with_capacity(ended.len());
        for run in ended {
            written.push(export.run(run).await?);
        }
        let (_, counts) = export.writer.finish()?;
        let path = part.path.clone();
        let again = tokio::task::spawn_blocking(move || transfer::verified(&path))
            .await
            .map_err(|error| io::Error::other(error.to_string()))??;
        if again.len() != written.len() {
            return Err(io::Error::other("the archive cannot be read again").into());
        }
        let (file, digest, bytes) = part.keep(folder)?;
        let name = file.display().to_string();
        let (mut runs, mut stayed) = (Vec::new(), Vec::new());
        for written in written {
            match self.leave(written, name.clone(), digest, now).await? {
                true => runs.push(written.run),
                false => stayed.push(written.run),
            }
        }
        Ok(Departure { file: Some(file), runs, stayed, counts, bytes })
    }

    async fn leave(
        &self,
        written: Written,
        file: String,
        digest: BlobHash,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let database = self.database().clone();
        self.maintain(move |connection| {
            async move {
                archive::leave(connection, &database, written, (&file, digest), now).await
            }
            .boxed()
        })
        .await
    }

    /// Removes the blobs that no event names, some hundreds in a transaction. Returns none, and removes nothing, while some process
    /// works on a run: what it has just written may be named by the event that comes next. Where one begins meanwhile, the rest
    /// stays.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be written.
    pub async fn prune(&self, now: Timestamp) -> Result<Option<Orphans>, StoreError> {
        let database = self.database();
        // Most of the log is read before anybody has to wait.
        let mut named = prune::named(database).await?;
        let mut connection =
            database.read.acquire().await.map_err(|error| database.failed(&error))?;
        let is_at_work = prune::is_at_work(&mut connection, database, now).await?;
        connection.give_back().await;
        if is_at_work {
            return Ok(None);
        }
        let (mut all, mut after) = (Orphans::default(), Vec::new());
        while let Some((orphans, last)) = prune::next(database, &named, &after).await? {
            after = last;
            let (database, mut names) = (database.clone(), std::mem::take(&mut named));
            let removed = self.maintain(move |connection| {
                async move {
                    let gone =
                        prune::remove(connection, &database, &mut names, orphans, now).await?;
                    Ok((names, gone))
                }
                .boxed()
            });
            let gone;
            (named, gone) = removed.await?;
            let Some(gone) = gone else { break };
            all.blobs += gone.blobs;
            all.bytes += gone.bytes;
        }
        Ok(Some(all))
    }

    /// Counts the blobs that no event names; reads the whole log.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn orphans(&self) -> Result<Orphans, StoreError> {
        prune::orphans(self.database()).await
    }

    /// Audits the whole store: every run, the runs that are gone, and the checkpoints, those that were kept elsewhere
    /// among them.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn audit_store(&self, kept: Vec<Checkpoint>) -> Result<StoreAudit, StoreError> {
        audit::store(self.database(), kept).await
    }

    /// Says what the whole log is now, signed, and keeps it in the store. Keep it elsewhere too: who can write the
    /// store can remove it there.
    ///
    /// # Errors
    /// [`CheckpointError::Unsound`] names a run that does not end as the store remembers.
    pub async fn checkpoint(
        &self,
        key: &SigningKey,
        now: Timestamp,
    ) -> Result<Checkpoint, CheckpointError> {
        let checkpoint = key.sign(self.tree_head().await?, now);
        let (database, kept) = (self.database().clone(), checkpoint.clone());
        self.maintain(move |connection| {
            async move { archive::keep(connection, &database, &kept).await }.boxed()
        })
        .await?;
        Ok(checkpoint)
    }

    /// Reads where each run stands, all at one moment.
    async fn tree_head(&self) -> Result<TreeHead, CheckpointError> {
        let database = self.database();
        let failed = |error: sqlx::Error| CheckpointError::from(database.failed(&error));
        let mut connection = database.read.acquire().await.map_err(failed)?;
        let begin = match database.engine {
            Engine::Sqlite => "BEGIN",
            Engine::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        connection.execute(begin, vec![]).await.map_err(failed)?;
        let head = self.tree_head_in(&mut connection).await;
        if connection.execute("ROLLBACK", vec![]).await.is_err() {
            connection.forsake();
        }
        head
    }

    async fn tree_head_in(&self, connection: &mut Connection) -> Result<TreeHead, CheckpointError> {
        let database = self.database();
        let failed = |error: sqlx::Error| CheckpointError::from(database.failed(&error));
        let rows = connection.fetch(read::HEAD, vec![]).await.map_err(failed)?;
        let last = rows.first().map_or(Ok(0), |row| row.int(0)).map_err(failed)?;
        let position = Position(read::unsigned(last).unwrap_or(0));
        if position == Position(0) {
            return Err(CheckpointError::Empty);
        }
        let mut tree = Tree::new();
        let mut after = uuid::Uuid::nil();
        loop {
            let args = vec![after.into(), PAGE.into()];
            let rows = connection.fetch(ENDS, args).await.map_err(failed)?;
            if rows.is_empty() {
                return Ok(tree.head(position));
            }
            for row in rows {
                after = row.id(0).map_err(failed)?;
                let run = RunId::from_uuid(after);
                let seq = read::unsigned(row.int(1).map_err(failed)?).unwrap_or(0);
                let remembered = read::hash(&row.bytes(2).map_err(failed)?).unwrap_or(GENESIS);
                let found = match read::hash_or_none(&row, 3).map_err(failed)? {
                    Some(found) => Some(found),
                    // It may have been taken out, and then ends as that remembers.
                    None => archive::of_in(connection, database, run)
                        .await?
                        .last()
                        .filter(|archived: &&Archived| archived.seq() == seq)
                        .map(|archived| archived.hash),
                };
                if found != Some(remembered) {
                    return Err(CheckpointError::Unsound { run });
                }
                tree.take(run, seq, &remembered);
            }
        }
    }

    /// Tells what the store is and holds.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn status(&self, now: Timestamp) -> Result<Status, StoreError> {
        upkeep::status(self.database(), now).await
    }

    /// Makes the views again from the log, aside, and tells which are other than what is there. Holds up nobody who
    /// writes.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] names an event that cannot be read.
    pub async fn compare_views(&self) -> Result<Vec<ViewFault>, StoreError> {
        mirror::compare(self.database()).await
    }

    /// Hashes the views: the same hash on both engines, for the same log.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn views_digest(&self) -> Result<BlobHash, StoreError> {
        mirror::digest(self.database()).await
    }

    /// Asks SQLite what is wrong with its pages; of PostgreSQL nothing is told.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    pub async fn pages(&self) -> Result<Vec<String>, StoreError> {
        upkeep::pages(self.database()).await
    }

    /// Gives free space back to the machine. Returns what the store took up before and takes up now.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when another process holds it for too long.
    pub async fn vacuum(&self) -> Result<(Size, Size), StoreError> {
        upkeep::vacuum(self.database()).await
    }
}

/// A file that is being written. It goes, unless it is kept.
struct Part {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl Part {
    fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("archive-{}.part", uuid::Uuid::new_v4().simple()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { file, path, kept: false })
    }

    /// Makes it durable under the name of what it holds.
    fn keep(mut self, folder: &Path) -> io::Result<(PathBuf, BlobHash, u64)> {
        self.file.flush()?;
        self.file.sync_all()?;
        let (digest, bytes) = digest(&self.path)?;
        let hex = digest.to_string();
        let name = folder.join(format!("runs-{}.jsonl.zst", &hex[..16]));
        fs::rename(&self.path, &name)?;
        self.kept = true;
        // Its name is durable once the folder is, where folders can be synced.
        if let Ok(folder) = File::open(folder) {
            folder.sync_all()?;
        }
        Ok((fs::canonicalize(&name)?, digest, bytes))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed is of no harm: nothing reads it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Hashes a file, as the digest of an archive is.
///
/// # Errors
/// When it cannot be read.
pub fn digest(path: &Path) -> io::Result<(BlobHash, u64)> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((BlobHash::from_bytes(*hasher.finalize().as_bytes()), bytes));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
}
