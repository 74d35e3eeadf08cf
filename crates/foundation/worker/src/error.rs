//! Why a worker cannot work.

use std::io;

/// Why a worker cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The address is none of a hub, or would show the token to whoever listens.
    #[error("{address} is no address of a hub: {reason}")]
    Address { address: String, reason: String },
    /// The token cannot be one.
    #[error("the token is not one: {reason}")]
    Token { reason: String },
    /// The hub does not take this worker, and will not later.
    #[error("{address} does not take this worker: {reason}")]
    Refused { address: String, reason: String },
    /// The hub is not there. It is tried again.
    #[error("{address} cannot be reached: {reason}")]
    Unreachable { address: String, reason: String },
    /// The connection is over. It is tried again.
    #[error("the connection to {address} is over: {reason}")]
    Over { address: String, reason: String },
    /// No secure connection can be made here.
    #[error("no connection can be secured here: {0}")]
    Tls(String),
    /// What the system says.
    #[error("{address} cannot be reached")]
    Io { address: String, source: io::Error },
}
