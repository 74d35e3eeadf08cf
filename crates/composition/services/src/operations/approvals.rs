//! `approvals.*`: what was approved for good in this workspace.

use async_trait::async_trait;
use formwork_protocols::Cover;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork, approval,
    capability::{Caller, Effect, Operation, Scope},
    error::chain,
};

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// What is approved, in the order in which it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The calls that are not asked about.
    pub approvals: Vec<Cover>,
}

/// `approvals.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "approvals.list";
    const DOC: &'static str = "Lists the calls that were approved for good in this workspace, and so are not asked about.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        Ok(Listed { approvals: approval::standing(formwork)? })
    }
}

/// Which approval to take back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevokeParams {
    /// The approval, as it is listed; all of them where absent.
    pub approval: Option<Cover>,
}

/// What was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// How many approvals.
    pub revoked: usize,
}

/// `approvals.revoke`
pub struct Revoke;

#[async_trait]
impl Operation for Revoke {
    const NAME: &'static str = "approvals.revoke";
    const DOC: &'static str = "Takes back an approval of this workspace, or all of them; runs that go on keep what they began with.";
    const SCOPE: Scope = Scope::Admin;
    const EFFECT: Effect = Effect::Write;
    type Params = RevokeParams;
    type Output = Revoked;

    async fn run(formwork: &Formwork, _: &Caller, params: RevokeParams) -> Result<Revoked, Error> {
        let book = approval::book(formwork.state(), formwork.workspace())?;
        let revoked = book
            .revoke(params.approval.as_ref())
            .map_err(|error| Error::Trust { reason: chain(&error) })?;
        Ok(Revoked { revoked })
    }
}
