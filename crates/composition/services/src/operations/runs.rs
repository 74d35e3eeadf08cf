//! `runs.*`: begins, lists, shows, stops and resumes runs.

mod answers; // What hooks and the sandbox said.
mod attach; // Files that are shown with what is asked.
mod call; // One call of a tool, by hand.
mod carry; // Carrying a run out, and waiting for a log that is away.
mod control; // Stopping and steering, from any process.
mod diff; // Where two runs part.
mod ending; // What is done before the end is recorded.
mod fork; // Going on from a point of another run.
pub(super) mod goal; // A plan, its tasks done apart and merged.
mod kept; // Whether what a run goes on from is here.
mod replay; // Once more, from what was answered.
mod review; // A change that git knows, judged.
mod rounds; // Edit, test, lint, review, until all of it passes.
mod turns; // What is said in a conversation, one after the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use formwork_agent::Agent;
use formwork_browser::Browsers;
use formwork_policy::Hashes;
use formwork_protocols::{
    AgentName, Body, EventBody, ModelRef, PermissionMode, Position, Principal, Rng as _, RunId,
    RunOutcome, RunState, Scrub, Span, Store, SubscriptionName, SystemRng, TaskId, ToolSpec,
    WorkflowName,
    check::{CheckKind, CheckSpec, CommandCheck, Expect, GitChange, Parser},
    document::Diagnostics,
    event::{HookFailed, NetworkRefused},
    spec::Retries,
    store::{AttemptRow, CallRow, CheckRow, RunRow, Selection, TaskRow},
};
use formwork_sandbox::Protection;
use formwork_scheduler::{
    Executor, Report, Scheduler, Setup,
    workflow::{Known, Plan, SingleTask, WrittenWorkflow},
};
use formwork_write_safety::Reads;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Error, Formwork, approval,
    baseline::Baselines,
    capability::{Caller, Effect, Operation, Scope},
    commits,
    config::Config,
    consult::CONSULT,
    custom, documents, effects,
    executor::Workshop,
    leftover, making,
    models::{Models, lookup},
    observers::{Ready, Told},
    outside,
    presence::{self, Presence},
    remote::{self, Remotes},
    repository::Briefing,
    setup::{self, AgentSetup, RunSetup},
    trust::{self, Parted},
};

pub use crate::setup::Kind;
pub(crate) use call::hand;
use carry::Carried;
pub use {
    answers::{ContradictionRow, GateRow, ServiceRow, WorkerNews},
    call::Call,
    control::{Abort, Pause, Steer, SteerParams, Steered, StopParams, Stopped},
    diff::{Compared, Diff, DiffParams, FilePair, Spent, Stands, TaskPair},
    fork::{Fork, ForkParams, Forked, Point, Rewind, RewindParams},
    goal::{Given, Goal},
    replay::{Compared as Replayed, Replay, ReplayParams},
    rounds::Rounds,
    turns::{Chat, Chats, ChatsParams, List as ListChats, Said},
};
pub(crate) use {ending::Ending, rounds::SUITE};

/// How many tasks run at once where nobody says otherwise: what one person's machine and account bear.
const WIDTH: usize = 4;

/// How long an exit check of a single task may take.
const CHECK_TIMEOUT: Span = Span::from_secs(600);

/// What is to be done.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// A workflow.
    #[expect(missing_docs, reason = "its fields' names say it")]
    Workflow {
        /// Where it was found, for messages.
        source: String,
        text: String,
    },
    /// One task in words.
    #[expect(missing_docs, reason = "its fields' names say it")]
    Task {
        prompt: String,
        /// `coder` where it may write and `reader` where not, unless somebody says otherwise.
        agent: Option<AgentName>,
        /// Commands that have to succeed before it counts as done.
        checks: Vec<Vec<String>>,
        /// A file of requirements that it is held to, from the root of the workspace.
        #[serde(default)]
        spec: Option<String>,
        /// Files of the workspace that are shown with it: the text of a text, images and documents as such.
        #[serde(default)]
        attach: Vec<String>,
    },
    /// What a person says in a conversation with an agent.
    #[expect(missing_docs, reason = "its fields' names say it")]
    Turn {
        prompt: String,
        /// `partner` unless somebody says otherwise.
        #[serde(default)]
        agent: Option<AgentName>,
        /// The run whose conversation goes on; a new one begins where absent.
        #[serde(default)]
        after: Option<RunId>,
        /// Whether the conversation is made as short as it can be first.
        #[serde(default)]
        compact: bool,
        /// Files of the workspace that are shown with it: the text of a text, images and documents as such.
        #[serde(default)]
        attach: Vec<String>,
    },
    /// A task is worked on in rounds until what is to be held against it passes.
    Loop(Rounds),
    /// A goal is planned by an agent, and the tasks of the plan are done apart and merged one by one.
    Goal(Goal),
    /// A tool is called once, through all that holds for a call of an agent.
    Call(Call),
    /// A change that git knows is judged by an agent, and nothing is changed. Only where it approves has the run
    /// completed.
    Review {
        /// Which change.
        #[serde(default)]
        change: GitChange,
        /// What is to be looked for in particular.
        #[serde(default)]
        prompt: Option<String>,
        /// `reviewer` unless somebody says otherwise.
        #[serde(default)]
        agent: Option<AgentName>,
    },
}

/// What a run is begun with.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartParams {
    /// What is to be done.
    pub work: Work,
    /// What is set from outside for the workflow's variables.
    #[serde(default)]
    pub vars: Map<String, Value>,
    /// The model of every agent, in place of what they ask for.
    #[serde(default)]
    pub model: Option<ModelRef>,
    /// How many tasks run at once.
    #[serde(default)]
    pub width: Option<usize>,
    /// Whether what the run has changed is committed once it has completed.
    #[serde(default)]
    pub commit: bool,
    /// What the run may do, in place of what is configured.
    #[serde(default)]
    pub mode: Option<PermissionMode>,
    /// Whether nobody is there to be asked: what a decision would assume in the end is taken at once, and one
    /// that assumes nothing fails.
    #[serde(default)]
    pub headless: bool,
}

/// A run that goes on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The run.
    pub run: RunId,
    /// The files of agents that take the place of built-in ones, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overridden: BTreeMap<AgentName, String>,
    /// The files of agents that would do so, and do not because nobody has trusted them as they stand, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub untrusted: BTreeMap<AgentName, String>,
    /// What a person has to know before a model is asked, such as an image that it does not take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// `runs.start`
pub struct Start;

#[async_trait]
impl Operation for Start {
    const NAME: &'static str = "runs.start";
    const DOC: &'static str = "Begins a run of a workflow or of one task.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = StartParams;
    type Output = Started;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: StartParams,
    ) -> Result<Started, Error> {
        let most = setup::mode(&formwork.inner.config);
        if let Some(mode) = params.mode.filter(|mode| *mode > most)
            && !caller.scopes().contains(&Scope::Admin)
        {
            let principal = caller.principal().clone();
            return Err(Error::Mode { principal, mode, most });
        }
        begin(formwork, caller, params, None).await
    }
}

/// What a run is begun by, where that is a subscription.
pub(crate) struct Cause {
    /// The name that the run has, under which it was announced.
    pub(crate) run: RunId,
    /// The subscriptions that had it begin.
    pub(crate) by: Vec<SubscriptionName>,
}

/// Begins a run.
///
/// # Errors
/// What stands in the way of the run.
pub(crate) async fn begin(
    formwork: &Formwork,
    caller: &Caller,
    params: StartParams,
    cause: Option<Cause>,
) -> Result<Started, Error> {
    let headless = params.headless;
    let Prepared {
        plan,
        mut setup,
        commit,
        kind,
        workshop,
        observers,
        overridden,
        untrusted,
        notes,
    } = Box::pin(prepare(formwork, caller, params)).await?;
    let ending = Arc::new(Ending::new(formwork, caller, kind, commit));
    let workshop = Arc::new(Workshop { ending: Some(Arc::clone(&ending)), ..workshop });
    let (scheduler, present) = scheduler(formwork, Arc::clone(&workshop), setup.width)?;
    let scheduler = scheduler.headless(headless);
    let named = cause.map(|Cause { run, by }| {
        setup.caused_by = by;
        run
    });
    let recorded = match serde_json::to_value(&setup) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    // Whoever does not want it any more, since its documents were read, is heard here, before it is there.
    tokio::task::yield_now().await;
    let around = Setup {
        workspace: formwork.workspace().display().to_string(),
        mode: setup.mode(),
        principal: caller.principal().clone(),
        setup: recorded,
    };
    let new = match named {
        Some(run) => scheduler.create_as(run, &plan, around).await,
        None => scheduler.create(&plan, around).await,
    };
    let new = new.map_err(Error::from)?;
    let run = new.id();
    let observers = observers.begin(&workshop, run, Told::default()).await?;
    let carried = Carried { scheduler, present, ending, workshop, observers };
    carry::carry(formwork, caller, run, carried, Some(new));
    Ok(Started { run, overridden, untrusted, notes })
}

/// All that a run is begun with.
struct Prepared {
    plan: Plan,
    setup: RunSetup,
    commit: Option<String>,
    kind: Kind,
    workshop: Workshop,
    observers: Ready,
    overridden: BTreeMap<AgentName, String>,
    untrusted: BTreeMap<AgentName, String>,
    notes: Vec<String>,
}

/// Makes ready for a run. All that can fail before anything is recorded or paid for fails here.
///
/// # Errors
/// What stands in the way of the run.
async fn prepare(
    formwork: &Formwork,
    caller: &Caller,
    params: StartParams,
) -> Result<Prepared, Error> {
    let StartParams { mut work, vars, model, width, commit, mode, headless } = params;
    // The log names it, and whoever takes a run up or back has to find it again.
    if formwork.workspace().to_str().is_none() {
        let workspace = formwork.workspace().display().to_string();
        return Err(Error::WorkspaceName { workspace });
    }
    if let Work::Goal(asked) = work {
        work = Work::Goal(goal::settled(formwork, asked).await?);
    }
    let commit = commit.then(|| commits::subject(&work));
    let kind = match &work {
        Work::Review { .. } => Kind::Review,
        Work::Loop(_) => Kind::Loop,
        Work::Goal(_) => Kind::Goal,
        _ => Kind::Other,
    };
    let is_workflow = matches!(work, Work::Workflow { .. });
    let mut config = formwork.inner.config.clone();
    // Who judges changes nothing, whatever the config allows.
    let looks = matches!(work, Work::Review { .. }).then_some(PermissionMode::Ask);
    let own_mode = looks.or(mode).is_some();
    if let Some(mode) = looks.or(mode) {
        config.permissions.get_or_insert_default().mode = Some(mode);
    }
    let mut goes_on = None;
    let mut hand = None;
    let mut notes = Vec::new();
    let (mut integrates, mut given, mut named) = (None, None, None);
    let mut stands_on = Hashes::new();
    let connected = formwork.models(&config);
    let (agents, mut plan) = match work {
        Work::Workflow { source, text } => {
            // One model for all takes the place of those that the agents name. Where none can be had
            // at all, as for want of a key, that is told once the documents are sound.
            let models = connected.as_ref().ok().filter(|_| model.is_none());
            let models = models.map(|(_, models)| models);
            let Workflow { agents, plan, workflows, contracts } =
                workflow(formwork, (&source, &text), &vars, models)?;
            let (workflows, contracts) = (&workflows, &contracts);
            let read = trust::Read { source: &source, text: &text, workflows, contracts };
            let places = (formwork.state(), formwork.workspace());
            stands_on = trust::workflow(&read, &plan, setup::mode(&config), places)?;
            (agents, plan)
        }
        Work::Turn { mut prompt, agent, after, compact, attach } => {
            goes_on = turns::after(formwork, after, compact).await?;
            let attached = attach::read(formwork, &mut prompt, &attach, &mut notes)?;
            let mut plan = turns::plan(prompt, agent);
            plan.attach(attached);
            (formwork.agents()?, plan)
        }
        Work::Loop(asked) => {
            let mode = setup::mode(&config);
            if mode < PermissionMode::Edit {
                let reason = format!("a run in mode {} edits nothing", mode.as_str());
                return Err(Error::Rounds { reason });
            }
            (formwork.agents()?, rounds::plan(formwork, asked)?)
        }
        Work::Goal(asked) => {
            let mode = setup::mode(&config);
            if mode < PermissionMode::Edit {
                let reason = format!("a run in mode {} changes nothing", mode.as_str());
                return Err(Error::Goal { reason });
            }
            let begun = goal::plan(formwork, asked)?;
            (integrates, given, named) = (begun.test, begun.given, begun.agent);
            (formwork.agents()?, begun.plan)
        }
        Work::Call(asked) => {
            let agents = formwork.agents()?;
            let by = caller.principal().clone();
            let (plan, own) = call::plan(formwork, &config, &agents, asked, by)?;
            hand = Some(own);
            (agents, plan)
        }
        Work::Review { change, prompt, agent } => {
            (formwork.agents()?, review::plan(formwork, change, prompt, agent).await?)
        }
        Work::Task { mut prompt, agent, checks, spec, attach } => {
            let attached = attach::read(formwork, &mut prompt, &attach, &mut notes)?;
            let mut plan = single(setup::mode(&config), prompt, agent, checks);
            plan.attach(attached);
            if let Some(path) = &spec {
                bind(formwork, &mut plan, path)?;
            }
            (formwork.agents()?, plan)
        }
    };
    if let Some(budget) = &config.budget {
        plan.cap(budget);
    }
    plan.held().map_err(|beyond| Error::Caps { reason: beyond.to_string() })?;
    let mode = setup::mode(&config);
    if let Some((task, check)) = plan.mended().filter(|_| mode < PermissionMode::Edit) {
        let what = format!("check {:?} of task {} has a fix", check.name, task.name);
        return Err(Error::ReadOnly { what, mode });
    }
    effects::fit(plan.root(), mode, &protection(formwork, &config)?)?;
    remote::fit(plan.root(), formwork.inner.hub.is_some(), commit.is_some())?;
    let (keys, models) = connected?;
    let mut chosen = BTreeMap::new();
    for name in plan.agents().into_iter().chain(&named) {
        let agent = agents.get(name)?.clone();
        let model = thinks_with(&models, &agent, model.as_ref())?;
        let summary = models.cheap().cloned();
        summary.as_ref().map(|summary| models.model(summary)).transpose()?;
        chosen.insert(name.clone(), AgentSetup { agent, model, summary });
    }
    let model_of = |name: &AgentName| chosen.get(name).map(|own| own.model.clone());
    notes.extend(attach::held(&plan, &models, model_of).await?);
    let (trusted, untrusted) = custom::trusted(formwork.workspace(), formwork.state())?;
    let mut helpers = BTreeSet::new();
    // Whom a plan asks for is known once it is there.
    let is_planned = kind == Kind::Goal;
    let asks_others =
        |own: &AgentSetup| making::may_make(&own.agent) || making::may_consult(&own.agent);
    let by_hand = matches!(&plan.root().body, Body::Call(call) if call.tool.as_str() == CONSULT);
    if is_planned || by_hand || chosen.values().any(asks_others) {
        // They may be asked for while the run goes on. One that cannot work here is not there.
        let mut specs = all_tools(formwork);
        specs.extend(custom::specs(trusted.iter().map(|tool| tool.document.clone())));
        for agent in agents.agents.iter() {
            if chosen.contains_key(agent.name()) {
                continue;
            }
            let ready = thinks_with(&models, agent, model.as_ref());
            let is_sound = setup::own_rules(agent, &specs).is_ok();
            if let Some(model) = ready.ok().filter(|_| is_sound) {
                let (agent, summary) = (agent.clone(), models.cheap().cloned());
                helpers.insert(agent.name().clone());
                chosen.insert(agent.name().clone(), AgentSetup { agent, model, summary });
            }
        }
    }
    plan.cap_agents(|name| chosen.get(name).map(|own| &own.agent.document().budget));
    let width = width.unwrap_or(WIDTH).max(1);
    let approvals = approval::standing(formwork)?;
    let planned = chosen.values().filter(|own| !helpers.contains(own.agent.name()));
    let windows = planned.filter_map(|own| models.catalog().info(&own.model).ok());
    let window = windows.filter_map(|info| info.context_tokens).min();
    let briefing = Some(Briefing::read(&config, &formwork.inner.root, window)?);
    let outside = match &goes_on {
        Some(after) => outside::carried(&*formwork.inner.store, after.of_run).await?,
        None => Vec::new(),
    };
    let overridden = chosen
        .iter()
        .filter_map(|(name, own)| {
            let file = documents::in_place_of_built_in(&own.agent)?;
            Some((name.clone(), file.to_owned()))
        })
        .collect();
    let unheard = chosen.keys().filter_map(|name| {
        let agent = agents.untrusted.get(name)?;
        Some((name.clone(), documents::in_place_of_built_in(agent)?.to_owned()))
    });
    let unheard = unheard.collect();
    stands_on.extend(formwork.inner.project.iter().map(trust::Brought::record));
    // A tool that no agent here may call has no part in the run.
    let mut specs = all_tools(formwork);
    specs.extend(custom::specs(trusted.iter().map(|tool| tool.document.clone())));
    let mut used = BTreeSet::new();
    for own in chosen.values().filter(|own| !helpers.contains(own.agent.name())) {
        used.extend(setup::own_rules(&own.agent, &specs).map_or(BTreeSet::new(), |it| it.1.tools));
    }
    if is_workflow {
        let tools = specs.iter().filter(|it| used.contains(&it.definition.name));
        notes.extend(effects::withheld(mode, tools));
    }
    let tools = trusted.iter().filter(|tool| used.contains(&tool.document.tool.name));
    let own = chosen.values().map(|own| &own.agent);
    stands_on.extend(trust::record(tools, own, formwork.workspace()));
    let tools: Vec<_> = trusted.into_iter().map(|tool| tool.document).collect();
    let programs = trust::programs(formwork.workspace(), &config.hooks, &tools);
    let setup = RunSetup {
        config,
        agents: chosen,
        helpers,
        width,
        commit: commit.clone(),
        headless,
        approvals,
        briefing,
        tests: crate::project::commands(formwork.workspace()).tests,
        tools,
        after: goes_on,
        integrates,
        kind,
        outside,
        stands_on,
        programs: Some(programs),
        own_mode,
        hand,
        caused_by: Vec::new(),
    };
    let workshop = workshop(formwork, setup.clone(), keys.registry, models)?;
    for agent in setup.agents.values() {
        workshop.check_rules(&agent.agent).map_err(|error| match error {
            Error::Rules { reason } => {
                Error::Rules { reason: reason + &custom::untrusted_hint(&untrusted) }
            }
            other => other,
        })?;
    }
    workshop.check_network().await?;
    workshop.check_services(plan.root())?;
    if let Some((nodes, held)) = &given {
        workshop.can_do(nodes, held, plan.root().budget.usd)?;
    }
    // A fault of theirs would leave a run behind that nobody carries out.
    let observers = Ready::of(&workshop)?;
    Ok(Prepared {
        plan,
        setup,
        commit,
        kind,
        workshop,
        observers,
        overridden,
        untrusted: unheard,
        notes,
    })
}

/// Says whether a run could begin here as things are: it is made ready as any other, and then let go.
///
/// # Errors
/// What stands in its way, as it would itself be told.
pub(crate) async fn could_begin(formwork: &Formwork) -> Result<(), Error> {
    let (agent, spec) = (None, None);
    let work = Work::Task {
        prompt: "Look.".to_owned(),
        agent,
        checks: Vec::new(),
        spec,
        attach: Vec::new(),
    };
    let params = StartParams {
        work,
        vars: Map::new(),
        model: None,
        width: None,
        commit: false,
        mode: None,
        headless: false,
    };
    let caller = Caller::owner(Principal::system("doctor"));
    Box::pin(prepare(formwork, &caller, params)).await.map(drop)
}

/// Returns the model that an agent thinks with in a run, ready to be asked.
///
/// # Errors
/// [`Error::NoSuchCategory`], [`Error::Model`] and [`Error::Key`].
pub(crate) fn thinks_with(
    models: &Models,
    agent: &Agent,
    instead: Option<&ModelRef>,
) -> Result<ModelRef, Error> {
    let model = instead.cloned().map_or_else(|| models.choice(agent), Ok)?;
    models.model(&model)?;
    Ok(model)
}

/// A workflow as it was read, with all that it asks for.
pub(super) struct Workflow {
    pub(super) agents: Parted,
    pub(super) plan: Plan,
    workflows: BTreeMap<WorkflowName, WrittenWorkflow>,
    contracts: BTreeMap<String, Result<String, String>>,
}

/// Reads a workflow and the agents that it asks for, with every fault of both at its place; where
/// `models` are given, those of the models that the agents name among them.
pub(super) fn workflow(
    formwork: &Formwork,
    (source, text): (&str, &str),
    vars: &Map<String, Value>,
    models: Option<&Models>,
) -> Result<Workflow, Error> {
    let workspace = formwork.workspace();
    let mut faults = Diagnostics::default();
    let agents = documents::agents(workspace).map_err(|found| faults.merge(found));
    let agents = agents.map(|all| Parted::of(&all, formwork.state(), workspace));
    let mut known = Known {
        agents: match &agents {
            // One that is not trusted is told as such, once the documents are sound.
            Ok(Parted { agents, untrusted }) => {
                agents.names().chain(untrusted.names()).cloned().collect()
            }
            Err(()) => documents::agent_names(workspace),
        },
        natives: formwork.inner.natives.names().map(str::to_owned).collect(),
        native_checks: formwork.inner.natives.check_names().map(str::to_owned).collect(),
        project: crate::project::commands(workspace),
        contracts: documents::contracts_of(source, text, workspace),
        tools: known_tools(formwork),
        workflows: documents::workflows_for(text, workspace),
        ..Known::default()
    };
    for WrittenWorkflow { file, text } in known.workflows.values() {
        known.contracts.extend(documents::contracts_of(file, text, workspace));
    }
    let plan = Plan::parse(source, text, &known, vars).map_err(|found| faults.merge(found));
    if let Some(models) = models {
        let mut names = documents::agents_of(source, text);
        names.retain(|name| !agents.as_ref().is_ok_and(|it| it.untrusted.get(name).is_some()));
        faults.merge(documents::model_faults(workspace, &names, |agent, choice| {
            let model = models.chosen(agent, choice);
            let ready = model.and_then(|model| models.model(&model));
            ready.map(drop)
        }));
    }
    match (agents, plan) {
        (Ok(agents), Ok(plan)) => {
            let Known { workflows, contracts, .. } = known;
            faults.or(Workflow { agents, plan, workflows, contracts }).map_err(Error::from)
        }
        _ => Err(faults.into()),
    }
}

/// Returns the names of the tools that agents of this program may have.
fn known_tools(formwork: &Formwork) -> BTreeSet<String> {
    documents::tools(formwork.inner.tools.iter().map(|tool| &tool.spec().definition.name))
}

/// Binds a task in words to a contract of the workspace.
fn bind(formwork: &Formwork, plan: &mut Plan, path: &str) -> Result<(), Error> {
    let text = documents::contract_text(formwork.workspace(), path)
        .map_err(|reason| Error::Contract { path: path.to_owned(), reason })?;
    let known = Known { tools: known_tools(formwork), ..Known::default() };
    Ok(plan.bind(path, &text, &known)?)
}

/// Makes a plan of one task in words.
fn single(
    mode: PermissionMode,
    prompt: String,
    agent: Option<AgentName>,
    checks: Vec<Vec<String>>,
) -> Plan {
    let writes = mode >= PermissionMode::Edit;
    let agent = agent.unwrap_or_else(|| {
        AgentName::parse(if writes { "coder" } else { "reader" })
            .expect("the names of built-in agents follow the rule")
    });
    let postchecks = checks
        .into_iter()
        .map(|argv| {
            CheckSpec::new(
                argv.join(" "),
                CheckKind::Command(CommandCheck {
                    parse: Parser::of(&argv),
                    argv,
                    expect: Expect::Pass,
                }),
                CHECK_TIMEOUT,
            )
        })
        .collect();
    let name = WorkflowName::parse(if writes { "task" } else { "question" })
        .expect("these names follow the rule");
    let task = SingleTask { agent, prompt, postchecks, retries: Retries::default(), timeout: None };
    Plan::single(name, task, formwork_protocols::Budget::default())
}

/// Describes every tool that agents can be given.
pub(crate) fn all_tools(formwork: &Formwork) -> Vec<ToolSpec> {
    let mut tools = crate::toolset::built_in();
    tools.extend(formwork.inner.tools.iter().map(|tool| tool.spec().clone()));
    tools
}

/// Returns what processes are confined to here.
fn protection(formwork: &Formwork, config: &Config) -> Result<Protection, Error> {
    let inner = &formwork.inner;
    let variable = lookup(&inner.environment);
    setup::protection(config, inner.has_launcher, inner.root.path(), &variable)
}

/// Puts together what a run works with.
pub(crate) fn workshop(
    formwork: &Formwork,
    setup: RunSetup,
    secrets: formwork_secrets::Registry,
    models: Models,
) -> Result<Workshop, Error> {
    let inner = &formwork.inner;
    let protection = protection(formwork, &setup.config)?;
    let writes = setup.mode() >= PermissionMode::Edit;
    let baselines = Arc::new(Baselines::new(formwork, writes));
    let approver = approval::approver(formwork, &setup);
    Ok(Workshop {
        setup: Arc::new(setup),
        models: Arc::new(models),
        root: Arc::clone(&inner.root),
        reads: Reads::new(),
        trash: Arc::clone(&inner.trash),
        snapshots: Arc::clone(&inner.snapshots),
        environment: inner.environment.clone(),
        settled: Arc::default(),
        sandbox: Arc::clone(&inner.sandbox),
        protection,
        sealing: Arc::default(),
        temporary: inner.state.join("tmp"),
        configured: inner.configured.clone(),
        baselines,
        store: Arc::clone(&inner.store),
        secrets: Arc::new(secrets),
        scrub: Arc::clone(&inner.scrub) as Arc<dyn Scrub>,
        clock: Arc::clone(&inner.clock),
        rng: Arc::clone(&inner.rng),
        tools: inner.tools.clone(),
        natives: inner.natives.clone(),
        unasked: Arc::default(),
        shapes: Arc::default(),
        outside: Arc::default(),
        shares: Arc::default(),
        asked: Arc::default(),
        waiting: Arc::default(),
        apart: Arc::default(),
        merging: Arc::default(),
        home: None,
        ending: None,
        browsers: Browsers::new({
            let (environment, root) = (inner.environment.clone(), inner.root.path().to_owned());
            move || chromium(&environment, &root)
        }),
        approver: Arc::new(approval::Kept {
            inner: approver,
            book: approval::book(&inner.state, inner.root.path())
                .map_err(|error| crate::error::chain(&error)),
        }),
        tape: None,
        remotes: Arc::new(Remotes::new(inner.hub.clone())),
        is_bench: false,
    })
}

/// Finds the browser of this machine: what CHROME names, or what is in PATH.
///
/// # Errors
/// Why there is none, and what to do.
pub(crate) fn chromium(
    environment: &BTreeMap<OsString, OsString>,
    workspace: &Path,
) -> Result<PathBuf, String> {
    let variable = |name: &str| environment.get(OsStr::new(name)).map(OsString::as_os_str);
    let path = variable("PATH").unwrap_or_default();
    formwork_browser::find(variable("CHROME"), path, &[workspace.to_owned()])
}

/// Makes the scheduler of one run, and the mark by which others can tell that it lives.
fn scheduler(
    formwork: &Formwork,
    workshop: Arc<Workshop>,
    width: usize,
) -> Result<(Scheduler, Presence), Error> {
    let (scheduler, present) = scheduler_of(formwork, workshop)?;
    Ok((scheduler.with_width(NonZeroUsize::new(width).unwrap_or(NonZeroUsize::MIN)), present))
}

/// The same, of whatever does the work.
fn scheduler_of(
    formwork: &Formwork,
    executor: Arc<dyn Executor>,
) -> Result<(Scheduler, Presence), Error> {
    let inner = &formwork.inner;
    // A seed of the embedder's may come again; a name may not.
    let owner = format!("process-{}-{:016x}", std::process::id(), SystemRng.next_u64());
    let present = Presence::of(&owner, &inner.state)?;
    let state = inner.state.clone();
    let scheduler = Scheduler::new(Arc::clone(&inner.store), executor)
        .with_time(Arc::clone(&inner.clock), Arc::clone(&inner.rng))
        .with_owner(owner)
        .with_gone(move |owner| presence::is_gone(owner, &state));
    let scheduler = match &inner.overseer {
        Some((overseer, within)) => scheduler.with_overseer(Arc::clone(overseer), *within),
        None => scheduler,
    };
    let scheduler = match &inner.grant {
        Some(may) => scheduler.with_grant(may.iter().copied()),
        None => scheduler,
    };
    Ok(match inner.lease {
        Some(lease) => (scheduler.with_lease(lease), present),
        None => (scheduler, present),
    })
}

/// Passes on how a run ended. Its owner is present until here, or until its process dies.
fn ended(
    report: Result<Report, formwork_scheduler::Error>,
    present: Presence,
) -> Result<RunOutcome, Error> {
    match report {
        Ok(report) => Ok(report.outcome),
        Err(error) => {
            present.end_without_giving_back();
            Err(error.into())
        }
    }
}

/// Which run to resume.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeParams {
    /// The run.
    pub run: RunId,
}

/// `runs.resume`
pub struct Resume;

#[async_trait]
impl Operation for Resume {
    const NAME: &'static str = "runs.resume";
    const DOC: &'static str = "Takes an interrupted run up where it stopped.";
    const SCOPE: Scope = Scope::Run;
    const EFFECT: Effect = Effect::Write;
    type Params = ResumeParams;
    type Output = Started;

    async fn run(
        formwork: &Formwork,
        caller: &Caller,
        params: ResumeParams,
    ) -> Result<Started, Error> {
        let run = params.run;
        let carried = carry::taken_up(formwork, caller, run, None).await?;
        carry::carry(formwork, caller, run, carried, None);
        Ok(Started {
            run,
            overridden: BTreeMap::new(),
            untrusted: BTreeMap::new(),
            notes: Vec::new(),
        })
    }
}

/// Reads back what a run was set up with.
pub(crate) async fn recorded(store: &dyn Store, run: RunId) -> Result<RunSetup, Error> {
    let selection = Selection { run: Some(run), task: None, kinds: vec!["run.created".to_owned()] };
    let events = store.read(Position::default(), &selection, 1).await?;
    let created = events.into_iter().find_map(|event| match event.body {
        EventBody::RunCreated(created) => Some(created),
        _ => None,
    });
    let mut setup = created.map_or(Value::Null, |created| created.setup);
    if let Value::Object(map) = &mut setup {
        // The scheduler keeps the variables there, and reads them itself.
        map.remove("vars");
    }
    serde_json::from_value(setup).map_err(|source| Error::Setup { run, source })
}

/// Tells what a run was begun as.
///
/// # Errors
/// [`Error::Store`] when it cannot be read.
pub async fn kind(formwork: &Formwork, run: RunId) -> Result<Kind, Error> {
    Ok(recorded(&*formwork.inner.store, run).await?.kind)
}

/// Refuses to act on what a run says of itself where it came from a file: its config, its providers and its rules
/// are those of whoever made the file, and so are the contents that it says were there before.
///
/// # Errors
/// [`Error::Imported`].
pub(super) async fn own(
    formwork: &Formwork,
    run: RunId,
    wanted: &'static str,
) -> Result<(), Error> {
    match formwork.trace().is_imported(run).await? {
        true => Err(Error::Imported { run, wanted }),
        false => Ok(()),
    }
}

pub(super) async fn named(store: &dyn Store, run: RunId) -> Result<RunRow, Error> {
    let row = store.run(run).await?;
    row.ok_or(Error::Store(formwork_protocols::StoreError::NoSuchRun { run }))
}

/// The most runs of one list: some megabytes.
const MAX_LISTED: usize = 10_000;

/// Which runs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListParams {
    /// Only those older than this one.
    pub before: Option<RunId>,
    /// How many at the most, up to 10,000; 20 where absent.
    pub limit: Option<usize>,
}

/// Runs, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The runs.
    pub runs: Vec<RunRow>,
    /// Which of them came from a file, and can be read but not taken up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<RunId>,
    /// Which of them are said to be running although nobody works on them: their process ended without a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<RunId>,
    /// Whether there are older ones.
    #[serde(default)]
    pub more: bool,
}

/// `runs.list`
pub struct List;

#[async_trait]
impl Operation for List {
    const NAME: &'static str = "runs.list";
    const DOC: &'static str = "Lists runs, the newest first.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = ListParams;
    type Output = Listed;

    async fn run(formwork: &Formwork, _: &Caller, params: ListParams) -> Result<Listed, Error> {
        let limit = params.limit.unwrap_or(20).clamp(1, MAX_LISTED);
        // One more than is listed tells that there are more.
        let mut runs = formwork.inner.store.runs(params.before, limit + 1).await?;
        let more = runs.len() > limit;
        runs.truncate(limit);
        // The newest first.
        let marked = match (runs.last(), runs.first()) {
            (Some(from), Some(to)) => formwork.trace().imported(from.run..=to.run).await?,
            _ => BTreeSet::new(),
        };
        let imported = runs.iter().map(|row| row.run).filter(|run| marked.contains(run)).collect();
        let left = left(formwork, &runs, &marked).await?;
        Ok(Listed { runs, imported, left, more })
    }
}

/// Returns those of some runs, the newest first, that are said to be running although nobody works on them. Nobody
/// ever worked here on those that came from a file.
async fn left(
    formwork: &Formwork,
    runs: &[RunRow],
    imported: &BTreeSet<RunId>,
) -> Result<Vec<RunId>, Error> {
    let running = runs.iter().filter(|row| row.state == RunState::Running).map(|row| row.run);
    let running: Vec<RunId> = running.filter(|run| !imported.contains(run)).collect();
    let (Some(newest), Some(oldest)) = (running.first(), running.last()) else {
        return Ok(Vec::new());
    };
    let now = formwork.trace().time().await?;
    let owners = formwork.trace().owners(*oldest..=*newest, now).await?;
    let state: &Path = &formwork.inner.state;
    let is_left = |run: &RunId| owners.get(run).is_none_or(|it| presence::is_gone(it, state));
    Ok(running.into_iter().filter(is_left).collect())
}

/// Checks that nobody works on a run.
///
/// # Errors
/// [`Error::Store`] names who does.
pub(crate) async fn at_rest(formwork: &Formwork, run: RunId) -> Result<(), Error> {
    let now = formwork.trace().time().await?;
    let owner = formwork.trace().owners(run..=run, now).await?.remove(&run);
    match owner.filter(|owner| !presence::is_gone(owner, &formwork.inner.state)) {
        Some(owner) => Err(formwork_protocols::StoreError::NotOwner { run, owner }.into()),
        None => Ok(()),
    }
}

/// Which run to show.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetParams {
    /// The run.
    pub run: RunId,
}

/// A run with all that its views hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RunDetail {
    /// The run itself.
    pub run: RunRow,
    /// Whether it is said to be running although nobody works on it: its process ended without a word.
    #[serde(default)]
    pub is_left: bool,
    /// Its tasks, in the order of their creation.
    pub tasks: Vec<TaskRow>,
    /// The attempts at its tasks, in order.
    pub attempts: Vec<AttemptRow>,
    /// The checks that have decided, with their evidence, in order.
    pub checks: Vec<CheckRow>,
    /// The model calls that ended well, in order.
    pub calls: Vec<CallRow>,
    /// Why tasks have not begun that could but for what others write.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<TaskId, String>,
    /// What gates answered about calls of tools, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateRow>,
    /// The programs that did not take what they were told of, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hook_failures: Vec<HookFailed>,
    /// The connections that were refused to programs, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_connections: Vec<NetworkRefused>,
    /// What happened to the programs that the tasks needed while they worked, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceRow>,
    /// What was assumed of questions and contradicted later, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contradictions: Vec<ContradictionRow>,
    /// What happened to the calls that workers carry out, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerNews>,
}

/// `runs.get`
pub struct Get;

#[async_trait]
impl Operation for Get {
    const NAME: &'static str = "runs.get";
    const DOC: &'static str =
        "Shows a run: its tasks, its checks with their evidence, its model calls.";
    const SCOPE: Scope = Scope::Read;
    const EFFECT: Effect = Effect::Read;
    type Params = GetParams;
    type Output = RunDetail;

    async fn run(formwork: &Formwork, _: &Caller, params: GetParams) -> Result<RunDetail, Error> {
        let (store, run) = (&formwork.inner.store, params.run);
        let row = named(&**store, run).await?;
        let tasks = store.tasks(run).await?;
        let mut attempts = Vec::new();
        for task in &tasks {
            attempts.extend(store.attempts(task.task).await?);
        }
        let checks = store.checks(run).await?;
        let calls = store.calls(run).await?;
        let waits = super::tasks::waits(&**store, run, &tasks).await?.into_iter().collect();
        let answers::Answers {
            gates,
            hook_failures,
            refused_connections,
            services,
            contradictions,
            workers,
        } = answers::of(&**store, run).await?;
        let imported = formwork.trace().imported(run..=run).await?;
        let is_left = !left(formwork, std::slice::from_ref(&row), &imported).await?.is_empty();
        Ok(RunDetail {
            run: row,
            is_left,
            tasks,
            attempts,
            checks,
            calls,
            waits,
            gates,
            hook_failures,
            refused_connections,
            services,
            contradictions,
            workers,
        })
    }
}
