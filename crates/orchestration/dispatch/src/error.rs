//! What can go wrong while subscriptions are dispatched.

use formwork_protocols::{StoreError, SubscriptionName};

/// Why the log is not followed any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The log cannot be read or written. What was done is recorded as far as it was.
    #[error("the log of subscription {subscription} cannot be kept")]
    Store { subscription: SubscriptionName, source: StoreError },
    /// The log of the runs cannot be read.
    #[error("the log cannot be followed")]
    Log { source: StoreError },
}
