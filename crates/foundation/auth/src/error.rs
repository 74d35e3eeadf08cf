//! Why nobody is let in, or nothing was given.

use formwork_protocols::{CredentialId, Principal, Scope, StoreError, Timestamp};

/// Why a token lets nobody in. Only whoever has the token of a credential is told how that stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Refusal {
    /// It is none that was given.
    #[error("the token is not one that was given here")]
    Unknown,
    /// It was taken until then.
    #[error("the credential {credential} has expired at {at}")]
    Expired { credential: CredentialId, at: Timestamp },
    /// Another token took its place, and the time for both is over.
    #[error("the token of credential {credential} was replaced by another")]
    Replaced { credential: CredentialId },
    /// Somebody has revoked it.
    #[error("the credential {credential} was revoked")]
    Revoked { credential: CredentialId },
}

/// Why nobody is let in, or nothing was given. No message holds a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Error {
    /// The token lets nobody in, as the refusal says.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The log cannot be read or written, as `source` says. Nobody is let in by what was known before.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no such credential.
    #[error("there is no credential {credential}")]
    NoSuch { credential: CredentialId },
    /// It has no other token any more.
    #[error("credential {credential} is {standing} and has no other token")]
    Over { credential: CredentialId, standing: &'static str },
    /// The first credential is given once.
    #[error("the first credential was given before, to {to}")]
    Bootstrapped { to: Principal },
    /// Nobody from outside acts as a part of Formwork.
    #[error("no credential is given to {to}: {kind} is a part of Formwork")]
    Reserved { to: Principal, kind: &'static str },
    /// Whoever may ask for nothing needs no credential.
    #[error("a credential without a scope lets nobody do anything")]
    NoScope,
    /// Nobody gives what they were not given.
    #[error("{by} lacks the scope {scope} and cannot give it")]
    Beyond { by: Principal, scope: Scope },
}
