//! One call of a tool, made by hand: a run of one task that is that call.

use std::collections::BTreeMap;

use formwork_agent::{Agent, AgentDocument, Source};
use formwork_protocols::{
    AgentName, Body, OutcomeCode, Principal, TaskName, TaskSpec, ToolClass, ToolName, WorkflowName,
    document, spec::HandCall,
};
use formwork_scheduler::workflow::Plan;
use formwork_tool::check_arguments;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::all_tools;
use crate::{
    Error, Formwork,
    config::Config,
    custom,
    setup::{self, Hand},
    trust::Parted,
};

/// What a run and its task are called.
const NAME: &str = "call";

/// Whose rules hold where nobody names an agent: those of the config alone.
const HAND: &str = "format_version = 1
name = \"hand\"
description = \"Calls one tool for a person.\"
category = \"default\"
prompt = \"hand.md\"
[tools]
allow = [\"*\"]
";

/// A call of a tool, as a person makes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The tool.
    pub tool: ToolName,
    /// What it is called with.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// The agent as which it is called; the rules of the config alone hold where absent.
    #[serde(default)]
    pub agent: Option<AgentName>,
    /// Whether it is only held against the rules, and nothing is done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Makes the plan. What can be refused before anything is recorded is refused here.
pub(super) fn plan(
    formwork: &Formwork,
    config: &Config,
    agents: &Parted,
    asked: Call,
    principal: Principal,
) -> Result<(Plan, Hand), Error> {
    let Call { tool, arguments, agent, dry_run } = asked;
    let refused = |code, reason: String| Error::Uncallable { tool: tool.clone(), reason, code };
    let (trusted, untrusted) = custom::trusted(formwork.workspace(), formwork.state())?;
    if untrusted.iter().any(|found| found.document.tool.name == tool) {
        let reason = custom::untrusted_hint(&untrusted);
        return Err(refused(OutcomeCode::Setup, reason.trim_start_matches("; ").to_owned()));
    }
    let mut tools = all_tools(formwork);
    tools.extend(custom::specs(trusted.into_iter().map(|found| found.document)));
    let Some(spec) = tools.iter().find(|known| known.definition.name == tool) else {
        let names = tools.iter().map(|known| known.definition.name.as_str());
        let hint = document::nearest_hint(tool.as_str(), names);
        return Err(Error::NoSuchTool { name: tool, hint });
    };
    if spec.class == ToolClass::Lifecycle {
        let reason = "it belongs to a conversation, whose tasks it begins and ends";
        return Err(refused(OutcomeCode::Usage, reason.to_owned()));
    }
    let arguments = Value::Object(arguments);
    check_arguments(&spec.definition, &arguments)
        .map_err(|error| refused(OutcomeCode::Usage, error.message))?;
    let agent = match agent {
        None => hand(),
        Some(name) => agents.get(&name)?.clone(),
    };
    let protection = super::protection(formwork, config)?;
    let (policy, allowed) = setup::policy(config, &agent, &tools, &protection)?;
    if !allowed.tools.contains(&tool) {
        let reason = format!("agent {} may not call it", agent.name());
        return Err(refused(OutcomeCode::Refused, reason));
    }
    if !policy.offers(spec.class) {
        let (class, mode) = (spec.class.as_str(), policy.mode().as_str());
        let reason = match spec.class {
            ToolClass::Shell if setup::mode(config) >= formwork_protocols::PermissionMode::Edit => {
                "text of shell runs only where the config says shell = true and programs are confined"
                    .to_owned()
            }
            _ => format!("tools of class {class} are not used in mode {mode}"),
        };
        return Err(refused(OutcomeCode::Refused, reason));
    }
    let Value::Object(arguments) = arguments else {
        return Err(refused(OutcomeCode::Usage, "its arguments are no object".to_owned()));
    };
    let name = TaskName::parse(NAME).expect("letters are a name");
    let body = Body::Call(Box::new(HandCall { tool, arguments, dry_run }));
    let workflow = WorkflowName::parse(NAME).expect("letters are a name");
    let plan = Plan::of(workflow, TaskSpec::new(name, body), Map::new());
    Ok((plan, Hand { agent, principal }))
}

/// Returns the agent by whose rules a call is made for which nobody names one: those of the config alone.
pub(crate) fn hand() -> Agent {
    let document = document::parse::<AgentDocument>("hand.toml", HAND)
        .expect("the document of a built-in agent has no fault");
    Agent::new(document.value, "You call one tool.", &BTreeMap::new(), Source::BuiltIn)
        .expect("the prompt of a built-in agent has no fault")
}
