//! `agents.*`: who can work.

use async_trait::async_trait;
use formwork_agent::{Agent, Agents, ModelChoice, Source};
use formwork_protocols::AgentName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    trust::Parted,
};

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// The agents, in the order of their names.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The agents.
    pub agents: Vec<Summary>,
    /// The agents of the workspace that have no effect: nobody has trusted them as they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<Summary>,
}

/// An agent in short.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Summary {
    pub name: AgentName,
    pub description: String,
    /// The category or model that it asks for.
    pub asks_for: String,
    /// The tools that it may use, as patterns.
    pub tools: Vec<String>,
    /// `built-in`, or the file that defines it.
    pub source: String,
    /// The content hash of everything that shapes it.
    pub version: String,
}

/// `agents.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "agents.list";
    const DOC: &'static str = "Lists the agents of the workspace and the built-in ones.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let Parted { agents, untrusted } = formwork.agents()?;
        let all = |agents: &Agents| agents.iter().map(summary).collect();
        Ok(Listed { agents: all(&agents), untrusted: all(&untrusted) })
    }
}

fn summary(agent: &Agent) -> Summary {
    Summary {
        name: agent.name().clone(),
        description: agent.document().description.clone(),
        asks_for: match &agent.document().model {
            ModelChoice::Category(category) => category.to_string(),
            ModelChoice::Model(model) => model.to_string(),
        },
        tools: agent.document().tools.allow.clone(),
        source: match agent.source() {
            Source::BuiltIn => "built-in".to_owned(),
            Source::File(file) => file.clone(),
        },
        version: agent.version().to_owned(),
    }
}
