//! `tools.*`: what agents can be given.

use async_trait::async_trait;
use formwork_protocols::{ToolName, ToolSpec, document::nearest_hint};
use formwork_tool::custom::CustomTool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    custom, toolset,
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
    /// The tools of the workspace that have no effect: nobody has trusted them as they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<ToolName>,
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
        let (trusted, untrusted) = custom::trusted(formwork.workspace(), formwork.state())?;
        tools.extend(custom::specs(trusted.into_iter().map(|tool| tool.document)));
        tools.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        let untrusted = untrusted.into_iter().map(|tool| tool.document.tool.name).collect();
        Ok(Listed { tools, untrusted })
    }
}

/// Which tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// Its name.
    pub name: ToolName,
}

/// A tool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Got {
    /// The tool.
    pub tool: ToolSpec,
    /// The file that it comes from, for one that is written down as data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What it does then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub does: Option<String>,
    /// Whether it has an effect: a tool of the workspace has once it is trusted as it stands.
    pub trusted: bool,
}

/// `tools.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "tools.get";
    const DOC: &'static str = "Shows a tool, trusted or not.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Got;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Got, Error> {
        let name = params.name;
        let (trusted, untrusted) = custom::trusted(formwork.workspace(), formwork.state())?;
        let own = |found: &custom::Found| found.document.tool.name == name;
        let written = trusted.iter().find(|found| own(found)).map(|found| (found, true));
        let written =
            written.or_else(|| untrusted.iter().find(|found| own(found)).map(|it| (it, false)));
        if let Some((found, trusted)) = written {
            return Ok(Got {
                tool: CustomTool::spec_of(&found.document),
                file: Some(found.path.display().to_string()),
                does: Some(found.does()),
                trusted,
            });
        }
        let mut tools = toolset::built_in();
        tools.extend(formwork.inner.tools.iter().map(|tool| tool.spec().clone()));
        let hint = {
            let written = trusted.iter().chain(&untrusted).map(|it| &it.document.tool.name);
            let names = tools.iter().map(|tool| &tool.definition.name).chain(written);
            nearest_hint(name.as_str(), names.map(ToolName::as_str))
        };
        let found = tools.into_iter().find(|tool| tool.definition.name == name);
        let tool = found.ok_or(Error::NoSuchTool { name, hint })?;
        Ok(Got { tool, file: None, does: None, trusted: true })
    }
}
