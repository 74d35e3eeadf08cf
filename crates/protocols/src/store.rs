//! The seam to the durable log and its views.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    budget::Usage,
    check::Phase,
    event::{BlobHash, Delta, Event, NewEvent, Position},
    id::{AttemptId, CallId, RunId, SessionId, TaskId, TaskName, WorkflowName},
    money::Usd,
    outcome::{Ending, OutcomeCode},
    state::{RunState, TaskState},
    time::{Span, Timestamp},
};

/// Why the store could not do what it was asked. Nothing was half written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum StoreError {
    /// The database cannot be opened or reached.
    #[error("cannot open the store at {at}: {reason}")]
    Open { at: String, reason: String },
    /// The disk is full, the file is read-only, the connection is lost: it may pass.
    #[error("the store at {at} cannot be written: {reason}")]
    Unavailable { at: String, reason: String },
    /// What is stored cannot be what was written.
    #[error("the store at {at} is damaged: {detail}")]
    Corrupt { at: String, detail: String },
    /// The store was written by a later version.
    #[error("the store at {at} has schema version {found}, this program knows up to {known}")]
    TooNew { at: String, found: i64, known: i64 },
    /// Another process owns the run now. Nothing was written.
    #[error("run {run} is owned by {owner}")]
    NotOwner { run: RunId, owner: String },
    /// There is no such run.
    #[error("there is no run {run}")]
    NoSuchRun { run: RunId },
    /// The event cannot be written as it is.
    #[error("an event of kind {kind} cannot be written: {reason}")]
    Invalid { kind: String, reason: String },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// Bytes that are stored once under their hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    hash: BlobHash,
    bytes: Arc<[u8]>,
}

impl Blob {
    /// Takes bytes and hashes them. They must have been scrubbed: a store keeps them as they are.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        Self { hash: BlobHash::of(&bytes), bytes }
    }

    /// Returns the hash.
    pub const fn hash(&self) -> BlobHash {
        self.hash
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Proof of owning a run: it is checked in every write of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Lease {
    pub run: RunId,
    pub owner: String,
    /// Grows with every owner; a write with an older one is refused.
    pub token: u64,
    /// From when on another may take the run. Until one does, its owner writes on, and is given the lease anew by that.
    pub until: Timestamp,
}

/// Facts that are recorded together, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// The run that they belong to.
    pub run: RunId,
    /// The token of the writer's lease; none where the run has no owner, as for its first events, and for
    /// what [needs no lease](crate::EventBody::needs_lease).
    pub token: Option<u64>,
    /// The facts, in order.
    pub events: Vec<NewEvent>,
    /// The blobs that they refer to.
    pub blobs: Vec<Blob>,
}

/// Where a fact was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of an event")]
pub struct Recorded {
    pub position: Position,
    pub seq: u64,
    pub hash: BlobHash,
    /// Whether the idempotency key was known: then this is the first event under it.
    pub duplicate: bool,
}

/// Which events to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this run only.
    pub run: Option<RunId>,
    /// Of this task only.
    pub task: Option<TaskId>,
    /// Of kinds that begin so: `tool.` or `task.escalated`. All where empty.
    pub kinds: Vec<String>,
}

/// What those who watch receive.
#[derive(Debug, Clone, PartialEq)]
pub enum Live {
    /// A fact was recorded.
    Event(Arc<Event>),
    /// Words as they come; not stored.
    Delta(Arc<Delta>),
    /// The watcher was too slow: events after this position have to be read from the store.
    Lagged(Position),
}

/// What an audit of a run found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// The run.
    pub run: RunId,
    /// How many events were read.
    pub events: u64,
    /// The hash of the last one.
    pub head: BlobHash,
    /// What is wrong, in the order of the log; nothing for a sound one.
    pub faults: Vec<AuditFault>,
}

/// Something that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "fault", rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant names its fields")]
pub enum AuditFault {
    /// The content of an event is not what was hashed: it was edited, or put in another place.
    HashMismatch { seq: u64, position: Position },
    /// An event is missing between two others.
    Gap { after: u64, found: u64 },
    /// Events are missing at the end: the run had come further.
    Truncated { expected: u64, found: u64 },
    /// The end of the run is not the one that the store remembers: it was written anew.
    HeadMismatch { expected: BlobHash, found: BlobHash },
    /// The order of positions and of the run disagree.
    Reordered { seq: u64, position: Position },
    /// A blob that an event refers to is missing.
    MissingBlob { seq: u64, hash: BlobHash },
    /// The bytes of a blob are not those of its hash.
    BlobMismatch { hash: BlobHash },
    /// The data of an event cannot be read.
    Unreadable { seq: u64, reason: String },
}

/// How long what was [posted](EventStore::post) may wait for others to share their commit.
pub const BATCHED_WITHIN: Span = Span::from_millis(50);

/// The append-only log. Many may read and write at once.
///
/// A fact is of one of two classes of durability. `sync` is [`append`](Self::append): whoever asked goes on once the
/// disk has it. `batched` is [`post`](Self::post): whoever asked goes on at once, and the disk has it within
/// [`BATCHED_WITHIN`]. Both are recorded in the order in which they were handed over, so that a log that was cut off by
/// a crash is always a beginning of what happened.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Records facts in order, with the views that follow from them, in one transaction. Returns when
    /// they are durable, and all that was posted before them through this handle or its clones.
    ///
    /// Cancel safe: a dropped future may still have recorded all of them, never some.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] when the token is not that of the run's newest lease, or that was given back. What a fact of the same run
    /// that was posted before failed of: later facts do not stand without it.
    async fn append(&self, batch: Append) -> Result<Vec<Recorded>, StoreError>;

    /// Takes facts that nothing outside is done by yet. Returns once they have their place behind what was handed over
    /// before, which may have to be waited for where the writer is behind, and does not wait for the disk.
    ///
    /// They share the commit of the next [`append`](Self::append), of whatever run, and have one of their own after
    /// [`BATCHED_WITHIN`]. Only a crash before that loses them, and then all that was posted after them too. An append
    /// of no facts waits for them and does nothing else. A store that knows no classes waits at once.
    ///
    /// Cancel safe: a dropped future may still have handed over all of them, never some.
    ///
    /// # Errors
    /// [`StoreError::Closed`]. Whatever else goes wrong is told by the next append to the run.
    async fn post(&self, batch: Append) -> Result<(), StoreError> {
        self.append(batch).await.map(drop)
    }

    /// Reads up to `limit` events after `after`, in order.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when one cannot be what was written.
    async fn read(
        &self,
        after: Position,
        selection: &Selection,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// Reads up to `limit` events after a cursor, in order, and moves the cursor as far as it has looked: where fewer are
    /// left, past everything that is recorded. So whoever reads again and again looks at nothing twice, however seldom
    /// what they look for comes.
    ///
    /// # Errors
    /// As [`read`](Self::read); the cursor then stays where it was.
    async fn read_on(
        &self,
        cursor: &mut Position,
        selection: &Selection,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        // Before it is read: what is recorded meanwhile is found now or by the next look.
        let head = self.head().await?;
        let events = self.read(*cursor, selection, limit).await?;
        let last = events.last().map_or(*cursor, |event| event.position);
        *cursor = if events.len() < limit { last.max(head).max(*cursor) } else { last };
        Ok(events)
    }

    /// Watches what is recorded from now on, and words as they come.
    fn watch(&self) -> BoxStream<'static, Live>;

    /// Passes words on to those who watch. Nothing is stored.
    fn publish(&self, delta: Delta);

    /// Returns the position of the last event; 0 for an empty store.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn head(&self) -> Result<Position, StoreError>;

    /// Returns the bytes under a hash.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the bytes do not have that hash.
    async fn blob(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StoreError>;

    /// Takes the lease of a run that nobody owns, or whose owner's lease has lapsed.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] names the present owner.
    async fn acquire(&self, run: RunId, owner: &str, for_: Span) -> Result<Lease, StoreError>;

    /// Takes the lease of a run from `gone`, an owner that is known to have ended, before it lapses.
    ///
    /// A store that cannot do so waits for the lapse, as [`acquire`](Self::acquire) does.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] when another than `gone` owns it.
    async fn take_over(
        &self,
        run: RunId,
        gone: &str,
        owner: &str,
        for_: Span,
    ) -> Result<Lease, StoreError> {
        let _ = gone;
        self.acquire(run, owner, for_).await
    }

    /// Extends a lease from now.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] when it has passed to another.
    async fn renew(&self, lease: &Lease, for_: Span) -> Result<Lease, StoreError>;

    /// Gives a lease back.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be written; the lease then lapses by itself.
    async fn release(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Checks the hash chain and the blobs of a run.
    ///
    /// # Errors
    /// [`StoreError::NoSuchRun`] when it has no event.
    async fn audit(&self, run: RunId) -> Result<Audit, StoreError>;
}

/// A run, as the view shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct RunRow {
    pub run: RunId,
    pub name: WorkflowName,
    pub state: RunState,
    pub workspace: String,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// The outcome's code and reason, once there is one.
    pub code: Option<OutcomeCode>,
    pub reason: Option<String>,
    pub rounds: u32,
    pub usage: Usage,
    pub cost: Usd,
    /// The files that are not what they were, as far as they were told one by one.
    pub files_changed: u64,
    /// Whether programs of the run changed more files than were told one by one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_files: bool,
    /// Events so far.
    pub events: u64,
}

/// A task, as the view shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct TaskRow {
    pub task: TaskId,
    pub run: RunId,
    pub parent: Option<TaskId>,
    pub name: TaskName,
    /// The body's name: `agent`, `command`, `native`, `subtasks`, `inline`.
    pub body: String,
    pub state: TaskState,
    pub ending: Option<Ending>,
    pub attempts: u32,
    /// What the task itself spent, its children not included.
    pub cost: Usd,
    pub usage: Usage,
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
}

/// An attempt, as the view shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct AttemptRow {
    pub attempt: AttemptId,
    pub task: TaskId,
    pub number: u32,
    pub started: Timestamp,
    pub ended: Option<Timestamp>,
    pub reason: Option<String>,
}

/// A check, as the view shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct CheckRow {
    pub task: TaskId,
    pub phase: Phase,
    pub index: u32,
    /// Grows with each time the check runs.
    pub at: Timestamp,
    pub verdict: crate::check::Verdict,
}

/// A model call, as the view shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct CallRow {
    pub call: CallId,
    pub task: TaskId,
    pub session: SessionId,
    pub model: String,
    pub endpoint: String,
    pub usage: Usage,
    pub usage_estimated: bool,
    pub cost: Usd,
    pub tries: u32,
    pub elapsed: Span,
    pub at: Timestamp,
}

/// Reads the views that the log's appends keep.
#[async_trait]
pub trait Views: Send + Sync {
    /// Lists up to `limit` runs, the newest first, that are older than `before` where given.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<RunRow>, StoreError>;

    /// Returns one run.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn run(&self, run: RunId) -> Result<Option<RunRow>, StoreError>;

    /// Lists the tasks of a run in the order of their creation.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn tasks(&self, run: RunId) -> Result<Vec<TaskRow>, StoreError>;

    /// Lists the attempts at a task in order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn attempts(&self, task: TaskId) -> Result<Vec<AttemptRow>, StoreError>;

    /// Lists the checks of a run that have decided, in order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn checks(&self, run: RunId) -> Result<Vec<CheckRow>, StoreError>;

    /// Lists the model calls of a run that ended well, in order.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the store cannot be read.
    async fn calls(&self, run: RunId) -> Result<Vec<CallRow>, StoreError>;
}

/// A log with its views: what a store of Formwork is.
pub trait Store: EventStore + Views {}

impl<T: EventStore + Views + ?Sized> Store for T {}
