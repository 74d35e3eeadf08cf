//! What the log says of all credentials: a fold of it and nothing else.

use std::collections::BTreeMap;

use formwork_protocols::{
    CredentialId, Event, EventBody, EventStore, Position, Principal, RunId, Scope, StoreError,
    Timestamp, TokenHash, event::CredentialOrigin, store::Selection,
};

use crate::{Refusal, Token};

/// How many events are read at once.
const PAGE: usize = 1_000;

/// A credential, without anything of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name.
    pub id: CredentialId,
    /// Who acts with it.
    pub principal: Principal,
    /// What they may ask for.
    pub scopes: Vec<Scope>,
    /// How it came to be.
    pub origin: CredentialOrigin,
    /// Who gave it, and when.
    pub by: Principal,
    /// When it was given.
    pub created: Timestamp,
    /// From when on it is no longer taken, if there is such a time.
    pub expires: Option<Timestamp>,
    /// When it was given the token that it has now.
    pub rotated: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked: Option<Timestamp>,
    hash: TokenHash,
    before: Option<(TokenHash, Timestamp)>,
}

/// How a credential stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its tokens are taken.
    Live,
    /// Its time is over.
    Expired,
    /// Somebody has revoked it.
    Revoked,
}

impl Standing {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl Credential {
    /// Tells how it stands at a time.
    pub fn standing(&self, now: Timestamp) -> Standing {
        match (self.revoked, self.expires) {
            (Some(_), _) => Standing::Revoked,
            (None, Some(at)) if now >= at => Standing::Expired,
            (None, _) => Standing::Live,
        }
    }

    /// Returns until when the token before the present one is taken, if it still is at that time.
    pub fn overlap(&self, now: Timestamp) -> Option<Timestamp> {
        self.before.map(|(_, until)| until).filter(|until| now < *until)
    }

    /// Says why a token of it lets nobody in, if it does not.
    fn refuses(&self, token: TokenHash, now: Timestamp) -> Option<Refusal> {
        // Both are always compared, so that the time tells nothing.
        let is_now = token == self.hash;
        let is_before = self.before.is_some_and(|(hash, _)| token == hash);
        let credential = self.id;
        if !is_now && !is_before {
            return Some(Refusal::Unknown);
        }
        match (self.standing(now), self.expires) {
            (Standing::Revoked, _) => Some(Refusal::Revoked { credential }),
            (Standing::Expired, Some(at)) => Some(Refusal::Expired { credential, at }),
            _ if !is_now && self.overlap(now).is_none() => Some(Refusal::Replaced { credential }),
            _ => None,
        }
    }
}

/// All credentials of a store.
#[derive(Debug, Clone, Default)]
pub struct Book {
    credentials: BTreeMap<CredentialId, Credential>,
    seen: Position,
}

impl Book {
    /// Takes up what was recorded since the last time.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the log of credentials does not begin as one: it was not written here, and is not believed.
    pub async fn catch_up<S: EventStore + ?Sized>(&mut self, store: &S) -> Result<(), StoreError> {
        let selection = Selection { run: Some(RunId::of_credentials()), ..Selection::default() };
        loop {
            let events = store.read(self.seen, &selection, PAGE).await?;
            for event in &events {
                let is_first = event.seq == 1;
                if is_first && !matches!(event.body, EventBody::CredentialIssued(_)) {
                    let detail =
                        format!("its log of credentials begins with {}", event.body.kind());
                    return Err(StoreError::Corrupt { at: "the log".to_owned(), detail });
                }
                self.take(event);
            }
            if events.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// Takes up an event of the log of credentials. One that was taken up is passed over.
    pub fn take(&mut self, event: &Event) {
        if event.position <= self.seen || event.run != RunId::of_credentials() {
            return;
        }
        self.seen = event.position;
        match &event.body {
            EventBody::CredentialIssued(data) => {
                let credential = Credential {
                    id: data.credential,
                    principal: data.to.clone(),
                    scopes: data.scopes.clone(),
                    origin: data.origin,
                    by: event.principal.clone(),
                    created: event.at,
                    expires: data.expires,
                    rotated: None,
                    revoked: None,
                    hash: data.hash,
                    before: None,
                };
                // The first that is said of a name counts.
                self.credentials.entry(data.credential).or_insert(credential);
            }
            EventBody::CredentialRotated(data) => {
                if let Some(credential) = self.credentials.get_mut(&data.credential) {
                    credential.before = Some((credential.hash, data.until));
                    credential.hash = data.hash;
                    credential.rotated = Some(event.at);
                }
            }
            EventBody::CredentialRevoked(data) => {
                if let Some(credential) = self.credentials.get_mut(&data.credential) {
                    credential.revoked.get_or_insert(event.at);
                }
            }
            // What a later version says of them.
            _ => {}
        }
    }

    /// Returns the credential that a token lets in with.
    ///
    /// # Errors
    /// Why it lets nobody in.
    pub fn admit(&self, token: &Token, now: Timestamp) -> Result<&Credential, Refusal> {
        // Before it is looked up: a name that is not there takes as long as one that is.
        let hash = token.hash();
        let credential = self.credentials.get(&token.credential()).ok_or(Refusal::Unknown)?;
        match credential.refuses(hash, now) {
            Some(refusal) => Err(refusal),
            None => Ok(credential),
        }
    }

    /// Returns a credential.
    pub fn get(&self, id: CredentialId) -> Option<&Credential> {
        self.credentials.get(&id)
    }

    /// Returns all credentials, the oldest first; those that are over are among them.
    pub fn all(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.values()
    }
}
