//! Why a conversation could not go on.

use formwork_protocols::{BlobHash, RunId, SessionId, StoreError};

use formwork_context::HistoryError;

/// Why a conversation could not go on. What is in the log stands: it is taken up again from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The log could not be written or read, as `source` says.
    #[error("conversation {session} cannot reach its log")]
    Store { session: SessionId, source: StoreError },
    /// The run has no such conversation.
    #[error("run {run} has no conversation {session}")]
    NoSuchSession { run: RunId, session: SessionId },
    /// A message is in the log but not in the store.
    #[error("message {index} of conversation {session} is missing: there is no blob {hash}")]
    MissingMessage { session: SessionId, index: u32, hash: BlobHash },
    /// A message cannot be read, as `source` says.
    #[error("message {index} of conversation {session} cannot be read")]
    UnreadableMessage { session: SessionId, index: u32, source: serde_json::Error },
    /// What was done so that the conversation fits is in the log but not in the store, or cannot be read.
    #[error("a compaction of conversation {session} is missing or damaged: blob {hash}")]
    LostCompaction { session: SessionId, hash: BlobHash },
    /// A message cannot be written as JSON, as `source` says.
    #[error("a message of conversation {session} cannot be written")]
    UnwritableMessage { session: SessionId, source: serde_json::Error },
    /// The messages in the log are not those of a conversation, as `source` says.
    #[error("conversation {session} is damaged")]
    Damaged { session: SessionId, source: HistoryError },
}
