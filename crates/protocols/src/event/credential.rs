//! Data of the events of credentials: who may ask from outside. All of a store have one log of their own, as a subscription has.
//!
//! No token is in it. What is kept of one is a hash, by which it is known and from which it cannot be found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    access::{Scope, TokenHash},
    id::{CredentialId, Principal},
    time::Timestamp,
};

/// How a credential came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CredentialOrigin {
    /// It was the first that somebody asked for.
    Bootstrap,
    /// Somebody asked for it later.
    Added,
    /// A server made it for programs of its own machine, since nobody had asked for one.
    Local,
}

/// Data of `credential.issued`; the event's principal is who gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialIssued {
    /// The credential.
    pub credential: CredentialId,
    /// Who acts with it.
    pub to: Principal,
    /// What they may ask for.
    pub scopes: Vec<Scope>,
    /// What is kept of its token.
    pub hash: TokenHash,
    /// How it came to be.
    pub origin: CredentialOrigin,
    /// From when on it is no longer taken, if there is such a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// Data of `credential.rotated`: it has another token; the event's principal is who wanted that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialRotated {
    /// The credential.
    pub credential: CredentialId,
    /// What is kept of the new token.
    pub hash: TokenHash,
    /// Until when the token before is taken as well.
    pub until: Timestamp,
}

/// Data of `credential.revoked`: none of its tokens is taken any more; the event's principal is who wanted that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CredentialRevoked {
    /// The credential.
    pub credential: CredentialId,
}
