//! Why a client is not served any more.

/// Why a client is not served any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing more can be read from the client, as `source` says.
    #[error("the client cannot be read from")]
    Read(#[source] std::io::Error),
}
