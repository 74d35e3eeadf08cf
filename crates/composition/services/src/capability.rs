//! Every operation once: its name, its schemas, who may ask for it, and the one way to it.

use std::{collections::BTreeSet, fmt};

use async_trait::async_trait;
use formwork_protocols::Principal;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Error, Formwork, operations};

pub use formwork_protocols::Scope;

/// What an operation does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It adds or changes.
    Write,
}

/// Who asks, and what they may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    principal: Principal,
    scopes: BTreeSet<Scope>,
}

impl Caller {
    /// Returns a caller with these scopes.
    pub fn new(principal: Principal, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { principal, scopes: scopes.into_iter().collect() }
    }

    /// Returns the owner of the machine, who may ask for everything.
    pub fn owner(principal: Principal) -> Self {
        Self::new(principal, Scope::ALL)
    }

    /// Returns who it is.
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns what they may ask for.
    pub const fn scopes(&self) -> &BTreeSet<Scope> {
        &self.scopes
    }

    /// Checks that an operation may be asked for.
    ///
    /// # Errors
    /// [`Error::Scope`] names the scope that is missing.
    pub(crate) fn may<O: Operation>(&self) -> Result<(), Error> {
        if self.scopes.contains(&O::SCOPE) {
            return Ok(());
        }
        let principal = self.principal.clone();
        Err(Error::Scope { principal, capability: O::NAME, scope: O::SCOPE })
    }
}

/// An operation, as a type.
#[async_trait]
pub trait Operation {
    /// Its dotted name, the same on every interface.
    const NAME: &'static str;
    /// What it does, in a sentence.
    const DOC: &'static str;
    /// Who may ask for it.
    const SCOPE: Scope;
    /// What it does to the world.
    const EFFECT: Effect;
    /// What it is given.
    type Params: DeserializeOwned + JsonSchema + Send;
    /// What it returns.
    type Output: Serialize + JsonSchema + Send;

    /// Carries it out. Callers go through [`Formwork::call`], which asks for the scope first.
    ///
    /// # Errors
    /// [`Error`], by what the caller could do about it.
    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: Self::Params,
    ) -> Result<Self::Output, Error>;
}

/// An operation, as a value: what interfaces are made from.
pub struct Capability {
    /// Its dotted name.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Who may ask for it.
    pub scope: Scope,
    /// What it does to the world.
    pub effect: Effect,
    params: fn() -> Value,
    output: fn() -> Value,
    call: for<'a> fn(&'a Formwork, &'a Caller, Value) -> BoxFuture<'a, Result<Value, Error>>,
}

impl Capability {
    const fn of<O: Operation>() -> Self {
        Self {
            name: O::NAME,
            doc: O::DOC,
            scope: O::SCOPE,
            effect: O::EFFECT,
            params: schema::<O::Params>,
            output: schema::<O::Output>,
            call: |formwork, caller, params| {
                Box::pin(async move {
                    // Who may not ask is told nothing of what would be asked.
                    caller.may::<O>()?;
                    let params = serde_json::from_value(params)
                        .map_err(|source| Error::Parameters { capability: O::NAME, source })?;
                    let output = formwork.call::<O>(caller, params).await?;
                    serde_json::to_value(output)
                        .map_err(|source| Error::Parameters { capability: O::NAME, source })
                })
            },
        }
    }

    /// Finds an operation by its name.
    ///
    /// # Errors
    /// [`Error::NoSuchCapability`].
    pub fn named(name: &str) -> Result<&'static Self, Error> {
        let found = CAPABILITIES.iter().find(|capability| capability.name == name);
        found.ok_or_else(|| Error::NoSuchCapability { name: name.to_owned() })
    }

    /// Checks that a caller may ask for it, before what it is given is even read.
    ///
    /// # Errors
    /// [`Error::Scope`] names the scope that is missing.
    pub fn may(&self, caller: &Caller) -> Result<(), Error> {
        if caller.scopes.contains(&self.scope) {
            return Ok(());
        }
        let (principal, capability) = (caller.principal.clone(), self.name);
        Err(Error::Scope { principal, capability, scope: self.scope })
    }

    /// Returns the JSON Schema of what it is given.
    pub fn params(&self) -> Value {
        (self.params)()
    }

    /// Returns the JSON Schema of what it returns.
    pub fn output(&self) -> Value {
        (self.output)()
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capability")
            .field("name", &self.name)
            .field("scope", &self.scope)
            .field("effect", &self.effect)
            .finish_non_exhaustive()
    }
}

fn schema<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

/// Every operation that there is.
pub static CAPABILITIES: &[Capability] = &[
    Capability::of::<operations::runs::Start>(),
    Capability::of::<operations::runs::List>(),
    Capability::of::<operations::runs::Get>(),
    Capability::of::<operations::runs::Pause>(),
    Capability::of::<operations::runs::Steer>(),
    Capability::of::<operations::runs::ListChats>(),
    Capability::of::<operations::transcripts::Get>(),
    Capability::of::<operations::transcripts::Search>(),
    Capability::of::<operations::runs::Resume>(),
    Capability::of::<operations::runs::Abort>(),
    Capability::of::<operations::runs::Fork>(),
    Capability::of::<operations::runs::Rewind>(),
    Capability::of::<operations::runs::Diff>(),
    Capability::of::<operations::runs::Replay>(),
    Capability::of::<operations::loops::Get>(),
    Capability::of::<operations::goals::Get>(),
    Capability::of::<operations::reviews::Get>(),
    Capability::of::<operations::apart::List>(),
    Capability::of::<operations::apart::Merge>(),
    Capability::of::<operations::apart::Discard>(),
    Capability::of::<operations::tasks::List>(),
    Capability::of::<operations::tasks::Get>(),
    Capability::of::<operations::spend::Spend>(),
    Capability::of::<operations::workflows::List>(),
    Capability::of::<operations::workflows::Get>(),
    Capability::of::<operations::workflows::Validate>(),
    Capability::of::<operations::workflows::Plan>(),
    Capability::of::<operations::undo::Undo>(),
    Capability::of::<operations::trash::List>(),
    Capability::of::<operations::trash::Restore>(),
    Capability::of::<operations::trash::Purge>(),
    Capability::of::<operations::approvals::List>(),
    Capability::of::<operations::approvals::Revoke>(),
    Capability::of::<operations::check::Check>(),
    Capability::of::<operations::check::Rules>(),
    Capability::of::<operations::events::List>(),
    Capability::of::<operations::events::Fire>(),
    Capability::of::<operations::notepad::List>(),
    Capability::of::<operations::inbox::List>(),
    Capability::of::<operations::inbox::Get>(),
    Capability::of::<operations::inbox::Resolve>(),
    Capability::of::<operations::agents::List>(),
    Capability::of::<operations::tools::List>(),
    Capability::of::<operations::tools::Get>(),
    Capability::of::<operations::models::List>(),
    Capability::of::<operations::models::Probe>(),
    Capability::of::<operations::models::Pull>(),
    Capability::of::<operations::subscriptions::List>(),
    Capability::of::<operations::subscriptions::Get>(),
    Capability::of::<operations::subscriptions::Retry>(),
    Capability::of::<operations::credentials::Bootstrap>(),
    Capability::of::<operations::credentials::Add>(),
    Capability::of::<operations::credentials::List>(),
    Capability::of::<operations::credentials::Rotate>(),
    Capability::of::<operations::credentials::Revoke>(),
    Capability::of::<operations::sources::List>(),
    Capability::of::<operations::sources::Get>(),
    Capability::of::<operations::workers::List>(),
    Capability::of::<operations::audit::Verify>(),
    Capability::of::<operations::audit::Seal>(),
    Capability::of::<operations::bundles::Export>(),
    Capability::of::<operations::bundles::Import>(),
    Capability::of::<operations::db::GetStatus>(),
    Capability::of::<operations::db::VerifyStore>(),
    Capability::of::<operations::db::Rebuild>(),
    Capability::of::<operations::db::Vacuum>(),
    Capability::of::<operations::db::Archive>(),
];

impl Formwork {
    /// Carries out an operation: the one way to all of them.
    ///
    /// # Errors
    /// [`Error::Scope`] when the caller may not ask for it; else what the operation says.
    pub async fn call<O: Operation>(
        &self,
        caller: &Caller,
        params: O::Params,
    ) -> Result<O::Output, Error> {
        caller.may::<O>()?;
        O::run(self, caller, params).await
    }

    /// Carries out an operation by its name, with parameters as JSON.
    ///
    /// # Errors
    /// [`Error::NoSuchCapability`] or [`Error::Parameters`] when there is no such operation or it is
    /// given something else; else as [`Formwork::call`].
    pub async fn invoke(&self, caller: &Caller, name: &str, params: Value) -> Result<Value, Error> {
        (Capability::named(name)?.call)(self, caller, params).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_37_every_capability_has_a_name_of_its_own_and_two_schemas() {
        let names: BTreeSet<_> = CAPABILITIES.iter().map(|capability| capability.name).collect();

        assert_eq!(names.len(), CAPABILITIES.len());
        for capability in CAPABILITIES {
            let params = capability.params();
            assert!(params.is_object() && capability.output().is_object());
            // What it does not know is refused and not passed over.
            assert_eq!(params["additionalProperties"], false, "{}", capability.name);
            assert!(capability.doc.ends_with('.'), "{}", capability.name);
        }
    }
}
