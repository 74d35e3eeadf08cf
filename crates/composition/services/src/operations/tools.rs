//! `tools.*`: what agents can be given.

use async_trait::async_trait;
use formwork_protocols::ToolSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
};

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The tools, in the order of their names.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The tools.
    pub tools: Vec<ToolSpec>,
}

/// `tools.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "tools.list";
    const DOC: &'static str = "Lists the tools that agents can be given.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let mut tools = super::runs::all_tools(formwork);
        tools.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        Ok(Listed { tools })
    }
}
