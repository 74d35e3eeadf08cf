//! `credentials.*`: who may ask from outside, and for what.

mod local; // What a server makes for its own machine.

#[cfg(test)]
mod tests;

use std::fmt;

use async_trait::async_trait;
use formwork_auth::{Credential, Grant, Guard, Standing, Token};
use formwork_protocols::{CredentialId, Principal, Span, Timestamp, event::CredentialOrigin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

pub use local::{Local, is_given, local};

/// For how long the token before is taken as well where nobody says otherwise: as long as it takes to bring the new one to
/// whoever uses it.
const OVERLAP: Span = Span::from_secs(3_600);

/// A credential, without anything of its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its name, which also stands in its token.
    pub id: CredentialId,
    /// Who acts with it.
    pub principal: Principal,
    /// What they may ask for.
    pub scopes: Vec<Scope>,
    /// `live`, `expired` or `revoked`.
    pub standing: String,
    /// How it came to be.
    pub origin: CredentialOrigin,
    /// Who gave it.
    pub by: Principal,
    /// When it was given.
    pub created: Timestamp,
    /// From when on it is no longer taken, if there is such a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was given the token that it has now, where that is not its first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated: Option<Timestamp>,
    /// Until when the token before is taken as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Timestamp>,
    /// When it was revoked, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
}

impl Row {
    fn of(credential: &Credential, now: Timestamp) -> Self {
        Self {
            id: credential.id,
            principal: credential.principal.clone(),
            scopes: credential.scopes.clone(),
            standing: credential.standing(now).as_str().to_owned(),
            origin: credential.origin,
            by: credential.by.clone(),
            created: credential.created,
            expires: credential.expires,
            rotated: credential.rotated,
            overlap: credential.overlap(now),
            revoked: credential.revoked,
        }
    }
}

/// A credential and its token, which is shown here and never again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Given {
    /// The credential.
    pub credential: Row,
    /// Its token. Nobody can tell it later: all that is kept of it is a hash.
    pub token: String,
}

impl Given {
    fn of((credential, token): (Credential, Token), now: Timestamp) -> Self {
        Self { credential: Row::of(&credential, now), token: token.expose().to_owned() }
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// Who is to have the first credential.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BootstrapParams {
    /// Who acts with it; whoever asks where absent.
    pub to: Option<Principal>,
}

/// `credentials.bootstrap`
pub struct Bootstrap;

#[async_trait]
impl Operation for Bootstrap {
    const NAME: &'static str = "credentials.bootstrap";
    const DOC: &'static str =
        "Gives the first credential of the log, with every scope; there is no second first one.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = BootstrapParams;
    type Output = Given;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: BootstrapParams,
    ) -> Result<Given, Error> {
        let to = params.to.map_or_else(|| owner(caller), Ok)?;
        let grant = Grant::new(to, Scope::ALL);
        within(caller, &grant.scopes)?;
        let given = formwork.guard().bootstrap(caller.principal(), grant).await?;
        Ok(Given::of(given, formwork.now()))
    }
}

/// Who is to be given what.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddParams {
    /// Who acts with it, as in `user:ada` or `service:ci`.
    pub to: Principal,
    /// What they may ask for. Nobody gives what they lack.
    pub scopes: Vec<Scope>,
    /// How long it is taken; until it is revoked where absent.
    #[serde(default)]
    pub expires_in: Option<Span>,
}

/// `credentials.add`
pub struct Add;

#[async_trait]
impl Operation for Add {
    const NAME: &'static str = "credentials.add";
    const DOC: &'static str =
        "Gives somebody a credential; its token is shown here and never again.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = AddParams;
    type Output = Given;

    async fn run(formwork: &Formwork, caller: &Caller, params: AddParams) -> Result<Given, Error> {
        let AddParams { to, scopes, expires_in } = params;
        let grant = Grant { lasts: expires_in, ..Grant::new(to, scopes) };
        within(caller, &grant.scopes)?;
        let given = formwork.guard().issue(caller.principal(), grant).await?;
        Ok(Given::of(given, formwork.now()))
    }
}

/// Which credentials.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// Those that are over as well.
    pub all: bool,
}

/// The credentials of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The oldest first.
    pub credentials: Vec<Row>,
    /// How many more are over.
    pub over: usize,
}

/// `credentials.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "credentials.list";
    const DOC: &'static str = "Lists who may ask from outside, and for what; no token is among it.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Listed, Error> {
        let now = formwork.now();
        let found = formwork.guard().all().await?;
        let is_shown = |it: &&Credential| params.all || it.standing(now) == Standing::Live;
        let credentials: Vec<Row> =
            found.iter().filter(is_shown).map(|it| Row::of(it, now)).collect();
        let over = found.len() - credentials.len();
        Ok(Listed { credentials, over })
    }
}

/// Which credential is to have another token.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateParams {
    /// The credential.
    pub id: CredentialId,
    /// For how long the token that it has is taken as well; an hour where absent.
    #[serde(default)]
    pub overlap: Option<Span>,
}

/// `credentials.rotate`
pub struct Rotate;

#[async_trait]
impl Operation for Rotate {
    const NAME: &'static str = "credentials.rotate";
    const DOC: &'static str =
        "Gives a credential another token; the one it had is taken for a while as well.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = RotateParams;
    type Output = Given;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: RotateParams,
    ) -> Result<Given, Error> {
        let RotateParams { id, overlap } = params;
        // Whoever is told the token could act with all that it may do.
        within(caller, &named(formwork.guard(), id).await?.scopes)?;
        let overlap = overlap.unwrap_or(OVERLAP);
        let given = formwork.guard().rotate(caller.principal(), id, overlap).await?;
        Ok(Given::of(given, formwork.now()))
    }
}

/// Which credential is no longer to be taken.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeParams {
    /// The credential.
    pub id: CredentialId,
}

/// `credentials.revoke`
pub struct Revoke;

#[async_trait]
impl Operation for Revoke {
    const NAME: &'static str = "credentials.revoke";
    const DOC: &'static str =
        "Revokes a credential for good; what it did stays on record under its principal.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = RevokeParams;
    type Output = Row;

    async fn run(formwork: &Formwork, caller: &Caller, params: RevokeParams) -> Result<Row, Error> {
        let revoked = formwork.guard().revoke(caller.principal(), params.id).await?;
        Ok(Row::of(&revoked, formwork.now()))
    }
}

/// Checks that nobody gives what they were not given.
fn within(caller: &Caller, scopes: &[Scope]) -> Result<(), Error> {
    match scopes.iter().find(|scope| !caller.scopes().contains(scope)) {
        None => Ok(()),
        Some(&scope) => {
            let by = caller.principal().clone();
            Err(formwork_auth::Error::Beyond { by, scope }.into())
        }
    }
}

/// Returns as whom the owner of the machine acts from outside: where nothing says who they are, as the owner.
fn owner(caller: &Caller) -> Result<Principal, Error> {
    let own = caller.principal();
    match Grant::may_be_given(own) {
        true => Ok(own.clone()),
        false => Principal::parse("user:owner")
            .map_err(|error| Error::Panicked { what: "a name", reason: error.to_string() }),
    }
}

async fn named(guard: &Guard, id: CredentialId) -> Result<Credential, Error> {
    let found = guard.all().await?.into_iter().find(|it| it.id == id);
    found.ok_or_else(|| formwork_auth::Error::NoSuch { credential: id }.into())
}
