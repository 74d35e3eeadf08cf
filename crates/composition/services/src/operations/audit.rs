//! `audit.*`: whether the log is what was written.

use async_trait::async_trait;
use formwork_protocols::{RunId, store::Audit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// How many runs are listed at a time while all are checked.
const PAGE: usize = 256;

/// Which run.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerifyParams {
    /// This one; all where absent.
    pub run: Option<RunId>,
}

/// What was found.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Whether nothing is wrong.
    pub sound: bool,
    /// What was found of each run.
    pub audits: Vec<Audit>,
}

/// `audit.verify`
pub struct Verify;

#[async_trait]
impl Operation for Verify {
    const NAME: &'static str = "audit.verify";
    const DOC: &'static str = "Checks the hash chain and the blobs of a run, or of all.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = VerifyParams;
    type Output = Verified;

    async fn run(formwork: &Formwork, _: &Caller, params: VerifyParams) -> Result<Verified, Error> {
        let store = formwork.store();
        let mut audits = Vec::new();
        if let Some(run) = params.run {
            audits.push(store.audit(run).await?);
        } else {
            let mut before = None;
            loop {
                let page = store.runs(before, PAGE).await?;
                let Some(last) = page.last() else { break };
                before = Some(last.run);
                for row in &page {
                    audits.push(store.audit(row.run).await?);
                }
            }
            audits.reverse();
        }
        let sound = audits.iter().all(|audit| audit.faults.is_empty());
        Ok(Verified { sound, audits })
    }
}
