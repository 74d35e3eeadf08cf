//! Whoever stands before a log: gives credentials, and tells of a token who asks with it.

use std::{fmt, sync::Arc};

use formwork_protocols::{
    Append, Clock, CredentialId, EventBody, EventStore, NewEvent, Principal, Rng, RunId, Scope,
    Span, StoreError, Timestamp,
    event::{CredentialIssued, CredentialOrigin, CredentialRevoked, CredentialRotated},
};
use tokio::sync::{Mutex, MutexGuard};

use crate::{Book, Credential, Error, Refusal, Standing, Token};

/// The key under which the first credential is recorded: of many who ask at once one is given it.
const FIRST: &str = "bootstrap";

/// The kinds of principals that are parts of Formwork.
const RESERVED: [&str; 3] = ["system", "agent", "subscription"];

fn reserved(to: &Principal) -> Option<&'static str> {
    let kind = to.as_str().split(':').next().unwrap_or_default();
    RESERVED.into_iter().find(|it| *it == kind)
}

/// What somebody is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who acts with it.
    pub to: Principal,
    /// What they may ask for.
    pub scopes: Vec<Scope>,
    /// How long it is taken; for ever where absent.
    pub lasts: Option<Span>,
    /// How it comes to be.
    pub origin: CredentialOrigin,
}

impl Grant {
    /// Returns whether somebody may be given a credential: a part of Formwork is not.
    pub fn may_be_given(to: &Principal) -> bool {
        reserved(to).is_none()
    }

    /// Returns a grant without an end.
    pub fn new(to: Principal, scopes: impl IntoIterator<Item = Scope>) -> Self {
        let mut scopes: Vec<Scope> = scopes.into_iter().collect();
        scopes.sort_unstable();
        scopes.dedup();
        Self { to, scopes, lasts: None, origin: CredentialOrigin::Added }
    }
}

/// Who asks, as their token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// By which credential.
    pub credential: CredentialId,
    /// Who.
    pub principal: Principal,
    /// What they may ask for.
    pub scopes: Vec<Scope>,
}

/// Gives credentials and takes tokens, by what a log says of them now.
pub struct Guard {
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// What of the log is known. It is held while the log is asked, so that many who come at once ask one after another.
    book: Mutex<Book>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Guard {
    /// Stands before a log. Nothing is read yet. `rng` makes tokens: it has to be one that nobody foresees.
    pub fn new(store: Arc<dyn EventStore>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        Self { store, clock, rng, book: Mutex::default() }
    }

    /// Tells who asks with a token. The log is asked each time for what is new, so that a revocation counts at once, whichever
    /// process recorded it. What is no token at all is refused without that.
    ///
    /// Cancel safe.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason; [`Error::Store`] where the log cannot be asked.
    pub async fn admit(&self, token: &str) -> Result<Admitted, Error> {
        let token = Token::parse(token).ok_or(Refusal::Unknown)?;
        let book = self.book().await?;
        let credential = book.admit(&token, self.clock.now())?;
        Ok(Admitted {
            credential: credential.id,
            principal: credential.principal.clone(),
            scopes: credential.scopes.clone(),
        })
    }

    /// Tells whether a credential is still taken, for what began with it and lasts.
    ///
    /// # Errors
    /// [`StoreError`] where the log cannot be asked.
    pub async fn is_live(&self, credential: CredentialId) -> Result<bool, StoreError> {
        let book = self.book().await?;
        let found = book.get(credential);
        Ok(found.is_some_and(|it| it.standing(self.clock.now()) == Standing::Live))
    }

    /// Returns all credentials that were ever given, the oldest first.
    ///
    /// # Errors
    /// [`StoreError`] where the log cannot be asked.
    pub async fn all(&self) -> Result<Vec<Credential>, StoreError> {
        Ok(self.book().await?.all().cloned().collect())
    }

    /// Gives the first credential that somebody asks for. What servers made for their own machine does not count.
    ///
    /// # Errors
    /// [`Error::Bootstrapped`] where there was one before, also where another process is faster by a moment.
    pub async fn bootstrap(
        &self,
        by: &Principal,
        grant: Grant,
    ) -> Result<(Credential, Token), Error> {
        let asked_for = |it: &&Credential| it.origin != CredentialOrigin::Local;
        if let Some(first) = self.book().await?.all().find(asked_for) {
            return Err(Error::Bootstrapped { to: first.principal.clone() });
        }
        self.give(by, Grant { origin: CredentialOrigin::Bootstrap, ..grant }, Some(FIRST)).await
    }

    /// Gives a credential.
    ///
    /// # Errors
    /// [`Error::Reserved`] and [`Error::NoScope`] for what nobody is given.
    pub async fn issue(&self, by: &Principal, grant: Grant) -> Result<(Credential, Token), Error> {
        self.give(by, grant, None).await
    }

    /// Gives a credential another token. The one that it had is taken for `overlap` more, and what it had before that no longer.
    ///
    /// # Errors
    /// [`Error::NoSuch`], and [`Error::Over`] for one that is not live.
    pub async fn rotate(
        &self,
        by: &Principal,
        id: CredentialId,
        overlap: Span,
    ) -> Result<(Credential, Token), Error> {
        let now = self.clock.now();
        self.named(id, now, true).await?;
        let token = Token::generate(id, &*self.rng);
        let rotated =
            CredentialRotated { credential: id, hash: token.hash(), until: now.after(overlap) };
        self.record(by, now, EventBody::CredentialRotated(rotated), None).await?;
        Ok((self.named(id, now, false).await?, token))
    }

    /// Revokes a credential: from its next request on it is refused. One that is revoked stays so, and its record stays too.
    ///
    /// # Errors
    /// [`Error::NoSuch`].
    pub async fn revoke(&self, by: &Principal, id: CredentialId) -> Result<Credential, Error> {
        let now = self.clock.now();
        if self.named(id, now, false).await?.revoked.is_none() {
            let revoked = CredentialRevoked { credential: id };
            self.record(by, now, EventBody::CredentialRevoked(revoked), None).await?;
        }
        self.named(id, now, false).await
    }

    async fn give(
        &self,
        by: &Principal,
        grant: Grant,
        key: Option<&str>,
    ) -> Result<(Credential, Token), Error> {
        let Grant { to, scopes, lasts, origin } = grant;
        if let Some(kind) = reserved(&to) {
            return Err(Error::Reserved { kind, to });
        }
        if scopes.is_empty() {
            return Err(Error::NoScope);
        }
        let now = self.clock.now();
        let id = CredentialId::generate(&*self.clock, &*self.rng);
        let token = Token::generate(id, &*self.rng);
        let issued = CredentialIssued {
            credential: id,
            to,
            scopes,
            hash: token.hash(),
            origin,
            expires: lasts.map(|span| now.after(span)),
        };
        let is_first = self.record(by, now, EventBody::CredentialIssued(issued), key).await?;
        if !is_first {
            let book = self.book().await?;
            let first = book.all().find(|it| it.origin == CredentialOrigin::Bootstrap);
            let to = first.map_or_else(|| by.clone(), |it| it.principal.clone());
            return Err(Error::Bootstrapped { to });
        }
        Ok((self.named(id, now, false).await?, token))
    }

    /// Records something; false where it is there already under that key.
    async fn record(
        &self,
        by: &Principal,
        at: Timestamp,
        body: EventBody,
        key: Option<&str>,
    ) -> Result<bool, StoreError> {
        let event = NewEvent {
            task: None,
            principal: by.clone(),
            at,
            body,
            idempotency_key: key.map(str::to_owned),
        };
        let (run, blobs) = (RunId::of_credentials(), Vec::new());
        let append = Append { run, token: None, events: vec![event], blobs };
        let recorded = self.store.append(append).await?;
        Ok(recorded.iter().all(|place| !place.duplicate))
    }

    async fn named(
        &self,
        id: CredentialId,
        now: Timestamp,
        is_to_live: bool,
    ) -> Result<Credential, Error> {
        let book = self.book().await?;
        let found = book.get(id).ok_or(Error::NoSuch { credential: id })?;
        match found.standing(now) {
            standing if is_to_live && standing != Standing::Live => {
                Err(Error::Over { credential: id, standing: standing.as_str() })
            }
            _ => Ok(found.clone()),
        }
    }

    async fn book(&self) -> Result<MutexGuard<'_, Book>, StoreError> {
        let mut book = self.book.lock().await;
        book.catch_up(&*self.store).await?;
        Ok(book)
    }
}
