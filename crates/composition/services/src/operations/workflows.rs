//! `workflows.*`: what there is to run, whether it is sound, and what it would do and could cost.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use formwork_agent::Agent;
use formwork_protocols::{
    AgentName, Body, Budget, ModelRef, NoSecrets, Price, TaskName, TaskSpec, Usd,
    budget::OnExhausted,
    check::{CheckKind, CheckSpec, Fix},
    document::{self, Diagnostic},
    spec::ServiceSpec,
};
use formwork_scheduler::workflow::WorkflowDocument;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Error, Formwork,
    capability::{Caller, Effect, Operation, Scope},
    config::Config,
    documents::{self, Kind},
    making,
    models::{Keys, Models},
    operations::runs,
    reading,
    setup::{self, AgentSetup, RunSetup},
};

/// Where the workflows of a workspace are.
const FOLDER: &str = documents::WORKFLOWS;

/// Nothing is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListParams {}

/// A workflow in short.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The name to run it by.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Where it stands, from the root of the workspace.
    pub file: String,
    /// How many faults it has.
    pub faults: u64,
}

/// The workflows of a workspace, by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence names its field")]
pub struct Listed {
    pub workflows: Vec<Summary>,
}

/// `workflows.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "workflows.list";
    const DOC: &'static str = "Lists the workflows of the workspace.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, _: ListParams) -> Result<Listed, Error> {
        let workspace = formwork.workspace();
        let folder = workspace.join(FOLDER);
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut workflows: Vec<Summary> = entries
            .filter_map(|entry| {
                let name = entry.file_name().to_str()?.strip_suffix(".toml")?.to_owned();
                let text = reading::document_of(workspace, &entry.path()).ok()?;
                let file = format!("{FOLDER}/{name}.toml");
                let found = document::salvage::<WorkflowDocument>(&file, &text);
                let description = found.map(|found| found.value.description).unwrap_or_default();
                let faults = documents::validate(Kind::Workflow, &file, &text, workspace)
                    .map_or_else(|faults| faults.len() as u64, |()| 0);
                Some(Summary { name, description, file, faults })
            })
            .collect();
        workflows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Listed { workflows })
    }
}

/// Which workflow.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// Its name below `.formwork/workflows`, without `.toml`.
    pub name: String,
}

/// A workflow as it is written.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct Written {
    pub file: String,
    pub text: String,
}

/// `workflows.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "workflows.get";
    const DOC: &'static str = "Returns the text of a workflow of the workspace.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = Written;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<Written, Error> {
        let GetParams { name } = params;
        let file = format!("{FOLDER}/{name}.toml");
        // A name is one, and no way to anything else.
        let is_name =
            !name.is_empty() && Path::new(&name).components().count() == 1 && name != "..";
        let text = match is_name {
            true => {
                let at = formwork.workspace().join(&file);
                match reading::document_of(formwork.workspace(), &at) {
                    Ok(text) => Some(text),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(source) => return Err(Error::State { action: "read", path: at, source }),
                }
            }
            false => None,
        };
        let text = text.ok_or(Error::NoSuchWorkflow { name })?;
        Ok(Written { file, text })
    }
}

/// A workflow, as text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct ValidateParams {
    /// Where it was found, for messages.
    pub source: String,
    pub text: String,
}

/// What is wrong with a document.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Validated {
    /// Each fault in a line, with its place; none where it is sound.
    pub faults: Vec<String>,
}

/// `workflows.validate`
pub struct Validate;

#[async_trait]
impl Operation for Validate {
    const NAME: &'static str = "workflows.validate";
    const DOC: &'static str = "Checks a workflow and lists every fault; runs nothing.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ValidateParams;
    type Output = Validated;

    async fn run(
        formwork: &Formwork,
        _: &Caller,
        params: ValidateParams,
    ) -> Result<Validated, Error> {
        let ValidateParams { source, text } = params;
        let found = documents::validate(Kind::Workflow, &source, &text, formwork.workspace());
        let told = |fault: &Diagnostic| fault.to_string();
        Ok(Validated { faults: found.err().iter().flatten().map(told).collect() })
    }
}

/// A workflow that is to be looked at before it is run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanParams {
    /// Where it was found, for messages.
    pub source: String,
    /// The workflow.
    pub text: String,
    /// What is set from outside for its variables.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// The model of every agent, in place of what they ask for.
    #[serde(default)]
    pub model: Option<ModelRef>,
}

/// What a workflow would do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Planned {
    /// Its name.
    pub name: String,
    /// The programs that run while the tasks work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceSpec>,
    /// The tasks, each behind the one that it is below.
    pub tasks: Vec<PlannedTask>,
    /// How many tasks could be at work at once, if the run is as wide.
    pub width: u64,
    /// The most that it can cost; none where nothing bounds it.
    pub worst_case: Option<Usd>,
    /// Why nothing bounds it.
    pub unbounded: Vec<String>,
}

/// A task as it would be done.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlannedTask {
    /// The names from the root to it, joined by `/`.
    pub path: String,
    /// How many levels above it there are.
    pub depth: u64,
    /// Its turn among its siblings, from 1: those of one turn may overlap.
    pub turn: u64,
    /// What it does: the body, and who or what.
    pub does: String,
    /// The name by which those that come after it put in its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The siblings that have to be done first.
    pub depends_on: Vec<String>,
    /// What must hold before it and after it.
    pub prechecks: Vec<String>,
    #[expect(missing_docs, reason = "said above")]
    pub postchecks: Vec<String>,
    /// How often its body may be tried; 0 where there is nothing to try, because it waits or stands for others.
    pub attempts: u64,
    /// The agents of its body and its checks, each with its model, price and tools.
    pub agents: Vec<PlannedAgent>,
    /// Its own caps.
    pub budget: Budget,
    /// The most that it and all below it can cost; none where nothing of its own bounds it.
    pub worst_case: Option<Usd>,
}

/// An agent as it would work.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the type's sentence and its fields' names say it")]
pub struct PlannedAgent {
    pub agent: AgentName,
    pub model: ModelRef,
    pub price: Option<Price>,
    pub tools: Vec<String>,
    /// Its file, where it takes the place of a built-in agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_of_built_in: Option<String>,
}

/// `workflows.plan`
pub struct Plan;

#[async_trait]
impl Operation for Plan {
    const NAME: &'static str = "workflows.plan";
    const DOC: &'static str =
        "Shows what a workflow would do, and the most that it could cost; spends nothing.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = PlanParams;
    type Output = Planned;

    async fn run(formwork: &Formwork, _: &Caller, params: PlanParams) -> Result<Planned, Error> {
        let PlanParams { source, text, vars, model } = params;
        let inner = &formwork.inner;
        let config = &inner.config;
        let seams = (Arc::new(NoSecrets) as _, Arc::clone(&inner.rng), Arc::clone(&inner.clock));
        // No key is read: nothing is asked.
        let models =
            Models::connect(config, &Keys::none(), (&inner.base, None), &inner.providers, seams)?;
        let checked = Some(&models).filter(|_| model.is_none());
        let runs::Workflow { agents, mut plan, .. } =
            runs::workflow(formwork, (&source, &text), &vars, checked)?;
        if let Some(budget) = &config.budget {
            plan.cap(budget);
        }
        plan.held().map_err(|beyond| Error::Caps { reason: beyond.to_string() })?;
        let mut known = BTreeMap::new();
        for name in plan.agents() {
            let agent = agents.get(name)?;
            let model = match &model {
                Some(model) => model.clone(),
                None => models.choice(agent)?,
            };
            known.insert(name.clone(), Known::of((formwork, config), agent, &models, model)?);
        }
        let agents = &agents.agents;
        plan.cap_agents(|name| agents.get(name).map(|agent| &agent.document().budget));
        if known.values().any(|known: &Known| known.makes) {
            // They may be asked for while the run goes on. One that cannot work here is not there.
            for name in agents.names().filter(|name| !plan.agents().contains(name)) {
                let Some(agent) = agents.get(name) else { continue };
                let chosen = model.clone().map_or_else(|| models.choice(agent), Ok);
                let of = |model| Known::of((formwork, config), agent, &models, model);
                if let Ok(helper) = chosen.and_then(of) {
                    known.insert(name.clone(), helper);
                }
            }
        }
        Ok(planned(plan.name().to_string(), known, plan.root()))
    }
}

/// Tells what a tree of tasks would do, and the most that it could cost, with the agents and models of a run.
///
/// # Errors
/// [`Error::Model`] when one of them cannot be had; [`Error::Rules`].
pub(super) fn costs(
    formwork: &Formwork,
    setup: &RunSetup,
    models: &Models,
    root: &TaskSpec,
) -> Result<Planned, Error> {
    let mut known = BTreeMap::new();
    for (name, AgentSetup { agent, model, .. }) in &setup.agents {
        let own = Known::of((formwork, &setup.config), agent, models, model.clone())?;
        known.insert(name.clone(), own);
    }
    Ok(planned(root.name.to_string(), known, root))
}

fn planned(name: String, known: BTreeMap<AgentName, Known>, root: &TaskSpec) -> Planned {
    let mut planner = Planner { known, tasks: Vec::new(), unbounded: Vec::new() };
    let Extent { worst: worst_case, width, .. } = planner.task(root, "", 0, 1);
    let Planner { tasks, unbounded, .. } = planner;
    let services = root.services.clone();
    Planned { name, services, tasks, width, worst_case, unbounded }
}

/// An agent with what a call of it can cost.
struct Known {
    planned: PlannedAgent,
    /// The most that one call can cost; none where its window is not known.
    call: Option<Usd>,
    /// The dearest price of a million tokens of any class.
    dearest: Option<Usd>,
    /// Whether it may have work done by others.
    makes: bool,
}

impl Known {
    fn of(
        (formwork, config): (&Formwork, &Config),
        agent: &Agent,
        models: &Models,
        model: ModelRef,
    ) -> Result<Self, Error> {
        let ready = models.model(&model)?;
        let (info, ceiling) = (&ready.info, ready.ceiling);
        let most_out = u64::from(info.max_output_tokens.unwrap_or(8_192).min(8_192));
        let dearest = ceiling.worst_case(1_000_000, 0).max(ceiling.worst_case(0, 1_000_000));
        let call = match (dearest, info.context_tokens) {
            (Usd::ZERO, _) => Some(Usd::ZERO),
            (_, window) => window.map(|window| ceiling.worst_case(window, most_out)),
        };
        let mut specs = crate::toolset::built_in();
        specs.extend(formwork.inner.tools.iter().map(|tool| tool.spec().clone()));
        // Which tools an agent has does not depend on how processes are confined.
        let unconfined = formwork_sandbox::Protection::None;
        let (_, allowed) = setup::policy(config, agent, &specs, &unconfined)?;
        let tools = allowed.tools.iter().map(ToString::to_string).collect();
        let price = info.price;
        let in_place_of_built_in = documents::in_place_of_built_in(agent).map(str::to_owned);
        let makes = making::may_make(agent);
        let agent = agent.name().clone();
        let planned = PlannedAgent { agent, model, price, tools, in_place_of_built_in };
        Ok(Self { planned, call, dearest: Some(dearest), makes })
    }
}

/// What a task is with all below it.
struct Extent {
    /// The most that it can cost; none where nothing bounds it.
    worst: Option<Usd>,
    /// How many may be at work at once.
    width: u64,
    /// Everybody who can work on it.
    agents: BTreeSet<AgentName>,
}

struct Planner {
    known: BTreeMap<AgentName, Known>,
    tasks: Vec<PlannedTask>,
    unbounded: Vec<String>,
}

impl Planner {
    /// Plans a task and all below it.
    fn task(&mut self, spec: &TaskSpec, above: &str, depth: u64, turn: u64) -> Extent {
        let path = match above {
            "" => spec.name.to_string(),
            above => format!("{above}/{}", spec.name),
        };
        let (own, mut agents) = self.agents(spec);
        let (place, told) = (self.tasks.len(), self.unbounded.len());
        self.tasks.push(PlannedTask {
            path: path.clone(),
            depth,
            turn,
            does: match &spec.target {
                None => does(&spec.body),
                Some(label) => format!("{} at a worker with label {label}", does(&spec.body)),
            },
            output: spec.output.as_ref().map(ToString::to_string),
            depends_on: spec.depends_on.iter().map(ToString::to_string).collect(),
            prechecks: spec.prechecks.iter().map(shown).collect(),
            postchecks: spec.postchecks.iter().map(shown).collect(),
            attempts: match &spec.body {
                Body::Agent { .. } | Body::Command { .. } | Body::Native { .. } | Body::Call(_) => {
                    u64::from(spec.retries.max) + 1
                }
                _ => 0,
            },
            agents: own
                .iter()
                .filter_map(|name| self.known.get(name))
                .map(|known| known.planned.clone())
                .collect(),
            budget: spec.budget.clone(),
            worst_case: None,
        });
        let (mut below, mut width) = (Some(Usd::ZERO), 1);
        let tasks = spec.body.below();
        if !tasks.is_empty() {
            let turns = turns(tasks);
            let mut widths: BTreeMap<u64, u64> = BTreeMap::new();
            for (child, turn) in tasks.iter().zip(turns) {
                let of = self.task(child, &path, depth + 1, turn);
                below = below.zip(of.worst).map(|(sum, cost)| sum.saturating_add(cost));
                *widths.entry(turn).or_default() += of.width;
                agents.extend(of.agents);
            }
            width = widths.into_values().max().unwrap_or(1).max(1);
        }
        let is_for_each = if let Body::ForEach(each) = &spec.body {
            // Nobody knows yet how often it is done.
            below = below.filter(|cost| *cost == Usd::ZERO);
            let most = spec.budget.tree.unwrap_or_default().fan_out;
            let most = each.max_concurrency.map_or(most, |most| most.get());
            width = width.saturating_mul(u64::from(most));
            true
        } else {
            false
        };
        let worst = self.worst(spec, &agents, below.filter(|_| own.is_empty()));
        if worst.is_some() || is_for_each {
            // What is bounded together needs no bounds of its own.
            self.unbounded.truncate(told);
        }
        if worst.is_none() && (is_for_each || !own.is_empty()) {
            let why = format!(
                "task {path} has neither usd nor rounds nor tokens in its budget or one above"
            );
            self.unbounded.push(why);
        }
        if let Some(planned) = self.tasks.get_mut(place) {
            planned.worst_case = worst;
        }
        Extent { worst, width, agents }
    }

    /// Returns the agents of a task's body, of its checks and of what decides these, each once, in that order; and
    /// everybody who can work on the task for that, those among them by whom an agent can have tasks done.
    fn agents(&self, spec: &TaskSpec) -> (Vec<AgentName>, BTreeSet<AgentName>) {
        fn collect(spec: &TaskSpec, names: &mut Vec<AgentName>, makers: &mut Vec<AgentName>) {
            let mut add = |name: &AgentName| {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            };
            if let Body::Agent { agent, .. } = &spec.body {
                add(agent);
                if spec.isolation.is_none() {
                    makers.push(agent.clone());
                }
            }
            for check in spec.prechecks.iter().chain(&spec.postchecks) {
                if let CheckKind::Agent(asked) = &check.kind {
                    add(&asked.agent);
                }
                if let Some(Fix::Agent { agent, .. }) = &check.fix {
                    add(agent);
                }
            }
            for check in spec.prechecks.iter().chain(&spec.postchecks) {
                // What decides a check is paid by the task that is checked.
                let mut open = deciding(check).iter().collect::<Vec<_>>();
                while let Some(task) = open.pop() {
                    collect(task, names, makers);
                    open.extend(task.body.below());
                }
            }
        }
        let (mut names, mut makers) = (Vec::new(), Vec::new());
        collect(spec, &mut names, &mut makers);
        let mut all: BTreeSet<AgentName> = names.iter().cloned().collect();
        let makes = |name: &AgentName| self.known.get(name).is_some_and(|known| known.makes);
        if makers.iter().any(makes) {
            all.extend(self.known.keys().cloned());
        }
        (names, all)
    }

    /// Returns the most that a task and all below it can cost: the tightest of what its caps allow, and of the sum of what
    /// is `below` where that is all.
    fn worst(
        &self,
        spec: &TaskSpec,
        agents: &BTreeSet<AgentName>,
        below: Option<Usd>,
    ) -> Option<Usd> {
        let budget = &spec.budget;
        // Caps that calls may pass bound nothing.
        if matches!(budget.on_exhausted, Some(OnExhausted::Unlimited | OnExhausted::Grace(_))) {
            return below;
        }
        let known = || agents.iter().map(|name| self.known.get(name));
        // All its calls, and those of what is below it, at the dearest of those who can make them.
        let dearest_call =
            known().map(|known| known.and_then(|known| known.call)).collect::<Option<Vec<_>>>();
        let of_rounds = budget.rounds.zip(dearest_call).map(|(rounds, calls)| {
            let call = calls.into_iter().max().unwrap_or(Usd::ZERO);
            Usd::from_nanos(call.as_nanos().saturating_mul(i64::from(rounds)))
        });
        let dearest =
            known().map(|known| known.and_then(|known| known.dearest)).collect::<Option<Vec<_>>>();
        let of_tokens = budget.tokens.zip(dearest).map(|(tokens, prices)| {
            prices.into_iter().max().unwrap_or(Usd::ZERO).per_million(tokens)
        });
        let free = !agents.is_empty()
            && known().all(|known| known.is_some_and(|known| known.call == Some(Usd::ZERO)));
        [budget.usd, below, of_rounds, of_tokens, free.then_some(Usd::ZERO)]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Returns the turn of each task among its siblings: one more than the latest of those it depends on.
fn turns(tasks: &[TaskSpec]) -> Vec<u64> {
    let places: HashMap<&TaskName, usize> =
        tasks.iter().enumerate().map(|(place, task)| (&task.name, place)).collect();
    let on = |task: &TaskSpec| -> BTreeSet<usize> {
        task.depends_on.iter().filter_map(|name| places.get(name).copied()).collect()
    };
    let mut waits = vec![0_usize; tasks.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    for (place, task) in tasks.iter().enumerate() {
        for before in on(task) {
            waits[place] += 1;
            after[before].push(place);
        }
    }
    let mut turns = vec![1_u64; tasks.len()];
    let mut free: Vec<usize> = (0..tasks.len()).filter(|place| waits[*place] == 0).collect();
    while let Some(place) = free.pop() {
        for next in std::mem::take(&mut after[place]) {
            turns[next] = turns[next].max(turns[place] + 1);
            waits[next] -= 1;
            if waits[next] == 0 {
                free.push(next);
            }
        }
    }
    turns
}

fn does(body: &Body) -> String {
    match body {
        Body::Agent { agent, .. } => format!("agent {agent}"),
        Body::Command { argv } => format!("command {}", argv.join(" ")),
        Body::Native { function } => format!("native {function}"),
        Body::Call(call) => format!("tool {}", call.tool),
        other => other.as_str().to_owned(),
    }
}

/// Returns the tasks that decide a check, where any do.
fn deciding(check: &CheckSpec) -> &[TaskSpec] {
    match &check.kind {
        CheckKind::Workflow(workflow) => &workflow.tasks,
        _ => &[],
    }
}

fn shown(check: &CheckSpec) -> String {
    let mut told = check.name.clone();
    let tasks: Vec<String> = deciding(check)
        .iter()
        .map(|task| format!("{} ({})", task.name, does(&task.body)))
        .collect();
    if !tasks.is_empty() {
        told.push_str(&format!(", by {}", tasks.join(", ")));
    }
    if check.control.is_some() {
        told.push_str(", with a control");
    }
    if check.fix.is_some() {
        told.push_str(", mended once");
    }
    if let Some(rounds) = check.max_rounds {
        told.push_str(&format!(", {rounds} rounds at most"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_has_as_many_turns_as_tasks() {
        let task = |name: usize, on: Option<usize>| {
            let mut spec = serde_json::json!({ "name": format!("t{name}"), "body": { "command": { "argv": ["x"] } } });
            spec["depends_on"] = on.map(|on| format!("t{on}")).into_iter().collect();
            serde_json::from_value::<TaskSpec>(spec).unwrap()
        };
        let length = 2_000;
        // The last of the chain stands first.
        let tasks: Vec<TaskSpec> = (0..length).rev().map(|n| task(n, n.checked_sub(1))).collect();

        let turns = turns(&tasks);

        assert_eq!(turns, (1..=length as u64).rev().collect::<Vec<_>>());
    }
}
